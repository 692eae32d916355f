"""Plots of a noised share: records are chosen so that the share of a property in the plot is differentially private.

Noise on features or coordinates hides a share by hiding the plot. Here the plot stays sharp, and its share is another
one: the count of the records with the property gets discrete Laplace noise, and the plot's records are drawn to match.

**What is guaranteed.** How many records of the plot have the property is epsilon-DP in the property's values: two data
sets of N records that differ in the property of at most `n_changed` of them (neighbouring relation "replace_one" with
`n_changed` replaced at once; N, `group_size` and the two limits are public) give any count with probabilities at most a
factor exp(epsilon) apart. So an attack that sees this count alone tells shares that are n_changed / N apart from each
other no better than epsilon lets it. With n_changed = 1 a single person's property is hidden, and the share, which
moves by 1 / N, practically not: to hide the share itself, n_changed must be as large as the difference to hide.

**What is not.** Which records are in the plot, where they lie, and so the property of each as far as its place shows
it: that records with the property lie where they do is a fact about them, whatever their number in the plot. Nor is it
hidden whether a release was refused (see `sample`).

Source for hiding a property of a whole data set: Zhang, Ohrimenko & Cummings, "Attribute privacy" (2022).
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import jax
import numpy as np

from drjax.attacks.property.groups import Groups
from drjax.bounds import tradeoff
from drjax.bounds.curve import number
from drjax.bounds.gdp import check_positive
from drjax.core import validate
from drjax.core.types import Array
from drjax.defenses.exact_noise import discrete_laplace


@dataclass(frozen=True, kw_only=True)
class NoisedProportion:
    """How the records of a plot are chosen.

    Attributes:
        epsilon: Epsilon of the pure guarantee, finite and > 0.
        n_changed: Records whose property neighbours may differ in, >= 1. See the module.
        low, high: Public limits of the plot's share, 0 <= low < high <= 1.
    """

    epsilon: float
    n_changed: int
    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        """Checks every field."""
        check_positive(epsilon=number(epsilon=self.epsilon))
        validate.integer(n_changed=self.n_changed)
        validate.probability(low=self.low, high=self.high)
        if not self.low < self.high:
            raise ValueError(f"low must be < high = {self.high}, got {self.low}")

    @property
    def curve(self) -> tradeoff.EpsilonDelta:
        """The guarantee: pure, under "replace_one" with `n_changed` records replaced at once."""
        return tradeoff.EpsilonDelta(self.epsilon, 0.0, neighbouring="replace_one")

    @property
    def noise_scale(self) -> float:
        """Scale of the noise on the count, records; its mean size where it is large against 1."""
        return self.n_changed / self.epsilon

    def release(self, has_property: Array, group_size: int) -> np.ndarray:
        """The rows (group_size,) of a plot to publish, with noise from the operating system.

        Raises:
            ValueError: as `sample`.
        """
        return self._choose(np.asarray(has_property), group_size, os.urandom, np.random.default_rng())

    def sample(self, key: Array, has_property: Array, group_size: int) -> np.ndarray:
        """`release` whose draws follow from a key: for experiments, since whoever has the key can take the noise off.

        Args:
            key: A key from `jax.random.key`.
            has_property: (N,) bool.
            group_size: Records of the plot, at least 1.

        Returns:
            (group_size,) int32 rows, all different, in random order.

        Raises:
            ValueError: not booleans, a number out of range, or fewer records with or without the property than the
                limits may ask for: group_size * high with and group_size * (1 - low) without it. Checked before any
                noise, and for all counts that noise may give; that it holds is not part of the guarantee, so check
                it on public knowledge before a release.
        """
        validate.prng_key(key)
        rng = np.random.default_rng(np.asarray(jax.random.bits(key, (4,), np.uint32)))
        return self._choose(np.asarray(has_property), group_size, rng.bytes, rng)

    def sample_groups(self, key: Array, has_property: Array, groups: Groups, group_size: int) -> Groups:
        """One plot from each group, taken as a data set of its own; its proportion stays the group's, the secret.

        Args:
            key: Plot i depends on the key and i alone.
            has_property: (N,) bool, of all records.
            groups: Groups from `groups.sample_groups`, each with more records than a plot has.
            group_size: Records of a plot.
        """
        flags = np.asarray(has_property)
        rows = [
            own[self.sample(jax.random.fold_in(key, i), flags[own], group_size)] for i, own in enumerate(groups.rows)
        ]
        return Groups(np.stack(rows), groups.proportions)

    def _choose(
        self, flags: np.ndarray, group_size: int, bits: Callable[[int], bytes], rng: np.random.Generator
    ) -> np.ndarray:
        validate.integer(group_size=group_size)
        if flags.ndim != 1 or flags.dtype != np.bool_:
            raise ValueError(f"has_property must be (N,) booleans, got shape {flags.shape} of {flags.dtype}")
        fewest, most = math.ceil(self.low * group_size), math.floor(self.high * group_size)
        if fewest > most:
            raise ValueError(f"low and high must leave a count of {group_size} records, got {self.low} and {self.high}")
        sides = np.flatnonzero(flags), np.flatnonzero(~flags)
        if most > len(sides[0]) or group_size - fewest > len(sides[1]):
            raise ValueError(
                f"has_property must hold for {most} records and fail for {group_size - fewest}, whatever the noise "
                f"says; it holds for {len(sides[0])} and fails for {len(sides[1])}: narrow low and high, or plot fewer"
            )
        # In rational numbers: the scale of float64 division might be rounded down.
        noise = discrete_laplace(self.n_changed / Fraction(float(self.epsilon)), 1, bits=bits)
        noisy = len(sides[0]) + int(noise[0])
        # The rest is computed from the noisy count and from public numbers.
        count = min(max(round(Fraction(noisy * group_size, len(flags))), fewest), most)
        parts = rng.choice(sides[0], count, replace=False), rng.choice(sides[1], group_size - count, replace=False)
        return rng.permutation(np.concatenate(parts)).astype(np.int32)
