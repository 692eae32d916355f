"""Audits: whether what a mechanism releases can be told apart better than its claimed trade-off curve allows.

An audit finds faults and proves nothing: a claim that is not refuted may still be false, for other inputs, for another
score, or by less than so many runs can show. Runs go through JAX; all statistics are float64 on the host. The two
inputs should be neighbours as the claim means it, and as far apart as neighbours can be.

Example:
    >>> import numpy as np
    >>> from drjax.bounds import auditing, tradeoff
    >>> null, alternative = np.random.default_rng(0).normal(size=(2, 2000)) + [[0.0], [2.0]]
    >>> threshold = auditing.choose_threshold(null[:600], alternative[:600])
    >>> seen = auditing.outcome_at(threshold, null[600:], alternative[600:])  # other runs than the threshold's
    >>> [round(float(rate), 2) for rate in auditing.rates_of(seen)[::2]]
    [0.37, 0.93]
    >>> 1.5 < auditing.mu_lower_bound(seen) < 2.0, auditing.refutes(seen, tradeoff.Gaussian(1.0))
    (True, True)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from drjax.bounds.audit_inputs import arrays_of, check_outputs, check_score, shapes_of
from drjax.bounds.audit_statistics import (
    Outcome,
    Rates,
    check_claim,
    check_open_unit,
    check_scores,
    check_share,
    choose_threshold,
    epsilon_from_mu,
    epsilon_lower_bound,
    mu_lower_bound,
    outcome_at,
    rates_of,
    refutes,
    sweep,
)
from drjax.bounds.closed_forms import Gaussian
from drjax.bounds.curve import TradeOff
from drjax.bounds.one_run import one_run_epsilon, one_run_mu, one_run_p_value
from drjax.bounds.reconstruction_audit import (
    epsilon_from_reconstruction,
    mu_from_reconstruction,
    success_lower_bound,
)
from drjax.core import batching, validate
from drjax.core.types import Array, PyTree

__all__ = [
    "Audit",
    "Outcome",
    "Rates",
    "audit_mechanism",
    "audit_samples",
    "choose_threshold",
    "epsilon_from_mu",
    "epsilon_from_reconstruction",
    "epsilon_lower_bound",
    "mu_from_reconstruction",
    "mu_lower_bound",
    "one_run_epsilon",
    "one_run_mu",
    "one_run_p_value",
    "outcome_at",
    "rates_of",
    "refutes",
    "success_lower_bound",
]

HOST_BYTES = 2**26
"""Limit on the float64 outputs that are held on the host at once while the linear score is estimated."""


@dataclass(frozen=True)
class Audit:
    """What an audit found. Each of its three findings has a threshold of its own and is wrong, of a mechanism that
    keeps its claim, with probability at most 1 - confidence; that they are all right is less certain than that.

    Attributes:
        is_refuted: Whether the claim is.
        threshold: Score from which on a run was said to be with the target, chosen to refute the claim.
        outcome: Counts of that test, on runs that no threshold was chosen on.
        epsilon_lower: `epsilon_lower_bound` at `delta`, of both directions.
        epsilon_threshold: Chosen for that bound.
        epsilon_outcome: Counts of that test.
        mu_lower: `mu_lower_bound`.
        mu_threshold: Chosen for that bound.
        mu_outcome: Counts of that test.
        delta: Delta, in [0, 1).
        claim_epsilon: The claim's epsilon at `delta`, inf where it has none. A claim for one direction has that
            direction's, and `epsilon_lower` may exceed it without a contradiction.
        claim_mu: Mu of a Gaussian claim; None of any other.
        confidence: Confidence, in (0, 1).
        n_null: Runs without the target, those for the thresholds among them.
        n_alternative: Runs with it.
        n_unusable_null: Runs without the target whose score was nan; they count as false alarms.
        n_unusable_alternative: Runs with the target whose score was nan; they count as not detected. So what cannot be
            used lowers the bounds.
        n_non_finite_null: Runs without the target whose output was not finite. Anybody can see that, so it is a score:
            the highest or the lowest, whichever speaks for the target in the runs that choose the thresholds.
        n_non_finite_alternative: Runs with the target whose output was not finite.
    """

    is_refuted: bool
    threshold: float
    outcome: Outcome
    epsilon_lower: float
    epsilon_threshold: float
    epsilon_outcome: Outcome
    mu_lower: float
    mu_threshold: float
    mu_outcome: Outcome
    delta: float
    claim_epsilon: float
    claim_mu: float | None
    confidence: float
    n_null: int
    n_alternative: int
    n_unusable_null: int = 0
    n_unusable_alternative: int = 0
    n_non_finite_null: int = 0
    n_non_finite_alternative: int = 0


def audit_samples(
    null_scores: Array,
    alternative_scores: Array,
    *,
    claim: TradeOff,
    delta: float = 1e-5,
    confidence: float = 0.95,
    tuning_share: float = 0.3,
) -> Audit:
    """Audits scores of runs that were made elsewhere, as of a host function with noise from the operating system.

    Args:
        null_scores: (n,) of independent runs without the target, in the order of the runs (never sorted: the first of
            them choose the thresholds, the others are counted). inf and -inf are scores. For a run that gave
            none, inf here and -inf below keep the bounds valid.
        alternative_scores: (k,) of runs with it; higher scores speak for the target.
        claim: A curve of `drjax.bounds.tradeoff`.
        delta: Delta of `epsilon_lower`, in [0, 1).
        confidence: Confidence, in (0, 1).
        tuning_share: Share of either's runs that choose the thresholds, in (0, 1); at least one is, and one is not.

    Returns:
        An `Audit`. Costs O((n + k) log(n + k)).

    Raises:
        ValueError: an argument out of its range, nan among the scores, or fewer than two of either.

    Example:
        >>> import numpy as np
        >>> from drjax.bounds import auditing, tradeoff
        >>> rng = np.random.default_rng(0)
        >>> without, with_target = rng.normal(size=1000), rng.normal(size=1000) + 3.0
        >>> auditing.audit_samples(without, with_target, claim=tradeoff.Gaussian(1.0)).is_refuted
        True
    """
    _check(claim, delta, confidence, tuning_share)
    null, alternative = check_scores(null_scores=null_scores), check_scores(alternative_scores=alternative_scores)
    for name, scores in (("null_scores", null), ("alternative_scores", alternative)):
        if scores.size < 2:
            raise ValueError(f"{name} must be two or more, got {scores.size}")
    return _judge(null, alternative, claim, delta, confidence, tuning_share)


def audit_mechanism(
    key: Array,
    mechanism: Callable[[Array, Any], PyTree],
    without: PyTree,
    with_target: PyTree,
    *,
    claim: TradeOff,
    score: Callable[[Any], Any] | None = None,
    n: int = 100_000,
    batch_size: int | None = None,
    delta: float = 1e-5,
    confidence: float = 0.95,
    tuning_share: float = 0.3,
    progress: bool = False,
) -> Audit:
    """Runs a mechanism n times on each of two neighbouring inputs, and audits what comes out.

    Run i of an input draws from `fold_in` of its own key at i: results depend on the batch size by rounding alone.

    With n = 100,000 runs of the scalar Gaussian mechanism `mu_lower` was between 0.8 mu and mu in nearly all audits at
    every mu from 0.2 to 9 (40 at each: never less, more in 3 of 360), on average 0.92 mu at 0.25 and 0.98 mu at 1.
    `epsilon_lower` is much looser there, 0.5 to 0.6 of the true epsilon at delta 1e-5 and mu of 0.25 to 2: few runs are
    as far out as the privacy loss that delta cuts off.

    Args:
        key: A single key; the audit's own, never one that a release was made with.
        mechanism: (key, data) to an array or a pytree of arrays, whose shapes are the same for both inputs. Traceable
            by JAX, anew in every call; all that is random has to come from its key. A host function has to be run by
            the caller, for `audit_samples`.
        without: Data without the target, a pytree of finite arrays.
        with_target: Data with it; may have other shapes.
        claim: A curve of `drjax.bounds.tradeoff`, for these two as neighbours.
        score: Output to a number, higher for the target; the logarithm of the likelihood ratio is the best there is.
            None: a linear score, whose weights (difference of the mean outputs over the variance, entry by entry) are
            estimated on the runs that also choose the thresholds, which takes these runs once more. It is the best for
            Gaussian noise that is independent between entries, but for what the estimation costs: with D entries it
            sees a mu of mu / sqrt(1 + 2 D / (n tuning_share mu^2)). It is blind to what is no difference of means.
        n: Runs on each input, >= 2.
        batch_size: Runs at once; chosen by the memory that one needs if None.
        delta: Delta of `epsilon_lower`, in [0, 1).
        confidence: Confidence, in (0, 1).
        tuning_share: Share of the runs that choose the thresholds, as in `audit_samples`.
        progress: Show a bar on standard error.

    Returns:
        An `Audit`. Memory: one batch, and 8 bytes a run.

    Raises:
        ValueError: an argument out of its range; a mechanism or score that JAX cannot trace; outputs that are not
            arrays of real numbers, or differ in shape between the inputs; a score that is not one number.

    Example:
        >>> import jax
        >>> from drjax.bounds import auditing, tradeoff
        >>> quiet = lambda key, total: total + 0.2 * jax.random.normal(key)  # too little noise for what it claims
        >>> found = auditing.audit_mechanism(jax.random.key(0), quiet, 0.0, 1.0, claim=tradeoff.Gaussian(1.0), n=1000)
        >>> found.is_refuted, found.mu_lower > 1
        (True, True)
    """
    validate.prng_key(key)
    _check(claim, delta, confidence, tuning_share)
    validate.integer(minimum=2, n=n)
    if batch_size is not None:
        validate.integer(batch_size=batch_size)
    for name, function in (("mechanism", mechanism), *([("score", score)] if score is not None else [])):
        if not callable(function):
            raise ValueError(f"{name} must be a function, got {function!r}")
    arms = [arrays_of(without, "without"), arrays_of(with_target, "with_target")]
    # Two parents, so that no run of one input shares its noise with a run of the other.
    contexts = [(arm_key, data) for arm_key, data in zip(jax.random.split(key), arms, strict=True)]
    outputs = [shapes_of(mechanism, "mechanism", arm_key, data) for arm_key, data in contexts]
    check_outputs(*outputs)
    runs = np.arange(n, dtype=np.uint32)
    tuning = runs[: _n_tuning(n, tuning_share)]
    if score is None:
        weights = _linear_weights(mechanism, contexts, tuning, batch_size, progress)
        run = _scored(mechanism, lambda output, given: _linear(output, *given))
    else:
        check_score(shapes_of(score, "score", outputs[0]))
        weights = None
        run = _scored(mechanism, lambda output, _: score(output))
    scores, counts, broken = [], {}, []
    # An unusable run is said to be with the target at any threshold if it is without it, and never if it is with it:
    # both speak for the claim.
    for name, context, unusable in zip(("null", "alternative"), contexts, (np.inf, -np.inf), strict=True):
        found, is_finite = batching.map_lanes(
            run, (*context, weights), runs, batch_size=batch_size, progress=progress, description="runs"
        )
        found, is_broken = np.array(found, np.float64), ~np.asarray(is_finite)
        is_unusable = np.isnan(found) & ~is_broken
        found[is_unusable] = unusable
        counts |= {f"n_unusable_{name}": int(is_unusable.sum()), f"n_non_finite_{name}": int(is_broken.sum())}
        scores.append(found)
        broken.append(is_broken)
    speaks_for_target = broken[1][: len(tuning)].sum() >= broken[0][: len(tuning)].sum()
    for found, is_broken in zip(scores, broken, strict=True):
        found[is_broken] = np.inf if speaks_for_target else -np.inf
    null, alternative = scores
    return _judge(null, alternative, claim, delta, confidence, tuning_share, **counts)


def _judge(
    null: np.ndarray,
    alternative: np.ndarray,
    claim: TradeOff,
    delta: float,
    confidence: float,
    tuning_share: float,
    **counts: int,
) -> Audit:
    cut, other_cut = _n_tuning(null.size, tuning_share), _n_tuning(alternative.size, tuning_share)
    candidates = sweep(null[:cut], alternative[:other_cut])

    def tested(**goal: Any) -> tuple[float, Outcome]:
        threshold = candidates.best(confidence=confidence, **goal)
        return threshold, outcome_at(threshold, null[cut:], alternative[other_cut:])

    threshold, outcome = tested(claim=claim)
    epsilon_threshold, epsilon_outcome = tested(delta=delta)
    mu_threshold, mu_outcome = tested()
    return Audit(
        is_refuted=refutes(outcome, claim, confidence=confidence),
        threshold=threshold,
        outcome=outcome,
        epsilon_lower=epsilon_lower_bound(epsilon_outcome, delta=delta, confidence=confidence),
        epsilon_threshold=epsilon_threshold,
        epsilon_outcome=epsilon_outcome,
        mu_lower=mu_lower_bound(mu_outcome, confidence=confidence),
        mu_threshold=mu_threshold,
        mu_outcome=mu_outcome,
        delta=float(delta),
        claim_epsilon=claim.epsilon_at(delta),
        claim_mu=float(claim.mu) if isinstance(claim, Gaussian) else None,
        confidence=float(confidence),
        n_null=null.size,
        n_alternative=alternative.size,
        **counts,
    )


def _n_tuning(n: int, share: float) -> int:
    return min(max(round(n * share), 1), n - 1)


def _scored(mechanism: Callable, score: Callable) -> Callable:
    """A new function for every audit: a program kept from an earlier one might hold noise that has changed since."""

    def run(context: PyTree, indices: Any) -> Any:
        key, data, given = context

        def one(index: Any) -> Any:
            output = mechanism(jax.random.fold_in(key, index), data)
            value = jnp.asarray(score(output, given), jax.dtypes.canonicalize_dtype(np.float64))
            return value, _is_finite(output)

        return jax.vmap(one)(indices)

    return run


def _is_finite(output: PyTree) -> Any:
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(output)]))


def _flat(output: PyTree) -> jax.Array:
    dtype = jax.dtypes.canonicalize_dtype(np.float64)
    return jnp.concatenate([jnp.ravel(jnp.asarray(leaf)).astype(dtype) for leaf in jax.tree.leaves(output)])


def _linear(output: PyTree, centre: jax.Array, weights: jax.Array) -> jax.Array:
    # Without the centre, large means would take the digits of small differences.
    return jnp.dot(_flat(output) - centre, weights, precision=jax.lax.Precision.HIGHEST)


def _linear_weights(
    mechanism: Callable, contexts: list[tuple[Any, PyTree]], runs: np.ndarray, batch_size: int | None, progress: bool
) -> tuple[jax.Array, jax.Array]:
    """Centre and weights of the linear score, (D,) each, from these runs of both inputs."""

    def outputs(context: PyTree, indices: Any) -> Any:
        key, data = context

        def one(index: Any) -> Any:
            output = mechanism(jax.random.fold_in(key, index), data)
            flat, usable = _flat(output), _is_finite(output)
            return jnp.where(usable, flat, 0), usable

        return jax.vmap(one)(indices)

    means, variances = [], []
    for context in contexts:
        size = batch_size or batching.choose_batch_size(outputs, context, runs)
        width = jax.eval_shape(outputs, context, runs[:1])[0].shape[1]
        size = min(size, max(1, HOST_BYTES // (8 * width)))
        n, total, squares = 0, np.zeros(width), np.zeros(width)
        for _, (flat, usable) in batching.iter_chunks(
            outputs, context, runs, batch_size=size, progress=progress, description="runs for the score"
        ):
            x = np.asarray(flat, np.float64)
            n += int(np.sum(usable))
            total += x.sum(axis=0)
            squares += np.einsum("ij,ij->j", x, x)
        means.append(total / max(n, 1))
        variances.append(np.maximum(squares / max(n, 1) - means[-1] ** 2, 0))
    difference = means[1] - means[0]
    # What rounding leaves of the variance of a constant must not become a weight; a true difference of constants does.
    floor = (1e-6 * (np.abs(means[0]) + np.abs(means[1]))) ** 2
    spread = np.maximum((variances[0] + variances[1]) / 2, floor)
    weights = np.divide(difference, spread, out=np.zeros_like(difference), where=spread > 0)
    largest = np.abs(weights).max()
    if largest > 0:
        weights /= largest
    return jnp.asarray((means[0] + means[1]) / 2), jnp.asarray(weights)


def _check(claim: Any, delta: Any, confidence: Any, tuning_share: Any) -> None:
    check_claim(claim)
    check_share(delta=delta)
    check_open_unit(confidence=confidence, tuning_share=tuning_share)
