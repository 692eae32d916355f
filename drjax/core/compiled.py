"""The one way to compile a kernel with numba: cached on disk where that works, compiled in every process where not."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import numba
from numba.core.caching import FunctionCache
from numba.core.dispatcher import Dispatcher


class NoCacheWarning(UserWarning):
    """Kernels or programs are compiled anew in every process, because what was compiled cannot be kept."""


def njit(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """`numba.njit` with a cache where there can be one; with or without parentheses.

    Division by zero gives what NumPy gives, and the interpreter's lock is let go of. numba's own `cache=True` raises
    where no directory can be written to, and when the disk is full later; then there is one `NoCacheWarning` here.

    Args:
        function: Function to be compiled, for its arguments' types as they come.
        **options: Options of `numba.njit`, over these defaults; not `cache`.

    Returns:
        numba's dispatcher, or without a function what makes one of it.

    Raises:
        ValueError: `cache` among the options.
    """
    if "cache" in options:
        raise ValueError(f"options must be without cache, which is always tried, got {options['cache']!r}")

    def compiled(function: Callable[..., Any]) -> Any:
        found: Any = numba.njit(**({"error_model": "numpy", "nogil": True} | options))(function)
        if isinstance(found, Dispatcher):  # with NUMBA_DISABLE_JIT it is the function
            try:
                # What `cache=True` sets, and nothing public sets to a cache of one's own.
                found._cache = _Cache(function)  # pyright: ignore[reportAttributeAccessIssue]
            except (RuntimeError, OSError):  # no directory; or one that went away at once
                _warn("no directory for it can be written to")
        return found

    return compiled if function is None else compiled(function)


class _Cache(FunctionCache):
    """A cache that costs a run its time and not its life."""

    def load_overload(self, *args: Any) -> Any:
        """What was compiled before, or None; also where the file is damaged, which may raise anything."""
        try:
            return super().load_overload(*args)
        except Exception as error:
            _warn(f"{_reason(error)}: {self.cache_path}")
            return None

    def save_overload(self, *args: Any) -> None:
        """Keeps what was compiled."""
        try:
            super().save_overload(*args)
        except Exception as error:  # OSError, or what unpickling a damaged index raises
            self.disable()
            _warn(f"{_reason(error)}: {self.cache_path}")


def _reason(error: Exception) -> str:
    """Without the file, which every kernel has for itself."""
    return (isinstance(error, OSError) and error.strerror) or f"it is damaged ({type(error).__name__})"


@functools.cache
def _warn(reason: str) -> None:
    """Once for a reason, however many kernels there are."""
    warnings.warn(
        f"numba's cache is not used, kernels are compiled anew: {reason}. NUMBA_CACHE_DIR may name another directory",
        NoCacheWarning,
        stacklevel=2,
    )
