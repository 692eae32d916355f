"""Tables of docs/models and docs/attacks from the committed results of `models_cells` and `attacks_inversion_cells`.

python -m experiments.pages.models_tables TABLE      # a name of `block`, such as mistakes
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from statistics import median

from drjax.reports.ladder import number
from experiments.markdown import Tables, markdown_table
from experiments.pages.models_cells import MISTAKES
from experiments.pages.report import line_of, lines

made = Tables()
block = made.block

COUNTS = ("attacks", "right", "ok", "uncertified", "refused", "wrong_one", "wrong_two")


@made
def mistakes() -> str:
    """Errors of inversions, actual and expected, by what the adversary is wrong about."""
    titles = dict(
        zip(
            MISTAKES,
            (
                "all right",
                "learning rate 1% off",
                "learning rate 5% off",
                "another order of mini-batches",
                "one label of a known record wrong",
                "another start, the label given",
            ),
            strict=True,
        )
    )
    rows = []
    for kind, title in titles.items():
        line = line_of("mistakes", kind)
        counts = ", ".join(f"{status} {count}" for status, count in line["status_counts"].items() if count)
        rows.append((title, _range(line["errors"]), _range(line["expected"]), counts))
    return markdown_table(("what the adversary has", "MSE", "expected", "status"), rows)


def _range(values: Sequence[float]) -> str:
    return f"{number(min(values))} to {number(max(values))}"


@made
def glm_grid() -> str:
    """Counts of the grid of regressions, by solver and tolerance, and of all."""
    rows, total = [], Counter[str]()
    for solver in [cell for table, cell in lines() if table == "glm-grid"]:
        for tol, counts in line_of("glm-grid", solver)["by_tolerance"].items():
            shown = "(not read)" if solver == "cholesky" else f"{float(tol):.0e}".replace("e-0", "e-")
            rows.append((solver, shown, *(str(counts[name]) for name in COUNTS)))
            total.update(counts)
    rows.append(("**all**", "", *(str(total[name]) for name in COUNTS)))
    heads = (
        "solver", "`tol`", "attacks", "right", "right and OK", "right and UNCERTIFIED", "right and refused",
        "OK and wrong, one unknown", "OK and wrong, two unknown",
    )  # fmt: skip
    return markdown_table(heads, rows)


@made
def forces() -> str:
    """Norms of the gradient of t-SNE maps by two algorithms under three forces, medians over maps."""
    titles = {"all": "all affinities", "cut": "affinities cut", "groups": "cut, repulsion by groups"}
    rows = []
    for cell, maps in {"exact": "exact", "barnes-hut": "Barnes-Hut"}.items():
        found = line_of("tsne-forces", cell)["by_forces"]
        for name, title in titles.items():
            values = (median(found[name][what]) for what in ("truth", "mean", "median_known"))
            rows.append((maps, title, *map(number, values)))
            maps = ""
    heads = ("maps", "forces", "with the target", "with the mean record", "median known record")
    return markdown_table(heads, rows)


if __name__ == "__main__":
    print(block(*sys.argv[1:]))
