"""Distances to the known records: exact, alike in any batch, differentiable."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.distance import cdist

from drjax.dr import distances
from drjax.dr.distances import squared_in_xla, squared_rows

RNG = np.random.default_rng(0)
TARGETS, KNOWN = RNG.normal(size=(37, 19)), RNG.normal(size=(50, 19))


def test_equals_scipy(dtype):
    targets, known = TARGETS.astype(dtype), KNOWN.astype(dtype)
    expected = cdist(targets.astype(np.float64), known.astype(np.float64), "sqeuclidean")
    # Sums of 19 terms in float64: of float32 only the last rounding is left.
    limit = 2 * np.finfo(dtype).eps if dtype == "float32" else 20 * np.finfo(dtype).eps
    np.testing.assert_allclose(jax.jit(squared_rows)(targets, known), expected, rtol=limit)
    np.testing.assert_allclose(jax.jit(squared_in_xla)(targets, known), expected, rtol=40 * np.finfo(dtype).eps)


@pytest.mark.parametrize("b", [1, 2, 16, 17])
def test_a_row_has_the_same_bits_in_any_batch(dtype, b):
    targets, known = TARGETS.astype(dtype), KNOWN.astype(dtype)
    whole = jax.jit(squared_rows)(targets, known)
    np.testing.assert_array_equal(jax.jit(squared_rows)(targets[:b], known), whole[:b])


def test_equal_records_are_at_0_and_far_ones_at_infinity_without_a_warning():
    targets = np.stack([KNOWN[3], np.full(19, 1e30), np.full(19, np.nan)]).astype(np.float32)
    found = np.asarray(squared_rows(targets, KNOWN.astype(np.float32)))
    assert found[0, 3] == 0
    assert np.isinf(found[1]).all()
    assert np.isnan(found[2]).all()


def test_every_vmap_equals_a_loop():
    several = jnp.stack([KNOWN, KNOWN[::-1]]).astype(jnp.float32)
    targets = jnp.stack([TARGETS, -TARGETS]).astype(jnp.float32)
    for axes in ((0, None), (None, 0), (0, 0)):
        args = [array if axis == 0 else array[0] for array, axis in zip((targets, several), axes, strict=True)]
        mapped = jax.jit(jax.vmap(squared_rows, in_axes=axes))(*args)
        for i in range(2):
            one = (arg[i] if axis == 0 else arg for arg, axis in zip(args, axes, strict=True))
            np.testing.assert_array_equal(mapped[i], squared_rows(*one))


def test_derivatives_of_either_mode_and_order_are_those_of_the_formula():
    with jax.enable_x64(True):
        target, known = jnp.asarray(TARGETS[:1]), jnp.asarray(KNOWN[:4])
        jacobian = jax.jit(jax.jacrev(squared_rows))(target, known)[0, :, 0]
        np.testing.assert_allclose(jacobian, 2 * (target - known), atol=1e-13)
        np.testing.assert_allclose(jax.jit(jax.jacfwd(squared_rows))(target, known)[0, :, 0], jacobian, atol=1e-13)
        hessian = jax.jit(jax.jacfwd(jax.jacrev(squared_rows)))(target, known)[0, :, 0, :, 0]
        np.testing.assert_allclose(hessian, np.broadcast_to(2 * np.eye(19), (4, 19, 19)), atol=1e-13)


def test_many_pairs_are_met_some_rows_at_a_time(monkeypatch):
    whole = squared_in_xla(TARGETS, KNOWN)
    slope = jax.grad(lambda known: squared_in_xla(TARGETS, known).sum())(KNOWN)
    # Eight rows a time, of 37.
    monkeypatch.setattr(distances, "DIFFERENCES", 4 * 8 * KNOWN.size)
    np.testing.assert_allclose(squared_in_xla(TARGETS, KNOWN), whole, rtol=1e-6)
    np.testing.assert_allclose(jax.grad(lambda known: squared_in_xla(TARGETS, known).sum())(KNOWN), slope, rtol=1e-4)
