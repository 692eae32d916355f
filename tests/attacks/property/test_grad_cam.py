"""Heat maps: a closed form for a linear head, finite differences, and scaling."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from drjax.attacks.property.grad_cam import grad_cam, heat_map
from drjax.attacks.property.models import PropertyConfig, PropertyModel, fit
from drjax.nets import plot_networks
from drjax.nets.plot_networks import PlotNetworkConfig

CONFIG = PropertyConfig(epochs=2, n_ensemble=2, network=PlotNetworkConfig(size=32, blocks=(1,), growth=4, stem=8))


@pytest.fixture(scope="module")
def model():
    pictures = np.random.default_rng(0).integers(256, size=(40, 32, 32))
    return fit(jax.random.key(0), pictures, np.tile([0.3, 0.5, 0.7, 0.5], 10), task="classification", config=CONFIG)


def members(model):
    make = plot_networks.maker(model.config.network, model.task, len(model.classes))
    graph = nnx.graphdef(nnx.eval_shape(lambda: make(nnx.Rngs(params=0))))
    states = [jax.tree.map(lambda leaf, i=i: jnp.asarray(leaf[i]), model.state) for i in (0, 1)]
    found = [nnx.merge(graph, *state) for state in states]
    for network in found:
        network.eval()
    return found


PICTURES = np.random.default_rng(1).integers(256, size=(3, 32, 32)).astype(np.float32)


def test_weights_of_a_linear_head_are_its_row_over_the_pixels(model):
    network = members(model)[1]
    maps = network.feature_maps(PICTURES[:1])[0]
    row = network.classifier.kernel[...][:, 2]
    expected = np.maximum((maps * row).sum(axis=-1), 0) / (maps.shape[0] * maps.shape[1])
    np.testing.assert_allclose(heat_map(network, jnp.asarray(PICTURES[0]), jnp.int32(2)), expected, atol=1e-6)


def test_weights_are_the_mean_slopes_by_finite_differences(model):
    network = members(model)[0]
    maps = np.asarray(network.feature_maps(PICTURES[:1]), np.float64)
    slopes = np.zeros(maps.shape[-1])
    for c in range(maps.shape[-1]):
        bumped = maps.copy()
        bumped[..., c] += 1.0
        # All pixels of a channel moved at once: the sum of their slopes, exact since the head is linear.
        change = network.logits(jnp.asarray(bumped, jnp.float32)) - network.logits(jnp.asarray(maps, jnp.float32))
        slopes[c] = float(change[0, 1]) / (maps.shape[1] * maps.shape[2])
    expected = np.maximum((maps[0] * slopes).sum(axis=-1), 0)
    np.testing.assert_allclose(heat_map(network, jnp.asarray(PICTURES[0]), jnp.int32(1)), expected, atol=1e-5)


def test_is_the_mean_of_members_and_turns_turned_back_scaled_to_one_and_interpolated(model):
    found = grad_cam(model, PICTURES, outputs=np.array([0, 1, 2]))
    assert found.shape == PICTURES.shape
    for i in range(3):
        heats = []
        for network in members(model):
            for k in range(4):
                for mirrored in (False, True):
                    picture = np.rot90(PICTURES[i], k)
                    heat = heat_map(network, jnp.asarray(picture.T if mirrored else picture), jnp.int32(i))
                    heats.append(np.rot90(heat.T if mirrored else heat, -k))
        large = jax.image.resize(jnp.asarray(np.mean(heats, axis=0)), (32, 32), "linear")
        most = float(large.max())
        np.testing.assert_allclose(found[i], large / most if most > 0 else 0 * large, atol=1e-5)


def test_a_network_without_turns_is_explained_as_it_stands(model):
    config = dataclasses.replace(CONFIG, network=dataclasses.replace(CONFIG.network, turns=False))
    still = dataclasses.replace(model, config=config)
    heats = [heat_map(network, jnp.asarray(PICTURES[0]), jnp.int32(2)) for network in members(model)]
    large = jax.image.resize(sum(heats) / 2, (32, 32), "linear")
    found = grad_cam(still, PICTURES[:1], outputs=np.array([2]))[0]
    np.testing.assert_allclose(found, large / max(float(large.max()), 1e-30), atol=1e-5)


def test_explains_the_most_probable_class_by_default(model):
    best = model.predict(PICTURES).probabilities.argmax(axis=1)
    np.testing.assert_array_equal(grad_cam(model, PICTURES), grad_cam(model, PICTURES, outputs=best))


@pytest.mark.parametrize("outputs", [[0, 1, 3], [0, 1], [0.0, 1.0, 2.0], [-1, 0, 0]])
def test_outputs_that_do_not_exist_are_refused(model, outputs):
    with pytest.raises(ValueError, match="outputs"):
        grad_cam(model, PICTURES, outputs=np.array(outputs))


def test_models_without_pictures_are_refused():
    other = PropertyModel("regression", "set", CONFIG, np.zeros(0), np.zeros(0))
    with pytest.raises(ValueError, match="kind picture"):
        grad_cam(other, PICTURES)
