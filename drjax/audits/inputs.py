"""What is at hand when an attack of an audit runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from drjax.audits.config import AuditConfig
from drjax.core.types import Array

BOUNDS = (0.0, 1.0)
"""Features are scaled to this range when data are loaded, and the range is public."""


@dataclass(frozen=True, kw_only=True)
class AttackInputs:
    """What is at hand when an attack runs; `targets` is for the yardstick alone.

    Attributes:
        key: Of this attack.
        config: The audit's.
        known: (n-1, d).
        shadow: (s, d) public records, and shadow_coords (s, n, k) their releases.
        validation: (v, d), and validation_coords (v, n, k).
        coords: (m, n, k) the releases under attack, target in row 0.
        targets: (m, d) the truth.
        checkpoint: Where training may leave its state to be resumed.
        progress: Show bars on standard error.
        release_key: Of the releases, where the adversary knows their seed; else None.
    """

    key: Array
    config: AuditConfig
    known: np.ndarray
    shadow: np.ndarray
    shadow_coords: np.ndarray
    validation: np.ndarray
    validation_coords: np.ndarray
    coords: np.ndarray
    targets: np.ndarray
    checkpoint: Path
    progress: bool
    release_key: Array | None = None

    @property
    def public(self) -> np.ndarray:
        """All records that the adversary has beside the known ones."""
        return np.concatenate([self.shadow, self.validation])
