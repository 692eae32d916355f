"""Tables of the sweep over private curators, in Markdown: what `private_report` writes beside the figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from drjax.core.statistics import half_width
from drjax.defenses.dp_pca import PAPER, PUBLIC
from experiments.markdown import markdown_table
from experiments.pca_membership.crossing import crossing, curve_crossing
from experiments.pca_membership.private import NONE

LABELS = {
    "analyze_gauss": "Analyze Gauss",
    "laplace_vector": "Laplace vector",
    "laplace_scalar": "scalar, naive",
    "laplace_advanced": "scalar, advanced",
    "analyze_gauss_tight": "Analyze Gauss, least deviation",
    "analytic_gauss": "AnalyticGauss",
}


class Cells:
    """Cells by what tells them apart.

    Raises:
        ValueError: there are none.
    """

    def __init__(self, cells: Sequence[Mapping[str, Any]]) -> None:
        if not cells:
            raise ValueError("results must hold a cell, got none")
        self.all = list(cells)
        self.names: list[str] = list(dict.fromkeys(cell["data"] for cell in cells))
        self._sizes = {cell["data"]: cell["n"] for cell in cells if cell["attack"] == "informed"}

    def of(self, name: str, n: int, curator: str, convention: str, neighbouring: str = "zero_out") -> Any:
        """The cell of the paper's attack, or None."""
        wanted = (name, n, curator, convention, neighbouring, "reconstruction")
        fields = ("data", "n", "curator", "convention", "neighbouring", "attack")
        return next((c for c in self.all if tuple(c[field] for field in fields) == wanted), None)

    def main(self, name: str, curator: str, convention: str, neighbouring: str = "zero_out") -> Any:
        """The same at the N of the figures.

        Raises:
            ValueError: it is not there yet.
        """
        found = self.of(name, self._sizes.get(name, 0), curator, convention, neighbouring)
        if found is None:
            raise ValueError(f"results must be complete, got none of {name}, {curator}, {convention}, {neighbouring}")
        return found

    def values(self, cell: Any, epsilon: float | None, field: str) -> np.ndarray | None:
        """Values of the trials at an epsilon, or None."""
        return next((np.array(p[field]) for p in cell["points"] if p["epsilon"] == epsilon), None)


def interval(values: Any) -> tuple[float, float]:
    """Mean over trials and half its 95% interval."""
    column = np.asarray(values, np.float64)[:, None]
    return float(column.mean()), float(half_width(column)[0])


def shown(values: Any, sign: str = "") -> str:
    """A mean with half its interval; empty for None."""
    if values is None:
        return ""
    mean, half = interval(values)
    return f"{mean:{sign}.3f} ± {half:.3f}"


def every_table(cells: Cells) -> str:
    """All tables with their headings."""
    parts = {
        "Analyze Gauss as printed, and chance": chance(cells, PAPER, "analyze_gauss"),
        "AnalyticGauss with public bounds, and chance": chance(cells, PUBLIC, "analytic_gauss"),
        "Naive and advanced composition": crossings(cells),
        "The curators as printed": curators(cells, PAPER),
        "Sound curators": curators(cells, PUBLIC),
        "Gain of AnalyticGauss, and what replace-one costs (captured energy)": gains(cells),
        "Stronger attacks (public bounds, replace-one)": stronger(cells),
        "Other numbers of records": sizes(cells),
        "Cost": costs(cells),
    }
    return "\n\n".join(f"## {title}\n\n{text}" for title, text in parts.items()) + "\n"


def chance(cells: Cells, convention: str, curator: str) -> str:
    """AUC at a k that nobody chose and at the best k, and the latter on components of other records."""
    rows = []
    for name in cells.names:
        cell = cells.main(name, curator, convention)
        for point in cell["points"]:
            best, null = np.array(point["best"]), np.array(point["chance"]["best"])
            texts = (shown(point["at_k"]), shown(best), shown(null), shown(best - null, "+"))
            rows.append([name, str(cell["n"]), f"{point['epsilon']:g}", *texts])
    heads = (
        "data",
        "N",
        "ε",
        "AUC at k of 90% energy",
        "at the best k",
        "the same, components of others",
        "difference",
    )
    return markdown_table(heads, rows)


def crossings(cells: Cells) -> str:
    """Where the noise scales cross, and the curves, between the last epsilon at which advanced composition is higher by
    the paired 95% interval and the first at which it is lower; how far the vector query is from naive queries.
    """
    rows = []
    for name in cells.names:
        vector, naive, advanced = (
            cells.main(name, f"laplace_{kind}", PAPER) for kind in ("vector", "scalar", "advanced")
        )
        alpha = naive["d"] * (naive["d"] + 1) // 2
        epsilons = np.array([p["epsilon"] for p in naive["points"]])
        bests, kept = (
            [np.array([p[field] for p in cell["points"]]).T for cell in (vector, naive, advanced)]
            for field in ("best", "utility")
        )
        seen = [_crossed(curve_crossing(epsilons, values[2], values[1])) for values in (bests, kept)]
        gaps = [_extremes(epsilons, values[0] - values[1]) for values in (bests, kept)]
        rows.append([name, f"{alpha:,}", f"{crossing(alpha, 1 / naive['n']):,.0f}", *seen, *gaps])
    heads = ("data", "α", "noise scales cross at ε", "AUC curves", "captured energy")
    return markdown_table((*heads, "vector less naive, least and largest: AUC", "captured energy"), rows)


def _extremes(epsilons: np.ndarray, gap: np.ndarray) -> str:
    mean = gap.mean(axis=0)
    return ", ".join(f"{shown(gap[:, i], '+')} at {epsilons[i]:g}" for i in (int(mean.argmin()), int(mean.argmax())))


def _crossed(found: tuple[float, float, float]) -> str:
    low, high, zero = found
    if not np.isfinite(low):
        return "advanced is nowhere higher"
    return f"{zero:,.0f} ({low:,.0f} to {high:,.0f})" if np.isfinite(high) else f"naive is not higher after {low:,.0f}"


def curators(cells: Cells, convention: str) -> str:
    """AUC at the best k and captured energy of every curator over epsilon."""
    found = [c for c in cells.all if (c["attack"], c["convention"]) == ("reconstruction", convention)]
    found = [c for c in found if c is cells.of(c["data"], _size(cells, c), c["curator"], convention, c["neighbouring"])]
    rows = []
    for cell in found:
        label = LABELS.get(cell["curator"], "no noise")
        for point in cell["points"]:
            epsilon = "∞" if point["epsilon"] is None else f"{point['epsilon']:g}"
            texts = [shown(point[field]) for field in ("best", "tpr", "utility")]
            rows.append([cell["data"], label, cell["neighbouring"], epsilon, *texts])
    return markdown_table(("data", "curator", "relation", "ε", "AUC at the best k", "TPR at 1% FPR", "q"), rows)


def _size(cells: Cells, cell: Mapping[str, Any]) -> int:
    return cells.main(cell["data"], NONE, PAPER)["n"]


def gains(cells: Cells) -> str:
    """Captured energy of the Gaussian mechanisms at the same epsilon, delta and relation; differences are paired."""
    rows = []
    for name in cells.names:
        made = {
            (curator, relation): cells.main(name, curator, PUBLIC, relation)
            for curator in ("analyze_gauss", "analyze_gauss_tight", "analytic_gauss")
            for relation in ("zero_out", "replace_one")
        }
        for epsilon in (p["epsilon"] for p in made["analytic_gauss", "zero_out"]["points"]):
            q = {key: cells.values(cell, epsilon, "utility") for key, cell in made.items()}
            texts = [shown(q[curator, "zero_out"]) for curator in ("analyze_gauss", "analyze_gauss_tight")]
            best = q["analytic_gauss", "zero_out"]
            texts.append(shown(best))
            for own, other in (
                (("analytic_gauss", "zero_out"), ("analyze_gauss", "zero_out")),
                (("analytic_gauss", "zero_out"), ("analyze_gauss_tight", "zero_out")),
                (("analytic_gauss", "replace_one"), ("analyze_gauss", "replace_one")),
                (("analyze_gauss", "replace_one"), ("analyze_gauss", "zero_out")),
                (("analytic_gauss", "replace_one"), ("analytic_gauss", "zero_out")),
            ):
                first, second = q[own], q[other]
                texts.append("" if first is None or second is None else shown(first - second, "+"))
            rows.append([name, f"{epsilon:g}", *texts])
    heads = ("data", "ε", "Analyze Gauss", "least deviation", "AnalyticGauss", "gain", "of it by the shape")
    relations = ("gain under replace-one", "replace-one: Analyze Gauss", "replace-one: AnalyticGauss")
    return markdown_table((*heads, *relations), rows)


def stronger(cells: Cells) -> str:
    """Three adversaries and the ceiling of the guarantee."""
    rows = []
    for cell in (c for c in cells.all if c["attack"] != "reconstruction"):
        label = LABELS[cell["curator"]]
        for point in cell["points"]:
            row = [cell["data"], label, f"{point['epsilon']:g}"]
            if cell["attack"] == "ratio":
                row += [shown(point["reconstruction"]["best"]), shown(point["best"]), "", "", "", ""]
            else:
                games = [point.get(published) for published in ("scatter", "components")]
                row += [
                    "",
                    "",
                    *("" if g is None else f"{g['auc']:.3f} ({g['low']:.3f}, {g['high']:.3f})" for g in games),
                ]
                row += [f"{point['ceiling']:.3f}", f"{point['promised']:.3f}"]
            rows.append(row)
    heads = ("data", "curator", "ε", "reconstruction error", "likelihood ratio", "all but one known, matrix")
    return markdown_table((*heads, "components", "ceiling of the guarantee", "of (ε, δ) alone"), rows)


def sizes(cells: Cells) -> str:
    """The paper's attack and captured energy at every N, figures' own among them."""
    rows = []
    for name in cells.names:
        every = sorted({c["n"] for c in cells.all if c["data"] == name})
        for n in every:
            free = cells.of(name, n, NONE, PAPER)
            if free is None:
                continue
            row = [name, str(n), shown(free["points"][0]["best"])]
            for curator, convention, epsilon in (
                ("analyze_gauss", PAPER, 1.0),
                ("laplace_vector", PAPER, 1e4),
                ("laplace_vector", PAPER, 1e6),
            ):
                cell = cells.of(name, n, curator, convention)
                row.append("" if cell is None else shown(cells.values(cell, epsilon, "best")))
            own = [cells.of(name, n, curator, PUBLIC) for curator in ("analyze_gauss", "analytic_gauss")]
            for epsilon in (0.1, 1.0):
                q = [None if cell is None else cells.values(cell, epsilon, "utility") for cell in own]
                row += [shown(q[0]), "" if q[0] is None or q[1] is None else shown(q[1] - q[0], "+")]
            rows.append(row)
    heads = ("data", "N", "AUC without noise", "Analyze Gauss, ε 1", "vector, 1e4", "vector, 1e6")
    return markdown_table((*heads, "q Analyze Gauss, 0.1", "gain", "q, 1", "gain"), rows)


def costs(cells: Cells) -> str:
    """Seconds of processor time and of the clock by data set and attack."""
    rows = []
    for name in cells.names:
        for attack in ("reconstruction", "ratio", "informed"):
            own = [c for c in cells.all if (c["data"], c["attack"]) == (name, attack)]
            spent = [sum(c[field] for c in own) for field in ("cpu_seconds", "seconds")]
            rows.append([name, attack, str(len(own)), *(f"{value:.0f}" for value in spent)])
    total = [sum(c[field] for c in cells.all) for field in ("cpu_seconds", "seconds")]
    rows.append(["all", "", str(len(cells.all)), *(f"{value:.0f}" for value in total)])
    return markdown_table(("data", "attack", "cells", "CPU s", "wall s"), rows)
