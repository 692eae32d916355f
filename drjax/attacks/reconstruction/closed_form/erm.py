"""The one unknown record of any model trained to the optimum of a smooth loss, from the equations of that optimum.

Where a fit minimises the sum of l(theta; x_i, y_i) and a penalty, the gradient vanishes, and all of it is known but the
target's term:

    grad_theta l(theta; x, y) = g,    g = -(sum_known grad_theta l(theta; x_i, y_i) + grad penalty(theta))

(Balle, Cherubin & Hayes 2022, Eq. 1): as many equations as parameters, for the d unknowns x, or d + 1 with y. They need
a stationary point and not a minimum, so that a network serves as well as a convex model. Where `reconstruct_glm` has
the solution in closed form, here it is found by nonlinear least squares from several starts.

A solver that stops with a gradient e left (of the sum over records) moves the solution by J^+ e to first order, with
J = d grad_theta l / dx at the target: by no more than |e| over the smallest singular value of J, which is
`gradient_sensitivity`. Equations beyond the unknowns then disagree, by no more than |e|, and `residual_norm` shows it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize
from jax.flatten_util import ravel_pytree

from drjax.attacks.reconstruction.closed_form.erm_inputs import labels as checked_labels
from drjax.attacks.reconstruction.closed_form.erm_inputs import parameters, scalar
from drjax.attacks.reconstruction.closed_form.glm import MARGIN, REDUCTIONS
from drjax.attacks.reconstruction.closed_form.glm_equations import SILENT
from drjax.core import validate
from drjax.core.statistics import spread_rows
from drjax.core.types import Array, PyTree, Reconstruction, Status

Loss = Callable[[Any, Any, Any], Any]
Penalty = Callable[[Any], Any]

CHUNK = 2**22
"""Numbers that the gradients of known records taken at once may have: 32 MiB."""

SAMPLED = 1024
"""Known records of which the starts are chosen, at most."""

MAX_EVALUATIONS = 100
"""Evaluations of the equations, at most, from one start."""

OUTSIDE = 0.1
"""Share of the width between the bounds that the search may step outside: a feature that lies at a bound is then no
corner into which the search creeps."""

ROUNDING = 1e-9
"""Residual of the equations, as a share of g, up to which they count as solved in any case."""

SAME = 1e-6
"""What counts as nothing beside 1: the distance of two solutions over their length and the spread of the known records,
what a solution is outside the bounds over their width, a feature's share of a direction in which it is free."""


UNEXPLAINED = 0.2
"""Residual of the equations, as a share of g, up to which a solver may have left it; above, the records are others."""


class _Solution(NamedTuple):
    """Where one search ended: x (d,), y or nan where it is not determined, relative residual, and whether x is.

    Also the mean squared error to be expected of x, if what is left of the equations was spread over all of them alike;
    nan where they are no more than the unknowns, so that nothing can be left.
    """

    x: np.ndarray
    y: float
    residual: float
    is_determined: bool
    expected: float = np.nan


def reconstruct_erm(
    loss: Loss,
    params: PyTree,
    known_x: Array,
    known_y: Array,
    *,
    reduction: str,
    l2: float = 0.0,
    penalty: Penalty | None = None,
    target_y: float | None = None,
    labels: Sequence[float] | Array | None = None,
    start: Array | None = None,
    n_starts: int = 8,
    bounds: tuple[float, float] | None = None,
    tolerance: float | None = None,
) -> Reconstruction:
    """Reconstructs the unknown record, and its label, from a model at its optimum and the other n-1 records.

    Exact up to what the solver has left of the gradient, see the module. Float64; deterministic. Every start takes some
    tens of steps of O(p d^2) and a Jacobian of p d numbers, p parameters; it is repeated for every label tried. The
    program is compiled once for a `loss` (the same function object) and shapes.

    Args:
        loss: loss(params, x, y) of one record, x (d,) and y (), to a scalar; JAX, twice differentiable. y is an
            integer where all labels are.
        params: Parameters of the trained model, any pytree of numbers.
        known_x: (n-1, d).
        known_y: (n-1,) numbers.
        reduction: Whether the loss was the "sum" over n records or their "mean".
        l2: Weight of |params|^2 / 2 beside the loss, over all parameters, >= 0.
        penalty: What stood beside the loss instead, penalty(params) to a scalar.
        target_y: Label of the target, if the adversary has it.
        labels: Labels tried one by one, where target_y is not given. With neither, y is solved for as a real number.
        start: (d,) where the first search starts; the mean of the known records if None.
        n_starts: Searches for every label, >= 1; after the first they start at known records, most of them at those
            whose gradients, with that label, are nearest to g.
        bounds: (low, high) of every feature; solutions outside are dropped.
        tolerance: `residual_norm` up to which the equations count as solved, > 0. None: `ROUNDING`, or up to
            `UNEXPLAINED` what the best search leaves, as a solver that stops early does.

    Returns:
        x (d,); y () its label, nan where several solve the equations at this x; candidates (c, d), all distinct
        solutions found, the one nearest to the mean of the known records first, which is x; residual_norm () Euclidean
        norm of what is left of the equations at x, relative to |g|; expected_mse () of x, from that and the Jacobian,
        nan where the equations are no more than the unknowns. Status NOT_CONVERGED where no search got below
        `tolerance` within the bounds, or the error expected is not below `MARGIN` of what the known records vary by:
        x is then their mean, and the candidate where the best search ended; NON_FINITE too if none could begin.
        UNCERTIFIED where equations no more than the unknowns, or several solutions, leave nothing to check x by: two
        unknown records would not have shown. DEGENERATE where the equations leave x free to move (fewer of them than
        unknowns), or the target has left no gradient but rounding (x nan).

    Raises:
        ValueError: shapes that do not match, values or gradients that are not finite, a loss or penalty that is no
            scalar, an unknown reduction, l2 < 0 or l2 beside a penalty, no labels or a `target_y` that is none of them,
            bounds that are not low < high, n_starts < 1 or a tolerance that is not positive.

    Source: Balle, Cherubin & Hayes (2022), "Reconstructing training data with informed adversaries", Eq. 1.

    Example:
        >>> import jax.numpy as jnp, numpy as np
        >>> from sklearn.linear_model import Ridge
        >>> from drjax.attacks.reconstruction.closed_form import reconstruct_erm
        >>> rng = np.random.default_rng(0)
        >>> x, y = rng.random((60, 5)), rng.random(60)
        >>> weights = Ridge(alpha=0.1, fit_intercept=False).fit(x, y).coef_
        >>> loss = lambda w, x, y: 0.5 * (jnp.dot(w, x) - y) ** 2
        >>> found = reconstruct_erm(loss, weights, x[1:], y[1:], reduction="sum", l2=0.1, target_y=y[0])
        >>> bool(np.abs(found.candidates - x[0]).max(axis=1).min() < 1e-6)
        True
    """
    validate.one_of(REDUCTIONS, reduction=reduction)
    validate.non_negative(l2=l2)
    validate.finite(l2=l2)
    if tolerance is not None:
        validate.positive(tolerance=tolerance)
    validate.integer(n_starts=n_starts)
    if penalty is not None and l2 > 0:
        raise ValueError(f"l2 must be 0 where a penalty is given, got {l2}")
    if bounds is not None:
        if not bounds[0] < bounds[1]:
            raise ValueError(f"bounds must be (low, high) with low < high, got {bounds}")
        validate.finite(bounds=bounds)
    x = validate.matrix(known_x, "known_x").astype(np.float64)
    theta = jax.tree.map(parameters, params)
    y, tried = checked_labels(known_y, len(x), target_y, labels)
    centre = x.mean(axis=0)
    first = centre if start is None else np.asarray(start, np.float64)
    if first.shape != centre.shape:
        raise ValueError(f"start must have shape {centre.shape} as a row of known_x, got {first.shape}")
    validate.finite(start=first)
    weight = len(x) + 1 if reduction == "mean" else 1
    with jax.enable_x64(True):
        scalar(loss, "loss", theta, x[0], y[0])
        g, rounding = _left_over(loss, theta, x, y)
        if penalty is not None:
            scalar(penalty, "penalty", theta)
            g = g - weight * np.asarray(ravel_pytree(jax.grad(penalty)(theta))[0])
        else:
            g = g - weight * l2 * np.asarray(ravel_pytree(theta)[0])
        validate.finite(gradient=g)
        if np.linalg.norm(g) <= rounding:
            nothing = _Solution(np.full(x.shape[1], np.nan), np.nan, np.nan, False)
            return _result([nothing], Status.DEGENERATE)
        found = []
        for label in tried:
            begins = [np.append(first, y.mean())]
            if n_starts > 1:
                held = y if label is None else np.full_like(y, label)
                begins.extend(_like_the_target(loss, theta, x, held, g, n_starts - 1))
            found += [_solve(loss, theta, g, begin, label, bounds) for begin in begins]
    best = min(found, key=lambda s: s.residual)
    if tolerance is None:
        tolerance = max(ROUNDING, min(2 * best.residual, UNEXPLAINED))
    solved = [s for s in found if s.residual <= tolerance]
    if bounds is not None:
        slack = SAME * (bounds[1] - bounds[0])
        solved = [s for s in solved if s.x.min() >= bounds[0] - slack and s.x.max() <= bounds[1] + slack]
    variance = float(x.var(axis=0).mean())
    if not solved:
        lost = Status.OK if np.isfinite(best.residual) else Status.NON_FINITE
        return _result([best], Status.NOT_CONVERGED | lost, (centre, variance))
    distinct = sorted(_distinct(solved, float(np.linalg.norm(x.std(axis=0)))), key=lambda s: _length(s.x - centre))
    first = distinct[0]
    if not first.is_determined:
        return _result(distinct, Status.DEGENERATE)
    if first.expected > MARGIN * variance:
        return _result(distinct, Status.NOT_CONVERGED, (centre, variance))
    is_checked = len(distinct) == 1 and not np.isnan(first.expected)
    return _result(distinct, Status.OK if is_checked else Status.UNCERTIFIED)


def gradient_sensitivity(loss: Loss, params: PyTree, x: Array, y: float, *, y_known: bool = True) -> float:
    """Smallest singular value of d grad_theta loss / dx at a record, or of d / d(x, y) where y is not known.

    A gradient e (of the sum over records) that training leaves moves what `reconstruct_erm` finds by no more than
    |e| over this, to first order. 0 where the equations do not determine the record.

    Args:
        loss: Loss of one record, as for `reconstruct_erm`.
        params: Parameters of the model.
        x: (d,).
        y: Label of the record.
        y_known: Whether the adversary has it, or tries finitely many.

    Example:
        >>> import jax.numpy as jnp, numpy as np
        >>> from drjax.attacks.reconstruction.closed_form import gradient_sensitivity
        >>> loss = lambda w, x, y: 0.5 * (jnp.dot(w, x) - y) ** 2
        >>> gradient_sensitivity(loss, np.array([0.5, 0.0]), np.array([1.0, 1.0]), 0.5)  # no residual, no trace
        0.0
    """
    record = validate.matrix(np.asarray(x)[None], "x")[0].astype(np.float64)
    theta = jax.tree.map(parameters, params)
    label, unknowns = (np.asarray(y), record) if y_known else (None, np.append(record, float(y)))
    with jax.enable_x64(True):
        g = np.zeros_like(ravel_pytree(theta)[0])
        jacobian = np.asarray(_equations(loss, theta, g, 1.0, unknowns, label)[1])
    if len(jacobian) < len(unknowns):
        return 0.0
    return float(np.linalg.svd(jacobian, compute_uv=False)[-1])


@functools.partial(jax.jit, static_argnums=0)
def _gradients(loss: Loss, params: PyTree, x: Any, y: Any) -> tuple[Any, Any]:
    """Gradients (b, p) of b records, and (b,) what they change by where x does, both as lengths, summed."""

    def one(x, y):
        return jax.jvp(lambda x: ravel_pytree(jax.grad(loss)(params, x, y))[0], (x,), (x,))

    gradients, changes = jax.vmap(one)(x, y)
    return gradients, jnp.linalg.norm(gradients, axis=1) + jnp.linalg.norm(changes, axis=1)


@functools.partial(jax.jit, static_argnums=0)
def _equations(loss: Loss, params: PyTree, g: Any, scale: Any, z: Any, y: Any) -> tuple[Any, Any]:
    """What is left of the equations (p,) and its Jacobian (p, u), over scale; z is x, with y at its end where None."""

    def left(z):
        x, label = (z[:-1], z[-1]) if y is None else (z, y)
        return (ravel_pytree(jax.grad(loss)(params, x, label))[0] - g) / scale

    # The cheaper side of the Jacobian.
    jacobian = jax.jacfwd(left) if z.size <= g.size else jax.jacrev(left)
    return left(z), jacobian(z)


def _chunks(loss: Loss, params: PyTree, x: np.ndarray, y: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    size = max(1, CHUNK // max(1, ravel_pytree(params)[0].size))
    for at in range(0, len(x), size):
        gradients, lengths = _gradients(loss, params, x[at : at + size], y[at : at + size])
        yield np.asarray(gradients), np.asarray(lengths)


def _left_over(loss: Loss, params: PyTree, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, float]:
    """Minus the sum of the known records' gradients (p,), and the length below which that is rounding.

    Gradients of records that a model fits exactly are rounding themselves; what x contributes to them is not.
    """
    parts = [(gradients.sum(axis=0), lengths.sum()) for gradients, lengths in _chunks(loss, params, x, y)]
    total, length = (np.sum(part, axis=0) for part in zip(*parts, strict=True))
    return -total, SILENT * float(length)


def _like_the_target(loss: Loss, params: PyTree, x: np.ndarray, y: np.ndarray, g: np.ndarray, n: int) -> np.ndarray:
    """n known records or fewer (n, d + 1) with the labels y, by how near their gradients are to g.

    Ranks grow as squares from the nearest to the farthest: most are near, and the far ones are there for solutions of
    another sign.
    """
    sample = spread_rows(len(x), SAMPLED)
    gaps = [np.linalg.norm(gradients - g, axis=1) for gradients, _ in _chunks(loss, params, x[sample], y[sample])]
    order = sample[np.argsort(np.concatenate(gaps), kind="stable")]
    chosen = order[np.unique(np.round((len(order) - 1) * np.linspace(0, 1, n) ** 2).astype(int))]
    return np.column_stack([x[chosen], y[chosen]])


def _solve(
    loss: Loss,
    params: PyTree,
    g: np.ndarray,
    begin: np.ndarray,
    label: Any,
    bounds: tuple[float, float] | None,
) -> _Solution:
    """One search from begin (d + 1,), x and y; y is held at the label if that is not None."""
    scale = float(np.linalg.norm(g))
    unknowns = begin if label is None else begin[:-1]
    n_features = len(begin) - 1
    low, high = np.full(len(unknowns), -np.inf), np.full(len(unknowns), np.inf)
    if bounds is not None:
        margin = OUTSIDE * (bounds[1] - bounds[0])
        low[:n_features], high[:n_features] = bounds[0] - margin, bounds[1] + margin
        unknowns = np.append(np.clip(unknowns[:n_features], *bounds), unknowns[n_features:])

    @functools.lru_cache(maxsize=2)
    def evaluated(z: bytes) -> tuple[np.ndarray, np.ndarray]:
        left, jacobian = map(np.asarray, _equations(loss, params, g, scale, np.frombuffer(z), label))
        # A step to where the loss overflows is refused by the search if its equations are not finite.
        return (left if np.isfinite(jacobian).all() else np.full_like(left, np.inf)), jacobian

    def left(z: np.ndarray) -> np.ndarray:
        return evaluated(z.tobytes())[0]

    if not np.isfinite(left(unknowns)).all():
        return _Solution(np.full(n_features, np.nan), np.nan, np.inf, False)
    # SciPy's annotations know neither a function for the Jacobian nor a test that is left out.
    least_squares: Any = scipy.optimize.least_squares
    # Where the Jacobian loses rank SciPy divides 0 by 0 for the length of a step, and then shortens it.
    with np.errstate(invalid="ignore", divide="ignore"):
        fit = least_squares(
            left,
            unknowns,
            lambda z: evaluated(z.tobytes())[1],
            bounds=(low, high),
            x_scale="jac",
            # Near a root each step takes most of the residual, so that one which takes this little is not near one; a
            # small gradient says nothing.
            ftol=1e-8,
            xtol=1e-15,
            gtol=None,
            max_nfev=MAX_EVALUATIONS,
        )
    free = np.abs(_null_space(fit.jac)).max(axis=0, initial=0.0) > SAME
    y = np.nan if free[n_features:].any() else float(fit.x[-1] if label is None else label)
    residual, determined = float(np.linalg.norm(fit.fun)), not free[:n_features].any()
    return _Solution(fit.x[:n_features], y, residual, determined, _expected(fit.jac, residual, n_features))


def _expected(jacobian: np.ndarray, residual: float, n_features: int) -> float:
    """Mean squared error of the features if each equation is off by what is left of them over their excess."""
    excess = jacobian.shape[0] - jacobian.shape[1]
    if excess <= 0 or not np.isfinite(residual):
        return np.nan
    _, singular, directions = np.linalg.svd(np.linalg.qr(jacobian, mode="r"))
    is_free = singular <= np.finfo(np.float64).eps * max(jacobian.shape) * singular[0]
    # Directions in which nothing moves the equations are told apart by `is_determined`.
    spread = np.sum((directions[~is_free, :n_features] / singular[~is_free, None]) ** 2)
    return float((residual**2 / excess + np.finfo(np.float64).eps ** 2) * spread / n_features)


def _null_space(jacobian: np.ndarray) -> np.ndarray:
    """Orthonormal directions (c, u) in which a Jacobian (p, u) is rounding."""
    # The triangle first: the other singular vectors of a tall Jacobian are not wanted.
    _, singular, directions = np.linalg.svd(np.linalg.qr(jacobian, mode="r"))
    rank = int(np.sum(singular > np.finfo(np.float64).eps * max(jacobian.shape) * singular[0]))
    return directions[rank:]


def _distinct(solutions: list[_Solution], spread: float) -> list[_Solution]:
    """One of every group that agrees in x, that of the smallest residual; without its label where they differ in it."""
    kept: list[_Solution] = []
    for one in sorted(solutions, key=lambda s: s.residual):
        near = SAME * (spread + float(np.linalg.norm(one.x)))
        same = [i for i, other in enumerate(kept) if np.linalg.norm(one.x - other.x) <= near]
        if not same:
            kept.append(one)
        for i in same:
            y = kept[i].y if abs(kept[i].y - one.y) <= SAME * (1 + abs(one.y)) else np.nan
            kept[i] = kept[i]._replace(y=y, is_determined=kept[i].is_determined and one.is_determined)
    return kept


def _length(offset: np.ndarray) -> float:
    return float(np.linalg.norm(offset))


def _result(
    solutions: list[_Solution], status: Status, instead: tuple[np.ndarray, float] | None = None
) -> Reconstruction:
    """Reconstruction from solutions: the first one's record, or another with its expected error in its place."""
    first = solutions[0]
    candidates = np.array([s.x for s in solutions])
    x, expected = (first.x, first.expected) if instead is None else instead
    return Reconstruction(
        x,
        np.asarray(first.y),
        candidates,
        np.asarray(first.residual),
        np.asarray(status, np.uint32),
        np.asarray(expected),
    )
