"""What a guess without the release reaches on MNIST: the kappa of docs/bounds/reconstruction.md."""

from __future__ import annotations

from typing import Any

from experiments.informed_adversary.bound import kappa_of, public_of, radius_of
from experiments.informed_adversary.pages import committed


def kappa(is_toy: bool) -> dict[str, Any]:
    """Success of the best guess found among public records, with its interval, and the most that any guess reaches."""
    found = committed()
    radius = radius_of([row for row in found if row.get("factor") == "privacy"])
    public = public_of(found[0]["config"])
    known = kappa_of(public[:500] if is_toy else public, radius)
    kept = {name: float(getattr(known, name)) for name in ("kappa", "lower", "upper", "upper_of_all", "confidence")}
    return {"radius": radius, "n_public": len(public), **kept}


TABLES = {"bound": {"kappa": kappa}}
"""What computes the facts of a cell, by table and cell."""
