"""Charging a release to a budget ledger before its noise is drawn."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from drjax.bounds import tradeoff
from drjax.bounds.curve import TradeOff
from drjax.bounds.ledger import Ledger


def entry_curve(ledger: Ledger, curve: TradeOff, delta: float) -> TradeOff:
    """What a ledger is charged for a curve: the cheapest for its accountant of what the curve says.

    Args:
        ledger: "basic" takes (epsilon, delta), "zcdp" and "losses" the curve itself; of a minimum, its cheapest part.
        curve: Guarantee of the release.
        delta: Delta at which "basic" is charged.
    """
    parts = tuple(curve.curves) if isinstance(curve, tradeoff.Minimum) else (curve,)
    if ledger.accountant == "basic":
        pure = [part for part in parts if isinstance(part, tradeoff.EpsilonDelta)]
        if pure:
            return min(pure, key=lambda part: part.epsilon)
        return tradeoff.EpsilonDelta(curve.epsilon_at(delta), delta, neighbouring=curve.neighbouring)
    return min(parts, key=lambda part: part.epsilon_at(ledger.delta))


def check_budget(path: Path, sha256: str, neighbouring: str, curve: TradeOff, delta: float, label: str) -> None:
    """Whether a ledger would take a release, without entering it.

    Raises:
        FileNotFoundError: no such file.
        BudgetExceeded: the release costs more than is left.
        ValueError: a ledger of other records or another relation, a damaged file, or a curve that its accountant does
            not take.
    """
    ledger = Ledger.open(path, sha256=sha256, neighbouring=neighbouring)
    with tempfile.TemporaryDirectory() as folder:
        # The ledger's own rules on a copy: there is no second opinion that could differ.
        copy = Path(folder) / "ledger.json"
        shutil.copyfile(path, copy)
        Ledger.open(copy).spend(entry_curve(ledger, curve, delta), label)


def charge(path: Path, sha256: str, neighbouring: str, curve: TradeOff, delta: float, label: str) -> None:
    """Enters a release and returns once that is on the disk; raises as `check_budget`, and TimeoutError."""
    ledger = Ledger.open(path, sha256=sha256, neighbouring=neighbouring)
    ledger.spend(entry_curve(ledger, curve, delta), label)
