"""Figures of experiments/pca_gauss/README.md, but for those that `experiments.prose.synthesis` has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from bench import tables
from bench.part_tables import SYNTHESIS
from experiments.markdown import Figures
from experiments.pca_gauss import pages, theory
from experiments.pca_gauss.paper_claims import Line

figures = Figures()

FULL = pages.FOLDER / "full"


def _cells(full: bool = False) -> list[dict[str, Any]]:
    return pages.rows_of(FULL if full else pages.FOLDER)[1:]


def _minutes(cells: Iterable[Mapping[str, Any]]) -> float:
    return sum(cell.get("seconds") or 0.0 for cell in cells) / 60


@figures
def minutes(*names: str) -> Sequence[float]:
    """Cells of scale `cpu` and the minutes that their seconds add up to, then of tables or methods on Adult."""
    cells = _cells()
    own = [[cell for cell in cells if name in (cell.get("table"), cell.get("method"))] for name in names]
    if not all(own):
        raise LookupError(f"results must hold cells of {', '.join(names)}, got {[len(some) for some in own]}")
    return len(cells), _minutes(cells), *map(_minutes, own)


@figures
def minutes_of_full() -> Sequence[float]:
    """Cells of scale `full`, the minutes that their seconds add up to, the median of the seconds and the largest."""
    cells = _cells(full=True)
    seconds = [cell["seconds"] for cell in cells]
    return len(cells), _minutes(cells), float(np.median(seconds)), max(seconds)


def _silhouette(method: str, p: int | None, k: int) -> float:
    wanted = ("clustering", method, p, k)
    found = [c["mean"] for c in _cells(full=True) if (c["table"], c["method"], c["p"], c["k"]) == wanted]
    if len(found) != 1:
        raise LookupError(f"results must hold {method} at p = {p} and k = {k} once, got {len(found)} of them")
    return found[0]


@figures
def silhouettes(method: str, p: str, *ks: str) -> Sequence[float]:
    """Silhouette coefficients of a method of table II by the number of clusters; p is "none" of real data."""
    return [_silhouette(method, None if p == "none" else int(p), int(k)) for k in ks]


@figures
def one_component() -> Sequence[float]:
    """The least and the largest silhouette coefficient of all methods at p = 1."""
    found = [c["mean"] for c in _cells(full=True) if (c["table"], c["p"], c["k"]) == ("clustering", 1, 9)]
    return min(found), max(found)


@figures
def real_beside_a_guess() -> Sequence[float]:
    """Errors of random guesses over those of the real data in table IV."""
    real, guess = (_one(_cells(), table="regression", method=name)["mean"] for name in ("real", "uniform"))
    return (guess / real,)


def _one(cells: Iterable[Line], **labels: Any) -> Line:
    found = [cell for cell in cells if all(cell.get(name) == value for name, value in labels.items())]
    if len(found) != 1:
        raise LookupError(f"results must hold {labels} once, got {len(found)} of them")
    return found[0]


@figures
def fits_of_aim() -> Sequence[float]:
    """Seconds of the quickest and of the slowest fit of AIM with all pairs."""
    seconds = pages.measures_on_adult("aim")["fit_seconds"]["values"]
    return min(seconds), max(seconds)


@figures
def beside_mst() -> Sequence[float]:
    """Total variation over that of MST at p = 80, two-way and then one-way: of PCA-Gauss, then of RON-Gauss."""
    mst = pages.measures_on_adult("mst")
    ours = [pages.measures_on_adult(name, 80) for name in ("pca-gauss", "ron-gauss")]
    return [own[ways]["mean"] / mst[ways]["mean"] for own in ours for ways in ("two_way", "one_way")]


@figures
def beside_aim() -> Sequence[float]:
    """PCA-Gauss at p = 80 and AIM on pairs with the class: accuracies with half intervals, times the error of two-way
    marginals, and both errors.
    """
    both = pages.measures_on_adult("pca-gauss", 80), pages.measures_on_adult("aim-target")
    accuracies = [own["logistic"][part] for own in both for part in ("mean", "half")]
    ours, theirs = (own["two_way"]["mean"] for own in both)
    return *accuracies, ours / theirs, ours, theirs


@figures
def sweep(data: str, method: str, epsilon: str, *dimensions: str) -> Sequence[float]:
    """What figure 1 has of a method, by the number of components."""
    labels = {"table": "dimensions", "data": data, "method": method, "epsilon": float(epsilon)}
    return [_one(_cells(), **labels, p=int(p))["mean"] for p in dimensions]


@figures
def gain_over_loss() -> Sequence[float]:
    """Section IX-A's ratio at p = 1 on GFE: of algorithm 1 as printed, then with the proven sensitivity."""
    curve = _one(_cells(), kind="curve")
    _, printed, proven = theory.sir_curves(np.asarray(curve["singular_values"])).values()
    return float(printed[0]), float(proven[0])


@figures
def drawn_noise() -> Sequence[float]:
    """The largest relative difference of a signal-to-noise ratio of draws from that of theorems 2 and 3."""
    key, (m, epsilon) = jax.random.key(0), _of_theorems()
    rows = theory.theorem_2(key, m, epsilon) + theory.theorem_3(key, m, epsilon)
    return (max(abs(row["measured"] / row["snr"] - 1) for row in rows),)


def _of_theorems() -> tuple[int, float]:
    head = pages.rows_of(pages.FOLDER)[0]
    return int(_one(_cells(), kind="curve")["d"]), head["config"]["epsilon"]


@figures
def fewest_records(*dimensions: str) -> Sequence[float]:
    """The largest n of proposition 4 by search, by p; then its bound at p = 1 over the paper's data sets' n."""
    found = {row["p"]: row["n_below"] for row in theory.proposition_4(_of_theorems()[0])}
    return [*(found[int(p)] for p in dimensions), *theory.gains_by_data_set().values()]


@figures
def before_loops() -> Sequence[float]:
    """Seconds of 100 trials at p = 5 and 17 in the oldest rows, then in the newest."""
    own = [row for row in tables.rows_of(SYNTHESIS) if row["name"] == "synthesis/drjax"]
    by_p = [[row for row in own if row["p"] == p] for p in (5, 17)]
    return [pick(rows, key=lambda row: row["utc"])["run_s"] for pick in (min, max) for rows in by_p]
