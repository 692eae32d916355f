"""What pictures are turned into before they are mapped.

The paper's extractors are ResNets and a MobileNet trained on ImageNet. Here EfficientNet-Lite 0 and 2 trained on
ImageNet, as ONNX files that `pretrained` makes; and small networks trained in the project to tell the ten kinds of
objects of CIFAR-10 (in grey) apart, which can be trained further. None has been trained on faces.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np

from drjax.core import validate
from drjax.data import load
from drjax.nets.extractor_adapters import Input, from_onnx
from drjax.nets.extractors import ConvConfig, ConvFeatures, Extractor, PCAFeatures, train_features
from drjax.reports import records
from experiments.tsne_property import data
from experiments.tsne_property.data import Case
from experiments.tsne_property.pretrained import FILES, MEAN, SIDES, STD

OBJECTS = {
    "objects": ConvConfig(epochs=8),
    "objects-small": ConvConfig(widths=(12, 24, 48), embedding=96, epochs=6),
}
"""Networks of one task: the second is narrower and starts elsewhere."""

NAMES = (*FILES, *OBJECTS, "pca")
TUNABLE = "objects"
"""What sides fine-tune: an ONNX file has no gradients."""

FINE_TUNING = ConvConfig(epochs=8, batch_size=64, learning_rate=1e-3)
"""The paper's epochs and batches; its rate, 1e-4, is for larger networks."""

N_COMPONENTS = 48


@dataclass(frozen=True)
class Fixed:
    """Where the networks of this experiment are kept, so that each is trained once.

    Attributes:
        folder: Of the files.
    """

    folder: Path

    def get(self, name: str, given: Case, public: np.ndarray) -> Extractor:
        """A public extractor.

        "imagenet" and "imagenet-2" learned ImageNet; "objects" and "objects-small" learned CIFAR-10; "pca" has 48
        principal components of the case's own public pictures.

        Raises:
            ValueError: a name that there is not.
            FileNotFoundError: an ONNX file is not in the folder.
        """
        validate.one_of(NAMES, name=name)
        if name in FILES:
            path = self.folder / FILES[name]
            if not path.is_file():
                raise FileNotFoundError(
                    f"{name} needs {path}: python -m experiments.tsne_property.pretrained --out {self.folder}"
                )
            size = (SIDES[name], SIDES[name])
            return from_onnx(path, sees=Input(size=size, channels=3, mean=(MEAN,), std=(STD,), channels_first=True))
        if name == "pca":
            return PCAFeatures.fit(given.images[public], N_COMPONENTS)
        path = self.folder / f"extractor-{name}.npz"
        if path.is_file():
            return ConvFeatures.load(path)
        self.folder.mkdir(parents=True, exist_ok=True)
        trained = _objects(name)
        trained.save(path)
        return trained

    def features(self, name: str, given: Case, public: np.ndarray) -> np.ndarray:
        """(N, f) float32 of all pictures of a case; those of a large network are kept in a file.

        Raises:
            ValueError, FileNotFoundError: as `get`.
        """
        if name not in FILES:
            return self.get(name, given, public).features(given.images)
        path = self.folder / f"features-{name}-{given.name.replace(':', '_')}.npz"
        if not path.is_file():
            records.save_arrays(path, features=self.get(name, given, public).features(given.images))
        return records.load_arrays(path)["features"]

    def fine_tuned(self, start: str, given: Case, rows: np.ndarray, public: np.ndarray, key: jax.Array) -> ConvFeatures:
        """A network of `OBJECTS`, further trained on the case's task by one side's pictures; not kept.

        A tenth of the pictures is held out for its accuracy.
        """
        network = self.get(start, given, public)
        assert isinstance(network, ConvFeatures)
        known = rows[given.task[rows] >= 0]
        config = ConvConfig(
            widths=network.config.widths,
            embedding=network.config.embedding,
            epochs=FINE_TUNING.epochs,
            batch_size=FINE_TUNING.batch_size,
            learning_rate=FINE_TUNING.learning_rate,
        )
        return train_features(
            key,
            given.images[known],
            given.task[known],
            n_classes=int(given.task.max()) + 1,
            config=config,
            start=network,
        )


def _objects(name: str) -> ConvFeatures:
    cifar = load("cifar10")
    assert cifar.y is not None
    images = data.grey(cifar.x.reshape(-1, *cifar.shape))
    key = jax.random.key(list(OBJECTS).index(name))
    return train_features(key, images, cifar.y, n_classes=10, config=OBJECTS[name])
