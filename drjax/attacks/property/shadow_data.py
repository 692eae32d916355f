"""Records that an adversary makes shadow maps of: features as the publisher computes them, and who has the property."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from drjax import data
from drjax.core import validate
from drjax.data.dataset import Dataset
from drjax.data.own_table import Stated
from drjax.data.sheets import SUFFIXES
from drjax.dr import PCA
from drjax.nets.extractor_adapters import IMAGENET_MEAN, IMAGENET_STD, Input, from_onnx
from drjax.nets.extractors import Extractor, PCAFeatures, Pixels

OF_PICTURES = ("pixels", PCA.name, "onnx")
OF_TABLES = ("values", "unit", "standard")

LABEL = "label"
"""What the labels of image folders, array files and named data sets are called: they have no column to name."""

TRUE = ("1", "true", "yes")
FALSE = ("0", "false", "no")

N_COMPONENTS = 50
"""Principal components of pictures, unless a number is given."""


@dataclass(frozen=True, eq=False)
class ShadowData:
    """Records of known property.

    Attributes:
        dataset: The records; those whose attribute is not known are left out.
        features: (N, d) float32, what is mapped.
        has_property: (N,) bool.
        property: Property in words, "COLUMN is VALUE".
        n_unknown: Records left out.
    """

    dataset: Dataset
    features: np.ndarray
    has_property: np.ndarray
    property: str
    n_unknown: int


@dataclass(frozen=True, kw_only=True)
class Features:
    """What the publisher's map was computed from.

    Attributes:
        kind: Name of the features. Pictures: "pixels" in [0, 1], "pca" or "pca:COMPONENTS" (principal components of the
            shadow pictures, 50 of them) or "onnx:PATH" (the output of a network). Tables and vectors: "values" as
            they are, "unit" (each column scaled to [0, 1]) or "standard" (each to mean 0 and variance 1). None is
            pixels or values.
        onnx_size: (h, w) that pictures are resized to for the network; None leaves them.
        onnx_imagenet: Copy grey to three channels and standardise as networks for ImageNet expect.
    """

    kind: str | None = None
    onnx_size: tuple[int, int] | None = None
    onnx_imagenet: bool = False

    def of(self, dataset: Dataset) -> np.ndarray:
        """(N, d) float32 of a data set's records.

        Raises:
            ValueError: a kind that the records do not have, more components than directions, or what the network's
                adapter refuses.
            ImportError: an ONNX network without onnxruntime.
            FileNotFoundError: no such network.
        """
        is_pictures = len(dataset.shape) > 1
        name, _, rest = (self.kind or ("pixels" if is_pictures else "values")).partition(":")
        if name not in (OF_PICTURES if is_pictures else OF_TABLES):
            what, kinds = ("pictures", OF_PICTURES) if is_pictures else ("tables and vectors", OF_TABLES)
            raise ValueError(f"features must be one of {', '.join(kinds)} for {what}, got {self.kind!r}")
        if name != "onnx" and (self.onnx_size is not None or self.onnx_imagenet):
            raise ValueError(f"onnx_size and onnx_imagenet must be left out without onnx:PATH, got features {name!r}")
        if is_pictures:
            images = dataset.x.reshape(-1, *dataset.shape)
            return self._extractor(name, rest, images).features(images)
        if rest:
            raise ValueError(f"features must be one of {', '.join(OF_TABLES)}, got {self.kind!r}")
        if name == "values":
            return (dataset.x * dataset.scale + dataset.offset).astype(np.float32)
        return data.StandardScaler.fit(dataset.x).transform(dataset.x) if name == "standard" else dataset.x

    def _extractor(self, name: str, rest: str, images: np.ndarray) -> Extractor:
        if name == "pixels" and not rest:
            return Pixels()
        if name == PCA.name and (not rest or rest.isdecimal()):
            return PCAFeatures.fit(images, int(rest) if rest else N_COMPONENTS)
        if name == "onnx" and rest:
            imagenet: dict[str, Any] = {"channels": 3, "mean": IMAGENET_MEAN, "std": IMAGENET_STD}
            standard = imagenet if self.onnx_imagenet else {}
            return from_onnx(rest, sees=Input(size=self.onnx_size, channels_first=True, **standard))
        raise ValueError(f"features must be pixels, pca, pca:COMPONENTS or onnx:PATH, got {self.kind!r}")


def read_shadow(
    source: str | Path,
    attribute: str,
    features: Features = Features(),
    *,
    data_dir: str | Path | None = None,
    categorical: Sequence[str] = (),
    drop: Sequence[str] = (),
    schema: Stated = None,
) -> ShadowData:
    """Reads shadow records and their attribute.

    Args:
        source: A named data set, or a table, array file or folder of images, as `drjax.data.load` takes them.
        attribute: "COLUMN=VALUE", or "COLUMN" where the column has two values: 0 and 1, no and yes, or false and
            true, in whatever case. The column is no feature. For all but tables it is "label": the classes of a named
            set, `y` of an NPZ file, the subfolders of a folder of images.
        features: What was mapped.
        data_dir: Folder of the named data sets.
        categorical: Columns of a table that are categories, where it is not seen.
        drop: Columns of a table to leave out.
        schema: Statements about the columns of a table, or the path of a file with them; see `drjax.data.load`.

    Raises:
        ValueError: no such column or value, an attribute of more or other values and no VALUE, or what
            `drjax.data.load` and `Features.of` refuse.
        FileNotFoundError: nothing of that name.

    Example:
        >>> import tempfile, numpy as np, pandas as pd
        >>> from drjax.attacks.property.shadow_data import read_shadow
        >>> rng = np.random.default_rng(0)
        >>> table = pd.DataFrame(rng.normal(size=(40, 3)), columns=list("abc")).assign(sex=rng.choice(["f", "m"], 40))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     table.to_csv(f"{folder}/records.csv", index=False)
        ...     shadow = read_shadow(f"{folder}/records.csv", "sex=f")
        >>> shadow.features.shape, shadow.property
        ((40, 3), 'sex is f')
    """
    column, equals, value = attribute.partition("=")
    is_table = Path(source).suffix.lower() in SUFFIXES and not Path(source).is_dir()
    if not is_table and column != LABEL:
        raise ValueError(f"attribute must be {LABEL}=VALUE for {source}, which is no table, got {attribute!r}")
    dataset = data.load(
        source,
        data_dir=data_dir,
        categorical=categorical,
        drop=drop,
        label=column if is_table else None,
        schema=schema,
    )
    if dataset.y is None:
        raise ValueError(
            f"attribute must name labels, and {source} has none: put images into subfolders, or an array y into an NPZ"
        )
    names = dataset.class_names
    # The catalogue's own sets have the label -1 where it is not known.
    known = dataset.y >= 0 if names is not None else np.ones(len(dataset.y), bool)
    y = dataset.y[known]
    values = np.array([names[code] for code in y] if names is not None else y.astype(str))
    found = np.unique(values)
    if equals:
        if value not in found:
            raise ValueError(f"attribute must name a value of {column!r}, one of {_listed(found)}; got {value!r}")
        has_property = values == value
    else:
        lower = {str(entry).lower() for entry in found}
        pairs = [{no, yes} for no, yes in zip(FALSE, TRUE, strict=True)]
        if lower not in pairs:
            raise ValueError(
                f"attribute must be binary, but {column!r} has the values {_listed(found)}: choose one with "
                f"{column}=VALUE"
            )
        has_property = np.isin(np.char.lower(values), TRUE)
        value = str(values[has_property][0])
    for what, count in (("with", has_property.sum()), ("without", (~has_property).sum())):
        if not count:
            raise ValueError(f"attribute must tell records apart, but {source} has none {what} {column}={value}")
    dataset = dataclasses.replace(
        dataset, x=dataset.x[known], y=y, groups=None if dataset.groups is None else dataset.groups[known]
    )
    mapped = validate.matrix(features.of(dataset), "features")
    return ShadowData(dataset, mapped, has_property, f"{column} is {value}", int((~known).sum()))


def _listed(values: np.ndarray) -> str:
    shown = ", ".join(map(str, values[:10]))
    return shown + (f" and {len(values) - 10} more" if len(values) > 10 else "")
