"""Membership inference against PCA: was this record among those that the components were computed from?

    release = membership.release_of(records, 100)                       # what the curator publishes
    errors = membership.pca_scores(release.components, candidates)      # the paper's attack; small for members
    shadows = membership.fit_shadows(key, public, len(records))         # what the adversary learns from public data
    evidence = membership.attack_scores(release, candidates, shadows=shadows)  # the strongest attack; large for members
    roc.evaluate(key, evidence, is_member)

What each release allows an adversary who does not know the other records:

| released beside the components | strongest attack | what it can prove |
|---|---|---|
| nothing | likelihood ratio, eigenvalues taken from shadows | nothing |
| eigenvalues | likelihood ratio with them | a leverage above 1, by more than rounding: not a member (`leverages`) |
| mean | likelihood ratio, that of the mean added | nothing |
| embedding of the records | a look at its rows (`embedding_distances`) | membership, up to rounding and twins |

Who has no public data has the leverage or, without eigenvalues, the paper's reconstruction error. Parties that send
components of their own data each are attacked one by one; `any_party` adds up. Who knows all records but one plays
`informed_game`, which only noise can keep open.

`drjax.attacks.membership_scores` has what needs no public data, `drjax.attacks.membership_ratio` the likelihood ratio,
`drjax.attacks.membership_noisy` what knowing a private curator's noise is worth, `drjax.attacks.roc` the figures.

Source: Zari et al., "Membership inference attack against principal component analysis" (paper 001).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import logsumexp

from drjax.attacks import roc
from drjax.attacks.membership_ratio import ratio_score_prefixes, ratio_scores
from drjax.attacks.membership_scores import (
    Release,
    embedding_distances,
    leverages,
    pca_score_prefixes,
    pca_scores,
    release_of,
)
from drjax.attacks.membership_shadows import Shadows, fit_shadows
from drjax.attacks.registry import strongest_attack
from drjax.core import batching, validate
from drjax.core.linalg import HIGHEST
from drjax.core.statistics import UNKNOWN, Interval, share_interval
from drjax.core.types import Array, PyTree, hyperparams
from drjax.defenses.mechanisms import Gaussian, Laplace

__all__ = [
    "InformedGame",
    "Release",
    "Shadows",
    "any_party",
    "attack_scores",
    "embedding_distances",
    "fit_shadows",
    "informed_game",
    "leverages",
    "pca_score_prefixes",
    "pca_scores",
    "ratio_score_prefixes",
    "ratio_scores",
    "release_of",
    "strongest_attack",
]

PUBLISHED = ("components", "eigenvalues", "scatter")


@dataclass(frozen=True)
class InformedGame:
    """What came of m games; see `informed_game`.

    Attributes:
        bits: (m,) which candidate was in the data, 0 or 1.
        scores: (m,) evidence for candidate 1 against 0: a log-likelihood ratio if there is noise, else from -1 to 1.
        guesses: (m,) 1 where the score is > 0, else 0.
        accuracy: Share in [0, 1] of right guesses with its Clopper-Pearson interval; guessing scores 1/2.
        auc: Area under the ROC curve of candidate 1 against 0, see `drjax.attacks.roc.auc`; `UNKNOWN` with fewer than 2
            games of either.
        tpr: True-positive rate by false-positive rate, see `drjax.attacks.roc.tpr_at_fpr`.
    """

    bits: np.ndarray
    scores: np.ndarray
    guesses: np.ndarray
    accuracy: Interval
    auc: Interval
    tpr: dict[float, Interval]


def attack_scores(release: Release, candidates: Array, *, shadows: Shadows | None = None) -> np.ndarray:
    """Scores of the strongest attack on the release, (m,), larger for members.

    Args:
        release: What was intercepted.
        candidates: (m, d).
        shadows: Shadow releases from `fit_shadows` if the adversary has public data; without pairs the first-order
            ratio is taken.

    Raises:
        ValueError: candidates not a finite (m, d) matrix, or shadows that do not fit the release.

    Example:
        >>> import drjax, jax
        >>> from drjax.attacks import membership, roc
        >>> x = drjax.load("digits").x
        >>> shadows = membership.fit_shadows(jax.random.key(0), x[120:360], 60, n_shadows=4)
        >>> evidence = membership.attack_scores(membership.release_of(x[:60], 30), x[:120], shadows=shadows)
        >>> roc.auc(evidence, [True] * 60 + [False] * 60).estimate > 0.8
        True
    """
    name = strongest_attack(release, has_public=shadows is not None).name
    if name == "embedding":
        return -embedding_distances(release, candidates)
    if shadows is not None:
        method = "rank_one" if len(shadows.bases) else "first_order"
        return ratio_scores(shadows, release, candidates, method=method)
    if name == "leverage":
        return -leverages(release, candidates)[:, -1]
    return -pca_scores(release.components, candidates, mean=release.mean)


def any_party(log_ratios: Array) -> np.ndarray:
    """Evidence that a candidate is in the data of one of P parties, from each party's own log-likelihood ratios.

    The parties of the paper's section 4.1 each send components of their own, smaller data. If a member is with one of
    them, equally likely with any, the likelihood ratio is the mean of theirs; which one it is, is the largest's.

    Args:
        log_ratios: (P, m), from `ratio_scores` with a shadow fit for each size of data; no nan.

    Returns:
        (m,), larger for members.

    Raises:
        ValueError: not a numeric (P, m) array, or a nan.

    Example:
        >>> from drjax.attacks import membership
        >>> membership.any_party([[0.0, 4.0], [0.0, -4.0]]).round(1)  # of two parties, for two candidates
        array([0. , 3.3])
    """
    table = np.asarray(log_ratios)
    if table.dtype.kind not in "fiub" or table.ndim != 2 or 0 in table.shape or np.isnan(table).any():
        raise ValueError(f"log_ratios must be a numeric (P, m) array without nan, got {table.dtype} {table.shape}")
    return np.asarray(logsumexp(table.astype(np.float64), axis=0)) - math.log(len(table))


def informed_game(
    key: Array,
    known: Array,
    pairs: Array,
    *,
    n_components: int | None = None,
    published: str = "components",
    centred: bool = False,
    mechanism: Gaussian | Laplace | None = None,
    level: float = 0.95,
    batch_size: int | None = None,
) -> InformedGame:
    """Plays one game for each pair: which of two records is in the data, all others being known.

    The curator tosses a coin, takes A = X^T X / n of the known records and one candidate, and publishes. The adversary
    forms A with either candidate and asks which of the two has what was published for eigenvectors: the rest
    A v - (v^T A v) v of the right one is rounding, so that signs, ties between eigenvalues and eigensolvers do not
    matter. **Without noise every game is won**, unless the candidates are alike in all published directions; the
    adversary needs O(k d^2) operations a game and no eigendecomposition.

    With noise of known scale on the d (d + 1) / 2 entries of A the score is a log-likelihood ratio. For the published
    noisy matrix itself it is exact, and no adversary does better. For its eigenvectors it is that of rotation-invariant
    Gaussian noise: what A, seen from the published directions, has off the diagonal, is the noise there. That leaves
    out how eigenvalues repel each other, the smaller diagonal of noise with equal scale everywhere, and, for Laplace
    noise, that sums of a few entries are not Gaussian: the adversary may do slightly better than measured.

    A mean or an embedding published beside them gives the candidate away at once and is no game.

    Args:
        key: PRNG key of coins and noise; game i depends on the key and i.
        known: (n - 1, d), standardised as the curator's.
        pairs: (m, 2, d), the two candidates of each game.
        n_components: k in [1, d]; d if None.
        published: "components", "eigenvalues" (with the components), or "scatter": A itself.
        centred: Whether the curator subtracts the mean of the n records.
        mechanism: Noise on the distinct entries of A; its draws are for experiments.
        level: Confidence level of the intervals, in (0, 1).
        batch_size: Games per chunk; see `drjax.core.batching`. One costs O(d^3).

    Raises:
        ValueError: arrays not finite or of shapes that do not match, an unknown name or a number out of range.

    Source: Balle, Cherubin & Hayes, "Reconstructing training data with informed adversaries" (2022), algorithm 2.

    Example:
        >>> import drjax, jax
        >>> from drjax.attacks import membership
        >>> x = drjax.load("digits").x
        >>> game = membership.informed_game(jax.random.key(0), x[:40], x[40:60].reshape(10, 2, 64), n_components=2)
        >>> game.accuracy.estimate  # without noise every game is won
        1.0
    """
    validate.prng_key(key)
    validate.one_of(PUBLISHED, published=published)
    known = validate.matrix(known, "known").astype(np.float64)
    n, d = len(known) + 1, known.shape[1]
    candidates = np.asarray(pairs)
    if candidates.ndim != 3 or candidates.shape[1:] != (2, d) or len(candidates) == 0:
        raise ValueError(f"pairs must have shape (m, 2, {d}), m >= 1, got {candidates.shape}")
    validate.matrix(candidates.reshape(-1, d), "pairs")
    k = d if n_components is None else n_components
    validate.integer(n_components=k)
    validate.at_most(d, "d", n_components=k)
    if not (mechanism is None or isinstance(mechanism, (Gaussian, Laplace))):
        raise ValueError(f"mechanism must be Gaussian or Laplace of drjax.defenses.mechanisms, got {mechanism!r:.60}")
    validate.open_unit(level=level)

    mean = known.mean(axis=0) if centred else np.zeros(d)
    with jax.enable_x64(True):
        # All eigenvalues and eigenvectors are the matrix, whose likelihood is known exactly.
        published = "scatter" if published == "eigenvalues" and k == d else published
        game = _Game(n_components=k, published=published, noise=type(mechanism).__name__)
        context = (game, mechanism, key, (known - mean).T @ (known - mean), mean, n, (n - 1) / n if centred else 1.0)
        lanes = (np.arange(len(candidates)), candidates.astype(np.float64))
        bits, scores = batching.map_lanes(_play_chunk, context, lanes, batch_size=batch_size)
    bits, guesses = bits.astype(np.int8), (scores > 0).astype(np.int8)
    accuracy = share_interval(int(np.sum(bits == guesses)), len(bits), level=level)
    auc, tpr = UNKNOWN, dict.fromkeys(roc.FALSE_POSITIVE_RATES, UNKNOWN)
    if 2 <= bits.sum() <= len(bits) - 2:
        auc = roc.auc(scores, bits, level=level)
        tpr = {rate: roc.tpr_at_fpr(scores, bits, fpr=rate, level=level) for rate in tpr}
    return InformedGame(bits, scores, guesses, accuracy, auc, tpr)


@hyperparams
class _Game:
    n_components: int
    published: str
    noise: str


def _play_chunk(context: PyTree, lanes: PyTree) -> tuple[jax.Array, jax.Array]:
    """Bits (b,) and scores (b,) of the games with indices (b,) and pairs (b, 2, d)."""
    game, mechanism, key, known, mean, n, weight = context
    rows, columns = np.triu_indices(known.shape[0])

    def one(lane: PyTree) -> tuple[jax.Array, jax.Array]:
        index, pair = lane
        coin_key, noise_key = jax.random.split(jax.random.fold_in(key, index))
        bit = jax.random.bernoulli(coin_key).astype(jnp.int32)
        offsets = pair - mean
        scatters = (known + weight * offsets[:, :, None] * offsets[:, None, :]) / n
        released = scatters[bit]
        if mechanism is not None:
            noisy = mechanism.sample(noise_key, released[rows, columns])
            released = jnp.zeros_like(released).at[rows, columns].set(noisy).at[columns, rows].set(noisy)
        if game.published == "scatter":
            rest = released[rows, columns] - scatters[:, rows, columns]
            misfits = jnp.sum(jnp.abs(rest) if game.noise == "Laplace" else rest**2 / 2, axis=1)
        else:
            values, vectors = jnp.linalg.eigh(released)
            v, values = vectors[:, ::-1][:, : game.n_components], values[::-1][: game.n_components]
            misfits = jnp.stack([_misfit(s, v, values if game.published == "eigenvalues" else None) for s in scatters])
        if mechanism is None:
            total = jnp.sum(misfits)
            return bit, (misfits[0] - misfits[1]) / jnp.where(total == 0, 1, total)
        if game.published == "scatter" and game.noise == "Laplace":
            return bit, (misfits[0] - misfits[1]) / mechanism.scale
        variance = mechanism.scale**2 * (2 if game.noise == "Laplace" else 1)
        return bit, (misfits[0] - misfits[1]) / variance

    return jax.lax.map(one, lanes)


def _misfit(scatter: jax.Array, v: jax.Array, values: jax.Array | None) -> jax.Array:
    """Minus the log-likelihood, times the variance, of orthonormal columns v (d, k) being eigenvectors up to noise.

    Gaussian noise invariant under rotation has one variance in all directions off the diagonal, twice that on it.
    """
    image = jnp.matmul(scatter, v, precision=HIGHEST)
    inside = jnp.matmul(v.T, image, precision=HIGHEST)
    outside = image - jnp.matmul(v, inside, precision=HIGHEST)
    off_diagonal = inside - jnp.diag(jnp.diagonal(inside))
    # A pair of released directions stands in `inside` twice, a released and another one in `outside` once.
    misfit = jnp.sum(off_diagonal**2) / 4 + jnp.sum(outside**2) / 2
    return misfit if values is None else misfit + jnp.sum((jnp.diagonal(inside) - values) ** 2) / 4
