"""Every command that may need much memory says so before any work, in one line."""

import json

import jax
import numpy as np
import pytest

from drjax.cli import commands, main
from drjax.core import memory

GIGABYTE = 10**9


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(0)
    np.save(tmp_path / "x.npy", rng.random((3000, 4), np.float32))
    np.save(tmp_path / "coords.npy", rng.random((3001, 2)))
    rows = [f"{a:.3f},{b:.3f},{int(c)}" for a, b, c in rng.random((200, 3)) * [1, 1, 2]]
    (tmp_path / "t.csv").write_text("\n".join(["a,b,c", *rows]) + "\n")
    (tmp_path / "bounds.json").write_text(json.dumps({"a": [0, 1], "b": [0, 1], "c": [0, 2]}))
    np.savez(tmp_path / "labelled.npz", x=rng.random((400, 4)), y=rng.integers(0, 2, 400))
    return tmp_path


@pytest.fixture
def out_of_memory(monkeypatch):
    def set_to(n_bytes):
        monkeypatch.setattr(memory, "available", lambda: n_bytes)

    return set_to


def line(capsys, *arguments):
    with pytest.raises(SystemExit) as stopped:
        main([str(a) for a in arguments])
    error = capsys.readouterr().err
    assert stopped.value.code == 2
    assert error.count("\n") == 1
    assert error.startswith("drjax: error: ")
    return error


COMMANDS = {
    "audit": "audit --data {0}/x.npy --n-known 1000 --out {0}/o",
    "each": "audit --data {0}/x.npy --each-record --out {0}/o",
    "model": "audit-model --data {0}/labelled.npz --n-known 50 --n-targets 10 --n-shadow 50 --out {0}/o",
    "embed": "embed {0}/x.npy {0}/o.csv --method isomap",
    "attack": "attack embedding --known {0}/x.npy --coords {0}/coords.npy --out {0}/o.npz",
    "property": "attack property --coords {0}/coords.npy --shadow {0}/labelled.npz --attribute label=1",
    "pca": "release pca {0}/t.csv --out {0}/o --epsilon 1 --bounds {0}/bounds.json",
    "synthetic": "release synthetic {0}/t.csv --out {0}/o --epsilon 1 --bounds {0}/bounds.json",
}


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_work_that_needs_more_memory_than_there_is_is_refused_before_anything_is_written(
    files, capsys, out_of_memory, name
):
    out_of_memory(1000)
    before = sorted(files.iterdir())
    said = line(capsys, *COMMANDS[name].format(files).split())
    assert " needs about " in said
    assert "1 kB are available" in said
    assert sorted(files.iterdir()) == before


def test_an_audit_of_fifty_thousand_records_says_what_takes_the_memory_and_how_many_would_fit(
    tmp_path, capsys, out_of_memory
):
    out_of_memory(GIGABYTE)
    np.save(tmp_path / "x.npy", np.random.default_rng(0).random((52_000, 3), np.float32))
    said = line(capsys, "audit", "--data", tmp_path / "x.npy", "--n-known", 50_000, "--out", tmp_path / "o")
    assert "releases of 50,001 records" in said
    assert "GB are available" in said
    count = int(said.rsplit("about ", 1)[1].split(" would fit")[0].replace(",", ""))
    assert 10_000 < count < 50_000
    assert "lower --n-known" in said
    assert not (tmp_path / "o").exists()


def test_what_fits_is_not_refused(files, out_of_memory):
    out_of_memory(GIGABYTE)
    main(["embed", str(files / "x.npy"), str(files / "e.csv")])
    assert (files / "e.csv").exists()


class XlaRuntimeError(RuntimeError):
    """Named as the class of JAX, which cannot be made to run out of memory in a test."""


@pytest.mark.parametrize(
    ("raised", "words"),
    [
        (MemoryError(), "out of memory"),
        (TypeError("a bug"), None),
        (XlaRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 60000000000 bytes."), "60000000000 bytes"),
        (XlaRuntimeError("INTERNAL: CpuCallback error: Traceback\n ... \nMemoryError: x"), "out of memory"),
        (XlaRuntimeError("INTERNAL: a bug"), None),
        (jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 5 bytes"), "5 bytes"),
    ],
)
def test_memory_that_runs_out_in_the_middle_is_one_line_and_a_bug_is_a_traceback(
    files, capsys, out_of_memory, monkeypatch, raised, words
):
    out_of_memory(GIGABYTE)

    def fail(*_, **__):
        raise raised

    monkeypatch.setattr(commands, "shadow_embeddings", fail)
    arguments = ["embed", str(files / "x.npy"), str(files / "e.csv")]
    memory.require(9e8, "something larger in the same process", "a matrix", "lower it")
    if words is None:
        with pytest.raises(Exception) as caught:  # noqa: PT011, whatever it is must come through
            main(arguments)
        assert not isinstance(caught.value, SystemExit)
    else:
        said = line(capsys, *arguments)
        assert words in said
        assert "this embedding was expected to need about" in said


def test_numpys_own_error_says_how_much_was_asked_for(files, capsys, out_of_memory, monkeypatch):
    out_of_memory(GIGABYTE)
    monkeypatch.setattr(commands, "shadow_embeddings", lambda *_, **__: np.empty(2**55))
    assert "asked for 256. PiB" in line(capsys, "embed", files / "x.npy", files / "e.csv")
