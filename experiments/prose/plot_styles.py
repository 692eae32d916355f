"""Figures of experiments/plot_styles/README.md."""

from __future__ import annotations

from collections.abc import Sequence

from drjax.reports import records
from experiments.markdown import Figures
from experiments.plot_styles.report import HERE, is_short
from experiments.sweep import RESULTS

figures = Figures()


@figures
def by_markers_found() -> Sequence[float]:
    """Plots that are right but would be wrong by the markers found alone, of how many plots, and the least and the
    largest share of markers that are found in them.
    """
    lines = records.read_records(HERE / RESULTS)[1:]
    short = [line for line in lines if is_short(line)]
    found = [line["n_found"] / line["n_drawn"] for line in short]
    return len(short), len(lines), min(found), max(found)
