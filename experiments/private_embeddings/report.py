"""The table of README.md, from the committed results of `experiments.private_embeddings.run`.

python -m experiments.private_embeddings.report
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from drjax.reports import records
from experiments.cells import Line
from experiments.markdown import markdown_table
from experiments.sweep import RESULTS

HERE = Path(__file__).parent / "results"


def block() -> str:
    """Success of every attack at every guarantee beside the bound."""
    return to_markdown(records.read_records(HERE / RESULTS)[1:])


def to_markdown(lines: Sequence[Line]) -> str:
    """What a guess has, and a row for each attack at each guarantee."""
    first, rows = lines[0], []
    for line in lines:
        success = "{estimate:.3f} ({low:.3f} to {high:.3f})".format(**line["success"])
        rows.append((f"{line['mu']:g}", line["attack"], success, f"{line['bound']:.3f}", f"{line['estimate']:.3f}"))
    heads = ("mu", "attack", "success (95% interval)", "bound", "with the best guess found (no bound)")
    said = (
        f"Radius (MSE) {first['mse']:.4f}; without the release the best guess found has {first['kappa']:.4f}, and none "
        f"more\nthan {first['kappa_of_all']:.3f} (95%), from which the bound is computed:"
    )
    return f"{said}\n\n{markdown_table(heads, rows)}"


if __name__ == "__main__":
    print(block())
