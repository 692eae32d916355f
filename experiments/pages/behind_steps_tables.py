"""Tables of docs/attacks on PCA and on releases behind steps, from the committed results of `experiments.pages.run`.

python -m experiments.pages.behind_steps_tables closed-form
"""

from __future__ import annotations

import sys

from drjax.reports.ladder import number, percent
from experiments.cells import Line
from experiments.markdown import Tables, markdown_table
from experiments.pages.behind_steps_cells import MAPS, SVD
from experiments.pages.behind_steps_cells import TABLES_OF_SVD as DATA
from experiments.pages.report import line_of, lines

made = Tables()
block = made.block


@made
def closed_form() -> str:
    """Answers of PCA's closed form by their status, and how many that say OK are wrong."""
    titles = {
        "exact": "PCA by three solvers, in float32, of float32, rounded to 2, 4 and 6 decimals",
        "batches": "`IncrementalPCA`, batches of 40, 100 and by default",
    }
    names = ("attacks", "refused", "uncertified", "ok", "wrong", "too_sure")
    found = {kind: line_of("closed-form", kind) for kind in titles}
    rows = [(title, *(f"{found[kind][name]:,}" for name in names)) for kind, title in titles.items()]
    heads = ("release", "attacks", "refused", "UNCERTIFIED", "OK", "OK and wrong", "OK and too sure")
    return markdown_table(heads, rows)


@made
def svd() -> str:
    """Error left of the mean record's by truncated SVD, answers that are OK, features within the 90% of their error."""
    rows = []
    for name in SVD:
        cells = [lines().get(("svd", f"{name}, {data}")) for data in DATA]
        rows.append((name, *map(_left, cells)))
    return markdown_table(("release", *DATA), rows)


def _left(cell: Line | None) -> str:
    if cell is None:
        return "not run"
    return f"{number(cell['error'])}, {round(cell['ok'] * cell['n_targets'])}, {percent(cell['coverage'])}"


@made
def certificate() -> str:
    """How many records pass the certificate of a map, by who they are."""
    who = {
        "true": "true record",
        "other": "another target's",
        "nearest": "nearest known record",
        "mean": "mean record",
    }
    rows = []
    for name in MAPS:
        cells = [lines().get(("certificate", f"{name}, {data}")) for data in DATA]
        rows.append(
            (name, *(", ".join("not run" if c is None else str(c["passed"][one]) for c in cells) for one in who))
        )
    return markdown_table(("map", *who.values()), rows)


if __name__ == "__main__":
    print(block(*sys.argv[1:]))
