"""Scores of PCA behind steps: eigenvectors of what the records' products are behind the right steps."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from drjax.attacks.recognition.belief import Candidate, Release
from drjax.attacks.recognition.inputs import prepare
from drjax.core.types import DRMethod
from drjax.dr import PCA, Log, MinMax, Pipeline, Rescale, Robust, Standardise, UnitRows, UnitVariance
from drjax.dr.pipeline.after import AfterStep
from drjax.dr.pipeline.steps import Step

CHAINS: tuple[tuple[Step, ...], ...] = (
    (),
    (Standardise(),),
    (MinMax(),),
    (Robust(),),
    (UnitRows(),),
    (Log(),),
    (Log(), Standardise()),
)
"""Steps that are tried, each of which looks at one record or one feature at a time; the plainest come first."""

LIMITS: dict[type[Step], float] = {Standardise: 0.015, MinMax: 0.02, Robust: 0.08}
"""Median residual of known records over the median score, by the last step that sees all records: the target has a part
in its scaling. Right hypotheses had a fifth of that or less at `LEAST_N` records, but for quartiles; twice as many
records halve it."""

LIMIT, LEAST_N = 0.006, 150
"""The same where steps look at one record at a time."""

UNIT = 1e-2
"""Scores whose standard deviations are all as close as this to 1 are whitened; a factor within 5 times is none."""

KEPT = 4
"""Candidates that are reported."""


class _Fit(NamedTuple):
    misfit: float
    factor: float
    is_whitened: bool


class LinearFamily:
    """PCA, and classical MDS of Euclidean distances, whose coordinates are the same."""

    name, doubtful = "pca", 1.0

    def candidates(self, release: Release) -> list[Candidate]:
        """See `Family`."""
        found: list[Candidate] = []
        prints: list[np.ndarray] = []
        for before in CHAINS:
            records = prepare(release.records, before)
            if records is None:
                continue
            centred = records - records.mean(axis=0)
            shape = centred[1:] / max(float(np.linalg.norm(centred)), 1e-300)
            same = any(np.abs(shape - other).max() <= 1e-6 * np.abs(shape).max() for other in prints)
            if same and np.isclose(np.linalg.norm(centred), np.linalg.norm(release.records - release.records.mean(0))):
                continue
            prints.append(shape)
            fit = _fit(release, centred)
            settings = ("signs of components",) + (("unit of the records",) if fit.is_whitened else ())
            method = _method(release.coords.shape[1], before, fit)
            last = next((type(step) for step in reversed(before) if not step.per_record), Step)
            limit = LIMITS.get(last, LIMIT) * max(1.0, LEAST_N / len(records)) + release.rounding / release.spread
            found.append(Candidate(self.name, method, fit.misfit, limit, undetermined=settings))
        return sorted(found, key=lambda one: one.misfit)[:KEPT]

    def misfit(self, release: Release, candidate: Candidate) -> float:
        """See `Family`."""
        records = prepare(release.records, candidate.before)
        return np.inf if records is None else _fit(release, records - records.mean(axis=0)).misfit


def _method(k: int, before: tuple[Step, ...], fit: _Fit) -> DRMethod:
    after: tuple[AfterStep, ...] = ()
    if fit.is_whitened:
        after = (UnitVariance(),)
    elif abs(fit.factor - 1) > 5 * UNIT:
        after = (Rescale(factor=fit.factor),)
    return Pipeline(before=before, method=PCA(n_components=k), after=after) if before or after else PCA(n_components=k)


def _fit(release: Release, centred: np.ndarray) -> _Fit:
    """How well the scores are eigenvectors of W W^T, W (n, d) the centred records with a stand-in in row 0.

    At known row i the target adds theta_0a (w_i . w_0) to component a: one unknown number a row, which all components
    share and least squares take out.
    """
    scores = release.coords
    shift = np.abs(scores.mean(axis=0)).max() / max(float(np.abs(scores).max()), 1e-300)
    image = centred @ (centred.T @ scores)
    length = (scores**2).sum(axis=0)
    values = (scores * image).sum(axis=0) / np.maximum(length, 1e-300)
    left = (image - values * scores)[1:]
    own = scores[0]
    if scores.shape[1] > 1 and (own**2).sum() > 0:
        left = left - np.outer(left @ own, own) / (own**2).sum()
        left = left * np.sqrt(scores.shape[1] / (scores.shape[1] - 1))
    size = np.median(np.linalg.norm((values * scores)[release.away], axis=1))
    if not size > 0:
        return _Fit(np.inf, 1.0, False)
    misfit = float(np.median(np.linalg.norm(left[release.away - 1], axis=1)) / size) + float(shift)
    spread = scores.std(axis=0, ddof=1)
    is_whitened = bool((np.abs(spread - 1) <= UNIT).all() and scores.shape[1] > 1)
    ratios = np.sqrt(length / np.maximum(values, 1e-300))
    factor = float(np.exp(np.log(ratios).mean()))
    # Scores that are off by other factors each are no scores, and not whitened ones either.
    uneven = 0.0 if is_whitened else float(np.abs(ratios / factor - 1).max())
    return _Fit(misfit + uneven, factor, is_whitened)
