"""Figures of the README of `experiments.leak_vs_n`; those of docs/leak.md are in `experiments.prose.leak`."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.leak_vs_n.tables import lines_of
from experiments.markdown import Figures

figures = Figures()


@figures
def seconds_a_target() -> Sequence[float]:
    """Of the attacks on Isomap and on MDS at rest, each of the most records that it was run on."""
    most = {line["way"]: line for line in sorted(lines_of("distances"), key=lambda line: line["n"])}
    return [most[way]["seconds"] / most[way]["targets"] for way in ("Isomap", "MDS, at rest")]
