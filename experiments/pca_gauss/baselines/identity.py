"""Identity queries: every record is released with noise, after a projection to few dimensions.

    method = BernoulliIdentity(neighbouring="replace_one", box=box, n_components=5)     # Li et al. in paper 002
    method = PCAIdentity.from_public(public, neighbouring="replace_one", box=box, n_components=5)      # Jiang et al.

Of a record's projection u, the Euclidean norm is at most `row_norm`, by clipping. So replacing a record moves the
release by 2 row_norm in L2 and by 2 sqrt(p) row_norm in L1, which Laplace noise is scaled to: sqrt(p) times less than
paper 002's 2 p a for components divided by sqrt(m). The noise does not shrink with the number of records, because
nothing is averaged. Proofs: experiments/pca_gauss/baselines/README.md.
"""

from __future__ import annotations

import math
import warnings
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from drjax.bounds import tradeoff
from drjax.bounds.accounting import Guarantee
from drjax.bounds.curve import number
from drjax.bounds.gdp import check_positive
from drjax.core import validate
from drjax.core.linalg import HIGHEST, compute_dtype, scatter_basis
from drjax.core.types import Array, hyperparams, traced
from drjax.defenses.clipping import in_ball
from drjax.defenses.mechanisms import Gaussian, Laplace
from drjax.synthesis import sensitivity
from drjax.synthesis.budget import Budget, plan
from drjax.synthesis.contract import TASKS, Box, Synthetic
from drjax.synthesis.frame import Frame
from drjax.synthesis.projection import private_components, public_components
from experiments.pca_gauss.baselines.labels import Labelled


@hyperparams
class ReleasedRecords:
    """A release that consists of records; a pytree.

    Attributes:
        guarantee: What is proven of them.
        box: Public bounds of the real records.
        row_norm: That projections were clipped to, or None without a projection.
        x: (n, p) the records, in the coordinates of the projection, or without one in the units of the real ones.
        y: (n,) their labels, or None.
        components: (p, d) the projection, public or released, or None.
    """

    guarantee: Guarantee
    box: Box
    row_norm: float | None = None
    x: Any = traced()
    y: Any = traced(default=None)
    components: Any = traced(default=None)

    def sample(self, key: Array, n: int) -> Synthetic:
        """n of the records in random order, all of them before any is repeated."""
        validate.integer(n=n)
        size = self.x.shape[0]
        keys = jax.random.split(key, -(-n // size))
        order = jax.vmap(lambda one: jax.random.permutation(one, size))(keys).ravel()[:n]
        return Synthetic(self.x[order], None if self.y is None else self.y[order])

    def transform(self, x: Array) -> Any:
        """Real records in the coordinates of these."""
        if self.components is None:
            return self.box.clip(x)
        assert self.row_norm is not None
        return projected(self.box, x, self.components, self.row_norm)


def projected(box: Box, x: Array, components: Array, row_norm: float) -> jax.Array:
    """Records (n, d) in the box, brought to [-1, 1], onto components (p, d), clipped to a norm; (n, p)."""
    z = box.encode(x)
    u = jnp.matmul(z, jnp.asarray(components, z.dtype).T, precision=HIGHEST)
    return in_ball(u, row_norm) * jnp.asarray(row_norm, u.dtype)


def check_budget(epsilon: float, delta: float) -> None:
    """Whether epsilon is finite and > 0, and delta in [0, 1).

    Raises:
        ValueError: otherwise.
    """
    check_positive(epsilon=number(epsilon=epsilon))
    if not 0 <= float(number(delta=delta)) < 1:
        raise ValueError(f"delta must be in [0, 1), got {delta!r}")


@hyperparams
class _Identity(Labelled):
    """Noise on the projection of every record, and on every label.

    With delta = 0 noise is Laplace's, as in paper 002. With delta > 0 it is Gaussian where that has the smaller
    variance, an improvement that the paper does not make: for large p, because its scale does not grow with sqrt(p).

    Attributes:
        row_norm: Public bound on the norm of a projection, > 0; sqrt(d) if None, which cuts nothing where the
            projection lengthens no record.
        label_share: Of epsilon for the labels, in (0, 1): randomised response or Laplace noise.
        paper: Do as paper 002 does: Laplace noise for a sensitivity of 2 p row_norm, which is more than needed, and
            labels as they are, which is not private: the guarantee then says so.
    """

    tasks: ClassVar[tuple[str, ...]] = TASKS

    row_norm: float | None = None
    label_share: float = 0.1
    paper: bool = False

    def __post_init__(self) -> None:
        """Checks every field."""
        super().__post_init__()
        validate.one_of(("replace_one", "zero_out"), neighbouring=self.neighbouring)
        if self.row_norm is not None:
            check_positive(row_norm=number(row_norm=self.row_norm))
            object.__setattr__(self, "row_norm", float(self.row_norm))
        if not 0 < float(number(label_share=self.label_share)) < 1:
            raise ValueError(f"label_share must be in (0, 1), got {self.label_share!r}")

    @property
    def bound(self) -> float:
        """On the norm of a projection."""
        return math.sqrt(self.box.d) * sensitivity.ROUNDING if self.row_norm is None else self.row_norm

    def mechanism(self, p: int, epsilon: float, delta: float) -> Laplace | Gaussian:
        """The noise on p coordinates of every record.

        Raises:
            ValueError: a budget out of its range.
        """
        check_budget(epsilon, delta)
        l2 = sensitivity.sum_l2(neighbouring=self.neighbouring) * self.bound
        if self.paper:
            return Laplace.from_epsilon(epsilon, neighbouring=self.neighbouring, sensitivity=l2 * p)
        l1 = sensitivity.sum_l1(p, neighbouring=self.neighbouring) * self.bound
        laplace = Laplace.from_epsilon(epsilon, neighbouring=self.neighbouring, sensitivity=l1)
        if delta == 0:
            return laplace
        gaussian = Gaussian.analytic(epsilon, delta, neighbouring=self.neighbouring, sensitivity=l2)
        return gaussian if gaussian.scale**2 < 2 * laplace.scale**2 else laplace

    def fit(self, key: Array, x: Array, y: Array | None, epsilon: float, delta: float) -> ReleasedRecords:
        """Noise on all records, for experiments: floating-point noise from a key that can be known.

        Pure, safe under jit and vmap over key, x and y; memory O(n p).

        Args:
            key: Draws the noise, and the projection where that is random.
            x: (n, d).
            y: (n,) classes or numbers, or None.
            epsilon: > 0.
            delta: In [0, 1).

        Raises:
            ValueError: a budget out of its range, or shapes that do not match.
        """
        self.check(x, y)
        check_budget(epsilon, delta)
        component_key, row_key, label_key = jax.random.split(key, 3)
        share = self._component_share()
        for_labels = 0.0 if y is None or self.paper else self.label_share * (1 - share)
        components = self._components(component_key, x, share * epsilon, share * delta)
        rows = projected(self.box, x, components, self.bound)
        mechanism = self.mechanism(rows.shape[1], (1 - share - for_labels) * epsilon, (1 - share) * delta)
        noisy = mechanism.sample(row_key, rows)
        labels = None if y is None else self._labels(label_key, y, for_labels * epsilon, rows.dtype)
        is_single = share == 0 and y is None
        guarantee = self._guarantee(mechanism if is_single else None, epsilon, delta, y is not None)
        return ReleasedRecords(
            guarantee=guarantee, box=self.box, row_norm=self.bound, x=noisy, y=labels, components=components
        )

    def _component_share(self) -> float:
        """Of the budget, for the components."""
        return 0.0

    def _components(self, key: Array, x: Array, epsilon: float, delta: float) -> Any:
        """(p, d)."""
        raise NotImplementedError

    def _labels(self, key: Array, y: Array, epsilon: float, dtype: Any) -> Any:
        if not self.paper:
            return self.with_noise(key, y, epsilon, dtype)
        warnings.warn("labels are released as they are, as in paper 002: that is not private", stacklevel=3)
        return self.classes(y) if self.n_classes is not None else self.shown_numbers(self.numbers(y, dtype))

    def _guarantee(self, single: Laplace | Gaussian | None, epsilon: float, delta: float, labelled: bool) -> Guarantee:
        if labelled and self.paper:
            nothing = tradeoff.EpsilonDelta(0.0, 1.0, neighbouring=self.neighbouring)
            proven = f"nothing of a record and its label: labels are released as they are; features alone {epsilon}-DP"
            return Guarantee(nothing, nothing, proven)
        if single is not None:
            return Guarantee(single.curve, single.curve, "exact for noise on real numbers: every record by itself")
        curve = tradeoff.EpsilonDelta(float(epsilon), float(delta), neighbouring=self.neighbouring)
        return Guarantee(curve, curve, "noise on real numbers: budgets of components, features and label added up")


@hyperparams
class BernoulliIdentity(_Identity):
    """Li et al. as paper 002 compares with them: a random projection with entries of either sign, then the identity.

    Entries are independent, +1 / sqrt(p) or -1 / sqrt(p) alike, so that norms are kept on average; every fit draws a
    new projection, which is public.

    Attributes:
        n_components: p, >= 1.
    """

    name: ClassVar[str] = "bernoulli-identity"

    n_components: int

    def __post_init__(self) -> None:
        """Checks every field."""
        super().__post_init__()
        validate.integer(n_components=self.n_components)

    def _components(self, key: Array, x: Array, epsilon: float, delta: float) -> jax.Array:
        del epsilon, delta
        return jax.random.rademacher(key, (self.n_components, self.box.d), compute_dtype(x)) / math.sqrt(
            self.n_components
        )


@hyperparams
class PCAIdentity(_Identity):
    """Jiang et al.: principal components, then the identity.

    Attributes:
        n_components: p, in [1, d].
        components: (p, d) public, orthonormal rows, of records brought to [-1, 1]; None for private ones.
        component_share: Of the budget for private components, in (0, 1).
    """

    name: ClassVar[str] = "pca-identity"

    n_components: int
    components: Any = traced(default=None)
    component_share: float = 0.3

    def __post_init__(self) -> None:
        """Checks every field."""
        super().__post_init__()
        validate.integer(n_components=self.n_components)
        validate.at_most(self.box.d, "the features", n_components=self.n_components)
        if not 0 < float(number(component_share=self.component_share)) < 1:
            raise ValueError(f"component_share must be in (0, 1), got {self.component_share!r}")
        _check_components(self.components, self.n_components, self.box.d)

    @classmethod
    def from_public(
        cls, public: Array, *, box: Box, n_components: int, neighbouring: str, **fields: Any
    ) -> PCAIdentity:
        """With the leading components of public records (m, d); the other fields by name.

        Directions in which they do not vary are filled up with arbitrary ones.

        Raises:
            ValueError: an argument out of its range.
        """
        records = validate.matrix(public, "public", min_rows=2, columns=box.d)
        validate.integer(n_components=n_components)
        validate.at_most(box.d, "the features", n_components=n_components)
        basis = scatter_basis(np.asarray(box.encode(records)))[1]
        # QR keeps orthonormal leading columns, up to their sign, and completes them by unit vectors.
        complete = np.linalg.qr(np.concatenate([basis.T, np.eye(box.d)], axis=1))[0]
        found = _fixed_signs(complete[:, :n_components].T)
        return cls(box=box, neighbouring=neighbouring, n_components=n_components, components=found, **fields)

    def _component_share(self) -> float:
        return self.component_share if self.components is None else 0.0

    def _components(self, key: Array, x: Array, epsilon: float, delta: float) -> Any:
        if self.components is not None:
            return self.components
        spending = plan(epsilon, delta, Budget(), steps=("projection",), neighbouring=self.neighbouring)
        v = self.box.encode(x) / math.sqrt(self.box.d)
        zero, one = jnp.zeros(v.shape[1], v.dtype), jnp.ones((), v.dtype)
        frame = Frame(zero, one, one)
        found = private_components(key, v, jnp.ones(v.shape[0], v.dtype), frame, spending, self.n_components)
        return found.components


@hyperparams
class LDAIdentity(_Identity):
    """Jiang et al.: discriminant directions of public records with classes, then the identity.

    Two classes have one direction, K classes K - 1; paper 002 has two.

    Attributes:
        components: (p, d) public, orthonormal rows, of records brought to [-1, 1].
    """

    name: ClassVar[str] = "lda-identity"
    tasks: ClassVar[tuple[str, ...]] = ("classification",)

    components: Any = traced()

    def __post_init__(self) -> None:
        """Checks every field."""
        super().__post_init__()
        if self.n_classes is None:
            raise ValueError("n_classes must be given, got None")
        _check_components(self.components, None, self.box.d)

    @property
    def n_components(self) -> int:
        """p."""
        return self.components.shape[0]

    @classmethod
    def from_public(
        cls, public: Array, public_y: Array, *, box: Box, n_classes: int, neighbouring: str, **fields: Any
    ) -> LDAIdentity:
        """With the directions of public records (m, d) and their classes (m,), two or more of them.

        Scatter within classes is shrunk by Ledoit & Wolf's rule, because there may be fewer records than features.

        Raises:
            ValueError: an argument out of its range, or fewer than two classes.
        """
        records = validate.matrix(public, "public", min_rows=3, columns=box.d)
        classes = np.asarray(public_y)
        if classes.shape != (len(records),) or len(np.unique(classes)) < 2:
            raise ValueError(f"public_y must have a class for each of {len(records)} records, and two or more classes")
        model = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")
        weights = model.fit(np.asarray(box.encode(records), np.float64), classes).coef_
        # One row for two classes; of more a row each, whose differences span the discriminant space.
        spanning = weights if len(weights) == 1 else weights[1:] - weights[0]
        directions = np.linalg.qr(spanning.T)[0].T
        return cls(
            box=box, neighbouring=neighbouring, n_classes=n_classes, components=_fixed_signs(directions), **fields
        )

    def _components(self, key: Array, x: Array, epsilon: float, delta: float) -> Any:
        del key, x, epsilon, delta
        return self.components


def _fixed_signs(components: np.ndarray) -> np.ndarray:
    """The largest entry of each row positive."""
    largest = components[np.arange(len(components)), np.argmax(np.abs(components), axis=1)]
    return components * np.where(largest < 0, -1, 1)[:, None]


def _check_components(components: Any, p: int | None, d: int) -> None:
    """Whether they are p orthonormal rows; what is traced was checked when it was made."""
    if components is not None and not validate.is_abstract(components):
        public_components(components, len(components) if p is None else p, d)
