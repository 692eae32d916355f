"""Networks from vectors to images: shapes, what the layers are, and what they refuse."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from drjax.nets.vector_reconstructors import VectorReconstructor


def network(n_inputs=5, n_outputs=48, *, hidden=(6, 7), **options):
    return VectorReconstructor(n_inputs, n_outputs, hidden=hidden, rngs=nnx.Rngs(params=0), **options)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"has_products": True},
        {"image_shape": (4, 4, 3), "channels": (5, 4)},
        {"image_shape": (8, 2 * 4, 3), "channels": (5, 4), "hidden": ()},
        {"image_shape": (4, 4, 3), "channels": (5, 4), "has_products": True, "dropout": 0.2},
    ],
)
def test_outputs_are_flattened_images_between_0_and_1(options):
    d = int(np.prod(options.get("image_shape", (48,))))
    out = network(n_outputs=d, **options)(100 * jax.random.normal(jax.random.key(0), (3, 5)))
    assert out.shape == (3, d)
    assert out.min() >= 0
    assert out.max() <= 1


def test_dense_network_is_relu_layers_and_a_sigmoid():
    net, x = network(), jax.random.normal(jax.random.key(0), (3, 5))
    h = x
    for layer in net.hidden:
        h = jnp.maximum(h @ layer.kernel[...] + layer.bias[...], 0)
    expected = 1 / (1 + jnp.exp(-(h @ net.decoder.kernel[...] + net.decoder.bias[...])))
    np.testing.assert_allclose(net(x), expected, rtol=1e-5)  # float32


def test_sign_of_the_inputs_does_not_change_what_products_say():
    net, x = network(hidden=(6,), has_products=True), jax.random.normal(jax.random.key(0), (3, 5))
    np.testing.assert_allclose(net(x), net(-x), rtol=1e-6)  # biases start at 0
    assert not np.allclose(network(hidden=(6,))(x), network(hidden=(6,))(-x), atol=1e-3)


def test_starts_as_haiku_does():
    kernel = network(400, 48, hidden=(300,)).hidden[0].kernel[...] * np.sqrt(400)
    assert np.abs(kernel).max() <= 2
    assert 0.87 < kernel.std() < 0.89  # 0.880: of a normal cut at 2


def test_image_decoder_starts_with_outputs_that_vary():
    net = network(20, 3072, hidden=(), image_shape=(32, 32, 3), channels=(32, 16))
    out = net(jax.random.normal(jax.random.key(0), (50, 20)))
    assert 0.02 < out.std(axis=0).mean() < 0.3


def test_dropout_needs_training_mode_and_a_key():
    net, x = network(dropout=0.5), jnp.ones((2, 5))
    plain, key = network()(x), jax.random.key(1)
    np.testing.assert_array_equal(net(x), plain)
    assert not np.allclose(net(x, key), plain)
    net.eval()
    np.testing.assert_array_equal(net(x, key), plain)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden": ()}, "hidden must hold a layer without image_shape"),
        ({"hidden": (0,)}, "every entry of hidden"),
        ({"hidden": (), "has_products": True}, "hidden must hold a layer for has_products"),
        ({"image_shape": (4, 6, 2)}, "sides divisible by 4"),
        ({"image_shape": (4, 4, 2)}, "image_shape must have 48 entries"),
        ({"image_shape": (4, 4, 3), "channels": (4,)}, "channels must be 2 numbers"),
    ],
)
def test_impossible_networks_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        network(**options)
