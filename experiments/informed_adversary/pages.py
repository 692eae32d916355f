"""Tables of the pages about paper 004, from the committed rows.

python -m experiments.informed_adversary.pages claims
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from drjax.core import validate
from drjax.reports import records
from drjax.reports.ladder import number, percent
from experiments import claims
from experiments.informed_adversary.cells import INVERSION, NEAREST
from experiments.informed_adversary.claims import DEFAULT, judged_claims
from experiments.informed_adversary.report import by_setting
from experiments.markdown import markdown_table
from experiments.sweep import RESULTS

LABELS = {
    "mean": "*mean record*",
    NEAREST: "*nearest neighbour*",
    "ridge": "ridge",
    "network": "RecoNN, fast recipe",
    "quadratic": "quadratic kernel",
    INVERSION: "**inversion of the training, float32 release**",
}


@functools.cache
def _rows() -> list[dict[str, Any]]:
    return records.read_records(Path(__file__).parent / "results" / RESULTS)


def claims_table() -> str:
    """Every claim of the paper."""
    return claims.table(judged_claims(_rows()))


def default_table() -> str:
    """The default setting, a row for each attack."""
    cells = by_setting([row for row in _rows() if row["kind"] == "attack"])[DEFAULT]
    rows = []
    for name, label in LABELS.items():
        cell, scores = cells[name], cells[name]["scores"]
        mse, is_baseline = scores["mse"], name in ("mean", NEAREST)
        shadows = f", {cell['of']['n_shadow']:,} shadow models" if name in ("ridge", "network", "quadratic") else ""
        rows.append([
            label + shadows,
            f"{number(mse['estimate'])} ({number(mse['low'])} to {number(mse['high'])})",
            number(scores["mse_median"]["estimate"]),
            "" if name == NEAREST else percent(scores["success"]["estimate"]),
            percent(cell["label"]["estimate"]) if "label" in cell else "",
            "" if is_baseline else number(scores["seconds_per_target"]),
        ])  # fmt: skip
    n_targets = cells["mean"]["scores"]["n_targets"]
    heads = (f"attack, {n_targets} targets", "MSE, mean (95% interval)", "MSE, median", "closer than nearest", "label",
             "s per target")  # fmt: skip
    return markdown_table(heads, rows)


TABLES = {"claims": claims_table, "default": default_table}


def block(name: str) -> str:
    """A table by its name, see docs/generated.py."""
    validate.one_of(TABLES, name=name)
    return TABLES[name]()


if __name__ == "__main__":
    claims.print_block(block)
