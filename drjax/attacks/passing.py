"""Shadows that are made, added up and forgotten: any number of them, in the memory of some.

Regressions learn from sums: a range of shadows is made, added up (`RegressionSums`) and forgotten. Ranges are the tasks
of an executor, and their sums are merged in order: the result does not depend on who made them but for rounding.
Networks learn from an epoch's shadows, which are made for it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from drjax.attacks.prepared import Prepared
from drjax.attacks.shadow import chunk_on_any_machine, iter_shadow_embeddings, shadow_needs
from drjax.core import executors, validate
from drjax.core.executors import Executor
from drjax.core.regression_sums import RegressionSums, total
from drjax.core.types import Array, DRMethod, is_usable

RANGE = 10_000
"""Shadows of a task."""

CHUNK = 1024
"""Most of them that are made, and turned into inputs, at a time."""

AHEAD = 32
"""Ranges whose records are with workers at once, where nobody says how many workers there are."""

BLOCK = 2048
"""Held shadows whose inputs are made at a time where they are added up."""

MOST_INPUTS = 4096
"""Most inputs whose sums an audit keeps of each range: 0.13 GB."""

Inputs = Callable[[np.ndarray], np.ndarray]
"""Gives the inputs (m, p) of a regression for releases (m, n, k); a function of a module's top level, or an object that
can be pickled."""

Keep = Callable[[str, Callable[[], RegressionSums | None]], RegressionSums | None]
"""Gives the sums of a name, which it has kept, or has made by the function beside it."""


@dataclass(frozen=True, kw_only=True)
class PassingShadows:
    """Shadows [record; known] of many records, none of which is kept.

    Attributes:
        key: A key from `jax.random.key`; each range draws from one of its own.
        method: DR method.
        known: (n-1, d).
        records: (m, d), the adversary's own; an array, one mapped from a file (`np.load(path, mmap_mode="r")`), or
            anything with a length whose slices are arrays.
        dtype: "float32" or "float64", of the releases.
        decimals: Decimals that coordinates are rounded to; None if they are not.
        n_held: Leading records whose shadows somebody holds: sums are of the others.
        keep: Keeps the sums of ranges; nobody if None.
        prepared: Keeps what the method makes of the known records, for this process or for all that share a folder.

    Raises:
        ValueError: not a key, another type, or no records of the known ones' width.
    """

    key: Array
    method: DRMethod
    known: np.ndarray
    records: Any
    dtype: str = "float32"
    decimals: int | None = None
    n_held: int = 0
    keep: Keep | None = None
    prepared: Prepared = field(default_factory=Prepared, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Checks the key, the type and the records' width."""
        validate.prng_key(self.key)
        validate.one_of(("float32", "float64"), dtype=self.dtype)
        known = validate.matrix(self.known, "known")
        object.__setattr__(self, "known", known)
        if len(self.records) == 0 or np.shape(self.records[:1])[1:] != known.shape[1:]:
            raise ValueError(
                f"records must have shape (m, {known.shape[1]}), m >= 1, got {np.shape(self.records[:1])[1:]}"
            )

    @property
    def starts(self) -> range:
        """First record of each range."""
        return range(self.n_held, len(self.records), RANGE)

    def seconds(self, m: int | None = None) -> float:
        """Time that so many shadows take, or those of all ranges, on this machine."""
        count = len(self.records) - self.n_held if m is None else m
        itemsize = np.dtype(self.dtype).itemsize
        return shadow_needs(self.method, len(self.known) + 1, self.known.shape[1], count, itemsize=itemsize).seconds

    def of_range(self, start: int, inputs: Callable[[], Inputs], name: str) -> RegressionSums | None:
        """Sums over one range, by its first record, kept under a name; None where no shadow is usable.

        Args:
            start: One of `starts`.
            inputs: Makes what the regression is given of a release, if the sums are not kept yet.
            name: Name of the attack that they are for.
        """

        def make() -> RegressionSums | None:
            return _sums(self._draws(), self.records[start : start + RANGE], start, inputs(), self.prepared)

        return make() if self.keep is None else self.keep(f"{name}/{start:08d}", make)

    def sums(
        self,
        inputs: Inputs,
        name: str = "sums",
        *,
        executor: str | Executor | None = None,
        workers: int | None = None,
    ) -> RegressionSums:
        """Sums over all ranges; memory for some ranges' sums, whatever their number.

        Args:
            inputs: What the regression is given of a release. Shadows that are not usable have no part.
            name: Name that the sums of ranges are kept under, see `keep`.
            executor: Who makes the ranges, see `drjax.core.executors.run`; this process if None.
            workers: Workers to ask for.

        Raises:
            ValueError: an unknown executor, or no usable shadow at all.
        """
        if executor is None:
            found: Iterable[RegressionSums | None] = (self.of_range(at, lambda: inputs, name) for at in self.starts)
        else:
            executors.check(executor)
            draws = self._draws()
            tasks = _Tasks(self.starts, lambda at: (draws, np.asarray(self.records[at : at + RANGE]), at, inputs))
            ahead = AHEAD if workers is None else 4 * workers
            found = _in_order(executors.run(_sums, tasks, executor=executor, workers=workers, ahead=ahead))
        made = total(found)
        if made is None:
            raise ValueError(f"records must have usable shadows, got none among {len(self.records) - self.n_held:,}")
        return made

    def beside(self, coords: np.ndarray, records: np.ndarray, inputs: Inputs, name: str) -> RegressionSums:
        """`sums`, and with them those of the shadows that are held: coords (m, n, k) of records (m, d).

        Raises:
            ValueError: coords that are not finite; leave out unusable lanes before.
        """
        validate.matrix(np.reshape(coords, (len(coords), -1)), "coords")
        own = RegressionSums.of_blocks(inputs, coords, np.asarray(records, np.float64), BLOCK)
        return own.merged(self.sums(inputs, name))

    def held(self, records: np.ndarray, start: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Usable releases (m, n, k) of some records, which draw as a range that begins at `start`, and their records.

        Raises:
            ValueError: no shadow is usable.
        """
        parts = list(_shadows(self._draws(), records, start, self.prepared))
        if not parts:
            raise ValueError(f"records must have usable shadows, got none among {len(records):,}")
        coords, own = (np.concatenate(part) for part in zip(*parts, strict=True))
        return coords, own

    def epoch(self, number: int, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Releases (size, n, k) and records (size, d) of an epoch of a training: the next ones of all records.

        After the last the first come again, with other draws where the method draws. Where a shadow is not usable,
        another stands for it.
        """
        start = number * size
        at = start % len(self.records)
        own = np.asarray(self.records[at : at + size])
        if len(own) < size:
            own = np.concatenate([own, np.asarray(self.records[: size - len(own)])])
        coords, theirs = self.held(own, start)
        again = np.arange(size) % len(coords)
        return coords[again], theirs[again]

    def _draws(self) -> _Draws:
        data, impl = np.asarray(jax.random.key_data(self.key)), jax.random.key_impl(self.key)
        return _Draws(data, impl, self.method, self.known, self.dtype, self.decimals)


class _Draws(NamedTuple):
    """What all ranges share, as a task carries it: the key in parts."""

    key_data: np.ndarray
    impl: Any
    method: DRMethod
    known: np.ndarray
    dtype: str
    decimals: int | None


class _Tasks(Sequence):
    """Tasks whose records are read when they are asked for."""

    def __init__(self, starts: range, make: Callable[[int], tuple]) -> None:
        self._starts, self._make = starts, make

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, at: Any) -> Any:
        return self._make(self._starts[at])


def _in_order(found: Iterator[tuple[int, Any]]) -> Iterator[Any]:
    """Results by number, as soon as those before are there."""
    waiting, wanted = {}, 0
    for number, one in found:
        waiting[number] = one
        while wanted in waiting:
            yield waiting.pop(wanted)
            wanted += 1


def _sums(
    draws: _Draws, records: np.ndarray, start: int, inputs: Inputs, kept: Prepared | None = None
) -> RegressionSums | None:
    """Sums over one range; None where no shadow is usable."""
    shadows = _shadows(draws, records, start, kept or Prepared())
    return total(RegressionSums.of(inputs(coords), own) for coords, own in shadows)


def _shadows(draws: _Draws, records: np.ndarray, start: int, kept: Prepared) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Usable releases (m, n, k) of a range that begins at `start`, and their records (m, d), in chunks."""
    known, dtype = draws.known, np.dtype(draws.dtype)
    precise = functools.partial(jax.enable_x64, draws.dtype == "float64")
    with precise():
        key = jax.random.fold_in(jax.random.wrap_key_data(jnp.asarray(draws.key_data), impl=draws.impl), start)
        shape = len(known) + 1, known.shape[1]
        size = chunk_on_any_machine(draws.method, *shape, CHUNK, itemsize=dtype.itemsize)
        options = {"batch_size": size, "dtype": dtype, "kept": kept}
        chunks = iter_shadow_embeddings(key, draws.method, known, records, **options)
    while True:
        # Around no yield, which would leave it to whoever takes the chunk.
        with precise():
            chunk = next(chunks, None)
        if chunk is None:
            return
        at, coords = chunk[0], np.asarray(chunk[1].coords)
        usable = is_usable(chunk[1].status) & np.isfinite(coords).all(axis=(1, 2))
        if draws.decimals is not None:
            coords = np.round(coords, draws.decimals)
        if usable.any():
            yield coords[usable], np.asarray(records[at : at + len(coords)])[usable]
