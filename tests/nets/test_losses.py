"""The cross-entropy of probabilities: optax's of the logits, and its limits."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from drjax.nets.losses import check_targets, cross_entropy, loss_value


def test_cross_entropy_and_its_slopes_are_optaxs_of_the_logits():
    rng = np.random.default_rng(0)
    logits = 6 * rng.normal(size=(40, 5)).astype(np.float32)
    targets = rng.dirichlet(np.ones(5), size=40).astype(np.float32)

    def ours(z):
        return cross_entropy(jax.nn.softmax(z), targets)

    def theirs(z):
        return optax.softmax_cross_entropy(z, targets).mean()

    for of in (lambda f: f, jax.grad):
        np.testing.assert_allclose(of(ours)(logits), of(theirs)(logits), rtol=1e-5, atol=1e-7)  # float32 logarithms


def test_cross_entropy_of_a_probability_of_zero_is_finite_and_so_is_its_slope():
    def of_gap(gap):
        return cross_entropy(jax.nn.softmax(jnp.stack([gap, 0 * gap])[None]), jnp.array([[0.0, 1.0]]))

    value, slope = jax.value_and_grad(of_gap)(1000.0)
    np.testing.assert_allclose(value, -np.log(np.finfo(np.float32).tiny), rtol=1e-6)
    assert slope == 0


def test_errors_are_weighted_by_the_configuration():
    outputs, targets = jnp.array([[1.0, 2.0], [3.0, 5.0]]), jnp.array([[1.0, 1.0], [1.0, 1.0]])
    # Errors 0, 1, 2 and 4.
    assert loss_value("errors", outputs, targets, weights=(2.0, 0.5)) == 2 * 21 / 4 + 0.5 * 7 / 4


def test_targets_of_the_errors_may_be_anything():
    check_targets("errors", "targets", np.array([[-3.0, 9.0]]))


@pytest.mark.parametrize("row", [[0.5, 0.4], [1.5, -0.5], [np.nan, 1.0]])
def test_targets_of_the_cross_entropy_are_rows_of_probabilities(row):
    good = np.float32([[0.1, 0.9], [1 / 3, 2 / 3]])
    check_targets("cross_entropy", "targets", good)
    with pytest.raises(ValueError, match="targets"):
        check_targets("cross_entropy", "targets", np.concatenate([good, [row]]))
