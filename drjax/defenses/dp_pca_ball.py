"""Records within a Euclidean ball, and Gaussian noise on their second moment: what those of `dp_pca` share."""

from __future__ import annotations

from typing import Any, ClassVar

import jax

from drjax.bounds import tradeoff
from drjax.core.types import Array, hyperparams, traced
from drjax.defenses import dp_pca_sensitivity as sensitivity
from drjax.defenses.clipping import in_ball
from drjax.defenses.dp_pca_noise import NoisyMoment, centred
from drjax.defenses.mechanisms import Gaussian


@hyperparams
class InBall(NoisyMoment):
    """Records cut to a Euclidean norm.

    Attributes:
        row_norm: Public bound on a record's norm, > 0, in units of the records; may be swept without retracing.

    Example:
        >>> import numpy as np
        >>> from drjax.defenses.dp_pca import AnalyticGauss
        >>> from drjax.defenses.dp_pca_ball import InBall
        >>> mechanism = AnalyticGauss(neighbouring="zero_out", n_components=2, row_norm=1.0, noise_multiplier=1.0)
        >>> isinstance(mechanism, InBall)
        True
        >>> np.asarray(mechanism.rows(np.array([[3.0, 4.0], [0.3, 0.4]], np.float32))[0]).round(2)
        array([[0.6, 0.8],
               [0.3, 0.4]], dtype=float32)
    """

    row_norm: Any = traced(default=1.0)

    POSITIVE: ClassVar[tuple[str, ...]] = ("row_norm",)

    def rows(self, x: Array) -> tuple[jax.Array, Any, Any]:
        """Records of norm at most 1 in units of row_norm, up to rounding; one with a nan is 0."""
        return in_ball(self.cut(centred(x, self.center)), self.row_norm), self.row_norm, None


@hyperparams
class GaussianNoise(InBall):
    """Gaussian noise: mu-GDP with mu = sensitivity / noise_multiplier.

    Attributes:
        noise_multiplier: Scale of the noise, in units of row_norm^2, > 0; may be swept without retracing.
    """

    noise_multiplier: Any = traced()

    POSITIVE: ClassVar[tuple[str, ...]] = ("row_norm", "noise_multiplier")
    AMOUNT: ClassVar[str] = "noise_multiplier"

    @classmethod
    def from_mu(cls, mu: float, *, neighbouring: str, **fields: Any) -> Any:
        """The least noise that is mu-GDP; the other fields by name."""
        return cls._calibrated(Gaussian.from_mu, mu, neighbouring=neighbouring, **fields)

    @classmethod
    def analytic(cls, epsilon: float, delta: float, *, neighbouring: str, **fields: Any) -> Any:
        """The least noise that is (epsilon, delta)-DP (Balle & Wang 2018); the other fields by name."""
        return cls._calibrated(Gaussian.analytic, epsilon, delta, neighbouring=neighbouring, **fields)

    @classmethod
    def for_release(cls, epsilon: float, delta: float, *, neighbouring: str, **fields: Any) -> Any:
        """The least noise whose `release` is proven (epsilon, delta)-DP, through zCDP; the other fields by name."""
        return cls._calibrated(Gaussian.for_release, epsilon, delta, neighbouring=neighbouring, **fields)

    @classmethod
    def _calibrated(cls, calibrate: Any, *budget: float, neighbouring: str, **fields: Any) -> Any:
        unit = cls(neighbouring=neighbouring, noise_multiplier=1.0, **fields).sensitivity
        found = calibrate(*budget, neighbouring=neighbouring, sensitivity=unit)
        return cls(neighbouring=neighbouring, noise_multiplier=found.scale, **fields)

    @property
    def sensitivity(self) -> float:
        """Sensitivity in units of row_norm^2, rounded up."""
        if self.mean_weight is not None:
            return sensitivity.joint_sensitivity(self.mean_weight, neighbouring=self.neighbouring)
        return sensitivity.moment_sensitivity(1.0, neighbouring=self.neighbouring)

    @property
    def mechanism(self) -> Gaussian:
        """The Gaussian mechanism that it is, on a vector in units of row_norm^2."""
        return Gaussian(neighbouring=self.neighbouring, sensitivity=self.sensitivity, scale=self.noise_multiplier)

    def proven_curve(self) -> tuple[tradeoff.TradeOff, str]:
        """mu-GDP."""
        if self.mean_weight is not None:
            return self.mechanism.curve, "for real numbers: mu-GDP of the noisy joint moment of (1, record)"
        return self.mechanism.curve, "exact for real numbers: mu-GDP, attained by records along the axes"

    def event(self) -> Any:
        """Event as of `mechanisms.Gaussian`."""
        return self.mechanism.dp_event()
