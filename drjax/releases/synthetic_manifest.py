"""What the manifest of synthetic records says beside its files; nothing in it depends on a record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from drjax.data.schema import Schema
from drjax.releases import manifest


def content(
    method: Any,
    schema: Schema,
    plan: Any,
    *,
    name: str,
    epsilon: float,
    delta: float,
    target: str | None,
    n_records: int | None,
    n_synthetic: int,
    sources: Any,
    budget: Mapping[str, Any],
    is_charged: bool,
    files: Sequence[str],
) -> dict[str, Any]:
    """The entries by name.

    Args:
        method: Synthesizer, with `n_components` and `task`.
        schema: Columns, and whether their bounds are public.
        plan: How the synthesizer spends the budget, with `guarantee` and `noise`.
        name: Name of the synthesizer.
        epsilon: Epsilon asked for.
        delta: Delta asked for.
        target: Column to predict, or None.
        n_records: Number of private records where the relation makes it public, else None.
        n_synthetic: Number of published records.
        sources: Where the bound of each column came from.
        budget: Share of the budget of each step.
        is_charged: Whether a ledger was charged.
        files: Names of the published files.
    """
    guarantee, holds = plan.guarantee, not schema.from_records
    entries = {
        "released": f"{n_synthetic:,} synthetic records with {len(schema.columns)} columns, by {name}",
        "guarantee": manifest.guarantee(guarantee.curve, guarantee.proven, epsilon=epsilon, delta=delta, holds=holds),
        "not_covered": manifest.NOT_COVERED,
        "method": {
            "name": name,
            "n_components": method.n_components,
            "target": target,
            "task": method.task,
            "noise": f"discrete {plan.noise}, exact, from the operating system; nobody can repeat it",
            # Shares alone: the rest follows from them and the guarantee.
            "budget": budget,
        },
        "bounds": sources,
        "n_records": n_records,
        "n_synthetic": n_synthetic,
        "ledger": "charged before the noise was drawn" if is_charged else "none was charged",
        "publish": f"{', '.join(files)} and this manifest",
    }
    return entries if holds else {"warning": manifest.NOT_PRIVATE} | entries


def shares(plan: Any) -> dict[str, float]:
    """Each step's share of the budget, epsilon (Laplace) or mu^2 (Gaussian); parallel parts each use all of it."""
    power = 2 if plan.noise == "gaussian" else 1
    total = sum(spent**power for spent in plan.spend.values())
    return {step: round(spent**power / total, 6) for step, spent in plan.spend.items() if spent}
