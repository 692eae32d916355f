"""Exact noise: decisions against rational arithmetic word by word, frequencies against the formulas."""

import inspect
import math
import os
import random
from fractions import Fraction

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from drjax.defenses.exact_noise import MAX_SCALE, bernoulli_exp, discrete_gaussian, discrete_laplace, to_steps

ALPHA = 1e-4
"""Level of the tests of distributions; their bits are fixed, so each gives the same answer every time."""

N = 100_000
ONE = 2**62


def bits(seed=0):
    return random.Random(seed).randbytes


class Words:
    """A source of given words of 62 bits, each call taking the next ones; the rest of a byte is noise."""

    def __init__(self, words):
        self.words = list(words)

    def __call__(self, n):
        taken, self.words = self.words[: n // 8], self.words[n // 8 :]
        return b"".join((word << 2 | 3).to_bytes(8, "little") for word in taken)


def reference_coin(p, choose):
    """Whether a uniform real number is below p, digit by digit, and the words that were looked at."""
    low, width, words = Fraction(0), Fraction(1), []
    while True:
        width /= ONE
        words.append(choose(math.floor((p - low) / width)))
        low += words[-1] * width
        if p < low or p >= low + width:
            return p >= low + width, words


def reference_exp(x, choose):
    """Algorithm 1 of Canonne, Kamath & Steinke in rational numbers."""
    words = []
    for part in [Fraction(1)] * math.floor(x) + [x - math.floor(x)]:
        k, heads = 0, True
        while heads:
            k += 1
            heads, seen = reference_coin(part / k, choose)
            words += seen
        if k % 2 == 0:
            return False, words
    return True, words


@settings(max_examples=300, derandomize=True)
@given(
    top=st.integers(0, 2**130),
    bottom=st.integers(1, 2**130),
    moves=st.lists(st.sampled_from(["tie", "tie", "below", "above", "random"]), max_size=8),
    seed=st.integers(0, 2**32),
)
def test_a_coin_of_exp_decides_as_rational_arithmetic_does_word_by_word(top, bottom, moves, seed):
    top %= 4 * bottom  # larger exponents take as many coins of exp(-1), all alike
    rng, moves = random.Random(seed), list(moves)

    def choose(threshold):
        move = moves.pop(0) if moves else "random"
        wanted = threshold + {"tie": 0, "below": -1, "above": 1, "random": 0}[move]
        return rng.getrandbits(62) if move == "random" else min(max(wanted, 0), ONE - 1)

    expected, words = reference_exp(Fraction(top, bottom), choose)
    source = Words(words)
    assert bernoulli_exp([top], bottom, bits=source)[0] == expected
    assert source.words == []


@pytest.mark.parametrize("x", [Fraction(0), Fraction(1, 3), Fraction(1), Fraction(7, 4), Fraction(3)])
def test_frequency_of_a_coin_of_exp(x):
    heads = int(bernoulli_exp(np.full(N, x.numerator), x.denominator, bits=bits(1)).sum())
    assert scipy.stats.binomtest(heads, N, math.exp(-x)).pvalue > ALPHA
    assert scipy.stats.binomtest(heads, N, math.exp(-x - 0.2)).pvalue < 1e-9


def p_value(samples, pmf):
    """Chi-square over all whole numbers that 10 samples are expected at, and the two tails."""
    reach = np.arange(-2000, 2001)
    p = pmf(reach)
    inner = reach[p * len(samples) >= 10]
    low, high = inner[0], inner[-1]
    counts = np.bincount(np.clip(samples, low - 1, high + 1) - (low - 1), minlength=high - low + 3)
    expected = np.r_[p[reach < low].sum(), p[(reach >= low) & (reach <= high)], p[reach > high].sum()] * len(samples)
    kept = expected > 0
    assert counts[~kept].sum() == 0
    return scipy.stats.chisquare(counts[kept], expected[kept] * len(samples) / expected.sum()).pvalue


def gaussian_pmf(sigma2):
    def pmf(k):
        weights = np.exp(-(k.astype(float) ** 2) / (2 * float(sigma2)))
        return weights / weights.sum()  # the tail beyond 2000 is below exp(-1e4)

    return pmf


@pytest.mark.parametrize("scale", [Fraction(1, 3), 1, Fraction(5, 3), 20, Fraction(0.7)])
def test_discrete_laplace_has_the_probabilities_of_its_formula(scale):
    samples = discrete_laplace(scale, N, bits=bits(2))
    assert p_value(samples, scipy.stats.dlaplace(1 / float(scale)).pmf) > ALPHA
    assert p_value(samples, scipy.stats.dlaplace(1.05 / float(scale)).pmf) < 1e-6


@pytest.mark.parametrize("sigma2", [Fraction(1, 4), 1, Fraction(50, 3), 400])
def test_discrete_gaussian_has_the_probabilities_of_its_formula(sigma2):
    samples = discrete_gaussian(sigma2, N, bits=bits(3))
    assert p_value(samples, gaussian_pmf(sigma2)) > ALPHA
    assert p_value(samples, gaussian_pmf(Fraction(sigma2) * Fraction(11, 10))) < 1e-6


@pytest.mark.parametrize("size", [Fraction(2**40), Fraction(2**45 + 1, 7), Fraction(MAX_SCALE - 1)])
def test_wide_noise_is_that_of_the_continuous_formula(size):
    # Rounding to whole numbers moves the distribution function by 1 / size, far below what 20,000 samples show.
    laplace = discrete_laplace(size, 20_000, bits=bits(4)) / float(size)
    gaussian = discrete_gaussian(size**2, 20_000, bits=bits(5)) / float(size)
    assert scipy.stats.kstest(laplace, scipy.stats.laplace.cdf).pvalue > ALPHA
    assert scipy.stats.kstest(gaussian, scipy.stats.norm.cdf).pvalue > ALPHA
    assert scipy.stats.kstest(gaussian, scipy.stats.laplace.cdf).pvalue < 1e-6


def test_samples_are_independent_of_those_before():
    for samples in (discrete_laplace(30, N, bits=bits(6)), discrete_gaussian(900, N, bits=bits(7))):
        assert abs(np.corrcoef(samples[1:], samples[:-1])[0, 1]) < 4.5 / math.sqrt(N)


def test_the_default_source_is_the_operating_system():
    for sampler in (discrete_laplace, discrete_gaussian, bernoulli_exp):
        assert inspect.signature(sampler).parameters["bits"].default is os.urandom
    # Equal only with a probability below 2^-300.
    assert not np.array_equal(discrete_laplace(2**40, 10), discrete_laplace(2**40, 10))
    assert not np.array_equal(discrete_gaussian(2**80, 10), discrete_gaussian(2**80, 10))


def test_the_same_bits_give_the_same_noise_in_any_shape():
    flat = discrete_laplace(9, 12, bits=bits(8))
    assert flat.dtype == np.int64
    np.testing.assert_array_equal(discrete_laplace(np.int64(9), (3, 4), bits=bits(8)).ravel(), flat)
    assert discrete_gaussian(9, (), bits=bits(8)).shape == ()
    assert discrete_gaussian(9, (2, 0), bits=bits(8)).shape == (2, 0)


class Rounds:
    """Bits under which every coin of exp(-1) comes up for some rounds, and then none."""

    def __init__(self, n_rounds):
        # Zero is drawn for the low part and kept; then heads, heads, tails at k = 1, 2, 3, and heads, tails to end.
        self.words = iter([0, ONE - 1] + [0, 0, ONE - 1] * n_rounds + [0, ONE - 1] + [0])

    def __call__(self, n):
        return (next(self.words) << 2).to_bytes(8, "little") * (n // 8)


def test_a_sample_that_would_overflow_raises():
    np.testing.assert_array_equal(discrete_laplace(MAX_SCALE, 2, bits=Rounds(400)), [400 * MAX_SCALE] * 2)
    with pytest.raises(OverflowError, match=r"2\*\*62"):
        discrete_laplace(MAX_SCALE, 2, bits=Rounds(600))


@pytest.mark.parametrize("sampler", [discrete_laplace, discrete_gaussian])
@pytest.mark.parametrize("value", [0, -1, Fraction(-1, 2), 0.5, math.nan, True, "1", None])
def test_scales_that_are_not_exact_and_positive_are_refused(sampler, value):
    with pytest.raises(ValueError, match=r"(scale|sigma2) must be an int or a fractions.Fraction > 0, got"):
        sampler(value, 3)


def test_other_bad_arguments_are_refused():
    with pytest.raises(ValueError, match=r"numerator of at most 2\*\*53"):
        discrete_laplace(MAX_SCALE + 1, 1)
    with pytest.raises(ValueError, match=r"below 2\*\*106"):
        discrete_gaussian(MAX_SCALE**2, 1)
    for size in (-1, 2.0, (3, -1), None):
        with pytest.raises(ValueError, match="size must be an integer >= 0"):
            discrete_laplace(1, size)
    with pytest.raises(ValueError, match="bits must give as many bytes"):
        discrete_laplace(1, 5, bits=lambda n: bytes(n - 1))
    with pytest.raises(ValueError, match="exponents must be an integer >= 0"):
        bernoulli_exp([1, -1])
    with pytest.raises(ValueError, match="denominator must be an integer >= 1"):
        bernoulli_exp([1], 0)


@settings(max_examples=200, derandomize=True)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=4), st.integers(-30, 30))
def test_steps_are_the_nearest_whole_ones(values, exponent):
    grid = 2.0**exponent
    for value, step in zip(values, to_steps(values, grid), strict=True):
        limited = min(
            max(Fraction(value) / Fraction(grid), -Fraction(np.finfo(float).max)), Fraction(np.finfo(float).max)
        )
        assert abs(int(step) - limited) <= Fraction(1, 2)


def test_steps_of_values_that_are_not_exact_numbers_are_refused():
    for value in (2**53 + 1, -(2**53) - 1):
        with pytest.raises(ValueError, match="value must be exact in float64"):
            to_steps([value], 1.0)
    with pytest.raises(ValueError, match="value must have an entry"):
        to_steps([], 1.0)
    with pytest.raises(ValueError, match="value must be finite"):
        to_steps([1.0, math.inf], 1.0)
    with pytest.raises(ValueError, match="value must be on the grid"):
        to_steps([1.0, 0.25], 0.5, on_grid=True)
    with pytest.raises(ValueError, match="value must be real numbers"):
        to_steps(["1"], 1.0)
