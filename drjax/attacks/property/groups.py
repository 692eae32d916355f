"""Which records make a plot: groups in which a property has a prescribed share, and the two sides that draw them.

Source: "Property inference attacks against t-SNE plots" (ICLR 2023 submission), section 4.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from drjax.core import validate
from drjax.core.types import Array
from drjax.data.dataset import Dataset

LEVELS = (0.3, 0.4, 0.5, 0.6, 0.7)
"""The paper's five classes."""

GRID = tuple(i / 100 for i in range(101))
"""The paper's proportions for regression."""


class Groups(NamedTuple):
    """Records of g plots.

    Attributes:
        rows: (g, n) int32 records, all different within a group, in random order.
        proportions: (g,) float64, share of each group's records that have the property.
    """

    rows: np.ndarray
    proportions: np.ndarray


def sample_groups(
    key: Array, has_property: Array, proportions: Sequence[float], group_size: int, n_per_proportion: int
) -> Groups:
    """Draws groups of records in which the property has given shares.

    Group i = level * n_per_proportion + j depends on its share, the key and i alone. Each has round(p n) records with
    the property, halves up, so that its own share may miss p by 1 / (2n). Groups overlap, as the paper's do.

    Args:
        key: A key from `jax.random.key`.
        has_property: (N,) bool.
        proportions: Shares p in [0, 1], as `LEVELS` or `GRID`.
        group_size: Records n of a group, at least 1.
        n_per_proportion: Groups for each share, at least 1.

    Raises:
        ValueError: not a key, not booleans, a number out of range, or fewer records with or without the property than
            some group needs.
    """
    validate.prng_key(key)
    validate.integer(group_size=group_size, n_per_proportion=n_per_proportion)
    flags = np.asarray(has_property)
    if flags.ndim != 1 or flags.dtype != np.bool_:
        raise ValueError(f"has_property must be (N,) booleans, got shape {flags.shape} of {flags.dtype}")
    if not len(proportions):
        raise ValueError("proportions must name at least one share, got none")
    validate.probability(proportions=proportions)
    counts = [math.floor(p * group_size + 0.5) for p in proportions]
    sides = np.flatnonzero(flags), np.flatnonzero(~flags)
    for side, need, what in zip(sides, (max(counts), group_size - min(counts)), ("with", "without"), strict=True):
        if need > len(side):
            raise ValueError(
                f"group_size {group_size} at shares from {min(proportions):g} to {max(proportions):g} must need no "
                f"more than there are, {len(sides[0])} records with and {len(sides[1])} without the property; it needs "
                f"{need} {what}"
            )
    counts = np.repeat(counts, n_per_proportion)
    indices = np.arange(len(counts), dtype=np.uint32)
    keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, indices)
    # A generator on the host: permuting all N records for each group would cost N log N where this costs n.
    seeds = np.asarray(jax.vmap(lambda own: jax.random.bits(own, (4,), np.uint32))(keys))
    rows = np.empty((len(counts), group_size), np.int32)
    for i, count in enumerate(counts):
        rng = np.random.default_rng(seeds[i])
        parts = [
            rng.choice(side, size, replace=False) for side, size in zip(sides, (count, group_size - count), strict=True)
        ]
        rows[i] = rng.permutation(np.concatenate(parts))
    return Groups(rows, counts / group_size)


def halves(key: Array, n_or_dataset: int | Dataset, has_property: Array | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Two halves of the records without overlap, as of adversary (shadow) and victim (target), each sorted.

    Where the data set has groups (persons), a person is on one side only: they are taken in random order, each by the
    side that has fewer records. With `has_property` the sides are alike in it: each person goes to the side that leaves
    the records with and without the property more evenly divided, for records by themselves to one record.

    Args:
        key: A key from `jax.random.key`.
        n_or_dataset: The number of records, at least 2, or the data set itself.
        has_property: (N,) bool, or None.

    Raises:
        ValueError: not a key, fewer than 2 records or persons, or not one boolean for each record.
    """
    validate.prng_key(key)
    if isinstance(n_or_dataset, Dataset):
        n, persons = len(n_or_dataset.x), n_or_dataset.groups
    else:
        validate.integer(minimum=2, n_or_dataset=n_or_dataset)
        n, persons = int(n_or_dataset), None
    _, person_of, sizes = np.unique(
        np.arange(n) if persons is None else persons, return_inverse=True, return_counts=True
    )
    validate.integer(minimum=2, **{"number of records, or of persons where they are known,": len(sizes)})
    counts = sizes[:, None]
    if has_property is not None:
        flags = np.asarray(has_property)
        if flags.shape != (n,) or flags.dtype != np.bool_:
            raise ValueError(f"has_property must be {n} booleans, got shape {flags.shape} of {flags.dtype}")
        counts = np.stack([np.bincount(person_of, side, len(sizes)) for side in (flags, ~flags)], axis=1).astype(int)
    on_target, difference = np.empty(len(sizes), bool), np.zeros(counts.shape[1], int)
    for person in np.asarray(jax.random.permutation(key, len(sizes))):
        own = counts[person]
        # What the shadow has more of, if it takes this person and if the target does.
        taken, left = np.abs(difference + own).sum(), np.abs(difference - own).sum()
        on_target[person] = left < taken or (left == taken and difference.sum() > 0)
        difference += -own if on_target[person] else own
    return np.flatnonzero(~on_target[person_of]), np.flatnonzero(on_target[person_of])
