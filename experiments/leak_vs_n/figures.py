"""Both figures of docs/leak.md and the tables of README.md, from the results in this folder.

python -m experiments.leak_vs_n.figures      # writes docs/images/leak_vs_n.png and docs/images/leak_rounding.png
"""

from __future__ import annotations

from pathlib import Path

import tyro

from drjax.reports import plots, records
from experiments.leak_vs_n import report
from experiments.sweep import RESULTS

HERE = Path(__file__).parent / "results"

SCALES = ("maps", "distances", "landmarks", "wide")
"""Scales whose cells are shown beside those of the scale "cpu"."""


def main(*, out: Path = Path("docs/images")) -> None:
    """Writes the figures and prints the tables.

    Args:
        out: Folder of the figures.
    """
    plain, decimals = records.read_records(HERE / RESULTS)[1:], records.read_records(HERE / "decimals" / RESULTS)[1:]
    beside = {name: records.read_records(HERE / name / RESULTS)[1:] for name in SCALES}
    lines = plain + [line for own in beside.values() for line in own]
    plots.save_figure(report.figure(lines), out / "leak_vs_n.png")
    plots.save_figure(report.rounding_figure(decimals), out / "leak_rounding.png")
    for name, own in beside.items():
        print(f"## `results/{name}`\n\n{report.cells_table(own)}\n")
    print(f"## Exponents\n\n{report.law_table(lines)}")


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
