"""Kernel ridge regression on invariant features: against scikit-learn's, and what rotation must not change."""

import jax
import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics.pairwise import euclidean_distances

from drjax.attacks.reconstruction import baselines, invariant
from drjax.attacks.shadow import shadow_embeddings
from drjax.core.types import Status
from drjax.dr import MDS


def turned(coords, seed=3):
    """Every release rotated, reflected and moved by itself."""
    rng = np.random.default_rng(seed)
    k = coords.shape[2]
    turns = np.linalg.qr(rng.normal(size=(len(coords), k, k)))[0]
    return coords @ turns + 5 * rng.normal(size=(len(coords), 1, k))


def made_up(m=60, n=9, k=2, d=4, seed=0):
    """Known points that hardly move, and targets that their place decides."""
    known = 3 * np.random.default_rng(99).normal(size=(n - 1, k))
    rng = np.random.default_rng(seed)
    place = rng.normal(size=(m, 1, k))
    coords = np.concatenate([place, known + 0.01 * rng.normal(size=(m, n - 1, k))], axis=1)
    mixing = np.random.default_rng(98).normal(size=(k, d))
    return coords, np.sin(place[:, 0] @ mixing)


@pytest.mark.parametrize("features", invariant.FEATURES)
def test_features_do_not_change_with_rotation_reflection_and_place(features):
    coords, _ = made_up()
    reference = invariant.reference_of(coords)
    before, after = (invariant.FEATURES[features](c, reference) for c in (coords, turned(coords)))
    np.testing.assert_allclose(after, before, atol=1e-10)  # rounding of coordinates below 20
    assert np.ptp(before, axis=0).max() > 0.05


@pytest.mark.parametrize("features", invariant.FEATURES)
def test_the_leave_one_out_error_and_the_fit_are_scikit_learns(features):
    coords, targets = made_up(m=25)
    model = invariant.fit(coords, targets, features=[features])
    inputs = invariant.FEATURES[features](coords, model.reference)
    centred = targets - targets.mean(axis=0)
    gamma = 1 / model.regression.unit
    peer = KernelRidge(kernel="rbf", alpha=model.regression.choice.penalty, gamma=gamma)
    errors = []
    for i in range(25):
        rest = np.arange(25) != i
        errors.append(peer.fit(inputs[rest], centred[rest]).predict(inputs[i : i + 1])[0] - centred[i])
    # A penalty of 1e-6 leaves a condition number of 1e8.
    assert model.loo_mse[features] == pytest.approx(np.mean(np.square(errors)), rel=1e-5)
    fresh, _ = made_up(seed=7)
    expected = peer.fit(inputs, centred).predict(invariant.FEATURES[features](fresh, model.reference))
    np.testing.assert_allclose(model.reconstruct(fresh).x, expected + targets.mean(axis=0), atol=1e-5)


def test_the_best_features_width_and_penalty_are_chosen(monkeypatch):
    coords, targets = made_up(m=40)
    model = invariant.fit(turned(coords), targets)
    assert set(model.loo_mse) == set(invariant.FEATURES)
    assert model.loo_mse[model.features] == min(model.loo_mse.values())
    inputs = invariant.FEATURES[model.features](turned(coords), model.reference)
    width = model.regression.unit / np.median(euclidean_distances(inputs, squared=True))
    assert width == pytest.approx(min(invariant.WIDTHS, key=lambda w: abs(w - width)))
    # A search on fewer shadows still fits all of them.
    monkeypatch.setattr(invariant, "N_SEARCHED", 20)
    assert invariant.fit(turned(coords), targets).regression.weights.shape == (40, 4)


def test_a_random_start_hides_nothing_from_it():
    # MDS of digits from random starts: raw coordinates say next to nothing, distances do.
    x = load_digits().data.astype(np.float32) / 16
    x = x[np.random.default_rng(0).permutation(len(x))]
    known, shadows, targets = x[:50], x[200:700], x[1000:1100]
    train, test = (
        shadow_embeddings(jax.random.key(seed), MDS(), known, records).coords
        for seed, records in enumerate((shadows, targets))
    )
    mean = np.mean((shadows.mean(axis=0) - targets) ** 2)
    ridge = np.mean((baselines.fit_ridge(train, shadows).reconstruct(test).x - targets) ** 2)
    found = np.mean((invariant.fit(train, shadows).reconstruct(test).x - targets) ** 2)
    assert ridge > 0.95 * mean
    assert found < 0.85 * mean


def test_releases_in_one_point_and_of_nan_give_finite_answers_or_a_flag():
    coords, targets = made_up()
    model = invariant.fit(np.zeros_like(coords), targets)
    np.testing.assert_allclose(model.reconstruct(coords[:2] * 0).x, np.tile(targets.mean(axis=0), (2, 1)), atol=1e-6)
    model = invariant.fit(coords, targets)
    bad = coords[:3].copy()
    bad[1, 4, 0] = np.nan
    found = model.reconstruct(bad)
    assert found.status.tolist() == [Status.OK, Status.NON_FINITE, Status.OK]
    assert np.isnan(found.x[1]).all()
    assert np.isfinite(found.x[[0, 2]]).all()


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"coords": np.zeros((5, 4))}, r"coords must have shape \(m, n, k\)"),
        ({"coords": np.zeros((5, 1, 2))}, "n >= 2"),
        ({"coords": np.full((5, 3, 2), np.inf)}, "coords must be finite"),
        ({"coords": np.zeros((1, 3, 2)), "targets": np.zeros((1, 2))}, "coords must have at least 2 rows"),
        ({"targets": np.zeros((4, 2))}, "targets must have one row per release, 5, got 4"),
        ({"features": []}, "features must name at least one kind"),
        ({"features": ["angles"]}, "features must be one of"),
    ],
)
def test_bad_input_is_refused_by_name(change, match):
    arguments = {"coords": np.zeros((5, 3, 2)), "targets": np.zeros((5, 2)), **change}
    with pytest.raises(ValueError, match=match):
        invariant.fit(**arguments)


def test_releases_of_another_shape_are_refused():
    model = invariant.fit(*made_up())
    with pytest.raises(ValueError, match=r"coords must have shape \(b, 9, 2\)"):
        model.reconstruct(np.zeros((3, 8, 2)))
