"""Figures in the sentences of docs/synthesis and docs/results/synthetic.md."""

from __future__ import annotations

from drjax.synthesis import sensitivity
from experiments.markdown import Figures
from experiments.pca_gauss import pages

figures = Figures()


@figures
def as_coded() -> list[float]:
    """Accuracies on Adult of PCA-Gauss as coded and then as printed, at p = 5 and 10 each."""
    methods = ("pca-gauss-pub-coded", "pca-gauss-pub-printed")
    return [pages.accuracy("adult", method, p) for method in methods for p in (5, 10)]


@figures
def public_records() -> list[float]:
    """Accuracy on Adult of what is trained on public records alone."""
    return [pages.accuracy("adult", "public", None)]


@figures
def adult_as_written() -> list[float]:
    """Accuracy of a logistic regression that is trained on a written table of Adult at p = 80."""
    return [pages.measures_on_adult("pca-gauss", 80)["logistic"]["mean"]]


@figures
def ron_gauss_covariance() -> list[float]:
    """The bound on the covariance's L1 norm and what RON-Gauss's code takes, at p = 8 and then at p = 3."""
    relation = "replace_one"
    return [
        value
        for p in (8, 3)
        for value in (sensitivity.full_moment_l1(p, neighbouring=relation), sensitivity.ron_gauss_covariance(p, 1))
    ]
