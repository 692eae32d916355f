"""Training over two devices: what one device makes of whole batches, up to rounding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.sharding import Mesh

from drjax.attacks.property import models
from drjax.attacks.reconstruction import ensembles, invariant_network, neural, reconn
from drjax.nets import data_parallel
from drjax.nets.training import TrainConfig, train
from drjax.nets.training_data import Data

MESH = Mesh(np.array(jax.devices()[:2]), ("any",))
RNG = np.random.default_rng(0)
# Odd numbers of rows, of which the last batch has five: no share is as large as the other.
X, Y = RNG.normal(size=(37, 3)).astype(np.float32), RNG.normal(size=(37, 2)).astype(np.float32)
VALIDATION = X[:9] + 1, Y[:9]


class Double(nnx.Module):
    """A network in float64 whose steps depend on the whole batch and on what is drawn for each of its rows."""

    def __init__(self, rngs):
        # Without a bias, whose gradient the norm would make rounding alone, which Adam would step along.
        self.first = nnx.Linear(3, 6, use_bias=False, param_dtype=jnp.float64, rngs=rngs)
        self.norm = nnx.BatchNorm(6, momentum=0.9, param_dtype=jnp.float64, rngs=rngs)
        self.norm.mean, self.norm.var = (nnx.BatchStat(f(6, jnp.float64)) for f in (jnp.zeros, jnp.ones))
        self.dropout = nnx.Dropout(0.3)
        self.last = nnx.Linear(6, 2, param_dtype=jnp.float64, rngs=rngs)

    def __call__(self, x, key=None):
        x = jnp.tanh(self.norm(self.first(x.astype(jnp.float64))))
        return self.last(x if key is None else self.dropout(x, rngs=key))


class MeanCritic:
    """A critic that moves by the mean over a batch."""

    def start(self, key):
        return jax.random.normal(key, (2,), jnp.float64)

    def loss(self, state, outputs):
        return jnp.mean(outputs @ state)

    def step(self, state, outputs, targets):
        return state + jnp.mean(jnp.concatenate([outputs, -targets]), axis=0)


def leaves(tree):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def test_an_epoch_of_two_devices_is_that_of_one_but_for_the_last_digits_of_float64():
    config = TrainConfig(epochs=1, batch_size=8, learning_rate=0.05)
    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(0), 2)
        (one, one_history), (two, two_history) = (
            train(keys, Double, X, Y, config, validation=VALIDATION, adversary=MeanCritic(), mesh=mesh)
            for mesh in (None, MESH)
        )
    assert all(leaf.dtype == np.float64 for leaf in leaves(two))
    for a, b in zip(leaves(one), leaves(two), strict=True):
        # Five steps of Adam, which divides gradients by what they are.
        np.testing.assert_allclose(a, b, rtol=1e-13, atol=1e-14)
    for name in ("train_loss", "validation_loss", "validation_mse"):
        np.testing.assert_allclose(getattr(one_history, name), getattr(two_history, name), rtol=1e-13)


def test_members_stop_at_the_same_epoch_and_a_checkpoint_goes_on_over_devices(tmp_path):
    def make(rngs):
        return nnx.Sequential(nnx.Linear(3, 4, rngs=rngs), lambda x: jnp.tanh(x), nnx.Linear(4, 2, rngs=rngs))

    class Keyless(nnx.Module):
        def __init__(self, rngs):
            self.net = make(rngs)

        def __call__(self, x, key=None):
            del key
            return self.net(x)

    both = np.stack([X, X]), np.stack([Y, -Y])
    held = np.stack([VALIDATION[0]] * 2), np.stack([VALIDATION[1]] * 2)
    config = TrainConfig(epochs=12, batch_size=8, learning_rate=0.03, patience=2)

    def run(**options):
        keys = jax.random.split(jax.random.key(1), 2)
        return train(keys, Keyless, *both, config, validation=held, stacked=True, **options)

    (one, history), (two, other) = run(), run(mesh=MESH, checkpoint=tmp_path / "net.npz")
    assert np.isfinite(history.train_loss).sum(axis=0).min() < 12  # one of them stopped
    assert history.best_epoch.tolist() == other.best_epoch.tolist()
    for a, b in zip(leaves(one), leaves(two), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)  # float32, up to 60 steps of Adam
    # What is finished over two devices is finished on one.
    again, _ = run(checkpoint=tmp_path / "net.npz")
    for a, b in zip(leaves(two), leaves(again), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_device_holds_its_share_of_the_rows_and_no_more():
    data = Data(X.astype(np.uint8), Y, *VALIDATION)
    placed = data_parallel.spread(data_parallel.flat(MESH), data, stacked=False)
    assert [[shard.data.shape[0] for shard in array.addressable_shards] for array in placed] == [[19, 19]] * 2 + [
        [5, 5]
    ] * 2
    for given, array in zip(data, placed, strict=True):
        assert array.dtype == given.dtype
        np.testing.assert_array_equal(array[: len(given)], given)
        np.testing.assert_array_equal(array[len(given)], given[-1])


def test_what_is_no_mesh_is_refused():
    with pytest.raises(ValueError, match=r"mesh must be a jax\.sharding\.Mesh or None, got 2"):
        train(jax.random.split(jax.random.key(0), 1), Double, X, Y, TrainConfig(), validation=VALIDATION, mesh=2)


@pytest.mark.parametrize("attack", ["neural", "reconn", "invariant", "property"])
def test_attacks_hand_the_mesh_on(monkeypatch, attack):
    def stop(*_, mesh, **__):
        raise InterruptedError(mesh)

    for module in (ensembles, invariant_network):
        monkeypatch.setattr(module, "train", stop)
    key, maps, y = jax.random.key(0), RNG.normal(size=(20, 6, 2)), RNG.uniform(size=(20, 3))
    fits = {
        "neural": lambda: neural.fit(key, maps, y, neural.NeuralConfig(), validation=(maps, y), mesh=MESH),
        "reconn": lambda: reconn.fit(key, maps[:, 0], y, reconn.ReconnConfig(), validation=(maps[:, 0], y), mesh=MESH),
        "invariant": lambda: invariant_network.fit(key, maps, y, validation=(maps, y), mesh=MESH),
        "property": lambda: models.fit(key, maps, y[:, 0], kind="set", mesh=MESH),
    }
    with pytest.raises(InterruptedError) as caught:
        fits[attack]()
    assert caught.value.args == (MESH,)
