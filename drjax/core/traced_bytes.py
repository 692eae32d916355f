"""Bytes that a traced program holds, read from its equations: nothing is compiled or run."""

from __future__ import annotations

import math
from typing import Any

import jax
from jax.extend import core as jex_core

from drjax.core import named_calls

_ELEMENTWISE = frozenset({"sub", "add", "mul", "integer_pow", "square", "broadcast_in_dim", "convert_element_type"})
_REDUCTIONS = frozenset({"reduce_sum", "reduce_max", "reduce_min"})


def n_bytes(aval: Any) -> int:
    """Bytes of what a variable stands for."""
    # Typed keys and tokens have no itemsize of their own; 8 bytes is a threefry key's.
    return math.prod(getattr(aval, "shape", ())) * getattr(getattr(aval, "dtype", None), "itemsize", 8)


def peak_bytes(jaxpr: jex_core.Jaxpr) -> int:
    """Largest number of bytes alive at once when the equations run in order; arguments live throughout."""
    last_use: dict[Any, int] = {}
    for i, eqn in enumerate(jaxpr.eqns):
        for var in eqn.invars:
            if not isinstance(var, jex_core.Literal):
                last_use[var] = i
    for var in jaxpr.outvars:
        if not isinstance(var, jex_core.Literal):
            last_use[var] = len(jaxpr.eqns)
    fused = _fused(jaxpr)
    live = sum(n_bytes(v.aval) for v in (*jaxpr.invars, *jaxpr.constvars))
    peak = live
    for i, eqn in enumerate(jaxpr.eqns):
        inner = [peak_bytes(sub) for param in _params(eqn) for sub in _sub_jaxprs(param)]
        live += sum(n_bytes(v.aval) for v in eqn.outvars if v not in fused)
        peak = max(peak, live + max(inner, default=0))
        dead = {v for v in (*eqn.invars, *eqn.outvars) if not isinstance(v, jex_core.Literal)}
        arguments = {*jaxpr.invars, *jaxpr.constvars}
        dead -= arguments | fused
        live -= sum(n_bytes(v.aval) for v in dead if last_use.get(v, i) <= i)
    return peak


def _fused(jaxpr: jex_core.Jaxpr) -> set[Any]:
    """Results of elementwise operations that only a reduction reads, maybe through others: never in memory whole."""
    readers: dict[Any, list[Any]] = {}
    for eqn in jaxpr.eqns:
        for var in eqn.invars:
            if not isinstance(var, jex_core.Literal):
                readers.setdefault(var, []).append(eqn)
    kept = {var for var in jaxpr.outvars if not isinstance(var, jex_core.Literal)}
    fused: set[Any] = set()
    for eqn in reversed(jaxpr.eqns):
        if eqn.primitive.name in _ELEMENTWISE and len(eqn.outvars) == 1:
            (var,) = eqn.outvars
            others = readers.get(var, [])
            if var not in kept and others and all(_reads_in_passing(other, fused) for other in others):
                fused.add(var)
    return fused


def _reads_in_passing(eqn: Any, fused: set[Any]) -> bool:
    return eqn.primitive.name in _REDUCTIONS or all(var in fused for var in eqn.outvars)


def host_bytes(jaxpr: jex_core.Jaxpr) -> int:
    """Bytes of all operands of calls to the host."""
    total = 0
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "pure_callback" or eqn.params.get("target_name") == named_calls.TARGET:
            total += sum(n_bytes(v.aval) for v in eqn.invars)
        total += sum(host_bytes(sub) for param in _params(eqn) for sub in _sub_jaxprs(param))
    return total


def _params(eqn: Any) -> list[Any]:
    """Parameters of an equation; of branches for different platforms only the one that will run here."""
    platforms = eqn.params.get("branches_platforms")
    if platforms is None:
        return list(eqn.params.values())
    here = jax.default_backend()
    return [b for b, p in zip(eqn.params["branches"], platforms, strict=True) if p is None or here in p][:1]


def _sub_jaxprs(param: Any) -> list[jex_core.Jaxpr]:
    if isinstance(param, jex_core.ClosedJaxpr):
        return [param.jaxpr]
    if isinstance(param, jex_core.Jaxpr):
        return [param]
    if isinstance(param, (tuple, list)):
        return [jaxpr for entry in param for jaxpr in _sub_jaxprs(entry)]
    return []
