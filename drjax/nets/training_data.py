"""What networks are trained on: checked at the boundary, and told from other data by a fingerprint."""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import numpy as np
from jax.typing import ArrayLike

from drjax.core import validate


class Data(NamedTuple):
    """Inputs (m, ...) with one row of targets (m, d) each, to train on and to validate on.

    With a leading axis of members where each has its own.
    """

    inputs: Any
    targets: Any
    validation_inputs: Any
    validation_targets: Any


def checked(
    inputs: ArrayLike, targets: ArrayLike, validation: tuple[ArrayLike, ArrayLike], stacked: bool, n_members: int
) -> Data:
    """The data on the host in float32; inputs of uint8 as they are.

    Raises:
        ValueError: values not finite, inputs and targets of unequal lengths, none at all, or, if `stacked`, without a
            leading axis of members.
    """
    arrays = {
        "inputs": inputs,
        "targets": targets,
        "validation[0]": validation[0],
        "validation[1]": validation[1],
    }
    validate.finite(**arrays)
    x, y = as_inputs(inputs), np.asarray(targets, np.float32)
    data = Data(x, y, as_inputs(validation[0]), np.asarray(validation[1], np.float32))
    for name, array in zip(arrays, data, strict=True):
        if stacked and array.shape[:1] != (n_members,):
            raise ValueError(f"{name} must have a leading axis of {n_members} members, got shape {array.shape}")
    axis = int(stacked)
    for a, b, name in ((0, 1, "targets"), (2, 3, "validation targets")):
        if data[a].ndim <= axis or data[b].ndim != axis + 2 or data[a].shape[axis] != data[b].shape[axis]:
            raise ValueError(f"{name} must be one row per input, got shapes {data[a].shape} and {data[b].shape}")
        validate.integer(**{f"number of {name}": data[a].shape[axis]})
    return data


def renewed(data: Data, inputs: ArrayLike, targets: ArrayLike) -> Data:
    """The data with others to train on.

    Raises:
        ValueError: values not finite, or arrays of other shapes than before.
    """
    validate.finite(inputs=inputs, targets=targets)
    x, y = as_inputs(inputs), np.asarray(targets, np.float32)
    if (x.shape, x.dtype, y.shape) != (data.inputs.shape, data.inputs.dtype, data.targets.shape):
        raise ValueError(
            f"renewed inputs and targets must have shapes {data.inputs.shape} and {data.targets.shape} as the first "
            f"epoch's, got {x.shape} and {y.shape}"
        )
    return data._replace(inputs=x, targets=y)


def as_inputs(inputs: ArrayLike) -> np.ndarray:
    """What a network is fed with, on the host: uint8 as it is, a quarter of the memory, and float32 of all else."""
    array = np.asarray(inputs)
    return array if array.dtype == np.uint8 else array.astype(np.float32, copy=False)


def fingerprint_of(what: str, *arrays: ArrayLike) -> str:
    """A digest of a description and of arrays with their shapes and dtypes."""
    digest = hashlib.sha256(what.encode())
    for value in arrays:
        array = np.asarray(value)
        digest.update(repr((array.shape, array.dtype)).encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
