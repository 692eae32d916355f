"""The released and the shadow models of a setting, and who knows which records."""

from __future__ import annotations

import dataclasses
import functools
import time
from typing import Any, NamedTuple

import jax
import numpy as np

from drjax.attacks.reconstruction import reconn
from drjax.core.types import PyTree
from drjax.data import Dataset, Splits, split
from drjax.defenses.dp_gd import DPGD
from drjax.nets.classifier_training import train_many
from drjax.nets.classifiers import accuracy
from experiments.informed_adversary.config import FACTORS, Scale, Setting, noise_multiplier, settings

N_QUERIES = 200

PRETRAINING = {"epochs": 300, "batch_size": None}
"""Of a start near convergence, beside what the setting's training is."""


def parts_of(key: jax.Array, data: Dataset, name: str, scale: Scale) -> Splits:
    """Who knows which record of a data set: the same for all settings of a scale; `validation` has the other records.

    Raises:
        ValueError: too few records for the settings.
    """
    every = [s for factor in FACTORS for s in settings(factor, scale) if (s.data or scale.data) == name]
    n_known = max(s.n_fixed or scale.n_fixed for s in every)
    n_shadow = max(s.n_shadow or scale.n_shadow for s in every)
    # Settings that take some classes alone need more to choose from.
    of_classes = max((s.n_shadow or scale.n_shadow for s in every if s.shadow_classes), default=0)
    n_other = scale.n_other if any(s.is_pretrained or s.n_own is not None for s in every) else 0
    n_shadow = max(n_shadow, min(3 * of_classes, len(data.x) - n_known - n_other - scale.targets))
    return split(key, data, n_known=n_known, n_shadow=n_shadow, n_validation=n_other, n_targets=scale.targets)


class Shadows(NamedTuple):
    """Models of records that the adversary has.

    Attributes:
        vectors: (m, p) what is seen of each; where fixed sets differ, less that of a model of the fixed set alone.
        rows: (m,) the record that each was trained on beside the fixed set.
        base: (p,) what is to be taken off a released model's vector.
        seconds: That training them took.
    """

    vectors: np.ndarray
    rows: np.ndarray
    base: np.ndarray
    seconds: float


class Case:
    """The released and the shadow models of a setting, made when they are first asked for."""

    def __init__(self, setting: Setting, data: Dataset, parts: Splits, key: jax.Array) -> None:
        assert data.y is not None
        assert setting.n_fixed is not None
        assert setting.n_shadow is not None
        self.setting, self.data, self.other = setting, data, parts.validation
        keys = jax.random.split(key, 6)
        self.start_key, self.order_key, self.target_key, self.shadow_key, self.query_key, self.fit_key = keys
        if setting.start:
            self.start_key = jax.random.fold_in(self.start_key, setting.start)
        self.x = data.x.reshape(len(data.x), -1).astype(setting.precision)
        self.y = np.asarray(data.y)
        self.known = parts.known[: setting.n_fixed]
        self.shadow = self._of(parts.shadow, setting.shadow_classes)[: setting.n_shadow]
        self.targets = self._of(parts.targets, setting.target_classes)[: setting.n_targets]
        if len(self.shadow) < setting.n_shadow or not len(self.targets):
            raise ValueError(
                f"the scale must leave {setting.n_shadow} shadow records and a target of the classes of "
                f"{setting.name!r}, got {len(self.shadow)} and {len(self.targets)}"
            )

    def _of(self, rows: np.ndarray, classes: tuple[int, ...] | None) -> np.ndarray:
        return rows if classes is None else rows[np.isin(self.y[rows], classes)]

    @functools.cached_property
    def init(self) -> PyTree:
        """Parameters that the released models begin with, where the adversary knows them."""
        training = self.setting.training
        init = jax.tree.map(np.asarray, training.model.init(self.start_key, self.x.shape[1]))
        if not self.setting.is_pretrained:
            return init
        rows = self.other
        before = dataclasses.replace(training, **PRETRAINING)
        trained = train_many(before, self.x[rows[1:]], self.y[rows[1:]], self.x[rows[:1]], self.y[rows[:1]], init=init)
        return jax.tree.map(lambda leaf: leaf[0], trained)

    @functools.cached_property
    def order(self) -> Any:
        """The mini-batches, where the adversary knows them; None for full batches."""
        batches = self.setting.training.batches(self.order_key, len(self.known) + 1)
        return None if batches is None else np.asarray(batches)

    @functools.cached_property
    def mechanism(self) -> DPGD | None:
        """Clipping and noise."""
        if self.setting.mu is None:
            return None
        return DPGD(
            neighbouring="zero_out", clip_norm=self.setting.clip_norm, noise_multiplier=noise_multiplier(self.setting)
        )

    def models(self, rows: np.ndarray, key: jax.Array, known: np.ndarray | None = None) -> PyTree:
        """Models with each of these records in the target's place; what is unknown is drawn anew for each.

        Args:
            rows: One record a model; may repeat.
            key: Of what is unknown.
            known: Rows of the fixed set, if it is not the released models' own.
        """
        setting = self.setting
        known = self.known if known is None else known
        n = len(known) + 1
        start_key, order_key, noise_key = jax.random.split(key, 3)
        init, order = self.init, self.order
        if not setting.is_start_known:
            keys = jax.random.split(start_key, len(rows))
            init = jax.tree.map(np.asarray, jax.vmap(lambda k: setting.training.model.init(k, self.x.shape[1]))(keys))
        if not setting.is_order_known:
            keys = jax.random.split(order_key, len(rows))
            order = np.asarray(jax.vmap(lambda k: setting.training.batches(k, n))(keys))
        with jax.enable_x64(setting.precision == "float64"):
            return train_many(
                setting.training,
                self.x[known],
                self.y[known],
                self.x[rows],
                self.y[rows],
                init=init,
                batches=order,
                own_init=not setting.is_start_known,
                own_batches=not setting.is_order_known,
                mechanism=self.mechanism,
                noise_keys=None if self.mechanism is None else jax.random.split(noise_key, len(rows)),
            )

    @functools.cached_property
    def released(self) -> PyTree:
        """The models that are attacked."""
        return self.models(self.targets, self.target_key)

    @functools.cached_property
    def shadows(self) -> Shadows:
        """What the learned attacks are trained on; made once for all of them."""
        setting = self.setting
        begun = time.perf_counter()
        rows = np.repeat(self.shadow, setting.models_per_shadow)
        if setting.n_own is None:
            vectors = self.vectors(self.models(rows, self.shadow_key))
            return Shadows(vectors, rows, np.zeros_like(vectors[0]), time.perf_counter() - begun)
        # Models of one fixed set lie around a point of their own, which is what training without a target leads to.
        base = self._base(self.known)
        moved = []
        for known, chosen in (self.known, rows[: setting.n_own]), (self.other[: len(self.known)], rows):
            if len(chosen):
                moved.append(self.vectors(self.models(chosen, self.shadow_key, known)) - self._base(known))
        rows = np.concatenate([rows[: setting.n_own], rows])
        return Shadows(np.concatenate(moved), rows, base, time.perf_counter() - begun)

    def _base(self, known: np.ndarray) -> np.ndarray:
        """The vector (p,) of a model of a fixed set alone: its last record stands in the target's place."""
        return self.vectors(self.models(known[-1:], self.shadow_key, known[:-1]))[0]

    def vectors(self, models: PyTree) -> np.ndarray:
        """What the adversary sees of models, as vectors."""
        access = self.setting.access
        queries = None
        if access == "logits":
            known = self.x[self.known]
            queries = reconn.choose_queries(self.query_key, known, n=min(N_QUERIES, len(known)))
        layers = [len(self.setting.training.model.hidden)] if access == "layers" else None
        return reconn.representation(self.setting.training, models, access=access, layers=layers, queries=queries)

    def accuracy(self, m: int = 2000) -> float:
        """Mean accuracy of the released models on public records (the shadow targets)."""
        rows = self.shadow[:m]
        few = jax.tree.map(lambda leaf: leaf[:8], self.released)
        return float(np.mean(accuracy(self.setting.training.model, few, self.x[rows], self.y[rows])))
