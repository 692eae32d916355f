"""Branches of a program by platform, of which a process traces only those that it can run."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import jax
from jax.extend import backend

_FOR_ALL = jax.make_user_context(default_value=False)


def for_all() -> AbstractContextManager[None]:
    """Context in which programs hold the branches of all platforms: what `jax.export` to another platform needs.

    Example:
        >>> import jax, numpy as np
        >>> from drjax.core import platforms
        >>> double = jax.jit(lambda x: platforms.by_platform(x, cpu=lambda x: x + x, default=lambda x: 2 * x))
        >>> with platforms.for_all():
        ...     jax.export.export(double, platforms=["tpu"])(np.ones(3, np.float32)).platforms
        ('tpu',)
    """
    return _FOR_ALL(True)


def by_platform(*operands: Any, default: Callable[..., Any], **branches: Callable[..., Any]) -> Any:
    """As `jax.lax.platform_dependent`: the branch of the platform that runs it, else `default`.

    In a process whose only devices are CPUs, the CPU's branch alone is traced: tracing all of them is most of what a
    first call of t-SNE or UMAP takes. Everywhere else, and within `for_all`, the program holds all branches.

    Args:
        *operands: Pytrees of arrays that the branch is called with.
        default: Branch of platforms without one of their own.
        **branches: Branches by platform: cpu, cuda, tpu.
    """
    if _FOR_ALL.value or set(backend.backends()) != {"cpu"}:
        return jax.lax.platform_dependent(*operands, default=default, **branches)
    return branches.get("cpu", default)(*operands)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def on_cpu_or(cpu: Callable[..., Any], default: Callable[..., Any], *operands: Any) -> Any:
    """`by_platform` where the CPU's branch is compiled code without a derivative: `default` is differentiated.

    Where a derivative is asked for, the values are those of `default`, too. Differentiable in both modes, as often as
    `default` is.

    Args:
        cpu: Branch of CPUs.
        default: Branch of other platforms, which gives the same up to rounding.
        *operands: Pytrees of arrays that the branch is called with.
    """
    return by_platform(*operands, cpu=cpu, default=default)


@on_cpu_or.defjvp
def _derivative(cpu: Callable[..., Any], default: Callable[..., Any], primals: tuple, tangents: tuple) -> Any:
    del cpu
    return jax.jvp(default, primals, tangents)
