"""Dimensionality-reduction methods: a file or a folder each, one line each in `METHODS`."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from drjax.core import validate
from drjax.core.types import DRMethod
from drjax.dr.isomap.method import Isomap
from drjax.dr.mds.classical import ClassicalMDS
from drjax.dr.mds.method import MDS
from drjax.dr.pca.method import PCA
from drjax.dr.random_projection import SparseRandomProjection
from drjax.dr.tsne.method import TSNE
from drjax.dr.umap.method import UMAP

METHODS = {method.name: method for method in (PCA, SparseRandomProjection, ClassicalMDS, MDS, Isomap, TSNE, UMAP)}
"""Every method by the name that the command line and the records use."""


def make_method(name: str, n_components: int, options: Mapping[str, Any]) -> DRMethod:
    """A method by its name.

    Args:
        name: Key of `METHODS`.
        n_components: Coordinates of a record.
        options: Its other hyperparameters by name; its defaults where not given.

    Raises:
        ValueError: no such method, no such hyperparameter of it, or a value out of its range.
    """
    validate.one_of(METHODS, method=name)
    names = {field.name for field in dataclasses.fields(METHODS[name])} - {"n_components"}
    if not options.keys() <= names:
        raise ValueError(f"options must be among {sorted(names)} for method {name!r}, got {sorted(options)}")
    return METHODS[name](n_components=n_components, **options)


__all__ = ["MDS", "METHODS", "PCA", "TSNE", "UMAP", "ClassicalMDS", "Isomap", "SparseRandomProjection", "make_method"]
