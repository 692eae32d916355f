"""What of a t-SNE map's forces tells a record, and what their noise hides, as the number of records grows.

    python -m experiments.leak_vs_n.forces       # MNIST, 300, 1,000 and 2,000 records, 3 decimals, minutes

The equations of `near_forces` are taken at the true records, with the prior that places give: how much of its variance
they leave with the noise of the map, and how much with next to none.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np
import tyro

from drjax.attacks.reconstruction import map_forces, near_forces
from drjax.reports.ladder import number
from experiments.leak_vs_n import releases
from experiments.markdown import markdown_table

LESS = 1e-3
"""Noise that is next to none, in units of the map's."""

HEADS = (
    "records",
    "noise of a force",
    "left by places",
    "left with forces, expected",
    "with a thousandth of the noise",
    "directions above the noise",
)


def main(
    *, n: tuple[int, ...] = (300, 1000, 2000), targets: int = 20, published: str = "3 decimals", seed: int = 0
) -> None:
    """Prints a row for each number of records: medians over targets, shares of the mean record's squared error.

    Args:
        n: Numbers of records of MNIST.
        targets: Records looked at, the first ones.
        published: Key of `releases.PUBLISHED`.
        seed: Seed of the order of records and of the release.
    """
    x = releases.dataset("mnist", seed, max(n)).x
    rows = [words(count, measured(x, count, targets, published, seed)) for count in n]
    print(markdown_table(HEADS, rows))


class Found(NamedTuple):
    """Medians over targets; errors as shares of the mean record's.

    Attributes:
        noise: Error of a force.
        places: Error that is left by the prior that places give.
        forces: Error to expect with the forces, too.
        less: The same, with `LESS` of the noise.
        directions: How many directions of a record stand above the noise.
    """

    noise: float
    places: float
    forces: float
    less: float
    directions: float


def words(count: int, found: Found) -> tuple[str, ...]:
    """The row of a number of records."""
    return f"{count:,}", f"{found.noise:.2g}", *(number(one) for one in found[1:4]), f"{found.directions:.0f}"


def measured(x: np.ndarray, count: int, targets: int = 20, published: str = "3 decimals", seed: int = 0) -> Found:
    """What places and forces tell of the first records of a t-SNE map.

    Args:
        x: Records in their order.
        count: Records of the map, the first ones.
        targets: Records looked at, the first ones.
        published: Key of `releases.PUBLISHED`.
        seed: Seed of the release.
    """
    way = releases.WAYS["t-SNE"]
    coords = releases.rounded(releases.released(way, x, count, targets, seed), published)
    with jax.enable_x64(True):
        made = map_forces.prepared(x[:count], coords, float(getattr(way.method, "perplexity", 0.0)))
        found = np.median([told(made, row) for row in range(targets)], axis=0)
    return Found(float(made.noise), *map(float, found))


def told(made: map_forces.Map, row: int) -> tuple[float, float, float, float]:
    """Squared error of the prior's mean, what forces leave with the map's noise and with `LESS` of it, as shares of the
    mean record's error; and the directions of the prior whose forces are above the noise."""
    equations, prior = near_forces.equations_of(made, row), near_forces.prior_of(made, row)
    truth, others = made.x[row].astype(np.float64), np.delete(made.x, row, axis=0)
    usual = float(np.sum((others.mean(axis=0) - truth) ** 2))
    values, vectors = np.linalg.eigh(np.asarray(prior.covariance))
    derivative = np.asarray(equations.linearise(np.zeros(0), truth)[1])
    moved = derivative @ (vectors * np.sqrt(np.maximum(values, 0)))
    _, singular, basis = np.linalg.svd(moved, full_matrices=False)
    # Of the prior's variance, what lies along each direction that the forces see.
    along = basis**2 @ np.maximum(values, 0)
    shares = [
        (values.sum() - (along * singular**2 / (singular**2 + noise**2)).sum()) / usual
        for noise in (made.noise, LESS * made.noise)
    ]
    missed = float(np.sum((np.asarray(prior.mean) - truth) ** 2)) / usual
    return missed, *shares, float((singular > made.noise).sum())


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
