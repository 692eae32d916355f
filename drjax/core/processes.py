"""Lanes shared among the processes of `jax.distributed`: each computes its own, and results are exchanged once.

Nothing is sent while lanes are computed: a process that waits for another would lose the time of the slowest in every
chunk.
"""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh

from drjax.core.types import PyTree

EXCHANGED_BYTES = 64 * 2**20
"""Bytes that a process sends at a time: so much of every process is on each device meanwhile."""


def is_shared(mesh: Mesh | None) -> bool:
    """Whether a mesh has devices of several processes."""
    return mesh is not None and len({device.process_index for device in mesh.devices.flat}) > 1


def own_part(mesh: Mesh) -> Mesh:
    """The devices of this process in a mesh of several.

    Raises:
        ValueError: in every process alike, if processes have not equally many devices in the mesh.
    """
    owners = [device.process_index for device in mesh.devices.flat]
    counts = [owners.count(process) for process in range(jax.process_count())]
    if len(set(counts)) > 1:
        raise ValueError(f"mesh must have as many devices of every process, got {counts}")
    own = [device for device in mesh.devices.flat if device.process_index == jax.process_index()]
    return Mesh(np.array(own), ("lanes",))


def agreed(size: int, lanes: PyTree, context: PyTree) -> int:
    """The first process's chunk size; waits for all processes.

    Raises:
        ValueError: in every process, if lanes or keys are not the same in all of them.
    """
    return require_same(size, lanes=lanes, keys=_keys_of(context))


def require_same(number: int = 0, **trees: PyTree) -> int:
    """The first process's number; waits for all processes.

    Raises:
        ValueError: in every process, if a pytree, which its name is given of, is not the same in all of them.
    """
    sums = np.array([number, *map(_checksum, trees.values())], np.uint32)
    everywhere = np.asarray(multihost_utils.process_allgather(sums)).reshape(-1, len(sums))
    for column, name in enumerate(trees, start=1):
        others = np.flatnonzero(everywhere[:, column] != everywhere[0, column])
        if len(others):
            raise ValueError(f"{name} must be the same in every process, got others in process {others[0]} than in 0")
    return int(everywhere[0, 0])


def ranges(start: int, m: int, size: int) -> list[tuple[int, int]]:
    """Lanes [first, last) of each process: lanes start to m in whole chunks of `size`; no communication."""
    n_chunks, n_processes = max(0, math.ceil((m - start) / size)), jax.process_count()
    ends = [min(m, start + i * n_chunks // n_processes * size) for i in range(n_processes + 1)]
    return list(itertools.pairwise(ends))


def exchange(arrays: PyTree, ranges: Sequence[tuple[int, int]]) -> None:
    """Fills host arrays (m, ...), of which each process has its own lanes, with those of the others, bit for bit.

    Waits for all processes.

    Args:
        arrays: Pytree of C-contiguous arrays.
        ranges: Lanes of each process.
    """
    start, stop = ranges[jax.process_index()]
    longest = max(end - begin for begin, end in ranges)
    for leaf in (leaf for leaf in jax.tree.leaves(arrays) if leaf.size):
        # As bytes: JAX would round float64 where it is not enabled.
        rows = leaf.reshape(len(leaf), -1).view(np.uint8)
        step = max(1, EXCHANGED_BYTES // max(1, rows.shape[1]))
        for done in range(0, longest, step):
            sent = np.zeros((min(step, longest - done), rows.shape[1]), np.uint8)
            mine = rows[min(stop, start + done) : min(stop, start + done + len(sent))]
            sent[: len(mine)] = mine
            received = np.asarray(multihost_utils.process_allgather(sent))
            for (begin, end), part in zip(ranges, received, strict=True):
                target = rows[min(end, begin + done) : min(end, begin + done + len(sent))]
                target[:] = part[: len(target)]


def _keys_of(context: PyTree) -> list[Any]:
    return [leaf for leaf in jax.tree.leaves(context) if _is_key(leaf)]


def _is_key(leaf: Any) -> bool:
    return jax.dtypes.issubdtype(getattr(leaf, "dtype", np.float32), jax.dtypes.prng_key)


def _checksum(tree: PyTree) -> int:
    total = 0
    for leaf in jax.tree.leaves(tree):
        array = np.ascontiguousarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)
        total = zlib.crc32(f"{array.shape} {array.dtype}".encode(), total)
        total = zlib.crc32(array.tobytes(), total)
    return total
