"""Maps by Isomap: their columns are eigenvectors of the centred squares of the right geodesics."""

from __future__ import annotations

import numpy as np
import scipy.sparse
import scipy.sparse.csgraph

from drjax.attacks.recognition.belief import Candidate, Release, made
from drjax.attacks.recognition.inputs import Input, given
from drjax.dr import Isomap

TIE = 2.0
"""Factor between misfits up to which two hypotheses are not told apart: both hold the target's unknown place."""

LIMIT = 0.12
"""Median residual of the eigenvector equations over the median distance to the centre: of Isomap's maps at most 0.07
was seen, which is what the unknown place of the target does, of maps by other methods at least 0.2."""

GRID = (4, 5, 7, 9, 12, 16, 22, 30, 40)
"""Numbers of neighbours that are tried on every input."""

LEAST, MOST = 2, 40
"""Range of those that are tried on the best inputs."""

MOST_SHARE = 3
"""Records per neighbour at least: with more neighbours Isomap is classical scaling."""

STEP = 1.4
"""Factor about the best of the grid within which all are tried."""

N_ROWS = 40
"""Known records on which the grid is tried."""

N_BEST = 3
"""Numbers of neighbours of each for which further places of the target are tried."""

N_REFINED = 5
"""Inputs on which all are tried."""

MOST_NEAR = 6
"""Known records nearest to the target in the map, between which it is placed, at most."""

OFF = (0.5, 0.0, 0.25, 0.75, 1.0, 1.4)
"""How far off their middle it is placed, in usual distances to the nearest record; the first with each number."""


class IsomapFamily:
    """Isomap."""

    name, doubtful, seconds = Isomap.name, 1.0, 1.2

    def candidates(self, release: Release) -> list[Candidate]:
        """See `Family`."""
        n = len(release.coords)
        rows = release.away[:: max(1, len(release.away) // N_ROWS)]
        coarse = []
        for one in release.inputs:
            tried = [(_misfit(release, one, size, rows)[0], size) for size in GRID if size <= n // MOST_SHARE]
            coarse.append((*min(tried), one))
        coarse.sort(key=lambda one: one[0])
        return [self._refined(release, one, size) for _, size, one in coarse[:N_REFINED]]

    def misfit(self, release: Release, candidate: Candidate) -> float:
        """See `Family`."""
        one, method = given(release.records, candidate.before, candidate.metric), candidate.own
        assert isinstance(method, Isomap)
        if one is None:
            return np.inf
        size = method.n_neighbors
        return min(_misfit(release, one, size, release.away), _placed(release, one, size))[0]

    def _refined(self, release: Release, one: Input, start: int) -> Candidate:
        n, k = release.coords.shape
        sizes = range(max(LEAST, int(start / STEP)), min(MOST, n // MOST_SHARE, int(np.ceil(start * STEP))) + 1)
        tried = {size: _misfit(release, one, size, release.away) for size in sizes}
        best = sorted(tried, key=lambda size: tried[size][0])[:N_BEST]
        tried = {size: min(tried[size], _placed(release, one, size)) for size in best}
        size = min(tried, key=lambda size: tried[size][0])
        misfit, n_components = tried[size]
        method = made(Isomap, one, k, n_neighbors=size)
        engine = "" if n_components == 1 else f"graph of {n_components} components, joined"
        settings = ("reflection and place of the map",)
        limit = LIMIT + release.rounding / release.spread
        return Candidate(self.name, method, misfit, limit, one.metric, engine, one.same, settings, TIE)


def _placed(release: Release, one: Input, n_neighbors: int) -> tuple[float, int]:
    """The least `_misfit` with the target off the middle of known records that are nearest to it in the map.

    Its place decides which shortest paths lead through it. First the number of those records is sought, then how far
    it lies off their middle, at a right angle to all of them, in units of the usual distance to the nearest record.
    """
    gaps = np.linalg.norm(release.coords[1:] - release.coords[0], axis=1)
    near, squared = 1 + np.argsort(gaps, kind="stable")[:MOST_NEAR], one.between**2
    unit = np.median(np.sort(squared[1:, 1:], axis=1)[:, 1])

    def at(count: int, off: float) -> tuple[float, int]:
        rows = near[:count]
        row = np.sqrt(
            np.maximum(squared[rows].mean(axis=0) - squared[np.ix_(rows, rows)].mean() / 2, 0) + off**2 * unit
        )
        row[0] = 0
        between = one.between.copy()
        between[0], between[:, 0] = row, row
        return _misfit(release, Input(one.before, one.metric, between), n_neighbors, release.away)

    first, *others = OFF
    found = {count: at(count, first) for count in range(1, len(near) + 1)}
    best = min(found, key=lambda count: found[count])
    return min(found[best], *(at(best, off) for off in others))


def _misfit(release: Release, one: Input, n_neighbors: int, rows: np.ndarray) -> tuple[float, int]:
    """Median residual at known records (rows), over the map's spread, and how many components the graph has.

    For centred coordinates theta of eigenvalue lambda, all i share one
    value of sum_j -D_ij^2 / 2 theta_j - lambda theta_i.
    """
    coords = release.coords - release.coords.mean(axis=0)
    values = (coords**2).sum(axis=0)
    paths, n_components = _paths(one, n_neighbors, rows)
    residual = -0.5 * (paths**2) @ coords / values - coords[rows]
    residual = residual - np.median(residual, axis=0)
    return float(np.median(np.linalg.norm(residual, axis=1)) / release.spread), n_components


def _paths(one: Input, n_neighbors: int, rows: np.ndarray) -> tuple[np.ndarray, int]:
    """Lengths of the shortest paths from some records (rows) to all, and the number of components that were joined."""
    n = len(one.between)
    start = np.arange(n + 1) * n_neighbors
    tails, lengths = one.order[:, :n_neighbors].ravel(), one.ordered[:, :n_neighbors].ravel()
    # Built from its parts, so that edges of length 0 between equal records stay edges.
    graph = scipy.sparse.csr_array((lengths, tails, start), shape=(n, n))
    n_components, label = scipy.sparse.csgraph.connected_components(graph, directed=False)
    if n_components > 1:
        graph = _joined(one.between, graph, label, n_components)
    return scipy.sparse.csgraph.dijkstra(graph, directed=False, indices=rows), int(n_components)


def _joined(
    between: np.ndarray, graph: scipy.sparse.csr_array, label: np.ndarray, count: int
) -> scipy.sparse.csr_array:
    """The graph with an edge between the closest records of every two components, as scikit-learn joins them."""
    heads, tails = [], []
    members = [np.flatnonzero(label == one) for one in range(count)]
    for first in range(count):
        for second in range(first):
            gaps = between[np.ix_(members[first], members[second])]
            i, j = np.unravel_index(gaps.argmin(), gaps.shape)
            heads.append(members[first][i])
            tails.append(members[second][j])
    n = len(between)
    row = np.concatenate([np.repeat(np.arange(n), np.diff(graph.indptr)), heads])
    column = np.concatenate([graph.indices, tails])
    length = np.concatenate([graph.data, between[heads, tails]])
    order = np.argsort(row, kind="stable")
    start = np.searchsorted(row[order], np.arange(n + 1))
    return scipy.sparse.csr_array((length[order], column[order], start), shape=(n, n))
