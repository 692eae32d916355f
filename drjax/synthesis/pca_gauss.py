"""PCA-Gauss, made sound: private components, and Gaussians of them with private moments.

    method = PCAGauss(neighbouring="replace_one", box=Box.of(lower, upper), n_components=10, n_classes=2)
    synthesizer = method.fit(jax.random.key(0), x, y, 1.0, 1e-5)       # experiments
    published = method.release(x, y, 1.0, 1e-5)                        # publication
    made = published.sample(None, 10_000)                              # features within the box, and classes

`PCAGauss` is the paper's algorithm 2 for numbers y, its algorithm 3 for classes, and, without y, the same for records
alone. `PCAGaussSpectrum` is its algorithm 1, which releases eigenvalues without directions. `paper=True` follows the
paper, with a warning where its claim fails. Proofs: docs/synthesis/mechanism.md; counterexamples:
docs/synthesis/claims.md.

Source: Chanyaswad, Liu & Mittal (2017), arXiv:1709.00054v1 (paper 002).
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from drjax.bounds.gdp import check_positive
from drjax.core import validate
from drjax.core.linalg import HIGHEST
from drjax.core.types import Array, hyperparams, traced
from drjax.synthesis import exact_moments, gaussian_model, moments, paper
from drjax.synthesis.budget import Budget, Plan
from drjax.synthesis.frame import Frame, ProjectedSynthesizer, chosen_clip_factor, frame_of, noisy_count
from drjax.synthesis.projected import ProjectedGauss
from drjax.synthesis.projection import (
    PROJECTIONS,
    Directions,
    directions_of,
    private_components,
    public_components,
    random_components,
)
from drjax.synthesis.spectrum import PCAGaussSpectrum

__all__ = ["Budget", "PCAGauss", "PCAGaussSpectrum"]


@hyperparams
class PCAGauss(ProjectedGauss):
    """PCA-Gauss for records alone, with numbers (algorithm 2), or with classes (algorithm 3).

    The label is kept out of the components. See the base class for the other fields.

    Attributes:
        projection: "private": leading eigenvectors of a noisy second moment; "public": `components`; "random".
        components: (p, d), orthonormal rows, for projection "public": as from PCA of public records scaled to [-1, 1].
        center: (d,) public, in the units of the records; None for the records' own mean, with noise.
        clip_norm: Public bound on the components' norm about the centre, > 0, in units of half the box's width; None
            for `clip_factor` times the records' own size (the root of their mean squared distance from the centre),
            with noise. sqrt(d) about the middle of the box cuts nothing.
        clip_factor: Factor on the clipping radius, > 0; None for `frame.chosen_clip_factor` of the noise, which looks
            at no record.
        is_divided: Whether components are divided by sqrt(m) with `paper`, as lemma 1 asks. The authors' code does not
            do it, which makes its noise smaller by that factor, and lemma 1's bound on the components false.

    Example:
        >>> import drjax, jax
        >>> from drjax.synthesis.contract import Box
        >>> from drjax.synthesis.pca_gauss import PCAGauss
        >>> data = drjax.load("digits")
        >>> method = PCAGauss(neighbouring="replace_one", box=Box.of(0.0, 1.0, 64), n_components=4, n_classes=10)
        >>> published = method.release(data.x, data.y, 1.0, 1e-5)
        >>> x, y = published.sample(None, 60)
        >>> x.shape, bool((x >= 0).all() and (x <= 1).all()), y.shape
        ((60, 64), True, (60,))
    """

    projection: str = "private"
    components: Any = traced(default=None)
    center: tuple[float, ...] | None = None
    clip_norm: float | None = None
    clip_factor: float | None = None
    is_divided: bool = True

    name: ClassVar[str] = "pca-gauss"

    def __post_init__(self) -> None:
        """Checks every field."""
        super().__post_init__()
        validate.one_of(PROJECTIONS, projection=self.projection)
        if (self.components is not None) != (self.projection == "public"):
            raise ValueError(f"components must be given for projection 'public' and no other, got {self.projection!r}")
        if self.components is not None and not validate.is_abstract(self.components):
            found = public_components(self.components, self.n_components, self.box.d)
            object.__setattr__(self, "components", found)
        if self.center is not None:
            object.__setattr__(self, "center", self.box.checked_center(self.center))
        if self.clip_factor is not None:
            check_positive(clip_factor=self.clip_factor)
        if self.clip_norm is not None:
            check_positive(clip_norm=self.clip_norm)
        if not (self.is_divided or self.paper):
            raise ValueError(f"is_divided must be True without paper, got {self.is_divided}")

    def steps(self) -> tuple[str, ...]:
        """Names in `budget.STEPS`, in the order in which their budget is spent."""
        is_public = self.center is not None and self.clip_norm is not None
        first = () if is_public else ("center",)
        return (*first, *(("projection",) if self.projection == "private" else ()), "moments")

    def _public_center(self, m: int, dtype: Any) -> jax.Array:
        return self.box.encode(np.asarray(self.center)[None])[0].astype(dtype) / math.sqrt(m)

    def public_frame(self, m: int, dtype: Any) -> Frame | None:
        """Centre, radius and scale where all are public; None where the first step finds them."""
        if self.center is None or self.clip_norm is None:
            return None
        root = math.sqrt(m)
        return Frame(self._public_center(m, dtype), jnp.asarray(self.clip_norm / root, dtype), jnp.asarray(root, dtype))

    def noisy_frame(self, noisy: Any, deviation: float, m: int, n: Any, spending: Plan) -> Frame:
        """The radius is `clip_norm`, or `clip_factor` times the size; the centre the public one, if any."""
        given = None if self.center is None else self._public_center(m, noisy.dtype)
        count = noisy_count(noisy, deviation) if n is None else n
        factor = self.chosen_clip_factor(spending, count) if self.clip_factor is None else self.clip_factor
        found = frame_of(noisy, deviation, m, n, is_sphere=False, clip_factor=factor, given=given)
        if self.clip_norm is not None:
            found = found._replace(radius=jnp.asarray(self.clip_norm / math.sqrt(m), noisy.dtype))
        return found

    def chosen_clip_factor(self, spending: Plan, n: Any) -> Any:
        """The clip factor where none is given, for n records (the noisy count under "add_or_remove")."""
        q = self.n_components + (2 if self.task == "regression" else 1)
        scale = moments.moment_scale(q, self._bound(), spending, "moments", self.n_classes or 1)
        return chosen_clip_factor(moments.noise_deviation(spending.noise, scale) * math.sqrt(q) / n)

    def directions(self, key: Array, v: Any, weight: Any, frame: Frame, spending: Plan) -> Directions:
        """Leading eigenvectors with noise, the public ones, or random ones."""
        if self.projection == "private":
            return private_components(key, v, weight, frame, spending, self.n_components)
        if self.projection == "public":
            return Directions(jnp.asarray(self.components, v.dtype))
        return Directions(random_components(key, self.n_components, v.shape[1], v.dtype))

    def released_directions(self, v: np.ndarray, chosen: np.ndarray, frame: Frame, spending: Plan) -> Directions:
        """Directions as by `directions`, with noise or randomness from the operating system."""
        if self.projection == "public":
            return Directions(np.asarray(self.components, np.float64))
        if self.projection == "random":
            key = gaussian_model.os_key()
            return Directions(np.asarray(random_components(key, self.n_components, v.shape[1], v.dtype)))
        rows = np.where(chosen[:, None], (v - frame.center) / float(frame.radius), 0.0)
        noisy, deviation = exact_moments.released_moments([rows], 1.0, spending, "projection")
        return directions_of(noisy[0], deviation, spending.noise, self.n_components)

    def _paper_fit(self, key: Array, x: Array, y: Any, epsilon: float, delta: float) -> ProjectedSynthesizer:
        """Algorithms 2 and 3 with the noise of the authors' code, on records centred by their own mean if by no other.

        Lap-PCA where delta is 0, AG-PCA with all of delta otherwise; the moments' noise is Laplace noise. Numbers y are
        taken about the middle of `target_range`, not about their own mean, which nobody would know to add again: the
        Gaussian has mean 0, so the range should have a public mean in its middle.
        """
        if self.task == "unsupervised":
            raise ValueError("n_classes or target_range must be given for paper=True; algorithm 1 is PCAGaussSpectrum")
        self.plan(epsilon, delta)
        u = self.box.encode(x)
        (n, m), p = u.shape, self.n_components
        root = math.sqrt(m)
        group, label = self._targets(y, n, u.dtype)
        if self.center is None:
            center = jnp.mean(u, axis=0)
            u = u - center
        else:
            center = self._public_center(m, u.dtype) * root
            u = jnp.clip(u - center, -1, 1)
        projection_key, noise_key = jax.random.split(key)
        shares = (self.budget.center, self.budget.projection, self.budget.moments)
        if self.projection != "private":
            shares = (shares[0], 0.0, shares[2])
        of_mean, of_projection, of_moments = (float(epsilon) * share / sum(shares) for share in shares)
        frame = Frame(center / root, jnp.ones((), u.dtype), jnp.asarray(root, u.dtype))
        cost, slack = 0.0, 0.0
        if self.projection == "private":
            components, cost, slack = paper.private_pca(projection_key, u, p, of_projection, delta, self.neighbouring)
        elif self.projection == "public":
            components = jnp.asarray(self.components, u.dtype)
        else:
            components = random_components(projection_key, p, m, u.dtype)
        guarantee = self._paper_guarantee(float(epsilon), of_mean + of_moments + cost, slack)
        z = jnp.matmul(u, components.T, precision=HIGHEST) / (root if self.is_divided else 1)
        mixture = paper.pca_gauss_mixture(noise_key, z, group, label, self.n_classes, (of_mean, of_moments))
        # The frame is in units of sqrt(m), whatever the noise was added to.
        unit = jnp.full(p, 1 if self.is_divided else 1 / root, u.dtype)
        unit = unit if label is None else jnp.append(unit, self.label_weight)
        mixture = mixture._replace(means=mixture.means * unit, factors=mixture.factors * unit[:, None])
        return self._synthesizer(guarantee, frame, components, mixture)

    def _paper_guarantee(self, claimed: float, true: float, delta: float) -> Any:
        if self.center is None:
            return paper.nothing(self.neighbouring, "the records' own mean is taken as public")
        if not self.is_divided:
            return paper.nothing(self.neighbouring, "components may be sqrt(m), and the noise is for components of 1")
        if self.n_classes is not None:
            why = "numbers of records of classes are private, and records change class under replace_one"
            return paper.nothing(self.neighbouring, why)
        if self.neighbouring == "add_or_remove":
            return paper.nothing(self.neighbouring, "the number of records is private")
        why = "theorem 5, about a public centre; AG-PCA with the noise of a record that is added"
        return paper.pure(self.neighbouring, true, claimed, why, delta)
