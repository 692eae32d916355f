"""What an analyst can do with synthetic records: classify, predict numbers, any estimator of scikit-learn.

    found = train_on_synthetic(RandomForestClassifier(random_state=0), synthesizer.sample(key, 10_000), test)
    found.value, found.status

Everything runs on the host. Synthetic data may be hopeless, and then a score still comes out: records that are not
finite are left out and counted, a single class gives the classifier that always names it, and where no record is left
the score is that of knowing nothing, with the flag `DEGENERATE`. No synthetic data set drops out of an average, which
would flatter the method that made it.

Distances between distributions are in `drjax.synthesis.utility_distances`.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import jax
import numpy as np
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.kernel_ridge import KernelRidge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC

from drjax.core import validate
from drjax.core.types import Array, Status
from drjax.synthesis.contract import Synthetic

SVM_SAMPLE_SIZE = 10_000
"""Synthetic records that `svm_accuracy` trains on."""

KRR_SAMPLE_SIZE = 2000
"""Synthetic records that `krr_rmse` trains on: it costs the cube of it."""

KERNELS = ("linear", "rbf")

LARGEST = 1e100
"""Synthetic values from here on count as infinite: an estimator would overflow."""


class Score(NamedTuple):
    """What an estimator that was trained on synthetic records reaches on real ones.

    Attributes:
        value: Share of test records classified rightly, in [0, 1]; or root mean square error, in units of the targets.
        status: `Status` flags: DEGENERATE where nothing could be learned (no usable record, or one class only),
            NON_FINITE where records were left out or predictions replaced, NOT_CONVERGED.
        n_trained: Synthetic records that it was trained on.
        n_dropped: Synthetic records that were left out because they are not finite.
    """

    value: float
    status: Status
    n_trained: int
    n_dropped: int


def train_on_synthetic(estimator: Any, synthetic: Synthetic, test: Synthetic) -> Score:
    """Trains a fresh copy of an estimator on synthetic records and scores it on real ones.

    Args:
        estimator: A classifier or a regressor of scikit-learn, or a pipeline that ends in one; left as it is.
        synthetic: x (n, d) and y (n,).
        test: Real records in the same coordinates, finite: x (m, d), y (m,).

    Returns:
        Accuracy of a classifier, root mean square error of a regressor. Without a usable synthetic record: accuracy 0,
        which is what a classifier that never answers has, or the error of always predicting 0.

    Raises:
        ValueError: an estimator of another kind, shapes that do not match, or test records that are not finite.
    """
    kind = is_classifier(estimator)
    if not kind and not is_regressor(estimator):
        raise ValueError(f"estimator must be a classifier or a regressor of scikit-learn, got {estimator!r}")
    test_x, test_y = _test_records(test)
    x, y, n_dropped = _usable(synthetic, test_x.shape[1])
    status = Status.NON_FINITE if n_dropped else Status.OK
    if not len(x) or (kind and len(np.unique(y)) < 2):
        if not len(x):
            guess: Any = None if kind else 0.0
        else:
            guess = y[0]
        predictions = np.full(len(test_y), np.nan if guess is None else guess)
        return _scored(kind, predictions, test_y, status | Status.DEGENERATE, len(x), n_dropped)
    fitted: Any = clone(estimator)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fitted.fit(x, y)
        predictions = np.asarray(fitted.predict(test_x))
    for warning in caught:
        if issubclass(warning.category, ConvergenceWarning):
            status |= Status.NOT_CONVERGED
    return _scored(kind, predictions, test_y, status, len(x), n_dropped)


def svm_accuracy(
    key: Array,
    synthetic: Synthetic,
    test: Synthetic,
    *,
    kernel: str = "linear",
    c: float = 1.0,
    sample_size: int = SVM_SAMPLE_SIZE,
) -> Score:
    """Accuracy on real records of a support vector machine that was trained on synthetic ones.

    Features are standardised by the synthetic records. Costs O(n d) an iteration with the linear kernel, O(n^2 d) and
    more with the Gaussian one, gamma = 1 / (d variance).

    Args:
        key: Draws the sample, and the order in which the linear solver takes the records.
        synthetic: x (n, d) and classes y (n,).
        test: Real records in the same coordinates.
        kernel: "linear" or "rbf".
        c: Weight of the errors, > 0.
        sample_size: Records to train on, >= 2; all if there are fewer.

    Raises:
        ValueError: an argument out of its range, or as `train_on_synthetic`.
    """
    validate.one_of(KERNELS, kernel=kernel)
    validate.positive(c=c)
    validate.integer(minimum=2, sample_size=sample_size)
    seed, sampled = _sampled(key, synthetic, sample_size)
    if kernel == "linear":
        machine: Any = LinearSVC(C=c, dual="auto", max_iter=5000, random_state=seed)
    else:
        machine = SVC(C=c, kernel="rbf", gamma="scale")
    return train_on_synthetic(make_pipeline(StandardScaler(), machine), sampled, test)


def krr_rmse(
    key: Array,
    synthetic: Synthetic,
    test: Synthetic,
    *,
    alpha: float = 1.0,
    gamma: float | None = None,
    kernel: str = "rbf",
    sample_size: int = KRR_SAMPLE_SIZE,
) -> Score:
    """Root mean square error on real records of kernel ridge regression that was trained on synthetic ones.

    Features are standardised by the synthetic records, targets less their mean. O(n^2 (n + d)) time, O(n^2) memory.

    Args:
        key: Draws the sample.
        synthetic: x (n, d) and numbers y (n,).
        test: Real records in the same coordinates.
        alpha: Ridge, > 0.
        gamma: Gamma of exp(-gamma |x - z|^2); 1 / d if None.
        kernel: "rbf" or "linear".
        sample_size: Records to train on, >= 2; all if there are fewer.

    Raises:
        ValueError: an argument out of its range, or as `train_on_synthetic`.
    """
    validate.one_of(KERNELS, kernel=kernel)
    validate.positive(alpha=alpha)
    if gamma is not None:
        validate.positive(gamma=gamma)
    validate.integer(minimum=2, sample_size=sample_size)
    _, sampled = _sampled(key, synthetic, sample_size)
    x, y, n_dropped = _usable(sampled, _test_records(test)[0].shape[1])
    level = float(y.mean()) if len(y) else 0.0
    machine = KernelRidge(alpha=alpha, kernel=kernel, gamma=gamma)
    ridge = make_pipeline(StandardScaler(), machine)
    found = train_on_synthetic(ridge, Synthetic(x, y - level), Synthetic(test.x, np.asarray(test.y) - level))
    status = found.status | (Status.NON_FINITE if n_dropped else Status.OK)
    return found._replace(status=status, n_dropped=n_dropped)


def _sampled(key: Array, synthetic: Synthetic, size: int) -> tuple[int, Synthetic]:
    """A seed for scikit-learn, and at most `size` records."""
    validate.prng_key(key)
    entropy = np.asarray(jax.random.bits(key, (5,), np.uint32))
    n = np.shape(synthetic.x)[0]
    seed = int(entropy[0] >> 1)
    if n <= size or synthetic.y is None:
        return seed, synthetic
    rows = np.random.default_rng(entropy[1:]).choice(n, size, replace=False)
    return seed, Synthetic(np.asarray(synthetic.x)[rows], np.asarray(synthetic.y)[rows])


def _test_records(test: Synthetic) -> tuple[np.ndarray, np.ndarray]:
    x = validate.matrix(test.x, "test.x").astype(np.float64)
    if test.y is None or np.shape(test.y) != (len(x),):
        raise ValueError(f"test.y must have an entry for each of {len(x)} records, got {_shape(test.y)}")
    y = np.asarray(test.y)
    validate.finite(**{"test.y": y})
    return x, y


def _usable(synthetic: Synthetic, d: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Records whose squares and sums are finite, and how many are not."""
    x = np.asarray(synthetic.x, np.float64)
    if x.ndim != 2 or x.shape[1] != d:
        raise ValueError(f"synthetic.x must have the {d} columns of the test records, got shape {x.shape}")
    if synthetic.y is None or np.shape(synthetic.y) != (len(x),):
        raise ValueError(f"synthetic.y must have an entry for each of {len(x)} records, got {_shape(synthetic.y)}")
    y = np.asarray(synthetic.y)
    # float32 has no number as large as the limit.
    wide = y.astype(np.float64) if y.dtype.kind == "f" else y
    kept = (np.abs(x) < LARGEST).all(axis=1) & (np.abs(wide) < LARGEST)
    return x[kept], y[kept], int((~kept).sum())


def _shape(y: Any) -> Any:
    return None if y is None else np.shape(y)


def _scored(
    is_class: bool, predictions: np.ndarray, truth: np.ndarray, status: Status, n_trained: int, n_dropped: int
) -> Score:
    if is_class:
        return Score(float(np.mean(predictions == truth)), status, n_trained, n_dropped)
    # An estimator that overflows predicts nothing; the least that it could have said instead is 0.
    finite = np.isfinite(predictions)
    if not finite.all():
        status |= Status.NON_FINITE
    errors = np.where(finite, predictions, 0) - truth
    return Score(float(np.sqrt(np.mean(errors**2))), status, n_trained, n_dropped)
