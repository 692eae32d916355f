"""Part b: time of a shadow by every method and engine, as `bench.shadow_embeddings` measures it."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
from collections.abc import Generator, Iterator
from typing import Any

import jax

from bench.gpu_hour import needs
from bench.gpu_hour.hour import Hour, Scale
from bench.gpu_hour.steps import Cell, Step, cut
from bench.shadow_embeddings import WITH_PALLAS, Config, cells, kinds, measure_cell, published
from drjax.attacks.shadow import Randomness
from drjax.dr import pallas

CARD = Config(dtype=["float32"], d=[784], data="mnist", budget_s=1.0, peer_s=1.5, cell_s=60.0, torchdr=True)
TOY = Config(dtype=["float32"], d=[8], shadows=3, repeats=1, budget_s=0.01, peer_s=0.01, torchdr=True)

SIZES = (200, 1000, 100, 500)
"""Records of a release, the two that say most first."""

PCA_SIZES = (2000, 5000, 10_000)
"""Further ones of PCA, whose cost grows least."""

SECONDS = {
    "pca": (50.0, 15.0),
    "srp": (25.0, 5.0),
    "classical_mds": (50.0, 15.0),
    "mds": (55.0, 45.0),
    "isomap": (35.0, 45.0),
    "tsne": (75.0, 100.0),
    "umap": (110.0, 100.0),
}
"""Seconds expected of a cell with few records, and what a thousand add, which grows with their square.

Compilation of drjax's program took up to 25 s on an H100 and is done twice, for naive vmap too; every worker of
umap-learn compiles as well."""

NAME = "grid"


def steps(scale: Scale) -> Iterator[Step]:
    """A cell for every method, threat model and size."""
    basis = "compile and run times of an H100 at n = 200; the rest guessed"
    yield from cut(NAME, "b", basis, _cells(scale))


def _cells(scale: Scale) -> Iterator[Cell]:
    wanted = [(kind, n) for n in SIZES for kind in kinds()]
    wanted += [(kind, n) for n in PCA_SIZES for kind in kinds() if kind[0] == "pca"]
    # Fused descents beside those of XLA, before anything else.
    fused = [(kind, n, True) for kind, n in wanted if kind[0] in WITH_PALLAS and kind[1] == "fresh"]
    if scale.name == "toy":  # a CPU has no compiled path for them
        wanted, fused = [(kind, 9) for kind in kinds() if kind[0] in ("pca", "mds")], []
    asked = fused + [(kind, n, False) for kind, n in wanted]
    for (method, randomness), n, with_pallas in asked:
        few, more = SECONDS.get(method, max(SECONDS.values()))
        yield Cell(
            name=cell_name(method, randomness, n) + ("/pallas" if with_pallas else ""),
            seconds=few + more * min(n / 1000, 3) ** 2,
            compute=functools.partial(_measure, method=method, randomness=randomness, n=n, with_pallas=with_pallas),
            lacks=functools.partial(needs.data, *([] if scale.name == "toy" else ["mnist"])),
        )


def cell_name(method: str, randomness: Randomness, n: int) -> str:
    """Name of a cell of the grid."""
    return f"{NAME}/{method}/{'seed-known' if randomness == 'shared' else 'seed-unknown'}/{n}"


def config_of(scale: Scale, method: str, n: int) -> Config:
    """What `bench.shadow_embeddings` would be told to measure one size of one method."""
    return dataclasses.replace(TOY if scale.name == "toy" else CARD, method=[method], n=[n])


@contextlib.contextmanager
def _kernels(with_pallas: bool) -> Generator[None]:
    """Pallas kernels or none; what was traced with the others is forgotten."""
    before = os.environ.get(pallas.VARIABLE)
    os.environ[pallas.VARIABLE] = "1" if with_pallas else "0"
    if with_pallas:
        jax.clear_caches()
    try:
        yield
    finally:
        if before is None:
            del os.environ[pallas.VARIABLE]
        else:
            os.environ[pallas.VARIABLE] = before
        if with_pallas:
            jax.clear_caches()


def _measure(hour: Hour, *, method: str, randomness: Randomness, n: int, with_pallas: bool) -> dict[str, Any]:
    config = config_of(hour.scale, method, n)
    jax.config.update("jax_enable_x64", False)
    ((cell, source),) = ((c, s) for c, s in cells(config, "float32") if c.randomness == randomness)
    try:
        with _kernels(with_pallas):
            row, rivals = measure_cell(cell, config, hour.pool, hour.peaks, hour.naive_rates)
    except Exception:
        hour.end_pool()
        raise
    return {"rows": [entry | published(config) | {"data": source} for entry in (*hour.peaks, row, *rivals)]}
