"""Maps by UMAP: under the right graph the mean forces of its descent vanish, but for the noise of its last steps.

The descent is stochastic, so that no record is at rest. Noise moves records in stiff directions little and takes much
force there: what is left of the forces F is measured as F' L^-1 F, with the graph's stiffness L, so that noise counts
alike in all directions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from drjax.attacks.recognition.belief import TIED, Candidate, Release, made
from drjax.attacks.recognition.inputs import Input, given
from drjax.attacks.recognition.umap_graph import weights
from drjax.dr import UMAP
from drjax.dr.umap.graph import OFFSET, fit_curve

LIMIT = 0.045
"""Energy of what is left of the forces over that of attraction and repulsion: of UMAP's maps 0.016 to 0.067 was seen,
the more the fewer neighbours, of a map of it that was sheared 0.05, of maps by other methods at least 0.1. Stand-ins
decide between this and `doubtful` times it."""

NEGATIVE = 5
"""Negative samples per attraction, the libraries' default."""

LARGEST = 4.0
"""umap-learn's: the largest step of a coordinate, before the learning rate."""

RIDGE = 0.05
"""Stiffness of a spring that holds each point, as a share of the mean: the map's place is free."""

NEIGHBORS, DISTS = (8, 16, 32), (0.02, 0.1, 0.25, 0.5)
"""Numbers of neighbours and least distances that are tried on every input."""

FINE_NEIGHBORS = (3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 20, 22, 25, 28, 30, 35, 40, 50, 60, 80, 100)
FINE_DISTS = (0.0, 0.01, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.65, 0.8, 0.99)
"""Those that are tried on the best inputs."""

REACH = 2.0
"""Factor about the coarse number of neighbours within which finer ones are tried."""

N_REFINED = 6
"""Inputs on which they are."""


@dataclass(frozen=True)
class _Pairs:
    """Forces between the points of a map for a least distance.

    Attributes:
        pull: (n, n, k), attraction of each pair of weight 1.
        stiffness: (n, n), its size over the pair's distance.
        push: (n, k), sum of the repulsions of all others.
    """

    pull: np.ndarray
    stiffness: np.ndarray
    push: np.ndarray


class UMAPFamily:
    """UMAP, by umap-learn or drjax."""

    name, doubtful, seconds = UMAP.name, 2.0, 0.6

    def candidates(self, release: Release) -> list[Candidate]:
        """See `Family`."""
        n = len(release.coords)
        pairs = {dist: pairs_of(release.coords, dist) for dist in DISTS}
        coarse = []
        for of in release.scale_free_inputs:
            graphs = {size: weights(of.ordered, of.order, size) for size in NEIGHBORS if size < n}
            tried = [(_misfit(graph, pairs[dist]), size, dist) for size, graph in graphs.items() for dist in DISTS]
            coarse.append((*min(tried), of))
        coarse.sort(key=lambda one: one[0])
        fine: dict[float, _Pairs] = dict(pairs)
        return [self._refined(release, of, size, dist, fine) for _, size, dist, of in coarse[:N_REFINED]]

    def misfit(self, release: Release, candidate: Candidate) -> float:
        """See `Family`."""
        one, method = given(release.records, candidate.before, candidate.metric), candidate.own
        assert isinstance(method, UMAP)
        if one is None:
            return np.inf
        return _misfit(weights(one.ordered, one.order, method.n_neighbors), pairs_of(release.coords, method.min_dist))

    def _refined(self, release: Release, of: Input, size: int, dist: float, pairs: dict[float, _Pairs]) -> Candidate:
        n, k = release.coords.shape
        sizes = [one for one in FINE_NEIGHBORS if size / REACH <= one <= size * REACH and one < n]
        graphs = {one: weights(of.ordered, of.order, one) for one in sizes}
        value, misfits = np.inf, {}
        for _ in range(3):
            before = value
            dists = sorted(FINE_DISTS, key=lambda one: abs(one - dist))[:5]
            for one in dists:
                if one not in pairs:
                    pairs[one] = pairs_of(release.coords, one)
            misfits = {one: _misfit(graphs[one], pairs[dist]) for one in sizes}
            size = min(sizes, key=lambda one: misfits[one])
            value, dist = min((_misfit(graphs[size], pairs[one]), one) for one in dists)
            if value == before:
                break
        method = made(UMAP, of, k, n_neighbors=size, min_dist=dist)
        as_good = [one for one, misfit in misfits.items() if misfit <= TIED * min(misfits.values())]
        settings = ["start, learning rate and number of epochs", "rotation, reflection and place of the map"]
        if len(as_good) > 1:
            settings.append(f"n_neighbors between {min(as_good)} and {max(as_good)}")
        limit = LIMIT
        if release.rounding:  # errors of rounding add to the energy like any that are drawn
            limit += max(_misfit(graphs[size], pairs_of(release.shaken.coords, dist)) - value, 0)
        return Candidate(self.name, method, value, limit, of.metric, "", of.same, tuple(settings))


def pairs_of(coords: np.ndarray, min_dist: float) -> _Pairs:
    """Forces of a map (n, k) for a least distance; points that coincide exert none, as in umap-learn."""
    a, b = fit_curve(1.0, min_dist)
    gaps = coords[:, None] - coords
    squared = (gaps**2).sum(axis=2)
    apart = squared > 0
    squared = np.where(apart, squared, 1)
    power = squared**b
    stiffness = 2 * a * b * power / squared / (1 + a * power)
    repulsion = 2 * b / ((OFFSET + squared) * (1 + a * power))
    stiffness, repulsion = np.where(apart, stiffness, 0), np.where(apart, repulsion, 0)
    pull = np.clip(stiffness[..., None] * gaps, -LARGEST, LARGEST)
    push = np.clip(repulsion[..., None] * gaps, -LARGEST, LARGEST).sum(axis=1)
    return _Pairs(pull, stiffness, push)


def _misfit(graph: np.ndarray, pairs: _Pairs) -> float:
    """Energy of the mean force over the energies of its two parts.

    An edge is drawn as often as its weight says, from both ends: it pulls twice, and each end meets `NEGATIVE` random
    points for its own draws.
    """
    n = len(graph)
    pull = 2 * np.einsum("ij,ijk->ik", graph, pairs.pull)
    push = NEGATIVE / n * graph.sum(axis=1)[:, None] * pairs.push
    edges = 2 * graph * pairs.stiffness
    springs = edges.sum(axis=1)
    stiffness = np.diag(springs + RIDGE * springs.mean()) - edges
    forces = np.concatenate([pull - push, pull, push], axis=1)
    try:
        moves = scipy.linalg.cho_solve(scipy.linalg.cho_factor(stiffness, check_finite=False), forces)
    except np.linalg.LinAlgError:
        return np.inf
    energy = (forces * moves).sum(axis=0).reshape(3, -1).sum(axis=1)
    return float(energy[0] / (energy[1] + energy[2]))
