"""The one way to compile a kernel with numba: cached on disk where that works, compiled in every process where not."""

from __future__ import annotations

import functools
import hashlib
import re
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numba
from numba.core import caching
from numba.core.dispatcher import Dispatcher

PACKAGE = Path(__file__).parents[1]
"""Folder of the package that kernels are of."""


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
        given: dict[str, Any] = {"error_model": "numpy", "nogil": True} | options
        found: Any = numba.njit(**given)(function)
        if isinstance(found, Dispatcher):  # with NUMBA_DISABLE_JIT it is the function
            try:
                # What `cache=True` sets, and nothing public sets to a cache of one's own.
                found._cache = _Cache(function)  # pyrefly: ignore[missing-attribute]
            except (RuntimeError, OSError):  # no directory; or one that went away at once
                _warn("no directory for it can be written to")
        return found

    return compiled if function is None else compiled(function)


def stamp(file: Path) -> str:
    """What decides how the kernels of a file are compiled, in 16 hex digits: NUMBA_OPT, its text, and those of all
    modules of the package that it imports, directly or through others."""
    return _digest(PACKAGE, file, int(numba.config.OPT))  # pyrefly: ignore[missing-attribute] (set at run time)


@functools.cache
def _digest(package: Path, file: Path, level: int) -> str:
    texts, own = _texts(package), file.read_bytes()
    found, left = {}, _imported(own, texts)
    while left:
        name = left.pop()
        if name not in found:
            found[name] = texts[name]
            left |= _imported(texts[name], texts)
    return hashlib.sha256(b"".join((b"%d" % level, own, *(found[name] for name in sorted(found))))).hexdigest()[:16]


@functools.cache
def _texts(package: Path) -> dict[str, bytes]:
    """The modules of a package by their paths, such as drjax/core/compiled; a package's own is that of its folder."""
    named = {path.relative_to(package.parent).with_suffix(""): path for path in package.rglob("*.py")}
    return {(n.parent if n.name == "__init__" else n).as_posix(): path.read_bytes() for n, path in named.items()}


def _imported(text: bytes, texts: Mapping[str, bytes]) -> set[str]:
    """Those of some modules that another imports, and those that it imports anything else from."""
    found = set()
    for base, names in re.findall(rb"^from (\S+) import (\([^)]*\)|.*)$", text, re.MULTILINE):
        folder = base.decode().replace(".", "/")
        named = {f"{folder}/{name.decode()}" for name in re.findall(rb"\w+", names)}
        found |= named if named <= texts.keys() else {folder, *named}
    return found & texts.keys()


class _OfPackage(caching._CacheLocator):
    """Fresh as long as nothing that a kernel is made of changed; numba looks at the kernel's own file alone."""

    _py_file: str

    def get_source_stamp(self) -> Any:
        """A digest of the file and of what it imports."""
        return stamp(Path(self._py_file))

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> Any:
        """None for a kernel of anybody else."""
        return super().from_function(py_func, py_file) if Path(py_file).is_relative_to(PACKAGE) else None


class _Named(_OfPackage, caching.UserProvidedCacheLocator):
    """In the folder of NUMBA_CACHE_DIR, whatever path the package has: each clone finds what another one kept."""

    @classmethod
    def get_suitable_cache_subpath(cls, py_file: str) -> str:
        """The module's folder, and what its kernels are made of."""
        file = Path(py_file)
        return "/".join(("drjax", *file.relative_to(PACKAGE).parent.parts, f"{file.stem}-{stamp(file)}"))


class _InTree(_OfPackage, caching.InTreeCacheLocator):
    """Beside the module."""


class _Kept(caching.CompileResultCacheImpl):
    """Where what was compiled is kept."""

    _locator_classes: Any = (_Named, _InTree, *caching.CacheImpl._locator_classes)


class _Cache(caching.FunctionCache):
    """A cache that costs a run its time and not its life."""

    _impl_class = _Kept

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """What was compiled before, or None; also where the file is damaged, which may raise anything."""
        try:
            return super().load_overload(sig, target_context)
        except Exception as error:
            _warn(f"{_reason(error)}: {self.cache_path}")
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keeps what was compiled."""
        try:
            super().save_overload(sig, data)
        except Exception as error:  # OSError, or what unpickling a damaged index raises
            self.disable()
            _warn(f"{_reason(error)}: {self.cache_path}")


def kept_in() -> Path | None:
    """Folder where kernels of this folder's modules are kept, those of others like it; None where none can be."""
    try:
        return Path(_Cache(_reason).cache_path)
    except RuntimeError:  # numba found no folder that can be written
        return None


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
