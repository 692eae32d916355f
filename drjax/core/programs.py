"""Compiled programs kept on disk, so that a second process runs at once what the first had to compile.

JAX has such a cache and leaves it off; importing drjax changes no setting of JAX. The commands and benchmarks switch
it on, a script does with one call. Programs hold code, shapes and hyperparameters; records are their operands.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import stat
import tempfile
import threading
import warnings
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.monitoring

from drjax.core.compiled import NoCacheWarning
from drjax.core.store import cache_dir

VARIABLE = "DRJAX_KEEP_PROGRAMS"
"""0 in the environment: nothing is kept, unless JAX itself is told to."""

MOST_BYTES = 2 * 2**30
"""What is kept at most, at the start of a process; the programs not used for longest go."""

LEAST_FREE = 2**28
"""Bytes free on the disk below which nothing is kept."""

_DEFAULT_SECONDS = 1.0
_FOUND = "/jax/compilation_cache/cache_hits"
_COMPILED = "/jax/core/compile/backend_compile_duration"
_TRACED = ("/jax/core/compile/jaxpr_trace_duration", "/jax/core/compile/jaxpr_to_mlir_module_duration")
_PROGRAM = re.compile(r".+-[0-9a-f]{64}-cache")


def keep_programs(folder: str | Path | None = None) -> Path | None:
    """Keeps what JAX compiles in this process from now on, and finds what earlier processes kept.

    For scripts; call it before the work. The commands do. On a GPU the choices of XLA's autotuner are kept too.
    Settings of JAX that are there already win: with `jax_compilation_cache_dir` set, by JAX_COMPILATION_CACHE_DIR or in
    the script, nothing is changed, and JAX_ENABLE_COMPILATION_CACHE=0 or DRJAX_KEEP_PROGRAMS=0 keep it off. Any number
    of processes may share a folder. It costs a directory listing; programs that took any time to compile are kept,
    a few kilobytes each.

    Args:
        folder: Where; `xla` in the user's cache directory if None. Made with mode 0700. Only who may run code as you
            may write to it: JAX runs what it finds there. So a folder that others can write to is not used.

    Returns:
        The folder where programs are kept, or None where they are not. A folder that cannot be used costs time and
        not the run: there is one `NoCacheWarning`.

    Raises:
        ValueError: DRJAX_KEEP_PROGRAMS is neither 0 nor 1.

    Example:
        >>> from drjax.core.programs import keep_programs
        >>> kept = keep_programs()
    """
    is_wanted = _is_wanted()
    if not jax.config.values["jax_enable_compilation_cache"]:
        return None
    there = jax.config.values["jax_compilation_cache_dir"]
    if there is not None:
        return Path(there) if there else None
    if not is_wanted:
        return None
    path = Path(cache_dir() / "xla" if folder is None else folder).expanduser().absolute()
    reason = _refusal(path)
    if reason is not None:
        _warn(f"{reason}: {path}")
        return None
    jax.config.update("jax_compilation_cache_dir", str(path))
    if jax.config.values["jax_persistent_cache_min_compile_time_secs"] == _DEFAULT_SECONDS:
        # A hundred programs of a tenth of a second each are what a first call waits for.
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    return path


@dataclass
class Programs:
    """What a piece of work made JAX do: see `watched`.

    Attributes:
        compiled: Programs that XLA compiled.
        found: Programs that were found on disk.
        compile_s: Seconds of the compiled ones.
        found_s: Seconds of the found ones, reading included.
        trace_s: Seconds of tracing and lowering both; what is traced within another counts twice.
    """

    compiled: int = 0
    found: int = 0
    compile_s: float = 0.0
    found_s: float = 0.0
    trace_s: float = 0.0


@contextmanager
def watched() -> Generator[Programs]:
    """Counts the programs of all threads of this process until the block is left."""
    seen = Programs()
    finders: set[int] = set()

    def on_event(event: str, **_: Any) -> None:
        if event == _FOUND:
            finders.add(threading.get_ident())

    def on_duration(event: str, duration_secs: float, **_: Any) -> None:
        if event in _TRACED:
            seen.trace_s += duration_secs
        elif event == _COMPILED:  # follows in the same thread
            if threading.get_ident() in finders:
                finders.discard(threading.get_ident())
                seen.found, seen.found_s = seen.found + 1, seen.found_s + duration_secs
            else:
                seen.compiled, seen.compile_s = seen.compiled + 1, seen.compile_s + duration_secs

    jax.monitoring.register_event_listener(on_event)
    jax.monitoring.register_event_duration_secs_listener(on_duration)
    try:
        yield seen
    finally:
        jax.monitoring.unregister_event_listener(on_event)
        jax.monitoring.unregister_event_duration_listener(on_duration)


def _is_wanted() -> bool:
    value = os.environ.get(VARIABLE, "1")
    if value not in ("0", "1"):
        raise ValueError(f"{VARIABLE} must be 0 or 1, got {value!r}")
    return value == "1"


def _refusal(path: Path) -> str | None:
    """Why programs cannot be kept in this folder, which is made and cleared out; None where they can."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.name == "posix" and not _is_own(path.stat()):
            return "others can write to it"
        with tempfile.TemporaryFile(dir=path):
            pass
        if jax.config.values["jax_compilation_cache_max_size"] == -1:
            _clear_out(path, MOST_BYTES)
        if shutil.disk_usage(path).free < LEAST_FREE:
            return "the disk is nearly full"
    except OSError as error:
        return error.strerror or type(error).__name__
    return None


def _is_own(found: os.stat_result) -> bool:
    return found.st_uid == os.geteuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _clear_out(path: Path, most: int) -> None:
    """Deletes the programs that were not used for longest until `most` bytes are left, less a quarter.

    JAX's own limit, `jax_compilation_cache_max_size`, looks at every program for each one that it keeps, and fails on
    those that were kept without it.
    """
    kept = list(_kept(path))
    left = sum(size for _, size, _ in kept)
    if left <= most:
        return
    for _, size, name in sorted(kept):
        if left <= 3 * most // 4:
            return
        # Another process may have deleted it.
        Path(name).unlink(missing_ok=True)
        left -= size


def size(folder: Path) -> tuple[int, int]:
    """Number and bytes of the programs kept in a folder."""
    if not folder.is_dir():
        return 0, 0
    found = [n_bytes for _, n_bytes, _ in _kept(folder)]
    return len(found), sum(found)


def _kept(path: Path) -> Iterator[tuple[float, int, str]]:
    """Time of the last use, bytes and path of every program in the folder; other files are none of our business."""
    with os.scandir(path) as entries:
        for entry in entries:
            if not _PROGRAM.fullmatch(entry.name):
                continue
            try:
                found = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            yield max(found.st_atime, found.st_mtime), found.st_size, entry.path


@functools.cache
def _warn(reason: str) -> None:
    warnings.warn(
        f"compiled programs are not kept, every process compiles them anew: {reason}. JAX_COMPILATION_CACHE_DIR may "
        f"name another folder; {VARIABLE}=0 keeps none and says nothing",
        NoCacheWarning,
        stacklevel=3,
    )
