"""What the scores of a PCA behind steps say of its target, with the components eliminated.

Let W(x) be the n records [x; known] after the steps, centred. Published scores theta_a are eigenvectors of W W^T:

    W W^T theta_a = lambda_a theta_a,    lambda_a = |theta_a|^2,

k n equations in the record alone, free of signs. Where a step after the method took the scores' lengths (whitening),
lambda_a is a^T W W^T a of their directions a; where it took their axes too (a rotation, any linear map), what holds is
that W W^T maps the space of their directions to itself.

Steps before the method that look at one feature at a time make column j of W a function of x_j alone, so that the
derivative of all equations in all features takes O(n d k). A feature that is constant in all known records is another
matter: a scaler makes the same column of any other value, so that the release tells how many of them are new and not
which; their number is the last unknown.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np

from drjax.attacks.reconstruction.equations import OfRecord
from drjax.core.linalg import HIGHEST
from drjax.core.types import Array, PyTree, hyperparams, traced
from drjax.dr.pipeline.steps import Affine, Scaler, Step

Form = Literal["scores", "directions", "span"]
FORMS: tuple[Form, ...] = get_args(Form)
"""What is left of the scores: all; each up to a factor; all up to a linear map."""


class Folded(NamedTuple):
    """The rows of a data set in an orthonormal basis of the span of all its columns; the first is the target's row.

    Attributes:
        known: (r, d), known records after single steps, 0 in the target's row.
        ones: (r,), a column of ones.
        summary: What the scaler, if there is one, needs of these records.
        total: (d,), their sum.
        n: Number of records with the target's, ().
    """

    known: Array
    ones: Array
    summary: PyTree
    total: Array
    n: Array


@hyperparams
class Eigen(OfRecord):
    """The equations, in u = (features that vary, number of new ones), (p + 1,).

    Attributes:
        steps: Steps before the method, each of which looks at one record or one feature at a time.
        known: (n-1, d).
        record: (d,), values of the features that do not vary, and where: (p,) the places of those that do.
        where: Places of the features that vary.
        new: (n,), the column that a new value makes, or zeros.
        form: Part of the scores that is left, one of `FORMS`.
        is_centred: Whether records are centred after the steps, as by PCA; TruncatedSVD does not.
        folded: The known records in few rows, from `fold`; n is the number of rows then. None for all of them.
    """

    steps: tuple[Step, ...] = traced()
    known: Array = traced()
    record: Array = traced()
    where: Array = traced()
    new: Array = traced()
    folded: Folded | None = traced(default=None)
    form: Form = "scores"
    is_centred: bool = True

    def columns(self, u: Array) -> tuple[Array, Array]:
        """W (n, d) and the derivative of each column in its own feature, (n, d)."""
        single, rest = split_steps(self.steps)
        x = jnp.asarray(self.record).at[self.where].set(u[:-1])
        y = through(single, x[None])[0]

        def made(y: Array) -> Array:
            if self.folded is not None:
                return _folded_columns(self.folded, rest, y, is_centred=self.is_centred)
            w = through(rest, jnp.concatenate([y[None], through(single, self.known)]))
            return w - jnp.mean(w, axis=0) if self.is_centred else w

        return jax.jvp(made, (y,), (jnp.ones_like(y),))

    def residual(self, release: Array, x: Array, about: Array | None = None) -> Array:
        """(n k,) what the equations leave over, in the units of the release."""
        del about
        w, _ = self.columns(x)
        gram = w @ (w.T @ release) + x[-1] * self._counted(release)
        return (self._divided(release, gram) - release).ravel()

    def linearise(self, release: Array, x: Array) -> tuple[Array, Array]:
        """`residual` and its derivative (n k, p + 1)."""
        w, dw = self.columns(x)
        along, moved = w.T @ release, dw.T @ release
        gram = w @ along + x[-1] * self._counted(release)
        # Of W W^T release, (d, n, k): column j of W stands in it twice.
        change = jnp.einsum("nj,jk->jnk", dw, along) + jnp.einsum("nj,jk->jnk", w, moved)
        single, _ = split_steps(self.steps)
        if single:
            start = jnp.asarray(self.record).at[self.where].set(x[:-1])
            inner = jax.jacfwd(lambda t: through(single, t[None])[0])(start)
            change = jnp.einsum("jnk,ji->ink", change, inner, precision=HIGHEST)
        last = self._counted(release)
        change = jnp.concatenate([change[self.where], last[None]])
        divided = jax.vmap(lambda one: jax.jvp(lambda g: self._divided(release, g), (gram,), (one,))[1])(change)
        return (self._divided(release, gram) - release).ravel(), divided.reshape(len(divided), -1).T

    def curvature(self, release: Array, x: Array) -> None:
        """None: the residual is no gradient."""
        del release, x

    def _counted(self, release: Array) -> jax.Array:
        """What one feature more with a new value adds to W W^T release, (n, k)."""
        new = jnp.asarray(self.new)
        return new[:, None] * (new @ release)

    def gram_matrix(self, x: Array) -> jax.Array:
        """W W^T (n, n)."""
        w, _ = self.columns(x)
        new = jnp.asarray(self.new)
        return jnp.matmul(w, w.T, precision=HIGHEST) + x[-1] * jnp.outer(new, new)

    def eigenvalues(self, release: Array, gram: Array) -> jax.Array:
        """The matrix (k, k) by which W W^T multiplies the release from the right; `gram` is W W^T release.

        Diagonal, but for form "span": there the release's columns mix eigenvectors.
        """
        squares = jnp.sum(release**2, axis=0)
        if self.form == "scores":
            return jnp.diag(squares)
        within = release.T @ gram
        if self.form == "directions":
            return jnp.diag(jnp.diagonal(within) / squares)
        return jnp.linalg.solve(release.T @ release, within)

    def _divided(self, release: Array, gram: Array) -> Array:
        """W W^T release (n, k) over the eigenvalues: the release itself where the equations hold."""
        if self.form == "scores":
            return gram / jnp.sum(release**2, axis=0)
        within = release.T @ gram
        if self.form == "directions":
            return gram / jnp.diagonal(within) * jnp.sum(release**2, axis=0)
        return gram @ jnp.linalg.solve(within, release.T @ release)


LEAST_FOLD = 2
"""So many times as many records as rows of a basis are folded into it."""


def fold(equations: Eigen, releases: Array) -> tuple[Eigen, np.ndarray]:
    """The equations and releases (m, n, k) in d + 2 + k rows, with the same products of residuals at every record.

    The last k hold what of a release is outside the span of all columns, which no record explains. As they are where
    there are few records. On the host, float64, O(n d^2).
    """
    single, rest = split_steps(equations.steps)
    known, releases = np.asarray(through(single, equations.known)), np.asarray(releases)
    n, d = len(known) + 1, known.shape[1]
    if n_rows(n, d, releases.shape[2]) == n:
        return equations, releases
    inner, _ = np.linalg.qr(np.concatenate([np.ones((n - 1, 1)), known], axis=1))
    others = inner.T @ releases[:, 1:]
    outside = np.asarray(np.linalg.qr(releases[:, 1:] - inner @ others, mode="r"))
    n_outside = outside.shape[1]
    scaler = _scaler(rest)
    folded = Folded(
        known=_rows(np.zeros(d), inner.T @ known, n_outside),
        ones=_rows(np.ones(()), inner.sum(axis=0), n_outside),
        summary=None if scaler is None else scaler.summary(jnp.asarray(known)),
        total=jnp.asarray(known.sum(axis=0)),
        n=jnp.asarray(float(n)),
    )
    new = np.asarray(equations.new)
    changed = {"folded": folded, "new": _rows(new[0], inner.T @ new[1:], n_outside)}
    small = np.concatenate([releases[:, :1], others, outside], axis=1)
    return dataclasses.replace(equations, **changed), small


def n_rows(n: int, d: int, k: int) -> int:
    """Rows that `fold` leaves of n records of d features and k scores."""
    folded = d + 2 + k
    return folded if n >= LEAST_FOLD * folded else n


def _rows(first: np.ndarray, others: np.ndarray, n_outside: int) -> jax.Array:
    """The target's row, those of the basis, and 0 outside."""
    return jnp.asarray(np.concatenate([first[None], others, np.zeros((n_outside, *first.shape))]))


def _folded_columns(folded: Folded, rest: tuple[Step, ...], y: Array, *, is_centred: bool) -> jax.Array:
    """W (r, d) for a target y (d,) after single steps."""
    scaler = _scaler(rest)
    fitted = Affine(jnp.zeros_like(y), jnp.ones_like(y)) if scaler is None else scaler.with_record(folded.summary, y)
    centre = (y + folded.total) / folded.n if is_centred else fitted.centre
    whole = jnp.asarray(folded.known).at[0].set(y)
    return (whole - jnp.asarray(folded.ones)[:, None] * centre) / fitted.scale


def _scaler(rest: tuple[Step, ...]) -> Scaler | None:
    """The scaler among steps that each look at one feature; one before another changes nothing."""
    if not rest:
        return None
    assert isinstance(rest[-1], Scaler)
    return rest[-1]


def split_steps(steps: tuple[Step, ...]) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
    """Steps that look at one record at a time, and the scalers behind them.

    Raises:
        ValueError: another step, or a scaler before a step on single records.
    """
    n_single = sum(step.per_record for step in steps)
    single, rest = steps[:n_single], steps[n_single:]
    if not (all(step.per_record for step in single) and all(isinstance(step, Scaler) for step in rest)):
        raise ValueError(f"steps must look at one record at a time, and behind these scale features, got {steps}")
    return single, rest


def through(steps: tuple[Any, ...], x: Array) -> jax.Array:
    """Records x (n, d) after the steps."""
    found = jnp.asarray(x)
    for step in steps:
        found = step.apply(found)
    return found
