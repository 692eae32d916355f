"""Isomap of many records on a CPU, against scikit-learn, SciPy, and the way that few records take."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse.csgraph
from scipy.spatial.distance import cdist

from drjax.core.types import Status
from drjax.dr import Isomap, neighbors
from drjax.dr.isomap import bridges, dijkstra, many, shortest_paths
from tests.dr.jitted import KEY
from tests.dr.test_isomap import digits, error, nearest_by_index, scikit_learn, scipy_paths


@pytest.fixture
def few_are_many(monkeypatch):
    monkeypatch.setattr(many, "MANY", 30)
    monkeypatch.setattr(many, "FITTED", 30)


def clusters(n):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(n, 3)) + 40 * rng.integers(0, 4, size=(n, 1)) * np.array([1, 0.3, -0.5])
    return np.pad(x, ((0, 0), (0, 61)))  # as wide as digits: one program for both


@jax.jit
def fit_of_few(x):
    return Isomap().fit_transform(KEY, x)


@jax.jit
def objective(coords, x):
    return Isomap().objective(coords, x)


@jax.jit
def fit_of_many(x):
    return Isomap().fit_transform(KEY, x)


@pytest.mark.parametrize("x", [digits()[:120], clusters(120)], ids=["connected", "clusters"])
def test_a_fit_equals_scikit_learn_and_the_fit_of_few_records(x, monkeypatch):
    with jax.enable_x64(True):
        few = fit_of_few(x)
        monkeypatch.setattr(many, "FITTED", 30)
        found = fit_of_many(x)
    expected = scikit_learn(x)
    # scikit-learn's bridge between components has eight digits less than float64.
    assert error(found.coords, expected.embedding_) < (1e-7 if int(found.status) & Status.DISCONNECTED else 1e-10)
    assert error(found.coords, np.asarray(few.coords)) < 1e-10
    np.testing.assert_allclose(found.objective, few.objective, rtol=1e-9)
    with jax.enable_x64(True):
        np.testing.assert_allclose(objective(found.coords, x), few.objective, rtol=1e-9)
    np.testing.assert_allclose(found.info.eigenvalues, few.info.eigenvalues, rtol=1e-12)
    np.testing.assert_allclose(found.info.eigengap, few.info.eigengap, rtol=1e-5)
    assert int(found.info.n_graph_components) == int(few.info.n_graph_components)
    assert int(found.status) == int(few.status)


@pytest.mark.parametrize("kind", ["integers", "far apart"])
def test_paths_equal_scipys_bit_for_bit_where_sums_are_exact_and_distances_tie(kind):
    rng = np.random.default_rng(0)
    n_joined = 0
    for _ in range(60):
        n, k = int(rng.integers(4, 60)), int(rng.integers(1, 4))
        x = rng.integers(0, 30, size=(n, 1)).astype(float)
        if kind == "far apart":
            x = x % 4 + 100 * rng.integers(0, 3, size=(n, 1))
        found, count = many.all_paths("euclidean", x, k)
        between = cdist(x, x)
        expected, expected_count = scipy_paths(between, nearest_by_index(between, k))
        assert count == expected_count
        np.testing.assert_array_equal(found, expected)
        n_joined += count > 1
    assert n_joined > 10


def test_lengths_are_the_same_bits_as_those_of_scipy():
    x = digits()[:200]
    rows = np.ascontiguousarray(x, np.float64)
    lists = neighbors.nearest("euclidean", rows, 5)
    edges = dijkstra.Edges(*dijkstra.listed(*lists))
    found = np.empty((3, 200))
    dijkstra.paths(edges, np.array([7, 0, 199]), found)
    graph = scipy.sparse.csr_array((edges.weights, edges.nodes, edges.start))
    np.testing.assert_array_equal(found, scipy.sparse.csgraph.dijkstra(graph, indices=[7, 0, 199]))


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_the_graph_is_that_of_few_records(metric):
    x = digits()[:150].copy()
    x[4] = 0  # without a direction
    expected, found = shortest_paths.graph(x, 5, metric), many.graph(x, 5, metric)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.usefixtures("few_are_many")
@pytest.mark.parametrize("x", [digits()[:120], clusters(120)], ids=["connected", "clusters"])
def test_insertions_follow_from_what_many_known_records_share(x):
    with jax.enable_x64(True):
        shared = Isomap().prepare(x[2:])
        found = Isomap().insert_batch(jax.random.split(KEY, 2), shared, jnp.asarray(x[:2]))
        for i in range(2):
            expected = fit_of_many(np.vstack([x[i : i + 1], x[2:]]))
            assert error(found.coords[i], np.asarray(expected.coords)) < 1e-9
            assert int(found.status[i]) == int(expected.status)


@pytest.mark.usefixtures("few_are_many")
def test_a_fit_has_the_derivative_of_finite_differences_and_may_be_mapped():
    with jax.enable_x64(True):
        x = digits()[:40]
        step = np.random.default_rng(1).normal(size=x.shape)

        def coords(t):
            return Isomap().fit_transform(KEY, x + t * step).coords

        slope = jax.jit(lambda: jax.jvp(coords, (0.0,), (1.0,))[1])()
        ahead, behind = jax.jit(jax.vmap(coords))(jnp.array([1e-6, -1e-6]))
        assert error((ahead - behind) / 2e-6, np.asarray(slope)) < 1e-6


@pytest.mark.parametrize(
    ("x", "flag"),
    [
        (np.ones((40, 4)), Status.DEGENERATE),
        (np.arange(40.0)[:, None] * np.ones(4), Status.DEGENERATE),
        (np.repeat(np.eye(4), 10, axis=0), Status.SMALL_GAP),
        (np.where(np.eye(40, 4) > 0, np.nan, 1.0), Status.NON_FINITE),
    ],
    ids=["equal", "line", "few places", "nan"],
)
def test_degenerate_records_are_flagged_as_those_of_few_are(x, flag, monkeypatch):
    with jax.enable_x64(True):
        few = fit_of_few(x)
        monkeypatch.setattr(many, "FITTED", 30)
        found = fit_of_many(x)
    assert int(found.status) & flag
    assert int(few.status) & flag
    largest = float(few.info.eigenvalues[0])
    np.testing.assert_allclose(found.info.eigenvalues, few.info.eigenvalues, atol=1e-12 * largest)
    assert bool(np.isfinite(found.coords).all()) == (flag != Status.NON_FINITE)


@pytest.mark.parametrize("kind", ["apart", "grid", "wide"])
def test_closest_pairs_of_components_by_clusters_are_those_of_all_distances(kind, monkeypatch):
    rng = np.random.default_rng(5)
    x, label = rng.normal(size=(400, 3)), rng.integers(0, 7, 400)
    label[:200] = 0
    if kind == "apart":
        x += 30 * label[:, None] * np.array([1, 0.2, -0.4])
    if kind == "grid":  # many pairs tie
        x = np.floor(3 * x)
    if kind == "wide":  # points are projected
        x = np.pad(x, ((0, 0), (0, 260))) + 1e-3 * rng.normal(size=(400, 263))
    label = np.unique(label, return_inverse=True)[1]
    ends, lengths = bridges.closest_pairs("euclidean", x, label, 7)
    monkeypatch.setattr(neighbors, "SCREENED", 2)
    found = bridges.closest_pairs("euclidean", x, label, 7)
    np.testing.assert_array_equal(found[0], ends)
    np.testing.assert_array_equal(found[1], lengths)
