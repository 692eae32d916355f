"""The unknown record of a network that has come to rest, in closed form, whatever it started from.

Where training has ended at a point at which the gradient of the whole loss vanishes, the target's own gradient is
known: minus that of all other records and of the penalty. Its first layer's part is one outer product delta x^T, and
that of the bias is delta itself, so

    x = delta^T G / |delta|^2,    G the weight's part and delta the bias's,

which is Theorem 1 of Balle, Cherubin & Hayes (2022) one layer down. Of the last layer's bias the part is p - e_y, whose
one negative entry is the label. How training came there (start, order, optimizer) does not enter.

A training that stops with a gradient left (of the sum over records; E and e_b its first layer's parts) returns
x - (E - e_b x^T)^T delta / |delta|^2 to first order: the error grows as the gradient that is left over the target's
own, which for a record that the network fits well is small too.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

from drjax.attacks.reconstruction.closed_form.glm import MARGIN
from drjax.core import validate
from drjax.core.types import Array, PyTree, Reconstruction, Status
from drjax.nets.classifier_training import check_labels, check_params
from drjax.nets.classifiers import Classifier

UNEXPLAINED = 0.2
"""What training may have left of the target's gradient, as a share of it; above, the records are others."""

SILENT = 1e-12
"""Target's gradient, as a share of the sum of the known records' norms, below which it is rounding."""


def reconstruct_network(
    model: Classifier, params: PyTree, known_x: Array, known_y: Array, *, l2: float = 0.0
) -> Reconstruction:
    """Reconstructs the unknown record and its label from m networks at rest and the other n-1 records.

    Float64 on the host's device. Costs one gradient of the known records for each network.

    Args:
        model: A dense one.
        params: Parameters with a leading axis m, as `train_many` returns them; float64 for what float32 rounds away.
        known_x: (n-1, d).
        known_y: (n-1,) classes.
        l2: Weight of the penalty, >= 0: the loss is the mean cross-entropy of all n records + l2 / 2 |weights|^2,
            biases excluded.

    Returns:
        x (m, d) and y (m,); residual_norm (m,) what x and y leave of the target's gradient, over all layers, as a share
        of it: 0 at rest; expected_mse (m,) of x, from what they leave of the first layer's over delta. Status
        NOT_CONVERGED where residual_norm is above `UNEXPLAINED`, or the error expected is not below `MARGIN` of what
        the known records vary by: training was not at rest, or these are not its records. DEGENERATE where the target
        has left no gradient. There x is the mean of the known records, and the candidate (nan if DEGENERATE) what the
        gradient gives.

    Raises:
        ValueError: a model with convolutions, parameters of another architecture or not finite, classes out of range,
            shapes that do not match, or l2 < 0.

    Source: BCH22, Eq. 1 and Theorem 1; the outer product, Geiping et al. (2020), proposition 3.1.

    Example:
        >>> import jax, numpy as np
        >>> from sklearn.linear_model import LogisticRegression
        >>> from drjax.attacks.reconstruction.closed_form import reconstruct_network
        >>> from drjax.nets.classifiers import Classifier
        >>> x, y = np.random.default_rng(0).random((60, 5)), np.arange(60) % 3
        >>> fit = LogisticRegression(C=1 / (60 * 0.1), tol=1e-12, max_iter=1000).fit(x, y)
        >>> params = [{"w": fit.coef_[None], "b": fit.intercept_[None]}]  # of one network without hidden layer
        >>> found = reconstruct_network(Classifier(hidden=(), n_classes=3), params, x[1:], y[1:], l2=0.1)
        >>> bool(np.abs(found.x[0] - x[0]).max() < 1e-3), found.y
        (True, array([0]))
    """
    if not model.is_dense:
        raise ValueError(f"model must be dense, got one with convolutions of {model.channels} channels")
    validate.non_negative(l2=l2)
    validate.finite(l2=l2)
    x = validate.matrix(known_x, "known_x").astype(np.float64)
    y = check_labels(known_y, len(x), model.n_classes, "known_y")
    leaves = jax.tree.leaves(params)
    if not leaves or any(np.ndim(leaf) < 2 or len(leaf) != len(leaves[0]) for leaf in leaves):
        raise ValueError("params must be layers of arrays w and b with one leading axis of models")
    checked = check_params(model, params, x.shape[1], len(leaves[0]))
    with jax.enable_x64(True):
        theta = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), checked)
        found, label, left, own, size, expected = map(np.asarray, _reconstructed(model, theta, x, y, (len(x) + 1) * l2))
    is_silent = own <= SILENT * size
    relative = np.where(is_silent, np.nan, left / np.where(own > 0, own, 1))
    variance = x.var(axis=0).mean()
    is_found = (relative <= UNEXPLAINED) & (expected <= MARGIN * variance)
    status = np.where(is_found, Status.OK, Status.NOT_CONVERGED).astype(np.uint32)
    status[is_silent] = Status.DEGENERATE
    candidates = np.where(is_silent[:, None], np.nan, found)[:, None]
    answer = np.where(is_found[:, None], found, x.mean(axis=0))
    return Reconstruction(answer, label, candidates, relative, status, np.where(is_found, expected, variance))


@functools.partial(jax.jit, static_argnums=0)
def _reconstructed(model: Classifier, params: PyTree, x: Array, y: Array, weight: Array) -> tuple:
    def loss(p: PyTree, records: Array, classes: Array) -> jax.Array:
        logits = jax.nn.log_softmax(model.logits(p, records))
        return -jnp.sum(jnp.take_along_axis(logits, classes[:, None], axis=1))

    def one(p: PyTree) -> tuple[jax.Array, ...]:
        known = jax.grad(loss)(p, x, y)
        target = tuple({"w": -(g["w"] + weight * layer["w"]), "b": -g["b"]} for g, layer in zip(known, p, strict=True))
        delta = target[0]["b"]
        found = delta @ target[0]["w"] / jnp.maximum(delta @ delta, jnp.finfo(delta.dtype).tiny)
        label = jnp.argmin(target[-1]["b"])
        again = jax.grad(loss)(p, found[None], label[None])
        left = jax.tree.map(jnp.subtract, target, again)
        # x took one of the h numbers that each column leaves; those that remain stand for it.
        units = jnp.maximum(len(delta) - 1, 1)
        off = jnp.sum(left[0]["w"] ** 2, axis=0) / units + found**2 * jnp.mean(left[0]["b"] ** 2)
        floor = (jnp.finfo(delta.dtype).eps * _norm(known)) ** 2
        expected = jnp.mean(off + floor * (1 + found**2)) / jnp.maximum(delta @ delta, jnp.finfo(delta.dtype).tiny)
        return found, label, _norm(left), _norm(target), _norm(known) + weight * _norm(p), expected

    return jax.lax.map(one, params)


def _norm(tree: PyTree) -> jax.Array:
    return jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(tree)))
