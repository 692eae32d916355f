"""Attacks on generated maps, where the answer is there to be found: two clusters, the share is that of the long one.

    OPENBLAS_NUM_THREADS=1 python -m experiments.tsne_property.generated          # 3 minutes

600 maps of 300 points to fit each attack with the defaults of its kind, 300 others to judge it. Prints the table of
docs/property/training.md: mean error of the share, and how often the 90% interval holds it.
"""

from __future__ import annotations

import dataclasses
import time

import jax
import numpy as np
import tyro

from drjax.attacks.property import models, raster


def clusters(rng: np.random.Generator, n_maps: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Maps (n_maps, n, 2), turned and mirrored at random, points in random order; and shares (n_maps,)."""
    counts = np.round(rng.uniform(size=n_maps) * n).astype(int)
    maps = rng.normal(size=(n_maps, n, 2))
    has = np.arange(n) < counts[:, None]
    maps[has] = maps[has] * [0.4, 1.5] + [5, 0]
    # The first column of LAPACK's Q has a sign of its own: without another the two clusters would have known sides.
    bases, _ = np.linalg.qr(rng.normal(size=(n_maps, 2, 2)))
    turns = bases * rng.choice([-1.0, 1.0], size=(n_maps, 1, 2))
    return rng.permuted(maps @ turns, axis=1), counts / n


def main(*, n_fitted: int = 600, n_judged: int = 300, n: int = 300, epochs: int = 30, seed: int = 0) -> None:
    """Prints the table.

    Args:
        n_fitted: Maps to fit.
        n_judged: Maps to judge.
        n: Points of a map.
        epochs: Of the picture network.
        seed: Of all.
    """
    rng = np.random.default_rng(seed)
    maps, shares = clusters(rng, n_fitted, n)
    others, truth = clusters(rng, n_judged, n)
    print("| kind | mean error | 90% intervals hold | s |")
    print("| --- | --- | --- | --- |")
    print(f"| guess | {np.abs(np.median(shares) - truth).mean():.3f} | | |")
    for kind in models.KINDS:
        config = models.CONFIGS[kind]
        inputs, judged = maps, others
        if kind == "picture":
            config = dataclasses.replace(config, epochs=epochs)
            inputs, judged = (raster.draw(part, size=config.network.size) for part in (maps, others))
        begun = time.perf_counter()
        model = models.fit(jax.random.key(seed), inputs, shares, kind=kind, config=config)
        error = np.abs(model.predict(judged).proportion - truth).mean()
        low, high = model.interval(judged, 0.9).T
        held = ((low <= truth) & (truth <= high)).mean()
        print(f"| {kind} | {error:.3f} | {held:.2f} | {time.perf_counter() - begun:.0f} |", flush=True)


if __name__ == "__main__":
    tyro.cli(main)
