"""Parameters of a `Classifier` from the files that training scripts write: safetensors and npz.

The name of an array says what it is and which way round:

| names | dense weight | convolution kernel | written by |
|---|---|---|---|
| 0.w, 0.b | (outputs, inputs) | (3, 3, in, out) | `write_params` |
| fc1.weight, fc1.bias | (outputs, inputs) | (out, in, 3, 3) | PyTorch |
| Dense_0/kernel, Dense_0/bias | (inputs, outputs) | (3, 3, in, out) | Flax, Keras |
| coefs_0, intercepts_0 | (inputs, outputs) | | scikit-learn |

Arrays of other names are taken for weights and biases by their rank, and the way round is the only one that fits the
architecture. Layers follow the numbers in their names. Names that differ in more than numbers (hidden, output) follow
the only order that fits the architecture; where several fit, an npz file's own order decides, because numpy.savez
keeps it. That of a safetensors file is the alphabet's and says nothing, so there the file is refused.

After PyTorch's convolutions, the pixels that enter the first dense layer are put from (channels, height, width) to our
(height, width, channels).
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import safetensors.numpy

from drjax.core import validate
from drjax.core.store import atomic_open
from drjax.core.types import PyTree
from drjax.nets.classifiers import Classifier

SUFFIXES = (".safetensors", ".npz")
"""Files that are read and written."""


class Layout(NamedTuple):
    """Which way round a framework keeps its weights.

    Attributes:
        is_transposed: Dense weights are (inputs, outputs).
        is_channels_first: Kernels are (out, in, 3, 3), and pixels (channels, height, width).
    """

    is_transposed: bool = False
    is_channels_first: bool = False


class _Layer(NamedTuple):
    """Names of the arrays of a layer."""

    w: str
    b: str


_WEIGHTS = {
    "w": Layout(),
    "weight": Layout(is_channels_first=True),
    "kernel": Layout(is_transposed=True),
    "coefs": Layout(is_transposed=True),
}
_BIASES = ("b", "bias", "intercepts")


def read_params(path: str | Path, model: Classifier, d: int) -> PyTree:
    """The parameters of a model for records of d entries, as `Classifier.init` has them.

    Args:
        path: A .safetensors or .npz file; nothing is ever unpickled. Names as in the table above.
        model: The architecture.
        d: Entries of a record.

    Returns:
        A tuple of layers {"w": (outputs, inputs) or (3, 3, in, out), "b": (outputs,)}, in the file's float32 or
        float64; shorter floats become float32.

    Raises:
        FileNotFoundError: nothing at `path`.
        ValueError: a damaged file, weights of another architecture, missing or further arrays, names that leave open
            what is what, or values not finite.
    """
    path = Path(path)
    shapes = model.shapes(d)
    arrays = _read(path)
    described = ", ".join(f"{name} {array.shape}" for name, array in list(arrays.items())[:8]) or "no arrays"
    described += f" and {len(arrays) - 8} more" if len(arrays) > 8 else ""
    wanted = ", ".join(str(shape["w"]) for shape in shapes)
    found = f"{path} must hold {len(shapes)} layers with weights {wanted}, and a bias each, but holds {described}"
    layers, layouts = _layers(arrays, found)
    if not layouts:
        # Without convolutions, PyTorch's layout is ours.
        layouts = [Layout(), Layout(is_transposed=True), *([] if model.is_dense else [Layout(is_channels_first=True)])]
    fits = [(layout, order) for layout in layouts for order in _orders(arrays, layers, layout, shapes)]
    if not fits:
        if any(_orders(arrays, layers, Layout(not layout.is_transposed), shapes) for layout in layouts):
            found += ": these are transposed for their names (weight and w are (outputs, inputs), kernel the other way)"
        raise ValueError(found)
    if len({layout for layout, _ in fits}) > 1:
        raise ValueError(
            f"{found}: the names leave open which way round they are; name them weight or kernel, and bias"
        )
    if len(fits) > 1:
        in_file = [fit for fit in fits if path.suffix.lower() == ".npz" and fit[1] == list(layers.values())]
        if not in_file:
            raise ValueError(f"{found}: several orders of these layers fit; number their names")
        fits = in_file
    layout, order = fits[0]
    return _params(arrays, order, layout, model)


def write_params(path: str | Path, params: PyTree) -> None:
    """Writes parameters as "0.w", "0.b", "1.w", ...; `path` is replaced when all is written, or left alone.

    Args:
        path: Ends in .safetensors or .npz.
        params: Layers as from `Classifier.init`, on the device or the host.

    Raises:
        ValueError: another ending.

    Example:
        >>> import tempfile, jax
        >>> from drjax.nets.classifiers import Classifier
        >>> from drjax.nets.weights_files import write_params
        >>> from drjax.reports.records import load_arrays
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_params(f"{folder}/start.npz", Classifier(hidden=(4,)).init(jax.random.key(0), 64))
        ...     found = load_arrays(f"{folder}/start.npz")
        >>> {name: array.shape for name, array in sorted(found.items())}
        {'0.b': (4,), '0.w': (4, 64), '1.b': (10,), '1.w': (10, 4)}
    """
    path = Path(path)
    _check_suffix(path)
    # Safetensors writes memory as it lies, so a transposed view would be written untransposed.
    arrays = {f"{i}.{name}": np.ascontiguousarray(layer[name]) for i, layer in enumerate(params) for name in ("w", "b")}
    if path.suffix.lower() == ".npz":
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **arrays)
        blob = buffer.getvalue()
    else:
        blob = safetensors.numpy.save(arrays)
    with atomic_open(path) as file:
        file.write(blob)


def _check_suffix(path: Path) -> None:
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(f"the file of weights must end in {' or '.join(SUFFIXES)}, got {path}")


def _read(path: Path) -> dict[str, np.ndarray]:
    """Every array of a file, finite and float32 or float64, in the file's order."""
    _check_suffix(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}: check the path")
    blob = path.read_bytes()
    try:
        if path.suffix.lower() == ".npz":
            loaded = np.load(io.BytesIO(blob), allow_pickle=False)
            arrays = {name: loaded[name] for name in loaded.files}
        else:
            arrays = safetensors.numpy.load(blob)
    except Exception as error:  # zipfile, zlib, NumPy and safetensors each raise errors of their own on damage
        raise ValueError(
            f"{path} is damaged, or holds Python objects or a number type that NumPy lacks ({error}): write float32 "
            "or float64 arrays"
        ) from error
    for name, array in arrays.items():
        if array.dtype.kind != "f":
            raise ValueError(f"{name} of {path} must be an array of floats, got {array.dtype}")
        validate.finite(**{f"{name} of {path}": array})
    return {name: a.astype(np.float64 if a.dtype.itemsize > 4 else np.float32) for name, a in arrays.items()}


def _layers(arrays: dict[str, np.ndarray], found: str) -> tuple[dict[str, _Layer], list[Layout]]:
    """Layers by name, in the file's order, and the layout that their names stand for; no layout for other names."""
    parsed = {name: _parse(name) for name in arrays}
    leaves = {leaf for _, leaf in parsed.values()}
    if not leaves & {*_WEIGHTS, *_BIASES}:
        return _layers_by_rank(arrays, found), []
    weights = {prefix: name for name, (prefix, leaf) in parsed.items() if leaf in _WEIGHTS}
    biases = {prefix: name for name, (prefix, leaf) in parsed.items() if leaf in _BIASES}
    layouts = {_WEIGHTS[leaf] for leaf in leaves if leaf in _WEIGHTS}
    for prefix in weights.keys() ^ biases.keys():
        has = weights.get(prefix) or biases[prefix]
        raise ValueError(f"{found}: {has} has no {'bias' if prefix in weights else 'weight'}")
    further = [name for name in arrays if name not in {*weights.values(), *biases.values()}]
    if further:
        raise ValueError(f"{found}: {further[0]} is neither a weight nor a bias")
    if len(layouts) > 1:
        raise ValueError(f"{found}: these names are of several frameworks")
    return {prefix: _Layer(name, biases[prefix]) for prefix, name in weights.items()}, list(layouts)


def _layers_by_rank(arrays: dict[str, np.ndarray], found: str) -> dict[str, _Layer]:
    weights = sorted((name for name, array in arrays.items() if array.ndim > 1), key=_numbers)
    biases = sorted((name for name, array in arrays.items() if array.ndim == 1), key=_numbers)
    if len(weights) != len(biases) or len(weights) + len(biases) != len(arrays):
        raise ValueError(found)
    # Nothing else says which bias belongs to which weight.
    if len({_stem(name) for name in weights}) > 1 or len({_stem(name) for name in biases}) > 1:
        raise ValueError(f"{found}: name them NAME.weight or NAME.kernel, and NAME.bias")
    return {w: _Layer(w, b) for w, b in zip(weights, biases, strict=True)}


def _parse(name: str) -> tuple[str, str]:
    """Layer and role: ("fc1", "weight") of "fc1.weight", ("0", "coefs") of "coefs_0"."""
    of_scikit_learn = re.fullmatch(r"(coefs|intercepts)_(\d+)", name)
    if of_scikit_learn:
        return of_scikit_learn[2], of_scikit_learn[1]
    *prefix, leaf = re.split(r"([./])", name.removesuffix(":0"))  # TensorFlow's names end in :0
    return "".join(prefix[:-1]), leaf


def _numbers(name: str) -> tuple[tuple[int, ...], str]:
    return tuple(map(int, re.findall(r"\d+", name))), name


def _stem(name: str) -> str:
    # Keras counts dense, dense_1, dense_2.
    return re.sub(r"[-_]?\d+", "", name)


def _orders(
    arrays: dict[str, np.ndarray], layers: dict[str, _Layer], layout: Layout, shapes: tuple
) -> list[list[_Layer]]:
    """Up to two orders of the layers that fit the architecture, the file's own first if it does.

    Layers whose names differ in numbers alone stay in the order of these.
    """
    if len(layers) != len(shapes):
        return []
    place = {layer: i for i, layer in enumerate(layers.values())}
    stems: dict[str, list[_Layer]] = {}
    for prefix in sorted(layers, key=_numbers):
        stems.setdefault(_stem(prefix), []).append(layers[prefix])

    def fits(layer: _Layer, shape: dict[str, tuple[int, ...]]) -> bool:
        return _ours(arrays[layer.w], layout).shape == shape["w"] and arrays[layer.b].shape == shape["b"]

    def extended(order: list[_Layer], left: list[list[_Layer]]) -> Iterator[list[_Layer]]:
        if len(order) == len(shapes):
            yield order
        for i, (first, *others) in sorted(enumerate(left), key=lambda entry: place[entry[1][0]]):
            if fits(first, shapes[len(order)]):
                rest = [*left[:i], *([others] if others else []), *left[i + 1 :]]
                yield from extended([*order, first], rest)

    return list(islice(extended([], list(stems.values())), 2))


def _ours(w: np.ndarray, layout: Layout) -> np.ndarray:
    if w.ndim == 4:
        return w.transpose(2, 3, 1, 0) if layout.is_channels_first else w
    return w.T if layout.is_transposed else w


def _params(arrays: dict[str, np.ndarray], order: list[_Layer], layout: Layout, model: Classifier) -> PyTree:
    params = [{"w": _ours(arrays[layer.w], layout), "b": arrays[layer.b]} for layer in order]
    if layout.is_channels_first and model.image_shape is not None:
        height, width = (size // 2 ** len(model.channels) for size in model.image_shape[:2])
        dense = params[len(model.channels)]
        n_out = len(dense["w"])
        pixels = dense["w"].reshape(n_out, model.channels[-1], height, width)
        dense["w"] = pixels.transpose(0, 2, 3, 1).reshape(n_out, -1)
    return tuple({name: np.ascontiguousarray(layer[name]) for name in ("w", "b")} for layer in params)
