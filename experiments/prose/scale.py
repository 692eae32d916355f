"""Figures of docs/scale, from the rows of bench/ and of experiments/pages."""

from __future__ import annotations

from collections.abc import Sequence

from bench import tables
from bench.scale_tables import FROZEN, GROWTH, LARGE
from bench.tables import Row
from experiments.markdown import Figures
from experiments.pages.report import line_of

figures = Figures()

LIBRARIES = {"t-SNE": "openTSNE", "UMAP": "umap-learn", "Isomap": "scikit-learn"}
"""Libraries that maps of generated records are compared with."""


def _map(method: str, n: int, library: str = "drjax") -> Row:
    """The newest row of a map of generated records."""
    return tables.newest(tables.rows_of(GROWTH), data="generated", method=method, library=library, n=n)


@figures
def pairs_left() -> Sequence[float]:
    """Shares of the pairs left to a search of generated records, by 15 and 90 neighbours, of MNIST, and of noise."""
    names = ("generated-30000", "generated-100000", "mnist-30000", "normal-30000")
    few, many, mnist, noise = (line_of("pairs-left", name)["left"] for name in names)
    return few["15"], many["15"], few["90"], many["90"], mnist["15"], mnist["90"], noise["15"]


@figures
def growth() -> Sequence[float]:
    """Largest difference of trustworthiness from a library's, and gigabytes of maps of 100,000 records."""
    rows = tables.rows_of(GROWTH)
    sizes = {(m, row["n"]) for row in rows for m in LIBRARIES if row["library"] == LIBRARIES[m] == row["library"]
             and row["method"] == m and row["data"] == "generated"}  # fmt: skip
    apart = [abs(_map(m, n)["trustworthiness"] - _map(m, n, LIBRARIES[m])["trustworthiness"]) for m, n in sizes]
    held = (_map(method, 100_000)["max_rss_bytes"] / 1e9 for method in ("t-SNE", "UMAP", "landmark Isomap"))
    return max(apart), *held


@figures
def frozen_loss() -> Sequence[float]:
    """By which share the error grows where UMAP's attack learns from frozen shadows."""
    row = tables.newest(tables.rows_of(FROZEN), name="loss_by_frozen", method="UMAP")
    return (row["mse_frozen"] / row["mse_exact"] - 1,)


@figures
def maps_of_tsne() -> Sequence[float]:
    """Seconds of a t-SNE map of 10,000 generated records."""
    return (_map("t-SNE", 10_000)["wall_s"],)


@figures
def shadow_sums() -> Sequence[float]:
    """Microseconds of a shadow of PCA whose sums are kept, and minutes of a hundred million of them."""
    row = tables.newest(tables.rows_of(LARGE), name="statistics_of_pca", m=1_000_000)
    each = row["wall_s"] / row["m"]
    return 1e6 * each, each * 1e8 / 60
