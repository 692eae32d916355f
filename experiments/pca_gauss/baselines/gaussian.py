"""Gaussian models without private components: MODIPS in all dimensions, and a public random projection.

Both hold a noisy sum of (t, z, b y)(t, z, b y)^T for every class, and sample from the Gaussians with these moments.
They differ from PCA-Gauss in the projection alone.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from drjax.bounds.curve import number
from drjax.bounds.gdp import check_positive
from drjax.core import validate
from drjax.core.types import Array, hyperparams
from drjax.defenses.dp_pca_sensitivity import laplace_sensitivity
from drjax.synthesis import gaussian_model, moments, sensitivity
from drjax.synthesis.budget import Budget, Plan, plan
from drjax.synthesis.contract import TASKS
from drjax.synthesis.frame import Frame, ProjectedSynthesizer
from drjax.synthesis.projected import ProjectedGauss
from drjax.synthesis.projection import Directions
from experiments.pca_gauss.baselines.labels import Labelled


@hyperparams
class MODIPS(Labelled):
    """Liu's synthesis from noisy sufficient statistics, of a Gaussian in all d dimensions, or one for each class.

    The statistics are count, sums and second moments of features in [-1, 1]: every entry is bounded by itself, so the
    L1 sensitivity of the upper triangle is the sum of all products of two bounds, (d + t)^2 / 2 and a little, under
    every relation; twice that where a record may change its class. Laplace noise where delta is 0, else Gaussian.

    Attributes:
        mean_weight: t, > 0, d / 10 (1 at least) if None: more makes counts and means less noisy, and covariances more.
        label_weight: b of numbers y, > 0, as t if None.
        repair: Of noisy covariances, a name in `gaussian_model.REPAIRS`. With "trace", which PCA-Gauss takes, noise in
            many dimensions can make the whole covariance 0.

    Source: Liu, "Model-based differentially private data synthesis" (2016), as paper 002 compares with it.
    """

    name: ClassVar[str] = "modips"
    tasks: ClassVar[tuple[str, ...]] = TASKS

    mean_weight: float | None = None
    label_weight: float | None = None
    repair: str = "clip"

    def __post_init__(self) -> None:
        """Checks every field."""
        super().__post_init__()
        for name in ("mean_weight", "label_weight"):
            if getattr(self, name) is not None:
                check_positive(**{name: number(**{name: getattr(self, name)})})
        validate.one_of(gaussian_model.REPAIRS, repair=self.repair)

    @property
    def weights(self) -> tuple[float, float]:
        """t and b."""
        t = max(1.0, self.box.d / 10) if self.mean_weight is None else float(self.mean_weight)
        return t, t if self.label_weight is None else float(self.label_weight)

    def scale(self, spending: Plan) -> float:
        """Of the noise on an entry of the sums."""
        t, b = self.weights
        extents = np.array([t, *np.ones(self.box.d), *([b] if self.target_range is not None else [])])
        l1 = laplace_sensitivity(extents) * sensitivity.ROUNDING
        if self.neighbouring == "replace_one" and self.n_classes is not None:
            l1 *= 2
        l2 = sensitivity.moment_l2(neighbouring=self.neighbouring) * float(extents @ extents) * sensitivity.ROUNDING
        return spending.scale("moments", l1, l2)

    def fit(self, key: Array, x: Array, y: Array | None, epsilon: float, delta: float) -> ProjectedSynthesizer:
        """Fits x (n, d) and y (n,), for experiments: floating-point noise from a key that can be known.

        Pure, safe under jit and vmap over key, x and y: O(n d^2) once for a batch over keys, and O(d^3) for each.

        Raises:
            ValueError: a budget out of its range, or shapes that do not match.
        """
        self.check(x, y)
        spending = plan(epsilon, delta, Budget(), steps=("moments",), neighbouring=self.neighbouring)
        sums = self.sums(x, y)
        scale = self.scale(spending)
        noisy = sums + moments.symmetric_noise(key, sums.shape, spending.noise, scale, sums.dtype)
        deviation = moments.noise_deviation(spending.noise, scale)
        t, b = self.weights
        n = None if self.neighbouring == "add_or_remove" else x.shape[0]
        mixture = gaussian_model.mixture_of(noisy, t, deviation, n=n, repair=self.repair)
        d = self.box.d
        one = jnp.ones((), sums.dtype)
        task = TASKS[0] if y is None else TASKS[1] if self.n_classes is not None else TASKS[2]
        return ProjectedSynthesizer(
            box=self.box,
            task=task,
            target_range=self.target_range,
            label_weight=b,
            is_sphere=False,
            decode=True,
            guarantee=spending.guarantee,
            frame=Frame(jnp.zeros(d, sums.dtype), one, one),
            components=jnp.eye(d, dtype=sums.dtype),
            mixture=mixture,
        )

    def sums(self, x: Array, y: Array | None) -> jax.Array:
        """What noise is added to, (K, q, q); private."""
        t, b = self.weights
        z = self.box.encode(x)
        records: dict[str, Any] = {"z": z, "weight": jnp.ones(z.shape[0], z.dtype), "group": jnp.zeros(z.shape[0], int)}
        if self.n_classes is not None:
            assert y is not None
            records["group"] = self.classes(y)
        elif self.target_range is not None:
            assert y is not None
            records["label"] = self.numbers(y, z.dtype)

        def term(chunk: Any) -> jax.Array:
            w = moments.augmented(chunk["z"], t, chunk.get("label"), b)
            return moments.grouped_gram(w, chunk["weight"], chunk["group"], self.n_classes or 1)

        return moments.total(term, records)


@hyperparams
class RandomProjectionGauss(ProjectedGauss):
    """Blocki et al. as paper 002 adapts them: a public Gaussian random projection, then noisy moments and a Gaussian.

    Entries of the projection are normal of variance 1 / p; every fit draws a new one, which the release shows.
    Projected records are cut to `clip_norm`. Synthetic records are projections: there is no way back. Blocki et al.
    themselves project the records of a covariance and not its features, and need no noise; paper 002 does as here.

    Attributes:
        clip_norm: Public bound on a projection, > 0, in units of half the box's width; sqrt(d) if None.
    """

    name: ClassVar[str] = "random-projection-gauss"

    clip_norm: float | None = None
    decode: bool = False

    def __post_init__(self) -> None:
        """Checks every field."""
        super().__post_init__()
        if self.decode:
            raise ValueError("decode must be False: a random projection has no way back, got True")
        if self.paper:
            raise ValueError("paper must be False: the paper says no more than this does, got True")
        if self.clip_norm is not None:
            check_positive(clip_norm=number(clip_norm=self.clip_norm))

    def steps(self) -> tuple[str, ...]:
        """All of the budget goes to the moments."""
        return ("moments",)

    def public_frame(self, m: int, dtype: Any) -> Frame:
        """About the middle of the box, with the public bound on a projection."""
        root = math.sqrt(m)
        radius = 1.0 if self.clip_norm is None else self.clip_norm / root
        return Frame(jnp.zeros(m, dtype), jnp.asarray(radius, dtype), jnp.asarray(root, dtype))

    def directions(self, key: Array, v: Any, weight: Any, frame: Frame, spending: Plan) -> Directions:
        """A random matrix with normal entries of variance 1 / p."""
        del weight, frame, spending
        drawn = jax.random.normal(key, (self.n_components, v.shape[1]), v.dtype)
        return Directions(drawn / math.sqrt(self.n_components))

    def released_directions(self, v: np.ndarray, chosen: np.ndarray, frame: Frame, spending: Plan) -> Directions:
        """The same, drawn by the operating system."""
        found = self.directions(gaussian_model.os_key(), v, chosen, frame, spending)
        return Directions(np.asarray(found.components))
