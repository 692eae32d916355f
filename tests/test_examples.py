"""Examples in docstrings: each of them runs, and every public name has one."""

import ast
import doctest
import functools
import importlib
import importlib.util
import inspect
import pkgutil
import re
import sys
from pathlib import Path

import pytest

import drjax

ROOT = Path(__file__).parents[1]
MODULES = sorted(entry.name for entry in pkgutil.walk_packages(drjax.__path__, "drjax."))
SOURCES = {name: importlib.util.find_spec(name).origin for name in ("drjax", *MODULES)}
WITH_EXAMPLES = [name for name, path in SOURCES.items() if ">>> " in Path(path).read_text(encoding="utf-8")]


@functools.cache
def public():
    """The module by which the site lists the public names."""
    path = ROOT / "docs" / "_ext" / "public_names.py"
    spec = importlib.util.spec_from_file_location("public_names", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault("public_names", module)  # its dataclass looks its own module up
    spec.loader.exec_module(module)
    return module


def doctests(module):
    """The docstrings of a module that have examples; each has to import what it uses."""
    return [found for found in doctest.DocTestFinder().find(module, globs={}) if found.examples]


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = doctests(importlib.import_module(name))
    source = Path(SOURCES[name]).read_text(encoding="utf-8")
    assert sum(len(docstring.examples) for docstring in found) == len(re.findall(r"^ *>>> ", source, re.M))
    for docstring in found:
        said = []
        runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
        assert runner.run(docstring, out=said.append).failed == 0, "".join(said)
    assert list(tmp_path.iterdir()) == []


def returned():
    """Names in the annotations of what public functions return: who calls one of these sees what it is."""
    values = [name.value for name in public().public_names() if inspect.isroutine(name.value)]
    return {word for value in values for word in re.findall(r"\w+", str(value.__annotations__.get("return", "")))}


def is_used(name, classes_returned):
    """Whether users call a public name: results and types that nobody makes need no example, nor do pytest's hooks."""
    value = name.value
    if inspect.isclass(value):
        is_type = issubclass(value, (tuple, Exception)) or getattr(value, "_is_protocol", False)
        return not is_type and value.__name__ not in classes_returned
    return callable(value) and not name.name.startswith("pytest_")


def around(module):
    """A module and the packages that it is in."""
    parts = module.split(".")
    return {".".join(parts[: n + 1]) for n in range(len(parts))}


@functools.cache
def called_in(module):
    """Names and attributes in the examples of a module's docstring; that one is imported is not enough."""
    examples = doctest.DocTestParser().get_examples(importlib.import_module(module).__doc__ or "")
    nodes = [node for example in examples for node in ast.walk(ast.parse(example.source))]
    return {node.id for node in nodes if isinstance(node, ast.Name)} | {
        node.attr for node in nodes if isinstance(node, ast.Attribute)
    }


def has_example(names):
    """Whether one of the names of an object is shown: in its own docstring, or in one of a module around it."""
    value = names[0].value
    if ">>> " in (inspect.getdoc(value) or ""):
        return True
    modules = {part for name in names for part in around(name.module)} | around(value.__module__)
    shown = set().union(*map(called_in, modules))
    return any(name.name in shown for name in names)


def without_example(names):
    """Full names, of those that users call, of which no example is found."""
    classes_returned, by_object = returned(), {}
    for name in names:
        by_object.setdefault(id(name.value), []).append(name)
    return [same[0].full for same in by_object.values() if is_used(same[0], classes_returned) and not has_example(same)]


def test_every_public_name_has_an_example():
    assert without_example(public().public_names()) == []


def test_a_name_without_an_example_is_found():
    names = public()
    shown, bare = names.Name("drjax", "embed", drjax.embed), names.Name("drjax.core", "bare", lambda: None)
    assert without_example([shown, bare]) == [bare.full]
