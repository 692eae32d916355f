"""The attacks that an audit of a network runs, by name: one line more here is one rung more in the report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax
import numpy as np

from drjax.attacks import metrics
from drjax.attacks.reconstruction import reconn
from drjax.attacks.reconstruction.training_inversion import reconstruct_model
from drjax.core.types import PyTree, Reconstruction
from drjax.defenses.dp_gd import DPGD
from drjax.nets.classifier_training import Training


@dataclass(frozen=True, kw_only=True)
class Scene:
    """What attacks are given: known, public and target records with their classes, and models.

    Attributes:
        training: How models are trained.
        mechanism: Clipping and noise, or None.
        known: x (n-1, d) and y (n-1,).
        public: Records and classes.
        targets: x (m, d); no attack reads it but the yardstick of the nearest neighbour.
        init: Parameters that training began with.
        batches: The order of mini-batches, or None.
        released: Parameters of m models.
        shadows: Vectors (N, p) of the shadow models, made when first asked for.
        key: For networks.
    """

    training: Training
    mechanism: DPGD | None
    known: tuple[np.ndarray, np.ndarray]
    public: tuple[np.ndarray, np.ndarray]
    targets: np.ndarray
    init: PyTree
    batches: np.ndarray | None
    released: PyTree
    shadows: Callable[[], np.ndarray]
    key: jax.Array


@dataclass(frozen=True, kw_only=True)
class ModelAttack:
    """One attack: its words for the report, and what it does."""

    label: str
    description: str
    run: Callable[[Scene], Reconstruction]
    is_baseline: bool = False
    needs_shadows: bool = False
    why: str = ""


def _guessed(x: np.ndarray) -> Reconstruction:
    return Reconstruction(x, None, x[:, None], np.full(len(x), np.nan), np.zeros(len(x), np.uint32))


def _mean(scene: Scene) -> Reconstruction:
    mean = np.concatenate([scene.known[0], scene.public[0]]).mean(axis=0)
    return _guessed(np.repeat(mean[None], len(scene.targets), axis=0))


def _nearest(scene: Scene) -> Reconstruction:
    held = np.concatenate([scene.known[0], scene.public[0]])
    return _guessed(held[metrics.nearest(scene.targets, held)[0]])


def _inversion(scene: Scene) -> Reconstruction:
    return reconstruct_model(
        scene.training,
        scene.released,
        *scene.known,
        init=scene.init,
        batches=scene.batches,
        mechanism=scene.mechanism,
        public=scene.public if scene.mechanism is not None else None,
    )


def _quadratic(scene: Scene) -> Reconstruction:
    vectors = vectors_of(scene.training, scene.released)
    return reconn.fit_quadratic(scene.shadows(), scene.public[0]).reconstruct(vectors)


def _network(scene: Scene) -> Reconstruction:
    vectors, targets = scene.shadows(), scene.public[0]
    held_out = len(vectors) // 10
    model, _ = reconn.fit(
        scene.key,
        vectors[:-held_out],
        targets[:-held_out],
        reconn.RECIPES["fast"],
        validation=(vectors[-held_out:], targets[-held_out:]),
    )
    return reconn.reconstruct(model, vectors_of(scene.training, scene.released))


ATTACKS: dict[str, ModelAttack] = {
    "mean": ModelAttack(
        label="mean record",
        description="The average known and public record, without a look at the model.",
        run=_mean,
        is_baseline=True,
    ),
    "nearest": ModelAttack(
        label="nearest neighbour",
        description="The known or public record most similar to the target, which it takes the target to find.",
        run=_nearest,
        is_baseline=True,
    ),
    "quadratic": ModelAttack(
        label="quadratic kernel",
        description="A kernel regression from the parameters of shadow models to their targets.",
        run=_quadratic,
        needs_shadows=True,
        why="The trace of a record in the parameters is its features times its error, and a quadratic kernel undoes "
        "the unknown sign of that error.",
    ),
    "network": ModelAttack(
        label="RecoNN, fast recipe",
        description="A network from the parameters of shadow models to their targets.",
        run=_network,
        needs_shadows=True,
        why="It learns from many shadow models how the trace of a record in the parameters goes with the record.",
    ),
    "inversion": ModelAttack(
        label="inversion of the training",
        description="Looks for the record with which training ends at the published parameters.",
        run=_inversion,
        why="Where the start and the order of training are known, the parameters are a function of the one unknown "
        "record, and it can be solved for.",
    ),
}
"""Attacks on networks by name, in the order of the ladder."""


def vectors_of(training: Training, models: PyTree) -> np.ndarray:
    """Models with a leading axis m as the vectors (m, p) that learned attacks take."""
    return reconn.representation(training, models)
