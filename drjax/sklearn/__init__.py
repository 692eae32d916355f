"""Estimators with scikit-learn's names, parameters and fitted attributes, computed by the kernels of `drjax.dr`."""

import sklearn

if tuple(int(part) for part in sklearn.__version__.split(".")[:2]) < (1, 9):
    raise ImportError(f"drjax.sklearn follows scikit-learn 1.9 and needs it, got scikit-learn {sklearn.__version__}")

from drjax.sklearn.isomap import Isomap
from drjax.sklearn.mds import MDS, ClassicalMDS, smacof
from drjax.sklearn.pca import PCA
from drjax.sklearn.random_projection import SparseRandomProjection
from drjax.sklearn.tsne import TSNE
from drjax.sklearn.umap import UMAP

__all__ = ["MDS", "PCA", "TSNE", "UMAP", "ClassicalMDS", "Isomap", "SparseRandomProjection", "smacof"]
