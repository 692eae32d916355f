"""What could be published with a guarantee of differential privacy: private components, a map of synthetic records.

Each is rehearsed with noise from a key on the audited records, whose ranges stand in for public ones. A release asks
for stated or public ones (`drjax release schema`), so that it may keep somewhat less.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from sklearn.neighbors import NearestNeighbors

from drjax.attacks.shadow import DENSE_FLOPS
from drjax.bounds import rero
from drjax.bounds.curve import TradeOff
from drjax.core.types import Array, DRMethod
from drjax.decisions.audited import Audited, Made
from drjax.decisions.options import OfSameMethod, Option, data_word, method_words, refit_seconds, refitted
from drjax.decisions.statistics_attacks import in_and_beside
from drjax.releases import rehearsed
from drjax.releases.mechanism import DELTA

EPSILONS = (1.0, 4.0)
"""Epsilons of the guarantees that are tried."""

N_NOISE = 8
"""Rehearsals that the deviation of the noise is measured on."""

N_BLIND = 8
"""Sets of directions at random that private components are held against; of tables at random, of few records."""

FEW = 1000
"""Records up to which a map of synthetic ones is held against as many maps that know nothing."""

FORM, FOLDER = "form.json", "published"
"""File and folder of the commands."""


@dataclass(frozen=True)
class Guaranteed(OfSameMethod):
    """What options with a guarantee share.

    Attributes:
        epsilon: Epsilon of the guarantee.
    """

    epsilon: float

    @property
    def guarantee(self) -> str:
        """See `Option`."""
        return f"epsilon {self.epsilon:g}, delta {DELTA:g}"

    def release(self, audited: Audited, kind: str, *more: str) -> str:
        """The commands that write a form to fill in and release by it."""
        data = data_word(audited)
        words = ["drjax", "release", kind, data, "--epsilon", f"{self.epsilon:g}", "--bounds", FORM, "--out", FOLDER]
        form = ["drjax", "release", "schema", data, "--out", FORM]
        return f"{shlex.join(form)}   # fill it in, then: {shlex.join([*words, *more])}"


@dataclass(frozen=True)
class PrivateComponents(Guaranteed):
    """Principal components and mean with noise; no record's own coordinates."""

    is_map = False

    @property
    def name(self) -> str:
        """See `Option`."""
        return f"private-components-{self.epsilon:g}"

    @property
    def label(self) -> str:
        """See `Option`."""
        return f"Principal components with a guarantee (epsilon {self.epsilon:g}), and no record's own coordinates"

    def command(self, audited: Audited) -> str:
        """See `Option`."""
        return self.release(audited, "pca", "--n-components", str(audited.config.n_components))

    def seconds(self, audited: Audited) -> float:
        """See `Option`."""
        return 3.0 + _rehearsing(audited, 10.0)

    def make(self, key: Array, audited: Audited) -> Made:
        """See `Option`; coordinates are what whoever holds the records sees by the components."""
        x, k = audited.data.x.astype(np.float64), audited.every.coords.shape[1]

        def rehearsal(one: Array) -> rehearsed.Components:
            return rehearsed.components(one, x, self.epsilon, n_components=k, blocks=blocks_of(audited))

        found = rehearsal(key)
        coords = (x - found.center) / found.scale @ found.components.T
        drawn = [rehearsal(one) for one in _noise_keys(key)]
        statistic = _means(audited, found.center, [one.center for one in drawn], found.curve)
        statistic |= _leak(audited, found.components, [one.components for one in drawn])
        # Directions at random show something of the records, too.
        at_random = np.asarray(jax.random.normal(jax.random.fold_in(key, 2), (N_BLIND, x.shape[1], k)), np.float64)
        blind = x @ np.linalg.qr(at_random)[0]
        return Made(np.arange(audited.n), audited.every.x, coords, self.method(audited), statistic, blind=blind)


@dataclass(frozen=True)
class SyntheticMap(Guaranteed):
    """A map of synthetic records, of which none is a person."""

    @property
    def name(self) -> str:
        """See `Option`."""
        return f"synthetic-map-{self.epsilon:g}"

    @property
    def label(self) -> str:
        """See `Option`."""
        return f"A map of synthetic records with a guarantee (epsilon {self.epsilon:g})"

    def command(self, audited: Audited) -> str:
        """See `Option`."""
        return self.release(audited, "map", *method_words(audited))

    def method(self, audited: Audited) -> DRMethod:
        """See `Option`."""
        return audited.maker

    def make(self, key: Array, audited: Audited) -> Made:
        """See `Option`; each record lies where the synthetic one lies that is nearest to it."""
        x = audited.data.x.astype(np.float64)

        def rehearsal(one: Array) -> rehearsed.SyntheticRecords:
            return rehearsed.table(one, x, self.epsilon, blocks=blocks_of(audited))

        made, curve = rehearsal(key)
        coords = self._placed(jax.random.fold_in(key, 1), audited, made)
        # Maps of records drawn at random have places for the real ones, too; of few records they differ much.
        keys = jax.random.split(jax.random.fold_in(key, 2), N_BLIND if audited.n <= FEW else 1)
        blind = np.stack([self._placed(one, audited, _uniform(one, audited)) for one in keys])
        # Of each table its sums alone: eight tables may not fit.
        drawn = [(one.mean(axis=0), _moment(audited, one)) for one in (rehearsal(own).x for own in _noise_keys(key))]
        means, moments = zip(*drawn, strict=True)
        statistic = _means(audited, made.mean(axis=0), means, curve) | _moments(audited, made, moments)
        return Made(np.arange(audited.n), audited.every.x, coords, self.method(audited), statistic, blind=blind)

    def seconds(self, audited: Audited) -> float:
        """See `Option`."""
        maps = 1 + (N_BLIND if audited.n <= FEW else 1)
        return 5.0 + maps * refit_seconds(audited, audited.n) + _rehearsing(audited, 20.0)

    def _placed(self, key: Array, audited: Audited, made: np.ndarray) -> np.ndarray:
        """(n, k) where each record lies on a map of others, which is where the nearest of those does."""
        x = audited.data.x.astype(np.float64)
        scale = np.where(x.std(axis=0) > 0, x.std(axis=0), 1)
        nearest = NearestNeighbors(n_neighbors=1).fit(made / scale).kneighbors(x / scale, return_distance=False)
        return refitted(key, audited, self.method(audited), _in_units(audited, made))[nearest[:, 0]]


def guaranteed_for(audited: Audited) -> tuple[Option, ...]:
    """The options with a guarantee for an audited release; none of so many records that delta would give one away."""
    if not 1 / audited.n > DELTA:
        return ()
    kinds = (PrivateComponents, SyntheticMap)
    return tuple(kind(epsilon) for kind in kinds for epsilon in EPSILONS)


def blocks_of(audited: Audited) -> list[list[int]]:
    """Places of the one-hot features of each category of a table."""
    data = audited.data
    if data.plan is None or data.feature_names is None:
        return []
    found = []
    for column in data.plan.used:
        places = [
            j
            for j, (source, name) in enumerate(zip(data.sources, data.feature_names, strict=True))
            if source == column.name and column.kind == "category" and name.startswith(f"{column.name}=")
        ]
        if len(places) > 1:
            found.append(places)
    return found


def _uniform(key: Array, audited: Audited) -> np.ndarray:
    """(n, d) records that know nothing but what each feature may be."""
    drawn = np.asarray(jax.random.uniform(key, audited.data.x.shape), np.float64)
    for block in blocks_of(audited):
        drawn[:, block] = drawn[:, block] == drawn[:, block].max(axis=1, keepdims=True)
    return drawn


def _noise_keys(key: Array) -> list[Array]:
    """Keys of the further rehearsals that noise is measured on."""
    return [jax.random.fold_in(key, 100 + i) for i in range(N_NOISE)]


def _rehearsing(audited: Audited, cubic: float) -> float:
    """Seconds of all rehearsals, of which each takes 2 n d^2 operations and `cubic` times d^3."""
    n, d = audited.data.x.shape
    return (1 + N_NOISE) * (2.0 * n * d**2 + cubic * d**3) / DENSE_FLOPS


def _means(audited: Audited, mean: np.ndarray, drawn: Sequence[np.ndarray], curve: TradeOff) -> dict[str, Any]:
    """The noisy mean and the deviation of its noise over further rehearsals, in the units of the audited records; and
    what the trade-off curve leaves to any attack that tells a record from all n."""
    truth = audited.data.x.astype(np.float64).mean(axis=0)
    deviation = np.sqrt(np.mean((np.stack(drawn) - truth) ** 2, axis=0))
    shift = _in_units(audited, mean)
    ceiling = rero.from_tradeoff(np.asarray(1 / audited.n), curve)
    return {"mean": shift, "deviation": _in_units(audited, mean + deviation) - shift, "ceiling": ceiling}


def _moments(audited: Audited, made: np.ndarray, drawn: Sequence[np.ndarray]) -> dict[str, Any]:
    """The second moment of synthetic records, and its root mean square error over those of further rehearsals."""
    truth = _moment(audited, audited.data.x.astype(np.float64))
    return {
        "moment": _moment(audited, made),
        "moment_deviation": np.sqrt(np.mean([(one - truth) ** 2 for one in drawn], axis=0)),
    }


def _leak(audited: Audited, components: np.ndarray, drawn: Sequence[np.ndarray]) -> dict[str, Any]:
    """Noisy components, and how far those of further rehearsals are from components of the records' own scatter."""
    scatter = len(audited.data.x) * np.cov(audited.data.x.astype(np.float64), rowvar=False, bias=True)
    squares = np.zeros_like(scatter)
    for one in drawn:
        inside, beside = in_and_beside(one)
        squares += (inside @ scatter @ beside) ** 2
    unit = np.ones(len(scatter))
    if audited.is_map_given:
        unit = np.where(np.asarray(audited.data.scale) > 0, audited.data.scale, 1.0)
    return {"components": components, "leak_deviation": np.sqrt(squares / len(drawn)), "unit": unit}


def _moment(audited: Audited, records: np.ndarray) -> np.ndarray:
    """(d, d) mean of t t' over records t in [0, 1], in the units of the audited ones."""
    own = _in_units(audited, records)
    return own.T @ own / len(own)


def _in_units(audited: Audited, records: np.ndarray) -> np.ndarray:
    """Records in [0, 1] in the units that the method was given."""
    if not audited.is_map_given:
        return records
    return records * audited.data.scale + audited.data.offset
