"""Tests of what paper 001 says of membership in a PCA and of private PCA: from the rows to what they say.

Trials of one data set share members and noise, so differences are taken trial by trial and have the 95% interval of
their mean. Figure 1 has rows with mean and interval alone; there intervals are compared (`experiments.claims`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from drjax.core.statistics import Interval
from drjax.defenses.dp_pca import PAPER
from experiments.claims import Told, alike, below, outcome, sign
from experiments.pca_membership.crossing import crossing, curve_crossing
from experiments.pca_membership.private import NONE
from experiments.pca_membership.private_tables import Cells, interval, shown

NAMES = {"mnist": "MNIST", "lfw": "LFW", "adult": "Adult", "census": "Census"}

LARGE, SMALL = ("mnist", "lfw"), ("adult", "census")
"""Data sets with many attributes and with few, as the paper tells them apart."""

MARGINAL = 0.03
"""AUC above that on components of others that still counts as marginal, or as the same protection."""

SAME_ENERGY = 0.02
"""Captured energy by which two mechanisms may differ and count as almost the same."""

GOOD = 0.5
"""Share of the captured energy from which utility counts as good, and below which as low."""

NEAR = 3.0
"""Factor within which a crossing counts as being at the paper's epsilon."""


@dataclass(frozen=True)
class Rows:
    """All rows.

    Attributes:
        attacks: Cells of figure 1, without noise.
        cells: Cells of figures 2 to 6.
    """

    attacks: Sequence[Mapping[str, Any]]
    cells: Cells

    def attack(self, name: str, n: int) -> Mapping[str, Any] | None:
        """The paper's attack on a data set at an N."""
        wanted = (name, n, "reconstruction")
        found = (c for c in self.attacks if (c["data"], c["n"], c["attack"]) == wanted)
        return next((c for c in found if c["best"] is not None), None)

    def sizes(self, name: str) -> list[int]:
        """The N of a data set, ascending."""
        return sorted({c["n"] for c in self.attacks if c["data"] == name})

    def values(self, name: str, curator: str, epsilon: float | None, field: str) -> np.ndarray | None:
        """Values of the trials of a curator as printed."""
        return self.cells.values(self.cells.main(name, curator, PAPER), epsilon, field)

    def grid(self, name: str, curator: str, field: str) -> tuple[np.ndarray, np.ndarray]:
        """Epsilons, and values (trials, epsilons), of a curator as printed."""
        points = self.cells.main(name, curator, PAPER)["points"]
        return np.array([p["epsilon"] for p in points]), np.array([p[field] for p in points]).T


def _auc(cell: Mapping[str, Any]) -> Interval:
    best = cell["best"]
    return Interval(best["mean"], best["mean"] - best["half"], best["mean"] + best["half"])


def _words(found: Interval) -> str:
    return f"{found.estimate:.3f} ± {found.high - found.estimate:.3f}"


def _gap(a: Any, b: Any) -> Interval:
    """The mean of paired differences."""
    mean, half = interval(np.asarray(a) - np.asarray(b))
    return Interval(mean, mean - half, mean + half)


def rises_with_k(rows: Rows) -> Told:
    """From a tenth of the components to the best number of them, at N = 1,000 or the largest N below."""
    answers, told = [], []
    for name in (*LARGE, *SMALL):
        cell = rows.attack(name, max(n for n in rows.sizes(name) if n <= 1000))
        if cell is None:
            continue
        mean, half = (np.array(cell["auc"][part]) for part in ("mean", "half"))
        few = int(np.searchsorted(cell["k"], max(1, cell["d"] // 10)))
        first = Interval(mean[few], mean[few] - half[few], mean[few] + half[few])
        answers.append(below(first, _auc(cell)))
        told.append(f"{NAMES[name]} {_words(first)} at k = {cell['k'][few]}, {_words(_auc(cell))} at the best k, "
                    f"{mean[-1]:.3f} at k = {cell['k'][-1]}")  # fmt: skip
    return Told(outcome(answers), "; ".join(told), "up to the best k; with all components every record is rebuilt")


def falls_with_n(rows: Rows) -> Told:
    """From the smallest N to the largest, and not seen to rise between."""
    answers, told = [], []
    for name in (*LARGE, *SMALL):
        found = [(n, _auc(cell)) for n in rows.sizes(name) if (cell := rows.attack(name, n))]
        answers.append(below(found[-1][1], found[0][1]))
        answers += [False for (_, a), (_, b) in pairwise(found) if below(a, b)]
        told.append(f"{NAMES[name]} {', '.join(f'{auc.estimate:.3f} ({n:,})' for n, auc in found)}")
    return Told(outcome(answers), "; ".join(told), "AUC at the best k, by N")


def reaches(rows: Rows) -> Told:
    """0.9 at N = 1,000, and above 0.5 at every N."""
    answers, told = [], []
    for name in LARGE:
        cells = {n: rows.attack(name, n) for n in rows.sizes(name)}
        answers += [sign(_auc(cell), over=0.5) for cell in cells.values() if cell]
        if cell := cells.get(1000):
            answers.append(sign(_auc(cell), over=0.9))
            told.append(f"{NAMES[name]} {_words(_auc(cell))}")
    return Told(outcome(answers, lacks=len(told) < len(LARGE)), "; ".join(told), "at N = 1,000, the best k")


def small_are_lower(rows: Rows) -> Told:
    """Each data set with few attributes below each with many, at the largest N that both have."""
    answers, told = [], []
    for small in SMALL:
        for large in LARGE:
            n = max(set(rows.sizes(small)) & set(rows.sizes(large)))
            pair = [rows.attack(name, n) for name in (small, large)]
            if all(pair):
                low, high = (_auc(cell) for cell in pair if cell)
                answers.append(below(low, high))
                told.append(f"N = {n:,}: {NAMES[small]} {_words(low)}, {NAMES[large]} {_words(high)}")
    return Told(outcome(answers), "; ".join(told), "AUC at the best k")


def gauss_is_safe(rows: Rows) -> Told:
    """AUC at the best k within `MARGINAL` of what the attack has on components of other records, at every epsilon."""
    answers, told = [], []
    for name in rows.cells.names:
        for point in rows.cells.main(name, "analyze_gauss", PAPER)["points"]:
            gap = _gap(point["best"], point["chance"]["best"])
            answers.append(alike(gap, MARGINAL))
        told.append(f"{NAMES[name]} {shown(point['best'])}, on components of others {shown(point['chance']['best'])}")
    why = f"marginal means within {MARGINAL:g} of what the best of many useless k has; shown at epsilon 1"
    return Told(outcome(answers), "; ".join(told), why)


def vector_rises(rows: Rows) -> Told:
    """AUC rises from epsilon 1 to the largest by more than noise, and towards the one without noise."""
    answers, told = [], []
    for name in rows.cells.names:
        epsilons, values = rows.grid(name, "laplace_vector", "best")
        first, last = values[:, list(epsilons).index(1.0)], values[:, -1]
        free = rows.values(name, NONE, None, "best")
        assert free is not None
        answers.append(sign(_gap(last, first)))
        # Closer to the one without noise than to that at epsilon 1.
        answers.append(sign(_gap(last - first, free - last)))
        told.append(
            f"{NAMES[name]} {shown(first)} at 1, {shown(last)} at {epsilons[-1]:g}, {shown(free)} without noise"
        )
    return Told(outcome(answers), "; ".join(told), "AUC at the best k")


def vector_protects(rows: Rows) -> Told:
    """At the paper's epsilon of the vector query as Analyze Gauss does at 1, within `MARGINAL`."""
    answers, told = [], []
    for name, epsilon in (("adult", 1e2), ("census", 1e2), ("lfw", 1e4)):
        vector, gauss = (
            rows.values(name, "laplace_vector", epsilon, "best"),
            rows.values(name, "analyze_gauss", 1.0, "best"),
        )
        if vector is not None and gauss is not None:
            answers.append(alike(_gap(vector, gauss), MARGINAL))
            gap = shown(vector - gauss, "+")
            told.append(f"{NAMES[name]} {shown(vector)} at {epsilon:g}, Analyze Gauss {shown(gauss)}, paired {gap}")
    return Told(
        outcome(answers, lacks=len(told) < 3), "; ".join(told), f"the same means within {MARGINAL:g} of the AUC"
    )


def vector_and_naive(rows: Rows) -> Told:
    """AUC of both within `MARGINAL` at every epsilon, on every data set."""
    return _vector_less_naive(rows, "best", dict.fromkeys(rows.cells.names, 0), MARGINAL)


def vector_and_naive_utility(rows: Rows) -> Told:
    """Captured energy within `SAME_ENERGY` on LFW and Adult; scalar queries are better somewhere, never worse, else."""
    return _vector_less_naive(rows, "utility", {"mnist": -1, "lfw": 0, "adult": 0, "census": -1}, SAME_ENERGY)


def _vector_less_naive(rows: Rows, field: str, wanted: Mapping[str, int], slack: float) -> Told:
    answers: list[bool | None] = []
    told = []
    for name, way in wanted.items():
        epsilons, vector = rows.grid(name, "laplace_vector", field)
        _, naive = rows.grid(name, "laplace_scalar", field)
        gaps = [_gap(vector[:, i], naive[:, i]) for i in range(len(epsilons))]
        if way:
            answers.append(any(gap.high < 0 for gap in gaps) or None)
            answers += [False for gap in gaps if gap.low > slack]
        else:
            answers += [alike(gap, slack) for gap in gaps]
        ends = (min(gaps), max(gaps))
        at = [f"{_signed(gap)} at {epsilons[gaps.index(gap)]:g}" for gap in ends]
        told.append(f"{NAMES[name]} {' to '.join(at)}")
    what = "AUC at the best k" if field == "best" else "captured energy"
    return Told(outcome(answers), "; ".join(told), f"{what}, vector less naive scalar; the same means within {slack:g}")


def _signed(gap: Interval) -> str:
    return f"{gap.estimate:+.3f} ± {gap.high - gap.estimate:.3f}"


def advanced_protects(rows: Rows) -> Told:
    """AUC under advanced composition below that under naive where it is lowest beside it, and not above beyond."""
    answers: list[bool | None] = []
    told = []
    for name in rows.cells.names:
        epsilons, advanced = rows.grid(name, "laplace_advanced", "best")
        _, naive = rows.grid(name, "laplace_scalar", "best")
        gaps = [_gap(advanced[:, i], naive[:, i]) for i in range(len(epsilons))]
        least = min(gaps)
        answers.append(sign(least, over=0.0) is False or None)
        answers += [False for gap in gaps[gaps.index(least) :] if gap.low > 0]
        told.append(f"{NAMES[name]} {_signed(least)} at {epsilons[gaps.index(least)]:g}")
    return Told(outcome(answers), "; ".join(told), "advanced less naive, where it is lowest")


def crossings(rows: Rows, names: Sequence[str], printed: float) -> Told:
    """The AUC curves of both compositions cross within a factor `NEAR` of the paper's epsilon."""
    answers: list[bool | None] = []
    told = []
    for name in names:
        epsilons, naive = rows.grid(name, "laplace_scalar", "best")
        _, advanced = rows.grid(name, "laplace_advanced", "best")
        low, high, zero = curve_crossing(epsilons.tolist(), advanced, naive)
        cell = rows.cells.main(name, "laplace_scalar", PAPER)
        noise = crossing(cell["d"] * (cell["d"] + 1) // 2, 1 / cell["n"])
        seen = bool(np.isfinite(low) and np.isfinite(high))
        answers.append(1 / NEAR <= zero / printed <= NEAR if seen else None)
        curves = f"AUC at {zero:,.0f} ({low:,.0f} to {high:,.0f})" if seen else "no crossing of the AUC is seen"
        told.append(f"{NAMES[name]} {curves}, noise scales at {noise:,.0f}")
    return Told(outcome(answers), "; ".join(told), f"at the paper's epsilon means within a factor of {NEAR:g}")


def gauss_utility(rows: Rows) -> Told:
    """Captured energy of Analyze Gauss at epsilon 1 above `GOOD` on data sets with few attributes, below on others."""
    answers, told = [], []
    for name in (*SMALL, *LARGE):
        q = rows.values(name, "analyze_gauss", 1.0, "utility")
        assert q is not None
        above = sign(_gap(q, 0.0), over=GOOD)
        answers.append(above if name in SMALL or above is None else not above)
        least = rows.values(name, "analyze_gauss", 0.01, "utility")
        told.append(f"{NAMES[name]} {shown(q)}, at 0.01 {shown(least)}")
    why = f"good means above {GOOD:g} at epsilon 1; 0.01 is a hundred times the noise"
    return Told(outcome(answers), "; ".join(told), why)


def laplace_is_lower(rows: Rows) -> Told:
    """Each Laplace mechanism captures less than Analyze Gauss at epsilon 1."""
    answers, told = [], []
    for name in rows.cells.names:
        gauss = rows.values(name, "analyze_gauss", 1.0, "utility")
        found = {
            kind: rows.values(name, f"laplace_{kind}", 1.0, "utility") for kind in ("vector", "scalar", "advanced")
        }
        ran = {kind: q for kind, q in found.items() if q is not None}
        assert gauss is not None
        answers += [sign(_gap(gauss, q)) for q in ran.values()]
        best = max(ran, key=lambda kind: ran[kind].mean())
        told.append(f"{NAMES[name]} {shown(ran[best])} ({best}), Analyze Gauss {shown(gauss)}")
    return Told(
        outcome(answers), "; ".join(told), "captured energy at epsilon 1, the best of the three Laplace mechanisms"
    )


def advanced_utility(rows: Rows) -> Told:
    """The captured energies of both compositions cross within a factor `NEAR` of the number of queries."""
    answers: list[bool | None] = []
    told = []
    for name in rows.cells.names:
        epsilons, naive = rows.grid(name, "laplace_scalar", "utility")
        _, advanced = rows.grid(name, "laplace_advanced", "utility")
        low, high, zero = curve_crossing(epsilons.tolist(), advanced, naive)
        d = rows.cells.main(name, "laplace_scalar", PAPER)["d"]
        queries = d * (d + 1) // 2
        seen = bool(np.isfinite(low) and np.isfinite(high))
        answers.append(1 / NEAR <= zero / queries <= NEAR if seen else None)
        told.append(f"{NAMES[name]} {f'{zero / queries:.2f}' if seen else 'no crossing'} of {queries:,}")
    return Told(outcome(answers), "; ".join(told), f"where the curves cross; roughly means within a factor of {NEAR:g}")


def skewed(rows: Rows) -> Told:
    """On MNIST, whose sensitivities are the most skewed, the vector query captures more at every epsilon that tells."""
    epsilons, vector = rows.grid("mnist", "laplace_vector", "utility")
    _, naive = rows.grid("mnist", "laplace_scalar", "utility")
    gaps = [_gap(vector[:, i], naive[:, i]) for i in range(len(epsilons))]
    answers = [sign(gap) for gap in gaps]
    better = [f"{e:g}" for e, gap in zip(epsilons, gaps, strict=True) if gap.low > 0]
    worse = [f"{e:g}" for e, gap in zip(epsilons, gaps, strict=True) if gap.high < 0]
    told = f"MNIST: worse at epsilon {', '.join(worse) or 'none'}; better at {', '.join(better) or 'none'}"
    return Told(outcome(answers), told, "captured energy, vector less naive scalar")
