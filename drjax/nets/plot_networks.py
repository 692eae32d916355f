"""Densely connected networks for pictures of plots, from one small enough for two cores to DenseNet-121.

Source: Huang, Liu, van der Maaten & Weinberger, "Densely connected convolutional networks" (2017), with bottlenecks and
compression (DenseNet-BC). The property inference attack on t-SNE plots uses DenseNet-121 trained on ImageNet.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array

from drjax.core import validate
from drjax.nets.patch_discriminator import convolve

HEADS = ("classification", "regression")
DTYPES = ("float32", "bfloat16")
BOTTLENECK = 4
"""Channels of a layer's 1 x 1 convolution, as a multiple of its growth."""

COMPRESSION = 2
"""What a transition divides the channels by."""

N_TURNS = 8
"""Ways to lay a square down: four turns, mirrored or not."""

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
"""Means and standard deviations of red, green and blue, in [0, 1], that networks published for ImageNet expect."""


@dataclass(frozen=True, kw_only=True)
class PlotNetworkConfig:
    """The shape of a network.

    Attributes:
        size: Pixels of a picture's side, >= 8 times what the stem and the transitions shrink it by.
        channels: Number of channels: 1 for grey pictures, 3 for red, green and blue.
        blocks: Layers of each dense block, each >= 1.
        growth: Channels that a layer adds, >= 1.
        stem: Channels of the first convolution, >= 1.
        stem_size: Side of its kernel, odd; its stride is 2, and a pooling over 3 x 3 with stride 2 follows.
        repeat: Copy a grey picture to this many channels before the first convolution, standardised as ImageNet's
            are; 0 leaves it alone and maps white to 0 and black to 1. For published weights.
        turns: Turn and mirror each picture at random in training, by multiples of 90 degrees; who uses the network
            takes the mean over all eight, see `turned_by`.
        dtype: "float32", or "bfloat16" for what convolutions compute with and what lies between them, which is for
            GPUs and of no use on a CPU. Parameters, norms and their statistics, the last mean and the head stay in
            float32.
    """

    size: int = 75
    channels: int = 1
    blocks: tuple[int, ...] = (4, 4, 4)
    growth: int = 12
    stem: int = 16
    stem_size: int = 5
    repeat: int = 0
    turns: bool = True
    dtype: str = "float32"

    def __post_init__(self) -> None:
        """Checks every field."""
        validate.integer(growth=self.growth, stem=self.stem, stem_size=self.stem_size, blocks=len(self.blocks))
        validate.integer(minimum=0, repeat=self.repeat)
        for layers in self.blocks:
            validate.integer(**{"every entry of blocks": layers})
        validate.one_of((1, 3), channels=self.channels)
        if self.repeat not in (0, 3) or (self.repeat and self.channels != 1):
            raise ValueError(f"repeat must be 0, or 3 with one channel, got {self.repeat} with {self.channels}")
        if self.stem_size % 2 != 1:
            raise ValueError(f"stem_size must be odd, got {self.stem_size}")
        validate.one_of(DTYPES, dtype=self.dtype)
        validate.integer(minimum=2 ** (len(self.blocks) + 1), size=self.size)


CONFIGS = {
    "cpu": PlotNetworkConfig(),
    "densenet121": PlotNetworkConfig(size=300, blocks=(6, 12, 24, 16), growth=32, stem=64, stem_size=7, repeat=3),
}
"""Configurations by name: 75 x 75 pictures within 50 MFLOP each, and the paper's 300 x 300 with DenseNet-121."""


class _Convolution(nnx.Module):
    def __init__(self, c_in: int, c_out: int, size: int, rngs: nnx.Rngs) -> None:
        he = jax.nn.initializers.he_normal()
        self.kernel = nnx.Param(he(rngs.params(), (size, size, c_in, c_out), jnp.float32))

    def __call__(self, x: Array, stride: int = 1) -> jax.Array:
        kernel = jnp.asarray(self.kernel[...], x.dtype)
        return x @ kernel[0, 0] if kernel.shape[0] == 1 else convolve(x, kernel, stride=stride)


class DenseLayer(nnx.Module):
    """BatchNorm, ReLU, 1 x 1 convolution, BatchNorm, ReLU, 3 x 3 convolution: (b, h, w, c) to (b, h, w, growth)."""

    def __init__(self, c_in: int, growth: int, rngs: nnx.Rngs) -> None:
        self.norm1 = _norm(c_in, rngs)
        self.conv1 = _Convolution(c_in, BOTTLENECK * growth, 1, rngs)
        self.norm2 = _norm(BOTTLENECK * growth, rngs)
        self.conv2 = _Convolution(BOTTLENECK * growth, growth, 3, rngs)

    def __call__(self, x: Array) -> jax.Array:
        """The channels that this layer adds."""
        return self.conv2(_rectified(self.norm2, self.conv1(_rectified(self.norm1, x))))


class Transition(nnx.Module):
    """Half the channels by a 1 x 1 convolution, half the sides by means over 2 x 2; an odd last line is left out."""

    def __init__(self, c_in: int, rngs: nnx.Rngs) -> None:
        self.norm = _norm(c_in, rngs)
        self.conv = _Convolution(c_in, c_in // COMPRESSION, 1, rngs)

    def __call__(self, x: Array) -> jax.Array:
        """(b, h, w, c) to (b, h // 2, w // 2, c // 2)."""
        x = _rectified(self.norm, x)
        b, height, width, c = x.shape
        x = x[:, : height // 2 * 2, : width // 2 * 2].reshape(b, height // 2, 2, width // 2, 2, c)
        # Means first: a 1 x 1 convolution and a mean commute, and it is a quarter of the work.
        return self.conv(x.mean(axis=(2, 4)))


class PlotNetwork(nnx.Module):
    """Pictures to shares: a DenseNet with BatchNorm and one of two heads.

    Args:
        config: Shape.
        head: "classification", whose outputs are probabilities of `n_outputs` classes, or "regression", whose
            `n_outputs` are shares in (0, 1) by a sigmoid.
        n_outputs: Number of outputs, >= 1.
        rngs: Random generators with a stream "params".
    """

    def __init__(self, config: PlotNetworkConfig, head: str, n_outputs: int, *, rngs: nnx.Rngs) -> None:
        validate.one_of(HEADS, head=head)
        validate.integer(n_outputs=n_outputs)
        self.config, self.head = config, head
        self.conv0 = _Convolution(config.repeat or config.channels, config.stem, config.stem_size, rngs)
        self.norm0 = _norm(config.stem, rngs)
        blocks, transitions, width = [], [], config.stem
        for i, n_layers in enumerate(config.blocks):
            blocks.append(
                nnx.List([DenseLayer(width + j * config.growth, config.growth, rngs) for j in range(n_layers)])
            )
            width += n_layers * config.growth
            if i + 1 < len(config.blocks):
                transitions.append(Transition(width, rngs))
                width //= COMPRESSION
        self.blocks, self.transitions = nnx.List(blocks), nnx.List(transitions)
        self.norm5 = _norm(width, rngs)
        self.classifier = nnx.Linear(width, n_outputs, rngs=rngs)

    def __call__(self, pictures: Array, key: Array | None = None) -> jax.Array:
        """Pictures (b, size, size) or (b, size, size, 3) in [0, 255] to (b, n_outputs) in (0, 1).

        Args:
            pictures: Pictures from `drjax.attacks.property.raster.draw`. With one more axis after the first, v drawings
                of each map: one of them at random in training mode, the first in evaluation.
            key: Decides the turns and the drawings; needed in training mode if there are any.
        """
        logits = self.logits(self.feature_maps(pictures, key))
        return jax.nn.softmax(logits) if self.head == "classification" else jax.nn.sigmoid(logits)

    def feature_maps(self, pictures: Array, key: Array | None = None) -> jax.Array:
        """What the last dense block says: (b, height, width, channels) float32, normalised and rectified."""
        x = jnp.asarray(pictures, jnp.float32)
        x = x if self.config.channels == 3 else x[..., None]
        turn_key, drawing_key = (None, None) if key is None else jax.random.split(key)
        if self.norm0.use_running_average:
            turn_key = drawing_key = None
        if x.ndim == 5:
            which = 0 if drawing_key is None else jax.random.randint(drawing_key, x.shape[:1], 0, x.shape[1])
            x = x[jnp.arange(len(x)), which]
        if self.config.turns and turn_key is not None:
            x = turned(turn_key, x)
        if self.config.repeat:
            x = (x / 255 - np.array(IMAGENET_MEAN, np.float32)) / np.array(IMAGENET_STD, np.float32)
        else:
            x = 1 - x / 255
        x = _rectified(self.norm0, self.conv0(x.astype(self.config.dtype), stride=2))
        x = _max_pool(x)
        for i, block in enumerate(self.blocks):
            for layer in block:
                x = jnp.concatenate([x, layer(x)], axis=-1)
            if i < len(self.transitions):
                x = self.transitions[i](x)
        return _rectified(self.norm5, x).astype(jnp.float32)

    def logits(self, maps: Array) -> jax.Array:
        """The head before its softmax or sigmoid: linear in the mean of the maps (b, h, w, c); (b, n_outputs)."""
        return self.classifier(maps.mean(axis=(1, 2)))


def flops(config: PlotNetworkConfig, n_outputs: int = 1) -> int:
    """Floating-point operations of one picture's forward pass: two for each weight that a convolution or the head uses.

    Norms, activations and poolings are left out, as is usual.
    """
    side = math.ceil(config.size / 2)
    total = 2 * side**2 * config.stem_size**2 * (config.repeat or config.channels) * config.stem
    side, width = math.ceil(side / 2), config.stem
    for i, n_layers in enumerate(config.blocks):
        inner = BOTTLENECK * config.growth
        for _ in range(n_layers):
            total += 2 * side**2 * (width * inner + 9 * inner * config.growth)
            width += config.growth
        if i + 1 < len(config.blocks):
            side //= 2
            total += 2 * side**2 * width * (width // COMPRESSION)
            width //= COMPRESSION
    return total + 2 * width * n_outputs


def turned(key: Array, pictures: Array) -> jax.Array:
    """Each picture (b, h, h, c) turned by a random multiple of 90 degrees and mirrored or not, all eight alike."""
    how = jax.random.randint(key, (pictures.shape[0],), 0, N_TURNS)

    def chosen(bit: int, changed: Array, same: Array) -> Array:
        return jnp.where(((how >> bit) & 1)[:, None, None, None] == 1, changed, same)

    # Two mirrors and the transposition generate all eight.
    x = chosen(0, pictures[:, ::-1], pictures)
    x = chosen(1, x[:, :, ::-1], x)
    return jnp.asarray(chosen(2, x.swapaxes(1, 2), x))


def turned_by(how: int, pictures: Any) -> Any:
    """Pictures (b, h, h, ...) in one of the eight ways of `turned`, 0 to 7; 0 leaves them as they are."""
    x = pictures[:, ::-1] if how & 1 else pictures
    x = x[:, :, ::-1] if how & 2 else x
    return x.swapaxes(1, 2) if how & 4 else x


def turned_back_by(how: int, pictures: Any) -> Any:
    """What `turned_by` was given."""
    # A transposition after two mirrors is one before them with their axes exchanged.
    return turned_by(4 | (how & 1) << 1 | (how & 2) >> 1 if how & 4 else how, pictures)


def maker(config: PlotNetworkConfig, head: str, n_outputs: int) -> Any:
    """A fresh network from `nnx.Rngs`, as `drjax.nets.training.train` wants it."""
    return functools.partial(_make, config, head, n_outputs)


def _make(config: PlotNetworkConfig, head: str, n_outputs: int, rngs: nnx.Rngs) -> PlotNetwork:
    return PlotNetwork(config, head, n_outputs, rngs=rngs)


def _norm(width: int, rngs: nnx.Rngs) -> nnx.BatchNorm:
    return nnx.BatchNorm(width, momentum=0.9, epsilon=1e-5, rngs=rngs)


def _rectified(norm: Any, x: Array) -> jax.Array:
    """Rectified norm of x, in the dtype of x; the norm itself is float32, whose digits its means over a batch need."""
    return jax.nn.relu(norm(jnp.asarray(x, jnp.float32))).astype(x.dtype)


def _max_pool(x: Array) -> jax.Array:
    """Maxima over 3 x 3 pixels with stride 2, after a rectifier: zeros at the edge change nothing."""
    height, width = (math.ceil(side / 2) for side in x.shape[1:3])
    padded = jnp.pad(x, [(0, 0), (1, 1), (1, 1), (0, 0)])
    taps = [padded[:, i : i + 2 * height - 1 : 2, j : j + 2 * width - 1 : 2] for i in range(3) for j in range(3)]
    return functools.reduce(jnp.maximum, taps)
