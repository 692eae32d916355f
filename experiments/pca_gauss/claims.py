"""What paper 002 says of its tables, as ratios and differences with intervals, and whether they hold here.

Intervals are 95% of a bootstrap over trials. A claim "over r" holds where all of the interval is above r, fails where
all of it is below, and is open otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from drjax.core.statistics import Interval, percentile_interval, resampled

N_BOOTSTRAP = 4000
Line = Mapping[str, Any]


class Comparison(NamedTuple):
    """One sentence of section VIII-C.

    Attributes:
        text: As the paper puts it.
        ours: A method, the better one.
        theirs: Another.
        least: What the ratio or difference is said to exceed.
    """

    text: str
    ours: str
    theirs: str
    least: float


CLUSTERING = {
    "as printed": (
        Comparison("over 2x better than Li et al.", "pca-gauss-printed", "li-printed", 2),
        Comparison("over 2x better than Jiang et al.", "pca-gauss-printed", "jiang-printed", 2),
        Comparison("over 3x better than Blum et al.", "pca-gauss-printed", "blum", 3),
        Comparison("over 2x better than Liu", "pca-gauss-printed", "liu", 2),
        Comparison("4x better than Blocki et al.", "pca-gauss-printed", "blocki", 4),
    ),
    "sound": (
        Comparison("over 2x better than Li et al.", "pca-gauss", "li", 2),
        Comparison("over 2x better than Jiang et al.", "pca-gauss", "jiang", 2),
        Comparison("over 3x better than Blum et al.", "pca-gauss", "blum", 3),
        Comparison("over 2x better than Liu", "pca-gauss", "liu", 2),
        Comparison("4x better than Blocki et al.", "pca-gauss", "blocki", 4),
    ),
}
"""Of table II."""

CLASSIFICATION = {
    "as printed": (
        Comparison("over 10% better than Li et al.", "pca-gauss-pub-printed", "li-printed", 0.10),
        Comparison("over 10% better than Jiang et al., Pub-PCA", "pca-gauss-pub-printed", "jiang-printed", 0.10),
        Comparison("over 10% better than Jiang et al., Pub-LDA", "pca-gauss-pub-printed", "jiang-lda-printed", 0.10),
        Comparison("over 15% better than Blum et al.", "pca-gauss-pub-printed", "blum", 0.15),
        Comparison("over 15% better than Liu", "pca-gauss-pub-printed", "liu", 0.15),
        Comparison("over 15% better than Blocki et al.", "pca-gauss-pub-printed", "blocki", 0.15),
        Comparison("better than the public records alone", "pca-gauss-pub-printed", "public", 0.0),
    ),
    "as coded": (
        Comparison("over 10% better than Li et al.", "pca-gauss-pub-coded", "li-printed", 0.10),
        Comparison("over 10% better than Jiang et al., Pub-PCA", "pca-gauss-pub-coded", "jiang-printed", 0.10),
        Comparison("over 10% better than Jiang et al., Pub-LDA", "pca-gauss-pub-coded", "jiang-lda-printed", 0.10),
        Comparison("over 15% better than Blum et al.", "pca-gauss-pub-coded", "blum", 0.15),
        Comparison("over 15% better than Liu", "pca-gauss-pub-coded", "liu", 0.15),
        Comparison("over 15% better than Blocki et al.", "pca-gauss-pub-coded", "blocki", 0.15),
        Comparison("better than the public records alone", "pca-gauss-pub-coded", "public", 0.0),
    ),
    "sound": (
        Comparison("over 10% better than Li et al.", "pca-gauss-pub", "li", 0.10),
        Comparison("over 10% better than Jiang et al., Pub-PCA", "pca-gauss-pub", "jiang-pub", 0.10),
        Comparison("over 10% better than Jiang et al., Pub-LDA", "pca-gauss-pub", "jiang-lda", 0.10),
        Comparison("over 15% better than Blum et al.", "pca-gauss-pub", "blum", 0.15),
        Comparison("over 15% better than Liu", "pca-gauss-pub", "liu", 0.15),
        Comparison("over 15% better than Blocki et al.", "pca-gauss-pub", "blocki", 0.15),
        Comparison("better than the public records alone", "pca-gauss-pub", "public", 0.0),
    ),
}
"""Of table III; differences in accuracy."""

REGRESSION = {
    "as printed": (
        Comparison("over 200x better than Li et al.", "pca-gauss-pub-printed", "li-printed", 200),
        Comparison("over 200x better than Jiang et al.", "pca-gauss-pub-printed", "jiang-printed", 200),
        Comparison("over 200x better than Blum et al.", "pca-gauss-pub-printed", "blum", 200),
        Comparison("over 5x better than Liu", "pca-gauss-pub-printed", "liu", 5),
        Comparison("200x better than Blocki et al.", "pca-gauss-pub-printed", "blocki", 200),
        Comparison("better than the public records alone", "pca-gauss-pub-printed", "public", 1),
    ),
    "sound": (
        Comparison("over 200x better than Li et al.", "pca-gauss-pub", "li", 200),
        Comparison("over 200x better than Jiang et al.", "pca-gauss-pub", "jiang-pub", 200),
        Comparison("over 200x better than Blum et al.", "pca-gauss-pub", "blum", 200),
        Comparison("over 5x better than Liu", "pca-gauss-pub", "liu", 5),
        Comparison("200x better than Blocki et al.", "pca-gauss-pub", "blocki", 200),
        Comparison("better than the public records alone", "pca-gauss-pub", "public", 1),
    ),
}
"""Of table IV; ratios of root mean square errors."""

RULES = ("best p of each, in hindsight", "one public p for all")
"""How a method's number of components is chosen; the first is the paper's, and is not private."""


def losses(line: Line, real: float) -> np.ndarray:
    """What a trial is worse by: distance from the real data's silhouette, 1 less the accuracy, or the RMSE."""
    values = np.asarray(line["values"], np.float64)
    return {"silhouette": np.abs(values - real), "accuracy": 1 - values, "rmse": values}[line["metric"]]


def pick(lines: Sequence[Line], method: str, rule: str) -> Line | None:
    """A method's cell: of least mean loss over p, or of the public p; None if it was not run.

    Args:
        lines: Cells of one table, data set and k.
        method: Its key.
        rule: Of `RULES`.
    """
    own = [line for line in lines if line["method"] == method]
    if not own:
        return None
    if rule == RULES[1]:
        return next((line for line in own if line["p"] in (None, line["default_p"])), None)
    real = real_mean(lines)
    return min(own, key=lambda line: losses(line, real).mean())


def real_mean(lines: Sequence[Line]) -> float:
    """Of the real data."""
    return next(float(line["mean"]) for line in lines if line["method"] == "real")


def bootstrap(rng: np.random.Generator, samples: Sequence[np.ndarray], value: Callable[..., np.ndarray]) -> Interval:
    """A function of the means of independent samples, with the 95% interval of a percentile bootstrap.

    Args:
        rng: Draws the trials.
        samples: (trials,) each; a single trial is taken for exact.
        value: Of arrays of means, one array for each sample.
    """
    means = [resampled(rng, sample, lambda some: some.mean(axis=1), N_BOOTSTRAP) for sample in samples]
    return percentile_interval(value(*(np.array([s.mean()]) for s in samples))[0], value(*means))


def ratio(rng: np.random.Generator, ours: np.ndarray, theirs: np.ndarray) -> Interval:
    """Mean of theirs over mean of ours."""
    return bootstrap(rng, (ours, theirs), lambda a, b: b / np.maximum(a, 1e-12))


def error_ratio(rng: np.random.Generator, ours: np.ndarray, theirs: np.ndarray, real: np.ndarray) -> Interval:
    """Mean distance of theirs from the real data's mean silhouette, over that of ours; (trials,) silhouettes each.

    The real data's mean is drawn again with the rest.
    """
    *drawn, drawn_real = (resampled(rng, s, np.asarray, N_BOOTSTRAP) for s in (ours, theirs, real))
    levels = drawn_real.mean(axis=1)
    a, b = (np.abs(values - levels[:, None]).mean(axis=1) for values in drawn)
    level = real.mean()
    return percentile_interval(np.abs(theirs - level).mean() / np.abs(ours - level).mean(), b / np.maximum(a, 1e-12))


def difference(rng: np.random.Generator, ours: np.ndarray, theirs: np.ndarray) -> Interval:
    """Mean of ours less mean of theirs."""
    return bootstrap(rng, (ours, theirs), lambda a, b: a - b)


def verdict(found: Interval, least: float) -> str:
    """Whether "more than `least`" holds."""
    if found.low > least:
        return "holds"
    return "fails" if found.high < least else "open"


class Judged(NamedTuple):
    """A claim and what was measured.

    Attributes:
        claim: Which.
        ours: The cell.
        theirs: The other one.
        found: Ratio or difference.
        verdict: See `verdict`.
        of_values: Our silhouette over theirs, the other reading of "better"; None for other tables.
    """

    claim: Comparison
    ours: Line
    theirs: Line
    found: Interval
    verdict: str
    of_values: Interval | None = None


def judge(lines: Sequence[Line], claims: Sequence[Comparison], rule: str, *, seed: int = 0) -> list[Judged]:
    """Every claim whose two methods were run.

    Args:
        lines: Cells of one table, data set and k.
        claims: Of the table.
        rule: Of `RULES`.
        seed: Of the bootstrap.
    """
    judged = []
    for claim in claims:
        ours, theirs = (pick(lines, name, rule) for name in (claim.ours, claim.theirs))
        if ours is None or theirs is None:
            continue
        rng = np.random.default_rng(seed)
        a, b = (np.asarray(line["values"], np.float64) for line in (ours, theirs))
        of_values = None
        if ours["metric"] == "silhouette":
            real = next(line for line in lines if line["method"] == "real")
            found = error_ratio(rng, a, b, np.asarray(real["values"], np.float64))
            of_values = ratio(rng, b, a)
        elif ours["metric"] == "accuracy":
            found = difference(rng, a, b)
        else:
            found = ratio(rng, a, b)
        judged.append(Judged(claim, ours, theirs, found, verdict(found, claim.least), of_values))
    return judged
