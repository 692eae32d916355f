"""Table II's trials of PCA-Gauss, algorithm 1, beside a plain loop of NumPy and scikit-learn.

    OPENBLAS_NUM_THREADS=1 python -m bench.synthesis

A trial: principal components of the private records, noise on their variances, synthetic records, k-means, silhouette.
Both sides take the experiment's records, sizes and settings. The loop starts every trial from the records, as the
algorithm is written; "loop_once", which has done the components once before, is given beside it. Rates of the loops
come from a few trials in the same run.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import jax
import numpy as np
import tyro
from sklearn.cluster import KMeans
from sklearn.metrics import silhouette_score

from bench import harness
from drjax.core import validate
from drjax.core.statistics import standard_error
from experiments.pca_gauss import data, methods, trials
from experiments.pca_gauss.config import SCALES, Config


def ours(config: Config, task: data.Task, p: int, n_trials: int, seed: int) -> np.ndarray:
    """Silhouettes (n_trials,)."""
    draw_key, judge_key = jax.random.split(jax.random.key(seed))
    method = methods.CLUSTERING["pca-gauss"].make(task, p, config)
    n = config.clustering.n_synthetic
    made, _, _ = trials.draw(draw_key, method, task, config.epsilon, 0.0, n, n_trials)
    return np.array(trials.silhouettes(judge_key, config, np.asarray(made.x), config.n_clusters)[0])


def variances(x: np.ndarray, center: np.ndarray, p: int, solver: str) -> np.ndarray:
    """The p largest eigenvalues of the second moment of records in [-1, 1] about a public centre."""
    rows = x - center
    if solver == "svd":
        return np.linalg.svd(rows, compute_uv=False)[:p] ** 2 / len(x)
    return np.linalg.eigvalsh(rows.T @ rows)[::-1][:p] / len(x)


def trial(rng: np.random.Generator, config: Config, n: int, m: int, found: np.ndarray) -> float:
    """The rest of a trial, from eigenvalues of n records of m features."""
    # Records less the centre have norm at most sqrt(m), so one that is replaced moves the eigenvalues by 2 m / n in L1.
    noisy = found + rng.laplace(scale=2 * m / (n * config.epsilon), size=len(found))
    covariance = np.diag(np.maximum(noisy, 0))
    x = rng.multivariate_normal(np.zeros(len(found)), covariance, size=config.clustering.n_synthetic)
    seed = int(rng.integers(2**31))
    machine = KMeans(config.n_clusters, n_init=config.n_init, random_state=seed)
    labels = machine.fit_predict(x)
    return float(silhouette_score(x, labels, sample_size=config.silhouette_sample, random_state=seed))


def main(
    *,
    scale: str = "cpu",
    p: tuple[int, ...] = (5, 17),
    loop_trials: int = 5,
    repeats: int = 3,
    out: Path = harness.RESULTS / "synthesis.jsonl",
) -> None:
    """Measures the trials of one cell of table II for some numbers of components.

    Args:
        scale: Of the experiment.
        p: Numbers of components.
        loop_trials: That the loops are timed on.
        repeats: Timed calls of drjax, at most.
        out: JSON-lines file that the rows are added to.
    """
    validate.one_of(SCALES, scale=scale)
    validate.integer(loop_trials=loop_trials)
    config = SCALES[scale]
    part = config.clustering
    task = data.task(part.data, n_private=part.n_private, seed=config.seed)
    box = methods.box_of(task)
    x = np.asarray(box.encode(task.x), np.float64)
    n, m = x.shape
    center = np.asarray(box.encode(methods.public_center(task)[None]), np.float64)[0]
    for one in p:
        labels: dict[str, Any] = {
            "data": task.name, "n": n, "d": m, "p": one, "n_synthetic": part.n_synthetic,
            "n_clusters": config.n_clusters, "n_init": config.n_init, "silhouette_sample": config.silhouette_sample,
        }  # fmt: skip
        fast = harness.measure(
            "synthesis/drjax", ours, config, task, one, part.trials, 0, repeats=repeats, trials=part.trials, **labels
        )
        harness.append_row(out, fast)
        mean = float(ours(config, task, one, part.trials, 0).mean())
        known = variances(x, center, one, "eigh")
        loops = {
            "loop_eigh": lambda rng, one=one: trial(rng, config, n, m, variances(x, center, one, "eigh")),
            "loop_svd": lambda rng, one=one: trial(rng, config, n, m, variances(x, center, one, "svd")),
            "loop_once": lambda rng, known=known: trial(rng, config, n, m, known),
        }
        print(f"p = {one}: drjax {fast['run_s']:.2f} s for {part.trials} trials, S.C. {mean:.4f}")
        for name, step in loops.items():
            rng = np.random.default_rng(0)

            def run(step: Any = step, rng: np.random.Generator = rng) -> np.ndarray:
                return np.array([step(rng) for _ in range(loop_trials)])

            slow = harness.measure(f"synthesis/{name}", run, repeats=1, budget_s=1e-3, trials=loop_trials, **labels)
            slow["all_trials_s"] = slow["run_s"] * part.trials / loop_trials
            slow["times_drjax"] = slow["all_trials_s"] / fast["run_s"]
            found = run()
            # The two sides do the same thing, up to noise of a few trials.
            margin = 6 * float(standard_error(found)) + 0.02 if loop_trials > 1 else math.inf
            if abs(float(found.mean()) - mean) > margin:
                raise RuntimeError(f"silhouettes must agree, got {mean:.4f} and {found.mean():.4f} of {name}")
            print(f"  {name}: {slow['all_trials_s']:.0f} s, {slow['times_drjax']:.1f} x, S.C. {found.mean():.4f}")
            harness.append_row(out, slow)


if __name__ == "__main__":
    tyro.cli(main)
