"""Who knows which record: disjoint index sets from one key."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from drjax.core import validate
from drjax.data.dataset import Dataset


class Splits(NamedTuple):
    """Disjoint row indices of a data set, each in random order.

    Attributes:
        known: Records of the released set that the adversary knows: all but the target.
        shadow: The adversary's own records, that attacks are trained on.
        validation: The adversary's own records, that training is stopped on.
        targets: Records that the attack is measured on, each in turn the released set's unknown one.
    """

    known: np.ndarray
    shadow: np.ndarray
    validation: np.ndarray
    targets: np.ndarray


def split(
    key: Any, n_or_dataset: int | Dataset, *, n_known: int, n_shadow: int, n_validation: int, n_targets: int
) -> Splits:
    """Draws the four index sets at random, without overlap.

    The same key and sizes give the same sets on every platform. `known` and `targets` do not change when n_shadow or
    n_validation does. Where the data set has groups, a group's records are on one side only: groups are taken whole
    in random order, and where a set's last group has more records than the set still needs, the surplus is unused.

    Args:
        key: A key from `jax.random.key`.
        n_or_dataset: The number of records n, or the data set itself.
        n_known: Size of `known`, at least 1.
        n_shadow: Size of `shadow`, at least 0.
        n_validation: Size of `validation`, at least 0.
        n_targets: Size of `targets`, at least 1.

    Raises:
        ValueError: a size out of range, not a key, or too few records or groups.

    Example:
        >>> import drjax, jax
        >>> parts = drjax.split(jax.random.key(0), 100, n_known=40, n_shadow=30, n_validation=10, n_targets=20)
        >>> parts.known.shape, parts.targets.shape
        ((40,), (20,))
    """
    validate.prng_key(key)
    validate.integer(minimum=1, n_known=n_known, n_targets=n_targets)
    validate.integer(minimum=0, n_shadow=n_shadow, n_validation=n_validation)
    if isinstance(n_or_dataset, Dataset):
        n, groups = len(n_or_dataset.x), n_or_dataset.groups
    else:
        validate.integer(minimum=1, n_or_dataset=n_or_dataset)
        n, groups = int(n_or_dataset), None
    sizes = {"known": n_known, "targets": n_targets, "validation": n_validation, "shadow": n_shadow}
    asked = f"{' + '.join(f'{size} {name}' for name, size in sizes.items())} = {sum(sizes.values())}"
    if sum(sizes.values()) > n:
        raise ValueError(f"the split needs {asked} records, but there are {n}: ask for fewer or add records")
    if groups is None:
        order = np.asarray(jax.random.permutation(key, n))
        bounds = np.cumsum([0, *sizes.values()])
        parts = {name: order[bounds[i] : bounds[i + 1]] for i, name in enumerate(sizes)}
    else:
        parts = _whole_groups(key, groups, sizes)
        short = [name for name, size in sizes.items() if len(parts[name]) < size]
        if short:
            raise ValueError(
                f"the split needs {asked} records with each group on one side only, but the {n} records in "
                f"{len(np.unique(groups))} groups leave only {len(parts[short[0]])} for {short[0]}: "
                "ask for fewer or add groups"
            )
    return Splits(**{name: part.astype(np.int64) for name, part in parts.items()})


def _whole_groups(key: Any, groups: np.ndarray, sizes: dict[str, int]) -> dict[str, np.ndarray]:
    """Fills the sets one after the other with whole groups; a set that cannot be filled is left short."""
    group_key, record_key = jax.random.split(key)
    order = np.asarray(jax.random.permutation(record_key, len(groups)))
    rank = np.argsort(order)
    _, group_of, counts = np.unique(groups, return_inverse=True, return_counts=True)
    by_group = np.split(order[np.argsort(group_of[order], kind="stable")], np.cumsum(counts)[:-1])
    waiting = [by_group[g] for g in np.asarray(jax.random.permutation(group_key, len(counts)))]
    parts: dict[str, np.ndarray] = {}
    for name, size in sizes.items():
        taken, passed = [np.empty(0, order.dtype)], []
        missing = size
        for i, members in enumerate(waiting):
            if missing == 0:
                passed += waiting[i:]
                break
            if len(members) <= missing:
                taken.append(members)
                missing -= len(members)
            else:
                passed.append(members)
        # Only now is a group cut: its surplus can go to no other set, and a smaller group may have fitted.
        if missing and passed:
            taken.append(passed.pop(0)[:missing])
        waiting = passed
        part = np.concatenate(taken)
        parts[name] = part[np.argsort(rank[part])]
    return parts
