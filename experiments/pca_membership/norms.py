"""Membership by the norm alone, in the units of the paper's curator: what standardising gives away by itself.

    python -m experiments.pca_membership.norms                   # half a minute
    python -m experiments.pca_membership.norms --scale smoke     # digits, seconds

The curator standardises by means and deviations of the members, in which these are a little shorter than others; the
score is the negative squared norm. Beside it stands the same score in the units of as many other records. Trials are
those of `private`, of which nothing else is computed. A cell is a data set, one line of `norms.jsonl`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

import numpy as np

from drjax.attacks import roc
from drjax.defenses.dp_pca import PAPER
from experiments import command
from experiments.cells import Cell, Computed, Group, Line, by, cell_of
from experiments.pca_membership import private
from experiments.pca_membership.run import digits, sources
from experiments.sweep import Asked, Sweep, cell_name

RESULTS = "norms.jsonl"


def groups(asked: Asked[private.Config]) -> Iterator[Group]:
    """A cell for each data set, at the N of the figures."""
    for i, (name, n) in enumerate(asked.config.sizes.items()):
        cell = cell_of(cell_name(i, n, name, "norm"), data=name, n=n, attack="norm")
        yield Group(cells=(cell,), compute=functools.partial(_compute, asked.config))


def _compute(config: private.Config, missing: Sequence[Cell]) -> Iterator[Computed]:
    for cell in missing:
        draws = private.Draws(config, str(cell.fields["data"]), int(cell.fields["n"]))
        yield cell, {"auc": _aucs(draws, of_others=False), "of_others": _aucs(draws, of_others=True)}


def _aucs(draws: private.Draws, *, of_others: bool) -> list[float]:
    """AUC of every trial."""
    found = [
        roc.auc_columns(-np.sum(case.candidates**2, axis=1, keepdims=True), case.is_member)[0]
        for case in draws.cases(PAPER, of_others=of_others)
    ]
    return digits(np.array(found))


def _said(line: Line) -> str:
    own, of_others = np.mean(line["auc"]), np.mean(line["of_others"])
    return f"{line['data']}, N = {line['n']}: AUC {own:.4f}, {of_others:.4f} in the units of others"


SWEEP = Sweep(
    name="pca_membership",
    about=__doc__,
    scales=private.SCALES,
    plain="cpu",
    groups=groups,
    sources=sources,
    identity=by("data", "n", "attack"),
    said=_said,
    results=RESULTS,
)


if __name__ == "__main__":
    command.main(SWEEP)
