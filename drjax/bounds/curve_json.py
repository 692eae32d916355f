"""Trade-off curves as JSON."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from drjax.bounds import tradeoff
from drjax.bounds.curve import TradeOff

KINDS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        tradeoff.EpsilonDelta,
        tradeoff.Gaussian,
        tradeoff.Laplace,
        tradeoff.RandomizedResponse,
        tradeoff.RDP,
        tradeoff.ZCDP,
    )
}
"""Curves that a file holds, by name: those that a few numbers describe."""


def encoded(curve: TradeOff) -> dict[str, Any]:
    """A curve as JSON: its kind and parameters; the relation is kept apart."""
    name = type(curve).__name__
    if KINDS.get(name) is not type(curve):
        raise ValueError(
            f"curve must be one of {', '.join(KINDS)} to be stored, got {name}: where the accountant is 'basic', spend "
            "EpsilonDelta(curve.epsilon_at(delta), delta, neighbouring=curve.neighbouring)"
        )
    values = {field.name: getattr(curve, field.name) for field in dataclasses.fields(curve)}
    return {"kind": name, **{key: _plain(value) for key, value in values.items() if key != "neighbouring"}}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, (int, np.integer)):
        return int(value)
    # JSON has no infinity, which orders of RDP may be.
    return float(value) if math.isfinite(value) else "inf"


def decoded(stored: dict[str, Any], neighbouring: str) -> TradeOff:
    """The curve of what `encoded` gave, of the relation."""

    def inner(value: Any) -> Any:
        return [inner(entry) for entry in value] if isinstance(value, list) else math.inf if value == "inf" else value

    parameters = {key: inner(value) for key, value in stored.items() if key != "kind"}
    return KINDS[stored["kind"]](neighbouring=neighbouring, **parameters)
