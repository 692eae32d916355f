"""What the neighbours of a point in one map say of its record: kernel ridge regression within the release itself.

An adversary who knows the other records knows where each of them lies in the published map, and so what records near a
place look like. No shadow release and no public record is needed, and a rotation means nothing within one map.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from drjax.attacks.attack import Cost, EmbeddingAttack, EmbeddingThreat, EveryRecord
from drjax.attacks.reconstruction.closed_form.each import checked_rows
from drjax.attacks.reconstruction.invariant import N_SEARCHED
from drjax.attacks.shadow import DENSE_FLOPS
from drjax.core import validate
from drjax.core.kernel_regression import Kernel, leave_one_out_weights, median_or_one, squared_distances, tune
from drjax.core.statistics import spread_rows
from drjax.core.types import Array, Reconstruction, Status

WIDTHS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
"""Grid of the kernel's width, in units of the median squared distance between two points of the map."""

MOST_RECORDS = 8000
"""Records of one release that are made use of, where every record is attacked: three matrices of all their pairs."""

N_GROUPS = 10
"""Sets of records whose kernel is chosen together, on the records outside the set."""


def reconstruct_within_map(x: Array, coords: Array, *, rows: Sequence[int] | Array | None = None) -> Reconstruction:
    """Reconstructs each record from its place in the map, the map of all others and those others' records.

    The estimate for record i is the kernel ridge regression of the other n-1 records on their coordinates, taken at
    the coordinates of i; all of them come from one factorisation. Width and penalty are chosen by leave-one-out error
    among records of other groups, `N_SEARCHED` at most: the record itself has no part in the choice. Where enough
    records are not attacked, those choose once for all that are. O(n^3 / 3 + 2 n^2 m) for m rows per chosen pair, and
    8 n^2 bytes; nothing is drawn.

    Args:
        x: (n, d), all records in the order of the release, n >= 3.
        coords: (n, k) of the release.
        rows: The records to reconstruct; all if None.

    Returns:
        x (m, d) in the order of `rows`; residual_norm is nan.

    Raises:
        ValueError: arrays not finite or of shapes that do not match, or a row out of range.

    Source: Saunders, Gammerman & Vovk (1998), kernel ridge regression; leave-one-out by Golub, Heath & Wahba (1979).
    """
    x = validate.matrix(x, "x", min_rows=3).astype(np.float64)
    points = validate.matrix(coords, "coords").astype(np.float64)
    n = len(x)
    if len(points) != n:
        raise ValueError(f"coords must have {n} rows, one for each record, got {len(points)}")
    chosen = checked_rows(rows, n)
    centred_points = points - points.mean(axis=0)
    squared = squared_distances(centred_points)
    median = median_or_one(squared)
    group = _groups(n, chosen)
    found = np.empty((len(chosen), x.shape[1]))
    weights: dict[tuple[Kernel, float], np.ndarray] = {}
    for number in np.unique(group[chosen]):
        known = np.flatnonzero(group != number)
        known = known[spread_rows(len(known), N_SEARCHED)]
        away = x[known] - x[known].mean(axis=0)
        _, penalty, kernel = tune(squared[np.ix_(known, known)], away, widths=WIDTHS, unit=median)
        if (kernel, penalty) not in weights:
            # One n x n matrix at a time.
            found_weights = leave_one_out_weights(kernel(centred_points, centred_points), penalty, chosen)
            weights = {(kernel, penalty): found_weights}
        lanes = np.flatnonzero(group[chosen] == number)
        own = chosen[lanes]
        mean = (x.sum(axis=0) - x[own]) / (n - 1)
        rest = weights[kernel, penalty][lanes]
        found[lanes] = rest @ x + (1 - rest.sum(axis=1, keepdims=True)) * mean
    status = np.full(len(chosen), np.uint32(Status.OK))
    return Reconstruction(found, None, found[:, None], np.full(len(chosen), np.nan), status)


def _seconds(n: int, d: int, n_rows: int) -> float:
    """Time for some of n records of d features."""
    n_parts = max(1, -(-n_rows // (MOST_RECORDS // 2)))
    n, n_rows = min(n, MOST_RECORDS), -(-n_rows // n_parts)
    s, n_groups = min(n, N_SEARCHED), 1 if n - n_rows >= N_SEARCHED else min(N_GROUPS, n)
    tuning = n_groups * len(WIDTHS) * (2.0 * s**3 + 20.0 * s**2 * min(s, d))
    # Products of large matrices run twice as fast as the rest.
    return n_parts * (tuning + n**3 / 6 + n**2 * n_rows) / DENSE_FLOPS


def _groups(n: int, rows: np.ndarray) -> np.ndarray:
    """(n,) set of each record; the kernel of one set is chosen on the others."""
    # In a fixed order that has nothing to do with theirs in the file, which may be sorted.
    order = np.random.default_rng(0).permutation(n)
    is_attacked = np.isin(np.arange(n), rows)
    if n - is_attacked.sum() >= N_SEARCHED:
        return np.where(is_attacked, 0, 1)
    return order % min(N_GROUPS, n)


def _seen(n: int, rows: np.ndarray) -> np.ndarray:
    """Rows of the records that an adversary makes use of: all n, or the attacked ones and others, drawn at random."""
    if n <= MOST_RECORDS:
        return np.arange(n)
    others = np.random.default_rng(0).permutation(np.setdiff1d(np.arange(n), rows))
    return np.sort(np.concatenate([rows, others[: MOST_RECORDS - len(rows)]]))


@dataclass(frozen=True, kw_only=True)
class NeighboursInMap(EmbeddingAttack):
    """Kernel regression within the map; see `reconstruct_within_map`."""

    name: str = "map"
    label: str = "Neighbours in the map"
    description: str = "Predicts a record from the known records that lie near it in the release."
    takes_hidden = True
    each = True
    shares_each = True
    confirms = False

    def cost(self, threat: EmbeddingThreat) -> Cost:
        """See `Attack`; of all records at once that it takes together."""
        n, d = min(len(threat.known), MOST_RECORDS), threat.known.shape[1]
        searched, attacked = min(n, N_SEARCHED), min(n, MOST_RECORDS // 2)
        one = len(WIDTHS) * (8.0 * searched**3 + 2.0 * searched**2 * d) + n**3 / 3 + 2.0 * n**2 * attacked
        return Cost(threat.n_releases * one / DENSE_FLOPS, 32.0 * n**2)

    def seconds_each(self, every: EveryRecord, n_rows: int) -> float:
        """See `EmbeddingAttack`."""
        n, d = every.x.shape
        return _seconds(n, d, n_rows)

    def run(self, key: Array, threat: EmbeddingThreat) -> Reconstruction:
        """See `Attack`; nothing is drawn."""
        del key
        # Nothing of a record enters its own reconstruction but its row of the map.
        x = np.concatenate([threat.known.mean(axis=0, keepdims=True), threat.known])
        found = [
            reconstruct_within_map(x, release, rows=[0]).x[0]
            if np.isfinite(release).all()
            else np.full(x.shape[1], np.nan)
            for release in threat.coords
        ]
        status = np.where(np.isfinite(found).all(axis=1), np.uint32(Status.OK), np.uint32(Status.NON_FINITE))
        stacked = np.stack(found)
        unknown = np.full(len(found), np.nan)
        return threat.clipped(Reconstruction(stacked, None, stacked[:, None], unknown, status))

    def run_each(self, key: Array, every: EveryRecord) -> Reconstruction:
        """See `EmbeddingAttack`; nothing is drawn."""
        del key
        parts = []
        for rows in np.array_split(every.rows, max(1, -(-len(every.rows) // (MOST_RECORDS // 2)))):
            seen = _seen(len(every.x), rows)
            own = np.searchsorted(seen, rows)
            parts.append(reconstruct_within_map(every.x[seen], every.coords[seen], rows=own))
        x = np.concatenate([part.x for part in parts])
        x = x if every.bounds is None else np.clip(x, *every.bounds)
        status = np.concatenate([part.status for part in parts])
        return Reconstruction(x, None, x[:, None], np.full(len(x), np.nan), status)
