"""How far off the closed form of a linear model is, and whether anything but it says so.

One unknown record and an intercept are as many unknowns as equations, so that whatever a solver leaves of the gradient,
(e, e_b), goes into x unseen: x is off by (e - x e_b) / (r - e_b). Two questions are left.

**How large is e?** The same estimator is fitted to the known records and a stand-in for the target, of which all is
known, and its gradient read: once with the answer itself (a deterministic solver that starts from it ends as the first
fit did, if the answer is right), and with some known records. To each, rounding of the parameters is added. Solving
the equations again less each of these gradients gives the error that it would make.

**Is it one record?** The sum of two records' terms solves the equations of one. What can show it: the label, which is
not among the possible ones; the classes of a multinomial model, whose terms are not of rank one; features of few
values, which no mixture of two records hits. Whether these would show it is tried on pairs of known records.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.linalg

from drjax.attacks.reconstruction.closed_form.glm_equations import LINKS, MULTINOMIAL, Equations, Solution
from drjax.attacks.reconstruction.closed_form.glm_estimators import Refit
from drjax.attacks.reconstruction.priors import GaussianPrior
from drjax.core.types import Array

STAND_INS = 4
"""Known records that stand in for the target, one fit each, beside the answer itself."""

SIGNS = 8
"""Draws of the signs of a gradient of which only the size is stated."""

ORDINARY, DOUBTFUL, CONTRADICTED = 2.0, 4.0, 10.0
"""Disagreements of the equations, in units of what the gradient left makes of them: beyond the first the gradient left
counts as larger in proportion, beyond the second the answer is unchecked, beyond the third it is none."""

PAIRS = 100
"""Pairs of known records, each of which is taken for one; an answer is checked if none of them would pass for one."""

NUMBERS = 2**24
"""Numbers that the terms of all pairs may have, but for 10 pairs: 128 MiB."""

AGAIN = 2.0
"""Gradient left beside the answer, in units of what it differs by from that beside the first answer."""

JUMP = 0.01
"""Share of the error expected of the first answer that is expected of the second at least."""

Gradient = tuple[np.ndarray, np.ndarray]


class Known(NamedTuple):
    """What the adversary has: the equations, the other records x (n-1, d) and y (n-1,), the parameters' precision."""

    equations: Equations
    x: np.ndarray
    y: np.ndarray
    eps: float


class Answer(NamedTuple):
    """A solution and what is known of its error.

    Attributes:
        solution: Record and candidates.
        gap: How far its label is from a possible one.
        squared_error: (d,) expected squared error by feature; infinite where nothing bounds it.
        usual: Disagreement of the equations that the gradient left makes.
        disagreement: Disagreement of the answer in units of `usual`; 0 if unchecked.
        is_checked: Whether two unknown records would have shown.
    """

    solution: Solution
    gap: float
    squared_error: np.ndarray
    usual: float
    disagreement: float
    is_checked: bool


def after_refits(known: Known, g: np.ndarray, b: np.ndarray, solution: Solution, refit: Refit) -> Answer | None:
    """The answer to equations g, b less the gradient that refits leave; None where they have another shape."""
    left = _measured(known, refit, solution, is_answer=False)
    if not left:
        return None
    (e, e_b), *others = left
    draws = [(other - e, other_b - e_b) for other, other_b in others]
    plain, first = examined(known, g, b, left), examined(known, g - e, b - e_b, draws)
    if plain is None or first is None or not first.squared_error.mean() <= known.x.var(axis=0).mean():
        return _surer(plain, first)
    again = _measured(known, refit, first.solution, is_answer=True)
    moved = [(of_this - e, of_its_b - e_b) for of_this, of_its_b in again]
    second = None
    for (of_this, of_its_b), (step, step_b) in zip(again, moved, strict=True):
        second = examined(known, g - of_this, b - of_its_b, [(AGAIN * step, AGAIN * step_b)])
    # One draw may be small by chance, which only the equations' agreement speaks against.
    if second is not None and second.is_checked and second.disagreement <= DOUBTFUL:
        step = np.mean((second.solution.x - first.solution.x) ** 2)
        if step <= DOUBTFUL**2 * first.squared_error.mean():
            # The solver may have taken one step more or less than for both answers, as it does between stand-ins: where
            # the equations would not show that, no more is known than of the first answer.
            shows = _all_show(known, g - again[0][0], b - again[0][1], draws, second)
            floor = (JUMP if shows else 1.0) * first.squared_error
            second = second._replace(squared_error=np.maximum(second.squared_error, floor))
            return second if shows else _surer(plain, second)
    return _surer(examined(known, g, b, [*left, *again]), examined(known, g - e, b - e_b, [*draws, *moved]))


def _surer(one: Answer | None, other: Answer | None) -> Answer | None:
    """The answer of which the smaller error is expected."""
    if one is None or other is None:
        return one or other
    return one if one.squared_error.mean() < other.squared_error.mean() else other


def examined(known: Known, g: np.ndarray, b: np.ndarray, left: list[Gradient]) -> Answer | None:
    """The answer to equations g, b with its expected error, given draws of the gradient left; None if there is none."""
    equations = known.equations
    solution = equations.solve(g, b)
    if solution is None:
        return None
    left = [
        (e + slip, e_b + slip_b) for (e, e_b), (slip, slip_b) in zip(left, _rounding(known, len(left)), strict=True)
    ]
    if not equations.fit_intercept:
        return _without_intercept(known, g, solution, left)
    size = float(np.linalg.norm(b))
    label = equations.possible(solution.label)
    many, own, usual = _propagated(equations, g[None], b[None], np.array([label]), left, size)
    ratio = float(own[0] / usual[0])
    squared = many[0] * max(1.0, ratio / ORDINARY) ** 2
    is_checked = not np.isnan(label) and bool(np.isfinite(squared).all()) and ratio <= DOUBTFUL
    is_checked = is_checked and _shows_pairs(known, left, size)
    is_checked = is_checked or _hits_values(known, solution.x, np.sqrt(squared))
    return Answer(solution, equations.gap(solution, b), squared, float(usual[0]), ratio, is_checked)


def _without_intercept(known: Known, g: np.ndarray, solution: Solution, left: list[Gradient]) -> Answer:
    """Answer among several candidates: the one that has values of the known records, else the likeliest."""
    solution, doubt = _likeliest(known.equations, solution, known.x, known.y)
    squared = [_propagated_without_intercept(known.equations, one, g, left) for one in solution.candidates]
    hits = [_hits_values(known, one, np.sqrt(its)) for one, its in zip(solution.candidates, squared, strict=True)]
    if sum(hits) == 1:
        order = np.argsort(np.logical_not(hits), kind="stable")
        candidates = solution.candidates[order]
        return Answer(Solution(candidates[0], solution.label, candidates), 0.0, squared[order[0]], 0.0, 0.0, True)
    others = np.max((solution.candidates - solution.x) ** 2, axis=0)
    return Answer(solution, 0.0, squared[0] + doubt * others, 0.0, 0.0, False)


def _likeliest(equations: Equations, solution: Solution, x: np.ndarray, y: np.ndarray) -> tuple[Solution, float]:
    """The likeliest candidate first, and the chance that another is the record.

    Likely is what a Gaussian of the known records says of the candidates, given g. How far it is to be believed is
    tried on known records.
    """
    if len(solution.candidates) == 1:
        return solution, 0.0
    if len(x) < 3:
        return solution, 0.5
    prior = GaussianPrior.fit(x)
    jitter = 1e-12 * max(float(np.trace(prior.covariance)), np.finfo(np.float64).tiny)
    factor = scipy.linalg.cho_factor(prior.covariance + jitter * np.eye(x.shape[1]))

    def log_weight(given: Equations, found: np.ndarray) -> np.ndarray:
        offset = found - prior.mean
        eta = found @ given.coef
        # d g / d x = r - x slope theta^T, of which this is the determinant.
        r = given.target_y - np.array([given.mean(one) for one in found])
        step = 1e-6 * (1 + np.abs(eta))
        slope = (LINKS[given.link](eta + step) - LINKS[given.link](eta - step)) / (2 * step)
        size = (x.shape[1] - 1) * _log(r) + _log(r - slope * eta)
        return -0.5 * np.sum(offset * np.transpose(scipy.linalg.cho_solve(factor, offset.T)), axis=1) - size

    weights = log_weight(equations, solution.candidates)
    best = int(np.argmax(weights))
    lead = float(weights[best] - np.delete(weights, best).max())
    tried = []
    for i in np.random.default_rng(4).permutation(len(x))[:PAIRS]:
        given = equations._replace(target_y=float(y[i]))
        own = given.solve(-given.residuals(x[i : i + 1], y[i : i + 1])[0] * x[i], np.zeros(()))
        if own is not None and len(own.candidates) > 1:
            its = log_weight(given, own.candidates)
            truth = int(np.argmin(np.linalg.norm(own.candidates - x[i], axis=1)))
            tried.append(its[truth] - np.delete(its, truth).max())
    wrong, right = np.sum(np.array(tried) <= -lead), np.sum(np.array(tried) >= lead)
    order = np.argsort(-weights, kind="stable")
    ordered = solution.candidates[order]
    return Solution(ordered[0], solution.label, ordered), float((wrong + 0.5) / (wrong + right + 1))


def _rounding(known: Known, n_draws: int) -> list[Gradient]:
    """Changes of the gradient where every parameter moves by one unit in the last place, up or down."""
    rng = np.random.default_rng(0)
    g, b = known.equations.gradient(known.x, known.y)
    found = []
    for _ in range(n_draws):
        coef, intercept = (p * (1 + known.eps * rng.choice((-1.0, 1.0), p.shape)) for p in known.equations[1:3])
        moved, moved_b = known.equations._replace(coef=coef, intercept=intercept).gradient(known.x, known.y)
        found.append((moved - g, moved_b - b))
    return found


def stated(equations: Equations, size: float | tuple[Array, Array]) -> list[Gradient]:
    """Draws of a gradient with entries of this size: a number, or a pair for weights and intercept."""
    rng = np.random.default_rng(1)
    found = []
    for part, its_size in zip(("coef", "intercept"), size if isinstance(size, tuple) else (size, size), strict=True):
        sizes, shape = np.asarray(its_size, np.float64), getattr(equations, part).shape
        if sizes.shape not in ((), shape) or not (np.isfinite(sizes) & (sizes >= 0)).all():
            raise ValueError(
                f"gradient_left must be finite, >= 0 and one number or of shape {shape} as {part}, got {its_size}"
            )
        signs = rng.choice((-1.0, 1.0), (SIGNS, *shape))
        found.append(signs * (sizes if part == "coef" or equations.fit_intercept else 0.0))
    return list(zip(*found, strict=True))


def _measured(known: Known, refit: Refit, solution: Solution, *, is_answer: bool) -> list[Gradient]:
    """Gradients that fits to the known records and stand-ins leave; empty where a fit has another shape.

    The answer stands in as the last record, or if it is not one yet, it and known records do as the first.
    """
    equations, x, y = known.equations, known.x, known.y
    label = equations.possible(solution.label)
    if np.isnan(label):
        label = float(np.clip(np.nan_to_num(solution.label), y.min(), y.max()))
    low, high = x.min(axis=0), x.max(axis=0)
    records, labels = [np.clip(np.nan_to_num(solution.x), 2 * low - high, 2 * high - low)], [label]
    if not is_answer:
        chosen = np.random.default_rng(2).permutation(len(x))[:STAND_INS]
        records, labels = [*records, *x[chosen]], [*labels, *y[chosen]]
    n_classes = {"logit": 2, MULTINOMIAL: len(equations.coef)}.get(equations.link, 0)
    missing = np.setdiff1d(np.arange(n_classes), y)
    if len(missing):  # of a class that no known record has, the target must be
        labels = [missing[0]] * len(records)
    found = []
    for record, its_label in zip(records, labels, strict=True):
        at = len(x) if is_answer else 0
        all_x, all_y = np.insert(x, at, record, axis=0), np.insert(y, at, its_label)
        params = refit(all_x, all_y)
        coef, intercept = params if equations.fit_intercept else (params, equations.intercept)
        if np.shape(coef) != equations.coef.shape:
            return []
        fitted = equations._replace(coef=np.asarray(coef, np.float64), intercept=np.asarray(intercept, np.float64))
        found.append(fitted.gradient(all_x, all_y))
    return found


def _propagated(
    equations: Equations, g: np.ndarray, b: np.ndarray, label: np.ndarray, left: list[Gradient], size: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Squared errors (p, d) of solutions, at the worst of draws of the gradient left beside a residual of this size.

    To other residuals the draws are in proportion. Also (p,) and (p,), the disagreement of the equations and what the
    draws make of it.
    """
    x, here = equations.at(g, b, label)
    worst = np.zeros(len(x))
    length = np.linalg.norm(b.reshape(len(b), -1), axis=1)
    share = length / size
    squared, moved, n_draws = np.zeros_like(x), np.zeros(len(x)), 2 * len(left)
    for e, e_b in left:
        if DOUBTFUL * np.linalg.norm(e_b) >= size:  # the residual may be nothing but this
            return np.full_like(x, np.inf), np.zeros(len(x)), np.ones(len(x))
        for sign in (1.0, -1.0):
            step, step_b = (sign * share.reshape(-1, *[1] * part.ndim) * part for part in (e, e_b))
            again, there = equations.at(g - step, b - step_b, label)
            off = (again - x) ** 2
            squared += off / n_draws
            worst = np.maximum(worst, off.mean(axis=1))
            moved += np.sum((there - here) ** 2, axis=1) / n_draws
    # Of features the mean over draws, of their sum the largest.
    squared *= (worst / np.maximum(squared.mean(axis=1), np.finfo(np.float64).tiny))[:, None]
    floor = np.finfo(np.float64).eps
    return squared, np.linalg.norm(here, axis=1), np.maximum(np.sqrt(moved), floor)


def _propagated_without_intercept(
    equations: Equations, found: np.ndarray, g: np.ndarray, left: list[Gradient]
) -> np.ndarray:
    """Largest squared error (d,) of a candidate over draws of the gradient left."""
    squared = []
    for e, _ in left:
        for sign in (1.0, -1.0):
            again = equations.solve(g - sign * e, np.zeros(()))
            if again is None:
                return np.full_like(found, np.inf)
            near = again.candidates[np.argmin(np.linalg.norm(again.candidates - found, axis=1))]
            squared.append((near - found) ** 2)
    return np.max(squared, axis=0)


def _all_show(known: Known, g: np.ndarray, b: np.ndarray, draws: list[Gradient], answer: Answer) -> bool:
    """Whether the equations would disagree with the answer if any of these gradients were left."""
    equations = known.equations
    label = np.array([equations.possible(answer.solution.label)])
    # What lsqr and conjugate gradients leave is orthogonal to the weights, so that a linear predictor does not move.
    if not equations.fit_intercept or equations.link == "identity":
        return False
    steps = [np.linalg.norm(equations.at((g - e)[None], np.asarray(b - e_b)[None], label)[1]) for e, e_b in draws]
    return bool(min(steps) > DOUBTFUL * answer.usual)


def _pairs(known: Known) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pairs of known records (p, 2), and what each would leave in the known records' gradient if it were unknown."""
    x = known.x
    rng = np.random.default_rng(3)
    n_pairs = int(np.clip(NUMBERS // known.equations.coef.size, 10, PAIRS)) if len(x) > 1 else 0
    rows = np.array([rng.choice(len(x), 2, replace=False) for _ in range(n_pairs)], int).reshape(-1, 2)
    r = -known.equations.residuals(x, known.y)[rows]
    g = np.einsum("pi...,pid->p...d", r, x[rows])
    b = r.sum(axis=1)
    # Those that cancel leave nothing to solve.
    keep = np.linalg.norm(b.reshape(len(b), -1), axis=1) > 0
    return rows[keep], g[keep], b[keep]


def _shows_pairs(known: Known, left: list[Gradient], size: float) -> bool:
    """Whether the equations of a pair that is taken for one record disagree, at the same gradient over residual."""
    equations, x, y = known.equations, known.x, known.y
    rows, g, b = _pairs(known)
    label = y[rows[:, 0]]
    if equations.target_y is None:
        solved = [equations.solve(*terms) for terms in zip(g, b, strict=True)]
        label = np.array([equations.possible(s.label) if s else np.nan for s in solved])
    is_possible = np.isfinite(label)
    if not is_possible.any():
        return False
    rows, g, b, label = (part[is_possible] for part in (rows, g, b, label))
    squared, own, usual = _propagated(equations, g, b, label, left, size)
    found = equations.at(g, b, label)[0]
    error = np.mean((x[rows] - found[:, None]) ** 2, axis=2).min(axis=1)
    # A pair of which one leaves next to nothing is one record, and rightly so.
    unseen = np.sum((own <= DOUBTFUL * usual) & (error > CONTRADICTED * squared.mean(axis=1)))
    return bool(unseen == 0)


def _hits_values(known: Known, found: np.ndarray, error: np.ndarray) -> bool:
    """Whether a record has as many values of the known ones as each of them has of the others, and mixtures do not."""
    equations, x = known.equations, known.x
    if not np.isfinite(error).all() or len(x) < 3:
        return False
    reach = DOUBTFUL * error + 4 * np.finfo(np.float64).eps * np.abs(x).max(axis=0)
    columns = np.sort(x, axis=0)

    def missed(records: np.ndarray, *, wanted: int = 1) -> np.ndarray:
        total = np.zeros(len(records), int)
        for column, value, within in zip(columns.T, records.T, reach, strict=True):
            ends = (np.searchsorted(column, value + within, "right"), np.searchsorted(column, value - within, "left"))
            total += ends[0] - ends[1] < wanted
        return total

    # A known record hits itself.
    usual = int(missed(x[np.random.default_rng(5).permutation(len(x))[:PAIRS]], wanted=2).max())
    if usual == x.shape[1] or missed(found[None])[0] > usual:
        return False
    _, g, b = _pairs(known)
    if equations.fit_intercept:
        mixtures = [solved.x for solved in map(equations.solve, g, b) if solved is not None]
    else:
        # Of the residuals' sum, which is not known, the mixture is taken that it would give.
        mixtures = list(g / b[:, None])
    return len(mixtures) > 0 and bool((missed(np.array(mixtures)) > usual).all())


def _log(value: np.ndarray) -> np.ndarray:
    return np.log(np.maximum(np.abs(value), np.finfo(np.float64).tiny))
