"""A released classifier as a vector: what an adversary sees of it, and that made fit for a network or a regression.

Source: Balle, Cherubin & Hayes, "Reconstructing training data with informed adversaries" (2022), called BCH22, sections
IV-B, V-A and VI-C; the length that all vectors can be given is ours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, Self

import jax
import numpy as np
from sklearn.utils.extmath import randomized_svd

from drjax.core import validate
from drjax.core.batching import map_lanes
from drjax.core.types import Array, PyTree
from drjax.data.preprocess import StandardScaler
from drjax.nets.classifier_training import Training
from drjax.nets.classifiers import Classifier

ACCESS = ("weights", "layers", "logits")
N_QUERIES = 200
"""Points whose logits a black-box adversary asks for, as BCH22."""


def representation(
    training: Training,
    params: PyTree,
    *,
    access: str = "weights",
    layers: Sequence[int] | None = None,
    queries: Array | None = None,
) -> np.ndarray:
    """The vectors that an adversary makes of m released models.

    Values that are not finite are passed on, so that a model whose training diverged keeps its row.

    Args:
        training: How the models were trained; its classifier is what they are.
        params: Parameters with a leading axis m, as `train_many` returns them.
        access: "weights": all parameters, layer by layer from the first, in each the bias and then the weight, row by
            row (the order of `jax.flatten_util.ravel_pytree`). "layers": those of some layers. "logits": what the
            model says of chosen points, and nothing else.
        layers: Layers for "layers": indices from 0, without repetition, in the order wanted.
        queries: Points (q, d) for "logits", in the units of the records; see `choose_queries`.

    Returns:
        (m, p) float32; p is the number of those parameters, or q times the number of classes, point by point.

    Raises:
        ValueError: an unknown access, one without what it needs or with what is another's, an index that is out of
            range or repeated, queries of another dimension or not finite, or parameters that do not fit the classifier.

    Example:
        >>> import drjax, jax
        >>> from drjax.attacks.reconstruction.reconn import choose_queries, representation
        >>> from drjax.nets.classifier_training import Training, train_many
        >>> from drjax.nets.classifiers import Classifier
        >>> data = drjax.load("digits")
        >>> x, y, training = data.x, data.y, Training(model=Classifier(hidden=(4,)), epochs=5)
        >>> init = training.model.init(jax.random.key(0), 64)
        >>> models = train_many(training, x[:40], y[:40], x[40:60], y[40:60], init=init)
        >>> queries = choose_queries(jax.random.key(0), x[:40], 8)  # of a model that answers and shows no weights
        >>> representation(training, models).shape
        (20, 310)
        >>> representation(training, models, access="logits", queries=queries).shape
        (20, 80)
    """
    validate.one_of(ACCESS, access=access)
    for name, value, use in (("layers", layers, "layers"), ("queries", queries, "logits")):
        if (value is not None) != (access == use):
            raise ValueError(f"{name} must be given for access {use!r} and only then, got access {access!r}")
    m, d = _sizes(training.model, params)
    if queries is not None:
        points = validate.matrix(queries, "queries", columns=d)
        context = training.model, points.astype(np.float32)
        return map_lanes(_logits, context, tuple(params)).reshape(m, -1).astype(np.float32)
    chosen = range(len(params)) if layers is None else list(layers)
    if not chosen or len(set(chosen)) != len(chosen):
        raise ValueError(f"layers must hold at least one index and none twice, got {layers}")
    for index in chosen:
        validate.integer(minimum=0, **{"every entry of layers": index})
        validate.at_most(len(params) - 1, "the last layer", **{"every entry of layers": index})
    parts = [np.asarray(params[i][name], np.float32).reshape(m, -1) for i in chosen for name in ("b", "w")]
    return np.concatenate(parts, axis=1)


def choose_queries(key: Array, known_x: Array, n: int = N_QUERIES) -> np.ndarray:
    """n of the known records (N, d), drawn without replacement, to ask a black-box model about.

    Raises:
        ValueError: fewer than n known records, or not a finite numeric matrix.

    Example:
        >>> import drjax, jax
        >>> from drjax.attacks.reconstruction.reconn import choose_queries
        >>> choose_queries(jax.random.key(0), drjax.load("digits").x[:60], 10).shape
        (10, 64)
    """
    validate.prng_key(key)
    validate.integer(n=n)
    known = validate.matrix(known_x, "known_x", min_rows=n)
    return known[np.asarray(jax.random.permutation(key, len(known))[:n])]


class Inputs(NamedTuple):
    """What is done to a vector before anything learns from it, fitted on the shadow models to train on alone.

    Attributes:
        scaler: Scaler of every coordinate.
        has_equal_lengths: Whether each coordinate then goes through tanh and each vector is scaled to length sqrt(p).
            How far a target moves a model depends on how surprised by it the model is, which says nothing of its
            pixels; and a coordinate that one shadow model in hundreds moves would outweigh all others in that vector.
        basis: (p, r), orthogonal directions onto which the vectors are projected, of such a length that the training
            coordinates' mean square is 1; None for no projection.
    """

    scaler: StandardScaler
    has_equal_lengths: bool
    basis: np.ndarray | None

    @classmethod
    def fit(cls, vectors: np.ndarray, *, has_equal_lengths: bool, n_components: int | None = None) -> Self:
        """Fits to finite vectors (m, p); r is `n_components`, but at most min(m, p).

        Costs O(m p r) time and a float64 copy of the vectors.
        """
        inputs = cls(StandardScaler.fit(vectors), has_equal_lengths, None)
        if n_components is None:
            return inputs
        z = inputs.transform(vectors)
        r = min(n_components, *z.shape)
        _, lengths, directions = randomized_svd(z, r, random_state=0)
        size = math.sqrt(np.sum(np.square(lengths, dtype=np.float64)) / (len(z) * r))
        return inputs._replace(basis=np.asarray(directions.T / (size or 1.0), np.float32))

    def transform(self, vectors: np.ndarray) -> np.ndarray:
        """Vectors (m, p) to (m, r) float32, or (m, p) without projection; rows that are not finite become 0."""
        vectors = np.asarray(vectors, np.float32)
        z = self.scaler.transform(np.where(np.isfinite(vectors).all(axis=1, keepdims=True), vectors, 0))
        z = np.asarray(z, np.float32)
        if self.has_equal_lengths:
            z = np.tanh(z)
            length = np.linalg.norm(z, axis=1, keepdims=True)
            z = z * (math.sqrt(z.shape[1]) / np.where(length == 0, 1, length))
        return z if self.basis is None else z @ self.basis


@jax.jit
def _logits(context: tuple[Classifier, jax.Array], params: PyTree) -> jax.Array:
    model, queries = context
    return jax.vmap(lambda p: model.logits(p, queries))(params)


def _sizes(model: Classifier, params: PyTree) -> tuple[int, int]:
    """How many models there are, and the entries of a record."""
    try:
        shapes = [{name: np.shape(layer[name]) for name in ("w", "b")} for layer in params]
        m = shapes[0]["b"][0]
        d = math.prod(model.image_shape) if model.image_shape is not None else shapes[0]["w"][2]
    except (TypeError, KeyError, IndexError) as error:
        raise ValueError(
            "params must be layers of w and b with a leading axis of models, as `train_many` returns them"
        ) from error
    expected = [{name: (m, *shape) for name, shape in layer.items()} for layer in model.shapes(d)]
    if m < 1 or shapes != expected:
        raise ValueError(f"params must have the shapes {expected} of the classifier, got {shapes}")
    return m, d
