"""What defended maps are worth, against scikit-learn map by map."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.manifold import trustworthiness
from sklearn.metrics import silhouette_score
from sklearn.neighbors import NearestNeighbors

from drjax.attacks.property import utility
from drjax.attacks.property.groups import Groups
from drjax.attacks.property.utility import evaluate_maps
from drjax.dr.silhouette import silhouette

RNG = np.random.default_rng(0)
X = (load_digits().data[:200] / 16 + 1e-3 * RNG.normal(size=(200, 64))).astype(np.float32)
Y = load_digits().target[:200]
ROWS = np.stack([RNG.permutation(200)[:60] for _ in range(5)])
COORDS = np.stack([X[rows] @ RNG.normal(size=(64, 2)) + RNG.normal(size=(60, 2)) for rows in ROWS]).astype(np.float32)


@pytest.fixture(params=["pooled distances", "own distances"])
def memory(request, monkeypatch):
    if request.param == "own distances":
        monkeypatch.setattr(utility, "POOL_BYTES", 0)


@pytest.mark.usefixtures("memory")
def test_measures_equal_scikit_learns():
    found = evaluate_maps(X, Groups(ROWS, np.zeros(5)), COORDS, labels=Y, n_neighbors=7, batch_size=2)
    for i, (rows, coords) in enumerate(zip(ROWS, COORDS, strict=True)):
        # Ranks: equal but for the rounding of a mean.
        assert found.trustworthiness[i] == pytest.approx(trustworthiness(X[rows], coords, n_neighbors=7), abs=1e-6)
        near = [NearestNeighbors(n_neighbors=7).fit(a).kneighbors(return_distance=False) for a in (X[rows], coords)]
        kept = np.mean([len({*a} & {*b}) / 7 for a, b in zip(*near, strict=True)])
        assert found.knn_preservation[i] == pytest.approx(kept, abs=1e-6)
        # Sums of 60 float32 distances.
        assert found.silhouette[i] == pytest.approx(silhouette_score(coords, Y[rows]), abs=1e-5)


def test_the_silhouette_is_scikit_learns_in_float64_also_for_single_records_and_coinciding_ones():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(40, 3))
    x[5:9] = x[4]
    labels = np.r_[0, np.ones(10, int), np.full(29, 3)]
    with jax.enable_x64(True):
        found = jax.jit(silhouette, static_argnums=2)(jnp.asarray(x), labels, 5)
    assert float(found) == pytest.approx(silhouette_score(x, labels), abs=1e-12)


def test_classes_that_a_map_does_not_have_change_nothing():
    few = Y[ROWS] < 4
    rows = np.stack([own[keep][:15] for own, keep in zip(ROWS, few, strict=True)])
    coords = np.stack([c[keep][:15] for c, keep in zip(COORDS, few, strict=True)])
    found = evaluate_maps(X, rows, coords, labels=Y).silhouette
    np.testing.assert_allclose(found, [silhouette_score(c, Y[r]) for r, c in zip(rows, coords, strict=True)], atol=1e-5)


def test_one_class_or_a_map_that_is_not_finite_has_no_silhouette():
    assert np.isnan(evaluate_maps(X, ROWS, COORDS, labels=np.zeros(200, int)).silhouette).all()
    broken = COORDS.copy()
    broken[2, 0] = np.nan
    found = evaluate_maps(X, ROWS, broken, labels=Y)
    np.testing.assert_array_equal(np.isnan(found.silhouette), np.arange(5) == 2)
    np.testing.assert_array_equal(np.isnan(found.trustworthiness), np.arange(5) == 2)


def test_without_labels_there_is_no_silhouette():
    assert evaluate_maps(X, ROWS, COORDS).silhouette is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"coords": COORDS[:4]}, "coords must have shape"),
        ({"groups": ROWS + 150}, "groups must name records from 0 to 199"),
        ({"labels": Y - 1}, "labels must be 200 integers >= 0"),
        ({"labels": Y[:5]}, "labels must be 200 integers >= 0"),
        ({"n_neighbors": 30}, "n_neighbors must be < n / 2"),
        ({"features": np.full((200, 2), np.nan)}, "features must be finite"),
    ],
)
def test_bad_arguments_are_refused(changes, message):
    arguments = {"features": X, "groups": ROWS, "coords": COORDS, "labels": Y}
    with pytest.raises(ValueError, match=message):
        evaluate_maps(**arguments | changes)
