"""Published weights of DenseNets, under torchvision's names, for `drjax.nets.plot_networks`.

torchvision's file is a pickle, which is not read: write its `state_dict()` with `safetensors.torch.save_file`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import safetensors.numpy
from flax import nnx

from drjax.core import validate
from drjax.nets.plot_networks import PlotNetwork, PlotNetworkConfig
from drjax.nets.training import MakeModel

COUNTER = "num_batches_tracked"
"""Name of a counter of PyTorch's BatchNorm, which says nothing about what a network computes."""


def read_densenet(path: str | Path, config: PlotNetworkConfig) -> dict[str, np.ndarray]:
    """The arrays of a .safetensors file, checked against the shape of a network.

    Args:
        path: File with torchvision's names ("features.denseblock1.denselayer1.conv1.weight"), new or old
            ("...conv.1...").
        config: The network; its input has to have the channels of the file's, for ImageNet 3 (`repeat=3`).

    Returns:
        float32 by name in torchvision's layout: kernels (out, in, height, width). Counters are left out; so is the
        classifier unless the file has one.

    Raises:
        FileNotFoundError: nothing at `path`.
        ValueError: a damaged file, missing or further arrays, shapes of another network, or values not finite.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}: check the path")
    try:
        loaded = safetensors.numpy.load(path.read_bytes())
    except Exception as error:  # safetensors raises errors of its own on damage
        raise ValueError(
            f"{path} must be a safetensors file of floats, got one that cannot be read ({error})"
        ) from error
    # torchvision itself renames what older releases of it wrote.
    arrays = {re.sub(r"\b(norm|conv)\.(\d)\b", r"\1\2", name): a for name, a in loaded.items()}
    arrays = {name: a for name, a in arrays.items() if not name.endswith(COUNTER)}
    template = nnx.eval_shape(lambda: PlotNetwork(config, "regression", 1, rngs=nnx.Rngs(params=0)))
    wanted = {name: _their_shape(variable.shape) for name, variable in _variables(template)}
    found = arrays.keys() - {"classifier.weight", "classifier.bias"}
    if missing := sorted(wanted.keys() - found):
        raise ValueError(f"{path} must hold {len(wanted)} arrays of a DenseNet, but {missing[0]} is not among them")
    if further := sorted(found - wanted.keys()):
        raise ValueError(f"{path} must hold a DenseNet of blocks {config.blocks}, but has {further[0]} too")
    for name, array in arrays.items():
        if name in wanted and array.shape != wanted[name]:
            raise ValueError(f"{name} of {path} must have shape {wanted[name]}, got {array.shape}")
        validate.finite(**{f"{name} of {path}": array})
    return {name: array.astype(np.float32) for name, array in arrays.items()}


def pretrained_maker(arrays: dict[str, np.ndarray], config: PlotNetworkConfig, head: str, n_outputs: int) -> MakeModel:
    """Networks that start from `read_densenet`'s weights, as `drjax.nets.training.train` wants them.

    The head is the file's if it has one of `n_outputs` outputs, and fresh otherwise.
    """

    def make(rngs: nnx.Rngs) -> PlotNetwork:
        network = PlotNetwork(config, head, n_outputs, rngs=rngs)
        for name, variable in _variables(network):
            array = arrays[name]
            variable[...] = jnp.asarray(array.transpose(2, 3, 1, 0) if array.ndim == 4 else array)
        kernel: Any = network.classifier.kernel
        bias: Any = network.classifier.bias
        if arrays.get("classifier.weight", np.empty((0, 0))).shape[0] == n_outputs:
            kernel[...] = jnp.asarray(arrays["classifier.weight"].T)
            bias[...] = jnp.asarray(arrays["classifier.bias"])
        return network

    return make


def _their_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (shape[3], shape[2], *shape[:2]) if len(shape) == 4 else shape


def _variables(network: PlotNetwork) -> Iterator[tuple[str, Any]]:
    """Every variable but the classifier's, by torchvision's name."""
    yield "features.conv0.weight", network.conv0.kernel
    yield from _of_norm("features.norm0", network.norm0)
    for b, block in enumerate(network.blocks, 1):
        for i, layer in enumerate(block, 1):
            prefix = f"features.denseblock{b}.denselayer{i}"
            yield from _of_norm(f"{prefix}.norm1", layer.norm1)
            yield f"{prefix}.conv1.weight", layer.conv1.kernel
            yield from _of_norm(f"{prefix}.norm2", layer.norm2)
            yield f"{prefix}.conv2.weight", layer.conv2.kernel
    for b, transition in enumerate(network.transitions, 1):
        yield from _of_norm(f"features.transition{b}.norm", transition.norm)
        yield f"features.transition{b}.conv.weight", transition.conv.kernel
    yield from _of_norm("features.norm5", network.norm5)


def _of_norm(prefix: str, norm: Any) -> Iterator[tuple[str, Any]]:
    yield f"{prefix}.weight", norm.scale
    yield f"{prefix}.bias", norm.bias
    yield f"{prefix}.running_mean", norm.mean
    yield f"{prefix}.running_var", norm.var
