"""Shadow releases: the embeddings an adversary computes for every candidate record beside the known ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import jax
import numpy as np
from jax.sharding import Mesh

from drjax.attacks.attack import Cost
from drjax.core import batching, host, validate
from drjax.core.linalg import compute_dtype
from drjax.core.types import Array, DRMethod, Embedding, PyTree

Randomness = Literal["fresh", "shared"]
RANDOMNESS: tuple[Randomness, ...] = ("fresh", "shared")
"""fresh: every shadow draws anew (the adversary does not know the seed); shared: all draw the same (seed known)."""

FLOPS = 4e9
"""Operations a second of compiled loops on one core, to a factor of about two: enough to say seconds or hours."""

DENSE_FLOPS = 2e10
"""Operations a second of products and decompositions of matrices, to a factor of about two."""


def shadow_embeddings(
    key: Array,
    method: DRMethod,
    known: Array,
    targets: Array,
    *,
    randomness: Randomness = "fresh",
    batch_size: int | None = None,
    mesh: Mesh | None = None,
    progress: bool = False,
) -> Embedding:
    """Embeds [target_i; known] for every target; row 0 of each embedding is its target's.

    Args:
        key: What shadow i draws depends on the key and i alone, whatever m, the chunk size, the mesh or a restart.
        method: What is released.
        known: (n-1, d), the records the adversary knows.
        targets: (m, d), one candidate per shadow.
        randomness: "fresh" if the adversary does not know the seed of the release, "shared" if they do.
        batch_size: Shadows per chunk; from the memory of the device if None.
        mesh: Devices to spread each chunk over.
        progress: Show a bar with rate and time left.

    Returns:
        An Embedding of host arrays with a leading axis m: coords (m, n, k). On the device there is never more than
        one chunk. Statuses are per lane; count them with `core.types.count_status`.

    Raises:
        ValueError: data not finite or of the wrong shape, an unknown randomness, a hyperparameter out of range for n.

    Example:
        >>> import drjax, jax
        >>> x = drjax.load("digits").x
        >>> drjax.shadow_embeddings(jax.random.key(0), drjax.PCA(), x[:99], x[100:110]).coords.shape
        (10, 100, 2)
    """
    context, lanes, kernel = _plan(key, method, known, targets, randomness)
    options: dict[str, Any] = {"batch_size": batch_size, "mesh": mesh, "progress": progress}
    return batching.map_lanes(kernel, context, lanes, description="shadows", **options)


def iter_shadow_embeddings(
    key: Array,
    method: DRMethod,
    known: Array,
    targets: Array,
    *,
    randomness: Randomness = "fresh",
    batch_size: int | None = None,
    mesh: Mesh | None = None,
    start: int = 0,
    progress: bool = False,
) -> Iterator[tuple[int, Embedding]]:
    """`shadow_embeddings` in chunks, for m too large to hold or to resume a run at a recorded chunk.

    Args:
        start: First shadow to compute, a multiple of the chunk size; with the same `batch_size` a resumed run
            meets the same chunks and its results are bit-identical. Other arguments as `shadow_embeddings`.

    Yields:
        (index of the chunk's first shadow, Embedding with a leading axis of at most batch_size, on the device but for a
        last chunk that is not full).
    """
    context, lanes, kernel = _plan(key, method, known, targets, randomness)
    yield from batching.iter_chunks(
        kernel,
        context,
        lanes,
        batch_size=batch_size,
        mesh=mesh,
        start=start,
        progress=progress,
        description="shadows",
    )


def shadow_batch_size(
    method: DRMethod, known: Array, targets: Array, *, randomness: Randomness = "fresh", also: Sequence[int] = ()
) -> int:
    """The chunk size that `shadow_embeddings` would choose: record it to resume with the same chunks.

    Args:
        method, known, targets, randomness: Arguments as for `shadow_embeddings`.
        also: Numbers of targets of other calls with as many known records; where one size suits all, it is found, and
            all of them run one program.
    """
    context, lanes, kernel = _plan(jax.random.key(0), method, known, targets, randomness)
    return batching.choose_batch_size(kernel, context, lanes, also=also)


def shadow_needs(method: DRMethod, n: int, d: int, m: int, *, itemsize: int = 4) -> Cost:
    """What `shadow_embeddings` of m data sets of n records with d features take, by the method's own `cost`.

    Seconds are of this machine's cores, and bytes without the results.

    A method of a caller's own that does not say what it costs is taken to need no more than the records.
    """
    if not hasattr(method, "cost"):
        return Cost(0.0, 8.0 * n * d)
    cost, at_once = method.cost(n, d, itemsize=itemsize), min(m, host.n_cores())
    # A chunk of lanes that XLA computes together is kept to a size of its own.
    own = max(at_once * cost.bytes, min(m * cost.bytes, batching.CPU_CHUNK_BYTES))
    return Cost((cost.shared_flops + m * cost.flops / at_once) / FLOPS, cost.shared_bytes + own)


def _plan(
    key: Array, method: DRMethod, known: Array, targets: Array, randomness: Randomness
) -> tuple[PyTree, PyTree, batching.BatchedFn]:
    validate.prng_key(key)
    validate.one_of(RANDOMNESS, randomness=randomness)
    known = validate.matrix(known, "known")
    targets = validate.matrix(targets, "targets", columns=known.shape[1])
    # The release is computed in the dtype of the known records; targets must not silently widen or narrow it.
    targets = targets.astype(compute_dtype(known), copy=False)
    draw_key, shared_key = jax.random.split(key)
    shared = method.prepare(known, shared_key=shared_key if randomness == "shared" else None)
    lanes = (np.arange(len(targets), dtype=np.uint32), targets)
    return (method, draw_key, shared), lanes, _insert_chunk


def _insert_chunk(context: PyTree, lanes: PyTree) -> Embedding:
    method, key, shared = context
    indices, targets = lanes
    keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, indices)
    return method.insert_batch(keys, shared, targets)
