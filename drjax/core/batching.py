"""The one fan-out of drjax over lanes, memory and devices.

A batched function `fn(context, lanes)` is called on chunks of a fixed size, so that it compiles once; the last
chunk is filled up by repeating its last lane and the surplus is cut off before anybody sees it. The chunk size
comes from the bytes that one lane needs, unless the caller fixes it; there are few sizes, so that calls with other
numbers of lanes find the same program.
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend import core as jex_core
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from drjax.core import host, memory, named_calls, validate
from drjax.core.progress import shown
from drjax.core.types import PyTree

CPU_CHUNK_BYTES = 24 * 2**20
"""Working set of a chunk on a CPU: larger ones leave the cache and lose to memory traffic (see bench/README.md)."""

DEVICE_MEMORY_FRACTION = 0.4
"""Share of an accelerator's free memory that a chunk may take; the rest is XLA's and the caller's."""

HOST_LANES_PER_CORE = 64
"""A chunk of compiled host code is not made smaller than this: its cores wait for each other at the end of a chunk."""

_MANY_LANES = 2**16

_ELEMENTWISE = frozenset({"sub", "add", "mul", "integer_pow", "square", "broadcast_in_dim", "convert_element_type"})
_REDUCTIONS = frozenset({"reduce_sum", "reduce_max", "reduce_min"})

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
        batch_size: Lanes per chunk; chosen by `choose_batch_size` if None.
        mesh: Devices to shard a chunk over, along all its axes; the chunk size is rounded up to a multiple.
        start: First lane to compute; a multiple of the chunk size, so that a resumed run meets the same chunks.
        progress: Show rate and time left on standard error, see `core.progress`.
        description: What the bar calls a lane.

    Yields:
        (offset, results): results has a leading axis of at most the chunk size; where padding was removed, it is on the
        host, because every leaf cut on the device would be one more program for each number of lanes.

    Raises:
        ValueError: lanes of unequal length, or a `batch_size` or `start` out of range.
    """
    for offset, n, result in _padded_chunks(fn, context, lanes, batch_size, mesh, start, progress, description):
        yield offset, jax.tree.map(lambda leaf: leaf if leaf.shape[0] == n else np.asarray(leaf)[:n], result)  # noqa: B023


def map_lanes(
    fn: BatchedFn,
    context: PyTree,
    lanes: PyTree,
    *,
    batch_size: int | None = None,
    mesh: Mesh | None = None,
    progress: bool = False,
    description: str = "lanes",
) -> PyTree:
    """`iter_chunks` gathered into host arrays with leading axis m: peak memory is the output and one chunk."""
    m = int(np.shape(jax.tree.leaves(lanes)[0])[0])
    gathered: PyTree = None
    # The surplus of the last chunk is cut off on the host: on the device every leaf would be one more dispatch.
    for offset, n, result in _padded_chunks(fn, context, lanes, batch_size, mesh, 0, progress, description):
        if gathered is None:
            n_bytes = sum(leaf.dtype.itemsize * math.prod(leaf.shape[1:]) for leaf in jax.tree.leaves(result))
            what = f"holding the results of {m:,} {description}"
            memory.require(m * n_bytes, what, f"{memory.in_words(n_bytes)} each", "ask for fewer")
            gathered = jax.tree.map(lambda leaf: np.empty((m, *leaf.shape[1:]), leaf.dtype), result)
        for target, leaf in zip(jax.tree.leaves(gathered), jax.tree.leaves(result), strict=True):
            target[offset : offset + n] = np.asarray(leaf)[:n]
    return gathered


def _padded_chunks(
    fn: BatchedFn,
    context: PyTree,
    lanes: PyTree,
    batch_size: int | None,
    mesh: Mesh | None,
    start: int,
    progress: bool,
    description: str,
) -> Iterator[tuple[int, int, PyTree]]:
    """(offset, lanes that count, results of the whole chunk)."""
    leaves = jax.tree.leaves(lanes)
    lengths = {int(np.shape(leaf)[0]) for leaf in leaves}
    if len(lengths) != 1:
        raise ValueError(f"lanes must share one leading axis, got lengths {sorted(lengths)}")
    m = lengths.pop()
    size = batch_size or choose_batch_size(fn, context, lanes)
    validate.integer(batch_size=size)
    n_devices = mesh.size if mesh is not None else 1
    size = math.ceil(min(size, _one_of_few(max(1, m), 2 * max(1, m))) / n_devices) * n_devices
    validate.integer(minimum=0, start=start)
    if start % size and start < m:
        raise ValueError(f"start must be a multiple of the chunk size {size}, got {start}")

    if jax.default_backend() == "cpu":
        _keep_freed_memory()
    run = jax.jit(fn) if mesh is None else _on_mesh(fn, mesh)
    if mesh is not None:
        context = jax.device_put(context, NamedSharding(mesh, PartitionSpec()))
    with shown(description, m, start, enabled=progress) as advance:
        for offset in range(start, m, size):
            n = min(size, m - offset)
            chunk = jax.tree.map(lambda leaf: _padded(leaf, offset, n, size), lanes)  # noqa: B023
            if mesh is not None:
                chunk = jax.device_put(chunk, NamedSharding(mesh, PartitionSpec(mesh.axis_names)))
            result = jax.block_until_ready(run(context, chunk))
            advance(n)
            yield offset, n, result


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
    """Whether a chunk of that size takes no more than the budget beside its context and calls no host code.

    Costs nothing if such a chunk is run: `jit` keeps what it traces.
    """
    chunk = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((size, *np.shape(leaf)[1:]), _dtype(leaf)), lanes)
    jaxpr = jax.jit(fn).trace(context, chunk).jaxpr.jaxpr
    shared = sum(_n_bytes(var.aval) for var in jaxpr.invars[: len(jaxpr.invars) - len(jax.tree.leaves(lanes))])
    return _host_bytes(jaxpr) == 0 and _peak_bytes(jaxpr) - shared <= budget


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
        return _peak_bytes(jaxpr), _host_bytes(jaxpr)

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


def _dtype(leaf: Any) -> Any:
    if isinstance(leaf, (np.ndarray, np.generic, float, int)):  # a swept hyperparameter may be a plain number
        return jax.dtypes.canonicalize_dtype(np.result_type(leaf))
    return leaf.dtype


def _padded(leaf: Any, offset: int, n: int, size: int) -> Any:
    part = leaf[offset : offset + n]
    if n == size:
        return part
    xp = np if isinstance(part, np.ndarray) else jax.numpy
    return xp.concatenate([part, xp.repeat(part[-1:], size - n, axis=0)])


def _n_bytes(aval: Any) -> int:
    # Typed keys and tokens have no itemsize of their own; 8 bytes is a threefry key's.
    return math.prod(getattr(aval, "shape", ())) * getattr(getattr(aval, "dtype", None), "itemsize", 8)


def _peak_bytes(jaxpr: jex_core.Jaxpr) -> int:
    """Largest number of bytes alive at once when the equations run in order; arguments live throughout."""
    last_use: dict[Any, int] = {}
    for i, eqn in enumerate(jaxpr.eqns):
        for var in eqn.invars:
            if not isinstance(var, jex_core.Literal):
                last_use[var] = i
    for var in jaxpr.outvars:
        if not isinstance(var, jex_core.Literal):
            last_use[var] = len(jaxpr.eqns)
    fused = _fused(jaxpr)
    live = sum(_n_bytes(v.aval) for v in (*jaxpr.invars, *jaxpr.constvars))
    peak = live
    for i, eqn in enumerate(jaxpr.eqns):
        inner = [_peak_bytes(sub) for param in _params(eqn) for sub in _sub_jaxprs(param)]
        live += sum(_n_bytes(v.aval) for v in eqn.outvars if v not in fused)
        peak = max(peak, live + max(inner, default=0))
        dead = {v for v in (*eqn.invars, *eqn.outvars) if not isinstance(v, jex_core.Literal)}
        arguments = {*jaxpr.invars, *jaxpr.constvars}
        dead -= arguments | fused
        live -= sum(_n_bytes(v.aval) for v in dead if last_use.get(v, i) <= i)
    return peak


def _fused(jaxpr: jex_core.Jaxpr) -> set[Any]:
    """Results of elementwise operations that only a reduction reads, maybe through others: never in memory whole."""
    readers: dict[Any, list[Any]] = {}
    for eqn in jaxpr.eqns:
        for var in eqn.invars:
            if not isinstance(var, jex_core.Literal):
                readers.setdefault(var, []).append(eqn)
    kept = {var for var in jaxpr.outvars if not isinstance(var, jex_core.Literal)}
    fused: set[Any] = set()
    for eqn in reversed(jaxpr.eqns):
        if eqn.primitive.name in _ELEMENTWISE and len(eqn.outvars) == 1:
            (var,) = eqn.outvars
            others = readers.get(var, [])
            if var not in kept and others and all(_reads_in_passing(other, fused) for other in others):
                fused.add(var)
    return fused


def _reads_in_passing(eqn: Any, fused: set[Any]) -> bool:
    return eqn.primitive.name in _REDUCTIONS or all(var in fused for var in eqn.outvars)


def _host_bytes(jaxpr: jex_core.Jaxpr) -> int:
    """Bytes of all operands of calls to the host."""
    total = 0
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "pure_callback" or eqn.params.get("target_name") == named_calls.TARGET:
            total += sum(_n_bytes(v.aval) for v in eqn.invars)
        total += sum(_host_bytes(sub) for param in _params(eqn) for sub in _sub_jaxprs(param))
    return total


def _params(eqn: Any) -> list[Any]:
    """Parameters of an equation; of branches for different platforms only the one that will run here."""
    platforms = eqn.params.get("branches_platforms")
    if platforms is None:
        return list(eqn.params.values())
    here = jax.default_backend()
    return [b for b, p in zip(eqn.params["branches"], platforms, strict=True) if p is None or here in p][:1]


def _sub_jaxprs(param: Any) -> list[jex_core.Jaxpr]:
    if isinstance(param, jex_core.ClosedJaxpr):
        return [param.jaxpr]
    if isinstance(param, jex_core.Jaxpr):
        return [param]
    if isinstance(param, (tuple, list)):
        return [jaxpr for entry in param for jaxpr in _sub_jaxprs(entry)]
    return []
