"""How good a picture of the real records a map of synthetic ones is; all of it is private.

Each real record is placed where its nearest synthetic record lies. What the map then says of who is near whom is held
against the records themselves, beside their own map, which is not published, and a map that knows nothing: of records
drawn from the public bounds alone, on which the real ones are placed in the same way.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np
from matplotlib.figure import Figure

from drjax.dr import quality
from drjax.reports import plots, styles
from drjax.reports.sections import Figure as Drawing
from drjax.reports.sections import Report, Table

MOST = 2000
"""Real records, drawn by chance, that are placed: all pairs of them are compared."""

NEIGHBOURS = 10
"""Size of a neighbourhood; fewer where there are fewer than three times as many records."""


NO_BETTER = "THE MAP IS NO BETTER A PICTURE OF THE RECORDS THAN ONE THAT KNOWS NOTHING"
"""What is said of a map that scores no higher than a map of uniform records."""


class Score(NamedTuple):
    """Trustworthiness and share of neighbours kept, both in [0, 1]."""

    trustworthiness: float
    kept: float


class Picture(NamedTuple):
    """The map as a picture of the real records.

    Attributes:
        published: Score of the real records where their nearest synthetic ones lie.
        own: Score of a map of the real records themselves by the same method; not published.
        nothing: Score of a map of records that are uniform within the public bounds.
        n_records: Number of real records compared.
        n_neighbors: Size of a neighbourhood.
    """

    published: Score
    own: Score
    nothing: Score
    n_records: int
    n_neighbors: int

    @property
    def sentence(self) -> str:
        """What the summary says."""
        shown, own, nothing = self.published, self.own, self.nothing
        return (
            f"The map as a picture of the real records: trustworthiness {shown.trustworthiness:.2f} (their own map "
            f"{own.trustworthiness:.2f}, knowing nothing {nothing.trustworthiness:.2f}); {shown.kept:.1%} of "
            f"{self.n_neighbors} neighbours kept (own {own.kept:.1%}, knowing nothing {nothing.kept:.1%})."
        )

    @property
    def is_no_better_than_nothing(self) -> bool:
        """Whether the map scores no higher than one that knows nothing, by either measure."""
        return not (
            self.published.trustworthiness > self.nothing.trustworthiness and self.published.kept > self.nothing.kept
        )


def measured(
    key: jax.Array,
    real: np.ndarray,
    made: np.ndarray,
    coords: np.ndarray,
    uniform: np.ndarray,
    embed: Callable[[np.ndarray], np.ndarray],
) -> Picture:
    """The scores of a map.

    Args:
        key: PRNG key of the records that are drawn.
        real: (n, m) real records, every feature from 0 to 1 within its bounds. Distances are Euclidean, with each
            feature divided by its deviation among them.
        made: (s, m) synthetic records in the same units.
        coords: (s, k) their coordinates.
        uniform: (s, m) records that know nothing, in the same units.
        embed: Function from records (n, m) to coordinates (n, k): the method of the map.

    Raises:
        ValueError: fewer than five real records.
    """
    order = np.asarray(jax.random.permutation(key, len(real)))[:MOST]
    real = np.asarray(real, np.float64)[order]
    n_neighbors = min(NEIGHBOURS, max(1, len(real) // 3))
    deviation = real.std(axis=0)
    scale = np.where(deviation > 0, deviation, 1)

    def score(places: np.ndarray) -> Score:
        found = quality.evaluate(real / scale, places, n_neighbors=n_neighbors)
        return Score(float(found.trustworthiness), float(found.knn_preservation))

    placed = coords[_nearest(real / scale, made / scale)]
    blind = embed(uniform)[_nearest(real / scale, uniform / scale)]
    return Picture(score(placed), score(embed(real)), score(blind), len(real), n_neighbors)


def _nearest(real: np.ndarray, made: np.ndarray, chunk: int = 256) -> np.ndarray:
    """(n,) row of the synthetic record (s, m) nearest to each real one (n, m)."""
    norms = (made**2).sum(axis=1)
    parts = (real[i : i + chunk] for i in range(0, len(real), chunk))
    return np.concatenate([np.argmin(norms - 2 * (part @ made.T), axis=1) for part in parts])


def extended(page: Report, picture: Picture | None, reason: str, coords: np.ndarray) -> Report:
    """A report on synthetic records with a sentence, a table and a figure on the map of them."""
    drawn = Drawing(
        title="The map",
        caption="The published coordinates of the synthetic records. No point is a person.",
        png=plots.png(_drawn(coords)),
        alt=f"Scatter plot of {len(coords):,} synthetic records by the first coordinates of the map.",
    )
    if picture is None:
        return _with(page, f"How good a picture of the real records the map is was not measured: {reason}.", drawn)
    rows = [
        (name, f"{score.trustworthiness:.3f}", f"{score.kept:.1%}")
        for name, score in (
            ("The published map", picture.published),
            ("A map of the real records, not published", picture.own),
            ("A map that knows nothing", picture.nothing),
        )
    ]
    table = Table(
        title="The map as a picture of the real records",
        paragraphs=(
            f"Each of {picture.n_records:,} real records is placed where its nearest synthetic record lies. "
            "Trustworthiness is 1 where no record comes into a neighbourhood from afar. A map that knows nothing is of "
            "records drawn from the public bounds alone. Private.",
        ),
        headers=("Places", "Trustworthiness", f"Of {picture.n_neighbors} neighbours kept"),
        rows=tuple(rows),
    )
    found = _with(page, picture.sentence, table, drawn)
    if not picture.is_no_better_than_nothing:
        return found
    return dataclasses.replace(found, warnings=(*found.warnings, (NO_BETTER, picture.sentence)))


def without(page: Report, reason: str) -> Report:
    """A report on synthetic records that says why there is no map of them."""
    return _with(page, f"There is no map: {reason}. The synthetic records are published without one.")


def _with(page: Report, sentence: str, *more: Table | Drawing) -> Report:
    first, *rest = page.sections
    verdict = dataclasses.replace(page.verdict, details=(*page.verdict.details, sentence))
    return dataclasses.replace(page, verdict=verdict, sections=(first, *more, *rest))


def _drawn(coords: np.ndarray) -> Figure:
    figure = Figure(figsize=(styles.WIDTH * 0.6, styles.WIDTH * 0.6), layout="constrained")
    axes = figure.subplots()
    other = coords[:, 1] if coords.shape[1] > 1 else np.zeros(len(coords))
    axes.scatter(coords[:, 0], other, s=4, color=styles.ATTACK, linewidths=0)
    axes.set_aspect("equal", adjustable="datalim")
    styles.style_axes(axes)
    return figure
