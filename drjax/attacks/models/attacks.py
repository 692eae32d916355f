"""What an adversary has of trained models, and the attacks on it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import jax
import numpy as np

from drjax.attacks import metrics
from drjax.attacks.attack import Attack, Cost, Threat
from drjax.attacks.reconstruction import reconn
from drjax.attacks.reconstruction.training_inversion import reconstruct_model
from drjax.attacks.shadow import FLOPS
from drjax.core.types import Array, PyTree, Reconstruction
from drjax.defenses.dp_gd import DPGD
from drjax.nets.classifier_training import Training

RUNS = 40
"""Trainings that the inversion runs for a target, about."""


@dataclass(frozen=True, kw_only=True)
class ModelThreat(Threat):
    """Models that were trained on the same known records and one unknown record each.

    Attributes:
        training: How models are trained.
        mechanism: Clipping and noise, or None.
        known: x (n-1, d) and classes (n-1,).
        public: Records and classes.
        init: Parameters that training began with.
        batches: The order of mini-batches, or None.
        released: Parameters with a leading axis m.
        shadows: Makes vectors (N, p) of models that were trained on a public record each, when first asked.
        truth: (m, d), what yardsticks look at and attacks do not; None where nobody has it.
    """

    kind: ClassVar[str] = "model"
    training: Training
    mechanism: DPGD | None
    known: tuple[np.ndarray, np.ndarray]
    public: tuple[np.ndarray, np.ndarray]
    init: PyTree
    batches: np.ndarray | None
    released: PyTree
    shadows: Callable[[], np.ndarray]
    truth: np.ndarray | None = None

    @property
    def n_releases(self) -> int:
        """Models under attack, m."""
        return len(jax.tree.leaves(self.released)[0])

    @property
    def n_parameters(self) -> int:
        """Parameters of one model."""
        return sum(math.prod(leaf.shape[1:]) for leaf in jax.tree.leaves(self.released))


@dataclass(frozen=True, kw_only=True)
class ModelAttack(Attack):
    """An attack on trained models."""

    kind: ClassVar[str] = "model"

    def fits(self, threat: ModelThreat) -> str | None:
        """See `Attack`."""
        del threat


def vectors_of(training: Training, models: PyTree) -> np.ndarray:
    """Models with a leading axis m as the vectors (m, p) that learned attacks take."""
    return reconn.representation(training, models)


@dataclass(frozen=True, kw_only=True)
class MeanRecord(ModelAttack):
    """The mean of known and public records."""

    name: str = "mean"
    label: str = "mean record"
    description: str = "The average known and public record, without a look at the model."
    is_baseline: bool = True

    def cost(self, threat: ModelThreat) -> Cost:
        """See `Attack`."""
        return Cost(0.0, 8.0 * (len(threat.known[0]) + len(threat.public[0])) * threat.known[0].shape[1])

    def run(self, key: Array, threat: ModelThreat) -> Reconstruction:
        """See `Attack`; nothing is drawn."""
        del key
        mean = np.concatenate([threat.known[0], threat.public[0]]).mean(axis=0)
        return _guessed(np.repeat(mean[None], threat.n_releases, axis=0))


@dataclass(frozen=True, kw_only=True)
class NearestRecord(ModelAttack):
    """The known or public record that is nearest to the target."""

    name: str = "nearest"
    label: str = "nearest neighbour"
    description: str = "The known or public record most similar to the target, which it takes the target to find."
    is_baseline: bool = True

    def fits(self, threat: ModelThreat) -> str | None:
        """See `Attack`."""
        return "needs the target itself" if threat.truth is None else None

    def cost(self, threat: ModelThreat) -> Cost:
        """See `Attack`."""
        held, d = len(threat.known[0]) + len(threat.public[0]), threat.known[0].shape[1]
        return Cost(2.0 * threat.n_releases * held * d / FLOPS, 8.0 * held * (d + threat.n_releases))

    def run(self, key: Array, threat: ModelThreat) -> Reconstruction:
        """See `Attack`; nothing is drawn."""
        del key
        assert threat.truth is not None
        held = np.concatenate([threat.known[0], threat.public[0]])
        return _guessed(held[metrics.nearest(threat.truth, held)[0]])


@dataclass(frozen=True, kw_only=True)
class QuadraticKernel(ModelAttack):
    """Kernel regression from model vectors; see `drjax.attacks.reconstruction.reconn.fit_quadratic`."""

    name: str = "quadratic"
    label: str = "quadratic kernel"
    description: str = "A kernel regression from the parameters of shadow models to their targets."
    why: str = (
        "The trace of a record in the parameters is its features times its error, and a quadratic kernel undoes the "
        "unknown sign of that error."
    )
    trains: bool = True
    needs_shadows: bool = True
    needs_public: bool = True

    def cost(self, threat: ModelThreat) -> Cost:
        """See `Attack`."""
        s, p = len(threat.public[0]), threat.n_parameters
        return Cost((2.0 * s**2 * p + 10.0 * s**3) / FLOPS, 8.0 * (2 * s * p + 4 * s**2))

    def run(self, key: Array, threat: ModelThreat) -> Reconstruction:
        """See `Attack`; nothing is drawn."""
        del key
        vectors = vectors_of(threat.training, threat.released)
        return reconn.fit_quadratic(threat.shadows(), threat.public[0]).reconstruct(vectors)


@dataclass(frozen=True, kw_only=True)
class ReconstructorNetwork(ModelAttack):
    """Reconstructor network; see `drjax.attacks.reconstruction.reconn.fit`.

    Attributes:
        recipe: Key of `reconn.RECIPES`.
    """

    name: str = "network"
    label: str = "RecoNN, fast recipe"
    description: str = "A network from the parameters of shadow models to their targets."
    why: str = "It learns from many shadow models how the trace of a record in the parameters goes with the record."
    trains: bool = True
    needs_shadows: bool = True
    needs_public: bool = True
    recipe: str = "fast"

    def cost(self, threat: ModelThreat) -> Cost:
        """See `Attack`; as many epochs as the recipe has at most."""
        config, s, p = reconn.RECIPES[self.recipe], len(threat.public[0]), threat.n_parameters
        widths = (p, *config.hidden, threat.known[0].shape[1])
        weights = sum(a * b for a, b in itertools.pairwise(widths))
        return Cost(6.0 * config.n_ensemble * config.epochs * s * weights / FLOPS, 16.0 * weights + 8.0 * s * p)

    def run(self, key: Array, threat: ModelThreat) -> Reconstruction:
        """See `Attack`; draws weights and the order of records."""
        vectors, targets = threat.shadows(), threat.public[0]
        held_out = len(vectors) // 10
        model, _ = reconn.fit(
            key,
            vectors[:-held_out],
            targets[:-held_out],
            reconn.RECIPES[self.recipe],
            validation=(vectors[-held_out:], targets[-held_out:]),
        )
        return reconn.reconstruct(model, vectors_of(threat.training, threat.released))


@dataclass(frozen=True, kw_only=True)
class TrainingInversion(ModelAttack):
    """Inversion of the training; see `reconstruct_model`."""

    name: str = "inversion"
    label: str = "inversion of the training"
    description: str = "Looks for the record with which training ends at the published parameters."
    why: str = (
        "Where the start and the order of training are known, the parameters are a function of the one unknown record, "
        "and it can be solved for."
    )

    def cost(self, threat: ModelThreat) -> Cost:
        """See `Attack`."""
        n, d = threat.known[0].shape
        run = 6.0 * threat.training.epochs * (n + 1) * threat.n_parameters
        return Cost(threat.n_releases * RUNS * run / FLOPS, 8.0 * (64 * threat.n_parameters + 2 * n * d))

    def run(self, key: Array, threat: ModelThreat) -> Reconstruction:
        """See `Attack`; nothing is drawn."""
        del key
        return reconstruct_model(
            threat.training,
            threat.released,
            *threat.known,
            init=threat.init,
            batches=threat.batches,
            mechanism=threat.mechanism,
            public=threat.public if threat.mechanism is not None else None,
        )


def _guessed(x: np.ndarray) -> Reconstruction:
    return Reconstruction(x, None, x[:, None], np.full(len(x), np.nan), np.zeros(len(x), np.uint32))
