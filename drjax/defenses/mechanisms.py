"""The Laplace and the Gaussian mechanism: noise on one vector computed from private records.

    rows = clip_l2(records, 1.0, grid=2**-20)
    mechanism = Gaussian.for_release(1.0, 1e-6, neighbouring="zero_out", sensitivity=1.0)
    published = mechanism.release(rows.sum(axis=0), grid=2**-20, on_grid=True)
    published.value, published.curve

`release` is for publication: whole multiples of a grid, noise of `drjax.defenses.exact_noise`. `sample` is for
experiments: floating-point noise in JAX, whose curve is that of real numbers. A floating-point sampler reaches some
numbers and not others, depending on the value that is noised, so one look at the last bits can rule a value out that
the curve calls likely (Mironov 2012 for Laplace; Haney et al. 2022 for Gaussian and for fixes by rounding alone).

The sensitivity is the largest distance between the vectors of two neighbouring data sets, as numbers in the computer: a
sum of floating-point numbers may move by more than one clipped row (Casacuberta et al. 2022). `clip_l1` and `clip_l2`
with a grid give rows whose sum is exact and whose norm is at most the bound; the sum then moves by
`drjax.bounds.gdp.SENSITIVITY` times the bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from numbers import Real
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from drjax.bounds import tradeoff
from drjax.bounds.curve import RELATIONS, number, smallest
from drjax.bounds.gdp import MARGIN, check_positive, noise_multiplier_for
from drjax.bounds.numeric import require_dp_accounting
from drjax.core import validate
from drjax.core.linalg import compute_dtype
from drjax.core.types import Array, hyperparams, traced
from drjax.defenses.exact_noise import MAX_SCALE, discrete_gaussian, discrete_laplace, power_of_two, to_steps
from drjax.defenses.exact_norms import clip_l1, clip_l2

__all__ = ["Gaussian", "GridNoise", "Laplace", "Release", "clip_l1", "clip_l2"]

FINE, FINEST = 20, 40
"""The default grid is 2^-FINE of the noise, or finer for many coordinates, down to 2^-FINEST."""


class Release(NamedTuple):
    """What `release` returns.

    Attributes:
        value: Float64 in the shape of the value, for publication.
        curve: Trade-off curve of the guarantee, which `drjax.bounds.ledger` takes.
        grid: The value was rounded to multiples of it before noise was added; a power of two.
        noise_scale: Scale of the noise as drawn, a little above the mechanism's `scale`, in units of the value.
        note: What is proven, in words.
    """

    value: np.ndarray
    curve: tradeoff.TradeOff
    grid: float
    noise_scale: float
    note: str


class GridNoise(NamedTuple):
    """Noise of a release in whole steps of its grid; it depends on public numbers alone.

    Attributes:
        grid: The step.
        sensitivity: How far the rounded vectors of neighbours may be apart: in L1 for `Laplace`, squared L2 for
            `Gaussian`.
        noise: The scale of the discrete Laplace, or sigma2 of the discrete Gaussian.
    """

    grid: float
    sensitivity: int
    noise: int


@hyperparams
class Laplace:
    """Laplace noise of one scale on every coordinate: pure differential privacy.

    Attributes:
        neighbouring: Neighbouring relation: which data sets `sensitivity` compares, a name in
            `drjax.bounds.curve.RELATIONS`; no default.
        sensitivity: Largest L1 distance between the vectors of neighbours, > 0, in units of the value.
        scale: Scale of the noise, > 0, in the same units; may be swept without retracing.

    Raises:
        ValueError: an unknown relation, or a number that is not finite and > 0.

    Source: Dwork, McSherry, Nissim & Smith (2006).
    """

    neighbouring: str
    sensitivity: float
    scale: Any = traced()

    def __post_init__(self) -> None:
        _check(self)

    @classmethod
    def from_epsilon(cls, epsilon: float, *, neighbouring: str, sensitivity: float) -> Laplace:
        """The least noise that is epsilon-DP.

        Raises:
            ValueError: an argument that is not finite and > 0, or an unknown relation.
        """
        check_positive(epsilon=number(epsilon=epsilon), sensitivity=number(sensitivity=sensitivity))
        return cls(neighbouring=neighbouring, sensitivity=sensitivity, scale=_ratio(sensitivity, epsilon))

    @property
    def epsilon(self) -> float:
        """Epsilon of the pure guarantee: sensitivity over scale, rounded up."""
        return _ratio(self.sensitivity, self.scale)

    @property
    def curve(self) -> tradeoff.Laplace:
        """Trade-off curve of the noise on real numbers, not of a floating-point draw.

        Also for vectors: of all ways to spread an L1 distance over coordinates, all of it in one is seen best. (With
        the distance in two coordinates the privacy loss takes the same values, and the probabilities of its larger
        ones cross those of the single coordinate once: the single one is larger in convex order.)
        """
        return tradeoff.Laplace(self.epsilon, neighbouring=self.neighbouring)

    def dp_event(self) -> Any:
        """`dp_accounting.LaplaceDpEvent`, its noise in units of the sensitivity, rounded down.

        Under "replace_one" the sensitivity, two records' norms, is in it already: dp-accounting's Renyi accountant
        doubles nothing there, and its losses take no Laplace event.

        Raises:
            ImportError: dp-accounting is not installed.
        """
        return require_dp_accounting().LaplaceDpEvent(math.nextafter(1 / self.epsilon, 0))

    def sample(self, key: Array, value: Array) -> jax.Array:
        """The value plus floating-point noise: for experiments, never for a release.

        Args:
            key: A single key; whoever knows it can take the noise off again.
            value: Array of any shape; pure, safe under jit and vmap.

        Returns:
            The same shape and floating dtype; integers as floats.
        """
        return _noised(jax.random.laplace, key, value, self.scale)

    def grid_noise(self, n: int, *, grid: float | None = None, on_grid: bool = False) -> GridNoise:
        """The noise that `release` draws for n coordinates; arguments and errors are those of `release`."""
        validate.integer(n=n)
        step = _grid(grid, on_grid, self.scale, self.sensitivity / n)
        # Rounding moves each coordinate by half a step at most, so two of them by a step.
        steps = math.floor(Fraction(self.sensitivity) / Fraction(step)) + (0 if on_grid else n)
        noise = math.ceil(steps / _exact_ratio(self.sensitivity, self.scale))
        _check_noise(noise, MAX_SCALE, steps, step)
        return GridNoise(step, steps, noise)

    def release(self, value: Array, *, grid: float | None = None, on_grid: bool = False) -> Release:
        """The value for publication: rounded to a grid, plus exact discrete Laplace noise from the operating system.

        The guarantee is pure, with the epsilon of this mechanism: the noise is raised to cover what rounding adds to
        the sensitivity, by 2^-20 of it on the default grid, and by more beyond 2^20 epsilon coordinates. Costs about
        0.5 microseconds a coordinate (`bench.bounds`). Nobody can repeat the draw.

        Args:
            value: Finite real numbers, any shape but empty.
            grid: A power of two; by default 2^-20 of the scale, or finer where there are many coordinates.
            on_grid: Whether this value is a multiple of `grid` for every data set that it may be computed from, as a
                sum of rows from `clip_l1` is; nothing is added for rounding then.

        Raises:
            ValueError: value is empty, not finite, not exact in float64, or not on the grid that it is said to be on;
                grid is not a power of two, too fine, or coarser than a sensitivity on it. Whether a value is refused
                says something about the records: check what it is computed from beforehand.
        """
        noisy, plan = _noised_on_grid(self, discrete_laplace, value, grid, on_grid)
        note = (
            f"{self.epsilon}-DP, proven for the number as published: discrete Laplace noise of scale {plan.noise} "
            f"steps on whole steps of the grid, at most {plan.sensitivity} apart in L1 between neighbours"
        )
        curve = tradeoff.EpsilonDelta(self.epsilon, 0.0, neighbouring=self.neighbouring)
        return Release(noisy, curve, plan.grid, plan.noise * plan.grid, note)


@hyperparams
class Gaussian:
    """Gaussian noise of one standard deviation on every coordinate.

    Attributes:
        neighbouring: Neighbouring relation: which data sets `sensitivity` compares, a name in
            `drjax.bounds.curve.RELATIONS`; no default.
        sensitivity: Largest Euclidean distance between the vectors of neighbours, > 0, in units of the value.
        scale: Standard deviation of the noise, > 0, in the same units; may be swept without retracing.

    Raises:
        ValueError: an unknown relation, or a number that is not finite and > 0.
    """

    neighbouring: str
    sensitivity: float
    scale: Any = traced()

    def __post_init__(self) -> None:
        _check(self)

    @classmethod
    def from_mu(cls, mu: float, *, neighbouring: str, sensitivity: float) -> Gaussian:
        """The least noise that is mu-GDP.

        Raises:
            ValueError: an argument that is not finite and > 0, or an unknown relation.

        Source: Dong, Roth & Su (2022), theorem 2.7.
        """
        check_positive(mu=number(mu=mu), sensitivity=number(sensitivity=sensitivity))
        return cls(neighbouring=neighbouring, sensitivity=sensitivity, scale=_ratio(sensitivity, mu))

    @classmethod
    def analytic(cls, epsilon: float, delta: float, *, neighbouring: str, sensitivity: float) -> Gaussian:
        """The least noise that is (epsilon, delta)-DP, rounded up in the eleventh digit; not so of a release.

        The guarantee of `release` is one in zCDP, whose (epsilon, delta) is larger: see `for_release`.

        Raises:
            ValueError: epsilon or sensitivity is not finite and > 0, delta not in (0, 1), or an unknown relation.

        Source: Balle & Wang (2018), theorem 8.
        """
        multiplier = _analytic(epsilon, delta, sensitivity)
        return cls(neighbouring=neighbouring, sensitivity=sensitivity, scale=float(sensitivity) * multiplier)

    @classmethod
    def for_release(cls, epsilon: float, delta: float, *, neighbouring: str, sensitivity: float) -> Gaussian:
        """The least noise whose `release` is proven (epsilon, delta)-DP by its curve, rounded up; more than `analytic`.

        Raises:
            ValueError: as `analytic`.
        """
        least = _analytic(epsilon, delta, sensitivity)

        def holds(multiplier: float) -> bool:
            return tradeoff.ZCDP(0.5 / multiplier**2).delta_at(epsilon) <= delta

        # Gaussian noise is rho-zCDP itself, so no less than the analytic noise can do.
        multiplier = smallest(holds, least, 1e12) * (1 + MARGIN)
        return cls(neighbouring=neighbouring, sensitivity=sensitivity, scale=float(sensitivity) * multiplier)

    @classmethod
    def classical(cls, epsilon: float, delta: float, *, neighbouring: str, sensitivity: float) -> Gaussian:
        """The textbook's noise, sensitivity * sqrt(2 log(1.25 / delta)) / epsilon: for comparison, `analytic` is less.

        Raises:
            ValueError: epsilon or delta is not in (0, 1), where alone the formula is proven; sensitivity is not finite
                and > 0; or an unknown relation.

        Source: Dwork & Roth (2014), theorem A.1.
        """
        check_positive(sensitivity=number(sensitivity=sensitivity))
        for name, value in (("epsilon", epsilon), ("delta", delta)):
            if not 0 < float(number(**{name: value})) < 1:
                raise ValueError(f"{name} must be in (0, 1) for the classical formula, got {value!r}")
        scale = float(sensitivity) * math.sqrt(2 * math.log(1.25 / delta)) / epsilon
        return cls(neighbouring=neighbouring, sensitivity=sensitivity, scale=scale)

    @property
    def mu(self) -> float:
        """Sensitivity over scale, rounded up."""
        return _ratio(self.sensitivity, self.scale)

    @property
    def curve(self) -> tradeoff.Gaussian:
        """mu-GDP: of the noise on real numbers, not of a floating-point draw."""
        return tradeoff.Gaussian(self.mu, neighbouring=self.neighbouring)

    def dp_event(self) -> Any:
        """The event of dp-accounting: `GaussianDpEvent`, its noise in units of the sensitivity, rounded down.

        Under "replace_one" it is `ZCDpEvent`, the same Renyi divergence: of a Gaussian event there, dp-accounting's
        losses double the sensitivity, which already is that of the relation, and its Renyi accountant does not.

        Raises:
            ImportError: dp-accounting is not installed.
        """
        module = require_dp_accounting()
        if self.neighbouring == "replace_one":
            return module.ZCDpEvent(_up(_exact_ratio(self.sensitivity, self.scale) ** 2 / 2))
        return module.GaussianDpEvent(math.nextafter(1 / self.mu, 0))

    def sample(self, key: Array, value: Array) -> jax.Array:
        """The value plus floating-point noise: for experiments, never for a release; as `Laplace.sample`."""
        return _noised(jax.random.normal, key, value, self.scale)

    def grid_noise(self, n: int, *, grid: float | None = None, on_grid: bool = False) -> GridNoise:
        """The noise that `release` draws for n coordinates; arguments and errors are those of `release`."""
        validate.integer(n=n)
        step = _grid(grid, on_grid, self.scale, self.sensitivity / math.sqrt(n))
        squares = (Fraction(self.sensitivity) / Fraction(step)) ** 2
        if not on_grid:
            # (r + sqrt(n))^2 with the mixed term 2 r sqrt(n) = sqrt(4 n r^2) rounded up.
            squares += n + math.isqrt(math.floor(4 * n * squares)) + 1
        steps = math.floor(squares)
        noise = math.ceil(steps / _exact_ratio(self.sensitivity, self.scale) ** 2)
        _check_noise(noise, (MAX_SCALE - 1) ** 2, steps, step)
        return GridNoise(step, steps, noise)

    def release(self, value: Array, *, grid: float | None = None, on_grid: bool = False) -> Release:
        """The value for publication: rounded to a grid, plus exact discrete Gaussian noise from the operating system.

        The guarantee is rho-zCDP with rho = mu^2 / 2, and not mu-GDP: what discrete noise has been proven to give;
        `for_release` chooses mu for an (epsilon, delta). Costs about 1.2 microseconds a coordinate. Otherwise as
        `Laplace.release`, with `clip_l2` for `clip_l1`.

        Source: Canonne, Kamath & Steinke (2020), theorem 4, which adds up over coordinates.
        """
        noisy, plan = _noised_on_grid(self, discrete_gaussian, value, grid, on_grid)
        rho = _up(_exact_ratio(self.sensitivity, self.scale) ** 2 / 2)
        note = (
            f"{rho}-zCDP, proven for the number as published: discrete Gaussian noise of sigma^2 {plan.noise} steps "
            f"on whole steps of the grid, at most {plan.sensitivity} apart in squared L2 between neighbours; not mu-GDP"
        )
        curve = tradeoff.ZCDP(rho, neighbouring=self.neighbouring)
        return Release(noisy, curve, plan.grid, math.sqrt(plan.noise) * plan.grid, note)


def _check(mechanism: Any) -> None:
    validate.one_of(RELATIONS, neighbouring=mechanism.neighbouring)
    check_positive(sensitivity=number(sensitivity=mechanism.sensitivity))
    object.__setattr__(mechanism, "sensitivity", float(mechanism.sensitivity))
    scale = mechanism.scale
    if validate.is_abstract(scale):
        return
    check_positive(scale=scale)
    if isinstance(scale, Real):
        # Integers and floats would be two programs.
        object.__setattr__(mechanism, "scale", float(scale))


def _analytic(epsilon: float, delta: float, sensitivity: float) -> float:
    check_positive(sensitivity=number(sensitivity=sensitivity))
    for name, value in (("epsilon", epsilon), ("delta", delta)):
        number(**{name: value})
    # The sensitivity is that of the relation already, so the unit is that of a relation that doubles nothing.
    return noise_multiplier_for(epsilon, delta, 1, "zero_out")


def _noised(draw: Callable[..., jax.Array], key: Array, value: Array, scale: Any) -> jax.Array:
    validate.prng_key(key)
    x = jnp.asarray(value)
    dtype = compute_dtype(x)
    noisy = x.astype(dtype) + jnp.asarray(scale, dtype) * draw(key, x.shape, dtype)
    return noisy.astype(x.dtype) if jnp.issubdtype(x.dtype, jnp.floating) else noisy


def _exact_ratio(top: Any, bottom: Any) -> Fraction:
    return Fraction(float(number(sensitivity=top))) / Fraction(float(number(scale=bottom)))


def _up(value: Fraction) -> float:
    """The least float64 that is not below."""
    try:
        rounded = float(value)
    except OverflowError as error:
        raise ValueError("sensitivity / scale must be below the largest float64, got more") from error
    return rounded if Fraction(rounded) >= value else math.nextafter(rounded, math.inf)


def _ratio(top: Any, bottom: Any) -> float:
    return _up(_exact_ratio(top, bottom))


def _grid(grid: float | None, on_grid: bool, scale: Any, sensitivity: float) -> float:
    """The step of the grid, by default fine against the noise and against one coordinate's share of the sensitivity."""
    if grid is not None:
        return power_of_two(grid)
    if on_grid:
        raise ValueError("grid must be given where the value is said to be on it, got None")
    spread = float(number(scale=scale))
    wanted = math.frexp(min(spread, sensitivity))[1] - 1 - FINE
    return power_of_two(math.ldexp(1.0, max(wanted, math.frexp(spread)[1] - 1 - FINEST)))


def _check_noise(noise: int, largest: int, steps: int, grid: float) -> None:
    if not steps:
        raise ValueError(f"grid must be at most the sensitivity of a value that is on it, got {grid!r}")
    if noise > largest:
        raise ValueError(f"grid must be coarser: noise of more than 2**53 steps is not drawn; got {grid!r}")


def _noised_on_grid(
    mechanism: Laplace | Gaussian, draw: Callable[..., np.ndarray], value: Any, grid: float | None, on_grid: bool
) -> tuple[np.ndarray, GridNoise]:
    plan = mechanism.grid_noise(max(1, np.size(value)), grid=grid, on_grid=on_grid)
    steps = to_steps(value, plan.grid, on_grid=on_grid)
    noisy = np.asarray(steps + draw(plan.noise, steps.shape))
    # Rounding to float64 comes after the noise, and costs no privacy.
    return np.asarray(noisy.astype(np.float64) * plan.grid), plan
