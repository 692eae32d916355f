import functools
import os
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from scipy.sparse.csgraph import connected_components, floyd_warshall, shortest_path
from scipy.spatial.distance import cdist
from sklearn.datasets import load_digits
from sklearn.manifold import Isomap as SklearnIsomap
from sklearn.neighbors import kneighbors_graph

from drjax.core import host
from drjax.core.types import Status
from drjax.dr import Isomap
from drjax.dr.distances import distances
from drjax.dr.isomap import cpu, insertion_xla, path_insertion, shortest_paths
from tests.dr.jitted import KEY, fit, insert

DOUBTFUL = Status.SIGN_TIE | Status.SMALL_GAP


@functools.cache
def digits():
    x = load_digits().data / 16
    rng = np.random.default_rng(0)
    # Of 17 grey levels, so that many distances tie, and scikit-learn has no rule for ties: blurred until none does.
    return x[rng.permutation(len(x))] + 0.01 * rng.normal(size=x.shape)


def scikit_learn(x, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # joining components is announced
        warnings.simplefilter("ignore", scipy.sparse.SparseEfficiencyWarning)
        return SklearnIsomap(eigen_solver="dense", **options).fit(np.asarray(x, np.float64))


def error(found, expected):
    return np.abs(np.asarray(found) - expected).max() / np.abs(expected).max()


def scipy_paths(between, edges):
    """Shortest paths over the given undirected edges (n, n) and one bridge between every two components, by SciPy."""
    edges = edges | edges.T
    count, label = connected_components(edges, directed=False)
    for i in range(count):
        for j in range(i):
            rows, columns = np.flatnonzero(label == i), np.flatnonzero(label == j)
            apart = between[np.ix_(rows, columns)]
            a, b = np.unravel_index(apart.argmin(), apart.shape)
            edges[rows[a], columns[b]] = edges[columns[b], rows[a]] = True
    i, j = np.nonzero(edges)
    graph = scipy.sparse.csr_array((between[i, j], (i, j)), shape=between.shape)  # keeps edges of length 0
    return shortest_path(graph, method="D", directed=False), count


def nearest_by_index(between, k):
    others = between.copy()
    np.fill_diagonal(others, np.inf)
    edges = np.zeros(between.shape, bool)
    np.put_along_axis(edges, np.argsort(others, axis=1, kind="stable")[:, :k], True, axis=1)
    return edges


def inserted_paths(between, k):
    """What `path_insertion.insert` makes of point 0 and the graph of the others."""
    graph = shortest_paths.graph_of_distances(np.ascontiguousarray(between[1:, 1:]), k)
    out = np.empty(between.shape)
    edges = path_insertion.adjacency(graph.neighbors, graph.between)
    count, _ = path_insertion.insert(*graph, *edges, np.ascontiguousarray(between[0, 1:]), k, out)
    return out, count


def test_paths_after_an_insertion_equal_scipys_bit_for_bit_where_sums_are_exact():
    # Sums of integers are exact in float64 whatever their order, so there is nothing to tolerate; dissimilarities
    # below 3 tie and vanish all the time, and need not obey the triangle inequality.
    rng = np.random.default_rng(0)
    n_joined = 0
    for trial in range(510):
        n = int(rng.integers(2, 40))
        k = int(rng.integers(1, min(n, 7)))
        if trial % 3:
            upper = np.triu(rng.integers(0, rng.choice([3, 10, 1000]), size=(n, n)), 1)
            between = (upper + upper.T).astype(float)
        else:
            x = rng.integers(0, 30, size=n).astype(float)
            between = np.abs(x[:, None] - x)
        found, count = inserted_paths(between, k)
        expected, expected_count = scipy_paths(between, nearest_by_index(between, k))
        assert count == expected_count
        np.testing.assert_array_equal(found, expected)
        n_joined += count > 1
    assert 50 < n_joined < 450


@pytest.mark.parametrize("kind", ["plain", "clusters", "duplicates"])
def test_paths_after_an_insertion_equal_scipys_on_the_graph_of_scikit_learn(kind):
    rng = np.random.default_rng(1)
    for _ in range(60):
        n, d = int(rng.integers(8, 60)), int(rng.integers(1, 6))
        k = int(rng.integers(2, 6))
        x = rng.normal(size=(n, d))
        if kind == "clusters":
            x += 50 * rng.integers(0, 3, size=(n, 1))
        if kind == "duplicates":  # pairs, the target among them: a point's twin is then its nearest neighbour
            x[n // 2 : 2 * (n // 2)] = x[: n // 2]
        between = cdist(x, x)
        edges = kneighbors_graph(x, k).toarray() > 0
        found, count = inserted_paths(between, k)
        expected, expected_count = scipy_paths(between, edges)
        assert count == expected_count
        # A path's length is a sum of at most 60 terms, which SciPy adds in another order.
        np.testing.assert_allclose(found, expected, rtol=60 * 2.0**-52)


def test_the_changed_pairs_are_all_that_an_insertion_changes():
    rng = np.random.default_rng(12)
    n_changed = 0
    for trial in range(40):
        n, k = int(rng.integers(12, 60)), int(rng.integers(1, 5))
        x = rng.integers(0, 40, size=(n, 1 + trial % 3)).astype(float)
        graph = shortest_paths.graph_of_distances(cdist(x[1:], x[1:]), k)
        edges = path_insertion.adjacency(graph.neighbors, graph.between)
        own, reach, linked = graph.paths.copy(), np.empty(n - 1), np.empty(n - 1, bool)
        row = cdist(x[:1], x[1:])[0]
        for room in (n * n, 3):
            own[:] = graph.paths
            pairs = np.full((room, 2), -1, np.int32)
            count = path_insertion.change(*graph, *edges, row, k, own, reach, linked, pairs)
            i, j = pairs[: min(count, room)].T
            assert (i < j).all()
            assert len(set(zip(i, j, strict=True))) == min(count, room)
            if count <= room:
                restored = own.copy()
                restored[i, j] = restored[j, i] = graph.paths[i, j]
                np.testing.assert_array_equal(restored, graph.paths)
            n_changed += count
    assert n_changed > 1000


def test_distances_are_symmetric_and_zero_between_equal_rows_to_the_bit():
    x = np.random.default_rng(2).normal(size=(30, 17)) + 1e6
    x[7] = x[3]
    found = distances(x, x)
    np.testing.assert_array_equal(found, found.T)
    np.testing.assert_array_equal(found[7], found[3])
    assert found[7, 3] == 0
    np.testing.assert_allclose(found, cdist(x, x), rtol=1e-14)  # a sum of 17 squares in another order


@pytest.mark.parametrize(
    ("n", "k", "n_neighbors", "x64", "tolerance"),
    [(6, 2, 5, True, 1e-9), (66, 3, 4, True, 1e-9), (200, 2, 5, True, 1e-9), (200, 1, 12, False, 2e-5)],
)
def test_insert_and_fit_transform_equal_scikit_learn_with_signs(n, k, n_neighbors, x64, tolerance):
    # Residuals of the eigenvectors, 1e-12 and 2e-8 of the largest eigenvalue, over eigengaps of at least 1/100.
    with jax.enable_x64(x64):
        x = digits().astype(np.float64 if x64 else np.float32)
        known, targets = x[: n - 1], x[1000:1006]
        isomap = Isomap(n_components=k, n_neighbors=n_neighbors)
        batch = jax.jit(isomap.insert_batch)(jax.random.split(KEY, 6), isomap.prepare(known), jnp.asarray(targets))
        clean = [i for i in range(6) if not int(batch.status[i]) & DOUBTFUL]
        assert len(clean) >= 4
        for i in clean:
            data = np.vstack([targets[i], known])
            expected = scikit_learn(data, n_components=k, n_neighbors=n_neighbors)
            fitted = fit(isomap, data)
            assert error(batch.coords[i], expected.embedding_) < tolerance
            assert error(fitted.coords, expected.embedding_) < tolerance
            for found in (batch.objective[i], fitted.objective):
                np.testing.assert_allclose(found, (n * expected.reconstruction_error()) ** 2, rtol=1e-3)
            np.testing.assert_allclose(batch.info.eigenvalues[i], expected.kernel_pca_.eigenvalues_, rtol=1e-5)
            assert int(fitted.status) == int(batch.status[i])


@pytest.mark.skipif("DRJAX_DATA" not in os.environ, reason="needs the MNIST files: set DRJAX_DATA")
@pytest.mark.parametrize("n", [10, 300])
def test_insert_equals_scikit_learn_on_mnist(n):
    from drjax.data import load

    x = load("mnist").x[:3000].reshape(3000, -1)
    for x64, tolerance in ((True, 1e-9), (False, 2e-5)):
        with jax.enable_x64(x64):
            cast = x.astype(np.float64 if x64 else np.float32)
            known, targets = cast[: n - 1], cast[2000:2003]
            found = jax.jit(Isomap().insert_batch)(jax.random.split(KEY, 3), Isomap().prepare(known), targets)
            clean = [i for i in range(3) if not int(found.status[i]) & DOUBTFUL]
            assert clean
            for i in clean:
                expected = scikit_learn(np.vstack([targets[i], known])).embedding_
                assert error(found.coords[i], expected) < tolerance


@pytest.mark.parametrize("kind", ["plain", "clusters", "duplicates", "line", "heavy tails", "circle", "grid"])
def test_an_insertion_has_the_leading_eigenpairs_and_the_strain_that_numpy_finds(kind):
    with jax.enable_x64(True):
        rng = np.random.default_rng(13)
        n, k, n_neighbors = 120, 2, 5
        x = rng.normal(size=(n, 3))
        if kind == "clusters":
            x += 20 * rng.integers(0, 3, size=(n, 1))
        if kind == "duplicates":
            x = x[rng.integers(0, n // 2, size=n)]
        if kind == "line":
            x = rng.uniform(size=(n, 1)) * np.ones((1, 3))
        if kind == "heavy tails":
            x = rng.standard_cauchy(size=(n, 3))
        if kind == "circle":
            angle = rng.uniform(0, 2 * np.pi, n)
            x = np.stack([np.cos(angle), np.sin(angle), np.zeros(n)], axis=1)
        if kind == "grid":
            x = rng.integers(0, 6, size=(n, 3)).astype(float)
        targets = np.vstack([x[:1], x[1:2], 100 * x[:1], rng.normal(size=(40, 3))])  # more than are iterated together
        isomap = Isomap(n_components=k, n_neighbors=n_neighbors)
        found = isomap._insert_on_host(isomap.prepare(x[1:]), jnp.asarray(targets))
        for i in range(len(targets)):
            data = np.vstack([targets[i : i + 1], x[1:]])
            squares = inserted_paths(distances(data, data), n_neighbors)[0] ** 2
            centring = np.eye(n) - 1 / n
            gram = -0.5 * centring @ squares @ centring
            expected = np.linalg.eigvalsh(gram)[::-1]
            values, vectors = found.values[i] * found.unit[i] ** 2, np.asarray(found.vectors[i])
            np.testing.assert_allclose(values[:k], expected[:k], atol=1e-12 * expected[0])
            # The value after the last is there for the gap: a small one among close ones may stand for its neighbour.
            np.testing.assert_allclose(values[k], expected[k], atol=1e-4 * expected[0])
            np.testing.assert_allclose(vectors.T @ vectors, np.eye(k), atol=1e-12)
            # The stopping rule, 4 n eps = 1e-13 of the largest, and the rounding of the product here.
            assert np.abs(gram @ vectors - vectors * values[:k]).max() < 1e-12 * expected[0]
            strain = np.sum(gram**2) - np.sum(np.maximum(expected[:k], 0) ** 2)
            np.testing.assert_allclose(found.strain[i] * found.unit[i] ** 4, strain, atol=1e-11 * np.sum(gram**2))


def test_records_in_several_clusters_are_joined_as_scikit_learn_joins_them_and_flagged():
    with jax.enable_x64(True):
        rng = np.random.default_rng(3)
        x = rng.normal(size=(120, 3)) + 40 * rng.integers(0, 4, size=(120, 1)) * np.array([1, 0.3, -0.5])
        shared = Isomap().prepare(x[1:])
        for target in (x[0], x[0] + 500, x[1]):
            data = np.vstack([target, x[1:]])
            expected = scikit_learn(data)
            n_parts = connected_components(kneighbors_graph(data, 5))[0]
            inserted, fitted = insert(Isomap(), shared, jnp.asarray(target)), fit(Isomap(), data)
            for found in (inserted, fitted):
                assert int(found.status) & Status.DISCONNECTED
                assert int(found.info.n_graph_components) == n_parts
                # scikit-learn's bridge is the root of a difference of inner products: eight digits less than float64.
                assert error(found.coords, expected.embedding_) < 1e-7
            assert error(inserted.coords, np.asarray(fitted.coords)) < 1e-10


def test_a_target_that_joins_two_clusters_leaves_one_component():
    x = np.array([[0.0], [1], [2], [10], [11], [12]], np.float32)
    isomap = Isomap(n_neighbors=2, n_components=1)
    found = insert(isomap, isomap.prepare(x), jnp.array([6.5], jnp.float32))
    # Its two nearest are 2 and 10 (4.5 and 3.5 away), one of either cluster: a line, whose lengths are those in R.
    assert int(found.info.n_graph_components) == 1
    np.testing.assert_allclose(np.abs(np.diff(found.coords[1:, 0])), [1, 1, 8, 1, 1], atol=1e-5)


def test_data_on_a_line_are_recovered_and_have_no_second_component():
    with jax.enable_x64(True):
        place = np.sort(np.random.default_rng(4).uniform(size=30))[:, None]
        x = place * np.array([3.0, 4.0])
        found = insert(Isomap(), Isomap().prepare(x[1:]), jnp.asarray(x[0]))
        assert int(found.status) == Status.DEGENERATE
        np.testing.assert_array_equal(found.coords[:, 1], 0)
        np.testing.assert_allclose(cdist(found.coords, found.coords), 5 * np.abs(place - place.T), atol=1e-12)
        # A difference of two sums of squares, each about the squared eigenvalue.
        assert float(found.objective) < 1e-14 * float(found.info.eigenvalues[0]) ** 2


@pytest.mark.parametrize(
    ("n", "k", "x64", "embed"),
    [
        *((n, k, True, embed) for n, k in ((2, 2), (3, 2)) for embed in ("fit_transform", "insert")),
        (2, 1, True, "insert"),
        (3, 3, True, "fit_transform"),
        (2, 1, False, "fit_transform"),
        (3, 2, False, "fit_transform"),
        (3, 2, False, "insert"),
        (3, 3, False, "insert"),
    ],
)
def test_very_few_records_keep_their_distances_or_are_flagged(embed, x64, n, k):
    with jax.enable_x64(x64):
        x = np.random.default_rng(5).normal(size=(n, 12)).astype(np.float64 if x64 else np.float32)
        isomap = Isomap(n_components=k, n_neighbors=n - 1)
        out = fit(isomap, x) if embed == "fit_transform" else insert(isomap, isomap.prepare(x[1:]), x[0])
        assert out.coords.shape == (n, k)
        assert np.isfinite(out.coords).all()
        # All n - 1 neighbours: classical scaling, exact with n - 1 components; the n-th has no variance.
        assert bool(int(out.status) & Status.DEGENERATE) == (k == n)
        if k >= n - 1:
            np.testing.assert_allclose(cdist(out.coords, out.coords), cdist(x, x), atol=1e-9 if x64 else 1e-5)


@pytest.mark.parametrize(
    ("x", "x64"),
    [
        (np.ones((9, 4)), True),
        (np.zeros((9, 4)), True),
        (np.ones((9, 4)), False),
        (np.repeat(np.eye(3), 4, axis=0), False),
        (np.repeat(np.eye(4), 25, axis=0), True),
    ],
    ids=["equal", "zeros", "equal in float32", "few places", "more records at a place than neighbours"],
)
def test_equal_records_give_finite_coordinates_alike_in_both_ways(x64, x):
    with jax.enable_x64(x64):
        x = x.astype(np.float64 if x64 else np.float32)
        isomap = Isomap(n_neighbors=3)
        fitted, inserted = fit(isomap, x), insert(isomap, isomap.prepare(x[1:]), x[0])
        for out in (fitted, inserted):
            assert np.isfinite(out.coords).all()
            assert not int(out.status) & Status.NON_FINITE
            assert bool(int(out.status) & Status.DEGENERATE) == bool(np.ptp(x, axis=0).max() == 0)
        assert int(fitted.info.n_graph_components) == int(inserted.info.n_graph_components)
        # The two leading eigenvalues of a simplex are equal, so only what does not turn with them can be compared.
        np.testing.assert_allclose(fitted.info.eigenvalues, inserted.info.eigenvalues, rtol=1e-4, atol=1e-5)


def test_neighbours_at_equal_distance_are_taken_by_index_in_both_ways():
    # A grid of integers: nearly every fourth neighbour is tied.
    x = np.stack(np.meshgrid(np.arange(5.0), np.arange(4.0)), -1).reshape(-1, 2).astype(np.float32)
    x = x[np.random.default_rng(6).permutation(len(x))]
    isomap = Isomap(n_neighbors=3, n_components=1)
    expected, count = scipy_paths(cdist(x, x), nearest_by_index(cdist(x, x), 3))
    found, _ = inserted_paths(cdist(x, x), 3)
    np.testing.assert_allclose(found, expected, rtol=1e-14)  # sums of at most 20 terms in another order
    inserted, fitted = insert(isomap, isomap.prepare(x[1:]), x[0]), fit(isomap, x)
    assert int(inserted.info.n_graph_components) == int(fitted.info.n_graph_components) == count
    # The grid is its own mirror image: the sign is a tie, and says so. The rest is rounding of float32.
    assert int(inserted.status) & int(fitted.status) & Status.SIGN_TIE
    assert error(np.abs(inserted.coords), np.abs(fitted.coords)) < 1e-5


@pytest.mark.parametrize("place", [1e30, -1e30])
@pytest.mark.parametrize("x64", [True, False])
def test_a_record_at_1e30_is_embedded(x64, place):
    with jax.enable_x64(x64):
        x = np.random.default_rng(7).normal(size=(40, 3)).astype(np.float64 if x64 else np.float32)
        isomap = Isomap(n_components=1)
        shared = isomap.prepare(x[1:])
        target = np.full(3, place, x.dtype)
        for out in (insert(isomap, shared, target), fit(isomap, np.vstack([target, x[1:]]))):
            assert not int(out.status) & (Status.NON_FINITE | Status.DEGENERATE)
            # One point against 39 at one place, sqrt(3) 1e30 away: the mean is 1/40 of the way.
            np.testing.assert_allclose(out.coords[0, 0] / 1e30, 39 / 40 * 3**0.5, rtol=1e-5)
            np.testing.assert_allclose(out.coords[1:, 0] / 1e30, -(3**0.5) / 40, rtol=1e-4)


def test_a_nan_or_infinite_target_marks_its_own_lane_only():
    x = digits().astype(np.float32)
    targets = x[100:105].copy()
    targets[1, 5], targets[3, 0] = np.nan, np.inf
    keys = jax.random.split(KEY, 5)
    shared = Isomap().prepare(x[:50])
    found = jax.jit(Isomap().insert_batch)(keys, shared, jnp.asarray(targets))
    is_bad = (np.asarray(found.status) & np.uint32(Status.NON_FINITE)) != 0
    assert is_bad.tolist() == [False, True, False, True, False]
    assert np.isfinite(np.asarray(found.coords)[[0, 2, 4]]).all()
    spoilt = x[:50].copy()
    spoilt[4, 4] = np.nan
    assert int(fit(Isomap(), spoilt).status) & Status.NON_FINITE


def test_equal_eigenvalues_and_opposite_entries_are_flagged():
    square = np.array([[1.0, 0], [-1, 0], [0, 1], [0, -1]], np.float32)
    isomap = Isomap(n_neighbors=3)
    for out in (fit(isomap, square), insert(isomap, isomap.prepare(square[1:]), square[0])):
        assert int(out.status) & Status.SMALL_GAP
    line = np.array([[-2.0], [2], [-1], [1]], np.float32)
    isomap = Isomap(n_neighbors=3, n_components=1)
    for out in (fit(isomap, line), insert(isomap, isomap.prepare(line[1:]), line[0])):
        assert int(out.status) & Status.SIGN_TIE


def test_what_does_not_fit_the_number_of_records_is_refused_while_tracing():
    x = np.random.default_rng(8).normal(size=(6, 3)).astype(np.float32)
    shared = Isomap().prepare(x[1:])
    for isomap, rule in (
        (Isomap(n_neighbors=6), "n_neighbors must be <= n - 1 of n = 6 records = 5, got 6"),
        (Isomap(n_components=7), "n_components must be <= n records = 6, got 7"),
    ):
        for call in (
            lambda isomap: jax.eval_shape(isomap.fit_transform, KEY, x),
            lambda isomap: jax.eval_shape(isomap.objective, x, x),
            lambda isomap: isomap.prepare(x[1:]),
            lambda isomap: jax.eval_shape(isomap.insert, KEY, shared, x[0]),
        ):
            with pytest.raises(ValueError, match=rule):
                call(isomap)
    for bad in (0, 2.5, True, None):
        with pytest.raises(ValueError, match="n_neighbors must be an integer >= 1"):
            Isomap(n_neighbors=bad)


def test_known_records_beyond_the_range_of_the_dtype_are_refused():
    with pytest.raises(ValueError, match="known must be finite"):
        Isomap(n_neighbors=1).prepare(np.array([[1e300], [1.0]]))


def test_bits_do_not_depend_on_the_number_of_cores(monkeypatch):
    x, found = digits()[:120], []
    shared = Isomap().prepare(x[:100])
    for n_cores in (1, 2, 3, 16):
        monkeypatch.setattr(host, "n_cores", lambda n=n_cores: n)
        found.append(cpu.insert_chunks(2, 5, "euclidean", shared, x[100:]))
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


def test_insert_may_be_mapped_over_targets_and_over_known_records():
    x = digits()[:90].astype(np.float32).reshape(3, 30, -1)
    targets = digits()[200:206].astype(np.float32).reshape(3, 2, -1)
    shared = [Isomap().prepare(known) for known in x]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *shared)
    each = jax.vmap(Isomap().insert, in_axes=(None, None, 0))
    both = jax.jit(jax.vmap(each, in_axes=(None, 0, 0)))(KEY, stacked, targets)
    for i in range(3):
        for j in range(2):
            one = insert(Isomap(), shared[i], targets[i, j])
            # The same compiled code; only the number of lanes in a call differs.
            np.testing.assert_allclose(both.coords[i, j], one.coords, atol=1e-6)


def test_objective_has_the_derivative_of_finite_differences():
    with jax.enable_x64(True):
        x = np.random.default_rng(9).normal(size=(14, 3))
        x[7:] += 30  # two components
        x[3] = x[2]  # at distance 0
        coords = np.random.default_rng(10).normal(size=(14, 2))
        isomap = Isomap(n_neighbors=3)
        value = jax.jit(isomap.objective)
        for argument in (0, 1):
            slope = jax.jit(jax.grad(isomap.objective, argument))(coords, x)
            step = np.random.default_rng(11).normal(size=slope.shape)
            step[3:4] = step[2:3]  # twins stay together: their distance has no derivative

            def at(t, argument=argument, step=step):
                moved = [coords, x]
                moved[argument] = moved[argument] + t * step
                return float(value(*moved))

            difference = (at(1e-5) - at(-1e-5)) / 2e-5
            # The rounding of the objective over the step, and its third derivative times the step squared.
            np.testing.assert_allclose(np.vdot(slope, step), difference, rtol=1e-6)


def crowd(kind):
    """90 known records and 6 targets, the last one far away."""
    x = digits()[:96].astype(np.float64)
    if kind == "clusters":
        x[:40] += 30  # the graph falls apart
    elif kind == "ties":
        x = np.round(4 * x[:, 20:26])
    elif kind == "equal":
        x = np.repeat(x[:48], 2, axis=0)
    x[-1] *= 40
    return x[:90], jnp.asarray(x[90:])


@pytest.mark.parametrize(("kind", "n_neighbors"), [("plain", 12), ("clusters", 5), ("ties", 5), ("equal", 5)])
def test_insertion_by_xla_is_that_of_the_host(kind, n_neighbors):
    with jax.enable_x64(True):
        (known, targets), isomap = crowd(kind), Isomap(n_components=3, n_neighbors=n_neighbors)
        shared = isomap.prepare(known)
        host, device = isomap._insert_on_host(shared, targets), jax.jit(isomap._insert_in_xla)(shared, targets)
        np.testing.assert_array_equal(device.n_parts, host.n_parts)
        assert (host.n_parts > 1).any() == (kind == "clusters")
        unit = (device.unit / host.unit)[:, None]
        np.testing.assert_allclose(device.values[:, :3] * unit**2, host.values[:, :3], rtol=1e-9)
        # The value after the last serves the gap alone, as a share of the largest.
        assert (np.abs(device.values * unit**2 - host.values).max(axis=1) < 1e-9 * host.values[:, 0]).all()
        strain = device.strain * unit[:, 0] ** 4
        # What is left over is a difference from the largest eigenvalue's square.
        assert (np.abs(strain - host.strain) < 1e-8 * host.strain + 1e-13 * host.values[:, 0] ** 2).all()
        gap = -np.diff(host.values, axis=1).min(axis=1) / host.values[:, 0]
        turned = np.einsum("bik,bjk->bij", device.vectors, device.vectors) - np.einsum(
            "bik,bjk->bij", host.vectors, host.vectors
        )
        assert (np.abs(turned).max(axis=(1, 2)) * gap < 1e-9).all()


def test_every_known_record_may_be_a_neighbour_in_an_insertion_by_xla():
    known, targets = crowd("plain")
    isomap = Isomap(n_neighbors=len(known))
    shared = isomap.prepare(known.astype(np.float32))
    found = isomap._insert_in_xla(shared, targets.astype(jnp.float32))
    expected = isomap._insert_on_host(shared, targets.astype(jnp.float32))
    np.testing.assert_allclose(found.values, expected.values * (expected.unit / found.unit)[:, None] ** 2, rtol=1e-5)


@pytest.mark.parametrize("rounds", [0, insertion_xla.MAX_ROUNDS])
def test_eigenvectors_that_iterations_do_not_find_are_decomposed(monkeypatch, rounds):
    # A start that has nothing of the leading eigenvectors, and too few rounds to find them.
    monkeypatch.setattr(insertion_xla, "MAX_ROUNDS", rounds)
    rng = np.random.default_rng(3)
    basis = np.linalg.qr(rng.normal(size=(80, 80)))[0]
    values = np.concatenate([[9.0, 8.5, 8.1], np.linspace(8, 7, 77)])  # nothing stands out
    matrix = (basis * values) @ basis.T
    start = basis[1:, -4:].T
    with jax.enable_x64(True):
        found, vectors = jax.jit(insertion_xla.leading_near, static_argnums=0)(3, jnp.asarray(matrix[None]), start)
        np.testing.assert_allclose(found[0], values[:3], rtol=1e-12)
        np.testing.assert_allclose(np.abs(np.einsum("ik,ik->k", vectors[0][:, :2], basis[:, :2])), 1, rtol=1e-10)


@pytest.mark.parametrize("n", [1, 5, 16, 17, 50])
def test_shortest_paths_in_blocks_are_those_of_scipy(n):
    rng = np.random.default_rng(n)
    weights = np.where(rng.random((n, n)) < 0.2, rng.integers(1, 50, size=(n, n)), np.inf)
    weights = np.minimum(weights, weights.T).astype(np.float32)
    np.fill_diagonal(weights, 0)
    expected = floyd_warshall(np.where(np.isinf(weights), 0, weights), directed=False)
    np.testing.assert_array_equal(shortest_paths.all_pairs(jnp.asarray(weights)), expected)


@pytest.mark.usefixtures("all_platforms")
def test_the_part_of_a_chunk_that_an_accelerator_runs_agrees_with_the_part_for_a_cpu():
    x = digits().astype(np.float32)
    shared, targets = Isomap().prepare(x[:40]), jnp.asarray(x[100:104])
    host = Isomap()._insert_on_host(shared, targets)
    device = jax.jit(Isomap()._insert_in_xla)(shared, targets)
    ours, theirs = (s.values * s.unit[:, None] ** 2 for s in (host, device))
    np.testing.assert_allclose(ours, theirs, rtol=1e-4)  # the eigensolver of float32
    keys = jax.random.split(KEY, 4)
    jitted = jax.jit(lambda keys, shared, targets: Isomap().insert_batch(keys, shared, targets).coords)
    assert jax.export.export(jitted, platforms=["tpu"])(keys, shared, targets).platforms == ("tpu",)
