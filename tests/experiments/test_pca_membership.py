import dataclasses
import math

import jax
import numpy as np
import pytest

from drjax.attacks import membership
from drjax.data import load
from drjax.defenses.dp_pca import PAPER, PUBLIC
from drjax.reports import records
from experiments import sweep
from experiments.pca_membership import (
    crossing,
    curators,
    data,
    norms,
    private,
    private_mean,
    private_report,
    private_tables,
    report,
    run,
    stronger,
)

SMALL = run.Config(sizes={"digits": (30, 300)}, trials=3, ratio_trials=2, n_shadows=8, n_ks=3)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    out = tmp_path_factory.mktemp("membership")
    sweep.run(run.SWEEP, SMALL, out, say=lambda _: None)
    return out


def cells(out):
    return {(c["n"], c["attack"]): c for c in records.read_records(out / sweep.RESULTS)[1:]}


def test_few_records_are_given_away_and_the_ratio_says_more_of_many(results):
    found = cells(results)
    # 30 records span 30 of 64 dimensions: components show them whole.
    assert found[30, "reconstruction"]["best"]["mean"] > 0.99
    paper, ratio = found[300, "reconstruction"], found[300, "ratio"]
    assert 0.6 < paper["best"]["mean"] < ratio["best"]["mean"] - 0.03
    # At k = d the residual is rounding, and says nothing.
    assert paper["k"][-1] == 64
    assert paper["auc"]["mean"][-1] == 0.5


@pytest.mark.figures
def test_the_report(results):
    report.main(results=results)
    lines = (results / "tables.md").read_text().splitlines()
    assert len(lines) == 2 + 4
    assert (results / "sizes.svg").stat().st_size > 10_000
    assert (results / "components.svg").stat().st_size > 10_000


def test_the_ratio_is_left_out_where_public_records_are_too_few():
    x = np.random.default_rng(0).normal(size=(100, 3))
    found = run.ratio(SMALL, x, 40)
    assert found["best"] is None
    assert "needs 2 N public records" in found["left_out"]
    with pytest.raises(ValueError, match="n must be at most half of the 100 records, got 60"):
        run.reconstruction(SMALL, x, 60)


def test_categories_are_put_back_together():
    digits = load("digits")
    one_hot = dataclasses.replace(
        digits,
        x=np.array([[0.5, 1, 0, 0], [0.1, 0, 0, 1]], np.float32),
        y=None,
        shape=(4,),
        feature_names=("age", "work=a", "work=b", "work=c"),
        offset=np.zeros(4),
        scale=np.ones(4),
        class_names=None,
    )
    np.testing.assert_allclose(data.numbered(one_hot), [[0.5, 0], [0.1, 2]])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"trials": 1}, "trials must be an integer >= 2"),
        ({"sizes": {"iris": (5,)}}, "a data set must be one of"),
        ({"sizes": {"digits": (1,)}}, "a size of digits must be an integer >= 2"),
    ],
)
def test_bad_input(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(SMALL, **change)


PRIVATE = dataclasses.replace(
    private.SCALES["smoke"],
    sizes={"digits": 200},
    sweep={"digits": (60,)},
    gauss=(0.01, 1.0),
    laplace=(1.0, 1e7),
    sound_gauss=(1.0,),
    sound_laplace=(1e7,),
    informed_laplace=(1e4,),
    trials=4,
    n_ks=5,
    games=200,
    n_shadows=6,
)


@pytest.fixture(scope="module")
def private_results(tmp_path_factory):
    out = tmp_path_factory.mktemp("private")
    sweep.run(private.SWEEP, PRIVATE, out, say=lambda _: None)
    return out


@pytest.fixture(scope="module")
def private_cells(private_results):
    return private_tables.Cells(records.read_records(private_results / private.RESULTS)[1:])


def test_analyze_gauss_as_printed_is_at_chance_up_to_epsilon_1_and_no_noise_is_not(private_cells):
    cell = private_cells.main("digits", "analyze_gauss", PAPER)
    assert [point["epsilon"] for point in cell["points"]] == [0.01, 1.0]
    for point in cell["points"]:
        # Of 4 trials with 200 members: standard errors of 0.015; a k that nobody chose.
        assert abs(np.mean(point["at_k"]) - 0.5) < 0.06
        assert abs(np.mean(point["best"]) - np.mean(point["chance"]["best"])) < 0.06
    assert np.mean(private_cells.main("digits", private.NONE, PAPER)["points"][0]["best"]) > 0.75


def test_little_noise_is_no_noise(private_cells):
    # Epsilon 1e7 over 2,080 queries on 200 records: noise of some 1e-4 to 1e-2 of an entry.
    for convention in (PAPER, PUBLIC):
        free = private_cells.main("digits", private.NONE, convention)["points"][0]
        for curator in ("laplace_vector", "laplace_scalar"):
            noisy = private_cells.main("digits", curator, convention)["points"][-1]
            np.testing.assert_allclose(noisy["utility"], 1, atol=0.01)
            np.testing.assert_allclose(noisy["best"], free["best"], atol=0.04)


def test_better_noise_and_the_weaker_relation_keep_more_energy(private_cells):
    q = {
        (curator, relation): np.mean(private_cells.main("digits", curator, PUBLIC, relation)["points"][0]["utility"])
        for curator in private.GAUSSIAN
        for relation in ("zero_out", "replace_one")
    }
    for relation in ("zero_out", "replace_one"):
        assert q["analyze_gauss", relation] < q["analyze_gauss_tight", relation] < q["analytic_gauss", relation]
    assert all(q[curator, "replace_one"] < q[curator, "zero_out"] for curator in private.GAUSSIAN)


def test_members_are_shorter_in_units_of_their_own(tmp_path):
    sweep.run(norms.SWEEP, PRIVATE, tmp_path, say=lambda _: None)
    (cell,) = records.read_records(tmp_path / norms.RESULTS)[1:]
    assert len(cell["auc"]) == len(cell["of_others"]) == PRIVATE.trials
    assert min(np.subtract(cell["auc"], cell["of_others"])) > 0


def test_no_adversary_passes_the_ceiling(private_cells):
    informed = [cell for cell in private_cells.all if cell["attack"] == "informed"]
    assert len(informed) == 2
    for point in (point for cell in informed for point in cell["points"]):
        assert point["scatter"]["low"] <= point["ceiling"] <= point["promised"]
    ratio = [cell for cell in private_cells.all if cell["attack"] == "ratio"]
    assert {cell["curator"] for cell in ratio} == {"analytic_gauss", "laplace_vector"}
    assert all(len(point["best"]) == 2 for cell in ratio for point in cell["points"])


def test_an_interrupted_run_computes_what_is_missing_and_the_same(private_results, tmp_path):
    whole = (private_results / private.RESULTS).read_text().splitlines(keepends=True)
    (tmp_path / private.RESULTS).write_text("".join(whole[:-2]))
    said = []
    sweep.run(private.SWEEP, PRIVATE, tmp_path, say=said.append)
    assert len(said) == 2
    timed = {"seconds", "cpu_seconds", "provenance"}
    before, after = (
        [{key: value for key, value in cell.items() if key not in timed} for cell in records.read_records(file)[1:]]
        for file in (private_results / private.RESULTS, tmp_path / private.RESULTS)
    )
    assert before == after


@pytest.mark.figures
def test_the_private_report(private_results, tmp_path):
    (tmp_path / private.RESULTS).write_bytes((private_results / private.RESULTS).read_bytes())
    private_report.main(results=tmp_path)
    tables = (tmp_path / "private_tables.md").read_text()
    assert tables.count("## ") == 9
    for name in private_report.FIGURES:
        assert (tmp_path / f"{name}.svg").stat().st_size > 10_000
    with pytest.raises(ValueError, match="must hold a cell"):
        private_tables.Cells([])


@pytest.mark.parametrize(("n_queries", "delta"), [(91, 1 / 200), (105, 1e-3), (101_475, 1e-3), (307_720, 1e-5)])
def test_noise_scales_cross_where_the_closed_form_says(n_queries, delta):
    # With epsilon / alpha for epsilon' the paper's equation 2 reads sqrt(2 log(1 / delta) / alpha) + e^(eps/alpha) = 2.
    expected = n_queries * math.log(2 - math.sqrt(2 * math.log(1 / delta) / n_queries))
    # Budgets are lowered by 1e-10, relative.
    assert crossing.crossing(n_queries, delta) == pytest.approx(expected, rel=1e-7)
    assert (
        crossing.noise_ratio(expected / 2, n_queries, delta) > 1 > crossing.noise_ratio(expected * 2, n_queries, delta)
    )


def test_few_queries_have_no_crossing():
    # No epsilon' >= 0 solves it below 2 log(1 / delta) = 13.8 queries.
    assert crossing.crossing(13, 1e-3) == 0
    assert crossing.crossing(14, 1e-3) > 0


def test_curves_cross_between_the_last_epsilon_above_and_the_first_below():
    gap = np.array([0.0, 0.02, 0.03, -0.01, -0.02])
    spread = np.array([[1e-3], [-1e-3], [0.0]])
    naive = np.full((3, 5), 0.6)
    low, high, zero = crossing.curve_crossing([1, 10, 100, 1000, 10_000], naive + gap + spread, naive)
    assert (low, high) == pytest.approx((100, 1000))
    assert zero == pytest.approx(100 * 10**0.75)
    assert np.isnan(crossing.curve_crossing([1, 10], naive[:, :2], naive[:, :2] + 0.1)).all()
    low, high, zero = crossing.curve_crossing([1, 10], naive[:, :2] + 0.1 + spread, naive[:, :2])
    assert low == pytest.approx(10)
    assert np.isnan((high, zero)).all()


def trial_of_digits(n=60):
    config = dataclasses.replace(PRIVATE, sizes={"digits": n})
    return run.Trial(config, data.records("digits"), n, 0)


def test_a_sound_case_is_a_function_of_public_records_and_the_record_itself():
    trial = trial_of_digits()
    before = curators.case(trial, PUBLIC, trial.members, most_candidates=60)
    trial.members = trial.members.copy()
    trial.members[0] *= 1000
    after = curators.case(trial, PUBLIC, trial.members, most_candidates=60)
    for name in ("row_norm", "lower", "upper"):
        np.testing.assert_array_equal(before.bounds[name], after.bounds[name])
    np.testing.assert_array_equal(before.records[1:], after.records[1:])
    paper = curators.case(trial, PAPER, trial.members, most_candidates=60)
    # The far record is in the paper's units.
    assert np.linalg.norm(paper.records[1:]) < 0.5 * np.linalg.norm(before.records[1:])


@pytest.mark.parametrize("name", curators.NAMES)
def test_lanes_draw_what_a_fit_draws(name):
    trial = trial_of_digits()
    given = curators.case(trial, PUBLIC, trial.members, most_candidates=60)
    made = [curators.mechanism(name, "replace_one", epsilon, 1 / 60, given) for epsilon in (0.5, 1.0)]
    key = jax.random.key(3)
    (found,) = curators.components(key, [made], [given.records], first=7)
    for one, curator in zip(found, made, strict=True):
        alone = np.asarray(curator.fit(jax.random.fold_in(key, 7), given.records).components)
        # Eigenvectors in float32, sums in another order.
        assert np.median(np.abs(np.sum(one * alone, axis=1))) > 0.999


@pytest.mark.parametrize("name", ["analytic_gauss", "analyze_gauss_tight", "laplace_vector"])
def test_shadows_get_the_noise_of_the_curator(name):
    trial = trial_of_digits()
    given = curators.case(trial, PUBLIC, trial.members, most_candidates=60)
    curator = curators.mechanism(name, "replace_one", 1.0, 1 / 60, given)
    unit = math.sqrt(stronger.entry_noise(curator, 60).scale)
    within = curators.bounded(curator, given.records).astype(np.float32) / unit
    key = jax.random.key(0)
    found = stronger.Added.of(curator)(key, within.T @ within / 60) * unit**2
    expected = np.asarray(curator.noisy_moment(key, given.records))
    np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("name", ["analyze_gauss_tight", "laplace_vector"])
def test_the_informed_adversary_meets_noise_of_the_curator_s_size(name):
    trial = trial_of_digits()
    given = curators.case(trial, PUBLIC, trial.members, most_candidates=60)
    curator = curators.mechanism(name, "replace_one", 1.0, 1 / 60, given)
    noise = stronger.entry_noise(curator, 60)
    draws = np.stack([np.asarray(curator.noisy_moment(jax.random.key(i), given.records)) for i in range(20)])
    deviation = noise.scale * (math.sqrt(2) if name == "laplace_vector" else 1)
    above = np.triu_indices(64)
    # 20 draws of 2,080 entries: a relative standard error of 1%.
    assert draws.std(axis=0, ddof=1)[above].mean() == pytest.approx(deviation, rel=0.03)


def test_chance_is_chance():
    # Components that have nothing to do with the candidates, by construction.
    draws = private.Draws(dataclasses.replace(PRIVATE, trials=6), "digits", 200)
    found = draws.cases(PAPER, of_others=True)
    aucs = [
        private.roc.auc(
            -membership.pca_scores(membership.release_of(c.records, c.k).components, c.candidates), c.is_member
        )
        for c in found
    ]
    # 6 trials of 200 members: a standard error of 0.012.
    assert abs(np.mean([a.estimate for a in aucs]) - 0.5) < 0.05


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gauss": (1.0, 0.5)}, "gauss must be increasing numbers > 0"),
        ({"sound_laplace": (0.0, 1.0)}, "sound_laplace must be increasing numbers > 0"),
        ({"ratio_trials": 9}, "ratio_trials must be <= trials"),
        ({"sweep": {"digits": (1,)}}, "a size of digits must be an integer >= 2"),
    ],
)
def test_bad_private_input(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(PRIVATE, **change)


def test_a_private_mean_keeps_the_variance_that_a_middle_loses(monkeypatch):
    monkeypatch.setattr(private_mean, "ANNOUNCED", 40)
    monkeypatch.setattr(private_mean, "K", 1)
    # A column in the middle of its range with all of the variance, one far from it with none: the second moment about
    # the middle is that of the latter.
    x = np.random.default_rng(0).normal([0.0, 0.8, 0.8], [0.3, 0.05, 0.05], (5000, 3))
    found = private_mean.row(x, -2 * np.ones(3), 2 * np.ones(3), 40)
    assert found["middle"] < found["random"] + 0.1 < 0.9 < found["steadied"]
    assert 0.6 < found["in range"] <= 1  # 40 releases against 40 draws: 0.9, with a deviation of 0.07
