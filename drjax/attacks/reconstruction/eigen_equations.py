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

from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp

from drjax.attacks.reconstruction.equations import OfRecord
from drjax.core.linalg import HIGHEST
from drjax.core.types import Array, hyperparams, traced
from drjax.dr.pipeline.steps import Step

Form = Literal["scores", "directions", "span"]
FORMS: tuple[Form, ...] = get_args(Form)
"""What is left of the scores: all; each up to a factor; all up to a linear map."""


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
    """

    steps: tuple[Step, ...] = traced()
    known: Array = traced()
    record: Array = traced()
    where: Array = traced()
    new: Array = traced()
    form: Form = "scores"
    is_centred: bool = True

    def columns(self, u: Array) -> tuple[Array, Array]:
        """W (n, d) and the derivative of each column in its own feature, (n, d)."""
        single, rest = split_steps(self.steps)
        x = jnp.asarray(self.record).at[self.where].set(u[:-1])
        y = through(single, x[None])[0]

        def made(y: Array) -> Array:
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

    def _divided(self, release: Array, gram: Array) -> Array:
        """W W^T release (n, k) over the eigenvalues: the release itself where the equations hold."""
        if self.form == "scores":
            return gram / jnp.sum(release**2, axis=0)
        within = release.T @ gram
        if self.form == "directions":
            return gram / jnp.diagonal(within) * jnp.sum(release**2, axis=0)
        return gram @ jnp.linalg.solve(within, release.T @ release)


def split_steps(steps: tuple[Step, ...]) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
    """Steps that look at one record at a time, up to the last that does nothing else, and the rest.

    Raises:
        ValueError: a step that mixes records and features.
    """
    mixing = [i for i, step in enumerate(steps) if not step.per_feature]
    cut = mixing[-1] + 1 if mixing else 0
    if not all(step.per_record for step in steps[:cut]):
        raise ValueError(f"steps must each look at one record or one feature at a time, got {steps}")
    return steps[:cut], steps[cut:]


def through(steps: tuple[Any, ...], x: Array) -> jax.Array:
    """Records x (n, d) after the steps."""
    found = jnp.asarray(x)
    for step in steps:
        found = step.apply(found)
    return found
