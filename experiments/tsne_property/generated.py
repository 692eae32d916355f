"""Attacks on generated maps, where the answer is there to be found: two clusters, the share is that of the long one.

    python -m experiments.pages.run --only 'property/*'          # the table of docs/property/training.md, 3 minutes

600 maps of 300 points to fit each attack with the defaults of its kind, 300 others to judge it.
"""

from __future__ import annotations

import dataclasses
import time

import jax
import numpy as np

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


def judged(
    kind: str, *, n_fitted: int = 600, n_judged: int = 300, n: int = 300, epochs: int = 30, seed: int = 0
) -> dict[str, float]:
    """Mean error of an attack, of guessing, how often its 90% interval holds the share, and seconds.

    Args:
        kind: Kind of attack, of `models.KINDS`.
        n_fitted: Maps to fit.
        n_judged: Maps to judge.
        n: Points of a map.
        epochs: Of the picture network.
        seed: Of all.
    """
    rng = np.random.default_rng(seed)
    maps, shares = clusters(rng, n_fitted, n)
    others, truth = clusters(rng, n_judged, n)
    config = models.CONFIGS[kind]
    if kind == "picture":
        config = dataclasses.replace(config, epochs=epochs)
        maps, others = (raster.draw(part, size=config.network.size) for part in (maps, others))
    begun = time.perf_counter()
    model = models.fit(jax.random.key(seed), maps, shares, kind=kind, config=config)
    error = np.abs(model.predict(others).proportion - truth).mean()
    low, high = model.interval(others, 0.9).T
    held = ((low <= truth) & (truth <= high)).mean()
    return {
        "error": float(error),
        "guess": float(np.abs(np.median(shares) - truth).mean()),
        "held": float(held),
        "seconds": time.perf_counter() - begun,
    }
