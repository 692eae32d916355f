"""`drjax doctor`: what it finds, and what it says where something is wrong."""

import importlib.metadata

import pytest

import drjax
from drjax.cli import doctor, main
from drjax.core import compiled, memory


def said(capsys, *, is_well=True, options=("--quick",)):
    if is_well:
        main(["doctor", *options])
    else:
        with pytest.raises(SystemExit) as stopped:
            main(["doctor", *options])
        assert stopped.value.code == 1
    lines = capsys.readouterr().out.splitlines()
    return {line.split(": ")[0].strip(): line.split(": ", 1)[1] for line in lines}


def test_a_machine_that_runs_the_tests_is_well_and_the_trial_is_exact(capsys):
    found = said(capsys, options=())
    assert found["drjax"].startswith(drjax.__version__)
    assert f"numpy {importlib.metadata.version('numpy')}" in found["Packages"]
    assert "umap" in found["Extras"].split(" installed")[0]
    assert "digits" in found["Data"]
    assert found["Trial"].startswith("a record of 100 was taken back")
    assert "MEND" not in found


def test_a_trial_that_fails_is_to_be_mended(capsys, monkeypatch):
    monkeypatch.setattr(doctor, "MOST_ERROR", 0.0)
    found = said(capsys, is_well=False, options=())
    assert found["MEND"].startswith("report this")


def test_versions_that_are_not_allowed_are_named(capsys, monkeypatch):
    real = doctor._version
    for version in ("0.9", None):
        monkeypatch.setattr(doctor, "_version", lambda name, version=version: version if name == "flax" else real(name))
        found = said(capsys, is_well=False)
        assert found["MEND"].startswith("pip install 'flax")


def test_little_memory_and_folders_that_cannot_be_written(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(memory, "available", lambda: 10**9)
    assert said(capsys, is_well=False)["MEND"].startswith("free some")
    monkeypatch.setattr(memory, "available", lambda: None)
    (tmp_path / "file").touch()
    monkeypatch.setattr(compiled, "kept_in", lambda: tmp_path / "file" / "below")
    assert "cannot be written" in said(capsys, is_well=False)["MEND"]
    monkeypatch.setattr(compiled, "kept_in", lambda: None)
    assert "NUMBA_CACHE_DIR" in said(capsys, is_well=False)["MEND"]


def test_a_data_folder_that_is_none(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("DRJAX_DATA", str(tmp_path / "nothing"))
    assert said(capsys, is_well=False)["MEND"].startswith("let DRJAX_DATA name a folder")


def test_kernels_are_kept_where_it_is_said():
    folder = compiled.kept_in()
    assert folder is not None
    assert folder.name == "__pycache__" or folder.name.startswith("compiled-")
