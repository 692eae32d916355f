"""What could be published instead of a map of made-up patients: the search of `drjax audit`, option by option.

The search runs without its limit of time, so that a busy machine tries as many options as an idle one.
"""

from __future__ import annotations

import functools
import math
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import drjax
from drjax.decisions import page, search
from drjax.decisions.found import Found, Measured
from tests.data.messy import patients

COMMAND = "drjax audit --data patients.csv --max-records 100"


def searched(n: int, n_attacked: int, is_toy: bool) -> dict[str, Any]:
    """What the search finds for n patients.

    Args:
        n: Rows of the table.
        n_attacked: Rows that the audit attacks.
        is_toy: Whether to try the fewest options.
    """
    seconds = 0.0 if is_toy else math.inf
    with tempfile.TemporaryDirectory() as name:
        table = Path(name) / "patients.csv"
        table.write_text(patients(n).text, encoding="utf-8")
        with mock.patch.multiple(search, SECONDS=seconds, CHECK_SECONDS=seconds):
            result = drjax.audit(table, out=Path(name) / "run", max_records=n_attacked, progress=True)
    found: Found = result.options
    return {
        "command": COMMAND,
        "n_records": n,
        "said": [advice.text for advice in page.advice(found)],
        "options": [_kept(found, one) for one in found.measured],
    }


def _kept(found: Found, one: Measured) -> dict[str, Any]:
    best = found.recommended
    return {
        "name": one.option.name,
        "label": one.option.label,
        "kind": getattr(one.option, "kind", type(one.option)).__name__,
        "guarantee": one.option.guarantee,
        "is_recommended": best is not None and best.option.name == one.option.name,
        "passes": one.passes,
        "held": one.held,
        "taken": one.taken,
        "rebuilt": one.rebuilt,
        "identified": one.identified,
        "usefulness": one.usefulness.share,
    }


TABLES = {"options": {"patients": functools.partial(searched, 300, 100)}}
"""What computes the facts of a cell, by table and cell."""
