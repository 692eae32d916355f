"""Both figures of docs/leak.md, from the results in this folder.

python -m experiments.leak_vs_n.figures      # writes docs/images/leak_vs_n.svg and docs/images/leak_rounding.svg
"""

from __future__ import annotations

from pathlib import Path

import tyro
from matplotlib.figure import Figure

from drjax.reports import records
from experiments import drawings
from experiments.cells import Line
from experiments.leak_vs_n import report
from experiments.leak_vs_n.tables import HERE, SCALES
from experiments.sweep import RESULTS


def drawn(rows: Path) -> dict[str, Figure]:
    """The figures by their names.

    Args:
        rows: Folder of `results.jsonl` of the scale "cpu", and of those of other scales.
    """
    decimals = records.read_records(rows / "decimals" / RESULTS)[1:]
    return {report.FIGURE: report.figure(_shown(rows)), "leak_rounding": report.rounding_figure(decimals)}


def _shown(rows: Path) -> list[Line]:
    return [line for name in (".", *SCALES) for line in records.read_records(rows / name / RESULTS)[1:]]


def main(*, out: Path = Path("docs/images")) -> None:
    """Writes the figures.

    Args:
        out: Folder of the figures.
    """
    drawings.save(drawn(HERE), out)


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
