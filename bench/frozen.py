"""What shadows in a frozen map cost, how far they are from exact ones, and what an attack that learns from them loses.

    python -m bench.frozen

README.md beside this file says what is measured.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import tyro

from bench import harness
from drjax.attacks.attack import EmbeddingThreat
from drjax.attacks.registry import ATTACKS, answer
from drjax.attacks.shadow import shadow_embeddings
from drjax.attacks.shadow_sets import shadows_of
from drjax.core.types import DRMethod
from drjax.data import load
from drjax.dr import TSNE, UMAP

METHODS: dict[str, DRMethod] = {"tsne": TSNE(init="random"), "umap": UMAP()}
"""With random starts, so that two exact maps of one target differ by their draws alone."""

ATTACK = "invariant"
NEAR = 10


def main(
    *,
    methods: tuple[str, ...] = tuple(METHODS),
    data: str = "mnist",
    sizes: tuple[int, ...] = (1000, 10_000),
    timed: int = 2,
    n: int = 1000,
    shadows: int = 500,
    targets: int = 100,
    out: Path = harness.RESULTS / "frozen.jsonl",
) -> None:
    """Times shadows of each size, compares and attacks at one, and adds a row for each.

    Args:
        methods: Names of `METHODS`.
        data: Data set by its name.
        sizes: Numbers of records that are timed.
        timed: Shadows that are timed.
        n: Records of the maps that are compared and attacked.
        shadows: Shadows that the attack learns from; a fifth of them to choose by.
        targets: Targets, in exact maps.
        out: JSON-lines file that the rows are added to.
    """
    x = np.asarray(load(data).x, np.float32)
    for name in methods:
        for size in sizes:
            row = costs(METHODS[name], x, size, timed) | {"data": data}
            harness.append_row(out, row)
            print(
                f"{row['method']}, {size:,} records: exact {row['exact_s']:.3g} s a shadow, frozen "
                f"{row['frozen_s']:.3g} s after {row['map_s']:.3g} s for the map: {row['ratio']:.0f} times cheaper",
                flush=True,
            )
        row = losses(METHODS[name], x, n, shadows, targets) | {"data": data}
        harness.append_row(out, row)
        print(
            f"{row['method']}, {n:,} records: of the target's {NEAR} nearest an exact map shares "
            f"{row['shared_frozen']:.1%}, with another exact one {row['shared_exact']:.1%}; error of an attack that "
            f"learned from exact shadows {row['mse_exact']:.4f}, from frozen ones {row['mse_frozen']:.4f}, of the "
            f"nearest record {row['mse_nearest']:.4f}",
            flush=True,
        )


def costs(method: Any, x: np.ndarray, n: int, timed: int) -> dict[str, Any]:
    """The row of seconds for a shadow of n records, exact and frozen, what is prepared once apart."""
    known, targets = x[: n - 1], x[n - 1 : n - 1 + timed]
    key = jax.random.key(0)
    keys = jax.random.split(key, timed)
    insert, place = (jax.jit(getattr(method, name)) for name in ("insert_batch", "insert_frozen"))
    before = time.perf_counter()
    frozen, _ = jax.block_until_ready(method.prepare_frozen(key, known))
    map_s = time.perf_counter() - before
    fields = {
        "exact_s": _seconds(insert, keys, method.prepare(known), targets) / timed,
        "frozen_s": _seconds(place, keys, frozen, targets) / timed,
        "map_s": map_s,
    }
    fields["ratio"] = fields["exact_s"] / fields["frozen_s"]
    return harness.make_row("cost_of_frozen", {"method": method.title, "n": n, "d": x.shape[1]}, fields)


def _seconds(call: Any, *args: Any) -> float:
    """Time of a second call, whose program is compiled."""
    keys, shared, targets = args
    jax.block_until_ready(call(keys, shared, targets))
    before = time.perf_counter()
    jax.block_until_ready(call(keys, shared, targets))
    return time.perf_counter() - before


def losses(method: DRMethod, x: np.ndarray, n: int, n_shadows: int, n_targets: int) -> dict[str, Any]:
    """The row of what the target's neighbours share with those of an exact map, and of the attack's errors on these."""
    known, records, truth = np.split(x[: n - 1 + n_shadows + n_targets], [n - 1, n - 1 + n_shadows])
    keys = jax.random.split(jax.random.key(1), 5)
    exact, again = (np.asarray(shadow_embeddings(key, method, known, truth).coords) for key in keys[:2])
    frozen = np.asarray(shadow_embeddings(keys[2], method, known, truth, approx="frozen").coords)
    errors = {}
    for kind in (None, "frozen"):
        approx: Any = kind
        made = shadows_of(keys[3], method, known, records, n_validation=n_shadows // 5, dtype="float32", approx=approx)
        threat = EmbeddingThreat(
            method=method, known=known, coords=exact, shadows=lambda made=made: made, public=records, dtype="float32"
        )
        found = answer(ATTACKS["embedding"][ATTACK], keys[4], threat)
        errors[kind] = float(((found.x - truth) ** 2).mean())
    nearest = np.array([((known - one) ** 2).mean(axis=1).min() for one in truth])
    fields = {
        "shared_frozen": shared(exact, frozen),
        "shared_exact": shared(exact, again),
        "mse_exact": errors[None],
        "mse_frozen": errors["frozen"],
        "mse_nearest": float(nearest.mean()),
        "mse_mean": float(((truth - records.mean(axis=0)) ** 2).mean()),
    }
    labels = {"method": method.title, "n": n, "d": x.shape[1], "attack": ATTACK, "shadows": n_shadows, "m": n_targets}
    return harness.make_row("loss_by_frozen", labels, fields)


def shared(one: np.ndarray, other: np.ndarray) -> float:
    """Share of the target's `NEAR` nearest in maps (m, n, k) that are among its nearest in other maps."""
    lists = [np.argsort(np.linalg.norm(maps[:, 1:] - maps[:, :1], axis=-1), axis=1)[:, :NEAR] for maps in (one, other)]
    return float(np.mean([np.isin(a, b).mean() for a, b in zip(*lists, strict=True)]))


if __name__ == "__main__":
    tyro.cli(main)
