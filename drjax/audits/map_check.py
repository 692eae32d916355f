"""Whether a published map is what a method makes of the records: a check by whoever holds all of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from drjax.attacks.shadow import shadow_embeddings
from drjax.audits import needs
from drjax.core.types import DRMethod
from drjax.dr import Pipeline, Rescale, Rotate, Shift

SHARE = 1e-3
"""Difference of a coordinate, beside its rounding, that a solver may leave: a share of its size and of its column's
standard deviation. It lets four significant digits pass."""

NOT_COMPARED = "Not compared with a map made anew: the method draws at random, or each program makes a map of its own."


@dataclass(frozen=True)
class Comparison:
    """A map beside the one that a method makes.

    Attributes:
        method: Method, its factor set to that of the map where it multiplies coordinates by one.
        difference: Largest difference of a coordinate, up to signs of columns, in standard deviations of its column;
            None where nothing was compared, see `is_compared`.
        row: Row where that is.
        fits: Whether all differences are within what rounding and solvers leave, or nothing was compared.
    """

    method: DRMethod
    difference: float | None
    row: int
    fits: bool

    @property
    def in_words(self) -> str:
        """The largest difference."""
        return f"up to {self.difference:.2g} of a column's standard deviation, in row {self.row} (counted from 0)"

    @property
    def sentence(self) -> str:
        """What was compared, for a report."""
        if self.difference is None:
            return NOT_COMPARED
        return f"Compared with the map made anew from all records: differs by {self.in_words}, signs of columns aside."


def is_compared(method: DRMethod) -> bool:
    """Whether every program makes the same map by it, up to signs: nothing is drawn, and no descent is chaotic."""
    return method.deterministic and method.repeatable


def compare(
    methods: Sequence[DRMethod], values: np.ndarray, coords: np.ndarray, decimals: int | None
) -> tuple[Comparison, ...]:
    """Compares a map with what each method makes of the records, up to the sign of each column.

    Args:
        methods: Methods; see `is_compared`.
        values: (n, d) records.
        coords: (n, k) map.
        decimals: Decimals that it is rounded to; None if it is not.

    Raises:
        ValueError: records that do not suit a method.
        NotEnoughMemory: more than is available would be needed.
    """
    return tuple(_compared(method, values, coords, decimals) for method in methods)


def _compared(method: DRMethod, values: np.ndarray, coords: np.ndarray, decimals: int | None) -> Comparison:
    if not is_compared(method):
        return Comparison(method, None, 0, True)

    def need(count: int) -> needs.Needs:
        return needs.of_embedding(method, count, values.shape[1], with_quality=False)

    needs.require(need(len(values)), "comparing the map", "the number of records in --data", need, len(values))
    given = coords.astype(np.float64)
    with jax.enable_x64(True):
        # One more record beside the others: the same embedding by the faster way.
        made = np.asarray(shadow_embeddings(jax.random.key(0), method, values[1:], values[:1]).coords[0])
        made, given = _turned_back(method, made), _turned_back(method, given)
    made = made * np.where((made * given).sum(axis=0) < 0, -1, 1)
    if isinstance(method, Pipeline) and any(isinstance(step, Rescale) for step in method.after):
        # The factor was read off the known records; all of them say what it is.
        factor = float((made * given).sum() / (made**2).sum())
        made = made * factor
        method = dataclasses.replace(method, after=tuple(_times(step, factor) for step in method.after))
    # Turned back, a column holds the rounding of all.
    rounding = 0.0 if decimals is None else 0.5 * 10.0**-decimals * np.sqrt(given.shape[1])
    digits = np.finfo(coords.dtype).eps if coords.dtype.kind == "f" else 0.0
    spread, gap = given.std(axis=0), np.abs(given - made)
    allowed = rounding + digits * np.abs(given) + SHARE * (spread + np.abs(given))
    relative = np.where(np.isfinite(gap), gap, np.inf) / spread
    return Comparison(method, float(relative.max()), int(relative.max(axis=1).argmax()), bool((gap <= allowed).all()))


def _turned_back(method: DRMethod, coords: np.ndarray) -> np.ndarray:
    """A map (n, k) before it was turned and shifted, with columns of which the signs alone are open."""
    for step in reversed(method.after if isinstance(method, Pipeline) else ()):
        if isinstance(step, Rotate | Shift):
            coords = np.asarray(step.undo(jnp.asarray(coords)))
    return coords


def _times(step: object, factor: float) -> object:
    return dataclasses.replace(step, factor=float(step.factor) * factor) if isinstance(step, Rescale) else step
