"""Maps of shadow records with shares drawn at random, as the adversary would see them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from drjax.attacks.property.defences import Defence
from drjax.attacks.property.groups import sample_groups
from drjax.attacks.property.maps import tsne_maps
from drjax.attacks.property.observation import Sheet
from drjax.core import validate
from drjax.core.progress import shown
from drjax.core.types import Array, DRMethod, is_usable

MIN_RANGE = 0.1
"""Least width of the range of shares that an attack is trained on, unless it is asked for."""


class Records(NamedTuple):
    """What groups are drawn from.

    Attributes:
        features: (N, d).
        has_property: (N,) bool.
    """

    features: np.ndarray
    has_property: np.ndarray


class ShadowMaps(NamedTuple):
    """Maps of known share.

    Attributes:
        maps: Arrays (n_i, 2), as seen.
        shares: Shares, one for each map: that of the group that it was made of.
        status: (count,) uint32 flags of all that were made.
        n_unread: Maps that could not be read back, left out, as those are whose fit failed.
    """

    maps: list[np.ndarray]
    shares: np.ndarray
    status: np.ndarray
    n_unread: int


def feasible_levels(given: tuple[float, float] | None, sides: Sequence[Records], n: int) -> tuple[float, float]:
    """The range of shares: the given one, or the widest that every side can furnish for groups of n records.

    Raises:
        ValueError: more than some side can furnish, no range in [0, 1], or nothing left of `MIN_RANGE`.
    """
    most = min(int(side.has_property.sum()) for side in sides)
    others = min(int((~side.has_property).sum()) for side in sides)
    low, high = max(0.0, 1 - others / n), min(1.0, most / n)
    have = (
        f"for maps of {n} points with shares between LOW and HIGH the shadow data must have HIGH * {n} records with "
        f"the property and (1 - LOW) * {n} without it in each half, and a half has {most} and {others}"
    )
    if given is None:
        if high - low < MIN_RANGE:
            raise ValueError(f"{have}: no range of {MIN_RANGE} is left, give more records or a smaller n_points")
        return low, high
    validate.probability(levels=given)
    if not given[0] < given[1]:
        raise ValueError(f"levels must be a lower and an upper share, got {given[0]:g} and {given[1]:g}")
    # Counts are rounded: half a record is no want of one.
    if given[0] * n < low * n - 0.5 or given[1] * n > high * n + 0.5 - 1e-9:
        raise ValueError(f"{have}: levels must be within {low:.3g} to {high:.3g}, got {given[0]:g} to {given[1]:g}")
    return given


def sample_maps(
    key: Array,
    records: Records,
    count: int,
    n: int,
    levels: tuple[float, float],
    method: DRMethod,
    sheet: Sheet | None = None,
    *,
    defence: Defence | None = None,
    progress: bool = False,
) -> ShadowMaps:
    """Maps of groups whose shares are drawn evenly from a range, each by itself.

    Args:
        key: Decides shares, groups, random starts, and colours where the sheet has several.
        records: What groups are drawn from.
        count: Maps to make, >= 1.
        n: Records of a group.
        levels: Least and greatest share, as from `feasible_levels`.
        method: What maps, to two dimensions.
        sheet: Draw each map so and read it back; None gives coordinates as they are.
        defence: Defence of the maps, see `tsne_maps`.
        progress: Show a bar of maps, and one of readings.

    Raises:
        ValueError: as `sample_groups` and `tsne_maps`.
    """
    share_key, group_key, map_key, color_key = jax.random.split(key, 4)
    drawn = np.asarray(jax.random.uniform(share_key, (count,), np.float32), np.float64)
    shares = np.clip(levels[0] + drawn * (levels[1] - levels[0]), *levels)
    groups = sample_groups(group_key, records.has_property, [float(share) for share in shares], n, 1)
    made = tsne_maps(map_key, records.features, groups, method, defence=defence, progress=progress)
    usable = np.flatnonzero(is_usable(made.status))
    seen: list[np.ndarray | None] = [made.coords[i] for i in usable]
    if sheet is not None:
        seeds = np.asarray(jax.random.bits(color_key, (count, 4), np.uint32))
        with shown("maps read back", len(usable), enabled=progress) as advance:
            for at, i in enumerate(usable):
                seen[at] = sheet.read_back(made.coords[i], np.random.default_rng(seeds[i]))
                advance(1)
    kept = [i for i, points in enumerate(seen) if points is not None]
    maps = [np.asarray(seen[i], np.float64) for i in kept]
    return ShadowMaps(maps, groups.proportions[usable[kept]], made.status, len(seen) - len(kept))
