"""What one audit of networks does: every choice that decides its results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from drjax.attacks.registry import ATTACKS
from drjax.audits.config import DTYPES
from drjax.core import validate
from drjax.defenses.dp_gd import DPGD, noise_multiplier_for
from drjax.nets.classifier_training import Training

NEIGHBOURING = "zero_out"
"""An informed adversary compares a model with the target to one in which it counts for nothing."""


@dataclass(frozen=True, kw_only=True)
class ModelAuditConfig:
    """An audit of one training on one data set.

    Attributes:
        data: Name of a data set (`drjax data list`) or path of a file; its labels are what the network learns.
        data_dir: Folder of the named data sets; $DRJAX_DATA or the download cache if None.
        categorical: Columns of a table that are categories, where it is not seen.
        drop: Columns of a table to leave out.
        label: Label column of a table.
        schema: File that says what the columns of a table are; see `drjax data plan`. Told by their cells if None.
        id: Column of a table that records are called by; the first that tells them apart if None.
        training: The network and how it is trained, in full batches or in an order that the adversary knows.
        n_known: Number of records that the adversary knows; a model is trained on one more.
        n_shadow: Number of public records, whose shadow models the learned attacks train on.
        n_targets: Number of records attacked, each in a model of its own.
        epsilon: Epsilon of full-batch DP-GD, > 0; no noise if None.
        delta: Delta of DP-GD, in (0, 1).
        clip_norm: Clipping norm of DP-GD, > 0.
        dtype: Precision that training computes in.
        attacks: Attacks to run; inversion if empty, "all" for every one.
        n_decoys: Number of decoys beside the target in the identification test; fewer if there are not as many.
        seed: Seed of the split, the start, the order, the noise and the intervals.
    """

    data: str = "digits"
    data_dir: str | None = None
    categorical: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    label: str | None = None
    schema: str | None = None
    id: str | None = None
    training: Training = Training()  # noqa: RUF009 (frozen)
    n_known: int = 299
    n_shadow: int = 1000
    n_targets: int = 20
    epsilon: float | None = None
    delta: float = 1e-5
    clip_norm: float = 1.0
    dtype: Literal["float32", "float64"] = "float32"
    attacks: tuple[str, ...] = ()
    n_decoys: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        """Checks every field that can be checked without the data."""
        validate.one_of(DTYPES, dtype=self.dtype)
        validate.integer(n_targets=self.n_targets, n_decoys=self.n_decoys)
        validate.integer(minimum=2, n_known=self.n_known)
        validate.integer(minimum=20, n_shadow=self.n_shadow)
        validate.integer(minimum=0, seed=self.seed)
        for name in self.attacks:
            validate.one_of((*ATTACKS["model"], "all"), attacks=name)
        if self.epsilon is not None:
            if self.training.batch_size is not None:
                raise ValueError(f"batch_size must be left out with epsilon, got {self.training.batch_size}")
            _ = self.mechanism  # checks the others

    @property
    def mechanism(self) -> DPGD | None:
        """Clipping and noise, or None."""
        if self.epsilon is None:
            return None
        multiplier = noise_multiplier_for(self.epsilon, self.delta, self.training.epochs, NEIGHBOURING)
        return DPGD(neighbouring=NEIGHBOURING, clip_norm=self.clip_norm, noise_multiplier=multiplier)

    @property
    def chosen(self) -> tuple[str, ...]:
        """The attacks to run, behind both baselines."""
        attacks = ATTACKS["model"]
        wanted = self.attacks or ("inversion",)
        names = [name for name in attacks if name in wanted or "all" in wanted]
        return (
            *(name for name, attack in attacks.items() if attack.is_baseline),
            *(name for name in names if not attacks[name].is_baseline),
        )
