"""Rehearsals: every figure beside knowing nothing, the spread of every column, and unusual records."""

import json

import jax
import numpy as np
import pytest

from drjax.cli import main
from drjax.data.schema import Column, Schema
from drjax.releases import ignorance, rehearsal
from drjax.releases.rehearsal import rehearse
from drjax.synthesis.contract import Box
from drjax.synthesis.pca_gauss import PCAGauss

N, DELTA = 400, 1e-6

FEATURES = (
    Column(name="age", kind="integer", lower=0, upper=100, is_public=True),
    Column(name="pay", kind="number", lower=0, upper=10, decimals=1, is_public=True),
    Column(name="work", kind="category", categories=("no", "part", "full"), is_public=True),
)
TARGETS = {
    "classification": Column(name="rich", kind="category", categories=("no", "yes"), is_public=True),
    "regression": Column(name="rent", kind="number", lower=0, upper=20, decimals=2, is_public=True),
}


@pytest.fixture(autouse=True)
def _fewer_epsilons(monkeypatch):
    """One epsilon: the others only make the curve."""
    monkeypatch.setattr(rehearsal, "FACTORS", (1.0,))


def schema_of(task="classification"):
    target = TARGETS.get(task)
    return Schema((*FEATURES, *(() if target is None else (target,))), None if target is None else target.name)


def people(n=N, seed=0):
    """Encoded records with both targets."""
    rng = np.random.default_rng(seed)
    age, work = rng.integers(30, 60, n), rng.choice(3, n, p=[0.1, 0.2, 0.7])
    pay = np.clip(0.1 * age + rng.normal(0, 0.5, n), 0, 10).round(1)
    x = np.column_stack([age, pay, work[:, None] == np.arange(3)]).astype(np.float64)
    return x, (pay > 4.5).astype(np.int32), 1 + pay * 1.5


def method(task="classification", **fields):
    target = {"classification": {"n_classes": 2}, "regression": {"target_range": (0.0, 20.0)}}.get(task, {})
    return PCAGauss(neighbouring="replace_one", box=Box.of(*schema_of(task).bounds), n_components=4, **target, **fields)


def rehearsed(task="classification", epsilon=1e4, x=None, y=None, n_trials=3, **fields):
    found, classes, numbers = people()
    given = {"classification": classes, "regression": numbers}.get(task)
    return rehearse(
        jax.random.key(0),
        method(task, **fields),
        schema_of(task),
        found if x is None else x,
        given if y is None else y,
        epsilon,
        DELTA,
        n_trials=n_trials,
    )


@pytest.mark.parametrize("task", ["classification", "regression", "unsupervised"])
def test_with_much_budget_every_figure_is_better_than_knowing_nothing_and_spreads_are_kept(task):
    found = rehearsed(task)
    assert len(found.compared) == 4
    assert found.worse_than_nothing is None
    assert found.compared[0].synthetic == found.chosen
    assert found.compared[0].nothing == found.ignorant < found.real
    for one in found.compared[1:]:
        assert one.real < one.nothing
    assert [one.name for one in found.spreads] == [column.name for column in schema_of(task).columns]
    for one in found.spreads:
        # 240 draws, in three trials; whole years and tenths; classes by counts.
        assert one.ratio.estimate == pytest.approx(1, abs=0.15)
    assert found.least_kept is not None
    assert found.least_kept.name in found.spread_sentence


def test_a_table_that_noise_swamps_is_called_no_better_than_knowing_nothing():
    found = rehearsed(epsilon=0.002)
    assert found.worse_than_nothing is not None
    assert found.worse_than_nothing.startswith("Expected to be no better than knowing nothing: accuracy of a support")
    assert f"knowing nothing {found.ignorant:.3f}" in found.worse_than_nothing


def test_without_the_correction_the_spread_that_clipping_takes_is_reported():
    found = rehearsed("unsupervised", clip_factor=0.3, correct=False)
    assert found.least_kept is not None
    assert found.least_kept.ratio.high < 0.7


def test_better_is_judged_by_pairs_of_trials_and_not_by_means():
    nothing = np.array([0.2, 0.4, 0.6, 0.8])
    assert ignorance.is_better(nothing + np.array([0.01, 0.02, 0.01, 0.02]), nothing)
    assert not ignorance.is_better(nothing + np.array([0.3, -0.28, 0.31, -0.27]), nothing)
    assert not ignorance.is_better(nothing, nothing)
    assert not ignorance.is_better(nothing - 0.1, nothing)


def test_the_baseline_is_uniform_within_bounds_and_independent_even_between_the_largest_bounds():
    made = ignorance.uniform_table(jax.random.key(0), schema_of(), 6000)
    np.testing.assert_allclose(made.x.mean(axis=0), [50, 5, 1 / 3, 1 / 3, 1 / 3], rtol=0.06)  # 6,000 draws
    assert abs(np.corrcoef(made.x[:, 0], made.x[:, 1])[0, 1]) < 0.05
    assert np.mean(made.y) == pytest.approx(0.5, abs=0.03)
    np.testing.assert_array_equal(made.x[:, 1], made.x[:, 1].round(1))
    wide = Schema((Column(name="a", kind="number", lower=-(2.0**53), upper=2.0**53, is_public=True),))
    assert np.isfinite(ignorance.uniform_table(jax.random.key(0), wide, 100).x).all()


def test_records_of_no_class_are_fitted_but_neither_train_nor_judge_the_classifier():
    _, y, _ = people()
    found = rehearsed(y=np.where(np.arange(N) % 4 == 0, -1, y))
    # Were they judged, a quarter would always be wrong.
    assert found.real > 0.85
    assert found.chosen.estimate > 0.8
    assert 0.4 < found.ignorant < 0.75


@pytest.mark.parametrize("kind", ["one class", "a rare class", "constant columns", "no category at all"])
def test_what_is_out_of_the_ordinary_is_rehearsed_all_the_same(kind):
    x, y, _ = people()
    if kind == "one class":
        y = np.zeros(N, np.int32)
    if kind == "a rare class":
        y = (np.arange(N) == 7).astype(np.int32)
    if kind == "constant columns":
        x[:] = x[0]
    if kind == "no category at all":
        x[:, 2:] = 0
    found = rehearsed(x=x, y=y, n_trials=2, epsilon=1.0)
    figures = [found.real, found.ignorant, *(one.synthetic.estimate for one in found.compared)]
    assert np.isfinite(figures).all()
    if kind == "one class":
        assert found.worse_than_nothing is not None
        assert np.isnan(found.spreads[-1].ratio.estimate)
    if kind == "constant columns":
        assert all(np.isnan(one.ratio.estimate) for one in found.spreads[:-1])
    if kind == "no category at all":
        assert np.isnan(found.spreads[2].ratio.estimate)


@pytest.mark.parametrize(("n", "n_known"), [(59, 59), (N, 20)])
def test_too_few_records_are_refused_before_any_work(n, n_known, monkeypatch):
    monkeypatch.setattr(PCAGauss, "fit", None)
    x, y, _ = people(n)
    y = np.where(np.arange(n) < n_known, y, -1)
    with pytest.raises(ValueError, match=f"must be >= 60, got {min(n, n_known)}"):
        rehearsed(x=x, y=y)


def test_page_and_console_say_in_red_that_a_table_is_no_better_than_knowing_nothing(tmp_path, capsys):
    x, y, _ = people()
    work = np.array(["no", "part", "full"])[x[:, 2:].argmax(axis=1)]
    lines = [f"{int(a)},{b},{c},{'yes' if d else 'no'}" for a, b, c, d in zip(x[:, 0], x[:, 1], work, y, strict=True)]
    (tmp_path / "people.csv").write_text("\n".join(["age,pay,work,rich", *lines]) + "\n")
    bounds = {"age": [0, 100], "pay": [0, 10], "work": ["no", "part", "full"], "rich": ["no", "yes"]}
    (tmp_path / "bounds.json").write_text(json.dumps(bounds))
    main(["release", "synthetic", str(tmp_path / "people.csv"), "--target", "rich", "--epsilon", "0.002", "--bounds",
          str(tmp_path / "bounds.json"), "--out", str(tmp_path / "out"), "--trials", "2",
          "--n-components", "4"])  # fmt: skip
    said = capsys.readouterr().out
    assert "Expected to be no better than knowing nothing: accuracy of a support vector machine" in said
    assert "Standard deviations, synthetic over real: farthest from 1 is " in said
    (page,) = (path.read_text() for path in tmp_path.rglob("report.html"))
    assert "NO BETTER THAN KNOWING NOTHING." in page
    assert page.index('class="verdict high"') < page.index("NO BETTER THAN KNOWING NOTHING.")
    assert 'class="verdict not-shown"' not in page
    assert "Expected spread of each column" in page
