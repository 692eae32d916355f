"""Curators of the paper and sound ones: records in the curator's units, mechanisms by name, and their components.

The paper's curator standardises the N records by their own means and deviations and takes ranges, or the largest norm,
from them. A sound one has all that from public records of the same kind: means, deviations, the ranges that hold 99% of
each feature, to which every record is cut before anything else, and the norm that 90% of the public records then keep
to. A feature that hardly ever varies among public records has hardly any range: without that, pixels that are dark but
for a few records would make up most of the variance, and most of the noise.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from drjax.core import batching, validate
from drjax.core.types import Array, PyTree, hyperparams, is_usable
from drjax.defenses import pca_utility
from drjax.defenses.dp_pca import PAPER, PUBLIC, AnalyticGauss, AnalyzeGauss, LaplaceScalar, LaplaceVector
from experiments.pca_membership.run import Trial

NAMES = (
    "analyze_gauss",
    "analyze_gauss_tight",
    "analytic_gauss",
    "laplace_vector",
    "laplace_scalar",
    "laplace_advanced",
)
"""Analyze Gauss with the classical deviation, which is the paper's, and with the least; then the others."""

NORM_SHARE = 0.9
"""Public records that keep to the norm bound."""

RANGE_SHARE = 0.99
"""Of the public values of a feature, those within its range; as many beyond either end."""

NARROW = 1e-6
"""Least half of a range: none may be empty."""


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
    """What one trial hands to every curator of a convention.

    Attributes:
        records: (N, d) float32 in the curator's units, cut to the ranges by a sound one, and not yet to the norm.
        candidates: (2 m, d) float64 in the same units, members first; the adversary is granted the units.
        is_member: (2 m,).
        moment: (d, d) float32, second moment of these records without noise: what utility is measured by.
        k: Components at 90% of its energy, not private.
        bounds: row_norm, lower and upper of a sound curator; empty for the paper's.
        known: Public records in the same units, float64, for adversaries; none for the paper's.
    """

    records: np.ndarray
    candidates: np.ndarray
    is_member: np.ndarray
    moment: np.ndarray
    k: int
    bounds: dict[str, Any]
    known: np.ndarray

    @property
    def convention(self) -> str:
        """As of the mechanisms."""
        return PUBLIC if self.bounds else PAPER


def case(trial: Trial, convention: str, held: np.ndarray, *, most_candidates: int, keep_public: bool = False) -> Case:
    """The trial in the units of a convention.

    Args:
        trial: Candidates and public records.
        convention: "paper_not_private" or "public_bounds".
        held: (N, d), the curator's records: the trial's members, unless what chance gives is to be seen.
        most_candidates: Members, and others, that the attack is measured on, at most: the first.
        keep_public: Fill `known`, of a sound case.
    """
    validate.one_of((PAPER, PUBLIC), convention=convention)
    source = held if convention == PAPER else trial.public
    center, spread = source.mean(axis=0), source.std(axis=0)
    # Records come with deviations of about 1, and what rounding leaves of a constant is not a deviation.
    factor = np.where(spread > 1e-9, 1 / np.where(spread > 1e-9, spread, 1), 0)
    m = min(len(trial.members), most_candidates)
    parts = [(x - center) * factor for x in (held, trial.members[:m], trial.others[:m])]
    known, bounds = np.zeros((0, len(center))), {}
    if convention == PUBLIC:
        known = (source - center) * factor
        tail = (1 - RANGE_SHARE) / 2
        low, high = np.quantile(known, [tail, 1 - tail], axis=0)
        lower, upper = np.minimum(low, -NARROW), np.maximum(high, NARROW)
        known, *parts = (np.clip(x, lower, upper) for x in (known, *parts))
        row_norm = float(np.quantile(np.linalg.norm(known, axis=1), NORM_SHARE))
        bounds = {"row_norm": row_norm, "lower": lower, "upper": upper}
    records = parts[0].astype(np.float32)
    moment = pca_utility.second_moment(records)
    k = pca_utility.k_for_energy(np.linalg.eigvalsh(np.asarray(moment, np.float64))[::-1])
    return Case(
        records=records,
        candidates=np.concatenate(parts[1:]),
        is_member=np.arange(2 * m) < m,
        moment=np.asarray(moment),
        k=int(k),
        bounds=bounds,
        known=known if keep_public else known[:0],
    )


def mechanism(name: str, neighbouring: str, epsilon: float, delta: float, given: Case) -> Any:
    """The mechanism of that name with all d components, in the convention of the case.

    Raises:
        ValueError: an unknown name, or arguments that the mechanism refuses.
    """
    validate.one_of(NAMES, name=name)
    d = given.records.shape[1]
    wanted = ("lower", "upper") if name.startswith("laplace") else ("row_norm",)
    fields = {key: value for key, value in given.bounds.items() if key in wanted}
    fields |= {"neighbouring": neighbouring, "n_components": d, "convention": given.convention}
    if name == "laplace_vector":
        return LaplaceVector(epsilon=epsilon, **fields)
    if name == "laplace_scalar":
        return LaplaceScalar(epsilon=epsilon, **fields)
    if name == "laplace_advanced":
        return LaplaceScalar.advanced(epsilon, delta, d, **fields)
    if name == "analyze_gauss":
        return AnalyzeGauss.classical(epsilon, delta, **fields)
    return (AnalyticGauss if name == "analytic_gauss" else AnalyzeGauss).analytic(epsilon, delta, **fields)


def bounded(curator: Any, x: np.ndarray) -> np.ndarray:
    """Records as a sound curator cuts them to a norm or to ranges, in the units they came in; (n, d) float64."""
    if curator.convention == PAPER:
        return np.asarray(x, np.float64)
    with jax.enable_x64(True):
        rows, unit, _ = curator.rows(jnp.asarray(x, jnp.float64))
        return np.asarray(rows * unit)


def components(
    key: Array, curators: Sequence[Sequence[Any]], records: Sequence[np.ndarray], *, first: int = 0
) -> Iterator[np.ndarray]:
    """All components of every trial, (E, d, d) each, for E curators that differ in the size of their noise alone.

    Trials are lanes, and the E curators of a trial a second axis of `vmap`, over which records and draws are the same:
    what differs between two of them is what their noise does, and the second moment is computed once. In float32, twice
    as fast.

    Args:
        key: Trial t draws from `fold_in(key, first + t)`.
        curators: E of one class for every trial.
        records: (N, d) for every trial, as many.
        first: As said.

    Raises:
        FloatingPointError: a result is not finite.
    """
    # The relation decides how large the noise is and no more; without it, relations would be programs of their own.
    template = dataclasses.replace(curators[0][0], neighbouring="zero_out")
    name = "epsilon" if hasattr(template, "epsilon") else "noise_multiplier"
    lanes = {
        "index": np.arange(first, first + len(records), dtype=np.uint32),
        "x": np.stack(records),
        "sizes": np.array([[getattr(one, name) for one in trial] for trial in curators], np.float32),
        "bounds": {
            bound: np.stack([np.asarray(getattr(trial[0], bound), np.float32) for trial in curators])
            for bound in ("row_norm", "lower", "upper")
            if getattr(template, bound, None) is not None
        },
    }
    for _, found in batching.iter_chunks(_fits, (_Swept(name=name), template, key), lanes):
        vectors, status = np.asarray(found[0]), np.asarray(found[1])
        if not is_usable(status).all():
            raise FloatingPointError(f"components must be finite, got {int((~is_usable(status)).sum())} fits that fail")
        yield from vectors


@hyperparams
class _Swept:
    """The field that the size of the noise is in."""

    name: str


def _fits(context: PyTree, lanes: PyTree) -> tuple[jax.Array, jax.Array]:
    """Components (b, E, d, d) and status (b, E)."""
    swept, template, key = context

    def trial(lane: PyTree) -> tuple[jax.Array, jax.Array]:
        own = dataclasses.replace(template, **lane["bounds"])
        draw = jax.random.fold_in(key, lane["index"])

        def one(size: jax.Array) -> tuple[jax.Array, jax.Array]:
            found = dataclasses.replace(own, **{swept.name: size}).fit(draw, lane["x"])
            return found.components, found.status

        return jax.vmap(one)(lane["sizes"])

    return jax.vmap(trial)(lanes)
