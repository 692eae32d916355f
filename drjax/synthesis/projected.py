"""What PCA-Gauss and RON-Gauss share: records, centred and bounded, projected, as a private mixture of Gaussians.

Records are cut to their box, scaled to [-1, 1]^m and divided by sqrt(m), so that they lie in the unit ball (paper 002's
lemma 1). Then three steps, each a sum over bounded records with noise:

1. center: their mean and their size, from which the radius follows that records are cut to.
2. projection: p components; nothing where they are public or random.
3. moments: count, mean and second moment of the cut components, and of the label, for every class.

The model is fitted to the moments alone. All that a synthesizer holds is covered by one guarantee.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from drjax.bounds.accounting import Guarantee
from drjax.bounds.curve import RELATIONS, number
from drjax.bounds.gdp import check_positive
from drjax.core import validate
from drjax.core.linalg import HIGHEST
from drjax.core.types import Array, hyperparams
from drjax.synthesis import exact_moments, gaussian_model, moments, sensitivity
from drjax.synthesis.budget import Budget, Plan, plan
from drjax.synthesis.contract import TASKS, Box
from drjax.synthesis.correction import Correction, Squares, correction_of
from drjax.synthesis.frame import (
    COUNT_WEIGHT,
    SIZE_WEIGHT,
    Frame,
    ProjectedSynthesizer,
    components_in_frame,
    in_unit_ball,
)
from drjax.synthesis.projection import Directions, project_each

COMPOSITIONS = ("serial", "parallel")


@hyperparams
class ProjectedGauss:
    """Base of `pca_gauss.PCAGauss` and `ron_gauss.RONGauss`.

    Attributes:
        neighbouring: Neighbouring relation: which data sets the guarantee compares, a name in
            `drjax.bounds.curve.RELATIONS`; no default. The number of records is public under "zero_out" and
            "replace_one", and noisy under "add_or_remove".
        box: Public bounds of the features.
        n_components: p, in [1, d]; public.
        n_classes: Public number of classes, >= 1: y is an integer from 0. A record of any other class counts for none.
        target_range: Public (lower, upper) of numbers y, which are cut to it. At most one of both is given; with
            neither, records have no y.
        budget: Shares of the steps.
        mean_weight: t > 0: more makes means and counts less noisy, and covariances more.
        label_weight: b > 0, the same for the label of a regression.
        repair: Repair of noisy covariances, a name in `gaussian_model.REPAIRS`.
        pooling: Share, in [0, 1], of the classes' common covariance in that of each; None for as much as its noise
            calls for, see `gaussian_model.mixture_of`.
        composition: "serial": every step sees every record. "parallel": `part` of the records, drawn at random, are for
            the first two steps, which may then spend all, and so may the third on the others.
        part: Share of the records, in (0, 1).
        decode: Whether synthetic records are features, or components.
        correct: Whether decoded columns get back the deviations that clipping, left-out directions and the box take
            off, see `drjax.synthesis.correction`.
        paper: Follow the paper, with a warning where its claim fails.
    """

    neighbouring: str
    box: Box
    n_components: int
    n_classes: int | None = None
    target_range: tuple[float, float] | None = None
    budget: Budget = Budget()
    mean_weight: float = 1.0
    label_weight: float = 0.5
    repair: str = "trace"
    pooling: float | None = 1.0
    composition: str = "serial"
    part: float = 0.3
    decode: bool = True
    correct: bool = True
    paper: bool = False

    tasks: ClassVar[tuple[str, ...]] = TASKS
    SPHERE: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Checks every field."""
        validate.one_of(RELATIONS, neighbouring=self.neighbouring)
        if not isinstance(self.box, Box):
            raise ValueError(f"box must be a Box, got {self.box!r}")
        validate.integer(n_components=self.n_components)
        validate.at_most(self.box.d, "d", n_components=self.n_components)
        if self.n_classes is not None:
            validate.integer(n_classes=self.n_classes)
        if self.target_range is not None:
            if self.n_classes is not None:
                raise ValueError("n_classes and target_range must not both be given")
            low, high = self.target_range
            ends = Box.of([low], [high])
            object.__setattr__(self, "target_range", (*ends.lower, *ends.upper))
        check_positive(mean_weight=self.mean_weight, label_weight=self.label_weight)
        validate.one_of(gaussian_model.REPAIRS, repair=self.repair)
        if self.pooling is not None:
            validate.probability(pooling=number(pooling=self.pooling))
        validate.one_of(COMPOSITIONS, composition=self.composition)
        if not 0 < float(number(part=self.part)) < 1:
            raise ValueError(f"part must be in (0, 1), got {self.part}")

    @property
    def task(self) -> str:
        """A name in `contract.TASKS`."""
        if self.n_classes is not None:
            return "classification"
        return "unsupervised" if self.target_range is None else "regression"

    def plan(self, epsilon: float, delta: float, *, for_release: bool = False) -> Plan:
        """What every step spends of a budget.

        Raises:
            ValueError: epsilon is not > 0, or delta not in [0, 1).
        """
        steps = self.steps()
        parallel = () if self.composition == "serial" else tuple(step for step in steps if step != "moments")
        return plan(
            epsilon,
            delta,
            self.budget,
            steps=steps,
            neighbouring=self.neighbouring,
            parallel=parallel,
            for_release=for_release,
        )

    def fit(self, key: Array, x: Array, y: Array | None, epsilon: float, delta: float) -> ProjectedSynthesizer:
        """Fits x (n, d) and y (n,), for experiments: whoever knows the key can take the noise off again.

        Laplace noise where delta is 0, else Gaussian noise. Pure, safe under jit and vmap over key, x and y. O(n d^2 +
        d^3) with private components, O(n d p) with others; mapped over keys, what does not depend on the key is done
        once: all of the data's part where centre, radius and components are public.

        Raises:
            ValueError: a budget out of its range, or shapes that do not match.
        """
        validate.prng_key(key)
        self._check(x, y)
        if self.paper:
            return self._paper_fit(key, x, y, epsilon, delta)
        spending = self.plan(epsilon, delta)
        center_key, projection_key, moment_key, part_key = jax.random.split(key, 4)
        v, size = in_unit_ball(self.box.encode(x), self.SPHERE)
        (n, m), dtype = v.shape, v.dtype
        first = second = jnp.ones(n, dtype)
        if self.composition == "parallel":
            first = jax.random.bernoulli(part_key, self.part, (n,)).astype(dtype)
            second = 1 - first
        is_counted = self.neighbouring == "add_or_remove"
        frame = self.public_frame(m, dtype)
        if frame is None:
            found = self.first_sum(v, size, first)
            noisy, deviation = moments.noisy_sum(center_key, found, self._first_bound(), spending, "center")
            frame = self.noisy_frame(
                noisy, deviation, m, None if is_counted else jnp.maximum(jnp.sum(first), 1), spending
            )
        directions = self.directions(projection_key, v, first, frame, spending)
        components = directions.components.astype(dtype)
        found = self.moment_sums(v, y, second, frame, components)
        noisy, deviation = moments.noisy_moments(moment_key, found, self._bound(), spending, "moments")
        mixture = self._mixture(noisy, deviation, None if is_counted else jnp.sum(second))
        correction = self._correction(mixture, directions, frame, self._first_count(noisy, first))
        return self._synthesizer(spending.guarantee, frame, components, mixture, correction)

    def release(self, x: Array, y: Array | None, epsilon: float, delta: float) -> ProjectedSynthesizer:
        """Fits x (n, d) and y (n,) for publication: exact noise from the operating system; nobody can repeat it.

        Every record becomes a vector of whole numbers by a rule that depends on public and released numbers alone, so
        the guarantee, pure or zCDP, is of the numbers in the computer. On the host in float64. Samples may be drawn
        with any key. No record is refused: a feature or number y that is nan counts as the middle of its bounds.

        Raises:
            ValueError: as `fit`, or `paper` is set.
        """
        if self.paper:
            raise ValueError("paper must be False for a release, got True")
        self._check(x, y)
        spending = self.plan(epsilon, delta, for_release=True)
        records = validate.matrix(x, "x", must_be_finite=False).astype(np.float64)
        with jax.enable_x64(True):
            v, size = in_unit_ball(np.asarray(self.box.encode(records)), self.SPHERE)
            n, m = v.shape
            first = second = np.ones(n, bool)
            if self.composition == "parallel":
                first = exact_moments.fair_part(n, self.part)
                second = ~first
            is_counted = self.neighbouring == "add_or_remove"
            frame = self.public_frame(m, v.dtype)
            if frame is None:
                rows = np.where(first[:, None], np.asarray(self._first_rows(v, size)), 0.0)
                noisy, deviation = exact_moments.released_sum(rows, self._first_bound(), spending, "center")
                n_first = None if is_counted else max(1.0, float(first.sum()))
                frame = self.noisy_frame(jnp.asarray(noisy), deviation, m, n_first, spending)
            frame = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), frame)
            directions = self.released_directions(v, first, frame, spending)
            components = np.asarray(directions.components, np.float64)
            group, label = self._targets(y, n, v.dtype)
            shifted = v - frame.center
            if self.SPHERE:
                z = project_each(shifted / _norms(shifted), components)
            else:
                z = project_each(shifted, components) / frame.radius
            z = z / np.maximum(1, _norms(z))
            parts = [np.full((n, 1), self.mean_weight), z]
            if label is not None:
                parts.append(self.label_weight * np.asarray(label)[:, None])
            w = np.where(second[:, None], np.concatenate(parts, axis=1), 0.0)
            chosen = np.asarray(group)
            groups = [np.where((chosen == k)[:, None], w, 0.0) for k in range(self.n_classes or 1)]
            noisy, deviation = exact_moments.released_moments(groups, self._bound(), spending, "moments")
            mixture = self._mixture(jnp.asarray(noisy), deviation, None if is_counted else float(second.sum()))
            correction = self._correction(mixture, directions, frame, self._first_count(noisy, first))
            mixture, correction = jax.tree.map(np.asarray, (mixture, correction))
        return self._synthesizer(spending.guarantee, frame, components, mixture, correction)

    def first_sum(self, v: Any, size: Any, weight: Any) -> jax.Array:
        """What the first step adds noise to: the sum over records of direction, size and, where private, count.

        Args:
            v: (n, m) in the unit ball.
            size: (n,) in [0, 1].
            weight: (n,), 0 or 1.

        Returns:
            (m + 1,), or (m + 2,) under "add_or_remove". Not private.
        """

        def term(chunk: Any) -> jax.Array:
            return jnp.matmul(chunk["weight"], chunk["rows"], precision=HIGHEST)

        return moments.total(term, {"rows": self._first_rows(v, size), "weight": weight})

    def moment_sums(self, v: Any, y: Any, weight: Any, frame: Frame, components: Any) -> jax.Array:
        """What the third step adds noise to: for every class the sum over records of w w^T, w = (t, z, b y).

        Args:
            v: (n, m) in the unit ball.
            y: (n,), or None.
            weight: (n,), 0 or 1.
            frame: Where components are taken from.
            components: (p, m).

        Returns:
            (n_classes, q, q), q = p + 1, or p + 2 with numbers y. Not private.
        """
        group, label = self._targets(y, v.shape[0], v.dtype)

        def term(chunk: Any) -> jax.Array:
            z = components_in_frame(chunk["v"], frame, components, self.SPHERE)
            w = moments.augmented(z, self.mean_weight, chunk.get("label"), self.label_weight)
            return moments.grouped_gram(w, chunk["weight"], chunk["group"], self.n_classes or 1)

        records = {"v": v, "weight": weight, "group": group}
        return moments.total(term, records if label is None else {**records, "label": label})

    # ---- what methods differ in

    def steps(self) -> tuple[str, ...]:
        """Names in `budget.STEPS`, in the order in which their budget is spent."""
        raise NotImplementedError

    def public_frame(self, m: int, dtype: Any) -> Frame | None:
        """Centre, radius and scale where all are public; None where the first step finds them."""
        raise NotImplementedError

    def noisy_frame(self, noisy: Any, deviation: float, m: int, n: Any, spending: Plan) -> Frame:
        """Centre, radius and scale from the noisy sum of the first step; n is None where it is private."""
        raise NotImplementedError

    def directions(self, key: Array, v: Any, weight: Any, frame: Frame, spending: Plan) -> Directions:
        """Components (p, m) for experiments, from records v (n, m) in the unit ball that weigh (n,)."""
        raise NotImplementedError

    def released_directions(self, v: np.ndarray, chosen: np.ndarray, frame: Frame, spending: Plan) -> Directions:
        """Components (p, m) for publication, from the `chosen` (n,) among records v (n, m)."""
        raise NotImplementedError

    def _paper_fit(self, key: Array, x: Array, y: Any, epsilon: float, delta: float) -> ProjectedSynthesizer:
        raise NotImplementedError

    # ---- what they share

    def _check(self, x: Array, y: Array | None) -> None:
        validate.shape_2d(x=x)
        if (y is None) != (self.task == "unsupervised"):
            raise ValueError(
                f"y must be {'None' if y is not None else 'given'} for {self.task}, got {type(y).__name__}"
            )
        if y is not None and np.shape(y) != np.shape(x)[:1]:
            raise ValueError(f"y must have shape {np.shape(x)[:1]} to match x, got {np.shape(y)}")
        if self.task == "classification" and not jnp.issubdtype(jnp.result_type(y), jnp.integer):
            raise ValueError(f"y must be integers for classification, got dtype {jnp.result_type(y)}")

    def _bound(self) -> float:
        """Norm bound of w."""
        return moments.augmented_norm(self.mean_weight, self.label_weight if self.task == "regression" else None)

    def _first_rows(self, v: Any, size: Any) -> Any:
        """Direction, size about its middle, and a count where the number of records is private."""
        parts = [v, SIZE_WEIGHT * (size - 0.5)[:, None]]
        if self.neighbouring == "add_or_remove":
            parts.append(jnp.full((v.shape[0], 1), COUNT_WEIGHT, v.dtype))
        return jnp.concatenate(parts, axis=1)

    def _first_bound(self) -> float:
        count = COUNT_WEIGHT if self.neighbouring == "add_or_remove" else 0.0
        return math.sqrt(1 + (SIZE_WEIGHT / 2) ** 2 + count**2) * sensitivity.ROUNDING

    def _targets(self, y: Any, n: int, dtype: Any) -> tuple[Any, Any]:
        """Class of each record, and its label in [-1, 1] or None."""
        if self.task == "classification":
            return jnp.asarray(y), None
        group = jnp.zeros(n, jnp.int32)
        if self.target_range is None:
            return group, None
        low, high = self.target_range
        label = jnp.clip((jnp.asarray(y, dtype) - low) / (high - low) * 2 - 1, -1, 1)
        return group, jnp.where(jnp.isnan(label), 0, label)

    def _mixture(self, noisy: Any, deviation: float, n: Any) -> gaussian_model.Mixture:
        return gaussian_model.mixture_of(
            noisy, self.mean_weight, deviation, n=n, repair=self.repair, pooling=self.pooling
        )

    def _first_count(self, noisy: Any, first: Any) -> Any:
        """Records of the first two steps; noisy, from the third, where their number is private."""
        if self.neighbouring != "add_or_remove":
            return jnp.maximum(jnp.sum(jnp.asarray(first)), 1)
        share = 1.0 if self.composition == "serial" else self.part / (1 - self.part)
        return jnp.maximum(jnp.sum(jnp.asarray(noisy)[:, 0, 0]) / self.mean_weight**2 * share, 1)

    def _correction(self, mixture: Any, directions: Directions, frame: Frame, n: Any) -> Correction | None:
        if not (self.correct and self.decode):
            return None
        given = directions.squares is not None
        return correction_of(
            mixture,
            directions.components,
            frame,
            spread=None if frame.spread is None else frame.spread / frame.radius**2,
            squares=Squares(directions.squares, directions.deviation, n) if given else None,
            is_sphere=self.SPHERE,
        )

    def _synthesizer(
        self, guarantee: Guarantee, frame: Frame, components: Any, mixture: Any, correction: Correction | None = None
    ) -> ProjectedSynthesizer:
        return ProjectedSynthesizer(
            box=self.box,
            task=self.task,
            target_range=self.target_range,
            label_weight=self.label_weight,
            is_sphere=self.SPHERE,
            decode=self.decode,
            guarantee=guarantee,
            frame=frame,
            components=components,
            mixture=mixture,
            correction=correction,
        )


def _norms(rows: np.ndarray) -> np.ndarray:
    found = np.sqrt((rows * rows).sum(axis=1, keepdims=True))
    return np.where(found > 0, found, 1)
