"""Reconstruction from linear models over data sets, features, solvers and tolerances: what is right, OK and refused.

    python -m bench.glm_grid --targets 4

fits scikit-learn's estimators to 300 records, forgets one record or two, and attacks. It prints a table by solver and
tolerance and the quantiles of the actual over the expected error. 10 minutes on one core.
"""

from __future__ import annotations

import argparse
import itertools
import warnings
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.preprocessing import StandardScaler

from drjax.attacks.reconstruction.closed_form import of_estimator, reconstruct_glm
from drjax.core.types import Status

N = 300
DATA = ("breast cancer", "digits", "diabetes")
FEATURES = ("raw", "standardised")
TOLERANCES = (1e-4, 1e-6, 1e-8, 1e-12)
SOLVERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "lbfgs": (LogisticRegression, {}),
    "newton-cg": (LogisticRegression, {}),
    "newton-cholesky": (LogisticRegression, {}),
    "saga": (LogisticRegression, {"random_state": 0}),
    "liblinear": (LogisticRegression, {"random_state": 0}),
    "cholesky": (Ridge, {}),
    "lsqr": (Ridge, {}),
}

RIGHT = 0.01
"""MSE over that of the mean record, up to which the solution of the equations counts as right."""


class Outcome(NamedTuple):
    """One attack; errors in units of the features, and standardised by the known records.

    Attributes:
        cell: Data set, features, solver, tolerance, number of unknown records.
        status: Flags.
        expected: Expected MSE.
        error: MSE of x, against the nearest of the unknown records; standardised_error likewise.
        solved: MSE of what the equations give; standardised_solved likewise.
        mean: MSE of the mean of the known records; standardised_mean likewise.
    """

    cell: tuple[str, str, str, float, int]
    status: int
    expected: float
    error: float
    standardised_error: float
    solved: float
    standardised_solved: float
    mean: float
    standardised_mean: float

    @property
    def is_wrong(self) -> bool:
        """An error that is worse than the mean record's, or more than 10 times what was expected."""
        return self.error > min(10 * self.expected, self.mean) or self.standardised_error > self.standardised_mean

    @property
    def is_right(self) -> bool:
        """Whether the equations give the one unknown record."""
        is_close = max(self.solved / self.mean, self.standardised_solved / self.standardised_mean) < RIGHT
        return is_close and self.cell[-1] == 1


def records(name: str, features: str, *, regression: bool) -> tuple[np.ndarray, np.ndarray]:
    """300 records (n, d) and labels (n,): classes 0 and 1, or for the regression of diabetes its numbers."""
    load: Any = {"breast cancer": load_breast_cancer, "digits": load_digits}.get(name)
    loaded: Any = load_diabetes(return_X_y=True, scaled=False) if load is None else load(return_X_y=True)
    x, y = loaded
    keep = np.random.default_rng(0).permutation(len(x))[:N]
    x, y = np.asarray(x[keep], np.float64), np.asarray(y[keep])
    if name == "digits":
        x, y = x / 16, (y > 4).astype(int)
    elif load is None and not regression:
        y = (y > 140).astype(int)
    return (StandardScaler().fit_transform(x) if features == "standardised" else x), y


def outcomes(cell: tuple[str, str, str, float, int], targets: Iterable[int]) -> Iterator[Outcome]:
    """Attacks on single targets, each unknown alone or with the record after it."""
    name, features, solver, tol, n_unknown = cell
    estimator, settings = SOLVERS[solver]
    x, y = records(name, features, regression=estimator is Ridge)
    for target in targets:
        a, b = np.roll(x, -target, axis=0), np.roll(y, -target)
        known, truth = a[n_unknown:], a[:n_unknown]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = estimator(solver=solver, tol=tol, **settings).fit(a, b)
        found = reconstruct_glm(known_x=known, known_y=b[n_unknown:], **of_estimator(model)._asdict())
        scale = np.where(known.std(axis=0) > 0, known.std(axis=0), 1)
        errors = [
            min(float(np.mean(((guess - one) / unit) ** 2)) for one in truth)
            for guess in (found.x, found.candidates[0], known.mean(axis=0))
            for unit in (1, scale)
        ]
        yield Outcome(cell, int(found.status), float(found.expected_mse), *errors)


def main() -> None:
    """Runs the grid and prints it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--targets", type=int, default=4)
    n_targets = parser.parse_args().targets
    found = []
    for solver, tol in itertools.product(SOLVERS, TOLERANCES):
        if solver == "cholesky" and tol != TOLERANCES[0]:  # which does not read it
            continue
        row = []
        for name, features, n_unknown in itertools.product(DATA, FEATURES, (1, 2)):
            row += outcomes((name, features, solver, tol, n_unknown), range(n_targets))
        found += row
        print(f"| {solver} | {tol:g} | {summary(row)} |", flush=True)
    print(f"| all | | {summary(found)} |")
    ratios = [o.error / o.expected for o in found if o.status == 0 and o.cell[-1] == 1 and o.expected > 0]
    for q in (0.01, 0.1, 0.5, 0.9, 0.95, 0.99, 1):
        print(f"quantile {q:g} of actual over expected MSE: {np.quantile(ratios, q):.3g}")


def summary(found: list[Outcome]) -> str:
    """Attacks on one unknown record; right, of these OK, UNCERTIFIED, refused; wrong and OK with one unknown, two."""
    one, two = ([o for o in found if o.cell[-1] == n] for n in (1, 2))
    right = [o.status for o in one if o.is_right]
    counts = [right.count(Status.OK), right.count(Status.UNCERTIFIED)]
    wrong = [sum(o.status == Status.OK and o.is_wrong for o in some) for some in (one, two)]
    return " | ".join(map(str, (len(one), len(right), *counts, len(right) - sum(counts), *wrong)))


if __name__ == "__main__":
    main()
