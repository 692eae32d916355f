"""The one fan-out of drjax over lanes, memory and devices.

A batched function `fn(context, lanes)` is called on chunks of a fixed size, so that it compiles once; the last
chunk is filled up by repeating its last lane and the surplus is cut off before anybody sees it. The chunk size
comes from the bytes that one lane needs, unless the caller fixes it; there are few sizes, so that calls with other
numbers of lanes find the same program.
"""

from __future__ import annotations

import collections
import ctypes
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from drjax.core import host, memory, processes, validate
from drjax.core.progress import shown
from drjax.core.traced_bytes import host_bytes, n_bytes, peak_bytes
from drjax.core.types import PyTree

CPU_CHUNK_BYTES = 24 * 2**20
"""Working set of a chunk on a CPU: larger ones leave the cache and lose to memory traffic (see bench/README.md)."""

DEVICE_MEMORY_FRACTION = 0.3
"""Share of an accelerator's free memory that a chunk may take: results of the chunk before it and of the one that the
caller has are there at the same time."""

HOST_LANES_PER_CORE = 64
"""A chunk of compiled host code is not made smaller than this: its cores wait for each other at the end of a chunk."""

_MANY_LANES = 2**16

BatchedFn = Callable[[Any, Any], Any]


def iter_chunks(
    fn: BatchedFn,
    context: PyTree,
    lanes: PyTree,
    *,
    batch_size: int | None = None,
    mesh: Mesh | None = None,
    start: int = 0,
    progress: bool = False,
    description: str = "lanes",
) -> Iterator[tuple[int, PyTree]]:
    """Calls the jitted `fn(context, chunk)` on consecutive chunks of the lanes.

    Args:
        fn: A function of module level (jit caches on its identity); batched over the leading axis of its second
            argument. A lane's result must not depend on the other lanes.
        context: Arrays and hyperparameters that all lanes share; a pytree.
        lanes: A pytree of arrays with one leading axis m, on the host or a device.
        batch_size: Lanes that a device has at a time; chosen by `choose_batch_size` if None, and where there is a mesh
            so that all of its devices have some. Up to rounding results do not depend on it; on one type of processor
            they depend on nothing else, to the last bit.
        mesh: Devices that chunks are spread over, along all its axes. With devices of several processes
            (`jax.distributed`) each process takes whole chunks of its own, one after the other, and yields those
            alone; all of them must be given the same lanes.
        start: First lane to compute; a multiple of the batch size, so that a resumed run gives the same bits.
        progress: Show rate and time left on standard error, see `core.progress`.
        description: What the bar calls a lane.

    Yields:
        (offset, results): results has a leading axis of at most the chunk size; where padding was removed, it is on the
        host, because every leaf cut on the device would be one more program for each number of lanes.

    Raises:
        ValueError: lanes of unequal length, a `batch_size` or `start` out of range, a mesh that leaves a process out,
            or other lanes or keys in another process.
    """
    plan = _plan(fn, context, lanes, batch_size, mesh, start)
    for offset, n, result in _padded_chunks(plan, progress, description):
        yield offset, jax.tree.map(lambda leaf: leaf if leaf.shape[0] == n else np.asarray(leaf)[:n], result)  # noqa: B023


def map_lanes(
    fn: BatchedFn,
    context: PyTree,
    lanes: PyTree,
    *,
    batch_size: int | None = None,
    mesh: Mesh | None = None,
    device_out: bool = False,
    progress: bool = False,
    description: str = "lanes",
) -> PyTree:
    """`iter_chunks` gathered into host arrays with leading axis m: peak memory is the output and one chunk.

    With a mesh of several processes every one returns the whole, exchanged when all have ended. With `device_out`
    results are arrays on the default device, and never copied to the host.

    Raises:
        ValueError: as `iter_chunks`, or `device_out` with a mesh.
    """
    if device_out and mesh is not None:
        raise ValueError("device_out must be False with a mesh: iterate over chunks, which stay on their devices")
    plan = _plan(fn, context, lanes, batch_size, mesh, 0)
    if device_out:
        return _on_device(plan, progress, description)
    gathered: PyTree = None
    # The surplus of the last chunk is cut off on the host: on the device every leaf would be one more dispatch.
    for offset, n, result in _padded_chunks(plan, progress, description, to_host=True):
        if gathered is None:
            gathered = _room(result, plan.m, description)
        for target, leaf in zip(jax.tree.leaves(gathered), jax.tree.leaves(result), strict=True):
            target[offset : offset + n] = np.asarray(leaf)[:n]
    if plan.ranges is None:
        return gathered
    if gathered is None:  # all lanes are those of others
        like = jax.eval_shape(fn, context, jax.tree.map(lambda leaf: _like(leaf, plan.size), lanes))
        gathered = _room(like, plan.m, description)
    processes.exchange(gathered, plan.ranges)
    return gathered


def _on_device(plan: _Plan, progress: bool, description: str) -> PyTree:
    """Results of all lanes where they were computed."""
    whole: PyTree = None
    for offset, n, result in _padded_chunks(plan, progress, description):
        if n == plan.m == plan.size:
            return result
        if whole is None:
            whole = jax.tree.map(lambda leaf: jax.numpy.zeros((plan.m, *leaf.shape[1:]), leaf.dtype), result)
        whole = _placed(whole, result, offset, n)
    return whole


@functools.partial(jax.jit, donate_argnums=0, static_argnums=3)
def _placed(whole: PyTree, part: PyTree, offset: int, n: int) -> PyTree:
    """`whole` with the first n lanes of a chunk in their place."""
    place = functools.partial(jax.lax.dynamic_update_slice_in_dim, start_index=offset, axis=0)
    return jax.tree.map(lambda into, leaf: place(into, leaf[:n]), whole, part)


def _room(like: PyTree, m: int, description: str) -> PyTree:
    """Host arrays for m lanes of what a chunk of them gives."""
    own = sum(leaf.dtype.itemsize * math.prod(leaf.shape[1:]) for leaf in jax.tree.leaves(like))
    memory.require(
        m * own, f"holding the results of {m:,} {description}", f"{memory.in_words(own)} each", "ask for fewer"
    )
    return jax.tree.map(lambda leaf: np.empty((m, *leaf.shape[1:]), leaf.dtype), like)


class _Plan(NamedTuple):
    """Which lanes this process computes, and how.

    Attributes:
        fn, context, lanes: Function and its arguments.
        m: Number of lanes.
        start, stop: Lanes of this process.
        size: Lanes of a chunk on all of these devices.
        mesh: Devices of this process that a chunk is spread over; None for the default device.
        ranges: Lanes of every process; None where this one computes all.
    """

    fn: BatchedFn
    context: PyTree
    lanes: PyTree
    m: int
    start: int
    stop: int
    size: int
    mesh: Mesh | None
    ranges: list[tuple[int, int]] | None


def _plan(
    fn: BatchedFn, context: PyTree, lanes: PyTree, batch_size: int | None, mesh: Mesh | None, start: int
) -> _Plan:
    lengths = {int(np.shape(leaf)[0]) for leaf in jax.tree.leaves(lanes)}
    if len(lengths) != 1:
        raise ValueError(f"lanes must share one leading axis, got lengths {sorted(lengths)}")
    m = lengths.pop()
    validate.integer(minimum=0, start=start)
    is_shared = mesh is not None and processes.is_shared(mesh)
    own = mesh if mesh is None or not is_shared else processes.own_part(mesh)
    width = batch_size or choose_batch_size(fn, context, lanes)
    validate.integer(batch_size=width)
    if is_shared:
        width = processes.agreed(width, lanes, context)
    if mesh is not None and batch_size is None:
        width = min(width, max(1, math.ceil(m / mesh.size)))
    width = min(width, _one_of_few(max(1, m), 2 * max(1, m)))
    if start % width and start < m:
        raise ValueError(f"start must be a multiple of the chunk size {width}, got {start}")
    size = width * (own.size if own is not None else 1)
    ranges = processes.ranges(start, m, size) if is_shared else None
    first, last = ranges[jax.process_index()] if ranges is not None else (start, m)
    return _Plan(fn, context, lanes, m, first, last, size, own, ranges)


def _padded_chunks(
    plan: _Plan, progress: bool, description: str, *, to_host: bool = False
) -> Iterator[tuple[int, int, PyTree]]:
    """(offset, lanes that count, results of the whole chunk).

    On an accelerator the next chunk is computed while the caller has this one; `to_host` starts the copy of a chunk to
    the host as soon as it is there.
    """
    fn, context, lanes, _, start, stop, size, mesh, _ = plan
    if jax.default_backend() == "cpu":
        _keep_freed_memory()
    run = jax.jit(fn) if mesh is None else _on_mesh(fn, mesh)
    if mesh is not None:
        context = jax.device_put(context, NamedSharding(mesh, PartitionSpec()))
    ahead = _chunks_ahead()
    pending: collections.deque[tuple[int, int, PyTree]] = collections.deque()
    with shown(description, stop, start, enabled=progress) as advance:
        for offset in range(start, stop, size):
            n = min(size, stop - offset)
            chunk = jax.tree.map(lambda leaf: _padded(leaf, offset, n, size), lanes)  # noqa: B023
            if mesh is not None:
                chunk = jax.device_put(chunk, NamedSharding(mesh, PartitionSpec(mesh.axis_names)))
            result = run(context, chunk)
            if to_host and ahead:
                jax.tree.map(lambda leaf: leaf.copy_to_host_async(), result)
            pending.append((offset, n, result))
            while len(pending) > (ahead if offset + size < stop else 0):
                done = pending.popleft()
                jax.block_until_ready(done[2])
                advance(done[1])
                yield done


def _chunks_ahead() -> int:
    """Chunks that are computed while the caller has one: on a CPU both would be on the same cores."""
    return 0 if jax.default_backend() == "cpu" else 1


@functools.lru_cache(maxsize=64)
def _on_mesh(fn: BatchedFn, mesh: Mesh) -> BatchedFn:
    """`fn`, jitted, on each device for its own lanes: the compiler alone would gather lanes of all devices on each."""
    own = PartitionSpec(mesh.axis_names)
    # What lanes share is the same on all devices, but the results say nothing about that.
    return jax.jit(jax.shard_map(fn, mesh=mesh, in_specs=(PartitionSpec(), own), out_specs=own, check_vma=False))


def choose_batch_size(
    fn: BatchedFn, context: PyTree, lanes: PyTree, *, budget: int | None = None, also: Sequence[int] = ()
) -> int:
    """Lanes per chunk: what fits into `budget` bytes (default: what the device has to spare), evenly divided.

    At least 1; all chunks but the last are full, and the last one nearly. There are few sizes, so that other numbers of
    lanes find the same program: on a CPU, where every lane costs the same, multiples of a sixteenth of a power of two;
    elsewhere, where a chunk takes little longer than a lane and a program is long in compiling, powers of two.

    Compiled host code (`core.host.call`) holds few lanes in memory at once, but works long on each: none is surplus but
    in the last chunk, and chunks are kept short, so that progress shows, by counting what all lanes share as if each
    had a copy.

    Args:
        fn: Function, context and lanes as for `iter_chunks`.
        context: Context; only shapes matter.
        lanes: Lanes; only shapes matter.
        budget: Bytes.
        also: Numbers of lanes of other calls of `fn` in the same process; where one size suits all, it is found.
    """
    budget = budget if budget is not None else memory_budget()
    m = max(1, int(np.shape(jax.tree.leaves(lanes)[0])[0]))
    whole = _one_of_few(m, 2 * m)
    if not also and _fits(fn, context, lanes, whole, budget):
        return whole
    own, shared = _lane_costs(fn, context, lanes)
    fits = max(1, budget // max(1, own))
    if shared:
        fits = min(fits, max(HOST_LANES_PER_CORE * host.n_cores(), budget // shared))
        return math.ceil(m / math.ceil(m / fits))
    sizes = {count: _one_of_few(count, fits) for count in (m, *also)}
    least = min(sizes.values())
    return least if all(least >= count / 4 and _surplus(count, least) <= count / 8 for count in sizes) else sizes[m]


def _fits(fn: BatchedFn, context: PyTree, lanes: PyTree, size: int, budget: int) -> bool:
    """Whether a chunk of that size takes no more than the budget beside its context and, with host code, is short.

    Costs nothing if such a chunk is run: `jit` keeps what it traces.
    """
    chunk = jax.tree.map(lambda leaf: _like(leaf, size), lanes)
    jaxpr = jax.jit(fn).trace(context, chunk).jaxpr.jaxpr
    n_shared = len(jaxpr.invars) - len(jax.tree.leaves(lanes))
    own, calls_host = _own_bytes(jaxpr, n_shared)
    m = np.shape(jax.tree.leaves(lanes)[0])[0]
    return own <= budget and not (calls_host and size > min(m, HOST_LANES_PER_CORE * host.n_cores()))


@functools.lru_cache(maxsize=256)
def _own_bytes(jaxpr: Any, n_shared: int) -> tuple[int, bool]:
    """Peak of what a traced chunk holds beside its first `n_shared` arguments, and whether it calls host code."""
    shared = sum(n_bytes(var.aval) for var in jaxpr.invars[:n_shared])
    return peak_bytes(jaxpr) - shared, host_bytes(jaxpr) > 0


def _one_of_few(m: int, fits: int) -> int:
    """A chunk size for m lanes of which `fits` are possible at once."""
    if jax.default_backend() == "cpu":
        parts = math.ceil(m / fits)
        while (size := _rounded_up(math.ceil(m / parts))) > fits:
            parts += 1
        return size
    size = 1 << (m - 1).bit_length()
    if size > fits:
        size = 1 << (fits.bit_length() - 1)
        while _surplus(m, size) > m / 8:  # so many lanes are no longer free
            size //= 2
    return size


def _rounded_up(size: int) -> int:
    step = 1 << max(0, size.bit_length() - 5)
    return math.ceil(size / step) * step


def _surplus(m: int, size: int) -> int:
    """Lanes that fill up the last chunk."""
    return -m % size


def lane_bytes(fn: BatchedFn, context: PyTree, lanes: PyTree) -> int:
    """Bytes that one more lane adds to the peak of live intermediates, arguments and results of `fn`.

    Read from the traced program without running or compiling it: XLA's fusion only lowers the figure.
    """
    return _lane_costs(fn, context, lanes)[0]


def _lane_costs(fn: BatchedFn, context: PyTree, lanes: PyTree) -> tuple[int, int]:
    """`lane_bytes`, and the bytes that host code is given for all lanes together."""
    leaves, structure = jax.tree.flatten((context, lanes))
    n_lane_leaves = len(jax.tree.leaves(lanes))
    specs = [(np.shape(leaf), _dtype(leaf)) for leaf in leaves]
    # How many lanes there are says nothing of one.
    specs[-n_lane_leaves:] = [(shape[1:], dtype) for shape, dtype in specs[-n_lane_leaves:]]
    return _traced_costs(fn, structure, tuple(specs), n_lane_leaves)


@functools.lru_cache(maxsize=1024)
def _traced_costs(fn: BatchedFn, structure: Any, specs: tuple, n_lane_leaves: int) -> tuple[int, int]:
    def costs(b: int) -> tuple[int, int]:
        shapes = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in specs]
        shapes[-n_lane_leaves:] = [jax.ShapeDtypeStruct((b, *s.shape), s.dtype) for s in shapes[-n_lane_leaves:]]
        context, lanes = jax.tree.unflatten(structure, shapes)
        jaxpr = jax.make_jaxpr(fn)(context, lanes).jaxpr
        return peak_bytes(jaxpr), host_bytes(jaxpr)

    # Enough lanes for what grows with them to outweigh what does not, wherever the peak is; nothing is allocated.
    (few, few_host), (many, many_host) = costs(_MANY_LANES), costs(2 * _MANY_LANES)
    return max(1, (many - few) // _MANY_LANES), 2 * few_host - many_host


def memory_budget() -> int:
    """Bytes that one chunk may take on the default device."""
    device = jax.devices()[0]
    stats = device.memory_stats() if device.platform != "cpu" else None
    if not stats or "bytes_limit" not in stats:
        return CPU_CHUNK_BYTES
    return int(DEVICE_MEMORY_FRACTION * (stats["bytes_limit"] - stats.get("bytes_in_use", 0)))


@functools.cache
def _keep_freed_memory() -> None:
    """Tells glibc to keep what a chunk frees for the next one; elsewhere does nothing.

    By default it may go back to the system after every chunk and come again as fresh pages, whose faults took as
    long as the kernel itself. At most 1 GiB is kept that way.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # not glibc
        return
    trim_threshold, mmap_threshold = -1, -3
    mallopt(trim_threshold, 2**30)
    mallopt(mmap_threshold, 2**25)


def _like(leaf: Any, size: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((size, *np.shape(leaf)[1:]), _dtype(leaf))


def _dtype(leaf: Any) -> Any:
    if isinstance(leaf, (np.ndarray, np.generic, float, int)):  # a swept hyperparameter may be a plain number
        return jax.dtypes.canonicalize_dtype(np.result_type(leaf))
    return leaf.dtype


def _padded(leaf: Any, offset: int, n: int, size: int) -> Any:
    if isinstance(leaf, jax.Array):  # one program, whatever the offset
        part = jax.lax.dynamic_slice_in_dim(leaf, offset, n)
    else:
        part = leaf[offset : offset + n]
    if n == size:
        return part
    xp = np if isinstance(part, np.ndarray) else jax.numpy
    return xp.concatenate([part, xp.repeat(part[-1:], size - n, axis=0)])
