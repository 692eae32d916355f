"""Tables of the pages about paper 003, from the committed rows.

python -m experiments.tsne_property.pages claims
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from drjax.reports import records
from experiments import claims
from experiments.markdown import Tables, markdown_table
from experiments.sweep import RESULTS
from experiments.tsne_property.claim_tests import DESCRIPTORS, LFW, MALE, MEAN, PICTURE, Rows, Score
from experiments.tsne_property.claims import judged_claims
from experiments.tsne_property.tables import PAPER, PAPER_DEFENCES, Record, defended, summary

FOLDER = Path(__file__).parent / "results"

ATTACKS = {
    PICTURE: "picture, 75 x 75",
    "densenet": "picture, DenseNet-121 at 300 x 300",
    DESCRIPTORS: "coordinates, descriptors",
    "set": "coordinates, network",
    MEAN: "reference: mean embedding",
}

made = Tables()
block = made.block


@functools.cache
def rows_of(folder: Path = FOLDER) -> list[dict[str, Any]]:
    """The committed lines of a folder: the run, then its cells."""
    return records.read_records(folder / RESULTS)


@made
def claims_table() -> str:
    """Every claim of the paper."""
    return claims.table(judged_claims(rows_of(), rows_of(FOLDER / "cpu")))


@made
def main_table() -> str:
    """Setting 1, a row for each attack."""
    found = Rows(rows_of())
    places = [(prop, field) for prop in (MALE, LFW) for field in ("accuracy", "error")]

    def cell(score: Score | None) -> str:
        return "" if score is None else f"{score}{', one seed' if score.n_seeds == 1 else ''}"

    rows = [
        [label, *(cell(found.score("main", field, prop, attack=attack)) for prop, field in places)]
        for attack, label in ATTACKS.items()
    ]
    printed = [PAPER[prop][field] for prop in (MALE, LFW) for field in (0, 1)]
    rows.append(["paper, ResNet-18 and DenseNet-121 with ImageNet's weights", *(f"{value:.2f}" for value in printed)])
    heads = ("", "UTKFace: accuracy of five", "error", "LFW: accuracy of five", "error")
    return markdown_table(heads, rows)


@made
def defences_table() -> str:
    """A row for each defence of tables 5 and 6."""
    rows = []
    for name, kinds in defended(rows_of()[1:]).items():
        scores = ["" if k not in kinds else _error(kinds[k]) for k in ("not adaptive", "adaptive")]
        paper = ["" if value is None else f"{value:.2f}" for value in PAPER_DEFENCES[name]]
        worth = [
            f"{sum(c[m] for c in kinds['utility']) / len(kinds['utility']):.3f}"
            for m in ("trustworthiness", "knn_preservation")
        ]
        rows.append([name or "none", *scores, *paper, *worth])
    heads = ("defence", "error", "adaptive", "paper: error", "adaptive", "trustworthiness", "neighbours kept")
    return markdown_table(heads, rows)


def _error(cells: Sequence[Record]) -> str:
    seeds = ", ".join(f"{c['error']:.3f}" for c in sorted(cells, key=lambda c: c["test"]["seed"]))
    return f"{summary(cells, 'error')}; by seed {seeds}"


if __name__ == "__main__":
    print(block(*sys.argv[1:]))
