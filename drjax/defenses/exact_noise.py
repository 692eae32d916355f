"""Noise on whole numbers, exactly as its formula says: discrete Laplace and discrete Gaussian from fair bits.

What floating-point samplers draw leaves gaps and uneven steps, and those depend on the value that the noise is added
to: the last bits of a release can give the value away (Mironov 2012; Haney et al. 2022). Here every decision compares
whole numbers, bits come from the operating system, and no floating-point number takes part.

A coin of probability p comes up if a uniform real number, drawn 62 binary digits at a time, is below p. Digits decide
as soon as they differ from those of p, nearly always at once, so a vector of coins costs one word each and a comparison
of whole numbers; the few that tie are settled one by one, in rational numbers.

The time that a draw takes depends on what is drawn (rejected candidates, long geometric tails): where somebody can time
a release to the microsecond, its time says something about the noise (Jin et al. 2022).

Source: Canonne, Kamath & Steinke, "The discrete Gaussian for differential privacy" (2020), algorithms 1 to 3.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from fractions import Fraction
from numbers import Rational
from typing import Any

import numpy as np

from drjax.bounds.curve import number, numbers
from drjax.core import validate

Bits = Callable[[int], bytes]
"""Gives as many random bytes as asked for, like `os.urandom`."""

MAX_SCALE = 2**53
"""Largest numerator of a discrete Laplace's scale, and largest standard deviation of a discrete Gaussian.

A sample beyond 2^62 has a probability below exp(-500) then.
"""

_DIGITS = 62
_ONE = 2**_DIGITS
_BATCH = 2**17
"""Candidates at a time: whole numbers of any length take some 100 bytes each."""


def discrete_laplace(scale: Rational | int, size: int | Sequence[int], *, bits: Bits = os.urandom) -> np.ndarray:
    """Whole numbers k with probabilities proportional to exp(-|k| / scale), independent.

    Costs 0.5 microseconds a sample on one core (a million samples of scale 2^20), 0.1 ms at least.

    Args:
        scale: An `int` or `fractions.Fraction` > 0, with a numerator of at most `MAX_SCALE`.
        size: How many, or a shape.
        bits: Source of random bits, for tests alone; whoever knows the bits knows the noise.

    Returns:
        int64 of that shape, below 2^62 in size.

    Raises:
        ValueError: scale is not such a number, or size is not a shape.
        OverflowError: a sample is beyond 2^62.

    Example:
        >>> from drjax.defenses.exact_noise import discrete_laplace
        >>> noise = discrete_laplace(10, 1000)
        >>> noise.dtype, bool(5 < abs(noise).mean() < 20)
        (dtype('int64'), True)
    """
    exact = _rational("scale", scale)
    if exact.numerator > MAX_SCALE:
        raise ValueError(f"scale must have a numerator of at most 2**53, got {scale!r}")
    shape = _shape(size)
    return _laplace(exact.numerator, exact.denominator, math.prod(shape), bits).reshape(shape)


def discrete_gaussian(sigma2: Rational | int, size: int | Sequence[int], *, bits: Bits = os.urandom) -> np.ndarray:
    """Whole numbers k with probabilities proportional to exp(-k^2 / (2 sigma2)), independent.

    Costs 1.2 microseconds a sample on one core (a million samples of sigma 2^20), 0.3 ms at least.

    Args:
        sigma2: An `int` or `fractions.Fraction`, > 0 and below `MAX_SCALE`^2; the variance is at most that.
        size: How many, or a shape.
        bits: Source of random bits, for tests alone; whoever knows the bits knows the noise.

    Returns:
        int64 of that shape, below 2^62 in size.

    Raises:
        ValueError: sigma2 is not such a number, or size is not a shape.
        OverflowError: a sample is beyond 2^62.
    """
    exact = _rational("sigma2", sigma2)
    scale = math.isqrt(math.floor(exact)) + 1
    if scale > MAX_SCALE:
        raise ValueError(f"sigma2 must be below 2**106, got {sigma2!r}")
    shape = _shape(size)
    return _gaussian(exact, scale, math.prod(shape), bits).reshape(shape)


def bernoulli_exp(
    exponents: Sequence[int] | np.ndarray, denominator: int = 1, *, bits: Bits = os.urandom
) -> np.ndarray:
    """Coins that come up with probability exp(-exponent / denominator) each, exactly.

    The first k at which a coin of probability x / k fails is odd with probability exp(-x), for x in [0, 1]; larger x
    take a coin of exp(-1) for each whole unit (algorithm 1).

    Args:
        exponents: Whole numbers >= 0, (n,).
        denominator: A whole number > 0.
        bits: Source of random bits, for tests alone.

    Returns:
        (n,) bool.

    Raises:
        ValueError: a number that is not whole, or negative.
    """
    validate.integer(denominator=denominator)
    for exponent in exponents:
        validate.integer(minimum=0, exponents=exponent)
    return _coins(np.array([int(e) for e in exponents], dtype=object), int(denominator), bits)


def power_of_two(grid: Any) -> float:
    """The step of a grid.

    Raises:
        ValueError: not a float64 power of two.
    """
    step = float(number(grid=grid))
    if not (0 < step < math.inf and math.frexp(step)[0] == 0.5):
        raise ValueError(f"grid must be a power of two, got {grid!r}")
    return step


def to_steps(value: Any, grid: float, *, on_grid: bool = False) -> np.ndarray:
    """The value in steps of a grid, rounded to whole ones: each coordinate moves by half a step at most.

    Args:
        value: Finite real numbers, exact in float64, any shape but empty.
        grid: A power of two.
        on_grid: Whether nothing may have to be rounded.

    Returns:
        int64, or Python's whole numbers where those could overflow with noise added.

    Raises:
        ValueError: value is no such array, or not on the grid though it is said to be.
    """
    given = np.asarray(value)
    exact = numbers(value=given)
    if not exact.size:
        raise ValueError(f"value must have an entry, got shape {exact.shape}")
    validate.finite(value=exact)
    is_whole = given.dtype.kind in "iu"
    if given.dtype.itemsize > 8 or (is_whole and ((given > 2**53) | (given < -(2**53))).any()):
        raise ValueError("value must be exact in float64 (whole numbers within 2**53), got others")
    largest = np.finfo(np.float64).max
    # Limiting, like rounding, takes no two values further apart; division by a power of two loses nothing else.
    with np.errstate(over="ignore"):
        steps = np.clip(exact / grid, -largest, largest)
    whole = np.rint(steps)
    if on_grid and (whole * grid != exact).any():
        raise ValueError(f"value must be on the grid that it is said to be on, {grid!r}; got an entry that is not")
    if np.abs(whole).max() < 2.0**61:
        return whole.astype(np.int64)
    return np.array([int(entry) for entry in whole.ravel()], dtype=object).reshape(whole.shape)


def _laplace(t: int, s: int, n: int, bits: Bits) -> np.ndarray:
    """Algorithm 2 for the scale t / s: candidates, the first n of those that are accepted."""

    def candidates(m: int) -> np.ndarray:
        low = _below(t, m, bits)
        low = low[_coins(low.astype(object), t, bits)]
        tail = _geometric(len(low), bits)
        if tail.size and int(tail.max()) >= _ONE // t:
            raise OverflowError("a sample is beyond 2**62")
        sizes = (low + t * tail) // s
        negative = _below(2, len(sizes), bits) == 1
        # A negative zero is no number of its own: counting it would make 0 twice as likely.
        kept = ~(negative & (sizes == 0))
        return np.where(negative, -sizes, sizes)[kept]

    return _first(n, candidates)


def _gaussian(sigma2: Fraction, t: int, n: int, bits: Bits) -> np.ndarray:
    """Algorithm 3: a discrete Laplace of scale t, accepted with probability exp(-(|y| - sigma2 / t)^2 / (2 sigma2))."""
    top, bottom = sigma2.numerator, sigma2.denominator

    def candidates(m: int) -> np.ndarray:
        drawn = _laplace(t, 1, m, bits)
        # In units of 1 / (t * bottom), so that all is whole.
        gap = np.abs(drawn).astype(object) * (t * bottom) - top
        return drawn[_coins(gap * gap, 2 * top * bottom * t * t, bits)]

    return _first(n, candidates)


def _first(n: int, candidates: Callable[[int], np.ndarray]) -> np.ndarray:
    """The first n accepted; which ones come first says nothing of their values, so they stay independent."""
    found, missing = [np.empty(0, np.int64)], n
    while missing:
        accepted = candidates(min(_BATCH, 2 * missing + 8))[:missing]
        found.append(accepted)
        missing -= len(accepted)
    return np.concatenate(found)


def _geometric(n: int, bits: Bits) -> np.ndarray:
    """How many coins of exp(-1) come up before one does not, n times."""
    counts = np.zeros(n, np.int64)
    active = np.arange(n)
    while active.size:
        active = active[_unit_coins(active.size, bits)]
        counts[active] += 1
    return counts


def _coins(exponents: np.ndarray, denominator: int, bits: Bits) -> np.ndarray:
    """`bernoulli_exp` of Python's whole numbers in an array of objects."""
    whole, rest = exponents // denominator, exponents % denominator
    result = np.ones(len(exponents), bool)
    left = whole.copy()
    active = np.flatnonzero(left > 0)
    while active.size:
        heads = _unit_coins(active.size, bits)
        result[active[~heads]] = False
        active = active[heads]
        left[active] -= 1
        active = active[left[active] > 0]
    active = np.flatnonzero(result)
    floors = ((rest[active] * _ONE) // denominator).astype(np.int64)
    result[active] = _odd_stop(floors, lambda i: Fraction(int(rest[active[i]]), denominator), bits)
    return result


def _unit_coins(n: int, bits: Bits) -> np.ndarray:
    """n coins of exp(-1)."""
    return _odd_stop(np.full(n, _ONE, np.int64), lambda _: Fraction(1), bits)


def _odd_stop(floors: np.ndarray, exact: Callable[[int], Fraction], bits: Bits) -> np.ndarray:
    """Coins of exp(-x), x in [0, 1]: whether the first k at which a coin of x / k fails is odd.

    Args:
        floors: (n,) the whole parts of 2^62 x.
        exact: x by index.
        bits: The source.
    """
    odd = np.empty(len(floors), bool)
    active = np.arange(len(floors))
    k = 1
    while active.size:
        # The whole part of 2^62 x / k is that of the whole part over k, so floors will do for every k.
        first = floors[active] // k
        drawn = _words(active.size, bits)
        heads = drawn < first
        for tie in np.flatnonzero(drawn == first):
            heads[tie] = _settled(exact(int(active[tie])) / k * _ONE - int(first[tie]), bits)
        odd[active[~heads]] = k % 2 == 1
        active = active[heads]
        k += 1
    return odd


def _settled(p: Fraction, bits: Bits) -> bool:
    """One coin of probability p in [0, 1), to as many digits as it takes."""
    while True:
        p *= _ONE
        whole, drawn = math.floor(p), int(_words(1, bits)[0])
        if drawn != whole:
            return drawn < whole
        p -= whole


def _below(limit: int, n: int, bits: Bits) -> np.ndarray:
    """n whole numbers in [0, limit), all alike; limit <= 2^62."""
    shift = _DIGITS - (limit - 1).bit_length()

    def candidates(m: int) -> np.ndarray:
        drawn = _words(m, bits) >> shift
        return drawn[drawn < limit]

    return _first(n, candidates)


def _words(n: int, bits: Bits) -> np.ndarray:
    """n whole numbers of 62 bits, all alike."""
    drawn = bits(8 * n)
    if len(drawn) != 8 * n:
        raise ValueError(f"bits must give as many bytes as asked for, {8 * n}; got {len(drawn)}")
    return (np.frombuffer(drawn, "<u8") >> np.uint64(64 - _DIGITS)).astype(np.int64)


def _rational(name: str, value: Any) -> Fraction:
    # NumPy's whole numbers are rational too, but wrap around.
    is_exact = isinstance(value, Rational) and not isinstance(value, bool)
    exact = Fraction(int(value.numerator), int(value.denominator)) if is_exact else Fraction(0)
    if not exact > 0:
        hint = "; a float is exactly Fraction(value)" if isinstance(value, float) else ""
        raise ValueError(f"{name} must be an int or a fractions.Fraction > 0, got {value!r}{hint}")
    return exact


def _shape(size: Any) -> tuple[int, ...]:
    shape = tuple(size) if isinstance(size, (tuple, list)) else (size,)
    for length in shape:
        validate.integer(minimum=0, size=length)
    return tuple(map(int, shape))
