"""The minimum of a function of one number."""

from __future__ import annotations

from collections.abc import Callable

GOLDEN = 0.6180339887498949


def minimum(function: Callable[[float], float], low: float, high: float, *, tol: float = 0.02) -> tuple[float, float]:
    """The place of the least value in [low, high], to `tol`, and that value: golden section, of one valley."""
    left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    at_left, at_right = function(left), function(right)
    while high - low > tol:
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - GOLDEN * (high - low)
            at_left = function(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + GOLDEN * (high - low)
            at_right = function(right)
    return (left, at_left) if at_left <= at_right else (right, at_right)
