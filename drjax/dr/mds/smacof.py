"""SMACOF for many data sets that share all dissimilarities but those of their first point: devices and derivatives."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from drjax.core import host, platforms
from drjax.core.types import Array
from drjax.dr.mds.cpu import smacof_batch
from drjax.dr.mds.xla import Rule, fixed_loop, forces_in_xla, in_xla


def smacof(
    dissimilarities: Array, start: Array, *, max_iter: int = 300, eps: float = 1e-6
) -> tuple[Array, Array, Array, Array]:
    """Metric SMACOF from a given start; pure XLA, differentiable in both modes (see `best_of_starts`).

    Args:
        dissimilarities: (n, n), symmetric, zero diagonal.
        start: (n, k).
        max_iter: Largest number of iterations, >= 1.
        eps: Stops when the stress falls by less than this share of the sum of squared distances.

    Returns:
        coords (n, k), raw stress (), iterations () int32, stopped by eps () bool.
    """
    dissimilarities, start = jnp.asarray(dissimilarities), jnp.asarray(start)
    between, row = dissimilarities[1:, 1:], dissimilarities[0, 1:]
    results = best_of_starts(Rule(max_iter, eps), False, between, row[None], start[None, None])
    return tuple(part[0] for part in results)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def best_of_starts(
    rule: Rule, on_host: bool, between: Array, rows: Array, starts: Array
) -> tuple[Array, Array, Array, Array]:
    """SMACOF of b data sets that share all dissimilarities but those of their first point.

    On a CPU one call of compiled code if `on_host`, else XLA, where finished lanes leave the batch. Differentiable in
    both modes: the derivative is that of the iterations that were made, each followed exactly. On a CPU that took 2 to
    4 times (forward) and 4 to 6 times (reverse) as long as the loop; reverse mode keeps max_iter n k numbers per start.

    Args:
        rule: Stopping rule.
        on_host: Whether a CPU runs `mds.cpu`; the results agree up to rounding.
        between: (n-1, n-1), dissimilarities of the shared points.
        rows: (b, n-1), of each data set's first point to them.
        starts: (b, n_init, n, k).

    Returns:
        coords (b, n, k), stress (b,), iterations (b,) and stopped by eps (b,) of the start with the least stress.
    """
    if on_host:
        cpu, default = (functools.partial(f, rule) for f in (_on_host, in_xla))
        return platforms.by_platform(between, rows, starts, cpu=cpu, default=default)
    return in_xla(rule, between, rows, starts)


def _derivative(rule: Rule, on_host: bool, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
    # Neither compiled code on the host nor, in reverse mode, a while loop can be differentiated. The same steps in a
    # loop of fixed length can; where a lane stops is locally constant.
    del on_host
    # Mostly only the rows and starts move. Zeros for what is shared would cost a pass over all pairs each time.
    moving = [i for i, change in enumerate(tangents) if not isinstance(change, SymbolicZero)]

    def solve(*moved: Array) -> tuple[Array, ...]:
        args = list(primals)
        for i, arg in zip(moving, moved, strict=True):
            args[i] = arg
        return in_xla(rule, *args, loop=fixed_loop, forces=forces_in_xla)

    return jax.jvp(solve, [primals[i] for i in moving], [tangents[i] for i in moving])


best_of_starts.defjvp(_derivative, symbolic_zeros=True)


def _on_host(rule: Rule, between: Array, rows: Array, starts: Array) -> tuple[Array, Array, Array, Array]:
    b, _, n, k = starts.shape
    shapes = (
        jax.ShapeDtypeStruct((b, n, k), starts.dtype),
        jax.ShapeDtypeStruct((b,), starts.dtype),
        jax.ShapeDtypeStruct((b,), jnp.int32),
        jax.ShapeDtypeStruct((b,), jnp.bool_),
    )

    solve = functools.partial(smacof_batch, max_iter=rule.max_iter, eps=rule.eps)
    return host.call(solve, shapes, between, rows, starts)
