"""One record put into a map of all others that does not move: thousands of shadows for the price of one map.

An approximation of insertion, where all records move. It is for training an attack alone: a release, or an evaluation,
made so would not be of the method. Coordinates are factors, the same rows for all shadows, and carry the status FROZEN.
"""

from __future__ import annotations

from typing import Any, ClassVar, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from drjax.core.streamed import Matrix
from drjax.core.types import Array, DRMethod, Embedding, PyTree, Status, hyperparams
from drjax.dr import base
from drjax.dr.factored import Factors


@runtime_checkable
class Freezable(Protocol):
    """A `DRMethod` that can put one record into a fixed map."""

    def prepare_frozen(self, key: Array, known: Array) -> tuple[PyTree, Array]:
        """What `insert_frozen` takes, and the map (n-1, k) of the known records (n-1, d), which draws from the key."""
        ...

    def insert_frozen(self, keys: Array, shared: PyTree, targets: Array) -> Embedding:
        """The places of targets (b, d) in that map: `Embedding`s with coords (b, k)."""
        ...


@hyperparams
class Frozen:
    """A method's maps of the known records with the target put in: a `drjax.dr.factored.Linear`.

    Attributes:
        method: The method.
    """

    name: ClassVar[str] = "frozen"
    has_factors = True
    method: DRMethod

    def __post_init__(self) -> None:
        if not isinstance(self.method, Freezable):
            raise ValueError(
                f"approx must be None for method {self.method.name!r}, which cannot put a record into a fixed map"
            )

    def prepare_factored(self, known: Array, *, dtype: Any, shared_key: Array | None = None) -> tuple[PyTree, Matrix]:
        """The map of known (n-1, d) on the host, and what the method needs to put a record into it."""
        key = jax.random.key(0) if shared_key is None else shared_key
        method: Any = self.method
        shared, coords = method.prepare_frozen(key, np.asarray(known, dtype))
        return shared, np.asarray(coords)

    def insert_factors(self, keys: Array, shared: PyTree, targets: Array) -> Embedding:
        """Each target's place, the others where they are."""
        method: Any = self.method
        made = method.insert_frozen(keys, shared, targets)
        place = made.coords
        b, k = place.shape
        turn = jnp.broadcast_to(jnp.eye(k, dtype=place.dtype), (b, k, k))
        flags = base.flag(jnp.ones(b, bool), Status.FROZEN)
        return made._replace(coords=Factors(place, turn, jnp.zeros((b, k), place.dtype)), status=made.status | flags)
