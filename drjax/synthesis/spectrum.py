"""Algorithm 1 of paper 002: the leading eigenvalues of a second moment, with noise, and Gaussians of these variances.

What is published are p numbers. The directions are not, so synthetic records are points in p dimensions whose axes
nobody knows, and no real record can be compared with them.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from drjax.bounds.accounting import Guarantee
from drjax.bounds.curve import RELATIONS
from drjax.bounds.gdp import check_positive
from drjax.core import validate
from drjax.core.linalg import HIGHEST
from drjax.core.types import Array, hyperparams, traced
from drjax.defenses.clipping import in_ball
from drjax.defenses.dp_pca_sensitivity import BITS, whole_gram, whole_rows_in_ball
from drjax.defenses.mechanisms import Gaussian, Laplace
from drjax.synthesis import gaussian_model, moments, paper, sensitivity
from drjax.synthesis.budget import Budget, Plan, plan
from drjax.synthesis.contract import Box, Synthetic

LAPACK = 100 * 2.0**-52
"""Relative error of computed eigenvalues, per feature, in units of the matrix's norm: far above LAPACK's bound."""


@hyperparams
class SpectrumSynthesizer:
    """Gaussians of mean 0 and private variances; a pytree.

    Attributes:
        guarantee: Guarantee of the variances.
        factor: (p, p), A of the covariance A A^T in units of half the box's width; diagonal but for the paper's.
    """

    guarantee: Guarantee
    factor: Any = traced()

    @property
    def variances(self) -> Any:
        """(p,)."""
        return jnp.sum(jnp.asarray(self.factor) ** 2, axis=1)

    def sample(self, key: Array | None, n: int) -> Synthetic:
        """n points (n, p); pure, safe under jit and vmap with n static. A key of None is drawn from the OS."""
        validate.integer(n=n)
        key = gaussian_model.os_key() if key is None else key
        factor = jnp.asarray(self.factor)
        normal = jax.random.normal(key, (n, factor.shape[0]), factor.dtype)
        return Synthetic(jnp.matmul(normal, factor.T, precision=HIGHEST), None)

    def transform(self, x: Array) -> Any:
        """Refused: the directions are not released.

        Raises:
            ValueError: always.
        """
        raise ValueError(f"x must not be transformed: no directions are released, got shape {np.shape(x)}")


@hyperparams
class PCAGaussSpectrum:
    """Algorithm 1, with a public centre and a sensitivity that does not grow with p.

    Attributes:
        neighbouring: A name in `drjax.bounds.curve.RELATIONS`; no default.
        box: Public bounds of the features.
        n_components: p, in [1, d].
        center: (d,) public, in units of the records; None for the middle of the box.
        clip_norm: Public bound on records less the centre, > 0, in units of half the box's width; None for sqrt(d).
        divisor: Public, > 0; None for the number of records, not under "add_or_remove".
        paper: The paper's noise; and without `center`, the mean of the records, as in the paper, which warns.

    Example:
        >>> import drjax
        >>> from drjax.synthesis.contract import Box
        >>> from drjax.synthesis.pca_gauss import PCAGaussSpectrum
        >>> method = PCAGaussSpectrum(neighbouring="replace_one", box=Box.of(0.0, 1.0, 64), n_components=4)
        >>> published = method.release(drjax.load("digits").x, None, 1.0, 1e-5)
        >>> published.variances.shape
        (4,)
    """

    neighbouring: str
    box: Box
    n_components: int
    center: tuple[float, ...] | None = None
    clip_norm: float | None = None
    divisor: float | None = None
    paper: bool = False

    name: ClassVar[str] = "pca-gauss-spectrum"
    tasks: ClassVar[tuple[str, ...]] = ("unsupervised",)

    def __post_init__(self) -> None:
        """Checks every field."""
        validate.one_of(RELATIONS, neighbouring=self.neighbouring)
        if not isinstance(self.box, Box):
            raise ValueError(f"box must be a Box, got {self.box!r}")
        validate.integer(n_components=self.n_components)
        validate.at_most(self.box.d, "d", n_components=self.n_components)
        if self.center is not None:
            object.__setattr__(self, "center", self.box.checked_center(self.center))
        if self.clip_norm is not None:
            check_positive(clip_norm=self.clip_norm)
        if self.divisor is not None:
            check_positive(divisor=self.divisor)
        elif self.neighbouring == "add_or_remove":
            raise ValueError("divisor must be given under add_or_remove, where the number of records is private")

    @property
    def radius(self) -> float:
        """The bound that records are cut to, in units of half the box's width."""
        return float(self.clip_norm or math.sqrt(self.box.d))

    def plan(self, epsilon: float, delta: float, *, for_release: bool = False) -> Plan:
        """Plan as of `projected.ProjectedGauss`."""
        return plan(
            epsilon, delta, Budget(), steps=("moments",), neighbouring=self.neighbouring, for_release=for_release
        )

    def eigenvalues(self, x: Array) -> jax.Array:
        """The p largest of the sum of outer products of cut records in units of `radius`; without noise."""
        rows = self._rows(x)
        found = moments.total(
            lambda chunk: moments.gram(in_ball(chunk["rows"], self.radius), chunk["weight"]),
            {"rows": rows, "weight": jnp.ones(rows.shape[0], rows.dtype)},
        )
        return jnp.linalg.eigvalsh(found)[::-1][: self.n_components]

    def fit(self, key: Array, x: Array, y: None, epsilon: float, delta: float) -> SpectrumSynthesizer:
        """Fits x (n, d), for experiments: whoever knows the key can take the noise off again.

        Pure, safe under jit and vmap over key and x; mapped over keys, all but the noise is done once. O(n d^2 + d^3).

        Raises:
            ValueError: a budget out of its range, shapes that do not match, or a y.
        """
        validate.prng_key(key)
        self._check(x, y)
        if self.paper:
            return self._paper_fit(key, x, epsilon, delta)
        spending = self.plan(epsilon, delta)
        values = self.eigenvalues(x)
        draw = jax.random.normal if spending.noise == "gaussian" else jax.random.laplace
        noisy = values + self._scale(spending) * draw(key, values.shape, values.dtype)
        return self._synthesizer(noisy, np.shape(x)[0], spending.guarantee)

    def release(self, x: Array, y: None, epsilon: float, delta: float) -> SpectrumSynthesizer:
        """Fits x (n, d) for publication, with exact noise from the operating system; nobody can repeat it.

        The matrix is one of whole numbers, exactly; its eigenvalues are LAPACK's, and noise is raised to cover
        `LAPACK`, far more than they are off by. No record is refused: a feature that is nan counts as the middle of its
        bounds.

        Raises:
            ValueError: as `fit`, or `paper` is set.
        """
        if self.paper:
            raise ValueError("paper must be False for a release, got True")
        if self.neighbouring == "add_or_remove":
            # Rounding errors grow with the number of records, and so would the noise, which is public.
            raise ValueError("neighbouring must be 'zero_out' or 'replace_one' for a release of eigenvalues")
        self._check(x, y)
        spending = self.plan(epsilon, delta, for_release=True)
        records = validate.matrix(x, "x", must_be_finite=False).astype(np.float64)
        with jax.enable_x64(True):
            rows = np.asarray(self._rows(records))
        whole = whole_gram(whole_rows_in_ball(rows, self.radius, BITS)).astype(np.float64) / 4.0**BITS
        values = np.linalg.eigvalsh(whole)[::-1][: self.n_components]
        # Of either neighbour, and once more for what rounding the whole numbers to float64 does.
        error = 4 * LAPACK * self.box.d * (len(rows) + 1)
        p = self.n_components
        if spending.noise == "gaussian":
            unit = sensitivity.spectrum_l2(p, neighbouring=self.neighbouring) + math.sqrt(p) * error
            kind: Any = Gaussian
        else:
            unit = sensitivity.spectrum_l1(p, neighbouring=self.neighbouring) + p * error
            kind = Laplace
        scale = spending.scale("moments", unit, unit)
        made = kind(neighbouring=self.neighbouring, sensitivity=unit, scale=scale)
        return self._synthesizer(jnp.asarray(made.release(values).value), len(rows), spending.guarantee)

    def _scale(self, spending: Plan) -> float:
        p = self.n_components
        return spending.scale(
            "moments",
            sensitivity.spectrum_l1(p, neighbouring=self.neighbouring),
            sensitivity.spectrum_l2(p, neighbouring=self.neighbouring),
        )

    def _rows(self, x: Array) -> Any:
        u = self.box.encode(x)
        return u if self.center is None else u - self.box.encode(np.asarray(self.center)[None])[0].astype(u.dtype)

    def _synthesizer(self, noisy: Any, n: int, guarantee: Guarantee) -> SpectrumSynthesizer:
        variances = jnp.maximum(noisy, 0) * self.radius**2 / (n if self.divisor is None else self.divisor)
        return SpectrumSynthesizer(guarantee=guarantee, factor=jnp.diag(jnp.sqrt(variances)))

    def _check(self, x: Array, y: Any) -> None:
        validate.shape_2d(x=x)
        if y is not None:
            raise ValueError(f"y must be None for unsupervised, got {type(y).__name__}")

    def _paper_fit(self, key: Array, x: Array, epsilon: float, delta: float) -> SpectrumSynthesizer:
        self.plan(epsilon, delta)
        u = self._rows(x)
        n, p = u.shape[0], self.n_components
        if self.center is None:
            guarantee = paper.nothing(self.neighbouring, "the records' own mean is taken as public")
            u = u - jnp.mean(u, axis=0)
        elif self.neighbouring == "add_or_remove":
            guarantee = paper.nothing(self.neighbouring, "the number of records is private")
        else:
            u = jnp.clip(u, -1, 1)
            guarantee = paper.pure(
                self.neighbouring, float(epsilon), float(epsilon), "theorem 4, about a public centre"
            )
        values = jnp.linalg.eigvalsh(moments.gram(u, jnp.ones(n, u.dtype)) / n)[::-1][:p] / self.box.d
        scale = sensitivity.paper_unsupervised(p, n) / epsilon
        noisy = paper.iid_laplace(key, jnp.diag(values), scale)
        factor = gaussian_model.repaired_factor(noisy, 0.0) * math.sqrt(self.box.d)
        return SpectrumSynthesizer(guarantee=guarantee, factor=factor)
