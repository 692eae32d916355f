"""Contracts, eager checks, the single fan-out and linear algebra; imports nothing else of drjax.

Example:
    >>> import jax, numpy as np
    >>> from drjax.core import batching
    >>> @jax.jit
    ... def norms(context, lanes):
    ...     return jax.numpy.abs(lanes @ context)
    >>> weights, lanes = np.ones(3, np.float32), np.ones((60, 3), np.float32)
    >>> batching.map_lanes(norms, weights, lanes, batch_size=16).shape
    (60,)
    >>> [start for start, _ in batching.iter_chunks(norms, weights, lanes, batch_size=16)]
    [0, 16, 32, 48]
    >>> batching.lane_bytes(norms, weights, lanes) < batching.memory_budget()
    True
    >>> 1 <= batching.choose_batch_size(norms, weights, lanes) <= 60
    True
"""
