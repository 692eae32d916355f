"""What an audit takes, estimated before any work: memory, which is refused where there is less, and time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from drjax.attacks.attack import EmbeddingAttack, EmbeddingThreat
from drjax.attacks.registry import ATTACKS
from drjax.attacks.shadow import factored_at, shadow_needs
from drjax.audits.config import AuditConfig
from drjax.audits.further import n_held
from drjax.audits.quality import n_seen
from drjax.audits.shadows import keeps_factors
from drjax.core import memory, streamed
from drjax.core.types import DRMethod
from drjax.dr import quality

FACTORED = frozenset(name for name, attack in ATTACKS["embedding"].items() if attack.takes_factors)
"""Names of the attacks that make no coordinates of releases that are kept as factors."""


@dataclass(frozen=True)
class Needs:
    """What some work takes.

    Attributes:
        bytes: Memory at the peak.
        why: What takes most of it, in words.
        seconds: Time to compute the releases, on this machine; attacks come on top.
    """

    bytes: float
    why: str
    seconds: float


def of_audit(config: AuditConfig, n_known: int, d: int) -> Needs:
    """What `drjax.audits.run` takes for n_known records of d features beside the target.

    Its stages follow each other: the largest of them counts, beside the coordinates of all releases.
    """
    n, k, itemsize = n_known + 1, config.n_components, _itemsize(config)
    n_public, m = config.n_shadow + config.n_validation, config.n_targets
    n_kept = n_held(config, n, d) + config.n_validation
    n_curves, is_factored = len(config.defense_scale), keeps_factors(config, n, d)
    coords = float(itemsize * (n_kept + m) * n * k)
    made = shadow_needs(config.dr_method, n, d, max(n_kept, m), itemsize=itemsize, factored=is_factored)
    # Those that are not kept take as long.
    count = (1 + n_curves) * (n_public + m)
    total = shadow_needs(config.dr_method, n, d, count, itemsize=itemsize, factored=is_factored)
    # In float64, in several copies: what is fitted on public records, and coordinates and factors of the known ones.
    attacked = 96.0 * (n_public + m) * d + 24.0 * d**2
    if not is_factored:
        attacked += 24.0 * m * n * k + 40.0 * n * d
    elif config.attacks and all(name in FACTORED for name in config.attacks):
        attacked += streamed.bytes_of(d) + 80.0 * m * d * k
    else:
        # Other attacks take the coordinates, and learn from copies of them in float64.
        attacked += streamed.bytes_of(d) + 5 * (8 / itemsize) * coords
    coords = 8.0 * (n_kept + m) * k * (d + 2) if is_factored else coords
    stages = {
        f"making releases of {n:,} records by {config.method}": made.bytes,
        # Until all are made, finished chunks are held beside the whole.
        f"coordinates of {n_kept + m:,} releases of {n:,} records": coords,
        f"attacks on {m:,} releases of {n:,} records with {n_public:,} public ones": attacked,
        f"distances of all pairs of {n_seen(n):,} records, for the quality of the releases": quality.batch_bytes(
            n_seen(n), itemsize=itemsize
        ),
    }
    known = itemsize * n * d if is_factored else 0.0
    return _largest(stages, total.seconds, beside=(1 + n_curves) * coords + known)


def of_each(method: DRMethod, n: int, d: int, attacks: Iterable[EmbeddingAttack], *, dtype: str = "float64") -> Needs:
    """What `drjax.audits.run` takes for attacks on every record of one release of n records of d features.

    Args:
        method: Method of the release.
        n: Number of records.
        d: Number of features.
        attacks: Attacks that run.
        dtype: Floating-point type that the release is computed in.
    """
    is_factored = factored_at(method, n, d)
    made = shadow_needs(method, n, d, 1, itemsize=np.dtype(dtype).itemsize, factored=is_factored)
    stages = {f"the release of {n:,} records by {method.name}": made.bytes}
    # Attacks ask for the shapes alone, which take no memory.
    threat = EmbeddingThreat(
        method=method,
        known=np.broadcast_to(0.0, (n - 1, d)),
        coords=np.broadcast_to(0.0, (1, n, method.n_components)),
        shadows=_unmade,
    )
    for attack in attacks:
        # Many records are read in blocks, but one at a time an attack has its own copy of the others.
        copies = 0.0 if streamed.is_large(n, d) and attack.shares_each else 64.0 * n * d
        own = attack.cost(threat).bytes + copies + 24.0 * min(n, d) ** 2
        stages[f"the attack {attack.name!r} on {n:,} records"] = own
    return _largest(stages, made.seconds)


def of_embedding(method: DRMethod, n: int, d: int, *, with_quality: bool) -> Needs:
    """What one embedding of n records of d features takes, and with its quality."""
    made = shadow_needs(method, n, d, 1)
    stages = {f"embedding {n:,} records by {method.name}": made.bytes}
    if with_quality:
        stages[f"distances of all pairs of {n_seen(n):,} records, for the quality"] = quality.batch_bytes(n_seen(n))
    return _largest(stages, made.seconds)


def require(found: Needs, what: str, option: str, need: Callable[[int], Needs], count: int) -> Needs:
    """What was found, if that much memory is available.

    Args:
        found: What the work takes.
        what: The work, such as "this audit".
        option: What to lower instead.
        need: What it takes for another count.
        count: The present one.

    Raises:
        MemoryError: one sentence with what it takes, what there is, and how many would fit.
    """

    def remedy() -> str:
        return f"lower {option} ({memory.would_fit(lambda n: need(n).bytes, count)})"

    memory.require(found.bytes, what, found.why, remedy)
    return found


def _largest(stages: dict[str, float], seconds: float, *, beside: float = 0.0) -> Needs:
    why = max(stages, key=lambda stage: stages[stage])
    return Needs(beside + stages[why], why, seconds)


def _unmade() -> NoReturn:
    raise RuntimeError("a cost must be told from shapes, got an attack that asks for shadow releases")


def _itemsize(config: AuditConfig) -> int:
    return 8 if config.dtype == "float64" else 4
