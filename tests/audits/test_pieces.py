"""Audits by workers: the files of one process, whoever did which piece."""

from concurrent.futures import Executor, Future

import numpy as np

from drjax.audits import AuditConfig, pieces, run
from drjax.dr import PCA
from drjax.reports import records

SMALL = {"n_known": 30, "n_shadow": 40, "n_validation": 20, "n_targets": 6, "attacks": ("closed-form", "nearest")}


class Here(Executor):
    """Does every task at once in this process, and every one twice."""

    def __init__(self):
        self.tasks = []

    def submit(self, fn, /, *args, **kwargs):
        future = Future()
        self.tasks.append(args[1])
        fn(*args, **kwargs)
        future.set_result(fn(*args, **kwargs))
        return future


def arrays_of(folder):
    return {str(file.relative_to(folder)): records.load_arrays(file) for file in sorted(folder.rglob("*.npz"))}


def assert_same_files(one, other):
    first, second = arrays_of(one), arrays_of(other)
    assert first.keys() == second.keys()
    for name, arrays in first.items():
        for field, array in arrays.items():
            np.testing.assert_array_equal(array, second[name][field], err_msg=f"{name}: {field}")


def test_workers_leave_what_one_process_does(tmp_path):
    config = AuditConfig(data="digits", **SMALL)
    alone = run(config, tmp_path / "alone")
    pool = Here()
    shared = run(config, tmp_path / "shared", executor=pool)
    assert {piece.name for piece in pool.tasks} == {"shadows", "releases", "closed-form"}
    assert_same_files(alone.folder, shared.folder)
    scores = [[(row.label, row.scores.mse, row.scores.identification) for row in made.rows] for made in (alone, shared)]
    assert scores[0] == scores[1]


class Apart(Here):
    """Workers of which each does one piece, and knows nothing of those before."""

    def submit(self, fn, /, *args, **kwargs):
        pieces.close()
        return super().submit(fn, *args, **kwargs)


def test_workers_take_what_the_first_made_of_the_known_records(tmp_path, monkeypatch):
    calls, prepare = [], PCA.prepare
    monkeypatch.setattr(
        PCA, "prepare", lambda self, x, **k: calls.append(x.shape) or prepare(self, x + len(calls), **k)
    )
    run(AuditConfig(data="digits", **SMALL), tmp_path / "out", executor=Apart())
    assert calls == [(30, 64)]
    assert not (tmp_path / "out" / "prepared").exists()
