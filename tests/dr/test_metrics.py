"""Metrics: distances as SciPy's and scikit-learn's, and methods as the libraries make them of those distances."""

import warnings

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sklearn.manifold
import umap.umap_
from scipy.spatial.distance import cdist, squareform
from sklearn.datasets import load_digits
from sklearn.manifold import _t_sne as reference
from sklearn.metrics import pairwise_distances

from drjax import dr
from drjax.core.types import Status
from drjax.dr import METHODS, metrics
from drjax.dr.tsne.affinity import joint_probabilities
from drjax.dr.umap import cpu
from drjax.dr.umap import graph as umap_graph

DIGITS = load_digits().data[:120] / 16
KEY = jax.random.key(2)
OTHER = [metric for metric in metrics.METRICS if metric != "euclidean"]
SMALL = {
    "tsne": {"perplexity": 5.0, "max_iter": 10, "learning_rate": 1.0},
    "umap": {"n_neighbors": 5, "n_epochs": 11, "learning_rate": 0.1},
}
"""Few steps: a descent that is chaotic would make other maps of what differs by rounding."""

fit = jax.jit(lambda method, x: method.fit_transform(KEY, x))
to_known = jax.jit(metrics.to_known, static_argnums=0)


def records(n=30, d=9, dtype="float64", seed=0):
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(n, d)) * 0.8 ** np.arange(d) + rng.normal(size=d)).astype(dtype)


def method_of(name, metric):
    return METHODS[name](metric=metric, **SMALL.get(name, {}))


@pytest.mark.parametrize("metric", metrics.METRICS)
def test_distances_are_scikit_learns(metric, dtype):
    x = records(dtype=dtype)
    expected = pairwise_distances(x.astype(np.float64), metric=metric)
    # Sums of nine terms of size 1; of unit vectors in float32 every entry is rounded.
    atol = 30 * np.finfo(dtype).eps
    np.testing.assert_allclose(to_known(metric, x[:5], x), expected[:5], atol=atol)
    np.testing.assert_allclose(
        metrics.among_in_xla(metric, x), expected, atol=np.sqrt(atol) if metric == "euclidean" else atol
    )
    np.testing.assert_allclose(metrics.among_records(metric, x), expected, atol=1e-13)
    np.testing.assert_allclose(metrics.squared_among_records(metric, x), expected**2, atol=1e-12)


@pytest.mark.parametrize("metric", OTHER)
@pytest.mark.parametrize("b", [1, 16, 17])
def test_a_row_has_the_same_bits_in_any_batch(metric, b):
    x = records(n=37, dtype="float32")
    np.testing.assert_array_equal(to_known(metric, x[:b], x), to_known(metric, x, x)[:b])


def test_a_record_without_direction_is_at_distance_1_from_every_other_as_in_scikit_learn():
    x = np.array([[0, 0, 0], [1, 2, 4], [-1, 0.5, 3], [0, 0, 0]])
    expected = pairwise_distances(x, metric="cosine")
    for found in (metrics.among_records("cosine", x), metrics.among_in_xla("cosine", x)):
        np.testing.assert_allclose(found, expected, atol=1e-6)
    flat = x + np.array([[0.1], [0.0], [0.0], [1 / 3]])
    for found in (metrics.among_records("correlation", flat), metrics.among_in_xla("correlation", flat)):
        np.testing.assert_array_equal(found[0], [0, 1, 1, 1])
        np.testing.assert_array_equal(found[3], [1, 1, 1, 0])


@pytest.mark.parametrize("metric", OTHER)
def test_what_is_not_finite_is_at_no_distance_and_what_is_large_is(metric):
    x = np.array([[np.inf] * 3, [np.nan, 0, 1], [1e30, 2e30, -1e30], [0, 0, 0]], np.float32)
    others = np.array([[0, 0, 0], [1, 2, -1]], np.float32)
    for found in (to_known(metric, x, others), metrics.in_xla(metric, x, others)):
        assert not np.isfinite(found[:2]).any()
        assert np.isfinite(found[2:]).all()
        if metric != "manhattan":
            np.testing.assert_allclose(found[2], [1, 0], atol=1e-6)


@pytest.mark.parametrize("metric", OTHER)
def test_derivatives_are_those_of_differences(metric):
    with jax.enable_x64(True):
        x, along, step = records(), np.linspace(-1, 1, 9), 1e-6
        moved = jax.jvp(lambda t: metrics.to_known(metric, t[None], x[1:])[0], (x[0],), (along,))[1]
        ahead, behind = (metrics.between(metric, (x[0] + h * along)[None], x[1:])[0] for h in (step, -step))
        np.testing.assert_allclose(moved, (ahead - behind) / (2 * step), atol=1e-8)


def test_a_metric_that_is_none_is_refused_on_construction():
    for name in ("mds", "isomap", "tsne", "umap", "classical_mds"):
        with pytest.raises(
            ValueError, match="metric must be one of correlation, cosine, euclidean, manhattan; got 'minkowski'"
        ):
            METHODS[name](metric="minkowski")


@pytest.mark.parametrize(
    ("metric", "dtype", "name"),
    [
        ("cosine", "float32", "classical_mds"),
        ("correlation", "float64", "isomap"),
        ("cosine", "float32", "mds"),
        ("correlation", "float64", "mds"),
        ("correlation", "float64", "tsne"),
        ("cosine", "float32", "umap"),
    ],
    indirect=["dtype"],
)
def test_insertion_equals_a_fit_and_has_no_unit(name, metric, dtype):
    method, x = method_of(name, metric), records(dtype=dtype)
    shared = method.prepare(x[1:])
    factor = 1 if name == "tsne" else 4  # its start is of the records themselves
    targets = np.stack([x[0], factor * x[0], x[3]])
    batch = jax.jit(method.insert_batch)(jax.random.split(KEY, 3), shared, targets)
    inserted = jax.jit(method.insert)(KEY, shared, x[0])
    fitted = fit(method, x)
    # As the contract suite for the same methods.
    atol = {"float32": {"mds": 1e-2, "tsne": 2e-4}.get(name, 5e-5), "float64": 1e-10}[dtype]
    np.testing.assert_allclose(inserted.coords, fitted.coords, atol=atol)
    np.testing.assert_allclose(inserted.objective, fitted.objective, rtol=1e-3, atol=10 * atol)
    assert int(inserted.status) == int(fitted.status)
    if method.deterministic:
        np.testing.assert_allclose(batch.coords[:2], np.stack([fitted.coords] * 2), atol=atol)
    assert method.unit is None
    np.testing.assert_allclose(fit(method, 4 * x).coords, fitted.coords, atol=atol)
    np.testing.assert_allclose(jax.jit(method.objective)(fitted.coords, x), fitted.objective, rtol=1e-3, atol=10 * atol)


@pytest.mark.parametrize("name", ["classical_mds", "isomap", "mds"])
def test_a_scale_and_a_shift_of_one_record_do_not_change_its_correlation(name):
    with jax.enable_x64(True):
        method, x = METHODS[name](metric="correlation"), records()
        moved = x * np.linspace(0.5, 3, len(x))[:, None] + np.linspace(-2, 5, len(x))[:, None]
        np.testing.assert_allclose(fit(method, moved).coords, fit(method, x).coords, atol=1e-9)


@pytest.mark.parametrize("metric", metrics.METRICS)
@pytest.mark.parametrize("name", ["classical_mds", "isomap"])
def test_coordinates_are_scikit_learns(name, metric):
    theirs = {
        "classical_mds": sklearn.manifold.ClassicalMDS(n_components=3, metric=metric),
        "isomap": sklearn.manifold.Isomap(n_components=3, n_neighbors=7, metric=metric, eigen_solver="dense"),
    }[name]
    expected = theirs.fit_transform(DIGITS)
    with jax.enable_x64(True):
        options = {"n_neighbors": 7} if name == "isomap" else {}
        found = np.asarray(fit(METHODS[name](n_components=3, metric=metric, **options), DIGITS).coords)
    # Signs of Isomap follow another rule in scikit-learn's kernel PCA.
    signs = np.sign((found * expected).sum(axis=0))
    np.testing.assert_allclose(found * signs, expected, atol=1e-9)


def test_isomap_joins_components_by_the_metric():
    x = np.concatenate([records(n=12), records(n=12, seed=1) * [[1, -1] + [1] * 7] + 6, -records(n=12, seed=2)])
    method = dr.Isomap(n_neighbors=3, metric="cosine")
    with warnings.catch_warnings(), jax.enable_x64(True):
        warnings.simplefilter("ignore")
        expected = sklearn.manifold.Isomap(n_neighbors=3, metric="cosine", eigen_solver="dense").fit_transform(x)
        found = fit(method, x)
        inserted = jax.jit(method.insert)(KEY, method.prepare(x[1:]), x[0])
    assert int(found.status) & Status.DISCONNECTED
    signs = np.sign((np.asarray(found.coords) * expected).sum(axis=0))
    np.testing.assert_allclose(np.asarray(found.coords) * signs, expected, atol=1e-9)
    np.testing.assert_allclose(inserted.coords, found.coords, atol=1e-9)


@pytest.mark.parametrize("metric", OTHER)
def test_mds_is_scikit_learns_from_the_same_start(metric):
    with jax.enable_x64(True):
        method = dr.MDS(metric=metric, init="classical", max_iter=50)
        found = fit(method, DIGITS)
    theirs = sklearn.manifold.MDS(metric=metric, init="classical_mds", n_init=1, max_iter=50)
    expected = theirs.fit_transform(DIGITS)
    np.testing.assert_allclose(found.coords, expected - expected.mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(found.objective, theirs.stress_, rtol=1e-7)


@pytest.mark.parametrize("metric", OTHER)
def test_affinities_of_tsne_are_scikit_learns_of_squared_distances(metric):
    distances = pairwise_distances(DIGITS, metric=metric)
    expected = squareform(reference._joint_probabilities(distances**2, 10.0, 0))
    with jax.enable_x64(True):
        method = dr.TSNE(perplexity=10.0, metric=metric, max_iter=250)
        squared = method._squared(jnp.asarray(DIGITS))
        shared = method.prepare(DIGITS[1:])
        found = np.asarray(joint_probabilities(squared, 10.0))
        # scikit-learn rounds squared distances to float32.
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-9)
        np.testing.assert_allclose(shared.between, squared[1:, 1:], atol=1e-12)
        coords = np.random.default_rng(0).normal(size=(len(DIGITS), 2))
        divergence, _ = reference._kl_divergence(coords.ravel(), squareform(found), 1, len(coords), 2)
        np.testing.assert_allclose(method.objective(coords, DIGITS), divergence, rtol=1e-6)


@pytest.mark.parametrize("metric", OTHER)
def test_tsne_of_many_data_sets_has_their_metric(metric):
    with jax.enable_x64(True):
        method = dr.TSNE(perplexity=5.0, metric=metric, max_iter=12)
        x = np.stack([records(seed=i) for i in range(2)])
        found = jax.jit(method.fit_batch)(jax.random.split(KEY, 2), x)
        pool, rows = method.pool(x.reshape(-1, 9)), np.arange(60).reshape(2, 30)
        drawn = jax.jit(method.fit_subsets)(jax.random.split(KEY, 2), pool, rows)
        for i in range(2):
            # A dozen steps grow what rounding left in the start up to a millionfold.
            expected = fit(method, x[i]).coords
            np.testing.assert_allclose(found.coords[i], expected, atol=1e-7 * np.abs(expected).max())
            np.testing.assert_allclose(drawn.coords[i], expected, atol=1e-7 * np.abs(expected).max())


@pytest.mark.parametrize("metric", metrics.METRICS)
def test_the_graph_of_umap_is_umap_learns(metric):
    x = records(n=40, dtype="float32")  # few, or two distances are equal to the seventh digit
    # As umap-learn does with fewer than 4,096 records, but for its search of neighbours, which takes 5 s to compile.
    distances = pairwise_distances(x, metric=metric)
    order = np.argsort(distances, axis=1, kind="stable")[:, :8]
    given = {"knn_indices": order, "knn_dists": np.take_along_axis(distances, order, axis=1)}
    expected, _, _ = umap.umap_.fuzzy_simplicial_set(distances, 8, np.random.RandomState(0), "precomputed", **given)
    lists = cpu.lists_of(x, 8, 1.0, metric)
    neighbors = umap_graph.Neighbors(jnp.asarray(lists.indices), jnp.asarray(lists.distances))
    found = umap_graph.fuzzy_union(neighbors.indices, jnp.asarray(lists.weights), 1.0)
    # umap-learn works in float32 and stops its search for a bandwidth at 1e-5 of the sum.
    np.testing.assert_allclose(found, expected.toarray(), atol=2e-4)
    in_xla = umap_graph.nearest(jnp.asarray(x), 8, metric)
    np.testing.assert_allclose(in_xla.distances, lists.distances, atol=1e-5)


def test_umap_of_an_angle_separates_what_lies_in_other_directions():
    rng = np.random.default_rng(0)
    away = np.repeat(np.eye(6)[:3], 20, axis=0)
    x = ((away + 0.05 * rng.normal(size=(60, 6))) * rng.uniform(0.1, 10, size=(60, 1))).astype(np.float32)
    coords = np.asarray(fit(dr.UMAP(n_neighbors=8, metric="cosine"), x).coords)
    nearest = np.argsort(cdist(coords, coords), axis=1)[:, 1]
    assert (nearest // 20 == np.arange(60) // 20).all()


@pytest.mark.parametrize("name", ["isomap", "mds", "tsne", "umap"])
def test_a_target_that_is_not_finite_is_flagged_beside_others_that_are_not(name):
    method, x = method_of(name, "cosine"), records(dtype="float32")
    targets = np.stack([np.full(9, np.inf), x[0], np.full(9, np.nan)]).astype(np.float32)
    out = jax.jit(method.insert_batch)(jax.random.split(KEY, 3), method.prepare(x[1:]), targets)
    flags = np.asarray(out.status) & np.uint32(Status.NON_FINITE) > 0
    assert flags.tolist() == [True, False, True]
    chex.assert_tree_all_finite(out.coords[1])


@pytest.mark.parametrize("metric", metrics.METRICS)
def test_distances_of_many_records_are_those_of_scipy_and_have_their_derivative(metric, monkeypatch):
    monkeypatch.setattr(metrics, "MANY", 20)
    x = np.random.default_rng(6).normal(size=(70, 4))
    expected = cdist(x, x, {"manhattan": "cityblock"}.get(metric, metric))
    with jax.enable_x64(True):
        along = np.random.default_rng(7).normal(size=x.shape)
        found, slope = jax.jit(lambda x: jax.jvp(lambda x: metrics.among_all(metric, x), (x,), (along,)))(x)
        ahead, behind = (np.asarray(metrics.among_all(metric, x + h * along)) for h in (1e-6, -1e-6))
    for ours in (found, metrics.among_records(metric, x), metrics.among_records(metric, x, np.float32)):
        # One less a cosine loses half of the digits; there are no small distances here.
        np.testing.assert_allclose(ours, expected, rtol=1e-6 if ours.dtype == np.float32 else 1e-12, atol=1e-15)
        np.testing.assert_array_equal(np.diagonal(ours), 0)
    np.testing.assert_allclose(slope, (ahead - behind) / 2e-6, atol=1e-7)
