"""Bounds: evaluations a second of a curve, seconds to compose one, beside riskcal where it has the same; exact noise.

    OPENBLAS_NUM_THREADS=1 taskset -c 0 python -m bench.bounds     # one core

README.md beside this file says what is compared.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tyro

from bench import harness
from drjax.bounds import accounting, rero, tradeoff
from drjax.defenses.mechanisms import Gaussian, Laplace

EVALUATIONS = 1_000_000

COORDINATES = 1_000_000
"""Of a release."""

COMPOSED = ((1.1, 0.01, 1000), (0.8, 0.05, 300), (2.0, 0.5, 30), (0.5, 0.001, 3000), (1.0, 0.004, 15_000))
"""Noise multiplier, rate and steps of sampled Gaussian mechanisms."""


def main(*, repeats: int = 7, out: Path = harness.RESULTS / "bounds.jsonl") -> None:
    """Measures, prints and appends the rows.

    Args:
        repeats: Timed calls, at most.
        out: JSON-lines file that the rows are added to.
    """
    from riskcal.analysis import get_beta_from_gdp

    kappa = np.random.default_rng(0).uniform(0, 1, EVALUATIONS)
    sampled = tradeoff.subsampled_gaussian(*COMPOSED[0], neighbouring="zero_out")
    curves = {
        "Gaussian": tradeoff.Gaussian(1.0),
        "EpsilonDelta": tradeoff.EpsilonDelta(1.0, 1e-5),
        "Laplace": tradeoff.Laplace(1.0),
        "ZCDP": tradeoff.ZCDP(0.5),
        "sampled Gaussian": sampled,
    }
    rows = [
        harness.measure("bounds/rero", lambda c=c: rero.from_tradeoff(kappa, c), repeats=repeats, curve=name)
        for name, c in curves.items()
    ]
    peer = harness.measure(
        "bounds/riskcal", lambda: 1 - get_beta_from_gdp(1.0, kappa), repeats=repeats, curve="Gaussian"
    )
    rows.append(peer)
    for noise, rate, steps in COMPOSED:
        labels = {"noise_multiplier": noise, "rate": rate, "steps": steps}

        def compose(noise: float = noise, rate: float = rate, steps: int = steps) -> np.ndarray:
            return accounting.dp_sgd(noise, rate, steps, neighbouring="zero_out").target_curve.power(np.array([0.01]))

        rows.append(harness.measure("bounds/compose", compose, repeats=repeats, **labels))
    value = np.zeros(COORDINATES)
    for mechanism in (
        Laplace(neighbouring="zero_out", sensitivity=1.0, scale=1.0),
        Gaussian(neighbouring="zero_out", sensitivity=1.0, scale=1.0),
    ):
        name = type(mechanism).__name__

        def release(mechanism: Laplace | Gaussian = mechanism) -> np.ndarray:
            return mechanism.release(value, grid=2.0**-20, on_grid=True).value

        rows.append(harness.measure("bounds/release", release, repeats=repeats, noise=name, coordinates=COORDINATES))
    for row in rows:
        what = row.get("curve") or row.get("noise") or "{noise_multiplier}, {rate}, {steps}".format(**row)
        rate_text = f", {EVALUATIONS / row['run_s'] / 1e6:.1f} million/s" if "curve" in row else ""
        if "noise" in row:
            rate_text = f", {1e6 * row['run_s'] / COORDINATES:.2f} microseconds a coordinate"
        print(f"{row['name']} {what}: {row['run_s']:.3f} s{rate_text}")
        harness.append_row(out, row)


if __name__ == "__main__":
    tyro.cli(main)
