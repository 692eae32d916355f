"""scikit-learn at its fastest on the same cores: one process per core, one BLAS thread each, only the fits timed.

Run as a module, this file is the worker: it reads one JSON request per line and answers with one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS")
ROWS_BLOCK = 256
"""Targets that the `srp_rows` peer projects in one call."""


class PeerPool:
    """Workers that stay alive between cells, so that interpreter start and imports are paid once.

    Use as a context manager.
    """

    def __init__(self, n_workers: int) -> None:
        environment = os.environ | dict.fromkeys(THREAD_VARIABLES, "1")
        self._folder = tempfile.TemporaryDirectory()
        self._workers = [
            subprocess.Popen(
                [sys.executable, "-m", "bench.peers"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=ROOT,
                env=environment,
            )
            for _ in range(n_workers)
        ]

    def __enter__(self) -> PeerPool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for worker in self._workers:
            worker.communicate()
        self._folder.cleanup()

    def load(self, known: np.ndarray, targets: np.ndarray) -> None:
        """Hands the records of one cell, known (n-1, d) and targets (m, d), to every worker, in their dtype."""
        for name, array in (("known", known), ("targets", targets)):
            np.save(Path(self._folder.name) / f"{name}.npy", array, allow_pickle=False)
        self._ask_all({"load": self._folder.name})

    def fit(self, method: str, *, budget_s: float) -> dict[str, Any]:
        """Lets all workers embed shadows side by side for about budget_s seconds after one untimed fit each.

        Returns:
            fits (shadows embedded by all workers together), workers, wall_s (of the slowest) and ms_per_shadow
            (wall_s over fits: what one shadow costs when every core is busy).

        Raises:
            RuntimeError: a worker died.
        """
        self._ask_all({"warm": method})
        answers = self._ask_all({"fit": method, "budget_s": budget_s})
        fits, wall = sum(answer["fits"] for answer in answers), max(answer["wall_s"] for answer in answers)
        return {"fits": fits, "workers": len(answers), "wall_s": wall, "ms_per_shadow": 1e3 * wall / fits}

    def _ask_all(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        for index, worker in enumerate(self._workers):
            assert worker.stdin is not None
            worker.stdin.write(json.dumps(request | {"index": index}) + "\n")
            worker.stdin.flush()
        answers = []
        for worker in self._workers:
            assert worker.stdout is not None
            line = worker.stdout.readline()
            if not line:
                raise RuntimeError(f"a peer worker ended with code {worker.wait()} on {request}; see its error above")
            answers.append(json.loads(line))
        return answers


def _shadows(method: str, known: np.ndarray, targets: np.ndarray) -> Callable[[Iterator[np.ndarray]], int]:
    """A function that embeds one more shadow, or one more block of them, and returns how many."""
    from sklearn.decomposition import PCA as SklearnPCA
    from sklearn.manifold import MDS as SklearnMDS
    from sklearn.random_projection import SparseRandomProjection as SklearnSRP

    x = np.concatenate([targets[:1], known])

    def one_by_one(embed: Callable[[np.ndarray], np.ndarray]) -> Callable[[Iterator[np.ndarray]], int]:
        def step(queue: Iterator[np.ndarray]) -> int:
            x[0] = next(queue)
            embed(x)
            return 1

        return step

    if method == "pca_default":
        return one_by_one(lambda data: SklearnPCA(n_components=2, random_state=0).fit_transform(data))
    if method == "pca_full":
        return one_by_one(lambda data: SklearnPCA(n_components=2, svd_solver="full").fit_transform(data))
    if method == "mds":
        options = {"n_init": 1, "init": "random", "max_iter": 300, "eps": 1e-6, "random_state": 0}
        return one_by_one(lambda data: np.asarray(SklearnMDS(n_components=2, **options).fit_transform(data)))
    # Pyright takes the type of n_components from its default, "auto".
    projection = SklearnSRP(n_components=2, random_state=0)  # pyright: ignore[reportArgumentType]
    if method == "srp_fit_transform":
        return one_by_one(projection.fit_transform)
    fitted = projection.fit(x)
    if method == "srp_transform":
        return one_by_one(fitted.transform)
    if method == "srp_rows":
        known_coords = fitted.transform(known)

        def block(queue: Iterator[np.ndarray]) -> int:
            rows = fitted.transform(np.stack([next(queue) for _ in range(ROWS_BLOCK)]))
            coords = np.empty((ROWS_BLOCK, len(known) + 1, 2), rows.dtype)
            coords[:, 0], coords[:, 1:] = rows, known_coords
            return ROWS_BLOCK

        return block
    raise ValueError(f"method must be a peer's name, got {method!r}")


def _serve() -> None:
    data: dict[str, np.ndarray] = {}
    queue: Iterator[np.ndarray] = iter(())
    step: Callable[[Iterator[np.ndarray]], int] = lambda _: 0  # noqa: E731
    for line in sys.stdin:
        request = json.loads(line)
        answer: dict[str, Any] = {}
        if "load" in request:
            data = {name: np.load(Path(request["load"]) / f"{name}.npy") for name in ("known", "targets")}
        elif "warm" in request:
            queue = _cycle(np.roll(data["targets"], -request["index"], axis=0))
            step = _shadows(request["warm"], data["known"], data["targets"])
            step(queue)
        else:
            answer = _timed(step, queue, request["budget_s"])
        print(json.dumps(answer), flush=True)


def _cycle(rows: np.ndarray) -> Iterator[np.ndarray]:
    while True:
        yield from rows


def _timed(step: Callable[[Iterator[np.ndarray]], int], queue: Iterator[np.ndarray], budget_s: float) -> dict[str, Any]:
    fits, start = 0, time.perf_counter()
    while True:
        fits += step(queue)
        wall = time.perf_counter() - start
        if wall >= budget_s:
            return {"fits": fits, "wall_s": wall}


if __name__ == "__main__":
    _serve()
