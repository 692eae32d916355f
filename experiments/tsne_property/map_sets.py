"""Sets of t-SNE maps at every share of a property, each made once and kept in a file."""

from __future__ import annotations

import dataclasses
import functools
import time
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import jax
import numpy as np

from drjax.attacks.property.defences import TABLE5, CoordinateNoise, CoordinateRounding
from drjax.attacks.property.groups import Groups, sample_groups
from drjax.attacks.property.maps import tsne_maps
from drjax.attacks.property.noised_proportion import NoisedProportion
from drjax.core import validate
from drjax.reports import records
from experiments.tsne_property import data
from experiments.tsne_property.extractors import Fixed

SIDES = ("shadow", "target")


@dataclass(frozen=True)
class NoisedShare:
    """What a publisher does who has a data set of `RECORDS` times the plot's records, of the share in question.

    Attributes:
        changed: Share of the records whose property neighbouring data sets differ in.
    """

    changed: float

    RECORDS: ClassVar[float] = 2.6
    LIMITS: ClassVar[tuple[float, float]] = (0.25, 0.75)

    def choose(self, key: jax.Array, flags: np.ndarray, wanted: Wanted) -> Groups:
        """Rows of the plots; proportions are those of the data sets, which are the secret."""
        n_records = round(self.RECORDS * wanted.n)
        low, high = self.LIMITS
        noised = NoisedProportion(epsilon=1.0, n_changed=round(self.changed * n_records), low=low, high=high)
        draw_key, noise_key = jax.random.split(key)
        owned = sample_groups(draw_key, flags, wanted.levels, n_records, wanted.per_level)
        return noised.sample_groups(noise_key, flags, owned, wanted.n)


NOISED = {f"noised share, {changed:.0%}": NoisedShare(changed) for changed in (0.01, 0.1)}
"""Plots whose share is noised, as `Wanted.defence`: at epsilon 1, for data sets whose shares differ by that much."""

FINE_TUNED = "fine-tuned "
"""Before the name of an extractor: each side trains it further on its own pictures."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What decides the maps of a set.

    Attributes:
        prop: In `data.PROPERTIES` or `data.USER_PROPERTIES`.
        extractor: In `extractors.NAMES`, or one of `extractors.OBJECTS` after `FINE_TUNED`.
        seed: Redraws halves and groups.
        side: Whose half.
        n: Points of a map.
        levels: Shares, ascending.
        per_level: Maps for each.
        defence: In `TABLE5` or `NOISED`, or "" for none.
    """

    prop: str
    extractor: str
    seed: int
    side: str
    n: int
    levels: tuple[float, ...]
    per_level: int
    defence: str = ""

    def __post_init__(self) -> None:
        """Checks every field that can be checked without the data."""
        validate.one_of(SIDES, side=self.side)
        if self.defence:
            validate.one_of((*TABLE5, *NOISED), defence=self.defence)


@dataclass(frozen=True, eq=False)
class MapSet:
    """Maps of one half.

    Attributes:
        coords: (g, n, 2) float32.
        rows: (g, n) int32, records of the case.
        proportions: (g,) of the property.
        cpu_seconds: What they cost, all cores together.
        accuracy: Of a fine-tuned extractor on pictures held out; nan for others.
    """

    coords: np.ndarray
    rows: np.ndarray
    proportions: np.ndarray
    cpu_seconds: float
    accuracy: float

    def at(self, levels: tuple[float, ...], per_level: int | None = None) -> MapSet:
        """The maps at some of the levels, at most so many of each; proportions become the levels.

        A map's own share may miss its level by half a record.
        """
        near = 0.5 / self.rows.shape[1] + 1e-9
        chosen = [np.flatnonzero(np.abs(self.proportions - level) <= near)[:per_level] for level in levels]
        kept = np.concatenate(chosen)
        shares = np.repeat(levels, [len(own) for own in chosen])
        return dataclasses.replace(self, coords=self.coords[kept], rows=self.rows[kept], proportions=shares)


@dataclass(frozen=True)
class Store:
    """Map sets by what decides them.

    Attributes:
        folder: Of the files; some 4 MB for 500 maps of 500 points.
    """

    folder: Path

    @property
    def extractors(self) -> Fixed:
        """The networks, in the same folder."""
        return Fixed(self.folder)

    def get(self, wanted: Wanted) -> MapSet:
        """The set, from its file or made now.

        Raises:
            ValueError: too few records with or without the property for a map.
            FileNotFoundError: the pictures are not there.
        """
        path = self._path(wanted)
        if path.is_file():
            kept = records.load_arrays(path)
            return MapSet(
                kept["coords"], kept["rows"], kept["proportions"], float(kept["cpu"]), float(kept["accuracy"])
            )
        self.folder.mkdir(parents=True, exist_ok=True)
        defence = TABLE5.get(wanted.defence)
        if isinstance(defence, (CoordinateNoise, CoordinateRounding)):
            base = self.get(dataclasses.replace(wanted, defence=""))
            keys = jax.random.split(_key(wanted, 3), len(base.coords))
            made = dataclasses.replace(base, coords=np.asarray(jax.vmap(defence.on_coords)(keys, base.coords)))
        else:
            made = self._make(wanted)
        fields = {"coords": made.coords, "rows": made.rows, "proportions": made.proportions}
        records.save_arrays(path, **fields, cpu=made.cpu_seconds, accuracy=made.accuracy)
        return made

    def holds(self, wanted: Wanted) -> bool:
        """Whether `get` only has to read."""
        return self._path(wanted).is_file()

    def _path(self, wanted: Wanted) -> Path:
        return self.folder / f"maps-{records.config_fingerprint(wanted)[:24]}.npz"

    def features(self, wanted: Wanted) -> tuple[np.ndarray, np.ndarray, float]:
        """What the set's extractor makes of all records (N, f), the rows of its side, and its held-out accuracy."""
        return _features(self, wanted.prop, wanted.extractor, wanted.seed, wanted.side)

    def _make(self, wanted: Wanted) -> MapSet:
        found, rows, accuracy = self.features(wanted)
        begun = time.process_time()
        flags = data.case(wanted.prop).has_property[rows]
        if wanted.defence in NOISED:
            drawn = NOISED[wanted.defence].choose(_key(wanted, 1), flags, wanted)
        else:
            drawn = sample_groups(_key(wanted, 1), flags, wanted.levels, wanted.n, wanted.per_level)
        chosen = rows[drawn.rows].astype(np.int32)
        made = tsne_maps(_key(wanted, 2), found, chosen, defence=TABLE5.get(wanted.defence))
        cpu = time.process_time() - begun
        return MapSet(made.coords.astype(np.float32), chosen, drawn.proportions, cpu, accuracy)


@functools.lru_cache(maxsize=2)
def _features(store: Store, prop: str, extractor: str, seed: int, side: str) -> tuple[np.ndarray, np.ndarray, float]:
    given = data.case(prop)
    own = data.sides(given, split_key(seed))
    rows = own.shadow if side == "shadow" else own.target
    if not extractor.startswith(FINE_TUNED):
        return store.extractors.features(extractor, given, own.public), rows, float("nan")
    key = jax.random.fold_in(jax.random.fold_in(split_key(seed), 100), SIDES.index(side))
    network = store.extractors.fine_tuned(extractor.removeprefix(FINE_TUNED), given, rows, own.public, key)
    return network.features(given.images), rows, network.held_out_accuracy


def split_key(seed: int) -> jax.Array:
    """Draws the halves."""
    return jax.random.fold_in(jax.random.key(0), seed)


def _key(wanted: Wanted, purpose: int) -> jax.Array:
    """The groups do not depend on extractor and defence, so that sets which differ in these alone are paired."""
    text = f"{wanted.prop} {wanted.side} {wanted.n} {wanted.levels}"
    key = jax.random.fold_in(split_key(wanted.seed), zlib.crc32(text.encode()) & 0x7FFFFFFF)
    return jax.random.fold_in(key, purpose)
