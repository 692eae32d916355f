"""Laplace noise on the second moment of records within ranges: what those mechanisms of `dp_pca` share."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from drjax.bounds import tradeoff
from drjax.bounds.numeric import require_dp_accounting
from drjax.core.linalg import finite_rows
from drjax.core.types import Array, hyperparams, traced
from drjax.defenses import dp_pca_sensitivity as sensitivity
from drjax.defenses.dp_pca_noise import PAPER, PUBLIC, NoisyMoment, centred, mirrored, standardised_not_private
from drjax.defenses.exact_noise import discrete_laplace


@hyperparams
class LaplaceNoise(NoisyMoment):
    """Laplace noise of one scale on the products of features, each in some unit.

    Attributes:
        epsilon: Parameter of the pure guarantee, > 0; may be swept without retracing.
    """

    epsilon: Any = traced()

    POSITIVE: ClassVar[tuple[str, ...]] = ("epsilon",)
    AMOUNT: ClassVar[str] = "epsilon"
    IS_PURE: ClassVar[bool] = True
    OWN_UNITS: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Checks every field."""
        super().__post_init__()
        if self.convention == PUBLIC and (self.lower is None or self.upper is None):
            raise ValueError("lower and upper must be given: ranges taken from the records are not private")

    @classmethod
    def for_release(cls, epsilon: float, delta: float, *, neighbouring: str, **fields: Any) -> Any:
        """The noise whose `release` is proven epsilon-DP; the other fields by name.

        Raises:
            ValueError: delta is not 0, or a field out of its range.
        """
        if delta != 0:
            raise ValueError(f"delta must be 0 for {cls.__name__}, got {delta!r}")
        return cls(neighbouring=neighbouring, epsilon=epsilon, **fields)

    def unit(self, extents: Any) -> Any:
        """Each feature's own extent, or the largest for all; (d,)."""
        return extents if self.OWN_UNITS else 0 * extents + extents.max()

    def rows(self, x: Array) -> tuple[jax.Array, Any, Any]:
        """Records cut to the ranges; or standardised, with the widths of their own ranges as extents.

        Cut, an infinite entry is the end of its range, and a record with a nan is 0.
        """
        if self.convention == PAPER:
            z = standardised_not_private(x)
            extents = jnp.max(z, axis=0) - jnp.min(z, axis=0)
            extents = jnp.where(extents > 0, extents, 1)
        else:
            z = finite_rows(self.cut(centred(x, self.center)))
            extents = jnp.maximum(-jnp.asarray(self.lower, z.dtype), jnp.asarray(self.upper, z.dtype))
        unit = self.unit(extents)
        return z / unit, unit, extents / unit

    def noise(self, key: Array, rows: jax.Array, extents: Any) -> jax.Array:
        """Independent draws for the entries that count separately."""
        d = rows.shape[1]
        draws = jax.random.laplace(key, (d, d), rows.dtype)
        return self._scale(extents) * (mirrored(draws) if self.SYMMETRIC else draws)

    def _scale(self, extents: Any) -> Any:
        total, squares = extents.sum() ** 2, (extents**2).sum()
        return ((total + squares) / 2 if self.SYMMETRIC else total) / self.epsilon

    def deviations(self, lower: Any, upper: Any) -> Any:
        """The same for all entries, in the units of the noise."""
        assert self.mean_weight is not None
        xp: Any = np if isinstance(lower, np.ndarray) else jnp
        extents = xp.maximum(-lower, upper)
        unit = self.unit(extents)
        scale = self._scale(xp.append(xp.asarray(self.mean_weight, lower.dtype), extents / unit))
        unit = xp.append(xp.asarray(1 / self.mean_weight, lower.dtype), unit)
        # A mirror image is the same draw; of two draws the mean counts.
        return scale * xp.outer(unit, unit) * math.sqrt(2.0 if self.SYMMETRIC else 1.0)

    def shifts(self) -> np.ndarray:
        """Largest changes of the entries that count separately, in units of the scale of their noise."""
        lower, upper = sensitivity.check_ranges(self.lower, self.upper)
        unit = self.unit(np.maximum(-lower, upper))
        low, high = (self._with(self.mean_weight, ends / unit) for ends in (lower, upper))
        l1 = sensitivity.laplace_sensitivity(np.maximum(-low, high), full=not self.SYMMETRIC)
        changes = sensitivity.entry_widths(low, high, self.neighbouring)
        return self._counted(changes) * (float(self.epsilon) / l1)

    def proven_curve(self) -> tuple[tradeoff.TradeOff, str]:
        """Proven curve, by the L1 sensitivity and by the shifts."""
        curve = sensitivity.laplace_curve(float(self.epsilon), self.shifts(), neighbouring=self.neighbouring)
        return curve, "epsilon-DP, and rho-zCDP by the shifts of the single entries; upper bound where d > 1"

    def event(self) -> Any:
        """`LaplaceDpEvent` of the pure guarantee."""
        return require_dp_accounting().LaplaceDpEvent(math.nextafter(1 / float(self.epsilon), 0))

    def released(self, records: np.ndarray) -> tuple[Any, Any, tradeoff.TradeOff, str]:
        """Release with discrete Laplace noise."""
        lower, upper = sensitivity.check_ranges(self.lower, self.upper)
        d, epsilon, full = len(lower), float(self.epsilon), not self.SYMMETRIC
        if records.shape[1] != d:
            raise ValueError(f"x must have {d} columns to match lower and upper, got {records.shape[1]}")
        unit = self.unit(np.maximum(-lower, upper))
        l1 = sensitivity.laplace_sensitivity(self._with(self.mean_weight, np.maximum(-lower, upper) / unit), full=full)
        grid = 2.0 ** sensitivity.bits_for(l1 / epsilon)
        # Whole numbers from here on: the sensitivity is theirs, exactly, whatever the divisions rounded.
        low, high = np.trunc(lower / unit * grid), np.trunc(upper / unit * grid)
        with np.errstate(over="ignore"):
            whole = np.clip(np.trunc(records / unit * grid), low, high)
        unit = unit / grid
        if self.mean_weight is not None:
            constant = max(1.0, np.trunc(self.mean_weight * grid))
            whole = np.insert(whole, 0, constant, axis=1)
            low, high, unit = self._with(constant, low), self._with(constant, high), np.append(1 / constant, unit)
            d += 1
        extents = [int(extent) for extent in np.maximum(-low, high)]
        steps = sum(extents) ** 2
        steps = steps if full else (steps + sum(extent**2 for extent in extents)) // 2
        scale = math.ceil(Fraction(steps) / Fraction(epsilon))
        draws = discrete_laplace(scale, (d, d)).astype(object)
        noisy = sensitivity.whole_gram(whole) + (draws if full else mirrored(draws))
        changes = self._counted(sensitivity.entry_widths(low, high, self.neighbouring))
        rho = float(np.sum((changes / scale) ** 2)) / 2 * (1 + 1e-9)
        named = {"neighbouring": self.neighbouring}
        curve = tradeoff.minimum(tradeoff.EpsilonDelta(epsilon, 0.0, **named), tradeoff.ZCDP(rho, **named))
        note = (
            f"{epsilon}-DP and {rho}-zCDP, proven for the matrix as published: discrete Laplace noise of scale {scale} "
            f"on whole numbers at most {steps} apart in L1 between neighbours"
        )
        return noisy, unit, curve, note

    @staticmethod
    def _with(constant: float | None, ends: np.ndarray) -> np.ndarray:
        """Ends of the ranges, with that of the constant, which has one value alone, before them where there is one."""
        return ends if constant is None else np.append(constant, ends)

    def _counted(self, matrix: np.ndarray) -> np.ndarray:
        return matrix[np.tril_indices(len(matrix))] if self.SYMMETRIC else matrix
