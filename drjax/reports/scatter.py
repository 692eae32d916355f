"""The published map as a scatter plot: every record is a point, coloured by how much of it an attack takes back."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from drjax.core import validate
from drjax.core.types import Array
from drjax.reports.ladder import percent
from drjax.reports.sections import Section

MOST_DRAWN = 5_000
"""Points of a plot at most; of more records a sample is drawn."""

MOST_NAMED = 3
"""Records that the alternative text names."""

CLASSES = (
    ("under 1%", 0.01),
    ("1% to 10%", 0.1),
    ("10% to 50%", 0.5),
    ("50% to 100%", 1.0),
    ("100% or more", math.inf),
)
"""Classes of the colours: words, and the share that is above all of the class; most exposed first."""

NO_LEVEL = "none"
"""Level of records of which nothing is known."""

WIDTH, MOST_HIGH, LEAST_HIGH, MARGIN = 720.0, 560.0, 300.0, 14.0
"""Size of the plot in its own units."""


class Point(NamedTuple):
    """A point of the plot.

    Attributes:
        x: Distance from the left edge.
        y: Distance from the upper edge.
        text: Name of the record and what is known of it.
        level: Place of its class in `CLASSES`, or `NO_LEVEL`.
        rank: Place among the marked ones from 1; none if 0.
    """

    x: str
    y: str
    text: str
    level: str
    rank: int


@dataclass(frozen=True, kw_only=True, eq=False)
class ScatterPlot(Section):
    """A map in two dimensions in which each point tells how exposed its record is.

    A point's name appears where the pointer is, or by the arrow keys, which go through the marked records; without
    JavaScript by the browser's own tooltip. At most `MOST_DRAWN` points are drawn, the marked ones among them.

    Attributes:
        points: (n, 2) coordinates of the map.
        shares: (n,) share that the attack leaves of the error of a guess, per record: 0 where it is taken back exactly,
            1 where the attack knows no more than the guess; nan where that is not known.
        labels: n names of the records, e.g. "P1234 (line 17)".
        marked: Indices of the most exposed records, the most exposed first; they have rings and are listed.
        rebuilt: (n,) whether a record counts as rebuilt; nothing is said of that if None.
        caption: What the reader sees, in addition to the legend.
        guess: Words for what `shares` are shares of.
        unknown: Words for records whose share is nan.

    Raises:
        ValueError: no point, a coordinate that is not finite, a negative or infinite share, an index that is no
            record's or is there twice, or arrays of other lengths than `points`.
    """

    template: ClassVar[str] = "scatter.html.jinja"
    is_interactive: ClassVar[bool] = True
    points: Array
    shares: Array
    labels: tuple[str, ...]
    marked: tuple[int, ...] = ()
    rebuilt: Array | None = None
    caption: str = ""
    guess: str = "of a guess's error"
    unknown: str = "not attacked"

    def __post_init__(self) -> None:
        """Checks lengths and ranges."""
        n = len(validate.matrix(self.points, "points", columns=2))
        lengths = {"shares": np.shape(self.shares), "labels": (len(self.labels),)}
        lengths |= {} if self.rebuilt is None else {"rebuilt": np.shape(self.rebuilt)}
        for name, shape in lengths.items():
            if shape != (n,):
                raise ValueError(f"{name} must have one entry for each of {n} points, got shape {shape}")
        shares = np.asarray(self.shares, np.float64)
        bad = shares[(shares < 0) | np.isinf(shares)]
        if bad.size:
            raise ValueError(f"shares must be finite and >= 0, or nan where nothing was attacked, got {bad[0]}")
        for row in self.marked:
            validate.integer(minimum=0, marked=row)
            validate.at_most(n - 1, "the last index", marked=row)
        if len(set(self.marked)) != len(self.marked):
            raise ValueError(f"marked must name each record once, got {self.marked}")

    @property
    def alt(self) -> str:
        """What the plot shows, in words."""
        n = len(self.labels)
        parts = [f"Map of {n:,} record{'s' if n != 1 else ''}"]
        if self.rebuilt is not None:
            n_rebuilt = int(np.sum(self.rebuilt))
            parts.append(f"{n_rebuilt:,} {'is' if n_rebuilt == 1 else 'are'} rebuilt")
        for level, words, count in self._counts:
            parts.append(f"{count:,} {words}" if level == NO_LEVEL else f"{words} {self.guess} left for {count:,}")
        if self.marked:
            named = [self.labels[row] for row in self.marked[:MOST_NAMED]]
            parts.append(f"most exposed: {', '.join(named)}")
        return "; ".join(parts) + "."

    @property
    def legend(self) -> tuple[tuple[str, str, int], ...]:
        """Level, words and number of records of each class that has any, the most exposed first."""
        return tuple(
            (level, words if level == NO_LEVEL else f"{words} left", count) for level, words, count in self._counts
        )

    @property
    def _counts(self) -> tuple[tuple[str, str, int], ...]:
        counts = np.bincount(self._classes, minlength=len(CLASSES) + 1)
        named = [(str(level), words) for level, (words, _) in enumerate(CLASSES)] + [(NO_LEVEL, self.unknown)]
        return tuple((*one, int(count)) for one, count in zip(named, counts, strict=True) if count)

    @property
    def note(self) -> str:
        """What is drawn, where that is not every record; else empty."""
        n, n_marked = len(self.labels), len(self.marked)
        if n <= MOST_DRAWN:
            return ""
        if not n_marked:
            return f"{MOST_DRAWN:,} of {n:,} records are drawn, chosen at random; the legend counts all of them."
        most = "the most exposed one" if n_marked == 1 else f"the {n_marked:,} most exposed"
        return (
            f"{MOST_DRAWN:,} of {n:,} records are drawn: {most}, and a random sample of the others; the legend "
            "counts all of them."
        )

    @property
    def view_box(self) -> str:
        """Edges of the plot in the units of `drawn`: left, upper, width and height."""
        return f"0 0 {WIDTH:.0f} {self._layout[1]:.0f}"

    @property
    def drawn(self) -> Iterator[Point]:
        """Points in the order of drawing: those that should be seen best are last."""
        coords, rank = self._layout[0], {row: place for place, row in enumerate(self.marked, 1)}
        shares = np.asarray(self.shares, np.float64)
        # The unknown are drawn first, below all others.
        order = np.lexsort((-np.where(np.isnan(shares), 0, shares), ~np.isnan(shares)))
        others = [row for row in order if row not in rank]
        if len(self.labels) > MOST_DRAWN:
            rng = np.random.default_rng(0)
            n_others = max(0, MOST_DRAWN - len(rank))
            others = [others[i] for i in np.sort(rng.choice(len(others), n_others, replace=False))]
        for row in (*others, *reversed(self.marked)):
            level = self._classes[row]
            yield Point(
                _plain(coords[row, 0]),
                _plain(coords[row, 1]),
                self._text(int(row)),
                NO_LEVEL if level == len(CLASSES) else str(level),
                rank.get(int(row), 0),
            )

    @property
    def listed(self) -> tuple[str, ...]:
        """Names of the marked records and what is known of them, the most exposed first."""
        return tuple(self._text(row) for row in self.marked)

    def _text(self, row: int) -> str:
        share = float(np.asarray(self.shares)[row])
        if math.isnan(share):
            return f"{self.labels[row]}: {self.unknown}"
        rebuilt = "; rebuilt" if self.rebuilt is not None and self.rebuilt[row] else ""
        amount = percent(share) if share <= 1 else f"{share:,.0%}"
        return f"{self.labels[row]}: {amount} {self.guess} left{rebuilt}"

    @functools.cached_property
    def _classes(self) -> np.ndarray:
        """Place of each record's class in `CLASSES`; their number where nothing is known."""
        shares = np.asarray(self.shares, np.float64)
        ends = [end for _, end in CLASSES[:-1]]
        return np.where(np.isnan(shares), len(CLASSES), np.searchsorted(ends, shares, side="right"))

    @functools.cached_property
    def _layout(self) -> tuple[np.ndarray, float]:
        """Places (n, 2) on the plot, one unit being as long on both axes, and the plot's height."""
        points = np.asarray(self.points, np.float64)
        low, high = points.min(axis=0), points.max(axis=0)
        span, room = high - low, np.array([WIDTH, MOST_HIGH]) - 2 * MARGIN
        scale = float(np.min(room[span > 0] / span[span > 0], initial=np.inf)) if span.any() else 0.0
        height = math.ceil(max(LEAST_HIGH, span[1] * scale + 2 * MARGIN))
        from_centre = (points - (low + high) / 2) * np.array([scale, -scale])
        return from_centre + np.array([WIDTH, height]) / 2, float(height)


def _plain(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
