"""Principal component analysis, and what one more record does to it in closed form.

The functions below the class are those of a decomposition of records about a point: their mean, or 0 (`truncated`).
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from drjax.core import streamed, validate
from drjax.core.linalg import HIGHEST, compute_dtype, on_device, scatter_basis, sign_and_margin
from drjax.core.types import Array, Cost, Embedding, Status, hyperparams
from drjax.dr import base
from drjax.dr.factored import Factors, expanded
from drjax.dr.pca import secular


class PCAInfo(NamedTuple):
    """Diagnostics of one PCA.

    Attributes:
        eigenvalues: (k,), of the scatter matrix (singular values of the centred data, squared); input units squared.
        eigengap: (k,), distance of each eigenvalue to its nearest neighbour, as a share of the largest.
        sign_margin: (k,), largest positive minus largest negative loading in absolute value: what decides the sign.
            From `insert` a lower bound of it that suffices to decide, or the margin itself where none does.
    """

    eigenvalues: Array
    eigengap: Array
    sign_margin: Array


class PCAShared(NamedTuple):
    """What all shadows share: the known records (n-1, d) in the basis of their own r principal directions.

    Attributes:
        mean: (d,), or zeros where records are not centred.
        scale: (), largest singular value of the known records less the mean; everything below is in this unit.
        basis: (r, d), orthonormal rows.
        scores: (n-1, r), known records less the mean in the basis, in input units; (n-1, 0) where embeddings are made
            as factors.
        poles: squared singular values over scale^2, then 0 for the direction outside the basis.
        scatter: (), sum of squares of the known records less the mean over scale^2.
    """

    mean: Array
    scale: Array
    basis: Array
    scores: Array
    poles: secular.Poles
    scatter: Array


@hyperparams
class PCA:
    """Principal component analysis onto the leading k directions of variance.

    Deterministic. Signs follow scikit-learn's `PCA` (each component's largest |loading| is positive).
    `fit_transform` costs a thin SVD, O(n d min(n, d)); `insert` costs O(r (d + n k)), no decomposition, and O(r d k)
    more for a chunk of shadows in which some component's two largest opposite loadings nearly tie.

    Attributes:
        n_components: Output dimension k, 1 <= k <= min(n, d).

    Source: the update is the symmetric rank-one eigenproblem of Bunch, Nielsen & Sorensen (1978).

    Example:
        >>> import drjax, jax
        >>> x = drjax.load("digits").x[:60]
        >>> drjax.PCA().fit_transform(jax.random.key(0), x).coords.shape
        (60, 2)
    """

    name: ClassVar[str] = "pca"
    title = "PCA"
    unit = "of the input"
    minimises = "squared error that the components leave"
    repeatable = True
    has_factors = True
    stationary = False
    n_components: int = 2

    def __post_init__(self) -> None:
        validate.integer(n_components=self.n_components)

    @property
    def deterministic(self) -> bool:
        """True: the key is ignored."""
        return True

    def cost(self, n: int, d: int, *, itemsize: int = 4) -> Cost:
        """What shadows take: copies of the records in float64 and their scatter matrix; see `DRMethod.cost`."""
        r = min(n, d)
        return Cost(
            shared_flops=4.0 * n * d * r + 10.0 * r**3,
            shared_bytes=(24.0 + 3 * itemsize) * n * d + 24.0 * r**2,
            flops=2.0 * r * (d + n * self.n_components),
            bytes=itemsize * (4.0 * n * self.n_components + 8.0 * r * self.n_components + 2 * d),
        )

    def fit_transform(self, key: Array, x: Array) -> Embedding:
        """Scores of x (n, d) on its first k principal components, (n, k) in the units of x.

        The objective is the sum of squares that the components leave unexplained.

        Raises:
            ValueError: at trace time, if x has not rank 2 or k > min(n, d).
        """
        del key
        x = base.records(x)
        base.check_components(self.n_components, *x.shape)
        return scores_of(x - jnp.mean(x, axis=0), self.n_components)

    def objective(self, coords: Array, x: Array) -> Array:
        """Sum of squares of the centred x (n, d) that no linear map of the centred coords (n, k) explains; ()."""
        centred, y = x - jnp.mean(x, axis=0), coords - jnp.mean(coords, axis=0)
        return unexplained(centred, y)

    def prepare(self, known: Array, *, shared_key: Array | None = None) -> PCAShared:
        """The known records (n-1, d) in their principal basis; host, float64, O(n d min(n, d)) once.

        Raises:
            ValueError: known is not a finite numeric matrix, or k > min(n, d).
        """
        del shared_key
        return prepared(known, self.n_components, is_centred=True)

    def insert(self, key: Array, shared: PCAShared, target: Array) -> Embedding:
        """The PCA of [target; known] for target (d,): `fit_transform` of the n records up to rounding.

        Raises:
            ValueError: at trace time, if target has not the shape (d,).
        """
        return base.insert(self, key, shared, target)

    def insert_batch(self, keys: Array, shared: PCAShared, targets: Array) -> Embedding:
        """`insert` for targets (b, d): two matrix products over the batch and a root finder.

        About 2 r (d + n k) floating-point operations per target. The r directions of the known records count in
        full for the coordinates; a component's sign is mostly certain from the few that have most of the variance.
        """
        del keys
        return inserted(shared, targets, self.n_components, share=1 / (shared.scores.shape[0] + 1))

    def prepare_factored(
        self, known: Array, *, dtype: Any, shared_key: Array | None = None
    ) -> tuple[PCAShared, streamed.Matrix]:
        """As `prepare`, with the scores (n-1, r) of the known records (n-1, d) apart; many are read in blocks.

        Raises:
            ValueError: as of `prepare`.
        """
        del shared_key
        return prepared_factored(known, self.n_components, dtype, is_centred=True)

    def insert_factors(self, keys: Array, shared: PCAShared, targets: Array) -> Embedding:
        """`insert_batch` with `Factors` for coordinates: about 2 r d operations per target, whatever n is."""
        del keys
        return inserted_factors(shared, targets, self.n_components, share=1 / (shared.scores.shape[0] + 1))


def scores_of(rows: Array, k: int) -> Embedding:
    """Scores (n, k) of rows (n, d), less their mean or not, on their leading k right singular vectors."""
    # SVD of a matrix with a nan may not return; the lane is reported NON_FINITE below all the same.
    finite = jnp.all(jnp.isfinite(rows))
    u, s, vt = jnp.linalg.svd(jnp.where(finite, rows, 0), full_matrices=False)
    sign, margin = sign_and_margin(vt[:k])
    coords = jnp.where(finite, u[:, :k] * (s[:k] * sign), jnp.nan)
    eigenvalues = jnp.append(s**2, 0)[: k + 1]
    return embedding_of(
        coords,
        eigenvalues=eigenvalues,
        gap=base.eigengap(eigenvalues, k),
        scatter=jnp.sum(rows**2),
        margin=margin,
        converged=jnp.bool_(True),
        n_iter=jnp.int32(0),
        flags=base.non_finite(coords),
    )


def unexplained(rows: Array, coords: Array) -> jax.Array:
    """Sum of squares of rows (n, d) that no linear map of coords (n, k) explains; ()."""
    basis, _ = jnp.linalg.qr(coords)
    return jnp.sum(rows**2) - jnp.sum(jnp.matmul(basis.T, rows, precision=HIGHEST) ** 2)


def prepared(known: Array, n_components: int, *, is_centred: bool) -> PCAShared:
    """The known records (n-1, d), less their mean or not, in their principal basis; host, float64.

    Raises:
        ValueError: known is not a finite numeric matrix, or n_components > min(n, d).
    """
    array = validate.matrix(known, "known")
    base.check_components(n_components, array.shape[0] + 1, array.shape[1])
    mean, basis, singular, scores = scatter_basis(array, is_centred=is_centred)
    return _shared(mean, basis, singular, scores, n_components, compute_dtype(array))


def prepared_factored(
    known: Array, n_components: int, dtype: Any, *, is_centred: bool
) -> tuple[PCAShared, streamed.Matrix]:
    """What `inserted_factors` takes, and the scores (n-1, r) of the known records (n-1, d), made when asked for.

    Raises:
        ValueError: known is not a finite numeric matrix, or n_components > min(n, d).
    """
    array = validate.matrix(known, "known")
    base.check_components(n_components, array.shape[0] + 1, array.shape[1])
    if streamed.is_large(*array.shape):
        found = streamed.principal_directions(array, is_centred=is_centred)
        mean, singular, basis = found
        if not len(singular):
            singular, basis = np.zeros(1), np.eye(1, array.shape[1])
        scores: streamed.Matrix = streamed.Scores(array, mean, basis.T, directions=found)
    else:
        mean, basis, singular, scores = scatter_basis(array, is_centred=is_centred)
    apart = np.zeros((len(array), 0))
    return _shared(mean, basis, singular, apart, n_components, np.dtype(dtype)), scores


def _shared(
    mean: np.ndarray, basis: np.ndarray, singular: np.ndarray, scores: np.ndarray, n_components: int, dtype: np.dtype
) -> PCAShared:
    scale = float(singular[0]) if singular[0] > 0 else 1.0
    squares = np.append((singular / scale) ** 2, 0.0)
    n_roots = min(n_components + 1, len(squares))
    shared = PCAShared(
        mean=mean,
        scale=np.asarray(scale),
        basis=basis,
        scores=scores,
        poles=secular.make_poles(squares, n_roots, dtype),
        scatter=np.asarray(np.sum(squares)),
    )
    return jax.tree.map(lambda leaf: on_device(leaf, dtype), shared)


def inserted(shared: PCAShared, targets: Array, k: int, *, share: float) -> Embedding:
    """The scores (b, n, k) of [target; known] for targets (b, d); arguments as of `inserted_factors`."""
    found = inserted_factors(shared, targets, k, share=share)
    coords = expanded(found.coords, shared.scores)
    return found._replace(coords=coords, status=found.status | base.non_finite(coords))


def inserted_factors(shared: PCAShared, targets: Array, k: int, *, share: float) -> Embedding:
    """The factors of the scores of [target; known] for targets (b, d).

    Args:
        shared: Known records from `prepared`.
        targets: (b, d).
        k: Number of scores of a record.
        share: Part of a target's offset by which the point that records are taken about moves: 1 / n where it is the
            mean of all n records, 0 where it is 0.
    """
    base.check_targets(targets, shared.mean.shape[0])
    dtype = shared.basis.dtype
    offset = (jnp.asarray(targets, dtype) - shared.mean) / shared.scale
    weight = 1 - share  # scatter of n records = scatter of the known + weight * offset offset^T
    squared_norm = jnp.einsum("bd,bd->b", offset, offset, precision=HIGHEST)[:, None]
    # A nan would keep the root finder of its whole chunk from stopping.
    finite = jnp.isfinite(squared_norm)
    offset, squared_norm = jnp.where(finite, offset, 0), jnp.where(finite, squared_norm, 0)

    inside = jnp.matmul(offset, shared.basis.T, precision=HIGHEST)
    outside = jnp.maximum(squared_norm - jnp.sum(inside**2, axis=-1, keepdims=True), 0)
    # A vanishing coefficient makes an eigenvector 0/0. Lifting it to rounding level deflates its pole.
    eps = float(jnp.finfo(dtype).eps)
    floor = eps * jnp.sqrt(squared_norm + eps**2)
    inside = jnp.where(jnp.abs(inside) < floor, jnp.where(inside < 0, -floor, floor), inside)
    squared = jnp.concatenate([inside**2, jnp.maximum(outside, floor**2)], axis=-1)

    roots = secular.largest_roots(shared.poles, weight * squared)
    kept = min(k, roots.values.shape[1])
    norm = jnp.sqrt(roots.slope[:, :kept] / weight)
    inverse = 1 / (secular.distances(shared.poles, roots, kept) * norm[..., None])  # (b, k, r + 1)
    # Eigenvectors inside the basis, (b, k, r); beyond it they are `beyond` times the rest of the offset.
    coefficients, beyond = inside[:, None] * inverse[..., :-1], inverse[..., -1]
    eigenvalues = jnp.pad(roots.values, ((0, 0), (0, k + 1 - roots.values.shape[1])))
    gap = base.eigengap(eigenvalues, k)
    sign, margin = _certain_signs(shared, offset, inside, roots, coefficients, beyond, gap[:, :kept], weight)
    # The secular equation itself says that offset . eigenvector = -1 / (weight norm).
    along = -sign * shared.scale / (weight * norm)
    # Directions beyond those of the data have no variance: their coordinates are 0.
    fill = ((0, 0), (0, k - kept))
    factors = Factors(
        target=jnp.pad(jnp.where(finite, along * weight, jnp.nan), fill),
        turn=jnp.pad(jnp.where(finite[..., None], coefficients * sign[..., None], jnp.nan), (*fill, (0, 0))),
        shift=jnp.pad(jnp.where(finite, -along * share, jnp.nan), fill),
    )
    return jax.vmap(embedding_of)(
        factors,
        eigenvalues=eigenvalues * shared.scale**2,
        scatter=(shared.scatter + weight * squared_norm[:, 0]) * shared.scale**2,
        gap=gap,
        margin=jnp.pad(margin, fill),
        converged=roots.converged,
        n_iter=jnp.broadcast_to(roots.n_iter, (targets.shape[0],)),
        flags=base.non_finite(factors.target[:, None]) | base.non_finite(factors.turn),
    )


def _certain_signs(
    shared: PCAShared,
    offset: Array,
    inside: Array,
    roots: secular.Roots,
    coefficients: Array,
    beyond: Array,
    gap: Array,
    weight: float,
) -> tuple[Array, Array]:
    """scikit-learn's sign of each eigenvector and the margin that decides it, (b, k) each.

    An eigenvector is beyond * offset + sum_j (coefficient_j - beyond * inside_j) basis_j, and the terms of the tail's
    directions are small: without them no loading moves by more than their norm, which the tail's moments bound. Where
    the margin exceeds twice that for all lanes, the sum over the head decides; else it is taken over all directions.
    """
    shared, offset, inside, roots, coefficients, beyond, gap = jax.lax.stop_gradient(
        (shared, offset, inside, roots, coefficients, beyond, gap)
    )
    eps = float(jnp.finfo(offset.dtype).eps)
    rank = shared.basis.shape[0]
    n_head = min(shared.poles.gaps.shape[1], rank)
    terms = coefficients - beyond[..., None] * inside[:, None]

    def add(loadings: Array, part: slice) -> Array:
        return loadings + jnp.einsum("bkr,rd->bkd", terms[..., part], shared.basis[part], precision=HIGHEST)

    loadings = add(beyond[..., None] * offset[:, None], slice(n_head))
    sign, margin = sign_and_margin(loadings)
    if n_head == rank:
        return sign, margin
    kept = beyond.shape[1]
    # |coefficient - beyond * inside| = |beyond * inside| pole / (root - pole), and a root is TAIL_RATIO such poles.
    ratio = shared.poles.values[n_head] / roots.values[:, :kept]
    square = roots.moments[:, 2:3] / weight
    missing = jnp.abs(beyond) * ratio * jnp.sqrt(square) * (secular.TAIL_RATIO / (secular.TAIL_RATIO - 1))
    lower = margin - 2 * missing
    certain = lower * gap >= base.TIE * eps

    def from_all_directions() -> tuple[Array, Array]:
        exact_sign, exact_margin = sign_and_margin(add(loadings, slice(n_head, None)))
        # A lane must not see that others needed this.
        return jnp.where(certain, sign, exact_sign), jnp.where(certain, lower, exact_margin)

    return jax.lax.cond(jnp.all(certain), lambda: (sign, lower), from_all_directions)


def embedding_of(
    coords: Array | Factors,
    *,
    eigenvalues: Array,
    gap: Array,
    scatter: Array,
    margin: Array,
    converged: Array,
    n_iter: Array,
    flags: Array,
) -> Embedding:
    """Puts flags and diagnostics beside the coordinates of one PCA; eigenvalues (k+1,) decreasing, flags of coords."""
    k = eigenvalues.shape[0] - 1
    eps = float(jnp.finfo(eigenvalues.dtype).eps)
    status = (
        base.flag(~converged, Status.NOT_CONVERGED)
        | base.flag((eigenvalues[k - 1] <= 8 * eps * eigenvalues[0]) | (scatter <= 0), Status.DEGENERATE)
        | flags
        | base.sign_flags(margin, gap)
    )
    objective = jnp.maximum(scatter - jnp.sum(eigenvalues[:k]), 0)
    return Embedding(coords, objective, n_iter, status, PCAInfo(eigenvalues[:k], gap, margin))
