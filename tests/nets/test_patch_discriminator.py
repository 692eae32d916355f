"""The discriminator of patches: its shapes, what its convolution is, and what training against it does."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from drjax.nets import patch_discriminator as patch
from drjax.nets.patch_discriminator import PatchAdversary, PatchDiscriminator
from drjax.nets.training import TrainConfig, predict, train
from drjax.nets.vector_reconstructors import VectorReconstructor

SHAPE = (8, 8, 1)
WIDTHS = (4, 6, 6, 6)


def bars(m, seed=0):
    """Images with one bright row each, and noisy vectors that say which."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(8, size=m)
    images = np.full((m, 8, 8), 0.1)
    images[np.arange(m), rows] = 0.9
    return np.eye(8)[rows] + 0.1 * rng.normal(size=(m, 8)), images.reshape(m, 64)


@pytest.mark.parametrize(("image_shape", "expected"), [((32, 32, 3), (16, 16)), ((9, 7, 2), (5, 4)), (SHAPE, (4, 4))])
def test_has_one_verdict_per_patch(image_shape, expected):
    net = PatchDiscriminator(image_shape, WIDTHS, rngs=nnx.Rngs(params=0))
    assert net(jnp.ones((3, np.prod(image_shape)))).shape == (3, *expected)


def test_verdict_depends_on_its_patch_of_19_pixels_alone():
    net = PatchDiscriminator((32, 32, 1), WIDTHS, rngs=nnx.Rngs(params=0))
    image = jax.random.uniform(jax.random.key(0), (32 * 32,))
    reach = np.abs(jax.jit(jax.grad(lambda x: net(x[None])[0, 8, 8]))(image)).reshape(32, 32) > 0
    rows, columns = np.nonzero(reach)
    # Centred on pixel 16, which verdict 8 belongs to.
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == (7, 25, 7, 25)


@pytest.mark.parametrize("stride", [1, 2])
def test_convolution_by_matrix_products_is_that_of_xla(stride):
    x = jax.random.normal(jax.random.key(0), (2, 7, 6, 3))
    kernel = jax.random.normal(jax.random.key(1), (3, 3, 3, 4))
    outputs = [patch.convolve(x, kernel, stride=stride, method=method) for method in ("gemm", "xla")]
    assert outputs[0].shape == (2, -(-7 // stride), -(-6 // stride), 4)
    np.testing.assert_allclose(*outputs, atol=1e-5)  # float32 sums of 27 products


def test_losses_are_least_squares():
    adversary = PatchAdversary(SHAPE, weight=0.5, widths=WIDTHS)
    state = adversary.start(jax.random.key(0))
    _, images = bars(5)
    verdicts = adversary.verdicts(state[0], images)
    np.testing.assert_allclose(adversary.loss(state, images), 0.5 * np.mean((verdicts - 1) ** 2), rtol=1e-5)


def test_learns_to_tell_true_images_from_made_ones():
    adversary = PatchAdversary(SHAPE, widths=WIDTHS, learning_rate=3e-3)
    state = adversary.start(jax.random.key(0))
    step = jax.jit(adversary.step)
    true, made = bars(32)[1], np.random.default_rng(1).uniform(size=(32, 64))
    for _ in range(150):
        state = step(state, made, true)
    assert np.mean(adversary.verdicts(state[0], true)) > 0.8
    assert np.mean(adversary.verdicts(state[0], made)) < 0.2


CRITIC = PatchAdversary(SHAPE, widths=WIDTHS)


def trained(adversary, checkpoint):
    config = TrainConfig(epochs=20, batch_size=16, learning_rate=1e-2, patience=20)

    def make(rngs):
        return VectorReconstructor(8, 64, hidden=(), image_shape=SHAPE, channels=(8, 8), rngs=rngs)

    keys, validation = jax.random.split(jax.random.key(0), 2), bars(40, seed=1)
    options = {"validation": validation, "adversary": adversary, "checkpoint": checkpoint}
    state, history = train(keys, make, *bars(100), config, **options)
    return np.mean((predict(make, state, validation[0]) - validation[1]) ** 2, axis=(1, 2)), history


@pytest.fixture(scope="module")
def against_critic(tmp_path_factory):
    checkpoint = tmp_path_factory.mktemp("critic") / "net.npz"
    return *trained(CRITIC, checkpoint), checkpoint


def test_network_still_learns_against_it_and_keeps_its_best_epoch(against_critic):
    mse, history, _ = against_critic
    assert not history.status.any()
    assert (mse < 0.2 * history.validation_mse[0]).all()
    best = history.validation_mse[history.best_epoch, [0, 1]]
    np.testing.assert_allclose(mse, best, rtol=1e-4)  # float32 means


def test_checkpoint_holds_the_critic_and_one_of_another_is_refused(against_critic):
    mse, history, checkpoint = against_critic
    again, second = trained(CRITIC, checkpoint)
    np.testing.assert_array_equal(mse, again)
    np.testing.assert_array_equal(history.train_loss, second.train_loss)
    for other in (None, PatchAdversary(SHAPE, weight=0.1, widths=WIDTHS)):
        with pytest.raises(ValueError, match="checkpoint must come from"):
            trained(other, checkpoint)


class Counter:
    """Adds 100 times the steps that it has taken to the loss."""

    def start(self, key):
        del key
        return jnp.zeros(())

    def loss(self, state, outputs):
        return 100 * state + 0 * jnp.sum(outputs)

    def step(self, state, outputs, targets):
        assert outputs.shape == targets.shape
        return state + 1


def test_critic_steps_after_each_step_and_is_in_the_training_loss_alone():
    def make(rngs):
        return VectorReconstructor(8, 64, hidden=(4,), rngs=rngs)

    config = TrainConfig(epochs=2, batch_size=16, patience=2, drop_last=True)
    keys = jax.random.split(jax.random.key(0), 1)
    _, history = train(keys, make, *bars(64), config, validation=bars(20, seed=1), adversary=Counter())
    # Four steps an epoch, before which it has taken 0 to 3 and 4 to 7.
    np.testing.assert_allclose(history.train_loss[:, 0], [150, 550], atol=1.5)
    assert (history.validation_loss < 1.5).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"image_shape": (8, 8)}, "image_shape"),
        ({"image_shape": (8, 0, 1)}, "image_shape"),
        ({"widths": (4, 4)}, "widths"),
        ({"weight": 0.0}, "weight"),
        ({"learning_rate": float("nan")}, "learning_rate"),
    ],
)
def test_bad_configuration_raises_and_names_the_field(change, message):
    with pytest.raises(ValueError, match=message):
        PatchAdversary(**{"image_shape": SHAPE} | change)
