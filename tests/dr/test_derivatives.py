"""Derivatives in the target against central finite differences, in float64.

The five-point difference with a step of 2e-5 has a truncation error of 1e-19 times a fifth derivative. Of the noise of
the function, 1e-15 to 1e-13 of coordinates after an eigensolver or a few hundred iterations, it makes at most 1e-8.
A limit of 1e-7 is above both; wrong derivatives are off by 1e-2 and more.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse.csgraph
from sklearn.datasets import load_digits

from drjax.core.types import Status
from drjax.dr import MDS, PCA, ClassicalMDS, Isomap, SparseRandomProjection
from drjax.dr.isomap.shortest_paths import all_pairs
from drjax.dr.mds.smacof import smacof

DIGITS = load_digits().data / 16
KEY = jax.random.key(0)
STEP = 2e-5
LIMIT = 1e-7

METHODS = {
    "pca": PCA(),
    "srp": SparseRandomProjection(),
    "classical_mds": ClassicalMDS(n_components=3),
    "mds": MDS(init="classical"),
    "mds from random starts": MDS(n_init=3, max_iter=40),
    "isomap": Isomap(n_neighbors=4),
}


@pytest.fixture(autouse=True)
def _float64():
    with jax.enable_x64(True):
        yield


def data(n, d):
    """Digits, or their leading directions where there are fewer features."""
    x = DIGITS[:n]
    if d == 64:
        return x
    _, _, vectors = np.linalg.svd(x - x.mean(axis=0), full_matrices=False)
    return x @ vectors[:d].T


def direction(d, seed=0):
    change = np.random.default_rng(seed).normal(size=d)
    return jnp.asarray(change / np.linalg.norm(change))


def releases(method, x):
    """The ways to the coordinates of [target; known], as functions of the target."""
    shared = method.prepare(x[1:], shared_key=KEY)
    known = jnp.asarray(x[1:])

    def insert(target):
        return method.insert(KEY, shared, target)

    def insert_batch(target):
        targets = jnp.stack([target, known[0], target])
        return jax.tree.map(lambda leaf: leaf[2], method.insert_batch(jax.random.split(KEY, 3), shared, targets))

    def fit_transform(target):
        return method.fit_transform(KEY, jnp.concatenate([target[None], known]))

    return {f.__name__: f for f in (insert, insert_batch, fit_transform)}


def central_difference(f, at, change):
    near, far = (f(at + step * change) - f(at - step * change) for step in (STEP, 2 * STEP))
    return (8 * near - far) / (12 * STEP)


@functools.cache
def moved_fit(name, n, d):
    """The derivative of the coordinates of a fit along `direction(d)`, by differences."""
    fit, target = jax.jit(releases(METHODS[name], data(n, d))["fit_transform"]), jnp.asarray(data(n, d)[0])
    counts = {int(fit(target + move * direction(d)).n_iter) for move in (-2 * STEP, 0, 2 * STEP)}
    assert len(counts) == 1, "the release jumps where the number of iterations does"
    return central_difference(lambda t: fit(t).coords, target, direction(d))


@pytest.mark.parametrize(
    ("name", "way", "n", "d"),
    [
        ("pca", "insert", 15, 64),
        ("pca", "insert_batch", 25, 6),
        ("srp", "insert_batch", 25, 6),
        ("classical_mds", "insert", 15, 64),
        ("classical_mds", "insert_batch", 25, 6),
        ("mds", "insert", 15, 64),
        ("mds", "insert_batch", 25, 6),
        ("mds", "fit_transform", 25, 6),
        ("mds from random starts", "insert_batch", 15, 64),
        ("isomap", "insert_batch", 25, 6),
        ("isomap", "fit_transform", 25, 6),
    ],
)
def test_both_modes_equal_the_finite_difference_of_a_fit(name, way, n, d):
    method = METHODS[name]
    x = data(n, d)
    ways, target = releases(method, x), jnp.asarray(x[0])

    def coords(target):
        return ways[way](target).coords

    along, expected = direction(d), moved_fit(name, n, d)
    assert float(jnp.max(jnp.abs(expected))) > 1e-2
    # A random combination of all coordinates for reverse mode.
    weights = jnp.asarray(np.random.default_rng(1).normal(size=expected.shape))

    @jax.jit
    def both(target):
        # Traced once for both.
        _, forward = jax.linearize(coords, target)
        return forward(along), jax.linear_transpose(forward, target)(weights)[0]

    forward, gradient = both(target)
    np.testing.assert_allclose(forward, expected, atol=LIMIT)
    np.testing.assert_allclose(gradient @ along, jnp.sum(weights * expected), atol=10 * LIMIT)


@pytest.mark.parametrize("name", ["mds", "isomap"])
def test_the_whole_jacobian_is_the_same_in_both_modes(name):
    method, x = METHODS[name], data(15, 64)
    insert = releases(method, x)["insert"]
    forward = jax.jit(jax.jacfwd(lambda t: insert(t).coords))(jnp.asarray(x[0]))
    reverse = jax.jit(jax.jacrev(lambda t: insert(t).coords))(jnp.asarray(x[0]))
    assert forward.shape == (15, method.n_components, 64)
    np.testing.assert_allclose(forward, reverse, atol=1e-11)  # the same sums in another order


@pytest.mark.parametrize("name", ["mds from random starts", "isomap"])
def test_gradients_of_many_targets_in_one_call_equal_single_ones(name):
    method, x = METHODS[name], data(20, 64)
    shared = method.prepare(x[4:], shared_key=KEY)
    keys, targets = jax.random.split(KEY, 4), jnp.asarray(x[:4])

    def loss(keys, targets):
        return jnp.sum(method.insert_batch(keys, shared, targets).coords[:, 0] ** 2)

    def single(key, target):
        return jnp.sum(method.insert(key, shared, target).coords[0] ** 2)

    together = jax.jit(jax.grad(loss, argnums=1))(keys, targets)
    gradient = jax.jit(jax.grad(single, argnums=1))
    mapped = jax.jit(jax.vmap(gradient))(keys, targets)
    one_by_one = [gradient(keys[i], targets[i]) for i in range(4)]
    np.testing.assert_allclose(together, np.stack(one_by_one), atol=1e-9)
    np.testing.assert_allclose(mapped, np.stack(one_by_one), atol=1e-9)


@pytest.mark.parametrize("name", ["pca", "classical_mds", "mds", "mds from random starts", "isomap"])
def test_the_stationarity_of_a_release_is_differentiable_in_the_target(name):
    method, x = METHODS[name], data(20, 64)
    coords = jax.jit(method.fit_transform)(KEY, jnp.asarray(x)).coords
    # Off the minimum too, where no term of the derivative vanishes.
    coords = coords + 0.1 * jnp.asarray(np.random.default_rng(2).normal(size=coords.shape))

    def slope(target):
        return jax.grad(method.objective)(coords, jnp.concatenate([target[None], jnp.asarray(x[1:])]))

    target, along = jnp.asarray(x[0]), direction(64)
    expected = central_difference(jax.jit(slope), target, along)
    size = float(jnp.max(jnp.abs(expected)))
    assert size > 1e-2
    forward = jax.jit(lambda t: jax.jvp(slope, (t,), (along,))[1])(target)
    np.testing.assert_allclose(forward, expected, atol=LIMIT * max(size, 1))
    weights = jnp.asarray(np.random.default_rng(1).normal(size=expected.shape))
    gradient = jax.jit(jax.grad(lambda t: jnp.sum(weights * slope(t))))(target)
    np.testing.assert_allclose(gradient @ along, jnp.sum(weights * expected), atol=10 * LIMIT * max(size, 1))


def test_smacof_is_differentiable_in_the_dissimilarities_and_the_start():
    rng = np.random.default_rng(3)
    x, start = jnp.asarray(DIGITS[:12]), jnp.asarray(rng.random((12, 2)))

    def coords(scale, start):
        between = jnp.sqrt(jnp.sum((x[:, None] - x) ** 2, axis=-1) + jnp.eye(12)) * (1 - jnp.eye(12))
        return smacof(between**scale, start, max_iter=60)[0]

    found = jax.jit(coords)
    by_power, by_start = jax.jit(jax.jacrev(coords, argnums=(0, 1)))(jnp.asarray(1.0), start)
    expected = central_difference(lambda s: found(s, start), jnp.asarray(1.0), 1.0)
    np.testing.assert_allclose(by_power, expected, atol=LIMIT * 10)
    along = jnp.asarray(rng.normal(size=start.shape))
    expected = central_difference(lambda s: found(jnp.asarray(1.0), s), start, along)
    np.testing.assert_allclose(jnp.einsum("abij,ij->ab", by_start, along), expected, atol=LIMIT * 10)


def test_reverse_mode_keeps_the_coordinates_of_an_iteration_and_no_pairs():
    n, k = 60, 2
    x = jnp.asarray(DIGITS[:n])

    def reserved(max_iter):
        method = MDS(init="classical", max_iter=max_iter)
        shared = method.prepare(x[1:])
        gradient = jax.jit(jax.grad(lambda t: jnp.sum(method.insert(KEY, shared, t).coords[0])))
        return gradient.lower(x[0]).compile().memory_analysis().temp_size_in_bytes

    per_iteration = (reserved(300) - reserved(100)) / 200
    # Coordinates and four numbers beside them, each of them possibly twice; pairs would be 8 n^2 = 28,800 bytes.
    assert per_iteration < 2 * 8 * (n * k + 8)


def graph(n, seed, *, integers=False):
    """Symmetric weights of a connected sparse graph, inf where there is no edge."""
    rng = np.random.default_rng(seed)
    weights = np.full((n, n), np.inf)
    np.fill_diagonal(weights, 0)
    for i in range(1, n):
        for j in {int(rng.integers(i)) for _ in range(2)}:
            weights[i, j] = weights[j, i] = rng.integers(0, 4) if integers else rng.uniform(1, 2)
    return weights


@pytest.mark.parametrize("n", [2, 3, 17, 40])
def test_the_derivative_of_a_shortest_path_sums_those_of_its_edges(n):
    weights = graph(n, n)
    changes = np.where(np.isfinite(weights), np.random.default_rng(n).normal(size=(n, n)), 0)
    changes = np.triu(changes, 1) + np.triu(changes, 1).T
    paths, before = scipy.sparse.csgraph.dijkstra(np.where(np.isinf(weights), 0, weights), return_predecessors=True)
    expected = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            node = j
            while node != i:
                expected[i, j] += changes[before[i, node], node]
                node = before[i, node]
    found, derivative = jax.jvp(all_pairs, (jnp.asarray(weights),), (jnp.asarray(changes),))
    np.testing.assert_allclose(found, paths, atol=1e-13)
    np.testing.assert_allclose(derivative, expected, atol=1e-12)
    weight = np.random.default_rng(1).normal(size=(n, n))
    (back,) = jax.vjp(all_pairs, jnp.asarray(weights))[1](jnp.asarray(weight))
    np.testing.assert_allclose(np.sum(back * changes), np.sum(weight * expected), atol=1e-10)


def test_edges_of_length_zero_and_ties_leave_paths_without_circles():
    n = 40
    weights = jnp.asarray(graph(n, 4, integers=True))
    # With every edge longer by one, a path changes by the number of its edges, which a circle would inflate.
    edges = jnp.where(jnp.isfinite(weights), 1.0, 0.0) - jnp.eye(n)
    _, lengths = jax.jvp(all_pairs, (weights,), (edges,))
    assert float(jnp.max(lengths)) < n
    assert float(jnp.min(lengths + 2 * jnp.eye(n))) >= 1
    np.testing.assert_array_equal(lengths, jnp.round(lengths))


def test_isomap_in_reverse_mode_keeps_less_than_the_cube_of_n():
    n = 120
    x = jnp.asarray(DIGITS[:n])
    method = Isomap()
    gradient = jax.jit(jax.grad(lambda t: jnp.sum(method.fit_transform(KEY, x.at[0].set(t)).coords[0])))
    assert gradient.lower(x[0]).compile().memory_analysis().temp_size_in_bytes < 60 * 8 * n**2


def test_isomap_of_a_joined_graph_and_of_equal_records_has_the_right_gradient():
    x = np.concatenate([DIGITS[:12], DIGITS[12:24] + 3, DIGITS[2:4]])
    method = Isomap(n_neighbors=3)
    fit = jax.jit(lambda t: method.fit_transform(KEY, jnp.concatenate([t[None], jnp.asarray(x[1:])])))
    assert int(fit(jnp.asarray(x[0])).status) & Status.DISCONNECTED
    along = direction(64)
    expected = central_difference(lambda t: fit(t).coords, jnp.asarray(x[0]), along)
    shared = method.prepare(x[1:])
    jacobian = jax.jit(jax.jacrev(lambda t: method.insert(KEY, shared, t).coords))(jnp.asarray(x[0]))
    np.testing.assert_allclose(jacobian @ along, expected, atol=LIMIT)


@pytest.mark.parametrize("name", ["pca", "mds", "isomap"])
def test_float32_gradients_are_those_of_float64_to_its_precision(name):
    method, x = METHODS[name], data(15, 64)

    def gradient(known, target):
        shared = method.prepare(known)

        def loss(target):
            return jnp.sum(method.insert_batch(KEY[None], shared, target[None]).coords[0, 0])

        return jax.jit(jax.grad(loss))(target)

    exact = gradient(x[1:], jnp.asarray(x[0]))
    with jax.enable_x64(False):
        single = gradient(x[1:].astype(np.float32), jnp.asarray(x[0], jnp.float32))
    assert single.dtype == jnp.float32
    # A stop one iteration apart, and eigenvectors at a gap of a tenth; sizes are up to 1.
    np.testing.assert_allclose(single, exact, atol=5e-3)
