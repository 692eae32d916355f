"""Both figures of docs/leak.md, from the results in this folder.

python -m experiments.leak_vs_n.figures      # writes docs/images/leak_vs_n.png and docs/images/leak_rounding.png
"""

from __future__ import annotations

from pathlib import Path

import tyro

from drjax.reports import plots
from experiments.leak_vs_n import report, tables


def main(*, out: Path = Path("docs/images")) -> None:
    """Writes the figures.

    Args:
        out: Folder of the figures.
    """
    plots.save_figure(report.figure(tables.plain_lines()), out / "leak_vs_n.png")
    plots.save_figure(report.rounding_figure(tables.lines_of("decimals")), out / "leak_rounding.png")


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
