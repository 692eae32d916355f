"""The released models of BCH22: small classifiers, from logistic regression to the CNN for CIFAR-10.

A model's parameters are a tuple of layers, each a dict of a weight "w" and a bias "b", so that they stack over models
and save as named arrays. Dense weights are (outputs, inputs).

Source: Balle, Cherubin & Hayes, "Reconstructing training data with informed adversaries" (2022), section V and tables
V to VII; what their text lost is from their public notebook.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from drjax.core import validate
from drjax.core.types import Array, PyTree, hyperparams

ACTIVATIONS: dict[str, Callable[[Any], jax.Array]] = {
    "elu": jax.nn.elu,
    "relu": jax.nn.relu,
    "leaky_relu": jax.nn.leaky_relu,
    "selu": jax.nn.selu,
    "celu": jax.nn.celu,
    "gelu": jax.nn.gelu,
    "silu": jax.nn.silu,
    "softplus": jax.nn.softplus,
    "tanh": jnp.tanh,
    "sigmoid": jax.nn.sigmoid,
    "identity": lambda z: z,
}
"""The paper's default and the ten others that are tried here in the place of its table V, whose names are lost."""

PRECISION = lax.Precision.HIGHEST
"""An attack looks for one record in thousands: a matrix product in bfloat16 or TF32 would hide it."""

KERNEL_SIZE = 3


@hyperparams
class Classifier:
    """What a released model is made of.

    Attributes:
        hidden: Widths of the dense hidden layers; none is (multinomial) logistic regression.
        activation: Activation of all hidden layers, a name in `ACTIVATIONS`.
        n_classes: Outputs, >= 2.
        image_shape: (height, width, channels) of a record, for convolutions; None for dense networks.
        channels: Channels of the 3 x 3 convolutions before the dense layers, each followed by the activation and a
            mean over 2 x 2 pixels; none for dense networks.
    """

    hidden: tuple[int, ...] = (10,)
    activation: str = "elu"
    n_classes: int = 10
    image_shape: tuple[int, int, int] | None = None
    channels: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Checks every field."""
        for name in ("hidden", "channels"):
            for width in getattr(self, name):
                validate.integer(**{f"every entry of {name}": width})
        validate.one_of(ACTIVATIONS, activation=self.activation)
        validate.integer(minimum=2, n_classes=self.n_classes)
        if bool(self.channels) != (self.image_shape is not None):
            raise ValueError(
                f"image_shape must be given with channels and only then, got {self.image_shape} and {self.channels}"
            )
        if self.image_shape is not None:
            if len(self.image_shape) != 3:
                raise ValueError(f"image_shape must be (height, width, channels), got {self.image_shape}")
            validate.integer(minimum=2 ** len(self.channels), height=self.image_shape[0], width=self.image_shape[1])

    @property
    def is_dense(self) -> bool:
        """Whether there are no convolutions."""
        return not self.channels

    def shapes(self, d: int) -> tuple[dict[str, tuple[int, ...]], ...]:
        """Shapes of the parameters of each layer, for records of d entries.

        Raises:
            ValueError: d < 1 or not the entries of `image_shape`.
        """
        validate.integer(d=d)
        layers: list[dict[str, tuple[int, ...]]] = []
        width = d
        if self.image_shape is not None:
            if d != math.prod(self.image_shape):
                raise ValueError(f"d must be the entries of image_shape {self.image_shape}, got {d}")
            height, across, n_in = self.image_shape
            for n_out in self.channels:
                layers.append({"w": (KERNEL_SIZE, KERNEL_SIZE, n_in, n_out), "b": (n_out,)})
                height, across, n_in = height // 2, across // 2, n_out
            width = height * across * n_in
        widths = (width, *self.hidden, self.n_classes)
        layers.extend({"w": (n_out, n_in), "b": (n_out,)} for n_in, n_out in pairwise(widths))
        return tuple(layers)

    def n_parameters(self, d: int) -> int:
        """Number of weights and biases, for records of d entries."""
        return sum(math.prod(shape) for layer in self.shapes(d) for shape in layer.values())

    def init(self, key: Array, d: int) -> PyTree:
        """Weights normal, cut at two and scaled by 1 / sqrt(inputs), biases 0: Haiku's default, which the paper uses.

        Args:
            key: A single key.
            d: Entries of a record.
        """
        shapes = self.shapes(d)
        params = []
        for layer_key, shape in zip(jax.random.split(key, len(shapes)), shapes, strict=True):
            fan_in = math.prod(shape["w"][:-1]) if len(shape["w"]) == 4 else shape["w"][1]
            w = jax.random.truncated_normal(layer_key, -2, 2, shape["w"]) / math.sqrt(fan_in)
            params.append({"w": w, "b": jnp.zeros(shape["b"], w.dtype)})
        return tuple(params)

    def logits(self, params: PyTree, x: Array) -> jax.Array:
        """(n, n_classes) of records x (n, d), for the parameters of one model."""
        act = ACTIVATIONS[self.activation]
        convolutions, dense = params[: len(self.channels)], params[len(self.channels) :]
        h: Any = x
        if self.image_shape is not None:
            h = h.reshape(-1, *self.image_shape)
            for layer in convolutions:
                h = _half(act(_convolve(h, layer)))
            h = h.reshape(h.shape[0], -1)
        for i, layer in enumerate(dense):
            h = jnp.matmul(h, layer["w"].T, precision=PRECISION) + layer["b"]
            if i + 1 < len(dense):
                h = act(h)
        return h


ARCHITECTURES: dict[str, Classifier] = {
    "mlp": Classifier(),
    "mlp-100": Classifier(hidden=(100,)),
    "mlp-1000": Classifier(hidden=(1000,)),
    "logistic": Classifier(hidden=()),
    # 54,514 parameters; the numbers of table VII are lost, its text says 55,000.
    "cnn": Classifier(image_shape=(32, 32, 3), channels=(16, 32), hidden=(24,)),
}
"""Released models by name; the first is that of the paper's notebook (784-10-10, 7,960 parameters on MNIST)."""


def accuracy(classifier: Classifier, params: PyTree, x: Array, y: Array) -> jax.Array:
    """Share of records x (n, d) whose label y (n,) a model predicts; of many models (B, ...) at once, (B,)."""

    def one(p: PyTree) -> jax.Array:
        return jnp.mean(jnp.argmax(classifier.logits(p, jnp.asarray(x)), axis=1) == jnp.asarray(y))

    is_stacked = params[-1]["b"].ndim == 2
    return lax.map(one, params) if is_stacked else one(params)


def _convolve(x: Array, layer: PyTree) -> jax.Array:
    """Convolution as one product of patches and weights: of a stack of models' convolutions XLA makes a grouped one,
    which on two cores trained models of 8 x 8 images five times slower.
    """
    _, height, width, _ = x.shape
    framed = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    taps = [(i, j) for i in range(KERNEL_SIZE) for j in range(KERNEL_SIZE)]
    patches = jnp.concatenate([framed[:, i : i + height, j : j + width] for i, j in taps], axis=-1)
    kernel = layer["w"].reshape(-1, layer["w"].shape[-1])
    return jnp.matmul(patches, kernel, precision=PRECISION) + layer["b"]


def _half(x: Array) -> jax.Array:
    n, height, width, channels = x.shape
    cut = x[:, : height // 2 * 2, : width // 2 * 2]
    return cut.reshape(n, height // 2, 2, width // 2, 2, channels).mean(axis=(2, 4))
