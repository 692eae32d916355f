"""`drjax doctor`: what of drjax works on this machine, what is missing, and how to mend it."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from packaging.requirements import Requirement

import drjax
from drjax.core import compiled, host, memory, programs
from drjax.core.store import cache_dir
from drjax.data.sources import DATA_VARIABLE, available
from drjax.dr import PCA

LEAST_BYTES = 2 * 10**9
"""Memory below which the usual audits are refused."""

MOST_ERROR = 1e-6
"""Mean squared error of the trial's record, features from 0 to 1, up to which it is taken back."""


class Line(NamedTuple):
    """What was found of one thing.

    Attributes:
        name: The thing.
        words: What was found.
        mend: What to do; empty where nothing is wrong.
    """

    name: str
    words: str
    mend: str = ""


def doctor(*, quick: bool = False) -> None:
    """Say what drjax finds on this machine, and try it on one release; exit with 1 where something is to be mended.

    Args:
        quick: Leave out the trial, which takes some seconds, or a minute where nothing was compiled before.
    """
    is_well = True
    for line in _lines(quick):
        print(f"{line.name}: {line.words}")
        if line.mend:
            print(f"    MEND: {line.mend}")
        is_well &= not line.mend
    if not is_well:
        sys.exit(1)


def _lines(quick: bool) -> Iterator[Line]:
    yield Line("drjax", f"{drjax.__version__}, Python {platform.python_version()}, {platform.platform()}")
    requirements = [Requirement(text) for text in importlib.metadata.requires("drjax") or ()]
    yield _packages([one for one in requirements if one.marker is None])
    yield _extras([one for one in requirements if one.marker is not None])
    yield _devices()
    yield _memory()
    yield _programs()
    yield _kernels()
    yield _data()
    if not quick:
        yield _trial()


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _packages(requirements: list[Requirement]) -> Line:
    """What drjax always needs, in versions that it allows."""
    found = {one: _version(one.name) for one in requirements}
    words = ", ".join(f"{one.name} {version}" for one, version in found.items())
    wrong = [
        str(one)
        for one, version in found.items()
        if version is None or not one.specifier.contains(version, prereleases=True)
    ]
    return Line("Packages", words, f"pip install {' '.join(repr(text) for text in wrong)}" if wrong else "")


def _extras(requirements: list[Requirement]) -> Line:
    """Which extras are installed, whole; those for developers aside."""
    extras: dict[str, list[Requirement]] = {}
    for name in importlib.metadata.metadata("drjax").get_all("Provides-Extra") or ():
        mine = [one for one in requirements if one.marker is not None and one.marker.evaluate({"extra": name})]
        if all(one.name != "drjax" for one in mine) and name != "test":
            extras[name] = mine
    there = {
        name: all(one.specifier.contains(_version(one.name) or "0", prereleases=True) for one in mine)
        for name, mine in extras.items()
    }
    found, missing = ([name for name, is_there in there.items() if is_there == wanted] for wanted in (True, False))
    words = f"{', '.join(found) or 'none'} installed"
    more = f"; pip install 'drjax[NAME]' adds {', '.join(missing)}" if missing else ""
    return Line("Extras", words + more)


def _devices() -> Line:
    found = jax.devices()
    kinds = ", ".join(sorted({device.device_kind for device in found}))
    return Line(
        "Devices", f"{len(found)} {found[0].platform} ({kinds}), {host.n_cores()} cores for what runs on the host"
    )


def _memory() -> Line:
    left = memory.available()
    if left is None:
        return Line("Memory", "the system does not say how much is available; audits are not refused for lack of it")
    mend = "" if left >= LEAST_BYTES else f"free some: usual audits take up to {memory.in_words(LEAST_BYTES)}"
    return Line("Memory", f"{memory.in_words(left)} available", mend)


def _programs() -> Line:
    folder = programs.keep_programs()
    if folder is None:
        off = "not kept: every process compiles them anew"
        return Line("Compiled programs", off, f"let {cache_dir()} be written, or name a JAX_COMPILATION_CACHE_DIR")
    count, n_bytes = programs.size(folder)
    return Line("Compiled programs", f"{count:,} in {folder}, {memory.in_words(n_bytes)}", _unwritable(folder))


def _kernels() -> Line:
    folder = compiled.kept_in()
    if folder is None:
        return Line(
            "Compiled kernels", "not kept: every process compiles them anew", "let NUMBA_CACHE_DIR name a folder"
        )
    return Line("Compiled kernels", f"kept by numba in {folder} and folders like it", _unwritable(folder))


def _unwritable(folder: Path) -> str:
    """What to do where a folder cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return ""
    except OSError as error:
        return f"{folder} cannot be written ({error.strerror}): what is compiled is lost with each process"


def _data() -> Line:
    found = available()
    there = [one.name for one in found if one.present]
    folder = os.environ.get(DATA_VARIABLE)
    where = f"{DATA_VARIABLE} is {folder}" if folder else f"{DATA_VARIABLE} is not set, {cache_dir()} is looked into"
    words = f"{len(there)} of {len(found)} named sets are here ({where}): {', '.join(there)}"
    is_missing = folder is not None and not Path(folder).is_dir()
    return Line("Data", words, f"let {DATA_VARIABLE} name a folder: {folder} is none" if is_missing else "")


def _trial() -> Line:
    """Takes a record back out of principal components, which the closed form does to rounding."""
    begun = time.perf_counter()
    x = drjax.load("digits").x[:100]
    found = drjax.attack(x[1:], drjax.embed(x, method=PCA.name), method=PCA.name)
    assert not isinstance(found, tuple)
    error, seconds = float(np.mean((found.found.x - x[0]) ** 2)), time.perf_counter() - begun
    words = (
        f"a record of 100 was taken back out of two principal components, squared error {error:.0e}, in {seconds:.0f} s"
    )
    mend = "" if error <= MOST_ERROR else "report this with all lines above: the attack works on other machines"
    return Line("Trial", words, mend)
