"""What one shadow of each method is: its hyperparameters for a size, its operations, and roughly its time."""

from __future__ import annotations

import math
from typing import Any

from bench.peers import perplexity
from drjax.attacks.shadow import FLOPS, Randomness
from drjax.core.types import DRMethod
from drjax.dr import MDS, METHODS, TSNE, UMAP

MDS_PAIR_FLOPS = 12
"""Two differences, a distance, a ratio and four products and sums per pair of points and iteration."""

TSNE_PAIR_FLOPS = 22
"""Two differences, a squared distance (4), a reciprocal, the normaliser's sum, and for the attraction and the repulsion
alike a weight (1) and, for two coordinates, the products (2) and the sums into the gradients of both points (4)."""

UMAP_SAMPLE_FLOPS = 25
"""Per attraction or repulsion: two differences, a squared distance (4), a power counted as 1, the coefficient (6), and
for each coordinate a product, a limit (2), the rate and the sum; the attraction moves both ends, the rest one."""


def method_for(name: str, n: int) -> DRMethod:
    """The method at its defaults, with the perplexity that n records allow."""
    return TSNE(perplexity=perplexity(n)) if name == "tsne" else METHODS[name]()


def seconds(name: str, n: int, d: int) -> float:
    """Time of one shadow on two cores of a current server; a guess, within a factor of a few, that sets their number.

    What was timed, and of any other method what its own `cost` says.
    """
    timed = {
        "mds": 0.25e-9 * MDS().max_iter * n**2,
        "isomap": 1e-9 * n**2,
        "tsne": 0.25e-9 * 1000 * n**2,
        "umap": 200e-6 * n,
    } | dict.fromkeys(("pca", "srp", "classical_mds"), 0.0)
    return timed[name] if name in timed else method_for(name, n).cost(n, d).flops / FLOPS


def flops(name: str, randomness: Randomness, n: int, d: int, n_iter: float, n_updates: float) -> float:
    """Floating-point operations per shadow that the algorithm needs, without `prepare`; without a model, its `cost`.

    Args:
        name: Key of `METHODS`.
        randomness: Whether a random projection is drawn anew for every shadow.
        n: Records in a release.
        d: Features.
        n_iter: Mean iterations of a shadow, as the method reports them.
        n_updates: Mean attractive updates of a shadow of UMAP.
    """
    k, pairs = METHODS[name]().n_components, n * (n - 1) / 2
    if name in ("pca", "classical_mds"):
        rank = min(n - 2, d)
        return 2 * d * rank + 2 * n * rank * k
    if name == "srp":
        return 2 * n * math.sqrt(d) * k if randomness == "fresh" else 2 * d * k
    if name == "mds":
        return MDS_PAIR_FLOPS * n_iter * pairs
    if name == "tsne":
        return TSNE_PAIR_FLOPS * n_iter * pairs + 3 * n * d
    if name == "umap":
        return UMAP_SAMPLE_FLOPS * n_updates * (1 + UMAP().negative_sample_rate) + 3 * n * d
    if name == "isomap":
        # Products of the shared matrix with k + 2 vectors, then k + 1 in each further step; or one decomposition.
        products = k + 2 + (k + 1) * (n_iter - 1)
        return 3 * n * d + (2 * n**2 * products if n_iter >= 1 else 9 * n**3)
    return method_for(name, n).cost(n, d).flops


def naive_flops(name: str, n: int, d: int) -> float:
    """Of one `fit_transform`, up to a constant per method: it only scales earlier cells' times to later ones."""
    iterations = {"mds": MDS().max_iter, "tsne": 1000}
    if name in iterations:
        return n**2 * (d + 10 * iterations[name])
    if name == "umap":
        return n**2 * d + 1e5 * n
    if name == "isomap":
        return n**2 * (d + 2 * n)
    if name in ("pca", "classical_mds"):
        return n * d * min(n, d)
    if name == "srp":
        return n * d
    cost = method_for(name, n).cost(n, d)
    return cost.shared_flops + cost.flops


def updates(info: Any) -> float:
    """Mean attractive updates of a shadow, from the `info` of an `Embedding`; 0 where the method has none."""
    return float(info.n_updates.mean()) if hasattr(info, "n_updates") else 0.0
