"""Sweeps: the same bits whoever computes a cell and however often, in a folder as elsewhere; bad input in a line."""

import json
import multiprocessing
import os
import signal
import threading
import time
from concurrent.futures import Executor, Future

import fsspec
import jax
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import drjax
from drjax.audits import AuditConfig, pieces, run
from drjax.sweeps import SweepConfig, SweepResult, status
from drjax.sweeps import run as run_sweep
from drjax.sweeps.run import share_of
from drjax.sweeps.store import SweepStore
from drjax.sweeps.work import work

SIZES = {"n_known": 30, "n_shadow": 20, "n_validation": 10, "n_targets": 5}
OVER = {"method": ("pca", "srp"), "decimals": (None, 3)}


class Here(Executor):
    """Does every task at once in this process, and again: any task may be done twice."""

    def __init__(self, times=1):
        self.times, self.tasks = times, []

    def submit(self, fn, /, *args, **kwargs):
        future = Future()
        self.tasks.append(args)
        try:
            results = [fn(*args, **kwargs) for _ in range(self.times)]
            future.set_result(results[0])
        except Exception as error:
            future.set_exception(error)
        return future


def config(**settings):
    attacks = ("closed-form", "srp-closed-form", "ridge")
    return SweepConfig(base=AuditConfig(data="digits", attacks=attacks, **SIZES), over=OVER, **settings)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """A sweep in this process."""
    return run_sweep(config(lanes=4), tmp_path_factory.mktemp("sweep") / "alone", executor=Here())


def test_cells_are_audits(alone, tmp_path):
    audited = run(config().cells[1].config, tmp_path / "audit")
    mse = {row.label: row.scores.mse.estimate for row in audited.rows}
    lines = [line for line in alone.lines if line["cell"] == "method=pca decimals=3"]
    assert {line["label"] for line in lines} == set(mse)
    for line in lines:
        # Chunks of releases are others: up to rounding, which three decimals make larger.
        assert line["mse"] == pytest.approx(mse[line["label"]], rel=1e-3)
    rows = alone.rows
    assert len(rows) == 5 * len(alone.lines)
    means = rows.groupby(["cell", "attack"])["mse"].mean()
    for line in alone.lines:
        assert means[line["cell"], line["attack"]] == pytest.approx(line["mse"])


def test_what_is_none_of_a_method_is_left_out_of_its_cells():
    named = {cell.name: set(cell.config.attacks) for cell in config().cells}
    assert named["method=pca decimals=3"] == {"closed-form", "ridge"}
    assert named["method=srp decimals=3"] == {"srp-closed-form", "ridge"}
    over = {"method": ("pca", "tsne"), "perplexity": (5.0, 10.0)}
    crossed = SweepConfig(base=AuditConfig(data="digits", **SIZES), over=over, common={"init": "pca"})
    assert [cell.name for cell in crossed.cells] == [
        "method=pca",
        "method=tsne perplexity=5.0",
        "method=tsne perplexity=10.0",
    ]
    assert crossed.cells[0].settings == {"method": "pca", "perplexity": None}
    assert crossed.cells[2].config.hyperparameters == {"init": "pca", "perplexity": 10.0}


def test_a_killed_worker_and_tasks_done_twice_change_nothing(alone, tmp_path):
    # Other tests of this process have workers too.
    before, died = {child.pid for child in multiprocessing.active_children()}, []

    def kill():
        while not (folder / "cells").exists():
            time.sleep(0.02)
        while not died and not (tmp_path / "ended").exists():
            died.extend([child.pid for child in multiprocessing.active_children() if child.pid not in before][:1])
        for child in died:
            os.kill(child, signal.SIGKILL)

    folder = tmp_path / "killed"
    killer = threading.Thread(target=kill)
    killer.start()
    killed = run_sweep(config(lanes=4), folder, executor="local", workers=2)
    (tmp_path / "ended").touch()
    killer.join()
    assert died
    pd.testing.assert_frame_equal(killed.rows, alone.rows, check_exact=True)
    twice = Here(times=2)
    pd.testing.assert_frame_equal(
        run_sweep(config(lanes=4), tmp_path / "twice", executor=twice).rows, alone.rows, check_exact=True
    )
    # Eight chunks of shadows and two of releases, each left to whoever is free.
    assert sum(task[2] == "make" for task in twice.tasks) == 4 * 10
    assert not list((folder / "work").iterdir())


def test_a_finished_cell_leaves_no_run_folder_whenever_its_worker_died(tmp_path, monkeypatch):
    def die(*_):
        raise SystemExit

    first = run_sweep(config(), tmp_path / "out", part="1/4", executor=Here(), keep=True)
    share = share_of(config(), tmp_path / "out", None, keep=False)
    monkeypatch.setattr(SweepStore, "remove", die)
    with pytest.raises(SystemExit):
        work(share, config().cells[0], "begin")
    monkeypatch.undo()
    assert list((tmp_path / "out" / "work").iterdir())
    assert work(share, config().cells[0], "begin") == []
    assert not list((tmp_path / "out" / "work").iterdir())
    assert first.rows.shape == SweepResult(tmp_path / "out").rows.shape


def test_a_store_elsewhere_holds_the_same(alone):
    url = "memory://bucket/sweep"
    found = run_sweep(config(lanes=4), url, executor=Here(), keep=True)
    pd.testing.assert_frame_equal(found.rows, alone.rows, check_exact=True)
    files = fsspec.filesystem("memory").find("/bucket/sweep/work")
    assert any(file.endswith("attacks/closed-form.npz") for file in files)
    pool = Here()
    run_sweep(config(lanes=4), url, executor=pool)
    assert not pool.tasks
    assert status(url).done == 4


def test_files_are_read_by_others_and_say_what_they_are(alone):
    file = sorted(SweepStore(alone.url).local.glob("cells/*.parquet"))[0]
    table = pq.read_table(file)
    assert {"cell", "method", "decimals", "attack", "row", "mse", "expected_mse", "status"} <= set(table.column_names)
    # Readers of many files take the types of the first.
    assert len({str(pq.read_schema(each).remove_metadata()) for each in file.parent.iterdir()}) == 1
    facts = json.loads(table.schema.metadata[b"drjax"])
    assert facts["provenance"]["versions"]["jax"] == jax.__version__
    assert oct(SweepStore(alone.url).local.stat().st_mode)[-3:] == "700"
    assert len(repr(alone).splitlines()) <= 10


def test_an_unfinished_sweep_goes_on_and_says_how_far_it_is(tmp_path):
    class Stops(Here):
        def submit(self, fn, /, *args, **kwargs):
            if len(self.tasks) == 2:
                raise KeyboardInterrupt
            return super().submit(fn, *args, **kwargs)

    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        run_sweep(config(), out, executor=Stops())
    found = status(out)
    assert (found.n_cells, found.done, found.begun) == (4, 2, 0)
    assert "2 of 4 cells done" in str(found)
    pool = Here()
    run_sweep(config(), out, executor=pool)
    assert [task[1].name for task in pool.tasks] == ["method=srp decimals=None", "method=srp decimals=3"]
    assert str(status(out)) == "4 of 4 cells done, 0 begun"


def test_data_are_crossed_too(tmp_path):
    x = np.random.default_rng(0).random((80, 5))
    np.save(tmp_path / "x.npy", x)
    sizes = {**SIZES, "attacks": ("closed-form",)}
    over = {"data": ("digits", str(tmp_path / "x.npy"))}
    found = drjax.sweep(x, out=tmp_path / "out", over=over, executor=Here(), **sizes)
    guesses = {line["data"]: line["mse"] for line in found.lines if line["attack"] == "mean"}
    assert guesses[str(tmp_path / "x.npy")] == pytest.approx(1 / 12, rel=0.3)
    assert guesses["digits"] == pytest.approx(0.07, rel=0.2)


def test_every_record_of_own_data_is_a_cell_too(tmp_path):
    x = np.random.default_rng(0).random((40, 5))
    found = drjax.sweep(x, out=tmp_path / "own", over={"n_components": (1, 2)}, executor=Here(), max_records=10)
    assert sorted(found.strongest) == ["n_components=1", "n_components=2"]
    rows = found.rows
    assert set(rows[rows.attack == "closed-form"].groupby("cell").size()) == {10}


@pytest.mark.parametrize(
    ("over", "further", "message"),
    [
        ({"methods": ("pca",)}, {}, "over must name fields of audits or hyperparameters"),
        ({"n_known": ()}, {}, "over must have one or more different values of 'n_known', got"),
        ({"n_known": (30, 30)}, {}, "over must have one or more different values of 'n_known', got"),
        ({"n_known": (30, 0)}, {}, r"n_known must be an integer >= 1, got 0 \(in the cell n_known=0\)"),
        ({"perplexity": (5.0,)}, {}, "over must name hyperparameters of pca, got 'perplexity'"),
        ({"n_known": (30,)}, {"perplexity": 5.0}, "over must name hyperparameters of pca, got 'perplexity'"),
        ({"n_known": (30,)}, {"lanes": 0}, "lanes must be an integer >= 1, got 0"),
        ({"n_known": (30,)}, {"defense": "rounding", "defense_scale": (1.0,)}, "defense must be left out of a sweep"),
        ({"attacks": ("srp-closed-form",)}, {}, "attacks must be among"),
        ({"n_known": (5000,)}, {}, r"5000 known .* 1797.* \(in the cell n_known=5000\)"),
    ],
)
def test_bad_settings_are_refused(tmp_path, over, further, message):
    with pytest.raises(ValueError, match=message):
        drjax.sweep("digits", out=tmp_path / "out", over=over, executor=Here(), **further)


def test_parts_share_a_store(alone, tmp_path):
    names = [cell.name for part in ("1/3", "2/3", "3/3") for cell in config().part(part)]
    assert sorted(names) == sorted(cell.name for cell in config().cells)
    for part in ("2/2", "1/2"):
        found = run_sweep(config(lanes=4), tmp_path / "out", part=part, executor=Here())
    pd.testing.assert_frame_equal(found.rows, alone.rows, check_exact=True)
    with pytest.raises(ValueError, match="part must be i/n, as 3/16, got '3'"):
        run_sweep(config(), tmp_path / "new", part="3", executor=Here())
    assert not (tmp_path / "new").exists()


def test_bad_stores_are_refused(alone, tmp_path):
    with pytest.raises(ValueError, match=r"out must be of the same sweep .* where lanes differ"):
        run_sweep(config(lanes=5), alone.url, executor=Here())
    (tmp_path / "letters").write_text("x")
    with pytest.raises(ValueError, match="out must be a new or empty folder, or the store of a sweep"):
        run_sweep(config(), tmp_path, executor=Here())
    with pytest.raises(ValueError, match="out must be the store of a sweep, got"):
        status(tmp_path)
    with pytest.raises(ValueError, match="out must be a folder or an address that fsspec knows, got nothing://x"):
        run_sweep(config(), "nothing://x", executor=Here())
    with pytest.raises(OSError, match=str(tmp_path / "letters")):
        run_sweep(config(), tmp_path / "letters" / "out", executor=Here())


def test_two_may_begin_a_store_at_once(tmp_path, monkeypatch):
    real, store = SweepStore._children, SweepStore(tmp_path)

    def children(self, name):
        found = real(self, name)
        if self is store:
            # The other one is first, right after this one has looked.
            SweepStore(tmp_path).begin("0", {})
        return found

    monkeypatch.setattr(SweepStore, "_children", children)
    store.begin("0", {})
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / ".sweep.json.0a1b2c3d.1.00000000.tmp").touch()
    SweepStore(tmp_path / "other").begin("0", {})


def test_a_worker_of_another_version_is_refused(tmp_path, monkeypatch):
    class OtherVersion(Here):
        def submit(self, fn, /, *args, **kwargs):
            monkeypatch.setattr(pieces, "versions", lambda: ("0.0.1", jax.__version__))
            return super().submit(fn, *args, **kwargs)

    with pytest.raises(ValueError, match=r"workers must run drjax .* as the caller does, got drjax 0.0.1 and jax"):
        run_sweep(config(), tmp_path / "out", executor=OtherVersion())


def test_a_full_disk_loses_nothing_that_is_finished(tmp_path, monkeypatch):
    real, out = SweepStore.put, tmp_path / "out"

    def put(self, name, content):
        if len(list(out.glob("cells/*.parquet"))) == 2:
            raise OSError(28, "No space left on device")
        return real(self, name, content)

    monkeypatch.setattr(SweepStore, "put", put)
    with pytest.raises(OSError, match="No space left on device"):
        run_sweep(config(), out, executor=Here())
    monkeypatch.undo()
    assert status(out).done == 2
    assert len(run_sweep(config(), out, executor=Here()).strongest) == 4


def test_a_service_without_credentials_is_said_in_a_line(monkeypatch):
    class NoCredentials(Exception):
        pass

    store = SweepStore("memory://private/sweep")

    def refuse(*_, **__):
        raise NoCredentials("Unable to locate credentials")

    monkeypatch.setattr(store._fs, "cat_file", refuse)
    with pytest.raises(OSError, match=r"out must be a store that can be read .* got memory://private/sweep: Unable"):
        store.begin("0", {})


def test_a_result_can_be_read_later(alone):
    assert SweepResult(alone.url).table.equals(alone.table)
