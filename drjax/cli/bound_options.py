"""Options of `drjax bound`: the mechanism, and what the adversary knows of the target before the release."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Literal

import numpy as np

from drjax.bounds import accounting, prior, tradeoff
from drjax.bounds.accounting import Guarantee
from drjax.core import validate

Relation = Literal["add_or_remove", "replace_one", "zero_out"]

KAPPAS = (1e-6, 1e-4, 1e-3, 1e-2, 0.1, 0.5)
"""Baselines that are tried if none is given."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mechanism:
    """What is released: training with noise by --noise-multiplier, or a guarantee that something has.

    Attributes:
        noise_multiplier: Of DP-GD or DP-SGD: standard deviation of the noise over the clipping norm.
        steps: Steps of training; epochs with --shuffled.
        rate: Probability that a record is in a batch; 1 for full batches.
        shuffled: Batches are cut from a shuffled data set instead of drawn at random.
        neighbouring: Relation that the guarantee is for; --noise-multiplier needs it.
        mu: Gaussian differential privacy.
        epsilon: (epsilon, delta)-differential privacy.
        delta: Of --epsilon; 0 is pure privacy.
        rho: zero-concentrated differential privacy.
        laplace: One number with Laplace noise: its sensitivity over the scale of the noise.
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prior:
    """How well the adversary can guess the target without the release; some usual baselines if nothing is given.

    Attributes:
        kappa: Probability that the best guess succeeds.
        candidates: The target is one of so many records, all alike.
        mse: Mean squared error that counts as success, with --dimension or --samples.
        dimension: Features of a record; uniform in a ball of --radius, or Gaussian of --sigma.
        radius: Of the ball.
        sigma: Standard deviation of each feature of a Gaussian target.
        samples: NPY file (n, d) of records like the target, in no order.
    """

    kappa: tuple[float, ...] = ()
    candidates: int | None = None
    mse: tuple[float, ...] = ()
    dimension: int | None = None
    radius: float | None = None
    sigma: float | None = None
    samples: Path | None = None

    def baselines(self) -> list[tuple[str, float]]:
        """What each baseline is of, and kappa.

        Raises:
            ValueError: options that do not belong together, or a number out of its range.
            OSError: the samples cannot be read.
        """
        if sum((bool(self.kappa), self.candidates is not None, bool(self.mse))) > 1:
            raise ValueError("the prior must be one of --kappa, --candidates and --mse")
        if not self.mse and any(v is not None for v in (self.dimension, self.radius, self.sigma, self.samples)):
            raise ValueError(
                "mse must be given with --dimension, --radius, --sigma or --samples: what counts as success"
            )
        if self.candidates is not None:
            return [(f"one of {self.candidates}", prior.kappa_discrete(self.candidates))]
        if not self.mse:
            values = self.kappa or KAPPAS
            validate.probability(kappa=np.array(values))
            return [("given", value) for value in values]
        for value in self.mse:
            validate.non_negative(mse=value)
        if self.samples is not None:
            return self._empirical(self.samples)
        if self.dimension is None or (self.radius is None) == (self.sigma is None):
            raise ValueError("mse must come with --samples, or with --dimension and one of --radius and --sigma")
        eta = np.sqrt(self.dimension * np.array(self.mse))
        if self.sigma is not None:
            kappas = prior.kappa_gaussian(eta, self.dimension, self.sigma)
        else:
            assert self.radius is not None
            kappas = prior.kappa_uniform_ball(eta, self.dimension, radius=self.radius)
        return [(f"MSE <= {m:g}", float(k)) for m, k in zip(self.mse, kappas, strict=True)]

    def _empirical(self, path: Path) -> list[tuple[str, float]]:
        if not (self.dimension is self.radius is self.sigma is None):
            raise ValueError("dimension, radius and sigma must be left out with --samples")
        samples = np.load(path, allow_pickle=False)
        samples = samples.reshape(len(samples), -1) if samples.ndim > 1 else samples
        rows = []
        for value in self.mse:
            found = prior.kappa_empirical(samples, math.sqrt(value * samples.shape[-1]))
            rows.append((f"MSE <= {value:g}, best guess that was found", found.kappa))
            rows.append((f"MSE <= {value:g}, any guess (95%)", found.upper_of_all))
        return rows
