"""One cell: a setting, its released models, and one attack on them."""

from __future__ import annotations

import base64
import dataclasses
import functools
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from drjax.attacks import metrics
from drjax.attacks.image_metrics import oracle_percentiles, prediction_kl, ssim
from drjax.attacks.reconstruction import reconn
from drjax.attacks.reconstruction.training_inversion import reconstruct_model
from drjax.core.statistics import share_interval
from drjax.core.types import Status, count_status
from drjax.defenses.dp_gd import epsilon_of
from drjax.nets.judge import Judge
from experiments.informed_adversary.case import Case
from experiments.informed_adversary.config import Setting

N_DECOYS, N_EXAMPLES = 1000, 6

DELTA = 1e-5
"""At which epsilon is reported."""

PERCENTILES = (1, 10, 50)
"""Of the distances to all records at hand: figure 3 of the paper."""

NEAREST = "nearest"
BASELINES = ("mean", NEAREST)
INVERSION = "inversion"


def attacks_of(setting: Setting) -> tuple[str, ...]:
    """Names of what is tried on a setting."""
    return (*BASELINES, *setting.learned, *((INVERSION,) if setting.is_invertible else ()))


def attack(
    case: Case, name: str, score_key: jax.Array, judge: Judge | None = None, *, checkpoint: Path | None = None
) -> dict[str, Any]:
    """Scores of one attack, with what else it says.

    Args:
        case: The released models.
        name: One of `attacks_of`.
        score_key: Of decoys and intervals.
        judge: Reads targets and reconstructions, for the divergence of what it says of them.
        checkpoint: Where the training of a network is kept between epochs, see `reconn.fit`. Where one is gone on with,
            the facts say `resumed`, and the seconds are those of this process alone. The shadow models are not kept.
    """
    # Releases are no work of the adversary's, and shadow models are every learned attack's.
    seconds = case.shadows.seconds if name in case.setting.learned else 0.0
    jax.block_until_ready(case.released)
    begun = time.perf_counter()
    resumed = checkpoint is not None and checkpoint.exists()
    found, status, facts = _ATTACKS.get(name, functools.partial(_learned, name=name, checkpoint=checkpoint))(case)
    if resumed:
        facts["resumed"] = True
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
    if judge is not None and np.isfinite(found).all():
        kl = prediction_kl(*(judge.log_probabilities(np.clip(images, 0, 1)) for images in (truth, found)))
        facts["kl"] = {"mean": float(np.mean(kl)), "median": float(np.median(kl))}
    if name == NEAREST:
        distances = oracle_percentiles(truth, public, percentiles=PERCENTILES).percentiles
        facts["percentiles"] = dict(zip(map(str, PERCENTILES), map(float, distances), strict=True))
    if case.setting.has_examples:
        shown = np.round(255 * np.clip(np.nan_to_num(found[:N_EXAMPLES]), 0, 1)).astype(np.uint8)
        facts["examples"] = base64.b64encode(zlib.compress(shown.tobytes(), 9)).decode()
    if case.setting.has_examples or case.setting.mu is not None:
        # Under the pictures, and held against the bound; of all settings they would swell the file.
        facts["errors"] = [float(f"{error:.4g}") for error in np.mean((found - truth) ** 2, axis=1)]
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
    settings = case.setting.inversion
    # The known records alone may span fewer directions, and cannot say how noisy models look.
    needs_more = has_noise or settings.n_directions >= len(case.known)
    found = reconstruct_model(
        case.setting.training,
        case.released,
        case.x[case.known],
        case.y[case.known],
        init=case.init,
        batches=case.order if case.setting.is_order_known else None,
        is_order_known=case.setting.is_order_known,
        mechanism=case.mechanism,
        public=(case.x[case.shadow], case.y[case.shadow]) if needs_more else None,
        settings=settings,
    )
    assert found.y is not None
    facts = {
        "label": share_interval(int(np.sum(found.y == case.y[case.targets])), len(found.y)),
        "residual": float(np.median(found.residual_norm)),
        "n_unexplained": int(np.sum(found.status != Status.OK)),
    }
    # An answer that does not explain the release is still an answer, and counts with its error.
    return found.x, np.where(np.isfinite(found.x).all(axis=1), 0, found.status).astype(np.uint32), facts


def _learned(case: Case, *, name: str, checkpoint: Path | None) -> Found:
    shadows = case.shadows
    released = case.vectors(case.released) - shadows.base
    vectors, targets = shadows.vectors, case.x[shadows.rows].astype(np.float64)
    if name in _REGRESSIONS:
        found = _REGRESSIONS[name](vectors, targets).reconstruct(released)
    else:
        held_out = max(1, len(vectors) // 10)
        recipe = reconn.RECIPES[name]
        if case.setting.learned_epochs:
            recipe = dataclasses.replace(recipe, epochs=case.setting.learned_epochs)
        model, _ = reconn.fit(
            case.fit_key,
            vectors[:-held_out],
            targets[:-held_out],
            recipe,
            validation=(vectors[-held_out:], targets[-held_out:]),
            checkpoint=checkpoint,
        )
        found = reconn.reconstruct(model, released)
    return found.x, found.status, {"shadow_seconds": shadows.seconds}


_REGRESSIONS = {"ridge": reconn.fit_ridge, "quadratic": reconn.fit_quadratic}
_ATTACKS: dict[str, Callable[[Case], Found]] = {"mean": _mean, "nearest": _nearest, INVERSION: _inversion}
