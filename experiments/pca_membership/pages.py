"""Tables of the pages about paper 001, from the committed rows.

python -m experiments.pca_membership.pages claims
"""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Any

import numpy as np

from drjax.defenses.dp_pca import PUBLIC
from drjax.reports import records
from experiments import claims
from experiments.markdown import Tables, markdown_table
from experiments.pca_membership import private
from experiments.pca_membership.claim_tests import NAMES
from experiments.pca_membership.claims import judged_claims
from experiments.pca_membership.private_tables import LABELS, Cells, shown
from experiments.pca_membership.report import RATE
from experiments.sweep import RESULTS

FOLDER = Path(__file__).parent / "results"

ATTACKS = {"reconstruction": "reconstruction error", "ratio": "likelihood ratio"}

made = Tables()
block = made.block


@functools.cache
def _rows(file: str) -> list[dict[str, Any]]:
    return records.read_records(FOLDER / file)


@functools.cache
def private_cells() -> Cells:
    """The committed cells of private curators."""
    return Cells([row for row in _rows(private.RESULTS) if row["kind"] == "attack"])


@made
def claims_table() -> str:
    """Every claim of the paper."""
    return claims.table(judged_claims(_rows(RESULTS), _rows(private.RESULTS)))


@made
def attacks_table(*places: str) -> str:
    """Both attacks side by side.

    Args:
        *places: Data sets with N, as "mnist:1000", a row each.
    """
    rows = []
    for place in places:
        data, _, n = place.partition(":")
        row = [f"{NAMES[data]}, N = {int(n):,}"]
        for attack in ATTACKS:
            wanted = (data, int(n), attack)
            cell = next(r for r in _rows(RESULTS)[1:] if (r["data"], r["n"], r["attack"]) == wanted)
            row += [f"{_pm(cell['best'])} (k = {cell['best_k']})", _pm(cell["tpr"][RATE]), str(cell["trials"])]
        rows.append(row)
    heads = [head for label in ATTACKS.values() for head in (f"{label}: AUC", "TPR at 1% FPR", "trials")]
    return markdown_table(("components of", *heads), rows)


def _pm(value: dict[str, float]) -> str:
    return f"{value['mean']:.3f} ± {value['half']:.3f}"


@made
def gains_table(*epsilons: str) -> str:
    """What `AnalyticGauss` gains on Analyze Gauss, and what replace-one costs, with public bounds.

    Args:
        *epsilons: At which.
    """
    rows = []
    for name in private_cells().names:
        for epsilon in map(float, epsilons):
            old, new, old_replaced, new_replaced = (
                private_cells().values(private_cells().main(name, curator, PUBLIC, relation), epsilon, "utility")
                for relation in ("zero_out", "replace_one")
                for curator in ("analyze_gauss", "analytic_gauss")
            )
            # In the row, differences are paired.
            gaps = (new, old), (new_replaced, old_replaced), (old_replaced, old)
            differences = ["" if a is None or b is None else shown(a - b, "+") for a, b in gaps]
            rows.append([NAMES[name], f"{epsilon:g}", shown(old), shown(new), *differences])
    heads = ("captured energy", "epsilon", "Analyze Gauss, classical", "`AnalyticGauss`", "gain, zero-out",
             "gain, replace-one", "replace-one costs Analyze Gauss")  # fmt: skip
    return markdown_table(heads, rows)


@made
def stronger_table(*places: str) -> str:
    """Three adversaries under the ceiling of the guarantee.

    Args:
        *places: Data set, family of the noise ("gauss" or "laplace") and epsilon, as "mnist:gauss:1", a row each.
    """
    rows = []
    for place in places:
        data, family, epsilon = place.split(":")
        curators = ("analytic_gauss", "analyze_gauss_tight") if family == "gauss" else ("laplace_vector",) * 2
        ratio, game = (
            _point(data, attack, curator, float(epsilon))
            for attack, curator in zip(("ratio", "informed"), curators, strict=True)
        )
        seen = ["", ""] if ratio is None else [shown(ratio["reconstruction"]["best"]), shown(ratio["best"])]
        won = ["", ""]
        if game is not None:
            found = game["scatter"]
            won = [f"{found['auc']:.3f} ({found['low']:.3f} to {found['high']:.3f})", f"{game['ceiling']:.3f}"]
        label = "Gaussian" if family == "gauss" else LABELS["laplace_vector"]
        rows.append([f"{NAMES[data]}, {label}", f"{float(epsilon):g}", *seen, *won])
    return markdown_table(("", "epsilon", *ATTACKS.values(), "all but one known", "ceiling"), rows)


def _point(data: str, attack: str, curator: str, epsilon: float) -> dict[str, Any] | None:
    points = (
        point
        for cell in private_cells().all
        if (cell["data"], cell["attack"], cell["curator"]) == (data, attack, curator)
        for point in cell["points"]
    )
    return next((point for point in points if point["epsilon"] == epsilon), None)


@made
def energies() -> str:
    """Captured energy at the same epsilon, delta and relation; gain and cost are paired, with their 95% interval."""
    cells, rows = private_cells(), []
    for name in cells.names:
        for epsilon in (0.1, 1.0, 3.0):

            def q(curator: str, relation: str = "zero_out", name: str = name, epsilon: float = epsilon) -> np.ndarray:
                found = cells.values(cells.main(name, curator, PUBLIC, relation), epsilon, "utility")
                if found is None:
                    raise LookupError(f"results must hold {curator} of {name} at epsilon {epsilon:g}, got none")
                return found

            classical, best = q("analyze_gauss"), q("analytic_gauss")
            replaced = q("analyze_gauss", "replace_one")
            rows.append(
                (
                    NAMES[name] if epsilon == 0.1 else "",
                    f"{epsilon:g}",
                    *(f"{values.mean():.3f}" for values in (classical, q("analyze_gauss_tight"), best)),
                    shown(best - classical, "+"),
                    *(f"{values.mean():.3f}" for values in (replaced, q("analytic_gauss", "replace_one"))),
                    shown(replaced - classical, "+"),
                )
            )
    heads = (
        "", "epsilon", "classical", "least deviation", "`AnalyticGauss`", "gain", "replace-one: classical",
        "`AnalyticGauss`", "replace-one costs the classical",
    )  # fmt: skip
    return markdown_table(heads, rows)


if __name__ == "__main__":
    print(block(*sys.argv[1:]))
