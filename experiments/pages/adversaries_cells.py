"""What the seed of a random start is worth to an adversary: the table of docs/threat_model.md."""

from __future__ import annotations

import functools

from experiments.pages import audits

METHODS = {"mds": "mds", "tsne": "tsne --init random", "umap": "umap"}
"""Words of the command by method."""

SEED = {
    f"{name}{ending}": f"audit --data mnist --method {words}{switch} --n-known 199 --n-shadow 1000 --n-validation 100"
    " --n-targets 300 --attacks ridge invariant"
    for name, words in METHODS.items()
    for ending, switch in (("", ""), ("-known", " --seed-known"))
}
"""Words of the command by cell."""

TABLES = {
    "seed": {cell: functools.partial(lambda words, _: audits.audited(words), words) for cell, words in SEED.items()}
}
"""What computes the facts of a cell, by table and cell."""
