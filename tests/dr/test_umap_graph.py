"""UMAP's graph, start and schedule, against umap-learn and SciPy."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
import scipy.sparse
import umap.layouts
import umap.spectral
import umap.umap_
from sklearn.datasets import load_digits
from sklearn.metrics import pairwise_distances

from drjax.dr.distances import distances
from drjax.dr.umap import cpu, layout_cpu, spectral_cpu, xla
from drjax.dr.umap import graph as umap_graph

DIGITS = load_digits().data.astype(np.float32)

SETTINGS = cpu.Settings(
    n_components=2,
    n_neighbors=2,
    n_epochs=100,
    n_prune=100,
    negative_sample_rate=5,
    learning_rate=1.0,
    repulsion=1.0,
    a=1.5769,
    b=0.8951,
    mix=1.0,
    local_connectivity=1.0,
    is_spectral=True,
)


def reference_graph(x, k, local_connectivity=1.0, mix=1.0):
    graph, _, _ = umap.umap_.fuzzy_simplicial_set(
        pairwise_distances(x.astype(np.float64)),
        k,
        np.random.RandomState(0),
        "precomputed",
        local_connectivity=local_connectivity,
        set_op_mix_ratio=mix,
    )
    return graph.toarray()


def compiled_graph(x, k, local_connectivity=1.0, mix=1.0, lists=None):
    lists = lists or cpu.lists_of(x, k, local_connectivity)
    union, first = cpu.union_of(lists.indices, lists.weights, mix)
    head, tail, weight = cpu._edges(lists.indices, union, first, 0.0)
    graph = np.zeros((len(x), len(x)))
    graph[head, tail] = weight
    return graph + graph.T


@functools.partial(jax.jit, static_argnames=("k", "local_connectivity", "mix"))
def xla_graph(x, k, local_connectivity=1.0, mix=1.0):
    neighbors = umap_graph.nearest(jnp.asarray(x), k)
    return umap_graph.fuzzy_union(neighbors.indices, umap_graph.memberships(neighbors, local_connectivity), mix)


def with_duplicates(n):
    x = DIGITS[:n].copy()
    x[5:9] = x[0]
    x[20] = x[30]
    return x


BOTH, COMPILED = (compiled_graph, xla_graph), (compiled_graph,)
GRAPHS = [
    (BOTH, DIGITS[:12], 11, {}),
    (COMPILED, DIGITS[100:200], 15, {}),
    (BOTH, DIGITS[100:200], 3, {}),
    (BOTH, DIGITS[500:900], 15, {}),
    (COMPILED, DIGITS[500:900], 5, {}),
    (COMPILED, with_duplicates(80), 15, {}),
    # More copies of a record than its list holds: it is not even in its own.
    (BOTH, with_duplicates(80), 3, {}),
    (BOTH, np.ones((12, 4), np.float32), 5, {}),
    (BOTH, DIGITS[:90], 10, {"local_connectivity": 2.5}),
    (BOTH, DIGITS[:90], 10, {"mix": 0.0}),
    (BOTH, with_duplicates(90), 10, {"mix": 0.3, "local_connectivity": 3.0}),
]


@pytest.mark.parametrize(("make", "x", "k", "options"), [(make, *rest) for makes, *rest in GRAPHS for make in makes])
def test_graph_is_that_of_umap_learn(make, x, k, options):
    # umap-learn lets the sum of a row's weights miss its target by 1e-5.
    np.testing.assert_allclose(make(x, k, **options), reference_graph(x, k, **options), atol=1e-5)


def test_graphs_of_xla_and_of_compiled_code_are_the_same_in_float64():
    with jax.enable_x64(True):
        x = with_duplicates(150).astype(np.float64)
        # Distances of integers: ties abound, and both break them by index.
        np.testing.assert_allclose(xla_graph(x, 12), compiled_graph(x, 12), atol=1e-12)


def test_graph_does_not_depend_on_the_unit_of_the_data():
    x = DIGITS[:60].astype(np.float64)
    for unit in (2.0**-20, 2.0**12):
        np.testing.assert_allclose(compiled_graph(x * unit, 10), compiled_graph(x, 10), atol=1e-12)


@pytest.mark.parametrize("k", [3, 15])
def test_inserted_lists_are_those_of_all_records(k):
    x = with_duplicates(120)
    rng = np.random.default_rng(0)
    n_reweighed = 0
    for target in (x[0], x[40], x[90] * 0.5, rng.uniform(0, 16, 64).astype(np.float32), np.full(64, 1e30, np.float32)):
        whole = cpu.lists_of(np.concatenate([target[None], x]), k, 1.0)
        known = cpu.lists_of(x, k, 1.0)
        row = np.linalg.norm(target.astype(np.float64) - x, axis=1)
        row = distances(target[None].astype(np.float64), x.astype(np.float64))[0]
        inserted = cpu.with_target(row, *known, 1.0)
        for a, b in zip(inserted, whole, strict=True):
            np.testing.assert_array_equal(a, b)
        n_reweighed += np.sum(whole.indices[1:] == 0)
        with jax.enable_x64(True):
            in_xla = jax.jit(umap_graph.with_target)(umap_graph.Neighbors(*known[:2]), jnp.asarray(row))
            np.testing.assert_array_equal(in_xla.indices, whole.indices)
            np.testing.assert_array_equal(in_xla.distances, whole.distances)
    assert n_reweighed > 0


@pytest.mark.parametrize(("spread", "min_dist"), [(1.0, 0.1), (1.0, 0.0), (1.0, 1.0), (2.5, 0.5), (0.3, 0.01)])
def test_curve_is_that_of_umap_learn(spread, min_dist):
    # The same least squares; another grouping of the powers ends in the same optimum.
    np.testing.assert_allclose(
        umap_graph.fit_curve(spread, min_dist), umap.umap_.find_ab_params(spread, min_dist), rtol=1e-6
    )


def edges_of(x, k, n_prune):
    lists = cpu.lists_of(x, k, 1.0)
    union, first = cpu.union_of(lists.indices, lists.weights, 1.0)
    return cpu._edges(lists.indices, union, first, union.max() / n_prune)


@pytest.mark.parametrize(("n", "n_epochs"), [(100, 500), (300, 200), (300, 37)])
def test_number_of_updates_is_that_of_umap_learn(n, n_epochs):
    head, tail, weight = edges_of(DIGITS[:n], 15, n_epochs)
    every = umap.umap_.make_epochs_per_sample(np.tile(weight, 2), n_epochs)
    expected, due = 0, every.copy()
    for epoch in range(n_epochs):
        is_due = due <= epoch
        expected += is_due.sum()
        due[is_due] += every[is_due]
    start = np.random.default_rng(0).uniform(0, 10, (n, 2)).astype(np.float32)
    settings = SETTINGS._replace(n_epochs=n_epochs)
    _, n_updates = layout_cpu.optimise(start, head, tail, weight, np.uint64(3), settings)
    assert n_updates == expected

    graph = np.zeros((n, n), np.float32)
    graph[head, tail] = graph[tail, head] = weight
    edges = jax.jit(xla._edges)(jnp.asarray(cpu.lists_of(DIGITS[:n], 15, 1.0).indices), jnp.asarray(graph))
    due_at = jax.jit(lambda rate, epoch: xla._due(rate, epoch, 5)[0].sum())
    in_xla = sum(int(due_at(edges.rate, jnp.int32(t))) for t in range(n_epochs))
    # float32 puts an edge that is due at a whole epoch, but for rounding, before or after it.
    assert abs(2 * in_xla - expected) <= 1e-3 * expected


@pytest.mark.parametrize("rate", [0.003, 0.1, 0.37, 0.5, 0.61, 0.98712, 1.0])
def test_negative_samples_of_an_edge_are_as_many_as_in_umap_learn(rate):
    every = 1 / rate
    every_negative = every / 5
    due, next_negative = every, every_negative
    due_at = jax.jit(lambda rate, epoch: xla._due(rate, epoch, 5))
    with jax.enable_x64(True):
        for epoch in range(300):
            is_due, n_negative = due_at(jnp.array([rate]), jnp.int32(epoch))
            assert bool(is_due[0]) == (due <= epoch + 1e-9)
            if is_due[0]:
                expected = int((epoch - next_negative) / every_negative + 1e-9)
                due += every
                next_negative += expected * every_negative
                assert int(n_negative[0]) == expected <= 10


@pytest.mark.parametrize("where", ["float32", "float64", "xla"])
def test_layout_without_repulsion_is_that_of_umap_learn(where):
    # Separate pairs: the order of the updates makes no difference, and no random number has a say.
    n, n_epochs = 40, 120
    rng = np.random.default_rng(0)
    head, tail = np.arange(0, n, 2), np.arange(1, n, 2)
    weight = rng.uniform(0.02, 1, n // 2)
    start = rng.uniform(0, 30, (n, 2)).astype(np.float32)
    every = umap.umap_.make_epochs_per_sample(np.tile(weight, 2), n_epochs)
    expected = start.copy()
    ends = np.concatenate([head, tail]).astype(np.int32)
    umap.layouts.optimize_layout_euclidean(
        expected,
        expected,
        ends,
        np.roll(ends, n // 2),
        n_epochs,
        n,
        every,
        SETTINGS.a,
        SETTINGS.b,
        np.array([1, 2, 3]),
        gamma=0.0,
        move_other=True,
    )
    settings = SETTINGS._replace(n_epochs=n_epochs, repulsion=0.0)
    if where == "xla":
        indices = np.stack([np.arange(n), np.arange(n) ^ 1], axis=1)
        graph = np.zeros((n, n), np.float32)
        graph[head, tail] = graph[tail, head] = weight
        edges = jax.jit(xla._edges)(jnp.asarray(indices), jnp.asarray(graph))
        found, _ = jax.jit(functools.partial(xla.layout, settings))(edges, jnp.asarray(start), jax.random.key(0))
    else:
        found, _ = layout_cpu.optimise(start.astype(where), head, tail, weight, np.uint64(1), settings)
    moved = np.abs(expected - start).max()
    assert moved > 5
    # float32 throughout in umap-learn; a pair overshoots its middle again and again, which triples each difference.
    np.testing.assert_allclose(found, expected, atol=2e-3)


@pytest.mark.parametrize("k", [2, 3])
def test_negative_samples_drive_records_apart_and_never_off_themselves(k):
    # Two records joined by one edge: the only other one to be drawn is the partner.
    settings = SETTINGS._replace(n_epochs=200, n_components=k)
    start = np.zeros((2, k), np.float32)
    start[1, 0] = 1.0
    one, _ = layout_cpu.optimise(start, np.array([0]), np.array([1]), np.ones(1), np.uint64(1), settings)
    step = one[1] - one[0]
    # On the line through both, and between the curve's distance of equal forces and the reach of one clipped step.
    np.testing.assert_array_equal(one[:, 1:], 0)
    assert 0.05 < np.abs(step[0]) < 10
    np.testing.assert_array_equal(
        layout_cpu.optimise(
            start, np.array([0]), np.array([1]), np.ones(1), np.uint64(1), settings._replace(learning_rate=0.0)
        )[0],
        start,
    )


def start_of(x, k, n_components=2, tolerance=1e-12, seed=0):
    n = len(x)
    graph = spectral_cpu.adjacency(*edges_of(x, k, 500), n)
    n_parts, label = spectral_cpu.components(*graph)
    rng = np.random.default_rng(seed)
    draws = np.zeros((n, n_components)), *rng.uniform(-1, 1, (2, n, n_components))
    *found, n_missed = spectral_cpu.spectral_start(*graph, n_parts, label, n_components, *draws, tolerance)
    assert n_missed == 0
    return found, n_parts, label, graph, draws


def sparse(graph):
    start, nodes, values = graph
    return scipy.sparse.csr_matrix((values, nodes, start))


@pytest.mark.parametrize(("n", "n_components"), [(60, 2), (400, 2), (700, 3)])
def test_start_is_made_of_eigenvectors_of_the_normalised_graph(n, n_components):
    (coords, values, margin), n_parts, _, graph, _ = start_of(DIGITS[300 : 300 + n], 15, n_components)
    assert n_parts == 1
    matrix = sparse(graph).toarray()
    root = np.sqrt(matrix.sum(axis=1))
    expected_values, vectors = scipy.linalg.eigh(matrix / root[:, None] / root)
    np.testing.assert_allclose(values, expected_values[::-1][: n_components + 2], atol=1e-10)
    expected = vectors[:, ::-1][:, 1 : n_components + 1]
    expected = expected * np.where(expected.max(axis=0) >= -expected.min(axis=0), 1, -1)
    # The residual is 1e-12 and the gaps are above 1e-3.
    np.testing.assert_allclose(coords, expected * 10 / np.abs(expected).max(), atol=1e-7)
    assert (margin > 0).all()


def test_the_compiled_search_reads_nothing_beside_its_arrays():
    *_, graph, _ = start_of(DIGITS[300:500], 15)
    start, nodes, _ = graph
    matrix = start, nodes, *spectral_cpu._normalised(*graph)[::-1]
    _, values = spectral_cpu._of_few(*matrix, 2, 1e-12)
    with np.errstate(over="ignore"):  # its random numbers are modulo 2^64
        _, interpreted = spectral_cpu._of_few.py_func(*matrix, 2, 1e-12)  # raises where an index is out of range
    np.testing.assert_allclose(values, interpreted, atol=1e-10)


@pytest.mark.parametrize("n", [100, 400])
def test_start_is_that_of_umap_learn_up_to_signs(n):
    (coords, values, _), _, _, graph, _ = start_of(DIGITS[300 : 300 + n], 15)
    assert np.all(np.diff(values) < -1e-3)
    # At umap-learn's default tolerance SciPy's ARPACK often misses the eigenvalue 0, and the leading vector that is
    # wanted is then left out in place of the trivial one.
    expected = umap.spectral.spectral_layout(None, sparse(graph), 2, np.random.RandomState(0), tol=1e-12)
    expected = expected * np.sign(np.sum(expected * coords, axis=0))
    np.testing.assert_allclose(coords / np.linalg.norm(coords, axis=0), expected, atol=1e-8)


def blobs(sizes, d=6, seed=0):
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.normal(size=(size, d)) + 1e3 * c for c, size in enumerate(sizes)])


def test_start_of_few_components_is_that_of_umap_learn():
    x = blobs((40, 30, 5))
    (coords, _, _), n_parts, label, graph, _ = start_of(x, 4)
    assert n_parts == 3
    expected = umap.spectral.multi_component_layout(x, sparse(graph), 3, label, 2, np.random.RandomState(0), tol=1e-12)
    coords = coords * (np.abs(expected[label < 2]).max() / np.abs(coords[label < 2]).max())
    # Axes e_1, e_2, -e_1 are the centres; the signs of eigenvectors are free.
    for part in (0, 1):
        centre = np.eye(2)[part]
        own, other = coords[label == part] - centre, expected[label == part] - centre
        other = other * np.sign(np.sum(own * other, axis=0))
        np.testing.assert_allclose(own, other, atol=1e-6)  # umap-learn's is float32


@pytest.mark.parametrize("sizes", [(60,), (40, 30, 5), (10, 9, 8, 7, 6, 5)])
def test_start_in_xla_is_that_of_compiled_code(sizes):
    x = blobs(sizes)
    (coords, values, margin), n_parts, _, graph, draws = start_of(x, 4)
    assert n_parts == len(sizes)
    with jax.enable_x64(True):
        dense = jnp.asarray(sparse(graph).toarray())
        count, label = jax.jit(xla._components)(dense > 0)
        own = cpu.Draws(*(jnp.asarray(leaf) for leaf in draws), jnp.zeros(2, jnp.uint32))
        started = jax.jit(xla._spectral_start, static_argnums=4)
        start, found_values, found_margin = started(dense, count, label, own, 2)
    assert int(count) == n_parts
    np.testing.assert_allclose(start, coords, atol=1e-8)
    np.testing.assert_allclose(found_values, values, atol=1e-10)
    np.testing.assert_allclose(found_margin, margin, atol=1e-9)
