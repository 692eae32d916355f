"""Dimensionality-reduction methods: one file each, one line each in `METHODS`."""

from drjax.dr.pca import PCA
from drjax.dr.random_projection import SparseRandomProjection

METHODS = {PCA.name: PCA, SparseRandomProjection.name: SparseRandomProjection}
"""Every method by the name that the command line and the records use."""

__all__ = ["METHODS", "PCA", "SparseRandomProjection"]
