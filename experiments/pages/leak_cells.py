"""What bounds and forces do for the attacks of docs/leak.md, and an audit of docs/results/embeddings.md."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from experiments.leak_vs_n import forces, law, releases
from experiments.pages import audits

SIZE, MOST, SEED = 10_000, 50_000, 0
"""Records of the release of PCA, those from which the law takes its variances, and the seed of both."""

RECORDS = (300, 2000)
"""Records of t-SNE maps."""


def unbounded(published: str, is_toy: bool) -> dict[str, Any]:
    """The attack on PCA of MNIST that does not know that pixels lie in [0, 1], as a multiple of the law.

    Args:
        published: Key of `releases.PUBLISHED`.
        is_toy: Whether to take digits.
    """
    way = releases.WAYS["PCA"]
    targets, n, data, most = (12, 300, "digits", 1200) if is_toy else (50, SIZE, "mnist", MOST)
    x = releases.dataset(data, SEED, most).x[:most]
    shown = releases.rounded(releases.released(way, x, n, targets, SEED), published)
    found = releases.attacked(way, x, shown, targets, published, SEED, bounds=None)
    of = law.population(x, targets)
    dtype, decimals = releases.PUBLISHED[published]
    expected = law.predicted(of, n, law.rounding(of.scores, decimals, dtype))
    return {"n": n, "targets": targets, "ratio_median": float(np.median(np.divide(found["error"], expected)))}


def told_by_forces(count: int, is_toy: bool) -> dict[str, Any]:
    """What places and forces of a t-SNE map in 3 decimals tell of its first records."""
    n, data, targets = (120, "digits", 3) if is_toy else (count, "mnist", 20)
    found = forces.measured(releases.dataset(data, SEED, n).x, n, targets)
    return {"n": n, "targets": targets, **found._asdict()}


TABLES = {
    "leak-unbounded": {name: functools.partial(unbounded, name) for name in ("float32", "3 decimals")},
    "leak-forces": {str(n): functools.partial(told_by_forces, n) for n in RECORDS},
    "mds-of-digits": {
        "60": lambda _: audits.audited(
            "audit --method mds --n-known 60 --n-shadow 100 --n-targets 20 --attacks stationarity invariant"
        )
    },
}
"""What computes the facts of a cell, by table and cell."""
