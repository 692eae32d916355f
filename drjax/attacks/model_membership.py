"""The informed membership game: which of two records a classifier was trained on, all other records being known.

The developer tosses a coin, trains on the known records and one of two candidates, and releases the parameters. The
adversary has everything but the coin and whatever randomness training keeps secret: the start, the order of the
records, the noise. A record that can be reconstructed can be told from another one: where nobody wins this game nobody
reconstructs. The converse does not hold.

If nothing is secret the adversary trains on both candidates and sees which model was released. Otherwise they train
shadow models on each candidate with randomness of their own and compare two Gaussians fitted to these. A measured
accuracy is what this adversary reached; the best one may do better, so that a low one is no proof of privacy.

Source: Balle, Cherubin & Hayes, "Reconstructing training data with informed adversaries" (2022), algorithm 2 and the
appendix on random initialisation; the comparison of shadow Gaussians is that of Carlini et al., "Membership inference
attacks from first principles" (2022), with one covariance for both candidates.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import rankdata

from drjax.core import validate
from drjax.core.batching import map_lanes
from drjax.core.statistics import UNKNOWN, Interval, share_interval
from drjax.core.types import Array, PyTree
from drjax.nets.classifier_training import Mechanism, Training, check_labels, check_params, train_many
from drjax.nets.classifiers import Classifier

KNOWLEDGE = ("known", "unknown")
SCORES = ("auto", "parameters", "confidence")

FALSE_POSITIVE_RATES = (0.1, 0.01, 0.001)
"""Where the true-positive rate is reported, if there are enough games for it."""

BLOCK_BYTES = 2**27
"""Bytes of the parameters, in float64, of the models held at once; comparing them takes about five times as much."""

LEAST_SHRINKAGE = 1e-3
"""Weight of the diagonal in a covariance, at least: without it few shadows leave directions of no variance."""


@dataclass(frozen=True)
class Game:
    """What came of m games.

    Attributes:
        bits: (m,) which candidate was trained on, 0 or 1.
        scores: (m,) the adversary's evidence for candidate 1 against 0, a log-likelihood ratio where training keeps a
            secret, else from -1 to 1; nan in games left out.
        guesses: (m,) 1 where the score is > 0, else 0; -1 in games left out.
        accuracy: Share in [0, 1] of right guesses, with its Clopper-Pearson interval; guessing scores 1/2.
        auc: Probability in [0, 1] that a game of candidate 1 scores higher than one of candidate 0, ties counting
            half; nan if either is missing.
        tpr: True-positive rates: for each of `FALSE_POSITIVE_RATES`, the share of games of candidate 1 whose scores
            exceed all but that share of those of candidate 0. The Clopper-Pearson interval takes the threshold as
            given. `UNKNOWN` where that share of the games of candidate 0 is less than one game.
        features: What was compared, "parameters" or "confidence".
        n_excluded: Games left out of every figure: the released model, or all but one pair of shadows, not finite.
        n_released_not_finite: Released models that diverged.
        n_shadows_not_finite: Shadow models that diverged; their game goes on without the pair.
    """

    bits: np.ndarray
    scores: np.ndarray
    guesses: np.ndarray
    accuracy: Interval
    auc: float
    tpr: dict[float, Interval]
    features: str
    n_excluded: int
    n_released_not_finite: int
    n_shadows_not_finite: int


def play(
    key: Array,
    training: Training,
    known_x: Array,
    known_y: Array,
    pairs_x: Array,
    pairs_y: Array,
    *,
    start: str = "known",
    init: PyTree | None = None,
    order: str = "known",
    mechanism: Mechanism | None = None,
    n_shadows: int = 16,
    score: str = "auto",
    level: float = 0.95,
    batch_size: int | None = None,
    progress: bool = False,
) -> Game:
    """Plays one game for each pair of candidates, independently of the others.

    Trains m (2 n_shadows + 1) models, 3 m if training keeps no secret; see `train_many` for the cost of one. Game i
    depends on the key, i and its own pair, up to rounding.

    Shadow i of candidate 0 shares its secrets with shadow i of candidate 1, so that they differ by the effect of the
    record alone: what the secrets do to both cancels in the difference of the means.

    Args:
        key: A single key, of the coins and all other randomness.
        training: How models are trained.
        known_x: (n-1, d).
        known_y: (n-1,) classes.
        pairs_x: (m, 2, d), the two candidates of each game.
        pairs_y: (m, 2) classes.
        start: "known": every model starts from `init`. "unknown": each from its own draw of `Classifier.init`.
        init: Parameters at the start, if known.
        order: "known": all models see the records in one order, drawn from the key and public. "unknown": each in its
            own. Full batches have none, and no secret is in it.
        mechanism: Clipping and noise, from `drjax.defenses.dp_gd`; the noise is secret. Of mu-GDP models (for a
            relation of which two candidates are neighbours: "replace_one") nobody guesses more than Phi(mu / 2).
        n_shadows: Shadow models of each candidate, >= 2; not used if training keeps no secret.
        score: What the adversary looks at. "parameters": all of them, Gaussian to first order where noise or a
            shuffled order moves them about a common mean. "confidence": the released model's log-odds of the right
            class on either candidate, two numbers. "auto": the former if the start is known, else the latter, as
            networks from different starts are not near each other.
        level: Confidence level of the intervals, in (0, 1).
        batch_size: Models per chunk; see `drjax.core.batching`.
        progress: Show a bar.

    Raises:
        ValueError: an unknown name, `init` missing or given in vain, an unknown order of full batches, a mechanism
            without noise, arrays that do not match or are not finite, classes or numbers out of range.

    Example:
        >>> import drjax, jax
        >>> from drjax.attacks.model_membership import play
        >>> from drjax.nets.classifier_training import Training
        >>> from drjax.nets.classifiers import Classifier
        >>> data = drjax.load("digits")
        >>> training = Training(model=Classifier(hidden=(4,)), epochs=5)
        >>> init = training.model.init(jax.random.key(0), 64)
        >>> pairs = data.x[40:60].reshape(10, 2, 64), data.y[40:60].reshape(10, 2)
        >>> game = play(jax.random.key(1), training, data.x[:40], data.y[:40], *pairs, init=init)
        >>> game.accuracy.estimate  # start and order are known: every game is won
        1.0
    """
    validate.prng_key(key)
    validate.one_of(KNOWLEDGE, start=start, order=order)
    validate.one_of(SCORES, score=score)
    validate.integer(minimum=2, n_shadows=n_shadows)
    validate.open_unit(level=level)
    known_x = validate.matrix(known_x, "known_x")
    n, d = len(known_x) + 1, known_x.shape[1]
    classes = check_labels(known_y, n - 1, training.model.n_classes, "known_y")
    candidates, labels = _check_pairs(training.model, pairs_x, pairs_y, d)
    if (init is not None) != (start == "known"):
        raise ValueError(f"init must be given if and only if start is 'known', got start {start!r}, init {init!r:.60}")
    if init is not None:
        init = check_params(training.model, init, d)
    scale = np.asarray(1.0 if mechanism is None else mechanism.noise_scale)
    if scale.ndim or not 0 < scale < math.inf:
        raise ValueError(f"mechanism must add noise of one finite scale > 0, got noise_scale {scale}")

    game_key, order_key = jax.random.split(key)
    batches = training.batches(order_key, n)
    if batches is None and order == "unknown":
        raise ValueError(f"order must be 'known' for full batches, got {order!r} and batch_size {training.batch_size}")
    is_secret = start == "unknown" or order == "unknown" or mechanism is not None
    if score == "auto":
        score = "parameters" if start == "known" else "confidence"
    own = {"own_init": start == "unknown", "own_batches": order == "unknown"}
    shared = {"init": init, "batches": batches, "mechanism": mechanism, "batch_size": batch_size, "progress": progress}
    train = functools.partial(_train, training, (known_x, classes), own | shared)

    m, n_pairs = len(candidates), n_shadows if is_secret else 1
    fits = max(1, BLOCK_BYTES // (8 * (2 * n_pairs + 1) * training.model.n_parameters(d)))
    bits, scores = np.empty(m, np.int8), np.empty(m)
    n_released = n_diverged = 0
    for rows in np.array_split(np.arange(m), math.ceil(m / fits)):
        coins, keys = jax.vmap(_secrets, (None, 0, None))(game_key, jnp.asarray(rows), n_pairs)
        bits[rows] = np.asarray(coins)
        # Of each game first the released model, then the pairs of shadows.
        which = np.concatenate([bits[rows, None], np.tile(np.array([0, 1], np.int8), (len(rows), n_pairs))], axis=1)
        params = train(candidates[rows[:, None], which], labels[rows[:, None], which], keys)
        values, groups = _features(training.model, params, candidates[rows], labels[rows], score)
        released, shadows = values[:, 0], values[:, 1:].reshape(len(rows), n_pairs, 2, -1)
        scores[rows] = log_ratios(released, shadows, groups) if is_secret else _positions(released, shadows[:, 0])
        n_released += int(np.isnan(released).any(axis=1).sum())
        n_diverged += int(np.isnan(shadows).any(axis=3).sum())
    return _report(bits, scores, level, score, n_released, n_diverged)


def log_ratios(released: Array, shadows: Array, group_starts: Array) -> np.ndarray:
    """Log-likelihood ratios of two Gaussians with a common covariance, fitted to the shadows of each game.

    The covariance is the shadows' own, shrunk towards a diagonal that is constant within a group of features, by the
    weight of Ledoit & Wolf; one pair of shadows, whose secrets are the same, counts as one sample. It is never formed:
    costs O(g n^2 F) time and O(g n (n + F)) memory.

    Args:
        released: (g, F), one model a game; nan gives nan.
        shadows: (g, n, 2, F), n pairs of the two candidates, in this order; pairs that are not finite are left out.
        group_starts: (groups,), the first feature of each group of consecutive ones, 0 first.

    Returns:
        (g,) float64, > 0 for candidate 1; nan where fewer than 2 pairs are left. The best threshold is 0.

    Source: Ledoit & Wolf, "A well-conditioned estimator for large-dimensional covariance matrices" (2004).
    """
    x = np.asarray(shadows, np.float64)
    g, n, _, n_features = x.shape
    is_used = np.asarray(np.isfinite(x).all(axis=(2, 3)))
    x = np.where(is_used[:, :, None, None], x, 0)
    count = is_used.sum(axis=1)
    # Games with fewer than 2 pairs become nan at the end; till then they only must not divide by 0.
    n_used = np.maximum(count, 2).astype(np.float64)
    means = x.sum(axis=1) / n_used[:, None, None]
    rest = (x - means[:, None]) * is_used[:, :, None, None]

    variance = np.sum(rest**2, axis=(1, 2)) / (2 * (n_used - 1))[:, None]
    sizes = np.diff(np.append(group_starts, n_features))
    shared = np.add.reduceat(variance, group_starts, axis=1) / sizes
    # A group that no secret moves still has the rounding of float32.
    size = np.add.reduceat(np.sum(means**2, axis=1), group_starts, axis=1) / (2 * sizes)
    floor = np.finfo(np.float32).eps ** 2 * size + np.finfo(np.float64).tiny
    scale = np.repeat(np.sqrt(np.maximum(shared, floor)), sizes, axis=1)
    rest = (rest / scale[:, None, None]).reshape(g, 2 * n, n_features)
    gram = rest @ rest.transpose(0, 2, 1)
    weight = _shrinkage(gram.reshape(g, n, 2, n, 2), n_used, n_features)

    difference = (means[:, 1] - means[:, 0]) / scale
    place = (np.asarray(released, np.float64) - means.mean(axis=1)) / scale
    # Woodbury's identity for weight I + (1 - weight) rest' rest / (2 (n_used - 1)).
    ridge = weight * 2 * (n_used - 1)
    inner = ridge[:, None, None] * np.eye(2 * n) + (1 - weight)[:, None, None] * gram
    projected = np.linalg.solve(inner, rest @ difference[:, :, None])
    correction = (1 - weight)[:, None] * np.einsum("gif,gi->gf", rest, projected[:, :, 0])
    ratios = np.einsum("gf,gf->g", place, difference - correction) / weight
    return np.where(count >= 2, ratios, np.nan)


def _shrinkage(gram: np.ndarray, n_used: np.ndarray, n_features: int) -> np.ndarray:
    """(g,) weight of the identity in the covariance of pairs whose inner products are gram (g, n, 2, n, 2)."""
    own = np.sum(np.einsum("giaib->giab", gram) ** 2, axis=(1, 2, 3)) / 4
    square = np.sum(gram**2, axis=(1, 2, 3, 4)) / (2 * n_used) ** 2
    trace = np.einsum("giaia->g", gram) / (2 * n_used)
    error = (own - n_used * square) / n_used**2
    spread = square - trace**2 / n_features
    return np.clip(error / np.maximum(spread, np.finfo(np.float64).tiny), LEAST_SHRINKAGE, 1)


def _secrets(key: Array, game: Array, n_pairs: int) -> tuple[jax.Array, jax.Array]:
    """A game's coin, and the keys of its released model and of both models of every pair of shadows."""
    coin, released, shadows = jax.random.split(jax.random.fold_in(key, game), 3)
    pairs = jax.vmap(jax.random.fold_in, (None, 0))(shadows, jnp.arange(n_pairs))
    return jax.random.bernoulli(coin), jnp.concatenate([released[None], jnp.repeat(pairs, 2)])


def _train(training: Training, known: tuple, options: dict, x: Array, y: Array, keys: Array) -> PyTree:
    """`train_many` on records (g, k, d) with secrets from keys (g, k); parameters with a leading axis g k."""
    (n_known, d), model = known[0].shape, training.model
    starts, orders, noise = jnp.moveaxis(jax.vmap(lambda k: jax.random.split(k, 3))(keys.reshape(-1)), 1, 0)
    secret: dict[str, Any] = {"noise_keys": noise if options["mechanism"] is not None else None}
    if options["own_init"]:
        secret["init"] = jax.vmap(lambda k: model.init(k, d))(starts)
    if options["own_batches"]:
        secret["batches"] = jax.vmap(lambda k: training.batches(k, n_known + 1))(orders)
    return train_many(training, known[0], known[1], x.reshape(-1, d), y.reshape(-1), **options | secret)


def _features(model: Classifier, params: PyTree, x: Array, y: Array, score: str) -> tuple[np.ndarray, np.ndarray]:
    """What is compared of k models of each of g games, (g, k, F), nan where not finite, and where groups start."""
    leaves = [leaf.reshape(len(leaf), -1) for leaf in jax.tree.leaves(params)]
    starts = np.cumsum([0, *(leaf.shape[1] for leaf in leaves[:-1])])
    values: Any = leaves
    if score == "confidence":
        k = len(leaves[0]) // len(x)
        lanes = params, np.repeat(x.astype(leaves[0].dtype), k, axis=0), np.repeat(y, k, axis=0)
        values, starts = [map_lanes(_log_odds, model, lanes)], np.arange(2)
    features = np.concatenate(values, axis=1).astype(np.float64).reshape(len(x), -1, sum(v.shape[1] for v in values))
    return np.where(np.isfinite(features), features, np.nan), starts


def _log_odds(model: Classifier, lanes: tuple[PyTree, Array, Array]) -> jax.Array:
    """(B, 2) log(p / (1 - p)) of the right class on both candidates, from logits: p itself rounds to 1."""

    def one(params: PyTree, x: Array, y: Array) -> jax.Array:
        logits = model.logits(params, x)
        is_right = jnp.arange(model.n_classes) == y[:, None]
        right = jnp.sum(jnp.where(is_right, logits, 0), axis=1)
        return right - jax.nn.logsumexp(jnp.where(is_right, -jnp.inf, logits), axis=1)

    return jax.vmap(one)(*lanes)


def _positions(released: np.ndarray, models: np.ndarray) -> np.ndarray:
    """(g,) -1 at candidate 0's model, 1 at candidate 1's, 0 halfway; models (g, 2, F). 0 if the two are the same."""
    squared = np.sum((released[:, None] - models) ** 2, axis=2)
    between = np.sum((models[:, 1] - models[:, 0]) ** 2, axis=1)
    return (squared[:, 0] - squared[:, 1]) / np.where(between == 0, 1, between)


def _report(bits: Any, scores: Any, level: float, features: str, n_released: int, n_shadows: int) -> Game:
    is_played = np.isfinite(scores)
    guesses = np.where(is_played, scores > 0, -1).astype(np.int8)
    negatives, positives = (scores[is_played & (bits == bit)] for bit in (0, 1))
    auc = math.nan
    if len(negatives) and len(positives):
        ranks = rankdata(np.concatenate([positives, negatives]))[: len(positives)]
        auc = float((ranks.mean() - (len(positives) + 1) / 2) / len(negatives))
    tpr = {}
    for rate in FALSE_POSITIVE_RATES:
        allowed = math.floor(rate * len(negatives))
        tpr[rate] = UNKNOWN
        if allowed >= 1:
            threshold = np.sort(negatives)[-allowed - 1]
            tpr[rate] = share_interval(int(np.sum(positives > threshold)), len(positives), level=level)
    n_played = int(is_played.sum())
    accuracy = share_interval(int(np.sum(guesses == bits)), n_played, level=level)
    return Game(bits, scores, guesses, accuracy, auc, tpr, features, len(bits) - n_played, n_released, n_shadows)


def _check_pairs(model: Classifier, x: Any, y: Any, d: int) -> tuple[np.ndarray, np.ndarray]:
    candidates, labels = np.asarray(x), np.asarray(y)
    if candidates.ndim != 3 or candidates.shape[1:] != (2, d) or len(candidates) == 0:
        raise ValueError(f"pairs_x must have shape (m, 2, {d}), m >= 1, got {candidates.shape}")
    validate.matrix(candidates.reshape(-1, d), "pairs_x")
    if labels.shape != candidates.shape[:2]:
        raise ValueError(f"pairs_y must have shape {candidates.shape[:2]} to match pairs_x, got {labels.shape}")
    return candidates, check_labels(labels.ravel(), labels.size, model.n_classes, "pairs_y").reshape(-1, 2)
