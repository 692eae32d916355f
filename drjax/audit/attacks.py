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
    geodesics,
    invariant,
    invariant_network,
    inversion,
    neural,
    stationarity,
    tsne_affinities,
)
from drjax.attacks.reconstruction.priors import GaussianPrior
from drjax.audit.config import AuditConfig
from drjax.core.types import Array, Reconstruction

ALL = "all"
"""In place of the names of attacks: every one that works on the method."""

CALIBRATION_RELEASES = 24
"""Most shadow releases that the size of what an early stop leaves is measured on."""

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
        best_for: DR methods on which it is the strongest known; an audit runs it unless told otherwise.
        is_baseline: True for what attacks nothing.
        needs_shadows: Whether it trains on shadow releases.
        needs_public: Whether it needs public records.
        needs_seed: Randomised methods on which it needs the seed.
        needs_all_known: Whether it is lost where further released records are unknown.
        is_dear: Whether it trains or searches for minutes, so that a sweep leaves it out.
        why: One sentence on why it works.
    """

    label: str
    description: str
    run: Callable[[AttackInputs], tuple[Reconstruction, dict[str, Any]]]
    methods: tuple[str, ...] = ()
    best_for: tuple[str, ...] = ()
    is_baseline: bool = False
    needs_shadows: bool = False
    needs_public: bool = True
    needs_seed: tuple[str, ...] = ()
    needs_all_known: bool = False
    is_dear: bool = False
    why: str = ""


def fitting(method: str) -> dict[str, Attack]:
    """The baselines and attacks that work on a DR method, by name."""
    return {name: attack for name, attack in ATTACKS.items() if not attack.methods or method in attack.methods}


def chosen(config: AuditConfig) -> dict[str, Attack]:
    """Baselines, then the configured attacks, by name; the strongest known one if none is configured.

    Raises:
        ValueError: an unknown attack, one that does not work on the method or not without the seed, or none at all.
    """
    possible = fitting(config.method)
    for name in config.attacks:
        if name not in possible and name != ALL:
            allowed = ", ".join([ALL, *possible])
            raise ValueError(f"attacks must be among {allowed} for method {config.method!r}, got {name!r}")
        if name in possible and config.method in possible[name].needs_seed and not config.seed_known:
            raise ValueError(f"seed_known must be True for attack {name!r} on method {config.method!r}, got False")
    if ALL in config.attacks:
        return {n: a for n, a in possible.items() if config.seed_known or config.method not in a.needs_seed}
    wanted = config.attacks or tuple(name for name, a in possible.items() if config.method in a.best_for)
    names = [name for name in possible if name in wanted or possible[name].is_baseline]
    if all(possible[n].is_baseline for n in names):
        raise ValueError(f"attacks must name an attack and not only baselines, got {config.attacks}")
    return {name: possible[name] for name in names}


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


def _stationarity(inputs: AttackInputs) -> tuple[Reconstruction, dict[str, Any]]:
    used = slice(CALIBRATION_RELEASES)
    scale = stationarity.calibrate(inputs.known, inputs.shadow_coords[used], inputs.shadow[used])
    prior = GaussianPrior.fit(inputs.public)
    result = stationarity.reconstruct_mds(
        inputs.known, inputs.coords, prior=prior, scale=scale, bounds=BOUNDS, progress=inputs.progress
    )
    return result, {"scale": scale, "expected_error_norm": float(np.nanmean(result.residual_norm))}


def _srp(inputs: AttackInputs) -> tuple[Reconstruction, dict[str, Any]]:
    prior = GaussianPrior.fit(inputs.public)
    decimals = inputs.config.decimals
    precision = None if decimals is None else 0.5 * 10.0**-decimals
    result = closed_form.reconstruct_srp(inputs.known, inputs.coords, prior=prior, precision=precision, bounds=BOUNDS)
    return result, {"n_matrices_recovered": int(np.sum(result.status == 0))}


def _geodesics(inputs: AttackInputs) -> tuple[Reconstruction, dict[str, Any]]:
    config = inputs.config
    n_neighbors = getattr(config.dr_method, "n_neighbors")  # noqa: B009, of Isomap alone
    # The releases are of the records as the audit rounds them.
    known, public = (rows.astype(config.dtype) for rows in (inputs.known, inputs.public))
    found = geodesics.recover(
        known,
        inputs.coords,
        inputs.shadow.astype(config.dtype),
        inputs.shadow_coords,
        n_neighbors=n_neighbors,
        precision=None if config.decimals is None else 0.5 * 10.0**-config.decimals,
    )
    model = geodesics.fit(known, public, n_neighbors=n_neighbors)
    facts = {"n_certified": int(found.is_certified.sum()), "penalty": model.penalty, "loo_mse": model.loo_mse}
    return model.reconstruct(found, bounds=BOUNDS), facts


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
        best_for=("umap",),
        needs_shadows=True,
        why="A random start turns and mirrors a map, and distances in it do not turn: they still say which known "
        "records the target is like.",
    ),
    "residual-network": Attack(
        label="Network on invariant features",
        description="A network of residual blocks on the same distances, averaged with the regression above by what "
        "serves best on records held out.",
        run=_residual_network,
        needs_shadows=True,
        is_dear=True,
    ),
    "dense-network": Attack(
        label="Dense network (BCH22)",
        description="A network of two hidden layers of 1,000 units, trained on shadow releases.",
        run=_dense_network,
        needs_shadows=True,
        is_dear=True,
    ),
    "network": Attack(
        label="Split network (paper 000)",
        description="A network that encodes the target's coordinates apart from the rest; trained on shadow releases.",
        run=_split_network,
        needs_shadows=True,
        is_dear=True,
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
        best_for=("pca", "classical_mds"),
        why="A published component is an eigenvector of a matrix of which all but the target is known, so it can be "
        "solved for the target.",
    ),
    "geodesics": Attack(
        label="Geodesics",
        description="Finds which known records the target is next to, and how far from each, until the published "
        "components fit exactly; then predicts the record from these distances.",
        run=_geodesics,
        methods=("isomap",),
        best_for=("isomap",),
        needs_shadows=True,
        needs_all_known=True,
        why="The published components are eigenvectors of the shortest paths, and those hang on which few known "
        "records the target is linked to: only the true links and lengths make the components fit.",
    ),
    "srp-closed-form": Attack(
        label="Matrix recovery",
        description="Recovers the projection matrix from the known records, then takes the likeliest record that fits "
        "the target's coordinates.",
        run=_srp,
        methods=("srp",),
        best_for=("srp",),
        why="The known records and their coordinates give the projection away, and with it as many linear functions of "
        "the target as there are coordinates; nothing else of it is in the release.",
    ),
    "stationarity": Attack(
        label="Stationarity and last steps",
        description="Reads the target's distances off the gradient that all but vanishes at the release, and simulates "
        "the steps before an early stop; a few shadow releases calibrate it.",
        run=_stationarity,
        methods=("mds",),
        best_for=("mds",),
        needs_shadows=True,
        needs_all_known=True,
        why="The iteration moves every known record by what its distance to the target asks for; where it has all but "
        "come to rest, that distance can be read off, whatever the start was.",
    ),
    "affinities": Attack(
        label="Kernel on affinities at rest",
        description="Reads the target's affinities off the forces that hold the map in place, and predicts the record "
        "from them and its distances; fitted on shadow releases.",
        run=_affinities,
        methods=("tsne",),
        best_for=("tsne",),
        needs_shadows=True,
        needs_all_known=True,
        why="Where a map is at rest the forces on every known record cancel, and the one that the target exerts is the "
        "only one that is not known.",
    ),
    "inversion": Attack(
        label="Inversion",
        description="Searches for the likeliest record from which the method makes the published coordinates, or with "
        "which its map is at rest.",
        run=_inversion,
        methods=("pca", "srp", "classical_mds", "mds", "isomap", "tsne"),
        best_for=("tsne",),
        needs_seed=("srp",),
        is_dear=True,
        needs_all_known=True,
        why="The published map is all but a minimum of its objective, so the gradient there, which hangs on the target "
        "through its affinities, all but vanishes for the target alone.",
    ),
}
"""Every attack by the name that the command line and the records use, in the order of the ladder."""


def execute(name: str, attack: Attack, inputs: AttackInputs) -> tuple[Reconstruction, dict[str, Any]]:
    """Runs one attack with a key of its own, so that its result does not depend on which others run."""
    own = jax.random.fold_in(inputs.key, zlib.crc32(name.encode()))
    return attack.run(replace(inputs, key=own))
