"""Whether a published map is what a method makes of the records: a check by whoever holds all of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.neighbors import NearestNeighbors

from drjax.attacks.shadow import shadow_embeddings
from drjax.audits import needs
from drjax.core.statistics import spread_rows
from drjax.core.types import DRMethod
from drjax.dr import Linear, Pipeline, Rescale, Rotate, Shift, Unnamed
from drjax.dr.pipeline.after import AfterStep

SHARE = 1e-3
"""Difference of a coordinate, beside its rounding, that a solver may leave: a share of its size and of its column's
standard deviation. It lets four significant digits pass."""

N_NEIGHBORS = 10
"""Neighbours of a record that are looked for in a map that is not compared."""

MOST_SEEN = 2000
"""Records of which that is done, at most, from the whole file."""

LEAST_SEEN = 30
"""Records of which fewer say nothing."""

N_ORDERS = 199
"""Random orders of the rows that a map must be better than."""

NOT_COMPARED = "Not compared with a map made anew: the method draws at random, or each program makes a map of its own."


@dataclass(frozen=True)
class Comparison:
    """A map beside the one that a method makes.

    Attributes:
        method: Method, its factor set to that of the map where it multiplies coordinates by one.
        difference: Largest difference of a coordinate, up to signs of columns, in standard deviations of its column;
            None where the map cannot be made anew, see `is_compared`.
        row: Row where that is.
        fits: Whether all differences are within what rounding and solvers leave; where the map cannot be made anew,
            whether it keeps more neighbours than with its rows in any of `N_ORDERS` orders, where that is asked.
        kept: Share of records' neighbours that are neighbours in the map, and the largest share in another order of
            its rows; None where the map was made anew, has too few rows, or need not keep any.
    """

    method: DRMethod
    difference: float | None
    row: int
    fits: bool
    kept: tuple[float, float] | None = None

    @property
    def in_words(self) -> str:
        """The largest difference, or the neighbours kept."""
        if self.kept is not None:
            share, by_chance = self.kept
            return (
                f"of a record's {N_NEIGHBORS} nearest {share:.1%} are among its nearest in the map, and with the rows "
                f"in another order up to {by_chance:.1%}"
            )
        return f"up to {self.difference:.2g} of a column's standard deviation, in row {self.row} (counted from 0)"

    @property
    def sentence(self) -> str:
        """What was compared, for a report."""
        if self.difference is None:
            return NOT_COMPARED if self.kept is None else f"{NOT_COMPARED} But {self.in_words}."
        return f"Compared with the map made anew from all records: differs by {self.in_words}, signs of columns aside."


def is_compared(method: DRMethod) -> bool:
    """Whether every program makes the same map by it, up to signs: nothing is drawn, and no descent is chaotic."""
    own = method.method if isinstance(method, Pipeline) else method
    return own.deterministic and own.repeatable


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


def related(values: np.ndarray, coords: np.ndarray) -> Comparison:
    """Whether a map (n, k) that no known method made is one of the records (n, d), row by row: by their neighbours.

    Of fewer than `LEAST_SEEN` records nothing is said, and it does not fit.
    """
    found = _by_neighbors(Unnamed(n_components=coords.shape[1]), values, coords)
    return found if found.kept is not None else dataclasses.replace(found, fits=False)


def _compared(method: DRMethod, values: np.ndarray, coords: np.ndarray, decimals: int | None) -> Comparison:
    if not is_compared(method):
        # A method that minimises nothing, such as a random projection, need not keep any.
        if method.minimises is None:
            return Comparison(method, None, 0, True)
        return _by_neighbors(method, values, coords)

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
    if isinstance(method, Pipeline) and any(isinstance(step, Linear) for step in method.after):
        # So was the linear map.
        mixed = np.linalg.lstsq(made, given, rcond=None)[0]
        made = made @ mixed
        method = dataclasses.replace(method, after=tuple(_mixed(step, mixed) for step in method.after))
    # Turned back, a column holds the rounding of all.
    rounding = 0.0 if decimals is None else 0.5 * 10.0**-decimals * np.sqrt(given.shape[1])
    digits = np.finfo(coords.dtype).eps if coords.dtype.kind == "f" else 0.0
    spread, gap = given.std(axis=0), np.abs(given - made)
    allowed = rounding + digits * np.abs(given) + SHARE * (spread + np.abs(given))
    relative = np.where(np.isfinite(gap), gap, np.inf) / spread
    return Comparison(method, float(relative.max()), int(relative.max(axis=1).argmax()), bool((gap <= allowed).all()))


def _by_neighbors(method: DRMethod, values: np.ndarray, coords: np.ndarray) -> Comparison:
    """Whether neighbours are kept, of the records as the method gets them or each feature in its own spread."""
    seen = spread_rows(len(values), MOST_SEEN)
    if len(seen) < LEAST_SEEN:
        return Comparison(method, None, 0, True)
    records = values[seen]
    spread = records.std(axis=0)
    views = [records / np.where(spread > 0, spread, 1)]
    if isinstance(method, Pipeline):
        with jax.enable_x64(True):
            records = np.asarray(method.prepared(records))
    if np.isfinite(records).all():
        views.insert(0, records)
    found = [_neighbors_kept(view, coords[seen]) for view in views]
    kept = next((one for one in found if one[0] > one[1]), found[0])
    return Comparison(method, None, 0, kept[0] > kept[1], kept)


def _neighbors_kept(records: np.ndarray, coords: np.ndarray) -> tuple[float, float]:
    """Share of neighbours among records (n, d) that are so among coords (n, k), and the largest of other orders."""
    n, rng = len(records), np.random.default_rng(0)
    near, in_map = (
        NearestNeighbors(n_neighbors=N_NEIGHBORS).fit(one).kneighbors(return_distance=False)
        for one in (records, coords)
    )
    is_near = np.zeros((n, n), bool)
    is_near[np.arange(n)[:, None], near] = True
    orders = [np.arange(n), *(rng.permutation(n) for _ in range(N_ORDERS))]
    shares = [float(is_near[order[:, None], order[in_map]].mean()) for order in orders]
    return shares[0], max(shares[1:])


def _turned_back(method: DRMethod, coords: np.ndarray) -> np.ndarray:
    """A map (n, k) before it was turned and shifted, with columns of which the signs alone are open."""
    for step in reversed(method.after if isinstance(method, Pipeline) else ()):
        if isinstance(step, Rotate | Shift):
            coords = np.asarray(step.undo(jnp.asarray(coords)))
    return coords


def _times(step: AfterStep, factor: float) -> AfterStep:
    return dataclasses.replace(step, factor=float(step.factor) * factor) if isinstance(step, Rescale) else step


def _mixed(step: AfterStep, mixed: np.ndarray) -> AfterStep:
    """The step, a linear map followed by another one."""
    if not isinstance(step, Linear):
        return step
    return dataclasses.replace(step, matrix=tuple(map(tuple, (np.asarray(step.matrix) @ mixed).tolist())))
