"""The networks of the papers: sizes, shapes and modes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from drjax.nets.reconstructors import ARCHITECTURES, Architecture, Reconstructor, Up, build, resolve

SMALL = Architecture(
    split=True,
    output=jax.nn.relu,
    convolutions=(Up(6, 2, 1, 0), Up(4, 4, 2, 1, dropout=0.2), Up(1, 1, 1, 1)),
)


def abstract(name, d, n=10, k=2):
    return nnx.eval_shape(lambda: build(name, rngs=nnx.Rngs(params=0), n=n, k=k, record_shape=(d,)))


def n_parameters(model):
    return sum(leaf.size for leaf in jax.tree.leaves(nnx.state(model, nnx.Param)))


def output_of(model, releases, key):
    return jax.eval_shape(lambda x, key: model(x, key), releases, key)


@pytest.mark.parametrize(
    ("name", "d"), [("mnist28", 784), ("xray64_table5", 4096), ("xray64_code", 4096), ("flat", 30), ("bch22", 784)]
)
@pytest.mark.parametrize("k", [2, 3])
def test_every_architecture_makes_records_of_its_size(name, d, k):
    model = abstract(name, d, n=7, k=k)
    model.eval()
    graph, state = nnx.split(model)
    out = jax.eval_shape(lambda s, x: nnx.merge(graph, s)(x), state, jax.ShapeDtypeStruct((3, 7, k), jnp.float32))
    assert out.shape == (3, d)
    assert out.dtype == jnp.float32


def test_mnist_network_has_the_papers_parameters():
    convolutions = 16 * (80 * 512 + 512 * 256 + 256 * 128 + 128 * 64) + 64
    batch_norms = 2 * (512 + 256 + 128 + 64)
    encoder = (2 * 16 + 16) + (18 * 64 + 64)
    assert n_parameters(abstract("mnist28", 784)) == convolutions + batch_norms + encoder == 3_411_120


def test_dense_network_has_two_hidden_layers_of_1000():
    assert n_parameters(abstract("bch22", 784)) == (20 * 1000 + 1000) + (1000 * 1000 + 1000) + (1000 * 784 + 784)


@pytest.mark.parametrize(("name", "d"), [("mnist28", 784), ("xray64_code", 4096)])
def test_a_linear_output_starts_small_and_can_be_negative(name, d):
    releases = np.random.default_rng(0).normal(size=(4, 10, 2)).astype(np.float32)

    def first_output(linear_output):
        rngs = nnx.Rngs(params=0)
        model = build(name, rngs=rngs, n=10, k=2, record_shape=(d,), linear_output=linear_output)
        return model(releases, jax.random.key(0))

    linear, published = (jax.jit(first_output, static_argnums=0)(is_linear) for is_linear in (True, False))
    assert (published >= 0).all()
    assert linear.min() < -0.05
    assert 0.2 < jnp.std(linear) < 1 < jnp.std(published)  # inputs of the last layer have variance 1 before their ReLU


def test_auto_picks_the_papers_decoder_by_record_size_and_flat_otherwise():
    assert resolve("auto", (28, 28)) == resolve("auto", (784,)) == "mnist28"
    assert resolve("auto", (64, 64)) == "xray64_table5"
    assert resolve("auto", (8, 8)) == resolve("auto", (32, 32, 3)) == resolve("auto", (14,)) == "flat"


def test_bad_arguments_raise_and_name_the_argument():
    with pytest.raises(ValueError, match="architecture must be one of"):
        resolve("unet", (28, 28))
    with pytest.raises(ValueError, match=r"'mnist28' must be given records of 784 entries, got shape \(8, 8\)"):
        resolve("mnist28", (8, 8))
    with pytest.raises(ValueError, match="n must be an integer >= 2"):
        build("flat", rngs=nnx.Rngs(params=0), n=1, k=2, record_shape=(3,))


def test_split_encoder_sees_the_targets_row_in_16_of_80_units():
    model = build("flat", rngs=nnx.Rngs(params=0), n=5, k=2, record_shape=(4,))
    base = jnp.zeros((1, 5, 2))
    code = model.encoder(base)
    moved_target = model.encoder(base.at[0, 0].add(1.0)) != code
    moved_known = model.encoder(base.at[0, 3].add(1.0)) != code
    assert moved_target[0, :16].all()
    assert not moved_target[0, 16:].any()
    assert moved_known[0, 16:].all()
    assert not moved_known[0, :16].any()


def test_batch_norm_uses_running_statistics_in_evaluation_only():
    model = Reconstructor(SMALL, 4, 2, 4, rngs=nnx.Rngs(params=0))
    x = jax.random.normal(jax.random.key(1), (3, 4, 2))
    model.eval()
    before, alone = model(x), model(x[:1])
    # In evaluation a record's output does not depend on its batch.
    np.testing.assert_allclose(alone, before[:1], atol=1e-6)  # float32, other GEMM shapes
    model.train()
    in_training = model(x)
    assert not np.allclose(in_training, before, atol=1e-3)
    mean = model.decoder.norms[0].mean[...]
    assert float(jnp.abs(mean).max()) > 0  # was 0 before the call in training mode
    model.eval()
    assert not np.allclose(model(x), before, atol=1e-6)


def test_dropout_follows_its_key_and_is_off_in_evaluation():
    assert ARCHITECTURES["xray64_table5"].convolutions[1].dropout == 0.2
    model = Reconstructor(SMALL, 3, 2, 4, rngs=nnx.Rngs(params=0))
    x = jax.random.normal(jax.random.key(2), (8, 3, 2))
    model.train()
    first, again, other = (np.asarray(model(x, jax.random.key(seed))) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.allclose(first, other)
    model.eval()
    np.testing.assert_array_equal(model(x, jax.random.key(0)), model(x, jax.random.key(1)))
