"""Transposed convolutions against lax, and against PyTorch's definition written out as loops."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax import lax

from drjax.nets.conv import ConvTranspose, conv_transpose, output_size

GEOMETRIES = [(4, 2, 1), (4, 1, 0), (4, 2, 0), (1, 1, 2), (3, 2, 1), (5, 3, 2), (2, 3, 0)]
"""(size, stride, padding): the reconstructors' four, and overlaps that the stride does not divide, or gaps."""


def draw(size, height=5, width=6, c_in=3, c_out=2):
    x_key, kernel_key = jax.random.split(jax.random.key(0))
    x = jax.random.normal(x_key, (2, height, width, c_in))
    return x, jax.random.normal(kernel_key, (size, size, c_in, c_out))


def stamped(x, kernel, stride, padding):
    """PyTorch's ConvTranspose2d: every pixel adds its multiple of the kernel; then the borders are cut."""
    x, kernel = np.asarray(x, np.float64), np.asarray(kernel, np.float64)
    b, height, width, _ = x.shape
    size = kernel.shape[0]
    full = np.zeros((b, (height - 1) * stride + size, (width - 1) * stride + size, kernel.shape[3]))
    for i in range(height):
        for j in range(width):
            stamp = np.einsum("bc,uvco->buvo", x[:, i, j], kernel)
            full[:, i * stride : i * stride + size, j * stride : j * stride + size] += stamp
    return full[:, padding : full.shape[1] - padding, padding : full.shape[2] - padding]


@pytest.mark.parametrize("method", ["gemm", "xla"])
@pytest.mark.parametrize(("size", "stride", "padding"), GEOMETRIES)
def test_values_follow_the_definition(size, stride, padding, method):
    x, kernel = draw(size)
    y = jax.jit(partial(conv_transpose, stride=stride, padding=padding, method=method))(x, kernel)
    expected = stamped(x, kernel, stride, padding)
    assert y.shape == expected.shape
    assert y.shape[1] == output_size(x.shape[1], size, stride, padding)
    np.testing.assert_allclose(y, expected, atol=2e-5)  # float32 sums of up to 75 products


@pytest.mark.parametrize(("size", "stride", "padding"), GEOMETRIES)
def test_gradients_of_both_methods_agree(size, stride, padding):
    x, kernel = draw(size)

    def loss(x, kernel, method):
        return jnp.sum(jnp.sin(conv_transpose(x, kernel, stride=stride, padding=padding, method=method)))

    gradients = jax.jit(jax.grad(loss, (0, 1)), static_argnums=2)
    by_gemm, by_xla = (gradients(x, kernel, method) for method in ("gemm", "xla"))
    for a, b in zip(by_gemm, by_xla, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)  # float32 sums over some hundred output pixels


def test_full_output_equals_lax_conv_transpose():
    x, kernel = draw(4)
    # lax correlates unless told otherwise, hence the flip.
    expected = lax.conv_transpose(x, kernel[::-1, ::-1], (2, 2), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    np.testing.assert_allclose(conv_transpose(x, kernel, stride=2, method="gemm"), expected, atol=2e-5)  # float32


def test_gradient_of_the_matrix_product_form_has_no_scatter_and_no_convolution():
    x, kernel = draw(4)
    gradient = jax.grad(lambda x, k: jnp.sum(conv_transpose(x, k, stride=2, padding=1, method="gemm") ** 2), (0, 1))
    program = str(jax.make_jaxpr(gradient)(x, kernel))
    assert "scatter" not in program
    assert "conv_general_dilated" not in program
    assert program.count("dot_general") == 3  # forward, and one for each gradient


def test_layer_is_bias_free_and_drawn_uniformly_within_pytorchs_bound():
    layer = ConvTranspose(8, 16, size=4, stride=2, padding=1, rngs=nnx.Rngs(params=0))
    (kernel,) = jax.tree.leaves(nnx.state(layer, nnx.Param))
    assert kernel.shape == (4, 4, 8, 16)
    bound = 1 / 16  # 1 / sqrt(16 channels times 16 taps)
    assert 0.99 * bound < float(jnp.abs(kernel).max()) <= bound
    np.testing.assert_allclose(jnp.std(kernel), bound / np.sqrt(3), rtol=0.05)  # 2048 draws
    assert layer(jnp.ones((2, 4, 4, 8))).shape == (2, 8, 8, 16)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stride": 0}, "stride"),
        ({"padding": -1}, "padding"),
        ({"method": "fft"}, "method"),
        ({"padding": 9}, "padding must leave an output"),
    ],
)
def test_bad_options_raise_and_name_the_argument(options, message):
    x, kernel = draw(3)
    with pytest.raises(ValueError, match=message):
        conv_transpose(x, kernel, **options)


def test_shapes_that_do_not_fit_raise():
    x, kernel = draw(3)
    with pytest.raises(ValueError, match="x must have shape"):
        conv_transpose(x[..., :2], kernel)
    with pytest.raises(ValueError, match="kernel must have shape"):
        conv_transpose(x, kernel[:2])


@pytest.mark.usefixtures("all_platforms")
def test_both_methods_lower_for_tpu():
    x, kernel = draw(4)
    for method in ("gemm", "xla"):
        run = jax.jit(lambda x, k, method=method: conv_transpose(x, k, stride=2, padding=1, method=method))
        assert jax.export.export(run, platforms=["tpu"])(x, kernel).platforms == ("tpu",)
