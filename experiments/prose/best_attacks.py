"""Figures of the README of `experiments.best_attacks`."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.best_attacks.report import FOLDERS, MORE_KNOWN, line_of, lines_of
from experiments.best_attacks.run import OURS
from experiments.markdown import Figures

figures = Figures()

MAKERS = (OURS, "library")

PROJECTION, ATTACK = "SRP, seed unknown", "srp-closed-form"


@figures
def projections() -> Sequence[float]:
    """Share of the mean record's error that projections leave, of unknown and known seed: ours, then the library's."""
    lines = lines_of(FOLDERS)
    return [
        line_of(lines, row, maker, ATTACK)["scores"]["mse"]["estimate"]
        / line_of(lines, row, maker, "mean")["scores"]["mse"]["estimate"]
        for maker in MAKERS
        for row in (PROJECTION, "SRP, seed known")
    ]


@figures
def matrices() -> Sequence[float]:
    """Matrices of unknown seed that were recovered in full, of how many: the library's, then ours."""
    lines = [line_of(lines_of(FOLDERS), PROJECTION, maker, ATTACK) for maker in reversed(MAKERS)]
    return [n for line in lines for n in (line["facts"]["n_matrices_recovered"], line["scores"]["n_targets"])]


@figures
def errors() -> Sequence[float]:
    """Error of the attack on PCA, MDS, MDS that converged, Isomap, t-SNE exact and by the library, and UMAP."""
    shown = (
        ("PCA", OURS, "closed-form"),
        ("MDS", OURS, "stationarity"),
        ("MDS, converged", OURS, "stationarity"),
        ("Isomap", OURS, "geodesics"),
        ("t-SNE", OURS, "affinities"),
        ("t-SNE", "library", "affinities"),
        ("UMAP", OURS, "invariant"),
    )
    lines = lines_of(FOLDERS)
    return [line_of(lines, *place)["scores"]["mse"]["estimate"] for place in shown]


@figures
def medians_of_many_known() -> Sequence[float]:
    """Median error with 999 known records: PCA, the library's PCA, and MDS that converged."""
    shown = (
        ("PCA", OURS, "closed-form"),
        ("PCA", "library", "closed-form"),
        ("MDS, converged", OURS, "stationarity"),
    )
    lines = lines_of(MORE_KNOWN)
    return [line_of(lines, *place)["scores"]["mse_median"]["estimate"] for place in shown]
