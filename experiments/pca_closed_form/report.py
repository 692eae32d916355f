"""Tables of the README, from the committed results of `experiments.pca_closed_form.run`.

python -m experiments.pca_closed_form.report errors "closed form"     # errors of one attack: known records, precision
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from bench.tables import NOT_RUN
from drjax.reports import ladder, records
from experiments.cells import Line
from experiments.markdown import Tables, markdown_table
from experiments.sweep import RESULTS

HERE = Path(__file__).parent / "results"

made = Tables()
block = made.block


@functools.cache
def committed() -> Sequence[Line]:
    """The committed lines of cells."""
    return records.read_records(HERE / RESULTS)[1:]


@made
def errors(attack: str) -> str:
    """Mean and median errors of one attack."""
    return errors_of(committed(), attack)


def to_markdown(lines: Iterable[Line]) -> str:
    """The lines of cells as a Markdown table, one row each; errors in units of the records squared."""
    heads = ("known", "release", "attack", "MSE, mean", "MSE, median", "success", "ms per target", "excluded")
    rows = []
    for line in lines:
        scores = line["scores"]
        row = (
            str(line["n_known"]),
            line["release"],
            line["attack"],
            ladder.number(scores["mse"]["estimate"]),
            ladder.number(scores["mse_median"]["estimate"]),
            ladder.percent(scores["success"]["estimate"]),
            ladder.number(1e3 * scores["seconds_per_target"]),
            str(scores["n_excluded"]),
        )
        rows.append(row)
    return markdown_table(heads, rows)


def errors_of(lines: Sequence[Line], attack: str) -> str:
    """Mean and median errors of one attack: a row for each number of known records, a column for each precision.

    Raises:
        LookupError: no line is of the attack.
    """
    found = {(line["n_known"], line["release"]): line["scores"] for line in lines if line["attack"] == attack}
    if not found:
        raise LookupError(f"attack must be one of {', '.join({line['attack']: 0 for line in lines})}, got {attack}")
    releases, sizes = (dict.fromkeys(line[name] for line in lines) for name in ("release", "n_known"))

    def shown(n_known: int, release: str) -> str:
        scores = found.get((n_known, release))
        if scores is None:
            return NOT_RUN
        return " / ".join(ladder.number(scores[name]["estimate"]) for name in ("mse", "mse_median"))

    rows = [(str(n), *(shown(n, release) for release in releases)) for n in sizes]
    return markdown_table((f"known, {attack}", *releases), rows)


if __name__ == "__main__":
    print(block(*sys.argv[1:]))
