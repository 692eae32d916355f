"""A method of which nothing is known but its map: what an adversary has who does not find out how a map was made."""

from __future__ import annotations

from typing import ClassVar, NoReturn

from drjax.core import validate
from drjax.core.types import Array, Cost, hyperparams


@hyperparams
class Unnamed:
    """Whatever made a map that no known method made. It makes none itself, so that attacks learn from the map alone.

    Attributes:
        n_components: Coordinates of a record, k >= 1.

    Example:
        >>> import jax, numpy as np
        >>> from drjax.dr import Unnamed
        >>> Unnamed().fit_transform(jax.random.key(0), np.eye(4))
        Traceback (most recent call last):
        ...
        ValueError: method must be known to make a map, got one that is not
    """

    name: ClassVar[str] = "unnamed"
    title = "unrecognised"
    unit = None
    minimises = None
    deterministic = True
    repeatable = False
    stationary = False
    n_components: int = 2

    def __post_init__(self) -> None:
        validate.integer(n_components=self.n_components)

    def cost(self, n: int, d: int, *, itemsize: int = 4) -> Cost:
        """Nothing; see `DRMethod.cost`."""
        del n, d, itemsize
        return Cost(0.0, 0.0, 0.0, 0.0)

    def fit_transform(self, key: Array, x: Array) -> NoReturn:
        """Raises ValueError, as all that would make a map; see `DRMethod`."""
        del key, x
        _refuse()

    def objective(self, coords: Array, x: Array) -> NoReturn:
        """Raises ValueError."""
        del coords, x
        _refuse()

    def prepare(self, known: Array, *, shared_key: Array | None = None) -> NoReturn:
        """Raises ValueError."""
        del known, shared_key
        _refuse()

    def insert(self, key: Array, shared: None, target: Array) -> NoReturn:
        """Raises ValueError."""
        del key, shared, target
        _refuse()

    def insert_batch(self, keys: Array, shared: None, targets: Array) -> NoReturn:
        """Raises ValueError."""
        del keys, shared, targets
        _refuse()


def _refuse() -> NoReturn:
    raise ValueError("method must be known to make a map, got one that is not")
