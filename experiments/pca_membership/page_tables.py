"""Tables of the pages on private PCA, from the committed results of `experiments.pca_membership.private`.

python -m experiments.pca_membership.page_tables gains      # captured energy of Gaussian mechanisms
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from drjax.defenses.dp_pca import PUBLIC
from drjax.reports import records
from experiments.markdown import Tables, markdown_table
from experiments.pca_membership import private
from experiments.pca_membership.private_tables import Cells, shown

HERE = Path(__file__).parent / "results"

NAMES = {"mnist": "MNIST", "lfw": "LFW", "adult": "Adult", "census": "Census"}

made = Tables()
block = made.block


@made
def gains() -> str:
    """Captured energy at the same epsilon, delta and relation; gain and cost are paired, with their 95% interval."""
    cells, rows = Cells(records.read_records(HERE / private.RESULTS)[1:]), []
    for name, title in NAMES.items():
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
                    title if epsilon == 0.1 else "",
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
