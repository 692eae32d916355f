"""The mechanism of a private PCA by name, calibrated for a release, and what is proven of it before noise is drawn."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from drjax.bounds.curve import TradeOff
from drjax.bounds.gdp import check_positive
from drjax.core import validate
from drjax.core.types import Array
from drjax.defenses.dp_pca import MECHANISMS
from drjax.defenses.dp_pca_noise import BOUNDS
from drjax.releases.bounds import Bounds

MEAN_WEIGHT = 0.625
"""Weight of the constant beside records in units of their bound if the query finds the mean: docs/dp_pca/mean.md."""

DELTA = 1e-6
"""Delta of a mechanism that is not pure, if none is asked for."""

PURE, USUAL = "laplace-scalar", "analytic-gauss"
"""Mechanisms if none is asked for: where delta is 0, and else. They keep the most energy: docs/dp_pca/digits.md."""


class Proof(NamedTuple):
    """What is proven of a release: its curve, and a note in words."""

    curve: TradeOff
    note: str


def exact() -> tuple[str, ...]:
    """Names of the mechanisms that can be released: those with an exact sampler."""
    return tuple(name for name, kind in MECHANISMS.items() if kind.has_exact_sampler())


def choose(mechanism: str | None, delta: float | None) -> tuple[str, float]:
    """Name and delta: `USUAL` at `DELTA`, or `PURE` where delta is 0, unless named otherwise.

    Raises:
        ValueError: a name of no mechanism or of one without an exact sampler, a delta outside [0, 1), or one that does
            not go with the mechanism.
    """
    if delta is not None and not 0 <= delta < 1:
        raise ValueError(f"delta must be in [0, 1), got {delta!r}")
    if mechanism is None:
        mechanism = PURE if delta == 0 else USUAL
    validate.one_of(MECHANISMS, mechanism=mechanism)
    kind = MECHANISMS[mechanism]
    if not kind.has_exact_sampler():
        raise ValueError(
            f"mechanism must have an exact sampler to be released, one of {', '.join(exact())}; got {mechanism!r}, "
            "which is for experiments"
        )
    if delta is None:
        delta = 0.0 if kind.IS_PURE else DELTA
    if kind.IS_PURE and delta:
        raise ValueError(
            f"delta must be 0 with --mechanism {mechanism}, got {delta:g}: pass --delta 0, or leave it out"
        )
    if not kind.IS_PURE and not delta:
        raise ValueError(f"delta must be > 0 with --mechanism {mechanism}, got 0: its noise has no pure guarantee")
    return mechanism, float(delta)


def calibrated(
    name: str,
    epsilon: float,
    delta: float,
    *,
    neighbouring: str,
    bounds: Bounds,
    n_components: int | float,
    divisor: float | None,
) -> Any:
    """The mechanism whose release is proven (epsilon, delta)-private with the least noise, in units of the release.

    Raises:
        ValueError: a number out of its range.
    """
    check_positive(epsilon=epsilon)
    kind = MECHANISMS[name]
    if bounds.finds_mean and not kind.FINDS_MEAN:
        raise ValueError(f"public records must be given with --mechanism {name}, which finds no mean, got bounds alone")
    known = dict(zip(BOUNDS, (*bounds.ranges, bounds.row_norm), strict=True))
    return kind.for_release(
        epsilon,
        delta,
        neighbouring=neighbouring,
        n_components=n_components,
        divisor=divisor,
        center=bounds.scaled(bounds.center),
        mean_weight=MEAN_WEIGHT if bounds.finds_mean else None,
        **{bound: known[bound] for bound in kind.public_arrays()},
    )


def proof_of(mechanism: Any) -> Proof:
    """Curve and note of its release, which depend on public numbers alone, so that a record at the centre shows them.

    Costs the noise of a release.
    """
    found = mechanism.release(np.asarray(mechanism.center)[None])
    return Proof(found.curve, found.note)


def with_relation(mechanism: Any, neighbouring: str) -> Any:
    """The same noise under another relation."""
    divisor = 1.0 if mechanism.divisor is None else mechanism.divisor
    return dataclasses.replace(mechanism, neighbouring=neighbouring, divisor=divisor)


def rebuilt(name: str, scalars: Mapping[str, float], arrays: Mapping[str, np.ndarray], **fields: Any) -> Any:
    """The mechanism of a published release.

    Args:
        name: Key of `MECHANISMS`.
        scalars: Numbers as its `parameters` gave them.
        arrays: Arrays of the release: center (origin where there is a `mean_weight`), scale, and the mechanism's
            `public_arrays`.
        **fields: neighbouring, n_components and divisor.

    Raises:
        ValueError: a name or number out of its range, or a missing array.
    """
    validate.one_of(exact(), mechanism=name)
    kind = MECHANISMS[name]
    middle = "origin" if "mean_weight" in scalars else "center"
    for array in (middle, "scale", *kind.public_arrays()):
        if array not in arrays:
            raise ValueError(f"components must hold the array {array} of mechanism {name}, got {', '.join(arrays)}")
    center, scale = arrays[middle], arrays["scale"]
    own: dict[str, Any] = {}
    for bound in kind.public_arrays():
        own[bound] = float(arrays[bound]) if bound == "row_norm" else (arrays[bound] - center) / scale
    return kind(center=center / scale, **own, **scalars, **fields)


@dataclasses.dataclass(frozen=True, eq=False)
class MomentNoise:
    """The noise of a mechanism as `drjax.attacks.membership_shadows` takes it; hashed by identity.

    Attributes:
        mechanism: Mechanism with a divisor: what is added is the noise on the sum over it.
        mean: (d,) of the records less the centre, as far as it is known, for a mechanism that finds it with noise: the
            noise of the moment about it depends on it. 0 if None.
    """

    mechanism: Any
    mean: np.ndarray | None = None

    def __call__(self, key: Array, scatter: Array) -> Any:
        """A symmetric scatter (d, d) with noise; that of a mechanism without symmetry is made symmetric."""
        drawn = JointNoise(self.mechanism)(key, scatter)
        if self.mechanism.mean_weight is None:
            return scatter + drawn
        d, n = drawn.shape[0] - 1, self.mechanism.divisor
        mean = jnp.zeros(d, drawn.dtype) if self.mean is None else jnp.asarray(self.mean, drawn.dtype)
        # Records that are all at their mean: what is left of the moment about it is the noise.
        one = jnp.append(jnp.ones(1, drawn.dtype), mean)
        drawn, noisy_mean = self.mechanism.settled(drawn + one[:, None] * one, n)
        return self.mechanism.steadied(scatter + drawn, noisy_mean, n)


@dataclasses.dataclass(frozen=True, eq=False)
class JointNoise:
    """The noise of a mechanism's answer, made symmetric; hashed by identity.

    Attributes:
        mechanism: Mechanism with a divisor, as for `MomentNoise`.
    """

    mechanism: Any

    def __call__(self, key: Array, scatter: Array) -> Any:
        """Draws (q, q) in the dtype of a scatter, of which nothing else is used."""
        # A record at the centre adds nothing but its constant.
        center = np.asarray(self.mechanism.center, scatter.dtype)[None]
        drawn: jax.Array = self.mechanism.noisy_joint(key, center)
        if self.mechanism.mean_weight is not None:
            drawn = drawn.at[0, 0].add(-1 / self.mechanism.divisor)
        return (drawn + drawn.T) / 2


def bounded(mechanism: Any, x: np.ndarray) -> np.ndarray:
    """Records (n, d) in units of the release, centred and cut as the mechanism does; float64."""
    rows, unit, _ = mechanism.rows(np.asarray(x, np.float32))
    return np.asarray(rows, np.float64) * np.asarray(unit, np.float64)


class JointView(NamedTuple):
    """A joint moment and records as the vectors (constant, z) that it is of; noise of `AnalyticGauss` is alike in all
    directions there.

    Attributes:
        moment: (q, q), symmetric; q is d + 1, or d for a mechanism without a `mean_weight`.
        records: Bounded records (n, q), one table each.
        noise: Noise as `drjax.attacks.membership_noisy.matrix_ratio` takes it.
    """

    moment: np.ndarray
    records: tuple[np.ndarray, ...]
    noise: Any


def joint_view(mechanism: Any, joint: np.ndarray, *tables: np.ndarray) -> JointView:
    """What an adversary sees in an answer, `joint` (q, q) as `noisy_joint` has it, and in bounded records (n, d)."""
    symmetric, noise = (joint + joint.T) / 2, JointNoise(mechanism)
    if mechanism.mean_weight is None:
        return JointView(symmetric, tables, noise)
    _, unit, _ = mechanism.query(np.asarray(mechanism.center, np.float32)[None])
    scale = np.ones(len(joint))
    scale[0] = mechanism.mean_weight * float(np.mean(np.asarray(unit)[1:]))
    weights = np.outer(scale, scale)
    if mechanism.neighbouring != "add_or_remove":
        # Known without noise.
        symmetric[0, 0] = 1.0
    return JointView(
        symmetric * weights,
        tuple(np.insert(table, 0, scale[0], axis=1) for table in tables),
        lambda key, scatter: np.asarray(noise(key, scatter)) * weights,
    )
