"""Networks that map a release, the coordinates of n points, to the record behind its first row.

Sources: Lumbut & Ponnoprat, "Reconstruction attack on dimensionality reduction" (tables 1, 3 and 5, and their code);
Balle, Cherubin & Hayes, "Reconstructing training data with informed adversaries" (2022), called BCH22.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from drjax.core import validate
from drjax.nets.conv import ConvTranspose, output_size

TARGET_WIDTH, CONTEXT_WIDTH = 16, 64
"""Table 1: the target's row is expanded to 16 units, all other rows are compressed to 64."""


class Up(NamedTuple):
    """One transposed convolution of a decoder; all but the last are followed by BatchNorm, ReLU and dropout."""

    features: int
    size: int
    stride: int
    padding: int
    dropout: float = 0.0


class Architecture(NamedTuple):
    """What a reconstruction network is made of; its decoder has either convolutions or hidden layers.

    Attributes:
        split: Encode the target's row apart from the others (without activation) before decoding.
        output: Activation of the last layer.
        convolutions: Transposed convolutions from a 1 x 1 image.
        hidden: Widths of hidden dense layers with ReLU.
    """

    split: bool
    output: Callable[[jax.Array], jax.Array]
    convolutions: tuple[Up, ...] = ()
    hidden: tuple[int, ...] = ()

    @property
    def n_outputs(self) -> int | None:
        """Record entries that the decoder makes; None if any number will do."""
        if not self.convolutions:
            return None
        side = 1
        for layer in self.convolutions:
            side = output_size(side, layer.size, layer.stride, layer.padding)
        return side**2 * self.convolutions[-1].features


def _identity(x: jax.Array) -> jax.Array:
    return x


ARCHITECTURES = {
    "mnist28": Architecture(
        split=True,
        convolutions=(Up(512, 4, 1, 0), Up(256, 4, 2, 1), Up(128, 4, 2, 1), Up(64, 4, 2, 1), Up(1, 1, 1, 2)),
        output=jax.nn.relu,
    ),
    "xray64_table5": Architecture(
        split=True,
        convolutions=(Up(512, 4, 1, 0), Up(1024, 4, 2, 1, 0.2), Up(512, 4, 2, 1), Up(256, 4, 2, 1), Up(1, 4, 2, 1)),
        output=jax.nn.relu,
    ),
    "xray64_code": Architecture(
        split=True,
        convolutions=(
            Up(512, 4, 2, 0),
            Up(1024, 4, 2, 1),
            Up(512, 4, 2, 1, 0.2),
            Up(512, 4, 2, 1),
            Up(256, 4, 2, 1),
            Up(1, 1, 1, 0),
        ),
        output=jax.nn.relu,
    ),
    # The paper asks for "a standard feedforward neural network" and no more. No output activation: a ReLU there can
    # die for a feature that is mostly 0, as one-hot columns are.
    "flat": Architecture(split=True, hidden=(512, 512), output=_identity),
    "bch22": Architecture(split=False, hidden=(1000, 1000), output=jax.nn.sigmoid),
}
"""Networks by name. The tables give no dropout rate; 0.2 is that of the authors' code, which has it a layer later."""


def resolve(name: str, record_shape: tuple[int, ...]) -> str:
    """The architecture that `name` means for records of this shape, flattened or not.

    "auto" is the paper's decoder for 784 (28 x 28) and 4096 (64 x 64) entries, and "flat" for any other number.

    Raises:
        ValueError: an unknown name, or an architecture for records of another size.
    """
    validate.one_of({*ARCHITECTURES, "auto"}, architecture=name)
    d = math.prod(record_shape)
    if name == "auto":
        return {784: "mnist28", 4096: "xray64_table5"}.get(d, "flat")
    expected = ARCHITECTURES[name].n_outputs
    if expected not in (None, d):
        raise ValueError(f"architecture {name!r} must be given records of {expected} entries, got shape {record_shape}")
    return name


def build(
    name: str, *, rngs: nnx.Rngs, n: int, k: int, record_shape: tuple[int, ...], linear_output: bool = False
) -> Reconstructor:
    """A freshly initialised network for releases (n, k) of records of this shape.

    Args:
        name: Name of the network, see `resolve`.
        rngs: Random generators with a stream "params".
        n: Points in a release.
        k: Coordinates of a point.
        record_shape: Shape of a record, flattened or not.
        linear_output: Leave out the last activation of a convolutional decoder, and start its last layer with
            outputs of the size of its inputs instead of up to sqrt(c_in) times that.

    Raises:
        ValueError: see `resolve`; n < 2 or k < 1.
    """
    validate.integer(minimum=2, n=n)
    validate.integer(k=k)
    architecture = ARCHITECTURES[resolve(name, record_shape)]
    if linear_output and architecture.convolutions:
        architecture = architecture._replace(output=_identity)
    return Reconstructor(architecture, n, k, math.prod(record_shape), rngs=rngs)


class Reconstructor(nnx.Module):
    """Releases (b, n, k), target in row 0, to flattened records (b, d)."""

    def __init__(self, architecture: Architecture, n: int, k: int, d: int, *, rngs: nnx.Rngs) -> None:
        self.encoder = SplitEncoder(n, k, rngs=rngs) if architecture.split else None
        width = TARGET_WIDTH + CONTEXT_WIDTH if architecture.split else n * k
        if architecture.convolutions:
            self.decoder = ConvDecoder(width, architecture.convolutions, rngs=rngs)
            if architecture.output is _identity:
                last = self.decoder.convolutions[-1]
                bound = last.stride / (last.kernel.shape[0] * math.sqrt(last.kernel.shape[2]))
                last.kernel[...] *= bound * math.sqrt(last.kernel.shape[3]) * last.kernel.shape[0]
        else:
            self.decoder = DenseDecoder(width, architecture.hidden, d, rngs=rngs)
        self.output = architecture.output

    def __call__(self, releases: Array, dropout_key: Array | None = None) -> jax.Array:
        """(b, n, k) to (b, d); the key is needed in training mode if the network has dropout."""
        flat = releases.reshape(releases.shape[0], -1)
        code = flat if self.encoder is None else self.encoder(releases)
        return self.output(self.decoder(code, dropout_key))


class SplitEncoder(nnx.Module):
    """The target's row through one linear map, the others through another, concatenated (table 1)."""

    def __init__(self, n: int, k: int, *, rngs: nnx.Rngs) -> None:
        self.target = linear(k, TARGET_WIDTH, rngs)
        self.context = linear((n - 1) * k, CONTEXT_WIDTH, rngs)

    def __call__(self, releases: Array) -> jax.Array:
        """(b, n, k) to (b, 80)."""
        rest = releases[:, 1:].reshape(releases.shape[0], -1)
        return jnp.concatenate([self.target(releases[:, 0]), self.context(rest)], axis=1)


class ConvDecoder(nnx.Module):
    """Transposed convolutions from a 1 x 1 image of `width` channels, bias-free, with BatchNorm and ReLU between."""

    def __init__(self, width: int, layers: tuple[Up, ...], *, rngs: nnx.Rngs) -> None:
        channels = [width, *(layer.features for layer in layers)]
        self.convolutions = nnx.List(
            [
                ConvTranspose(c, layer.features, size=layer.size, stride=layer.stride, padding=layer.padding, rngs=rngs)
                for c, layer in zip(channels[:-1], layers, strict=True)
            ]
        )
        self.norms = nnx.List([nnx.BatchNorm(c, momentum=0.9, epsilon=1e-5, rngs=rngs) for c in channels[1:-1]])
        self.dropouts = nnx.List([nnx.Dropout(layer.dropout) for layer in layers[:-1]])

    def __call__(self, code: Array, dropout_key: Array | None) -> jax.Array:
        """(b, width) to (b, pixels)."""
        x = code[:, None, None, :]
        for i, (convolve, norm, dropout) in enumerate(
            zip(self.convolutions[:-1], self.norms, self.dropouts, strict=True)
        ):
            x = jax.nn.relu(norm(convolve(x)))
            if dropout.rate and not dropout.deterministic and dropout_key is not None:
                x = dropout(x, rngs=jax.random.fold_in(dropout_key, i))
        return self.convolutions[-1](x).reshape(x.shape[0], -1)


class DenseDecoder(nnx.Module):
    """Hidden dense layers with ReLU, and a linear one to d."""

    def __init__(self, width: int, hidden: tuple[int, ...], d: int, *, rngs: nnx.Rngs) -> None:
        self.layers = nnx.List([linear(a, b, rngs) for a, b in pairwise((width, *hidden, d))])

    def __call__(self, code: Array, dropout_key: Array | None) -> jax.Array:
        """(b, width) to (b, d)."""
        del dropout_key
        x = code
        for layer in self.layers[:-1]:
            x = jax.nn.relu(layer(x))
        return self.layers[-1](x)


def linear(n_in: int, n_out: int, rngs: nnx.Rngs) -> nnx.Linear:
    """A dense layer whose weights and biases start uniform in +-1 / sqrt(n_in)."""
    # PyTorch's initialisation, because the paper's learning rate of 1e-5 barely leaves it.
    bound = 1 / math.sqrt(n_in)

    def uniform(key: Array, shape: tuple[int, ...], dtype: jnp.dtype, out_sharding: object = None) -> jax.Array:
        del out_sharding
        return jax.random.uniform(key, shape, dtype, -bound, bound)

    return nnx.Linear(n_in, n_out, kernel_init=uniform, bias_init=uniform, rngs=rngs)
