"""Records in a fixed order, releases of the first n of them, and what an attack takes out of these."""

from __future__ import annotations

import functools
import tempfile
import time
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from drjax import dr
from drjax.attacks import exposure
from drjax.attacks.attack import EmbeddingAttack, EmbeddingThreat, EveryRecord, Shadows
from drjax.attacks.reconstruction.stationarity.attacks import Stationarity
from drjax.attacks.registry import ATTACKS, answer
from drjax.attacks.shadow import factored_at, shadow_embeddings
from drjax.attacks.shadow_sets import shadows_of, stand_in_shadows
from drjax.core.types import DRMethod, Reconstruction, count_status
from drjax.data import Dataset, load
from drjax.data.dataset import Provenance
from drjax.dr import landmarks

BOUNDS = (0.0, 1.0)
"""Least and greatest value of a feature, which the adversary knows as in an audit."""

GENERATED, WIDE = "generated", "generated, wide"
"""Names of records that are drawn here."""

FEATURES = {GENERATED: 100, WIDE: 784}
"""Features of generated records; the wide ones lie in a temporary file, from which they are read in blocks."""

RANK, NOISE, PIECE = 60, 0.05, 20_000
"""Of generated records: directions that they share with variances that fall as 1 / j^2, the noise of a feature, and how
many are drawn at a time."""


@dataclass(frozen=True)
class Way:
    """A method and the attack on its releases.

    Attributes:
        method: Method.
        attack: Attack.
        dtype: What releases are computed in: in float64 rounding to what is published is all the noise there is.
        each: Whether the targets are records of one release, each attacked by who knows the others; else each is in a
            release of its own beside the same known records.
        at_landmarks: Whether the targets are landmarks of the release.
        public: Further records of the same kind that the adversary has and that are not released.
        is_typed: Whether rounded coordinates come in the type that they are rounded to, which tells the attack a bound
            of the rounding; else as float64, as they are read from a file, and the attack measures it.
    """

    method: DRMethod
    attack: EmbeddingAttack
    dtype: str = "float32"
    each: bool = False
    at_landmarks: bool = False
    public: int = 0
    is_typed: bool = True


_ATTACKS = ATTACKS["embedding"]

WAYS = {
    "PCA": Way(dr.PCA(), _ATTACKS["closed-form"], "float64", each=True, is_typed=False),
    "PCA, typed": Way(dr.PCA(), _ATTACKS["closed-form"], "float64", each=True),
    "classical MDS": Way(dr.ClassicalMDS(), _ATTACKS["closed-form"], "float64", each=True, is_typed=False),
    "random projection": Way(dr.SparseRandomProjection(), _ATTACKS["srp-closed-form"], "float64"),
    "MDS": Way(dr.MDS(), _ATTACKS["stationarity"]),
    "MDS, at rest": Way(dr.MDS(), Stationarity(steps=0)),
    "landmark MDS": Way(dr.LandmarkMDS(), _ATTACKS["landmark-equations"], "float64"),
    "landmark MDS, a landmark": Way(
        dr.LandmarkMDS(), _ATTACKS["landmark-equations"], "float64", each=True, at_landmarks=True, is_typed=False
    ),
    "landmark Isomap": Way(dr.LandmarkIsomap(), _ATTACKS["map"], each=True),
    "Isomap": Way(dr.Isomap(), _ATTACKS["geodesics"], public=300),
    "t-SNE": Way(dr.TSNE(), _ATTACKS["near-forces"], each=True),
    "t-SNE, inversion": Way(dr.TSNE(), _ATTACKS["inversion"]),
    "UMAP": Way(dr.UMAP(), _ATTACKS["map"], each=True),
}
"""Methods and attacks by name."""

PUBLISHED: dict[str, tuple[str, int | None]] = {
    "float64": ("float64", None),
    "float32": ("float32", None),
    "4 decimals": ("float64", 4),
    "3 decimals": ("float64", 3),
    "2 decimals": ("float64", 2),
    "1 decimal": ("float64", 1),
}
"""What coordinates are rounded to by name: a type, and decimals in the unit of the features."""


def rounded(coords: np.ndarray, name: str) -> np.ndarray:
    """Coordinates of any shape as they are published, see `PUBLISHED`."""
    dtype, decimals = PUBLISHED[name]
    own = np.asarray(coords, np.float64 if decimals is not None else None)
    return own.astype(dtype) if decimals is None else np.round(own, decimals)


@functools.lru_cache(maxsize=4)
def dataset(name: str, seed: int, most: int) -> Dataset:
    """A data set in the order in which its records come into releases; generated ones are at least `most`."""
    if name in FEATURES:
        d, source = FEATURES[name], "drawn by experiments.leak_vs_n.releases"
        provenance = Provenance(source, "none", {}, f"{d} features of rank {RANK} and noise")
        x = generated(seed, most, d, _in_file(most, d) if name == WIDE else None)
        return Dataset(name, x, None, (d,), None, None, provenance, np.zeros(d), np.ones(d))
    found = load(name)
    order = np.random.default_rng(seed).permutation(len(found.x))
    return Dataset(name, found.x[order], None, found.shape, None, None, found.provenance, found.offset, found.scale)


def _in_file(n: int, d: int) -> np.ndarray:
    """(n, d) float32 in a temporary file, which goes with the array."""
    with tempfile.TemporaryFile() as file:
        return np.memmap(file, np.float32, "w+", shape=(n, d))


def generated(seed: int, n: int, d: int = FEATURES[GENERATED], out: np.ndarray | None = None) -> np.ndarray:
    """(n, d) float32 records in [0, 1], in `out` if there is one; more of them begin with the same ones."""
    rng = np.random.default_rng(seed)
    shared = (rng.normal(size=(RANK, d)) / np.arange(1, RANK + 1)[:, None]).astype(np.float32)
    x = np.empty((n, d), np.float32) if out is None else out
    for start in range(0, n, PIECE):
        own = np.random.default_rng([seed, start])
        drawn = own.standard_normal((PIECE, RANK), dtype=np.float32) @ shared
        drawn += NOISE * own.standard_normal((PIECE, d), dtype=np.float32)
        x[start : start + PIECE] = np.clip(0.5 + 0.1 * drawn, 0, 1)[: n - start]
    return x


def arranged(way: Way, x: np.ndarray, n: int, targets: int) -> tuple[np.ndarray, np.ndarray]:
    """The n records of one release in their order there, and the rows (m,) of the targets, its first records."""
    if not way.at_landmarks:
        return x[:n], np.arange(targets)
    assert isinstance(way.method, dr.LandmarkMDS)
    rows = landmarks.positions(n, way.method.n_landmarks)[:targets]
    own = np.empty((n, x.shape[1]), x.dtype)
    own[rows], own[np.setdiff1d(np.arange(n), rows)] = x[:targets], x[targets:n]
    return own, rows


def released(way: Way, x: np.ndarray, n: int, targets: int, seed: int) -> np.ndarray:
    """Coordinates before rounding: of one release (n, k), or (targets, n, k) with the target in row 0.

    Args:
        way: Method.
        x: Records in their order.
        n: Records of a release.
        targets: Records attacked, the first ones.
        seed: Seed of the draws, the same for every n.
    """
    own = arranged(way, x, n, targets)[0]
    known, lanes = (own[1:], own[:1]) if way.each else (x[targets : targets + n - 1], x[:targets])
    is_factored = factored_at(way.method, *x[:n].shape)
    with jax.enable_x64(way.dtype == "float64"):
        made = shadow_embeddings(jax.random.key(seed), way.method, known, lanes, factored=is_factored, dtype=way.dtype)
        coords = np.asarray(made.coords)
    return coords[0] if way.each else coords


def attacked(
    way: Way,
    x: np.ndarray,
    coords: np.ndarray,
    targets: int,
    published: str,
    seed: int,
    bounds: tuple[float, float] | None = BOUNDS,
) -> dict[str, Any]:
    """What the attack takes out of published coordinates: errors of every target, as a share of a feature's range.

    Args:
        way: Method and attack.
        x: Records in their order.
        coords: Coordinates from `released`, rounded.
        targets: Records attacked, the first ones.
        published: Key of `PUBLISHED`.
        seed: Seed of the attack.
        bounds: What the adversary knows of the values of a feature.
    """
    key, begun = jax.random.key(seed), time.perf_counter()
    facts: dict[str, Any] = {"method": way.method, "decimals": PUBLISHED[published][1], "dtype": way.dtype}
    n = coords.shape[-2]
    release, rows = arranged(way, x, n, targets)
    with jax.enable_x64(way.dtype == "float64"):
        if way.each:
            stand_ins = functools.partial(_stand_ins, way, seed, facts["decimals"])
            own = coords if way.is_typed else coords.astype(np.float64)
            every = EveryRecord(x=release, coords=own, rows=rows, stand_ins=stand_ins, bounds=bounds, **facts)
            found, others = way.attack.run_each(key, every), release
        else:
            known, public = x[targets : targets + n - 1], x[len(x) - way.public :] if way.public else None
            shadows = functools.partial(_shadows, way, seed, facts["decimals"], known, public)
            threat = EmbeddingThreat(known=known, coords=coords, shadows=shadows, public=public, bounds=bounds, **facts)
            found = answer(way.attack, key, threat)
            others = known if public is None else np.concatenate([known, public])
    seconds = time.perf_counter() - begun
    return {**_scored(way, x, others, found, rows), "seconds": seconds}


def _stand_ins(way: Way, seed: int, decimals: int | None, known: np.ndarray) -> Shadows:
    return stand_in_shadows(jax.random.key(seed + 1), way.method, known, decimals=decimals, dtype=way.dtype)


def _shadows(way: Way, seed: int, decimals: int | None, known: np.ndarray, public: np.ndarray | None) -> Shadows:
    if public is None:
        return _stand_ins(way, seed, decimals, known)
    return shadows_of(jax.random.key(seed + 1), way.method, known, public, decimals=decimals, dtype=way.dtype)


def _scored(way: Way, x: np.ndarray, others: np.ndarray, found: Reconstruction, rows: np.ndarray) -> dict[str, Any]:
    """Scores as of an audit of every record, each among all that the adversary has."""
    if way.each:
        parts = [exposure.measure(np.asarray(found.x), others, rows, np.asarray(found.status))]
    else:
        among, parts = np.concatenate([x[:1], others]), []
        for row in rows:
            among[0], own = x[row], slice(row, row + 1)
            status = np.asarray(found.status)[own]
            parts.append(exposure.measure(np.asarray(found.x)[own], among, np.array([0]), status))

    def joined(name: str) -> np.ndarray:
        return np.concatenate([getattr(part, name) for part in parts])

    numbers = {name: [float(f"{v:.6g}") for v in joined(name)] for name in ("error", "nearest_error", "mean_error")}
    return {
        **numbers,
        "n_rebuilt": int(joined("is_rebuilt").sum()),
        "n_identified": int(joined("is_identified").sum()),
        "status": count_status(np.asarray(found.status)),
    }
