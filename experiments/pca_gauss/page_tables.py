"""The table of docs/explain/leak_synthetic.md, from the committed results of `experiments.pca_gauss.run`.

python -m experiments.pca_gauss.page_tables costs      # Adult by four makers: what a table is still good for
"""

from __future__ import annotations

import sys
from pathlib import Path

from drjax.reports import records
from experiments.markdown import Tables, markdown_table
from experiments.sweep import RESULTS

HERE = Path(__file__).parent / "results"

made = Tables()
block = made.block


@made
def costs() -> str:
    """Accuracy of a model that is trained on a table of Adult, and the error of its columns."""
    shown = (
        ("real records", "real", None),
        ("drjax, PCA-Gauss", "pca-gauss", 80),
        ("AIM, told of the target", "aim-target", None),
        ("MST", "mst", None),
    )
    lines = [line for line in records.read_records(HERE / RESULTS)[1:] if line.get("table") == "adult"]
    rows = []
    for title, method, p in shown:
        own = [line["measures"] for line in lines if (line["method"], line["p"]) == (method, p)]
        if len(own) != 1:
            raise LookupError(f"results must hold {method} on Adult once, got {len(own)} lines")
        rows.append((title, *(f"{own[0][name]['mean']:.3f}" for name in ("logistic", "one_way"))))
    heads = ("table", "accuracy of a model trained on it", "error of single columns (total variation)")
    return markdown_table(heads, rows)


if __name__ == "__main__":
    print(block(*sys.argv[1:]))
