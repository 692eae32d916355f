"""What workers do of a cell, step by step; every step may be done twice and leaves what the next one reads.

begin: makes the run folder; says which chunks of releases there are. make: makes some. choose: reads them, and says
which attacks run on them. attack: runs one, or a part of it. finish: scores all, and writes the cell's file. What is
little is done at once, by the worker that is at it.
"""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from drjax.attacks import metrics
from drjax.attacks.attack import Attack
from drjax.audits import pieces
from drjax.audits.pieces import Job
from drjax.audits.pipeline import Attempt, Piece, attack_pieces
from drjax.reports import records
from drjax.sweeps.config import Cell
from drjax.sweeps.store import CELLS, SUFFIX, WORK, SweepStore

AT_ONCE = 2
"""Pieces that a worker does at once rather than leave to others."""

BEGIN, MAKE, CHOOSE, ATTACK, FINISH = "begin", "make", "choose", "attack", "finish"

METADATA = b"drjax"
"""Key of what a cell's file says of itself, as JSON."""


@dataclass(frozen=True, kw_only=True)
class Share:
    """What all workers of a sweep are told.

    Attributes:
        url: The store.
        job: Any audit of the sweep; its configuration and folder are replaced by those of a cell.
        fingerprint: Fingerprint of the sweep.
        types: Types of its settings, see `SweepConfig.types`.
        keep: Whether run folders of finished cells stay.
    """

    url: str
    job: Job
    fingerprint: str
    types: Mapping[str, str]
    keep: bool


def work(share: Share, cell: Cell, step: str, piece: Piece | None = None) -> list[Piece]:
    """Does one step of a cell; returns the pieces that can be done next, none if the cell is finished.

    Raises:
        ValueError: as of `drjax.audits.pieces.work`, or settings that do not fit the data.
        OSError: the store cannot be read or written.
    """
    store = SweepStore(share.url)
    name = f"{CELLS}/{cell.key}{SUFFIX}"
    if store.get(name) is not None:
        # Whoever finished it may have died before its run folder was gone.
        _clear(store, share, cell)
        return []
    with store.folder(f"{WORK}/{cell.key}") as path:
        job = dataclasses.replace(share.job, config=cell.config, out=path)
        try:
            left, content = _step(share, job, cell, step, piece)
        except ValueError as error:
            raise ValueError(f"{error} (in the cell {cell.name})") from error
    if content is not None:
        store.put(name, content)
        pieces.close()
        _clear(store, share, cell)
    return left


def _clear(store: SweepStore, share: Share, cell: Cell) -> None:
    if not share.keep:
        store.remove(f"{WORK}/{cell.key}")


def _step(share: Share, job: Job, cell: Cell, step: str, piece: Piece | None) -> tuple[list[Piece], bytes | None]:
    """Pieces that can be done next, and the content of the cell's file if it is finished."""
    if piece is not None:
        pieces.work(job, piece)
        return [], None
    opened = pieces.opened(job)
    if step == BEGIN:
        left = opened.setting.pieces(opened.session)
        if len(left) > AT_ONCE:
            return left, None
        for one in left:
            opened.setting.make(opened.session, one)
    attacks = opened.attacked()
    if step != FINISH:
        left = attack_pieces(opened.setting, attacks)
        if len(left) > AT_ONCE:
            return left, None
    found = {name: opened.setting.attempt(opened.session, name, attack) for name, attack in attacks.items()}
    x, rows = opened.setting.targets(), opened.setting.rows
    return [], _content(_table(share.types, cell, attacks, found, x, rows), share, cell, attacks, found)


def _table(
    types: Mapping[str, str],
    cell: Cell,
    attacks: Mapping[str, Attack],
    found: Mapping[str, Attempt],
    x: np.ndarray,
    rows: np.ndarray,
) -> pa.Table:
    """A line for every attack and attacked record."""
    tables = []
    settings = {name: _plain(value, types[name]) for name, value in cell.settings.items()}
    for name, attempt in found.items():
        errors = metrics.mean_squared_errors(np.asarray(attempt.x), x)
        expected = np.full(len(x), np.nan) if attempt.expected_mse is None else attempt.expected_mse
        columns: dict[str, Any] = {"cell": [cell.name] * len(x)}
        columns |= {name: pa.array([value] * len(x), types[name]) for name, value in settings.items()}
        columns |= {"attack": [name] * len(x), "is_baseline": [attacks[name].is_baseline] * len(x)}
        columns |= {"row": np.asarray(rows, np.int64), "mse": np.asarray(errors, np.float64)}
        columns |= {"expected_mse": np.asarray(expected, np.float64), "status": np.asarray(attempt.status, np.uint32)}
        tables.append(pa.table(columns))
    return pa.concat_tables(tables)


def _content(
    table: pa.Table, share: Share, cell: Cell, attacks: Mapping[str, Attack], found: Mapping[str, Attempt]
) -> bytes:
    facts = {
        "fingerprint": share.fingerprint,
        "cell": cell.name,
        "settings": {name: _plain(value, share.types[name]) for name, value in cell.settings.items()},
        "config": cell.config,
        "provenance": records.provenance(cell.config.seed),
        "attacks": [
            {
                "name": name,
                "label": attempt.label or attacks[name].label,
                "is_baseline": attacks[name].is_baseline,
                "scores": attempt.scores,
            }
            for name, attempt in found.items()
        ],
    }
    said = json.dumps(records.to_json(facts), ensure_ascii=False, allow_nan=False).encode()
    file = io.BytesIO()
    pq.write_table(table.replace_schema_metadata({METADATA: said}), file)
    return file.getvalue()


def _plain(value: Any, kind: str) -> Any:
    """A setting as a column of a type has it."""
    if isinstance(value, tuple):
        return "+".join(map(str, value))
    return str(value) if kind == "string" and value is not None else value
