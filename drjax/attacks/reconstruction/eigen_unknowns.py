"""What scores behind steps leave unknown of their target: features that vary, and how many others are new."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from drjax.attacks.reconstruction.eigen_equations import split_steps, through


class Unknowns(NamedTuple):
    """What is unknown of a record: features that vary among the known ones, and how many others are new.

    Attributes:
        record: (d,), the first known record.
        where: (p,), places of the features that count by their value.
        fixed: (c,), places of those of which any other value makes the same column.
        new: (n,), that column, or zeros.
    """

    record: np.ndarray
    where: np.ndarray
    fixed: np.ndarray
    new: np.ndarray

    def of(self, x: np.ndarray) -> np.ndarray:
        """(m, p + 1) unknowns of records (m, d)."""
        n_new = (x[:, self.fixed] != self.record[self.fixed]).sum(axis=1)
        return np.concatenate([x[:, self.where], n_new[:, None]], axis=1)


def unknowns_of(steps: tuple[Any, ...], known: np.ndarray, *, is_centred: bool) -> Unknowns:
    """What a release of the known records (n-1, d) and one more says of the one more."""
    n, d = len(known) + 1, known.shape[1]
    record = known[0]
    single, rest = split_steps(steps)
    with jax.enable_x64(True):
        own = np.asarray(through(single, jnp.asarray(known)))
        is_fixed = (own == own[0]).all(axis=0)

        def column(value: float) -> np.ndarray:
            """What a feature that is constant in the known records becomes where the target's is another."""
            one = np.full((n, own.shape[1]), 1.0)
            one[0] += value
            made = np.asarray(through(rest, jnp.asarray(one)))[:, 0]
            return made - made.mean() if is_centred else made

        once, twice = column(1.0), column(2.0)
    if not is_fixed.any() or own.shape[1] != d or not np.allclose(once, twice, rtol=1e-9, atol=1e-12):
        return Unknowns(record, np.arange(d), np.arange(0), np.zeros(n))
    return Unknowns(record, np.flatnonzero(~is_fixed), np.flatnonzero(is_fixed), once)


def alone_in(known: np.ndarray) -> np.ndarray:
    """(n-1,), for each known record the features in which it alone differs from all others."""
    differs = known != np.median(known, axis=0)
    alone = differs.sum(axis=0) == 1
    return differs[:, alone].sum(axis=1)
