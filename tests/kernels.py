"""Kernels of numba that are not drjax's own: kept between runs, whatever environment and clone they are of."""

import functools
import hashlib
import importlib
import sys
from importlib import metadata
from pathlib import Path

import numba
from numba.core import caching
from numba.core.dispatcher import Dispatcher

from drjax.core import compiled
from drjax.dr.umap import reference

_single_thread = reference._single_thread

LIBRARIES = {"umap": "umap-learn", "pynndescent": "pynndescent"}
"""Packages whose kernels are kept, and the distributions that they are of."""

EXPERIMENTS = Path(__file__).parents[1] / "experiments"


@functools.cache
def _stamp(folder: Path) -> str:
    """What decides how the kernels of a folder are compiled: NUMBA_OPT, versions, and texts of its own and of drjax."""
    parts = [numba.config.OPT, *(metadata.version(name) for name in (*LIBRARIES.values(), "numba", "numpy"))]
    own = sorted(folder.glob("*.py"))
    texts = [str(part).encode() for part in parts] + [compiled.stamp(file).encode() for file in own]
    return hashlib.sha256(b"\0".join(texts)).hexdigest()[:16]


def _name(file: Path) -> str | None:
    """The folder of a file as its package has it; None for a file of anybody else."""
    if file.is_relative_to(EXPERIMENTS):
        return "-".join(file.relative_to(EXPERIMENTS.parent).parent.parts)
    if file.parent.name in LIBRARIES and file.parent.parent.name == "site-packages":
        return file.parent.name
    return None


class OfOthers(caching.UserProvidedCacheLocator):
    """Fresh as long as its folder's texts are the same, in the folder of NUMBA_CACHE_DIR.

    numba's own locator goes by the path and the time of the file, which are others in each environment and clone.
    """

    def get_source_stamp(self) -> str:
        """A digest of the folder."""
        return _stamp(Path(self._py_file).parent)

    @classmethod
    def get_suitable_cache_subpath(cls, py_file: str) -> str:
        """The folder and its digest."""
        file = Path(py_file)
        return f"{_name(file)}-{_stamp(file.parent)}"

    @classmethod
    def from_function(cls, py_func, py_file: str):
        """None for a kernel of anybody else."""
        return super().from_function(py_func, py_file) if _name(Path(py_file)) else None


def keep() -> None:
    """Has all kernels that are made from now on kept so."""
    reference._single_thread = in_pool
    for place in (caching.CacheImpl, compiled._Kept):
        setattr(place, "_locator_classes", [OfOthers, *place._locator_classes])  # noqa: B010 (numba says list, we tuple)


def keep_uncached() -> None:
    """Has those kernels of the libraries kept too that they compile in each process: eight seconds for umap-learn."""
    modules = [module for name, module in sys.modules.items() if name.partition(".")[0] in LIBRARIES]
    for kernel in {id(value): value for module in modules for value in vars(module).values()}.values():
        if isinstance(kernel, Dispatcher) and isinstance(getattr(kernel, "_cache", None), caching.NullCache):
            kernel.enable_caching()


def in_pool() -> None:
    """What starts a process of the pool that runs umap-learn."""
    _single_thread()
    keep()
    importlib.import_module("umap")
    keep_uncached()
