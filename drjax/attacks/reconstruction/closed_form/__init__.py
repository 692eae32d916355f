"""Reconstruction in closed form: what a release says of its target, solved for the target."""

from drjax.attacks.reconstruction.closed_form.pca import reconstruct_pca

__all__ = ["reconstruct_pca"]
