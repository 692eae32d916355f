"""What published components say of the target inside the span of the known records, how noisy they are, and whether
they can be components of the known records and one more at all.

Whatever the target is, n scores theta with |theta|^2 = lam are those of a principal component v only if

    centre        the scores of all records sum to 0,
    span          those of the known records lie in the span of the known records' centred columns,
    equations     (lam - s^2) u = theta_0 z with one z for all components, u = U^T theta_known / s,
    length        |v| = 1: |u| is at most 1, exactly 1 where the known records span all features, and what is missing
                  is (theta_0 / lam)^2 rho^2 with one rho for all components.

Each is 0 = 0 but for the noise of the release, and so each measures that noise. Under noise all of them agree. Scores
that were made in another way break some of them by far more than the noise that the others show; as every one counts,
the largest decides.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from drjax.attacks.reconstruction.closed_form import outside
from drjax.attacks.reconstruction.closed_form.outside import DEVIATIONS
from drjax.core.types import Status

LEAST_GAIN = 0.1
"""Share of the known records' variance that the scores must explain of the target, or they say nothing of it."""

MOST_NOISE = 0.05
"""Most variance of the scores that may be noise of which neither the caller nor the digits tell."""

MOST_ODD = 1e-3
"""The same of noise that some checks show and the others do not, as a solver's that has not converged."""

FEW = 10
"""Equations below which a check says little of the size of the noise."""

MEDIAN_OF_SQUARE = 0.455
"""Median of a squared standard normal variable."""

FAR = 5
"""Deviations from the known records that a record has in their leading directions on average, if noise shows, where no
record is so far: such a record comes of scores that were made in another way."""

NEAR = 2
"""Directions on either side over which the errors of a solver are alike."""

EPS = float(np.finfo(np.float64).eps)

CHECKS = {
    "span": "the known records' scores are no linear function of the known records: a map of another kind, other "
    "records or another order",
    "centre": "the scores do not sum to 0: the records were not centred, as by TruncatedSVD",
    "length": "the scores are too long or too short for the records: they were scaled or whitened, or the records were "
    "(StandardScaler)",
    "equations": "the components ask for different records: the records were scaled before (StandardScaler), or the "
    "scores are not those of PCA",
    "order": "the known records alone have more variance than the component: it is not a leading one",
    "size": "the record would lie far outside of the known ones in most directions",
    "bend": "what the known records leave over of the scores follows a curve, as no noise does: a map of another kind",
    "row": "one known record's scores are another's: target_index or the order of the known records is wrong",
}
"""What each check says where it fails, in words."""


class Scores(NamedTuple):
    """m releases of k components, as far as the check of them needs it.

    Attributes:
        target: (m, k), scores of the target.
        eigenvalue: (m, k), sums of the squares of all n scores.
        along: (m, k, r), U^T theta_known.
        total: (m, k), sums of all n scores.
        beyond: (m,), sum of squares of the known records' centred scores outside the columns of U, all components.
        floor: (m,), least standard deviation of a score's error, and digits: (m,), what is seen of it in the digits.
        eps: Relative error of a component's length, by the type of its scores.
        weight: c = (n - 1) / n; 1 where records are not centred, as by truncated SVD: offsets are then from 0.
    """

    target: np.ndarray
    eigenvalue: np.ndarray
    along: np.ndarray
    total: np.ndarray
    beyond: np.ndarray
    floor: np.ndarray
    digits: np.ndarray
    eps: float
    weight: float


class Measured(NamedTuple):
    """What m releases say of the target's offset from the known records' mean.

    Attributes:
        z: (m, r), its coordinates in the span of the known records, and variance: (m, r).
        outside: (m,), its length outside the span; nan where nothing is said.
        longest: (m,), the longest that it may be in view of the noise.
        expected: (m, r), what the known records expect of z^2.
        levels: Noise of a score that each of `CHECKS` shows, (m,), and level: (m,), the largest.
        status: (m,), DEGENERATE without a score beyond the noise, MISFIT where the scores cannot be right, UNCERTIFIED
            for one component alone.
    """

    z: np.ndarray
    variance: np.ndarray
    outside: np.ndarray
    longest: np.ndarray
    expected: np.ndarray
    levels: dict[str, np.ndarray]
    level: np.ndarray
    status: np.ndarray

    @property
    def share(self) -> np.ndarray:
        """(m, r): share of each coordinate of z that is to be believed."""
        return self.expected / (self.expected + self.variance)

    @property
    def error(self) -> np.ndarray:
        """(m,): squared error to expect inside the span."""
        return (self.share * self.variance).sum(axis=1)


def measure(
    scores: Scores, singular: np.ndarray, n: int, d: int, *, unseen: float, is_stated: bool = False
) -> Measured:
    """The target's offset in the span of the known records from k components, with its variance.

    Args:
        scores: Sums over m releases of n records.
        singular: (r,), singular values of the n-1 centred known records.
        n: Records in a release.
        d: Features.
        unseen: Squared length outside the span that is expected of a record, see `outside`.
        is_stated: The caller vouches for the noise: one component, which nothing checks, then counts as exact.
    """
    c = scores.weight
    target, eigenvalue, digits = scores.target, scores.eigenvalue, scores.digits[:, None]
    # A released rank smaller than k gives all-zero columns. What the digits cannot tell from 0 is no measurement.
    present = (eigenvalue > 4 * n * digits**2) & (eigenvalue > 0)
    measured = present & (np.abs(target) > 2 * digits)
    w = np.where(measured, target, 1.0)[..., None] / c
    u = scores.along / np.maximum(singular, 1e-300)
    factor = eigenvalue[..., None] - singular**2
    z = factor * u / (c * w)
    # The errors of u, of the eigenvalue, and of the target's own score, which scales all of z.
    per_noise = ((factor / singular) ** 2 + 4 * eigenvalue[..., None] * u**2 + z**2) / (c * w) ** 2
    weight = np.where(measured[..., None], 1 / np.maximum(per_noise, 1e-300), 0)
    total = weight.sum(axis=1)
    usable = np.any(measured, axis=1)
    total = np.where(usable[:, None], total, 1.0)
    combined = (weight * z).sum(axis=1) / total

    levels, contradiction = _levels(scores, singular, u, factor, present, n, d)
    expected = np.tile(singular**2 / (n - 1), (len(target), 1))
    level = np.maximum(scores.floor, np.max(list(levels.values()), axis=0))
    # One component alone is exactly that of some record, whatever its direction. There, and where noise shows, a record
    # that is far from the known ones in most directions is all noise. Of few records only the leading directions are
    # known.
    is_lone = present.sum(axis=1) == 1
    leading = slice(max(1, len(singular) // 2))
    surprise = (combined**2 / (expected + level[:, None] ** 2 / total))[:, leading]
    loud = np.sqrt(np.median((combined**2 * total)[:, leading], axis=1) / MEDIAN_OF_SQUARE)
    is_far = np.median(surprise, axis=1) > DEVIATIONS**2 * MEDIAN_OF_SQUARE
    levels["size"] = np.where(usable & is_far & (is_lone | (level > 10 * scores.floor)), loud, 0)
    level = np.maximum(level, levels["size"])
    # A direction of which the components contradict each other far more than of the others is not to be believed.
    ratio = contradiction / np.maximum(level, 1e-300)[:, None] ** 2
    variance = np.where(ratio > DEVIATIONS**2, ratio, 1) * level[:, None] ** 2 / total
    # Components that are exact projections and only contradict each other were not iterated to the end.
    of_projection = [levels[name] for name in ("centre", "span", "length") if name in levels]
    projected = np.max([scores.floor, *of_projection], axis=0)
    is_unconverged = (levels["equations"] > 5 * projected) & (measured.sum(axis=1) > 1)
    if is_unconverged.any():
        other = _unconverged(z, np.where(measured, c * w[..., 0], 0), per_noise, projected)
        combined, variance = (
            np.where(is_unconverged[:, None], new, old) for new, old in zip(other, (combined, variance), strict=True)
        )

    # Of several estimates of the length outside, that of the largest score is the least noisy.
    best = np.arange(len(u)), np.where(measured, np.abs(target), -1).argmax(axis=1)
    reach = (eigenvalue / (c * w[..., 0]))[best]
    known_as = {"unseen": unseen, "eps": scores.eps}
    square, _, longest = outside.squares(u[best], reach, level, singular, d, **known_as)
    residual, longest = (np.where(usable, np.sqrt(value), np.nan) for value in (square, longest))
    # Noise that the checks alone show excuses no own score: it may be a map of another kind.
    told = outside.squares(u[best], reach, scores.floor, singular, d, **known_as)[:2]
    noise = np.where(is_unconverged, projected, level)
    combined, variance = _with_own_scores(combined, variance, told, expected, scores, singular, u, measured, noise, n)

    found = Measured(combined, variance, residual, longest, expected, levels, level, np.zeros(len(target), np.uint32))
    gain = (found.share * expected).sum(axis=1) / expected.sum(axis=1)
    if n - 2 - len(singular) >= FEW:
        steady = levels["span"]
    else:
        steady = np.where((present.sum(axis=1) - 1) * len(singular) >= FEW, levels["equations"], level)
    is_misfit = cannot_be(gain, level, steady, scores.floor, eigenvalue.max(axis=1) / n)
    # An outlier is far off in the map, too.
    allowed = np.maximum(1, n * np.where(present, target**2 / np.where(present, eigenvalue, 1), 0).max(axis=1))
    length = ((found.share * found.z) ** 2).sum(axis=1) / expected.sum(axis=1)
    size = (found.z**2 / (expected + found.variance))[:, leading].mean(axis=1)
    is_far = (length > 4 * allowed) | (size > FAR**2 * allowed)
    is_noisy = level > 10 * scores.floor
    # Any direction is the exact component of some record: one alone cannot contradict anything.
    is_open = is_lone & (not is_stated or (is_noisy & (n - 2 <= len(singular) < d)))
    status = np.where(is_open, np.uint32(Status.UNCERTIFIED), np.uint32(Status.OK))
    status = np.where(is_misfit | ((is_noisy | is_lone) & is_far), np.uint32(Status.MISFIT), status)
    return found._replace(status=np.where(usable, status, np.uint32(Status.DEGENERATE)))


def _unconverged(
    z: np.ndarray, weight: np.ndarray, per_noise: np.ndarray, level: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """z (m, r) of all components and its variance where their directions, not their scores, are a little off.

    With S v = lam v + g the z of a component is off by g / (c w): what the z of several differ by, measures g.

    Args:
        z: (m, k, r), of each component.
        weight: (m, k), c w; 0 where nothing was measured.
        per_noise: (m, k, r), variance of z per unit of noise in a score.
        level: (m,), the noise of a score.
    """
    squares = weight[..., None] ** 2
    mean = (squares * z).sum(axis=1) / np.maximum(squares.sum(axis=1), 1e-300)
    left = (squares * (z - mean[:, None]) ** 2).sum(axis=1) / np.maximum((weight != 0).sum(axis=1) - 1, 1)[:, None]
    around = np.lib.stride_tricks.sliding_window_view(
        np.pad(left, ((0, 0), (NEAR, NEAR)), mode="edge"), 2 * NEAR + 1, axis=1
    )
    left = np.maximum(left, around.mean(axis=-1))
    each = level[:, None, None] ** 2 * per_noise + left[:, None] / np.where(squares > 0, squares, 1)
    believed = np.where(squares > 0, 1 / np.maximum(each, 1e-300), 0)
    total = np.maximum(believed.sum(axis=1), 1e-300)
    return (believed * z).sum(axis=1) / total, 1 / total


def cannot_be(
    gain: np.ndarray, level: np.ndarray, steady: np.ndarray, floor: np.ndarray, variance: np.ndarray
) -> np.ndarray:
    """(m,) bool: whether noise is no excuse for scores of this variance that fit no record.

    Args:
        gain: Share of the expected variance that they explain.
        level: Noise that the check which fails most shows.
        steady: Noise that the one with most equations shows.
        floor: Noise that the caller or the digits tell.
        variance: Variance of the scores, (m,).
    """
    # Noise shows in every check alike; more than it in one shows scores that were made in another way.
    most = np.where(level > 5 * np.maximum(steady, floor), MOST_ODD, MOST_NOISE) * variance
    return (gain < LEAST_GAIN) | ((level > 2 * floor) & (level**2 > most))


def lone_levels(
    u: np.ndarray, total: np.ndarray, beyond: np.ndarray, singular: np.ndarray, n: int, p: int, d: int
) -> dict[str, np.ndarray]:
    """Noise that explains what the checks of each component by itself find, whatever records are unknown, (m,) each.

    Args:
        u: (m, k, r), U^T theta_known / s of the components.
        total: (m, k), sums of all n scores.
        beyond: (m,), as in `Scores`.
        singular: (r,).
        n: Records in a release.
        p: Known ones.
        d: Features.
    """
    levels = {"centre": np.abs(total).max(axis=1, initial=0) / np.sqrt(n) / DEVIATIONS}
    if p - 1 > len(singular):
        levels["span"] = np.sqrt(beyond / ((p - 1 - len(singular)) * max(u.shape[1], 1)))
    missing = 1 - (u**2).sum(axis=-1)
    excess = np.abs(missing) if len(singular) == d else np.maximum(-missing, 0)
    # A column of zeros, as of rounding, is no component.
    excess = np.where(u.any(axis=-1), excess, 0)
    grown = np.where((missing < 0)[..., None], u, 0)
    levels["length"] = _lengthened(excess, _slope(u, singular), grown, singular).max(axis=1, initial=0)
    return levels


def _levels(
    scores: Scores, singular: np.ndarray, u: np.ndarray, factor: np.ndarray, present: np.ndarray, n: int, d: int
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Noise of a score that explains what each check finds, (m,) each, and its square in each direction, (m, r)."""
    target, eigenvalue, r = scores.target, scores.eigenvalue, len(singular)
    count = present.sum(axis=1)
    shown = np.where(present[..., None], u, 0)
    levels = lone_levels(shown, np.where(present, scores.total, 0), scores.beyond, singular, n, n - 1, d)
    if "span" in levels:
        levels["span"] = levels["span"] * np.sqrt(target.shape[1] / np.maximum(count, 1))

    # Every component beside the one that says most of the target.
    lead = np.where(present, np.abs(target), -1).argmax(axis=1)
    rows = np.arange(len(target))
    first, own = target[rows, lead][:, None, None], target[..., None]
    u1, factor1, lam1 = u[rows, lead][:, None], factor[rows, lead][:, None], eigenvalue[rows, lead][:, None]
    others = present.copy()
    others[rows, lead] = False
    amiss = own * factor1 * u1 - first * factor * u
    unit = (own * factor1 / singular) ** 2 + (first * factor / singular) ** 2 + (factor1 * u1) ** 2 + (factor * u) ** 2
    unit = unit + 4 * lam1[..., None] * (own * u1) ** 2 + 4 * eigenvalue[..., None] * (first * u) ** 2
    squares = np.where(others[..., None], amiss**2 / np.maximum(unit, 1e-300), 0).sum(axis=1)
    contradiction = squares / np.maximum(count - 1, 1)[:, None]
    levels["equations"] = np.sqrt(contradiction.mean(axis=1))

    if r < d:
        # What is missing of all components lies in one direction: the first one, scaled, says how much of another's.
        missing = 1 - (u**2).sum(axis=-1)
        reference = np.where(first[..., 0] == 0, 1, first[..., 0] / np.maximum(lam1, 1e-300))
        ratio = (own[..., 0] / np.where(present, eigenvalue, 1) / reference) ** 2
        amiss = np.where(others, missing - ratio * np.maximum(missing[rows, lead], 0)[:, None], 0)
        slope = _slope(u, singular)
        slope = np.hypot(slope, ratio * slope[rows, lead][:, None])
        # Noise that makes the one length greater explains what lacks on the other side.
        grown = np.where((amiss < 0)[..., None], u, np.sqrt(ratio)[..., None] * u1)
        between = np.where(others, _lengthened(np.abs(amiss), slope, grown, singular), 0).max(axis=1)
        levels["length"] = np.maximum(levels["length"], between)
    # One component alone has few equations; unless its length is right to the last digit, it must be the leading one.
    lam = lam1[:, 0]
    short = np.maximum(singular[0] ** 2 - lam, 0) / (2 * DEVIATIONS * np.sqrt(np.maximum(lam, 1e-300)))
    length = 1 - (u[rows, lead] ** 2).sum(axis=-1)
    is_sure = np.abs(length) <= 10 * scores.floor * _slope(u, singular)[rows, lead]
    levels["order"] = np.where((count == 1) & ~is_sure, short, 0)
    return levels, contradiction


def _slope(u: np.ndarray, singular: np.ndarray) -> np.ndarray:
    """Largest change of |u|^2, (m, k), by noise of deviation 1 in the scores."""
    return 2 * DEVIATIONS * np.sqrt((u**2 / singular**2).sum(axis=-1))


def _lengthened(excess: np.ndarray, slope: np.ndarray, grown: np.ndarray, singular: np.ndarray) -> np.ndarray:
    """Least noise that explains an excess (m, k) of |u|^2: slope times it, and what it adds to u where it hides u.

    The latter is level^2 / s^2 in every direction, but no more than is there (`grown`, (m, k, r)).
    """
    high = excess / np.maximum(slope, 1e-300)
    low = 1e-12 * high
    for _ in range(12):
        middle = np.sqrt(low * high)
        added = np.minimum(grown**2, (DEVIATIONS * middle[..., None] / singular) ** 2).sum(axis=-1)
        is_enough = slope * middle + added >= excess
        low, high = np.where(is_enough, low, middle), np.where(is_enough, middle, high)
    return high


def _with_own_scores(
    z: np.ndarray,
    variance: np.ndarray,
    squares: tuple[np.ndarray, np.ndarray],
    expected: np.ndarray,
    scores: Scores,
    singular: np.ndarray,
    u: np.ndarray,
    measured: np.ndarray,
    level: np.ndarray,
    n: int,
) -> tuple[np.ndarray, np.ndarray]:
    """z and its variance with what each own score says, theta_0 / c = u z + (theta_0 / lam) rho^2.

    In the directions of the components themselves that is far more than the eigenvalue says. What is expected of z
    keeps the errors of u small; correlations are left out. `squares` are rho^2 and its standard deviation, (m,) each.
    """
    c = scores.weight
    mean, left = expected / (expected + variance) * z, expected * variance / (expected + variance)
    before = left
    u = np.where(np.abs(u) > DEVIATIONS * level[:, None, None] / singular, u, 0)
    for a in range(u.shape[1]):
        own, used = scores.target[:, a] / c, measured[:, a]
        each = scores.target[:, a] / np.where(used, scores.eigenvalue[:, a], 1.0)
        beyond, doubt = each * squares[0], each * squares[1]
        spread = left * u[:, a]
        noise = (level / c) ** 2 * (1 + u.shape[2] / n) + doubt**2 + (spread * u[:, a]).sum(axis=1)
        gain = np.where(used[:, None], spread / np.maximum(noise, 1e-300)[:, None], 0)
        away = np.where(used, own - beyond - (u[:, a] * mean).sum(axis=1), 0)
        mean, left = mean + gain * away[:, None], np.maximum(left - gain * spread, 0)
    # The measurement that leaves as much of what is expected, where that is news.
    told = left < 0.5 * before
    gain = np.where(told, 1 - left / expected, 1)
    return np.where(told, mean / gain, z), np.where(told, left / gain, variance)
