"""SMACOF in XLA, for devices other than CPUs and for derivatives: its iteration, its sum over pairs and its loops."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from drjax.core import platforms
from drjax.core.lanes import while_lanes
from drjax.core.linalg import HIGHEST
from drjax.core.types import Array
from drjax.dr import pallas
from drjax.dr.mds import gpu

AT_ONCE = 32
"""Iterations that a GPU makes in one launch, where it is asked for such kernels."""


class Rule(NamedTuple):
    """When to stop."""

    max_iter: int
    eps: float


class _Data(NamedTuple):
    """The dissimilarities of one lane's first point, in units of the lane's largest dissimilarity.

    Attributes:
        row: (n-1,).
        share: (), largest of the shared dissimilarities, in that unit; <= 1.
        squares: (), half the sum of all squared dissimilarities, over the unit squared.
    """

    row: Array
    share: Array
    squares: Array


_State = gpu.Lane
"""One lane at X_t: coords is X_t, moved |X_t - X_{t-1}|^2, stress that of X_t, count t."""


def lane_loop(rule: Rule, step: Callable, state: _State, data: _Data) -> _State:
    """Every lane until it has finished."""
    del rule
    return while_lanes(step, state, data, done=lambda lane: lane.finished)


def fixed_loop(rule: Rule, step: Callable, state: _State, data: _Data) -> _State:
    """The same as a loop of fixed length, differentiable in both modes.

    Reverse mode keeps the coordinates of every iteration, max_iter n k numbers a lane, and recomputes the rest.
    """

    def steps(state: _State) -> _State:
        new = jax.vmap(step)(state, data)

        def kept(old: Array, new: Array) -> Array:
            return jnp.where(state.finished.reshape(-1, *(1,) * (old.ndim - 1)), old, new)

        return jax.tree.map(kept, state, new)

    @jax.checkpoint
    def unless_finished(state: _State) -> _State:
        return jax.lax.cond(jnp.all(state.finished), lambda s: s, steps, state)

    # One step more than iterations: the last one only reads the stress.
    return jax.lax.scan(lambda s, _: (unless_finished(s), None), state, None, length=rule.max_iter + 1)[0]


@jax.custom_jvp
def forces_in_xla(shared: Array, x: Array) -> Array:
    """The sum over j of shared_ij / distance_ij (x_i - x_j) for points x (m, k), (m, k); shared is symmetric."""
    product = jnp.matmul(_ratio(shared, x)[0], jnp.append(x, jnp.ones_like(x[:, :1]), axis=1), precision=HIGHEST)
    return product[:, -1:] * x - product[:, :-1]


def _forces_derivative(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    """Through one symmetric matrix of pairs for every two columns, instead of through each operation on pairs."""
    (shared, x), (shared_change, x_change) = primals, tangents
    change = jnp.zeros_like(x)
    if not isinstance(shared_change, SymbolicZero):
        change = forces_in_xla(shared_change, x)
    if not isinstance(x_change, SymbolicZero):
        ratio, inverse = _ratio(shared, x)
        k = x.shape[1]
        along = [(x[:, c, None] - x[:, c]) * inverse for c in range(k)]  # unit vectors from j to i, by column
        total = [jnp.zeros_like(x[:, 0])] * k
        for c in range(k):
            for other in range(c, k):
                weight = ratio * ((c == other) - along[c] * along[other])
                row_sum = jnp.sum(weight, axis=1, keepdims=True)
                product = row_sum * x_change - jnp.matmul(weight, x_change, precision=HIGHEST)
                for to, of in {(c, other), (other, c)}:
                    total[to] += product[:, of]
        change += jnp.stack(total, axis=1)
    return forces_in_xla(shared, x), change


forces_in_xla.defjvp(_forces_derivative, symbolic_zeros=True)


def _ratio(shared: Array, x: Array) -> tuple[Array, Array]:
    """Dissimilarity over distance, and 1 over distance, (m, m) each; 0 for points that coincide."""
    # Column by column: a tensor of differences would be k times the memory, and a compiler for CPUs does not vectorise
    # its reduction (5 times slower). A product of coordinates instead would lose small distances to cancellation.
    inverse = gpu.inverse_root(functools.reduce(jnp.add, [(x[:, c, None] - x[:, c]) ** 2 for c in range(x.shape[1])]))
    return shared * inverse, inverse


def _forces(shared: Array, x: Array) -> Array:
    return pallas.on_accelerator(gpu.stress_forces, forces_in_xla, shared, x)


def in_xla(
    rule: Rule,
    between: Array,
    rows: Array,
    starts: Array,
    *,
    loop: Callable = lane_loop,
    forces: Callable = _forces,
) -> tuple[Array, Array, Array, Array]:
    """`smacof.best_of_starts` by a given loop, `lane_loop` or `fixed_loop`, and sum over pairs, as `forces_in_xla`."""
    b, n_init, n, _ = starts.shape
    # In units of the largest dissimilarity, so that squares neither overflow nor vanish. The result does not depend on
    # the unit, nor does its derivative.
    largest = jnp.max(jax.lax.stop_gradient(between), initial=0)
    shared = between / jnp.where(largest > 0, largest, 1)
    scale = jnp.maximum(largest, jnp.max(jax.lax.stop_gradient(rows), axis=1))
    is_finite = jnp.isfinite(scale)
    scale = jnp.where(is_finite & (scale > 0), scale, 1)
    row = jnp.where(is_finite[:, None], rows, 0) / scale[:, None]
    share = jnp.where(is_finite, largest, 0) / scale
    squares = share**2 * jnp.sum(jnp.sum(shared**2, axis=1)) / 2 + jnp.sum(row**2, axis=1)

    def lanes(leaf: Array) -> Array:
        return jnp.repeat(leaf, n_init, axis=0)

    zero = jnp.zeros(b * n_init, starts.dtype)
    never = jnp.zeros(b * n_init, bool)
    state = _State(
        coords=(starts - jnp.mean(starts, axis=2, keepdims=True)).reshape(b * n_init, n, -1),
        moved=zero,
        stress=zero,
        count=jnp.zeros(b * n_init, jnp.int32),
        stopped=never,
        finished=lanes(~is_finite),
    )
    step = functools.partial(_step, rule, functools.partial(forces, shared))
    if loop is lane_loop and forces is _forces and pallas.is_enabled():
        step = functools.partial(_steps, rule, step, pallas.padded(shared))
    state = loop(rule, step, state, jax.tree.map(lanes, _Data(row, share, squares)))
    found = (state.coords, state.stress, state.count, state.stopped)
    each = [leaf.reshape(b, n_init, *leaf.shape[1:]) for leaf in found]
    chosen = jnp.argmin(each[1], axis=1)
    coords, stress, count, stopped = (leaf[jnp.arange(b), chosen] for leaf in each)
    coords = jnp.where(is_finite[:, None, None], coords * scale[:, None, None], jnp.nan)
    return coords, jnp.where(is_finite, stress * scale**2, jnp.nan), count, stopped


def _step(rule: Rule, forces: Callable, state: _State, data: _Data) -> _State:
    """One iteration of one lane; forces(x) of the known points are in units of their largest dissimilarity."""
    x, count = state.coords, state.count
    n = x.shape[0]
    new = _guttman(forces, data, x) / n
    # The sum of dissimilarity times distance is n tr(X^T X+), that of squared distances n |X|^2. So the stress is
    # a sum over points, and its decrease since the iteration before one of small terms, which float32 resolves.
    square = n * jnp.sum(x**2)
    stress = jnp.maximum(data.squares - 2 * n * jnp.sum(x * new) + square, 0)
    decrease = n * (state.moved + 2 * jnp.sum(x * (new - x)))
    stopped = (count >= 2) & (decrease < rule.eps * square)
    finished = stopped | (count == rule.max_iter)
    return _State(
        coords=jnp.where(finished, x, new),
        moved=jnp.sum((new - x) ** 2),
        stress=stress,
        count=count + jnp.where(finished, 0, 1).astype(jnp.int32),
        stopped=stopped,
        finished=finished,
    )


def _steps(rule: Rule, step: Callable, shared: Array, state: _State, data: _Data) -> _State:
    """Some iterations of one lane on a GPU, one elsewhere."""
    at_once = functools.partial(_steps_at_once, rule, backend="cuda")

    def one(shared: Array, state: _State, data: _Data) -> _State:
        del shared
        return step(state, data)

    return platforms.by_platform(shared, state, data, cuda=at_once, default=one)


def _steps_at_once(rule: Rule, shared: Array, state: _State, data: _Data, *, backend: str) -> _State:
    return gpu.smacof_steps(shared, state, gpu.Apart(*data, rule.eps, rule.max_iter), AT_ONCE, backend=backend)


def _guttman(forces: Callable, data: _Data, x: Array) -> Array:
    """B(X) X of one lane: the sum over j of dissimilarity / distance times (x_i - x_j), (n, k)."""
    first, rest = x[0], x[1:]
    pull = rest - first
    pull = pull * (data.row * gpu.inverse_root(jnp.sum(pull**2, axis=1)))[:, None]
    return jnp.concatenate([-jnp.sum(pull, axis=0)[None], data.share * forces(rest) + pull])
