"""Releases in memory, with noise from a key: what a release would look like, and what is proven of it.

    found = rehearsed.components(key, x, 1.0, n_components=2)      # x (n, d) in [0, 1], by public bounds
    coords = (x - found.center) / found.scale @ found.components.T
    made = rehearsed.table(key, x, 1.0, blocks=[[3, 4, 5]])        # features 3 to 5 are one category
    rero.from_tradeoff(kappa, made.curve)

For whoever holds the records, who decides what to release: whoever knows the key can take the noise off, so that
nothing of it is for publication. The releases themselves are `drjax.releases.pca` and `drjax.releases.synthetic`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from drjax.bounds.curve import TradeOff
from drjax.core import validate
from drjax.core.types import Array
from drjax.data.schema import Column, Schema
from drjax.defenses.dp_pca_components import components_of
from drjax.releases import mechanism as mechanisms
from drjax.releases.bounds import Bounds, reach
from drjax.releases.mechanism import DELTA, USUAL
from drjax.releases.synthetic import MOST_COMPONENTS
from drjax.releases.writing import synthetic_features
from drjax.synthesis.contract import Box
from drjax.synthesis.pca_gauss import PCAGauss


class Components(NamedTuple):
    """Noisy components; coordinates of records x are (x - center) / scale @ components.T.

    Attributes:
        components: (k, d) orthonormal rows, leading first.
        center: (d,) noisy mean of the records.
        scale: (d,) what features are divided by.
        curve: Trade-off curve of the release.
    """

    components: np.ndarray
    center: np.ndarray
    scale: np.ndarray
    curve: TradeOff


class SyntheticRecords(NamedTuple):
    """Synthetic records.

    Attributes:
        x: (s, d) in [0, 1]; features of a block are one-hot.
        curve: Trade-off curve of the release.
    """

    x: np.ndarray
    curve: TradeOff


def components(
    key: Array,
    x: np.ndarray,
    epsilon: float,
    *,
    n_components: int = 2,
    delta: float = DELTA,
    neighbouring: str = "replace_one",
    blocks: Sequence[Sequence[int]] = (),
    scale: np.ndarray | None = None,
    row_norm: float | None = None,
) -> Components:
    """Components and mean of records with the noise of `release_pca` by its usual mechanism.

    Args:
        key: PRNG key of the noise.
        x: (n, d) records in [0, 1] by public bounds; cut to them.
        epsilon: Epsilon of the guarantee, > 0.
        n_components: k.
        delta: Delta of the guarantee, > 0, below 1 / n.
        neighbouring: Neighbouring relation; "add_or_remove" is not rehearsed.
        blocks: Places of the features of each category, of which one at most is 1 and the rest 0.
        scale: (d,) public numbers > 0 that features are divided by; 1 if None.
        row_norm: Public bound on a record's distance from the middle; the largest possible one if None.

    Raises:
        ValueError: an argument out of its range.
    """
    x = _checked(x, epsilon, delta, neighbouring)
    n, d = x.shape
    validate.at_most(d, "d", n_components=n_components)
    scale = np.ones(d) if scale is None else np.asarray(scale, np.float64)
    if scale.shape != (d,) or not (np.isfinite(scale) & (scale > 0)).all():
        raise ValueError(f"scale must be {d} finite numbers > 0, got {scale}")
    lower, upper, center = np.zeros(d), np.ones(d), np.full(d, 0.5)
    for block in blocks:
        center[list(block)] = 1 / len(block)
    norm = reach(lower, upper, center, scale, blocks) if row_norm is None else row_norm
    bounds = Bounds(lower, upper, center, scale, norm, {}, is_public=True, finds_mean=True)
    mechanism = mechanisms.calibrated(
        USUAL, epsilon, delta, neighbouring=neighbouring, bounds=bounds, n_components=n_components, divisor=None
    )
    joint = np.array(mechanism.noisy_joint(key, jnp.asarray(bounds.scaled(x), jnp.float32)), np.float64)
    joint[0, 0] = 1.0
    moment, mean = mechanism.settled(joint, n)
    found = components_of(jnp.asarray(mechanism.steadied(moment, mean, n), jnp.float32), n_components)
    return Components(
        np.asarray(found.components, np.float64), center + mean * scale, scale, mechanisms.proof_of(mechanism).curve
    )


def table(
    key: Array,
    x: np.ndarray,
    epsilon: float,
    *,
    n_synthetic: int | None = None,
    n_components: int | None = None,
    delta: float = DELTA,
    neighbouring: str = "replace_one",
    blocks: Sequence[Sequence[int]] = (),
) -> SyntheticRecords:
    """Synthetic records with the noise of `release_synthetic` by PCA-Gauss, without a target.

    Args:
        key: PRNG key of noise and draws.
        x: (n, d) records in [0, 1] by public bounds; cut to them.
        epsilon: Epsilon of the guarantee, > 0.
        n_synthetic: s; n if None.
        n_components: Dimension of the Gaussian; as of `release_synthetic` if None.
        delta: Delta of the guarantee, > 0, below 1 / n.
        neighbouring: Neighbouring relation; "add_or_remove" is not rehearsed.
        blocks: Places of the features of each category, neighbours in the order of the columns.

    Raises:
        ValueError: an argument out of its range.
    """
    x = _checked(x, epsilon, delta, neighbouring)
    n, d = x.shape
    schema = _schema(d, blocks)
    k = min(MOST_COMPONENTS, d) if n_components is None else n_components
    method = PCAGauss(neighbouring=neighbouring, box=Box.of(0.0, 1.0, d), n_components=k)
    noise_key, draw_key = jax.random.split(key)
    fitted = method.fit(noise_key, jnp.asarray(x, jnp.float32), None, epsilon, delta)
    made, _ = synthetic_features(draw_key, fitted, schema, n if n_synthetic is None else n_synthetic)
    return SyntheticRecords(made, method.plan(epsilon, delta, for_release=True).guarantee.curve)


def _checked(x: np.ndarray, epsilon: float, delta: float, neighbouring: str) -> np.ndarray:
    x = validate.matrix(x, "x", min_rows=2).astype(np.float64)
    if not (epsilon > 0 and 0 < delta < 1 / len(x)):
        raise ValueError(f"epsilon must be > 0 and delta in (0, 1 / n = {1 / len(x):.2g}), got {epsilon} and {delta}")
    validate.one_of(("replace_one", "zero_out"), neighbouring=neighbouring)
    return np.clip(x, 0, 1)


def _schema(d: int, blocks: Sequence[Sequence[int]]) -> Schema:
    """Columns that have these features when encoded."""
    by_first = {min(block): sorted(block) for block in blocks}
    columns, at = [], 0
    while at < d:
        block = by_first.pop(at, [at])
        if block != list(range(at, at + len(block))) or block[-1] >= d:
            raise ValueError(f"blocks must be of neighbouring features below {d}, got {block}")
        name = str(at)
        if len(block) > 1:
            columns.append(Column(name=name, kind="category", categories=tuple(map(str, block))))
        else:
            columns.append(Column(name=name, kind="number", upper=1.0))
        at += len(block)
    if by_first:
        raise ValueError(f"blocks must not overlap and lie below {d}, got {list(by_first.values())}")
    return Schema(tuple(columns))
