"""One cell: a setting, its released models, and one attack on them."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from drjax.attacks import metrics
from drjax.attacks.image_metrics import ssim
from drjax.attacks.reconstruction import reconn
from drjax.attacks.reconstruction.training_inversion import reconstruct_model
from drjax.core.types import PyTree, Status, count_status
from drjax.data import Dataset, Splits
from drjax.defenses.dp_gd import DPGD, epsilon_of
from drjax.nets.classifier_training import train_many
from drjax.nets.classifiers import accuracy
from experiments.informed_adversary.config import Setting, noise_multiplier

N_DECOYS, N_QUERIES = 1000, 200

DELTA = 1e-5
"""At which epsilon is reported."""

BASELINES = ("mean", "nearest")
INVERSION = "inversion"


class Case:
    """The released and the shadow models of a setting, made when they are first asked for."""

    def __init__(self, setting: Setting, data: Dataset, parts: Splits, key: jax.Array) -> None:
        self.setting, self.data = setting, data
        self.known = parts.known[: setting.n_fixed]
        self.shadow = parts.shadow[: setting.n_shadow]
        self.targets = parts.targets
        keys = jax.random.split(key, 6)
        self.start_key, self.order_key, self.target_key, self.shadow_key, self.query_key, self.fit_key = keys
        self.x = data.x.reshape(len(data.x), -1).astype(setting.precision)
        assert data.y is not None
        self.y = np.asarray(data.y)

    @property
    def attacks(self) -> tuple[str, ...]:
        """Names of what is tried."""
        return (*BASELINES, *self.setting.learned, *((INVERSION,) if self.setting.has_inversion else ()))

    @functools.cached_property
    def init(self) -> PyTree:
        """Parameters that the released models begin with, where the adversary knows them."""
        d = self.x.shape[1]
        return jax.tree.map(np.asarray, self.setting.training.model.init(self.start_key, d))

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

    def models(self, rows: np.ndarray, key: jax.Array) -> PyTree:
        """Models with each of these records in the target's place; what is unknown is drawn anew for each."""
        setting, n = self.setting, len(self.known) + 1
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
                self.x[self.known],
                self.y[self.known],
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
    def shadows(self) -> tuple[np.ndarray, float]:
        """Vectors (m, p) of the shadow models, and the seconds that training them took."""
        begun = time.perf_counter()
        models = self.models(self.shadow, self.shadow_key)
        seconds = time.perf_counter() - begun
        return self.vectors(models), seconds

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


def attack(case: Case, name: str, score_key: jax.Array) -> dict[str, Any]:
    """Scores of one attack, with what else it says."""
    # Releases are no work of the adversary's, and shadow models are every learned attack's.
    seconds = case.shadows[1] if name in case.setting.learned else 0.0
    jax.block_until_ready(case.released)
    begun = time.perf_counter()
    found, status, facts = _ATTACKS.get(name, functools.partial(_learned, name=name))(case)
    seconds += time.perf_counter() - begun
    truth = case.x[case.targets].astype(np.float64)
    public = np.concatenate([case.x[case.known], case.x[case.shadow]])
    decoy_key, bootstrap_key = jax.random.split(score_key)
    scores = metrics.evaluate(
        bootstrap_key,
        found,
        truth,
        neighbors=public,
        decoys=metrics.sample_decoys(decoy_key, case.x[case.shadow], min(N_DECOYS, len(case.shadow))),
        status=status,
        seconds=seconds,
    )
    facts["ssim"] = float(np.nanmean(ssim(found, truth, image_shape=case.data.shape)))
    # What the bound is held against needs the error of each target.
    facts["errors"] = np.mean((found - truth) ** 2, axis=1)
    if case.setting.mu is not None:
        facts["epsilon"] = epsilon_of(case.setting.mu, DELTA)
    return {"scores": scores, "status_counts": count_status(status), **facts}


Found = tuple[np.ndarray, np.ndarray, dict[str, Any]]


def _mean(case: Case) -> Found:
    mean = case.x[np.concatenate([case.known, case.shadow])].astype(np.float64).mean(axis=0)
    m = len(case.targets)
    return np.repeat(mean[None], m, axis=0), np.zeros(m, np.uint32), {"accuracy": case.accuracy()}


def _nearest(case: Case) -> Found:
    public = case.x[np.concatenate([case.known, case.shadow])]
    rows, _ = metrics.nearest(case.x[case.targets], public)
    return public[rows].astype(np.float64), np.zeros(len(rows), np.uint32), {}


def _inversion(case: Case) -> Found:
    has_noise = case.mechanism is not None or not case.setting.is_order_known
    found = reconstruct_model(
        case.setting.training,
        case.released,
        case.x[case.known],
        case.y[case.known],
        init=case.init,
        batches=case.order if case.setting.is_order_known else None,
        is_order_known=case.setting.is_order_known,
        mechanism=case.mechanism,
        public=(case.x[case.shadow], case.y[case.shadow]) if has_noise else None,
    )
    assert found.y is not None
    facts = {
        "label": metrics.share_interval(int(np.sum(found.y == case.y[case.targets])), len(found.y)),
        "residual": float(np.median(found.residual_norm)),
        "n_unexplained": int(np.sum(found.status != Status.OK)),
    }
    # An answer that does not explain the release is still an answer, and counts with its error.
    return found.x, np.where(np.isfinite(found.x).all(axis=1), 0, found.status).astype(np.uint32), facts


def _learned(case: Case, *, name: str) -> Found:
    released = case.vectors(case.released)
    shadows, seconds = case.shadows
    targets = case.x[case.shadow].astype(np.float64)
    if name in _REGRESSIONS:
        found = _REGRESSIONS[name](shadows, targets).reconstruct(released)
    else:
        held_out = max(1, len(shadows) // 10)
        model, _ = reconn.fit(
            case.fit_key,
            shadows[:-held_out],
            targets[:-held_out],
            reconn.RECIPES[name],
            validation=(shadows[-held_out:], targets[-held_out:]),
        )
        found = reconn.reconstruct(model, released)
    return found.x, found.status, {"shadow_seconds": seconds}


_REGRESSIONS = {"ridge": reconn.fit_ridge, "quadratic": reconn.fit_quadratic}
_ATTACKS: dict[str, Callable[[Case], Found]] = {"mean": _mean, "nearest": _nearest, INVERSION: _inversion}
