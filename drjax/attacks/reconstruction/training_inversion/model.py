"""The target and its label from the parameters of a network and the records it was trained with.

Training from a known start, in a known order, is a function of the one record that the adversary does not know. The
attack finds the record for which training ends at the released parameters. It needs no shadow data set, no
reconstruction network and no derivative of the training: some dozens of training runs a target.
"""

from __future__ import annotations

import dataclasses
from contextlib import AbstractContextManager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import softmax

from drjax.attacks.reconstruction.training_inversion import labels as shadow_labels
from drjax.attacks.reconstruction.training_inversion.error import expected_mse
from drjax.attacks.reconstruction.training_inversion.labels import Shadows
from drjax.attacks.reconstruction.training_inversion.linear import Belief, Linear, measure
from drjax.attacks.reconstruction.training_inversion.noise import Whitened, measure_spread
from drjax.attacks.reconstruction.training_inversion.problem import Problem
from drjax.attacks.reconstruction.training_inversion.solver import FIRST_WIDTH, Settings, Solution, solve
from drjax.core import validate
from drjax.core.types import Array, PyTree, Reconstruction, Status
from drjax.nets.classifier_training import Mechanism, Training, check_labels, check_params

N_SHADOWS = 32
"""Records of each class tried in the target's place, to rank classes and to start from."""

EXPLAINED = 1e-2
"""Misfit, relative to that of a model without the target, up to which no other label and no other start are tried."""

RECONSTRUCTED = 0.15
"""Expected error, as a share of the mean record's, up to which a record counts as reconstructed. True errors were up to
6 times the expected ones near this, so that what counts is closer than the mean record; far below it up to 20 times."""

RIVAL_POWER = 8
"""Another label or start counts by its misfit to this power, negative, and so does a model without the target. Were the
misfit independent noise, the power would be the number of parameters; but a misfit lies in few directions."""

ROUNDED = 0.2
"""Standard deviation of rounding to the nearest number, in units of eps |value|: 0.14 to 0.29."""

NOISY = 1.5
"""Misfit in units of the noise up to which a noisy release counts as explained; the noise is known to some percent."""

N_NOISE = 256
"""Models trained to measure the noise, more than twice the directions of a Jacobian."""

TEMPERATURES = (1.0, 4.0, 16.0, 64.0, 256.0, np.inf)
"""Divisors of the costs of labels: a cost leaves out how large a part of space it stands for. Infinity ignores it."""

N_TRIALS, STEPS = 32, (0, 1, 2, 4, 8)
"""Noisy models of known records on which the adversary tries how many steps to take from the mean of a class. The more
the noise hides, the fewer: the most probable record fits the noise wherever the trace of a record could be larger."""


def reconstruct_model(
    training: Training,
    params: PyTree,
    known_x: Array,
    known_y: Array,
    *,
    init: PyTree,
    batches: Array | None = None,
    is_order_known: bool = True,
    mechanism: Mechanism | None = None,
    target_y: Array | None = None,
    public: tuple[Array, Array] | None = None,
    bounds: tuple[float, float] | None = (0.0, 1.0),
    n_labels: int = 3,
    settings: Settings | None = None,
    seed: int = 0,
) -> Reconstruction:
    """Inverts the training of m released models that share all records but the target.

    Computes in the dtype of the released parameters: float64 releases without x64 switched on as well. What the misfit
    cannot tell apart (features that no unit reacts to) stays at what the records of the class look like.

    Args:
        training: How the models were trained.
        params: Released parameters, layers as from `Classifier.init`, with a leading axis m.
        known_x: (n-1, d), records 1 to n-1 of each model.
        known_y: (n-1,) their classes.
        init: Parameters that training began with, without a leading axis.
        batches: (steps, b) records of each step where training was not in full batches; see `train_many`.
        is_order_known: Whether the order of mini-batches is known; if not, `batches` are left out. What the
            order does to the parameters counts as noise, as in the next.
        mechanism: Clipping and noise of DP-GD (`drjax.defenses.dp_gd`), whose noise the adversary does not know: x is
            then what is to be expected given the released parameters, over all labels if none is given.
        target_y: (m,) classes of the targets, if the adversary has them.
        public: Records (N, d) and classes (N,) that look like the target; the known ones if None.
        bounds: Least and greatest value of a feature, or None.
        n_labels: Classes tried at most for a release without noise, likeliest first, until one explains it. Those tried
            beside a given one only tell whether it fits.
        settings: Settings of the solver: when to stop.
        seed: Seed of the choice of shadow records and of directions; any will do.

    Returns:
        x (m, d) and y (m,) float64.
        expected_mse (m,): the mean squared error that x is expected to have, from what the misfit amounts to by the
        Jacobian at x, and from other labels or starts, or no record at all, that explain the release nearly as well.
        With a mechanism it is the error on `N_TRIALS` noisy models of known records, the same for all targets.
        status: NOT_CONVERGED where that exceeds `RECONSTRUCTED` times the error of the mean record, or where a
        mechanism's noise does not account for the misfit (`NOISY`): the attack failed and x is not to be relied on. The
        known records, the start or the order may not be those of the release; that the release is safe does not follow.
        NON_FINITE where no candidate's training stays finite; DEGENERATE (x nan) where the release is that of a model
        without the target, up to rounding.
        residual_norm (m,): |theta - train(x)| as a share of what a model trained without the target leaves, 0 where the
        release is explained wholly; with a mechanism, what is left in units of the noise, 1 where that is all.

    Raises:
        ValueError: parameters of another architecture or not finite, labels out of range, shapes that do not match.

    Cost: C (s + 1) runs for C classes and s = `N_SHADOWS`, K + 3 for each class met, and 10 to 40 a target; a run costs
    4 n d w FLOP a step and shares its GEMMs with `problem.LANES` others. Each target costs K + 5 more for its expected
    error, and where a shared Jacobian does not meet it K + 3 for each of its own.

    Example:
        >>> import drjax, jax, numpy as np
        >>> from drjax.attacks.reconstruction.training_inversion import reconstruct_model
        >>> from drjax.nets.classifier_training import Training, train_many
        >>> from drjax.nets.classifiers import Classifier
        >>> data = drjax.load("digits")
        >>> x, y = data.x, data.y
        >>> training = Training(model=Classifier(hidden=(4,)), epochs=5)
        >>> init = training.model.init(jax.random.key(0), 64)
        >>> released = train_many(training, x[:40], y[:40], x[40:41], y[40:41], init=init)
        >>> found = reconstruct_model(training, released, x[:40], y[:40], init=init, target_y=y[40:41])
        >>> bool(((found.x - x[40]) ** 2).mean() < 1e-3)
        True
    """
    x = validate.matrix(known_x, "known_x", min_rows=2)
    d, model = x.shape[1], training.model
    settings = settings or Settings()
    validate.integer(n_labels=n_labels)
    m = _n_models(params)
    released = check_params(model, params, d, m)
    y = check_labels(known_y, len(x), model.n_classes, "known_y")
    given = None if target_y is None else check_labels(target_y, m, model.n_classes, "target_y")
    like_x, like_y = x, y
    if public is not None:
        like_x = validate.matrix(public[0], "public[0]", min_rows=2, columns=d)
        like_y = check_labels(public[1], len(like_x), model.n_classes, "public[1]")
    if not is_order_known and (batches is not None or training.batches(jax.random.key(0), len(x) + 1) is None):
        raise ValueError("is_order_known must be True for full batches, and where batches are given")
    if bounds is not None and not bounds[0] < bounds[1]:
        raise ValueError(f"bounds must be (low, high) with low < high, got {bounds}")

    with _precision(released):
        dtype = np.result_type(*(leaf.dtype for leaf in jax.tree.leaves(released)), np.float32)
        order_key = None if is_order_known else jax.random.key(seed)
        problem = Problem(
            training, x.astype(dtype), y, init=init, batches=batches, mechanism=mechanism, order_key=order_key
        )
        attack = _Attack(problem, like_x.astype(np.float64), like_y, bounds, settings, seed)
        theta = problem.observe(released)
        if mechanism is not None or not is_order_known:
            return attack.run_noisy(theta, given)
        return attack.run(theta, given, n_labels, _rounding(released))


class _Attack:
    """What is the same for all releases, and made when the first one needs it."""

    def __init__(
        self,
        problem: Problem,
        x: np.ndarray,
        y: np.ndarray,
        bounds: tuple[float, float] | None,
        settings: Settings,
        seed: int,
    ) -> None:
        self.problem, self.x, self.y = problem, x, y
        self.bounds, self.settings, self.seed = bounds, settings, seed
        self.rng = np.random.default_rng(seed)
        self.belief = Belief.fit(x, y, settings.n_directions)
        self.linears: dict[int, Linear] = {}

    def run(self, theta: np.ndarray, given: np.ndarray | None, n_labels: int, rounding: np.ndarray) -> Reconstruction:
        """Inverts noiseless releases: tries labels until one explains the release, then the best from other starts."""
        m, d = len(theta), self.problem.d
        without = self.problem.run(self.x[:1], np.zeros(1, int), with_target=False)[0]
        scale = np.linalg.norm(theta - without, axis=1)
        shadows, order = self._ranked(theta, given, n_labels)
        # A target leaves far more than rounding, which is of this size.
        noise = np.finfo(self.problem.dtype).eps * np.abs(theta).max(axis=1)
        # Below the second a Jacobian measured to get further is wasted.
        goal = np.maximum(self.settings.tolerance * scale, noise * np.sqrt(theta.shape[1]))
        x, y, misfit = np.full((m, d), np.nan), np.full(m, -1), np.full(m, np.inf)
        best, won, attempts = order[:, 0].copy(), np.full(m, -1), []
        for attempt in range(order.shape[1] + self.settings.n_restarts):
            left = np.flatnonzero(~(misfit <= EXPLAINED * scale) & (scale > noise))
            if not len(left):
                break
            is_label = attempt < order.shape[1]
            tried = order[left, attempt] if is_label else best[left]
            place = 0 if is_label else attempt - order.shape[1] + 1
            chosen = [shadows[i] for i in tried]
            start = np.array([shadow_labels.nearest(own, t, place) for own, t in zip(chosen, theta[left], strict=True)])
            found = self._solve(theta[left], start, chosen, goal[left], noise[left], self.settings)
            labels = np.array([own.label for own in chosen])
            # Of a given label the others are rivals only.
            may_win = given is None or attempt == 0 or not is_label
            better = (found.misfit < misfit[left]) & may_win
            rows = left[better]
            x[rows], misfit[rows], best[rows] = found.x[better], found.misfit[better], tried[better]
            y[rows], won[rows] = labels[better], attempt
            attempts.append((left, found))
        error, finite = np.full(m, np.nan), np.flatnonzero(np.isfinite(misfit))
        if len(finite):
            error[finite] = expected_mse(
                self.problem,
                theta[finite],
                x[finite],
                y[finite],
                self.belief,
                rounding=np.maximum(rounding, noise)[finite],
                bounds=self.bounds,
                seed=self.seed,
            )
        error += self._of_rivals(x, misfit, scale, won, attempts)
        relative = misfit / np.where(scale > 0, scale, 1)
        status = self._status(error)
        status[~np.isfinite(misfit)] = Status.NON_FINITE
        status[scale <= noise] = Status.DEGENERATE
        relative[~np.isfinite(misfit)] = np.nan
        return Reconstruction(x, y, x[:, None], relative, status, error)

    def _of_rivals(
        self,
        x: np.ndarray,
        misfit: np.ndarray,
        scale: np.ndarray,
        won: np.ndarray,
        attempts: list[tuple[np.ndarray, Solution]],
    ) -> np.ndarray:
        """(m,) what other labels and starts, and no record at all, add to the expected error: as they explain it."""
        left = np.where(np.isfinite(misfit), misfit, 0)
        none = (left / np.where(left > 0, scale, 1)) ** RIVAL_POWER
        total, off = 1 + none, none * mean_error(self.x)
        for attempt, (rows, found) in enumerate(attempts):
            is_rival = (won[rows] != attempt) & np.isfinite(found.misfit) & (found.misfit > 0)
            weight = (left[rows] / np.where(is_rival, found.misfit, np.inf)) ** RIVAL_POWER
            total[rows] += weight
            off[rows] += weight * np.mean((found.x - x[rows]) ** 2, axis=1)
        return off / total

    def _status(self, error: np.ndarray) -> np.ndarray:
        usable = error <= RECONSTRUCTED * mean_error(self.x)
        return np.where(usable, Status.OK, Status.NOT_CONVERGED).astype(np.uint32)

    def run_noisy(self, theta: np.ndarray, given: np.ndarray | None) -> Reconstruction:
        """Inverts releases with noise: the mean of the posterior over labels, a record for each."""
        m = len(theta)
        common = int(np.bincount(self.y).argmax())
        centre = self.x[self.y == common].mean(axis=0)
        [linear] = measure(self.problem, self.belief, centre[None], np.array([common]), FIRST_WIDTH, self.seed)
        spread = measure_spread(self.problem, centre, common, linear, self._key(), N_NOISE)
        self.problem = Whitened(self.problem, spread)
        rows = self.rng.permutation(len(self.x))[:N_TRIALS]
        tried, labels = self.x[rows], self.y[rows]
        trials = self.problem.run(tried, labels, noise_key=self._key())

        paths = [self._noisy_steps(trials, labels, n) for n in STEPS]
        best = int(np.argmin([_mean_square(path.x - tried) for path in paths]))
        if given is not None:
            found = self._noisy_steps(spread(theta), given, STEPS[best])
            x, y, misfit, expected = found.x, given, found.misfit, _mean_square(paths[best].x - tried)
        else:
            # How far the costs of labels are to be believed is tried as well.
            of_trials = self._of_all_labels(trials, STEPS[best])
            errors = [_mean_square(self._mixed(of_trials, t)[0] - tried) for t in TEMPERATURES]
            expected = min(errors)
            of_all = self._of_all_labels(spread(theta), STEPS[best])
            x, y = self._mixed(of_all, TEMPERATURES[int(np.argmin(errors))])
            misfit = np.array([solution.misfit for solution in of_all])[y, np.arange(m)]
        relative = misfit / np.sqrt(theta.shape[1])
        error = np.full(m, expected)
        status = self._status(np.where(relative <= NOISY, error, np.inf))
        status[~np.isfinite(relative)] = Status.NON_FINITE
        return Reconstruction(x, y, x[:, None], relative, status, error)

    def _noisy_steps(self, theta: np.ndarray, labels: np.ndarray, n_steps: int) -> Solution:
        means = {label: self._mean(label) for label in np.unique(labels)}
        chosen = [Shadows(label, means[label][None], np.empty((0, theta.shape[1]))) for label in labels]
        start = np.array([own.x[0] for own in chosen])
        settings = dataclasses.replace(self.settings, max_evaluations=n_steps + 1, max_refreshes=0)
        return self._solve(theta, start, chosen, np.zeros(len(theta)), np.ones(len(theta)), settings, any_step=True)

    def _of_all_labels(self, theta: np.ndarray, n_steps: int) -> list[Solution]:
        n_classes = self.problem.training.model.n_classes
        return [self._noisy_steps(theta, np.full(len(theta), label), n_steps) for label in range(n_classes)]

    def _mixed(self, of_all: list[Solution], temperature: float) -> tuple[np.ndarray, np.ndarray]:
        """x (m, d), weighted by the posterior of the labels, and the likeliest of them (m,)."""
        share = np.bincount(self.y, minlength=len(of_all)) + 1
        cost = np.array([solution.cost for solution in of_all])
        weight = softmax(np.log(share)[:, None] - cost / (2 * temperature), axis=0)
        return np.einsum("lm,lmd->md", weight, [solution.x for solution in of_all]), np.argmax(weight, axis=0)

    def _mean(self, label: int) -> np.ndarray:
        own = self.x[self.y == label]
        return (own if len(own) else self.x).mean(axis=0)

    def _key(self) -> Array:
        return jax.random.key(int(self.rng.integers(2**31)))

    def _ranked(self, theta: np.ndarray, given: np.ndarray | None, n: int) -> tuple[list[Shadows], np.ndarray]:
        """Shadows of all classes, and (m, n) positions among them: the given one, then likeliest first."""
        labels = np.arange(self.problem.training.model.n_classes)
        shadows = shadow_labels.train_shadows(self.problem, self.x, self.y, labels, N_SHADOWS, self.seed)
        order = shadow_labels.ranked(shadows, theta)
        if given is not None:
            order = np.take_along_axis(order, np.argsort(order != given[:, None], axis=1, kind="stable"), axis=1)
        return shadows, order[:, :n]

    def _solve(
        self,
        theta: np.ndarray,
        start: np.ndarray,
        chosen: list[Shadows],
        goal: np.ndarray,
        noise: np.ndarray,
        settings: Settings,
        *,
        any_step: bool = False,
    ) -> Solution:
        labels = np.array([own.label for own in chosen])
        means = np.array([own.x[0] for own in chosen])
        new = {own.label: own for own in chosen if own.label not in self.linears}
        if new:
            points = np.array([own.x[0] for own in new.values()])
            measured = measure(self.problem, self.belief, points, np.array(list(new)), FIRST_WIDTH, self.seed)
            self.linears |= dict(zip(new, measured, strict=True))
        return solve(
            self.problem,
            theta,
            start,
            labels,
            means,
            [self.linears[label] for label in labels],
            self.belief,
            goal=goal,
            noise=noise,
            bounds=self.bounds,
            settings=settings,
            seed=self.seed,
            any_step=any_step,
        )


def mean_error(x: np.ndarray) -> float:
    """What the mean record is off by: its mean squared error over records x (n, d)."""
    return float(np.mean(np.var(x, axis=0)))


def _mean_square(errors: np.ndarray) -> float:
    return float(np.mean(errors**2))


def _rounding(released: PyTree) -> np.ndarray:
    """(m,) standard deviation of the rounding of a parameter to the dtype that it was released in."""
    leaves = jax.tree.leaves(released)
    squares = sum(np.sum(np.square(np.asarray(leaf, np.float64).reshape(len(leaf), -1)), axis=1) for leaf in leaves)
    n = sum(leaf[0].size for leaf in leaves)
    eps = max(float(jnp.finfo(leaf.dtype).eps) for leaf in leaves)
    return ROUNDED * eps * np.sqrt(np.asarray(squares) / n)


def _n_models(params: Any) -> int:
    leaves = jax.tree.leaves(params)
    if not leaves or any(np.ndim(leaf) < 2 or len(leaf) != len(leaves[0]) for leaf in leaves):
        raise ValueError("params must be layers of arrays w and b with one leading axis of models")
    return len(leaves[0])


def _precision(released: PyTree) -> AbstractContextManager:
    is_double = any(leaf.dtype == np.float64 for leaf in jax.tree.leaves(released))
    return jax.enable_x64(is_double)
