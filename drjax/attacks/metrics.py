"""What is reported for every attack: how far off, how often closer than any known record, how often told apart.

Everything runs on the host in float64 and in the units of the records. The errors here are mean squared errors per
coordinate; the radius eta of the reconstruction-robustness bounds is a Euclidean distance, eta = sqrt(d * MSE).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from drjax.attacks.column_gain import ColumnGain, column_gain
from drjax.attacks.gain import Gain, gain, generator
from drjax.core import validate
from drjax.core.statistics import (
    UNKNOWN,
    Interval,
    percentile_interval,
    resampled,
    share_interval,
)
from drjax.core.types import Array, is_usable

CHUNK_ENTRIES = 4 * 2**20
"""Distances held at once, 32 MiB: large enough for GEMM speed, small beside the data."""


@dataclass(frozen=True)
class AttackScores:
    """How well an attack did on the targets whose lanes are usable.

    Attributes:
        n_targets: Targets attacked, the excluded ones among them.
        n_excluded: Targets left out of every figure: their lane is unusable or the reconstruction is not finite.
        mse: Mean over targets of the per-target MSE, units of the records squared; bootstrap interval.
        mse_median: Median over targets of the per-target MSE; bootstrap interval.
        success: Share in [0, 1] of targets whose reconstruction is nearer to them than every known or public record;
            Clopper-Pearson interval.
        identification: Share in [0, 1] of targets that are nearer to the reconstruction than every decoy;
            Clopper-Pearson interval.
        identification_chance: What guessing would score, 1 / (decoys + 1).
        seconds_per_target: Wall time of the attack divided by `n_targets`.
        gain: What it achieves beyond the mean record; None where that was not at hand.
        columns: Gain in single columns; None where the mean record was not at hand.
        n_singled: Records rebuilt beyond what chance explains, each by itself; None where not every record of one
            release was attacked, so that nobody looked.
    """

    n_targets: int
    n_excluded: int
    mse: Interval
    mse_median: Interval
    success: Interval
    identification: Interval
    identification_chance: float
    seconds_per_target: float
    gain: Gain | None = None
    columns: ColumnGain | None = None
    n_singled: int | None = None


def evaluate(
    key: Array,
    reconstructions: Array,
    targets: Array,
    *,
    neighbors: Array | None = None,
    nearest_squared: Array | None = None,
    decoys: Array,
    mean_record: Array | None = None,
    columns: Sequence[str] | None = None,
    status: Array | None = None,
    seconds: float,
    level: float = 0.95,
    n_bootstrap: int = 1000,
) -> AttackScores:
    """Scores m reconstructions against their targets, with confidence intervals over the targets.

    The intervals of the errors are percentile bootstraps. Those of the shares are Clopper-Pearson's, exact and never
    too short: resampling a share of 0 or 1 returns the same share every time, an interval of width zero.
    Comparisons are strict: a reconstruction exactly as far as the nearest record is no success, and one exactly as
    near to a decoy is no identification, unless that decoy is the target's twin, which nobody could tell apart.
    Costs 2 m d (N + c) FLOP in chunks of `CHUNK_ENTRIES` distances.

    Args:
        key: Seeds the bootstrap; equal keys give equal intervals.
        reconstructions: (m, d), units of the records; rows may hold nan where the attack failed.
        targets: (m, d), the truth.
        neighbors: (N, d), all records that the adversary holds: known and public ones together.
        nearest_squared: (m,), squared distances of the targets to the nearest of these, in place of `neighbors`.
        decoys: (c, d), records the target has to be told from.
        mean_record: (m, d), what is guessed of each target without the release, for `AttackScores.gain` and `columns`.
        columns: d names, equal for features that say one thing together, as those of one category do; "feature 0" and
            so on if None.
        status: (m,) uint32 `Status` flags of the lanes; None if every lane is usable.
        seconds: Wall time that the attack took on all m targets, >= 0.
        level: Confidence level, in (0, 1).
        n_bootstrap: Resamples of the targets.

    Raises:
        ValueError: shapes that do not match, arrays other than `reconstructions` not finite, or a value out of range.

    Source: success as in Balle, Cherubin & Hayes (2022); Clopper & Pearson (1934).

    Example:
        >>> import drjax, jax
        >>> from drjax.attacks import metrics
        >>> x = drjax.load("digits").x
        >>> found = x[:20] + 0.01  # as if an attack had been so good
        >>> others = {"neighbors": x[20:80], "decoys": x[80:140]}
        >>> scores = metrics.evaluate(jax.random.key(0), found, x[:20], **others, seconds=1.0)
        >>> round(scores.mse.estimate, 6), scores.success.estimate, scores.identification.estimate
        (0.0001, 1.0, 1.0)
    """
    validate.prng_key(key)
    recon, truth = pairs(reconstructions, targets)
    m, d = truth.shape
    if (neighbors is None) == (nearest_squared is None):
        raise ValueError("neighbors or nearest_squared must be given, got both or neither")
    if neighbors is not None:
        neighbors = validate.matrix(neighbors, "neighbors", columns=d)
    decoys = validate.matrix(decoys, "decoys", columns=d)
    flags = np.zeros(m, np.uint32) if status is None else np.asarray(status)
    if flags.shape != (m,):
        raise ValueError(f"status must have shape ({m},), one entry per target, got {flags.shape}")
    validate.non_negative(seconds=seconds)
    validate.integer(n_bootstrap=n_bootstrap)
    validate.open_unit(level=level)

    used = is_usable(flags) & np.isfinite(recon).all(axis=1)
    blind = None if mean_record is None else pairs(mean_record, targets)[0][used]
    recon, truth = recon[used], truth[used]
    squared = np.sum((recon - truth) ** 2, axis=1)
    twins = _twins(truth, decoys)
    if neighbors is not None:
        nearest_squared = _nearest_row(truth, neighbors)[1]
    else:
        nearest_squared = np.asarray(nearest_squared)[used]
    closer = squared < nearest_squared
    identified = squared < _nearest_row(recon, decoys, excluded=twins)[1]
    found = by_column = None
    if blind is not None:
        by_column = column_gain(recon, truth, blind, columns, level=level)
        mean_squared = np.sum((blind - truth) ** 2, axis=1)
        found = gain(
            key,
            recon,
            truth,
            mean_error=mean_squared / d,
            nearest_error=nearest_squared / d,
            identified=identified,
            mean_identified=mean_squared < _nearest_row(blind, decoys, excluded=twins)[1],
            level=level,
            n_bootstrap=n_bootstrap,
        )
    mse, mse_median = _bootstrap(key, squared / d, level, n_bootstrap)
    return AttackScores(
        n_targets=m,
        n_excluded=m - int(used.sum()),
        mse=mse,
        mse_median=mse_median,
        success=share_interval(int(closer.sum()), closer.size, level=level),
        identification=share_interval(int(identified.sum()), identified.size, level=level),
        identification_chance=1 / (decoys.shape[0] + 1),
        seconds_per_target=seconds / m,
        gain=found,
        columns=by_column,
    )


def mean_squared_errors(reconstructions: Array, targets: Array) -> np.ndarray:
    """(m,) mean squared error over the d coordinates of each pair of rows, by direct subtraction in float64.

    Nothing cancels, so a reconstruction exact to 1e-13 per coordinate reads 1e-26; nan where a row is not finite.

    Raises:
        ValueError: not two numeric (m, d) arrays of one shape, or `targets` not finite.
    """
    recon, truth = pairs(reconstructions, targets)
    return np.mean((recon - truth) ** 2, axis=1)


def noisy_reconstruction_shift(clean: Array, noisy: Array) -> float:
    """Paper 000's equation 12: mean over N targets of |clean_i - noisy_i|^2, not divided by d; units squared.

    The paper calls noise ineffective where this is small. It compares two reconstructions and never the record, so it
    measures how far noise moves the attack's answer and not what the answer gives away:

    - it is large where noise throws an attack trained on clean releases off, though one trained on noisy releases may
      still come close, and though the moved answer may be no farther from the record than the clean one;
    - it is 0 for an attack that ignores the release, and small for one that is poor with and without noise: both say
      "ineffective" where nothing leaks;
    - as a sum over d features it is d times larger than the mean squared errors reported everywhere else.

    Report `mean_squared_errors` against the record itself beside it.

    Args:
        clean: (N, d) reconstructions from the clean releases.
        noisy: (N, d) reconstructions of the same targets from the noisy releases.

    Raises:
        ValueError: not two finite numeric (N, d) arrays of one shape.

    Source: Lumbut & Ponnoprat, "Investigating Privacy Leakage in Dimensionality Reduction Methods via Reconstruction
        Attack", section 6, equation 12.

    Example:
        >>> import numpy as np
        >>> from drjax.attacks.metrics import noisy_reconstruction_shift
        >>> noisy_reconstruction_shift(np.zeros((3, 4)), np.full((3, 4), 0.5))  # four features, each by 0.5
        1.0
    """
    first = validate.matrix(clean, "clean").astype(np.float64)
    second = validate.matrix(noisy, "noisy").astype(np.float64)
    if first.shape != second.shape:
        raise ValueError(f"noisy must have the shape of clean {first.shape}, got {second.shape}")
    return float(np.mean(np.sum((first - second) ** 2, axis=1)))


def pairs(reconstructions: Array, targets: Array) -> tuple[np.ndarray, np.ndarray]:
    """Reconstructions, which may hold nan, and finite targets, both (m, d) float64.

    Raises:
        ValueError: not two numeric (m, d) arrays of one shape, or `targets` not finite.
    """
    truth = validate.matrix(targets, "targets").astype(np.float64)
    recon = np.asarray(reconstructions)
    if recon.dtype.kind not in "fiub" or recon.shape != truth.shape:
        raise ValueError(
            f"reconstructions must be numeric with the targets' shape {truth.shape}, "
            f"got dtype {recon.dtype} and shape {recon.shape}"
        )
    return recon.astype(np.float64), truth


def nearest(
    queries: Array, records: Array, *, excluded: Sequence[Sequence[int]] | np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The nearest record of each query: its row (m,) and its squared Euclidean distance (m,), float64.

    The row is found by GEMM on data centred at the records' mean, so among records whose squared distances differ by
    less than about 1e-15 d of the squared norms either may be named; its distance is then computed directly, so that
    of a copy of the query is exactly 0. Costs 2 m N d FLOP; records are read in blocks and never copied as a whole.

    Args:
        queries: (m, d), finite.
        records: (N, d), finite.
        excluded: Rows that are left out for each query; row -1 and an infinite distance where that leaves none.

    Raises:
        ValueError: not finite numeric arrays with the same number of columns.
    """
    q = validate.matrix(queries, "queries")
    r = validate.matrix(records, "records", columns=q.shape[1])
    return _nearest_row(q.astype(np.float64), r, excluded=excluded)


def nearest_among(queries: Array, sets: Sequence[Array]) -> tuple[np.ndarray, np.ndarray]:
    """The record nearest to each query (m, d) in several sets (N, d), (m, d), and its squared distance (m,); float64.

    As `nearest`, without a copy of all sets together; of equals that of the first set.
    """
    q = validate.matrix(queries, "queries")
    found, squared = np.full(q.shape, np.nan), np.full(len(q), np.inf)
    for records in sets:
        row, distance = nearest(q, records)
        closer = distance < squared
        found[closer], squared[closer] = np.asarray(records)[row[closer]], distance[closer]
    return found, squared


def sample_decoys(key: Array, pool: Array, n: int) -> np.ndarray:
    """n different rows of pool (N, d), drawn without replacement; (n, d).

    Raises:
        ValueError: n < 1, more rows wanted than there are, or `pool` not a finite numeric matrix.
    """
    validate.prng_key(key)
    pool = validate.matrix(pool, "pool")
    validate.integer(n=n)
    validate.at_most(pool.shape[0], "the rows of pool", n=n)
    return pool[generator(key).choice(pool.shape[0], size=n, replace=False)]


def _bootstrap(key: Array, errors: np.ndarray, level: float, n_bootstrap: int) -> tuple[Interval, Interval]:
    if errors.size == 0:
        return UNKNOWN, UNKNOWN
    draws = resampled(
        generator(key),
        errors,
        lambda some: np.stack([some.mean(axis=1), np.median(some, axis=1)], axis=1),
        n_bootstrap,
    )
    estimates = errors.mean(), np.median(errors)
    mean, median = (percentile_interval(*pair, level=level) for pair in zip(estimates, draws.T, strict=True))
    return mean, median


def _twins(truth: np.ndarray, decoys: np.ndarray) -> list[list[int]]:
    """Decoys that equal each target."""
    rows: dict[bytes, list[int]] = {}
    for j, decoy in enumerate(decoys):
        rows.setdefault(_identity(decoy), []).append(j)
    return [rows.get(_identity(target), []) for target in truth]


def _identity(row: np.ndarray) -> bytes:
    # Adding 0.0 makes -0.0 and 0.0, which are equal, the same bytes.
    return (row.astype(np.float64) + 0.0).tobytes()


def _nearest_row(
    queries: np.ndarray, records: np.ndarray, *, excluded: Sequence[Sequence[int]] | np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """`nearest` of queries in float64."""
    m, d = queries.shape
    center = records.mean(axis=0, dtype=np.float64)
    q = queries - center
    best, row = np.full(m, np.inf), np.full(m, -1)
    step = max(1, CHUNK_ENTRIES // max(m, d))
    for start in range(0, records.shape[0], step):
        r = records[start : start + step] - center
        # |q|^2 is the same for every record and would only cost digits.
        partial = np.einsum("ij,ij->i", r, r) - 2 * (q @ r.T)
        for i, rows in enumerate(() if excluded is None else excluded):
            partial[i, [j - start for j in rows if start <= j < start + r.shape[0]]] = np.inf
        here = partial.argmin(axis=1)
        value = partial[np.arange(m), here]
        better = value < best
        best[better], row[better] = value[better], here[better] + start
    squared = np.full(m, np.inf)
    found = row >= 0
    squared[found] = np.sum((queries[found] - records[row[found]]) ** 2, axis=1)
    return row, squared
