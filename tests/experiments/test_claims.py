"""Judges of the papers' claims, and the tables of the pages, on rows that are made up."""

import numpy as np
import pytest

from drjax.core.statistics import Interval
from experiments import claims
from experiments.claims import CONFIRMED, ELSEWHERE, NOT_RUN, REFUTED, UNDECIDED
from experiments.dr_reconstruction import pages as dr_pages
from experiments.informed_adversary import claims as informed
from experiments.informed_adversary import pages as informed_pages
from experiments.pca_gauss import paper_claims
from experiments.pca_membership import claim_tests as membership
from experiments.pca_membership import pages as membership_pages
from experiments.tsne_property import claim_tests as tsne
from experiments.tsne_property import claims as tsne_claims


def interval(estimate, half=0.01):
    return Interval(estimate, estimate - half, estimate + half)


def test_a_difference_counts_where_its_interval_says_so():
    assert claims.difference(interval(5, 3), interval(1, 4)) == pytest.approx((4, -1, 9))
    assert claims.below(interval(1), interval(2)) is True
    assert claims.below(interval(2), interval(1)) is False
    assert claims.below(interval(1, 0.8), interval(2, 0.8)) is None
    assert claims.no_better(interval(1), interval(1), 0.5) is True
    assert claims.no_better(interval(1), interval(2), 0.5) is False
    assert claims.no_better(interval(1, 0.8), interval(1, 0.8), 0.5) is None
    assert claims.alike(interval(-0.2), 0.5) is True
    assert claims.alike(interval(-0.9), 0.5) is False
    assert claims.alike(interval(0.495), 0.5) is None


def test_one_answer_against_a_claim_refutes_it_and_what_was_not_run_confirms_nothing():
    assert claims.outcome([True, None, False], lacks=True) == REFUTED
    assert claims.outcome([True], lacks=True) == NOT_RUN
    assert claims.outcome([]) == NOT_RUN
    assert claims.outcome([True, None]) == UNDECIDED
    assert claims.outcome([True, True]) == CONFIRMED


def informed_cell(attack, key, error, *, accuracy=0.9, mu=None, n=1000):
    scores = {"n_targets": 100, "success": {"estimate": 0.5}, "seconds_per_target": 1.0}
    for measure in ("mse", "mse_median"):
        scores[measure] = dict(zip(("estimate", "low", "high"), interval(error, error / 10), strict=True))
    of = {"n_shadow": n, "n_fixed": 999, "mu": mu}
    return {"kind": "attack", "factor": key[0], "setting": key[1], "attack": attack, "of": of, "scores": scores,
            "accuracy": accuracy}  # fmt: skip


def informed_rows(errors, **options):
    """Cells of RecoNN and inversion in some settings, the nearest neighbour at 0.04, the mean record at 0.07."""
    rows = []
    for key, (network, inversion) in errors.items():
        for attack, error in (("fast", network), ("inversion", inversion), ("nearest", 0.04), ("mean", 0.07)):
            if error is not None:
                rows.append(informed_cell(attack, key, error, **options.get(key[1], {})))
    return rows


def verdicts(found):
    return {claim.claim: claim.verdict for claim in found}


WORKS = "Reconstruction works: the error is below the nearest neighbour's (VI-A), of RecoNN"


def test_an_attack_works_where_its_error_is_below_that_of_the_nearest_neighbour():
    for error, verdict in ((0.02, CONFIRMED), (0.06, REFUTED), (0.039, UNDECIDED), (None, NOT_RUN)):
        found = verdicts(informed.judged_claims(informed_rows({informed.DEFAULT: (error, 1e-8)})))
        assert found[WORKS] == verdict
        assert found[WORKS.replace("RecoNN", "inversion")] == CONFIRMED


def test_what_another_setting_shows_is_no_verdict_on_the_paper_s():
    key = ("cifar10", "MLP, Adam")
    (claim,) = (c for c in informed.judged_claims(informed_rows({key: (0.02, None)})) if "Adam" in c.claim
                and "RecoNN" in c.claim)  # fmt: skip
    assert claim.verdict == ELSEWHERE
    assert claim.note.startswith("the claim is confirmed there")


def test_a_guarantee_that_is_broken_at_a_large_epsilon_alone_decides_nothing_as_the_paper_s_epsilon_is_lost():
    def judged(*errors):
        rows = informed_rows(
            {informed.DEFAULT: (0.02, 0.02)} | {("privacy", f"mu {i}"): (e, None) for i, e in enumerate(errors)},
            **{f"mu {i}": {"mu": 10.0**i, "accuracy": 0.8 + 0.06 * i} for i in range(len(errors))},
        )
        found = verdicts(informed.judged_claims(rows))
        return found["DP with a large epsilon defeats the attack (VI-D), of RecoNN"], found[
            "It costs little accuracy (VI-D)"
        ]

    assert judged(0.07, 0.07) == (CONFIRMED, CONFIRMED)
    assert judged(0.07, 0.01) == (UNDECIDED, CONFIRMED)
    # The accuracy counts at the largest epsilon alone: here 0.8 for 0.9.
    assert judged(0.01) == (REFUTED, REFUTED)


def test_the_table_of_the_default_setting_has_each_attack_s_own_figures(monkeypatch):
    errors = {"mean": 0.07, "nearest": 0.04, "ridge": 0.06, "fast": 0.03, "quadratic": 0.05, "inversion": 1e-8}
    rows = [informed_cell(attack, informed.DEFAULT, error) for attack, error in errors.items()]
    informed_pages.block("default")  # Of the committed rows: nothing of them stays.
    monkeypatch.setattr(informed_pages, "committed", lambda: rows)
    lines = informed_pages.block("default").splitlines()[2:]
    shown = [line.split(" | ")[1].split()[0] for line in lines]
    assert shown == ["0.070", "0.040", "0.060", "0.030", "0.050", "1.0e-08"]


def private_cell(curator, values, *, name="mnist", field="utility"):
    """Ten trials of a curator that all have one value at each epsilon, with a little noise."""
    noise = np.linspace(-0.001, 0.001, 10)
    points = [
        {"epsilon": e, "best": 0.5 + noise, "utility": 0.5 + noise, field: value + noise} for e, value in values.items()
    ]
    return {"data": name, "n": 1000, "d": 20, "curator": curator, "convention": membership.PAPER,
            "attack": "reconstruction", "neighbouring": "zero_out", "points": points}  # fmt: skip


def private_rows(*cells):
    game = {"data": "mnist", "n": 1000, "attack": "informed", "curator": "", "convention": "", "neighbouring": ""}
    return membership.Rows([], membership.Cells([game, *cells]))


@pytest.mark.parametrize(("laplace", "verdict"), [(0.3, CONFIRMED), (0.6, REFUTED), (0.5, UNDECIDED)])
def test_laplace_has_lower_utility_only_if_each_of_its_mechanisms_has(laplace, verdict):
    worse = [private_cell(f"laplace_{kind}", {1.0: 0.2}) for kind in ("vector", "advanced")]
    one = private_cell("laplace_scalar", {1.0: laplace})
    if verdict == UNDECIDED:
        one["points"][0]["utility"] = one["points"][0]["utility"][::-1]
    rows = private_rows(*worse, one, private_cell("analyze_gauss", {1.0: 0.5}))
    assert membership.laplace_is_lower(rows).outcome == verdict


def test_compositions_cross_where_the_paper_says_within_a_factor():
    naive = private_cell("laplace_scalar", {1e1: 0.50, 1e2: 0.50, 1e3: 0.80}, field="best")
    for at_100, printed, verdict in ((0.55, 300.0, CONFIRMED), (0.55, 1e5, REFUTED), (0.50, 300.0, UNDECIDED)):
        advanced = private_cell("laplace_advanced", {1e1: at_100, 1e2: at_100, 1e3: 0.70}, field="best")
        if verdict == UNDECIDED:
            advanced["points"][2]["best"] = naive["points"][2]["best"]
        assert membership.crossings(private_rows(naive, advanced), ("mnist",), printed).outcome == verdict


def test_membership_tables_take_the_cell_of_their_row(monkeypatch):
    rows = [{}] + [
        {"data": data, "n": n, "attack": attack, "best": {"mean": auc, "half": 0.001}, "best_k": 7, "trials": 3,
         "tpr": {"0.01": {"mean": auc / 2, "half": 0.002}}}
        for data, n, attack, auc in (
            ("mnist", 1000, "reconstruction", 0.6), ("mnist", 1000, "ratio", 0.8),
            ("mnist", 200, "reconstruction", 0.9), ("lfw", 1000, "reconstruction", 0.7), ("lfw", 1000, "ratio", 0.5),
        )
    ]  # fmt: skip
    monkeypatch.setattr(membership_pages, "_rows", lambda _: rows)
    line = membership_pages.block("attacks", "mnist:1000").splitlines()[2]
    own, other = "0.600 ± 0.001 (k = 7) | 0.300 ± 0.002 | 3", "0.800 ± 0.001 (k = 7) | 0.400 ± 0.002 | 3"
    assert line == f"| MNIST, N = 1,000 | {own} | {other} |"


RUN = {"kind": "run", "config": {"levels": [0.0, 0.5, 1.0], "n": 500}}


def plots(part, field, value, *, test=tsne.MALE, train=None, seeds=(0, 1, 2), attack=tsne.DESCRIPTORS, **facts):
    task = "classification" if field == "accuracy" else "regression"
    return [
        {"kind": "attack", "part": part, "task": task, "attack": attack, "note": "", field: value + 0.001 * seed,
         "n_test": 200, "error_half": 0.01, "train": [{"prop": train or test}],
         "test": {"prop": test, "seed": seed, "defence": "", "extractor": "imagenet", "n": 500}} | facts
        for seed in seeds
    ]  # fmt: skip


def judged_plots(test, *cells):
    records = [RUN, *(cell for some in cells for cell in some)]
    return test(tsne.Runs(tsne.Rows(records), tsne.Rows(records))).outcome


def test_the_attack_on_pictures_is_judged_and_not_the_one_on_coordinates():
    for accuracy, verdict in ((0.4, CONFIRMED), (0.1, REFUTED)):
        cells = plots("main", "accuracy", accuracy, attack=tsne.PICTURE), plots("main", "accuracy", 0.9 - 2 * accuracy)
        assert judged_plots(tsne.tells_classes(tsne.MALE), *cells) == verdict
    assert judged_plots(tsne.tells_classes(tsne.LFW), *cells) == NOT_RUN


def test_transfer_fails_in_one_direction_only_if_both_scores_say_so():
    test = tsne.transfer_fails(tsne.MALE, tsne.LFW)
    where = {"test": tsne.LFW, "train": tsne.MALE}
    for accuracy, error, verdict in ((0.2, 0.34, CONFIRMED), (0.35, 0.34, REFUTED), (0.2, 0.1, REFUTED)):
        cells = plots("transfer", "accuracy", accuracy, **where), plots("transfer", "error", error, **where)
        assert judged_plots(test, *cells) == verdict
        # Cells of the other direction are none of this one.
        assert judged_plots(tsne.transfer_fails(tsne.LFW, tsne.MALE), *cells) == NOT_RUN


@pytest.mark.parametrize(("accuracy", "verdict"), [(0.2, CONFIRMED), (0.4, REFUTED), (0.25, UNDECIDED)])
def test_noise_stops_a_network_on_pictures_only_where_it_is_left_with_chance(accuracy, verdict):
    cells = plots("pictures", "accuracy", accuracy, attack=tsne.PICTURE, seeds=(0,))
    for cell in cells:
        cell["test"]["defence"] = "C-N 2%*STD"
    assert judged_plots(tsne.noise_hides_pictures(("C-N 2%*STD",)), cells) == verdict
    assert judged_plots(tsne.noise_hides_pictures(("C-N 2%*STD", "C-N 5%*STD")), cells) in (NOT_RUN, REFUTED)


def test_claims_about_other_pictures_stay_outside_the_paper_s_setting():
    told = claims.Told(CONFIRMED, "0.1", "of one seed")
    elsewhere = next(c for c in tsne_claims.CLAIMS if c.elsewhere)
    assert tsne_claims._judged(elsewhere, told).verdict == ELSEWHERE
    assert tsne_claims._judged(elsewhere._replace(elsewhere=""), told).verdict == CONFIRMED
    assert tsne_claims._judged(elsewhere, claims.Told(NOT_RUN, "")).verdict == NOT_RUN


def gauss_line(method, values, *, data="gfe", is_stand_in=False):
    return {"kind": "attack", "table": "clustering", "data": data, "shown": data, "method": method, "p": None, "k": 9,
            "is_stand_in": is_stand_in, "metric": "silhouette", "values": values, "mean": float(np.mean(values)),
            "trials": len(values), "default_p": 5, "n_private": 100}  # fmt: skip


@pytest.mark.parametrize("is_stand_in", [False, True])
def test_the_verdict_is_of_the_algorithm_as_printed_on_the_paper_s_own_data(is_stand_in):
    spread = np.linspace(-0.001, 0.001, 8)
    near, far = (0.3 + spread).tolist(), (0.1 + spread).tolist()
    methods = {"real": near, "li": near, "li-printed": far, "pca-gauss": far, "pca-gauss-printed": near}
    lines = [{"kind": "run"}, *(gauss_line(name, v, is_stand_in=is_stand_in) for name, v in methods.items())]
    name = "GFE, stand-in" if is_stand_in else "GFE"
    found = {claim.claim: claim for claim in paper_claims.judged_claims([{}], lines)}
    claim = found[f"PCA-Gauss is over 2x better than Li et al. (table II, {name})"]
    assert claim.verdict == (ELSEWHERE if is_stand_in else CONFIRMED)
    assert "as printed 1" in claim.ours or "confirmed; as printed, one public p" in claim.ours
    assert claim.ours.endswith("refuted")
    assert found[f"PCA-Gauss has only 0.06 more error than real data (table II, {name})"].verdict == claim.verdict


def test_rows_of_many_trials_are_taken_where_there_are_any():
    few, many = ([{}, gauss_line("real", [0.1] * n), gauss_line("li", [0.2] * n)] for n in (2, 9))
    assert [place.lines[0]["trials"] for place in paper_claims.places(many, few)] == [9]
    assert [place.lines[0]["trials"] for place in paper_claims.places([{}], few)] == [2]


def test_a_claim_that_was_not_tested_has_no_figures_on_the_page():
    told = claims.Claim(claim="PCA", paper="section 5", ours="not run: MDS", verdict="not tested", note="")
    row = dr_pages._row(told, "PCA")
    assert (row.verdict, row.ours, row.note) == (NOT_RUN, "", "not run: MDS")
