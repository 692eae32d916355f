"""Dimensionality-reduction methods: one file each, one line each in `METHODS`."""

from drjax.dr.pca import PCA

METHODS = {PCA.name: PCA}
"""Every method by the name that the command line and the records use."""

__all__ = ["METHODS", "PCA"]
