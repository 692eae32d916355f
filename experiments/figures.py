"""The figures that are drawn from committed rows alone.

python -m experiments.figures                              # writes NAME.svg to where the pages look for it
python -m experiments.figures leak_vs_n --pdf --out DIR    # of one experiment, NAME.pdf as well, into another folder
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import tyro
from matplotlib.figure import Figure

from drjax.reports import records
from experiments import drawings
from experiments.dr_reconstruction import report as dr_reconstruction
from experiments.informed_adversary import bound
from experiments.informed_adversary import pages as informed_adversary_pages
from experiments.informed_adversary import report as informed_adversary
from experiments.leak_vs_n import figures as leak_vs_n
from experiments.pages import figures as pages
from experiments.pca_gauss import figures as pca_gauss
from experiments.pca_membership import private_report
from experiments.pca_membership import report as pca_membership
from experiments.private_embeddings import run as private_embeddings
from experiments.sweep import RESULTS
from experiments.tsne_property import report as tsne_property

HERE = Path(__file__).parent
ROWS = "results"
"""Folder of the committed rows of an experiment, in its own."""


def _pca_membership(rows: Path) -> dict[str, Figure]:
    return pca_membership.drawn(rows) | private_report.drawn(rows)


def _informed_adversary(rows: Path) -> dict[str, Figure]:
    return informed_adversary.drawn(rows) | bound.drawn(informed_adversary_pages.bounded())


def _pca_gauss(rows: Path) -> dict[str, Figure]:
    return pca_gauss.drawn(records.read_records(rows / RESULTS))


FIGURES: dict[str, tuple[Path, Callable[[Path], dict[str, Figure]]]] = {
    "dr_reconstruction": (HERE / "dr_reconstruction" / ROWS / dr_reconstruction.FIGURES, dr_reconstruction.drawn),
    "informed_adversary": (HERE / "informed_adversary" / ROWS, _informed_adversary),
    "leak_vs_n": (HERE.parent / "docs" / "images", leak_vs_n.drawn),
    "pages": (HERE.parent / "docs" / "images", pages.drawn),
    "pca_gauss": (HERE / "pca_gauss" / ROWS, _pca_gauss),
    "pca_membership": (HERE / "pca_membership" / ROWS, _pca_membership),
    "private_embeddings": (HERE / "private_embeddings" / ROWS, private_embeddings.drawn),
    "tsne_property": (HERE / "tsne_property" / ROWS, tsne_property.drawn),
}
"""Where the figures of an experiment lie, and what draws them from its rows."""


def main(
    experiments: tyro.conf.Positional[tuple[str, ...]] = (), /, *, out: Path | None = None, pdf: bool = False
) -> None:
    """Draws the figures of some experiments.

    Args:
        experiments: Names of folders; all if none is named.
        out: Folder of the figures; where the pages look for them if not given.
        pdf: Whether to write a PDF of each figure as well.

    Raises:
        ValueError: a name of no experiment with figures.
    """
    for name in experiments or FIGURES:
        if name not in FIGURES:
            raise ValueError(f"experiments must be among {', '.join(FIGURES)}, got {name}")
        folder, draw = FIGURES[name]
        for file in drawings.save(draw(HERE / name / ROWS), out or folder, pdf=pdf):
            print(file)


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
