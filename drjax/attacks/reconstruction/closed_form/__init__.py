"""Reconstruction in closed form: what a release says of its target, solved for the target."""

from drjax.attacks.reconstruction.closed_form.pca import reconstruct_pca
from drjax.attacks.reconstruction.closed_form.srp import RecoveredMatrix, reconstruct_srp, recover_matrix

__all__ = ["RecoveredMatrix", "reconstruct_pca", "reconstruct_srp", "recover_matrix"]
