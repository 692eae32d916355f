"""PCA and truncated SVD behind steps: eigenvectors of what the records' products are behind the right steps."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from drjax.attacks.recognition.belief import Candidate, Release
from drjax.attacks.recognition.inputs import prepare
from drjax.attacks.recognition.linear_span import EXACT, left_over
from drjax.attacks.recognition.scaled_target import rescaled
from drjax.core.linalg import eigh
from drjax.core.types import DRMethod
from drjax.dr import (
    PCA,
    Linear,
    Log,
    MinMax,
    Pipeline,
    Rescale,
    Robust,
    Rotate,
    Shift,
    Standardise,
    TruncatedSVD,
    UnitRows,
    UnitVariance,
)
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

LIMITS: dict[type[Step], float] = {Standardise: 0.015, MinMax: 0.02, Robust: 0.03}
"""Median residual of known records over the median score, by the last step that sees all records: the target has a part
in its scaling. Right hypotheses had a fifth of that or less at `LEAST_N` records, but for quartiles; twice as many
records halve it."""

LIMIT, LEAST_N = 0.002, 150
"""The same where steps look at one record at a time, and the right hypothesis leaves what a solver does."""

UNIT = 1e-2
"""Scores whose standard deviations are all as close as this to 1 are whitened; a factor within 5 times is none."""

ROTATED = 0.1
"""Share by which eigenvalues may differ from what components explain at `LEAST_N` records, the target's own part left
out: of components that were turned by fifteen degrees they differ by more."""

CENTRED = 1e-9
"""Largest mean of a feature, as a share of the largest value, that is rounding of 0."""

FLOAT32 = 1e-7
"""Error of a number in float32, as a share of it."""

OF_CHOSEN = 0.5
"""Share of the limit that holds where axes were chosen, or scores may be of any length: sheared scores came to four
fifths of it, independent components up to it."""

TURNED = 1e-4
"""Cosine of two columns of scores, beyond which they were turned; solvers that stop early leave less."""

OF_SOLVER = 1e-4
"""Misfit up to which a solver that stops early may have left it; of decompositions 2e-15 was seen."""

FAR_OFF = 8.0
"""Misfit over its limit up to which the target's part in a standardisation is solved for; of right ones 1.5 was seen,
and 3 with a target half as far off again as all others."""

NESTED = 4.0
"""Factor by which a turned map fits worse than a mixed one, which it is too, if it is not turned alone."""

DEPENDENT = 1e-12
"""Least variance along an axis of a map, as a share of the largest: below it a column is a function of the others."""

NOTHING = 1e-200
"""Share that is none, and that may be divided by."""

KEPT = 4
"""Candidates that are reported."""


class _Given(NamedTuple):
    rows: np.ndarray
    is_centred: bool


class _Fit(NamedTuple):
    misfit: float
    factor: float
    is_whitened: bool
    rows: np.ndarray
    mixed: np.ndarray | None = None


class LinearFamily:
    """PCA, and classical MDS of Euclidean distances, whose coordinates are the same; or truncated SVD.

    Behind steps that centre the features both have the same scores.
    """

    doubtful, seconds = 1.0, 0.02

    def __init__(self, method: type[PCA | TruncatedSVD]) -> None:
        """A family of the methods of one class."""
        self.method, self.name = method, method.name

    def candidates(self, release: Release) -> list[Candidate]:
        """See `Family`. Where nothing fits the map as it is, it may have been turned or shifted, or mixed."""
        found = self._candidates(release, ())
        if not any(one.fits for one in found):
            moved = _moved(release, is_centred=self.method is PCA)
            turned = self._candidates(_before(release, moved), moved) if moved else []
            mixed = self._mixed(release) if self.method is PCA and release.coords.shape[1] > 1 else []
            found += _told_apart(turned, mixed)
        return sorted(found, key=lambda one: one.misfit)[:KEPT]

    def _candidates(self, release: Release, moved: tuple[AfterStep, ...]) -> list[Candidate]:
        found: list[Candidate] = []
        prints: list[np.ndarray] = []
        for before in CHAINS:
            records = prepare(release.records, before)
            if records is None:
                continue
            given = self._given(records)
            size, plain = np.linalg.norm(given.rows), np.linalg.norm(self._given(release.records).rows)
            shape = given.rows[1:] / max(float(size), 1e-300)
            same = any(np.abs(shape - other).max() <= 1e-6 * np.abs(shape).max() for other in prints)
            if same and np.isclose(size, plain):
                continue
            prints.append(shape)
            last = next((type(step) for step in reversed(before) if not step.per_record), Step)
            limit = LIMITS.get(last, LIMIT) * max(1.0, LEAST_N / len(records)) + release.rounding / release.spread
            fit = _fit(release, given)
            limit *= OF_CHOSEN if moved or fit.is_whitened else 1.0
            fit, limit = _scaled(_fit, release, given, before, fit, limit)
            settings = ("signs of components",) + (("unit of the records",) if fit.is_whitened else ())
            method = _behind(before, self.method(n_components=release.coords.shape[1]), fit, moved)
            # Of all linear maps, turned, too many come under the limit of quartiles.
            if moved and (last is Robust or not _is_linear(release, before)):
                continue
            found.append(Candidate(self.name, method, fit.misfit, limit, undetermined=settings, is_sharp=True))
        return found

    def _mixed(self, release: Release) -> list[Candidate]:
        """Candidates of which no more is left than the space of the scores, as of independent components."""
        found, k = [], release.coords.shape[1]
        for before in CHAINS:
            records = prepare(release.records, before)
            scaler = next((type(step) for step in reversed(before) if not step.per_record), None)
            # Of all linear maps too many come under the limit of quartiles.
            if records is None or scaler is Robust:
                continue
            given = self._given(records)
            fit = _fit_of_span(release, given)
            if fit is None:
                continue
            exact = OF_CHOSEN * LIMIT * max(1.0, LEAST_N / len(records))
            if _is_linear(release, before):
                limit = exact if scaler is None else exact * LIMITS[scaler] / LIMIT
            elif scaler is None and len(records) <= records.shape[1] + 2:
                # All maps are linear in so few records; a right one leaves what a solver does.
                limit = OF_SOLVER
            else:
                continue
            limit += release.rounding / release.spread
            fit, limit = _scaled(_fit_of_span, release, given, before, fit, limit)
            assert fit.mixed is not None
            after = UnitVariance(), Linear(matrix=tuple(map(tuple, fit.mixed.tolist()))), *_shifted(release)
            method = Pipeline(before=before, method=self.method(n_components=k), after=after)
            open_too = ("the linear map of the components",)
            found.append(Candidate(self.name, method, fit.misfit, limit, undetermined=open_too, is_sharp=True))
        return found

    def misfit(self, release: Release, candidate: Candidate) -> float:
        """See `Family`."""
        fit = self._fit_of(release, candidate)
        return np.inf if fit is None else fit.misfit

    def row_misfits(self, release: Release, candidate: Candidate) -> np.ndarray:
        """What the hypothesis leaves over at each known record, (n-1,), to be compared between orders."""
        fit = self._fit_of(release, candidate)
        assert fit is not None
        return fit.rows

    def _fit_of(self, release: Release, candidate: Candidate) -> _Fit | None:
        after = candidate.method.after if isinstance(candidate.method, Pipeline) else ()
        is_mixed = any(isinstance(step, Linear) for step in after)
        release = _before(release, tuple(step for step in after if isinstance(step, Rotate | Shift)))
        records = prepare(release.records, candidate.before)
        if records is None:
            return None
        given, fitted = self._given(records), _fit_of_span if is_mixed else _fit
        fit = fitted(release, given)
        return None if fit is None else _scaled(fitted, release, given, candidate.before, fit, candidate.limit)[0]

    def _given(self, records: np.ndarray) -> _Given:
        """Records behind steps as the method decomposes them."""
        mean = records.mean(axis=0)
        is_centred = self.method is PCA or bool(np.abs(mean).max() <= CENTRED * np.abs(records).max())
        return _Given(records - mean if is_centred else records, is_centred)


def _behind(before: tuple[Step, ...], method: DRMethod, fit: _Fit, moved: tuple[AfterStep, ...]) -> DRMethod:
    after: tuple[AfterStep, ...] = ()
    if fit.is_whitened:
        after = (UnitVariance(),)
    elif abs(fit.factor - 1) > 5 * UNIT:
        after = (Rescale(factor=fit.factor),)
    after = (*after, *moved)
    return Pipeline(before=before, method=method, after=after) if before or after else method


def _scaled(
    fitted: Callable[[Release, _Given], _Fit | None],
    release: Release,
    given: _Given,
    before: tuple[Step, ...],
    fit: _Fit,
    limit: float,
) -> tuple[_Fit, float]:
    """A fit and its limit, or where it is beyond that what the target's own part in a standardisation makes of it.

    With that part the right hypothesis leaves rounding over.
    """
    if not limit < fit.misfit <= FAR_OFF * limit or not before or not isinstance(before[-1], Standardise):
        return fit, limit
    exact = OF_SOLVER + release.rounding / release.spread
    for rows in rescaled(release, given.rows):
        again = fitted(release, given._replace(rows=rows))
        if again is not None and again.misfit <= exact:
            return again, exact
    return fit, limit


def _told_apart(turned: list[Candidate], mixed: list[Candidate]) -> list[Candidate]:
    """The candidates without mixed ones that fit hardly better than turned ones do, and turned ones that fit worse."""
    best = {one.before: one for one in turned if one.fits}
    closer = [
        one for one in mixed if one.before not in best or best[one.before].misfit > NESTED * one.misfit + LIMIT / NESTED
    ]
    worse = {one.before for one in closer}
    return [one for one in turned if one.before not in worse or not one.fits] + closer


def _noise(release: Release) -> float:
    """What digits leave of a coordinate."""
    return release.rounding + FLOAT32 * float(np.abs(release.coords).max())


def _shifted(release: Release) -> tuple[AfterStep, ...]:
    """What shifts scores, which sum to 0, into the coordinates."""
    mean = release.coords.mean(axis=0)
    return (Shift(offset=tuple(mean.tolist())),) if np.abs(mean).max() > _noise(release) else ()


def _moved(release: Release, *, is_centred: bool) -> tuple[AfterStep, ...]:
    """What turns and shifts scores, whose columns are orthogonal and, if centred, sum to 0, into the coordinates."""
    coords, noise = release.coords, _noise(release)
    mean = coords.mean(axis=0) if is_centred else np.zeros(coords.shape[1])
    shift = _shifted(release) if is_centred else ()
    centred = coords - mean
    _, axes = eigh(centred.T @ centred)
    axes = axes[:, ::-1].T
    products = centred.T @ centred / np.outer(*[np.linalg.norm(centred, axis=0)] * 2)
    is_turned = np.abs(products - np.eye(len(mean))).max() > TURNED + noise / coords.std(axis=0).min()
    return (*((Rotate(matrix=tuple(map(tuple, axes.tolist()))),) if is_turned else ()), *shift)


def _before(release: Release, moved: tuple[AfterStep, ...]) -> Release:
    """The release as it was before such steps, in float64."""
    coords = release.coords
    for step in reversed(moved):
        if isinstance(step, Shift):
            coords = coords - np.asarray(step.offset)
        elif isinstance(step, Rotate):
            coords = coords @ np.asarray(step.matrix).T
    return dataclasses.replace(release, coords=coords) if moved else release


def _is_linear(release: Release, before: tuple[Step, ...]) -> bool:
    """Whether known records' coordinates are linear in them behind steps, and more of them known than would be anyway.

    Scores are to rounding. Other maps near to scores are not, and have been turned to look like them.
    """
    features = prepare(release.known, tuple(step for step in before if step.per_record))
    if features is None:
        return False
    left = left_over(features, release.coords[1:])
    allowed = EXACT * float(np.abs(release.coords).max()) + 2 * np.sqrt(release.coords.shape[1]) * release.rounding
    return left is not None and float(np.abs(left).max()) <= allowed


def _fit(release: Release, given: _Given) -> _Fit:
    """How well the scores are eigenvectors of W W^T, W (n, d) the records with a stand-in in row 0.

    At known row i the target adds theta_0a (w_i . w_0) to component a, one unknown number a row that all components
    share, and by its part in the mean a number for each component that all rows share: both are taken out. Scores of
    records that are not centred keep the second: it tells them from those that are.
    """
    rows, is_centred = given
    scores = release.coords
    k, own = scores.shape[1], scores[0]
    shift = float(np.abs(scores.mean(axis=0)).max() / np.abs(scores).max()) if is_centred else 0.0
    norms = np.maximum(np.linalg.norm(scores, axis=0), NOTHING)
    skew = float(np.abs((scores / norms).T @ (scores / norms) - np.diag(norms > NOTHING)).max())
    image = (rows @ (rows.T @ scores))[1:]
    across = np.eye(k)
    if k > 1 and own.any():
        across = across - np.outer(own, own) / (own @ own)

    def seen(part: np.ndarray) -> np.ndarray:
        left = part @ across
        return left - left.mean(axis=0) if is_centred else left

    length = (scores**2).sum(axis=0)
    each = [seen(np.outer(scores[1:, a], np.eye(k)[a])).ravel() for a in range(k)]
    values = np.linalg.lstsq(np.stack(each, axis=1), seen(image).ravel(), rcond=None)[0]
    values = np.maximum(values, NOTHING * np.maximum(length, 1))
    is_whitened = k > 1 and bool((np.abs(scores.std(axis=0, ddof=1) - 1) <= UNIT).all())
    ratios = np.sqrt(length / values)
    factor = float(np.exp(np.log(np.maximum(ratios, 1e-300)).mean()))
    # Scores that are off by other factors each are no scores, and not whitened ones either.
    uneven = float(np.abs(ratios / factor - 1).max())
    if is_whitened:
        # Two rotated components span what two scores do: only their own lengths in the records tell them apart.
        quotients = (scores[1:] * image).sum(axis=0) / (scores[1:] ** 2).sum(axis=0)
        off = float(np.abs(values / np.maximum(quotients, 1e-300) - 1).max())
        uneven = off if off > ROTATED * max(1.0, LEAST_N / len(scores)) else 0.0
    if not is_whitened and abs(factor - 1) <= 5 * UNIT:
        values, uneven = length, 0.0
    size = np.median(np.linalg.norm((scores * values)[release.away], axis=1))
    rows = np.linalg.norm(seen(image - scores[1:] * values), axis=1)
    left = np.median(rows[release.away - 1])
    misfit = float(left / size) if size > NOTHING * left else np.inf
    return _Fit(misfit * np.sqrt(k / max(k - 1, 1)) + shift + skew + uneven, factor, is_whitened, rows)


def _fit_of_span(release: Release, given: _Given) -> _Fit | None:
    """How well W W^T maps the space of the scores to itself, and what mixed them; None where k dimensions are all.

    Behind any linear map W W^T theta = theta M. The target's part and the mean's are taken out as in `_fit`; of M that
    leaves all but what it makes of the target's own scores, and in a basis in which scores are orthonormal M is
    symmetric, which gives that too, but for one number that the known records have about. The eigenvectors of M are the
    axes of the components.
    """
    rows, _ = given
    k = release.coords.shape[1]
    centred = release.coords - release.coords.mean(axis=0)
    values, axes = eigh(centred.T @ centred / (len(centred) - 1))
    if not values[0] > DEPENDENT * values[-1] or _rank(rows) <= k + 1:
        return None
    lift = axes * np.sqrt(values) @ axes.T
    scores = centred @ (axes / np.sqrt(values) @ axes.T)
    own = scores[0]
    along = own / np.linalg.norm(own) if own.any() else np.zeros(k)
    across = np.eye(k) - np.outer(along, along)
    known = scores[1:] - scores[1:].mean(axis=0)
    image = (rows @ (rows.T @ scores))[1:]
    image = image - image.mean(axis=0)
    fitted = np.linalg.lstsq(known, image, rcond=None)[0]
    seen = fitted @ across
    middle = across @ seen
    skew = float(np.linalg.norm(middle - middle.T) / np.linalg.norm(middle))
    turned = np.outer(across @ (seen.T @ along) + (along @ fitted @ along) * along, along)
    whole = (middle + middle.T) / 2 + np.outer(along, along @ seen) + turned
    whole = (whole + whole.T) / 2
    _, components = eigh(whole)
    left = np.linalg.norm((image - known @ whole) @ across, axis=1)
    at = release.away - 1
    size = float(np.median(np.linalg.norm((known @ whole)[at], axis=1)))
    median = float(np.median(left[at]))
    misfit = median / size * np.sqrt(k / (k - 1)) if size > NOTHING * median else np.inf
    return _Fit(float(misfit) + skew, 1.0, True, left, components[:, ::-1].T @ lift)


def _rank(rows: np.ndarray) -> int:
    """Directions in which records (n, d) vary by more than rounding."""
    n, d = rows.shape
    values = np.linalg.eigvalsh(rows.T @ rows if d <= n else rows @ rows.T)
    return int((values > max(n, d) * np.finfo(np.float64).eps * values[-1]).sum())
