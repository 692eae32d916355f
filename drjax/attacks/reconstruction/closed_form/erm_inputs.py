"""Arguments of `reconstruct_erm`, checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from drjax.core import validate
from drjax.core.types import Array


def parameters(leaf: Any) -> np.ndarray:
    """An array of parameters in float64."""
    array = np.asarray(leaf)
    if array.dtype.kind not in "fiub" and array.dtype.name != "bfloat16":
        raise ValueError(f"params must be numeric (float, integer or bool), got dtype {array.dtype}")
    validate.finite(params=array)
    return array.astype(np.float64)


def labels(
    known: Array, n: int, target_y: float | None, labels: Sequence[float] | Array | None
) -> tuple[np.ndarray, list[Any]]:
    """Labels of the known records and those to try, [None] where any number is; integers if all are."""
    given = {"known_y": np.asarray(known)}
    if given["known_y"].shape != (n,):
        raise ValueError(f"known_y must have shape ({n},), one per known record, got {given['known_y'].shape}")
    if labels is not None:
        given["labels"] = np.asarray(labels)
        if given["labels"].ndim != 1 or not given["labels"].size:
            raise ValueError(f"labels must be a non-empty list of numbers, got shape {given['labels'].shape}")
    if target_y is not None:
        given["target_y"] = np.asarray(target_y)
        if given["target_y"].shape != ():
            raise ValueError(f"target_y must be one number, got shape {given['target_y'].shape}")
    for name, values in given.items():
        if values.dtype.kind not in "fiub":
            raise ValueError(f"{name} must be numeric (float, integer or bool), got dtype {values.dtype}")
        validate.finite(**{name: values})
    if target_y is not None and labels is not None and target_y not in given["labels"]:
        raise ValueError(f"target_y must be among the labels, got {target_y}")
    is_whole = len(given) > 1 and all(values.dtype.kind in "iub" for values in given.values())
    tried = given.get("target_y", given.get("labels"))
    dtype = np.int64 if is_whole else np.float64
    return given["known_y"].astype(dtype), [None] if tried is None else list(np.unique(tried).astype(dtype))


def scalar(fn: Callable[..., Any], name: str, *arguments: Any) -> None:
    """Refuses what does not return a scalar."""
    shape = getattr(jax.eval_shape(fn, *arguments), "shape", None)
    if shape != ():
        raise ValueError(f"{name} must return a scalar, got shape {shape}")
