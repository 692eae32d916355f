"""Shadow releases of a PCA: what public records tell an adversary about releases of N of them."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from drjax.core import batching, validate
from drjax.core.linalg import HIGHEST
from drjax.core.types import Array, PyTree, hyperparams

Noise = Callable[[Array, Array], Array]
"""(key, symmetric (d, d)) -> symmetric (d, d): what a private curator does to A before its eigenvectors are taken."""


HELD_BYTES = 2**30
"""Components of the shadows that are held; larger ones are computed anew wherever an attack comes to a shadow."""


@dataclass(frozen=True, eq=False)
class Redrawn(Sequence[np.ndarray]):
    """Components of shadows, of which one is held at a time: looking at a shadow draws and decomposes it again.

    Attributes:
        context: What `fit_shadows` draws from: how, the key and the public records.
        shape: Number of shadows, components of each and features, (S, r, d).
    """

    context: PyTree
    shape: tuple[int, int, int]

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> Any:
        """(r, d) components of one shadow, to the bits that `fit_shadows` would hold; O(N d^2 + d^3)."""
        at = range(len(self))[operator.index(index)]
        with jax.enable_x64(True):
            _, _, components = batching.map_lanes(_draw_chunk, self.context, np.array([at]), batch_size=1)
        return components[0]


@dataclass(frozen=True, eq=False)
class Shadows:
    """What the adversary knows of the population, for releases of n_records; from `fit_shadows`.

    Attributes:
        n_records: N.
        centred: Whether curator and shadows subtract the mean of their records.
        floor: Added to every eigenvalue, units squared: what a direction without variance is taken to have.
        center: (d,) mean of the public records if centred, else 0.
        precision: (d, d) K.
        components: (S, r, d) of the shadows, r = min(N, d), or d with noise; a sequence of S arrays (r, d), each
            computed when it is looked at, where they would take more than `HELD_BYTES`.
        eigenvalues: (S, r), decreasing, negative ones (of noise) set to 0.
        means: (S, d) that the shadows subtracted.
        bases: (p, min(N - 1, d), d) components of the first p shadows without their last record.
        base_squares: (p, min(N - 1, d)) their eigenvalues of X^T X, decreasing.
        base_means: (p, d).
    """

    n_records: int
    centred: bool
    floor: float
    center: np.ndarray
    precision: np.ndarray
    components: np.ndarray | Redrawn
    eigenvalues: np.ndarray
    means: np.ndarray
    bases: np.ndarray
    base_squares: np.ndarray
    base_means: np.ndarray


def fit_shadows(
    key: Array,
    public: Array,
    n_records: int,
    *,
    centred: bool = False,
    noise: Noise | None = None,
    n_shadows: int = 32,
    n_pairs: int = 2,
    floor: float = 1e-3,
    progress: bool = False,
) -> Shadows:
    """Releases of n_records public records each, drawn without replacement; computed in float64.

    Costs (S + p) (N d^2 + d^3) operations and holds 8 (S + p) r d bytes. Where the shadows' components would take more
    than 1 GiB none is held, and an attack draws each shadow again, to the same bits. One fit serves every release of as
    many records, and every candidate. Shadows share records where there are few public ones; below 2 N of them their
    deviations come out too small.

    Args:
        key: Shadow i depends on the key and i alone.
        public: (P, d), preprocessed as the curator's; no candidate among them.
        n_records: N, in [2, P].
        centred: Whether the curator subtracts the mean of the records.
        noise: What a private curator does to the scatter matrix; a JAX function of module level, or a hashable one.
        n_shadows: S >= 2. More help most in the tails: 32 to 64.
        n_pairs: p in [0, S], for "rank_one"; each of them gives one pair of releases with and without a candidate
            for every candidate. 1 is nearly as good as 3. Must be 0 with noise.
        floor: Least variance, as a share of the mean variance, > 0.
        progress: Show a bar.

    Raises:
        ValueError: public not a finite numeric matrix, or a number out of range.

    Example:
        >>> import drjax, jax
        >>> from drjax.attacks import membership
        >>> x = drjax.load("digits").x
        >>> shadows = membership.fit_shadows(jax.random.key(0), x[120:360], 60, n_shadows=4)
        >>> shadows.components.shape  # four releases of 60 public records each
        (4, 60, 64)
    """
    validate.prng_key(key)
    public = validate.matrix(public, "public", min_rows=2)
    validate.integer(minimum=2, n_records=n_records, n_shadows=n_shadows)
    validate.at_most(len(public), "the rows of public", n_records=n_records)
    validate.integer(minimum=0, n_pairs=n_pairs)
    validate.at_most(n_shadows, "n_shadows", n_pairs=n_pairs)
    validate.positive(floor=floor)
    if noise is not None and n_pairs:
        raise ValueError(f"n_pairs must be 0 with noise, which no rank-one update undoes, got {n_pairs}")
    center = public.mean(axis=0, dtype=np.float64) if centred else np.zeros(public.shape[1])
    scatter = _scatter(public, center)
    floor = floor * float(np.trace(scatter)) / len(scatter)
    if floor <= 0:
        raise ValueError("public must have some variance, got equal rows")
    draw = {"n_records": n_records, "centred": bool(centred), "noise": noise}
    # A decomposition is work enough for a chunk, and no number of shadows then asks for a program of its own.
    options: dict[str, Any] = {"batch_size": 1, "progress": progress, "description": "shadows"}
    with jax.enable_x64(True):
        context = (_Draw(**draw, drop_last=False), key, jnp.asarray(public))
        rank = public.shape[1] if noise is not None else min(n_records, public.shape[1])
        shape = (n_shadows, rank, public.shape[1])
        components: np.ndarray | Redrawn
        if math.prod(shape) * 8 <= HELD_BYTES:
            means, values, components = batching.map_lanes(_draw_chunk, context, np.arange(n_shadows), **options)
        else:
            components = Redrawn(context, shape)
            means, values = batching.map_lanes(_draw_values, context, np.arange(n_shadows), **options)
        base = np.zeros((0, *means.shape[1:])), np.zeros((0, 1)), np.zeros((0, 1, public.shape[1]))
        if n_pairs:
            context = (_Draw(**draw, drop_last=True), *context[1:])
            base = batching.map_lanes(_draw_chunk, context, np.arange(n_pairs), **options)
    return Shadows(
        n_records=n_records,
        centred=bool(centred),
        floor=floor,
        center=center,
        precision=np.linalg.inv(scatter + floor * np.eye(len(scatter))),
        components=components,
        eigenvalues=np.maximum(values, 0),
        means=means,
        bases=base[2],
        base_squares=np.maximum(base[1], 0) * (n_records - 1),
        base_means=base[0],
    )


@hyperparams
class _Draw:
    """What is drawn: shadows of n_records, or the same without their last record."""

    n_records: int
    centred: bool
    drop_last: bool
    noise: Any


def _draw_values(context: PyTree, lanes: Array) -> tuple[jax.Array, jax.Array]:
    """What `_draw_chunk` gives, without the components."""
    return _draw_chunk(context, lanes)[:2]


def _draw_chunk(context: PyTree, lanes: Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Means (b, d), eigenvalues (b, r) and components (b, r, d) of the shadows with indices lanes (b,)."""
    recipe, key, public = context

    def one(index: Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        record_key, noise_key = jax.random.split(jax.random.fold_in(key, index))
        rows = jax.random.choice(record_key, public.shape[0], (recipe.n_records,), replace=False)
        x = public[rows[:-1] if recipe.drop_last else rows].astype(jnp.float64)
        mean = jnp.mean(x, axis=0) if recipe.centred else jnp.zeros(x.shape[1])
        x = x - mean
        scatter = jnp.matmul(x.T, x, precision=HIGHEST) / x.shape[0]
        if recipe.noise is not None:
            scatter = recipe.noise(noise_key, scatter)
        values, vectors = jnp.linalg.eigh(scatter)
        kept = x.shape[1] if recipe.noise is not None else min(x.shape)
        return mean, values[::-1][:kept], vectors.T[::-1][:kept]

    return jax.lax.map(one, lanes)


def _scatter(x: np.ndarray, center: np.ndarray, rows: int = 4096) -> np.ndarray:
    """(x - center)^T (x - center) / P in float64, without a copy of all of x."""
    total = np.zeros((x.shape[1],) * 2)
    for start in range(0, len(x), rows):
        part = x[start : start + rows].astype(np.float64) - center
        total += part.T @ part
    return total / len(x)
