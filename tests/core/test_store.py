import errno
import hashlib
import os
import signal
import stat
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drjax.core import store
from drjax.core.store import Store, atomic_open, atomic_write_text, remove_stale

ROOT = Path(__file__).parents[2]


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def usual_umask():
    old = os.umask(0o022)
    yield
    os.umask(old)


@pytest.mark.usefixtures("usual_umask")
def test_a_private_file_is_so_from_its_first_byte_and_takes_the_place_of_a_public_one(tmp_path):
    path = tmp_path / "a.txt"
    atomic_write_text(path, "old")
    assert mode(path) == 0o644
    with atomic_open(path, private=True) as file:
        (temporary,) = (entry for entry in tmp_path.iterdir() if entry != path)
        assert mode(temporary) == 0o600
        file.write(b"new")
    assert (mode(path), path.read_text()) == (0o600, "new")
    atomic_write_text(path, "newer", private=True)
    assert (mode(path), path.read_text(), os.listdir(tmp_path)) == (0o600, "newer", ["a.txt"])


def test_a_failing_writer_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a.txt"
    atomic_write_text(path, "old")

    def fail():
        with atomic_open(path) as file:
            file.write(b"half of the n")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_the_old_file_stays_visible_until_the_new_one_is_whole(tmp_path):
    path = tmp_path / "a.txt"
    atomic_write_text(path, "old")
    with atomic_open(path) as file:
        file.write(b"new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"


def test_writers_in_one_process_do_not_share_a_temporary_file(tmp_path):
    path = tmp_path / "a.txt"
    with atomic_open(path) as first, atomic_open(path) as second:
        first.write(b"first")
        second.write(b"second")
    # The inner block ends first, so that the outer one is the last to rename.
    assert path.read_bytes() == b"first"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_a_long_name_leaves_room_for_the_temporary_one(tmp_path):
    path = tmp_path / ("ü" * 120)
    atomic_write_text(path, "x")
    assert path.read_text() == "x"


def test_the_first_writer_of_a_file_wins_if_asked_to(tmp_path):
    path = tmp_path / "a.txt"
    atomic_write_text(path, "first", replace=False)
    atomic_write_text(path, "second", replace=False)
    assert path.read_text() == "first"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_a_disk_without_hard_links_takes_cells_too(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    cells = Store(tmp_path)
    assert cells.put("a", b"1") == b"1"
    assert cells.put("a", b"2") == b"1"
    assert os.listdir(tmp_path) == ["a"]

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "link", full)
    with pytest.raises(OSError, match="No space"):
        cells.put("b", b"1")
    assert cells.names() == ["a"]


def test_a_cell_is_what_its_first_writer_put(tmp_path):
    cells = Store(tmp_path / "cells", suffix=".json")
    assert cells.names() == []
    assert cells.get("a") is None
    assert "a" not in cells
    assert cells.put("a", b"first") == b"first"
    assert cells.put("a", b"second") == b"first"
    assert cells.get("a") == b"first"
    assert "a" in cells
    assert os.listdir(tmp_path / "cells") == ["a.json"]


def test_names_come_sorted_and_fit_back_into_the_store(tmp_path):
    cells = Store(tmp_path, suffix=".bin")
    given_names = ["b", "a/c", "../../escape", "B", ".", "", "x" * 300, "x" * 300 + "y", "tab\tü\0", "a-c", "nul.tmp"]
    for i, name in enumerate(given_names):
        cells.put(name, str(i).encode())
    (tmp_path / "other.txt").write_text("not a cell")
    assert len(cells.names()) == len(given_names)
    assert cells.names() == sorted(cells.names())
    assert {cells.get(name) for name in cells.names()} == {str(i).encode() for i in range(len(given_names))}
    assert [cells.get(name) for name in given_names] == [str(i).encode() for i in range(len(given_names))]
    assert {entry.parent for entry in tmp_path.iterdir()} == {tmp_path}


def test_a_name_that_is_no_file_name_becomes_a_slug_with_a_hash_of_it():
    digest = hashlib.sha256("Table II: ε=1/2".encode()).hexdigest()[:16]
    assert store.key_of("Table II: ε=1/2") == f"table-ii-=1-2-{digest}"
    assert store.key_of("0003-ridge_1e-05") == "0003-ridge_1e-05"


@given(a=st.text(), b=st.text())
def test_keys_are_safe_distinct_and_keep_what_they_are(a, b):
    keys = store.key_of(a), store.key_of(b)
    assert all(1 <= len(key) <= 128 and key == store.key_of(key) for key in keys)
    assert all(key[0] not in "-." and key.isascii() and not set(key) & set('/\\:*?"<>| \0') for key in keys)
    assert all(key == key.lower() for key in keys)  # some disks take "A" and "a" for one name
    assert (keys[0] == keys[1]) == (a == b)


WRITER = """
import sys, time
from pathlib import Path
from drjax.core.store import Store

folder, mark, go, who = sys.argv[1:]
cells = Store(Path(folder))
Path(mark).touch()
while not Path(go).exists():
    time.sleep(0.001)
for i in range(50):
    cells.put(f"own {who} {i}", f"{who} {i}".encode())
    told = cells.put(f"shared {i}", f"{who} {i}".encode() * 1000)
    assert told == cells.get(f"shared {i}")
    print(told[:9].decode())
"""


def started(script, *arguments):
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_eight_processes_of_fifty_cells_lose_none_and_agree_on_those_they_share(tmp_path):
    go, marks = tmp_path / "go", [tmp_path / f"ready {i}" for i in range(8)]
    writers = [started(WRITER, tmp_path / "cells", mark, go, i) for i, mark in enumerate(marks)]
    while not all(mark.exists() for mark in marks):
        assert all(writer.poll() is None for writer in writers), [w.communicate() for w in writers]
        time.sleep(0.01)
    go.touch()
    outputs = [writer.communicate(timeout=60) for writer in writers]
    assert [writer.returncode for writer in writers] == [0] * 8, outputs
    cells = Store(tmp_path / "cells")
    assert len(cells.names()) == 8 * 50 + 50
    assert [cells.get(f"own {who} {i}") for who in range(8) for i in range(50)] == [
        f"{who} {i}".encode() for who in range(8) for i in range(50)
    ]
    # Whoever came first, all eight were told the same content.
    assert len({out for out, _ in outputs}) == 1
    assert len(os.listdir(tmp_path / "cells")) == 450


def test_threads_share_a_store_as_processes_do(tmp_path):
    cells = Store(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        told = list(pool.map(lambda i: cells.put("one", str(i).encode()), range(64)))
    assert len(set(told)) == 1
    assert os.listdir(tmp_path) == ["one"]


VICTIM = """
import os, signal, sys
from pathlib import Path
from drjax.core.store import Store

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

os.link = os.replace = die
Store(Path(sys.argv[1])).put("a", b"half")
"""


def test_a_writer_that_is_killed_leaves_no_cell_and_its_temporary_file_goes_with_the_next_opening(tmp_path):
    victim = started(VICTIM, tmp_path)
    assert victim.wait(timeout=60) == -signal.SIGKILL, victim.communicate()
    (left,) = os.listdir(tmp_path)
    assert store.is_temporary(tmp_path / left)
    cells = Store(tmp_path)
    assert cells.names() == []
    assert cells.put("a", b"whole") == b"whole"
    remove_stale(tmp_path)
    assert os.listdir(tmp_path) == ["a"]


def dead_process():
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    return done.pid


def test_stale_files_are_those_of_dead_processes_here_and_old_ones_of_anybody(tmp_path):
    dead, old, deep = dead_process(), time.time() - 2 * store.STALE_SECONDS, tmp_path / "deep" / "er"
    deep.mkdir(parents=True)
    (tmp_path / f".folder.{dead}.tmp").mkdir()
    stale = [f".config.json.{dead}.tmp", f".a.npz.{store.machine()}.{dead}.0123abcd.tmp"]
    kept = [
        f".config.json.{os.getpid()}.tmp",
        f".a.npz.{store.machine()}.{os.getpid()}.0123abcd.tmp",
        f".a.npz.00000000.{dead}.0123abcd.tmp",  # another machine's: nobody here knows whether it lives
        "not-ours.tmp",
        ".hidden.tmp",
        "records.jsonl",
    ]
    for name in [*stale, *kept]:
        (tmp_path / name).touch()
    (deep / stale[0]).touch()
    aged = tmp_path / f".b.npz.00000000.{os.getpid()}.89abcdef.tmp"
    aged.touch()
    os.utime(aged, (old, old))
    for name in ("records.jsonl", ".hidden.tmp", "not-ours.tmp"):
        os.utime(tmp_path / name, (old, old))
    remove_stale(tmp_path)
    assert sorted(os.listdir(tmp_path)) == sorted([*kept, "deep", f".folder.{dead}.tmp"])
    assert os.listdir(deep) == []


def test_what_a_writer_has_open_is_not_stale(tmp_path):
    with atomic_open(tmp_path / "a") as file:
        remove_stale(tmp_path)
        file.write(b"whole")
    assert (tmp_path / "a").read_bytes() == b"whole"
