"""The attacks an audit can run, each from the same inputs to a reconstruction of every target."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from drjax.attacks.reconstruction import (
    baselines,
    closed_form,
    invariant,
    invariant_network,
    inversion,
    neural,
    tsne_affinities,
)
from drjax.attacks.reconstruction.priors import GaussianPrior
from drjax.audit.config import AuditConfig
from drjax.core.types import Array, Reconstruction

BOUNDS = (0.0, 1.0)
"""Features are scaled to this range when data are loaded, and the range is public."""


@dataclass(frozen=True, kw_only=True)
class AttackInputs:
    """What is at hand when an attack runs; `targets` is for the yardstick alone.

    Attributes:
        key: Of this attack.
        config: The audit's.
        known: (n-1, d).
        shadow: (s, d) public records, and shadow_coords (s, n, k) their releases.
        validation: (v, d), and validation_coords (v, n, k).
        coords: (m, n, k) the releases under attack, target in row 0.
        targets: (m, d) the truth.
        checkpoint: Where training may leave its state to be resumed.
        progress: Show bars on standard error.
        release_key: Of the releases, where the adversary knows their seed; else None.
    """

    key: Array
    config: AuditConfig
    known: np.ndarray
    shadow: np.ndarray
    shadow_coords: np.ndarray
    validation: np.ndarray
    validation_coords: np.ndarray
    coords: np.ndarray
    targets: np.ndarray
    checkpoint: Path
    progress: bool
    release_key: Array | None = None

    @property
    def public(self) -> np.ndarray:
        """All records that the adversary has beside the known ones."""
        return np.concatenate([self.shadow, self.validation])


@dataclass(frozen=True, kw_only=True)
class Attack:
    """An entry of the ladder: what it is called, what it needs, and how it runs.

    Attributes:
        label: Name in tables and figures.
        description: One sentence in plain words.
        run: From inputs to the reconstruction and facts for the records.
        methods: DR methods it works on; all if empty.
        is_baseline: True for what attacks nothing.
        needs_shadows: Whether it trains on shadow releases.
        needs_public: Whether it needs public records.
        on_request: Methods on which it runs only when named: it takes long there, or another attack finds the same.
        needs_seed: Randomised methods on which it needs the seed.
    """

    label: str
    description: str
    run: Callable[[AttackInputs], tuple[Reconstruction, dict[str, Any]]]
    methods: tuple[str, ...] = ()
    is_baseline: bool = False
    needs_shadows: bool = False
    needs_public: bool = True
    on_request: tuple[str, ...] = ()
    needs_seed: tuple[str, ...] = ()


def chosen(config: AuditConfig) -> dict[str, Attack]:
    """Baselines, then the configured attacks, by name.

    Raises:
        ValueError: an unknown attack, one that does not work on the method or not without the seed, or none at all.
    """
    fitting = {name: a for name, a in ATTACKS.items() if not a.methods or config.method in a.methods}
    for name in config.attacks:
        if name not in fitting:
            raise ValueError(f"attacks must be among {', '.join(fitting)} for method {config.method!r}, got {name!r}")
        if config.method in fitting[name].needs_seed and not config.seed_known:
            raise ValueError(f"seed_known must be True for attack {name!r} on method {config.method!r}, got False")
    names = [
        name
        for name, attack in fitting.items()
        if attack.is_baseline or name in config.attacks or not (config.attacks or config.method in attack.on_request)
    ]
    if all(fitting[n].is_baseline for n in names):
        raise ValueError(f"attacks must name an attack and not only baselines, got {config.attacks}")
    return {name: fitting[name] for name in names}


def _mean_record(inputs: AttackInputs) -> tuple[Reconstruction, dict[str, Any]]:
    return baselines.mean_image(inputs.public, len(inputs.targets)), {}


def _nearest_record(inputs: AttackInputs) -> tuple[Reconstruction, dict[str, Any]]:
    records = np.concatenate([inputs.known, inputs.public])
    return baselines.nearest_neighbor(inputs.targets, records), {}


def _ridge(inputs: AttackInputs) -> tuple[Reconstruction, dict[str, Any]]:
    model = baselines.fit_ridge(inputs.shadow_coords, inputs.shadow)
    return _clipped(model.reconstruct(inputs.coords)), {"penalty": float(model.penalty)}


def _invariant(inputs: AttackInputs) -> tuple[Reconstruction, dict[str, Any]]:
    model = invariant.fit(inputs.shadow_coords, inputs.shadow)
    facts = {"features": model.features, "penalty": model.penalty, "loo_mse": model.loo_mse}
    return _clipped(model.reconstruct(inputs.coords)), facts


def _residual_network(inputs: AttackInputs) -> tuple[Reconstruction, dict[str, Any]]:
    model, history = invariant_network.fit(
        inputs.key,
        inputs.shadow_coords,
        inputs.shadow,
        validation=(inputs.validation_coords, inputs.validation),
        checkpoint=inputs.checkpoint,
        progress=inputs.progress,
    )
    facts = {"best_epoch": history.best_epoch, "epochs_run": len(history.epoch_seconds), "weight": model.weight}
    return _clipped(model.reconstruct(inputs.coords)), facts


def _pca_known_only(inputs: AttackInputs) -> tuple[Reconstruction, dict[str, Any]]:
    return closed_form.reconstruct_pca(inputs.known, inputs.coords, bounds=BOUNDS), {}


def _pca_with_prior(inputs: AttackInputs) -> tuple[Reconstruction, dict[str, Any]]:
    prior = GaussianPrior.fit(inputs.public)
    return closed_form.reconstruct_pca(inputs.known, inputs.coords, prior=prior, bounds=BOUNDS), {}


def _srp(inputs: AttackInputs) -> tuple[Reconstruction, dict[str, Any]]:
    prior = GaussianPrior.fit(inputs.public)
    decimals = inputs.config.decimals
    precision = None if decimals is None else 0.5 * 10.0**-decimals
    result = closed_form.reconstruct_srp(inputs.known, inputs.coords, prior=prior, precision=precision, bounds=BOUNDS)
    return result, {"n_matrices_recovered": int(np.sum(result.status == 0))}


def _affinities(inputs: AttackInputs) -> tuple[Reconstruction, dict[str, Any]]:
    model = _affinity_model(inputs)
    facts = {"features": model.features, "penalty": model.penalty, "loo_mse": model.loo_mse}
    return _clipped(model.reconstruct(inputs.coords)), facts


def _affinity_model(inputs: AttackInputs) -> tsne_affinities.AffinityModel:
    perplexity = getattr(inputs.config.dr_method, "perplexity")  # noqa: B009, a field of t-SNE alone
    return tsne_affinities.fit(inputs.known, inputs.shadow_coords, inputs.shadow, perplexity=perplexity)


def _inversion(inputs: AttackInputs) -> tuple[Reconstruction, dict[str, Any]]:
    decimals, key = inputs.config.decimals, inputs.release_key
    result = inversion.reconstruct(
        inputs.key if key is None else key,
        inputs.config.dr_method,
        inputs.known,
        inputs.coords,
        prior=GaussianPrior.fit(inputs.public),
        seed_known=key is not None,
        noise=None if decimals is None else 0.3 * 10.0**-decimals,
        bounds=BOUNDS,
        progress=inputs.progress,
    )
    return result, {"n_not_converged": int(np.sum(result.status != 0))}


def _network(inputs: AttackInputs, recipe: str) -> tuple[Reconstruction, dict[str, Any]]:
    config = neural.RECIPES[recipe]
    model, history = neural.fit(
        inputs.key,
        inputs.shadow_coords,
        inputs.shadow,
        config,
        validation=(inputs.validation_coords, inputs.validation),
        checkpoint=inputs.checkpoint,
        progress=inputs.progress,
    )
    facts = {
        "recipe": recipe,
        "best_epoch": history.best_epoch,
        "epochs_run": len(history.epoch_seconds),
        "median_epoch_s": float(np.median(history.epoch_seconds)),
        "compile_s": history.compile_seconds,
        "validation_mse": history.validation_mse,
    }
    return neural.reconstruct(model, inputs.coords), facts


def _split_network(inputs: AttackInputs) -> tuple[Reconstruction, dict[str, Any]]:
    return _network(inputs, inputs.config.network)


def _dense_network(inputs: AttackInputs) -> tuple[Reconstruction, dict[str, Any]]:
    return _network(inputs, inputs.config.dense_network)


def _clipped(result: Reconstruction) -> Reconstruction:
    return result._replace(x=np.clip(result.x, *BOUNDS))


ATTACKS = {
    "mean": Attack(
        label="Mean record",
        description="Guesses the average public record without looking at the release.",
        run=_mean_record,
        is_baseline=True,
    ),
    "nearest": Attack(
        label="Nearest neighbour",
        description="Picks the known or public record most similar to the target, which takes looking at the target.",
        run=_nearest_record,
        is_baseline=True,
    ),
    "ridge": Attack(
        label="Ridge regression",
        description="Predicts the record linearly from the published coordinates, fitted on shadow releases.",
        run=_ridge,
        needs_shadows=True,
    ),
    "invariant": Attack(
        label="Kernel on invariant features",
        description="Predicts the record from its distances to the known ones in the release, which stay when a map is "
        "turned or mirrored; fitted on shadow releases.",
        run=_invariant,
        needs_shadows=True,
    ),
    "residual-network": Attack(
        label="Network on invariant features",
        description="A network of residual blocks on the same distances, averaged with the regression above by what "
        "serves best on records held out.",
        run=_residual_network,
        needs_shadows=True,
    ),
    "dense-network": Attack(
        label="Dense network (BCH22)",
        description="A network of two hidden layers of 1,000 units, trained on shadow releases.",
        run=_dense_network,
        needs_shadows=True,
    ),
    "network": Attack(
        label="Split network (paper 000)",
        description="A network that encodes the target's coordinates apart from the rest; trained on shadow releases.",
        run=_split_network,
        needs_shadows=True,
    ),
    "closed-form-known": Attack(
        label="Closed form, known only",
        description="Solves the equations of the published components with the known records alone.",
        run=_pca_known_only,
        methods=("pca", "classical_mds"),
        needs_public=False,
    ),
    "closed-form": Attack(
        label="Closed form with prior",
        description="Solves the equations of the published components and predicts from public records what they leave "
        "open.",
        run=_pca_with_prior,
        methods=("pca", "classical_mds"),
    ),
    "srp-closed-form": Attack(
        label="Matrix recovery",
        description="Recovers the projection matrix from the known records, then takes the likeliest record that fits "
        "the target's coordinates.",
        run=_srp,
        methods=("srp",),
    ),
    "affinities": Attack(
        label="Kernel on affinities at rest",
        description="Reads the target's affinities off the forces that hold the map in place, and predicts the record "
        "from them and its distances; fitted on shadow releases.",
        run=_affinities,
        methods=("tsne",),
        needs_shadows=True,
    ),
    "inversion": Attack(
        label="Inversion",
        description="Searches for the likeliest record from which the method makes the published coordinates, or with "
        "which its map is at rest.",
        run=_inversion,
        methods=("pca", "srp", "classical_mds", "mds", "isomap", "tsne"),
        on_request=("pca", "srp", "classical_mds", "mds", "isomap"),
        needs_seed=("srp",),
    ),
}
"""Every attack by the name that the command line and the records use, in the order of the ladder."""


def execute(name: str, attack: Attack, inputs: AttackInputs) -> tuple[Reconstruction, dict[str, Any]]:
    """Runs one attack with a key of its own, so that its result does not depend on which others run."""
    own = jax.random.fold_in(inputs.key, zlib.crc32(name.encode()))
    return attack.run(replace(inputs, key=own))
