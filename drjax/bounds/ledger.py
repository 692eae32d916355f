"""A budget ledger: a file of the releases made from one data set, which refuses the one that would go over.

    ledger = Ledger.create("clinic.json", dataset="clinic", sha256=fingerprint(x), neighbouring="zero_out",
                           epsilon=2.0, delta=1e-6, accountant="zcdp")
    ledger.spend(release.curve, "mean of the first visit")

Spend before anything is published, and best before noise is drawn: what has been spent and not published costs budget,
what has been published and not spent costs privacy. Accountants, and what is proven of each:

- "basic" adds the epsilons and deltas of (epsilon, delta) and pure curves, as the decimals they are written as. The
  parameters of a release may be chosen after a look at the results before it (Rogers, Roth, Ullman & Vadhan 2016).
- "gdp" takes Gaussian curves and adds mu^2; parameters may be chosen likewise (Smith & Thakurta 2022; Koskela, Tobaben
  & Honkela 2023).
- "zcdp" takes Gaussian, zCDP and pure curves and adds rho, which is mu^2 / 2 or epsilon^2 / 2 (Bun & Steinke 2016);
  parameters may be chosen likewise (Feldman & Zrnic 2021; Whitehouse, Ramdas, Rogers & Wu 2023).
- "losses" takes all kinds and composes by `tradeoff.compose`, which is tighter for what is not Gaussian. The parameters
  of all releases, and how many there are, must be fixed in advance.

The file may be read while it is changed, survives a kill, and shows damage or a careless edit. It does not show a
forger who recomputes the hashes, or an old copy put back. Its fingerprint lets whoever guesses the data set confirm the
guess: do not publish a ledger whose records are few or come from a short list. Nothing here sees a second ledger of
the same records: keep one.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from drjax.bounds import tradeoff
from drjax.bounds.curve import RELATIONS, TradeOff, number
from drjax.bounds.curve_json import decoded, encoded
from drjax.bounds.gdp import check_positive
from drjax.bounds.ledger_file import SCHEMA_VERSION, chained, load, locked, replace
from drjax.bounds.rounding import root_of_squares
from drjax.core import validate
from drjax.core.types import Array

ACCOUNTANTS = ("basic", "gdp", "losses", "zcdp")
"""How what is spent is added up; see the top of this module."""


class BudgetExceeded(ValueError):
    """A release would cost more than is left; nothing was written.

    Attributes:
        remaining: What `Ledger.remaining` gives.
    """

    def __init__(self, message: str, remaining: TradeOff) -> None:
        super().__init__(message)
        self.remaining = remaining


class Entry(NamedTuple):
    """One release that was paid for.

    Attributes:
        label: What was released.
        curve: Trade-off curve of its guarantee.
        utc: Time of the entry, ISO 8601.
        hash: SHA-256 of this entry and of all before it.
    """

    label: str
    curve: TradeOff
    utc: str
    hash: str


@dataclass(frozen=True, kw_only=True)
class Ledger:
    """The ledger in one file, made by `create` or `open`; every call reads the file anew.

    Attributes:
        path: The file.
        dataset: Name of the data set.
        sha256: Fingerprint of the data set, 64 hexadecimal digits.
        neighbouring: Relation that all curves must be for, a name in `drjax.bounds.curve.RELATIONS`.
        epsilon: The budget, > 0.
        delta: The budget, in [0, 1); > 0 for every accountant but "basic".
        accountant: A name in `ACCOUNTANTS`.

    Example:
        >>> import tempfile
        >>> from drjax.bounds import ledger, tradeoff
        >>> about = {"dataset": "clinic", "sha256": ledger.fingerprint([[1.0, 2.0]]), "neighbouring": "replace_one"}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     budget = ledger.Ledger.create(f"{folder}/clinic.json", **about, epsilon=4.0, delta=1e-5)
        ...     entry = budget.spend(tradeoff.Gaussian(0.5, neighbouring="replace_one"), "first release")
        ...     round(budget.spent().epsilon_at(1e-5), 2), round(budget.remaining().epsilon_at(1e-5), 2)
        (1.99, 3.28)
    """

    path: Path
    dataset: str
    sha256: str
    neighbouring: str
    epsilon: float
    delta: float
    accountant: str

    def __post_init__(self) -> None:
        """Checks every field."""
        _check_text(dataset=self.dataset)
        if not (isinstance(self.sha256, str) and re.fullmatch("[0-9a-f]{64}", self.sha256)):
            raise ValueError(f"sha256 must be 64 hexadecimal digits in lower case, got {self.sha256!r}")
        validate.one_of(RELATIONS, neighbouring=self.neighbouring)
        validate.one_of(ACCOUNTANTS, accountant=self.accountant)
        check_positive(epsilon=number(epsilon=self.epsilon))
        if not 0 <= float(number(delta=self.delta)) < 1:
            raise ValueError(f"delta must be in [0, 1), got {self.delta!r}")
        if not (self.delta or self.accountant == "basic"):
            raise ValueError(f"delta must be > 0 for the accountant {self.accountant!r}, got {self.delta!r}")
        object.__setattr__(self, "epsilon", float(self.epsilon))
        object.__setattr__(self, "delta", float(self.delta))

    @classmethod
    def create(
        cls,
        path: Path | str,
        *,
        dataset: str,
        sha256: str,
        neighbouring: str,
        epsilon: float,
        delta: float,
        accountant: str = "gdp",
        timeout: float = 60.0,
    ) -> Ledger:
        """Makes the file, of the attributes given.

        Args:
            path: A new file on a disk of this machine (locks over a network may not hold), in a folder that exists.
            dataset, sha256, neighbouring, epsilon, delta, accountant: Attributes of the class; sha256 is what
                `fingerprint` gives, or that of a file.
            timeout: Seconds to wait for another process.

        Raises:
            ValueError: an argument out of its range.
            FileExistsError: the file exists.
            TimeoutError: another process holds the lock.
            OSError: the file system has no locks, or cannot be written.
        """
        given = {"dataset": dataset, "sha256": sha256, "neighbouring": neighbouring, "accountant": accountant}
        ledger = cls(path=Path(path).resolve(), epsilon=epsilon, delta=delta, **given)
        with locked(ledger.path, timeout):
            if ledger.path.exists():
                raise FileExistsError(f"path must be a new file, got {ledger.path}")
            ledger._write([])
        return ledger

    @classmethod
    def open(cls, path: Path | str, *, sha256: str | None = None, neighbouring: str | None = None) -> Ledger:
        """The ledger in a file.

        Args:
            path: The file.
            sha256: Fingerprint of the data at hand, which must be that of the ledger.
            neighbouring: Relation in use, which must be that of the ledger.

        Raises:
            FileNotFoundError: no such file.
            ValueError: a damaged file, one of another schema version, or another fingerprint or relation.
        """
        where = Path(path).resolve()
        header = load(where)[0]
        ledger = cls(path=where, **{name: value for name, value in header.items() if name != "schema"})
        for name, given in (("sha256", sha256), ("neighbouring", neighbouring)):
            if given is not None and given != getattr(ledger, name):
                raise ValueError(f"{name} must be that of the ledger, {getattr(ledger, name)}; got {given!r}")
        return ledger

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All releases in order, read from the file; raises as `open`, or ValueError if another ledger is there now."""
        header, rows = load(self.path)
        if header != self._header():
            raise ValueError(f"path must still hold the ledger that was opened, got another one in {self.path}")
        return tuple(
            Entry(row["label"], decoded(row["curve"], self.neighbouring), row["utc"], row["hash"]) for row in rows
        )

    def spend(self, curve: TradeOff, label: str, *, timeout: float = 60.0) -> Entry:
        """Enters one release, and returns once that is on the disk.

        Costs a read and a write of the file, and what the accountant takes.

        Args:
            curve: Guarantee of the release, of a kind in `KINDS` that the accountant takes, its relation named.
            label: What is released.
            timeout: Seconds to wait for another process.

        Raises:
            BudgetExceeded: it costs more than is left; nothing was written.
            ValueError: another relation, a curve that cannot be stored or added, an empty label, or a damaged file.
            TimeoutError: another process holds the lock.
            ImportError: "losses" without dp-accounting.
            OSError: the file system has no locks, or cannot be written.
        """
        _check_text(label=label)
        if not isinstance(curve, TradeOff):
            raise ValueError(f"curve must be a trade-off curve, got {curve!r}")
        if curve.neighbouring != self.neighbouring:
            raise ValueError(f"curve must name the ledger's relation, {self.neighbouring}; got {curve.neighbouring}")
        stored = encoded(curve)
        with locked(self.path, timeout):
            before = self.entries
            curves = [*(entry.curve for entry in before), curve]
            if self._fits(curves):
                content = {"label": label, "curve": stored, "utc": datetime.now(UTC).isoformat(timespec="seconds")}
                previous = before[-1].hash if before else chained("", self._header())
                entry = Entry(label, decoded(stored, self.neighbouring), content["utc"], chained(previous, content))
                self._write([*before, entry])
                return entry
        left, after = self.remaining(), self._total(curves).epsilon_at(self.delta)
        raise BudgetExceeded(
            f"{label!r} must fit into what is left of epsilon {self.epsilon:g} at delta {self.delta:g}, {left}; "
            f"got {curve}, which makes epsilon {after:.6g}",
            left,
        )

    def spent(self) -> TradeOff:
        """The curve of all entries together, whose `epsilon_at` gives an epsilon at any delta; raises as `entries`."""
        return self._total([entry.curve for entry in self.entries])

    def remaining(self) -> TradeOff:
        """The largest curve that could still be spent: (epsilon, delta) for "basic", rho for "zcdp", else a Gaussian.

        Found by bisection, from below: to 12 digits; to 2 for "losses", with some 10 compositions. Raises as `entries`.
        """
        curves = [entry.curve for entry in self.entries]
        if self.accountant == "basic":
            sums = _sums(curves)
            left = [
                _down(_decimal(limit) - total) for limit, total in zip((self.epsilon, self.delta), sums, strict=True)
            ]
            return tradeoff.EpsilonDelta(*left, neighbouring=self.neighbouring)
        kind = tradeoff.ZCDP if self.accountant == "zcdp" else tradeoff.Gaussian

        def fits(size: float) -> bool:
            return self._fits([*curves, kind(size, neighbouring=self.neighbouring)])

        return kind(_largest(fits, 1e-2 if self.accountant == "losses" else 1e-12), neighbouring=self.neighbouring)

    def _total(self, curves: Sequence[TradeOff]) -> TradeOff:
        match self.accountant:
            case "basic":
                epsilon, delta = (_up(total, _decimal) for total in _sums(curves))
                return tradeoff.EpsilonDelta(epsilon, min(1.0, delta), neighbouring=self.neighbouring)
            case "gdp":
                return tradeoff.Gaussian(root_of_squares(map(_mu, curves)), neighbouring=self.neighbouring)
            case "zcdp":
                return tradeoff.ZCDP(_up(sum(map(_rho, curves), Fraction(0)), Fraction), neighbouring=self.neighbouring)
        # One Gaussian for all of them: exact, and cheaper than so many distributions of losses.
        gaussian = [curve for curve in curves if isinstance(curve, tradeoff.Gaussian)]
        others = [curve for curve in curves if not isinstance(curve, tradeoff.Gaussian)]
        mu = root_of_squares(map(_mu, gaussian))
        merged = [tradeoff.Gaussian(mu, neighbouring=self.neighbouring)] if mu or not others else []
        return tradeoff.compose(*merged, *others)

    def _fits(self, curves: Sequence[TradeOff]) -> bool:
        if self.accountant == "basic":
            epsilon, delta = _sums(curves)
            return epsilon <= _decimal(self.epsilon) and delta <= _decimal(self.delta)
        return self._total(curves).delta_at(self.epsilon) <= self.delta

    def _header(self) -> dict[str, Any]:
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name != "path"}
        return {"schema": SCHEMA_VERSION, **fields}

    def _write(self, entries: Sequence[Entry]) -> None:
        """Puts the file in place of the old one; who calls it holds the lock."""
        rows = [{**entry._asdict(), "curve": encoded(entry.curve)} for entry in entries]
        head = entries[-1].hash if entries else chained("", self._header())
        document = {"header": self._header(), "entries": rows, "head": head}
        replace(self.path, document)


def fingerprint(array: Array) -> str:
    """SHA-256, in hexadecimal, of an array's type, shape and entries in C order, the same on every platform.

    Any change of a bit, of the order of records or of the type gives another one. O(size).

    Raises:
        ValueError: not numbers or booleans.

    Example:
        >>> import numpy as np
        >>> from drjax.bounds.ledger import fingerprint
        >>> x = np.zeros((3, 2))
        >>> len(fingerprint(x)), fingerprint(x) == fingerprint(x + 1e-300)
        (64, False)
    """
    given = np.asarray(array)
    if given.dtype.kind not in "biuf":
        raise ValueError(f"array must be of numbers or booleans, got dtype {given.dtype}")
    entries = np.ascontiguousarray(given.astype(given.dtype.newbyteorder("<"), copy=False))
    digest = hashlib.sha256(f"{entries.dtype.str} {given.shape} ".encode())
    digest.update(entries.tobytes())
    return digest.hexdigest()


def _mu(curve: TradeOff) -> float:
    if isinstance(curve, tradeoff.Gaussian):
        return float(curve.mu)
    raise ValueError(f"curve must be Gaussian for the accountant 'gdp', got {curve}: 'zcdp', 'losses' take others")


def _rho(curve: TradeOff) -> Fraction:
    match curve:
        case tradeoff.ZCDP():
            return Fraction(float(curve.rho))
        case tradeoff.Gaussian():
            return Fraction(float(curve.mu)) ** 2 / 2
    epsilon, delta = _epsilon_delta(curve)
    if delta:
        raise ValueError(f"curve must be Gaussian, zCDP or pure for the accountant 'zcdp', got {curve}")
    return Fraction(epsilon) ** 2 / 2


def _epsilon_delta(curve: TradeOff) -> tuple[float, float]:
    match curve:
        case tradeoff.EpsilonDelta():
            return float(curve.epsilon), float(curve.delta)
        case tradeoff.Laplace():
            return float(curve.mu), 0.0
        case tradeoff.RandomizedResponse() if curve.truth < 1:
            return curve.epsilon, 0.0
    raise ValueError(
        f"curve must be pure or (epsilon, delta) for this accountant, got {curve}: 'basic' takes "
        "EpsilonDelta(curve.epsilon_at(delta), delta, neighbouring=curve.neighbouring)"
    )


def _decimal(value: float) -> Fraction:
    """The number as it is written: ten times 0.1 is 1, which it is not of the float64 numbers."""
    return Fraction(repr(float(value)))


def _sums(curves: Sequence[TradeOff]) -> tuple[Fraction, Fraction]:
    """Sums of the epsilons and of the deltas, in decimals."""
    pairs = [_epsilon_delta(curve) for curve in curves]
    return sum((_decimal(e) for e, _ in pairs), Fraction(0)), sum((_decimal(d) for _, d in pairs), Fraction(0))


def _up(value: Fraction, read: Callable[[float], Fraction]) -> float:
    """The least float64 that, read so, is not below."""
    rounded = float(value)
    return rounded if read(rounded) >= value else math.nextafter(rounded, math.inf)


def _down(value: Fraction) -> float:
    """The largest float64 whose decimal is not above; 0 for what is below."""
    rounded = float(max(value, Fraction(0)))
    return rounded if _decimal(rounded) <= value else max(0.0, math.nextafter(rounded, 0.0))


def _largest(fits: Callable[[float], bool], digits: float) -> float:
    """The largest size that fits, from below; sizes up to 1e-9 count as 0."""
    low, high = 0.0, 1.0
    while fits(high):
        low, high = high, 2 * high
    while high - low > digits * high and high > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _check_text(**values: Any) -> None:
    for name, value in values.items():
        if not (isinstance(value, str) and value.strip()):
            raise ValueError(f"{name} must be a text that is not empty, got {value!r}")
