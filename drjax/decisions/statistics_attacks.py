"""Attacks on what an option publishes of all records together, where it publishes no coordinates of any.

Each attack names the numbers that it needs in its fields: those that an option keeps in `Made.statistic`. The mean is
attacked in the search; what else is published, in the final check alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from drjax.attacks.attack import EmbeddingAttack, EveryRecord
from drjax.core.types import Array, Reconstruction, Status

N_STEPS = 20
"""Steps of the power iteration."""


@dataclass(frozen=True, kw_only=True)
class DifferenceOfMeans(EmbeddingAttack):
    """The noisy mean less the known records, weighed by the noise: the best linear guess of the one unknown record.

    Attributes:
        mean: (d,) noisy mean of all records.
        deviation: (d,) standard deviation of its noise, which the adversary measures on rehearsals.
    """

    name: str = "difference"
    label: str = "Difference of means"
    description: str = (
        "Subtracts the known records from the noisy mean, and weighs what is left by the noise of rehearsals."
    )
    mean: Any = None
    deviation: Any = None

    def run_each(self, key: Array, every: EveryRecord) -> Reconstruction:
        """See `EmbeddingAttack`; nothing is drawn."""
        del key
        others, away = _by_means(every, np.asarray(self.mean), np.asarray(self.deviation))
        return _found(others + away, every)


@dataclass(frozen=True, kw_only=True)
class DifferenceOfMoments(EmbeddingAttack):
    """The second moment of synthetic records less that of the known ones; kept for the final check.

    What is left is the unknown record times itself, with noise. Each entry is weighed as the mean is, and the record
    read off along the mean of the known ones: (t t') a / sqrt(a' t t' a) is t, or -t.

    Attributes:
        moment: (d, d) second moment about 0 of the synthetic records.
        moment_deviation: (d, d) standard deviation of its error, which the adversary measures on rehearsals.
    """

    name: str = "moments"
    label: str = "Difference of second moments"
    description: str = (
        "Subtracts the known records from the second moment of the synthetic ones, and weighs what is left by the "
        "errors of rehearsals."
    )
    moment: Any = None
    moment_deviation: Any = None

    def run_each(self, key: Array, every: EveryRecord) -> Reconstruction:
        """See `EmbeddingAttack`; nothing is drawn."""
        del key
        x, rows = every.x.astype(np.float64), np.asarray(every.rows)
        n, total, whole = len(x), x.sum(axis=0), x.T @ x
        variance = np.maximum((x**2).T @ (x**2) / n - (whole / n) ** 2, 0)
        noise = (n * np.asarray(self.moment_deviation)) ** 2
        weight = _weight(variance, noise)
        own, others = x[rows], (total - x[rows]) / (n - 1)
        # (E + w * (D - E)) a for the usual square E of a known record and the difference D, for all rows at once.
        left = weight * (n * np.asarray(self.moment) - whole - whole / (n - 1))
        along = (others @ whole - own * np.sum(own * others, axis=1, keepdims=True)) / (n - 1) + others @ left.T
        along += n / (n - 1) * own * ((own * others) @ weight.T)
        length = np.sum(others * along, axis=1, keepdims=True)
        found = np.where(length > 0, along / np.sqrt(np.where(length > 0, length, 1)), others)
        return _found(found, every)


@dataclass(frozen=True, kw_only=True)
class LeakIntoComponents(EmbeddingAttack):
    """What keeps the components from being those of the known records alone; kept for the final check.

    Components V of all records make V S (1 - V'V) vanish for their scatter S. That of the known records leaves
    -(n - 1) / n p q' there, where p and q are the parts of the unknown record's difference from the others' mean that
    lie in the components and beside them. Each entry is weighed as the mean is, and p and q are read off as the leading
    singular vectors. How long p is beside q the others say, and which way the difference points, the noisy mean.

    Attributes:
        mean: (d,) noisy mean of all records.
        deviation: (d,) standard deviation of its noise.
        components: (k, d) orthonormal rows.
        leak_deviation: (d, d) root mean square of V'V S (1 - V'V) over rehearsals.
        unit: (d,) what features are divided by before.
    """

    name: str = "leak"
    label: str = "Leak into the components"
    description: str = (
        "Takes what keeps the components from being those of the known records, and weighs it by the errors of "
        "rehearsals."
    )
    mean: Any = None
    deviation: Any = None
    components: Any = None
    leak_deviation: Any = None
    unit: Any = None

    def run_each(self, key: Array, every: EveryRecord) -> Reconstruction:
        """See `EmbeddingAttack`; the power iteration starts from a draw by the key."""
        x, unit = every.x.astype(np.float64) / self.unit, np.asarray(self.unit)
        n, d = x.shape
        middle = x.mean(axis=0)
        others, away = _by_means(every, np.asarray(self.mean), np.asarray(self.deviation))
        inside, beside = in_and_beside(np.asarray(self.components))
        centred = x - middle
        own = n / (n - 1) * centred[every.rows]
        p, q = own @ inside, own @ beside
        expected = ((centred @ inside) ** 2).T @ ((centred @ beside) ** 2) / n
        weight = _weight(expected, (n / (n - 1) * np.asarray(self.leak_deviation)) ** 2)
        # Of all records the leak is that of the noise; the known ones' has p q' beside it.
        left = -n / (n - 1) * weight * (inside @ (centred.T @ centred) @ beside)

        b = np.broadcast_to(np.asarray(jax.random.normal(key, (d,)), np.float64), p.shape)
        a, size = b, np.zeros((len(b), 1))
        for _ in range(N_STEPS):
            a = _unit(b @ left.T + p * ((q * b) @ weight.T))[0]
            b, size = _unit(a @ left + q * ((p * a) @ weight))
        shares = np.sum((centred @ inside) ** 2), np.sum((centred @ beside) ** 2)
        ratio = np.sqrt(shares[0] / shares[1]) if shares[1] > 0 else 0.0
        length = np.sqrt(size * ratio)
        rest = np.where(length > 0, size / np.where(length > 0, length, 1), 0)
        found = (length * a @ inside + rest * b @ beside) * unit
        sign = np.where(np.sum(found / unit * (away / unit), axis=1, keepdims=True) < 0, -1.0, 1.0)
        return _found(others + sign * found, every)


def first_of(kinds: Sequence[type[EmbeddingAttack]], statistic: Mapping[str, Any]) -> EmbeddingAttack:
    """The first attack of some kinds that has all that it needs of what is published of all records together."""
    kind = next(kind for kind in kinds if statistic.keys() >= set(needs(kind)))
    return kind(**{name: statistic[name] for name in needs(kind)})


def needs(kind: type[EmbeddingAttack]) -> tuple[str, ...]:
    """Names of the numbers that an attack of a kind needs."""
    inherited = {field.name for field in dataclasses.fields(EmbeddingAttack)}
    return tuple(field.name for field in dataclasses.fields(kind) if field.name not in inherited)


def in_and_beside(components: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Projections (d, d) onto the span of orthonormal rows and onto what is left."""
    inside = components.T @ components
    return inside, np.eye(len(inside)) - inside


def _by_means(every: EveryRecord, mean: np.ndarray, deviation: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(m, d) means of the other records, and how far a noisy mean of all says that the attacked ones lie from them."""
    x, rows = every.x.astype(np.float64), np.asarray(every.rows)
    n = len(x)
    others = (x.sum(axis=0) - x[rows]) / (n - 1)
    seen = n * mean - (n - 1) * others
    # The variance of the known records: that of all, less the attacked record's own part.
    variance = np.maximum(n / (n - 1) * x.var(axis=0) - (x[rows] - others) ** 2 / n, 0)
    return others, _weight(variance, (n * deviation) ** 2) * (seen - others)


def _weight(variance: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Share of a difference that is due to the record and not to noise."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(variance > 0, variance / (variance + noise), 0)


def _unit(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows of length 1, and their lengths (m, 1); rows of 0 stay."""
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(length > 0, length, 1), length


def _found(x: np.ndarray, every: EveryRecord) -> Reconstruction:
    x = x if every.bounds is None else np.clip(x, *every.bounds)
    return Reconstruction(x, None, x[:, None], np.full(len(x), np.nan), np.full(len(x), np.uint32(Status.OK)))


SEARCHED: tuple[type[EmbeddingAttack], ...] = (DifferenceOfMeans,)
"""Attacks of a search."""

KEPT: tuple[type[EmbeddingAttack], ...] = (DifferenceOfMoments, LeakIntoComponents)
"""Attacks that are kept for the final check."""

NAMES = tuple(dict.fromkeys(name for kind in (*SEARCHED, *KEPT) for name in needs(kind)))
"""What an option keeps for attacks on it."""
