"""A run between two epochs on disk, told from other runs by a fingerprint."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from drjax.core.types import Array, PyTree
from drjax.nets import training_data
from drjax.nets.arrays import flatten, read_npz, unflatten, write_npz


def fingerprint_of(
    config: Any, tag: str, params: PyTree, further: Sequence[Any], keys: Array, data: training_data.Data
) -> str:
    """A digest of a configuration, of the network by its tag and the shapes of its weights, of keys and of data."""
    shapes = [(name, leaf.shape) for name, leaf in flatten(params, "").items()]
    what = repr((config, tag, shapes, *further))
    return training_data.fingerprint_of(what, jax.random.key_data(keys), *data)


def write(path: Path, fingerprint: str, members: PyTree, history: dict[str, np.ndarray]) -> None:
    """Writes members and the history of the epochs so far, never half of it."""
    write_npz(path, {"fingerprint": fingerprint}, flatten(members, "members") | history)


def read(path: Path, fingerprint: str, members: PyTree) -> tuple[PyTree, dict[str, np.ndarray]]:
    """What `write` wrote, in the form of `members`.

    Raises:
        ValueError: the file is damaged or of another run.
    """
    header, arrays = read_npz(path)
    if header.get("fingerprint") != fingerprint:
        raise ValueError(
            f"checkpoint must come from the same configuration, data and keys, got {path} of another run: delete it"
        )
    return unflatten(members, arrays, "members"), arrays
