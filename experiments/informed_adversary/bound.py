"""The success of attacks on DP-GD against what reconstruction robustness allows.

    python -m experiments.informed_adversary.bound --results experiments/informed_adversary/results

Success is an error of at most eta^2 / d, where that is the mean over targets of the nearest neighbour's error: a radius
that does not depend on the target, as the bound needs. The bound takes kappa from above: what no guess at all reaches
without the release, certified with 95% confidence from pairs of public records. Beside it stands what the same formula
says of the best guess that was found among public records: an estimate from below, and no bound.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from matplotlib.figure import Figure

from drjax.bounds.prior import EmpiricalKappa, kappa_empirical
from drjax.bounds.rero import success_of_mu
from drjax.core.statistics import share_interval
from drjax.reports import bound_plots, records
from experiments import drawings
from experiments.informed_adversary.report import COLUMNS
from experiments.informed_adversary.run import records_of
from experiments.sweep import RESULTS

N_PRIOR = 20_000
"""Public records that kappa is estimated on, at most."""


def kappa_of(public: np.ndarray, mse: float) -> EmpiricalKappa:
    """What guesses reach on public records (N, d), success being an error of at most mse."""
    return kappa_empirical(public, float(np.sqrt(mse * public.shape[1])))


def radius_of(cells: Sequence[Mapping[str, Any]]) -> float:
    """The mean squared error that counts as success: the nearest neighbour's, mean over targets.

    Args:
        cells: Records of the factor "privacy".
    """
    return float(np.mean(next(c for c in cells if c["attack"] == "nearest")["errors"]))


def public_of(config: Mapping[str, Any]) -> np.ndarray:
    """Records (N, d) of the adversary that kappa is estimated on; from the run's first line."""
    data, parts = records_of(config)
    return data.x[parts.shadow[:N_PRIOR]].reshape(min(N_PRIOR, len(parts.shadow)), -1)


def rows(cells: Sequence[Mapping[str, Any]], kappa: EmpiricalKappa) -> list[dict[str, Any]]:
    """One row for each attack on each setting of DP-GD: mu, epsilon, attack, accuracy, MSE, success, bound, estimate.

    Args:
        cells: Records of the factor "privacy".
        kappa: What guesses reach without the release, at the radius of the cells.
    """
    radius = radius_of(cells)
    accuracies = {c["setting"]: c["accuracy"] for c in cells if c["attack"] == "mean"}
    found = []
    for cell in cells:
        if cell["attack"] == "nearest":
            continue
        errors = np.asarray(cell["errors"], np.float64)
        mu = cell["of"]["mu"]
        found.append(
            {
                "mu": mu,
                "epsilon": cell["epsilon"],
                "attack": cell["attack"],
                "accuracy": accuracies[cell["setting"]],
                "mse": float(np.mean(errors)),
                "success": share_interval(int(np.sum(errors <= radius)), len(errors)),
                "bound": float(success_of_mu(kappa.upper_of_all, mu)),
                "estimate": float(success_of_mu(kappa.kappa, mu)),
                "radius": radius,
                "kappa": kappa,
            }
        )
    return sorted(found, key=lambda row: (row["mu"], row["attack"]))


def to_markdown(found: Sequence[Mapping[str, Any]]) -> str:
    """The rows as a table, under a sentence on which column is a bound."""
    kappa = found[0]["kappa"]
    lines = [
        f"Success is an MSE of at most {found[0]['radius']:.4f}. Without the release the best guess that was found has "
        f"{kappa.kappa:.4f} (95% on each side: {kappa.lower:.4f} to {kappa.upper:.4f}), and no guess has more than "
        f"{upward(kappa.upper_of_all)} (certified with 95% confidence).",
        "",
        'The column "bound" holds for every attack, with that confidence. "With the best guess found" is an estimate '
        "from below: it would be the bound if no guess were better than the one that was found.",
        "",
        "| mu | epsilon at delta 1e-5 | accuracy | attack | MSE | success (95% interval) | bound | "
        "with the best guess found (no bound) |",
        f"|{'---|' * 8}",
    ]
    for row in found:
        share = row["success"]
        lines.append(
            f"| {row['mu']:g} | {row['epsilon']:.3g} | {row['accuracy']:.3f} | {row['attack']} | {row['mse']:.4f} | "
            f"{share[0]:.2f} ({share[1]:.2f} to {share[2]:.2f}) | {upward(row['bound'])} | {row['estimate']:.3f} |"
        )
    return "\n".join(lines) + "\n"


def upward(share: float) -> str:
    """Three digits, rounded up: what is printed holds too."""
    return f"{min(math.ceil(share * 1000) / 1000, 1):.3f}"


def drawn(found: Sequence[Mapping[str, Any]]) -> dict[str, Figure]:
    """The figure of success and bound over mu, by its name.

    Args:
        found: What `rows` gives.
    """
    kappa = found[0]["kappa"]
    shown = [{**row, "attack": COLUMNS.get(row["attack"], COLUMNS["network"])} for row in found]
    figure = bound_plots.success_over_mu(shown, kappa=kappa.upper_of_all, guess=kappa.kappa, mse=found[0]["radius"])
    return {"privacy": figure}


def main(*, results: Path) -> None:
    """Writes the table of success and bound as bounds.md beside the results, prints it, and draws it as privacy.svg.

    Args:
        results: Folder of `results.jsonl`, with the factor "privacy".
    """
    written = records.read_records(results / RESULTS)
    cells = [r for r in written if r["kind"] == "attack" and r["factor"] == "privacy"]
    if not cells:
        raise ValueError(f"results must hold the factor 'privacy', got none in {results}")
    found = rows(cells, kappa_of(public_of(written[0]["config"]), radius_of(cells)))
    text = to_markdown(found)
    with records.atomic_open(results / "bounds.md") as file:
        file.write(text.encode())
    print(text)
    drawings.save(drawn(found), results)


if __name__ == "__main__":
    tyro.cli(main)
