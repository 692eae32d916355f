"""What a release takes, estimated before work: memory, held against peaks in tests/releases/test_needs.py, and time."""

from __future__ import annotations

from drjax.attacks.shadow import DENSE_FLOPS
from drjax.core import memory
from drjax.core.progress import announce
from drjax.releases import expected
from drjax.releases.rehearsal import MOST_REGRESSED, SHARES

PROGRAMS = 3e8
"""Bytes of the programs that a rehearsal compiles."""


def of_pca(n: int, d: int, k: int, *, trials: int) -> float:
    """Bytes that `release_pca` takes for n records of d columns beside the records themselves.

    Args:
        n: Records.
        d: Columns.
        k: Components at most.
        trials: Draws of noise that the utility is computed from; 0 for no rehearsal.
    """
    # Records in units of the release, centred, cut, in whole numbers, and the steps between, all in float64.
    release = 80.0 * n * d + 64.0 * d**2
    if not trials:
        return release
    # Splits with the adversary's records and scores; draws with k components, and fewer with all of them; shadows with
    # and without noise of this split and the last one.
    records, draws = 112.0 * n * d, 16.0 * trials * k * d + 8.0 * max(expected.LEAST_TRIALS, trials // 4) * d**2
    rehearsal = records + draws + 4 * 8.0 * expected.N_SHADOWS * d**2 + PROGRAMS
    return max(release, rehearsal)


def of_synthetic(n: int, columns: int, width: int, *, is_regression: bool, trials: int) -> float:
    """Bytes that `release_synthetic` takes for n records beside the table that was read.

    Args:
        n: Records.
        columns: Columns of the table.
        width: Columns of encoded features.
        is_regression: Whether the target is a number.
        trials: Rehearsals at each epsilon.
    """
    # Encoded records in twelve forms, all in float64; cells as text.
    release = 96.0 * n * width + 80.0 * n * columns + 64.0 * width**2
    if not trials:
        return release
    judged = SHARES[1] * n * 8.0 * MOST_REGRESSED if is_regression else 0.0
    return release + 16.0 * n * width + judged + PROGRAMS


def seconds_of_pca(n: int, d: int, *, trials: int, splits: int) -> float:
    """Seconds that the rehearsal of `release_pca` takes, to a factor of a few; arguments as of `of_pca`.

    Args:
        n: Records.
        d: Columns.
        trials: Draws of noise that the utility is computed from; 0 for no rehearsal.
        splits: Splits that the membership figures are computed from.
    """
    if not trials:
        return 0.0
    decomposition, moment = 10.0 * d**3, 2.0 * n * d**2
    draws = (trials + 6 * max(expected.LEAST_TRIALS, trials // 4)) * decomposition
    return (draws + splits * expected.N_SHADOWS * (moment + decomposition)) / DENSE_FLOPS


def seconds_of_synthetic(n: int, width: int, *, trials: int) -> float:
    """Seconds that the rehearsal of `release_synthetic` takes, to a factor of a few; arguments as of `of_synthetic`."""
    fit, judge = 4.0 * n * width**2 + 20.0 * width**3, 2000.0 * n * width
    return 3 * trials * (fit + judge) / DENSE_FLOPS


def require_pca(n: int, d: int, k: int, *, trials: int, splits: int, progress: bool) -> None:
    """Refuses a release that memory does not suffice for, and says what its rehearsal takes if that is long.

    Raises:
        MemoryError: one sentence with what it takes, what there is, and what to leave out.
    """
    memory.require(
        of_pca(n, d, k, trials=trials),
        "this release",
        f"{n:,} records and moments of {d:,} columns",
        lambda: (
            "leave out the rehearsal with --trials 0, or columns with --drop "
            f"({memory.would_fit(lambda c: of_pca(n, c, min(c, k), trials=0), d)} then)"
        ),
    )
    announce("rehearsals of this release", seconds_of_pca(n, d, trials=trials, splits=splits), enabled=progress)


def require_synthetic(n: int, columns: int, width: int, *, is_regression: bool, trials: int, progress: bool) -> None:
    """As `require_pca`, for synthetic records."""
    memory.require(
        of_synthetic(n, columns, width, is_regression=is_regression, trials=trials),
        "this release",
        f"{n:,} records and moments of {width:,} encoded columns",
        "leave out the rehearsal with --trials 0, or columns with --drop, those of many categories first",
    )
    announce("rehearsals of this release", seconds_of_synthetic(n, width, trials=trials), enabled=progress)
