"""Where tasks run: processes of this machine, Ray, Dask or SLURM, or any `concurrent.futures.Executor`.

A task is a call of a function of a module's top level with arguments that can be pickled. It keeps its own results, in
a store that all workers reach, and may therefore run twice; what it returns is small. So a worker that dies loses
nothing but the task that it was at, which another worker takes up.
"""

from __future__ import annotations

import collections
import importlib.util
import os
import queue
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Executor, Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any

import loky

from drjax.core import validate
from drjax.core.store import cache_dir

ATTEMPTS = 20
"""Times that a task is begun, at most: a worker's death may be anybody's fault, but not for ever."""

AHEAD = 1024
"""Tasks that an executor is given at a time: what tasks leave for those that follow does not pile up."""

POLL_SECONDS = 0.5
"""Time between two looks at jobs of SLURM."""

PACKAGES = {"ray": "ray", "dask": "distributed", "slurm": "submitit"}
"""Module that an executor needs, by the executor's name, which is that of the extra of drjax, too."""

NAMES = ("local", *PACKAGES)


def run(
    work: Callable[..., Any],
    tasks: Sequence[tuple[Any, ...]],
    *,
    then: Callable[[int, Any], Sequence[tuple[Any, ...]]] | None = None,
    executor: str | Executor = "local",
    workers: int | None = None,
    ahead: int | None = None,
) -> Iterator[tuple[int, Any]]:
    """Runs `work(*task)` for every task; yields (number of the task, what it returned) as they end.

    When the caller stops, or a task raises, what has not begun is not begun.

    Args:
        work: Function of a module's top level that may run twice for a task.
        tasks: Arguments of each call, numbered from 0; asked for when they begin.
        then: Tasks that the end of one makes possible, from its number and what it returned, numbered on in the order
            in which they come; none if None.
        executor: "local" for processes of this machine, "ray", "dask" or "slurm" (see `opened`), or an executor of the
            caller's own, which is left open.
        workers: Workers to ask for; if None one per core of this machine, or what the cluster has.
        ahead: Most tasks that have begun and not ended; `AHEAD` if None.

    Raises:
        ValueError: an unknown executor, or one whose package is missing.
        RuntimeError: a task's worker died `ATTEMPTS` times.
        Exception: whatever a task raises.
    """
    if not tasks:
        return
    if workers is not None:
        validate.integer(workers=workers)
    if executor == "local" and then is None:
        workers = min(workers or _n_cores(), len(tasks))
    n_begun, count, most = 0, len(tasks), AHEAD if ahead is None else ahead
    running: dict[Future, int] = {}
    ended: queue.SimpleQueue[Future] = queue.SimpleQueue()

    def begin(number: int, task: tuple[Any, ...]) -> None:
        future = pool.submit(work, *task)
        running[future] = number
        future.add_done_callback(ended.put)

    with opened(executor, workers) as pool:
        try:
            while n_begun < len(tasks) or running:
                while n_begun < len(tasks) and len(running) < most:
                    begin(n_begun, tasks[n_begun])
                    n_begun += 1
                future = ended.get()
                number, result = running.pop(future), future.result()
                for task in then(number, result) if then else ():
                    begin(count, task)
                    count += 1
                yield number, result
        finally:
            for future in running:
                future.cancel()


def check(executor: str | Executor) -> None:
    """Checks that an executor exists and that its package is installed.

    Raises:
        ValueError: it does not, or is not.
    """
    if isinstance(executor, str):
        validate.one_of(NAMES, executor=executor)
        package = PACKAGES.get(executor)
        if package is not None and importlib.util.find_spec(package) is None:
            raise ValueError(
                f"executor {executor!r} needs the package {package}, which is not installed: "
                f"pip install 'drjax[{executor}]'"
            )
    elif not callable(getattr(executor, "submit", None)):
        raise ValueError(f"executor must be one of {', '.join(NAMES)} or have a method submit, got {executor!r}")


@contextmanager
def opened(executor: str | Executor, workers: int | None = None) -> Generator[Executor]:
    """An executor by name, closed when the block ends.

    "ray" joins the cluster that RAY_ADDRESS names, or else starts one here; "dask" connects to the scheduler that
    DASK_SCHEDULER_ADDRESS names, or else starts one here; "slurm" submits a job for each task, at
    most `workers` at a time, with what SBATCH_* variables say; where there is no SLURM, submitit runs jobs here.

    Raises:
        ValueError: as `check`, or workers that are no positive integer.
    """
    check(executor)
    if workers is not None:
        validate.integer(workers=workers)
    if not isinstance(executor, str):
        yield executor
        return
    opener = {"local": _local, "ray": _ray, "dask": _dask, "slurm": _slurm}[executor]
    with opener(workers) as pool:
        yield pool


class LocalExecutor(Executor):
    """Processes of this machine, each with a share of its cores; one that dies is replaced, and its task begun again.

    Unlike `ProcessPoolExecutor`, which ends with its first worker. Workers do not run the caller's script, which needs
    no guard therefore.
    """

    def __init__(self, workers: int) -> None:
        """Starts nothing yet: a worker starts with its first task.

        Args:
            workers: Number of processes.
        """
        self._tasks: queue.SimpleQueue[tuple[Future, Callable[..., Any], tuple, int] | None] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=self._serve, args=(cores,), daemon=True) for cores in _shares(workers)]
        for thread in self._threads:
            thread.start()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future:
        """See `Executor.submit`."""
        future: Future = Future()
        self._tasks.put((future, _called, (fn, args, kwargs), 1))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """See `Executor.shutdown`."""
        if cancel_futures:
            while True:
                try:
                    task = self._tasks.get_nowait()
                except queue.Empty:
                    break
                if task is not None:
                    task[0].cancel()
        for _ in self._threads:
            self._tasks.put(None)
        if wait:
            for thread in self._threads:
                thread.join()

    def _serve(self, cores: frozenset[int] | None) -> None:
        pool = None
        while (task := self._tasks.get()) is not None:
            future, fn, args, attempt = task
            if attempt == 1 and not future.set_running_or_notify_cancel():
                continue
            if pool is None:
                # New processes: a fork of one with threads of JAX or BLAS may hang.
                pool = loky.ProcessPoolExecutor(1, timeout=None, initializer=_stay_on, initargs=(cores,))
            try:
                future.set_result(pool.submit(fn, *args).result())
            except BrokenProcessPool:
                pool = None
                if attempt < ATTEMPTS:
                    self._tasks.put((future, fn, args, attempt + 1))
                else:
                    future.set_exception(RuntimeError(f"task {args[1]} ended its worker {ATTEMPTS} times"))
            except BaseException as error:
                future.set_exception(error)
        if pool is not None:
            pool.shutdown()


@contextmanager
def _local(workers: int | None) -> Generator[Executor]:
    pool = LocalExecutor(workers or _n_cores())
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _n_cores() -> int:
    from drjax.core.host import n_cores  # which imports JAX: a worker may not need it

    return n_cores()


def _called(fn: Callable[..., Any], args: tuple, kwargs: dict[str, Any]) -> Any:
    return fn(*args, **kwargs)


def _outcome(fn: Callable[..., Any], args: tuple, kwargs: dict[str, Any]) -> tuple[Any, BaseException | None]:
    """What a call returned, and what it raised: of a job that raises, submitit gives back only the text."""
    try:
        return fn(*args, **kwargs), None
    except Exception as error:
        return None, error


def _shares(workers: int) -> list[frozenset[int] | None]:
    """Cores of each of some workers, as even as they go; None where the system cannot say."""
    if not hasattr(os, "sched_getaffinity"):
        return [None] * workers
    cores = sorted(os.sched_getaffinity(0))
    return [frozenset(cores[i::workers] or [cores[i % len(cores)]]) for i in range(workers)]


def _stay_on(cores: frozenset[int] | None) -> None:
    if cores is not None:
        os.sched_setaffinity(0, cores)


@contextmanager
def _ray(workers: int | None) -> Generator[Executor]:
    import ray  # of the extra "ray"

    is_ours = not ray.is_initialized()
    if is_ours:
        ray.init(num_cpus=None if "RAY_ADDRESS" in os.environ else workers, log_to_driver=False)
    remote = ray.remote(max_retries=ATTEMPTS, num_cpus=1)(_called)
    try:
        yield _Submitting(lambda *task: remote.remote(*task).future())
    finally:
        if is_ours:
            ray.shutdown()


@contextmanager
def _dask(workers: int | None) -> Generator[Executor]:
    import dask  # of the extra "dask"
    import distributed  # of the extra "dask"

    address = os.environ.get("DASK_SCHEDULER_ADDRESS")
    here: dict[str, Any] = {"n_workers": workers or _n_cores(), "threads_per_worker": 1, "dashboard_address": None}
    # A worker's death counts against every task that waited for it. A scheduler elsewhere has its own number.
    patience = dask.config.set({"distributed.scheduler.allowed-failures": ATTEMPTS})
    with patience, distributed.Client(address, **({} if address else here)) as client:
        yield client.get_executor(pure=False)


@contextmanager
def _slurm(workers: int | None) -> Generator[Executor]:
    import submitit  # of the extra "slurm"

    pool = _Jobs(submitit.AutoExecutor(folder=cache_dir() / "slurm" / "%j"), workers)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


class _Jobs(Executor):
    """A job of submitit's for each task, at most so many at a time; one that dies is submitted again."""

    def __init__(self, pool: Any, most: int | None) -> None:
        self._pool, self._most = pool, most
        self._waiting: collections.deque[tuple[Future, tuple, int]] = collections.deque()
        self._running: list[tuple[Any, Future, tuple, int]] = []
        self._is_closed = False
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future:
        future: Future = Future()
        self._waiting.append((future, (fn, args, kwargs), 1))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        if cancel_futures:
            for future, _, _ in list(self._waiting):
                future.cancel()
        self._is_closed = True
        if wait:
            self._thread.join()

    def _watch(self) -> None:
        while self._waiting or self._running or not self._is_closed:
            while self._waiting and (self._most is None or len(self._running) < self._most):
                future, task, attempt = self._waiting.popleft()
                if attempt > 1 or future.set_running_or_notify_cancel():
                    self._running.append((self._pool.submit(_outcome, *task), future, task, attempt))
            ended = [entry for entry in self._running if entry[0].done()]
            self._running = [entry for entry in self._running if entry not in ended]
            for job, future, task, attempt in ended:
                self._settle(job, future, task, attempt)
            time.sleep(POLL_SECONDS)

    def _settle(self, job: Any, future: Future, task: tuple, attempt: int) -> None:
        import submitit  # of the extra "slurm"

        try:
            result, error = job.result()
        except submitit.core.utils.UncompletedJobError as died:
            if attempt < ATTEMPTS:
                self._waiting.append((future, task, attempt + 1))
                return
            result, error = None, died
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)


class _Submitting(Executor):
    """An executor made of a function that begins a task and returns its future."""

    def __init__(self, begin: Callable[..., Future]) -> None:
        self._begin = begin

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future:
        return self._begin(fn, args, kwargs)
