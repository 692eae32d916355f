"""The target of one t-SNE map from the forces on the known records around it.

At rest the forces on a known record j cancel, and the target has a part in them through one number: its squared
distance s_j to j, by which j's own affinities are wide, beside the target's affinities to all. Far from the target both
are next to nothing. So the equations of the known records nearest in the map are solved for the target, all other
affinities taken as they are without it; what records look like around such a place (`within_map`) is the prior.
`inversion` solves all 2 n equations, with no prior but that of all records, in O(n^3) a step; here a step takes O(n).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.spatial.distance import cdist

from drjax.attacks.reconstruction.closed_form.each import checked_rows
from drjax.attacks.reconstruction.equations import OfRecord
from drjax.attacks.reconstruction.gauss_newton import Belief, Fit, Noise, descend, variances
from drjax.attacks.reconstruction.inversion import definite
from drjax.attacks.reconstruction.map_forces import (
    FIRST_STEPS,
    FURTHER_STEPS,
    Map,
    bandwidth_step,
    conditional_affinities,
    student_weights,
)
from drjax.core.types import Array, Reconstruction, Status, hyperparams, traced

N_NEAR = 96
"""Known records nearest in the map whose forces count."""

LEVELS = (10.0, 1.0)
"""Noise of the descents one after the other, in units of that of the map: with less, narrow valleys stop them."""

MAX_ITER = 30
"""Steps of one of them."""

COARSER = (10.0, 100.0)
"""Times the noise of a force that are tried where no record fulfils the equations."""

MOST_MISFIT = 10.0
"""Where the objective is more than this a equation no record fulfils them, and the prior's mean is the answer."""

ENOUGH = 2.5
"""Objective of an equation from which on another start is tried: the truth has between a half and two."""

N_LOCAL, N_DROPPED, SHARE_LOCAL = 300, 10, 0.7
"""Errors of the prior's mean at so many known records around, the very nearest left out, whose estimates lean on the
target, are the share of the prior's covariance that is not from all."""

NEGLIGIBLE = 1e-5
"""Conditional affinity to the target below which a known record's others are what they are without it."""


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
        return beta + bandwidth_step(jnp, shifted, others, beta, perplexity)

    fixed = jax.lax.stop_gradient(shifted)
    beta = jax.lax.fori_loop(0, n_steps, lambda _, b: step(b, fixed), jax.lax.stop_gradient(beta))
    weight = jnp.where(others, jnp.exp(-step(jax.lax.stop_gradient(beta), shifted) * shifted), 0)
    return weight / jnp.sum(weight)


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
    weight = student_weights(((made.coords[at][:, None] - made.coords[others]) ** 2).sum(axis=2), k)
    pull = weight[..., None] * (made.coords[at][:, None] - made.coords[others])
    own = -student_weights((away**2).sum(axis=1), k)[:, None] * away
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
        anew = conditional_affinities(rows, mask, made.perplexity, made.n_neighbors, made.beta[far])[0]
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


class Solved(NamedTuple):
    """What the equations of one record come to.

    Attributes:
        x: (d,) the likeliest record; the prior's mean where none fulfils the equations.
        is_found: Whether it fulfils them.
        variance: (d,) of the errors to expect.
    """

    x: np.ndarray
    is_found: bool
    variance: np.ndarray


def solve(made: Map, row: int, equations: NearForces | None = None, noise: float | None = None) -> Solved:
    """The likeliest record of a row, and how far off it is likely to be.

    Args:
        made: Map.
        row: The record to reconstruct.
        equations: Its equations, where known records are a little other than those of the map.
        noise: Standard deviation of a force; the map's if None, or where no record fulfils the equations then,
            `COARSER` times that: with few records the forces of the guesses rest better than those of the truth.
    """
    with jax.enable_x64(True):
        equations, prior = equations_of(made, row) if equations is None else equations, prior_of(made, row)
        found = _solved(equations, prior, made.noise if noise is None else noise)
        # Fewer errors than features say too little of a record to be believed beside coarse forces.
        is_told = len(made.x) - 1 > made.x.shape[1]
        for times in COARSER if noise is None and is_told else ():
            if found.is_found:
                break
            found = _solved(equations, prior, times * made.noise)
        return found


def _solved(equations: NearForces, prior: Belief, level: float) -> Solved:
    """`solve` with forces of this noise."""
    n_equations = equations.push.size
    best: Fit | None = None
    for start in (prior.mean, equations.known[equations.near[0]]):
        if best is not None and best.cost <= ENOUGH * n_equations:
            break
        x, found = start, None
        for times in LEVELS:
            scale = jnp.full(n_equations, max(times * level, np.finfo(float).tiny))
            found = descend(equations, jnp.zeros(0), Noise(scale, None), prior, x, max_iter=MAX_ITER)
            x = found.x
        assert found is not None
        if best is None or found.cost < best.cost:
            best = found
    assert best is not None
    if not (np.isfinite(best.x).all() and best.cost <= MOST_MISFIT * n_equations):
        return Solved(np.asarray(prior.mean), False, np.diagonal(prior.covariance))
    return Solved(np.asarray(best.x), True, np.maximum(variances(equations, prior, best), 0))


def reconstruct_near_forces(made: Map, rows: Array, *, bounds: tuple[float, float] | None = None) -> Reconstruction:
    """Records of one map, each from the others and the forces on those near it.

    Args:
        made: Map from `prepared`.
        rows: (m,) records to reconstruct.
        bounds: Least and greatest value of a feature.

    Returns:
        x (m, d), with the errors to expect of it; UNCERTIFIED where no record fulfils the equations and x is what the
        places say. Some hundred steps of O(s n (k + d) + d^3) a record for s = `N_NEAR`.

    Raises:
        ValueError: a row out of range.
    """
    return reconstruction_of([solve(made, int(row)) for row in checked_rows(rows, len(made.x))], bounds)


def reconstruction_of(found: Sequence[Solved], bounds: tuple[float, float] | None) -> Reconstruction:
    """Records and the errors to expect of them, within bounds."""
    x, errors = np.stack([one.x for one in found]), np.stack([one.variance for one in found])
    x = x if bounds is None else np.clip(x, *bounds)
    status = np.where([one.is_found for one in found], np.uint32(Status.OK), np.uint32(Status.UNCERTIFIED))
    expected = errors.mean(axis=1)
    norm = np.sqrt(errors.sum(axis=1))
    return Reconstruction(x, None, x[:, None], norm, status.astype(np.uint32), expected, feature_mse=errors)
