"""What a picture is turned into before it is mapped: its pixels, principal components, or a network's inner values.

An extractor is public: fitted on records that are neither the adversary's nor the victim's, or published by somebody.
`extractor_adapters` has those that others trained.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol, runtime_checkable

import jax
import numpy as np
from flax import nnx

from drjax.core import validate
from drjax.core.linalg import scatter_basis
from drjax.core.types import Array, PyTree
from drjax.nets import arrays, judge
from drjax.nets.judge import JudgeConfig
from drjax.nets.training import abstract_state, predict


@runtime_checkable
class Extractor(Protocol):
    """Turns pictures into features, each picture by itself."""

    def features(self, images: Array) -> np.ndarray:
        """(n, f) float32 of pictures (n, h, w) or (n, h, w, c) in [0, 1]."""
        ...


class Pixels:
    """The pixels themselves."""

    def features(self, images: Array) -> np.ndarray:
        """(n, h w c) float32 of pictures (n, h, w) or (n, h, w, c) in [0, 1].

        Raises:
            ValueError: another shape, or values that are not in [0, 1].
        """
        images = pictures(images)
        return images.reshape(len(images), -1)


@dataclass(frozen=True)
class PCAFeatures:
    """Scores on the leading principal components of public pictures.

    Attributes:
        mean: (h w c,) float32.
        components: (f, h w c) float32, orthonormal rows, by falling variance.
    """

    mean: np.ndarray
    components: np.ndarray

    @classmethod
    def fit(cls, images: Array, n_components: int) -> PCAFeatures:
        """Fits to pictures (n, h, w) or (n, h, w, c) in [0, 1], in float64 on the host; O(n p min(n, p)), p = h w c.

        Raises:
            ValueError: another shape, values that are not in [0, 1], or fewer directions of variance than components.
        """
        validate.integer(n_components=n_components)
        mean, basis, _, _ = scatter_basis(Pixels().features(images))
        validate.at_most(len(basis), "directions of variance", n_components=n_components)
        return cls(mean.astype(np.float32), basis[:n_components].astype(np.float32))

    def features(self, images: Array) -> np.ndarray:
        """(n, f) float32, in units of pixels.

        Raises:
            ValueError: pictures of another size than those that it was fitted to, or not in [0, 1].
        """
        x = Pixels().features(images)
        if x.shape[1] != len(self.mean):
            raise ValueError(f"images must have {len(self.mean)} values each, as fitted, got {x.shape[1]}")
        return (x - self.mean) @ self.components.T

    def save(self, path: str | Path) -> None:
        """Writes an npz file that `load` reads; no pickle, and never half a file."""
        fields = {"mean": self.mean, "components": self.components}
        arrays.write_npz(Path(path), {"kind": "PCAFeatures"}, fields)

    @classmethod
    def load(cls, path: str | Path) -> PCAFeatures:
        """Reads what `save` wrote.

        Raises:
            ValueError: the file is damaged or holds something else.
            FileNotFoundError: there is no file.
        """
        header, fields = arrays.read_npz(Path(path))
        if header.get("kind") != "PCAFeatures":
            raise ValueError(f"{path} must be a saved PCAFeatures, got an npz file with other fields")
        return cls(fields["mean"], fields["components"])


@dataclass(frozen=True, kw_only=True)
class ConvConfig(JudgeConfig):
    """How a network for features is built and trained: a judge's, with a layer of features before its last.

    Attributes:
        embedding: Features f, >= 1: the width of the second-to-last layer.
    """

    embedding: int = 128

    def __post_init__(self) -> None:
        """Checks every field."""
        super().__post_init__()
        validate.integer(embedding=self.embedding)


@dataclass(frozen=True)
class ConvFeatures:
    """The second-to-last layer of a small convolutional network, trained to tell classes apart.

    Attributes:
        config: Configuration, as given to `train_features`.
        image_shape: (h, w, c), c = 1 for grey pictures.
        n_classes: Number of classes of the task it was trained for.
        state: Weights and running statistics, with a leading axis of length 1.
        held_out_accuracy: Share in [0, 1] of pictures that were not trained on and are classified correctly.
        n_held_out: How many those are.
    """

    config: ConvConfig
    image_shape: tuple[int, int, int]
    n_classes: int
    state: PyTree
    held_out_accuracy: float
    n_held_out: int

    def features(self, images: Array) -> np.ndarray:
        """(n, embedding) float32, >= 0, in chunks of bounded memory.

        Raises:
            ValueError: pictures of another size than those that it was trained on, or not in [0, 1].
        """
        return self._run(images, shows_embedding=True)

    def accuracy(self, images: Array, labels: Array) -> float:
        """Share in [0, 1] of pictures (n, h, w[, c]) that are given their label (n,), an integer in [0, n_classes).

        Raises:
            ValueError: pictures of another size or not in [0, 1], or labels of another kind.
        """
        given = np.asarray(images)
        x, y = judge.checked_examples(given.reshape(len(given), -1), labels, self.image_shape, self.n_classes, "")
        return float(np.mean(self._run(x.reshape(-1, *self.image_shape), shows_embedding=False).argmax(axis=1) == y))

    def save(self, path: str | Path) -> None:
        """Writes an npz file that `load` reads; no pickle, and never half a file."""
        header = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name != "state"}
        header |= {"kind": "ConvFeatures", "config": dataclasses.asdict(self.config)}
        arrays.write_npz(Path(path), header, arrays.flatten(self.state, "state"))

    @classmethod
    def load(cls, path: str | Path) -> ConvFeatures:
        """Reads what `save` wrote.

        Raises:
            ValueError: the file is damaged or holds something else.
            FileNotFoundError: there is no file.
        """
        header, fields = arrays.read_npz(Path(path))
        if header.get("kind") != "ConvFeatures":
            raise ValueError(f"{path} must be a saved ConvFeatures, got an npz file with other fields")
        config = ConvConfig(**header["config"] | {"widths": tuple(header["config"]["widths"])})
        image_shape, n_classes = judge.full_shape(tuple(header["image_shape"])), header["n_classes"]
        template = abstract_state(partial(_FeatureNet, config, image_shape, n_classes), 1)
        state = arrays.unflatten(template, fields, "state")
        return cls(config, image_shape, n_classes, state, header["held_out_accuracy"], header["n_held_out"])

    def _run(self, images: Array, *, shows_embedding: bool) -> np.ndarray:
        x = pictures(images)
        x = x[..., None] if x.ndim == 3 else x
        if x.shape[1:] != self.image_shape:
            raise ValueError(f"images must have shape (n, *{self.image_shape}), got {np.shape(images)}")
        make = partial(_FeatureNet, self.config, self.image_shape, self.n_classes, shows_embedding=shows_embedding)
        return np.asarray(predict(make, self.state, x)[0])


def train_features(
    key: jax.Array,
    images: Array,
    labels: Array,
    *,
    n_classes: int,
    config: ConvConfig | None = None,
    start: ConvFeatures | None = None,
    held_out: tuple[Array, Array] | None = None,
) -> ConvFeatures:
    """Trains a network on public pictures for a stated task, or fine-tunes one (`start`) for another task.

    By `nets.judge.fit`: AdamW with a one-cycle rate, cross entropy, shifted pictures; keeps the last epoch's weights.

    Args:
        key: Decides initialisation, held-out rows, shuffling and shifts.
        images: (m, h, w) or (m, h, w, c) in [0, 1], sides of at least 8 pixels.
        labels: (m,) integers in [0, n_classes).
        n_classes: Number of classes, >= 2.
        config: How to train; the default, or that of `start`. Its widths and embedding must be those of `start`.
        start: Features whose weights to begin with, all but those of the last layer, which is that of another task.
        held_out: Other pictures and labels to measure accuracy on; None takes a share of the given ones away.

    Raises:
        ValueError: shapes that do not match, pictures not in [0, 1], labels out of range, too few pictures for one
            batch, a `start` of another architecture, or a training that diverged.
    """
    validate.prng_key(key)
    validate.integer(minimum=2, n_classes=n_classes)
    config = config or (start.config if start else ConvConfig())
    given = pictures(images)
    shape = judge.full_shape(given.shape[1:])
    if start is not None and _architecture(start.config, start.image_shape) != _architecture(config, shape):
        raise ValueError(
            f"start must have the architecture {_architecture(config, shape)} (widths, embedding, image shape), got "
            f"{_architecture(start.config, start.image_shape)}"
        )
    x, y = judge.checked_examples(given.reshape(len(given), -1), labels, shape, n_classes, "")
    start_key, split_key, epoch_key = jax.random.split(key, 3)
    if held_out is None:
        (x, y), (test_x, test_y) = judge.split_off(split_key, x, y, config.held_out)
    else:
        test_x = pictures(held_out[0])
        test_x, test_y = judge.checked_examples(
            test_x.reshape(len(test_x), -1), held_out[1], shape, n_classes, "held-out "
        )
    net = _FeatureNet(config, shape, n_classes, nnx.Rngs(params=start_key))
    if start is not None:
        _take_over(net, start)
    state = judge.fit(epoch_key, net, x.reshape(-1, *shape), y, config)
    trained = ConvFeatures(config, shape, n_classes, state, math.nan, len(test_x))
    accuracy = trained.accuracy(test_x.reshape(-1, *shape), test_y)
    return dataclasses.replace(trained, held_out_accuracy=accuracy)


def pictures(images: Array) -> np.ndarray:
    """Pictures (n, h, w) or (n, h, w, c) as float32.

    Raises:
        ValueError: another shape, or values that are not in [0, 1].
    """
    x = np.asarray(images)
    if x.ndim not in (3, 4) or 0 in x.shape or x.dtype.kind not in "fiub":
        raise ValueError(f"images must be numbers of shape (n, h, w) or (n, h, w, c), got {x.shape} of {x.dtype}")
    validate.probability(images=x)
    return x.astype(np.float32)


class _FeatureNet(judge.Net):
    """A judge's network whose outputs are features, and a last layer behind it."""

    def __init__(
        self,
        config: ConvConfig,
        image_shape: tuple[int, int, int],
        n_classes: int,
        rngs: nnx.Rngs,
        *,
        shows_embedding: bool = False,
    ) -> None:
        super().__init__(config, image_shape, config.embedding, rngs)
        self.last = nnx.Linear(config.embedding, n_classes, rngs=rngs)
        self.shows_embedding = shows_embedding

    def __call__(self, x: jax.Array) -> jax.Array:
        """(b, h, w, c) in [0, 1] to (b, n_classes), or to (b, embedding) if that is shown."""
        embedding = jax.nn.relu(super().__call__(x))
        return embedding if self.shows_embedding else self.last(embedding)


def _architecture(config: ConvConfig, image_shape: tuple[int, ...]) -> tuple:
    return tuple(config.widths), config.embedding, tuple(image_shape)


def _take_over(net: _FeatureNet, start: ConvFeatures) -> None:
    """Gives a fresh network the weights and statistics of another, but for its last layer."""
    donor = _FeatureNet(start.config, start.image_shape, start.n_classes, nnx.Rngs(params=0))
    nnx.update(donor, *jax.tree.map(lambda leaf: leaf[0], start.state))
    for name in ("kernels", "norms", "dense"):
        setattr(net, name, getattr(donor, name))
