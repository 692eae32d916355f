"""Lower bounds on privacy parameters from how often reconstructions succeeded."""

from __future__ import annotations

from typing import Any

from scipy.special import ndtri

from drjax.bounds.audit_statistics import (
    Rates,
    binomial_high,
    binomial_low,
    check_open_unit,
    check_share,
    epsilon_of_rates,
    lowered,
)
from drjax.bounds.curve import number
from drjax.bounds.rounding import as_float
from drjax.core import validate


def success_lower_bound(n_success: int, n_trials: int, *, confidence: float = 0.95) -> float:
    """Clopper and Pearson's lower bound on a probability: too high with probability at most 1 - confidence.

    One-sided, since nothing else is estimated beside it. A claimed curve is refuted where it exceeds
    `curve.power(kappa)`.

    Args:
        n_success: Number of successes, in [0, n_trials].
        n_trials: Independent trials, >= 1.
        confidence: Confidence, in (0, 1).

    Raises:
        ValueError: an argument out of its range.

    Example:
        >>> from drjax.bounds.auditing import success_lower_bound
        >>> round(success_lower_bound(60, 100), 2)
        0.51
    """
    as_float(n_trials=n_trials)
    validate.integer(minimum=0, n_success=n_success)
    validate.at_most(n_trials, "n_trials", n_success=n_success)
    check_open_unit(confidence=confidence)
    return float(binomial_low(n_success, n_trials, 1 - confidence))


def mu_from_reconstruction(n_success: int, n_trials: int, kappa: float, *, confidence: float = 0.95) -> float:
    """A mu below which the mechanism is not mu-GDP, from reconstructions that came within a radius of the target.

    Under mu-GDP no attack succeeds with a probability above Phi(Phi^-1(kappa) + mu). In a trial the target is drawn
    from the prior, released, and attacked; trials share nothing but the known records.

    Args:
        n_success: Trials whose reconstruction is within the radius, in [0, n_trials].
        n_trials: Number of trials, >= 1.
        kappa: Upper bound, in (0, 1], on the largest probability of a success without the release. One that is too
            small makes the bound too high; one that is estimated has to be the upper end of its interval, and the
            confidence is then that of both.
        confidence: Confidence, in (0, 1).

    Returns:
        Lower bound on mu, >= 0, finite.

    Raises:
        ValueError: an argument out of its range.

    Source: Hayes, Mahloujifar & Balle (2023), Bounding training data reconstruction in DP-SGD.

    Example:
        >>> from drjax.bounds.auditing import mu_from_reconstruction
        >>> round(mu_from_reconstruction(60, 100, kappa=0.01), 1)  # guessing would hit 1 in 100
        2.4
    """
    low = success_lower_bound(n_success, n_trials, confidence=confidence)
    _check_kappa(kappa)
    return lowered(float(ndtri(low) - ndtri(kappa)))


def epsilon_from_reconstruction(
    n_success: int, n_trials: int, kappa: float, *, delta: float, confidence: float = 0.95
) -> float:
    """An epsilon that the mechanism does not go below at this delta, from reconstructions within a radius.

    Under (epsilon, delta)-privacy success has a probability of at most exp(epsilon) kappa + delta, and failure one of
    at least exp(-epsilon) (1 - kappa - delta); the better of the two, which share one bound.

    Args:
        n_success: Number of successes, as in `mu_from_reconstruction`.
        n_trials: Number of trials, >= 1.
        kappa: Upper bound on the baseline success, in (0, 1].
        delta: Delta, in [0, 1).
        confidence: Confidence, in (0, 1).

    Returns:
        Lower bound on epsilon, >= 0, finite.

    Raises:
        ValueError: an argument out of its range.

    Source: Balle, Cherubin & Hayes (2022), Reconstructing training data with informed adversaries.

    Example:
        >>> from drjax.bounds.auditing import epsilon_from_reconstruction
        >>> round(epsilon_from_reconstruction(60, 100, kappa=0.01, delta=1e-5), 1)  # guessing would hit 1 in 100
        3.9
    """
    low = success_lower_bound(n_success, n_trials, confidence=confidence)
    _check_kappa(kappa)
    check_share(delta=delta)
    failure = float(binomial_high(n_trials - n_success, n_trials, 1 - confidence))
    return lowered(float(epsilon_of_rates(Rates(float(kappa), 1 - float(kappa), low, failure), delta)))


def _check_kappa(kappa: Any) -> None:
    if not 0 < number(kappa=kappa) <= 1:
        raise ValueError(f"kappa must be in (0, 1], got {kappa}")
