"""What attacks on scikit-learn's releases say of their own answers: tables of docs/attacks."""

from __future__ import annotations

import functools
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np
from sklearn import datasets
from sklearn.decomposition import PCA, IncrementalPCA, TruncatedSVD
from sklearn.preprocessing import MinMaxScaler, Normalizer, RobustScaler

from drjax import dr
from drjax.attacks import certificate
from drjax.attacks.reconstruction.closed_form import reconstruct_pca
from drjax.core.types import Reconstruction, Status
from drjax.dr import MinMax, Pipeline, Robust, UnitRows
from experiments.pipelines.releases import RELEASES, Release, drawn, in_turn, made, threat_of
from experiments.pipelines.run import attacked

N_KNOWN, N_TARGETS, N_MAPS = 199, 100, 10

TABLES_OF_SVD = ("breast cancer", "wine", "digits")

Fit = Callable[[np.ndarray, int], np.ndarray]


def _of(solver: str) -> Fit:
    return lambda x, k: PCA(k, svd_solver=solver, random_state=0).fit_transform(x)


def _rounded(decimals: int) -> Fit:
    return lambda x, k: np.round(_of("full")(x, k), decimals)


def _batches(size: int | None) -> Fit:
    return lambda x, k: IncrementalPCA(k, batch_size=size).fit_transform(x)


SOLVERS: Mapping[str, Mapping[str, Fit]] = {
    "exact": {
        **{solver: _of(solver) for solver in ("full", "arpack", "randomized")},
        "float32": lambda x, k: _of("full")(x, k).astype(np.float32),
        "of float32": lambda x, k: _of("full")(x.astype(np.float32), k),
        **{f"{decimals} decimals": _rounded(decimals) for decimals in (2, 4, 6)},
    },
    "batches": {str(size): _batches(size) for size in (40, 100, None)},
}
"""What makes scores of records and a number of components, by kind of solver."""

COMPONENTS = (1, 2, 5, 10)

SIZES = (19, 60, 150)
"""Records that the adversary knows."""

SETS = {
    "iris": datasets.load_iris,
    "wine": datasets.load_wine,
    "breast cancer": datasets.load_breast_cancer,
    "digits": datasets.load_digits,
    "diabetes": datasets.load_diabetes,
    "diabetes, units": functools.partial(datasets.load_diabetes, scaled=False),
}
"""scikit-learn's small sets by name."""

TOO_SURE = 10
"""Times the expected error beyond which an answer was too sure."""


def closed_form(kind: str, is_toy: bool) -> dict[str, Any]:
    """How many answers of PCA's closed form have which status, and how many of those that say OK are wrong.

    Wrong is an error above the mean record's, in units of the features or standardised.
    """
    counts: Counter[str] = Counter()
    worst = 0.0
    for known, target in _small(1 if is_toy else 3):
        x = np.concatenate([target[None], known])
        for k in COMPONENTS:
            if k >= min(x.shape[1], 30 if len(x) > 30 else 15):
                continue
            for fit in SOLVERS[kind].values():
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    found = reconstruct_pca(known, fit(x, k))
                counts["attacks"] += 1
                worst = max(worst, _counted(found, known, target, counts))
    names = ("attacks", "refused", "uncertified", "ok", "wrong", "too_sure")
    return {**{name: counts[name] for name in names}, "worst": worst}


def _small(n_targets: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Known records and a target, as they are and standardised, of every set and size."""
    for load in SETS.values():
        found: Any = load()
        x = np.unique(np.asarray(found.data, np.float64), axis=0)
        x = x[np.random.default_rng(0).permutation(len(x))]
        deviation = x.std(axis=0)
        for records in (x, (x - x.mean(axis=0)) / np.where(deviation > 0, deviation, 1)):
            for size in SIZES:
                for target in records[size : size + n_targets] if len(x) > size + n_targets else ():
                    yield records[:size], target


def _counted(found: Reconstruction, known: np.ndarray, target: np.ndarray, counts: Counter[str]) -> float:
    """Adds an answer to the counts; returns its error over the mean record's if it says OK and is wrong, else 0."""
    status = int(found.status)
    if status:
        counts["uncertified" if status == Status.UNCERTIFIED else "refused"] += 1
        return 0.0
    counts["ok"] += 1
    deviation = known.std(axis=0)
    own, mean = np.asarray(found.x) - target, known.mean(axis=0) - target
    varies = deviation > 1e-9 * np.abs(known).max(axis=0)
    ratios = [
        np.mean(own**2) / np.mean(mean**2),
        np.mean((own[varies] / deviation[varies]) ** 2) / np.mean((mean[varies] / deviation[varies]) ** 2),
    ]
    counts["wrong"] += int(max(ratios) > 1)
    assert found.expected_mse is not None
    counts["too_sure"] += int(np.mean(own**2) > TOO_SURE * float(found.expected_mse))
    return float(max(ratios)) if max(ratios) > 1 else 0.0


def _svd(scaler: Any = None, *, dtype: Any = float, **options: Any) -> Fit:
    own = in_turn(*([] if scaler is None else [scaler]), lambda: TruncatedSVD(2, **options))
    return lambda x, seed: own(x, seed).astype(dtype)


def _scores(*before: Any) -> Pipeline:
    return Pipeline(before=before, method=dr.TruncatedSVD())


SVD = {
    "TruncatedSVD": Release(_svd(algorithm="arpack"), dr.TruncatedSVD(), "closed-form-known"),
    "the same, randomised solver": Release(_svd(), dr.TruncatedSVD(), "closed-form-known"),
    "the same, float32": Release(_svd(algorithm="arpack", dtype=np.float32), dr.TruncatedSVD(), "closed-form-known"),
    "MinMaxScaler, TruncatedSVD": Release(_svd(MinMaxScaler, algorithm="arpack"), _scores(MinMax()), "behind-steps"),
    "RobustScaler, TruncatedSVD": Release(_svd(RobustScaler, algorithm="arpack"), _scores(Robust()), "behind-steps"),
    "Normalizer, TruncatedSVD": Release(_svd(Normalizer, algorithm="arpack"), _scores(UnitRows()), "behind-steps"),
}
"""Truncated SVD of two components by name."""


def truncated_svd(name: str, data: str, is_toy: bool) -> dict[str, Any]:
    """What the attack on a release of truncated SVD leaves, and how many of its answers are OK and how many worse."""
    release = SVD[name]
    known, targets, _ = drawn(data, N_KNOWN, 2 if is_toy else N_TARGETS, 0)
    coords, key = made(release, known, list(targets), 0), jax.random.key(0)
    with jax.enable_x64(True):
        found = attacked(key, release, threat_of(key, release, known, coords, None), targets)
    kept = ("n_targets", "error", "error_median", "ok", "answered", "worse_ok", "calibration", "coverage")
    return {"n_known": len(known), **{name: found[name] for name in kept}}


MAPS = ("MDS", "StandardScaler, MDS", "MDS, manhattan", "StandardScaler, t-SNE", "UMAP, cosine")
"""Maps whose certificate is tried, keys of `RELEASES`."""


def certified(name: str, data: str, is_toy: bool) -> dict[str, Any]:
    """How many records pass the certificate of a map: the true one, another target's, the nearest known, the mean."""
    release = RELEASES[name]
    known, targets, _ = drawn(data, N_KNOWN, 2 if is_toy else N_MAPS, 0)
    unit = known.std(axis=0)
    scaled = known / np.where(unit > 0, unit, 1)
    passed: Counter[str] = Counter()
    for i, (target, coords) in enumerate(zip(targets, made(release, known, list(targets), 0), strict=True)):
        apart = ((scaled - target / np.where(unit > 0, unit, 1)) ** 2).sum(axis=1)
        tried = {
            "true": target,
            "other": targets[(i + 1) % len(targets)],
            "nearest": known[apart.argmin()],
            "mean": known.mean(axis=0),
        }
        for who, x in tried.items():
            passed[who] += int(certificate.of_map(release.method, known, coords, x).is_at_rest)
    return {"n_targets": len(targets), "n_known": len(known), "passed": dict(passed)}


TABLES = {
    "closed-form": {kind: functools.partial(closed_form, kind) for kind in SOLVERS},
    "svd": {f"{name}, {data}": functools.partial(truncated_svd, name, data) for name in SVD for data in TABLES_OF_SVD},
    "certificate": {
        f"{name}, {data}": functools.partial(certified, name, data) for name in MAPS for data in TABLES_OF_SVD
    },
}
"""What computes the facts of a cell, by table and cell."""
