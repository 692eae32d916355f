"""What a search for something else to publish starts from: a release, its records, and what attacks made of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from drjax.attacks.attack import EmbeddingAttack, EveryRecord
from drjax.attacks.exposure import Exposure
from drjax.audits.config import AuditConfig
from drjax.core.types import Array, DRMethod
from drjax.data import Dataset
from drjax.dr import PCA, Unnamed


@dataclass(frozen=True, kw_only=True)
class Audited:
    """An audited release of all records of a data set.

    Attributes:
        config: Configuration of the audit.
        data: Data set, n records.
        every: Release under attack; records x (n, d) in the units that the method was given, coords (n, k).
        in_records: Function that scales x of `every` as the records of `data` are.
        attacks: Attacks that ran, by name.
        seconds: Time that a record took, by name.
        exposure: Exposure of the attacked records by the strongest of them.
        table: Path of the table of all attacked records, the most exposed first.
        key: PRNG key of everything that is drawn.
    """

    config: AuditConfig
    data: Dataset
    every: EveryRecord
    in_records: Callable[[np.ndarray], np.ndarray]
    attacks: Mapping[str, EmbeddingAttack]
    exposure: Exposure
    table: Path
    key: Array
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def n(self) -> int:
        """Number of records."""
        return len(self.data.x)

    @property
    def is_map_given(self) -> bool:
        """Whether the release is a map that somebody else made, which is not made anew."""
        return self.config.released is not None

    @property
    def maker(self) -> DRMethod:
        """The release's method, to make other maps by; PCA where it is not known."""
        method, d = self.every.method, self.every.x.shape[1]
        return PCA(n_components=min(method.n_components, d)) if isinstance(method, Unnamed) else method

    @property
    def ranked(self) -> np.ndarray:
        """(m,) rows of the attacked records, the most exposed first."""
        return self.exposure.row[np.argsort(self.exposure.rank)]


class Made(NamedTuple):
    """A release in place of the audited one.

    Attributes:
        kept: (n',) rows of the records that it is of.
        x: (n', d), these records in the units that the method is given.
        coords: (n', k'), what is published of each.
        method: Method that the attacks take for the release's, without what was done to the map.
        statistic: Noisy mean (d,) of the records that whoever has the release has at most, in the units of x, and the
            deviation (d,) of its noise, as "mean" and "deviation"; of synthetic records also the second moment (d, d)
            and its error, as "moment" and "moment_deviation"; of components these and what `LeakIntoComponents` needs
            beside them; and as "ceiling" the largest probability that any attack picks the right one of n equally
            likely records. Empty where coordinates are published.
        worked_out: (n', k') places that who knows those of all other records works out from what is published, to be
            attacked beside coords; None where those are all.
        blind: (b, n', k'), what would be seen in place of coords if nothing were known of the records, some times
            over; None where that is chance.
    """

    kept: np.ndarray
    x: np.ndarray
    coords: np.ndarray
    method: DRMethod
    statistic: Mapping[str, Any] = MappingProxyType({})
    worked_out: np.ndarray | None = None
    blind: np.ndarray | None = None
