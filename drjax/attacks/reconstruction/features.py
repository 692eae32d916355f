"""Features of the target that the adversary has, put to use by any attack.

By the attack's own errors: those on public records that it was not trained on say how the errors of the known features
go with the others'; a Gaussian fitted on them is conditioned on what the known features reveal. An attack that can also
take the features as equations is asked to, and of the two ways the one that does better on public records is taken.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from drjax.attacks.attack import EmbeddingAttack, EmbeddingThreat, KnownFeatures
from drjax.attacks.reconstruction.priors import GaussianPrior
from drjax.core.types import Array, Reconstruction

MIN_PRACTICE = 4
"""Usable reconstructions of validation records, below which nothing can be said of errors."""


def run_with_features(attack: EmbeddingAttack, key: Array, threat: EmbeddingThreat) -> Reconstruction:
    """What an attack finds of targets some of whose features are known; see the module.

    Args:
        attack: Attack that does not use known features itself.
        key: PRNG key of the attack.
        threat: Threat with `features`.

    Raises:
        ValueError: too few validation records to learn the errors on.
    """
    assert threat.features is not None
    m, which = threat.n_releases, threat.features.which
    shadows = threat.shadows()
    both = dataclasses.replace(
        threat, coords=np.concatenate([threat.coords, shadows.validation_coords]), features=None, truth=None
    )
    found = both.settled(attack.run(key, both))
    # Of the targets the known features alone.
    truth = np.concatenate([np.full((m, len(which)), np.nan), shadows.validation.astype(np.float64)])
    truth[:m, which] = threat.features.values
    practice = m + np.flatnonzero(np.isfinite(found.x[m:]).all(axis=1))
    if len(practice) < MIN_PRACTICE:
        raise ValueError(f"n_validation must leave at least {MIN_PRACTICE} usable reconstructions, got {len(practice)}")
    x, facts = _corrected(found.x, truth, practice, threat, which), found.facts
    fitted = GaussianPrior.fit((truth - found.x)[practice])
    each = fitted.left_open(np.eye(len(which))[which], np.zeros(int(which.sum())))
    exact = attack.equations(dataclasses.replace(both, features=KnownFeatures(which, truth[:, which])))
    if exact is not None:
        # Half of the public records say how the errors go together, the other half how well that does.
        fitted, held_out = practice[::2], practice[1::2]
        losses = [
            np.mean((guess[held_out] - truth[held_out]) ** 2)
            for guess in (_corrected(found.x, truth, fitted, threat, which), exact)
        ]
        facts = {**(facts or {}), "features": "errors" if losses[0] < losses[1] else "equations"}
        if losses[1] <= losses[0]:
            x, each = exact, np.mean((exact[held_out] - truth[held_out]) ** 2, axis=0)
    x, each = x[:m], np.tile(np.where(which, 0, each), (m, 1))
    return Reconstruction(x, None, x[:, None], found.residual_norm[:m], found.status[:m], facts=facts, feature_mse=each)


def _corrected(
    found: np.ndarray, truth: np.ndarray, practice: np.ndarray, threat: EmbeddingThreat, which: np.ndarray
) -> np.ndarray:
    """Reconstructions (b, d) plus the errors expected in view of those of the known features, within the bounds."""
    errors = truth - found
    usable = np.isfinite(found).all(axis=1)
    x = found.copy()
    fitted = GaussianPrior.fit(errors[practice])
    x[usable] += fitted.condition(np.eye(len(which))[which], errors[usable][:, which])
    return x if threat.bounds is None else np.clip(x, *threat.bounds)
