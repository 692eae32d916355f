"""Grad-CAM: which parts of a picture a plot network's answer rests on.

Source: Selvaraju et al., "Grad-CAM: visual explanations from deep networks via gradient-based localization" (2017).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from drjax.attacks.property.models import PropertyModel, network_of
from drjax.core import batching, validate
from drjax.core.types import Array, PyTree
from drjax.nets import plot_networks


def grad_cam(model: PropertyModel, pictures: Array, *, outputs: Array | None = None) -> np.ndarray:
    """Heat maps of the last dense block: where its channels, weighed by the mean slope of an output, are active.

    The slope is that of the output before the softmax or sigmoid. In a regression it points to larger proportions.
    Members of an ensemble are averaged, and so are the turns of a picture (turned back) that the model answers by.

    Args:
        model: Model of kind "picture".
        pictures: (g, size, size) or (g, size, size, 3), as in training.
        outputs: (g,) the output to explain of each picture; None is a classifier's most probable class.

    Returns:
        (g, size, size) float32, >= 0 and at most 1 in each picture: divided by the maximum unless all is 0.
        Interpolated linearly from the few pixels of the block. A forward and a backward pass per picture and turn.

    Raises:
        ValueError: a model of another kind, pictures that it refuses, or outputs that it does not have.
    """
    if model.kind != "picture":
        raise ValueError(f"model must be of kind picture, got {model.kind}")
    network, states = network_of(model)
    size = model.config.network.size
    prediction = model.predict(pictures)
    n_outputs = max(1, len(model.classes))
    chosen = np.zeros(len(prediction.expected), np.int32)
    if outputs is not None:
        chosen = np.asarray(outputs)
        validate.matrix(chosen[None], "outputs", columns=len(prediction.expected))
        if chosen.dtype.kind not in "iu" or chosen.min() < 0 or chosen.max() >= n_outputs:
            raise ValueError(f"outputs must be integers in [0, {n_outputs}), got {chosen}")
    elif prediction.probabilities is not None:
        chosen = prediction.probabilities.argmax(axis=1)
    # One function for all turns: it is compiled by its identity.
    explained = partial(_heat_lanes, network)
    heats = []
    for how in range(plot_networks.N_TURNS if model.config.network.turns else 1):
        turned = plot_networks.turned_by(how, np.asarray(pictures, np.float32))
        heat = batching.map_lanes(explained, states, (turned, chosen.astype(np.int32)))
        heats.append(plot_networks.turned_back_by(how, heat))
    heat = np.mean(heats, axis=0)
    large = np.asarray(jax.image.resize(jnp.asarray(heat), (len(heat), size, size), "linear"))
    most = large.max(axis=(1, 2), keepdims=True)
    return np.divide(large, most, out=np.zeros_like(large), where=most > 0)


def heat_map(network: Any, picture: Array, output: Array) -> jax.Array:
    """The coarse, unscaled heat map (height, width) of one picture by one network in evaluation mode."""
    maps = network.feature_maps(picture[None])
    slope = jax.grad(lambda x: network.logits(x)[0, output])(maps)
    weights = slope.mean(axis=(1, 2))
    return jax.nn.relu((maps[0] * weights[0]).sum(axis=-1))


def _heat_lanes(graph: Any, states: PyTree, lanes: tuple[Array, Array]) -> jax.Array:
    def of_member(params: PyTree, rest: PyTree) -> jax.Array:
        network = nnx.merge(graph, params, rest, copy=True)
        return jax.vmap(lambda picture, output: heat_map(network, picture, output))(*lanes)

    return jax.vmap(of_member)(*states).mean(axis=0)
