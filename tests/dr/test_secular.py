import jax
import jax.numpy as jnp
import numpy as np
import pytest

from drjax.dr.pca.secular import MAX_ITER, distances, largest_roots, make_poles

LANES = 24
CASES = {
    "random": lambda rng, r: (np.sort(rng.random(r))[::-1], rng.normal(size=(LANES, r)) * 0.3),
    "decaying": lambda rng, r: (np.append(1 / (1 + np.arange(r - 1)) ** 2.0, 0), rng.normal(size=(LANES, r))),
    "tiny term": lambda rng, r: (np.sort(rng.random(r))[::-1], rng.normal(size=(LANES, r)) * 1e-4),
    "huge term": lambda rng, r: (np.sort(rng.random(r))[::-1], rng.normal(size=(LANES, r)) * 100),
    "equal poles": lambda rng, r: (np.append(np.ones(r - 1), 0), rng.normal(size=(LANES, r)) * 0.3),
    # Vanishing first coefficients leave the first roots next to their poles, on either side.
    "vanishing": lambda rng, r: (
        np.sort(rng.random(r))[::-1],
        np.where(np.arange(r) < 2, 0, rng.normal(size=(LANES, r))),
    ),
    "nearly equal poles": lambda rng, r: (np.linspace(1, 1 - 1e-6, r), np.abs(rng.normal(size=(LANES, r)))),
}

solve = jax.jit(largest_roots)


def case(name, n_poles, dtype):
    poles, q = CASES[name](np.random.default_rng(n_poles), n_poles)
    floor = {"float32": 1e-8, "float64": 1e-12}[dtype]
    return poles / poles[0], np.maximum(np.abs(q), floor)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("n_poles", "n_roots"), [(2, 1), (2, 2), (6, 6), (40, 3)])
def test_roots_are_the_largest_eigenvalues(name, n_poles, n_roots, dtype):
    poles, q = case(name, n_poles, dtype)
    found = solve(make_poles(poles, n_roots, np.dtype(dtype)), jnp.asarray(q**2, dtype))
    matrices = np.diag(poles) + q[:, :, None] * q[:, None, :]
    expected = np.linalg.eigvalsh(matrices)[:, ::-1][:, :n_roots]
    assert bool(found.converged.all())
    assert int(found.n_iter) < MAX_ITER
    # Storing the poles and moving equal ones apart costs 4 (n_roots - 1) + 1 units of rounding of the largest; sums
    # of n_poles terms cost some more.
    limit = (4 * n_roots + 8) * np.finfo(dtype).eps
    assert np.max(np.abs(found.values - expected) / expected[:, :1]) < limit


@pytest.mark.parametrize("name", CASES)
def test_distances_give_eigenvectors_with_a_residual_at_rounding_level(name):
    with jax.enable_x64(True):
        poles, q = case(name, 12, "float64")
        made = make_poles(poles, 3, np.dtype("float64"))
        found = solve(made, jnp.asarray(q**2))
        vectors = q[:, None] / np.asarray(distances(made, found, 3))
        vectors /= np.linalg.norm(vectors, axis=-1, keepdims=True)
        applied = poles * vectors + np.sum(q[:, None] * vectors, axis=-1, keepdims=True) * q[:, None]
        residual = np.linalg.norm(applied - found.values[..., None] * vectors, axis=-1)
        assert np.max(residual / found.values[:, :1]) < 1e-13  # some hundred units of rounding
        norm = np.sum(q[:, None] ** 2 / np.asarray(distances(made, found, 3)) ** 2, axis=-1)
        np.testing.assert_allclose(found.slope, norm, rtol=1e-13)


def test_coinciding_poles_are_moved_apart_by_rounding_only():
    poles = make_poles(np.array([1.0, 1, 1, 0, 0]), 4, np.dtype("float64"))
    brackets = -np.diagonal(poles.gaps, offset=-1)
    assert (np.diff(poles.values[:4]) < 0).all()
    assert (brackets < 0).all()
    np.testing.assert_allclose(poles.values, [1, 1, 1, 0, 0], atol=1e-14)


def test_gradient_of_the_roots_equals_finite_differences():
    with jax.enable_x64(True):
        made = make_poles(np.array([1.0, 0.7, 0.2, 0.01, 0.002, 0.0]), 3, np.dtype("float64"))
        assert made.gaps.shape == (3, 3)  # three poles are left to the moments
        poles = jax.tree.map(jnp.asarray, made)
        squared = np.random.default_rng(0).random((2, 6)) + 0.1
        jacobian = jax.jit(jax.jacobian(lambda s: largest_roots(poles, s).values))(jnp.asarray(squared))
        step = 1e-6
        for lane, j in np.ndindex(2, 6):
            change = np.zeros((2, 6))
            change[lane, j] = step
            numeric = (solve(poles, squared + change).values - solve(poles, squared - change).values) / (2 * step)
            # Central differences: eps / step.
            np.testing.assert_allclose(jacobian[:, :, lane, j], numeric, atol=1e-8)


def test_lanes_do_not_influence_each_other():
    poles, q = case("random", 10, "float32")
    prepared = make_poles(poles, 3, np.dtype("float32"))
    # A hard lane keeps the loop running; the easy ones must not move meanwhile.
    squared = np.concatenate([q[:4] ** 2, np.full((1, 10), 1e-16)]).astype(np.float32)
    together, alone = solve(prepared, squared), solve(prepared, squared[:1])
    np.testing.assert_allclose(together.values[:1], alone.values, rtol=1e-6)
