"""A pytest plugin that runs scikit-learn's own test files against drjax's estimators.

    pytest -p drjax.sklearn.patch --pyargs sklearn.manifold.tests.test_isomap

Before collection it puts drjax's estimators and functions in the place of scikit-learn's. Tests that drjax is known not
to pass are listed in a TOML file, each with its reason, and marked as strict xfails: one that passes fails the run, and
so does an entry that matches no test.
"""

from __future__ import annotations

import importlib
import os
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import sklearn

import drjax.sklearn
from drjax.core.linalg import blas
from drjax.sklearn import random_projection, tsne_internals

XFAIL_LIST = Path(__file__).with_name("upstream_xfails.toml")

PATCHES: dict[tuple[str, str], Any] = {
    ("sklearn.decomposition", "PCA"): drjax.sklearn.PCA,
    ("sklearn.random_projection", "SparseRandomProjection"): drjax.sklearn.SparseRandomProjection,
    ("sklearn.random_projection", "_sparse_random_matrix"): random_projection.sparse_random_matrix,
    ("sklearn.manifold", "ClassicalMDS"): drjax.sklearn.ClassicalMDS,
    ("sklearn.manifold", "MDS"): drjax.sklearn.MDS,
    ("sklearn.manifold._mds", "MDS"): drjax.sklearn.MDS,
    ("sklearn.manifold._mds", "smacof"): drjax.sklearn.smacof,
    ("sklearn.manifold", "Isomap"): drjax.sklearn.Isomap,
    ("sklearn.manifold", "TSNE"): drjax.sklearn.TSNE,
    ("sklearn.manifold._t_sne", "_gradient_descent"): tsne_internals.gradient_descent,
    ("sklearn.manifold._t_sne", "_joint_probabilities"): tsne_internals.joint_probabilities,
    ("sklearn.manifold._t_sne", "_kl_divergence"): tsne_internals.kl_divergence,
    ("sklearn.manifold._utils", "_binary_search_perplexity"): tsne_internals.binary_search_perplexity,
}
"""What takes the place of which attribute of which module."""

_originals: dict[tuple[str, str], Any] = {}
_results: dict[str, Counter] = {}


class Entry(NamedTuple):
    """Tests expected to fail: a pattern "file.py::test[parameters]" in which * stands for anything, and why."""

    pattern: str
    reason: str

    def matches(self, name: str) -> bool:
        """Whether the test `name` is meant; a pattern without parameters means all of them."""
        found = re.fullmatch(re.escape(self.pattern).replace(r"\*", ".*"), name)
        return found is not None or name.partition("[")[0] == self.pattern


def read_list(path: Path) -> tuple[str, list[Entry]]:
    """The scikit-learn version a list was written for, and its entries.

    Raises:
        ValueError: an entry has no tests or no reason, or a pattern stands there twice.

    Example:
        >>> from pathlib import Path
        >>> import drjax.sklearn
        >>> from drjax.sklearn.patch import read_list
        >>> version, entries = read_list(Path(drjax.sklearn.__file__).parent / "upstream_xfails.toml")
        >>> version.startswith("1."), all(entry.reason for entry in entries)
        (True, True)
    """
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    entries = []
    for group in table["xfail"]:
        reason = group.get("reason", "").strip()
        if not reason or not group.get("tests"):
            raise ValueError(f"each [[xfail]] of {path} must have tests and a reason, got {group}")
        entries += [Entry(pattern, reason) for pattern in group["tests"]]
    twice = [pattern for pattern, count in Counter(entry.pattern for entry in entries).items() if count > 1]
    if twice:
        raise ValueError(f"each pattern of {path} must stand there once, got {twice} more often")
    return table["sklearn_version"], entries


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds --xfail-list."""
    parser.addoption("--xfail-list", type=Path, default=XFAIL_LIST, help="TOML file of tests expected to fail")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """Asks scikit-learn's conftest for its float32 tests as well, unless the environment says otherwise."""
    os.environ.setdefault("SKLEARN_RUN_FLOAT32_TESTS", "1")


def pytest_configure() -> None:
    """Patches, before any test module is imported."""
    for (module, attribute), replacement in PATCHES.items():
        target = importlib.import_module(module)
        _originals[module, attribute] = getattr(target, attribute)
        setattr(target, attribute, replacement)


def pytest_unconfigure() -> None:
    """Puts scikit-learn's own back."""
    while _originals:
        (module, attribute), original = _originals.popitem()
        setattr(importlib.import_module(module), attribute, original)


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop() -> Any:
    """One thread for each BLAS: the tests' matrices are small, and more threads would mostly wait for each other."""
    # Here and not earlier, because scikit-learn's conftest sets the number when tests are collected.
    with blas().limit(limits=1, user_api="blas"):
        return (yield)


def pytest_report_header(config: pytest.Config) -> str:
    """Which list is used, and whether it is for the installed scikit-learn."""
    return "\n".join(_header(_list_of(config)))


def _list_of(config: pytest.Config) -> Path:
    path: Any = config.getoption("xfail_list")
    return path


def _header(path: Path) -> Iterator[str]:
    version, entries = read_list(path)
    yield f"drjax.sklearn.patch: {len(PATCHES)} names patched, {len(entries)} xfail patterns from {path}"
    if version != sklearn.__version__:
        yield (
            f"drjax.sklearn.patch: THE LIST IS FOR SCIKIT-LEARN {version}, INSTALLED IS {sklearn.__version__}: "
            "failures may be those of other tests"
        )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks the tests of the list; fails if an entry is of no use or a test file has not got drjax's names."""
    path = _list_of(config)
    _, entries = read_list(path)
    unused = set(entries)
    for item in items:
        _check_patched(item)
        name = _name(item.path.name, item.nodeid)
        for entry in entries:
            if entry.matches(name):
                unused.discard(entry)
                item.add_marker(pytest.mark.xfail(reason=entry.reason, strict=True))
                break
    # A part of a file, or another file, need not have all tests of the list.
    whole = {item.path.name for item in items} if not any("::" in arg for arg in config.args) else set()
    missing = sorted(entry.pattern for entry in unused if entry.pattern.partition("::")[0] in whole)
    if missing:
        raise pytest.UsageError(f"{path}: no test matches {', '.join(missing)}")


def _check_patched(item: pytest.Item) -> None:
    module = getattr(item, "module", None)
    for (source, attribute), replacement in PATCHES.items():
        found = getattr(module, attribute, replacement)
        if found is not replacement and found is _originals.get((source, attribute)):
            raise pytest.UsageError(f"{item.nodeid}: {attribute} is scikit-learn's; its module was imported too early")


def _name(file: str, nodeid: str) -> str:
    return f"{file}::{nodeid.partition('::')[2]}"


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Counts outcomes by file."""
    counts = _results.setdefault(Path(report.location[0]).name, Counter())
    if report.when == "call" or report.outcome != "passed":
        is_expected = hasattr(report, "wasxfail") and report.outcome == "skipped"
        counts["xfailed" if is_expected else report.outcome] += 1


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """A line of counts for every file, and again what is wrong with the version."""
    terminalreporter.section("scikit-learn's tests on drjax")
    for file, counts in sorted(_results.items()):
        columns = ", ".join(f"{counts[outcome]} {outcome}" for outcome in ("passed", "xfailed", "failed", "skipped"))
        terminalreporter.line(f"{file}: {columns}")
    for line in list(_header(_list_of(config)))[1:]:
        terminalreporter.line(line)
    _results.clear()
