"""What pictures are turned into before they are mapped.

The paper's extractors are ResNets and a MobileNet trained on ImageNet, which nobody here has. What stands in for them
is a small network trained to tell the ten kinds of objects of CIFAR-10 (in grey) apart: it has never seen a face, and
is the same for all data sets. Where real weights are at hand, `drjax.nets.extractor_adapters` takes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np

from drjax.core import validate
from drjax.data import load
from drjax.nets.extractors import ConvConfig, ConvFeatures, Extractor, PCAFeatures, train_features
from experiments.tsne_property import data
from experiments.tsne_property.data import Case

OBJECTS = {
    "objects": ConvConfig(epochs=8),
    "objects-small": ConvConfig(widths=(12, 24, 48), embedding=96, epochs=6),
}
"""Networks of one task: the second is narrower and starts elsewhere."""

NAMES = (*OBJECTS, "age", "pca")
AGE = ConvConfig(epochs=20)
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

        "objects" and "objects-small" learned CIFAR-10; "age" learned age groups of the public faces of UTKFace; "pca"
        has 48 principal components of the case's own public pictures.

        Raises:
            ValueError: a name that there is not.
        """
        validate.one_of(NAMES, name=name)
        if name == "pca":
            return PCAFeatures.fit(given.images[public], N_COMPONENTS)
        path = self.folder / f"extractor-{name}.npz"
        if path.is_file():
            return ConvFeatures.load(path)
        self.folder.mkdir(parents=True, exist_ok=True)
        trained = _objects(name) if name in OBJECTS else _age()
        trained.save(path)
        return trained

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


def _age() -> ConvFeatures:
    faces = data.case("utkface:male")
    public = data.sides(faces, jax.random.key(0)).public
    n_classes = int(faces.task.max()) + 1
    return train_features(jax.random.key(7), faces.images[public], faces.task[public], n_classes=n_classes, config=AGE)
