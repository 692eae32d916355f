"""The table of maps that no method of drjax made, from the committed results of `experiments.pages.run`.

python -m experiments.pages.unrecognised_tables maps
"""

from __future__ import annotations

import sys

from experiments.markdown import Tables, markdown_table
from experiments.pages.report import line_of
from experiments.pages.unrecognised_cells import DATA, MAPS

made = Tables()
block = made.block

TITLES = {
    "factor-analysis": "factor analysis, 5",
    "discriminant": "linear discriminants",
    "nmf": "NMF, 5",
    "kernel-pca": "kernel PCA (rbf), 5",
    "spectral": "spectral embedding, 2",
    "lle": "locally linear embedding, 2",
    "autoencoder": "autoencoder, 3",
}
"""Maps by their cell, with their coordinates."""


@made
def maps() -> str:
    """Errors left, as shares of variances, and features held, by map and data set."""
    rows = []
    for kind in MAPS:
        cells = []
        for data in DATA:
            line = line_of("unrecognised", f"{data}-{kind}")
            named = "" if line["believed"] == "none of these" else f"; taken for {line['believed']}"
            cells.append(f"{line['error']:.2f} ({line['expected']:.2f}), {line['held']:.0%}{named}")
        rows.append((TITLES[kind], *cells))
    usual = [line_of("unrecognised", f"{data}-{next(iter(MAPS))}")["mean"] for data in DATA]
    rows.append(("*mean of the known records*", *(f"{mean:.2f}" for mean in usual)))
    return markdown_table(("map", "wine", "breast cancer", "digits"), rows)


if __name__ == "__main__":
    print(block(*sys.argv[1:]))
