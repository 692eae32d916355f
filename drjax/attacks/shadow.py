"""Shadow releases: the embeddings an adversary computes for every candidate record beside the known ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from drjax.attacks.cost import Cost
from drjax.attacks.prepared import Prepared
from drjax.core import batching, host, streamed, validate
from drjax.core.linalg import compute_dtype
from drjax.core.types import Array, DRMethod, Embedding, PyTree
from drjax.dr.factored import FactoredCoords, checked, has_factors
from drjax.dr.frozen import Frozen

Randomness = Literal["fresh", "shared"]
RANDOMNESS: tuple[Randomness, ...] = ("fresh", "shared")
"""fresh: every shadow draws anew (the adversary does not know the seed); shared: all draw the same (seed known)."""

Approximation = Literal["frozen"]
APPROXIMATIONS: tuple[Approximation, ...] = ("frozen",)
"""frozen: the target is put into one map of the known records, which does not move; see `drjax.dr.frozen`."""

FLOPS = 4e9
"""Operations a second of compiled loops on one core, to a factor of about two: enough to say seconds or hours."""

DENSE_FLOPS = 2e10
"""Operations a second of products and decompositions of matrices, to a factor of about two."""


LONG_SECONDS, CHUNK_SECONDS = 3.0, 30.0
"""Time of a shadow on one core from which on chunks are kept short, and about how long a chunk then takes on all cores:
progress shows after every chunk, and a run that is killed loses the one that it was at."""


def shadow_embeddings(
    key: Array,
    method: DRMethod,
    known: Array,
    targets: Array,
    *,
    randomness: Randomness = "fresh",
    batch_size: int | None = None,
    mesh: Mesh | None = None,
    factored: bool = False,
    approx: Approximation | None = None,
    dtype: Any = None,
    device_out: bool = False,
    progress: bool = False,
) -> Embedding:
    """Embeds [target_i; known] for every target; row 0 of each embedding is its target's.

    Args:
        key: What shadow i draws depends on the key and i alone, whatever m, the chunk size, the mesh or a restart.
        method: What is released.
        known: (n-1, d), the records the adversary knows.
        targets: (m, d), one candidate per shadow.
        randomness: "fresh" if the adversary does not know the seed of the release, "shared" if they do.
        batch_size: Shadows that a device has at a time; from its memory if None. On one type of processor results
            depend on nothing else, to the last bit, and on this up to rounding.
        mesh: Devices to spread shadows over. With devices of several processes (`jax.distributed`), all of which must
            call this alike, each computes shadows of its own, and all return the whole, exchanged once at the end.
        factored: Keep of each embedding what it does not share with the others, kilobytes whatever n is, and make
            coordinates when they are asked for: `coords[i]`, `coords[:, 0]` or `np.asarray(coords)`. Of PCA, truncated
            SVD, classical MDS of Euclidean distances and random projections; `known` may then be mapped from a file
            and is never copied.
        approx: "frozen" puts each target into one map of the known records that does not move, for t-SNE and UMAP: to
            train an attack on, never a release nor an evaluation. Coordinates are then factored and have the status
            FROZEN.
        dtype: Floating-point type that embeddings are computed in; that of `known` if None.
        device_out: Leave the results on the default device, for a caller that goes on there. Targets that are there
            already are then not copied to the host either.
        progress: Show a bar with rate and time left.

    Returns:
        An Embedding of host arrays with a leading axis m: coords (m, n, k), a `drjax.dr.factored.FactoredCoords` if
        `factored`; arrays of the device with `device_out`. Otherwise the device never holds more than three chunks (a
        CPU one). Statuses are per lane; count them with `core.types.count_status`.

    Raises:
        ValueError: data not finite or of the wrong shape, an unknown randomness, a hyperparameter out of range for n,
            `factored` for a method without factors, an unknown or impossible `approx`, or `device_out` with factored
            coordinates or a mesh.

    Example:
        >>> import drjax, jax
        >>> x = drjax.load("digits").x
        >>> drjax.shadow_embeddings(jax.random.key(0), drjax.PCA(), x[:99], x[100:110]).coords.shape
        (10, 100, 2)
    """
    if device_out and (factored or approx is not None):
        raise ValueError("device_out must be False for factored coordinates, which are made on the host")
    plan = _plan(
        key, method, known, targets, randomness, factored=factored, approx=approx, dtype=dtype, device_out=device_out
    )
    size = batch_size or _short_chunk(plan)
    options: dict[str, Any] = {"batch_size": size, "mesh": mesh, "device_out": device_out, "progress": progress}
    return plan.whole(batching.map_lanes(plan.kernel, plan.context, plan.lanes, description="shadows", **options))


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
    factored: bool = False,
    approx: Approximation | None = None,
    dtype: Any = None,
    kept: Prepared | None = None,
    progress: bool = False,
) -> Iterator[tuple[int, Embedding]]:
    """`shadow_embeddings` in chunks, for m too large to hold or to resume a run at a recorded chunk.

    Args:
        start: First shadow to compute, a multiple of `batch_size`; with the same `batch_size` the results of a resumed
            run are bit-identical.
        mesh: Devices as for `shadow_embeddings`; with those of several processes each is given chunks of its own alone.
        kept: Keeps what the method makes of the known records for calls that follow. Other arguments as
            `shadow_embeddings`.

    Yields:
        (index of the chunk's first shadow, Embedding with a leading axis of at most batch_size times the devices, on
        the device but for a last chunk that is not full).
    """
    plan = _plan(key, method, known, targets, randomness, factored=factored, approx=approx, dtype=dtype, kept=kept)
    chunks = batching.iter_chunks(
        plan.kernel,
        plan.context,
        plan.lanes,
        batch_size=batch_size or _short_chunk(plan),
        mesh=mesh,
        start=start,
        progress=progress,
        description="shadows",
    )
    yield from ((offset, plan.whole(chunk)) for offset, chunk in chunks)


def shadow_batch_size(
    method: DRMethod,
    known: Array,
    targets: Array,
    *,
    randomness: Randomness = "fresh",
    also: Sequence[int] = (),
    factored: bool = False,
    dtype: Any = None,
    kept: Prepared | None = None,
) -> int:
    """The chunk size that `shadow_embeddings` would choose: record it to resume with the same chunks.

    Args:
        method, known, targets, randomness, factored, dtype: Arguments as for `shadow_embeddings`.
        kept: As for `iter_shadow_embeddings`; of no use where the seed is known.
        also: Numbers of targets of other calls with as many known records; where one size suits all, it is found, and
            all of them run one program.
    """
    if randomness == "shared":
        kept = None  # what is made of another seed is nobody's
    plan = _plan(jax.random.key(0), method, known, targets, randomness, factored=factored, dtype=dtype, kept=kept)
    return _short_chunk(plan) or batching.choose_batch_size(plan.kernel, plan.context, plan.lanes, also=also)


def chunk_on_any_machine(method: DRMethod, n: int, d: int, most: int, *, itemsize: int = 4) -> int:
    """Shadows of a chunk, at most so many, by what the method says of its cost alone: half a minute of one core, and
    the memory of a chunk on a CPU. Workers of different machines agree on it."""
    if not hasattr(method, "cost"):
        return most
    cost = method.cost(n, d, itemsize=itemsize)
    in_memory, in_time = batching.CPU_CHUNK_BYTES / max(1, cost.bytes), CHUNK_SECONDS * FLOPS / max(1, cost.flops)
    return max(1, int(min(most, in_memory, in_time)))


def factored_at(method: DRMethod, n: int, d: int) -> bool:
    """Whether embeddings of n records of d features are better kept as factors: the method has them, and n is large."""
    return has_factors(method) and streamed.is_large(n, d)


def shadow_needs(method: DRMethod, n: int, d: int, m: int, *, itemsize: int = 4, factored: bool = False) -> Cost:
    """What `shadow_embeddings` of m data sets of n records with d features take, by the method's own `cost`.

    Seconds are of this machine's cores, and bytes without the results; if `factored`, with the factors and the
    coordinates of one.

    A method of a caller's own that does not say what it costs is taken to need no more than the records.
    """
    if not hasattr(method, "cost"):
        return Cost(0.0, 8.0 * n * d)
    cost, at_once = method.cost(n, d, itemsize=itemsize), min(m, host.n_cores())
    if factored:
        own = itemsize * (min(n, d) + 2.0) * method.n_components
        return Cost(cost.shared_flops / DENSE_FLOPS, streamed.bytes_of(d) + 8.0 * n * method.n_components + m * own)
    # A chunk of lanes that XLA computes together is kept to a size of its own.
    own = max(at_once * cost.bytes, min(m * cost.bytes, batching.CPU_CHUNK_BYTES))
    return Cost((cost.shared_flops + m * cost.flops / at_once) / FLOPS, cost.shared_bytes + own)


class _Plan(NamedTuple):
    """Shadows as lanes.

    Attributes:
        n: Records of each.
        kernel: What makes a chunk of them.
        context: What they share on the device.
        lanes: What they do not.
        rows: What factored ones share on the host; None of others.
        dtype: Type of the coordinates.
    """

    n: int
    kernel: batching.BatchedFn
    context: PyTree
    lanes: PyTree
    rows: Any
    dtype: np.dtype

    def whole(self, made: Embedding) -> Embedding:
        """Embeddings with coordinates in place of factors alone."""
        if self.rows is None:
            return made
        factors = jax.tree.map(np.asarray, made.coords)
        return made._replace(coords=FactoredCoords(factors, self.rows, self.dtype))


def _plan(
    key: Array,
    method: DRMethod,
    known: Array,
    targets: Array,
    randomness: Randomness,
    *,
    factored: bool = False,
    approx: Approximation | None = None,
    dtype: Any = None,
    device_out: bool = False,
    kept: Prepared | None = None,
) -> _Plan:
    validate.prng_key(key)
    validate.one_of(RANDOMNESS, randomness=randomness)
    if approx is not None:
        validate.one_of(APPROXIMATIONS, approx=approx)
    given, known = known, validate.matrix(known, "known")
    # What is on a device already is looked at there.
    check = validate.device_matrix if device_out and isinstance(targets, jax.Array) else validate.matrix
    targets = check(targets, "targets", columns=known.shape[1])
    # The release is computed in the dtype of the known records; targets must not silently widen or narrow it.
    in_dtype = dtype is not None and not factored
    dtype = compute_dtype(known if dtype is None else np.empty(0, dtype))
    if targets.dtype != dtype:
        targets = targets.astype(dtype)
    draw_key, shared_key = jax.random.split(key)
    own_key = shared_key if randomness == "shared" else None
    if approx is not None:
        # All shadows share the map, whose draws therefore are the shared ones.
        factored, own_key = True, shared_key
    made: Any = method if approx is None else Frozen(method=method)

    def prepare() -> tuple[PyTree, Any]:
        if factored:
            return checked(made).prepare_factored(known, dtype=dtype, shared_key=own_key)
        return made.prepare(known.astype(dtype, copy=False) if in_dtype else known, shared_key=own_key), None

    if kept is None:
        shared, rows = prepare()
    else:
        seed = None if own_key is None else jax.random.key_data(own_key).tobytes()
        shared, rows = kept.get(given, known, made, (str(dtype), factored, seed), prepare)
    lanes = (np.arange(len(targets), dtype=np.uint32), targets)
    kernel = _insert_factors_chunk if factored else _insert_chunk
    return _Plan(len(known) + 1, kernel, (made, draw_key, shared), lanes, rows, dtype)


def _short_chunk(plan: _Plan) -> int | None:
    """Shadows of a chunk where each takes long; None where the chunk's memory decides."""
    method, targets = plan.context[0], plan.lanes[1]
    if plan.rows is not None or not hasattr(method, "cost"):
        return None
    seconds = method.cost(plan.n, targets.shape[1], itemsize=targets.dtype.itemsize).flops / FLOPS
    if seconds < LONG_SECONDS:
        return None
    return min(max(1, len(targets)), host.n_cores() * max(1, int(CHUNK_SECONDS / seconds)))


def _insert_chunk(context: PyTree, lanes: PyTree) -> Embedding:
    method, keys, shared, targets = _opened(context, lanes)
    return method.insert_batch(keys, shared, targets)


def _insert_factors_chunk(context: PyTree, lanes: PyTree) -> Embedding:
    method, keys, shared, targets = _opened(context, lanes)
    return method.insert_factors(keys, shared, targets)


def _opened(context: PyTree, lanes: PyTree) -> tuple[Any, Array, PyTree, Array]:
    method, key, shared = context
    indices, targets = lanes
    return method, jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, indices), shared, targets
