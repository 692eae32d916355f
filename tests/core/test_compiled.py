"""Kernels compile wherever they run; a cache is a gain in time and nothing else."""

import ast
import errno
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import numba
import numba.core.caching
import pytest

from drjax.core import compiled
from drjax.core.compiled import NoCacheWarning, njit

ROOT = Path(__file__).parents[2]
HOME = ROOT / "drjax" / "core" / "compiled.py"


def half(x):
    return 1.0 / x


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A directory of numba's cache that is all a kernel may use."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "cache"))
    locators = [numba.core.caching.UserProvidedCacheLocator]
    monkeypatch.setattr(numba.core.caching.CacheImpl, "_locator_classes", locators)
    monkeypatch.setattr(compiled._Kept, "_locator_classes", [compiled._Named, *locators])
    compiled._warn.cache_clear()
    return tmp_path / "cache"


def files(cache):
    return sorted(path.suffix for path in cache.rglob("*") if path.is_file())


@pytest.mark.parametrize("decorate", [njit, njit(), njit(fastmath=True)])
def test_a_kernel_is_kept_and_found_again(cache, decorate):
    assert decorate(half)(4.0) == 0.25
    assert files(cache) == [".nbc", ".nbi"]
    again = decorate(half)
    assert again(0.0) == float("inf")  # NumPy's error model
    assert sum(again.stats.cache_hits.values()) == 1


def times(package, monkeypatch, factor):
    """The kernel `times` of a package, which takes its factor from another module, which has it from a third."""
    package.mkdir(parents=True, exist_ok=True)
    (package / "numbers.py").write_text(f"FACTOR = {factor}\n")
    (package / "__init__.py").write_text(f"from {package.name} import numbers\nFACTOR = numbers.FACTOR\n")
    home = package / "times.py"
    home.write_text(f"from {package.name} import FACTOR\n@njit\ndef times(x):\n    return FACTOR * x\n")
    names = {"FACTOR": factor, "njit": lambda function: function}
    exec(compile(home.read_text().partition("\n")[2], str(home), "exec"), names)
    monkeypatch.setattr(compiled, "PACKAGE", package)
    for kept in (compiled._digest, compiled._texts):
        kept.cache_clear()
    return njit(names["times"])


@pytest.mark.usefixtures("cache")
def test_a_kernel_is_found_wherever_its_package_lies(tmp_path, monkeypatch):
    assert times(tmp_path / "one" / "package", monkeypatch, 2)(1.5) == 3
    elsewhere = times(tmp_path / "two" / "package", monkeypatch, 2)
    assert elsewhere(1.5) == 3
    assert sum(elsewhere.stats.cache_hits.values()) == 1


@pytest.mark.parametrize("locator", ["_Named", "_InTree"])
@pytest.mark.usefixtures("cache")
def test_a_kernel_is_compiled_anew_when_another_module_or_the_level_changes(tmp_path, monkeypatch, locator):
    monkeypatch.setattr(compiled._Kept, "_locator_classes", [getattr(compiled, locator)])
    assert times(tmp_path / "one", monkeypatch, 2)(1.5) == 3
    (tmp_path / "one" / "other.py").write_text("@njit\ndef other(x):\n    return x\n")
    again = times(tmp_path / "one", monkeypatch, 2)
    assert again(1.5) == 3
    assert sum(again.stats.cache_hits.values()) == 1
    monkeypatch.setattr(numba.config, "OPT", type(numba.config.OPT)(0))
    quick = times(tmp_path / "one", monkeypatch, 2)
    assert quick(1.5) == 3
    assert not quick.stats.cache_hits
    assert times(tmp_path / "one", monkeypatch, 5)(1.5) == 7.5


@pytest.mark.usefixtures("cache")
def test_options_of_the_caller_go_before_the_defaults():
    assert njit(fastmath=True)(half).targetoptions["fastmath"] is True
    assert njit(half).targetoptions["nogil"] is True
    assert njit(nogil=False)(half).targetoptions["nogil"] is False
    with pytest.raises(ZeroDivisionError):
        njit(error_model="python")(half)(0.0)
    with pytest.raises(ValueError, match="options must be without cache"):
        njit(cache=True)(half)


def test_without_a_directory_a_kernel_is_compiled_and_one_line_says_so(cache):
    cache.write_text("a file where a directory should be")
    with pytest.raises(RuntimeError, match="cannot cache"):
        numba.njit(cache=True)(half)
    with pytest.warns(NoCacheWarning, match="compiled anew: no directory .*NUMBA_CACHE_DIR"):
        kernel = njit(half)
    assert kernel(4.0) == 0.25


def test_a_directory_that_is_gone_when_a_kernel_is_to_be_kept_ends_no_run(cache):
    kernel = njit(half)
    shutil.rmtree(cache)
    cache.write_text("")
    with pytest.warns(NoCacheWarning):
        assert kernel(4.0) == 0.25
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert kernel(4) == 0.25  # not tried again


def test_a_full_disk_ends_no_run_and_leaves_nothing_that_spoils_the_next(cache, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(numba.core.caching.IndexDataCacheFile, "_save_data", full)
        with pytest.warns(NoCacheWarning, match="No space left"):
            assert njit(half)(4.0) == 0.25
    assert njit(half)(4.0) == 0.25
    assert files(cache) == [".nbc", ".nbi"]


@pytest.mark.parametrize("suffix", [".nbc", ".nbi"])
def test_a_damaged_file_is_compiled_again(cache, suffix):
    njit(half)(4.0)
    for path in cache.rglob("*" + suffix):
        path.write_bytes(path.read_bytes()[:40])
    with pytest.warns(NoCacheWarning):
        assert njit(half)(4.0) == 0.25


def test_a_kernel_calls_another_that_could_not_be_kept(cache):
    inner = njit(half)
    shutil.rmtree(cache)
    cache.write_text("")
    with pytest.warns(NoCacheWarning):
        assert njit(lambda x: 2 * inner(x))(4.0) == 0.5


def test_everything_imports_without_a_setting_of_jax_and_runs_where_no_cache_is_writable():
    # Locators by name: a root user may write anywhere else.
    nowhere = {"NUMBA_CACHE_DIR": os.devnull + "/x", "NUMBA_CACHE_LOCATOR_CLASSES": "UserProvidedCacheLocator"}
    program = """
import textwrap, warnings
import jax, numba, numpy as np
settings = dict(jax.config.values)
try:
    numba.njit(cache=True)(textwrap.dedent)
except RuntimeError:
    print("no cache")
with warnings.catch_warnings(record=True) as said:
    import drjax.audits, drjax.dr, drjax.synthesis
    from drjax.attacks.property import pair_distances
    from drjax.cli import main
    found = pair_distances.pair_distances(np.eye(3)[:, :2], 1, (2.0,), 0.5, 9)
assert found.counts.tolist() == [[3]] * 3
print([one.category.__name__ for one in said])
import bench.harness, drjax.core.programs, drjax.releases, drjax.sklearn
print("settings of JAX unchanged:", dict(jax.config.values) == settings)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=os.environ | nowhere, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["no cache", "['NoCacheWarning']", "settings of JAX unchanged: True"]


def uses_of_numba(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in ("njit", "jit", "vectorize", "guvectorize", "stencil"):
            if isinstance(node.value, ast.Name) and node.value.id in ("numba", "nb"):
                yield node.lineno
        elif isinstance(node, ast.ImportFrom) and node.module == "numba":
            if {alias.name for alias in node.names} & {"njit", "jit", "vectorize", "guvectorize", "stencil"}:
                yield node.lineno
        elif isinstance(node, ast.keyword) and node.arg == "cache":
            yield node.value.lineno


def test_every_kernel_is_compiled_by_the_one_wrapper():
    direct = [
        f"{path.relative_to(ROOT)}:{line}"
        for folder in ("drjax", "experiments", "bench")
        for path in (ROOT / folder).rglob("*.py")
        if path != HOME
        for line in uses_of_numba(ast.parse(path.read_text()))
    ]
    assert direct == []
    assert list(uses_of_numba(ast.parse("@numba.njit(cache=True)\ndef f(): pass"))) != []
