"""Dimensionality-reduction methods: a file or a folder each, one line each in `METHODS`."""

from drjax.dr.isomap.method import Isomap
from drjax.dr.mds.classical import ClassicalMDS
from drjax.dr.mds.method import MDS
from drjax.dr.pca.method import PCA
from drjax.dr.random_projection import SparseRandomProjection
from drjax.dr.tsne.method import TSNE
from drjax.dr.umap.method import UMAP

METHODS = {method.name: method for method in (PCA, SparseRandomProjection, ClassicalMDS, MDS, Isomap, TSNE, UMAP)}
"""Every method by the name that the command line and the records use."""

__all__ = ["MDS", "METHODS", "PCA", "TSNE", "UMAP", "ClassicalMDS", "Isomap", "SparseRandomProjection"]
