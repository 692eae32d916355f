"""Figures of the README of `experiments.informed_adversary`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.informed_adversary import pages
from experiments.informed_adversary.cells import INVERSION, NEAREST
from experiments.informed_adversary.claims import DEFAULT
from experiments.markdown import Figures

figures = Figures()

EXACT = 1e-6
"""Median error below which a setting is inverted."""


def _estimate(cell: Mapping[str, Any], measure: str) -> float:
    return cell["scores"][measure]["estimate"]


@figures
def inverted() -> Sequence[float]:
    """Settings with a median error below `EXACT`, settings that inversion was run on, and the median of the default."""
    medians = {
        place: _estimate(cells[INVERSION], "mse_median")
        for place, cells in pages.attacked().items()
        if INVERSION in cells
    }
    return sum(error < EXACT for error in medians.values()), len(medians), medians[DEFAULT]


@figures
def medians() -> Sequence[float]:
    """Median errors of RecoNN and of the nearest neighbour in the default setting."""
    return [_estimate(pages.attacked()[DEFAULT][name], "mse_median") for name in ("network", NEAREST)]


@figures
def fewest_and_most_shadows() -> Sequence[float]:
    """RecoNN's error by the fast recipe with the fewest and the most shadow models, each with their number; errors of
    the nearest neighbour.
    """
    found = {
        cells["network"]["of"]["n_shadow"]: cells
        for (factor, _), cells in pages.attacked().items()
        if factor == "shadows" and cells["network"]["attack"] == "fast"
    }
    ends = (min(found), max(found))
    ours = [number for n in ends for number in (_estimate(found[n]["network"], "mse"), n)]
    return *ours, *(_estimate(found[n][NEAREST], "mse") for n in ends)
