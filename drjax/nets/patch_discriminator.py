"""A discriminator of patches: which parts of an image a network made, for sharper images than a mean has.

Sources: Isola et al., "Image-to-image translation with conditional adversarial networks" (2017), for the discriminator
(without its condition: it sees the image alone); Mao et al., "Least squares generative adversarial networks" (2017);
Balle, Cherubin & Hayes (2022), section V-A and table IX, whose numbers their text lost: five convolutions, of which
the last has one filter, are theirs, the sizes are ours. Their LPIPS loss, which needs the weights of another network
that was trained on other images, is left out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax import Array, lax

from drjax.core import validate
from drjax.core.types import PyTree
from drjax.nets import evaluation

SIZE = 3
STRIDES = (2, 1, 1, 1, 1)
"""A verdict then depends on 19 x 19 pixels: more than a texture, less than the 32 x 32 of an image of CIFAR-10."""

SLOPE = 0.2
"""Slope of the leaky ReLU at negative values."""


class PatchDiscriminator(nnx.Module):
    """Images to one verdict per patch: 1 for true and 0 for made by a network, unbounded.

    Five 3 x 3 convolutions, zero padded, with a bias and a leaky ReLU between; the first halves the sides. No
    normalisation: the statistics of a batch would tell a batch of true images from one of made ones.

    Args:
        image_shape: (height, width, channels).
        widths: Channels of the first four convolutions.
        rngs: Random generators with a stream "params".
    """

    def __init__(self, image_shape: tuple[int, int, int], widths: tuple[int, int, int, int], *, rngs: nnx.Rngs) -> None:
        check_shape(image_shape, widths)
        he = jax.nn.initializers.he_normal()
        pairs = list(pairwise((image_shape[2], *widths, 1)))
        self.image_shape = image_shape
        self.kernels = nnx.List([nnx.Param(he(rngs.params(), (SIZE, SIZE, a, b), jnp.float32)) for a, b in pairs])
        self.biases = nnx.List([nnx.Param(jnp.zeros(b, jnp.float32)) for _, b in pairs])

    def __call__(self, images: Array) -> jax.Array:
        """Flattened images (b, h w c) to verdicts (b, ceil(h / 2), ceil(w / 2))."""
        x = images.reshape(-1, *self.image_shape)
        for i, stride in enumerate(STRIDES):
            x = convolve(x if i == 0 else jax.nn.leaky_relu(x, SLOPE), self.kernels[i][...], stride=stride)
            x = x + self.biases[i][...]
        return x[..., 0]


@dataclass(frozen=True)
class PatchAdversary:
    """A `PatchDiscriminator` trained against a network, as `drjax.nets.training.train` takes it.

    Both losses are least squares: the discriminator's is the mean of (D(true) - 1)^2 and D(made)^2, the network's is
    `weight` times that of (D(made) - 1)^2, over patches and images.

    Attributes:
        image_shape: (height, width, channels).
        weight: Weight of the adversarial term beside the network's reconstruction loss, > 0. Isola et al. weigh the
            mean absolute error 100 times as much.
        widths: Channels of the first four convolutions.
        learning_rate: Learning rate of the discriminator's Adam, with a first beta of 0.5 as in Isola et al., > 0.
    """

    image_shape: tuple[int, int, int]
    weight: float = 0.01
    widths: tuple[int, int, int, int] = (32, 64, 128, 128)
    learning_rate: float = 2e-4

    def __post_init__(self) -> None:
        """Checks every field."""
        check_shape(self.image_shape, self.widths)
        validate.positive(weight=self.weight, learning_rate=self.learning_rate)
        validate.finite(weight=self.weight, learning_rate=self.learning_rate)

    def start(self, key: Array) -> PyTree:
        """Parameters of a fresh discriminator, and its optimizer's state."""
        params = nnx.state(self._make(nnx.Rngs(params=key)), nnx.Param)
        return params, self._optimizer().init(params)

    def loss(self, state: PyTree, outputs: Array) -> jax.Array:
        """`weight` times the network's loss for outputs (b, d) of it."""
        return self.weight * jnp.mean((self.verdicts(state[0], outputs) - 1) ** 2)

    def step(self, state: PyTree, outputs: Array, targets: Array) -> PyTree:
        """The state after one step on made (b, d) and true (b, d) images."""
        params, optimizer = state

        def loss_of(p: PyTree) -> jax.Array:
            true, made = jnp.split(self.verdicts(p, jnp.concatenate([targets, outputs])), 2)
            return (jnp.mean((true - 1) ** 2) + jnp.mean(made**2)) / 2

        updates, optimizer = self._optimizer().update(jax.grad(loss_of)(params), optimizer, params)
        return optax.apply_updates(params, updates), optimizer

    def verdicts(self, params: PyTree, images: Array) -> jax.Array:
        """What the discriminator with these parameters says of flattened images (b, d)."""
        return nnx.merge(_graph(self.image_shape, self.widths), params)(images)

    def _make(self, rngs: nnx.Rngs) -> PatchDiscriminator:
        return PatchDiscriminator(self.image_shape, self.widths, rngs=rngs)

    def _optimizer(self) -> optax.GradientTransformation:
        return optax.adam(self.learning_rate, b1=0.5)


@evaluation.kept
def _graph(image_shape: tuple[int, int, int], widths: tuple[int, int, int, int]) -> Any:
    return nnx.graphdef(nnx.eval_shape(lambda: PatchDiscriminator(image_shape, widths, rngs=nnx.Rngs(params=0))))


def check_shape(image_shape: tuple[int, ...], widths: tuple[int, ...]) -> None:
    """Raises ValueError unless these are (height, width, channels) and four numbers of channels, all >= 1."""
    if len(image_shape) != 3:
        raise ValueError(f"image_shape must be (height, width, channels), got {image_shape}")
    if len(widths) != len(STRIDES) - 1:
        raise ValueError(f"widths must be {len(STRIDES) - 1} numbers of channels, got {widths}")
    for name, values in (("image_shape", image_shape), ("widths", widths)):
        for value in values:
            validate.integer(**{f"every entry of {name}": value})


def convolve(x: Array, kernel: Array, *, stride: int = 1, method: str | None = None) -> jax.Array:
    """A convolution with an odd kernel, zero padded by half of it.

    Args:
        x: (b, height, width, c_in).
        kernel: (size, size, c_in, c_out).
        stride: Stride, >= 1.
        method: "gemm" or "xla"; None is "gemm" on a CPU, where XLA has no fast kernel for a convolution in a scan.

    Returns:
        (b, ceil(height / stride), ceil(width / stride), c_out).
    """
    size, pad = kernel.shape[0], kernel.shape[0] // 2
    if (method or ("gemm" if jax.default_backend() == "cpu" else "xla")) == "xla":
        by_xla = partial(lax.conv_general_dilated, dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return by_xla(x, kernel, (stride, stride), [(pad, pad)] * 2)
    height, width = (math.ceil(side / stride) for side in x.shape[1:3])
    padded = jnp.pad(x, [(0, 0), (pad, pad), (pad, pad), (0, 0)])
    taps = [
        padded[:, i : i + (height - 1) * stride + 1 : stride, j : j + (width - 1) * stride + 1 : stride]
        for i in range(size)
        for j in range(size)
    ]
    return jnp.concatenate(taps, axis=-1) @ kernel.reshape(-1, kernel.shape[-1])
