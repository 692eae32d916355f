"""A guarantee of differential privacy as a person states it: by what was released, or by its numbers."""

from __future__ import annotations

import dataclasses
from typing import Literal

from drjax.bounds import accounting, tradeoff
from drjax.bounds.accounting import Guarantee

Relation = Literal["add_or_remove", "replace_one", "zero_out"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mechanism:
    """What is released: training with noise by --noise-multiplier, or a guarantee that something has.

    Attributes:
        noise_multiplier: Noise multiplier of DP-GD or DP-SGD: standard deviation of the noise over the clipping norm.
        steps: Number of training steps; of epochs with --shuffled.
        rate: Probability that a record is in a batch; 1 for full batches.
        shuffled: Whether batches are cut from a shuffled data set instead of drawn at random.
        neighbouring: Neighbouring relation of the guarantee; --noise-multiplier needs it.
        mu: Mu of a Gaussian differential privacy (mu-GDP) guarantee.
        epsilon: Epsilon of an (epsilon, delta)-differential privacy guarantee.
        delta: Delta of --epsilon; 0 is pure privacy.
        rho: Rho of a zero-concentrated differential privacy (zCDP) guarantee.
        laplace: Sensitivity over the scale of the noise, for one number released with Laplace noise.
    """

    noise_multiplier: float | None = None
    steps: int = 1
    rate: float = 1.0
    shuffled: bool = False
    neighbouring: Relation | None = None
    mu: float | None = None
    epsilon: float | None = None
    delta: float = 0.0
    rho: float | None = None
    laplace: float | None = None

    def guarantee(self) -> Guarantee:
        """What the options describe.

        Raises:
            ValueError: none or several mechanisms, or a number out of its range.
            ImportError: batches are drawn at random and dp-accounting is not installed.
        """
        names = ("noise_multiplier", "mu", "epsilon", "rho", "laplace")
        given = [name for name in names if getattr(self, name) is not None]
        if len(given) != 1:
            options = ", ".join(f"--{name.replace('_', '-')}" for name in names)
            raise ValueError(f"the mechanism must be one of {options}; got {' and '.join(given) or 'none'}")
        if self.noise_multiplier is not None:
            return self._training(self.noise_multiplier)
        if (self.steps, self.rate, self.shuffled) != (1, 1.0, False):
            raise ValueError(f"steps, rate and shuffled must be left out with --{given[0]}, which is of all steps")
        if self.delta and self.epsilon is None:
            raise ValueError(f"delta must be left out without --epsilon, got {self.delta:g}")
        curve = {
            "mu": lambda value: tradeoff.Gaussian(value, neighbouring=self.neighbouring),
            "epsilon": lambda value: tradeoff.EpsilonDelta(value, self.delta, neighbouring=self.neighbouring),
            "rho": lambda value: tradeoff.ZCDP(value, neighbouring=self.neighbouring),
            "laplace": lambda value: tradeoff.Laplace(value, neighbouring=self.neighbouring),
        }[given[0]](getattr(self, given[0]))
        return Guarantee(curve, curve, "as claimed: whether the mechanism has this guarantee is not checked")

    def _training(self, noise: float) -> Guarantee:
        if self.neighbouring is None:
            raise ValueError(
                f"neighbouring must be given with --noise-multiplier, one of {', '.join(tradeoff.RELATIONS)}"
            )
        if self.shuffled:
            if self.rate != 1:
                raise ValueError(f"rate must be left out with --shuffled, got {self.rate:g}")
            return accounting.dp_sgd_shuffled(noise, self.steps, neighbouring=self.neighbouring)
        if self.rate == 1:
            return accounting.dp_gd(noise, self.steps, neighbouring=self.neighbouring)
        return accounting.dp_sgd(noise, self.rate, self.steps, neighbouring=self.neighbouring)
