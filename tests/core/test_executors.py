"""Tasks on executors: all results, whichever workers die."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec

import pytest

from drjax.core import executors


def square(x):
    return x * x


def fail(x):
    raise ValueError(f"x must be even, got {x}")


def die_once(folder, x):
    """Kills its worker at the first try."""
    mark = folder / str(x)
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return os.getpid(), x


def die(_):
    os.kill(os.getpid(), signal.SIGKILL)


needs = {
    name: pytest.mark.skipif(find_spec(package) is None, reason=f"needs the extra drjax[{name}]")
    for name, package in executors.PACKAGES.items()
}
EVERY = [pytest.param(name, marks=needs.get(name, ())) for name in executors.NAMES]


@pytest.mark.parametrize("name", EVERY)
def test_every_task_runs_and_a_dead_worker_loses_none(name, tmp_path):
    assert dict(executors.run(square, [(i,) for i in range(5)], executor=name, workers=2)) == {
        i: i * i for i in range(5)
    }
    found = dict(executors.run(die_once, [(tmp_path, i) for i in range(4)], executor=name, workers=2))
    assert {number: x for number, (_, x) in found.items()} == {i: i for i in range(4)}
    assert os.getpid() not in {process for process, _ in found.values()}


@pytest.mark.parametrize("name", EVERY)
def test_what_a_task_raises_arrives(name):
    with pytest.raises(ValueError, match="x must be even, got 1"):
        list(executors.run(fail, [(1,), (3,)], executor=name, workers=1))


def test_a_task_that_always_ends_its_worker_is_given_up(monkeypatch):
    monkeypatch.setattr(executors, "ATTEMPTS", 2)
    with pytest.raises(RuntimeError, match=r"task \(7,\) ended its worker 2 times"):
        list(executors.run(die, [(7,)], executor="local", workers=1))


def test_an_executor_of_the_callers_own_stays_open():
    with ThreadPoolExecutor(2) as pool:
        assert sorted(executors.run(square, [(i,) for i in range(3)], executor=pool)) == [(0, 0), (1, 1), (2, 4)]
        assert pool.submit(square, 3).result() == 9


def test_the_end_of_a_task_makes_others_possible():
    def then(number, result):
        return [(result,)] * 2 if number == 0 else []

    with ThreadPoolExecutor(2) as pool:
        found = dict(executors.run(square, [(2,), (5,)], then=then, executor=pool))
    assert sorted(found) == list(range(4))
    assert found == {0: 4, 1: 25, 2: 16, 3: 16}


def test_tasks_are_given_a_few_at_a_time(monkeypatch):
    monkeypatch.setattr(executors, "AHEAD", 3)
    with ThreadPoolExecutor(2) as pool:
        assert dict(executors.run(square, [(i,) for i in range(9)], executor=pool)) == {i: i * i for i in range(9)}


def test_a_script_needs_no_guard(tmp_path):
    script = tmp_path / "script.py"
    lines = ("from drjax.core import executors", "print(list(executors.run(abs, [(-3,)], workers=1)))")
    script.write_text("\n".join(lines))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.returncode) == ("[(0, 3)]\n", 0), done.stderr


def test_no_tasks_start_nothing():
    assert list(executors.run(square, [], executor="local")) == []


def test_bad_executors_are_refused(monkeypatch):
    with pytest.raises(ValueError, match="executor must be one of dask, local, ray, slurm; got 'spark'"):
        executors.check("spark")
    with pytest.raises(ValueError, match=r"executor must be one of .* or have a method submit, got 3"):
        executors.check(3)
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setattr(executors.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ValueError, match=r"needs the package ray, which is not installed: pip install 'drjax\[ray\]'"):
        executors.check("ray")
    with pytest.raises(ValueError, match="workers must be an integer >= 1, got 0"):
        list(executors.run(square, [(1,)], executor="local", workers=0))


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system does not say which cores a process has")
def test_workers_share_the_cores():
    cores = os.sched_getaffinity(0)
    for workers in (1, 2, 3 * len(cores)):
        shares = executors._shares(workers)
        assert len(shares) == workers
        assert set().union(*shares) == cores
        assert max(map(len, shares)) - min(map(len, shares)) <= 1
