"""Reconstruction in closed form: what a release says of its target, solved for the target."""

from drjax.attacks.reconstruction.closed_form.each import reconstruct_pca_each
from drjax.attacks.reconstruction.closed_form.erm import gradient_sensitivity, reconstruct_erm
from drjax.attacks.reconstruction.closed_form.glm import reconstruct_glm
from drjax.attacks.reconstruction.closed_form.glm_estimators import GLM, of_estimator
from drjax.attacks.reconstruction.closed_form.network import reconstruct_network
from drjax.attacks.reconstruction.closed_form.pca import misfit, noise_of, reconstruct_pca
from drjax.attacks.reconstruction.closed_form.srp import RecoveredMatrix, reconstruct_srp, recover_matrix
from drjax.attacks.reconstruction.closed_form.srp_each import reconstruct_srp_each
from drjax.attacks.reconstruction.closed_form.unknown import reconstruct_pca_many

__all__ = [
    "GLM",
    "RecoveredMatrix",
    "gradient_sensitivity",
    "misfit",
    "noise_of",
    "of_estimator",
    "reconstruct_erm",
    "reconstruct_glm",
    "reconstruct_network",
    "reconstruct_pca",
    "reconstruct_pca_each",
    "reconstruct_pca_many",
    "reconstruct_srp",
    "reconstruct_srp_each",
    "recover_matrix",
]
