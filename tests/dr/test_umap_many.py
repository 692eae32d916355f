"""UMAP of many records: what is done from some number of records on, at few of them, against what few records get."""

import threading

import jax
import numpy as np
import pytest
import scipy.linalg
import scipy.sparse
from sklearn.datasets import load_digits

from drjax.core import host
from drjax.core.types import Status
from drjax.dr import UMAP, metrics, neighbors
from drjax.dr.umap import cpu, graph, layout_cpu, spectral_cpu, spectral_many

DIGITS = load_digits().data.astype(np.float32)
KEY = jax.random.key(3)


@pytest.fixture
def many(monkeypatch):
    """Everything that is done for many records is done for 150, in small pieces."""
    for module, name, value in (
        (neighbors, "SCREENED", 2),
        (cpu, "MANY", 2),
        (spectral_cpu, "MANY", 150),
        (spectral_many, "PIECE", 64),
        (spectral_many, "BASIS", 40),
        (spectral_many, "KEPT", 20),
        (layout_cpu, "ALL_PAIRS", 2),
        (layout_cpu, "SAMPLES", 64),
    ):
        monkeypatch.setattr(module, name, value)


@jax.jit
def fit(method, key, x):
    return method.fit_transform(key, x)


@jax.jit
def insert_batch(method, keys, shared, targets):
    return method.insert_batch(keys, shared, targets)


def on_one_core(work):
    """What `work` returns on a thread of the pool, where nothing is spread."""
    found = []
    thread = threading.Thread(target=lambda: found.append(work()), name=f"{host.POOL}-test")
    thread.start()
    thread.join()
    return found[0]


def graph_of(x, k=15):
    lists = cpu.lists_of(x, k, 1.0)
    union, first = cpu.union_of(lists.indices, lists.weights, 1.0)
    return spectral_cpu.adjacency(*cpu._edges(lists.indices, union, first, union.max() / 500), len(x))


def leading(graph, k, tolerance=1e-10):
    start, nodes, _ = graph
    root, scaled = spectral_cpu._normalised(*graph)
    dense = scipy.sparse.csr_matrix((scaled, nodes, start)).toarray()
    return spectral_many.leading(start, nodes, scaled, root, k, tolerance), dense


@pytest.mark.parametrize("k", [3, 60])
def test_screened_lists_hold_a_record_among_its_copies(k, monkeypatch):
    x = DIGITS[:60].copy()
    x[5:9] = x[0]
    x[20] = x[30]
    between = metrics.among("euclidean", x.astype(np.float64))
    order = np.argsort(between, axis=1, kind="stable")[:, :k]
    for threshold in (2, 1000):
        monkeypatch.setattr(neighbors, "SCREENED", threshold)
        lists = cpu.lists_of(x, k, 1.0)
        np.testing.assert_array_equal(lists.indices, order)
        np.testing.assert_array_equal(lists.distances, np.take_along_axis(between, order, axis=1))


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize("k", [2, 5])
def test_leading_vectors_are_those_of_a_decomposition(k):
    found, dense = leading(graph_of(DIGITS[:700]), k)
    values, vectors = scipy.linalg.eigh(dense)
    assert found.is_converged
    np.testing.assert_allclose(found.values, values[::-1][: k + 2], atol=1e-9)
    expected = vectors[:, ::-1].T[1 : k + 1]
    signs = np.sign(np.sum(expected * found.vectors, axis=1, keepdims=True))
    # The residual is 1e-10 and the gaps are above 1e-3.
    np.testing.assert_allclose(found.vectors, signs * expected, atol=1e-7)


@pytest.mark.usefixtures("many")
def test_vectors_of_a_space_that_the_first_block_exhausts_are_orthonormal():
    # All pairs joined alike: every vector orthogonal to the trivial one has the eigenvalue -1 / (n - 1).
    n = 200
    head, tail = np.triu_indices(n, 1)
    found, dense = leading(spectral_cpu.adjacency(head, tail, np.ones(len(head)), n), 2)
    assert found.is_converged
    np.testing.assert_allclose(found.values, [1, *[-1 / (n - 1)] * 3], atol=1e-12)
    np.testing.assert_allclose(found.vectors @ found.vectors.T, np.eye(2), atol=1e-12)
    np.testing.assert_allclose(found.vectors @ dense, -found.vectors / (n - 1), atol=1e-12)


@pytest.mark.usefixtures("many")
def test_bits_do_not_depend_on_the_cores():
    x = DIGITS[:400]
    method, keys = UMAP(n_epochs=30), jax.random.split(KEY, host.n_cores() + 1)
    fitted = fit(method, keys[0], x)
    # One lane is on all cores, a lane of several on one.
    batch = insert_batch(method, keys, method.prepare(x[1:]), np.repeat(x[:1], len(keys), axis=0))
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a, b[0]), fitted, batch)
    assert int(fitted.status) == Status.OK
    graph = graph_of(x)
    for spread, alone in zip(leading(graph, 2)[0], on_one_core(lambda: leading(graph, 2)[0]), strict=True):
        np.testing.assert_array_equal(spread, alone)
    coords = np.asarray(fitted.coords)
    forces = layout_cpu._forces(coords.dtype, 1.6, 0.9, 1.0)
    alone = on_one_core(lambda: layout_cpu.sampled_repulsion(coords, forces))
    assert layout_cpu.sampled_repulsion(coords, forces) == alone


@pytest.mark.parametrize("sizes", [(400,), (250, 200, 60)])
def test_start_of_many_is_that_of_few(sizes, request):
    x = np.concatenate([DIGITS[:size] + 1e3 * part for part, size in enumerate(sizes)])
    method = UMAP(n_epochs=11, learning_rate=0.0)
    few = fit(method, KEY, x)
    request.getfixturevalue("many")
    found = fit(method, KEY, x)
    assert int(found.status) == int(few.status) == (Status.OK if len(sizes) == 1 else Status.DISCONNECTED)
    # Residuals are 1.5e-8 and gaps 1e-3, of coordinates up to 10.
    np.testing.assert_allclose(found.coords, few.coords, atol=1e-3)
    np.testing.assert_allclose(found.info.eigengap, few.info.eigengap, atol=1e-6)
    np.testing.assert_allclose(found.objective, few.objective, rtol=0.05)


def test_a_search_that_ends_early_is_reported(many, monkeypatch):
    del many
    monkeypatch.setattr(spectral_many, "MAX_BLOCKS", 3)
    found = fit(UMAP(n_epochs=11), KEY, DIGITS[:300])
    assert int(found.status) & Status.NOT_CONVERGED
    assert np.isfinite(found.coords).all()
    assert np.ptp(found.coords, axis=0).min() > 1


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sampled_repulsion_is_that_of_all_pairs_without_bias(dtype, monkeypatch):
    # Groups one after the other, in which pairs repel a hundred times as much as between them.
    rng = np.random.default_rng(0)
    coords = (rng.normal(size=(900, 2)) + 10 * rng.normal(size=(9, 2)).repeat(100, axis=0)).astype(dtype)
    forces = layout_cpu._forces(coords.dtype, 1.5769, 0.8951, 1.0)
    whole = layout_cpu._of_all(coords, forces)
    misses = {}
    for n_samples in (16, 128):
        monkeypatch.setattr(layout_cpu, "SAMPLES", n_samples)
        orders = [rng.permutation(900) for _ in range(40)]
        misses[n_samples] = [layout_cpu.sampled_repulsion(coords[order], forces) / whole - 1 for order in orders]
        assert abs(np.mean(misses[n_samples])) < 4 * np.std(misses[n_samples]) / np.sqrt(40)
        assert abs(layout_cpu.sampled_repulsion(coords, forces) / whole - 1) < 4 * np.std(misses[n_samples])
    # Of 16 of 900 it misses 2%; of 8 times as many a third of that.
    assert np.std(misses[16]) < 0.04
    assert np.std(misses[128]) < 0.5 * np.std(misses[16])


def test_cost_of_many_records_grows_with_them():
    costs = [UMAP().cost(n, 50) for n in (3000, 10_000, 30_000, 100_000)]
    assert np.all(np.diff(np.array(costs)[:, :4], axis=0) > 0)
    # Far from n^2 numbers.
    assert costs[-1].shared_bytes + costs[-1].bytes < 2e9


def test_more_records_than_all_pairs_are_held_of_have_the_same_objective_without_them(monkeypatch):
    x, coords = DIGITS[:60], np.random.default_rng(0).normal(size=(60, 2)).astype(np.float32)
    method = UMAP(n_neighbors=9, metric="manhattan")
    expected = method.objective(coords, x)
    monkeypatch.setattr(graph, "MOST_DENSE", 59)
    monkeypatch.setattr(graph, "fuzzy_union", lambda *_: pytest.fail("all pairs were held"))
    np.testing.assert_allclose(jax.jit(method.objective)(coords, x), expected, rtol=1e-5)
    both = jax.vmap(method.objective, in_axes=(0, None))(np.stack([coords, 2 * coords]), x)
    np.testing.assert_allclose(both[0], expected, rtol=1e-5)
    assert both[1] != both[0]
    assert np.isnan(method.objective(coords, np.where(np.arange(60)[:, None] == 3, np.nan, x)))
    # A few epochs, which run in XLA where derivatives pass, and umap-learn's map, of which only the coordinates come.
    for other in (UMAP(n_epochs=3), UMAP(n_epochs=3, backend="umap-learn")):
        found = other.fit_transform(KEY, x)
        assert found.status == Status.OK
        np.testing.assert_allclose(found.objective, other.objective(found.coords, x), rtol=1e-6)
