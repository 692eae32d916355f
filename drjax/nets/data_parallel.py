"""Data of a training split over devices: each holds its share of the rows, and weights are the same on all.

What is computed is said of whole batches, as on one device, and XLA adds what it takes to do it on many: a batch's rows
are taken from the devices that hold them and split over all, and sums over its rows, of gradients and of a BatchNorm's
statistics, are sums over devices. What is drawn depends on keys alone. Only rounding tells how many devices there were.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from drjax.core import processes
from drjax.core.types import PyTree
from drjax.nets import evaluation
from drjax.nets.training_data import Data

ROWS = "rows"
"""Name of the axis of devices."""


def flat(mesh: Mesh | None) -> Mesh | None:
    """The devices of a mesh along one axis.

    Raises:
        ValueError: what is no mesh, or one without a device of this process.
    """
    if mesh is None:
        return None
    if not isinstance(mesh, Mesh):
        raise ValueError(f"mesh must be a jax.sharding.Mesh or None, got {mesh!r:.80}")
    if all(device.process_index != jax.process_index() for device in mesh.devices.flat):
        raise ValueError(f"mesh must have devices of every process, got none of process {jax.process_index()}")
    return Mesh(mesh.devices.ravel(), (ROWS,))


def is_writer(mesh: Mesh | None) -> bool:
    """Whether this process is the one of a mesh that writes what all have."""
    return not processes.is_shared(mesh) or jax.process_index() == 0


def spread(mesh: Mesh, data: Data, *, stacked: bool) -> Data:
    """Data of which each device holds its share of the rows; as many for all, the last ones of which may be repeated.

    Args:
        mesh: Devices, from `flat`; each process moves the rows of its own.
        data: Data on the host, the same in all processes.
        stacked: Whether there is an axis of members before the rows.
    """
    axis = int(stacked)
    sharding = NamedSharding(mesh, PartitionSpec(*[None] * axis, ROWS))

    def moved(array: np.ndarray) -> Array:
        m = array.shape[axis]
        shape = (*array.shape[:axis], math.ceil(m / mesh.size) * mesh.size, *array.shape[axis + 1 :])

        def share(index: Any) -> np.ndarray:
            first, last, _ = index[axis].indices(shape[axis])
            return array.take(np.minimum(np.arange(first, last), m - 1), axis=axis)

        return jax.make_array_from_callback(shape, sharding, share)

    return Data(*map(moved, data))


def placed(mesh: Mesh | None, data: Data, *, stacked: bool) -> Data:
    """`spread`, or on the default device."""
    return jax.device_put(data) if mesh is None else spread(mesh, data, stacked=stacked)


def everywhere(mesh: Mesh | None, tree: PyTree) -> PyTree:
    """A pytree, keys included, of which each device has all, or the default one; the same in all processes."""
    if mesh is None:
        return jax.device_put(tree)
    sharding = NamedSharding(mesh, PartitionSpec())

    def moved(leaf: Any) -> Array:
        if jax.dtypes.issubdtype(getattr(leaf, "dtype", np.float32), jax.dtypes.prng_key):
            return jax.random.wrap_key_data(moved(jax.random.key_data(leaf)), impl=jax.random.key_impl(leaf))
        array = np.asarray(leaf)
        return jax.make_array_from_callback(array.shape, sharding, array.__getitem__)

    return jax.tree.map(moved, tree)


def here(tree: PyTree) -> PyTree:
    """What every device has, as arrays of this process's first one."""
    return jax.tree.map(lambda leaf: leaf.addressable_data(0), tree)


def order_of(mesh: Mesh | None, key: Array, m: int) -> Array:
    """A random order of m rows, whole on every device."""
    return _placed(mesh, jax.random.permutation(key, m), PartitionSpec())


def batch_of(mesh: Mesh | None, array: Array, rows: Array) -> Array:
    """Some rows of an array, split over the devices."""
    return _placed(mesh, array[rows], PartitionSpec(ROWS))


def _placed(mesh: Mesh | None, array: Array, spec: PartitionSpec) -> Array:
    return array if mesh is None else jax.lax.with_sharding_constraint(array, NamedSharding(mesh, spec))


def outputs(mesh: Mesh | None, graph: Any, params: PyTree, rest: PyTree, inputs: Array, m: int) -> Array:
    """`evaluation.outputs` of the first m inputs; each device goes over its own."""
    run = partial(evaluation.outputs, graph)
    if mesh is None:
        return run(params, rest, inputs)
    own = PartitionSpec(ROWS)
    everything = PartitionSpec()
    split = jax.shard_map(run, mesh=mesh, in_specs=(everything, everything, own), out_specs=own, check_vma=False)
    return split(params, rest, inputs)[:m]
