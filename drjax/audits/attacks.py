"""The attacks an audit can run, each from the same inputs to a reconstruction of every target."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from drjax.audits import rungs
from drjax.audits.config import AuditConfig
from drjax.audits.folder import RunFolder
from drjax.audits.inputs import AttackInputs
from drjax.core.types import Reconstruction

ALL = "all"
"""In place of the names of attacks: every one that works on the method."""


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


def learned(method: str) -> dict[str, Attack]:
    """Attacks on a DR method that learn from shadow releases alone, in seconds, whatever made the releases.

    Trained on releases that went through a defence, they are the adversary who knows of it.
    """
    return {n: a for n, a in fitting(method).items() if a.needs_shadows and not a.methods and not a.is_dear}


def chosen(config: AuditConfig) -> dict[str, Attack]:
    """Baselines, then the configured attacks, by name; if none is configured, those that are best for the method.

    Those are the strongest that are known, or, of a method that none is known for, all that learn in seconds.

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
    best = tuple(name for name, a in possible.items() if config.method in a.best_for)
    wanted = config.attacks or best or tuple(learned(config.method))
    names = [name for name in possible if name in wanted or possible[name].is_baseline]
    if all(possible[n].is_baseline for n in names):
        raise ValueError(f"attacks must name an attack and not only baselines, got {config.attacks}")
    return {name: possible[name] for name in names}


ATTACKS = {
    "mean": Attack(
        label="Mean record",
        description="Guesses the average public record without looking at the release.",
        run=rungs.mean_record,
        is_baseline=True,
    ),
    "nearest": Attack(
        label="Nearest neighbour",
        description="Picks the known or public record most similar to the target, which takes looking at the target.",
        run=rungs.nearest_record,
        is_baseline=True,
    ),
    "ridge": Attack(
        label="Ridge regression",
        description="Predicts the record linearly from the published coordinates, fitted on shadow releases.",
        run=rungs.ridge,
        needs_shadows=True,
    ),
    "invariant": Attack(
        label="Kernel on invariant features",
        description="Predicts the record from its distances to the known ones in the release, which stay when a map is "
        "turned or mirrored; fitted on shadow releases.",
        run=rungs.invariant_kernel,
        best_for=("umap",),
        needs_shadows=True,
        why="A random start turns and mirrors a map, and distances in it do not turn: they still say which known "
        "records the target is like.",
    ),
    "residual-network": Attack(
        label="Network on invariant features",
        description="A network of residual blocks on the same distances, averaged with the regression above by what "
        "serves best on records held out.",
        run=rungs.residual_network,
        needs_shadows=True,
        is_dear=True,
    ),
    "dense-network": Attack(
        label="Dense network (BCH22)",
        description="A network of two hidden layers of 1,000 units, trained on shadow releases.",
        run=rungs.dense_network,
        needs_shadows=True,
        is_dear=True,
    ),
    "network": Attack(
        label="Split network (paper 000)",
        description="A network that encodes the target's coordinates apart from the rest; trained on shadow releases.",
        run=rungs.split_network,
        needs_shadows=True,
        is_dear=True,
    ),
    "closed-form-known": Attack(
        label="Closed form, known only",
        description="Solves the equations of the published components with the known records alone.",
        run=rungs.pca_known_only,
        methods=("pca", "classical_mds"),
        needs_public=False,
    ),
    "closed-form": Attack(
        label="Closed form with prior",
        description="Solves the equations of the published components and predicts from public records what they leave "
        "open.",
        run=rungs.pca_with_prior,
        methods=("pca", "classical_mds"),
        best_for=("pca", "classical_mds"),
        why="A published component is an eigenvector of a matrix of which all but the target is known, so it can be "
        "solved for the target.",
    ),
    "closed-form-mixture": Attack(
        label="Closed form, mixture prior",
        description="The same with a prior that learns kinds of records, a mixture of Gaussians.",
        run=rungs.pca_with_mixture,
        methods=("pca", "classical_mds"),
        best_for=("pca", "classical_mds"),
        needs_all_known=True,
        why="A published component is an eigenvector of a matrix of which all but the target is known, so it can be "
        "solved for the target; what it leaves open, records of the target's kind fill in.",
    ),
    "geodesics": Attack(
        label="Geodesics",
        description="Finds which known records the target is next to, and how far from each, until the published "
        "components fit exactly; then predicts the record from these distances.",
        run=rungs.isomap_geodesics,
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
        run=rungs.srp_matrix,
        methods=("srp",),
        best_for=("srp",),
        why="The known records and their coordinates give the projection away, and with it as many linear functions of "
        "the target as there are coordinates; nothing else of it is in the release.",
    ),
    "stationarity": Attack(
        label="Stationarity and last steps",
        description="Reads the target's distances off the gradient that all but vanishes at the release, and simulates "
        "the steps before an early stop; a few shadow releases calibrate it.",
        run=rungs.mds_stationarity,
        methods=("mds",),
        needs_shadows=True,
        needs_all_known=True,
        why="The iteration moves every known record by what its distance to the target asks for; where it has all but "
        "come to rest, that distance can be read off, whatever the start was.",
    ),
    "stationarity-mixture": Attack(
        label="Stationarity, mixture prior",
        description="The same with a prior that learns kinds of records, a mixture of Gaussians.",
        run=rungs.mds_with_mixture,
        methods=("mds",),
        best_for=("mds",),
        needs_shadows=True,
        needs_all_known=True,
        is_dear=True,
        why="The iteration moves every known record by what its distance to the target asks for; where it has all but "
        "come to rest, that distance can be read off, whatever the start was, and records of the target's kind fill in "
        "what distances leave open.",
    ),
    "affinities": Attack(
        label="Kernel on affinities at rest",
        description="Reads the target's affinities off the forces that hold the map in place, and predicts the record "
        "from them and its distances; fitted on shadow releases.",
        run=rungs.tsne_at_rest,
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
        run=rungs.inverted,
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


def execute_in(
    folder: RunFolder, file: str, name: str, attack: Attack, inputs: AttackInputs, *, stage: str
) -> tuple[dict[str, np.ndarray], float]:
    """What `execute` finds, read back from the run folder if it is there: x, residual_norm and status; seconds.

    Args:
        folder: The run folder, which keeps the state of a training while that lasts.
        file: Name of the array file in it.
        name: Key of the attack.
        attack: What runs.
        inputs: For it.
        stage: Name of the record with the seconds and facts.

    Raises:
        ValueError: as `RunFolder.timed`.
    """
    checkpoint = folder.checkpoint(file)

    def make() -> tuple[dict[str, Any], dict[str, Any]]:
        result, facts = execute(name, attack, replace(inputs, checkpoint=checkpoint))
        status = np.asarray(result.status, np.uint32)
        return {"x": result.x, "residual_norm": result.residual_norm, "status": status}, facts

    found = folder.timed(file, make, stage=stage)
    checkpoint.unlink(missing_ok=True)
    return found
