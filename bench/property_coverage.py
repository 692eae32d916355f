"""How often the interval of the attack on plots holds the share of a victim whose records it has not seen.

    OPENBLAS_NUM_THREADS=1 python -m bench.property_coverage

The records are split into thirds: maps of one train the attack, maps of another calibrate the interval, maps of the
last are the victim's. `drjax attack property` splits the shadow data into the first two.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np
import tyro

from bench import harness
from drjax.attacks.property import models
from drjax.attacks.property.shadow_data import Features, read_shadow
from drjax.attacks.property.shadow_maps import Records, feasible_levels, sample_maps
from drjax.dr import TSNE


def main(
    *,
    data: str = "nih_chest_xray",
    attribute: str = "label=pneumonia",
    features: str = "pixels",
    n: int = 100,
    n_train: int = 105,
    n_calibration: int = 45,
    n_victim: int = 60,
    splits: int = 6,
    level: float = 0.9,
    out: Path = harness.RESULTS / "property_coverage.jsonl",
) -> None:
    """Attacks the victim's coordinates by descriptors, once for each split; prints means and appends a row.

    Args:
        data: Shadow and victim records.
        attribute: COLUMN=VALUE.
        features: What is mapped.
        n: Records of a map.
        n_train: Maps that train.
        n_calibration: Maps that calibrate.
        n_victim: Maps that are attacked.
        splits: Random splits into thirds.
        level: Of the interval.
        out: JSON-lines file that the row is added to.
    """
    shadow = read_shadow(data, attribute, Features(kind=features))
    config = dataclasses.replace(models.CONFIGS["descriptors"], calibration_share=1 / (2 * n_train))
    found = []
    for split in range(splits):
        split_key, fit_key, *keys = jax.random.split(jax.random.key(split), 5)
        order = np.asarray(jax.random.permutation(split_key, len(shadow.features)))
        thirds = [Records(shadow.features[r], shadow.has_property[r]) for r in np.array_split(order, 3)]
        levels = feasible_levels(None, thirds, n)
        train, calibration, victim = (
            sample_maps(key, third, count, n, levels, TSNE())
            for key, third, count in zip(keys, thirds, (n_train, n_calibration, n_victim), strict=True)
        )
        model = models.fit(fit_key, train.maps, train.shares, kind="descriptors", config=config)
        held_out, errors = (np.abs(model.predict(part.maps).expected - part.shares) for part in (calibration, victim))
        reach = models.conformal_radius(np.sort(held_out), level)
        guess = np.abs(np.median(train.shares) - victim.shares)
        found.append(((errors <= reach).mean(), errors.mean(), held_out.mean(), guess.mean()))
    names = ("coverage", "victim_error", "held_out_error", "guess_error")
    means: dict[str, Any] = dict(zip(names, np.mean(found, axis=0).tolist(), strict=True))
    labels = {"data": data, "attribute": attribute, "n": n, "splits": splits, "level": level, "maps": n_victim}
    print("\n".join(f"{name}: {value:.3f}" for name, value in means.items()))
    harness.append_row(out, harness.make_row("property_coverage", labels, means))


if __name__ == "__main__":
    tyro.cli(main)
