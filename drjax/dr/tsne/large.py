"""t-SNE of many records on the host: affinities of near records, repulsion by a mesh, all cores on one map."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import xlogy

from drjax.core import host
from drjax.core.compiled import njit
from drjax.dr.tsne.cpu import Descent, advance
from drjax.dr.tsne.mesh import ROWS, Mesh
from drjax.dr.tsne.near_affinities import Graph


def descend(graph: Graph, start: np.ndarray, descent: Descent) -> tuple[np.ndarray, float, float, int, bool]:
    """A descent from start (n, 2): coordinates, divergence over near pairs, last norm, iterations, whether it stopped.

    Follows `cpu.descend`, whose rules it shares; forces are right to about 1%.
    """
    y = np.ascontiguousarray(start).copy()
    state = _Moving(graph, y, descent)
    best, best_at, norm, stop = math.inf, 0, math.inf, False
    exploring = descent.exploration > 0
    iteration = 0
    while iteration < descent.max_iter:
        looking = (iteration + 1) % 50 == 0
        normaliser, logs = state.forces(with_logs=looking and not exploring)
        squares = state.advance(normaliser, exploring=exploring)
        iteration += 1
        if looking:
            norm = math.sqrt(squares)
            stop = norm <= descent.min_grad_norm
            if not exploring:
                error = state.constant + logs + math.log(normaliser)
                if error < best:
                    best, best_at = error, iteration
                elif iteration - best_at > descent.patience:
                    stop = True
        if exploring and (stop or iteration == descent.exploration):
            # The second phase starts at rest: scikit-learn calls its descent anew.
            exploring, stop, best, best_at = False, False, math.inf, iteration
            state.rest()
        elif stop:
            break
    normaliser, logs = state.forces(with_logs=True)
    return y, state.constant + logs + math.log(normaliser), norm, iteration, stop


class _Moving:
    """A map on its way."""

    def __init__(self, graph: Graph, y: np.ndarray, descent: Descent) -> None:
        self._graph, self._y, self._descent = graph, y, descent
        self._mesh = Mesh(len(y), y.dtype)
        self._attraction, self._repulsion = np.empty_like(y), np.empty_like(y)
        self._update, self._gains = np.zeros_like(y), np.ones_like(y)
        values = graph.values.astype(np.float64)
        self.constant = float(np.sum(xlogy(values, values)))

    def rest(self) -> None:
        self._update[:] = 0
        self._gains[:] = 1

    def forces(self, *, with_logs: bool) -> tuple[float, float]:
        """The normaliser, and the sum of -p log w over near pairs if asked for."""
        normaliser = self._mesh.repulsion(self._y, self._repulsion)
        logs = np.zeros(-(-len(self._y) // ROWS))

        def attract(part: slice) -> None:
            bounds = part.start, part.stop
            _attract(*self._graph, self._y, *bounds, self._attraction)
            if with_logs:
                logs[part.start // ROWS] = _logs(*self._graph, self._y, *bounds)

        host.spread(attract, len(self._y), size=ROWS)
        return normaliser, float(logs.sum())

    def advance(self, normaliser: float, *, exploring: bool) -> float:
        """One step; the squared norm of the gradient times the gains."""
        kind = self._y.dtype.type
        pull = kind(4.0 * (self._descent.exaggeration if exploring else 1.0))
        rate, momentum = kind(self._descent.learning_rate), kind(0.5 if exploring else 0.8)
        forces = self._attraction.T, self._repulsion.T, pull, kind(4.0 / normaliser)
        return advance(len(self._y), *forces, momentum, rate, self._y.T, self._update.T, self._gains.T)


@njit(fastmath=True)
def _attract(start, ends, values, y, begin, end, out):
    """Sums over near j of p w (y_i - y_j) for rows begin to end."""
    one = y.dtype.type(1)
    for i in range(begin, end):
        a, b = y[i, 0], y[i, 1]
        along, across = y.dtype.type(0), y.dtype.type(0)
        for e in range(start[i], start[i + 1]):
            j = ends[e]
            da, db = a - y[j, 0], b - y[j, 1]
            pw = values[e] / (one + da * da + db * db)
            along += pw * da
            across += pw * db
        out[i, 0], out[i, 1] = along, across


@njit
def _logs(start, ends, values, y, begin, end):
    total = 0.0
    for i in range(begin, end):
        a, b = float(y[i, 0]), float(y[i, 1])
        for e in range(start[i], start[i + 1]):
            da, db = a - y[ends[e], 0], b - y[ends[e], 1]
            total += values[e] * math.log1p(da * da + db * db)
    return total
