"""One function per named source: the bytes of its files to a data set.

A reader is called as reader(name, files, provenance) with files by name, whose checksums have been verified; what
the labels mean is in the catalog.
"""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from drjax.data import tables
from drjax.data.dataset import Dataset, Provenance, from_levels, unit_range

Files = Mapping[str, bytes]

MNIST_FILES = (
    ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"),
    ("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"),
)

CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

ADULT_COLUMNS = (
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "education-num",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital-gain",
    "capital-loss",
    "hours-per-week",
    "native-country",
    "income",
)
ADULT_NUMERIC = ("age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week")


def digits(name: str, files: Files, provenance: Provenance) -> Dataset:
    """scikit-learn's bundled 8x8 digits, 16 grey levels above 0; reads no file of ours."""
    from sklearn.datasets import load_digits

    del files
    bunch: Any = load_digits()
    return from_levels(name, bunch["images"], provenance, top=16.0, y=bunch["target"])


def mnist(name: str, files: Files, provenance: Provenance) -> Dataset:
    """Four gzipped idx files, as MNIST and Fashion-MNIST have them; the training records come first."""
    images, labels = (np.concatenate([_idx(files[file]) for file in kind]) for kind in zip(*MNIST_FILES, strict=True))
    return from_levels(name, images, provenance, y=labels)


def cifar10(name: str, files: Files, provenance: Provenance) -> Dataset:
    """Colour images, the training records first."""
    arrays = _only_npz(files)
    return from_levels(
        name,
        np.concatenate([arrays["x_train"], arrays["x_test"]]),
        provenance,
        y=np.concatenate([arrays["y_train"], arrays["y_test"]]),
    )


def cifar10_from_archive(archives: Files) -> Files:
    """The .npz that `cifar10` reads, from the official binary archive: a label byte, then three 32 x 32 planes."""
    (archive,) = archives.values()
    arrays: dict[str, Any] = {"class_names": np.array(CIFAR10)}
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as tar:
        for part, file, n in (("train", "data_batch_1.bin", 10_000), ("test", "test_batch.bin", 1_000)):
            member = tar.extractfile(f"cifar-10-batches-bin/{file}")
            if member is None:
                raise ValueError(f"the archive holds no file {file}")
            records = np.frombuffer(member.read(), np.uint8).reshape(-1, 3073)[:n]
            arrays[f"y_{part}"] = records[:, 0]
            arrays[f"x_{part}"] = records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    npz = io.BytesIO()
    np.savez_compressed(npz, **arrays)
    return {"cifar10_10k_1k.npz": npz.getvalue()}


def lfw(name: str, files: Files, provenance: Provenance) -> Dataset:
    """Grey faces; y is 1 for male, 0 for female, -1 where the annotators disagree; groups are persons."""
    arrays = _only_npz(files)
    persons = np.unique(arrays["names"], return_inverse=True)[1]
    return from_levels(name, arrays["images"], provenance, y=arrays["male"], groups=persons)


def utkface(name: str, files: Files, provenance: Provenance) -> Dataset:
    """Grey faces; y is 0 for male, 1 for female."""
    arrays = _only_npz(files)
    return from_levels(name, arrays["images"], provenance, y=arrays["gender"])


def nih_chest_xray(name: str, files: Files, provenance: Provenance) -> Dataset:
    """Grey X-rays; y is 1 for pneumonia; groups are patients."""
    arrays = _only_npz(files)
    return from_levels(
        name,
        arrays["images"],
        provenance,
        y=arrays["label"] == "Pneumonia",
        groups=arrays["patient_id"].astype(np.int64),
    )


def cxr_mednist(name: str, files: Files, provenance: Provenance) -> Dataset:
    """Grey X-rays without findings and without patients."""
    return from_levels(name, _only_npz(files)["images"], provenance)


def adult(name: str, files: Files, provenance: Provenance) -> Dataset:
    """adult.data, then adult.test; an unknown value "?" is a category of its own; y is income above 50K."""
    rows = [
        # adult.test ends its labels in a full stop and opens with a line that is no record.
        line.rstrip(".").split(", ")
        for file in ("adult.data", "adult.test")
        for line in files[file].decode().splitlines()
        if line and not line.startswith("|")
    ]
    columns = {
        column: pa.chunked_array([cells])
        for column, cells in zip(ADULT_COLUMNS, map(list, zip(*rows, strict=True)), strict=True)
    }
    categorical = [column for column in ADULT_COLUMNS if column not in (*ADULT_NUMERIC, "income")]
    return tables.from_table(name, columns, provenance, categorical=categorical, label="income")


def census(name: str, files: Files, provenance: Provenance) -> Dataset:
    """Thirteen numeric columns, no label."""
    ((file, blob),) = files.items()
    return tables.from_table(name, tables.read_csv(file, blob), provenance)


def gfe(name: str, files: Files, provenance: Provenance) -> Dataset:
    """x, y (pixels) and z (millimetres) of 100 points of a face; y is 1 within an expression; groups are videos."""
    arrays = _only_npz(files)
    n = len(arrays["y"])
    points = np.empty((n, 100, 3), np.float32)
    points[:, :, :2] = arrays["xy_milli"].transpose(2, 1, 0) / 1000.0
    points[:, :, 2] = arrays["z"].T
    x, offset, scale = unit_range(points.reshape(n, 300))
    n_expressions = len(arrays["expression_names"])
    return Dataset(
        name=name,
        x=x,
        y=arrays["y"].astype(np.int64),
        shape=(300,),
        feature_names=tuple(f"{point}{axis}" for point in range(100) for axis in "xyz"),
        groups=arrays["user"].astype(np.int64) * n_expressions + arrays["expression"],
        provenance=provenance,
        offset=offset,
        scale=scale,
    )


def _idx(blob: bytes) -> np.ndarray:
    """The uint8 array of a gzipped idx file: two zero bytes, type 8, rank, then big-endian lengths."""
    raw = gzip.decompress(blob)
    rank = raw[3]
    shape = np.frombuffer(raw, ">u4", count=rank, offset=4)
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * rank).reshape(shape)


def _only_npz(files: Files) -> dict[str, np.ndarray]:
    (blob,) = files.values()
    with np.load(io.BytesIO(blob), allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}
