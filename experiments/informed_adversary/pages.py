"""Tables of the pages about paper 004, from the committed rows.

python -m experiments.informed_adversary.pages claims
"""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Any

import numpy as np

from drjax.bounds.prior import EmpiricalKappa
from drjax.reports import records
from drjax.reports.ladder import number, percent
from experiments import claims
from experiments.cells import Line
from experiments.informed_adversary import bound
from experiments.informed_adversary.cells import INVERSION, NEAREST
from experiments.informed_adversary.claims import DEFAULT, judged_claims
from experiments.informed_adversary.report import Settings, by_setting
from experiments.markdown import Tables, markdown_table
from experiments.pages.report import line_of
from experiments.sweep import RESULTS

FOLDER = Path(__file__).parent / "results"

LABELS = {
    "mean": "*mean record*",
    NEAREST: "*nearest neighbour*",
    "ridge": "ridge",
    "network": "RecoNN, fast recipe",
    "quadratic": "quadratic kernel",
    INVERSION: "**inversion of the training, float32 release**",
}

made = Tables()
block = made.block


@functools.cache
def committed() -> list[dict[str, Any]]:
    """The committed lines, the run's first."""
    return records.read_records(FOLDER / RESULTS)


def attacked() -> Settings:
    """What attacks gave in each setting."""
    return by_setting([row for row in committed() if row["kind"] == "attack"])


@made
def claims_table() -> str:
    """Every claim of the paper."""
    return claims.table(judged_claims(committed()))


@made
def default_table() -> str:
    """The default setting, a row for each attack."""
    cells = attacked()[DEFAULT]
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
    lines = [line for line in committed() if line.get("factor") in ("default", "shadows")]
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


def bounded() -> list[dict[str, Any]]:
    """Success and bound of every attack on DP-GD."""
    guess = line_of("bound", "kappa")
    kappa = EmpiricalKappa(guess=np.empty(0), **{name: guess[name] for name in EmpiricalKappa._fields if name in guess})
    return bound.rows([row for row in committed() if row.get("factor") == "privacy"], kappa)


@made
def privacy() -> str:
    """Inversion and ridge regression under DP-GD, by mu, beside the bound and what it would be of the best guess."""
    found = {(row["mu"], row["attack"]): row for row in bounded()}
    rows = []
    for mu in dict.fromkeys(mu for mu, _ in found):
        own, ridge = found[mu, INVERSION], found[mu, "ridge"]
        share, low, high = own["success"]
        rows.append((
            f"{mu:g}", _three_digits(own["epsilon"]), f"{own['accuracy']:.2f}", number(own["mse"]),
            f"{share:.0%} ({low:.0%} to {high:.0%})", f"{ridge['success'][0]:.0%}", bound.upward(own["bound"]),
            f"{own['estimate']:.3f}",
        ))  # fmt: skip
    heads = ("mu", "epsilon at delta 1e-5", "accuracy", "inversion: MSE", "inversion: success",
             "ridge on shadow models: success", "bound", "with the best guess found (no bound)")  # fmt: skip
    return markdown_table(heads, rows)


def _three_digits(value: float) -> str:
    return f"{float(f'{value:.3g}'):,g}"


def _shown(line: Line, *, is_baseline: bool) -> str:
    mse, success = line["scores"]["mse"], line["scores"]["success"]["estimate"]
    error = f"{number(mse['estimate'])} ({number(mse['low'])} to {number(mse['high'])})"
    return error if is_baseline else f"{error}, {percent(success)}"


if __name__ == "__main__":
    print(block(*sys.argv[1:]))
