"""Features of pictures, against scikit-learn and networks taken apart by hand."""

import sys
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from drjax.nets.extractor_adapters import BATCH, IMAGENET_MEAN, IMAGENET_STD, Input, from_nnx, from_onnx
from drjax.nets.extractors import ConvConfig, ConvFeatures, Extractor, PCAFeatures, Pixels, train_features

IMAGES = (load_digits().images / 16).astype(np.float32)
LABELS = load_digits().target
KEY = jax.random.key(0)
CONFIG = ConvConfig(widths=(8, 8, 16), epochs=12, batch_size=32, embedding=24)


@pytest.fixture(scope="module")
def network():
    return train_features(KEY, IMAGES[:1200], LABELS[:1200], n_classes=10, config=CONFIG)


def test_pixels_are_the_pixels():
    np.testing.assert_array_equal(Pixels().features(IMAGES[:5]), IMAGES[:5].reshape(5, -1))
    colour = np.stack([IMAGES[:5]] * 3, axis=-1)
    assert Pixels().features(colour).shape == (5, 192)


def test_principal_components_equal_scikit_learns_up_to_sign():
    ours = PCAFeatures.fit(IMAGES[:300], 5).features(IMAGES[300:])
    theirs = PCA(n_components=5).fit(IMAGES[:300].reshape(300, -1)).transform(IMAGES[300:].reshape(-1, 64))
    signs = np.sign(np.sum(ours * theirs, axis=0))
    np.testing.assert_allclose(ours * signs, theirs, atol=1e-4)  # float32 scores of size 3


def test_a_network_learns_its_task_and_shows_its_second_to_last_layer(network):
    # Chance is 0.1.
    assert network.held_out_accuracy > 0.85
    assert network.accuracy(IMAGES[1200:], LABELS[1200:]) > 0.8
    features = network.features(IMAGES[:10])
    assert features.shape == (10, 24)
    assert features.dtype == np.float32
    # The logits are the last layer's function of the features, and of nothing else.
    last = jax.tree.map(lambda leaf: np.asarray(leaf[0]), network.state[0]["last"])
    logits = features @ last["kernel"][...] + last["bias"][...]
    expected = network._run(IMAGES[:10], shows_embedding=False)
    np.testing.assert_allclose(logits, expected, atol=1e-4)  # float32 sums of 24 terms of size 1


def test_features_of_a_picture_do_not_depend_on_its_company(network):
    # Running statistics, not those of the batch.
    np.testing.assert_allclose(network.features(IMAGES[:300])[7], network.features(IMAGES[7:8])[0], atol=1e-5)


def test_fine_tuning_begins_with_the_other_networks_weights(network):
    still = ConvConfig(widths=CONFIG.widths, embedding=24, epochs=1, batch_size=32, learning_rate=1e-30)
    parity = LABELS % 2
    kept = train_features(KEY, IMAGES[:64], parity[:64], n_classes=2, config=still, start=network)
    before = jax.tree.map(np.asarray, network.state[0])
    after = jax.tree.map(np.asarray, kept.state[0])
    for name in ("kernels", "dense"):
        jax.tree.map(np.testing.assert_array_equal, before[name], after[name])
    assert after["last"]["kernel"][...].shape == (1, 24, 2)
    tuned = train_features(KEY, IMAGES[:600], parity[:600], n_classes=2, start=network)
    assert tuned.config == CONFIG
    assert tuned.accuracy(IMAGES[1200:], parity[1200:]) > 0.85


def test_saved_extractors_come_back(network, tmp_path):
    network.save(tmp_path / "net.npz")
    loaded = ConvFeatures.load(tmp_path / "net.npz")
    np.testing.assert_array_equal(loaded.features(IMAGES[:9]), network.features(IMAGES[:9]))
    assert loaded.held_out_accuracy == network.held_out_accuracy
    fitted = PCAFeatures.fit(IMAGES, 3)
    fitted.save(tmp_path / "pca.npz")
    np.testing.assert_array_equal(PCAFeatures.load(tmp_path / "pca.npz").features(IMAGES), fitted.features(IMAGES))
    for kind, file in ((ConvFeatures, "pca.npz"), (PCAFeatures, "net.npz")):
        with pytest.raises(ValueError, match=f"must be a saved {kind.__name__}"):
            kind.load(tmp_path / file)


def test_all_extractors_follow_the_protocol(network):
    fitted = PCAFeatures.fit(IMAGES, 3)
    for extractor in (Pixels(), fitted, network, from_nnx(Net(nnx.Rngs(0)))):
        assert isinstance(extractor, Extractor)
        found = extractor.features(IMAGES[:3])
        assert found.dtype == np.float32
        assert found.shape[0] == 3
        with pytest.raises(ValueError, match=r"images must be in \[0, 1\]"):
            extractor.features(16 * IMAGES[:3])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": LABELS[:64] + 5}, r"labels must be 64 integers in \[0, 10\)"),
        ({"images": IMAGES[:64, 0]}, "images must be numbers of shape"),
        ({"config": ConvConfig(widths=(1, 1, 1), embedding=1, batch_size=100)}, "batch_size must be <= the 57 images"),
        ({"key": 0}, "key must be a single key"),
    ],
)
def test_bad_training_data_is_refused(changes, message):
    arguments = {"key": KEY, "images": IMAGES[:64], "labels": LABELS[:64], "n_classes": 10}
    with pytest.raises(ValueError, match=message):
        train_features(**arguments | changes)


def test_a_start_of_another_architecture_is_refused(network):
    with pytest.raises(ValueError, match="start must have the architecture"):
        train_features(KEY, IMAGES[:64], LABELS[:64], n_classes=10, config=ConvConfig(embedding=3), start=network)


class Net(nnx.Module):
    def __init__(self, rngs):
        self.blocks = nnx.List([nnx.Linear(64, 8, rngs=rngs), nnx.Linear(8, 6, rngs=rngs)])
        self.norm = nnx.BatchNorm(6, rngs=rngs)
        self.unused = nnx.Linear(6, 6, rngs=rngs)
        self.head = nnx.Linear(6, 3, rngs=rngs)

    def inner(self, x):
        for block in self.blocks:
            x = nnx.relu(block(x.reshape(x.shape[0], -1)))
        return self.norm(x)

    def __call__(self, x):
        return self.head(self.inner(x))


def test_an_nnx_model_shows_any_layer_in_evaluation_mode():
    model = Net(nnx.Rngs(0))
    model.norm.mean[...] = jnp.arange(6.0)
    images = IMAGES[: BATCH + 5]
    inner, outer = from_nnx(model, layer="norm"), from_nnx(model)
    second = from_nnx(model, layer="blocks.1").features(images)
    model.eval()
    np.testing.assert_allclose(inner.features(images), model.inner(images), atol=1e-5)
    np.testing.assert_allclose(outer.features(images), model(images), atol=1e-5)
    np.testing.assert_allclose(model.norm(nnx.relu(second)), model.inner(images), atol=1e-5)
    # The extractor has a copy of the weights.
    model.head.bias[...] = 100.0
    assert outer.features(images).max() < 50


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        ("tail", "there is no 'tail'"),
        ("blocks.2", "there is no '2'"),
        ("blocks", "a submodule that is called"),
        ("unused", "must be called once for each pass of the model, got 0 calls"),
    ],
)
def test_a_layer_that_says_nothing_is_refused(layer, message):
    with pytest.raises(ValueError, match=message):
        from_nnx(Net(nnx.Rngs(0)), layer=layer).features(IMAGES[:2])


def test_pictures_are_prepared_as_pretrained_networks_want_them():
    sees = Input(size=(16, 12), channels=3, mean=IMAGENET_MEAN, std=IMAGENET_STD, channels_first=True)
    grey = np.full((2, 8, 8, 1), 0.5, np.float32)
    found = sees.prepared(grey)
    assert found.shape == (2, 3, 16, 12)
    expected = (0.5 - np.array(IMAGENET_MEAN)) / np.array(IMAGENET_STD)
    np.testing.assert_allclose(found, np.broadcast_to(expected[:, None, None], found.shape), atol=1e-6)
    colour = np.zeros((1, 4, 4, 3), np.float32)
    colour[..., 1] = 1
    np.testing.assert_allclose(Input(channels=1).prepared(colour), 0.587, atol=1e-6)
    # Shrinking averages: every second pixel white is grey.
    stripes = np.tile(np.array([0.0, 1.0], np.float32), (1, 8, 4))[..., None]
    np.testing.assert_allclose(Input(size=(4, 4)).prepared(stripes)[0, :, 1:3], 0.5, atol=0.13)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": (3,)}, r"size must be \(h, w\)"),
        ({"size": (0, 3)}, r"size\[0\] must be an integer"),
        ({"channels": 2}, "channels must be one of 1, 3"),
        ({"channels": 1, "mean": IMAGENET_MEAN}, "mean must be one number, or one for each"),
        ({"std": (0.0,)}, r"std\[0\] must be > 0"),
    ],
)
def test_a_bad_input_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Input(**options)


def onnx_network(path):
    """Two matrix products of pictures (n, 1, 8, 8), the first of them an output too."""
    onnx = pytest.importorskip("onnx")
    helper, floats = onnx.helper, onnx.TensorProto.FLOAT
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(64, 7)).astype(np.float32), rng.normal(size=(7, 2)).astype(np.float32)
    nodes = [
        helper.make_node("Flatten", ["x"], ["flat"]),
        helper.make_node("MatMul", ["flat", "a"], ["inner"]),
        helper.make_node("MatMul", ["inner", "b"], ["outer"]),
    ]
    inputs = [helper.make_tensor_value_info("x", floats, ["n", 1, 8, 8])]
    outputs = [helper.make_tensor_value_info(name, floats, ["n", k]) for name, k in (("outer", 2), ("inner", 7))]
    weights = [onnx.numpy_helper.from_array(array, name) for array, name in ((a, "a"), (b, "b"))]
    graph = helper.make_graph(nodes, "tiny", inputs, outputs, weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return a, b


def test_an_onnx_network_shows_any_of_its_outputs(tmp_path):
    pytest.importorskip("onnxruntime")
    a, b = onnx_network(tmp_path / "tiny.onnx")
    x = IMAGES[:70].reshape(70, -1)
    np.testing.assert_allclose(from_onnx(tmp_path / "tiny.onnx").features(IMAGES[:70]), x @ a @ b, atol=1e-4)
    inner = from_onnx(tmp_path / "tiny.onnx", output="inner").features(IMAGES[:70])
    np.testing.assert_allclose(inner, x @ a, atol=1e-4)
    with pytest.raises(ValueError, match="output must be one of inner, outer"):
        from_onnx(tmp_path / "tiny.onnx", output="last")
    (tmp_path / "broken.onnx").write_bytes(b"no network")
    with pytest.raises(ValueError, match="must be an ONNX network"):
        from_onnx(tmp_path / "broken.onnx")


def test_the_onnx_adapter_feeds_whole_batches_and_cuts_the_surplus(tmp_path, monkeypatch):
    # Where onnxruntime is not installed, what the adapter asks of it.
    seen = []

    class Session:
        def __init__(self, path, providers):
            assert providers == ["CPUExecutionProvider"]
            self.path = path

        def get_inputs(self):
            return [SimpleNamespace(name="x")]

        def get_outputs(self):
            return [SimpleNamespace(name="y")]

        def run(self, wanted, feeds):
            seen.append(feeds["x"].shape)
            assert wanted == ["y"]
            return [feeds["x"].sum(axis=(2, 3))]

    monkeypatch.setitem(sys.modules, "onnxruntime", SimpleNamespace(InferenceSession=Session))
    (tmp_path / "net.onnx").touch()
    found = from_onnx(tmp_path / "net.onnx").features(IMAGES[: BATCH + 3])
    np.testing.assert_allclose(found[:, 0], IMAGES[: BATCH + 3].sum(axis=(1, 2)), atol=1e-4)
    assert seen == [(BATCH, 1, 8, 8)] * 2


def test_without_onnxruntime_the_adapter_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    (tmp_path / "net.onnx").touch()
    with pytest.raises(ImportError, match="pip install onnxruntime"):
        from_onnx(tmp_path / "net.onnx")
    with pytest.raises(FileNotFoundError, match="check the path"):
        from_onnx(tmp_path / "none.onnx")
