"""Arithmetic that loses no digits, and roundings to a known side, for the closed forms of `drjax.bounds`."""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from drjax.core import validate

SLACK = 1e-12
"""Amount that a logarithm is raised by, in units of max(1, its absolute value): more than SciPy's functions are off."""

LARGEST = float(np.finfo(np.float64).max)
"""Largest finite float64."""

_DIGITS = Context(prec=60, Emax=10**15, Emin=-(10**15))

N_TERMS = 24
"""Terms of the series in `log1p_less`: its ratio is at most 1/9."""


def raised(log_value: Any) -> Any:
    """A logarithm that was computed, raised by `SLACK`; infinities and nan stay."""
    size = np.abs(np.where(np.isfinite(log_value), log_value, 1.0))
    return log_value + SLACK * np.maximum(1.0, size)


def log_1mexp(x: Any) -> np.ndarray:
    """log(1 - exp(x)) for x <= 0, to a few roundings."""
    x = np.asarray(x, np.float64)
    near, far = np.maximum(x, -math.log(2)), np.minimum(x, -math.log(2))
    with np.errstate(divide="ignore"):
        return np.where(x > -math.log(2), np.log(-np.expm1(near)), np.log1p(-np.exp(far)))


def log_survival(log_p: Any) -> np.ndarray:
    """log(-log(1 - p)) of the logarithm of a probability p, for p of any size; -inf at 0, inf at 1."""
    log_p = np.asarray(log_p, np.float64)
    with np.errstate(divide="ignore"):
        found = np.log(-log_1mexp(np.maximum(log_p, -40.0)))
    # -log(1 - p) = p + p^2 / 2 + ...: below exp(-40) the first term has all digits.
    return np.where(log_p < -40, log_p, found)


def log_failure(log_x: Any) -> np.ndarray:
    """log(1 - exp(-x)) of log x, for x >= 0 of any size: the inverse of `log_survival`."""
    log_x = np.asarray(log_x, np.float64)
    with np.errstate(over="ignore"):
        found = log_1mexp(-np.exp(np.maximum(log_x, -40.0)))
    # Below, x itself is above 1 - exp(-x), by half a rounding.
    return np.where(log_x < -40, log_x, found)


def log_ratio(a: Any, b: Any) -> np.ndarray:
    """log(a / b) of positive numbers with all digits, also where they are nearly equal; -inf where a is 0."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    (top, power), (bottom, other) = np.frexp(a), np.frexp(b)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        apart = np.log(top / bottom) + (power - other) * math.log(2)
        return np.where((a < 2 * b) & (b < 2 * a), np.log1p((a - b) / b), apart)


def log1p_less(x: Any) -> np.ndarray:
    """log(1 + x) - x for x > -1, with all digits."""
    x = np.asarray(x, np.float64)
    # With r = x / (2 + x) it is 2 artanh(r) - x, and 2 r - x = -x r.
    small = np.clip(x, -0.5, 0.5)
    r = small / (2 + small)
    series = np.zeros_like(r)
    for k in range(N_TERMS, 0, -1):
        series = r * r * (series + 1 / (2 * k + 1))
    with np.errstate(divide="ignore"):
        return np.where(np.abs(x) < 0.5, 2 * r * series - small * r, np.log1p(x) - x)


def at_least(value: Fraction, /, **named: Any) -> float:
    """The least float64 that is not below an exact number.

    Args:
        value: Exact number, >= 0.
        named: What it is of, for the error.

    Raises:
        ValueError: it is beyond the largest float64.
    """
    try:
        found = float(value)
    except OverflowError:
        found = math.inf
    found = found if found == math.inf or Fraction(found) >= value else math.nextafter(found, math.inf)
    if found == math.inf:
        text = ", ".join(f"{name} {given!r}" for name, given in named.items())
        raise ValueError(f"{' and '.join(named)} must give a result of at most {LARGEST:g}, got {text}")
    return found


def exp(x: float) -> Fraction:
    """exp(x) to 60 digits, for x up to 1e9 or so."""
    return Fraction(_DIGITS.exp(Decimal(x)))


def log_at_least(value: Fraction) -> float:
    """The logarithm of a number > 0, rounded up."""
    found = Fraction(_DIGITS.ln(_DIGITS.divide(Decimal(value.numerator), Decimal(value.denominator))))
    return at_least(found, value=value) if found >= 0 else -math.nextafter(float(-found), 0.0)


def root_of_squares(values: Iterable[float]) -> float:
    """The least float64 that is not below the root of a sum of squares; 0 of none.

    Raises:
        ValueError: it is beyond the largest float64.
    """
    sizes = [float(value) for value in values]
    return root_at_least(math.hypot(*sizes), sum((Fraction(size) ** 2 for size in sizes), Fraction(0)), values=sizes)


def root_at_least(found: float, square: Fraction, /, **named: Any) -> float:
    """The first float64 from one that is nearly the root of an exact number on, whose square is not below that.

    Raises:
        ValueError: it is beyond the largest float64.
    """
    while found < math.inf and Fraction(found) ** 2 < square:
        found = math.nextafter(found, math.inf)
    if not found < math.inf:
        text = ", ".join(f"{name} {given!r}" for name, given in named.items())
        raise ValueError(f"{' and '.join(named)} must give a result of at most {LARGEST:g}, got {text}")
    return found


def as_float(**values: Any) -> float:
    """An integer >= 1 as float64.

    Raises:
        ValueError: anything else, or one beyond the largest float64.
    """
    validate.integer(**values)
    ((name, value),) = values.items()
    try:
        return float(value)
    except OverflowError as error:
        size = f"{value.bit_length()} bits"
        raise ValueError(f"{name} must be an integer of at most {LARGEST:g}, got one of {size}") from error
