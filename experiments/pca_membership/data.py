"""The paper's data sets: records standardised over the whole set, which is the paper's convention and not private."""

from __future__ import annotations

import functools

import numpy as np

from drjax.core import validate
from drjax.data import Dataset, load

NAMES = ("mnist", "lfw", "adult", "census", "digits")
"""Those of the paper, and digits, which need no files."""

SOURCES = {"lfw": "lfw:all"}
"""Names that the loader has for them, where those differ."""


@functools.cache
def records(name: str) -> np.ndarray:
    """(n, d) float64 of mean 0 and variance 1 in every feature that varies, over all n records.

    LFW is 25 x 18, one image a person, the first. Adult has its 14 attributes, categories numbered in alphabetical
    order.

    Raises:
        ValueError: an unknown name.
        OSError: the files are not there.
    """
    validate.one_of(NAMES, name=name)
    data = load(SOURCES.get(name, name))
    x = numbered(data) if name == "adult" else data.x.reshape(len(data.x), -1).astype(np.float64)
    if name == "lfw":
        assert data.groups is not None
        x = x[np.unique(data.groups, return_index=True)[1]]
    x = x - x.mean(axis=0)
    spread = x.std(axis=0)
    return x / np.where(spread > 0, spread, 1)


def numbered(data: Dataset) -> np.ndarray:
    """(n, attributes): one-hot columns "attribute=category" put back together as the number of the category."""
    assert data.feature_names is not None
    x = data.x.astype(np.float64)
    attributes: dict[str, list[int]] = {}
    for i, name in enumerate(data.feature_names):
        attributes.setdefault(name.partition("=")[0], []).append(i)
    columns = [x[:, own[0]] if len(own) == 1 else np.argmax(x[:, own], axis=1) for own in attributes.values()]
    return np.stack(columns, axis=1).astype(np.float64)
