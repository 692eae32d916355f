"""The released models: sizes, starts and outputs against arithmetic by hand, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.signal
import scipy.special
import scipy.stats

from drjax.nets.classifiers import ACTIVATIONS, ARCHITECTURES, Classifier, accuracy

CNN = Classifier(image_shape=(5, 7, 2), channels=(3, 4), hidden=(6,), n_classes=3)

IN_NUMPY = {
    "elu": lambda z: np.where(z > 0, z, np.expm1(z)),
    "relu": lambda z: np.maximum(z, 0),
    "leaky_relu": lambda z: np.where(z > 0, z, 0.01 * z),
    "selu": lambda z: 1.0507009873554805 * np.where(z > 0, z, 1.6732632423543772 * np.expm1(z)),
    "celu": lambda z: np.where(z > 0, z, np.expm1(z)),
    "gelu": lambda z: z / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (z + 0.044715 * z**3))),
    "silu": lambda z: z * scipy.special.expit(z),
    "softplus": lambda z: np.logaddexp(z, 0),
    "tanh": np.tanh,
    "sigmoid": scipy.special.expit,
    "identity": lambda z: z,
}


@pytest.mark.parametrize(
    ("name", "d", "count"),
    [
        ("mlp", 784, 7960),
        ("mlp-100", 784, 79_510),
        ("mlp-1000", 784, 795_010),
        ("logistic", 784, 7850),
        ("cnn", 3072, 54_514),
    ],
)
def test_architectures_have_the_parameters_their_papers_count(name, d, count):
    model = ARCHITECTURES[name]
    assert model.n_parameters(d) == count
    params = jax.eval_shape(lambda key: model.init(key, d), jax.random.key(0))
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == count
    assert jax.tree.map(lambda leaf: leaf.shape, params) == model.shapes(d)


@pytest.mark.parametrize(("model", "d"), [(Classifier(hidden=(300,)), 400), (CNN, 70)])
def test_starts_are_normal_cut_at_two_and_scaled_by_the_inputs(model, d):
    shapes = model.shapes(d)
    keys = jax.random.split(jax.random.key(3), 200 if model is CNN else 1)
    params = jax.vmap(lambda key: model.init(key, d))(keys)
    for layer, shape in zip(params, shapes, strict=True):
        fan_in = np.prod(shape["w"][:-1]) if len(shape["w"]) == 4 else shape["w"][1]
        entries = np.asarray(layer["w"]).ravel() * np.sqrt(fan_in)
        assert not np.asarray(layer["b"]).any()
        assert scipy.stats.kstest(entries, scipy.stats.truncnorm(-2, 2).cdf).pvalue > 1e-3


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_logits_are_those_of_the_layers_written_out(name, dtype):
    model = Classifier(hidden=(6, 5), activation=name, n_classes=4)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(9, 7)).astype(dtype)
    params = [{k: rng.normal(size=shape).astype(dtype) for k, shape in layer.items()} for layer in model.shapes(7)]
    h = x.astype(np.float64)
    for i, layer in enumerate(params):
        h = h @ layer["w"].T + layer["b"]
        h = IN_NUMPY[name](h) if i < 2 else h
    found = model.logits(params, jnp.asarray(x))
    assert found.dtype == dtype
    # The sums of three small layers, in either precision.
    np.testing.assert_allclose(found, h, rtol=0, atol=1e-5 * np.abs(h).max() if dtype == "float32" else 1e-12)


def test_convolutions_are_correlations_padded_with_zeros_and_pooled_over_whole_squares():
    with jax.enable_x64(True):
        rng = np.random.default_rng(1)
        x = rng.normal(size=(4, 70))
        params = CNN.init(jax.random.key(0), 70)
        params = jax.tree.map(lambda leaf: np.asarray(leaf) + 0.1 * rng.normal(size=leaf.shape), params)
        h = x.reshape(4, 5, 7, 2)
        for layer in params[:2]:
            w, out = layer["w"], np.zeros((*h.shape[:3], layer["b"].size))
            for image, o, i in np.ndindex(len(h), w.shape[3], w.shape[2]):
                out[image, :, :, o] += scipy.signal.correlate2d(h[image, :, :, i], w[:, :, i, o], mode="same")
            out = IN_NUMPY["elu"](out + layer["b"])
            height, width = out.shape[1] // 2, out.shape[2] // 2
            h = np.zeros((len(h), height, width, out.shape[3]))
            for row, column in np.ndindex(height, width):
                square = out[:, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2]
                h[:, row, column] = square.mean(axis=(1, 2))
        h = IN_NUMPY["elu"](h.reshape(4, -1) @ params[2]["w"].T + params[2]["b"])
        expected = h @ params[3]["w"].T + params[3]["b"]
        np.testing.assert_allclose(CNN.logits(params, x), expected, rtol=1e-12, atol=1e-13)


def test_accuracy_counts_right_classes_of_one_model_and_of_many():
    model = Classifier(hidden=(), n_classes=3)
    one = ({"w": np.eye(3, dtype=np.float32), "b": np.zeros(3, np.float32)},)
    other = ({"w": -np.eye(3, dtype=np.float32), "b": np.zeros(3, np.float32)},)
    x, y = np.eye(3, dtype=np.float32)[[0, 1, 2, 0]], np.array([0, 1, 2, 1])
    assert float(accuracy(model, one, x, y)) == 0.75
    both = jax.tree.map(lambda a, b: np.stack([a, b]), one, other)
    assert accuracy(model, both, x, y).tolist() == [0.75, 0.25]  # of two equal largest the first: class 0 for x = -e1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden": (0,)}, "every entry of hidden must be an integer >= 1, got 0"),
        ({"hidden": (2.5,)}, "every entry of hidden must be an integer >= 1, got 2.5"),
        ({"activation": "swish"}, "activation must be one of celu, .* got 'swish'"),
        ({"n_classes": 1}, "n_classes must be an integer >= 2, got 1"),
        ({"channels": (3,)}, "image_shape must be given with channels and only then"),
        ({"image_shape": (8, 8, 1)}, "image_shape must be given with channels and only then"),
        ({"image_shape": (8, 8), "channels": (3,)}, r"image_shape must be \(height, width, channels\)"),
        ({"image_shape": (8, 3, 1), "channels": (3, 3)}, "width must be an integer >= 4, got 3"),
    ],
)
def test_a_bad_architecture_is_named(change, message):
    with pytest.raises(ValueError, match=message):
        Classifier(**change)


@pytest.mark.parametrize(("model", "d"), [(Classifier(), 0), (Classifier(), 1.5), (CNN, 71)])
def test_records_that_do_not_fit_are_refused(model, d):
    with pytest.raises(ValueError, match=r"d must be"):
        model.shapes(d)
