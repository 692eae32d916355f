"""Tables of the pages on models, from the committed results of `experiments.informed_adversary.run`.

python -m experiments.informed_adversary.page_tables shadows      # attacks by the number of shadow models
"""

from __future__ import annotations

import sys
from pathlib import Path

from drjax.reports import records
from drjax.reports.ladder import number, percent
from experiments.cells import Line
from experiments.informed_adversary.cells import NEAREST
from experiments.markdown import Tables, markdown_table
from experiments.sweep import RESULTS

HERE = Path(__file__).parent / "results"

made = Tables()
block = made.block


@made
def shadows() -> str:
    """Error and share of targets rebuilt closer than the nearest neighbour, by the number of shadow models."""
    sizes = (500, 1000, 2000, 5000)
    kinds = {
        "*mean record*": ("mean", None),
        "*nearest neighbour*": (NEAREST, None),
        "ridge": ("ridge", None),
        "RecoNN, notebook's recipe, 200 epochs": ("notebook", None),
        "the same, 20 epochs (500) and 40 (1,000)": ("notebook", "fewer"),
        "quadratic kernel": ("quadratic", None),
        "RecoNN, fast recipe": ("fast", None),
    }
    lines = [line for line in records.read_records(HERE / RESULTS)[1:] if line["factor"] in ("default", "shadows")]
    rows = []
    for title, (attack, epochs) in kinds.items():
        own = {
            line["of"]["n_shadow"]: line
            for line in lines
            if line["attack"] == attack and (line["of"].get("learned_epochs") is None) == (epochs is None)
        }
        is_baseline = attack in ("mean", NEAREST)
        cells = (_shown(own[n], is_baseline=is_baseline) if n in own else "not run" for n in sizes)
        rows.append((title, *cells))
    return markdown_table(("", *(f"{n:,} shadow models" for n in sizes)), rows)


def _shown(line: Line, *, is_baseline: bool) -> str:
    mse, success = line["scores"]["mse"], line["scores"]["success"]["estimate"]
    error = f"{number(mse['estimate'])} ({number(mse['low'])} to {number(mse['high'])})"
    return error if is_baseline else f"{error}, {percent(success)}"


if __name__ == "__main__":
    print(block(*sys.argv[1:]))
