"""Reference libraries at their fastest on the same cores: a process per core, a thread each, only fits timed.

Run as a module, this file is the worker: it reads one JSON request per line and answers with one.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "NUMBA_NUM_THREADS",
)
ROWS_BLOCK = 256
"""Targets that the `srp_rows` peer projects in one call."""

Step = Callable[[Iterator[np.ndarray]], tuple[int, float]]
"""Embeds one more shadow, or one more block: how many, and the sum of their iterations (UMAP: attractive updates)."""


STANDARD = "standard_"
"""In front of the name of a peer that is given standardised records."""

MODULES = {"umap": "umap", "opentsne": "openTSNE", "torchdr": "torchdr"}
"""Modules that peers need beside scikit-learn, by how the peer's name begins."""


def lacking(method: str) -> str | None:
    """Why a peer cannot run here, None if it can: "torchdr is not installed"."""
    modules = [module for start, module in MODULES.items() if method.startswith(start)]
    absent = [module for module in modules if importlib.util.find_spec(module) is None]
    return f"{absent[0]} is not installed" if absent else None


def perplexity(n: int) -> float:
    """The usual 30, or a third of the other records where that is less."""
    return min(30.0, (n - 1) / 3)


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
        self.close()

    def close(self) -> None:
        """Ends the workers once they have done what they were asked for."""
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
            fits (shadows embedded by all workers together), workers, wall_s (of the slowest), ms_per_shadow (wall_s
            over fits: what one shadow costs when every core is busy) and n_iter (mean iterations of a fit; of UMAP its
            attractive updates; 0 where the method has none).

        Raises:
            RuntimeError: a worker died.
        """
        self._ask_all({"warm": method})
        answers = self._ask_all({"fit": method, "budget_s": budget_s})
        fits, wall = sum(answer["fits"] for answer in answers), max(answer["wall_s"] for answer in answers)
        n_iter = sum(answer["n_iter"] for answer in answers) / fits
        per_shadow = {"ms_per_shadow": 1e3 * wall / fits, "n_iter": n_iter}
        return {"fits": fits, "workers": len(answers), "wall_s": wall} | per_shadow

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


def _shadows(method: str, known: np.ndarray, targets: np.ndarray) -> Step:
    x = np.concatenate([targets[:1], known])

    def one_by_one(embed: Callable[[np.ndarray], float]) -> Step:
        def step(queue: Iterator[np.ndarray]) -> tuple[int, float]:
            x[0] = next(queue)
            return 1, embed(x)

        return step

    if method.removeprefix(STANDARD).startswith("pca"):
        from sklearn.decomposition import PCA as SklearnPCA
        from sklearn.preprocessing import StandardScaler

        solver = "full" if method.endswith("pca_full") else "auto"

        def pca(data: np.ndarray) -> float:
            data = StandardScaler().fit_transform(data) if method.startswith(STANDARD) else data
            return _run(SklearnPCA(n_components=2, svd_solver=solver, random_state=0), data)

        return one_by_one(pca)
    if method.startswith("srp"):
        return _projections(method, x, one_by_one)
    if method == "umap":
        from umap import UMAP as UmapLearn

        warnings.filterwarnings("ignore", message="n_jobs value 1 overridden", category=UserWarning)
        warnings.filterwarnings("ignore", message="n_neighbors is larger than the dataset", category=UserWarning)

        def fit(data: np.ndarray) -> float:
            model = UmapLearn(n_components=2, n_neighbors=15, random_state=0)
            weights = model.fit(data).graph_.tocsr().data
            # An edge is due every max / weight epochs of the 500, the first time after that many.
            return float(np.floor(499 * (weights / weights.max()).astype(np.float64)).sum())

        return one_by_one(fit)
    if method.startswith("opentsne"):
        return one_by_one(_opentsne(method, len(x)))
    if method.startswith("torchdr"):
        return one_by_one(_torchdr(method, len(x)))
    from sklearn import manifold

    if method == "mds":
        options: dict[str, Any] = {"n_init": 1, "init": "random", "max_iter": 300, "eps": 1e-6, "random_state": 0}
        return one_by_one(lambda data: _run(manifold.MDS(n_components=2, **options), data))
    if method == "classical_mds":
        return one_by_one(lambda data: _run(manifold.ClassicalMDS(n_components=2), data))
    if method == "isomap":
        return one_by_one(lambda data: _run(manifold.Isomap(n_components=2, n_neighbors=5), data))
    if method == "tsne":
        options = {"perplexity": perplexity(len(x)), "random_state": 0, "n_jobs": 1}
        return one_by_one(lambda data: _run(manifold.TSNE(n_components=2, **options), data))
    raise ValueError(f"method must be a peer's name, got {method!r}")


def _opentsne(method: str, n: int) -> Callable[[np.ndarray], float]:
    # Of the extra "bench", which tests do not install.
    from openTSNE import TSNE as OpenTSNE

    kinds = {"opentsne_bh": "bh", "opentsne_fft": "fft"}
    if method not in kinds:
        raise ValueError(f"method must be a peer's name, got {method!r}")
    # Exact neighbours: at a thousand records faster than building an index.
    options: dict[str, Any] = {"negative_gradient_method": kinds[method], "neighbors": "exact"}
    options["perplexity"] = perplexity(n)
    model = OpenTSNE(initialization="pca", random_state=0, n_jobs=1, **options)

    def fit(data: np.ndarray) -> float:
        model.fit(data)
        return float(model.early_exaggeration_iter + model.n_iter)

    return fit


def _torchdr(method: str, n: int) -> Callable[[np.ndarray], float]:
    # Brings PyTorch, which no extra of drjax does.
    import torch
    import torchdr

    # UMAP's own default, "faiss", wants another package; None computes the same neighbours on the device.
    own: dict[str, dict[str, Any]] = {
        "pca": {},
        "tsne": {"perplexity": perplexity(n)},
        "umap": {"n_neighbors": 15, "backend": None},
    }
    name = method.removeprefix("torchdr_")
    if name not in own:
        raise ValueError(f"method must be a peer's name, got {method!r}")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    kind = {"pca": "PCA", "tsne": "TSNE", "umap": "UMAP"}[name]

    def fit(data: np.ndarray) -> float:
        # The result is copied to the host, which waits for the device.
        model = getattr(torchdr, kind)(n_components=2, device=device, **own[name])
        np.asarray(model.fit_transform(data))
        return float(getattr(model, "n_iter_", 0))

    return fit


def _run(model: Any, data: np.ndarray) -> float:
    """Fits; the iterations it took, 0 where the method has none."""
    model.fit_transform(data)
    return float(getattr(model, "n_iter_", 0))


def _projections(method: str, x: np.ndarray, one_by_one: Callable[[Callable[[np.ndarray], float]], Step]) -> Step:
    from sklearn.random_projection import SparseRandomProjection as SklearnSRP

    projection = SklearnSRP(n_components=2, random_state=0)
    if method == "srp_fit_transform":
        return one_by_one(lambda data: _run(projection, data))
    fitted = projection.fit(x)
    if method == "srp_transform":
        return one_by_one(lambda data: 0.0 * len(fitted.transform(data)))
    if method != "srp_rows":
        raise ValueError(f"method must be a peer's name, got {method!r}")
    known_coords = fitted.transform(x[1:])

    def block(queue: Iterator[np.ndarray]) -> tuple[int, float]:
        rows = fitted.transform(np.stack([next(queue) for _ in range(ROWS_BLOCK)]))
        coords = np.empty((ROWS_BLOCK, len(x), 2), rows.dtype)
        coords[:, 0], coords[:, 1:] = rows, known_coords
        return ROWS_BLOCK, 0.0

    return block


def _serve() -> None:
    data: dict[str, np.ndarray] = {}
    queue: Iterator[np.ndarray] = iter(())
    step: Step = lambda _: (0, 0.0)  # noqa: E731
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


def _timed(step: Step, queue: Iterator[np.ndarray], budget_s: float) -> dict[str, Any]:
    fits, n_iter, start = 0, 0.0, time.perf_counter()
    while True:
        count, iterations = step(queue)
        fits, n_iter = fits + count, n_iter + iterations
        wall = time.perf_counter() - start
        if wall >= budget_s:
            return {"fits": fits, "wall_s": wall, "n_iter": n_iter}


if __name__ == "__main__":
    _serve()
