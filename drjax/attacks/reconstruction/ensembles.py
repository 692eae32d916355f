"""What attacks with ensembles of networks share: their files, their mean, and the releases it says nothing of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np

from drjax.core.types import Array, PyTree, Reconstruction, Status, is_usable
from drjax.nets import arrays
from drjax.nets.training import History, MakeModel, predict, train


def train_members(
    key: Array, n_members: int, make_model: MakeModel, *data: Any, **options: Any
) -> tuple[PyTree, History]:
    """`nets.training.train` of members with keys fold_in(key, e); the state (a leading axis of members) on the host."""
    keys = jax.vmap(lambda e: jax.random.fold_in(key, e))(np.arange(n_members))
    state, history = train(keys, make_model, *data, **options)
    return jax.tree.map(np.asarray, state), history


def mean_output(
    make_model: MakeModel, state: PyTree, member_status: np.ndarray, inputs: np.ndarray, d: int
) -> np.ndarray:
    """(m, d) mean over the members that training did not fail; nan if there is none."""
    usable = is_usable(member_status)
    if not usable.any():
        return np.full((len(inputs), d), np.nan, np.float32)
    return np.asarray(predict(make_model, jax.tree.map(lambda leaf: leaf[usable], state), inputs)).mean(axis=0)


def reconstruction(x: np.ndarray, releases: np.ndarray) -> Reconstruction:
    """Reconstructions x (m, d) as their only candidates; NON_FINITE and nan where x or its release is not finite."""
    # A ReLU may turn a nan into 0, so that the output alone would not show a lane that was never valid.
    is_good = np.asarray(np.isfinite(x).all(axis=1) & np.isfinite(releases.reshape(len(x), -1)).all(axis=1))
    x = np.where(is_good[:, None], x, np.nan).astype(x.dtype)
    status = np.where(is_good, np.uint32(Status.OK), np.uint32(Status.NON_FINITE))
    return Reconstruction(
        x=x, y=None, candidates=x[:, None], residual_norm=np.full(len(x), np.nan, x.dtype), status=status
    )


def read_model(
    path: str | Path, what: str, header_names: set[str], field_names: set[str]
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Header and arrays of a saved model.

    Raises:
        ValueError: the file is damaged or lacks a name.
        FileNotFoundError: there is no file.
    """
    header, fields = arrays.read_npz(Path(path))
    if not header_names <= header.keys() or not field_names <= fields.keys():
        raise ValueError(f"{path} must be a saved {what}, got an npz file without its fields")
    return header, fields
