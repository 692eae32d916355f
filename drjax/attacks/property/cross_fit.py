"""An attack trained once on maps of each part of the shadow records, and tried on the maps of the other parts.

The victim's records are new to the attack. Maps of the records that it was trained on are not, and errors on them would
be too small; here no map is ever judged by a model that has seen one of its records. An attack errs more at some shares
than at others, so a share is compared with maps of shares near it.

Source: Vovk (2015), "Cross-conformal predictors", and Vovk, Lindsay, Nouretdinov & Gammerman (2003), "Mondrian
confidence machine", for predictions that hold in each category; weights in place of categories are ours.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from drjax.attacks.property import models
from drjax.attacks.property.models import PropertyModel
from drjax.attacks.property.shadow_maps import ShadowMaps
from drjax.core import validate
from drjax.core.types import Array

NEAR, ENOUGH = 0.1, 1.6
"""Standard deviation of the shares that count as near, in units of their range, where there are many maps; and what it
is at the least, over (1 - level) times the maps, so that at the ends of the range enough of them count."""

N_CANDIDATES = 501
"""Shares that are tried, evenly over the range."""

Inputs = Callable[[Any], Any]
"""Function from maps to what a kind of attack takes."""


@dataclass(frozen=True)
class CrossFit:
    """Models of the parts.

    Attributes:
        models: Models, one for each part, trained on the maps of all others.
        errors: Absolute errors |expected - true| of each part's model on the part's maps.
        shares: True shares of each part's maps.
        inputs: What the models take of maps.
    """

    models: tuple[PropertyModel, ...]
    errors: tuple[np.ndarray, ...]
    shares: tuple[np.ndarray, ...]
    inputs: Inputs

    def predict(self, maps: Any) -> np.ndarray:
        """(g,) in [0, 1]: the mean of what the models expect of maps that `inputs` takes."""
        return np.mean(self._each(maps), axis=0)

    def interval(self, maps: Any, level: float) -> np.ndarray:
        """(g, 2) intervals in the range of the parts' shares.

        An interval spans the shares p at which the errors |expected - p| are not among the largest 1 - level of those
        of the parts' maps, maps of shares near p counting more (`NEAR`). Were all maps of one share, and exchangeable,
        that would hold it with a probability of at least 2 level - 1, less 2 / (maps + 2), for two parts; nearly always
        it is about `level`, and so in each third of the shares.

        Raises:
            ValueError: level not in (0, 1).
        """
        validate.open_unit(level=level)
        together = np.concatenate(self.shares)
        low, high = together.min(), together.max()
        near = max(NEAR * (high - low), ENOUGH * (high - low) / ((1 - level) * len(together)), np.finfo(float).tiny)
        candidates = np.linspace(low, high, N_CANDIDATES)
        weights = [np.exp(-(((shares[:, None] - candidates) / near) ** 2) / 2) for shares in self.shares]
        total = 1 + sum(weight.sum(axis=0) for weight in weights)
        found = np.empty((self._each(maps).shape[1], 2))
        for row, own in enumerate(self._each(maps).T):
            larger = np.ones(N_CANDIDATES)
            for expected, errors, weight in zip(own, self.errors, weights, strict=True):
                larger += ((errors[:, None] >= np.abs(expected - candidates)) * weight).sum(axis=0)
            # Rounding of weights must not make the largest share of all too small.
            inside = np.flatnonzero(larger / total > (1 - level) - 1e-12)
            best = inside if len(inside) else np.argmax(larger / total, keepdims=True)
            found[row] = candidates[best[0]], candidates[best[-1]]
        return found

    def _each(self, maps: Any) -> np.ndarray:
        given = self.inputs(maps)
        return np.stack([model.predict(given).expected for model in self.models])


def cross_fit(
    key: Array, attack: str, parts: Sequence[ShadowMaps], inputs: Inputs, *, progress: bool = False
) -> CrossFit:
    """Trains a model for each part on the maps of the others, and judges it on the part.

    Args:
        key: Part i uses fold_in(key, i).
        attack: Kind of attack, a name in `models.KINDS`.
        parts: Parts, two or more, with different records (and different persons).
        inputs: What the attack takes of maps.
        progress: Show bars.

    Raises:
        ValueError: as `models.fit`.
    """
    given = [inputs(part.maps) for part in parts]
    found, errors = [], []
    for i, part in enumerate(parts):
        others = [j for j in range(len(parts)) if j != i]
        shares = np.concatenate([parts[j].shares for j in others])
        # Judged on other records, a model has no use for maps of its own: of these one is the fewest that `fit` takes.
        config = dataclasses.replace(models.CONFIGS[attack], calibration_share=1 / (2 * len(shares)))
        own_key, train = jax.random.fold_in(key, i), _joined([given[j] for j in others])
        model = models.fit(own_key, train, shares, kind=attack, config=config, progress=progress)
        found.append(model)
        errors.append(np.abs(model.predict(given[i]).expected - part.shares))
    return CrossFit(tuple(found), tuple(errors), tuple(np.asarray(part.shares) for part in parts), inputs)


def errors_of_guessing(parts: Sequence[ShadowMaps]) -> list[np.ndarray]:
    """Absolute errors, for each part, of the best constant on its maps: the median share of the others' maps."""
    medians = [np.median(np.concatenate([p.shares for j, p in enumerate(parts) if j != i])) for i in range(len(parts))]
    return [np.abs(median - part.shares) for median, part in zip(medians, parts, strict=True)]


def mean_and_deviation(values: Sequence[np.ndarray], overlap: float) -> tuple[float, float]:
    """Mean of what all maps of some parts give, and its standard error over other records.

    Maps of one part share records: what they give is taken to be correlated as two means of groups are, which share a
    part `overlap` of their records. Errors that chance in the maps has a hand in are correlated less.

    Args:
        values: Numbers, one per map, for each part.
        overlap: Records of a map, as a share of the records of a part.
    """
    together = np.concatenate(values)
    alike = 1 + (len(together) / len(values) - 1) * min(1.0, overlap)
    return float(together.mean()), float(together.std(ddof=1)) * math.sqrt(alike / len(together))


def _joined(parts: list[Any]) -> Any:
    """One list or array."""
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if isinstance(parts[0], np.ndarray) else [one for part in parts for one in part]
