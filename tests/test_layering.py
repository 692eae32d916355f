"""Parses drjax: a layer imports `core` and earlier layers only, and nothing is long or names a method."""

import ast
import graphlib
from pathlib import Path

import pytest

from drjax.dr import METHODS

LAYERS = (
    "core",
    "bounds",
    "data",
    "dr",
    "nets",
    "defenses",
    "attacks",
    "synthesis",
    "reports",
    "sklearn",
    "audits",
    "releases",
    "decisions",
    "sweeps",
    "verbs",
    "cli",
)
OUTSIDE = ("experiments", "bench", "tests")
PACKAGE = Path(__file__).parents[1] / "drjax"
SOURCES = sorted(PACKAGE.rglob("*.py"))


def imported_modules(path, package):
    """Absolute dotted names that the module imports, `from a import b` as a.b (b may be a module)."""
    parts = ("drjax", *path.relative_to(package).with_suffix("").parts)
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = list(parts[: len(parts) - node.level]) if node.level else []
            base += [node.module] if node.module else []
            yield from (".".join([*base, alias.name]) for alias in node.names)


def violations(package):
    """One line for every module of no known layer and every import that points to a later layer or outside."""
    found = []
    for path in sorted(package.rglob("*.py")):
        layer = path.relative_to(package).with_suffix("").parts[0]
        if layer not in (*LAYERS, "__init__", "__main__"):
            found.append(f"{layer} is not a layer")
            continue
        rank = LAYERS.index(layer) if layer in LAYERS else len(LAYERS)
        for name in imported_modules(path, package):
            root, _, rest = name.partition(".")
            target = rest.partition(".")[0]
            later = root == "drjax" and target in LAYERS and LAYERS.index(target) > rank
            if root in OUTSIDE or later:
                found.append(f"{path.relative_to(package).as_posix()} imports {name}")
    return found


def circle(package, layers):
    """Modules of these layers that import each other in a circle, type-only imports included; none if empty."""
    modules = {".".join(path.relative_to(package.parent).with_suffix("").parts): path for path in package.rglob("*.py")}
    modules = {name: path for name, path in modules.items() if name.split(".")[1] in layers}
    imported = {}
    for name, path in modules.items():
        named = {part for found in imported_modules(path, package) for part in (found, found.rpartition(".")[0])}
        imported[name] = (named & modules.keys()) - {name}
    try:
        graphlib.TopologicalSorter(imported).prepare()
    except graphlib.CycleError as error:
        return error.args[1]
    return []


def test_no_module_imports_one_that_imports_it():
    assert circle(PACKAGE, LAYERS) == []


def test_a_circle_is_found_though_one_of_its_imports_is_for_types_alone(tmp_path):
    folder = tmp_path / "drjax" / "releases"
    folder.mkdir(parents=True)
    (folder / "pca.py").write_text("from drjax.releases import report, text")
    (folder / "text.py").write_text("from drjax.reports import page")
    (folder / "report.py").write_text("if TYPE_CHECKING:\n    from drjax.releases.pca import Config")
    assert set(circle(tmp_path / "drjax", ("releases",))) == {"drjax.releases.pca", "drjax.releases.report"}
    (folder / "report.py").write_text("from drjax.releases.text import words")
    assert circle(tmp_path / "drjax", ("releases",)) == []


def test_every_layer_imports_core_and_earlier_layers_only():
    assert violations(PACKAGE) == []


def test_modules_have_at_most_400_lines():
    lengths = {path.relative_to(PACKAGE).as_posix(): len(path.read_text().splitlines()) for path in SOURCES}
    assert {name: n for name, n in lengths.items() if n > 400} == {}


def test_functions_have_at_most_80_lines_of_code():
    long = []
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                first = node.body[ast.get_docstring(node) is not None :][:1]
                n = node.end_lineno - first[0].lineno + (node.body[0].lineno - node.lineno) + 1 if first else 0
                long += [f"{path.name}: {node.name} has {n}"] if n > 80 else []
    assert long == []


def test_nobody_names_a_method_but_methods_and_their_attacks():
    own = ("dr/", "sklearn/", "attacks/reconstruction/")
    found = set()
    for path in SOURCES:
        name = path.relative_to(PACKAGE).as_posix()
        if not name.startswith(own):
            texts = (n.value for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Constant))
            found |= {(name, text) for text in texts if isinstance(text, str) and text in METHODS}
    # A kind of release.
    assert found <= {("verbs/releasing.py", "pca"), ("decisions/guaranteed.py", "pca")}


def test_the_checker_reads_every_module():
    assert len(list(PACKAGE.rglob("*.py"))) >= 10


@pytest.mark.parametrize(
    ("module", "statement"),
    [
        ("core/linalg.py", "from drjax.dr import pca"),
        ("core/linalg.py", "import drjax.attacks.shadow"),
        ("dr/pca.py", "from drjax import attacks"),
        ("dr/pca.py", "from ..attacks import shadow"),
        ("dr/deep/er.py", "from ...cli import main"),
        ("data/sources.py", "def late():\n    from drjax.reports import records"),
        ("attacks/shadow.py", "from bench import harness"),
        ("attacks/shadow.py", "import experiments.table4"),
    ],
)
def test_the_checker_catches_a_planted_violation(tmp_path, module, statement):
    path = tmp_path / "drjax" / module
    path.parent.mkdir(parents=True)
    path.write_text(statement)
    assert len(violations(tmp_path / "drjax")) == 1


@pytest.mark.parametrize(
    ("module", "statement"),
    [
        ("dr/pca.py", "from drjax.core import linalg\nfrom drjax.dr import secular\nfrom . import secular"),
        ("attacks/shadow.py", "from drjax.dr import METHODS\nimport numpy.core"),
        ("cli.py", "from drjax import __version__\nfrom drjax.audits import run"),
    ],
)
def test_the_checker_lets_earlier_layers_through(tmp_path, module, statement):
    path = tmp_path / "drjax" / module
    path.parent.mkdir(parents=True)
    path.write_text(statement)
    assert violations(tmp_path / "drjax") == []


def test_a_folder_that_is_no_layer_is_caught(tmp_path):
    (tmp_path / "drjax").mkdir()
    (tmp_path / "drjax" / "utils.py").write_text("")
    assert violations(tmp_path / "drjax") == ["utils is not a layer"]
