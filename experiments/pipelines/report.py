"""Tables of the pages, from the committed results of `experiments.pipelines.run`.

python -m experiments.pipelines.report cells      # every cell
python -m experiments.pipelines.report pca        # PCA behind steps, a column for each data set
python -m experiments.pipelines.report maps       # other maps behind steps
python -m experiments.pipelines.report metrics    # maps by other distances than Euclidean ones
python -m experiments.pipelines.report answers    # how many answers of each status are worse than the mean record
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from drjax.core.types import Status
from drjax.reports import records
from drjax.reports.ladder import number, percent
from experiments.cells import Line
from experiments.markdown import Tables, markdown_table
from experiments.sweep import RESULTS

HERE = Path(__file__).parent / "results"

made = Tables()
block = made.block


def to_markdown(found: Iterable[Line]) -> str:
    """The cells as a Markdown table, one row each."""
    heads = (
        "map",
        "data",
        "targets",
        "error, mean",
        "median",
        "OK",
        "answered",
        "worse, OK",
        "calibration",
        "coverage",
        "recognised",
    )
    rows = []
    for line in found:
        calibration = line["calibration"]
        cells = (
            line["map"],
            line["data"],
            str(line["n_targets"]),
            number(line["error"]),
            number(line["error_median"]),
            percent(line["ok"]),
            percent(line["answered"]),
            str(line["worse_ok"]),
            "" if calibration is None else number(calibration),
            "" if line.get("coverage") is None else percent(line["coverage"]),
            f"{line['recognised']} of {line['n_recognised']}",
        )
        rows.append(cells)
    return markdown_table(heads, rows)


def short_table(lines: Sequence[Line]) -> str:
    """A row for each kind of map: error left of the mean record's, answers that are OK, and coverage, by data set."""
    data = list(dict.fromkeys(line["data"] for line in lines))
    at = {(line["map"], line["data"]): line for line in lines}
    rows = [
        (kind, *(_short(at[kind, name]) if (kind, name) in at else "not run" for name in data))
        for kind in dict.fromkeys(line["map"] for line in lines)
    ]
    return markdown_table(("map", *data), rows)


def is_pca(line: Line) -> bool:
    """Whether what is published are principal components."""
    return "PCA" in line["map"] and "t-SNE" not in line["map"]


def _short(line: Line) -> str:
    coverage = [] if line.get("coverage") is None else [f"{line['coverage']:.0%}"]
    return ", ".join([number(line["error"]), str(round(line["ok"] * line["n_targets"])), *coverage])


def answers_table(lines: Sequence[Line]) -> str:
    """How many answers have which status and how many of these are worse than the mean record; maps recognised."""
    kinds = {"PCA behind steps": True, "other maps": False}
    rows: dict[str, list[str]] = {title: [] for title in ("OK", "PARTIAL", "others", "all", "maps recognised")}
    for wanted in kinds.values():
        own = [line for line in lines if is_pca(line) == wanted]
        errors = np.concatenate([np.asarray(line["errors"], np.float64) for line in own])
        status = np.concatenate([np.asarray(line["statuses"], np.uint32) for line in own])
        # An answer that is no number is none that is better than the mean record.
        is_worse, is_ok = ~(errors <= 1), status == 0
        is_partial = (status & np.uint32(Status.PARTIAL)) != 0
        masks = {"OK": is_ok, "PARTIAL": is_partial, "others": ~is_ok & ~is_partial, "all": np.ones_like(is_ok)}
        for title, which in masks.items():
            rows[title] += [f"{which.sum():,}", str((which & is_worse).sum())]
        counts = [sum(line[name] for line in own) for name in ("recognised", "n_recognised")]
        rows["maps recognised"] += ["{} of {}".format(*counts), ""]
    heads = ("", *(word for title in kinds for word in (f"{title}: answers", "worse than the mean record")))
    return markdown_table(heads, [(title, *words) for title, words in rows.items()])


@functools.cache
def committed() -> Sequence[Line]:
    """The committed lines of cells."""
    return records.read_records(HERE / RESULTS)[1:]


@made
def answers() -> str:
    """What the answers say of themselves."""
    return answers_table(committed())


@made
def cells() -> str:
    """Every cell."""
    return to_markdown(committed())


@made
def pca() -> str:
    """PCA behind steps."""
    return short_table([line for line in committed() if is_pca(line)])


@made
def maps() -> str:
    """Other maps behind steps."""
    return short_table([line for line in committed() if not is_pca(line)])


@made
def metrics() -> str:
    """Maps by other distances than Euclidean ones."""
    lines = records.read_records(HERE / RESULTS)[1:]
    return short_table([line for line in lines if line["map"].endswith(("cosine", "manhattan"))])


if __name__ == "__main__":
    print(block(*sys.argv[1:]))
