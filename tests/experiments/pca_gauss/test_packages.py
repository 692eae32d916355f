"""MST and AIM by the package mbi: budgets, sensitivities, bins; skipped where it is not installed."""

from __future__ import annotations

import math

import jax
import numpy as np
import pytest

from drjax.synthesis.contract import Box, SynthesisMethod, Synthesizer
from experiments.pca_gauss.baselines import packages
from experiments.pca_gauss.baselines.packages import MbiAIM, MbiMST

KEY = jax.random.key(0)
BOX = Box.of([-3.0, 0.0, 0.0], [3.0, 1.0, 1.0])


def mixed(n: int = 1500) -> tuple[np.ndarray, np.ndarray]:
    """The first feature says the class and the second one; the third is alone."""
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=n)
    first = np.where(y == 1, 1.5, -1.5) + 0.4 * rng.normal(size=n)
    return np.stack([first, np.clip((first + 3) / 6, 0, 1), rng.uniform(size=n)], axis=1), y.astype(np.int32)


def small(kind, **fields):
    rounds = {"n_rounds": 4} if kind is MbiAIM else {}
    common = {"neighbouring": "replace_one", "box": BOX, "n_classes": 2, "n_bins": 4, "n_iter": 200}
    return kind(**{**common, **rounds, **fields})


@pytest.fixture(scope="module")
def mbi():
    return pytest.importorskip("mbi", reason="mbi is not installed: pip install 'mbi>=2,<3'")


@pytest.fixture(scope="module")
def fitted(mbi):
    del mbi
    x, y = mixed()
    return {kind: small(kind).fit(KEY, x, y, 8.0, 1e-5) for kind in (MbiMST, MbiAIM)}


@pytest.mark.parametrize("kind", [MbiMST, MbiAIM])
def test_synthetic_records_have_the_dependence_of_the_records_within_the_bounds(fitted, kind):
    assert isinstance(small(kind), SynthesisMethod)
    synthesizer = fitted[kind]
    assert isinstance(synthesizer, Synthesizer)
    made, again = synthesizer.sample(KEY, 800), synthesizer.sample(KEY, 800)
    assert made.x.shape == (800, 3)
    assert (made.x >= BOX.lower).all()
    assert (made.x <= BOX.upper).all()
    np.testing.assert_array_equal(made.x, again.x)
    x, y = mixed()
    # A budget of 8 on 1,500 records: what is left is the width of four bins.
    assert abs(np.mean((made.x[:, 0] > 0) == (made.y == 1)) - np.mean((x[:, 0] > 0) == (y == 1))) < 0.1
    assert np.corrcoef(made.x[:, 0], made.x[:, 1])[0, 1] > 0.7
    assert abs(np.corrcoef(made.x[:, 0], made.x[:, 2])[0, 1]) < 0.2
    np.testing.assert_array_equal(synthesizer.transform(x)[:, 2], np.asarray(BOX.clip(x))[:, 2])


@pytest.mark.parametrize("kind", [MbiMST, MbiAIM])
def test_the_guarantee_is_the_budget_that_was_asked_for(fitted, kind):
    guarantee = fitted[kind].guarantee
    assert guarantee.epsilon(1e-5) == pytest.approx(8, rel=1e-6)
    assert guarantee.epsilon(1e-5) <= 8
    assert guarantee.curve.neighbouring == "replace_one"


def test_mst_measures_every_column_and_a_spanning_tree_with_the_strong_edges(fitted):
    marginals = fitted[MbiMST].marginals
    assert marginals[:4] == (("x0",), ("x1",), ("x2",), ("y",))
    edges = marginals[4:]
    assert len(edges) == 3
    assert {column for edge in edges for column in edge} == {"x0", "x1", "x2", "y"}
    assert sum("x2" in edge for edge in edges) == 1


@pytest.mark.usefixtures("mbi")
@pytest.mark.parametrize(
    ("kind", "relation"),
    [(MbiMST, "replace_one"), (MbiMST, "zero_out"), (MbiAIM, "add_or_remove"), (MbiAIM, "replace_one")],
)
def test_what_is_spent_is_the_budget_and_every_noise_is_scaled_to_its_share(monkeypatch, kind, relation):
    spent, deviations = [], []

    class Recorded(packages._Ledger):
        first = None

        def measure(self, one, rho):
            super().measure(one, rho)
            spent.append(rho)
            deviations.append(self.measurements[-1].stddev)

        def choose(self, errors, weight, rho):
            spent.append(rho)
            return super().choose(errors, weight, rho)

        def estimate(self, n_iter):
            # A model that does not learn spends all the same, and is compiled once.
            self.first = self.first or super().estimate(n_iter)
            return self.first

    monkeypatch.setattr(packages, "_Ledger", Recorded)
    x, y = mixed(200)
    found = small(kind, neighbouring=relation).fit(KEY, x, y, 1.0, 1e-5)
    rho = found.guarantee.curve.rho
    # Every step of Gaussian noise and of the exponential mechanism adds its rho up.
    assert math.fsum(spent) == pytest.approx(rho, rel=1e-9)
    two_counts = 2 if relation == "replace_one" else 1
    measured = math.fsum(two_counts / (2 * deviation**2) for deviation in deviations)
    assert measured <= rho * (1 + 1e-9)
    assert measured >= 0.6 * rho  # choices take a third of MST's and a tenth of AIM's


def test_no_neighbour_moves_marginals_and_errors_by_more_than_their_sensitivity(mbi):
    rng = np.random.default_rng(0)
    x, y = mixed(5)
    method = small(MbiMST)
    there = rng.uniform(0, 2, size=16)
    largest = {"l1": 0.0, "l2": 0.0, "error": 0.0}
    for _ in range(2000):
        other = x.copy()
        other[0] = rng.uniform(-3, 3, size=3)
        first, second = (packages._Ledger(mbi, method, rows, y, 1.0, rng).counts(("x0", "x1")) for rows in (x, other))
        largest["l2"] = max(largest["l2"], np.linalg.norm(first - second))
        largest["error"] = max(largest["error"], abs(np.abs(first - there).sum() - np.abs(second - there).sum()))
    assert largest["l2"] == pytest.approx(math.sqrt(2))
    assert largest["error"] <= 2
    assert largest["error"] > 1  # that of one record added or removed would be too small


def test_bins_are_those_of_numpy_and_values_come_back_into_theirs(fitted):
    x, y = mixed(300)
    x[0], x[1] = np.nan, 99.0
    method = small(MbiMST)
    columns = method.binned(x, y)
    edges = np.linspace(-3, 3, 5)
    inside = np.arange(2, 300)
    np.testing.assert_array_equal(columns["x0"][inside], np.digitize(np.clip(x[inside, 0], -3, 2.999), edges) - 1)
    assert columns["x0"][0] == 2
    assert columns["x0"][1] == 3
    np.testing.assert_array_equal(columns["y"], y)
    values = fitted[MbiMST]._value(np.random.default_rng(0), np.arange(4), 4)
    assert (np.floor(values * 4) == np.arange(4)).all()


@pytest.mark.usefixtures("mbi")
def test_numbers_are_binned_like_features():
    x, _ = mixed(400)
    method = MbiMST(neighbouring="add_or_remove", box=BOX, target_range=(0.0, 10.0), n_bins=4, n_iter=200)
    made = method.fit(KEY, x, 10 * x[:, 1], 8.0, 1e-5).sample(KEY, 300)
    assert made.y.min() >= 0
    assert made.y.max() <= 10
    assert np.corrcoef(made.x[:, 0], made.y)[0, 1] > 0.5


@pytest.mark.usefixtures("mbi")
def test_every_column_can_have_a_number_of_bins_of_its_own():
    x, _ = mixed(400)
    box = Box.of([0.0, 0.0, 0.0], [3.0, 1.0, 1.0])
    # Codes 0, 1 and 2 of the first column are the middles of its bins.
    x[:, 0] = np.arange(400) % 3 + 0.5
    method = MbiMST(neighbouring="replace_one", box=box, target_range=(0.0, 1.0), n_bins=(3, 4, 2, 5), n_iter=50)
    columns = method.binned(x, x[:, 1])
    np.testing.assert_array_equal(columns["x0"], np.arange(400) % 3)
    np.testing.assert_array_equal(columns["x2"], x[:, 2] >= 0.5)
    np.testing.assert_array_equal(columns["y"], np.minimum(x[:, 1] * 5, 4).astype(int))
    fitted = method.fit(KEY, x, x[:, 1], 8.0, 1e-5)
    assert fitted.n_bins == (3, 4, 2, 5)
    made = fitted.sample(KEY, 300)
    # A third of the records in each of three bins, less noise and rounding.
    assert np.abs(np.bincount(np.floor(made.x[:, 0]).astype(int), minlength=3) / 300 - 1 / 3).max() < 0.1
    assert 0 <= made.y.min() <= made.y.max() <= 1
    with pytest.raises(ValueError, match="n_bins must be one number, or one for each of 4 columns"):
        MbiMST(neighbouring="replace_one", box=box, target_range=(0.0, 1.0), n_bins=(3, 4, 2))


def test_sampling_leaves_the_global_generator_of_numpy_as_it_was(fitted):
    np.random.seed(5)  # noqa: NPY002
    expected = np.random.random()  # noqa: NPY002
    np.random.seed(5)  # noqa: NPY002
    fitted[MbiMST].sample(KEY, 10)
    assert np.random.random() == expected  # noqa: NPY002


def test_without_the_package_the_error_says_how_to_install_it(monkeypatch):
    def missing(name):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(packages.importlib, "import_module", missing)
    x, y = mixed(20)
    with pytest.raises(ImportError, match="pip install 'mbi>=2,<3'"):
        small(MbiMST).fit(KEY, x, y, 1.0, 1e-5)


@pytest.mark.usefixtures("mbi")
def test_packages_refuse_a_budget_that_they_cannot_use():
    x, y = mixed(20)
    with pytest.raises(ValueError, match="delta must be in"):
        small(MbiMST).fit(KEY, x, y, 1.0, 0.0)
    with pytest.raises(ValueError, match="epsilon"):
        small(MbiAIM).fit(KEY, x, y, -1.0, 1e-5)
    with pytest.raises(ValueError, match="n_bins"):
        small(MbiMST, n_bins=1)
