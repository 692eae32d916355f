"""Tables of the README, from the committed results of `experiments.equivalence.run`.

python -m experiments.equivalence.report tests            # means beside their margins
python -m experiments.equivalence.report classifier       # whether a forest tells whose a map is
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.tables import NOT_RUN
from drjax.reports import records
from experiments.cells import Line
from experiments.markdown import Tables, markdown_table
from experiments.sweep import RESULTS

HERE = Path(__file__).parent / "results"

made = Tables()
block = made.block


@functools.cache
def committed() -> Sequence[Line]:
    """The committed lines, that of the run first."""
    return records.read_records(HERE / RESULTS)


@made
def tests() -> str:
    """Every measure of every method at every size."""
    return tests_of(committed())


@made
def classifier() -> str:
    """How often the forest is right on maps of drjax, and on those of the control."""
    return classifier_of(committed())


def to_markdown(lines: Sequence[Line]) -> str:
    """Both tables of the lines of a folder, of which that of the run is the first."""
    return f"{tests_of(lines)}\n\n{classifier_of(lines)}"


def tests_of(lines: Sequence[Line]) -> str:
    """Means of drjax and of the reference, and whether their difference is within the margin."""
    heads = ("method", "n", "sets", "measure", "drjax", "reference", "difference (90% interval)", "margin", "verdict")
    rows = []
    for name, n, line in _asked(lines):
        if line is None:
            rows.append((name, n, "0", *["" for _ in heads[3:-1]], NOT_RUN))
            continue
        for measure, t in line["tests"].items():
            is_better = measure == "trustworthiness" and t["low"] > 0
            verdict = "equivalent" if t["equivalent"] else "better" if is_better else "not shown"
            difference = f"{t['difference']:.2g} ({t['low']:.2g} to {t['high']:.2g})"
            cells = (measure, f"{t['ours']:.5g}", f"{t['theirs']:.5g}", difference, f"{t['margin']:.2g}", verdict)
            rows.append((name, n, str(line["n_sets"]), *cells))
    return markdown_table(heads, rows)


def classifier_of(lines: Sequence[Line]) -> str:
    """Accuracies of the classifier, of each view of the maps."""
    heads, rows = ("method", "n", "classifier against the reference", "maps", "accuracy (95% interval)"), []
    names = {"ours": "drjax", "control": "drjax, 30% fewer iterations (control)"}
    for name, n, line in _asked(lines):
        if line is None:
            rows.append((name, n, "", "", NOT_RUN))
            continue
        for c in line["classifier"]:
            accuracy = f"{c['accuracy']:.3f} ({c['low']:.3f} to {c['high']:.3f})"
            rows.append((name, n, names[c["side"]], c["view"], accuracy))
    return markdown_table(heads, rows)


def _asked(lines: Sequence[Line]) -> Iterator[tuple[str, str, Line | None]]:
    """Each method at each size of the configuration, with its line where it was run."""
    head, *found = lines
    done = {(line["method"], line["n"]): line for line in found}
    for name in head["config"]["method"]:
        for n in head["config"]["n"]:
            yield name, str(n), done.get((name, n))


if __name__ == "__main__":
    print(block(*sys.argv[1:]))
