"""Transposed convolution, as one matrix product and an overlap-add where XLA's own is slow."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array, lax

from drjax.core import validate

METHODS = ("gemm", "xla")


def conv_transpose(
    x: Array, kernel: Array, *, stride: int = 1, padding: int = 0, method: str | None = None
) -> jax.Array:
    """Transposed convolution of a batch of square-kernel images, with PyTorch's geometry.

    kernel[a, c] carries x[:, i, j] to the output pixel (stride i + a - padding, stride j + c - padding).

    Args:
        x: (b, height, width, c_in).
        kernel: (size, size, c_in, c_out): PyTorch's `ConvTranspose2d.weight` with its axes as (2, 3, 0, 1).
        stride: Distance in the output between the images of neighbouring pixels, >= 1.
        padding: Pixels cut from every side of the full output, >= 0.
        method: "gemm", "xla", or None: "gemm" on a CPU, whose XLA has no fast kernel for the dilated convolution or
            its gradients, and "xla" elsewhere. Static.

    Returns:
        (b, (height - 1) stride + size - 2 padding, the same of width, c_out).

    Raises:
        ValueError: When traced, if the shapes do not fit, nothing is left of the output, or an option is unknown.
    """
    validate.integer(stride=stride)
    validate.integer(minimum=0, padding=padding)
    method = method or ("gemm" if jax.default_backend() == "cpu" else "xla")
    validate.one_of(METHODS, method=method)
    if kernel.ndim != 4 or kernel.shape[0] != kernel.shape[1]:
        raise ValueError(f"kernel must have shape (size, size, c_in, c_out), got {kernel.shape}")
    if x.ndim != 4 or x.shape[3] != kernel.shape[2]:
        raise ValueError(f"x must have shape (b, height, width, {kernel.shape[2]}), got {x.shape}")
    height, width = (output_size(s, kernel.shape[0], stride, padding) for s in x.shape[1:3])
    if min(height, width) < 1:
        raise ValueError(f"padding must leave an output, got {padding} for x {x.shape} and kernel {kernel.shape}")
    if method == "xla":
        return _by_dilation(x, kernel, stride, padding)
    return _by_overlap_add(x, kernel, stride)[:, padding : padding + height, padding : padding + width]


def output_size(size: int, kernel_size: int, stride: int, padding: int) -> int:
    """Pixels along one axis after a transposed convolution of `size` pixels."""
    return (size - 1) * stride + kernel_size - 2 * padding


def _by_dilation(x: Array, kernel: Array, stride: int, padding: int) -> jax.Array:
    # A padding beyond size - 1 gives negative lax padding, which crops: what PyTorch does too.
    edge = kernel.shape[0] - 1 - padding
    return lax.conv_general_dilated(
        x,
        kernel[::-1, ::-1],
        window_strides=(1, 1),
        padding=[(edge, edge)] * 2,
        lhs_dilation=(stride, stride),
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )


def _by_overlap_add(x: Array, kernel: Array, stride: int) -> jax.Array:
    """The uncropped output, at least (height - 1) stride + size pixels high, zero beyond that."""
    b, height, width, c_in = x.shape
    size, _, _, c_out = kernel.shape
    n_shifts = math.ceil(size / stride)
    spare = n_shifts * stride - size
    kernel = jnp.pad(kernel, [(0, spare), (0, spare), (0, 0), (0, 0)])
    stamps = x.reshape(-1, c_in) @ kernel.transpose(2, 0, 1, 3).reshape(c_in, -1)
    # Tap a = stride q + r lands on row stride (i + q) + r: q only shifts whole blocks, so that the sum over
    # overlapping stamps is n_shifts^2 padded blocks, whose gradient is slices and no scatter.
    stamps = stamps.reshape(b, height, width, n_shifts, stride, n_shifts, stride, c_out)
    stamps = stamps.transpose(0, 1, 4, 2, 6, 3, 5, 7)
    last = n_shifts - 1
    blocks = [
        jnp.pad(stamps[..., q, p, :], [(0, 0), (q, last - q), (0, 0), (p, last - p), (0, 0), (0, 0)])
        for q in range(n_shifts)
        for p in range(n_shifts)
    ]
    return sum(blocks[1:], blocks[0]).reshape(b, (height + last) * stride, (width + last) * stride, c_out)


class ConvTranspose(nnx.Module):
    """A bias-free transposed convolution on (b, height, width, c_in), initialised as PyTorch does.

    Attributes:
        kernel: (size, size, c_in, c_out), uniform in +-1 / sqrt(c_out size^2).
        stride: Stride, see `conv_transpose`.
        padding: Padding, see `conv_transpose`.
        method: Method, see `conv_transpose`.
    """

    def __init__(
        self,
        c_in: int,
        c_out: int,
        *,
        size: int,
        stride: int,
        padding: int,
        rngs: nnx.Rngs,
        method: str | None = None,
    ) -> None:
        bound = 1 / math.sqrt(c_out * size**2)
        self.kernel = nnx.Param(
            jax.random.uniform(rngs.params(), (size, size, c_in, c_out), jnp.float32, -bound, bound)
        )
        self.stride, self.padding, self.method = stride, padding, method

    def __call__(self, x: Array) -> jax.Array:
        """(b, height, width, c_in) to (b, height', width', c_out); see `conv_transpose` for the sizes."""
        return conv_transpose(x, self.kernel[...], stride=self.stride, padding=self.padding, method=self.method)
