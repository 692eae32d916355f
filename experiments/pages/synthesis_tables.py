"""Tables of docs/synthesis and docs/release, from the committed results of `experiments.pages.run`.

python -m experiments.pages.synthesis_tables digits      # or adult, deviations, membership
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np

from drjax.core.statistics import standard_error
from experiments.markdown import Tables, markdown_table
from experiments.pages import release_cells, synthesis_cells
from experiments.pages.report import line_of

made = Tables()
block = made.block

VARIANTS = {
    "default": "**default** (`clip_factor=None`, here 0.8, `correct=True`)",
    "plain": '`clip_factor=0.8`, `correct=False`, `repair="trace"`, `pooling=1`',
    "clip-factor-1": "`clip_factor=1`",
    "clip-factor-0.6": "`clip_factor=0.6`",
    "repair-clip": '`repair="clip"` (negative eigenvalues cut)',
    "repair-shrink": '`repair="shrink"`',
    "pooling-none": "`pooling=None`",
    "pooling-0": "`pooling=0`",
}

ADULT = {
    "pooling-1-features": "**`pooling=1`**",
    "pooling-0-features": "`pooling=0`",
    "pooling-1-components": "`pooling=1`, `decode=False` (components, nothing cut off)",
    "pooling-0-components": "`pooling=0`, `decode=False`",
}

SPREADS = {
    "plain": "`clip_factor=0.8, correct=False`",
    "default": "**default**",
    "wide": f"**default**, p = {synthesis_cells.WIDE}",
}

ATTACKS = {
    "Reconstruction error": "paper's error",
    "Likelihood ratio of the components": "ratio of the components",
    "Reconstruction error against shadows": "error against shadows",
    "Likelihood ratio of the noisy matrix": "ratio of the noisy matrix",
}


def of_fits(values: Sequence[float]) -> str:
    """Mean over fits and its standard error."""
    return f"{np.mean(values):.3f} ± {standard_error(values):.3f}"


@made
def digits_table() -> str:
    """Accuracy on digits by the variant of PCA-Gauss."""
    rows = []
    for cell, title in VARIANTS.items():
        found = line_of("synthesis-digits", cell)["accuracy"]
        rows.append((title, *(of_fits(values) for kind in found.values() for values in kind.values())))
    first, second = (f"{epsilon:g}" for epsilon in synthesis_cells.EPSILONS)
    heads = (
        "digits, 1,400 records, 10 classes", f"logistic regression, epsilon {first}", second,
        f"of standardised features, {first}", second,
    )  # fmt: skip
    return markdown_table(heads, rows)


@made
def adult_table() -> str:
    """Accuracy on Adult by how classes share a covariance, and whether features or components are published."""
    rows = []
    for cell, title in ADULT.items():
        found = line_of("synthesis-adult", cell)["accuracy"]
        rows.append((title, *(of_fits(found[name]) for name in ("features", "standardised", "svm"))))
    heads = ("Adult, 20,000 records, epsilon 1", "logistic regression", "standardised", "SVM, standardised")
    return markdown_table(heads, rows)


@made
def deviations_table() -> str:
    """Deviations of the columns of Adult, synthetic over real, with and without correction."""
    rows, names = [], []
    for cell in synthesis_cells.TABLES["synthesis-deviations"]:
        epsilon, _, name = cell.partition("-")
        found = line_of("synthesis-deviations", cell)["by_column"]
        names = [*found][:-2]
        cells = (f"{np.mean(values):.3f} ({np.std(values, ddof=1):.3f})" for values in found.values())
        rows.append((epsilon, SPREADS[name], *cells))
    return markdown_table(("epsilon", "", *names, "columns, total variation", "accuracy of an SVM"), rows)


@made
def membership_table() -> str:
    """AUC of attacks on noisy components by epsilon."""
    rows = []
    for epsilon in release_cells.EPSILONS:
        found = line_of("release-membership", f"{epsilon:g}")["auc"]
        aucs = (found[name] for name in ATTACKS)
        halves = (f"{auc['estimate']:.3f} ± {(auc['high'] - auc['low']) / 2:.3f}" for auc in aucs)
        rows.append((f"{epsilon:g}", *halves))
    heads = (f"epsilon at delta {release_cells.DELTA:.0e}".replace("e-0", "e-"), *ATTACKS.values())
    return markdown_table(heads, rows)


if __name__ == "__main__":
    print(block(*sys.argv[1:]))
