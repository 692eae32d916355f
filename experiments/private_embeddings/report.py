"""Tables of the pages, from the committed results of `experiments.private_embeddings.run`.

python -m experiments.private_embeddings.report cells             # every attack
python -m experiments.private_embeddings.report side-by-side      # the best attacks beside the bound
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from pathlib import Path

from drjax.reports import records
from drjax.reports.ladder import percent
from experiments.cells import Line
from experiments.markdown import Tables, markdown_table
from experiments.sweep import RESULTS

HERE = Path(__file__).parent / "results"


made = Tables()
block = made.block

ON_THE_MAP = ("ridge on shadow embeddings", "closed form of PCA")
"""Attacks that see the embedding alone; the others see the noisy record itself."""


@functools.cache
def committed() -> Sequence[Line]:
    """The committed lines of attacks."""
    return records.read_records(HERE / RESULTS)[1:]


@made
def cells() -> str:
    """Success of every attack at every guarantee beside the bound."""
    return to_markdown(committed())


@made
def side_by_side() -> str:
    """The bound at some guarantees beside the best attack on the noisy records and the best on the map."""
    lines, rows = committed(), []
    for mu in (0.3, 1.0, 10.0, 100.0):
        own = [line for line in lines if line["mu"] == mu]
        best = {
            is_map: max(line["success"]["estimate"] for line in own if (line["attack"] in ON_THE_MAP) == is_map)
            for is_map in (False, True)
        }
        rows.append((f"{mu:g}", f"{own[0]['bound']:.0%}", percent(best[False]), percent(best[True])))
    heads = ("mu", "limit for any attack", "best attack that was run, on the noisy records", "on the map")
    return markdown_table(heads, rows)


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
    print(block(*sys.argv[1:]))
