"""Inversion of a deterministic training run: the record for which it ends at the released parameters."""

from drjax.attacks.reconstruction.training_inversion.model import reconstruct_model
from drjax.attacks.reconstruction.training_inversion.solver import Settings

__all__ = ["Settings", "reconstruct_model"]
