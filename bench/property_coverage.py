"""How often the interval of the attack on plots holds the share of a victim whose records it has not seen.

    OPENBLAS_NUM_THREADS=1 python -m bench.property_coverage

The records are split into thirds, persons kept together. Maps of two of them are the shadow maps of both halves, as
`drjax attack property` makes them; maps of the last are the victim's. For comparison, intervals by one split: 70% of as
many shadow maps, all of the first third, train, and 30%, of the second, calibrate.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import tyro

from bench import harness
from drjax.attacks.property import invariants
from drjax.attacks.property.cross_fit import cross_fit
from drjax.attacks.property.kernel_model import fit_kernel_ridge
from drjax.attacks.property.shadow_data import Features, ShadowData, read_shadow
from drjax.attacks.property.shadow_maps import Records, ShadowMaps, feasible_levels, sample_maps
from drjax.core.statistics import conformal_radius
from drjax.dr import TSNE

SHARE_TRAINED = 0.7
"""Of the shadow maps, by one split."""


def main(
    *,
    data: str = "nih_chest_xray",
    attribute: str = "label=pneumonia",
    features: str = "pixels",
    n: int = 100,
    n_shadow: int = 300,
    n_victim: int = 60,
    splits: int = 24,
    level: float = 0.9,
    out: Path = harness.RESULTS / "property_coverage.jsonl",
) -> None:
    """Attacks the victim's coordinates by descriptors, once for each split; prints means and appends a row.

    Args:
        data: Shadow and victim records.
        attribute: COLUMN=VALUE.
        features: What is mapped.
        n: Records of a map.
        n_shadow: Shadow maps.
        n_victim: Maps that are attacked.
        splits: Random splits into thirds.
        level: Of the interval.
        out: JSON-lines file that the row is added to.
    """
    shadow = read_shadow(data, attribute, Features(kind=features))
    n_trained = round(SHARE_TRAINED * n_shadow)
    found = []
    for split in range(splits):
        split_key, fit_key, *keys = jax.random.split(jax.random.key(split), 5)
        sides = thirds(split_key, shadow)
        levels = feasible_levels(None, sides, n)
        counts = n_trained, n_shadow - n_shadow // 2, n_victim
        first, second, victim = (
            sample_maps(key, side, count, n, levels, TSNE())
            for key, side, count in zip(keys, sides, counts, strict=True)
        )
        guess = np.abs(np.median(first.shares) - victim.shares).mean()
        crossed = by_cross_fit(fit_key, (_first(first, n_shadow // 2), second), victim, level)
        single = by_one_split(first, _first(second, n_shadow - n_trained), victim, level)
        found.append(crossed | single | {"guess_error": guess})
    means: dict[str, Any] = {name: float(np.mean([one[name] for one in found])) for name in found[0]}
    labels = {"data": data, "attribute": attribute, "features": features, "n": n, "n_shadow": n_shadow}
    labels |= {"splits": splits, "level": level, "maps": n_victim}
    print("\n".join(f"{name}: {value:.3f}" for name, value in means.items()))
    harness.append_row(out, harness.make_row("property_coverage", labels, means))


def thirds(key: jax.Array, shadow: ShadowData) -> list[Records]:
    """The records in three parts of as many persons."""
    groups = shadow.dataset.groups
    of_record = np.arange(len(shadow.features)) if groups is None else groups
    persons = np.unique(of_record)
    parts = np.array_split(persons[np.asarray(jax.random.permutation(key, len(persons)))], 3)
    masks = [np.isin(of_record, part) for part in parts]
    return [Records(shadow.features[mask], shadow.has_property[mask]) for mask in masks]


def by_cross_fit(
    key: jax.Array, halves: tuple[ShadowMaps, ShadowMaps], victim: ShadowMaps, level: float
) -> dict[str, float]:
    """Coverage of the victim's shares, errors, and the mean width of intervals of what the command does."""
    fitted = cross_fit(key, "descriptors", halves, invariants.descriptors)
    given = invariants.descriptors(victim.maps)
    low, high = fitted.interval(given, level).T
    inside = (low <= victim.shares) & (victim.shares <= high)
    ends = victim.shares.min(), victim.shares.max()
    third = np.minimum(3 * (victim.shares - ends[0]) / max(ends[1] - ends[0], 1e-12), 2).astype(int)
    thirds_of = {f"coverage_third_{i + 1}": float(inside[third == i].mean()) for i in range(3)}
    return {
        "coverage": float(inside.mean()),
        **thirds_of,
        "width": float((high - low).mean()),
        "victim_error": float(np.abs(fitted.predict(given) - victim.shares).mean()),
        "held_out_error": float(np.concatenate(fitted.errors).mean()),
    }


def by_one_split(train: ShadowMaps, calibration: ShadowMaps, victim: ShadowMaps, level: float) -> dict[str, float]:
    """The same of split conformal intervals."""
    model = fit_kernel_ridge(invariants.descriptors(train.maps), train.shares)
    on_calibration, on_victim = (
        np.clip(model.predict(invariants.descriptors(part.maps)), 0, 1) for part in (calibration, victim)
    )
    errors = np.abs(on_victim - victim.shares)
    reach = conformal_radius(np.sort(np.abs(on_calibration - calibration.shares)), level)
    width = np.clip(on_victim + reach, 0, 1) - np.clip(on_victim - reach, 0, 1)
    return {
        "one_split_coverage": float((errors <= reach).mean()),
        "one_split_width": float(width.mean()),
        "one_split_victim_error": float(errors.mean()),
    }


def _first(maps: ShadowMaps, count: int) -> ShadowMaps:
    return maps._replace(maps=maps.maps[:count], shares=maps.shares[:count])


if __name__ == "__main__":
    tyro.cli(main)
