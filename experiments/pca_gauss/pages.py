"""Tables of the pages about paper 002, from the committed rows.

python -m experiments.pca_gauss.pages claims
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from drjax.reports import records
from experiments import claims as page_claims
from experiments.markdown import Tables, markdown_table
from experiments.pca_gauss import claims, practice, theory
from experiments.pca_gauss.paper_claims import Line, Place, judged_claims, places
from experiments.pca_gauss.report import CENTRES, LABELS, ORDER, SMALL_SAMPLES
from experiments.sweep import RESULTS

FOLDER = Path(__file__).parent / "results"

made = Tables()
block = made.block


@functools.cache
def rows_of(folder: Path = FOLDER) -> list[dict[str, Any]]:
    """The committed lines of a folder: the run, then its cells."""
    return records.read_records(folder / RESULTS)


@made
def claims_table() -> str:
    """Every claim of the paper."""
    return page_claims.table(judged_claims(rows_of(FOLDER / "full"), rows_of()))


def _places(table: str) -> list[Place]:
    return [place for place in places(rows_of(FOLDER / "full"), rows_of()) if place.table == table]


def _value(line: Line | None, digits: int) -> str:
    if line is None:
        return ""
    return f"{line['mean']:.{digits}f}" + ("" if line["half"] is None else f" ± {line['half']:.{digits}f}")


def accuracy(data: str, method: str, p: int | None) -> float:
    """Mean accuracy in table III, from the committed row.

    Raises:
        LookupError: there is none.
    """
    for place in _places("classification"):
        for line in place.lines:
            if (line["data"], line["method"], line["p"]) == (data, method, p):
                return float(line["mean"])
    raise LookupError(f"results must hold {method} on {data} at p = {p}, got no such line")


@made
def clustering_table() -> str:
    """Table II: silhouettes at the best p of each method, and at one public p for all."""
    (place,) = _places("clustering")
    lines, rows = place.lines, []
    for name in ORDER:
        best, public = (claims.pick(lines, name, rule) for rule in claims.RULES)
        if best is None:
            continue
        errors = [
            "" if line is None else f"{claims.losses(line, claims.real_mean(lines)).mean():.3f}"
            for line in (best, public)
        ]
        p = "" if best["p"] is None else f"{best['p']:g}"
        label = LABELS["unsupervised"][name]
        rows.append([label, _value(best, 3), errors[0], p, _value(public, 3), errors[1], str(best["trials"])])
    public = f"p = {lines[0]['default_p']}"
    heads = (place.shown, "best p: S.C.", "error", "p", f"{public}: S.C.", "error", "trials")
    return markdown_table(heads, rows)


@made
def classification_table() -> str:
    """Table III: accuracies at the best p of each method; in parentheses at the public p, where it has a p."""
    found = _places("classification")
    rows = []
    for name in ORDER:
        row = []
        for place in found:
            best, public = (claims.pick(place.lines, name, rule) for rule in claims.RULES)
            beside = "" if best is None or public is None or best["p"] is None else f" ({public['mean']:.3f})"
            row.append("not run" if best is None else _value(best, 3) + beside)
        if set(row) != {"not run"}:
            rows.append([LABELS["classification"][name], *row])
    heads = [f"{place.shown}, {_trials(place.lines)} trials" for place in found]
    return markdown_table(("accuracy at epsilon 1", *heads), rows)


@made
def regression_table() -> str:
    """Table IV: errors at the best p of each method."""
    (place,) = _places("regression")
    rows = []
    for name in ORDER:
        best = claims.pick(place.lines, name, claims.RULES[0])
        if best is not None:
            p = "" if best["p"] is None else f"{best['p']:g}"
            rows.append([LABELS["regression"][name], _value(best, 4), p, str(best["trials"])])
    return markdown_table((place.shown, "best p: RMSE", "p", "trials"), rows)


def _trials(lines: Sequence[Line]) -> int:
    return max(line["trials"] for line in lines)


@made
def theorems_table() -> str:
    """n times the sensitivities of theorems 4 and 5 for a = 1, by the centre."""
    rows = [
        (f"{row['name']}, p = {row['p']}, n = {n:,}", *(f"{row[centre]:.4g}" for centre in CENTRES))
        for n in SMALL_SAMPLES
        for row in theory.theorems_4_and_5(n)
    ]
    return markdown_table(("sensitivity times n", *CENTRES.values()), rows)


@made
def practice_table(*wanted: str) -> str:
    """Adult beside what practitioners use.

    Args:
        *wanted: Methods with their p, as "pca-gauss:80" or "aim"; all if none.
    """
    rows = []
    for line in (row for row in rows_of()[1:] if row.get("table") == "adult"):
        name = line["method"] + ("" if line["p"] is None else f":{line['p']}")
        if wanted and name not in wanted:
            continue
        label = practice.LABELS[line["method"]] + ("" if line["p"] is None else f", p = {line['p']}")
        label += f" ({line['package']})" if line["package"] else ""
        seconds = line["measures"].get("fit_seconds")
        cells = [line["measures"].get(measure) for measure in practice.MEASURES[:4]]
        values = ["" if cell is None else _value(cell, 3) for cell in cells]
        rows.append([label, *values, "" if seconds is None else f"{seconds['mean']:.1f}", str(line["trials"])])
    heads = ("Adult", "logistic regression", "SVM", "one-way TV", "two-way TV", "s a fit", "trials")
    return markdown_table(heads, rows)


def measures_on_adult(method: str, p: int | None = None) -> Mapping[str, Any]:
    """What a synthetic table of Adult by a method keeps, by measure.

    Raises:
        LookupError: it is not there, or more than once.
    """
    lines = [line for line in rows_of() if line.get("table") == "adult"]
    own = [line["measures"] for line in lines if (line["method"], line["p"]) == (method, p)]
    if len(own) != 1:
        raise LookupError(f"results must hold {method} on Adult once, got {len(own)} lines")
    return own[0]


@made
def costs() -> str:
    """Accuracy of a model that is trained on a table of Adult, and the error of its columns."""
    shown = (
        ("real records", "real", None),
        ("drjax, PCA-Gauss", "pca-gauss", 80),
        ("AIM, told of the target", "aim-target", None),
        ("MST", "mst", None),
    )
    rows = []
    for title, method, p in shown:
        measures = measures_on_adult(method, p)
        rows.append((title, *(f"{measures[name]['mean']:.3f}" for name in ("logistic", "one_way"))))
    heads = ("table", "accuracy of a model trained on it", "error of single columns (total variation)")
    return markdown_table(heads, rows)


if __name__ == "__main__":
    print(block(*sys.argv[1:]))
