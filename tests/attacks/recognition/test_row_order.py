"""Rows of linear maps in another order than the known records are matched, or nothing is claimed of them."""

import jax
import numpy as np
import pytest
from sklearn import datasets, decomposition, manifold, preprocessing
from sklearn.pipeline import make_pipeline

import drjax
from drjax.attacks.embedding import attack_embedding
from drjax.attacks.recognition import recognise
from drjax.attacks.recognition.row_order import find_order
from drjax.core.types import Status

KEY = jax.random.key(0)
RELEASES = {
    "standardised": lambda: make_pipeline(preprocessing.StandardScaler(), decomposition.PCA(2)),
    "plain": lambda: decomposition.PCA(2),
    "min-max": lambda: make_pipeline(preprocessing.MinMaxScaler(), decomposition.PCA(3)),
    "whitened": lambda: decomposition.PCA(2, whiten=True),
    "unit rows, SVD": lambda: make_pipeline(preprocessing.Normalizer(), decomposition.TruncatedSVD(2, random_state=0)),
}


def shuffled(name, peer, n=120, seed=0):
    """Records, the target first; a map of them in an order; the row of each record."""
    rng = np.random.default_rng(seed)
    x = getattr(datasets, f"load_{name}")().data
    x = x[rng.permutation(len(x))[:n]]
    coords = peer.fit_transform(x) * rng.choice([-1, 1], peer[-1].n_components if hasattr(peer, "steps") else 1)
    rows = rng.permutation(n)
    published = np.empty_like(coords)
    published[rows] = coords
    return x, published, rows


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("data", ["breast_cancer", "wine", "digits"])
def test_rows_and_making_of_a_shuffled_map_are_found(data, release):
    x, coords, rows = shuffled(data, RELEASES[release](), seed=1)
    belief = recognise(KEY, x[1:], coords, shuffled=True)
    assert belief.method is not None, belief.in_words()
    np.testing.assert_array_equal(belief.order, rows)
    if data == "wine":
        own = recognise(KEY, x[1:], coords[rows], methods=("pca", "svd"))
        assert belief.title == own.title
        assert own.order is None


def test_an_order_that_is_nearly_right_is_not_believed():
    x, coords, rows = shuffled("wine", RELEASES["standardised"]())
    found = find_order(x[1:], coords)
    assert found is not None
    assert not len(found.open_pairs)
    other = x[1:].copy()
    other[[3, 40]] = x[1:][[40, 3]]
    again = find_order(other, coords)
    assert again is not None
    assert again.rows[4] == rows[41]
    assert again.rows[41] == rows[4]
    # Two records that are none of the map's cannot be matched with it.
    other[3] += other.std(axis=0)
    other[40] -= other.std(axis=0)
    assert find_order(other, coords) is None


@pytest.mark.parametrize(
    "peer",
    [manifold.TSNE(random_state=0), decomposition.KernelPCA(2, kernel="rbf"), manifold.Isomap()],
    ids=lambda peer: type(peer).__name__,
)
def test_no_order_makes_other_maps_linear(peer):
    x, coords, _ = shuffled("wine", make_pipeline(preprocessing.StandardScaler(), peer))
    belief = recognise(KEY, x[1:], coords, shuffled=True)
    assert belief.method is None
    assert belief.order is None
    assert "cannot be matched" in belief.in_words()


def test_fewer_records_than_features_show_no_order():
    x, coords, _ = shuffled("digits", RELEASES["standardised"](), n=50)
    assert find_order(x[1:], coords) is None


def test_rows_that_could_be_exchanged_are_told():
    x, coords, rows = shuffled("breast_cancer", RELEASES["standardised"]())
    x = np.column_stack([x, np.zeros(len(x))])
    x[5, -1] = 1.0  # the map's columns may hold any multiple of this feature, which only one record has
    x[0, -1] = 0.0
    found = find_order(x[1:], coords)
    assert found is not None
    assert set(found.open_pairs[:, 0]) | set(found.open_pairs[:, 1]) == {0, 5}
    belief = recognise(KEY, x[1:], coords, shuffled=True)
    np.testing.assert_array_equal(belief.order, rows)


def test_a_map_in_another_order_is_none_of_these_and_says_that_one_fits():
    x, coords, rows = shuffled("wine", RELEASES["standardised"]())
    belief = recognise(KEY, x[1:], coords)
    assert belief.method is None
    np.testing.assert_array_equal(belief.order, rows)
    assert "in another order" in belief.in_words()
    assert f"row {rows[0]}" in belief.in_words()
    with pytest.raises(ValueError, match="target_row must be left out"):
        recognise(KEY, x[1:], coords, target_row=3, shuffled=True)


@pytest.mark.parametrize("method", [None, drjax.Pipeline(before=(drjax.dr.Standardise(),), method=drjax.PCA())])
def test_an_attack_finds_the_target_s_row(method):
    x, coords, rows = shuffled("wine", RELEASES["standardised"]())
    answer = attack_embedding(KEY, method, x[1:], coords, shuffled=True)
    np.testing.assert_allclose(answer.found.x, x[0], rtol=1e-4)
    np.testing.assert_array_equal(answer.order, rows)
    noise = np.random.default_rng(0).normal(size=coords.shape)
    refused = attack_embedding(KEY, method, x[1:], noise, shuffled=True)
    assert refused.found.status & Status.MISFIT
    with pytest.raises(ValueError, match="target_row must be left out"):
        attack_embedding(KEY, method, x[1:], coords, shuffled=True, target_row=0)
