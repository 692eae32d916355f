"""Networks that map a vector made of a released classifier to the target's image in [0, 1].

Source: Balle, Cherubin & Hayes, "Reconstructing training data with informed adversaries" (2022), section IV and tables
VI and VIII, whose numbers their text lost: the dense network is that of their public notebook, and the sizes of the
transposed CNN are ours. So is the layer of products.
"""

from __future__ import annotations

import math
from itertools import pairwise

import jax
from flax import nnx
from jax import Array

from drjax.core import validate
from drjax.nets.conv import ConvTranspose

UPSAMPLINGS = 2
"""Transposed convolutions of the decoder for images, each of which doubles the sides (table VIII)."""


class VectorReconstructor(nnx.Module):
    """Vectors (b, p) to flattened images (b, d), through hidden layers, a decoder and a sigmoid.

    Args:
        n_inputs: p.
        n_outputs: d.
        hidden: Widths of the hidden layers, with ReLU; none for a decoder alone.
        has_products: The first hidden layer is instead the product of two linear maps. What the target leaves in a
            first layer is its image times errors whose sign and size vary with the model, and a product with another
            linear function of the parameters undoes a factor, which ReLU layers have to learn piece by piece.
        image_shape: (height, width, channels), sides divisible by 4, for a decoder of transposed convolutions; None
            for a dense one.
        channels: Channels of that decoder: of its first image, a quarter of the sides, and between its two
            convolutions, which are 4 x 4 with a stride of 2.
        dropout: Share of hidden units left out in training, in [0, 1).
        rngs: Random generators with a stream "params".

    Raises:
        ValueError: an argument out of range, products without a hidden layer, or an image of other than d entries.
    """

    def __init__(
        self,
        n_inputs: int,
        n_outputs: int,
        *,
        hidden: tuple[int, ...],
        has_products: bool = False,
        image_shape: tuple[int, int, int] | None = None,
        channels: tuple[int, int] = (128, 64),
        dropout: float = 0.0,
        rngs: nnx.Rngs,
    ) -> None:
        validate.integer(n_inputs=n_inputs, n_outputs=n_outputs)
        check_shape(hidden, has_products, image_shape, channels)
        if image_shape is not None and n_outputs != math.prod(image_shape):
            raise ValueError(f"image_shape must have {n_outputs} entries, got {image_shape}")
        widths = (n_inputs, *hidden)
        self.hidden = nnx.List([_dense(a, b, rngs) for a, b in pairwise(widths)])
        self.factor = _dense(n_inputs, hidden[0], rngs) if has_products else None
        if image_shape is None:
            self.decoder = _dense(widths[-1], n_outputs, rngs)
        else:
            self.decoder = ImageDecoder(widths[-1], image_shape, channels, rngs)
        self.dropout = nnx.Dropout(dropout)

    def __call__(self, inputs: Array, dropout_key: Array | None = None) -> jax.Array:
        """(b, p) to (b, d) in [0, 1]; the key is needed in training mode if the network has dropout."""
        x = inputs
        for i, layer in enumerate(self.hidden):
            x = layer(x)
            x = x * self.factor(inputs) if i == 0 and self.factor is not None else jax.nn.relu(x)
            if self.dropout.rate and not self.dropout.deterministic and dropout_key is not None:
                x = self.dropout(x, rngs=jax.random.fold_in(dropout_key, i))
        return jax.nn.sigmoid(self.decoder(x))


class ImageDecoder(nnx.Module):
    """A dense layer to a small image, and transposed convolutions that double its sides twice (table VIII)."""

    def __init__(
        self, n_inputs: int, image_shape: tuple[int, int, int], channels: tuple[int, int], rngs: nnx.Rngs
    ) -> None:
        height, width, n_out = image_shape
        self.small = height // 2**UPSAMPLINGS, width // 2**UPSAMPLINGS, channels[0]
        self.dense = _dense(n_inputs, math.prod(self.small), rngs)
        self.convolutions = nnx.List(
            [ConvTranspose(a, b, size=4, stride=2, padding=1, rngs=rngs) for a, b in pairwise((*channels, n_out))]
        )
        # He's start: a pixel has a quarter of the kernel's inputs, where PyTorch's counts the outputs for them.
        for layer in self.convolutions:
            size, _, n_in, n_after = layer.kernel.shape
            layer.kernel[...] *= math.sqrt(n_after * size**2) * math.sqrt(6 * layer.stride**2 / (n_in * size**2))

    def __call__(self, code: Array) -> jax.Array:
        """(b, width) to flattened images (b, d), of any size."""
        x = self.dense(code).reshape(-1, *self.small)
        for convolve in self.convolutions:
            x = convolve(jax.nn.relu(x))
        return x.reshape(x.shape[0], -1)


def check_shape(
    hidden: tuple[int, ...], has_products: bool, image_shape: tuple[int, ...] | None, channels: tuple[int, ...]
) -> None:
    """Raises ValueError for a network that cannot be; see `VectorReconstructor`."""
    for width in hidden:
        validate.integer(**{"every entry of hidden": width})
    if has_products and not hidden:
        raise ValueError(f"hidden must hold a layer for has_products, got {hidden}")
    if image_shape is None:
        if not hidden:
            raise ValueError(f"hidden must hold a layer without image_shape, got {hidden}")
        return
    if len(image_shape) != 3 or any(side < 1 or side % 2**UPSAMPLINGS for side in image_shape[:2]):
        raise ValueError(f"image_shape must be (height, width, channels), sides divisible by 4, got {image_shape}")
    validate.integer(**{"channels of image_shape": image_shape[2]})
    if len(channels) != UPSAMPLINGS:
        raise ValueError(f"channels must be {UPSAMPLINGS} numbers, got {channels}")
    for width in channels:
        validate.integer(**{"every entry of channels": width})


def _dense(n_in: int, n_out: int, rngs: nnx.Rngs) -> nnx.Linear:
    # Haiku's default, which the authors use: normal, cut at two, scaled by 1 / sqrt(n_in), biases 0.
    def normal(key: Array, shape: tuple[int, ...], dtype: object, out_sharding: object = None) -> jax.Array:
        del dtype, out_sharding
        return jax.random.truncated_normal(key, -2, 2, shape, jax.numpy.float32) / math.sqrt(n_in)

    return nnx.Linear(n_in, n_out, kernel_init=normal, rngs=rngs)
