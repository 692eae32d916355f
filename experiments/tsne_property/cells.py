"""One measurement: an attack trained on some sets of maps and tried on another."""

from __future__ import annotations

import dataclasses
import math
import time
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from drjax.attacks.property import models, raster
from drjax.attacks.property.groups import LEVELS
from drjax.attacks.property.kernel_model import fit_kernel_ridge
from drjax.attacks.property.models import PropertyConfig, PropertyModel
from drjax.attacks.property.utility import evaluate_maps
from drjax.core import validate
from drjax.core.statistics import conformal_radius, normal_quantile, share_interval, standard_error
from drjax.core.types import Array
from drjax.reports import records
from experiments.tsne_property import data
from experiments.tsne_property.map_sets import MapSet, Store, Wanted, split_key

MEAN = "mean"
DENSENET = "densenet"
ATTACKS = (*models.KINDS, DENSENET, MEAN)
"""Those of `models`; that on pictures by the paper's network; and a reference that sees what no plot shows: the mean
embedding of a plot's records."""

TASKS = ("classification", "regression")
COVERAGE = 0.9
DRAWN = 300
"""Pixels of a side that a plot is published with, as in the paper; the network sees means over squares of them."""

N_REDRAWN = 7
"""Further pictures of a map that networks on pictures are trained on, each of the map turned by a random angle."""

N_NEIGHBORS = 5


@dataclass(frozen=True, kw_only=True)
class Cell:
    """What is trained on what, and tried on what.

    Attributes:
        part: Which of the paper's tables or figures.
        task: "classification" of the paper's five levels, or "regression" over all.
        attack: In `ATTACKS`.
        train: Sets that the adversary makes.
        limits: Most maps of each level, of each of those sets.
        test: The publisher's set.
        note: For tables.
    """

    part: str
    task: str
    attack: str
    train: tuple[Wanted, ...]
    limits: tuple[int, ...]
    test: Wanted
    note: str = ""

    def __post_init__(self) -> None:
        """Checks every field."""
        validate.one_of(TASKS, task=self.task)
        validate.one_of(ATTACKS, attack=self.attack)


@dataclass(frozen=True, kw_only=True)
class Utility:
    """What a defended set of maps is still worth.

    Attributes:
        part: As of `Cell`.
        test: The publisher's set; its maps at share 0.5 are measured.
    """

    part: str
    test: Wanted


def attack(store: Store, cell: Cell, config: PropertyConfig) -> dict[str, Any]:
    """Trains and tries; accuracy with its Clopper-Pearson interval over test maps, or mean absolute error.

    Raises:
        ValueError: maps that cannot be drawn.
        FileNotFoundError: pictures that are not there.
    """
    begun, cpu = time.perf_counter(), time.process_time()
    resumed = _checkpoint(store, cell).exists()
    levels = LEVELS if cell.task == "classification" else cell.test.levels
    trained = [store.get(w).at(levels, limit) for w, limit in zip(cell.train, cell.limits, strict=True)]
    tried = store.get(cell.test).at(levels)
    y, truth = np.concatenate([s.proportions for s in trained]), tried.proportions
    if cell.attack == MEAN:
        expected, chosen, extra = _by_mean(store, cell, trained, tried, y, levels)
    else:
        kind = "picture" if cell.attack == DENSENET else cell.attack
        model = _trained(store, cell, kind, config, trained, y)
        shown = _inputs(kind, tried, config)
        found = model.predict(shown)
        expected, chosen = found.expected, found.proportion
        extra = _coverage(model, expected, truth)
    facts = _scores(cell.task, chosen, expected, truth) | extra
    accuracies = {f"{side}_accuracy": s.accuracy for side, s in (("shadow", trained[0]), ("target", tried))}
    return {
        **facts,
        **({} if math.isnan(tried.accuracy) else accuracies),
        "n_train": len(y),
        "n_test": len(truth),
        "seconds": time.perf_counter() - begun,
        "cpu_seconds": time.process_time() - cpu,
        "map_cpu_seconds": sum(s.cpu_seconds for s in (*trained, tried)),
        # The seconds are then those of this process alone.
        **({"resumed": True} if resumed else {}),
    }


def model_file(store: Store, cell: Cell) -> Path:
    """Where the network on pictures of a cell is kept, for all cells that train the same."""
    return store.folder / f"picture-{records.config_fingerprint(_training(cell))[:16]}.npz"


def _checkpoint(store: Store, cell: Cell) -> Path:
    """Where the training of a cell's network is kept between epochs, for a run that goes on with a killed one."""
    return store.folder / f"training-{records.config_fingerprint(_training(cell))[:16]}.npz"


@dataclass(frozen=True)
class _Training:
    """What a model depends on, beside its configuration."""

    task: str
    attack: str
    train: tuple[Wanted, ...]
    limits: tuple[int, ...]


def _training(cell: Cell) -> _Training:
    return _Training(cell.task, cell.attack, cell.train, cell.limits)


def _trained(
    store: Store, cell: Cell, kind: str, config: PropertyConfig, trained: list[MapSet], y: np.ndarray
) -> PropertyModel:
    if kind == "picture" and model_file(store, cell).is_file():
        kept = PropertyModel.load(model_file(store, cell))
        if kept.config == config:
            return kept
    inputs = _joined([_inputs(kind, one, config) for one in trained])
    key = jax.random.fold_in(split_key(cell.test.seed), zlib.crc32(repr(_training(cell)).encode()) & 0x7FFFFFFF)
    if kind == "descriptors":
        return models.fit(key, inputs, y, task=cell.task, kind=kind, config=config)
    options: dict[str, Any] = {
        "task": cell.task,
        "kind": kind,
        "config": config,
        "checkpoint": _checkpoint(store, cell),
    }
    if kind == "picture":
        options["redrawn"] = np.concatenate([_redrawn(key, one.coords, config.network.size) for one in trained])
    model = models.fit(key, inputs, y, **options)
    if kind == "picture":
        model.save(model_file(store, cell))
    _checkpoint(store, cell).unlink(missing_ok=True)
    return model


def utility(store: Store, cell: Utility) -> dict[str, float]:
    """Trustworthiness, kept neighbours and silhouette of the property, means over the maps at share 0.5."""
    begun = time.perf_counter()
    tried = store.get(cell.test).at((0.5,))
    features = store.features(dataclasses.replace(cell.test, defence=""))[0]
    labels = data.case(cell.test.prop).has_property.astype(np.int64)
    found = evaluate_maps(features, tried.rows, tried.coords, labels=labels, n_neighbors=N_NEIGHBORS)
    means = {name: float(np.mean(values)) for name, values in found._asdict().items()}
    return {**means, "n_test": len(tried.coords), "seconds": time.perf_counter() - begun}


def drawn(coords: np.ndarray, size: int) -> np.ndarray:
    """(g, size, size) uint8 pictures: plots of 300 x 300 pixels in black, then means over squares of pixels.

    Raises:
        ValueError: a size that does not divide 300.
    """
    if DRAWN % size:
        raise ValueError(f"size must divide {DRAWN}, got {size}")
    step = DRAWN // size
    pictures = np.empty((len(coords), size, size), np.uint8)
    for low in range(0, len(coords), 64):
        part = raster.draw(coords[low : low + 64], size=DRAWN, snap=True, method="host")
        pictures[low : low + 64] = np.rint(part.reshape(len(part), size, step, size, step).mean(axis=(2, 4)))
    return pictures


def _inputs(kind: str, given: MapSet, config: PropertyConfig) -> np.ndarray:
    return drawn(given.coords, config.network.size) if kind == "picture" else given.coords


def _redrawn(key: Array, coords: np.ndarray, size: int) -> np.ndarray:
    """(g, N_REDRAWN, size, size) uint8."""
    angles = np.asarray(jax.random.uniform(key, (N_REDRAWN, len(coords)), maxval=2 * np.pi))
    turns = np.stack([[np.cos(angles), -np.sin(angles)], [np.sin(angles), np.cos(angles)]]).transpose(2, 3, 0, 1)
    return np.stack([drawn((coords @ turn).astype(np.float32), size) for turn in turns], axis=1)


def _joined(parts: list[np.ndarray]) -> Any:
    """One array where all maps have one number of points, else a list of maps."""
    if len({part.shape[1:] for part in parts}) == 1:
        return np.concatenate(parts)
    return [one for part in parts for one in part]


def _by_mean(
    store: Store, cell: Cell, trained: list[MapSet], tried: MapSet, y: np.ndarray, levels: tuple[float, ...]
) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    found = np.concatenate([mean_embeddings(store, w, s) for w, s in zip(cell.train, trained, strict=True)])
    kernel = fit_kernel_ridge(found, y)
    expected = np.clip(kernel.predict(mean_embeddings(store, cell.test, tried)), 0, 1)
    grid = np.array(levels)
    return expected, grid[np.abs(expected[:, None] - grid).argmin(axis=1)], {}


def mean_embeddings(store: Store, wanted: Wanted, given: MapSet) -> np.ndarray:
    """(g, f) float64, of the records that each map shows."""
    features = store.features(dataclasses.replace(wanted, defence=""))[0]
    return np.stack([features[rows].mean(axis=0, dtype=np.float64) for rows in given.rows])


def _coverage(model: PropertyModel, expected: np.ndarray, truth: np.ndarray) -> dict[str, Any]:
    reach = conformal_radius(model.residuals, COVERAGE)
    # Shares of groups are counts: rounding must not put one outside.
    return {"coverage": float(np.mean(np.abs(expected - truth) <= reach + 1e-9)), "reach": min(reach, 1.0)}


def _scores(task: str, chosen: np.ndarray, expected: np.ndarray, truth: np.ndarray) -> dict[str, Any]:
    error = np.abs(expected - truth)
    if task == "regression":
        return {"error": float(error.mean()), "error_half": float(normal_quantile() * standard_error(error))}
    hits = np.isclose(chosen, truth)
    interval = share_interval(int(hits.sum()), len(hits))
    return {"accuracy": float(hits.mean()), "interval": [interval.low, interval.high], "error": float(error.mean())}
