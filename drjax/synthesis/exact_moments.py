"""`drjax.synthesis.moments` for releases: sums of vectors of whole numbers, with discrete noise from the OS."""

from __future__ import annotations

import math
import os
from fractions import Fraction

import numpy as np

from drjax.defenses.dp_pca import AnalyticGauss
from drjax.defenses.dp_pca_sensitivity import bits_for, whole_gram, whole_rows_in_ball
from drjax.defenses.exact_noise import discrete_laplace
from drjax.defenses.exact_norms import clip_l2
from drjax.defenses.mechanisms import Gaussian, Laplace
from drjax.synthesis import moments, sensitivity
from drjax.synthesis.budget import Plan

GRID = 2.0**-20
"""Entries of the vectors that are summed up are multiples of it."""


def released_sum(rows: np.ndarray, bound: float, plan: Plan, step: str) -> tuple[np.ndarray, float]:
    """The sum of rows (n, q), shortened to `bound`, with discrete noise; and the deviation of an entry's noise."""
    q = rows.shape[1]
    l2 = sensitivity.sum_l2(neighbouring=plan.neighbouring) * bound
    l1 = sensitivity.sum_l1(q, neighbouring=plan.neighbouring) * bound
    scale = plan.scale(step, l1, l2)
    value = clip_l2(rows, bound, grid=GRID).sum(axis=0)
    kind, unit = (Gaussian, l2) if plan.noise == "gaussian" else (Laplace, l1)
    mechanism = kind(neighbouring=plan.neighbouring, sensitivity=unit, scale=scale)
    found = mechanism.release(value, grid=GRID, on_grid=True)
    return found.value, found.noise_scale * (1.0 if plan.noise == "gaussian" else math.sqrt(2))


def released_moments(groups: list[np.ndarray], bound: float, plan: Plan, step: str) -> tuple[np.ndarray, float]:
    """Sums of outer products of rows (n, q) of every group, shortened to `bound`, with discrete noise.

    Returns:
        (n_groups, q, q), and `moments.noise_deviation`.
    """
    q = groups[0].shape[1]
    scale = moments.moment_scale(q, bound, plan, step, len(groups))
    noisy = [
        _gaussian(rows, bound, scale, plan)
        if plan.noise == "gaussian"
        else _laplace(rows, bound, plan, step, len(groups))
        for rows in groups
    ]
    return np.stack(noisy), moments.noise_deviation(plan.noise, scale)


def _gaussian(rows: np.ndarray, bound: float, scale: float, plan: Plan) -> np.ndarray:
    mechanism = AnalyticGauss(
        neighbouring=plan.neighbouring,
        n_components=1,
        row_norm=bound,
        noise_multiplier=scale / bound**2 * (1 + 1e-12),
        divisor=1.0,
    )
    noisy, unit, _, _ = mechanism.released(rows)
    return noisy.astype(np.float64) * unit**2


def _laplace(rows: np.ndarray, bound: float, plan: Plan, step: str, n_groups: int) -> np.ndarray:
    q, epsilon = rows.shape[1], plan.spend[step]
    unit = sensitivity.moment_l1(q, neighbouring=plan.neighbouring, n_groups=n_groups)
    bits = bits_for(unit / epsilon)
    whole = whole_rows_in_ball(rows, bound, bits)
    # Whole numbers of norm at most 2^bits: the L1 sensitivity is that of the ball, and whole.
    scale = math.ceil(Fraction(math.floor(Fraction(unit) * 4**bits)) / Fraction(epsilon))
    draws = discrete_laplace(scale, (q, q)).astype(object)
    noisy = whole_gram(whole) + np.triu(draws) + np.triu(draws, 1).T
    return noisy.astype(np.float64) * (bound / 2.0**bits) ** 2


def fair_part(n: int, share: float) -> np.ndarray:
    """A coin for each record, of probability `share` to 2^-64, from the operating system; (n,) bool.

    The coins are public: they say nothing about the records.
    """
    drawn = np.frombuffer(os.urandom(8 * n), np.uint64)
    return drawn < np.uint64(int(Fraction(share) * 2**64))
