"""How a privacy budget is divided over the steps of one release, and what the steps guarantee together."""

from __future__ import annotations

import math
from dataclasses import dataclass

from drjax.bounds import tradeoff
from drjax.bounds.accounting import Guarantee
from drjax.bounds.curve import RELATIONS, number
from drjax.bounds.gdp import check_positive, noise_multiplier_for
from drjax.core import validate
from drjax.core.types import hyperparams
from drjax.defenses.mechanisms import Gaussian

STEPS = ("center", "projection", "moments")


@hyperparams
class Budget:
    """Shares of the steps, in any unit; a step that is not taken leaves its share to the others.

    Where delta is 0 they divide epsilon, in which Laplace noise adds up; otherwise mu^2, in which Gaussian noise does.

    Attributes:
        center: Share of the step that finds the mean and the size of the records.
        projection: Share of the step that finds the components.
        moments: Share of the step that finds counts, means and covariances.

    Example:
        >>> from drjax.synthesis.pca_gauss import Budget
        >>> Budget.paper(projection=0.4)  # as paper 002 divides it
        Budget(center=0.06, projection=0.4, moments=0.54)
    """

    center: float = 0.1
    projection: float = 0.3
    moments: float = 0.6

    def __post_init__(self) -> None:
        """Checks all."""
        check_positive(center=self.center, projection=self.projection, moments=self.moments)

    @classmethod
    def paper(cls, projection: float = 0.3) -> Budget:
        """Paper 002's: a share for the components (it takes the best of 0.2 to 0.5), the rest 1 to 9 for mean and
        covariance.

        Raises:
            ValueError: the share is not in (0, 1).
        """
        if not 0 < float(number(projection=projection)) < 1:
            raise ValueError(f"projection must be in (0, 1), got {projection!r}")
        return cls(center=0.1 * (1 - projection), projection=projection, moments=0.9 * (1 - projection))


@dataclass(frozen=True)
class Plan:
    """What each step may spend.

    Attributes:
        noise: "gaussian" or "laplace".
        neighbouring: A name in `RELATIONS`.
        spend: mu of each step for Gaussian noise, epsilon of each for Laplace noise, by its name in `STEPS`; 0 for a
            step that is not taken.
        guarantee: Guarantee of all steps together.
    """

    noise: str
    neighbouring: str
    spend: dict[str, float]
    guarantee: Guarantee

    def scale(self, step: str, l1: float, l2: float) -> float:
        """The scale of the noise of a step, for its sensitivities in either norm, rounded up."""
        sensitivity = l2 if self.noise == "gaussian" else l1
        return sensitivity / self.spend[step] * (1 + 1e-12)


def plan(
    epsilon: float,
    delta: float,
    budget: Budget,
    *,
    steps: tuple[str, ...],
    neighbouring: str,
    parallel: tuple[str, ...] = (),
    for_release: bool = False,
) -> Plan:
    """Divides (epsilon, delta): Laplace noise where delta is 0, else Gaussian noise.

    Args:
        epsilon: Epsilon of all steps together, > 0.
        delta: Delta of all steps together, in [0, 1).
        budget: The shares.
        steps: Steps that are taken.
        neighbouring: A name in `RELATIONS`.
        parallel: Steps that see other records than the rest do: either part may spend all.
        for_release: Calibrate Gaussian noise through zCDP, which is what is proven of discrete noise.

    Raises:
        ValueError: an argument out of its range.
    """
    check_positive(epsilon=number(epsilon=epsilon))
    if not 0 <= float(number(delta=delta)) < 1:
        raise ValueError(f"delta must be in [0, 1), got {delta!r}")
    validate.one_of(RELATIONS, neighbouring=neighbouring)
    shares = {step: getattr(budget, step) for step in steps}
    for part in (parallel, tuple(step for step in steps if step not in parallel)):
        total = sum(shares[step] for step in part)
        shares.update({step: shares[step] / total for step in part})
    if delta == 0:
        curve = tradeoff.EpsilonDelta(float(epsilon), 0.0, neighbouring=neighbouring)
        spend = {step: float(epsilon) * share for step, share in shares.items()}
        proven = "pure: Laplace noise, epsilons of the steps added up"
        noise = "laplace"
    else:
        if for_release:
            found = Gaussian.for_release(epsilon, delta, neighbouring=neighbouring, sensitivity=1.0)
            mu = found.mu
            curve = tradeoff.ZCDP(mu**2 / 2, neighbouring=neighbouring)
            proven = "zCDP: discrete Gaussian noise, rhos of the steps added up"
        else:
            mu = 1 / noise_multiplier_for(epsilon, delta, 1, "zero_out")
            curve = tradeoff.Gaussian(mu, neighbouring=neighbouring)
            proven = "mu-GDP: Gaussian noise on real numbers, mu^2 of the steps added up"
        spend = {step: mu * math.sqrt(share) * (1 - 1e-10) for step, share in shares.items()}
        noise = "gaussian"
    if parallel:
        proven += " within each of two disjoint parts of the records"
    return Plan(noise, neighbouring, spend, Guarantee(curve, curve, proven))
