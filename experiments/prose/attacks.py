"""Figures in the sentences of docs/attacks, from the rows of several experiments.

A mean squared error comes with its 95% interval.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from drjax.reports import records
from experiments.best_attacks import report as best_attacks
from experiments.best_attacks.run import OURS
from experiments.cells import Line
from experiments.intervals import report as intervals
from experiments.leak_vs_n import report as leak
from experiments.leak_vs_n import tables
from experiments.markdown import Figures
from experiments.pages import report as pages
from experiments.pipelines import report as pipelines
from experiments.sweep import RESULTS

figures = Figures()

LIBRARY = "library"


def _scores(row: str, maker: str, attack: str) -> Mapping[str, Any]:
    return best_attacks.line_of(best_attacks.lines_of(best_attacks.FOLDERS), row, maker, attack)["scores"]


def _interval(score: Mapping[str, float]) -> tuple[float, float, float]:
    return score["estimate"], score["low"], score["high"]


def _of_mean(row: str, maker: str, attack: str) -> float:
    errors = [_scores(row, maker, name)["mse"]["estimate"] for name in (attack, "mean")]
    return errors[0] / errors[1]


@figures
def affinities() -> Sequence[float]:
    """Errors of affinities on MNIST and shares identified, on exact maps and on scikit-learn's; the mean record's."""
    found = [_scores("t-SNE", maker, "affinities") for maker in (OURS, LIBRARY)]
    both = [value for own in found for value in (*_interval(own["mse"]), own["identification"]["estimate"])]
    return *both, _scores("t-SNE", OURS, "mean")["mse"]["estimate"]


@figures
def near_forces() -> Sequence[float]:
    """Records rebuilt from maps of 1,000, 2,000 and 5,000, each with their number, and the error left of each map; then
    that of the most similar record."""
    lines = [line for line in tables.series_of("t-SNE", "mnist", "float32") if line["n"] >= 1000]
    counts = [count for line in lines for count in (line["n_rebuilt"], line["targets"])]
    left = [[float(np.median(leak.shares(line, of))) for line in lines] for of in ("error", "nearest_error")]
    return *counts, *left[0], *left[1]


@figures
def near_forces_behind() -> Sequence[float]:
    """Records of a standardised map rebuilt, with the interval, and identified; both by places alone."""
    found = pages.attacks_of("near-forces", "breast-cancer")
    shares = [
        found[attack][score]["estimate"]
        for attack in ("near-forces-behind-steps", "map")
        for score in ("success", "identification")
    ]
    return *_interval(found["near-forces-behind-steps"]["success"]), *shares[1:]


@figures
def near_forces_of_patients() -> Sequence[float]:
    """Records of a map of patients rebuilt, with the interval, and identified."""
    found = pages.attacks_of("near-forces", "patients")["near-forces"]
    return *_interval(found["success"]), found["identification"]["estimate"]


@figures
def isomap() -> Sequence[float]:
    """Scores of geodesics on MNIST: error, mean record, nearest record, certified, closer, identified, seconds."""
    row = "Isomap"
    lines = best_attacks.lines_of(best_attacks.FOLDERS)
    line = best_attacks.line_of(lines, row, OURS, "geodesics")
    others = [_scores(row, OURS, name)["mse"]["estimate"] for name in best_attacks.BASELINES]
    scores = line["scores"]
    shares = [scores[name]["estimate"] for name in ("success", "identification")]
    certified = line["facts"]["n_certified"] / scores["n_targets"]
    return *_interval(scores["mse"]), *others, certified, *shares, scores["seconds_per_target"]


@figures
def isomap_by_scikit_learn() -> Sequence[float]:
    """Certified answers on scikit-learn's maps, their number, and the error."""
    lines = best_attacks.lines_of(best_attacks.FOLDERS)
    line = best_attacks.line_of(lines, "Isomap", LIBRARY, "geodesics")
    return line["facts"]["n_certified"], line["scores"]["n_targets"], *_interval(line["scores"]["mse"])


@figures
def projections() -> Sequence[float]:
    """Error left of the mean record's by matrix recovery, seed unknown and known."""
    return [_of_mean(f"SRP, seed {seed}", OURS, "srp-closed-form") for seed in ("unknown", "known")]


@figures
def sizes() -> Sequence[float]:
    """Error left where directions are known, by the most probable size and by the regression: digits, tumours."""
    by_kind = [pages.line_of("sizes", name) for name in ("digits", "breast-cancer")]
    return [line[how] for how in ("most_probable", "regression") for line in by_kind]


@figures
def recognised() -> Sequence[float]:
    """Maps of twenty kinds of four data sets that were recognised, and their number."""
    lines = records.read_records(pipelines.HERE / RESULTS)[1:]
    return [sum(line[name] for line in lines) for name in ("recognised", "n_recognised")]


@figures
def recognised_of_wine() -> Sequence[float]:
    """Maps of wine of kinds that are not ours and with columns multiplied, of which the right thing was believed."""
    found = [pages.line_of("recognition", f"{maps}-wine") for maps in ("foreign", "multiplied")]
    return [one[name] for one in found for name in ("n_right", "n_maps")]


@figures
def networks() -> Sequence[float]:
    """Errors on UMAP by a kernel and by it and networks, of each data set."""
    lines = records.read_records(intervals.HERE / RESULTS)[1:]
    at: dict[tuple[str, str], Line] = {(line["map"], line["data"]): line for line in lines}
    data = dict.fromkeys(line["data"] for line in lines)
    return [at[kind, name]["error"] for name in data for kind in ("UMAP", "UMAP, by a network")]
