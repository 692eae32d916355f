"""Mutants of a toy package: which there are, that one dies and another survives, and that no file changes."""

import json
import subprocess
import sys
from pathlib import Path

from bench import mutants
from bench.mutations import PACKAGES, mutants_of, path_of, sample, table

TOY = '''
"""A module with 7 and not."""

MAX_ROWS = 100

def limited(x: int, most: int = 3) -> "float | None":
    """Of 5."""
    if x == -1:
        raise ValueError(f"x must not be {-1}, got {x + 1}")
    return min(x, most)[1:most]

class Row:
    def __repr__(self):
        return 2 * "row"
'''

TESTS = """
from toy.core import part

def test_it_is_smaller():
    assert part.limited(-5) < 1
"""

CHILD = """
import json, sys
from pathlib import Path
import hypothesis, pytest, xdist
from bench.mutants import run_tests
from bench.mutations import mutants_of
root = Path(sys.argv[1])
found = mutants_of((root / "toy/core/part.py").read_text(), "toy.core.part")
tests = ["tests/test_part.py"]
ends = {None: run_tests(tests, None, 30.0, root=root)} | {m.name: run_tests(tests, m, 30.0, root=root) for m in found}
print(json.dumps([[name, end, test] for name, (end, _, test) in ends.items()]))
"""


def files(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_faults_are_put_into_what_is_computed_and_not_into_what_is_said():
    found = [(m.line, m.operator, m.before, m.after) for m in mutants_of(TOY, "toy.core.part")]
    assert found == [
        (6, "constant", "3", "4"),
        (8, "guard", "x == -1", "False"),
        (8, "compare", "x == -1", "x != -1"),
        (8, "minus", "-1", "1"),
        (8, "constant", "1", "2"),
        (10, "call", "min(x, most)", "max(x, most)"),
        (10, "slice to", "1:most", "1:most - 1"),
        (10, "constant", "1", "2"),
    ]


def test_one_dies_and_one_survives_and_no_file_changes(tmp_path):
    (tmp_path / "toy" / "core").mkdir(parents=True)
    (tmp_path / "tests").mkdir()
    (tmp_path / "toy" / "core" / "part.py").write_text("def limited(x, most=3):\n    return min(x, most)\n")
    (tmp_path / "tests" / "test_part.py").write_text(TESTS)
    before = files(tmp_path)
    words = [sys.executable, "-B", "-c", CHILD, str(tmp_path)]
    done = subprocess.run(words, cwd=mutants.ROOT, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [
        [None, "passed", ""],
        ["toy.core.part:1:20 constant: 3 -> 4", "passed", ""],
        [
            "toy.core.part:2:11 call: min(x, most) -> max(x, most)",
            "failed",
            "tests/test_part.py::test_it_is_smaller",
        ],
    ]
    assert files(tmp_path) == before


def test_a_sample_is_even_over_packages_and_files_and_the_seed_makes_it(tmp_path):
    for package in PACKAGES:
        (tmp_path / "drjax" / package).mkdir(parents=True)
        for name in ("a", "b"):
            (tmp_path / "drjax" / package / f"{name}.py").write_text(TOY)
    drawn = sample(tmp_path, 16, 0)
    modules = [mutant.module for mutant in drawn]
    assert {modules.count(f"drjax.{package}.{name}") for package in PACKAGES for name in "ab"} == {2}
    assert len(set(drawn)) == len(drawn) == len(modules)
    assert sample(tmp_path, 16, 0) == drawn != sample(tmp_path, 16, 1)


def test_nearest_tests_are_those_that_mirror_a_module_or_import_it_and_quick_ones_come_first(tmp_path):
    texts = {
        "drjax/dr/mds/cpu.py": "",
        "drjax/dr/mds/method.py": "from drjax.dr.mds import cpu",
        "tests/dr/test_mds.py": "",
        "tests/dr/test_mds_grid.py": "",
        "tests/dr/test_guttman.py": "from drjax.dr.mds.cpu import step",
        "tests/dr/test_contract.py": "import drjax.dr.mds.method",
        "tests/dr/test_pca.py": "from drjax.dr import pca",
    }
    for name, text in texts.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    seconds = dict(zip([name for name in texts if name.startswith("tests/")], (9.0, 60.0, 2.0, 5.0, 1.0), strict=True))
    (tmp_path / "times.json").write_text(json.dumps(seconds))
    tests = mutants.Tests(tmp_path, tmp_path / "times.json")
    near = ["tests/dr/test_guttman.py", "tests/dr/test_mds.py"]
    assert tests.of("drjax.dr.mds.cpu", is_wide=False) == near
    # Where survivors are tried again slower files count, too.
    wide = [*near, "tests/dr/test_mds_grid.py", "tests/dr/test_contract.py"]
    assert tests.of("drjax.dr.mds.cpu", is_wide=True) == wide


def test_the_table_has_the_first_go_beside_the_last_and_leaves_out_what_no_test_can_tell():
    def row(name, outcome):
        return {"name": f"drjax.{name}", "outcome": outcome}

    rows = [row("core.a:1:2 not: not x -> x", "passed"), row("core.a:2:2 call: min(x) -> max(x)", "passed")]
    rows += [row("dr:1:2 minus: -x -> x", "too long"), row("core.a:1:2 not: not x -> x", "failed")]
    lines = table(rows, {rows[1]["name"]: "x is one number."}).splitlines()
    assert lines[2:8] == [
        "| core | 2 | 1 | 0 | 1 | 1 | 100.0% | 0.0% |",
        "| dr | 1 | 0 | 1 | 0 | 0 | 100.0% | 100.0% |",
        "| attacks | 0 | 0 | 0 | 0 | 0 |  |  |",
        "| bounds | 0 | 0 | 0 | 0 | 0 |  |  |",
        "| all | 3 | 1 | 1 | 1 | 1 | 100.0% | 50.0% |",
        "",
    ]
    assert lines[-1] == "- `drjax.core.a:2:2 call: min(x) -> max(x)`: x is one number."


def test_every_reason_is_of_a_mutant_that_there_is():
    reasons = json.loads(mutants.EQUIVALENT.read_text())
    for module in {name.partition(":")[0] for name in reasons}:
        path = path_of(module, Path(mutants.ROOT))
        there = {mutant.name for mutant in mutants_of(path.read_text(), module)}
        assert {name for name in reasons if name.startswith(f"{module}:")} <= there
