"""Part a: every kernel on the default device against the CPU's.

A CPU embeds by compiled host code and an accelerator by XLA, so that the two are different programs. They have to agree
on coordinates where rounding stays rounding. t-SNE and UMAP are chaotic: there they have to agree on the coordinates of
the first steps, and of whole descents on the objective and the neighbours that are kept, in the mean.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bench.gpu_hour.hour import Hour, Scale
from bench.gpu_hour.steps import Cell, Step, cut
from bench.peers import perplexity
from drjax.core.statistics import standard_error
from drjax.core.types import DRMethod, Embedding, count_status
from drjax.dr import METHODS, TSNE, UMAP
from drjax.dr.quality import evaluate_batch

ENTRIES = ("insert_batch", "fit_transform")
DTYPES = ("float32", "float64")
FIRST_STEPS: dict[str, Callable[[int], DRMethod]] = {
    "tsne": lambda n: TSNE(perplexity=perplexity(n), max_iter=10, learning_rate=1.0),
    "umap": lambda n: UMAP(n_neighbors=min(15, n - 1), n_epochs=10, learning_rate=0.1),
}
"""Chaotic methods at so few and small steps that two devices still have the same coordinates."""

LIMITS = {"float32": 1e-4, "float64": 1e-9}
"""Largest difference of coordinates over the largest coordinate: sums of hundreds of terms in another order, and an
eigensolver or ten growing steps after them."""

STOPPED = {"float32": 1e-2, "float64": 1e-6}
"""The same for SMACOF: a stopping rule that looks at rounding may stop an iteration earlier or later."""

OBJECTIVE = 0.05
KEPT = 0.05
"""How far the means of whole chaotic descents may be apart: the objective relatively, the share of kept neighbours
absolutely. Beside their own spread: see `_in_the_mean`."""

SECONDS = {"pca": 20, "srp": 10, "classical_mds": 20, "mds": 30, "isomap": 20, "tsne": 50, "umap": 60}
"""Expected of a cell: compilation on an H100 (measured: 14 s of SMACOF, 25 s of t-SNE, 17 s of PCA), and the CPU's."""

TOY_FLOAT64 = ("pca", "mds")
"""Methods that the toy scale compares in float64 too: what it shows is that the comparison runs."""

Size = tuple[int, int, int]
"""Records, features and shadows."""


def steps(scale: Scale) -> Iterator[Step]:
    """Every method, entry point and precision, first float32 of all."""
    basis = "compile times of an H100 at n = 200; the CPU's part guessed"
    yield from cut("parity", "a", basis, _cells(scale))


def _cells(scale: Scale) -> Iterator[Cell]:
    is_toy = scale.name == "toy"
    size = (14, 7, 3) if is_toy else (100, 30, 16)
    for dtype in DTYPES:
        for name in TOY_FLOAT64 if is_toy and dtype == "float64" else METHODS:
            for entry in ENTRIES:
                for view in _views(name, entry, is_toy):
                    compute = functools.partial(_compare, name=name, entry=entry, dtype=dtype, view=view, size=size)
                    cell = f"parity/{name}/{entry}/{dtype}/{view.replace(' ', '-')}"
                    yield Cell(name=cell, seconds=SECONDS.get(name, max(SECONDS.values())), compute=compute)


def _views(name: str, entry: str, is_toy: bool) -> tuple[str, ...]:
    if name not in FIRST_STEPS:
        return ("whole",)
    if is_toy:
        return ("first steps",) if entry == "insert_batch" else ("whole",)
    return "first steps", "whole"


def _compare(hour: Hour, *, name: str, entry: str, dtype: str, view: str, size: Size) -> dict[str, Any]:
    known, targets = _records(size, dtype, hour.scale.seed)
    n = len(known) + 1
    whole = _whole(name, n)
    method = FIRST_STEPS[name](n) if view == "first steps" else whole
    devices = jax.devices()[0], jax.devices("cpu")[0]
    with jax.enable_x64(dtype == "float64"):
        pair = [_embedded(method, entry, known, targets, device) for device in devices]
    in_the_mean = not METHODS[name].repeatable and view == "whole"
    facts = (_in_the_mean if in_the_mean else _in_coordinates)(name, dtype, known, targets, *pair)
    labels = {"method": name, "entry": entry, "dtype": dtype, "view": view, "n": n, "d": size[1], "shadows": size[2]}
    statuses = [count_status(found.status) for found in pair]
    wrong = [text for text, agrees in facts.pop("checks") if not agrees]
    return {
        **labels,
        "devices": [device.device_kind for device in devices],
        "is_one_device": devices[0] == devices[1],
        "status": statuses,
        **facts,
        "agrees": not wrong,
        "finding": "; ".join(wrong) or None,
    }


def _whole(name: str, n: int) -> DRMethod:
    chosen: dict[str, dict[str, Any]] = {
        "tsne": {"perplexity": perplexity(n)},
        "umap": {"n_neighbors": min(15, n - 1)},
    }
    return METHODS[name](**chosen.get(name, {}))


def _records(size: Size, dtype: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Known records and targets whose directions of variance, distances and neighbours are well apart."""
    n, d, m = size
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n - 1 + m, d)) * np.maximum(0.7 ** np.arange(d), 0.01)
    return x[: n - 1].astype(dtype), x[n - 1 :].astype(dtype)


def _embedded(method: DRMethod, entry: str, known: np.ndarray, targets: np.ndarray, device: Any) -> Embedding:
    """All shadows on a device, as arrays of the host."""
    with jax.default_device(device):
        keys = jax.random.split(jax.random.key(0), len(targets))
        if entry == "insert_batch":
            found = _insert_batch(method, keys, method.prepare(known), jnp.asarray(targets))
        else:
            found = _fit_all(method, keys, jnp.asarray(known), jnp.asarray(targets))
        coords, objective, n_iter, status = (np.asarray(leaf) for leaf in found[:4])
    return Embedding(coords, objective, n_iter, status, None)


@jax.jit
def _insert_batch(method: DRMethod, keys: Any, shared: Any, targets: Any) -> Embedding:
    return method.insert_batch(keys, shared, targets)


@jax.jit
def _fit_all(method: DRMethod, keys: Any, known: Any, targets: Any) -> Embedding:
    def one(key: Any, target: Any) -> Embedding:
        return method.fit_transform(key, jnp.concatenate([target[None], known]))

    return jax.vmap(one)(keys, targets)


def _in_coordinates(
    name: str, dtype: str, known: np.ndarray, targets: np.ndarray, here: Embedding, there: Embedding
) -> dict[str, Any]:
    del known, targets
    limit = (STOPPED if name == "mds" else LIMITS)[dtype]
    largest = float(np.abs(there.coords).max())
    apart = float(np.abs(here.coords - there.coords).max()) / largest
    same_flags = bool(np.array_equal(here.status, there.status))
    checks = [
        (f"coordinates are {apart:.1e} of the largest apart, over the limit of {limit:g}", apart <= limit),
        ("status flags differ", same_flags or name == "mds"),
    ]
    return {"apart": apart, "limit": limit, "same_flags": same_flags, "checks": checks}


def _in_the_mean(
    name: str, dtype: str, known: np.ndarray, targets: np.ndarray, here: Embedding, there: Embedding
) -> dict[str, Any]:
    """Compares means over the shadows; their own spread widens what is allowed, by four standard errors."""
    del name, dtype
    objectives = [np.asarray(found.objective, np.float64) for found in (here, there)]
    kept = [_kept(known, targets, found.coords) for found in (here, there)]
    difference, allowed = _difference(objectives, OBJECTIVE * abs(float(objectives[1].mean())))
    kept_difference, kept_allowed = _difference(kept, KEPT)
    checks = [
        (f"mean objectives are {difference:.3g} apart, allowed are {allowed:.3g}", difference <= allowed),
        (
            f"kept neighbours are {kept_difference:.3g} apart, allowed are {kept_allowed:.3g}",
            kept_difference <= kept_allowed,
        ),
    ]
    return {
        "objective": [float(found.mean()) for found in objectives],
        "objective_allowed": allowed,
        "kept_neighbours": [float(found.mean()) for found in kept],
        "kept_allowed": kept_allowed,
        "checks": checks,
    }


def _difference(pair: list[np.ndarray], tolerance: float) -> tuple[float, float]:
    """How far the means of two samples are apart, and how far they may be; one that is not finite is infinitely far."""
    first, second = pair
    error = math.hypot(*(float(standard_error(found)) for found in pair))
    apart = abs(float(first.mean() - second.mean()))
    return (apart if math.isfinite(apart) else math.inf), tolerance + 4 * error


def _kept(known: np.ndarray, targets: np.ndarray, coords: np.ndarray) -> np.ndarray:
    n_neighbors = min(5, (len(known) - 1) // 2)
    return np.asarray(evaluate_batch(known, targets, coords, n_neighbors=n_neighbors).knn_preservation, np.float64)
