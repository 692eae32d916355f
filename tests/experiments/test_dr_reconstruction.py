import dataclasses
import math

import jax
import numpy as np
import pytest
from scipy import stats

from drjax.audit import attacks as registry
from drjax.data import load
from drjax.reports import records
from experiments.dr_reconstruction import cells, claims, config, paper, report, results
from experiments.dr_reconstruction import run as experiment

SMOKE = config.SCALES["smoke"]
ONE = dataclasses.replace(SMOKE, plans=(dataclasses.replace(SMOKE.plans[0], n_known=(20,), repeats=(1,)),))
"""One size and repeat of both methods, with noise and without networks."""


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    """The smoke run as the command does it, and its results."""
    out = tmp_path_factory.mktemp("smoke")
    experiment.main(scale="smoke", out=out)
    return out, results.Results.read(out / experiment.RESULTS)


def digits():
    return load("digits")


def without_times(record):
    """What a record says of the result: all but how long it took."""
    kept = {k: v for k, v in record.items() if not k.endswith("_s") and k != "seconds"}
    if "scores" in kept:
        kept["scores"] = {k: v for k, v in kept["scores"].items() if k != "seconds_per_target"}
    return kept


def lines_of(out):
    return (out / experiment.RESULTS).read_bytes().splitlines(keepends=True)


def test_smoke_records_every_attack_of_the_registry_and_the_networks_where_they_are_wanted(smoke):
    _, found = smoke
    assert found.data == ["digits"]
    assert found.sizes("digits") == [9, 20]
    for method in SMOKE.methods:
        for n_known in (9, 20):
            for name, attack in registry.fitting(method).items():
                is_wanted = (method, n_known) == ("pca", 9) if name in SMOKE.dear else not attack.is_dear
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


def test_smoke_draws_the_figures_and_tables_and_a_copy_is_drawn_from_alike(smoke, tmp_path):
    out, found = smoke
    text = (out / report.TABLES).read_text()
    assert "| PCA | Closed form with prior |" in text
    assert "| the paper's network, as printed | 0.037 ± 0.004 |" in text
    assert claims.NOT_TESTED in text
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
    experiment.run(ONE, whole, say=lambda _: None)
    content = lines_of(whole)

    cut.mkdir()
    # Killed in the middle of a line, between the noises of one attack.
    is_noisy_ridge = [b'"attack": "ridge"' in line and b'"sigma": 8' in line for line in content]
    at = is_noisy_ridge.index(True)
    (cut / experiment.RESULTS).write_bytes(b"".join(content[:at]) + content[at][:30])
    said = []
    experiment.run(ONE, cut, say=said.append)
    assert len(said) == len([line for line in content[at:] if b'"kind": "attack"' in line])
    first, second = (
        [without_times(r) for r in records.read_records(folder / experiment.RESULTS) if r["kind"] == "attack"]
        for folder in (whole, cut)
    )
    np.testing.assert_equal(second, first)

    before = lines_of(cut)
    experiment.run(ONE, cut, say=said.append)
    assert lines_of(cut) == before

    monkeypatch.setitem(registry.ATTACKS, "again", dataclasses.replace(registry.ATTACKS["mean"], label="Again"))
    experiment.run(ONE, cut, say=lambda _: None)
    added = [r for r in records.read_records(cut / experiment.RESULTS) if r["kind"] == "attack"][len(first) :]
    assert {r["attack"] for r in added} == {"again"}
    assert len(added) == 2 * 3  # both methods, without noise and with two


def test_shadows_of_a_killed_release_are_taken_up_where_they_were(tmp_path, monkeypatch):
    release = ONE.releases()[0]
    data = digits()
    monkeypatch.setattr(cells, "shadow_batch_size", lambda *_: 25)
    parts = cells.partition(ONE, data, 0)
    whole, _ = cells._inputs(ONE, release, data, parts, tmp_path / "whole", False)
    cells._inputs(ONE, release, data, parts, tmp_path / "cut", False)
    folder = cells.work_folder(tmp_path / "cut", release) / "shadows"
    # 70 shadows are three chunks: a kill leaves the first.
    (folder / "00000025.npz").unlink()
    (folder / "00000050.npz").unlink()
    started = []
    original = cells.iter_shadow_embeddings
    monkeypatch.setattr(
        cells, "iter_shadow_embeddings", lambda *a, **k: started.append(k["start"]) or original(*a, **k)
    )
    again, _ = cells._inputs(ONE, release, data, parts, tmp_path / "cut", False)
    assert started == [25]
    np.testing.assert_array_equal(again.shadow_coords, whole.shadow_coords)
    np.testing.assert_array_equal(again.validation_coords, whole.validation_coords)


def test_a_cell_does_not_depend_on_what_else_is_computed(smoke, tmp_path):
    _, found = smoke
    experiment.run(ONE, tmp_path, only="digits/srp/*", say=lambda _: None)
    alone = results.Results.read(tmp_path / experiment.RESULTS)
    assert alone.methods("digits") == ["srp"]
    for name in ("ridge", "srp-closed-form"):
        for sigma in (0, 32):
            (one,), (other, *_) = (r.records("digits", "srp", 20, name, sigma) for r in (alone, found))
            np.testing.assert_equal(without_times(one), without_times(other))


def test_an_attack_that_refuses_a_release_is_recorded_and_the_run_goes_on(tmp_path, monkeypatch):
    def refuse(inputs):
        raise ValueError(f"needs 50 known records, got {len(inputs.known)}")

    picky = dataclasses.replace(registry.ATTACKS["ridge"], label="Picky", run=refuse, methods=("srp",))
    monkeypatch.setitem(registry.ATTACKS, "picky", picky)
    experiment.run(ONE, tmp_path, say=lambda _: None)
    found = results.Results.read(tmp_path / experiment.RESULTS)
    assert {r["refused"] for r in found.refusals} == {"needs 50 known records, got 20"}
    assert found.estimate("digits", "srp", 20, "picky") is None
    assert found.estimate("digits", "srp", 20, "ridge") is not None
    assert "needs 50 known records" in report.tables(found)


def test_a_slow_attack_has_the_first_targets_of_every_noise_and_the_same_answers_on_them(smoke, tmp_path):
    _, found = smoke
    few = dataclasses.replace(ONE, few_targets={"ridge": 4})
    experiment.run(few, tmp_path, only="digits/pca/*", say=lambda _: None)
    slow = results.Results.read(tmp_path / experiment.RESULTS)
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
    experiment.run(clean, tmp_path, say=lambda _: None)
    alone = results.Results.read(tmp_path / experiment.RESULTS)
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
        experiment.run(dataclasses.replace(SMOKE, seed=1), out)
    with pytest.raises(ValueError, match=r"only must fit some release, such as digits/pca/9/0, got 'mnist/\*'"):
        experiment.run(SMOKE, out, only="mnist/*")
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
    assert {plan.repeats for plan in full.plans} == {(5,) * 5, (5,) * 4, (5,) * 3}
    sizes = {name: (plan.n_shadow, plan.n_validation, plan.n_targets) for name, plan in plans.items()}
    assert sizes == {"mnist": (4000, 500, 500), "nih_chest_xray": (600, 100, 100), "digits": (1038, 130, 130)}
    assert len(full.releases()) == 6 * 5 * (5 + 3 + 4)
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


def made_up(errors, *, data="mnist", attacks=("network", "best"), half=1e-3, sigma=0.0, eq12=None, mean=0.066):
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


PAPER = {m: mean for m, (mean, _) in paper.TABLE_4["network"].items()}


def outcomes(found, name):
    """Outcomes of a claim by the attack it is put to."""
    (verdicts,) = [v for claim, v in claims.verdicts(results.Results(found)) if claim.name == name]
    return {lens: verdict.outcome for lens, verdict in verdicts.items()}


def test_claims_are_confirmed_on_the_papers_own_figures():
    found = made_up({(m, n): e for m, e in PAPER.items() for n in (99, 199)})
    for name in ("pca-first", "srp-last", "deterministic-effective", "randomised-ineffective", "randomised-preferable"):
        assert outcomes(found, f"mnist:{name}") == {"network": claims.CONFIRMED, "best": claims.CONFIRMED}
        assert outcomes(found, f"nih_chest_xray:{name}")["network"] == claims.NOT_TESTED


def test_claims_are_refuted_where_one_figure_is_clearly_against_them_and_undecided_within_the_noise():
    errors = {(m, 199): e for m, e in PAPER.items()}
    mds_leaks = made_up(errors | {("mds", 199): 0.02})
    assert outcomes(mds_leaks, "mnist:pca-first")["best"] == claims.REFUTED
    assert outcomes(mds_leaks, "mnist:randomised-ineffective")["best"] == claims.REFUTED
    assert outcomes(mds_leaks, "mnist:randomised-preferable")["best"] == claims.REFUTED
    assert outcomes(mds_leaks, "mnist:srp-last")["best"] == claims.CONFIRMED
    wide = made_up(errors, half=0.05)
    assert outcomes(wide, "mnist:pca-first")["network"] == claims.UNDECIDED
    assert outcomes(wide, "mnist:randomised-ineffective")["network"] == claims.CONFIRMED
    only_best = made_up(errors, attacks=("best",))
    assert outcomes(only_best, "mnist:pca-first") == {"network": claims.NOT_TESTED, "best": claims.CONFIRMED}


def test_claims_on_the_size_of_the_known_set_follow_the_trend():
    falling = {("pca", n): e for n, e in ((9, 0.05), (99, 0.04), (199, 0.037), (999, 0.03))}
    rising = {("isomap", n): e for n, e in ((9, 0.06), (99, 0.05), (199, 0.052), (999, 0.07))}
    found = made_up(falling | rising)
    assert outcomes(found, "mnist:pca-falls")["network"] == claims.CONFIRMED
    assert outcomes(found, "mnist:isomap-gets-harder")["network"] == claims.CONFIRMED
    assert outcomes(found, "mnist:more-can-hurt")["network"] == claims.CONFIRMED
    assert outcomes(found, "mnist:more-helps")["network"] == claims.REFUTED
    assert outcomes(found, "mnist:first-step")["network"] == claims.CONFIRMED
    falls = made_up(falling)
    assert outcomes(falls, "mnist:more-can-hurt")["network"] == claims.REFUTED
    assert outcomes(falls, "mnist:more-helps")["network"] == claims.CONFIRMED
    assert outcomes(falls, "mnist:isomap-gets-harder")["network"] == claims.NOT_TESTED
    assert outcomes(made_up(falling | {("pca", 999): 0.045}), "mnist:pca-falls")["network"] == claims.REFUTED
    assert outcomes(made_up(falling, data="nih_chest_xray"), "nih_chest_xray:no-trend")["best"] == claims.REFUTED


def test_an_attack_that_ran_at_some_sizes_alone_makes_no_trend():
    weak = {("mds", n): e for n, e in ((9, 0.058), (99, 0.057), (199, 0.056), (999, 0.055))}
    dear = {("mds", n): 0.01 for n in (99, 199)}
    records_of_both = made_up(weak, attacks=("best",)) + made_up(dear, attacks=("dear",))[1:]
    found = results.Results(records_of_both)
    assert found.attacks_at_all("mnist", "mds", (9, 99, 999)) == ["ridge"]
    assert found.attacks_at_all("mnist", "mds", (99, 199)) == ["ridge", "dear"]
    assert [found.lacks_attacks("mnist", "mds", n) for n in (9, 99, 999)] == [True, False, True]
    assert found.named("best", "mnist", "mds", 99) == "dear"
    assert found.named("best", "mnist", "mds", 99, among=["ridge"]) == "ridge"
    assert outcomes(records_of_both, "mnist:more-can-hurt")["best"] == claims.REFUTED
    assert outcomes(records_of_both, "mnist:more-helps")["best"] == claims.CONFIRMED


def test_claims_on_noise_and_on_the_other_network():
    errors = {(m, 99): e for m, e in PAPER.items()}
    eq12 = dict.fromkeys(PAPER, 20.0) | {"isomap": 90.0}
    clean = made_up(errors)
    noisy = made_up(dict.fromkeys(errors, 0.09), sigma=32.0, eq12=eq12)[1:]
    assert outcomes(clean + noisy, "mnist:noise-isomap")["network"] == claims.CONFIRMED
    assert outcomes(clean + noisy, "mnist:noise-hides-deterministic")["network"] == claims.CONFIRMED
    leaking = made_up(dict.fromkeys(errors, 0.04), sigma=32.0, eq12=eq12 | {"pca": 200.0})[1:]
    assert outcomes(clean + leaking, "mnist:noise-isomap")["network"] == claims.REFUTED
    assert outcomes(clean + leaking, "mnist:noise-hides-deterministic")["network"] == claims.REFUTED
    dense = {("pca", 99): 0.056, ("isomap", 99): 0.068}
    both = clean + made_up(dense, attacks=("dense-network",))[1:]
    assert outcomes(both, "mnist:network-beats-dense") == {"network": claims.CONFIRMED}
    assert outcomes(clean, "mnist:network-beats-dense") == {"network": claims.NOT_TESTED}


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
    for part in parts:
        part.mkdir()
    content = lines_of(out)
    # Both hold the head; one cell is in both.
    is_pca = [b'"release": "digits/pca' in line for line in content]
    last = max(i for i, of_pca in enumerate(is_pca) if of_pca)
    (parts[0] / report.RESULTS).write_bytes(
        b"".join(line for line, p in zip(content, is_pca, strict=True) if p or line == content[0])
    )
    (parts[1] / report.RESULTS).write_bytes(
        b"".join(line for line, p in zip(content, is_pca, strict=True) if not p) + content[last]
    )
    report.write(parts, tmp_path / "all")
    together = results.Results.read(tmp_path / "all" / report.RESULTS)
    for method in SMOKE.methods:
        for attack in ("mean", "ridge"):
            assert together.estimate("digits", method, 9, attack) == found.estimate("digits", method, 9, attack)
    with pytest.raises(ValueError, match="to must be given for results of other than one run, got 2"):
        report.main(tuple(parts))
    foreign = [{"kind": "run", "fingerprint": "of another"}, *made_up({("pca", 9): 0.1})]
    with pytest.raises(ValueError, match="records must be of one configuration, got 2 runs"):
        results.Results(foreign)


def test_results_without_an_attack_are_refused():
    with pytest.raises(ValueError, match="records must be those of a run with an attack"):
        results.Results([{"kind": "run"}])
