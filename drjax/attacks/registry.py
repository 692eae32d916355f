"""Every attack of this project: the one list of them, which of them fit a threat, and how one is run."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np

from drjax.attacks import membership_attacks as components
from drjax.attacks.attack import Attack, EmbeddingThreat, Shadows, Threat
from drjax.attacks.membership_scores import Release
from drjax.attacks.models import attacks as models
from drjax.attacks.reconstruction import baselines, features
from drjax.attacks.reconstruction.behind_steps_attack import BehindSteps
from drjax.attacks.reconstruction.closed_form import attacks as closed_forms
from drjax.attacks.reconstruction.geodesics import GeodesicSearch
from drjax.attacks.reconstruction.invariant import InvariantKernel
from drjax.attacks.reconstruction.invariant_network import ResidualNetwork
from drjax.attacks.reconstruction.inversion_attack import Inversion
from drjax.attacks.reconstruction.landmark_equations import LandmarkEquations
from drjax.attacks.reconstruction.moving_geodesics import MovingGeodesics
from drjax.attacks.reconstruction.near_forces_attack import NearForces
from drjax.attacks.reconstruction.near_forces_behind_steps import NearForcesBehindSteps
from drjax.attacks.reconstruction.neural import DenseNetwork, SplitNetwork
from drjax.attacks.reconstruction.place_regression import PlaceRegression
from drjax.attacks.reconstruction.stationarity.attacks import Stationarity, StationarityMixture
from drjax.attacks.reconstruction.through_steps import ThroughSteps
from drjax.attacks.reconstruction.tsne_affinities import AffinitiesAtRest
from drjax.attacks.reconstruction.within_map import NeighboursInMap
from drjax.core.types import Array
from drjax.dr.factored import FactoredCoords


def _by_kind(attacks: Iterable[Attack]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for attack in attacks:
        found.setdefault(attack.kind, {})[attack.name] = attack
    return found


ATTACKS = _by_kind(
    (
        baselines.MeanRecord(),
        baselines.NearestRecord(),
        NeighboursInMap(),
        PlaceRegression(),
        baselines.Ridge(),
        InvariantKernel(),
        ResidualNetwork(),
        DenseNetwork(),
        SplitNetwork(),
        closed_forms.KnownOnly(),
        closed_forms.ClosedForm(),
        closed_forms.ClosedFormMixture(),
        BehindSteps(),
        GeodesicSearch(),
        MovingGeodesics(),
        closed_forms.MatrixRecovery(),
        LandmarkEquations(),
        Stationarity(),
        StationarityMixture(),
        AffinitiesAtRest(),
        NearForces(),
        Inversion(),
        ThroughSteps(inner=Stationarity()),
        ThroughSteps(inner=GeodesicSearch(), moves=False),
        ThroughSteps(inner=Inversion()),
        NearForcesBehindSteps(),
        models.MeanRecord(),
        models.NearestRecord(),
        models.QuadraticKernel(),
        models.ReconstructorNetwork(),
        models.TrainingInversion(),
        components.Informed(),
        components.MatrixRatio(),
        components.ShadowError(),
        components.Embedding(),
        components.Ratio(),
        components.Leverage(),
        components.ReconstructionError(),
    )
)
"""Attacks by the kind of their threats and their name, in the order of tables: simple ones first, and of those on
components, of which the first that fits is run, the strongest."""


def fitting(threat: Threat) -> dict[str, Any]:
    """The attacks and baselines on a threat, by name."""
    return {name: attack for name, attack in ATTACKS[threat.kind].items() if attack.fits(threat) is None}


def answer(attack: Any, key: Array, threat: Any, *, name: str | None = None) -> Any:
    """What an attack finds.

    Args:
        attack: Attack of `ATTACKS`, or one like it.
        key: PRNG key of all attacks on the threat: each draws by its name, so that what it finds does not depend on
            which others run.
        threat: Threat of the attack's kind.
        name: Another name for the draws.
    """
    own = jax.random.fold_in(key, zlib.crc32((name or attack.name).encode()))
    if isinstance(threat, EmbeddingThreat) and not attack.takes_factors:
        threat = _made(threat)
    if getattr(threat, "features", None) is None or attack.takes_features:
        return threat.settled(attack.run(own, threat))
    return features.run_with_features(attack, own, threat)


def _made(threat: EmbeddingThreat) -> EmbeddingThreat:
    """The same with all coordinates in place of factored ones."""
    if not isinstance(threat.coords, FactoredCoords):
        return threat

    def shadows() -> Shadows:
        found = threat.shadows()
        coords, validation = np.asarray(found.coords), np.asarray(found.validation_coords)
        return dataclasses.replace(found, coords=coords, validation_coords=validation)

    return dataclasses.replace(threat, coords=np.asarray(threat.coords), shadows=shadows)


def strongest_attack(
    release: Release, *, has_public: bool = True, knows_others: bool = False
) -> components.MembershipAttack:
    """The attack of this project that finds most members of published components.

    Args:
        release: What was intercepted.
        has_public: Whether the adversary has records of the same distribution, and knows about how many to draw.
        knows_others: Whether the adversary knows all records but one.

    Example:
        >>> import drjax
        >>> from drjax.attacks import membership
        >>> release = membership.release_of(drjax.load("digits").x[:60], 5)
        >>> membership.strongest_attack(release).name, membership.strongest_attack(release, has_public=False).name
        ('ratio', 'reconstruction')
    """
    nobody = components.ComponentsThreat(
        release=release, candidates=np.zeros((0, release.components.shape[1])), public=None
    )
    has = nobody.has | {"public": has_public, "others": knows_others}
    has["n_records"] |= has_public
    return next(attack for attack in ATTACKS["components"].values() if not attack.missing(has))
