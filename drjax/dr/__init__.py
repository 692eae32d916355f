"""Dimensionality-reduction methods: a file or a folder each, one line each in `METHODS`."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from drjax.core import validate
from drjax.core.types import DRMethod
from drjax.dr.isomap.landmark import LandmarkIsomap
from drjax.dr.isomap.method import Isomap
from drjax.dr.mds.classical import ClassicalMDS, publishes_scores
from drjax.dr.mds.landmark import LandmarkMDS
from drjax.dr.mds.method import MDS
from drjax.dr.pca.method import PCA
from drjax.dr.pca.truncated import TruncatedSVD
from drjax.dr.pipeline.after import (
    AFTER,
    Cast,
    Centre,
    Linear,
    Mirror,
    Rescale,
    RescaleColumns,
    Rotate,
    Round,
    Shift,
    UnitVariance,
)
from drjax.dr.pipeline.method import Pipeline
from drjax.dr.pipeline.steps import STEPS, CentredRows, FirstPCA, Log, MinMax, OneHot, Robust, Standardise, UnitRows
from drjax.dr.random_projection import SparseRandomProjection
from drjax.dr.tsne.method import TSNE
from drjax.dr.umap.method import UMAP
from drjax.dr.unnamed import Unnamed

METHODS = {
    method.name: method
    for method in (
        PCA,
        TruncatedSVD,
        SparseRandomProjection,
        ClassicalMDS,
        LandmarkMDS,
        MDS,
        Isomap,
        LandmarkIsomap,
        TSNE,
        UMAP,
    )
}
"""Every method by the name that the command line and the records use."""


SCALES = tuple(name for name, step in STEPS.items() if not dataclasses.fields(step))
"""Steps before a method that need no settings."""


def make_method(
    name: str,
    n_components: int,
    options: Mapping[str, Any],
    *,
    scale: tuple[str, ...] = (),
    first_pca: int | None = None,
    whiten: bool = False,
) -> DRMethod:
    """A method by its name, behind steps by theirs.

    Args:
        name: Key of `METHODS`.
        n_components: Coordinates of a record.
        options: Its other hyperparameters by name; its defaults where not given.
        scale: Steps before it that need no settings, in their order, of `SCALES`.
        first_pca: Principal components of what these make of records, which the method is given instead; None for none.
        whiten: Whether coordinates are scaled to unit variance.

    Raises:
        ValueError: no such method or step, no such hyperparameter of it, or a value out of its range.

    Example:
        >>> import drjax
        >>> from drjax.dr import make_method
        >>> make_method("tsne", 2, {"perplexity": 5.0}, scale=("standard",), first_pca=10).method.perplexity
        5.0
    """
    validate.one_of(METHODS, method=name)
    names = {field.name for field in dataclasses.fields(METHODS[name])} - {"n_components"}
    if not options.keys() <= names:
        raise ValueError(f"options must be among {sorted(names)} for method {name!r}, got {sorted(options)}")
    for step in scale:
        validate.one_of(SCALES, scale=step)
    if first_pca is not None:
        validate.integer(minimum=n_components, first_pca=first_pca)
    before = tuple(STEPS[step]() for step in scale) + (() if first_pca is None else (FirstPCA(n_components=first_pca),))
    method, after = METHODS[name](n_components=n_components, **options), (UnitVariance(),) if whiten else ()
    return Pipeline(before=before, method=method, after=after) if before or after else method


def command_words(method: DRMethod) -> list[str]:
    """Options of a command by which `make_method` makes a method; only what is not the default, and no step that the
    command line does not have.

    Example:
        >>> import drjax
        >>> from drjax.dr import command_words
        >>> command_words(drjax.TSNE(perplexity=5.0))
        ['--method', 'tsne', '--n-components', '2', '--perplexity', '5.0']
    """
    is_behind = isinstance(method, Pipeline)
    own: Any = method.method if is_behind else method
    words = ["--method", own.name, "--n-components", str(own.n_components)]
    for field in dataclasses.fields(own):
        value = getattr(own, field.name)
        if field.name != "n_components" and value != field.default:
            words += [f"--{field.name.replace('_', '-')}", str(value)]
    if not is_behind:
        return words
    scales = [step.name for step in method.before if step.name in SCALES]
    words += ["--scale", *scales] if scales else []
    for step in method.before:
        words += ["--first-pca", str(step.n_components)] if isinstance(step, FirstPCA) else []
    return words + ["--whiten"] * any(isinstance(step, UnitVariance) for step in method.after)


__all__ = [
    "AFTER",
    "MDS",
    "METHODS",
    "PCA",
    "SCALES",
    "STEPS",
    "TSNE",
    "UMAP",
    "Cast",
    "Centre",
    "CentredRows",
    "ClassicalMDS",
    "FirstPCA",
    "Isomap",
    "LandmarkIsomap",
    "LandmarkMDS",
    "Linear",
    "Log",
    "MinMax",
    "Mirror",
    "OneHot",
    "Pipeline",
    "Rescale",
    "RescaleColumns",
    "Robust",
    "Rotate",
    "Round",
    "Shift",
    "SparseRandomProjection",
    "Standardise",
    "TruncatedSVD",
    "UnitRows",
    "UnitVariance",
    "Unnamed",
    "command_words",
    "make_method",
    "publishes_scores",
]
