"""One published embedding and what is known of it: checked arguments, and the threat that an attack is given."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from drjax.attacks import shadow_sets
from drjax.attacks.attack import EmbeddingThreat, KnownFeatures, Shadows
from drjax.attacks.shadow import shadow_needs
from drjax.core import validate
from drjax.core.types import Array, DRMethod

N_SHADOW, LEAST_SHADOWS, SHADOW_SECONDS = 1000, 100, 30.0
"""Public records that shadow releases are made of: at most, at the least, and the time up to which more are made."""

SHARE_OF_VALIDATION = 0.1
"""Share of the shadow releases that trainings are stopped on, and attacks tried on."""

ENOUGH = 13
"""Such releases that are enough: twelve for trials, and one on which trainings are stopped there."""

MOST_DECIMALS = 9
"""Coordinates that are equal to themselves rounded to so many decimals are taken for rounded."""

LEAST_WITH_FEATURES = 20
"""Public records that known features take at the least."""

LEAST_DIFFERENT = 0.1
"""Share of the points of a map that differ, at the least."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A release and what is known of it, checked.

    Attributes:
        known: (p, d).
        coords: (p + 1, k), the target in row 0.
        hidden: (h, k), where further records lie that nobody knows; None if there are none.
        public: (s, d) other records of the same kind; None if there are none.
        features: (d,), values of the target that the adversary has, nan where unknown; None if they have none.
        decimals: Decimals that coordinates are rounded to; None if they are not.
        dtype: Floating-point type of the coordinates.
        bounds: Least and greatest value of a feature; None if there are none.
        names: Names of the features; empty if they have none.
        progress: Whether to show bars on standard error.
    """

    known: np.ndarray
    coords: np.ndarray
    hidden: np.ndarray | None = None
    public: np.ndarray | None = None
    features: np.ndarray | None = None
    decimals: int | None = None
    dtype: str = "float64"
    bounds: tuple[float, float] | None = None
    names: tuple[str, ...] = ()
    progress: bool = False

    @property
    def usual(self) -> np.ndarray:
        """(2, d), mean and standard deviation of the records that say what to expect of one."""
        x = (self.known if self.public is None else self.public).astype(np.float64)
        return np.stack([x.mean(axis=0), x.std(axis=0)])

    def threat(self, key: Array, method: DRMethod, seed_key: Array | None = None) -> EmbeddingThreat:
        """What the adversary has, who believes in the method, and may have the PRNG key of the release."""
        n_hidden = 0 if self.hidden is None else len(self.hidden)
        some = None if self.public is None else self.public[: self._n_shadows(method)]
        shadow_key = jax.random.fold_in(key, 1)

        @functools.cache
        def shadows() -> Shadows:
            rounding: dict[str, Any] = {"decimals": self.decimals, "dtype": self.dtype}
            if some is None:
                return shadow_sets.stand_in_shadows(shadow_key, method, self.known, seed_key=seed_key, **rounding)
            # Enough to try attacks on, of few records no more than a quarter.
            enough = max(round(SHARE_OF_VALIDATION * len(some)), min(ENOUGH, len(some) // 4), 2)
            n = enough if len(some) > 4 else 0
            # Errors on some of them say how known features go with the others.
            n = n if self.features is None else max(n, len(some) // 2)
            make = functools.partial(shadow_sets.shadows_of, seed_key=seed_key)
            make = functools.partial(shadow_sets.stranger_shadows, n_hidden=n_hidden) if n_hidden else make
            return make(shadow_key, method, self.known, some, n_validation=n, progress=self.progress, **rounding)

        features = None
        if self.features is not None:
            which = ~np.isnan(self.features)
            features = KnownFeatures(which, self.features[which][None])
        return EmbeddingThreat(
            method=method,
            known=self.known,
            coords=self.coords[None],
            shadows=shadows,
            public=self.public,
            hidden=None if self.hidden is None else self.hidden[None],
            features=features,
            decimals=self.decimals,
            dtype=self.dtype,
            seed_key=seed_key,
            bounds=self.bounds,
            alike=False,
            progress=self.progress,
        )

    def _n_shadows(self, method: DRMethod) -> int:
        n, d = self.known.shape
        first = shadow_needs(method, n + 1, d, LEAST_SHADOWS, itemsize=8).seconds
        return int(np.clip(LEAST_SHADOWS * SHADOW_SECONDS / max(first, 1e-9), LEAST_SHADOWS, N_SHADOW))


def case_of(
    known: Array,
    coords: Array,
    rows: Sequence[int],
    public: Array | None,
    known_features: Array | None,
    decimals: int | None,
    bounds: tuple[float, float] | None,
    names: Sequence[str],
) -> Case:
    """The arguments of `drjax.attacks.embedding.attack_embedding`, checked; all rows of the release in `coords`."""
    if decimals is not None:
        validate.integer(minimum=0, decimals=decimals)
    if bounds is not None and not (len(bounds) == 2 and bounds[0] < bounds[1]):
        raise ValueError(f"bounds must be two numbers, the first less than the second, got {bounds}")
    known = validate.matrix(known, "known", min_rows=3)
    published = validate.matrix(coords, "coords")
    n, d = len(known) + len(rows), known.shape[1]
    if len(published) != n:
        raise ValueError(
            f"coords must have shape ({n}, {published.shape[1]}) for {n - len(rows)} known records and {len(rows)} "
            f"unknown, got {published.shape}: leave out of known the target alone, and keep the order of the release"
        )
    n_points = len(np.unique(published, axis=0))
    if n_points < LEAST_DIFFERENT * min(n, len(np.unique(known, axis=0))):
        raise ValueError(
            f"coords must have rows that differ, got {n_points} different ones of {n}: take the coordinates as they "
            "were published, with all their digits"
        )
    for row in rows:
        validate.integer(minimum=0, target_row=row)
        validate.at_most(n - 1, "n - 1", target_row=row)
    if len(set(rows)) < len(rows) or not rows:
        raise ValueError(f"target_row must be rows that differ, at least one, got {list(rows)}")
    others = None if public is None else validate.matrix(public, "public", min_rows=2, columns=d)
    features = None if known_features is None else _features(known_features, d, others)
    if names and len(names) != d:
        raise ValueError(f"names must be {d}, one for each feature, got {len(names)}")
    return Case(
        known=known,
        coords=published,
        public=others,
        features=features,
        decimals=decimals_of(published) if decimals is None else decimals,
        dtype=dtype_of(published),
        bounds=bounds,
        names=tuple(names),
    )


def _features(known_features: Array, d: int, public: np.ndarray | None) -> np.ndarray:
    features = np.asarray(known_features, np.float64)
    n_known = int((~np.isnan(features)).sum())
    if features.shape != (d,) or np.isinf(features).any() or n_known in (0, d):
        raise ValueError(
            f"known_features must be {d} numbers, nan where unknown, some known and some not, got {n_known} known of "
            f"shape {features.shape}"
        )
    if public is None or len(public) < LEAST_WITH_FEATURES:
        got = "none" if public is None else f"{len(public)}"
        raise ValueError(
            f"public must be given with known_features, at least {LEAST_WITH_FEATURES} records, got {got}: errors on "
            "them say how features go along"
        )
    return features


def of_row(given: Case, rows: Sequence[int], place: int, *, progress: bool) -> Case:
    """The case of one of the unknown rows, its row first and the others hidden.

    Args:
        given: Case with all rows of the release.
        rows: Rows of the unknown records.
        place: Place of the one in `rows`.
        progress: Whether to show bars on standard error.
    """
    others = [row for i, row in enumerate(rows) if i != place]
    kept = np.concatenate([given.coords[rows[place]][None], np.delete(given.coords, list(rows), axis=0)])
    hidden = given.coords[others] if others else None
    return dataclasses.replace(given, coords=kept, hidden=hidden, progress=progress)


def decimals_of(coords: np.ndarray) -> int | None:
    """The fewest decimals that leave coordinates (n, k) as they are; None if that takes more than `MOST_DECIMALS`."""
    values = np.asarray(coords, np.float64)
    tolerance = 4 * np.finfo(coords.dtype if coords.dtype.kind == "f" else np.float64).eps * np.abs(values).max()
    for decimals in range(MOST_DECIMALS + 1):
        if 10.0**-decimals > 4 * tolerance and np.abs(values - np.round(values, decimals)).max() <= tolerance:
            return decimals
    return None


def dtype_of(coords: np.ndarray) -> str:
    """The floating-point type that coordinates (n, k) were computed in, as their digits show."""
    return "float32" if np.array_equal(coords, coords.astype(np.float32)) else "float64"
