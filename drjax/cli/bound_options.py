"""Options of `drjax bound` on what the adversary knows of the target before the release."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np

from drjax.bounds import prior
from drjax.core import validate

KAPPAS = (1e-6, 1e-4, 1e-3, 1e-2, 0.1, 0.5)
"""Baselines that are tried if none is given."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prior:
    """How well the adversary can guess the target without the release; some usual baselines if nothing is given.

    Attributes:
        kappa: Success probability of the best guess without the release.
        candidates: Number of equally likely records that the target is one of.
        mse: Mean squared errors that count as success, with --dimension or --samples.
        dimension: Number of features of a record; the target is uniform in a ball of --radius, or Gaussian with
            --sigma.
        radius: Radius of the ball that the target is uniform in.
        sigma: Standard deviation of each feature of a Gaussian target.
        samples: NPY file (n, d) of records like the target, in random order.
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
