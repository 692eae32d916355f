"""What the mechanisms of `drjax.defenses.dp_pca` share: bounded records, a noisy second moment, and its components."""

from __future__ import annotations

import dataclasses
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
from drjax.core.linalg import HIGHEST, compute_dtype, finite_rows
from drjax.core.types import Array, hyperparams, traced
from drjax.defenses import dp_pca_sensitivity as sensitivity
from drjax.defenses.dp_pca_components import PrivateComponents, components_of

PUBLIC, PAPER = "public_bounds", "paper_not_private"

BOUNDS = ("lower", "upper", "row_norm")
"""Fields of mechanisms that bound a record less the centre: ends of its ranges, (d,) each, and largest norm."""


class PCARelease(NamedTuple):
    """What `release` returns, float64 on the host; all of it may be published.

    Attributes:
        components: (k, d), orthonormal rows.
        eigenvalues: (k,), of the noisy second moment.
        moment: (d, d), the noisy second moment itself; about the noisy mean, where there is one, and `steadied`.
        curve: Trade-off curve of the guarantee. The ledger takes any one of the `curves` of a `tradeoff.Minimum`.
        note: What is proven, in words.
        mean: (d,), the noisy mean of the records less the centre; None without a `mean_weight`.
        joint: (d + 1, d + 1), the noisy second moment of (1, record less the centre), from which everything else is
            computed; None without a `mean_weight`.
    """

    components: np.ndarray
    eigenvalues: np.ndarray
    moment: np.ndarray
    curve: tradeoff.TradeOff
    note: str
    mean: np.ndarray | None = None
    joint: np.ndarray | None = None


@hyperparams
class NoisyMoment:
    """The second moment of bounded records, with noise.

    A mechanism defines `rows`, `noise`, `proven_curve` and, where it can be released, `released` and `for_release`;
    `deviations` where it finds the mean, and `event` where dp-accounting has one.

    Attributes:
        neighbouring: Neighbouring relation: which data sets the guarantee compares, a name in
            `drjax.bounds.curve.RELATIONS`; no default.
        n_components: k, in [1, d]; or the share of the noisy matrix's energy to keep, in (0, 1), which costs nothing. A
            k chosen from the records themselves, as at 90% of their energy in paper 001, is not covered.
        divisor: What the sum is divided by, > 0, public; None for the number of records, which is public under
            "zero_out" and "replace_one" only.
        center: (d,) public, subtracted from every record first; None for 0. The mean of the records is not public.
        convention: "public_bounds"; or "paper_not_private" where the mechanism has a paper's convention.
        mean_weight: Weight t in (0, 1], public, for the second moment about the mean of the records, which comes from
            the same query: on the sum of (t, z) (t, z)^T over bounded records z in their unit. More makes the mean less
            noisy, and the rest more. None for the second moment about the centre.
        lower: (d,) public, <= 0: features less the centre are cut to [lower, upper]; None for no such bound.
        upper: (d,) public, >= 0.

    Raises:
        ValueError: a field out of its range, or no divisor under "add_or_remove".
    """

    neighbouring: str
    n_components: int | float
    divisor: float | None = None
    center: Any = traced(default=None)
    convention: str = PUBLIC
    mean_weight: float | None = None
    lower: Any = traced(default=None)
    upper: Any = traced(default=None)

    CONVENTIONS: ClassVar[tuple[str, ...]] = (PUBLIC,)
    POSITIVE: ClassVar[tuple[str, ...]] = ()
    SYMMETRIC: ClassVar[bool] = True
    FINDS_MEAN: ClassVar[bool] = True
    """Whether it takes a `mean_weight`."""
    IS_PURE: ClassVar[bool] = False
    """Whether what is proven of a release has delta 0; others have none with delta 0."""
    AMOUNT: ClassVar[str]
    """Field that says how much noise there is."""

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
        if self.mean_weight is not None:
            object.__setattr__(self, "mean_weight", sensitivity.check_weight(self.mean_weight))
            if not self.FINDS_MEAN or self.convention == PAPER:
                raise ValueError(f"mean_weight must be None for {type(self).__name__} by {self.convention}")
        self._check_ranges()
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

    def _check_ranges(self) -> None:
        given = [end is not None for end in (self.lower, self.upper)]
        if any(given) and not all(given):
            raise ValueError("lower and upper must be given together")
        if not any(given) or any(validate.is_abstract(end) for end in (self.lower, self.upper)):
            return
        lower, upper = sensitivity.check_ranges(self.lower, self.upper)
        object.__setattr__(self, "lower", lower)
        object.__setattr__(self, "upper", upper)

    @classmethod
    def for_release(cls, epsilon: float, delta: float, *, neighbouring: str, **fields: Any) -> Any:
        """The least noise whose `release` is proven (epsilon, delta)-DP; the other fields by name.

        Raises:
            ValueError: the mechanism has no exact sampler, or an argument out of its range.
        """
        del epsilon, delta, neighbouring, fields
        raise ValueError(f"for_release must be of a mechanism with an exact sampler, got one of {cls.__name__}")

    @classmethod
    def has_exact_sampler(cls) -> bool:
        """Whether it can be released."""
        return cls.released is not NoisyMoment.released

    @classmethod
    def public_arrays(cls) -> tuple[str, ...]:
        """Names of its fields that are public bounds, beside the centre; a release publishes them."""
        return tuple(field.name for field in dataclasses.fields(cls) if field.name in BOUNDS)

    def parameters(self) -> dict[str, float]:
        """The other numbers that are published with a release, by field: how much noise there is, and of what."""
        names = [self.AMOUNT, *([] if self.mean_weight is None else ["mean_weight"])]
        return {name: float(getattr(self, name)) for name in names}

    def cut(self, z: Any) -> Any:
        """Records (n, d) less the centre, cut to the ranges where there are any.

        Raises:
            ValueError: at trace time, if d differs.
        """
        if self.lower is None:
            return z
        xp = np if isinstance(z, np.ndarray) else jnp
        lower, upper = xp.asarray(self.lower, z.dtype), xp.asarray(self.upper, z.dtype)
        if lower.shape != z.shape[1:]:
            raise ValueError(f"x must have {lower.shape[0]} columns to match lower and upper, got {z.shape[1]}")
        return xp.clip(z, lower, upper)

    def moment(self, x: Array) -> jax.Array:
        """The second moment (d, d) of bounded records x (n, d), without noise: not private."""
        rows, unit, _ = self.query(x)
        return self.settled(self.in_units(gram(rows), unit, x), x.shape[0])[0]

    def noisy_moment(self, key: Array, x: Array) -> jax.Array:
        """What the guarantee is of: the second moment (d, d) of x (n, d) with floating-point noise, for experiments.

        Raises:
            ValueError: at trace time, for an x that is no matrix or does not fit the bounds.
        """
        return self.steadied(*self.settled(self.noisy_joint(key, x), x.shape[0]), x.shape[0])

    def noisy_joint(self, key: Array, x: Array) -> jax.Array:
        """The answer to the query: as `noisy_moment`, or (d + 1, d + 1), of (1, x less the centre).

        The latter with a `mean_weight`. Its entry (0, 0) may be used under "add_or_remove" only; else it is the number
        of records over the divisor, which is public, and not covered.
        """
        validate.prng_key(key)
        rows, unit, extents = self.query(x)
        return self.in_units(gram(rows) + self.noise(key, rows, extents), unit, x)

    def query(self, x: Array) -> tuple[jax.Array, Any, Any]:
        """`rows`, with the constant `mean_weight` before them where there is one: in units of itself it is 1."""
        rows, unit, extents = self.rows(x)
        if self.mean_weight is None:
            return rows, unit, extents
        weight = jnp.asarray(self.mean_weight, rows.dtype)
        unit = jnp.broadcast_to(jnp.asarray(unit, rows.dtype), rows.shape[1:])
        extents = None if extents is None else jnp.append(weight, extents)
        return jnp.insert(rows, 0, weight, axis=1), jnp.append(1 / weight, unit), extents

    def settled(self, joint: Any, n_records: int) -> tuple[Any, Any]:
        """The second moment (d, d) about the mean, and that mean (d,), of a noisy joint moment; or it and None.

        The Schur complement: nothing but the noisy answer and public numbers go into it.

        Args:
            joint: Noisy joint moment from `noisy_joint`.
            n_records: Used where it is public: under "add_or_remove" it is the entry (0, 0), but at least half of the
                divisor.
        """
        if self.mean_weight is None:
            return joint, None
        if self.neighbouring == "add_or_remove":
            xp = np if isinstance(joint, np.ndarray) else jnp
            count = xp.maximum(joint[0, 0], 0.5)
        else:
            count = n_records / (n_records if self.divisor is None else self.divisor)
        mean = (joint[0, 1:] + joint[1:, 0]) / (2 * count)
        return joint[1:, 1:] - count * mean[:, None] * mean, mean

    def steadied(self, moment: Any, mean: Any, n_records: int) -> Any:
        """A noisy moment (d, d) about a noisy mean, drawn towards what the mean and the ranges say by themselves.

        A column of mean m in [l, u] has a variance of at most v = (u - m)(m - l), and v / 3 in the middle of what is
        possible, as of values spread evenly over a range. An entry (i, j) is taken to be v_i / 3 on the diagonal and 0
        off it, give or take sqrt(v_i v_j) / 3, and met halfway where its noise is as large as that; where the noise is
        small it stays what it is. Computed from the noisy answer and public numbers alone. Without a mean or ranges the
        moment itself.
        """
        if mean is None or self.lower is None:
            return moment
        xp: Any = np if isinstance(moment, np.ndarray) else jnp
        lower, upper = (xp.asarray(ends, moment.dtype) for ends in (self.lower, self.upper))
        noise = self.deviations(lower, upper)
        noise = noise / (n_records if self.divisor is None else self.divisor)
        half, inside = (upper - lower) / 2, xp.clip(mean, lower, upper)
        # Where the mean is at an end of the range by its noise, the variance is not 0.
        most = xp.maximum((upper - inside) * (inside - lower), half * xp.minimum(noise[0, 1:], half))
        prior, width = xp.diag(most) / 3, xp.outer(most, most) / 9
        return prior + (moment - prior) * width / (width + noise[1:, 1:] ** 2)

    def deviations(self, lower: Any, upper: Any) -> Any:
        """Deviations of the noise on the sum of (1, x less the centre), (d + 1, d + 1), in the units of the records."""
        raise NotImplementedError

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

        Within ranges an infinite entry counts as the end of its range; a record that is not finite then counts as 0.

        Raises:
            ValueError: the mechanism has no exact sampler or follows a paper's convention; x is no matrix of numbers,
                or has fewer columns than components.
        """
        if self.convention == PAPER:
            raise ValueError(f"convention must be {PUBLIC!r} for a release, got {self.convention!r}")
        records = validate.matrix(x, "x", must_be_finite=False).astype(np.float64)
        if not isinstance(self.n_components, float):
            validate.at_most(records.shape[1], "d", n_components=self.n_components)
        if self.center is not None:
            with np.errstate(over="ignore"):
                records = records - np.asarray(self.center, np.float64)
        whole, unit, curve, note = self.released(finite_rows(self.cut(records)))
        divisor = len(records) if self.divisor is None else self.divisor
        # Rounding comes after the noise, and costs no privacy.
        joint = whole.astype(np.float64) * np.outer(unit, unit) / divisor
        if self.mean_weight is not None and self.neighbouring != "add_or_remove":
            # The sensitivity leaves it out; it is public.
            joint[0, 0] = len(records) / divisor
        moment, mean = self.settled(joint, len(records))
        moment = self.steadied(moment, mean, len(records))
        with jax.enable_x64(True):
            found = components_of(jnp.asarray(moment), self.n_components, symmetric=self.SYMMETRIC)
        k = int(found.n_components)
        values = np.asarray(found.eigenvalues)[:k]
        joint = None if mean is None else joint
        return PCARelease(np.asarray(found.components)[:k], values, moment, curve, note, mean, joint)

    def in_units(self, matrix: Any, unit: Any, x: Array) -> Any:
        """A sum over bounded records in the units of the records, over the divisor."""
        scale = jnp.broadcast_to(jnp.asarray(unit, matrix.dtype), matrix.shape[:1])
        return matrix * scale[:, None] * scale / (x.shape[0] if self.divisor is None else self.divisor)

    def rows(self, x: Array) -> tuple[jax.Array, Any, Any]:
        """Bounded records (n, d) in a unit, that unit, () or (d,), and their extents where the noise needs them."""
        raise NotImplementedError

    def noise(self, key: Array, rows: jax.Array, extents: Any) -> jax.Array:
        """Noise on the sum of the outer products of `query`'s rows; (q, q)."""
        raise NotImplementedError

    def proven_curve(self) -> tuple[tradeoff.TradeOff, str]:
        """The curve with public bounds, and what is proven."""
        raise NotImplementedError

    def event(self) -> Any:
        """The event with public bounds; `NonPrivateDpEvent`, which promises nothing, where there is none."""
        return require_dp_accounting().NonPrivateDpEvent()

    def released(self, records: np.ndarray) -> tuple[Any, Any, tradeoff.TradeOff, str]:
        """The noisy sum (q, q) in whole numbers, their unit as of `query`, curve and note; records are centred."""
        raise ValueError(
            f"release must be of a mechanism with an exact sampler, got {len(records)} records for another"
        )


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
    """A square matrix whose lower triangle is replaced by the mirror image of its upper one.

    Example:
        >>> import numpy as np
        >>> from drjax.defenses.dp_pca_noise import mirrored
        >>> mirrored(np.arange(4.0).reshape(2, 2))
        array([[0., 1.],
               [1., 3.]])
    """
    xp = np if isinstance(draws, np.ndarray) else jnp
    return xp.triu(draws) + xp.triu(draws, 1).T
