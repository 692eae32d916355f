"""Regressions on the vectors of released models: what RecoNN is read beside, and cheap enough to be tried first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from drjax.attacks.reconstruction import ensembles
from drjax.attacks.reconstruction.model_vectors import Inputs
from drjax.core import kernel_regression, validate
from drjax.core.kernel_regression import PENALTIES, Choice, KernelRegression, Spectrum, least
from drjax.core.types import Array, Reconstruction

OFFSET = 0.3
"""Share of the linear terms beside the quadratic ones; on MNIST with 1,000 shadow models, 0 to 0.3 err alike and 1 errs
6% more."""

KERNELS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    # With a constant, because leave-one-out is blind to the penalty along a direction in which the kernel is 0, as that
    # of centred vectors is along their mean.
    "linear": lambda cosine: (cosine + 1) / 2,
    "quadratic": lambda cosine: ((cosine + OFFSET) / (1 + OFFSET)) ** 2,
}
"""Kernels of the scalar product of two vectors; their squared norm is 1 on average over the shadow models."""


@dataclass(frozen=True)
class RegressionModel:
    """Kernel ridge regression from the vectors of released models to their targets.

    Attributes:
        inputs: Fitted on the training vectors.
        length: Divisor of the transformed vectors, for a mean squared length of 1.
        regression: Regression from those vectors (p,) to the target (d,), before clipping.
    """

    inputs: Inputs
    length: float
    regression: KernelRegression

    def reconstruct(self, releases: Array) -> Reconstruction:
        """Reconstructs the targets of vectors (b, p), clipped to [0, 1]; 2 b m (p + d) FLOP.

        A vector that is not finite gives a row of nan with status NON_FINITE.

        Raises:
            ValueError: vectors of another length than in training.
        """
        raw = np.asarray(releases)
        p = self.regression.inputs.shape[1]
        if raw.ndim != 2 or raw.shape[1] != p:
            raise ValueError(f"releases must have shape (b, {p}) as in training, got {raw.shape}")
        vectors = self.inputs.transform(raw).astype(np.float64) / self.length
        x = np.clip(self.regression.predict(vectors), 0, 1)
        return ensembles.reconstruction(x, raw)


def fit_ridge(releases: Array, targets: Array) -> RegressionModel:
    """Ridge regression on the standardised vectors, the penalty chosen by leave-one-out; no validation records needed.

    O(m^2 (p + d) + m^3) time and O(m (m + p)) memory in float64, from one eigendecomposition of the Gram matrix.

    Args:
        releases: (m, p) vectors of shadow models, from `representation`.
        targets: (m, d) the records that they were trained on beside the known ones, in [0, 1].

    Raises:
        ValueError: fewer than two models, arrays that are not finite or do not fit each other, or targets outside
            [0, 1].

    Source: Hoerl & Kennard (1970); leave-one-out by Golub, Heath & Wahba (1979).

    Example:
        >>> import drjax, jax
        >>> from drjax.attacks.reconstruction import reconn
        >>> from drjax.nets.classifier_training import Training, train_many
        >>> from drjax.nets.classifiers import Classifier
        >>> data = drjax.load("digits")
        >>> x, y, training = data.x, data.y, Training(model=Classifier(hidden=(4,)), epochs=5)
        >>> init = training.model.init(jax.random.key(0), 64)
        >>> models = train_many(training, x[:40], y[:40], x[40:60], y[40:60], init=init)
        >>> vectors = reconn.representation(training, models)
        >>> reconn.fit_ridge(vectors[:15], x[40:55]).reconstruct(vectors[15:]).x.shape
        (5, 64)
    """
    return _fit(releases, targets, "linear", has_equal_lengths=False)


def fit_quadratic(releases: Array, targets: Array) -> RegressionModel:
    """Regression on the products of pairs of coordinates too, of vectors of equal length; arguments as `fit_ridge`.

    A first layer holds the target's image times an error of unknown sign, so that no linear map can tell an image from
    its negative; a product with another parameter, which has the sign of the same error, can. All pairs enter through
    their kernel, at the cost of `fit_ridge`.

    Example:
        >>> import numpy as np
        >>> from drjax.attacks.reconstruction import reconn
        >>> targets = np.random.default_rng(0).random((60, 2))
        >>> signs = np.random.default_rng(1).choice([-1.0, 1.0], (60, 1))  # unknown, as those of a model's errors
        >>> vectors = np.concatenate([signs, signs * (targets - 0.5)], axis=1)
        >>> found = reconn.fit_quadratic(vectors[:50], targets[:50]).reconstruct(vectors[50:]).x
        >>> bool(((found - targets[50:]) ** 2).mean() < 0.3 * targets.var())
        True
    """
    return _fit(releases, targets, "quadratic", has_equal_lengths=True)


def _fit(releases: Array, targets: Array, kernel: str, *, has_equal_lengths: bool) -> RegressionModel:
    raw, y = shadow_vectors(releases, targets, min_rows=2)
    inputs = Inputs.fit(raw, has_equal_lengths=has_equal_lengths)
    vectors = inputs.transform(raw).astype(np.float64)
    # Vectors that are all alike have no length: their kernel is 0, and the mean is what is left.
    length = float(np.sqrt((vectors**2).sum(axis=1).mean())) or 1.0
    vectors /= length

    def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return KERNELS[kernel](a @ b.T)

    gram = product(vectors, vectors)
    losses = Spectrum.of_kernel(gram).leave_one_out(y - y.mean(axis=0), PENALTIES)
    choice = Choice(*least(losses), product)
    return RegressionModel(inputs, length, kernel_regression.fit(vectors, y, choice, gram=gram))


def shadow_vectors(
    releases: Array,
    targets: Array,
    *,
    min_rows: int = 1,
    columns: tuple[int, int] | None = None,
    names: tuple[str, str] = ("releases", "targets"),
) -> tuple[np.ndarray, np.ndarray]:
    """Vectors (m, p) in float32 and targets (m, d) in float64.

    Raises:
        ValueError: not finite numeric matrices of as many rows and these columns, or targets outside [0, 1].
    """
    p, d = columns if columns is not None else (None, None)
    vectors = validate.matrix(releases, names[0], min_rows=min_rows, columns=p)
    y = validate.matrix(targets, names[1], columns=d)
    if len(y) != len(vectors):
        raise ValueError(f"{names[1]} must have one row per vector, {len(vectors)}, got {len(y)}")
    validate.probability(**{names[1]: y})
    return vectors.astype(np.float32), y.astype(np.float64)
