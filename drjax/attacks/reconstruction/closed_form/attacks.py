"""The closed forms as attacks: what an adversary has goes in, a reconstruction of every target comes out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from drjax.attacks.attack import Cost, EmbeddingAttack, EmbeddingThreat, EveryRecord
from drjax.attacks.reconstruction.closed_form import factored
from drjax.attacks.reconstruction.closed_form.downdate import Decomposition, decompose, decomposed
from drjax.attacks.reconstruction.closed_form.each import reconstruct_pca_each
from drjax.attacks.reconstruction.closed_form.left_over import ENTRIES, n_curves
from drjax.attacks.reconstruction.closed_form.pca import misfit, noise_of, reconstruct_pca
from drjax.attacks.reconstruction.closed_form.srp import reconstruct_srp
from drjax.attacks.reconstruction.closed_form.srp_each import reconstruct_srp_each
from drjax.attacks.reconstruction.closed_form.unknown import reconstruct_pca_many
from drjax.attacks.reconstruction.mixture_prior import MixturePrior
from drjax.attacks.reconstruction.priors import GaussianPrior
from drjax.attacks.shadow import DENSE_FLOPS
from drjax.core import streamed
from drjax.core.types import Array, DRMethod, Reconstruction
from drjax.dr import SparseRandomProjection, TruncatedSVD, publishes_scores

CALIBRATION_RELEASES = 24
"""Most shadow releases that noise is measured on."""

SOLVED = (
    "A published component is an eigenvector of a matrix of which all but the target is known, so it can be solved for "
    "the target"
)


@dataclass(frozen=True, kw_only=True)
class KnownOnly(EmbeddingAttack):
    """Published components solved with the known records alone; see `reconstruct_pca`."""

    name: str = "closed-form-known"
    label: str = "Closed form, known only"
    description: str = "Solves the equations of the published components with the known records alone."
    takes_hidden = True
    takes_factors = True

    def suits(self, method: DRMethod, *, seed_known: bool) -> str | None:
        """See `EmbeddingAttack`."""
        del seed_known
        if publishes_scores(method) or isinstance(method, TruncatedSVD):
            return None
        return "is of PCA, truncated SVD and classical MDS of Euclidean distances"

    def fits(self, threat: EmbeddingThreat) -> str | None:
        """See `Attack`."""
        if threat.hidden is not None and not _is_centred(threat):
            return "must know all released records of truncated SVD but the target"
        return EmbeddingAttack.fits(self, threat)

    def fits_each(self, every: EveryRecord) -> str | None:
        """See `EmbeddingAttack`."""
        del every
        return "is one record's alone: another closed form expects of a record what the others show"

    def cost(self, threat: EmbeddingThreat) -> Cost:
        """See `Attack`."""
        p, d, m = *threat.known.shape, threat.n_releases
        r = min(p, d)
        k = threat.coords.shape[2]
        flops = 4.0 * p * d * r + m * (4.0 * r * d + 20.0 * r**2 + 8.0 * p * k * r)
        curves = 3 * n_curves(k) * min(m * p, ENTRIES)
        copies = streamed.bytes_of(d) if streamed.is_large(p, d) else 32.0 * p * d
        return Cost(flops / DENSE_FLOPS, copies + 8.0 * (7 * m * (2 * d + p) + curves))

    def prior(self, threat: EmbeddingThreat) -> GaussianPrior | MixturePrior | None:
        """What is expected of a record."""
        del threat

    def run(self, key: Array, threat: EmbeddingThreat) -> Reconstruction:
        """See `Attack`; nothing is drawn."""
        del key
        prior = self.prior(threat)
        found = _of_one(threat, prior) if threat.hidden is None else _of_several(threat, prior)
        return found._replace(facts=_facts(threat, prior))

    def misfit(self, threat: EmbeddingThreat) -> list[str]:
        """See `EmbeddingAttack`."""
        return misfit(threat.known, threat.coords[0], is_centred=_is_centred(threat))

    def equations(self, threat: EmbeddingThreat) -> np.ndarray | None:
        """See `EmbeddingAttack`."""
        return None if threat.features is None else _of_one(threat, self.prior(threat)).x


@dataclass(frozen=True, kw_only=True)
class ClosedForm(KnownOnly):
    """Published components solved, and the rest predicted by a Gaussian of public records."""

    name: str = "closed-form"
    label: str = "Closed form with prior"
    description: str = (
        "Solves the equations of the published components and predicts from public records what they leave open."
    )
    why: str = f"{SOLVED}."
    needs_public: bool = True
    each = True
    shares_each = True

    def fits_each(self, every: EveryRecord) -> str | None:
        """See `EmbeddingAttack`: there what is not published is predicted from the other records."""
        if not publishes_scores(every.method):
            return "is of PCA and classical MDS of Euclidean distances"
        return None

    def prior(self, threat: EmbeddingThreat) -> GaussianPrior | MixturePrior | None:
        """Prior as in `KnownOnly`."""
        return GaussianPrior.fit(threat.expected_of)

    def cost(self, threat: EmbeddingThreat) -> Cost:
        """See `Attack`."""
        solved, d = KnownOnly.cost(self, threat), threat.known.shape[1]
        flops = 2.0 * len(threat.expected_of) * d**2 + 30.0 * threat.n_releases * d**2
        return Cost(solved.seconds + flops / DENSE_FLOPS, solved.bytes + 24.0 * d**2)

    def run_each(self, key: Array, every: EveryRecord) -> Reconstruction:
        """See `EmbeddingAttack`; nothing is drawn."""
        del key
        # The audit's own release has no noise but rounding; that of a published map is measured.
        noise = 0.0 if every.alike else None
        return reconstruct_pca_each(every.x, every.coords, rows=every.rows, bounds=every.bounds, noise=noise)


@dataclass(frozen=True, kw_only=True)
class ClosedFormMixture(ClosedForm):
    """The same with a mixture of Gaussians."""

    name: str = "closed-form-mixture"
    label: str = "Closed form, mixture prior"
    description: str = "The same with a prior that learns kinds of records, a mixture of Gaussians."
    why: str = f"{SOLVED}; what it leaves open, records of the target's kind fill in."
    takes_hidden = False

    def fits_each(self, every: EveryRecord) -> str | None:
        """See `EmbeddingAttack`."""
        return KnownOnly.fits_each(self, every)

    def prior(self, threat: EmbeddingThreat) -> GaussianPrior | MixturePrior | None:
        """Prior as in `KnownOnly`."""
        return MixturePrior.fit(threat.expected_of)

    def cost(self, threat: EmbeddingThreat) -> Cost:
        """See `Attack`."""
        one, d = ClosedForm.cost(self, threat), threat.known.shape[1]
        return Cost(10 * one.seconds, one.bytes + 160.0 * d**2)


@dataclass(frozen=True, kw_only=True)
class MatrixRecovery(EmbeddingAttack):
    """Recovery of the projection matrix; see `reconstruct_srp`."""

    name: str = "srp-closed-form"
    label: str = "Matrix recovery"
    description: str = (
        "Recovers the projection matrix from the known records, then takes the likeliest record that fits the target's "
        "coordinates."
    )
    why: str = (
        "The known records and their coordinates give the projection away, and with it as many linear functions of the "
        "target as there are coordinates; nothing else of it is in the release."
    )
    needs_public: bool = True
    takes_hidden = True
    takes_factors = True
    each = True
    shares_each = True

    def suits(self, method: DRMethod, *, seed_known: bool) -> str | None:
        """See `EmbeddingAttack`."""
        del seed_known
        return None if isinstance(method, SparseRandomProjection) else "is of random projections"

    def fits(self, threat: EmbeddingThreat) -> str | None:
        """See `Attack`: without public records the known ones tell what to expect."""
        return self.suits(threat.method, seed_known=threat.seed_key is not None)

    def fits_each(self, every: EveryRecord) -> str | None:
        """See `EmbeddingAttack`: there the other records tell what to expect."""
        return self.suits(every.method, seed_known=False)

    def cost(self, threat: EmbeddingThreat) -> Cost:
        """See `Attack`."""
        p, d, m = *threat.known.shape, threat.n_releases
        flops = 10.0 * p * d * min(p, d) + 2.0 * len(threat.expected_of) * d**2 + 30.0 * m * d**2
        return Cost(flops / DENSE_FLOPS, 8.0 * (3 * p * d + 3 * d**2 + 2 * m * d))

    def run(self, key: Array, threat: EmbeddingThreat) -> Reconstruction:
        """See `Attack`; nothing is drawn."""
        del key
        prior = GaussianPrior.fit(threat.expected_of)
        found = reconstruct_srp(
            threat.known, threat.coords, prior=prior, precision=threat.precision, bounds=threat.bounds
        )
        return found._replace(facts={"n_matrices_recovered": int(np.sum(found.status == 0))})

    def run_each(self, key: Array, every: EveryRecord) -> Reconstruction:
        """See `EmbeddingAttack`; nothing is drawn."""
        del key
        precision = every.shapes.precision
        return reconstruct_srp_each(every.x, every.coords, rows=every.rows, precision=precision, bounds=every.bounds)


def _of_one(threat: EmbeddingThreat, prior: GaussianPrior | MixturePrior | None) -> Reconstruction:
    """All records but the target known; features of the target count as equations."""
    noise, features, is_centred = None, None, _is_centred(threat)
    span = _span(threat, is_centred=is_centred)
    if threat.features is not None:
        features = np.full((threat.n_releases, threat.known.shape[1]), np.nan)
        features[:, threat.features.which] = threat.features.values
    elif threat.public is not None and threat.alike:
        # Shadow releases carry the noise of a defence, and the adversary knows that they are of PCA.
        used = threat.shadows().coords[:CALIBRATION_RELEASES]
        noise = noise_of(threat.known, used, is_centred=is_centred, span=span) if len(used) else None
    return reconstruct_pca(
        threat.known,
        threat.coords,
        prior=prior,
        bounds=threat.bounds,
        noise=noise,
        known_features=features,
        is_centred=is_centred,
        span=span,
    )


def _span(threat: EmbeddingThreat, *, is_centred: bool) -> Decomposition:
    """The known records' decomposition, from what whoever made the releases knows of them, where that is at hand."""
    known, coords = threat.known, threat.coords
    found = coords.directions if factored.reads(coords, known, 0, is_centred=is_centred) else None
    # Directions about 0 are none about the mean.
    if found is not None and bool(np.any(found.mean)) == is_centred:
        return decomposed(known, found)
    return decompose(known, is_centred=is_centred)


def _is_centred(threat: EmbeddingThreat) -> bool:
    """Whether the method centres the records."""
    return not isinstance(threat.method, TruncatedSVD)


def _of_several(threat: EmbeddingThreat, prior: GaussianPrior | MixturePrior | None) -> Reconstruction:
    assert threat.hidden is not None
    assert not isinstance(prior, MixturePrior)
    coords = np.concatenate([threat.coords, threat.hidden], axis=1)
    unknown = np.concatenate([[0], np.arange(threat.coords.shape[1], coords.shape[1])])
    found = reconstruct_pca_many(threat.known, coords, unknown=unknown, n_wanted=1, prior=prior, bounds=threat.bounds)
    x, candidates, residual, status = (
        field[:, 0] for field in (found.x, found.candidates, found.residual_norm, found.status)
    )
    return Reconstruction(x, None, candidates, residual, status)


def _facts(threat: EmbeddingThreat, prior: GaussianPrior | MixturePrior | None) -> dict[str, int]:
    facts = {} if threat.hidden is None else {"n_unknown": 1 + threat.hidden.shape[1]}
    return facts | ({"n_components_of_prior": len(prior.components)} if isinstance(prior, MixturePrior) else {})
