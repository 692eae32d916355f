"""Weights under the names of four frameworks and under none, and files that are refused."""

import jax
import numpy as np
import pytest
import safetensors.numpy

from drjax.nets.classifiers import Classifier
from drjax.nets.weights_files import SUFFIXES, read_params, write_params

D = 6
DEEP = Classifier(hidden=(5, 4), n_classes=3)
SQUARE = Classifier(hidden=(4, 4, 4), n_classes=4)
CONVOLUTIONAL = Classifier(image_shape=(9, 6, 2), channels=(4, 5), hidden=(7,), n_classes=3)


def params_of(model, d=D):
    rng = np.random.default_rng(0)
    return tuple(
        {name: rng.normal(size=shape).astype(np.float32) for name, shape in layer.items()} for layer in model.shapes(d)
    )


def save(path, arrays):
    # Safetensors writes memory as it lies: a transposed view would come back untransposed.
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    if path.suffix == ".npz":
        np.savez(path, allow_pickle=False, **arrays)
    else:
        safetensors.numpy.save_file(arrays, path)


def equal(found, params):
    assert jax.tree.structure(found) == jax.tree.structure(params)
    jax.tree.map(np.testing.assert_array_equal, found, params)


def named(params, names, *, transposed=False):
    """Arrays by a pair of names for each layer, in this order."""
    weights = [layer["w"].T if transposed else layer["w"] for layer in params]
    pairs = zip(names, weights, params, strict=True)
    return {name: array for (w, b), weight, layer in pairs for name, array in ((w, weight), (b, layer["b"]))}


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_is_written_is_read_back(tmp_path, suffix, dtype):
    path = tmp_path / f"w{suffix}"
    for model, d in ((DEEP, D), (CONVOLUTIONAL, 108), (Classifier(hidden=(), n_classes=3), D)):
        params = jax.tree.map(lambda leaf: leaf.astype(dtype), params_of(model, d))
        write_params(path, params)
        found = read_params(path, model, d)
        equal(found, params)
        assert found[0]["w"].dtype == dtype
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_a_view_is_written_as_it_reads(tmp_path):
    params = tuple({"w": np.asfortranarray(layer["w"]), "b": layer["b"]} for layer in params_of(DEEP))
    write_params(tmp_path / "w.safetensors", params)
    equal(read_params(tmp_path / "w.safetensors", DEEP, D), params)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize(
    ("names", "transposed"),
    [
        ([(f"fc{i}.weight", f"fc{i}.bias") for i in (1, 2, 3)], False),
        # torch.nn.Sequential numbers its activations too: 10 comes after 8, not before it.
        ([(f"module.net.{i}.weight", f"module.net.{i}.bias") for i in (6, 8, 10)], False),
        ([(f"params/Dense_{i}/kernel", f"params/Dense_{i}/bias") for i in (0, 1, 2)], True),
        ([(f"dense{i}/kernel:0", f"dense{i}/bias:0") for i in ("", "_1", "_2")], True),
        ([(f"coefs_{i}", f"intercepts_{i}") for i in (0, 1, 2)], True),
        ([(f"W{i}", f"c{i}") for i in (1, 2, 3)], False),
        ([(f"W{i}", f"c{i}") for i in (1, 2, 3)], True),
        ([("stem.weight", "stem.bias"), ("body.weight", "body.bias"), ("head.weight", "head.bias")], False),
    ],
    ids=["torch", "torch-sequential", "flax", "keras", "scikit-learn", "by-shape", "by-shape-transposed", "words"],
)
def test_names_of_each_framework(tmp_path, suffix, names, transposed):
    params = params_of(DEEP)
    arrays = named(params, names, transposed=transposed)
    save(tmp_path / f"w{suffix}", dict(reversed(arrays.items())))
    equal(read_params(tmp_path / f"w{suffix}", DEEP, D), params)


def test_numbers_and_names_decide_where_shapes_do_not(tmp_path):
    params = params_of(SQUARE, 4)
    for leaf, transposed in (("weight", False), ("kernel", True)):
        arrays = named(params, [(f"l{i}.{leaf}", f"l{i}.bias") for i in (1, 2, 10, 11)], transposed=transposed)
        save(tmp_path / "w.npz", dict(reversed(arrays.items())))
        equal(read_params(tmp_path / "w.npz", SQUARE, 4), params)


def test_words_that_several_orders_fit_follow_an_npz_file_and_nothing_else(tmp_path):
    params = params_of(SQUARE, 4)
    words = [(f"{word}.weight", f"{word}.bias") for word in ("stem", "inner1", "inner2", "head")]
    save(tmp_path / "w.npz", named(params, words))
    equal(read_params(tmp_path / "w.npz", SQUARE, 4), params)
    save(tmp_path / "w.safetensors", named(params, words))
    with pytest.raises(ValueError, match="several orders of these layers fit; number their names"):
        read_params(tmp_path / "w.safetensors", SQUARE, 4)


def test_square_weights_without_a_known_name_are_refused(tmp_path):
    save(tmp_path / "w.npz", named(params_of(SQUARE, 4), [(f"W{i}", f"b{i}") for i in range(4)]))
    with pytest.raises(ValueError, match="leave open which way round"):
        read_params(tmp_path / "w.npz", SQUARE, 4)


@pytest.mark.parametrize("names", ["{}.{}", "{1}_{0}"], ids=["torch", "by-shape"])
def test_channels_first_networks_compute_the_same(tmp_path, names):
    rng = np.random.default_rng(0)
    shapes = {"l1": (4, 2, 3, 3), "l2": (5, 4, 3, 3), "l3": (7, 10), "l4": (3, 7)}
    arrays = {names.format(name, "weight"): rng.normal(size=shape) for name, shape in shapes.items()}
    if names != "{}.{}":
        arrays = {name.replace("weight", "v"): array for name, array in arrays.items()}
    bias = "bias" if names == "{}.{}" else "c"
    biases = {names.format(name, bias): rng.normal(size=shape[0]) for name, shape in shapes.items()}
    save(tmp_path / "w.safetensors", arrays | biases)
    found = read_params(tmp_path / "w.safetensors", CONVOLUTIONAL, 108)
    first, _, dense, _ = arrays.values()
    window = rng.normal(size=(3, 3, 2))
    np.testing.assert_allclose(
        np.einsum("hwi,hwio->o", window, found[0]["w"]), np.einsum("ihw,oihw->o", window.transpose(2, 0, 1), first)
    )
    pixels = rng.normal(size=(6, 2, 1, 5))  # 9 x 6 pixels, halved twice, of 5 channels
    flat = pixels.transpose(0, 3, 1, 2).reshape(6, -1)
    np.testing.assert_allclose(pixels.reshape(6, -1) @ found[2]["w"].T, flat @ dense.T)


def test_kernels_of_flax_are_ours(tmp_path):
    params = params_of(CONVOLUTIONAL, 108)
    arrays = {}
    for name, layer in zip(("Conv_0", "Conv_1", "Dense_0", "Dense_1"), params, strict=True):
        arrays |= {f"{name}.kernel": layer["w"].T if layer["w"].ndim == 2 else layer["w"], f"{name}.bias": layer["b"]}
    save(tmp_path / "w.safetensors", arrays)
    equal(read_params(tmp_path / "w.safetensors", CONVOLUTIONAL, 108), params)


def test_short_floats_become_float32_and_foreign_bytes_native(tmp_path):
    params = params_of(DEEP)
    for written, read in ((np.float16, np.float32), (">f8", np.float64)):
        save(
            tmp_path / "w.npz",
            {k: v.astype(written) for k, v in named(params, [(f"{i}.w", f"{i}.b") for i in range(3)]).items()},
        )
        found = read_params(tmp_path / "w.npz", DEEP, D)
        assert found[0]["w"].dtype == np.dtype(read)
        np.testing.assert_allclose(found[1]["w"], params[1]["w"], rtol=1e-3)


TORCH = [(f"fc{i}.weight", f"fc{i}.bias") for i in (1, 2, 3)]


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: a.update({"fc1.weight": np.zeros((7, 6))}), r"weights \(5, 6\), .* but holds .*\(7, 6\)"),
        (lambda a: a.update({"fc1.weight": a["fc1.weight"].T}), "but holds"),
        (lambda a: a.update({k: v.T for k, v in a.items()}), "transposed for their names"),
        (lambda a: [a.pop("fc3.weight"), a.pop("fc3.bias")], "must hold 3 layers"),
        (lambda a: a.pop("fc2.bias"), "fc2.weight has no bias"),
        (lambda a: a.pop("fc2.weight"), "fc2.bias has no weight"),
        (lambda a: a.update({"bn.running_mean": np.zeros(5)}), "bn.running_mean is neither a weight nor a bias"),
        (lambda a: a.update({"fc4.kernel": np.zeros((3, 3)), "fc4.bias": np.zeros(3)}), "several frameworks"),
        (lambda a: a.update({"fc2.bias": np.full(4, np.nan)}), "fc2.bias of .* must be finite"),
        (lambda a: a.update({"fc2.bias": np.zeros(4, int)}), "fc2.bias of .* must be an array of floats"),
        (lambda a: a.clear(), "no arrays"),
        (lambda a: [a.clear(), a.update(one=np.zeros(3))], "must hold 3 layers"),
        (lambda a: [a.clear(), a.update(one=np.zeros((5, 6)), other=np.zeros(5))], "must hold 3 layers"),
    ],
)
def test_other_weights_are_refused_by_name(tmp_path, suffix, change, message):
    arrays = named(params_of(DEEP), TORCH)
    change(arrays)
    path = tmp_path / f"w{suffix}"
    save(path, arrays)
    with pytest.raises(ValueError, match=message) as refused:
        read_params(path, DEEP, D)
    assert str(path) in str(refused.value)


def test_words_without_a_known_role_are_refused(tmp_path):
    save(tmp_path / "w.npz", named(params_of(DEEP), [("a", "x"), ("c", "y"), ("d", "z")]))
    with pytest.raises(ValueError, match="name them"):
        read_params(tmp_path / "w.npz", DEEP, D)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_damaged_and_missing_files(tmp_path, suffix):
    path = tmp_path / f"w{suffix}"
    with pytest.raises(FileNotFoundError, match="check the path"):
        read_params(path, DEEP, D)
    write_params(path, params_of(DEEP))
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(ValueError, match="is damaged"):
        read_params(path, DEEP, D)


def test_a_pickle_is_not_opened(tmp_path):
    np.savez(tmp_path / "w.npz", w=np.array([{"w": 1}], object))
    with pytest.raises(ValueError, match="Python objects"):
        read_params(tmp_path / "w.npz", DEEP, D)


def test_other_endings_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"must end in \.safetensors or \.npz"):
        write_params(tmp_path / "w.pt", params_of(DEEP))
    with pytest.raises(ValueError, match=r"must end in \.safetensors or \.npz"):
        read_params(tmp_path / "w.pt", DEEP, D)


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "w.safetensors"
    write_params(path, params_of(DEEP))
    before = path.read_bytes()

    def full(*_):
        raise OSError("no space left")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="no space"):
        write_params(path, params_of(SQUARE, 4))
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
