"""What the mechanisms of `drjax.defenses.dp_pca` share: bounded records, a noisy second moment, and its components."""

from __future__ import annotations

import math
from fractions import Fraction
from numbers import Real
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from drjax.bounds import tradeoff
from drjax.bounds.accounting import Guarantee
from drjax.bounds.curve import RELATIONS
from drjax.bounds.gdp import check_positive
from drjax.bounds.numeric import require_dp_accounting
from drjax.core import validate
from drjax.core.linalg import HIGHEST, compute_dtype, sign_and_margin
from drjax.core.types import Array, Status, hyperparams, traced
from drjax.defenses import dp_pca_sensitivity as sensitivity
from drjax.defenses.exact_noise import discrete_laplace
from drjax.defenses.pca_utility import k_for_energy

PUBLIC, PAPER = "public_bounds", "paper_not_private"


class PrivateComponents(NamedTuple):
    """What a fit returns; mapped over keys, every field gains a leading axis.

    Attributes:
        components: (k, d), orthonormal rows, by decreasing eigenvalue, signs as `drjax.dr.PCA`. Where a share of energy
            was asked for (d, d), rows from `n_components` on being 0.
        eigenvalues: (k,) or (d,) of the noisy second moment, in units of the records squared; they may be negative.
        n_components: (), int32.
        status: (), uint32 `Status` flags; NON_FINITE results are nan.
    """

    components: Any
    eigenvalues: Any
    n_components: Any
    status: Any


class PCARelease(NamedTuple):
    """What `release` returns, float64 on the host; all of it may be published.

    Attributes:
        components: (k, d), orthonormal rows.
        eigenvalues: (k,), of the noisy second moment.
        moment: (d, d), the noisy second moment itself, from which everything else is computed.
        curve: Its guarantee. Of a `tradeoff.Minimum` the ledger takes any one of its `curves`.
        note: What is proven, in words.
    """

    components: np.ndarray
    eigenvalues: np.ndarray
    moment: np.ndarray
    curve: tradeoff.TradeOff
    note: str


@hyperparams
class NoisyMoment:
    """The second moment of bounded records, with noise.

    Attributes:
        neighbouring: Which data sets the guarantee compares, a name in `drjax.bounds.curve.RELATIONS`; no default.
        n_components: k, in [1, d]; or the share of the noisy matrix's energy to keep, in (0, 1), which costs nothing. A
            k chosen from the records themselves, as at 90% of their energy in paper 001, is not covered.
        divisor: What the sum is divided by, > 0, public; None for the number of records, which is public under
            "zero_out" and "replace_one" only.
        center: (d,) public, subtracted from every record first; None for 0. The mean of the records is not public.
        convention: "public_bounds"; or "paper_not_private" where the mechanism has a paper's convention.

    Raises:
        ValueError: a field out of its range, or no divisor under "add_or_remove".
    """

    neighbouring: str
    n_components: int | float
    divisor: float | None = None
    center: Any = traced(default=None)
    convention: str = PUBLIC

    CONVENTIONS: ClassVar[tuple[str, ...]] = (PUBLIC,)
    POSITIVE: ClassVar[tuple[str, ...]] = ()
    SYMMETRIC: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Checks every field; a number that is traced, or stands for one, passes."""
        validate.one_of(RELATIONS, neighbouring=self.neighbouring)
        validate.one_of(self.CONVENTIONS, convention=self.convention)
        if isinstance(self.n_components, float):
            if not 0 < self.n_components < 1:
                raise ValueError(f"n_components must be an integer >= 1 or in (0, 1), got {self.n_components}")
        else:
            validate.integer(n_components=self.n_components)
        if self.divisor is not None:
            check_positive(divisor=self.divisor)
        elif self.neighbouring == "add_or_remove":
            raise ValueError("divisor must be given under add_or_remove, where the number of records is private")
        if isinstance(self.center, (list, tuple)):
            # Every number would be a leaf of its own.
            object.__setattr__(self, "center", np.asarray(self.center, np.float64))
        for name in self.POSITIVE:
            value = getattr(self, name)
            if validate.is_abstract(value):
                continue
            check_positive(**{name: value})
            if isinstance(value, Real):
                # Integers and floats would be two programs.
                object.__setattr__(self, name, float(value))

    def moment(self, x: Array) -> jax.Array:
        """The second moment (d, d) of bounded records x (n, d), without noise: not private."""
        rows, unit, _ = self.rows(x)
        return self.in_units(gram(rows), unit, x)

    def noisy_moment(self, key: Array, x: Array) -> jax.Array:
        """What the guarantee is of: the second moment (d, d) of x (n, d) with floating-point noise, for experiments.

        Raises:
            ValueError: at trace time, for an x that is no matrix or does not fit the bounds.
        """
        validate.prng_key(key)
        rows, unit, extents = self.rows(x)
        return self.in_units(gram(rows) + self.noise(key, rows, extents), unit, x)

    def fit(self, key: Array, x: Array) -> PrivateComponents:
        """Components of x (n, d), for experiments: whoever knows the key can take the noise off again.

        Pure, safe under jit and vmap; O(n d^2 + d^3).

        Raises:
            ValueError: at trace time, as `noisy_moment`, or if n_components > d.
        """
        return components_of(self.noisy_moment(key, x), self.n_components, symmetric=self.SYMMETRIC)

    def guarantee(self) -> Guarantee:
        """What is proven of noise on real numbers, for this relation."""
        if self.convention == PAPER:
            nothing = tradeoff.EpsilonDelta(0.0, 1.0, neighbouring=self.neighbouring)
            return Guarantee(
                nothing, nothing, "nothing: means, deviations and ranges of the records are taken as public"
            )
        curve, proven = self.proven_curve()
        return Guarantee(curve, curve, proven)

    def dp_event(self) -> Any:
        """The event of dp-accounting.

        Raises:
            ImportError: dp-accounting is not installed.
        """
        return require_dp_accounting().NonPrivateDpEvent() if self.convention == PAPER else self.event()

    def release(self, x: Array) -> PCARelease:
        """Components of x (n, d) for publication, with exact noise from the operating system; nobody can repeat it.

        Raises:
            ValueError: the mechanism has no exact sampler or follows a paper's convention; x is not a finite matrix, or
                has fewer columns than components. Whether x is refused says something about it.
        """
        if self.convention == PAPER:
            raise ValueError(f"convention must be {PUBLIC!r} for a release, got {self.convention!r}")
        records = validate.matrix(x, "x").astype(np.float64)
        if not isinstance(self.n_components, float):
            validate.at_most(records.shape[1], "d", n_components=self.n_components)
        if self.center is not None:
            records = records - np.asarray(self.center, np.float64)
        whole, unit, curve, note = self.released(records)
        divisor = len(records) if self.divisor is None else self.divisor
        # Rounding comes after the noise, and costs no privacy.
        moment = whole.astype(np.float64) * np.outer(unit, unit) / divisor
        with jax.enable_x64(True):
            found = components_of(jnp.asarray(moment), self.n_components, symmetric=self.SYMMETRIC)
        k = int(found.n_components)
        return PCARelease(np.asarray(found.components)[:k], np.asarray(found.eigenvalues)[:k], moment, curve, note)

    def in_units(self, matrix: Any, unit: Any, x: Array) -> Any:
        """A sum over bounded records in the units of the records, over the divisor."""
        scale = jnp.broadcast_to(jnp.asarray(unit, matrix.dtype), matrix.shape[:1])
        return matrix * scale[:, None] * scale / (x.shape[0] if self.divisor is None else self.divisor)

    def rows(self, x: Array) -> tuple[jax.Array, Any, Any]:
        """Bounded records (n, d) in a unit, that unit, () or (d,), and their extents where the noise needs them."""
        raise NotImplementedError

    def noise(self, key: Array, rows: jax.Array, extents: Any) -> jax.Array:
        """On the sum of the outer products of `rows`; (d, d)."""
        raise NotImplementedError

    def proven_curve(self) -> tuple[tradeoff.TradeOff, str]:
        """The curve with public bounds, and what is proven."""
        raise NotImplementedError

    def event(self) -> Any:
        """The event with public bounds."""
        raise NotImplementedError

    def released(self, records: np.ndarray) -> tuple[Any, Any, tradeoff.TradeOff, str]:
        """The noisy sum (d, d) in whole numbers, their unit as of `rows`, curve and note; records are centred."""
        raise ValueError(
            f"release must be of a mechanism with an exact sampler, got {len(records)} records for another"
        )


@hyperparams
class LaplaceNoise(NoisyMoment):
    """Laplace noise of one scale on the products of features, each in some unit.

    Attributes:
        epsilon: Of the pure guarantee, > 0; may be swept without retracing.
        lower: (d,) public, <= 0: features are cut to [lower, upper].
        upper: (d,) public, >= 0.
    """

    epsilon: Any = traced()
    lower: Any = traced(default=None)
    upper: Any = traced(default=None)

    POSITIVE: ClassVar[tuple[str, ...]] = ("epsilon",)
    OWN_UNITS: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Checks every field."""
        super().__post_init__()
        if self.convention == PUBLIC and not (validate.is_abstract(self.lower) or validate.is_abstract(self.upper)):
            if self.lower is None or self.upper is None:
                raise ValueError("lower and upper must be given: ranges taken from the records are not private")
            lower, upper = sensitivity.check_ranges(self.lower, self.upper)
            object.__setattr__(self, "lower", lower)
            object.__setattr__(self, "upper", upper)

    def unit(self, extents: Any) -> Any:
        """Each feature's own extent, or the largest for all; (d,)."""
        return extents if self.OWN_UNITS else 0 * extents + extents.max()

    def rows(self, x: Array) -> tuple[jax.Array, Any, Any]:
        """Records cut to the ranges; or standardised, with the widths of their own ranges as extents."""
        if self.convention == PAPER:
            z = standardised_not_private(x)
            extents = jnp.max(z, axis=0) - jnp.min(z, axis=0)
            extents = jnp.where(extents > 0, extents, 1)
        else:
            z = centred(x, self.center)
            lower, upper = jnp.asarray(self.lower, z.dtype), jnp.asarray(self.upper, z.dtype)
            if lower.shape != z.shape[1:]:
                raise ValueError(f"x must have {lower.shape[0]} columns to match lower and upper, got {z.shape[1]}")
            z, extents = jnp.clip(z, lower, upper), jnp.maximum(-lower, upper)
        unit = self.unit(extents)
        return z / unit, unit, extents / unit

    def noise(self, key: Array, rows: jax.Array, extents: Any) -> jax.Array:
        """Independent draws for the entries that count separately."""
        d, total, squares = rows.shape[1], jnp.sum(extents) ** 2, jnp.sum(extents**2)
        l1 = (total + squares) / 2 if self.SYMMETRIC else total
        scale = l1 / jnp.asarray(self.epsilon, rows.dtype)
        draws = jax.random.laplace(key, (d, d), rows.dtype)
        return scale * (mirrored(draws) if self.SYMMETRIC else draws)

    def shifts(self) -> np.ndarray:
        """Largest changes of the entries that count separately, in units of the scale of their noise."""
        lower, upper = sensitivity.check_ranges(self.lower, self.upper)
        unit = self.unit(np.maximum(-lower, upper))
        l1 = sensitivity.laplace_sensitivity(np.maximum(-lower, upper) / unit, full=not self.SYMMETRIC)
        changes = sensitivity.entry_widths(lower / unit, upper / unit, self.neighbouring)
        return self._counted(changes) * (float(self.epsilon) / l1)

    def proven_curve(self) -> tuple[tradeoff.TradeOff, str]:
        """By the L1 sensitivity, and by the shifts."""
        curve = sensitivity.laplace_curve(float(self.epsilon), self.shifts(), neighbouring=self.neighbouring)
        return curve, "epsilon-DP, and rho-zCDP by the shifts of the single entries; upper bound where d > 1"

    def event(self) -> Any:
        """`LaplaceDpEvent` of the pure guarantee."""
        return require_dp_accounting().LaplaceDpEvent(math.nextafter(1 / float(self.epsilon), 0))

    def released(self, records: np.ndarray) -> tuple[Any, Any, tradeoff.TradeOff, str]:
        """With discrete Laplace noise."""
        lower, upper = sensitivity.check_ranges(self.lower, self.upper)
        d, epsilon, full = len(lower), float(self.epsilon), not self.SYMMETRIC
        if records.shape[1] != d:
            raise ValueError(f"x must have {d} columns to match lower and upper, got {records.shape[1]}")
        unit = self.unit(np.maximum(-lower, upper))
        l1 = sensitivity.laplace_sensitivity(np.maximum(-lower, upper) / unit, full=full)
        grid = 2.0 ** sensitivity.bits_for(l1 / epsilon)
        # Whole numbers from here on: the sensitivity is theirs, exactly, whatever the divisions rounded.
        low, high = np.trunc(lower / unit * grid), np.trunc(upper / unit * grid)
        whole = np.clip(np.trunc(records / unit * grid), low, high)
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
        return noisy, unit / grid, curve, note

    def _counted(self, matrix: np.ndarray) -> np.ndarray:
        return matrix[np.tril_indices(len(matrix))] if self.SYMMETRIC else matrix


def centred(x: Array, center: Any) -> Any:
    """Records (n, d) less a public vector, or as they are; in the dtype that kernels compute in."""
    validate.shape_2d(x=x)
    z = jnp.asarray(x, compute_dtype(x))
    return z if center is None else z - jnp.asarray(center, z.dtype)


def standardised_not_private(x: Array) -> Any:
    """Records (n, d) to mean 0 and variance 1 by their own means and deviations, as paper 001 does.

    Not private: every row of the result depends on every record, by amounts that no bound limits. Columns of one value
    become 0.
    """
    z = centred(x, None)
    largest = jnp.max(jnp.abs(z), axis=0)
    z = z - jnp.mean(z, axis=0)
    deviation = jnp.std(z, axis=0)
    # What rounding leaves of a constant is not its deviation.
    varies = deviation > 8 * jnp.finfo(z.dtype).eps * largest
    return jnp.where(varies, z / jnp.where(varies, deviation, 1), 0)


def gram(rows: Array) -> Any:
    """The sum of outer products of rows (n, d); (d, d)."""
    return jnp.matmul(rows.T, rows, precision=HIGHEST)


def mirrored(draws: Any) -> Any:
    """A square matrix whose lower triangle is replaced by the mirror image of its upper one."""
    xp = np if isinstance(draws, np.ndarray) else jnp
    return xp.triu(draws) + xp.triu(draws, 1).T


def components_of(moment: Any, n_components: int | float, *, symmetric: bool = True) -> PrivateComponents:
    """Leading eigenvectors of a noisy second moment (d, d); O(d^3).

    Args:
        moment: Symmetric; or with `symmetric` False any matrix, of which left singular vectors and singular values.
        n_components: How many, at most d; or the share of the energy, in (0, 1), of which positive eigenvalues count.
        symmetric: As said.

    Raises:
        ValueError: at trace time, if n_components > d.
    """
    d = moment.shape[0]
    k = d if isinstance(n_components, float) else n_components
    validate.at_most(d, "d", n_components=k)
    finite = jnp.all(jnp.isfinite(moment))
    # Decompositions of a nan may not return.
    safe: Any = jnp.where(finite, moment, 0)
    if symmetric:
        values, vectors = jnp.linalg.eigh(safe)
        values, vectors = values[::-1], vectors[:, ::-1]
    else:
        vectors, values, _ = jnp.linalg.svd(safe, full_matrices=False)
    values, loadings = values[:k], vectors.T[:k]
    loadings = loadings * sign_and_margin(loadings)[0][:, None]
    chosen = k_for_energy(values, n_components) if isinstance(n_components, float) else k
    loadings = jnp.where((jnp.arange(k) < chosen)[:, None], loadings, 0)
    return PrivateComponents(
        jnp.where(finite, loadings, jnp.nan),
        jnp.where(finite, values, jnp.nan),
        jnp.asarray(chosen, jnp.int32),
        jnp.where(finite, jnp.uint32(Status.OK), jnp.uint32(Status.NON_FINITE)),
    )
