"""Figures of the README of `experiments.dr_reconstruction`."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.dr_reconstruction import paper
from experiments.dr_reconstruction.config import ADAPTIVE
from experiments.dr_reconstruction.pages import committed
from experiments.dr_reconstruction.results import BEST, MEAN, NEAREST, Estimate
from experiments.markdown import Figures

figures = Figures()

KNOWN, SIGMA = paper.NOISE_KNOWN, paper.NOISE_SIGMA


def _found(estimate: Estimate | None) -> Estimate:
    if estimate is None:
        raise LookupError("results must hold the cell, got none")
    return estimate


def _best(method: str, n_known: int, sigma: float = 0) -> Estimate:
    return _found(committed().estimate(paper.NOISE_DATA, method, n_known, BEST, sigma=sigma))


def _unaware(method: str, sigma: float) -> float:
    """The least error of attacks that know of no noise, the paper's networks left aside."""
    results, where = committed(), (paper.NOISE_DATA, method, KNOWN)
    names = [name for name in results.attacks(*where, sigma) if not name.startswith(ADAPTIVE)]
    return min(_found(results.estimate(*where, name, sigma=sigma)).mean for name in names)


@figures
def from_few_to_many_known() -> Sequence[float]:
    """MNIST, the strongest attack: error with the fewest and the most known of PCA and of Isomap, and the largest share
    of the nearest image's error that it undercuts on UMAP.
    """
    ends = [_best(method, n).mean for method in ("pca", "isomap") for n in (paper.SIZES[0], paper.SIZES[-1])]
    nearest = {n: _found(committed().baseline(paper.NOISE_DATA, n, NEAREST)).mean for n in paper.SIZES}
    return *ends, max(1 - _best("umap", n).mean / nearest[n] for n in paper.SIZES)


@figures
def under_the_largest_noise() -> Sequence[float]:
    """Errors with half their intervals of PCA, Isomap and the mean image; then of attacks on PCA and Isomap that know
    of no noise.
    """
    mean = _found(committed().baseline(paper.NOISE_DATA, KNOWN, MEAN, sigma=SIGMA))
    shown = (*(_best(method, KNOWN, SIGMA) for method in paper.DETERMINISTIC), mean)
    ends = [number for found in shown for number in (found.mean, found.high - found.mean)]
    return *ends, *(_unaware(method, SIGMA) for method in paper.DETERMINISTIC)


@figures
def maps_under_the_largest_noise() -> Sequence[float]:
    """Errors of MDS, t-SNE and UMAP under noise, without it, and under it by attacks that know of none."""
    maps = ("mds", "tsne", "umap")
    both = [_best(method, KNOWN, sigma).mean for sigma in (SIGMA, 0) for method in maps]
    return *both, *(_unaware(method, SIGMA) for method in maps)


@figures
def isomap_by_noise() -> Sequence[float]:
    """Isomap under the least and under the largest noise: errors with training under it and without."""
    least = min(committed().sigmas(paper.NOISE_DATA))
    return [e for s in (least, SIGMA) for e in (_best("isomap", KNOWN, s).mean, _unaware("isomap", s))]


@figures
def tsne_by_known(few: str, many: str) -> Sequence[float]:
    """Error of the strongest attack that was run on t-SNE with few and with many known records."""
    return [_best("tsne", int(n)).mean for n in (few, many)]
