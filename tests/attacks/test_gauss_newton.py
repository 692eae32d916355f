"""Many equations of few features are reduced to as many as there are features, with the same result."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from drjax.attacks.reconstruction import gauss_newton
from drjax.attacks.reconstruction.equations import OfRecord
from drjax.attacks.reconstruction.gauss_newton import Belief, Noise, descend, variances
from drjax.core.types import Array, hyperparams, traced


@hyperparams
class Curves(OfRecord):
    """Squares and products with a matrix (q, d), less a release."""

    matrix: Array = traced()

    def residual(self, release, x, about=None):
        del about
        return self.matrix @ x + 0.1 * (self.matrix @ x) ** 2 - release

    def linearise(self, release, x):
        along = self.matrix @ x
        return self.residual(release, x), (1 + 0.2 * along)[:, None] * self.matrix

    def curvature(self, release, x):
        del release, x


@pytest.mark.parametrize("q", [9, 24])
def test_reduced_equations_give_the_same_mode_and_variances(monkeypatch, q):
    rng = np.random.default_rng(0)
    truth, matrix = rng.normal(size=3), rng.normal(size=(q, 3))
    with jax.enable_x64(True):
        equations = Curves(matrix=jnp.asarray(matrix))
        prior = Belief(jnp.zeros(3), jnp.eye(3) + 0.5)
        noise = Noise(jnp.full(q, 0.1), None)
        release = jnp.asarray(matrix @ truth + 0.1 * (matrix @ truth) ** 2 + 0.1 * rng.normal(size=q))

        def fitted():
            descend.clear_cache()
            gauss_newton._linearised.clear_cache()
            fit = descend(equations, release, noise, prior, jnp.zeros(3), max_iter=100)
            return fit, fit.x, variances(equations, prior, fit), fit.cost, fit.leverage

        reduced, *few = fitted()
        monkeypatch.setattr(gauss_newton, "WIDE", 100)
        whole, *many = fitted()
        descend.clear_cache()
        gauss_newton._linearised.clear_cache()
    assert reduced.model.derivative.shape == (3, 3)
    assert whole.model.derivative.shape == (q, 3)
    for one, other in zip(few, many, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
