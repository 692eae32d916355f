"""Pytrees as named arrays on disk: npz files written whole or not at all, and never pickled."""

from __future__ import annotations

import json
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import jax
import numpy as np

from drjax.core.json_files import parse
from drjax.core.store import atomic_open
from drjax.core.types import PyTree

_HEADER = "header"


def flatten(tree: PyTree, prefix: str) -> dict[str, np.ndarray]:
    """The leaves of a pytree as host arrays named "prefix" + path; `unflatten` reads them back."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {prefix + jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}


def unflatten(template: PyTree, arrays: dict[str, np.ndarray], prefix: str) -> PyTree:
    """A pytree of the template's structure with the leaves that `flatten` named.

    Raises:
        ValueError: a leaf is missing, or has another shape or dtype than the template's.
    """
    paths, structure = jax.tree_util.tree_flatten_with_path(template)
    leaves = []
    for path, expected in paths:
        name = prefix + jax.tree_util.keystr(path)
        if name not in arrays:
            raise ValueError(f"arrays must hold {name!r}, got {len(arrays)} other names")
        leaf = arrays[name]
        if leaf.shape != expected.shape or leaf.dtype != expected.dtype:
            raise ValueError(
                f"{name} must have shape {expected.shape} and dtype {expected.dtype}, got {leaf.shape} and {leaf.dtype}"
            )
        leaves.append(leaf)
    return jax.tree_util.tree_unflatten(structure, leaves)


def write_npz(path: Path, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Writes arrays and a JSON header; the old file stays until the new one is complete."""
    with atomic_open(path) as file:
        np.savez(file, allow_pickle=False, **{_HEADER: np.array(json.dumps(header))}, **arrays)


def read_npz(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What `write_npz` wrote.

    Raises:
        ValueError: the file is no such npz, or is damaged.
        FileNotFoundError: there is no file.
    """
    # A damaged zip shows as any of these, depending on the byte that is wrong.
    damage = (
        ValueError,
        KeyError,
        EOFError,
        OSError,
        NotImplementedError,
        zipfile.BadZipFile,
        zlib.error,
        struct.error,
    )
    with path.open("rb") as file:
        try:
            with np.load(file, allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
            return parse(str(arrays.pop(_HEADER)).encode(), "header", str(path), allow_constants=True), arrays
        except damage as error:
            raise ValueError(f"{path} must be an npz file that drjax wrote, got one that cannot be read") from error
