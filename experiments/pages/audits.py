"""Audits whose scores stand in a table of a page: the words of each command, and what is kept of its run."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from scipy.ndimage import zoom

from drjax.cli.main import main
from drjax.data import load
from drjax.reports import records

PCA_OF_MNIST = "audit --data mnist --n-shadow 1300 --n-validation 200 --n-targets 300 --attacks closed-form"

DEFENDED = "audit --data mnist --n-known 99 --n-targets 200 --attacks ridge closed-form --defense"

NOISY = "--defense input-noise --defense-scale"

COMMANDS: Mapping[str, Mapping[str, str]] = {
    "weaker": {
        "informed": f"{PCA_OF_MNIST} closed-form-known",
        "two": f"{PCA_OF_MNIST} closed-form-known --n-unknown 2",
        "three": f"{PCA_OF_MNIST} closed-form-known --n-unknown 3",
        "five": f"{PCA_OF_MNIST} closed-form-known --n-unknown 5",
        "half": f"{PCA_OF_MNIST} closed-form-known --known-fraction 0.5",
        "shuffled": f"{PCA_OF_MNIST} closed-form-known --shuffled",
        "shuffled-five": f"{PCA_OF_MNIST} closed-form-known --shuffled --n-components 5",
        "public": f"{PCA_OF_MNIST} closed-form-known --public-data digits28.npy",
        "features": f"{PCA_OF_MNIST} closed-form-known --known-features 0.5",
    },
    "each-record": {
        f"{data}-{method}": f"audit --each-record --data {data}200.npy --method {method} --attacks {attack}"
        f" --options False"
        for method, attack in {
            "pca": "map closed-form", "srp": "map", "mds": "map", "isomap": "map", "tsne": "map", "umap": "map",
        }.items()
        for data in ("mnist", "digits")
    },
    "prior": {
        "digits-5": "audit --n-known 5 --n-shadow 1200 --n-validation 100 --n-targets 200"
        " --attacks closed-form closed-form-mixture",
        "digits-15": "audit --n-known 15 --n-shadow 1200 --n-validation 100 --n-targets 200"
        " --attacks closed-form closed-form-mixture",
        "mnist-199": "audit --data mnist --n-known 199 --n-shadow 3900 --n-validation 100 --n-targets 1000"
        " --attacks closed-form closed-form-mixture",
        "mds-49": "audit --data mnist --method mds --n-known 49 --n-shadow 3900 --n-validation 100 --n-targets 200"
        " --attacks stationarity stationarity-mixture",
    },
    "models": {"digits": "audit-model --data digits --attacks all --n-targets 10 --n-shadow 300"},
    "noise-digits": {
        "pca": "audit --n-known 99 --n-shadow 400 --n-validation 100 --n-targets 100 --attacks ridge closed-form"
        f" {NOISY} 0.05 0.2 0.5",
        "tsne": "audit --method tsne --perplexity 30 --n-known 99 --n-shadow 400 --n-targets 100"
        f" --attacks ridge invariant {NOISY} 0.05 0.1 0.2 0.4",
    },
    "noise-mnist": {
        "input": f"{DEFENDED} input-noise --defense-scale 0.00784 0.0157 0.0314 0.0627 0.1255 0.3",
        "output": f"{DEFENDED} output-noise --defense-scale 0.001 0.01 0.1 0.3",
        "rounding": f"{DEFENDED} rounding --defense-scale 0.001 0.01 0.1 0.5",
    },
    "pca-of-mnist": {
        "attacks": "audit --data mnist --n-known 199 --n-shadow 4000 --n-validation 500 --n-targets 1000"
        " --attacks ridge invariant dense-network closed-form-known closed-form",
    },
}  # fmt: skip
"""Words of the command by table and cell."""

KEPT = ("n_targets", "n_excluded", "mse", "mse_median", "success", "identification", "seconds_per_target")
"""Scores that are kept of each attack."""


def two_hundred(name: str) -> np.ndarray:
    """200 records of a data set, the first of a permutation by NumPy's generator 0."""
    x = load(name).x
    return x[np.random.default_rng(0).permutation(len(x))[:200]]


def large_digits() -> np.ndarray:
    """scikit-learn's digits at 28 x 28, by bilinear interpolation."""
    x = load("digits").x.reshape(-1, 8, 8)
    return np.clip(np.asarray(zoom(x, (1, 3.5, 3.5), order=1)), 0, 1)


FILES: Mapping[str, Callable[[], np.ndarray]] = {
    "mnist200.npy": functools.partial(two_hundred, "mnist"),
    "digits200.npy": functools.partial(two_hundred, "digits"),
    "digits28.npy": large_digits,
}
"""Files that commands name."""


def audited(command: str) -> dict[str, Any]:
    """Runs a command of drjax in this process and in a folder that vanishes; returns what its records say.

    Args:
        command: Its words, without `drjax`, `--out` and `--quiet`.
    """
    with tempfile.TemporaryDirectory() as name:
        folder, words = Path(name), command.split()
        for at, word in enumerate(words):
            if word in FILES:
                words[at] = str(folder / word)
                np.save(words[at], FILES[word]())
        main([*words, "--out", str(folder / "run"), "--quiet"])
        lines = records.read_records(folder / "run" / "records.jsonl")
    attacks = [
        {key: line[key] for key in ("name", "label", "note") if line.get(key)} | _kept(line["scores"])
        for line in lines
        if line["kind"] == "attack"
    ]
    curve = [_point(line["point"]) for line in lines if line["kind"] == "curve"]
    return {"command": f"drjax {command}", "attacks": attacks, "curve": curve}


def _kept(scores: Mapping[str, Any]) -> dict[str, Any]:
    return {name: scores[name] for name in KEPT}


def _point(point: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept of one scale of a defence."""
    quality = {name: point[name] for name in ("scale", "trustworthiness", "knn_accuracy")}
    for who in ("adaptive", "non_adaptive"):
        quality[who] = _kept(point[who])
    return quality | {"adaptive_label": point["adaptive_label"]}


TABLES = {
    table: {cell: functools.partial(lambda words, _: audited(words), words) for cell, words in cells.items()}
    for table, cells in COMMANDS.items()
}
"""What computes the facts of a cell, by table and cell."""
