"""What a release with nothing public but ranges keeps of Adult, and how many releases fall into the announced range.

    python -m experiments.pca_membership.private_mean               # Adult's six numbers, a minute
    python -m experiments.pca_membership.private_mean --smoke       # digits in the place of Adult, seconds

Two components of the first n records at epsilon 1, delta 1e-6, replace-one, columns divided by half their range; q is
captured variance about the mean over the most that two components capture. "middle" is the second moment about the
middle of the ranges, "mean" that about the private mean, "steadied" what `drjax release pca` does. The last column is
the share of further releases in the range announced from 400 draws. Printed as Markdown; output: docs/dp_pca/ranges.md.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np
import tyro

from drjax.data import load
from drjax.defenses import pca_utility
from drjax.releases import expected, mechanism
from drjax.releases.bounds import Bounds

RANGES = {
    "age": (0, 120),
    "fnlwgt": (0, 2e6),
    "education-num": (0, 20),
    "capital-gain": (0, 1e5),
    "capital-loss": (0, 5000),
    "hours-per-week": (0, 100),
}
"""Round numbers that hold every value, chosen from what the columns mean."""

SIZES, K, EPSILON, DELTA = (400, 2000, 10_000, 32_561), 2, 1.0, 1e-6
ANNOUNCED, RELEASES = 400, 50


def adult() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Adult's six numbers (n, 6) in the order of the file, and their ranges, (6,) each."""
    data = load("adult")
    assert data.feature_names is not None
    columns = [data.feature_names.index(name) for name in RANGES]
    lower, upper = np.array(list(RANGES.values()), np.float64).T
    # In the units of the file, which the loader has divided out.
    x = data.x.astype(np.float64) * data.scale + data.offset
    return x[:, columns], lower, upper


def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Digits (1797, 64), and their ranges."""
    x = load("digits").x
    x = x.reshape(len(x), -1).astype(np.float64)
    return x, np.zeros(x.shape[1]), np.full(x.shape[1], float(x.max()))


def bounds_of(lower: np.ndarray, upper: np.ndarray, share: float = 1.0) -> Bounds:
    """Bounds of a release that knows ranges alone, as standardised; the norm is a share of the farthest corner's."""
    middle, scale = (lower + upper) / 2, (upper - lower) / 2
    return Bounds(lower, upper, middle, scale, share * float(np.sqrt(len(lower))), {}, True, finds_mean=True)


def calibrated(bounds: Bounds, epsilon: float = EPSILON) -> Any:
    """The mechanism of `drjax release pca`."""
    return mechanism.calibrated(
        "analytic-gauss", epsilon, DELTA, neighbouring="replace_one", bounds=bounds, n_components=K, divisor=None
    )


def kept(made: Any, z: np.ndarray, n_trials: int, seed: int) -> np.ndarray:
    """q of draws (n_trials,) of a mechanism for records (n, d) in its units."""
    away = z - z.mean(axis=0)
    fits = pca_utility.trials(jax.random.key(seed), made, z.astype(np.float32), n_trials)
    return np.asarray(pca_utility.energy_ratio(fits.components, away.T @ away / len(z)))


def row(x: np.ndarray, lower: np.ndarray, upper: np.ndarray, n_releases: int) -> dict[str, float]:
    """Mean q of each way over `ANNOUNCED` draws, and the share of n_releases further ones in the announced range."""
    bounds = bounds_of(lower, upper)
    z = bounds.scaled(x)

    def calibrate(epsilon: float, **fields: Any) -> Any:
        return calibrated(dataclasses.replace(bounds, **fields), epsilon)

    private = calibrate(EPSILON)
    told = expected.utility(jax.random.key(0), private, calibrate, EPSILON, z, n_trials=ANNOUNCED)
    raw = dataclasses.replace(private, lower=None, upper=None)
    later = kept(private, z, n_releases, 1)
    return {
        "random": told.random,
        "middle": float(kept(calibrate(EPSILON, finds_mean=False), z, ANNOUNCED, 2).mean()),
        "mean": float(kept(raw, z, ANNOUNCED, 3).mean()),
        "steadied": told.chosen.estimate,
        "low": told.chosen.low,
        "high": told.chosen.high,
        "in range": float(np.mean((told.chosen.low <= later) & (later <= told.chosen.high))),
    }


def main(smoke: bool = False, releases: int = RELEASES) -> None:
    """Prints the table.

    Args:
        smoke: Digits, one size.
        releases: Further releases that the range is held against.
    """
    x, lower, upper = digits() if smoke else adult()
    print("| records | random directions | middle | mean | steadied | announced for 90% | further ones in it |")
    print("|---|---|---|---|---|---|---|")
    for n in (400,) if smoke else SIZES:
        found = row(x[:n], lower, upper, releases)
        print(
            f"| {n:,} | {found['random']:.3f} | {found['middle']:.3f} | {found['mean']:.3f} | {found['steadied']:.3f} "
            f"| {found['low']:.3f} to {found['high']:.3f} | {found['in range']:.0%} of {releases} |"
        )


if __name__ == "__main__":
    tyro.cli(main)
