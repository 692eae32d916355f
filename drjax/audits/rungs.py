"""How each attack of the ladder runs: from what is at hand to a reconstruction and facts for the records."""

from __future__ import annotations

from typing import Any

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
from drjax.attacks.reconstruction.mixture_prior import MixturePrior
from drjax.attacks.reconstruction.priors import GaussianPrior
from drjax.audits.inputs import BOUNDS, AttackInputs
from drjax.core.types import Reconstruction

CALIBRATION_RELEASES = 24
"""Most shadow releases that the size of what an early stop leaves is measured on."""


def mean_record(inputs: AttackInputs) -> tuple[Reconstruction, dict[str, Any]]:
    """The mean public record, for every target."""
    return baselines.mean_image(inputs.public, len(inputs.targets)), {}


def nearest_record(inputs: AttackInputs) -> tuple[Reconstruction, dict[str, Any]]:
    """The known or public record nearest to each target."""
    records = np.concatenate([inputs.known, inputs.public])
    return baselines.nearest_neighbor(inputs.targets, records), {}


def ridge(inputs: AttackInputs) -> tuple[Reconstruction, dict[str, Any]]:
    """Ridge regression on raw coordinates."""
    model = baselines.fit_ridge(inputs.shadow_coords, inputs.shadow)
    return _clipped(model.reconstruct(inputs.coords)), {"penalty": float(model.penalty)}


def invariant_kernel(inputs: AttackInputs) -> tuple[Reconstruction, dict[str, Any]]:
    """Kernel ridge regression on invariant features."""
    model = invariant.fit(inputs.shadow_coords, inputs.shadow)
    choice = model.regression.choice
    facts = {"features": model.features, "penalty": choice.penalty, "loo_mse": model.loo_mse}
    return _clipped(model.reconstruct(inputs.coords)), facts


def residual_network(inputs: AttackInputs) -> tuple[Reconstruction, dict[str, Any]]:
    """The network on invariant features."""
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


def pca_known_only(inputs: AttackInputs) -> tuple[Reconstruction, dict[str, Any]]:
    """The closed form of PCA without a prior."""
    return _pca(inputs, None), {}


def pca_with_prior(inputs: AttackInputs) -> tuple[Reconstruction, dict[str, Any]]:
    """The closed form of PCA with a Gaussian prior and bounds."""
    prior = GaussianPrior.fit(inputs.public)
    return _pca(inputs, prior), {}


def pca_with_mixture(inputs: AttackInputs) -> tuple[Reconstruction, dict[str, Any]]:
    """The closed form of PCA with a mixture of Gaussians and bounds."""
    prior = MixturePrior.fit(inputs.public)
    facts = {"n_components_of_prior": len(prior.components)}
    return _pca(inputs, prior), facts


def _pca(inputs: AttackInputs, prior: GaussianPrior | MixturePrior | None) -> Reconstruction:
    # Shadow releases carry the noise of a defence, and the adversary knows that they are of PCA.
    shadows = inputs.shadow_coords[:CALIBRATION_RELEASES]
    noise = closed_form.noise_of(inputs.known, shadows) if len(shadows) else None
    return closed_form.reconstruct_pca(inputs.known, inputs.coords, prior=prior, bounds=BOUNDS, noise=noise)


def mds_stationarity(inputs: AttackInputs) -> tuple[Reconstruction, dict[str, Any]]:
    """Stationarity of MDS and its last steps, with a Gaussian prior."""
    return _mds(inputs, GaussianPrior.fit(inputs.public))


def mds_with_mixture(inputs: AttackInputs) -> tuple[Reconstruction, dict[str, Any]]:
    """The same with a mixture of Gaussians."""
    prior = MixturePrior.fit(inputs.public)
    result, facts = _mds(inputs, prior)
    return result, {**facts, "n_components_of_prior": len(prior.components)}


def _mds(inputs: AttackInputs, prior: GaussianPrior | MixturePrior) -> tuple[Reconstruction, dict[str, Any]]:
    used = slice(CALIBRATION_RELEASES)
    scale = stationarity.calibrate(inputs.known, inputs.shadow_coords[used], inputs.shadow[used])
    result = stationarity.reconstruct_mds(
        inputs.known, inputs.coords, prior=prior, scale=scale, bounds=BOUNDS, progress=inputs.progress
    )
    return result, {"scale": scale, "expected_error_norm": float(np.nanmean(result.residual_norm))}


def srp_matrix(inputs: AttackInputs) -> tuple[Reconstruction, dict[str, Any]]:
    """Recovery of the projection matrix."""
    prior = GaussianPrior.fit(inputs.public)
    decimals = inputs.config.decimals
    precision = None if decimals is None else 0.5 * 10.0**-decimals
    result = closed_form.reconstruct_srp(inputs.known, inputs.coords, prior=prior, precision=precision, bounds=BOUNDS)
    return result, {"n_matrices_recovered": int(np.sum(result.status == 0))}


def isomap_geodesics(inputs: AttackInputs) -> tuple[Reconstruction, dict[str, Any]]:
    """Search for the target's place in Isomap's graph."""
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
    choice, n_certified = model.regression.choice, int(found.is_certified.sum())
    facts = {"n_certified": n_certified, "penalty": choice.penalty, "loo_mse": choice.loo_mse}
    return model.reconstruct(found, bounds=BOUNDS), facts


def tsne_at_rest(inputs: AttackInputs) -> tuple[Reconstruction, dict[str, Any]]:
    """Kernel regression on affinities of a t-SNE map at rest."""
    model = _affinity_model(inputs)
    choice = model.regression.choice
    facts = {"features": model.features, "penalty": choice.penalty, "loo_mse": choice.loo_mse}
    return _clipped(model.reconstruct(inputs.coords)), facts


def _affinity_model(inputs: AttackInputs) -> tsne_affinities.AffinityModel:
    perplexity = getattr(inputs.config.dr_method, "perplexity")  # noqa: B009, a field of t-SNE alone
    return tsne_affinities.fit(inputs.known, inputs.shadow_coords, inputs.shadow, perplexity=perplexity)


def inverted(inputs: AttackInputs) -> tuple[Reconstruction, dict[str, Any]]:
    """Inversion through the kernel or the gradient."""
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


def split_network(inputs: AttackInputs) -> tuple[Reconstruction, dict[str, Any]]:
    """The network of paper 000."""
    return _network(inputs, inputs.config.network)


def dense_network(inputs: AttackInputs) -> tuple[Reconstruction, dict[str, Any]]:
    """The network of BCH22."""
    return _network(inputs, inputs.config.dense_network)


def _clipped(result: Reconstruction) -> Reconstruction:
    return result._replace(x=np.clip(result.x, *BOUNDS))
