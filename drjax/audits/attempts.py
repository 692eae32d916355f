"""One attack in a run folder: what it finds is kept, and read back by a resumed run."""

from __future__ import annotations

from typing import Any

import numpy as np

from drjax.attacks.attack import Attack
from drjax.attacks.registry import answer
from drjax.audits.folder import RunFolder
from drjax.core.types import Array, Reconstruction


def fields_of(found: Reconstruction) -> dict[str, np.ndarray]:
    """What is kept of a reconstruction: x, residual_norm and status, and where there are any y and expected_mse."""
    fields = {
        "x": np.asarray(found.x),
        "residual_norm": np.asarray(found.residual_norm),
        "status": np.asarray(found.status, np.uint32),
    }
    further = {"y": found.y, "expected_mse": found.expected_mse}
    return fields | {name: np.asarray(value) for name, value in further.items() if value is not None}


def answer_in(
    folder: RunFolder, file: str, attack: Attack, key: Array, threat: Any, *, stage: str
) -> tuple[dict[str, np.ndarray], float]:
    """What `drjax.attacks.registry.answer` finds, as `fields_of` has it, and the seconds that it took.

    Args:
        folder: The run folder, which keeps the state of a training while that lasts.
        file: Name of the array file in it.
        attack: What runs.
        key: PRNG key of all attacks.
        threat: Threat, with a field `checkpoint` where attacks on such threats train for long.
        stage: Name of the record with the seconds and facts.

    Raises:
        ValueError: as `RunFolder.timed`.
    """
    checkpoint = folder.checkpoint(file)

    def make() -> tuple[dict[str, Any], dict[str, Any]]:
        found = answer(attack, key, threat.resumable(checkpoint))
        return fields_of(found), dict(found.facts or {})

    kept = folder.timed(file, make, stage=stage)
    checkpoint.unlink(missing_ok=True)
    return kept
