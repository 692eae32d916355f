"""What could be published instead of a map: the same map made coarser or noisier, or a map of fewer records or numbers.

A new option is a class here and a line of `options_for`. None of these has a guarantee; `guaranteed` has those that do.
"""

from __future__ import annotations

import dataclasses
import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import jax
import numpy as np

from drjax.attacks.shadow import shadow_embeddings, shadow_needs
from drjax.audits.config import RECOGNISED, AuditConfig
from drjax.core.types import Array, DRMethod
from drjax.data.sources import is_named
from drjax.decisions.audited import Audited, Made
from drjax.decisions.exposed import merged
from drjax.defenses import AfterMethod, Groups, Hexagons, OutputNoise, Rounding, contours
from drjax.dr import command_words

STEPS = (0.1, 0.3, 1.0)
"""Widths of grids and deviations of noise, in units of the map's spread."""

GROUP_SIZES = (5, 20, 100)
"""Least numbers of records of a group."""

HEXAGON_WIDTHS = (0.5, 1.5)
"""Distances between neighbouring bins, in units of the map's spread."""

CONTOUR_RADII = (0.5, 1.5)
"""Radii of the bump of one record, in units of the map's spread."""

EXPOSED_SHARES = (0.01, 0.05, 0.2)
"""Shares of the attacked records, the most exposed ones, that are left out."""

MERGED_SHARE = 0.05
"""Share of the attacked records, the most exposed ones, that are merged with their neighbours."""

IN_MEMORY = "RECORDS.csv"
"""File in commands for records that were in memory: they have to be written there first."""

OUT, PICTURE = "published.csv", "published.svg"
"""Files that commands write."""

PRIVATE_MAP = "PRIVATE-map.csv"
"""File that a command writes for the next one alone."""


LABELS: dict[type[AfterMethod], str] = {
    Rounding: "Coordinates rounded to a grid of {:g} of the map's spread",
    OutputNoise: "Coordinates with noise of {:g} of the map's spread",
    Groups: "Groups of at least {:g} records at their rounded centres",
    Hexagons: "Hexagonal bins {:g} of the map's spread wide",
}
"""What is published after a defence of the strength in braces."""


class Option(Protocol):
    """Something else to publish."""

    @property
    def name(self) -> str:
        """Name of its files in the run folder."""
        ...

    @property
    def label(self) -> str:
        """What is published, in a few words."""
        ...

    @property
    def guarantee(self) -> str:
        """What is proven of it, in a few words; empty where nothing is."""
        ...

    @property
    def is_map(self) -> bool:
        """Whether it publishes places that can be drawn."""
        ...

    def command(self, audited: Audited) -> str:
        """Command that makes it."""
        ...

    def seconds(self, audited: Audited) -> float:
        """Time that making it takes."""
        ...

    def method(self, audited: Audited) -> DRMethod:
        """Method that the attacks take for the release's, without what is done to the map."""
        ...

    def make(self, key: Array, audited: Audited) -> Made:
        """The release; draws by the key."""
        ...


class OfSameMethod:
    """What options share that keep the method of the audited map, and have no guarantee."""

    is_map = True

    @property
    def guarantee(self) -> str:
        """See `Option`."""
        return ""

    def method(self, audited: Audited) -> DRMethod:
        """See `Option`."""
        return audited.every.method


@dataclass(frozen=True)
class Defended(OfSameMethod):
    """The audited map after a defence.

    Attributes:
        kind: Defence, one of `LABELS`.
        scale: Strength.
    """

    kind: type[AfterMethod]
    scale: float

    @property
    def name(self) -> str:
        """See `Option`."""
        return f"{self.kind.name}-{self.scale:g}"

    @property
    def label(self) -> str:
        """See `Option`."""
        return LABELS[self.kind].format(self.scale)

    def command(self, audited: Audited) -> str:
        """See `Option`."""
        return _command(audited, "--defense", self.kind.name, "--defense-scale", f"{self.scale:g}")

    def seconds(self, audited: Audited) -> float:
        """See `Option`."""
        del audited
        return 0.5

    def make(self, key: Array, audited: Audited) -> Made:
        """See `Option`."""
        method = audited.every.method
        with jax.enable_x64(True):
            defence = self.kind(method=method, **{self.kind.scale_field: self.scale})
            places = audited.every.coords.astype(np.float64)
            coords = np.asarray(jax.jit(defence.defended)(key, places))
            found = defence.worked_out(jax.random.fold_in(key, 1), places, coords)
        return Made(np.arange(audited.n), audited.every.x, coords, method, worked_out=found)


@dataclass(frozen=True)
class DensityContours(OfSameMethod):
    """A picture of the density of the audited map, without its points.

    Attributes:
        radius: Radius of the bump of one record, in units of the map's spread.
    """

    radius: float

    @property
    def name(self) -> str:
        """See `Option`."""
        return f"contours-{self.radius:g}"

    @property
    def label(self) -> str:
        """See `Option`."""
        return f"A picture of density contours, each record a bump of radius {self.radius:g} of the map's spread"

    def command(self, audited: Audited) -> str:
        """See `Option`; with a map in between that is not to be published."""
        drawn = ["drjax", "defend", str(audited.config.released), PICTURE, "--contours", f"{self.radius:g}"]
        if audited.is_map_given:
            return shlex.join(drawn)
        drawn[2] = PRIVATE_MAP
        return f"{_command(audited, out=PRIVATE_MAP)} && {shlex.join(drawn)}"

    def seconds(self, audited: Audited) -> float:
        """See `Option`."""
        return 1.0 + 1.5e-3 * audited.n

    def make(self, key: Array, audited: Audited) -> Made:
        """See `Option`; each record is seen at the centre of the region between two lines that it lies in."""
        del key
        coords = audited.every.coords.astype(np.float64)
        found = contours.contours(coords, self.radius)
        seen, worked_out = contours.places(coords, found), contours.worked_out(coords, found)
        return Made(np.arange(audited.n), audited.every.x, seen, audited.every.method, worked_out=worked_out)


@dataclass(frozen=True)
class FewerNumbers:
    """A map of fewer coordinates for each record.

    Attributes:
        n_components: Their number.
    """

    n_components: int
    guarantee = ""
    is_map = True

    @property
    def name(self) -> str:
        """See `Option`."""
        return f"components-{self.n_components}"

    @property
    def label(self) -> str:
        """See `Option`."""
        return f"A map of {self.n_components} coordinate{'' if self.n_components == 1 else 's'} per record"

    def command(self, audited: Audited) -> str:
        """See `Option`."""
        return _command(_with_components(audited, self.n_components))

    def seconds(self, audited: Audited) -> float:
        """See `Option`."""
        return refit_seconds(audited, audited.n)

    def method(self, audited: Audited) -> DRMethod:
        """See `Option`."""
        return _with_components(audited, self.n_components).config.dr_method

    def make(self, key: Array, audited: Audited) -> Made:
        """See `Option`."""
        method = self.method(audited)
        return Made(np.arange(audited.n), audited.every.x, refitted(key, audited, method, audited.every.x), method)


@dataclass(frozen=True)
class WithoutExposed(OfSameMethod):
    """A map of the records without the most exposed ones.

    Attributes:
        count: Number of records that are left out.
    """

    count: int

    @property
    def name(self) -> str:
        """See `Option`."""
        return f"without-{self.count}"

    @property
    def label(self) -> str:
        """See `Option`."""
        return f"A map without the {self.count:,} most exposed records"

    def command(self, audited: Audited) -> str:
        """See `Option`."""
        return _command(audited, "--exposure", str(audited.table), "--leave-out", str(self.count))

    def seconds(self, audited: Audited) -> float:
        """See `Option`."""
        return refit_seconds(audited, audited.n - self.count)

    def make(self, key: Array, audited: Audited) -> Made:
        """See `Option`."""
        kept = np.setdiff1d(np.arange(audited.n), audited.ranked[: self.count])
        x, method = audited.every.x[kept], audited.every.method
        return Made(kept, x, refitted(key, audited, method, x), method)


@dataclass(frozen=True)
class MergedExposed(OfSameMethod):
    """The audited map with the most exposed records at the centre of their neighbours.

    Attributes:
        count: Number of records that are moved.
    """

    count: int

    @property
    def name(self) -> str:
        """See `Option`."""
        return f"merged-{self.count}"

    @property
    def label(self) -> str:
        """See `Option`."""
        return f"The {self.count:,} most exposed records drawn at the centre of their neighbours"

    def command(self, audited: Audited) -> str:
        """See `Option`."""
        return _command(audited, "--exposure", str(audited.table), "--merge", str(self.count))

    def seconds(self, audited: Audited) -> float:
        """See `Option`."""
        del audited
        return 0.5

    def make(self, key: Array, audited: Audited) -> Made:
        """See `Option`."""
        del key
        coords = merged(audited.every.coords.astype(np.float64), audited.ranked[: self.count])
        return Made(np.arange(audited.n), audited.every.x, coords, audited.every.method)


def options_for(audited: Audited) -> tuple[Option, ...]:
    """The options for an audited release; of each kind the one that protects most comes last."""
    n, k = audited.n, audited.every.coords.shape[1]
    found: list[Option] = [Defended(kind, step) for kind in (Rounding, OutputNoise) for step in STEPS]
    found += [Defended(Groups, size) for size in GROUP_SIZES if 2 * size <= n]
    found += [Defended(Hexagons, width) for width in HEXAGON_WIDTHS if k == 2]
    found += [DensityContours(radius) for radius in CONTOUR_RADII if contours.is_drawable(audited.every.coords, radius)]
    n_attacked = len(audited.exposure.row)
    found.append(MergedExposed(max(1, round(MERGED_SHARE * n_attacked))))
    if not audited.is_map_given:
        if k > 1:
            found.append(FewerNumbers(k // 2))
        found += [WithoutExposed(max(1, round(share * n_attacked))) for share in EXPOSED_SHARES]
    return tuple(found)


def between(tried: Sequence[tuple[Option, bool]]) -> tuple[Option, ...]:
    """Defences half way between the strongest that fails and the weakest that passes, of each kind that has both.

    Args:
        tried: Options, and whether each passes.
    """
    found: list[Option] = []
    for kind in LABELS:
        own = [
            (option.scale, passes) for option, passes in tried if isinstance(option, Defended) and option.kind is kind
        ]
        least = min((scale for scale, passes in own if passes), default=None)
        if least is None:
            continue
        most = max((scale for scale, passes in own if not passes and scale < least), default=None)
        if most is not None:
            middle = float(f"{math.sqrt(least * most):.1g}")
            if middle not in (scale for scale, _ in own):
                found.append(Defended(kind, middle))
    return tuple(found)


def refitted(key: Array, audited: Audited, method: DRMethod, x: np.ndarray) -> np.ndarray:
    """Coordinates (n', k') of some records, in the precision of the audit."""
    config = audited.config
    with jax.enable_x64(config.dtype == "float64"):
        own = x.astype(config.dtype)
        coords = np.asarray(shadow_embeddings(key, method, own[1:], own[:1]).coords[0])
    return coords if config.decimals is None else np.round(coords, config.decimals)


def refit_seconds(audited: Audited, n: int) -> float:
    """Time that a map of n of the records takes."""
    return shadow_needs(audited.maker, n, audited.data.x.shape[1], 1).seconds


def _with_components(audited: Audited, n_components: int) -> Audited:
    return dataclasses.replace(audited, config=dataclasses.replace(audited.config, n_components=n_components))


def _command(audited: Audited, *more: str, out: str = OUT) -> str:
    """`drjax embed` for the audited map, or `drjax defend` for one that was given, with further options."""
    config = audited.config
    if audited.is_map_given:
        return shlex.join(["drjax", "defend", str(config.released), out, *more])
    of_data = _words(config, ("categorical", "drop", "label", "schema", "data_dir"))
    return shlex.join(["drjax", "embed", data_word(audited), out, *method_words(audited), *of_data, *more])


def data_word(audited: Audited) -> str:
    """Name or path of the records in a command; of what was in memory, which has none, a word in its place."""
    name = audited.config.data
    return name if is_named(name) or Path(name).exists() else IN_MEMORY


def method_words(audited: Audited) -> list[str]:
    """Options of a command for the method of the audited map, with its hyperparameters and steps."""
    config = audited.config
    return command_words(audited.maker if config.method == RECOGNISED else config.dr_method)


def _words(config: AuditConfig, names: Sequence[str]) -> list[str]:
    words = []
    for name in names:
        value = getattr(config, name)
        if value:
            words += [f"--{name.replace('_', '-')}", *(value if isinstance(value, tuple) else [str(value)])]
    return words
