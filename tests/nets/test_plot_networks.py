"""Densely connected networks: sizes, operations, turns, and published weights under torchvision's names."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
from flax import nnx

from drjax.nets.densenet_files import pretrained_maker, read_densenet
from drjax.nets.plot_networks import (
    CONFIGS,
    PlotNetwork,
    PlotNetworkConfig,
    flops,
    maker,
    turned,
    turned_back_by,
    turned_by,
)
from drjax.nets.training import TrainConfig, predict, train

TINY = PlotNetworkConfig(size=32, blocks=(2, 2), growth=4, stem=8, stem_size=3)


def torchvision_shapes(blocks, growth, stem, kernel=7, classes=1000, bottleneck=4):
    """Names and shapes of `torchvision.models.DenseNet(growth, blocks, stem).state_dict()`, written down apart."""

    def norm(name, width):
        return {f"{name}.{leaf}": (width,) for leaf in ("weight", "bias", "running_mean", "running_var")} | {
            f"{name}.num_batches_tracked": ()
        }

    shapes = {"features.conv0.weight": (stem, 3, kernel, kernel)} | norm("features.norm0", stem)
    width = stem
    for b, layers in enumerate(blocks, 1):
        for i in range(1, layers + 1):
            prefix = f"features.denseblock{b}.denselayer{i}"
            shapes |= norm(f"{prefix}.norm1", width)
            shapes[f"{prefix}.conv1.weight"] = (bottleneck * growth, width, 1, 1)
            shapes |= norm(f"{prefix}.norm2", bottleneck * growth)
            shapes[f"{prefix}.conv2.weight"] = (growth, bottleneck * growth, 3, 3)
            width += growth
        if b < len(blocks):
            shapes |= norm(f"features.transition{b}.norm", width)
            shapes[f"features.transition{b}.conv.weight"] = (width // 2, width, 1, 1)
            width //= 2
    shapes |= norm("features.norm5", width)
    return shapes | {"classifier.weight": (classes, width), "classifier.bias": (classes,)}


def published(shapes):
    rng = np.random.default_rng(0)

    def draw(name, shape):
        if name.endswith("num_batches_tracked"):
            return np.array(7, np.int64)
        if name.endswith("running_var"):
            return rng.uniform(0.5, 1.5, shape).astype(np.float32)
        fan = np.prod(shape[1:]) if len(shape) > 1 else 4
        return (rng.normal(size=shape) / np.sqrt(fan)).astype(np.float32)

    return {name: draw(name, shape) for name, shape in shapes.items()}


def by_torchs_rules(arrays, config, pictures):
    """The forward pass in channels first, as torchvision's code does it, with XLA's convolutions."""

    def conv(x, name, stride=1, pad=0):
        return jax.lax.conv_general_dilated(x, arrays[f"{name}.weight"], (stride, stride), [(pad, pad)] * 2)

    def norm(x, name):
        mean, var, scale, bias = (
            arrays[f"{name}.{leaf}"][:, None, None] for leaf in ("running_mean", "running_var", "weight", "bias")
        )
        return jax.nn.relu((x - mean) / np.sqrt(var + 1e-5) * scale + bias)

    mean, std = (np.float32(v)[:, None, None] for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    x = (np.repeat(pictures[:, None], 3, axis=1) / 255 - mean) / std
    x = norm(conv(x, "features.conv0", 2, config.stem_size // 2), "features.norm0")
    x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, 3, 3), (1, 1, 2, 2), [(0, 0), (0, 0), (1, 1), (1, 1)])
    for b, layers in enumerate(config.blocks, 1):
        for i in range(1, layers + 1):
            prefix = f"features.denseblock{b}.denselayer{i}"
            inner = norm(conv(norm(x, f"{prefix}.norm1"), f"{prefix}.conv1"), f"{prefix}.norm2")
            x = jnp.concatenate([x, conv(inner, f"{prefix}.conv2", 1, 1)], axis=1)
        if b < len(config.blocks):
            x = conv(norm(x, f"features.transition{b}.norm"), f"features.transition{b}.conv")
            x = jax.lax.reduce_window(x, 0.0, jax.lax.add, (1, 1, 2, 2), (1, 1, 2, 2), "VALID") / 4
    x = norm(x, "features.norm5").mean(axis=(2, 3))
    return x @ arrays["classifier.weight"].T + arrays["classifier.bias"]


def test_the_network_for_two_cores_stays_within_50_mflop():
    assert CONFIGS["cpu"].size == 75
    assert flops(CONFIGS["cpu"], 5) <= 50e6


def test_counted_operations_are_those_that_xla_counts():
    network = nnx.eval_shape(lambda: PlotNetwork(TINY, "regression", 1, rngs=nnx.Rngs(params=0)))
    network.eval()
    graph, state = nnx.split(network)
    lowered = jax.jit(lambda state, x: nnx.merge(graph, state)(x)).lower(state, jnp.zeros((1, 32, 32)))
    counted = lowered.compile().cost_analysis()["flops"]
    # XLA counts norms, activations and poolings too.
    assert flops(TINY) < counted < 1.5 * flops(TINY)


def test_densenet_121_is_torchvisions():
    config = CONFIGS["densenet121"]
    network = nnx.eval_shape(lambda: PlotNetwork(config, "classification", 1000, rngs=nnx.Rngs(params=0)))
    assert sum(np.prod(leaf.shape) for leaf in jax.tree.leaves(nnx.state(network, nnx.Param))) == 7_978_856
    ours = dataclasses.replace(config, size=224)
    # 2.83 billion multiplications are what the literature counts; means before a transition's convolution save some.
    assert 0.9 < flops(ours, 1000) / (2 * 2.83e9) < 1


@pytest.mark.parametrize("old", [False, True], ids=["new names", "old names"])
def test_reads_published_weights_and_computes_what_torch_does(tmp_path, old):
    config = dataclasses.replace(TINY, repeat=3, size=33, stem_size=7)
    arrays = published(torchvision_shapes((2, 2), 4, 8))
    names = {name: name.replace("norm1", "norm.1").replace("conv2", "conv.2") if old else name for name in arrays}
    safetensors.numpy.save_file({names[name]: array for name, array in arrays.items()}, tmp_path / "net.safetensors")
    read = read_densenet(tmp_path / "net.safetensors", config)
    network = pretrained_maker(read, config, "classification", 1000)(nnx.Rngs(params=0))
    network.eval()
    pictures = np.random.default_rng(1).integers(256, size=(3, 33, 33)).astype(np.float32)
    expected = jax.jit(lambda pictures: by_torchs_rules(arrays, config, pictures))(pictures)
    found = nnx.jit(lambda network, pictures: network.logits(network.feature_maps(pictures)))(network, pictures)
    np.testing.assert_allclose(found, expected, atol=1e-4)  # float32 sums


def test_another_number_of_outputs_gets_a_fresh_head(tmp_path):
    config = dataclasses.replace(TINY, repeat=3, stem_size=7)
    arrays = published(torchvision_shapes((2, 2), 4, 8))
    safetensors.numpy.save_file(arrays, tmp_path / "net.safetensors")
    make = pretrained_maker(read_densenet(tmp_path / "net.safetensors", config), config, "classification", 5)
    networks = [make(nnx.Rngs(params=seed)) for seed in (0, 1)]
    assert networks[0].classifier.kernel.shape[1] == 5
    assert np.any(networks[0].classifier.kernel[...] != networks[1].classifier.kernel[...])
    np.testing.assert_array_equal(networks[0].conv0.kernel[...], networks[1].conv0.kernel[...])


def test_densenet_121s_names_are_torchvisions(tmp_path):
    config = CONFIGS["densenet121"]
    shapes = torchvision_shapes(config.blocks, config.growth, config.stem)
    assert len(shapes) == 727
    arrays = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    safetensors.numpy.save_file(arrays, tmp_path / "net.safetensors")
    assert len(read_densenet(tmp_path / "net.safetensors", config)) == 727 - 121


def test_files_of_other_networks_are_refused(tmp_path):
    path = tmp_path / "net.safetensors"
    config = dataclasses.replace(TINY, repeat=3, stem_size=7)
    arrays = published(torchvision_shapes((2, 2), 4, 8))
    first = "features.conv0.weight"
    cases = [
        ({k: v for k, v in arrays.items() if k != first}, f"{first} is not among them"),
        (arrays | {"features.extra": arrays[first]}, "has features.extra too"),
        (arrays | {first: arrays[first][:, :1]}, "must have shape"),
        (arrays | {first: np.full_like(arrays[first], np.nan)}, "finite"),
    ]
    for changed, message in cases:
        safetensors.numpy.save_file({k: np.ascontiguousarray(v) for k, v in changed.items()}, path)
        with pytest.raises(ValueError, match=message):
            read_densenet(path, config)
    path.write_bytes(b"damaged")
    with pytest.raises(ValueError, match="must be a safetensors file"):
        read_densenet(path, config)
    with pytest.raises(FileNotFoundError):
        read_densenet(tmp_path / "none.safetensors", config)


def test_turns_are_the_eight_of_the_square_alike():
    square = jnp.arange(9.0).reshape(1, 3, 3, 1)
    found = np.asarray(turned(jax.random.key(0), jnp.repeat(square, 4000, axis=0)))[..., 0]
    seen, counts = np.unique(found.reshape(4000, 9), axis=0, return_counts=True)
    plain = np.asarray(square)[0, ..., 0]
    expected = [np.rot90(side, k).ravel() for side in (plain, plain.T) for k in range(4)]
    np.testing.assert_array_equal(seen, np.unique(expected, axis=0))
    assert (np.abs(counts - 500) < 5 * np.sqrt(500 * 7 / 8)).all()  # five standard deviations


def test_numbered_turns_are_the_eight_and_can_be_undone():
    pictures = np.random.default_rng(0).integers(256, size=(2, 4, 4, 3))
    found = [turned_by(how, pictures) for how in range(8)]
    expected = [np.rot90(side, k, (1, 2)) for side in (pictures, pictures.swapaxes(1, 2)) for k in range(4)]
    assert {one.tobytes() for one in found} == {one.tobytes() for one in expected}
    for how, one in enumerate(found):
        np.testing.assert_array_equal(turned_back_by(how, one), pictures)


def test_turns_are_for_training_alone():
    network = PlotNetwork(TINY, "regression", 1, rngs=nnx.Rngs(params=0))
    picture = np.tile(np.linspace(0, 255, 32), (1, 32, 1))
    network.eval()
    answer = nnx.jit(lambda network, key: network(picture, key)[0, 0])
    still = [float(answer(network, jax.random.key(seed))) for seed in range(4)]
    assert len(set(still)) == 1
    network.train()
    assert len({float(answer(network, jax.random.key(seed))) for seed in range(8)}) > 1


def test_one_of_the_drawings_of_a_map_is_seen_in_training_and_the_first_in_use():
    config = dataclasses.replace(TINY, turns=False)
    network = PlotNetwork(config, "regression", 1, rngs=nnx.Rngs(params=0))
    drawings = np.random.default_rng(0).integers(256, size=(64, 4, 32, 32))
    key = jax.random.key(0)
    stem = network.conv0
    seen = []
    network.conv0 = lambda x, stride: seen.append(np.asarray(x)) or stem(x, stride)
    network(drawings, key)
    network.eval()
    network(drawings, key)
    trained, used = (np.round(255 * (1 - x[..., 0])) for x in seen)
    which = np.array([[np.array_equal(trained[i], drawings[i, v]) for v in range(4)] for i in range(64)])
    assert (which.sum(axis=1) == 1).all()
    assert (np.abs(which.sum(axis=0) - 16) < 5 * np.sqrt(64 * 3 / 16)).all()  # five standard deviations
    np.testing.assert_array_equal(used, drawings[:, 0])


def test_bfloat16_is_float32_up_to_its_digits_and_keeps_float32_where_it_counts():
    pictures = np.random.default_rng(0).integers(256, size=(16, 32, 32))
    found = {}
    for dtype in ("float32", "bfloat16"):
        network = PlotNetwork(dataclasses.replace(TINY, dtype=dtype), "regression", 2, rngs=nnx.Rngs(params=0))
        answer = nnx.jit(lambda network: network(pictures))
        trained = answer(network)
        network.eval()
        found[dtype] = trained, answer(network), nnx.state(network)
        traced = str(jax.make_jaxpr(lambda x, n=network: n.feature_maps(x))(pictures))
        assert ("bf16" in traced) == (dtype == "bfloat16")
        assert {leaf.dtype.name for leaf in jax.tree.leaves(found[dtype][2])} == {"float32"}
        assert trained.dtype == jnp.float32
    for half, full in zip(found["bfloat16"][:2], found["float32"][:2], strict=True):
        assert 0 < np.abs(half - full).max() < 0.03  # eight bits, a dozen layers
    for half, full in zip(*(jax.tree.leaves(found[d][2]) for d in ("bfloat16", "float32")), strict=True):
        np.testing.assert_allclose(half, full, rtol=0.05, atol=0.01)


def test_outputs_are_probabilities_or_shares():
    pictures = np.random.default_rng(0).integers(256, size=(3, 32, 32, 3))
    config = dataclasses.replace(TINY, channels=3)
    network = PlotNetwork(config, "classification", 5, rngs=nnx.Rngs(params=0))
    np.testing.assert_allclose(network(pictures).sum(axis=1), 1, atol=1e-5)
    shares = PlotNetwork(config, "regression", 2, rngs=nnx.Rngs(params=0))(pictures)
    assert shares.shape == (3, 2)
    assert ((shares > 0) & (shares < 1)).all()


def test_learns_the_number_of_dark_pixels_in_the_one_training_loop():
    rng = np.random.default_rng(0)
    share = rng.uniform(size=(160, 1))
    pictures = np.where(rng.uniform(size=(160, 32, 32)) < share[:, :, None], 0, 255)
    config = TrainConfig(epochs=12, batch_size=16, learning_rate=1e-2, patience=12, l1_weight=0, drop_last=True)
    make = maker(TINY, "regression", 1)
    keys = jax.random.split(jax.random.key(0), 1)
    state, _ = train(keys, make, pictures[:120], share[:120], config, validation=(pictures[120:], share[120:]))
    error = np.abs(predict(make, state, pictures[120:])[0] - share[120:]).mean()
    assert error < 0.05


@pytest.mark.parametrize(
    "change",
    [
        {"size": 7},
        {"channels": 2},
        {"blocks": ()},
        {"blocks": (2, 0)},
        {"growth": 0},
        {"stem": 0},
        {"stem_size": 4},
        {"repeat": 2},
        {"dtype": "float16"},
        {"repeat": 3, "channels": 3},
    ],
)
def test_bad_configurations_raise(change):
    with pytest.raises(ValueError, match=next(iter(change))):
        dataclasses.replace(TINY, **change)
