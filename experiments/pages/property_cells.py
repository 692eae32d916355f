"""The attack on plots: the example of docs/property."""

from __future__ import annotations

import functools
import json
import tempfile
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from sklearn import manifold

from drjax.cli.main import main
from drjax.data import load


def _publish(folder: Path) -> None:
    """Writes the records of the adversary, and the map and the plot of 500 people of the other half of Adult."""
    adult = load("adult")
    rng = np.random.default_rng(0)
    mine, theirs = np.array_split(rng.permutation(len(adult.x)), 2)
    assert adult.y is not None
    assert adult.class_names is not None
    np.savez(folder / "shadow.npz", x=adult.x[theirs], y=np.array(adult.class_names)[adult.y[theirs]])
    rich, others = mine[adult.y[mine] == 1], mine[adult.y[mine] == 0]
    rows = np.concatenate([rng.choice(rich, 175, replace=False), rng.choice(others, 325, replace=False)])
    points = manifold.TSNE(random_state=0).fit_transform(adult.x[rows])
    plt.figure()
    plt.scatter(*points.T, s=6, linewidths=0)
    plt.savefig(folder / "plot.png", dpi=150)
    plt.close()
    np.save(folder / "coords.npy", points)


def example(seen: str, is_toy: bool) -> dict[str, Any]:
    """What the attack says of the 500 people.

    Args:
        seen: "picture" or "coords".
        is_toy: Whether to make few shadow maps.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _publish(folder)
        given = ["--plot", f"{name}/plot.png"] if seen == "picture" else ["--coords", f"{name}/coords.npy"]
        words = ["attack", "property", *given, "--shadow", f"{name}/shadow.npz", "--attribute", "label=>50K"]
        main([*words, "--n-shadow", "20" if is_toy else "400", "--out", f"{name}/out.json"])
        facts = json.loads((folder / "out.json").read_text(encoding="utf-8"))
    return {"outcome": facts["outcome"], "reading": facts.get("reading")}


TABLES = {
    "example": {seen: functools.partial(example, seen) for seen in ("coords", "picture")},
}
"""What computes the facts of a cell, by table and cell."""
