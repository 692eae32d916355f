"""Parses every import of drjax: a layer imports `core` and earlier layers only."""

import ast
from pathlib import Path

import pytest

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
    "audit",
    "release",
    "cli",
)
OUTSIDE = ("experiments", "bench", "tests")
PACKAGE = Path(__file__).parents[1] / "drjax"


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


def test_every_layer_imports_core_and_earlier_layers_only():
    assert violations(PACKAGE) == []


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
        ("cli.py", "from drjax import __version__\nfrom drjax.audit import run"),
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
