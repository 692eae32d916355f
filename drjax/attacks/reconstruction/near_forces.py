"""The target of one t-SNE map from the forces on the known records around it.

At rest the forces on a known record j cancel, and the target has a part in them through one number: its squared
distance s_j to j, by which j's own affinities are wide, beside the target's affinities to all. Far from the target both
are next to nothing. So the equations of the known records nearest in the map are solved for the target, all other
affinities taken as they are without it; what records look like around such a place (`within_map`) is the prior.
`inversion` solves all 2 n equations, with no prior but that of all records, in O(n^3) a step; here a step takes O(n).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.spatial.distance import cdist

from drjax.attacks.reconstruction import barnes_hut
from drjax.attacks.reconstruction.closed_form.each import checked_rows
from drjax.attacks.reconstruction.equations import OfRecord
from drjax.attacks.reconstruction.gauss_newton import Belief, Noise, descend
from drjax.attacks.reconstruction.inversion import definite
from drjax.attacks.reconstruction.within_map import reconstruct_within_map
from drjax.core.kernel_regression import squared_distances
from drjax.core.types import Array, Reconstruction, Status, hyperparams, traced

N_NEAR = 96
"""Known records nearest in the map whose forces count."""

LEVELS = (10.0, 1.0)
"""Noise of the descents one after the other, in units of that of the map: with less, narrow valleys stop them."""

MAX_ITER = 30
"""Steps of one of them."""

AT_REST = 1.5
"""Standard deviation of a force over the median of its size: that of a Gaussian, about."""

MOST_MISFIT = 10.0
"""Where the objective is more than this a equation no record fulfils them, and the prior's mean is the answer."""

ENOUGH = 2.5
"""Objective of an equation from which on another start is tried: the truth has between a half and two."""

N_LOCAL, N_DROPPED, SHARE_LOCAL = 300, 10, 0.7
"""Errors of the prior's mean at so many known records around, the very nearest left out, whose estimates lean on the
target, are the share of the prior's covariance that is not from all."""

FIRST_STEPS, FURTHER_STEPS = 30, 3
"""Newton steps to a bandwidth from anywhere, and from that of the same record without the target."""

DONE = 1e-9
"""Newton step, as a share of the precision, after which there is no other."""

NEGLIGIBLE = 1e-5
"""Conditional affinity to the target below which a known record's others are what they are without it."""


class Map(NamedTuple):
    """What the attacks on all records of a map share.

    Attributes:
        x: (n, d) records.
        coords: (n, k).
        squared: (n, n) squared distances between records.
        conditional: (n, n) affinities of a record, the row, to the others.
        beta: (n,) their precision.
        push: (n, k) repulsion.
        noise: Standard deviation of a force.
        perplexity: Perplexity of the map.
        n_neighbors: Nearest records to which a record has an affinity; None for all.
        guess: (n, d) what the places of the others say of each.
    """

    x: np.ndarray
    coords: np.ndarray
    squared: np.ndarray
    conditional: np.ndarray
    beta: np.ndarray
    push: np.ndarray
    noise: float
    perplexity: float
    n_neighbors: int | None
    guess: np.ndarray


@hyperparams
class NearForces(OfRecord):
    """Forces on the target and the s known records near it; m = n - 1 known records.

    Attributes:
        known: (m, d).
        near: (s,) places of the near ones.
        between: (s, m) squared distances of these to all known records.
        is_other: (s, m), False for a record itself.
        reach: (s, 2) squared distances to their last neighbour but one and their last among the known; see
            `equations.TSNERest`.
        beta: (s,) precision of their affinities, about.
        pull: (s, m, k) differences to all known records in the map, by Student's weights.
        toward: (s, k) the same to the target.
        own: (m, k) the same of the target to all known records.
        push: (s + 1, k) repulsion, of the target first.
        fixed: (s, k) force by the conditional affinities of the records that are not near.
        perplexity: Perplexity.
        n_neighbors: Nearest records to which a record has an affinity; None for all.
    """

    known: Array = traced()
    near: Array = traced()
    between: Array = traced()
    is_other: Array = traced()
    reach: Array = traced()
    beta: Array = traced()
    pull: Array = traced()
    toward: Array = traced()
    own: Array = traced()
    push: Array = traced()
    fixed: Array = traced()
    perplexity: float
    n_neighbors: int | None = None

    def residual(self, release: Array, x: Array, about: Array | None = None) -> Array:
        """((s + 1) k,) forces."""
        del release, about
        s = jnp.sum((x - self.known) ** 2, axis=1)
        return self._forces(self._rows(s[self.near]), self._first(s)).ravel()

    def linearise(self, release: Array, x: Array) -> tuple[Array, Array]:
        """`residual` and its derivative ((s + 1) k, d)."""
        del release
        s = jnp.sum((x - self.known) ** 2, axis=1)
        # A row depends on its own distance alone.
        rows, slope = jax.jvp(self._rows, (s[self.near],), (jnp.ones_like(s[self.near]),))
        first = self._first(s)
        by_row = self._moved(slope)
        back = jax.vjp(self._first, s)[1]
        weights = jnp.concatenate([jnp.swapaxes(self.own, 0, 1)[None], self._onto_near()])  # (s + 1, k, m)
        by_first = jax.vmap(jax.vmap(lambda one: back(one)[0]))(weights) / (2 * (len(s) + 1))
        derivative = by_first.at[:, :, self.near].add(by_row)
        force = self._forces(rows, first)
        return force.ravel(), derivative.reshape(force.size, -1) @ (2 * (x - self.known))

    def curvature(self, release: Array, x: Array) -> None:
        """None: of few of the forces there is no objective."""
        del release, x

    def _onto_near(self) -> Array:
        """(s, k, m): what an affinity of the target to each known record does to the force on the near ones."""
        onto = jnp.zeros((len(self.near), self.toward.shape[1], len(self.known)))
        return onto.at[jnp.arange(len(self.near)), :, self.near].set(self.toward)

    def _moved(self, slope: Array) -> Array:
        """(s + 1, k, s) derivative of the forces in each near record's distance, from that of its row (s, m + 1)."""
        among, pulls = slope[:, self.near], self.pull[:, self.near]
        own = jnp.einsum("jm,jmk->jk", slope[:, :-1], self.pull) + slope[:, -1:] * self.toward
        at = jnp.arange(len(self.near))
        of_near = jnp.einsum("lj,jlk->jkl", among, pulls).at[at, :, at].add(own)
        of_target = (slope[:, -1:] * jnp.asarray(self.own)[self.near]).T
        return jnp.concatenate([of_target[None], of_near]) / (2 * (len(self.known) + 1))

    def _forces(self, rows: Array, first: Array) -> Array:
        """(s + 1, k), of conditional affinities of the near records (s, m + 1), the target last, and of the target."""
        among, pulls = rows[:, self.near], self.pull[:, self.near]
        pulled = jnp.einsum("jm,jmk->jk", rows[:, :-1], self.pull) + jnp.einsum("lj,jlk->jk", among, pulls)
        pulled = pulled + self.fixed + (rows[:, -1] + first[self.near])[:, None] * self.toward
        target = first @ self.own + rows[:, -1] @ jnp.asarray(self.own)[self.near]
        return jnp.concatenate([target[None], pulled]) / (2 * (len(self.known) + 1)) - self.push

    def _rows(self, s: Array) -> Array:
        def one(row: Array, is_other: Array, reach: Array, beta: Array, own: Array) -> Array:
            squared, others = jnp.append(row, own), jnp.append(is_other, True)
            if self.n_neighbors is not None:
                others &= squared <= jnp.clip(own, reach[0], reach[1])
            return _affinities(squared, others, beta, self.perplexity, FURTHER_STEPS)

        return jax.vmap(one)(self.between, self.is_other, self.reach, self.beta, s)

    def _first(self, s: Array) -> Array:
        is_other = jnp.ones(s.shape, bool)
        if self.n_neighbors is not None:
            is_other = s <= jnp.sort(s)[self.n_neighbors - 1]
        return _affinities(s, is_other, 1 / jnp.mean(s), self.perplexity, FIRST_STEPS)


def _affinities(squared: Array, others: Array, beta: Array, perplexity: float, n_steps: int) -> Array:
    """Conditional affinities (m,) of one record of the wanted perplexity, by Newton steps from a precision."""
    shifted = jnp.where(others, squared - jnp.min(jnp.where(others, squared, jnp.inf)), 0)

    def step(beta: Array, shifted: Array) -> Array:
        return beta + _step(jnp, shifted, others, beta, perplexity)

    fixed = jax.lax.stop_gradient(shifted)
    beta = jax.lax.fori_loop(0, n_steps, lambda _, b: step(b, fixed), jax.lax.stop_gradient(beta))
    weight = jnp.where(others, jnp.exp(-step(jax.lax.stop_gradient(beta), shifted) * shifted), 0)
    return weight / jnp.sum(weight)


def _step(xp: Any, shifted: Array, others: Array, beta: Array, perplexity: float) -> Any:
    """Newton step of precisions (...) toward the wanted entropy of squared distances (..., m); `xp`: JAX or NumPy."""
    weight = xp.where(others, xp.exp(-beta[..., None] * shifted), 0)
    total = xp.sum(weight, axis=-1)
    mean = xp.sum(weight * shifted, axis=-1) / total
    slope = -beta * (xp.sum(weight * shifted**2, axis=-1) / total - mean**2)
    off = xp.log(total) + beta * mean - np.log(perplexity)
    # Neighbours at one distance have the same entropy at every precision.
    return xp.clip(xp.where(slope < 0, -off / xp.where(slope < 0, slope, -1), 0), -0.7 * beta, 2 * beta)


def prepared(x: Array, coords: Array, perplexity: float) -> Map:
    """What the attacks on all records of a map (n, k) of records (n, d) share; O(n^2 d), and five n x n matrices.

    Of exact affinities, those to the nearest 3 perplexity + 1 of the Barnes-Hut algorithm, and these with its
    repulsion, the way is taken by which the records rest best.
    """
    x, coords = np.asarray(x, np.float64), np.asarray(coords, np.float64)
    squared = squared_distances(x - x.mean(axis=0))
    pull_sums, push = _repulsion(coords)
    n_neighbors = int(3 * perplexity + 1)
    ways: list[tuple[int | None, list[np.ndarray]]] = [(None, [push])]
    if n_neighbors < len(x) - 2:
        ways.append((n_neighbors, [push, push + barnes_hut.excess(coords)]))
    best: tuple[float, Any] = (np.inf, None)
    for way, pushes in ways:
        conditional, beta = _conditional(squared, ~np.eye(len(x), dtype=bool), perplexity, way)
        pull = pull_sums((conditional + conditional.T) / (2 * len(x)))
        for own_push in pushes:
            force = pull - own_push
            size = float(np.median(np.linalg.norm(force, axis=1)))
            if size < best[0]:
                best = size, (way, own_push, conditional, beta, AT_REST * float(np.median(np.abs(force))))
    way, push, conditional, beta, noise = best[1]
    guess = reconstruct_within_map(x, coords).x
    return Map(x, coords, squared, conditional, beta, push, noise, perplexity, way, guess)


def _conditional(
    squared: np.ndarray, others: np.ndarray, perplexity: float, n_neighbors: int | None, start: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Affinities (r, m) of the wanted perplexity of rows of squared distances (r, m), and their precision (r,)."""
    if n_neighbors is not None:
        far = np.where(others, squared, np.inf)
        others = others & (squared <= np.partition(far, n_neighbors - 1, axis=1)[:, n_neighbors - 1 : n_neighbors])
    shifted = np.where(others, squared - np.where(others, squared, np.inf).min(axis=1, keepdims=True), 0)
    beta = 1 / np.maximum(squared.mean(axis=1), np.finfo(float).tiny) if start is None else start
    for _ in range(FIRST_STEPS if start is None else FURTHER_STEPS):
        step = _step(np, shifted, others, beta, perplexity)
        beta = beta + step
        if (np.abs(step) <= DONE * beta).all():
            break
    weight = np.where(others, np.exp(-beta[:, None] * shifted), 0)
    return weight / weight.sum(axis=1, keepdims=True), beta


def _weights(squared: np.ndarray, k: int) -> np.ndarray:
    """Student's weights in a map of k components; see `equations.forces`."""
    freedom = max(k - 1, 1)
    return (1 + squared / freedom) ** (-(freedom + 1) / 2)


def _repulsion(coords: np.ndarray) -> tuple[Any, np.ndarray]:
    """Function from joint affinities (n, n) to the attraction (n, k), and the repulsion (n, k)."""
    weight = _weights(squared_distances(coords - coords.mean(axis=0)), coords.shape[1])
    np.fill_diagonal(weight, 0)

    def sums(joint: np.ndarray) -> np.ndarray:
        loaded = joint * weight
        return loaded.sum(axis=1)[:, None] * coords - loaded @ coords

    return sums, sums(weight / weight.sum())


def equations_of(made: Map, row: int, records: np.ndarray | None = None) -> NearForces:
    """The equations of one record of a map, of nothing but the others' records.

    Args:
        made: Map.
        row: Record.
        records: (n, d) of which those of the others are taken, a little other than those of the map; the map's if None.
    """
    n, k = made.coords.shape
    x = made.x if records is None else records
    others = np.delete(np.arange(n), row)
    away = made.coords[others] - made.coords[row]
    near = np.argsort((away**2).sum(axis=1), kind="stable")[: min(N_NEAR, n - 1)]
    at = others[near]
    between = made.squared[np.ix_(at, others)] if records is None else cdist(x[at], x[others], "sqeuclidean")
    is_other = np.ones(between.shape, bool)
    is_other[np.arange(len(near)), near] = False
    weight = _weights(((made.coords[at][:, None] - made.coords[others]) ** 2).sum(axis=2), k)
    pull = weight[..., None] * (made.coords[at][:, None] - made.coords[others])
    own = -_weights((away**2).sum(axis=1), k)[:, None] * away
    # What records that are not near make of near ones, without the target.
    is_far = np.ones(n - 1, bool)
    is_far[near] = False
    to_target = made.conditional[others, row]
    theirs = made.conditional[np.ix_(others, at)] / (1 - to_target)[:, None]
    # Other records have other affinities than those of the map.
    reached = to_target if records is None else np.maximum(to_target, theirs.max(axis=1))
    touched = np.flatnonzero(is_far & (reached > NEGLIGIBLE))
    if len(touched):
        mask = np.ones((len(touched), n - 1), bool)
        mask[np.arange(len(touched)), touched] = False
        far = others[touched]
        rows = made.squared[np.ix_(far, others)] if records is None else cdist(x[far], x[others], "sqeuclidean")
        anew = _conditional(rows, mask, made.perplexity, made.n_neighbors, made.beta[far])[0]
        theirs[touched] = anew[:, near]
    reach = np.zeros((len(near), 2))
    if made.n_neighbors is not None:
        last = made.n_neighbors - 1
        reach = np.sort(np.where(is_other, between, np.inf), axis=1)[:, last - 1 : last + 1]
    return NearForces(
        known=jnp.asarray(x[others]),
        near=jnp.asarray(near),
        between=jnp.asarray(between),
        is_other=jnp.asarray(is_other),
        reach=jnp.asarray(reach),
        beta=jnp.asarray(made.beta[at]),
        pull=jnp.asarray(pull),
        toward=jnp.asarray(-own[near]),
        own=jnp.asarray(own),
        push=jnp.asarray(made.push[np.append(row, at)]),
        fixed=jnp.asarray(np.einsum("mj,jmk->jk", np.where(is_far[:, None], theirs, 0), pull)),
        perplexity=made.perplexity,
        n_neighbors=made.n_neighbors,
    )


def prior_of(made: Map, row: int) -> Belief:
    """What the places of the others say of one record: mean (d,), and covariance (d, d) of that mean's errors."""
    errors = made.guess - made.x
    order = np.argsort(((made.coords - made.coords[row]) ** 2).sum(axis=1), kind="stable")
    local, rest = errors[order[1 + N_DROPPED :][:N_LOCAL]], np.delete(errors, row, axis=0)
    share = SHARE_LOCAL if len(local) >= N_LOCAL else 0.0
    covariance = share * local.T @ local / max(len(local), 1) + (1 - share) * rest.T @ rest / len(rest)
    return Belief(jnp.asarray(made.guess[row]), jnp.asarray(definite(covariance)))


def solve(
    made: Map, row: int, equations: NearForces | None = None, noise: float | None = None
) -> tuple[np.ndarray, bool]:
    """The likeliest record (d,), and whether it fulfils the equations; the prior's mean if none does.

    Args:
        made: Map.
        row: The record to reconstruct.
        equations: Its equations, where known records are a little other than those of the map.
        noise: Standard deviation of a force; the map's if None.
    """
    with jax.enable_x64(True):
        equations = equations_of(made, row) if equations is None else equations
        prior, level = prior_of(made, row), made.noise if noise is None else noise
        n_equations = equations.push.size
        best, least = np.asarray(prior.mean), np.inf
        for start in (prior.mean, equations.known[equations.near[0]]):
            if least <= ENOUGH * n_equations:
                break
            x, cost = start, np.inf
            for times in LEVELS:
                scale = jnp.full(n_equations, max(times * level, np.finfo(float).tiny))
                found = descend(equations, jnp.zeros(0), Noise(scale, None), prior, x, max_iter=MAX_ITER)
                x, cost = found.x, float(found.cost)
            if cost < least:
                best, least = np.asarray(x), cost
    is_found = bool(np.isfinite(best).all() and least <= MOST_MISFIT * n_equations)
    return (best if is_found else np.asarray(prior.mean)), is_found


def reconstruct_near_forces(made: Map, rows: Array, *, bounds: tuple[float, float] | None = None) -> Reconstruction:
    """Records of one map, each from the others and the forces on those near it.

    Args:
        made: Map from `prepared`.
        rows: (m,) records to reconstruct.
        bounds: Least and greatest value of a feature.

    Returns:
        x (m, d); residual_norm is nan; UNCERTIFIED where no record fulfils the equations and x is what the places say.
        Some hundred steps of O(s n (k + d) + d^3) a record for s = `N_NEAR`.

    Raises:
        ValueError: a row out of range.
    """
    return reconstruction_of([solve(made, int(row)) for row in checked_rows(rows, len(made.x))], bounds)


def reconstruction_of(found: list[tuple[np.ndarray, bool]], bounds: tuple[float, float] | None) -> Reconstruction:
    """Records (d,) and whether each fulfils the equations, within bounds."""
    x = np.stack([one for one, _ in found])
    x = x if bounds is None else np.clip(x, *bounds)
    status = np.where([is_found for _, is_found in found], np.uint32(Status.OK), np.uint32(Status.UNCERTIFIED))
    return Reconstruction(x, None, x[:, None], np.full(len(x), np.nan), status.astype(np.uint32))
