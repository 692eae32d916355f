"""The folder of an audit: kills at any moment, several processes at once, and runs that equal each other."""

import dataclasses
import os
import shutil
import signal
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from drjax.audits.folder import RunFolder
from drjax.cli import main
from drjax.reports import records

ROOT = Path(__file__).parents[2]


@dataclasses.dataclass(frozen=True)
class Config:
    seed: int = 0


def files_of(folder):
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())


VICTIM = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, "tests/audits")
from test_folder import Config
from drjax.audits.folder import RunFolder

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

os.link = os.replace = die
RunFolder(Path(sys.argv[1]), Config(), resume=False)
"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """The folder of a process that was killed while it wrote the configuration."""
    out = tmp_path_factory.mktemp("killed") / "out"
    done = subprocess.run([sys.executable, "-c", VICTIM, str(out)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    return out


@pytest.mark.parametrize("resume", [True, False])
def test_a_kill_while_the_configuration_is_written_leaves_a_folder_that_starts_again(tmp_path, killed, resume):
    out = shutil.copytree(killed, tmp_path / "out")
    (left,) = os.listdir(out)
    assert left.startswith(".config.json.")
    RunFolder(out, Config(), resume=resume)
    assert files_of(out) == ["config.json"]


def test_what_an_earlier_version_left_when_it_was_killed_is_no_obstacle(tmp_path):
    out = tmp_path / "out"
    (out / "shadows").mkdir(parents=True)
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    (out / f".config.json.{dead.pid}.tmp").write_text('{"fing')
    (out / "shadows" / f".00000000.npz.{dead.pid}.tmp").write_text("PK")
    with pytest.raises(ValueError, match="out must be a new or empty folder"):
        RunFolder(out, Config(), resume=True)
    (out / "shadows" / f".00000000.npz.{dead.pid}.tmp").rename(out / f".00000000.npz.{dead.pid}.tmp")
    (out / "shadows").rmdir()
    RunFolder(out, Config(), resume=True)
    (out / f".report.html.{dead.pid}.tmp").write_text("<html")
    RunFolder(out, Config(), resume=True)
    assert files_of(out) == ["config.json"]


def test_a_new_folder_is_its_owner_s_alone(tmp_path):
    RunFolder(tmp_path / "runs" / "out", Config(), resume=False)
    assert stat.S_IMODE((tmp_path / "runs" / "out").stat().st_mode) == 0o700


def test_a_kill_between_the_folder_and_the_configuration_can_be_resumed(tmp_path):
    RunFolder(tmp_path, Config(), resume=True)
    assert files_of(tmp_path) == ["config.json"]


@pytest.mark.parametrize("command", ["audit", "audit-model"])
def test_resuming_a_folder_that_does_not_exist_is_one_line(tmp_path, capsys, command):
    sizes = ["--n-known", "20", "--n-shadow", "20", "--n-targets", "4"]
    out = tmp_path / "typo"
    with pytest.raises(SystemExit) as caught:
        main([command, "--data", "digits", *sizes, "--out", str(out), "--resume"])
    assert caught.value.code == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "out must be the folder of an earlier run to resume" in line
    assert str(out) in line
    assert not out.exists()


def test_every_record_s_audit_does_not_resume_nothing_either(tmp_path, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["audit", "--data", "digits", "--each-record", "--out", str(tmp_path / "typo"), "--resume"])
    assert caught.value.code == 2
    assert "which does not exist" in capsys.readouterr().err


def test_of_two_that_start_in_one_folder_at_once_those_of_one_configuration_go_on(tmp_path):
    def start(seed):
        try:
            return RunFolder(tmp_path / "out", Config(seed=seed), resume=False)
        except ValueError as error:
            return str(error)

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(start, [0, 1] * 4))
    kept = [seed for seed, folder in zip([0, 1] * 4, found, strict=True) if isinstance(folder, RunFolder)]
    assert len(set(kept)) == 1
    assert all("out must" in words for words in found if isinstance(words, str))


def test_arrays_and_records_are_those_of_whoever_came_first(tmp_path):
    first, second = (RunFolder(tmp_path, Config(), resume=True) for _ in range(2))

    def slow():
        # While this process computes, another one is done.
        np.testing.assert_array_equal(second.arrays("a", lambda: {"x": np.ones(2)})["x"], np.ones(2))
        return {"x": np.zeros(2)}

    np.testing.assert_array_equal(first.arrays("a", slow)["x"], np.ones(2))
    first.record("attack", "ridge", place=1, scores=1)
    second.record("attack", "ridge", place=1, scores=2)
    second.record("attack", "closed-form", place=0, scores=3)
    assert [(r["name"], r["scores"]) for r in first.finish()] == [("closed-form", 3), ("ridge", 1)]
    assert files_of(tmp_path) == [
        "a.npz",
        "config.json",
        "records.cells/3-attack-0000-closed-form.json",
        "records.cells/3-attack-0001-ridge.json",
        "records.jsonl",
    ]


def test_times_are_in_the_records_and_not_in_the_arrays(tmp_path):
    folder = RunFolder(tmp_path, Config(), resume=True)

    def killed():
        folder.timed("attacks/a", lambda: ({"x": np.arange(3)}, {"epochs": 7}), stage="a")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        folder.timed("b", killed, stage="b")
    arrays, seconds = folder.timed("attacks/a", killed, stage="a")
    assert arrays.keys() == {"x"}
    (stage,) = folder.finish()
    assert (stage["name"], stage["seconds"], stage["epochs"]) == ("a", seconds, 7)
    assert records.load_arrays(tmp_path / "attacks/a.npz").keys() == {"x"}
    # Arrays without their record are of a version that kept times among the arrays.
    folder.arrays("attacks/old", lambda: {"x": np.arange(3)})
    with pytest.raises(ValueError, match=r"out must hold the record of 'old' beside attacks/old\.npz"):
        folder.timed("attacks/old", killed, stage="old")
