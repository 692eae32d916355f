"""Figures of docs/compare.md."""

from __future__ import annotations

from collections.abc import Sequence

from bench import scale_tables, tables
from experiments.markdown import Figures
from experiments.pca_gauss import pages

figures = Figures()


@figures
def single_columns() -> Sequence[float]:
    """Errors of single columns of Adult by AIM and by PCA-Gauss."""
    kinds = (("aim-target", None), ("pca-gauss", 80))
    return [pages.measures_on_adult(*kind)["one_way"]["mean"] for kind in kinds]


@figures
def one_map() -> Sequence[float]:
    """Seconds of one map of 100,000 records: t-SNE by drjax and by openTSNE, UMAP by drjax and by umap-learn."""
    rows = tables.rows_of(scale_tables.GROWTH)
    return [
        tables.newest(rows, data="generated", method=method, library=library, n=100_000)["wall_s"]
        for method, library in (("t-SNE", "drjax"), ("t-SNE", "openTSNE"), ("UMAP", "drjax"), ("UMAP", "umap-learn"))
    ]
