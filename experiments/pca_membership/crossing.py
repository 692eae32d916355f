"""Where naive composition of Laplace queries begins to add less noise than advanced: figures 3 and 4 of paper 001."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.optimize import brentq

from drjax.core import validate
from drjax.core.statistics import half_width
from drjax.core.types import Array
from drjax.defenses.dp_pca_sensitivity import advanced_query_epsilon


def noise_ratio(epsilon: float, n_queries: int, delta: float) -> float:
    """Noise of naive composition over that of advanced composition, the paper's equation 2 as printed; > 0.

    Args:
        epsilon: Of all queries, > 0.
        n_queries: The paper's alpha, >= 1.
        delta: In (0, 1).

    Raises:
        ValueError: an argument out of its range.
    """
    return advanced_query_epsilon(epsilon, delta, n_queries, as_printed=True) * n_queries / epsilon


def crossing(n_queries: int, delta: float) -> float:
    """The epsilon above which naive composition adds less noise; 0 where it always does.

    Searched for from 1e-6 to 1e3 per query, by the mechanisms' own equation.

    Raises:
        ValueError: an argument out of its range.
    """
    validate.integer(n_queries=n_queries)

    def gap(log_epsilon: float) -> float:
        return math.log(noise_ratio(math.exp(log_epsilon), n_queries, delta))

    low, high = math.log(1e-6 * n_queries), math.log(1e3 * n_queries)
    root: Any = brentq(gap, low, high, xtol=1e-10) if gap(low) > 0 else -math.inf
    return math.exp(root)


def curve_crossing(epsilons: Sequence[float] | Array, advanced: Array, naive: Array) -> tuple[float, float, float]:
    """Where the AUC under advanced composition, the higher one at small epsilon, falls below that under naive.

    Args:
        epsilons: (E,), increasing, finite.
        advanced: (trials, E), AUC of each trial; trials of both share members and noise.
        naive: (trials, E).

    Returns:
        The largest epsilon at which advanced is higher and the least beyond it at which it is lower, by the paired 95%
        interval; and between them where the mean difference is 0, linear in log epsilon. nan for what is not seen.
    """
    grid, gap = np.log(np.asarray(epsilons, np.float64)), np.asarray(advanced) - np.asarray(naive)
    mean = gap.mean(axis=0)
    half = half_width(gap)
    above = np.flatnonzero(mean > half)
    nan = float("nan")
    if not len(above):
        return nan, nan, nan
    last = int(above[-1])
    below = np.flatnonzero(mean < -half)
    below = below[below > last]
    if not len(below):
        return math.exp(grid[last]), nan, nan
    end = int(below[0])
    turn = next(i for i in range(last, end) if mean[i] > 0 >= mean[i + 1])
    share = mean[turn] / (mean[turn] - mean[turn + 1])
    zero = grid[turn] + share * (grid[turn + 1] - grid[turn])
    return math.exp(grid[last]), math.exp(grid[end]), math.exp(zero)
