import dataclasses
import functools
import math

import jax
import numpy as np
import pytest
from scipy import stats

from drjax.attacks.reconstruction import baselines
from drjax.attacks.registry import ATTACKS
from drjax.audits import choice
from drjax.data import load
from drjax.dr import METHODS
from drjax.reports import records
from experiments import command, merging, sweep
from experiments.dr_reconstruction import cells, claims, config, figures, order, paper, report, results
from experiments.dr_reconstruction import run as experiment
from experiments.dr_reconstruction.verdicts import CONFIRMED, NOT_TESTED, REFUTED, UNDECIDED, View

SMOKE = config.SCALES["smoke"]
ONE = dataclasses.replace(SMOKE, plans=(dataclasses.replace(SMOKE.plans[0], n_known=(20,), repeats=(1,)),))
"""One size and repeat of both methods, with noise and without networks."""


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    """The smoke run as the command does it, and its results."""
    out = tmp_path_factory.mktemp("smoke")
    command.main(experiment.SWEEP, ["--scale", "smoke", "--out", str(out)])
    return out, results.Results.read(out / sweep.RESULTS)


def digits():
    return load("digits")


def without_times(record):
    """What a record says of the result: all but how long it took."""
    kept = {k: v for k, v in record.items() if not k.endswith("_s") and k not in ("seconds", "provenance")}
    if "scores" in kept:
        kept["scores"] = {k: v for k, v in kept["scores"].items() if k != "seconds_per_target"}
    return kept


def lines_of(out):
    return (out / sweep.RESULTS).read_bytes().splitlines(keepends=True)


def test_smoke_records_every_attack_of_the_registry_and_the_networks_where_they_are_wanted(smoke):
    _, found = smoke
    assert found.data == ["digits"]
    assert found.sizes("digits") == [9, 20]
    for method in SMOKE.methods:
        for n_known in (9, 20):
            for name in choice.possible(METHODS[method](), seed_known=False):
                is_wanted = (method, n_known) == ("pca", 9) if name in SMOKE.dear else name not in config.DEAR
                assert bool(found.records("digits", method, n_known, name)) == is_wanted
    assert found.estimate("digits", "pca", 9, "closed-form").n_repeats == 2
    assert found.estimate("digits", "pca", 9, "network").n_repeats == 1
    # Twenty known digits and the prior leave less than the mean image by far.
    assert results.below(found.estimate("digits", "pca", 20, "best"), found.baseline("digits", 20, "mean"))


def test_the_nearest_neighbour_is_among_known_and_training_images_without_those_for_validation(smoke):
    _, found = smoke
    for n_known in (9, 20):
        (record, *_) = found.records("digits", "pca", n_known, "nearest")
        assert record["n_pool"] == n_known + SMOKE.plans[0].n_shadow


def test_noise_leaves_the_baselines_alone_and_moves_the_attacks(smoke):
    _, found = smoke
    assert found.sigmas("digits") == [8, 32]
    for name in ("mean", "nearest"):
        moved = [found.estimate("digits", "pca", 20, name, sigma=s, measure="eq12") for s in (8, 32)]
        assert [e.mean for e in moved] == [0, 0]
    weak, strong = (found.estimate("digits", "pca", 20, "closed-form", sigma=s, measure="eq12") for s in (8, 32))
    assert 0 < weak.mean < strong.mean
    # Equation 12 is a squared distance: by the triangle inequality no smaller than what the errors differ by.
    d = found.n_features("digits")
    (clean,) = found.records("digits", "pca", 20, "closed-form")
    (noisy,) = found.records("digits", "pca", 20, "closed-form", 32)
    assert clean["scores"]["n_targets"] > noisy["scores"]["n_targets"] == SMOKE.n_noisy_targets
    assert strong.mean < 4 * d


def test_where_there_is_noise_the_learned_attacks_are_trained_under_it_once_more(smoke):
    _, found = smoke
    for method in SMOKE.methods:
        for name in ("ridge", "invariant"):
            adaptive = f"{config.ADAPTIVE}{name}"
            assert adaptive not in found.attacks("digits", method, 20)
            assert not any(adaptive in found.attacks("digits", method, 9, s) for s in (0, 8, 32))
            for sigma in (8, 32):
                (record,) = found.records("digits", method, 20, adaptive, sigma)
                assert record["scores"]["n_targets"] == SMOKE.n_noisy_targets
                assert "eq12" not in record
    # Ridge regression is thrown off by noise that it was not trained under.
    aware, unaware = (found.estimate("digits", "pca", 20, name, sigma=32).mean for name in ("adaptive-ridge", "ridge"))
    assert aware < 0.9 * unaware


@pytest.mark.figures
def test_smoke_draws_the_figures_and_tables_and_a_copy_is_drawn_from_alike(smoke, tmp_path):
    out, found = smoke
    text = (out / report.TABLES).read_text()
    assert "| PCA | Closed form with prior |" in text
    assert "| the paper's network, as printed (4,000 shadows) | 0.037 ± 0.004 |" in text
    assert NOT_TESTED in text
    assert "80 (20 known)" in text
    drawn = {file.stem for file in (out / report.FIGURES).iterdir()}
    assert {"digits-errors", "digits-attacks", "digits-examples", "digits-figure6", "digits-figure7"} <= drawn
    report.write([out], tmp_path)  # a copy has no folder of examples: they are in one file
    assert not (tmp_path / cells.EXAMPLES).exists()
    for file in report.write([tmp_path], tmp_path):
        assert file.read_bytes() == (out / file.relative_to(tmp_path)).read_bytes()
    assert len(found.labels) == len({*found.labels.values()})


def test_a_killed_run_goes_on_to_the_same_results_and_a_finished_one_computes_nothing(tmp_path, monkeypatch):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    some = [f"*:{name}" for name in ("mean", "ridge", "closed-form-known", "adaptive-ridge")]
    sweep.run(experiment.SWEEP, ONE, whole, only=some, say=lambda _: None)
    content = lines_of(whole)

    cut.mkdir()
    # Killed in the middle of a line, between the noises of one attack.
    is_noisy_ridge = [b'"attack": "ridge"' in line and b'"sigma": 8' in line for line in content]
    at = is_noisy_ridge.index(True)
    (cut / sweep.RESULTS).write_bytes(b"".join(content[:at]) + content[at][:30])
    said = []
    sweep.run(experiment.SWEEP, ONE, cut, only=some, say=said.append)
    assert len(said) == len([line for line in content[at:] if b'"kind": "attack"' in line])
    first, second = (
        [without_times(r) for r in records.read_records(folder / sweep.RESULTS) if r["kind"] == "attack"]
        for folder in (whole, cut)
    )
    np.testing.assert_equal(second, first)

    before = lines_of(cut)
    sweep.run(experiment.SWEEP, ONE, cut, only=some, say=said.append)
    assert lines_of(cut) == before

    again = dataclasses.replace(ATTACKS["embedding"]["mean"], name="again", label="Again")
    monkeypatch.setitem(ATTACKS["embedding"], "again", again)
    sweep.run(experiment.SWEEP, ONE, cut, only=[*some, "*:again"], say=lambda _: None)
    after = [r["attack"] for r in records.read_records(cut / sweep.RESULTS) if r["kind"] == "attack"]
    assert len(after) - len(first) == after.count("again") == 2 * 3  # both methods, without noise and with two


def test_shadows_of_a_killed_release_are_taken_up_where_they_were(tmp_path, monkeypatch):
    (task,) = order.tasks(ONE, "digits/pca/20/0:ridge:0")
    monkeypatch.setattr(cells, "shadow_batch_size", lambda *_: 25)

    def inputs(out):
        return cells._threat(cells._Embeddings(ONE, task.release, digits(), out, False), task)[0].shadows()

    whole = inputs(tmp_path / "whole")
    inputs(tmp_path / "cut")
    folder = cells.work_folder(tmp_path / "cut", task.release) / cells.SHADOWS
    assert list(cells.lanes_left(ONE, task, tmp_path / "cut")) == []
    # 70 shadows are three chunks: a kill leaves the first.
    (folder / "00000025.npz").unlink()
    (folder / "00000050.npz").unlink()
    assert list(cells.lanes_left(ONE, task, tmp_path / "cut")) == [(cells.SHADOWS, 0, 45)]
    started = []
    original = cells.iter_shadow_embeddings
    monkeypatch.setattr(
        cells, "iter_shadow_embeddings", lambda *a, **k: started.append(k["start"]) or original(*a, **k)
    )
    again = inputs(tmp_path / "cut")
    assert started == [25]
    np.testing.assert_array_equal(again.coords, whole.coords)
    np.testing.assert_array_equal(again.validation_coords, whole.validation_coords)


def test_a_cell_does_not_depend_on_what_else_is_computed(smoke, tmp_path):
    _, found = smoke
    sweep.run(
        experiment.SWEEP, ONE, tmp_path, only=["digits/srp/*:ridge", "digits/srp/*:srp-closed-form"], say=lambda _: None
    )
    alone = results.Results.read(tmp_path / sweep.RESULTS)
    assert alone.methods("digits") == ["srp"]
    for name in ("ridge", "srp-closed-form"):
        for sigma in (0, 32):
            (one,), (other, *_) = (r.records("digits", "srp", 20, name, sigma) for r in (alone, found))
            np.testing.assert_equal(without_times(one), without_times(other))


def test_an_attack_that_refuses_a_release_is_recorded_and_the_run_goes_on(tmp_path, monkeypatch):
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Picky(baselines.Ridge):
        def run(self, key, threat):
            raise ValueError(f"needs 50 known records, got {len(threat.known)}, {key.shape}")

    monkeypatch.setitem(ATTACKS["embedding"], "picky", Picky(name="picky", label="Picky", trains=False))
    sweep.run(experiment.SWEEP, ONE, tmp_path, only=["digits/srp/*:picky", "digits/srp/*:ridge"], say=lambda _: None)
    found = results.Results.read(tmp_path / sweep.RESULTS)
    assert {r["refused"] for r in found.refusals} == {"needs 50 known records, got 20, ()"}
    assert found.estimate("digits", "srp", 20, "picky") is None
    assert found.estimate("digits", "srp", 20, "ridge") is not None
    assert "needs 50 known records" in report.tables(found)


def test_a_slow_attack_has_the_first_targets_of_every_noise_and_the_same_answers_on_them(smoke, tmp_path):
    _, found = smoke
    few = dataclasses.replace(ONE, few_targets={"ridge": 4})
    only = ["digits/pca/*:ridge", "digits/pca/*:closed-form"]
    sweep.run(experiment.SWEEP, few, tmp_path, only=only, say=lambda _: None)
    slow = results.Results.read(tmp_path / sweep.RESULTS)
    for sigma in (0, 8, 32):
        assert [
            r.records("digits", "pca", 20, name, sigma)[0]["scores"]["n_targets"]
            for r, name in ((slow, "ridge"), (slow, "closed-form"), (found, "ridge"))
        ] == [4, 6 if sigma else 12, 6 if sigma else 12]
    images, whole = results.examples(tmp_path), results.examples(smoke[0])
    for sigma in ("0", "8", "32"):
        name = f"digits/pca/20/ridge/{sigma}"
        np.testing.assert_array_equal(images[name], whole[name])


def test_noisy_releases_do_not_decide_what_an_attack_says_of_clean_ones(smoke, tmp_path):
    _, found = smoke
    clean = dataclasses.replace(ONE, noisy=())
    sweep.run(experiment.SWEEP, clean, tmp_path, say=lambda _: None)
    alone = results.Results.read(tmp_path / sweep.RESULTS)
    assert alone.sigmas("digits") == []
    for method in SMOKE.methods:
        for name in alone.attacks("digits", method, 20):
            (one,), (other,) = (r.records("digits", method, 20, name) for r in (alone, found))
            # Matrix products of another number of lanes round otherwise, which the bounds of a closed form amplify.
            assert one["scores"]["mse"]["estimate"] == pytest.approx(other["scores"]["mse"]["estimate"], rel=1e-6)


def test_results_of_another_configuration_and_patterns_without_a_release_are_refused(smoke):
    out, _ = smoke
    content = lines_of(out)
    with pytest.raises(ValueError, match="out must be a new folder or one of the same configuration"):
        sweep.run(experiment.SWEEP, dataclasses.replace(SMOKE, seed=1), out)
    with pytest.raises(
        ValueError, match=r"only must name some release or cell, such as digits/pca/9/0:mean:0, got 'mnist"
    ):
        sweep.run(experiment.SWEEP, SMOKE, out, only="mnist/*")
    assert lines_of(out) == content


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"methods": ("lda",)}, "methods must be one of"),
        ({"methods": ()}, "methods and plans must each hold"),
        ({"plans": SMOKE.plans * 2}, "plans must each be of another data set"),
        ({"network": "slow"}, "network must be one of"),
        ({"sigmas": (2, 0)}, "sigmas must be > 0"),
        ({"sigmas": (2, 2)}, "sigmas must differ"),
        ({"n_noisy_targets": 0}, "n_noisy_targets must be an integer >= 1"),
        ({"few_targets": {"ridge": 0}}, "few_targets of ridge must be an integer >= 1"),
        ({"seed": -1}, "seed must be an integer >= 0"),
    ],
)
def test_a_configuration_out_of_range_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(SMOKE, **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_known": ()}, "n_known must hold at least one size"),
        ({"n_known": (4, 9)}, "n_known must be an integer >= 5"),
        ({"n_known": (9, 21)}, "n_known must be <= max_known = 20"),
        ({"repeats": (1,)}, "repeats must have one entry for each of n_known"),
        ({"repeats": (1, 0)}, "repeats must be an integer >= 1"),
        ({"n_shadow": 1}, "n_shadow must be an integer >= 2"),
        ({"n_targets": 0}, "n_targets must be an integer >= 1"),
    ],
)
def test_a_plan_out_of_range_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(SMOKE.plans[0], **changes)


def test_the_full_scale_is_the_grid_of_the_paper():
    full = config.of_scale("full")
    assert full.methods == ("pca", "srp", "mds", "isomap", "tsne", "umap")
    plans = {plan.data: plan for plan in full.plans}
    assert plans["mnist"].n_known == (9, 99, 199, 499, 999)
    assert plans["cxr_mednist"].n_known == (9, 99, 199, 499, 999)
    assert plans["nih_chest_xray"].n_known == (9, 99, 199)
    assert {plan.repeats for plan in full.plans} == {(5,) * 5, (5,) * 4, (5,) * 3}
    sizes = {name: (plan.n_shadow, plan.n_validation, plan.n_targets) for name, plan in plans.items()}
    assert sizes == {
        "mnist": (4000, 500, 500),
        "nih_chest_xray": (600, 100, 100),
        "cxr_mednist": (801, 100, 100),
        "digits": (1038, 130, 130),
    }
    assert len(full.releases()) == 6 * 5 * (5 + 3 + 5 + 4)
    (noisy,) = [r for r in full.releases() if r.name == "mnist/umap/99/4"]
    assert full.sigmas_of(noisy) == (0, 2, 4, 8, 16, 32)
    assert {"network", "dense-network"} <= full.attacks(noisy).keys()
    assert full.audit(noisy).dr_method.n_neighbors == 15
    assert config.options("umap", 10) == {"n_neighbors": 9}
    assert config.options("tsne", 10) == {"perplexity": 3.0}
    assert config.options("tsne", 200) == {"perplexity": 30.0}
    with pytest.raises(ValueError, match="scale must be one of cpu, full, smoke; got 'huge'"):
        config.of_scale("huge")


def test_patients_are_on_one_side_of_a_split():
    # Groups as the X-ray images have them: up to 12 records of one patient.
    data = digits()
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 1200, len(data.x))
    parts = cells.partition(SMOKE, dataclasses.replace(data, groups=groups), 1)
    sides = [set(groups[rows]) for rows in parts]
    assert sum(map(len, sides)) == len(set().union(*sides))


def made_up(errors, *, data="mnist", attacks=("network", "best"), half=3e-4, sigma=0.0, eq12=None, mean=0.066):
    """Records of one repeat: errors by method and known records, the same of every attack named."""
    found = [{"kind": "run", "fingerprint": "of all"}]
    for (method, n_known), value in errors.items():
        rows = {"mean": mean} | {"ridge" if a == "best" else a: value for a in attacks}
        for attack, estimate in rows.items():
            interval = {"estimate": estimate, "low": estimate - half, "high": estimate + half}
            record = {
                "kind": "attack",
                "release": f"{data}/{method}/{n_known}/0",
                "data": data,
                "method": method,
                "n_known": n_known,
                "attack": attack,
            }
            record |= {"label": attack, "is_baseline": attack == "mean", "sigma": sigma, "scores": {"mse": interval}}
            if eq12 is not None:
                moved = eq12[method]
                record["eq12"] = {"estimate": moved, "low": moved - 0.1, "high": moved + 0.1}
            found.append(record)
    return found


AS_CLAIMED = {
    "pca": (0.045, 0.035, 0.033, 0.031, 0.029),
    "srp": (0.100, 0.090, 0.089, 0.088, 0.087),
    "mds": (0.080, 0.074, 0.073, 0.072, 0.071),
    "isomap": (0.064, 0.050, 0.052, 0.060, 0.060),
    "tsne": (0.090, 0.080, 0.079, 0.078, 0.077),
    "umap": (0.092, 0.082, 0.081, 0.080, 0.079),
}
"""Errors by known records of which all that the paper says of MNIST is true, the mean image having 0.066."""

CLEAN = {(m, n): e for m, errors in AS_CLAIMED.items() for n, e in zip(paper.SIZES, errors, strict=True)}
NOISY = {(m, 99): 0.09 for m in AS_CLAIMED}
EQ12 = dict.fromkeys(AS_CLAIMED, 20.0) | {"isomap": 90.0}
DENSE = {("pca", 199): 0.056, ("isomap", 199): 0.068}


def everything(clean=CLEAN, noisy=NOISY, dense=DENSE, **options):
    """Records on MNIST as the paper has them: six methods, five sizes, and noise with 99 known records."""
    options = {"attacks": ("network", "best", "adaptive-ridge")} | options
    return (
        made_up(clean, **options)
        + made_up(noisy, sigma=32.0, eq12=EQ12, **options)[1:]
        + made_up(dense, attacks=("dense-network",))[1:]
    )


def judged(found):
    """Outcomes by claim and by the attack that it is put to."""
    verdicts = claims.verdicts(results.Results(found))
    return {claim.name: {lens: verdict.outcome for lens, verdict in told.items()} for claim, told in verdicts}


def of_network(**cells):
    """Outcomes of the claims on MNIST put to the paper's network alone."""
    found = results.Results(everything(**cells, attacks=("network",)))
    on_mnist = [claim for claim in claims.CLAIMS if claim.data == "mnist"]
    return {claim.name: claim.test(View(found, "mnist", "network")).outcome for claim in on_mnist}


def test_claims_are_confirmed_on_figures_that_are_as_the_paper_says():
    found = judged(everything())
    on_mnist = {name: told for name, told in found.items() if name.startswith("mnist")}
    assert {outcome for told in on_mnist.values() for outcome in told.values()} == {CONFIRMED}
    assert {o for name, told in found.items() if name not in on_mnist for o in told.values()} == {NOT_TESTED}


def test_no_claim_is_confirmed_without_a_cell_that_could_turn_it():
    cells_of = [("clean", key) for key in CLEAN] + [("noisy", key) for key in NOISY] + [("dense", key) for key in DENSE]
    n_needed = 0
    for part, key in cells_of:
        whole = {"clean": CLEAN, "noisy": NOISY, "dense": DENSE}[part]
        turned = [of_network(**{part: whole | {key: error}}) for error in (1e-4, 0.5)]
        without = of_network(**{part: {k: e for k, e in whole.items() if k != key}})
        for name, outcome in without.items():
            if any(other[name] != CONFIRMED for other in turned):
                n_needed += 1
                assert outcome == NOT_TESTED, (name, key)
    # Every cell decides some claim.
    assert n_needed >= len(cells_of)


def test_claims_are_refuted_where_one_figure_is_clearly_against_them_and_undecided_within_the_noise():
    mds_leaks = judged(everything(CLEAN | {("mds", 199): 0.02}))
    for name in ("pca-first", "randomised-ineffective", "randomised-preferable"):
        assert mds_leaks[f"mnist:{name}"] == {"network": REFUTED, "best": REFUTED}
    assert mds_leaks["mnist:srp-last"]["best"] == CONFIRMED
    # What was run refutes a claim also where something was not.
    alone = judged(made_up({("pca", 99): 0.04, ("mds", 99): 0.02}))
    assert alone["mnist:pca-first"]["network"] == REFUTED
    assert alone["mnist:deterministic-effective"]["network"] == NOT_TESTED
    only_best = judged(everything(attacks=("best", "adaptive-ridge")))
    assert only_best["mnist:pca-first"] == {"network": NOT_TESTED, "best": CONFIRMED}


def test_a_difference_that_was_not_seen_is_not_one_that_is_not_there():
    wide = judged(everything(half=0.03))
    names = ("pca-first", "randomised-ineffective", "noise-hides-deterministic", "more-can-hurt", "first-step")
    assert {wide[f"mnist:{name}"]["network"] for name in names} == {UNDECIDED}
    flat = made_up({("pca", n): 0.03 for n in paper.SIZES}, data="nih_chest_xray", half=0.03)
    assert judged(flat)["nih_chest_xray:no-trend"]["network"] == UNDECIDED
    exact = made_up({("pca", n): 0.03 for n in paper.SIZES}, data="nih_chest_xray")
    assert judged(exact)["nih_chest_xray:no-trend"]["network"] == CONFIRMED
    one = results.Estimate(0.060, 1e-4, math.nan, 1)
    assert results.no_better(one, one._replace(mean=0.066)) is False
    assert results.no_better(one, one._replace(mean=0.0601)) is True
    assert results.no_better(one._replace(error=0.01), one) is None


def test_claims_on_the_size_of_the_known_set_follow_the_trend():
    falling = {("pca", n): e for n, e in zip(paper.SIZES, AS_CLAIMED["pca"], strict=True)}
    falls = judged(made_up(falling))
    assert falls["mnist:pca-falls"]["network"] == CONFIRMED
    for name in ("more-can-hurt", "more-helps", "first-step", "isomap-gets-harder"):
        assert falls[f"mnist:{name}"]["network"] == NOT_TESTED
    assert judged(made_up(falling | {("pca", 999): 0.040}))["mnist:pca-falls"]["network"] == REFUTED
    assert judged(made_up(falling | {("pca", 999): 0.050}))["mnist:more-helps"]["network"] == REFUTED
    later = judged(everything(CLEAN | {("pca", 999): 0.005}))
    assert later["mnist:first-step"]["network"] == REFUTED
    never = judged(everything({(m, n): 0.1 - 1e-5 * n for m, n in CLEAN}))
    assert never["mnist:more-can-hurt"]["network"] == REFUTED
    xray = judged(made_up(falling, data="nih_chest_xray"))
    assert xray["nih_chest_xray:no-trend"]["best"] == REFUTED


def test_where_the_strongest_attack_was_not_run_its_error_is_at_most_what_is_at_hand():
    dear = {("mds", n): 0.068 for n in paper.SIZES[:-1]}
    content = everything() + made_up(dear, attacks=("dear",))[1:]
    found = results.Results(content)
    assert [found.lacks_strongest("mnist", "mds", n) for n in (9, 499, 999)] == [False, False, True]
    assert not found.lacks_strongest("mnist", "pca", 999)
    assert found.lacks_strongest("mnist", "mds", 99, 32.0)
    # The error on MDS seems to rise at 999 known records, from 0.068 to 0.071.
    outcome = judged(content)
    for name in ("more-helps", "first-step", "randomised-ineffective", "pca-first"):
        assert outcome[f"mnist:{name}"]["best"] == NOT_TESTED
        assert outcome[f"mnist:{name}"]["network"] == CONFIRMED
    # A smaller error of MDS makes these no less true.
    for name in ("srp-last", "mds-third", "more-can-hurt"):
        assert outcome[f"mnist:{name}"]["best"] == CONFIRMED if name != "mds-third" else NOT_TESTED
    refusal = made_up({("mds", 999): 0.0}, attacks=("dear",))[-1] | {"refused": "needs more"}
    assert not results.Results([*content, refusal]).lacks_strongest("mnist", "mds", 999)


def test_lines_break_where_the_strongest_attack_was_not_run_and_tables_say_so():
    dear = {("mds", n): 0.01 for n in (99, 199)}
    found = results.Results(made_up(CLEAN, attacks=("best",)) + made_up(dear, attacks=("dear",))[1:])
    (ax,) = figures.error_by_known(found, "mnist").axes
    assert ax.get_yscale() == "log"
    line = next(c for c in ax.containers if c.get_label() == "MDS").lines[0]
    np.testing.assert_array_equal(np.isnan(np.asarray(line.get_ydata(), float)), [True, False, False, True, True])
    hollow = [c.lines[0].get_xdata().tolist() for c in ax.containers if c.get_label().startswith("_")]
    assert hollow == [[9, 499, 999]]
    panel = next(a for a in figures.attacks_by_known(found, "mnist").axes if a.get_title("left") == "MDS")
    line = next(c for c in panel.containers if c.get_label() == "dear").lines[0]
    np.testing.assert_array_equal(np.isnan(np.asarray(line.get_ydata(), float)), [True, False, False, True, True])
    text = report.errors(found, "mnist")
    assert "| MDS | dear | not run | **0.010 ± 0.00030** | **0.010 ± 0.00030** | not run | not run |" in text
    assert "not run on MDS (9, 499, 999) known" in text


def test_an_adversary_who_knows_of_the_noise_trains_under_it_or_a_claim_on_noise_is_not_tested():
    name = "mnist:noise-hides-deterministic"
    unaware = {"attacks": ("network", "best")}
    assert judged(everything(**unaware))[name] == {"network": CONFIRMED, "best": NOT_TESTED}
    aware = made_up({("pca", 99): 0.053, ("isomap", 99): 0.06}, sigma=32.0, attacks=("adaptive-invariant",))[1:]
    assert judged(everything(**unaware) + aware)[name] == {"network": CONFIRMED, "best": REFUTED}
    found = results.Results(everything(**unaware) + aware)
    assert found.named("best", "mnist", "pca", 99, 32.0) == "adaptive-invariant"
    # Equation 12 compares what one attack makes of two releases.
    assert found.named("best", "mnist", "pca", 99, 32.0, measure="eq12") == "ridge"
    # The largest noise is the paper's, not the largest that was run.
    weak = [r | {"sigma": 8.0} if r.get("sigma") == 32.0 else r for r in everything()]
    assert judged(weak)[name]["network"] == NOT_TESTED
    moved = made_up(NOISY, sigma=32.0, eq12=EQ12 | {"pca": 200.0}, attacks=("network", "best"))[1:]
    assert judged(made_up(CLEAN) + moved)["mnist:noise-isomap"]["network"] == REFUTED


def test_a_verdict_says_how_a_run_differs_from_the_paper_s():
    claim = next(c for c in claims.CLAIMS if c.name == "mnist:pca-first")
    for scale, shadows in (("cpu", "500 shadows (paper: 4,000)"), ("full", None)):
        head = {"kind": "run", "fingerprint": "of all", "config": records.to_json(config.of_scale(scale))}
        found = results.Results([head, *everything()[1:]])
        told = claims.differences(found, claim, "network")
        assert told[:1] == ([shadows] if shadows else [])
        assert ("recipe 'fast'" in told) == (scale == "cpu")
        assert "recipe 'fast'" not in claims.differences(found, claim, "best")
        assert ("500 shadows (paper: 4,000)" in report.claims_table(found)) == (scale == "cpu")


def test_every_claim_on_the_data_of_a_run_is_judged_as_in_its_table(smoke):
    head = {"kind": "run", "fingerprint": "of all", "config": records.to_json(config.of_scale("cpu"))}
    lines = [head, *everything()[1:]]
    found = experiment.SWEEP.claims(lines)
    table = report.claims_table(results.Results(lines))
    assert len(found) == sum(
        table.count(f"| **{outcome}** |") for outcome in (CONFIRMED, REFUTED, UNDECIDED, NOT_TESTED)
    )
    assert CONFIRMED in {claim.verdict for claim in found}
    for claim in found:
        assert f"| **{claim.verdict}** | {claim.note} | " in table
        assert claim.ours in table
    # Of digits the paper says nothing.
    assert experiment.SWEEP.claims(records.read_records(smoke[0] / sweep.RESULTS)) == []


def test_an_estimate_covers_targets_and_repeats():
    def interval(estimate, error):
        reach = stats.norm.ppf(0.975) * error
        return {"estimate": estimate, "low": estimate - reach, "high": estimate + reach}

    one = results.combine([interval(0.5, 0.1)])
    assert (one.mean, one.n_repeats, math.isnan(one.spread)) == (0.5, 1, True)
    assert one.error == pytest.approx(0.1)
    # Repeats that agree by chance do not make the targets more than they are; repeats that differ count.
    alike = results.combine([interval(0.5, 0.1)] * 4)
    assert alike.error == pytest.approx(0.1 / math.sqrt(4))
    apart = results.combine([interval(e, 0.01) for e in (0.2, 0.5, 0.8)])
    assert apart.spread == pytest.approx(0.3)
    assert apart.error == pytest.approx(stats.sem([0.2, 0.5, 0.8]))
    assert results.combine([interval(math.nan, math.nan)]) is None
    assert results.below(one, apart) is None
    assert results.below(one, None) is None
    assert results.below(results.combine([interval(0.1, 0.01)]), one) is True
    assert results.below(one, results.combine([interval(0.1, 0.01)])) is False


def test_every_release_and_purpose_has_a_key_of_its_own():
    keys = [SMOKE.key(r.name, part) for r in SMOKE.releases() for part in ("shadows", "targets", "attacks")]
    data = {tuple(np.asarray(jax.random.key_data(key))) for key in keys}
    assert len(data) == len(keys)
    other = dataclasses.replace(SMOKE, seed=1)
    assert tuple(np.asarray(jax.random.key_data(other.key("a")))) != tuple(
        np.asarray(jax.random.key_data(SMOKE.key("a")))
    )


def test_parts_of_one_configuration_are_put_together_and_others_refused(smoke, tmp_path):
    out, found = smoke
    parts = [tmp_path / "pca", tmp_path / "rest"]
    head, *content = records.read_records(out / sweep.RESULTS)
    of_pca = [line for line in content if line["method"] == "pca"]
    rest = [line for line in content if line["method"] != "pca"]
    card = {"device_kind": "a card", "commit": "another"}
    # One cell is in both parts.
    merging.write([head, *of_pca], parts[0] / sweep.RESULTS)
    elsewhere = [line | {"provenance": line["provenance"] | card} for line in (*rest, of_pca[-1])]
    merging.write([head, *elsewhere], parts[1] / sweep.RESULTS)
    report.write(parts, tmp_path / "all")
    together = results.Results.read(tmp_path / "all" / sweep.RESULTS)
    assert records.read_records(tmp_path / "all" / sweep.RESULTS)[0] == head
    for method in SMOKE.methods:
        for attack in ("mean", "ridge"):
            assert together.estimate("digits", method, 9, attack) == found.estimate("digits", method, 9, attack)
    assert together.devices("digits") == ["cpu", "a card"]
    assert [count for _, count in together.origins()] == [sum(r["kind"] == "attack" for r in p) for p in (of_pca, rest)]
    label = figures.error_by_known(together, "digits").get_supxlabel()
    assert label.endswith("computed on cpu and a card; a point that is not there was not run")
    text = (tmp_path / "all" / report.TABLES).read_text()
    assert "computed at commit another" in text
    assert "on a card, " in text
    # In the order of a single run, whichever part is named first.
    sweep.merge(experiment.SWEEP, parts[::-1], tmp_path / "turned")
    names = [cells.identity(line) for line in records.read_records(tmp_path / "turned" / sweep.RESULTS)[1:]]
    assert names == [cells.identity(line) for line in records.read_records(tmp_path / "all" / sweep.RESULTS)[1:]]
    with pytest.raises(ValueError, match="to must be given for results of other than one run, got 2"):
        report.main(tuple(parts))
    merging.write([head | {"fingerprint": "of another"}, *rest], parts[1] / sweep.RESULTS)
    with pytest.raises(ValueError, match="parts must be of one configuration"):
        report.write(parts, tmp_path / "none")
    foreign = [{"kind": "run", "fingerprint": "of another"}, *made_up({("pca", 9): 0.1})]
    with pytest.raises(ValueError, match="records must be of one configuration, got 2 runs"):
        results.Results(foreign)


def test_images_of_all_parts_are_kept_and_the_first_part_s_where_two_have_them(tmp_path):
    head = {"schema": 1, "kind": "run", "fingerprint": "of all", "config": records.to_json(SMOKE)}
    images = {
        "a": {"digits/original": np.zeros((1, 8, 8), np.uint8)},
        "b": {"digits/original": np.ones((1, 8, 8), np.uint8)},
    }
    images["b"]["digits/pca/9/ridge/0"] = np.full((1, 8, 8), 7, np.uint8)
    for name, arrays in images.items():
        merging.write([head], tmp_path / name / sweep.RESULTS)
        records.save_arrays(tmp_path / name / results.IMAGES, **arrays)
    sweep.merge(experiment.SWEEP, [tmp_path / "a", tmp_path / "b"], tmp_path / "a")
    found = results.examples(tmp_path / "a")
    assert {name: int(array[0, 0, 0]) for name, array in found.items()} == {
        "digits/original": 0,
        "digits/pca/9/ridge/0": 7,
    }


def test_whatever_an_interrupted_run_has_is_drawn_and_told(smoke, tmp_path):
    out, _ = smoke
    head, *content = records.read_records(out / sweep.RESULTS)
    cell_of = {cells.identity(line): line for line in content}
    stages = [line for line in content if line["kind"] == "stage"]
    found = [cell_of[cell] for task in order.tasks(SMOKE) for cell in task.cells]
    assert len(found) == len(content) - len(stages)
    for count in (1, 3, 40):
        merging.write([head, *stages, *found[:count]], tmp_path / str(count) / sweep.RESULTS)
        drawn = report.write([tmp_path / str(count)], tmp_path / str(count))
        assert f"digits (8x8) {count} of {len(found)}" in drawn[0].read_text()
        assert (figures.error_by_known(results.Results([head, *found[:count]]), "digits") is None) == (count == 1)


def test_a_picture_that_is_not_at_hand_was_not_kept_or_not_run():
    found = results.Results(made_up({("pca", 9): 0.04, ("srp", 99): 0.1}, attacks=("best",)))
    images = {"mnist/pca/9/ridge/0": np.zeros((1, 2, 2), np.uint8)}
    picture = functools.partial(figures._image, found, images, "mnist")
    assert isinstance(picture("pca", 9, "best"), np.ndarray)
    assert picture("srp", 99, "best") == figures.NOT_KEPT
    assert picture("srp", 9, "best") == picture("pca", 9, "network") == figures.NOT_RUN


def test_claims_on_chest_x_rays_are_put_to_each_file_by_itself():
    by_data = {data: [c for c in claims.CLAIMS if c.data == data] for data in paper.X_RAYS}
    texts = {data: {c.text.split(": ", 1)[1] for c in found} for data, found in by_data.items()}
    assert texts["nih_chest_xray"] == texts["cxr_mednist"]
    assert len({paper.DATA_NAMES[data] for data in paper.X_RAYS}) == 2
    assert len({report.CURVE_FIGURES[data] for data in paper.X_RAYS}) == 2
    assert len({report.EXAMPLE_FIGURES[data] for data in paper.X_RAYS}) == 2
    one = judged(
        made_up({("pca", n): e for n, e in zip(paper.SIZES, AS_CLAIMED["pca"], strict=True)}, data="cxr_mednist")
    )
    assert one["cxr_mednist:no-trend"]["best"] == REFUTED
    assert {o for name, told in one.items() if not name.startswith("cxr") for o in told.values()} == {NOT_TESTED}
    head = {"kind": "run", "fingerprint": "of all", "config": records.to_json(config.of_scale("cpu"))}
    text = report.claims_table(results.Results([head, *made_up(CLEAN)[1:]]))
    assert "10 on chest X-ray (MedNIST)" in text
    assert "chest X-ray (MedNIST):" not in text


def test_results_without_an_attack_are_refused():
    with pytest.raises(ValueError, match="records must be those of a run with an attack"):
        results.Results([{"kind": "run"}])
