"""Clipping by its factor, compiled and not."""

import chex
import jax.numpy as jnp
import numpy as np

from drjax.defenses.clipping import in_ball


class TestInBall(chex.TestCase):
    @chex.variants(with_jit=True, without_jit=True, with_device=True, without_device=True)
    def test_a_row_that_is_not_finite_is_nothing_in_a_ball(self):
        rows = np.array([[1.0, 1.0], [np.inf, 0.0], [0.0, np.nan], [3e38, 3e38], [1e19, -3e19]], np.float32)
        found = self.variant(in_ball)(rows, 2.0)
        chex.assert_shape(found, rows.shape)
        np.testing.assert_allclose(found[0], 0.5)
        np.testing.assert_array_equal(found[1:], 0)

    @chex.variants(with_jit=True, without_jit=True)
    def test_a_row_whose_squares_underflow_stays_in_the_ball(self):
        # Squares of these are 0 in float32, and their norm is beyond the bound.
        found = self.variant(in_ball)(jnp.full((1, 900), 1e-19, jnp.float32), 2e-18)
        assert np.linalg.norm(found) <= 1
