"""The network on sets: what it must not see, and what it learns."""

import chex
import jax
import numpy as np
import pytest
from flax import nnx

from drjax.nets.set_network import SetNetwork, SetNetworkConfig, maker
from drjax.nets.training import TrainConfig, predict, train

CONFIG = SetNetworkConfig(width=8)


def sets(b=4, n=20, p=3, seed=0):
    x = np.random.default_rng(seed).normal(size=(b, n, p))
    return np.concatenate([x, np.ones((b, n, 1))], axis=-1).astype(np.float32)


def network(head="classification", n_outputs=3, config=CONFIG):
    made = SetNetwork(config, 3, head, n_outputs, rngs=nnx.Rngs(params=0))
    made.eval()
    return made


def test_order_and_padding_change_nothing():
    x = sets()
    order = np.random.default_rng(1).permutation(20)
    expected = network()(x)
    np.testing.assert_allclose(network()(x[:, order]), expected, atol=1e-6)  # float32 sums in another order
    junk = np.concatenate([x, np.full((4, 7, 4), 9.0, np.float32) * [1, 1, 1, 0]], axis=1)
    np.testing.assert_allclose(network()(junk), expected, atol=1e-6)
    assert np.abs(np.diff(expected, axis=0)).max() > 1e-4


def test_a_set_counts_by_its_shares_not_by_its_size():
    x = sets()
    np.testing.assert_allclose(network()(np.tile(x, (1, 3, 1))), network()(x), atol=1e-6)


def test_gradients_are_finite_where_all_points_are_alike():
    x = np.ones((2, 5, 4), np.float32)
    graph, params, rest = nnx.split(network(), nnx.Param, ...)
    gradient = jax.grad(lambda p: nnx.merge(graph, p, rest)(x).sum())(params)
    chex.assert_tree_all_finite(gradient)


def test_outputs_are_probabilities_or_shares():
    np.testing.assert_allclose(network()(sets()).sum(axis=1), 1, atol=1e-6)
    shares = network("regression", 1)(sets())
    assert ((shares > 0) & (shares < 1)).all()


def test_dropout_is_for_training_alone():
    made = network(config=SetNetworkConfig(width=8, dropout=0.5))
    assert np.array_equal(made(sets(), jax.random.key(0)), made(sets(), jax.random.key(1)))
    made.train()
    assert not np.array_equal(made(sets(), jax.random.key(0)), made(sets(), jax.random.key(1)))


def test_learns_the_share_of_one_kind_of_points():
    rng = np.random.default_rng(0)
    x = sets(200, 30)
    share = rng.uniform(size=(200, 1))
    x[..., 0] = np.where(rng.uniform(size=(200, 30)) < share, 1, -1)
    truth = (x[..., 0] > 0).mean(axis=1, keepdims=True)
    config = TrainConfig(epochs=40, batch_size=25, learning_rate=1e-2, patience=40, l1_weight=0)
    make = maker(CONFIG, 3, "regression", 1)
    keys = jax.random.split(jax.random.key(0), 2)
    state, _ = train(keys, make, x[:150], truth[:150], config, validation=(x[150:], truth[150:]))
    assert np.abs(predict(make, state, x[150:]) - truth[150:]).mean() < 0.03


@pytest.mark.parametrize("change", [{"width": 0}, {"dropout": 1.0}, {"dropout": -0.1}])
def test_bad_configurations_raise(change):
    with pytest.raises(ValueError, match=next(iter(change))):
        SetNetworkConfig(**change)
