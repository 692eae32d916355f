"""Blum, Ligett & Roth: a whole data set, chosen by the exponential mechanism because it answers public queries well.

    method = ExponentialMechanism(neighbouring="replace_one", box=box, n_candidates=1000)
    chosen = method.fit(key, x, None, 1.0, 0.0).sample(other_key, 10_000)

The source takes all data sets of some size over a discretised universe as candidates, which are too many to list. Here
they are discretised and few: `n_candidates` data sets of `n_records` records on a grid of `levels` values for each
feature. Candidate i is drawn from a public seed: for each class a box between two uniform points, and records uniform
in it, rounded to the grid; class shares are uniform on the simplex. Candidates that were uniform in the whole box would
all look alike, and choosing between them would tell nothing.

Its quality is minus the largest error over `n_queries` public queries: the share of records in a half-space, of every
class or of one. Replacing a record changes a share by 1 / n at most, and so the quality; candidate i is chosen with
probability proportional to exp(epsilon n quality_i / 2). That is epsilon-DP, and what is published is i.

Source: Blum, Ligett & Roth (2008), algorithm 1; McSherry & Talwar (2007) for the mechanism.
"""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from drjax.bounds import tradeoff
from drjax.bounds.accounting import Guarantee
from drjax.core import validate
from drjax.core.linalg import HIGHEST, compute_dtype
from drjax.core.types import Array, hyperparams
from drjax.synthesis.contract import TASKS
from experiments.pca_gauss.baselines.identity import ReleasedRecords, check_budget
from experiments.pca_gauss.baselines.labels import Labelled

CHUNK = 16
"""Candidates at a time, at most."""


@hyperparams
class ExponentialMechanism(Labelled):
    """The data set among public candidates that answers public queries most like the private one; numbers as a feature.

    The number of records must be public. See the module for candidates, queries and probabilities.

    Attributes:
        n_candidates: >= 1.
        n_records: Of a candidate, >= 1.
        n_queries: >= 1.
        levels: Values on the grid of a feature, >= 2.
        public_seed: Of candidates and queries; two fits with the same seed choose from the same.
    """

    name: ClassVar[str] = "exponential-mechanism"
    tasks: ClassVar[tuple[str, ...]] = TASKS

    n_candidates: int = 1000
    n_records: int = 200
    n_queries: int = 200
    levels: int = 11
    public_seed: int = 0

    def __post_init__(self) -> None:
        """Checks every field."""
        super().__post_init__()
        validate.one_of(("replace_one", "zero_out"), neighbouring=self.neighbouring)
        validate.integer(n_candidates=self.n_candidates, n_records=self.n_records, n_queries=self.n_queries)
        validate.integer(minimum=2, levels=self.levels)
        validate.integer(minimum=0, public_seed=self.public_seed)
        validate.at_most(2**32 - 1, "the largest seed", public_seed=self.public_seed)

    def fit(self, key: Array, x: Array, y: Array | None, epsilon: float, delta: float) -> ReleasedRecords:
        """Chooses a candidate, for experiments: floating-point probabilities, from a key that can be known.

        Pure, safe under jit and vmap over key, x and y. O((n + n_candidates n_records) d n_queries); of a batch over
        keys the candidates are gone through once.

        Args:
            key: Draws the choice.
            x: (n, d).
            y: (n,) classes or numbers, or None.
            epsilon: > 0.
            delta: In [0, 1); not used, the guarantee is pure.

        Raises:
            ValueError: a budget out of its range, or shapes that do not match.
        """
        check_budget(epsilon, delta)
        chosen = jax.random.categorical(key, self.log_weights(x, y, epsilon))
        z, group = self.candidate(chosen, compute_dtype(x))
        labels: Any = None
        if self.n_classes is not None:
            labels = group
        elif self.target_range is not None:
            z, labels = z[:, :-1], self.shown_numbers(z[:, -1])
        # The mechanism has a bounded range: the log-ratio of any two probabilities moves by at most epsilon.
        curve = tradeoff.minimum(
            tradeoff.EpsilonDelta(float(epsilon), 0.0, neighbouring=self.neighbouring),
            tradeoff.ZCDP(float(epsilon) ** 2 / 8, neighbouring=self.neighbouring),
        )
        proven = "pure, for probabilities that are real numbers, and epsilon^2 / 8-zCDP (Cesar & Rogers 2021)"
        return ReleasedRecords(guarantee=Guarantee(curve, curve, proven), box=self.box, x=self.box.decode(z), y=labels)

    def log_weights(self, x: Array, y: Array | None, epsilon: float) -> jax.Array:
        """Logarithms of what the candidates' probabilities are proportional to, (n_candidates,); private."""
        return epsilon * x.shape[0] / 2 * self.qualities(x, y)

    def qualities(self, x: Array, y: Array | None) -> jax.Array:
        """Minus the largest error of each candidate over the queries, (n_candidates,) in [-1, 0]; private.

        Raises:
            ValueError: shapes that do not match.
        """
        self.check(x, y)
        z = self.box.encode(x)
        group = jnp.zeros(z.shape[0], jnp.int32)
        if self.n_classes is not None:
            assert y is not None
            group = self.classes(y)
        elif self.target_range is not None:
            assert y is not None
            z = jnp.concatenate([z, self.numbers(y, z.dtype)[:, None]], axis=1)
        truth = self.answers(z, group)

        def quality(index: Any) -> jax.Array:
            return -jnp.max(jnp.abs(self.answers(*self.candidate(index, z.dtype)) - truth))

        # A divisor: what is left over would be a second program.
        size = max(k for k in range(1, CHUNK + 1) if self.n_candidates % k == 0)
        return jax.lax.map(quality, jnp.arange(self.n_candidates), batch_size=size)

    def candidate(self, index: Any, dtype: Any) -> tuple[jax.Array, jax.Array]:
        """Records (n_records, q) of a candidate in [-1, 1], the number if any last, and their classes; public."""
        n_groups, q, n = self.n_classes or 1, self._q, self.n_records
        key = jax.random.fold_in(self._public_key(0), index)
        # All of a candidate in one call of the generator: each call is a second of compilation on a CPU.
        sizes = [2 * n_groups * q, n_groups, n, n * q]
        draws = jnp.split(jax.random.uniform(key, (sum(sizes),), dtype), np.cumsum(sizes)[:-1])
        corners, values = 2 * draws[0].reshape(2, n_groups, q) - 1, draws[3].reshape(n, q)
        shares = -jnp.log1p(-draws[1])
        edges = jnp.cumsum(shares)[:-1] / jnp.maximum(jnp.sum(shares), jnp.finfo(dtype).tiny)
        group = jnp.sum(draws[2][:, None] > edges, axis=1, dtype=jnp.int32)
        low, high = corners.min(axis=0)[group], corners.max(axis=0)[group]
        step = 2 / (self.levels - 1)
        return jnp.round((low + (high - low) * values + 1) / step) * step - 1, group

    def answers(self, z: Array, group: Array) -> jax.Array:
        """The share of records z (n, q) in [-1, 1] that each query counts, (n_queries,) in [0, 1]."""
        direction_key, offset_key = jax.random.split(self._public_key(1))
        directions = jax.random.normal(direction_key, (self.n_queries, self._q), z.dtype)
        inside = jax.random.uniform(offset_key, (self.n_queries, self._q), z.dtype, -1, 1)
        scores = jnp.matmul(z, directions.T, precision=HIGHEST)
        counted = scores > jnp.sum(directions * inside, axis=1)
        if self.n_classes is not None:
            # Query j is of class j mod (K + 1), where K stands for every class.
            wanted = jnp.arange(self.n_queries) % (self.n_classes + 1)
            counted &= (wanted == self.n_classes) | (group[:, None] == wanted)
        return jnp.sum(counted, axis=0).astype(z.dtype) / z.shape[0]

    def _public_key(self, purpose: int) -> jax.Array:
        # Behind the barrier XLA cannot see that everything public is a constant: it would draw all candidates while
        # compiling, which takes far longer than the program.
        seed = jax.lax.optimization_barrier(jnp.uint32(self.public_seed))
        return jax.random.fold_in(jax.random.key(seed), purpose)

    @property
    def _q(self) -> int:
        return self.box.d + (self.target_range is not None)
