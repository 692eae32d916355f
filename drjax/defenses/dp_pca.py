"""Differentially private PCA: noise on the second moment of bounded records, and what else there is.

A mechanism bounds every record by public numbers, adds up the outer products, S = sum x x^T over records less a public
centre, adds noise, and divides by a public number. `fit` is pure, for experiments: floating-point noise from a key that
can be known. `release` is for publication. The guarantee is of the whole noisy matrix, so components, eigenvalues and a
number of components chosen from them cost nothing more. Sensitivities and proofs: docs/dp_pca/.

Bounds, centre, divisor and number of components must not come from the records: what is computed from them is not
private, and papers 001 and 002 compute it. `convention="paper_not_private"` does as paper 001 does, and guarantees
nothing. Under "add_or_remove" the number of records is private, so the divisor has to be given.

Example:
    >>> import drjax, jax
    >>> from drjax.defenses import dp_pca
    >>> x, near = drjax.load("digits").x, {"neighbouring": "zero_out", "n_components": 10}
    >>> published = dp_pca.AnalyticGauss.for_release(1.0, 1e-5, row_norm=4.0, **near).release(x)
    >>> published.components.shape, round(published.curve.epsilon_at(1e-5), 2)
    ((10, 64), 1.0)
    >>> norms = {"row_norm": 4.0, "noise_multiplier": 4.0}
    >>> ranges = {"lower": [0.0] * 64, "upper": [1.0] * 64, "epsilon": 1.0}
    >>> by_norm = [kind(**near, **norms) for kind in (dp_pca.AnalyzeGauss, dp_pca.Wishart, dp_pca.NoisyPowerMethod)]
    >>> by_range = [kind(**near, **ranges) for kind in (dp_pca.LaplaceVector, dp_pca.LaplaceScalar, dp_pca.LapPCA)]
    >>> {mechanism.fit(jax.random.key(0), x[:60]).components.shape for mechanism in by_norm + by_range}
    {(10, 64)}
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from drjax.bounds import tradeoff
from drjax.bounds.gdp import check_positive, delta_of
from drjax.bounds.numeric import require_dp_accounting
from drjax.core import validate
from drjax.core.linalg import HIGHEST
from drjax.core.types import Array, hyperparams, traced
from drjax.defenses import dp_pca_sensitivity as sensitivity
from drjax.defenses.dp_pca_ball import GaussianNoise, InBall
from drjax.defenses.dp_pca_components import PrivateComponents, components_of
from drjax.defenses.dp_pca_laplace import LaplaceNoise
from drjax.defenses.dp_pca_noise import (
    PAPER,
    PUBLIC,
    PCARelease,
    mirrored,
    standardised_not_private,
)
from drjax.defenses.exact_noise import discrete_gaussian

__all__ = [
    "MECHANISMS",
    "PAPER",
    "PUBLIC",
    "AnalyticGauss",
    "AnalyzeGauss",
    "LapPCA",
    "LaplaceScalar",
    "LaplaceVector",
    "NoisyPowerMethod",
    "PCARelease",
    "PrivateComponents",
    "Wishart",
]


@hyperparams
class LaplaceVector(LaplaceNoise):
    """Paper 001's Laplace vector query: the same noise on all d (d + 1) / 2 entries of the second moment.

    The scale is the sum of M_i M_j over i >= j, divided by epsilon, with M_i = max(-lower_i, upper_i): tight, under
    every relation. The paper's has upper_i - lower_i for M_i, four times as much for ranges that are symmetric about 0.
    """

    CONVENTIONS: ClassVar[tuple[str, ...]] = (PUBLIC, PAPER)


@hyperparams
class LaplaceScalar(LaplaceNoise):
    """Paper 001's Laplace scalar queries: each of a = d (d + 1) / 2 entries gets noise in units of its own M_i M_j.

    The scale of an entry is a M_i M_j / epsilon: epsilon / a for every query by naive composition, which proves epsilon
    under "zero_out" and "add_or_remove"; under "replace_one" it would prove nearly 2 epsilon, and the L1 sensitivity of
    the features in units of M proves epsilon all the same. `advanced` chooses epsilon by advanced composition.
    """

    CONVENTIONS: ClassVar[tuple[str, ...]] = (PUBLIC, PAPER)
    OWN_UNITS: ClassVar[bool] = True

    @classmethod
    def advanced(cls, epsilon: float, delta: float, d: int, *, neighbouring: str, **fields: Any) -> LaplaceScalar:
        """The noise that is (epsilon, delta)-private by advanced composition, or by naive composition if that is less.

        The field `epsilon`, of the pure guarantee, is larger. With the paper's convention equation 2 is solved as
        printed, which asks for more noise than naive composition where epsilon is large.

        Args:
            epsilon: Epsilon, > 0.
            delta: Delta, in (0, 1).
            d: Features.
            neighbouring: A name in `RELATIONS`.
            **fields: The others.

        Raises:
            ValueError: an argument out of its range, or a mean_weight.
        """
        validate.integer(d=d)
        if fields.get("mean_weight") is not None:
            raise ValueError(f"mean_weight must be None with advanced composition, got {fields['mean_weight']}")
        n_queries, is_paper = d * (d + 1) // 2, fields.get("convention") == PAPER
        one = sensitivity.advanced_query_epsilon(epsilon, delta, n_queries, as_printed=is_paper)
        found = cls(neighbouring=neighbouring, epsilon=n_queries * one, **fields)
        # Under "replace_one" an entry may move by twice M_i M_j; then its query has twice the epsilon of its share.
        worst = 1.0 if is_paper else float(found.shifts().max()) / one
        if worst <= 1 + 1e-9:
            return found
        return cls(neighbouring=neighbouring, epsilon=max(n_queries * one / worst, float(epsilon)), **fields)

    def event(self) -> Any:
        """One `LaplaceDpEvent` for each query, of the largest shift."""
        shifts, module = self.shifts(), require_dp_accounting()
        one = module.LaplaceDpEvent(math.nextafter(1 / float(shifts.max()), 0))
        return module.SelfComposedDpEvent(one, shifts.size)


@hyperparams
class LapPCA(LaplaceNoise):
    """Paper 002's Lap-PCA: independent Laplace noise on all d^2 entries, then left singular vectors.

    The scale is (sum of M_i)^2 / epsilon, the paper's m^2 a^2 for features in [-a, a], which is tight under every
    relation. On the symmetric part that is sqrt(2) times the noise of `LaplaceVector` at the same epsilon: for
    comparison only. The paper centres the records, by their mean if at all; that is not private.
    """

    SYMMETRIC: ClassVar[bool] = False


@hyperparams
class AnalyticGauss(GaussianNoise):
    """Gaussian noise that looks alike in every basis: deviation noise_multiplier row_norm^2 on the diagonal, and
    1 / sqrt(2) of it off the diagonal.

    At the same guarantee as `AnalyzeGauss` its noise off the diagonal is less by sqrt(2), and so is its spectral norm:
    the Frobenius norm, which counts these entries twice, is at worst as large as the norm of the upper triangle.
    `analytic` takes the least deviation for (epsilon, delta).

    Source: Balle & Wang (2018) for the deviation; docs/dp_pca/gaussian.md for the shape.
    """

    OFF_DIAGONAL: ClassVar[Fraction] = Fraction(1, 2)
    """Variance off the diagonal over that on it."""

    def deviations(self, lower: Any, upper: Any) -> Any:
        """Standard deviations of the noise, in the units of the records."""
        del upper
        xp: Any = np if isinstance(lower, np.ndarray) else jnp
        assert self.mean_weight is not None
        q, row_norm = len(lower) + 1, xp.asarray(self.row_norm, lower.dtype)
        shape = xp.full((q, q), math.sqrt(self.OFF_DIAGONAL), lower.dtype)
        shape = shape + (1 - math.sqrt(self.OFF_DIAGONAL)) * xp.eye(q, dtype=lower.dtype)
        unit = row_norm * xp.ones(q, lower.dtype)
        # The constant is 1 in units of itself.
        first = (xp.arange(q) == 0).astype(lower.dtype)
        unit = unit + first * (1 / self.mean_weight - row_norm)
        return xp.asarray(self.noise_multiplier, lower.dtype) * shape * xp.outer(unit, unit)

    def noise(self, key: Array, rows: jax.Array, extents: Any) -> jax.Array:
        """Independent draws on and above the diagonal."""
        del extents
        d = rows.shape[1]
        deviation = jnp.full((d, d), math.sqrt(self.OFF_DIAGONAL), rows.dtype).at[jnp.diag_indices(d)].set(1)
        draws = mirrored(jax.random.normal(key, (d, d), rows.dtype))
        return jnp.asarray(self.noise_multiplier, rows.dtype) * deviation * draws

    def released(self, records: np.ndarray) -> tuple[Any, Any, tradeoff.TradeOff, str]:
        """Release with discrete Gaussian noise."""
        multiplier, row_norm = float(self.noise_multiplier), float(self.row_norm)
        bits = sensitivity.bits_for(multiplier)
        whole = sensitivity.whole_rows_in_ball(records, row_norm, bits)
        unit: Any = row_norm / 2.0**bits
        squared = sensitivity.whole_change(bits, 0, self.neighbouring)
        apart = f"sqrt({squared // 4 ** (2 * bits)}) 4^{bits}"
        if self.mean_weight is not None:
            constant = max(1, math.floor(Fraction(self.mean_weight) * 2**bits))
            squared = sensitivity.whole_change(bits, constant, self.neighbouring)
            whole = np.insert(whole, 0, constant, axis=1)
            unit = np.append(1 / constant, np.full(records.shape[1], unit))
            apart = f"sqrt({squared})"
        d = whole.shape[1]
        variance = math.ceil((Fraction(multiplier) * 4**bits) ** 2)
        noisy = np.zeros((d, d), object)
        above = np.triu_indices(d, 1)
        noisy[above] = discrete_gaussian(self.OFF_DIAGONAL * variance, len(above[0]))
        noisy[np.diag_indices(d)] = discrete_gaussian(variance, d)
        noisy = mirrored(noisy) + sensitivity.whole_gram(whole)
        exact = Fraction(squared, 4 ** (2 * bits)) / Fraction(multiplier) ** 2 / 2
        rho = float(exact) if Fraction(float(exact)) >= exact else math.nextafter(float(exact), math.inf)
        note = (
            f"{rho}-zCDP, proven for the matrix as published: discrete Gaussian noise of sigma^2 {variance} on whole "
            f"numbers at most {apart} apart between neighbours; not mu-GDP"
        )
        return noisy, unit, tradeoff.ZCDP(rho, neighbouring=self.neighbouring), note


@hyperparams
class AnalyzeGauss(AnalyticGauss):
    """Independent Gaussian noise of one deviation on the upper triangle, mirrored.

    The condition of the source, that every record's norm is at most 1, is enforced by clipping to row_norm and dividing
    by it. `classical` is the source's deviation, and that of paper 001, whose Hamming neighbours, "replace_one", would
    need sqrt(2) times as much.

    Source: Dwork, Talwar, Thakurta & Zhang (2014), algorithm 1.
    """

    CONVENTIONS: ClassVar[tuple[str, ...]] = (PUBLIC, PAPER)
    OFF_DIAGONAL: ClassVar[Fraction] = Fraction(1)

    @classmethod
    def classical(cls, epsilon: float, delta: float, *, neighbouring: str, **fields: Any) -> AnalyzeGauss:
        """The deviation sqrt(2 log(1.25 / delta)) / epsilon in units of the sensitivity; the other fields by name.

        With the paper's convention in units of that of "add_or_remove", whatever the relation. The formula is proven
        for epsilon < 1; here it is held against the exact delta, and so taken up to where it really ends.

        Raises:
            ValueError: an argument out of its range, or an epsilon at which the formula gives too little noise.
        """
        check_positive(epsilon=epsilon)
        if not 0 < delta < 1:
            raise ValueError(f"delta must be in (0, 1), got {delta!r}")
        one = math.sqrt(2 * math.log(1.25 / delta)) / epsilon * (1 + 1e-12)
        if delta_of(1 / one, float(epsilon)) > delta:
            raise ValueError(f"epsilon must be where the classical formula holds at delta {delta}, got {epsilon}")
        is_paper = fields.get("convention") == PAPER
        unit = sensitivity.moment_sensitivity(1.0, neighbouring="add_or_remove")
        if not is_paper:
            unit = cls(neighbouring=neighbouring, noise_multiplier=1.0, **fields).sensitivity
        return cls(neighbouring=neighbouring, noise_multiplier=one * unit, **fields)

    def rows(self, x: Array) -> tuple[jax.Array, Any, Any]:
        """Rows as of the base class; or standardised, in units of the longest record."""
        if self.convention == PUBLIC:
            return super().rows(x)
        z = standardised_not_private(x)
        longest = jnp.sqrt(jnp.max(jnp.sum(z**2, axis=1)))
        longest = jnp.where(longest > 0, longest, 1)
        return z / longest, longest, None


@hyperparams
class NoisyPowerMethod(GaussianNoise):
    """Block power iterations, with Gaussian noise of deviation noise_multiplier row_norm^2 on every product S Q.

    The guarantee is of n_iter products of d x (n_components + n_extra): mu = sensitivity / noise_multiplier with a
    sensitivity that grows as sqrt(n_iter). Never forms a (d, d) matrix, O(n d k) a step: for d where one is too large.
    Elsewhere `AnalyticGauss` captures more energy.

    Attributes:
        n_iter: Products, >= 1.
        n_extra: Columns of Q beyond n_components, >= 0.

    Source: Hardt & Price (2014), algorithm 1; docs/dp_pca/gaussian.md for the sensitivity under bounded norms.
    """

    n_iter: int = 4
    n_extra: int = 0

    FINDS_MEAN: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Checks every field."""
        super().__post_init__()
        validate.integer(n_components=self.n_components, n_iter=self.n_iter)
        validate.integer(minimum=0, n_extra=self.n_extra)

    @property
    def rank(self) -> int:
        """Columns of Q."""
        return int(self.n_components) + self.n_extra

    @property
    def sensitivity(self) -> float:
        """Sensitivity of all products together, in units of row_norm^2, rounded up."""
        one = sensitivity.product_sensitivity(1.0, self.rank, neighbouring=self.neighbouring)
        return one * math.sqrt(self.n_iter) * (1 + 2**-50)

    def products(self, key: Array, x: Array) -> tuple[jax.Array, jax.Array]:
        """What the guarantee is of: the start Q (d, rank), public, and the noisy products (n_iter, d, rank).

        Products are those of the second moment of x (n, d), each with the Q of a QR decomposition of the one before.

        Raises:
            ValueError: at trace time, for an x that is no matrix, or with fewer than `rank` columns.
        """
        validate.prng_key(key)
        rows, unit, _ = self.rows(x)
        d = rows.shape[1]
        validate.at_most(d, "d", rank=self.rank)
        start_key, noise_key = jax.random.split(key)
        start, _ = jnp.linalg.qr(jax.random.normal(start_key, (d, self.rank), rows.dtype))
        scale = jnp.asarray(self.noise_multiplier, rows.dtype)

        def step(q: jax.Array, one: jax.Array) -> tuple[jax.Array, jax.Array]:
            product = jnp.matmul(rows.T, jnp.matmul(rows, q, precision=HIGHEST), precision=HIGHEST)
            noisy = product + scale * jax.random.normal(one, q.shape, q.dtype)
            return jnp.linalg.qr(noisy)[0], noisy

        _, noisy = jax.lax.scan(step, start, jax.random.split(noise_key, self.n_iter))
        squared = jnp.asarray(unit, rows.dtype) ** 2
        return start, noisy * squared / (x.shape[0] if self.divisor is None else self.divisor)

    def noisy_moment(self, key: Array, x: Array) -> jax.Array:
        """Refused: none is formed; see `products`."""
        del key, x
        raise ValueError(f"noisy_moment must be of a mechanism that forms one, got one of {type(self).__name__}")

    def fit(self, key: Array, x: Array) -> PrivateComponents:
        """Left singular vectors and singular values of the last product; otherwise as of all."""
        return components_of(self.products(key, x)[1][-1], int(self.n_components), symmetric=False)


@hyperparams
class Wishart(InBall):
    """Wishart noise of d - 1 + excess degrees of freedom and scale noise_multiplier row_norm^2, less its mean.

    (epsilon, delta)-DP by `dp_pca_sensitivity.wishart_delta`, and never (epsilon, 0)-DP: noise that is positive
    semidefinite leaves matrices that only one of two neighbours can produce. `jiang` is the published mechanism, whose
    delta is at least 1 - exp(-epsilon / 3). As excess grows, the least noise approaches that of `AnalyticGauss`: for
    comparison only. "zero_out" and "add_or_remove" only.

    Attributes:
        noise_multiplier: Scale of the noise, in units of row_norm^2, > 0; may be swept without retracing.
        excess: Degrees of freedom beyond d - 1, >= 2.

    Source: Jiang, Xie & Zhang (2016), whose claim overlooks the support; Sheffet (2015) for the form with a delta.
    """

    noise_multiplier: Any = traced()
    excess: int = 2

    POSITIVE: ClassVar[tuple[str, ...]] = ("row_norm", "noise_multiplier")
    AMOUNT: ClassVar[str] = "noise_multiplier"
    FINDS_MEAN: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Checks every field."""
        super().__post_init__()
        validate.integer(minimum=2, excess=self.excess)
        validate.one_of(("zero_out", "add_or_remove"), neighbouring=self.neighbouring)

    @classmethod
    def analytic(cls, epsilon: float, delta: float, *, neighbouring: str, excess: int, **fields: Any) -> Wishart:
        """The least noise that is (epsilon, delta)-DP at that excess; the other fields by name."""
        scale = sensitivity.wishart_noise(epsilon, delta, excess)
        return cls(neighbouring=neighbouring, excess=excess, noise_multiplier=scale, **fields)

    @classmethod
    def jiang(cls, epsilon: float, *, neighbouring: str, **fields: Any) -> Wishart:
        """Mechanism as published for (epsilon, 0): excess 2, scale 3 / (2 epsilon); `guarantee` says what holds."""
        check_positive(epsilon=epsilon)
        return cls(neighbouring=neighbouring, excess=2, noise_multiplier=1.5 / epsilon, **fields)

    def noise(self, key: Array, rows: jax.Array, extents: Any) -> jax.Array:
        """Noise by Bartlett's decomposition."""
        del extents
        d, dtype = rows.shape[1], rows.dtype
        dof = d - 1 + self.excess
        chi_key, normal_key = jax.random.split(key)
        squares = 2 * jax.random.gamma(chi_key, jnp.asarray((dof - np.arange(d)) / 2, dtype), (d,), dtype)
        factor = jnp.tril(jax.random.normal(normal_key, (d, d), dtype), -1) + jnp.diag(jnp.sqrt(squares))
        drawn = jnp.matmul(factor, factor.T, precision=HIGHEST) - dof * jnp.eye(d, dtype=dtype)
        return jnp.asarray(self.noise_multiplier, dtype) * drawn

    def proven_curve(self) -> tuple[tradeoff.TradeOff, str]:
        """The least of its (epsilon, delta) curves."""
        shift = 1 / float(self.noise_multiplier)
        curve = sensitivity.wishart_curve(self.excess, shift, neighbouring=self.neighbouring)
        return curve, "exact at some epsilons for real numbers, by the chi-square noise that it is equivalent to"


MECHANISMS: dict[str, Any] = {
    "laplace-vector": LaplaceVector,
    "laplace-scalar": LaplaceScalar,
    "lap-pca": LapPCA,
    "analyze-gauss": AnalyzeGauss,
    "analytic-gauss": AnalyticGauss,
    "noisy-power": NoisyPowerMethod,
    "wishart": Wishart,
}
"""Every mechanism by name."""
