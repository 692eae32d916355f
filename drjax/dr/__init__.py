"""Dimensionality-reduction methods: one file each, one line each in `METHODS`."""

from drjax.dr.classical_mds import ClassicalMDS
from drjax.dr.isomap import Isomap
from drjax.dr.mds import MDS
from drjax.dr.pca import PCA
from drjax.dr.random_projection import SparseRandomProjection
from drjax.dr.tsne import TSNE
from drjax.dr.umap import UMAP

METHODS = {method.name: method for method in (PCA, SparseRandomProjection, ClassicalMDS, MDS, Isomap, TSNE, UMAP)}
"""Every method by the name that the command line and the records use."""

__all__ = ["MDS", "METHODS", "PCA", "TSNE", "UMAP", "ClassicalMDS", "Isomap", "SparseRandomProjection"]
