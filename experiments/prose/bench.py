"""Figures of bench/README.md, from the rows of bench/."""

from __future__ import annotations

from collections.abc import Sequence

from bench import tables
from bench.part_tables import MODELS
from bench.scale_tables import LARGE
from experiments.informed_adversary.config import SCALES
from experiments.markdown import Figures

figures = Figures()

HOUR = "gpu_hour.jsonl"
"""Rows of the hour on a card."""


@figures
def largest_file() -> Sequence[float]:
    """Gigabytes of the largest file of generated records."""
    return (max(row.get("file_bytes", 0) for row in tables.rows_of(LARGE)) / 1e9,)


@figures
def shares_of_the_forecast() -> Sequence[float]:
    """Of the expected seconds: what all parity cells took, and the least and the most of a cell of the grid."""
    parity = [row for row in tables.rows_of(HOUR) if row["step"].startswith("parity/")]
    grid = [row["seconds"] / row["expected_s"] for row in tables.rows_of(HOUR) if row["step"].startswith("grid/")]
    return sum(row["seconds"] for row in parity) / sum(row["expected_s"] for row in parity), min(grid), max(grid)


@figures
def shadow_models_of_a_card() -> Sequence[float]:
    """Seconds that the most shadow models of paper 004 take on a card, by the time of one with 10,000 records."""
    own = [row for row in tables.rows_of(MODELS) if row["device_kind"] != "cpu"]
    row = tables.newest(own, name="drjax", n=10_000, data="mnist")
    return (max(SCALES["paper"].sizes) * row["ms_per_model"] / 1e3,)
