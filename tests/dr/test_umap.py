"""UMAP as a method: insertion, the two optimisers, derivatives, umap-learn as a backend, bad input."""

import functools
import importlib.util
import os
import signal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import umap
from sklearn.datasets import load_digits
from sklearn.manifold import trustworthiness
from sklearn.metrics import pairwise_distances

import drjax.sklearn as estimators
from drjax.attacks.shadow import shadow_embeddings
from drjax.core.types import Status
from drjax.dr import UMAP
from drjax.dr.umap import graph as umap_graph
from drjax.dr.umap import reference as umap_reference
from drjax.dr.umap.layout_cpu import ABREAST, _by_records

DIGITS = load_digits().data.astype(np.float32)
KEY = jax.random.key(7)


@jax.jit
def fit(method, key, x):
    return method.fit_transform(key, x)


@jax.jit
def insert(method, key, shared, target):
    return method.insert(key, shared, target)


@jax.jit
def fit_in_xla(method, key, x):
    settings = method._settings(x.shape[0])
    return method._embedding(settings, method._fit_in_xla(settings, key, x))


@jax.jit
def insert_in_xla(method, key, shared, target):
    settings = method._settings(shared.known.shape[0] + 1)
    return method._embedding(settings, method._insert_in_xla(settings, key, shared, target))


def with_duplicates(n, dtype):
    x = DIGITS[:n].astype(dtype)
    x[5:9] = x[0]
    x[n // 2] = x[n // 3]
    return x


@pytest.mark.parametrize("options", [{}, {"n_components": 3, "n_neighbors": 6}, {"init": "random"}])
def test_insert_gives_the_bits_of_fit_transform(dtype, options):
    x = with_duplicates(170, dtype)
    method = UMAP(n_epochs=200, **options)
    inserted, fitted = insert(method, KEY, method.prepare(x[1:]), x[0]), fit(method, KEY, x)
    assert jax.tree.all(jax.tree.map(lambda a, b: np.array_equal(a, b), inserted, fitted))
    assert not int(fitted.status) & Status.excluded()
    assert np.ptp(fitted.coords, axis=0).min() > 1


def test_insert_in_xla_agrees_with_fit_transform():
    with jax.enable_x64(True):
        x = with_duplicates(80, "float64")
        # The start alone, then ten epochs at a rate at which rounding does not grow beyond what is compared.
        for options, atol in (({"learning_rate": 0.0}, 1e-11), ({"learning_rate": 0.05}, 1e-9)):
            method = UMAP(n_epochs=10, **options)
            shared = method.prepare(x[1:])
            fitted = fit(method, KEY, x)
            np.testing.assert_allclose(insert(method, KEY, shared, x[0]).coords, fitted.coords, atol=atol)
            np.testing.assert_allclose(insert_in_xla(method, KEY, shared, x[0]).coords, fitted.coords, atol=atol)


def test_both_optimisers_start_alike():
    with jax.enable_x64(True):
        x = with_duplicates(160, "float64")
        method = UMAP(learning_rate=0.0, n_epochs=11)
        compiled, in_xla = fit(method, KEY, x), fit_in_xla(method, KEY, x)
        # Residuals are 1e-13 and gaps 1e-2.
        np.testing.assert_allclose(in_xla.coords, compiled.coords, atol=1e-9)
        np.testing.assert_allclose(in_xla.objective, compiled.objective, rtol=1e-9)
        np.testing.assert_allclose(in_xla.info.eigengap, compiled.info.eigengap, atol=1e-10)


def test_an_epoch_takes_sixteen_records_at_a_time_and_their_edges_in_turn():
    rng = np.random.default_rng(0)
    ends = rng.integers(0, 50, 400).astype(np.uint32)
    order = _by_records(ends, 50)
    assert sorted(order) == list(range(400))
    groups = ends[order] // ABREAST
    assert (np.diff(groups.astype(int)) >= 0).all()
    for group in range(4):
        taken = ends[order][groups == group]
        turns = [int(np.sum(taken[:place] == record)) for place, record in enumerate(taken)]
        assert turns == sorted(turns)


def test_shadows_depend_on_neither_batch_size_nor_number():
    method = UMAP(n_epochs=50)
    known, targets = DIGITS[:60], DIGITS[100:107]
    whole = shadow_embeddings(KEY, method, known, targets, batch_size=7)
    for batch_size, count in ((3, 7), (2, 5), (1, 2)):
        part = shadow_embeddings(KEY, method, known, targets[:count], batch_size=batch_size)
        np.testing.assert_array_equal(part.coords, whole.coords[:count])
    assert len(np.unique(whole.info.n_updates)) > 1
    shared = shadow_embeddings(KEY, method, known, np.repeat(targets[:1], 3, axis=0), randomness="shared")
    np.testing.assert_array_equal(shared.coords[0], shared.coords[2])
    assert not np.array_equal(whole.coords[0], shared.coords[0])


@functools.cache
def maps_of_umap_learn(count, n):
    rng = np.random.default_rng(0)
    sets = [DIGITS[rng.choice(len(DIGITS), n, replace=False)] for _ in range(count)]
    return sets, [umap.UMAP(random_state=i, n_jobs=1).fit_transform(x) for i, x in enumerate(sets)]


@pytest.mark.optimised
@pytest.mark.filterwarnings("ignore:n_jobs value")
@pytest.mark.parametrize(("run", "count"), [(fit, 20), (fit_in_xla, 5)])
def test_maps_are_as_good_as_those_of_umap_learn(run, count):
    sets, theirs = (made[:count] for made in maps_of_umap_learn(20, 100))
    method = UMAP()
    objective = jax.jit(method.objective)
    rows = []
    for i, (x, reference) in enumerate(zip(sets, theirs, strict=True)):
        own = np.asarray(run(method, jax.random.fold_in(KEY, i), x).coords)
        score = [trustworthiness(x, y, n_neighbors=10) for y in (own, reference)]
        entropy = [float(objective(y, x)) for y in (own, reference)]
        rows.append([score[0] - score[1], entropy[0] / entropy[1] - 1])
    mean, error = np.mean(rows, axis=0), np.std(rows, axis=0) / np.sqrt(len(rows))
    # Margins of two to four standard errors, which are 0.002 and 0.01 for 20 maps; a record that negative samples may
    # drive off its own former place has a cross entropy 6% larger.
    assert error[0] < 0.005 * np.sqrt(20 / count)
    assert error[1] < 0.015 * np.sqrt(20 / count)
    assert abs(mean[0]) < 0.01
    assert abs(mean[1]) < 0.035


def test_objective_is_the_cross_entropy_of_umap_learns_graph():
    x, y = DIGITS[:50].astype(np.float64), np.random.default_rng(0).normal(size=(50, 2))
    graph, _, _ = umap.umap_.fuzzy_simplicial_set(pairwise_distances(x), 15, np.random.RandomState(0), "precomputed")
    a, b = umap.umap_.find_ab_params(1.0, 0.1)
    i, j = np.triu_indices(50, 1)
    p = graph.toarray()[i, j]
    square = np.sum((y[i] - y[j]) ** 2, axis=1)
    q, q_apart = 1 / (1 + a * square**b), 1 / (1 + a * (square + 1e-3) ** b)
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = np.nan_to_num(p * np.log(p)) + np.nan_to_num((1 - p) * np.log(1 - p))
    expected = np.sum(entropy - p * np.log(q) - (1 - p) * np.log(1 - q_apart))
    with jax.enable_x64(True):
        found = jax.jit(UMAP().objective)(y, x)
    # umap-learn's weights are in float32 and their sums off by up to 1e-5.
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_gradient_of_the_objective_is_the_force_of_the_descent():
    # Of one pair: attraction where it is an edge, repulsion where it is none.
    method = UMAP()
    settings = method._settings(30)
    a, b = settings.a, settings.b
    with jax.enable_x64(True):
        for p in (0.0, 1.0):
            graph = jnp.array([[0, p], [p, 0]])
            for distance in (0.3, 1.0, 4.0):
                coords = jnp.array([[0.0, 0.0], [distance, 0.0]])
                slope = jax.grad(umap_graph.cross_entropy)(coords, graph, a, b)[0, 0]
                square = distance**2
                if p:
                    force = 2 * a * b * square ** (b - 1) / (1 + a * square**b) * -distance
                else:
                    force = 2 * b / ((1e-3 + square) * (1 + a * square**b)) * distance
                # The descent has 0.001 in one of the two factors only.
                np.testing.assert_allclose(slope, force, rtol=2e-2 * (1 - p) + 1e-9)


@pytest.mark.parametrize(
    "options", [{}, {"n_neighbors": 4}, {"local_connectivity": 2.5}, {"set_op_mix_ratio": 0.4}, {"n_neighbors": 60}]
)
def test_derivatives_of_the_objective_match_finite_differences(options):
    with jax.enable_x64(True):
        rng = np.random.default_rng(1)
        method = UMAP(**options)
        x, y = jnp.asarray(rng.normal(size=(30, 8))), jnp.asarray(rng.normal(size=(30, 2)))
        dx, dy = jnp.asarray(rng.normal(size=(30, 8))), jnp.asarray(rng.normal(size=(30, 2)))

        @jax.jit
        def at(s, t):
            return method.objective(y + t * dy, x + s * dx)

        @jax.jit
        def slope(s):
            return jnp.sum(jax.grad(method.objective)(y, x + s * dx) * dy)

        h = 1e-6
        by_x, by_y = jax.jit(jax.grad(at, (0, 1)))(0.0, 0.0)
        # Central differences: h^2 and 1e-16 / h, both below 1e-8 of the derivative.
        np.testing.assert_allclose(by_x, (at(h, 0.0) - at(-h, 0.0)) / (2 * h), rtol=1e-6)
        np.testing.assert_allclose(by_y, (at(0.0, h) - at(0.0, -h)) / (2 * h), rtol=1e-6)
        mixed = (slope(h) - slope(-h)) / (2 * h)
        assert abs(float(mixed)) > 1e-3
        np.testing.assert_allclose(jax.jit(jax.grad(slope))(0.0), mixed, rtol=1e-6)
        if not options:
            np.testing.assert_allclose(jax.jit(jax.jacfwd(slope))(0.0), mixed, rtol=1e-6)


def test_second_derivatives_in_the_data_match_finite_differences():
    with jax.enable_x64(True):
        rng = np.random.default_rng(2)
        x, y, dx = (jnp.asarray(rng.normal(size=(20, size))) for size in (5, 2, 5))
        first = jax.jit(jax.grad(lambda s: UMAP(n_neighbors=5).objective(y, x + s * dx)))
        h = 1e-6
        np.testing.assert_allclose(jax.jit(jax.grad(first))(0.0), (first(h) - first(-h)) / (2 * h), rtol=1e-5)


def test_derivatives_are_finite_where_records_coincide():
    x, y = with_duplicates(40, "float32"), np.zeros((40, 2), np.float32)
    for which in (0, 1):
        assert np.isfinite(jax.jit(jax.grad(UMAP().objective, which))(y, x)).all()


def test_unrolled_epochs_are_differentiable_in_the_target():
    with jax.enable_x64(True):
        x = np.random.default_rng(3).normal(size=(40, 6))
        method = UMAP(n_epochs=5, learning_rate=0.1, n_neighbors=8)
        shared = method.prepare(x[1:])
        direction = np.random.default_rng(4).normal(size=6)

        @jax.jit
        def moved(s):
            return method.insert(KEY, shared, x[0] + s * direction).coords

        h = 1e-6
        expected = (moved(h) - moved(-h)) / (2 * h)
        assert np.abs(expected).max() > 0.1
        # The start's rescaling takes a maximum, and eigenvectors 1e-2 apart lose two digits.
        for jacobian in (jax.jacfwd, jax.jacrev):
            found = jax.jit(jacobian(moved))(0.0)
            np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())


@pytest.mark.filterwarnings("ignore:n_neighbors is larger")
@pytest.mark.filterwarnings("ignore:n_jobs value")
def test_the_backend_is_umap_learn_itself():
    method = UMAP(backend="umap-learn", n_epochs=30, n_neighbors=20)
    known, targets = DIGITS[1:18], DIGITS[30:33]
    shared = method.prepare(known)
    keys = jax.random.split(KEY, 3)
    batch = jax.jit(method.insert_batch)(keys, shared, targets)
    assert not np.array_equal(batch.coords[0], batch.coords[1])
    for i in range(3):
        x = np.concatenate([targets[i][None], known])
        seed = int(jax.random.bits(keys[i], (), jnp.uint32))
        own = umap.UMAP(n_neighbors=20, n_epochs=30, random_state=seed, n_jobs=1).fit_transform(x)
        np.testing.assert_array_equal(batch.coords[i], own)
        np.testing.assert_array_equal(fit(method, keys[i], x).coords, own)
        np.testing.assert_allclose(batch.objective[i], jax.jit(method.objective)(own, x), rtol=1e-5)
    shadows = shadow_embeddings(KEY, method, known, targets, batch_size=2)
    assert shadows.coords.shape == (3, 18, 2)
    targets[1, 0] = np.nan
    bad = jax.jit(method.insert_batch)(keys, shared, targets)
    np.testing.assert_array_equal((np.asarray(bad.status) & np.uint32(Status.NON_FINITE)) > 0, [False, True, False])
    np.testing.assert_array_equal(bad.coords[2], batch.coords[2])


def test_a_process_of_umap_learn_that_was_killed_is_replaced():
    method, x = UMAP(backend="umap-learn", n_epochs=30, n_neighbors=20), DIGITS[1:19]
    before = np.asarray(fit(method, KEY, x).coords)
    for process in list(umap_reference._pool()._processes):
        os.kill(process, signal.SIGKILL)
    np.testing.assert_array_equal(fit(method, KEY, x).coords, before)


def test_the_graph_of_the_estimator_is_that_of_umap_learn():
    x = load_digits().data[:120]
    ours = estimators.UMAP(n_neighbors=8, n_epochs=11, random_state=0).fit(x)
    theirs = umap.UMAP(n_neighbors=8, n_epochs=11, random_state=0, n_jobs=1).fit(x)
    assert ours.n_epochs_ == 11
    # umap-learn ends its search for a bandwidth 1e-5 from the root, and stores float32.
    np.testing.assert_allclose(ours.graph_.toarray(), theirs.graph_.toarray(), atol=3e-5)


def test_umap_learn_is_not_asked_about_what_is_not_finite():
    x = DIGITS[:20].copy()
    x[3, 0] = np.inf
    coords, n_parts = umap_reference._fit({"n_components": 2}, (x, 0))
    assert coords.shape == (20, 2)
    assert np.isnan(coords).all()
    assert n_parts == 1


def test_a_missing_umap_learn_is_an_error_that_says_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ImportError, match=r'pip install "drjax\[umap\]"'):
        UMAP(backend="umap-learn")


@pytest.mark.parametrize(("run", "n"), [(fit, 9), (fit_in_xla, 3)])
def test_neighbors_are_cut_to_all_but_one_as_in_umap_learn(run, n):
    x = DIGITS[:n]
    cut, given = (run(UMAP(n_neighbors=k, n_epochs=20), KEY, x) for k in (15, max(2, n - 1)))
    np.testing.assert_array_equal(cut.coords, given.coords)
    assert np.isfinite(cut.coords).all()
    if n == 9:
        with pytest.warns(UserWarning, match="truncating to"):
            reference = umap.UMAP(n_neighbors=15, init="random", random_state=0, n_jobs=1).fit(x)
        neighbors = umap_graph.nearest(jnp.asarray(x), n - 1)
        graph = umap_graph.fuzzy_union(neighbors.indices, umap_graph.memberships(neighbors, 1.0), 1.0)
        np.testing.assert_allclose(graph, reference.graph_.toarray(), atol=1e-5)


def test_two_records_are_refused():
    with pytest.raises(ValueError, match="number of records n must be >= 3"):
        jax.eval_shape(fit, UMAP(), KEY, jnp.zeros((2, 5)))
    with pytest.raises(ValueError, match="number of records n must be >= 3"):
        UMAP().prepare(np.zeros((1, 5)))


@pytest.mark.parametrize("run", [fit, fit_in_xla])
def test_a_graph_in_pieces_is_reported(run):
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(size=(12, 5)) + 100 * c for c in range(3)]).astype(np.float32)
    out = run(UMAP(n_neighbors=5, n_epochs=50), KEY, x)
    assert int(out.status) & Status.DISCONNECTED
    assert int(out.info.n_graph_components) == 3
    assert np.isfinite(out.coords).all()
    part = np.repeat(np.arange(3), 12)
    centres = np.stack([np.asarray(out.coords)[part == c].mean(axis=0) for c in range(3)])
    assert (np.argmin(((np.asarray(out.coords)[:, None] - centres) ** 2).sum(-1), axis=1) == part).all()


@pytest.mark.parametrize("run", [fit, fit_in_xla])
def test_a_record_far_away_is_embedded(run):
    x = DIGITS[:30].copy()
    x[4] = 1e30
    out = run(UMAP(n_epochs=50), KEY, x)
    assert np.isfinite(out.coords).all()
    assert not int(out.status) & (Status.NON_FINITE | Status.DEGENERATE)


@pytest.mark.parametrize("run", [fit, fit_in_xla])
def test_equal_records_are_degenerate(run):
    out = run(UMAP(n_epochs=20), KEY, np.ones((20, 3), np.float32))
    assert int(out.status) & Status.DEGENERATE
    assert np.isfinite(out.coords).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_neighbors": 1}, "n_neighbors must be an integer >= 2"),
        ({"n_neighbors": 2.5}, "n_neighbors must be an integer >= 2"),
        ({"n_epochs": 0}, "n_epochs must be an integer >= 1"),
        ({"negative_sample_rate": -1}, "negative_sample_rate must be an integer >= 0"),
        ({"min_dist": 2.0}, "min_dist must be <= spread = 1.0"),
        ({"min_dist": float("nan")}, "min_dist must be >= 0"),
        ({"spread": 0.0}, "spread must be > 0"),
        ({"spread": float("inf")}, "spread must be finite"),
        ({"learning_rate": float("nan")}, "learning_rate must be >= 0"),
        ({"repulsion_strength": -1.0}, "repulsion_strength must be >= 0"),
        ({"set_op_mix_ratio": 1.5}, r"set_op_mix_ratio must be in \[0, 1\]"),
        ({"local_connectivity": 0.0}, "local_connectivity must be > 0"),
        ({"local_connectivity": 15.0}, "local_connectivity must be <= n_neighbors - 1 = 14"),
        ({"init": "pca"}, "init must be one of random, spectral"),
        ({"backend": "cuml"}, "backend must be one of drjax, umap-learn"),
    ],
)
def test_hyperparameters_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        UMAP(**options)


def test_more_components_than_eigenvectors_are_refused():
    with pytest.raises(ValueError, match="n_components must be <= n - 1 of n = 4 records"):
        jax.eval_shape(fit, UMAP(n_components=4), KEY, jnp.zeros((4, 9)))
    with pytest.raises(ValueError, match="n_components must be <= n - 2 of n = 4 records"):
        jax.eval_shape(fit, UMAP(n_components=3, backend="umap-learn"), KEY, jnp.zeros((4, 9)))
    assert fit(UMAP(n_components=4, init="random", n_epochs=20), KEY, DIGITS[:4]).coords.shape == (4, 4)
