"""RON-Gauss, made sound: records of norm 1, a random orthonormal projection, and Gaussians with private moments.

    method = RONGauss(neighbouring="replace_one", box=Box.of(lower, upper), n_components=10, n_classes=2)
    published = method.release(x, y, 1.0, 1e-5)

Records are brought to norm 1, centred by their mean with noise, and brought to norm 1 again; projected on random
directions they look Gaussian where d is large. The directions cost nothing, and capture p / d of the variance where
private components may capture nearly all. Without y it is the authors' unsupervised algorithm, with numbers the one of
the augmented covariance, with classes the one of a Gaussian for each class (here about a common centre: class means are
private moments in p dimensions).

Source: Chanyaswad, Liu & Mittal, "RON-Gauss" (PoPETs 2019), arXiv:1709.00054v3.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from drjax.core.types import Array, hyperparams
from drjax.synthesis import gaussian_model, paper, sensitivity
from drjax.synthesis.budget import Budget, Plan
from drjax.synthesis.frame import Frame, ProjectedSynthesizer, frame_of, in_unit_ball
from drjax.synthesis.projected import ProjectedGauss
from drjax.synthesis.projection import Directions, random_components

__all__ = ["Budget", "RONGauss"]


@hyperparams
class RONGauss(ProjectedGauss):
    """RON-Gauss for records alone, with numbers, or with classes; see the base class for the fields.

    The way back to features: a record is the centre plus the mean distance from it times W^T z, at the mean norm of the
    records; both come with noise. With `paper=True` norms are lost, so `decode` has to be False.

    Example:
        >>> import drjax
        >>> from drjax.synthesis.contract import Box
        >>> from drjax.synthesis.ron_gauss import RONGauss
        >>> data = drjax.load("digits")
        >>> method = RONGauss(neighbouring="replace_one", box=Box.of(0.0, 1.0, 64), n_components=4, n_classes=10)
        >>> x, y = method.release(data.x, data.y, 1.0, 1e-5).sample(None, 60)
        >>> x.shape, y.shape
        ((60, 64), (60,))
    """

    name: ClassVar[str] = "ron-gauss"
    SPHERE: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Checks every field."""
        super().__post_init__()
        if self.paper and self.decode:
            raise ValueError("decode must be False for paper=True, which keeps no norms; got True")

    def steps(self) -> tuple[str, ...]:
        """Names in `budget.STEPS`, in the order in which their budget is spent."""
        return ("center", "moments")

    def public_frame(self, m: int, dtype: Any) -> Frame | None:
        """None: the first step finds centre, radius and scale."""
        del m, dtype
        return None

    def noisy_frame(self, noisy: Any, deviation: float, m: int, n: Any, spending: Plan) -> Frame:
        """Frame as for records of norm 1 about the centre."""
        del spending
        return frame_of(noisy, deviation, m, n, is_sphere=True)

    def directions(self, key: Array, v: Any, weight: Any, frame: Frame, spending: Plan) -> Directions:
        """Random orthonormal rows."""
        del weight, frame, spending
        return Directions(random_components(key, self.n_components, v.shape[1], v.dtype))

    def released_directions(self, v: np.ndarray, chosen: np.ndarray, frame: Frame, spending: Plan) -> Directions:
        """Random orthonormal rows, drawn by the operating system."""
        del chosen, frame, spending
        key = gaussian_model.os_key()
        return Directions(np.asarray(random_components(key, self.n_components, v.shape[1], v.dtype)))

    def _paper_fit(self, key: Array, x: Array, y: Any, epsilon: float, delta: float) -> ProjectedSynthesizer:
        """Fit as by the authors' code, delta aside, which it does not use."""
        self.plan(epsilon, delta)
        v, _ = in_unit_ball(self.box.encode(x), True)
        (n, m), p = v.shape, self.n_components
        projection_key, noise_key = jax.random.split(key)
        components = random_components(projection_key, p, m, v.dtype)
        group, label = self._targets(y, n, v.dtype)
        total = self.budget.center + self.budget.moments
        spent = (epsilon * self.budget.center / total, epsilon * self.budget.moments / total)
        guarantee = self._paper_guarantee(epsilon, spent)
        mixture, center = paper.ron_gauss_mixture(noise_key, v, components, group, label, self.n_classes, spent)
        frame = Frame(center, jnp.ones((), v.dtype), jnp.asarray(math.sqrt(m), v.dtype))
        # A label's own unit is 1 there.
        means, factors = mixture.means, mixture.factors
        if label is not None:
            unit = jnp.ones(p + 1, v.dtype).at[-1].set(self.label_weight)
            mixture = mixture._replace(means=means * unit, factors=factors * unit[:, None])
        return self._synthesizer(guarantee, frame, components, mixture)

    def _paper_guarantee(self, epsilon: float, spent: tuple[float, float]) -> Any:
        if self.n_classes is not None:
            why = "numbers of records of classes are private, and records change class under replace_one"
            return paper.nothing(self.neighbouring, why)
        if self.neighbouring == "add_or_remove":
            return paper.nothing(self.neighbouring, "the number of records is private")
        p, m = self.n_components, self.box.d
        of_mean = sensitivity.sum_l1(m, neighbouring=self.neighbouring) / sensitivity.ron_gauss_mean(m, 1)
        if self.target_range is None:
            least, taken = sensitivity.full_moment_l1(p, neighbouring=self.neighbouring), 2 * math.sqrt(p)
        else:
            least = sensitivity.labelled_moment_l1(p, neighbouring=self.neighbouring)
            taken = sensitivity.ron_gauss_supervised(p, 1)
        true = spent[0] * of_mean + spent[1] * least / taken
        why = f"L1 sensitivities are {of_mean:.4g} and {least / taken:.4g} times those of the code"
        return paper.pure(self.neighbouring, true, epsilon, why)
