"""Embeddings in a run folder, chunk by chunk: a finished chunk is never computed again, whoever has computed it."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from drjax.attacks.prepared import Prepared
from drjax.attacks.shadow import (
    chunk_on_any_machine,
    factored_at,
    iter_shadow_embeddings,
    shadow_batch_size,
)
from drjax.audits.adversary import is_weaker
from drjax.audits.config import AuditConfig
from drjax.audits.folder import RunFolder
from drjax.core.streamed import Directions, Product
from drjax.core.types import Array, DRMethod, Embedding, count_status
from drjax.dr.factored import FactoredCoords, Factors
from drjax.reports import records

LANE_FIELDS = ("objective", "n_iter", "status")
"""What is kept of each embedding beside its coordinates."""

CENTRE = "centre"
"""Name of what is taken off the known records of factored embeddings."""


def keeps_factors(config: AuditConfig, n: int, d: int) -> bool:
    """Whether an audit keeps of releases of n records of d features what they do not share, and makes no coordinates:
    of many records, where all that is asked of them are attacks by who knows all others."""
    return config.defense == "none" and not is_weaker(config) and factored_at(config.dr_method, n, d)


@dataclass(kw_only=True)
class Stage:
    """Embeddings of [target; known] for every target, in chunks.

    Attributes:
        folder: Keeps finished chunks.
        name: Name of the folder in it, and of the record.
        key: PRNG key, as for `shadow_embeddings`.
        config: Configuration of the audit.
        known: (n-1, d).
        targets: (m, d).
        progress: Show a bar on standard error.
        method: Method to take.
        kept: Keeps what the method makes of the known records for stages that follow.
        lanes: Most embeddings of a chunk, on any machine; if None as many as the memory here takes.
    """

    folder: RunFolder
    name: str
    key: Array
    config: AuditConfig
    known: np.ndarray
    targets: np.ndarray
    progress: bool
    method: DRMethod
    kept: Prepared = field(default_factory=Prepared)
    lanes: int | None = None
    _directions: Directions | None = field(default=None, init=False)

    @property
    def is_factored(self) -> bool:
        """Whether factors are kept, see `keeps_factors`."""
        return keeps_factors(self.config, len(self.known) + 1, self.known.shape[1])

    @functools.cached_property
    def size(self) -> int:
        """Embeddings of a chunk: part of the result's last bits, so that whoever comes later takes the recorded one."""

        def plan() -> dict[str, np.ndarray]:
            config = self.config
            if self.lanes is not None:
                n, d = len(self.known) + 1, self.known.shape[1]
                size = chunk_on_any_machine(self.method, n, d, self.lanes, itemsize=np.dtype(config.dtype).itemsize)
                return {"batch_size": np.asarray(size)}
            also = (config.n_shadow + config.n_validation, config.n_targets)
            size = shadow_batch_size(self.method, self.known, self.targets, also=also, **self._options())
            return {"batch_size": np.asarray(size)}

        return int(self.folder.arrays(f"{self.name}/plan", plan)["batch_size"])

    @property
    def n_chunks(self) -> int:
        """Number of chunks."""
        return len(self._starts())

    def make(self, chunks: Iterable[int] | None = None) -> None:
        """Computes those of some chunks, or of all, that are missing."""
        starts = self._starts()
        wanted = range(len(starts)) if chunks is None else chunks
        for first, last in _runs([number for number in wanted if not self._file(starts[number]).exists()]):
            end = starts[last] + self.size
            for offset, embedding in iter_shadow_embeddings(
                self.key,
                self.method,
                self.known,
                self.targets[:end],
                batch_size=self.size,
                start=starts[first],
                progress=self.progress,
                **self._options(),
            ):
                self.folder.arrays(f"{self.name}/{offset:08d}", lambda found=embedding: self._kept_of(found))

    def read(self) -> dict[str, Any]:
        """All embeddings; those that are missing are computed.

        Returns:
            coords (m, n, k), rounded as configured, a `FactoredCoords` where `keeps_factors`; objective, n_iter and
            status (m,).
        """
        begun = time.perf_counter()
        self.make()
        seconds = time.perf_counter() - begun
        chunks = [records.load_arrays(self._file(start)) for start in self._starts()]
        names = (*(Factors._fields if self.is_factored else ("coords",)), *LANE_FIELDS)
        gathered: dict[str, Any] = {name: np.concatenate([chunk[name] for chunk in chunks]) for name in names}
        counts = count_status(gathered["status"])
        self.folder.record("stage", self.name, n=len(self.targets), seconds=seconds, status_counts=counts)
        if self.is_factored:
            factors, rows = Factors(*map(gathered.pop, Factors._fields)), Product(self.known, chunks[0][CENTRE])
            dtype, decimals = np.dtype(self.config.dtype), self.config.decimals
            gathered["coords"] = FactoredCoords(factors, rows, dtype, decimals, self._directions)
        return gathered

    def _kept_of(self, embedding: Embedding) -> dict[str, np.ndarray]:
        """What is kept of a chunk."""
        if isinstance(embedding.coords, FactoredCoords):
            made = embedding.coords.of_records()
            chunk, self._directions = made.factors._asdict() | {CENTRE: made.centre}, made.directions
        else:
            chunk = {"coords": np.asarray(embedding.coords)}
            if self.config.decimals is not None:
                chunk["coords"] = np.round(chunk["coords"], self.config.decimals)
        return chunk | {name: np.asarray(getattr(embedding, name)) for name in LANE_FIELDS}

    def _options(self) -> dict[str, Any]:
        config = self.config
        options: dict[str, Any] = {"randomness": config.randomness, "dtype": config.dtype, "kept": self.kept}
        return options | {"factored": self.is_factored}

    def _starts(self) -> range:
        return range(0, len(self.targets), self.size)

    def _file(self, start: int) -> Path:
        return self.folder.path / self.name / f"{start:08d}.npz"


def _runs(numbers: list[int]) -> Iterator[tuple[int, int]]:
    """First and last of every run of consecutive numbers."""
    first = [n for place, n in enumerate(numbers) if place == 0 or numbers[place - 1] != n - 1]
    last = [n for place, n in enumerate(numbers) if place + 1 == len(numbers) or numbers[place + 1] != n + 1]
    return zip(first, last, strict=True)
