"""Aggregation of a map: what is published of a record is the place of a group or of a bin, not its own.

Neither has a privacy guarantee, and places of small groups tell nearly what the coordinates tell. What they do is
measured by attacks, among them one that subtracts the known members of a group.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from drjax.core import validate
from drjax.core.types import Array, hyperparams, traced
from drjax.defenses.noisy_dr import AfterMethod, told_spread

BLUR = 6.0
"""Width of what is left to who subtracts all other members of a group, in units of the map's spread: about that of the
whole map, so that no more is left than that the place is somewhere among the group's."""


@hyperparams
class Aggregation(AfterMethod):
    """What aggregations share: nothing is drawn."""

    @property
    def deterministic(self) -> bool:
        """Whether the wrapped method is deterministic: aggregation draws nothing."""
        return self.method.deterministic

    def _keys(self, key: Array) -> tuple[Array, Array]:
        return key, key


@hyperparams
class Groups(Aggregation):
    """Embeds, then puts every record near the centre of its group of at least `size` records.

    All records are halved at the median of their wider coordinate, and the halves again, until a half would have less
    than `size` records. A group of equal places is halved as they stand. O(n log^2 n).

    The exact mean of m places would give away each of them to who knows the others. A centre is therefore rounded to a
    grid of `BLUR` / m of the map's spread, so that what is left after subtraction is uncertain by `BLUR` of the spread.

    Attributes:
        method: The wrapped method.
        size: Least number of records of a group, >= 0; up to 1 changes nothing. Traced: a sweep compiles once.

    Source: LeFevre, DeWitt & Ramakrishnan (2006), Mondrian multidimensional k-anonymity, on coordinates.

    Example:
        >>> import drjax, jax
        >>> from drjax.defenses import Groups
        >>> x = drjax.load("digits").x[:60]
        >>> coords = Groups(method=drjax.PCA(), size=5).fit_transform(jax.random.key(0), x).coords
        >>> len(set(map(tuple, coords.tolist()))) <= 12  # places for 60 records, in groups of at least 5
        True
    """

    name: ClassVar[str] = "groups"
    action: ClassVar[str] = "Groups of records published at their centres"
    scale_field: ClassVar[str] = "size"
    scale_unit: ClassVar[str] = "least number of records of a group"

    size: Any = traced(default=0.0)

    def defended(self, key: Array, coords: Array) -> Array:
        """Coordinates (n, k), each the rounded mean of its group."""
        del key
        n = coords.shape[0]
        cell = jnp.zeros(n, jnp.int32)
        least = jnp.maximum(jnp.asarray(self.size, coords.dtype), 1)
        for level in range(math.ceil(math.log2(n)) if n > 1 else 0):
            cell = _halved(coords, cell, 2**level, least)
        sums = jax.ops.segment_sum(coords, cell, 2 ** math.ceil(math.log2(n)) if n > 1 else 1)
        counts = jnp.bincount(cell, length=len(sums)).astype(coords.dtype)
        means = sums / jnp.maximum(counts, 1)[:, None]
        grid = BLUR * told_spread(coords) / jnp.maximum(counts, 1)[:, None]
        # Places that are all the same have no spread.
        safe = jnp.where(grid > 0, grid, 1)
        centres = jnp.where(grid > 0, jnp.round(means / safe) * safe, means)
        # A group of one stays where it is to the last digit.
        return jnp.where((counts > 1)[cell, None], centres[cell], coords)

    def worked_out(self, key: Array, coords: np.ndarray, published: np.ndarray) -> np.ndarray:
        """The middle of where each record can be, by its group's box and what subtraction leaves; see `AfterMethod`.

        Subtraction leaves a place plus the blur. All members have one and the same, which would tell each from the
        others if it were kept: whoever attacks one of them cannot subtract for the others. It is drawn anew for each.
        """
        found = published.copy()
        half = 0.5 * BLUR * float(told_spread(jnp.asarray(coords)))
        off = half * np.asarray(jax.random.uniform(key, coords.shape, minval=-1.0, maxval=1.0), np.float64)
        _, group, sizes = np.unique(published, axis=0, return_inverse=True, return_counts=True)
        for members in np.split(np.argsort(group, kind="stable"), np.cumsum(sizes)[:-1]):
            if len(members) > 1:
                own = coords[members]
                left = own + off[members]
                low, high = np.maximum(left - half, own.min(axis=0)), np.minimum(left + half, own.max(axis=0))
                found[members] = (low + high) / 2
        return found


def _halved(coords: Array, cell: Array, n_cells: int, least: Array) -> jax.Array:
    """(n,) the cells in [0, 2 n_cells) that cells in [0, n_cells) become; one of less than 2 `least` stays whole."""
    highest = jax.ops.segment_max(coords, cell, n_cells)
    lowest = jax.ops.segment_min(coords, cell, n_cells)
    wider = jnp.argmax(highest - lowest, axis=1)
    value = jnp.take_along_axis(coords, wider[cell][:, None], axis=1)[:, 0]
    order = jnp.lexsort((value, cell))
    counts = jnp.bincount(cell, length=n_cells)
    first = jnp.cumsum(counts) - counts
    place = jnp.zeros(len(cell), jnp.int32).at[order].set(jnp.arange(len(cell), dtype=jnp.int32)) - first[cell]
    is_upper = (counts[cell] >= 2 * least) & (place >= counts[cell] // 2)
    return jnp.asarray(2 * cell + is_upper)


@hyperparams
class Hexagons(Aggregation):
    """Embeds, then puts every record at the centre of its hexagonal bin, as a hexbin plot shows it.

    Attributes:
        method: The wrapped method, of two coordinates.
        width: Distance between the centres of neighbouring bins, >= 0; 0 changes nothing. In units of the release's
            own spread (`told_spread`). Traced: a sweep compiles once.

    Raises:
        ValueError: method has not two coordinates.

    Source: Carr, Littlefield, Nicholson & Littlefield (1987), Scatterplot matrix techniques for large N.

    Example:
        >>> import drjax, jax
        >>> from drjax.defenses import Hexagons
        >>> x = drjax.load("digits").x[:60]
        >>> coords = Hexagons(method=drjax.PCA(), width=1.0).fit_transform(jax.random.key(0), x).coords
        >>> len(set(map(tuple, coords.tolist()))) < 30  # places for 60 records
        True
    """

    name: ClassVar[str] = "hexagons"
    action: ClassVar[str] = "Hexagonal bins published in place of points"
    scale_field: ClassVar[str] = "width"
    scale_unit: ClassVar[str] = "distance of neighbouring bins over the root mean square of the centred coordinates"

    width: Any = traced(default=0.0)

    def __post_init__(self) -> None:
        """Checks method and width."""
        Aggregation.__post_init__(self)
        if not validate.is_abstract(self.method.n_components) and self.method.n_components != 2:
            raise ValueError(f"n_components must be 2 for hexagons, got {self.method.n_components}")

    def defended(self, key: Array, coords: Array) -> Array:
        """Coordinates (n, 2), each the centre of its bin."""
        del key
        width = jnp.asarray(self.width, coords.dtype) * told_spread(coords)
        # The inner choice keeps 0 / 0 out of the branch that is not taken, and so out of the derivative.
        safe = jnp.where(width > 0, width, 1)
        period = jnp.stack([safe, safe * math.sqrt(3)])
        # Centres are those of two rectangular lattices, one of them half a period aside.
        even = jnp.round(coords / period) * period
        odd = (jnp.floor(coords / period) + 0.5) * period
        is_even = jnp.sum((coords - even) ** 2, axis=1) <= jnp.sum((coords - odd) ** 2, axis=1)
        return jnp.where(width > 0, jnp.where(is_even[:, None], even, odd), coords)
