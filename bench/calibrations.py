"""Deviations that make the Gaussian noise of private PCA private: a table of a page, computed from the formulas.

python -m bench.calibrations
"""

from __future__ import annotations

import math

from drjax.defenses.dp_pca import AnalyticGauss, AnalyzeGauss
from experiments.markdown import markdown_table

EPSILONS = (0.1, 0.5, 1.0, 4.0)

DELTA = 1e-5

HEADS = (
    "epsilon", "classical", "tight", "classical / tight", "with the shape, spectral", "for a release (through zCDP)",
)  # fmt: skip


def block(*words: str) -> str:
    """The table, in Markdown: deviations in units of the squared bound on norms, under `zero_out`.

    Args:
        words: None.

    Raises:
        ValueError: words.
    """
    if words:
        raise ValueError(f"words must be none, got {' '.join(words)}")
    fields = {"neighbouring": "zero_out", "n_components": 1, "row_norm": 1.0}
    rows = []
    for epsilon in EPSILONS:
        calibrations = (AnalyzeGauss.classical, AnalyticGauss.analytic, AnalyticGauss.for_release)
        classical, tight, released = (
            float(calibrate(epsilon, DELTA, **fields).noise_multiplier) for calibrate in calibrations
        )
        # Of equal deviations the shape has a spectral norm that is less by sqrt(2).
        numbers = (classical, tight, classical / tight, math.sqrt(2) * classical / tight, released)
        rows.append([f"{epsilon:g}", *(f"{number:.2f}" for number in numbers)])
    return markdown_table(HEADS, rows)


if __name__ == "__main__":
    print(block())
