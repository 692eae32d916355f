"""`drjax sweep`: audits with settings crossed, and how far a sweep is."""

from __future__ import annotations

from typing import Annotated, Any

import tyro
from rich.console import Console

from drjax import data as datasets
from drjax import sweeps
from drjax.audits import AuditConfig
from drjax.audits.config import value_of
from drjax.core import executors
from drjax.core.parts import ALL
from drjax.data.own_table import OPTIONS
from drjax.reports import ladder
from drjax.sweeps.config import LANES

Out = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="OUT")]


def sweep(
    out: Out,
    config: Annotated[tyro.conf.OmitArgPrefixes[AuditConfig], tyro.conf.arg(name="")],
    *,
    over: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE,VALUE...")],
    part: str = ALL,
    lanes: int = LANES,
    executor: Annotated[str, tyro.conf.arg(metavar=f"{{{','.join(executors.NAMES)}}}")] = "local",
    workers: int | None = None,
    keep: bool = False,
    quiet: bool = False,
) -> None:
    """Audit with settings crossed, on any number of workers; the same command goes on where another stopped.

    Args:
        out: Store: a folder, or an address such as s3://bucket/folder. One Parquet file a cell.
        config: What all cells have in common.
        over: Values of each setting: fields of audits, such as n_known=199,999, or hyperparameters, such as
            perplexity=10,30, which are left out of the cells of methods without them. Join what is one value of several
            words by a plus: attacks=closed-form,nearest+closed-form.
        part: i/n computes one of n disjoint parts of the cells, for as many commands that share a store.
        lanes: Releases of a task, at most.
        executor: Where cells are computed: local for processes of this machine, ray, dask or slurm, whose workers must
            all reach the store and the data.
        workers: Workers to ask for; one per core, or what the cluster has, if not given.
        keep: Keep releases and reconstructions of finished cells.
        quiet: Print errors only.
    """
    swept = sweeps.SweepConfig(base=config, over=dict(map(_values, over)), lanes=lanes)
    given = datasets.load(config.data, data_dir=config.data_dir, **{name: getattr(config, name) for name in OPTIONS})
    console = Console(quiet=quiet)
    told: dict[str, Any] = {"executor": executor, "workers": workers, "keep": keep, "progress": not quiet}
    found = sweeps.run(swept, out, data=given, part=part, **told)
    console.print("\n".join(_lines(found)), soft_wrap=True, highlight=False, markup=False)
    console.print(f"{len(swept.cells):,} cells in {out}", soft_wrap=True, highlight=False)


def sweep_status(out: Out) -> None:
    """Say how far a sweep is, whoever computes it.

    Args:
        out: Store of the sweep.
    """
    print(sweeps.status(out))


def _values(word: str) -> tuple[str, tuple]:
    """The values of a setting from NAME=VALUE,VALUE.

    Raises:
        ValueError: a word of another form.
    """
    name, _, texts = word.partition("=")
    if not name or not all(texts.split(",")):
        raise ValueError(f"over must be NAME=VALUE,VALUE, got {word!r}")
    values = (tuple(text.split("+")) if "+" in text else value_of(text) for text in texts.split(","))
    return name.replace("-", "_"), tuple(values)


def _lines(found: sweeps.SweepResult) -> list[str]:
    """A line for the strongest attack of every cell, under their titles."""
    guess = {line["cell"]: line["mse"] for line in found.lines if line["attack"] == "mean"}
    rows = [("cell", "strongest attack", "of a guess's error", "identified")]
    for name, line in found.strongest.items():
        share = ladder.percent(line["mse"] / guess[name]) if guess.get(name) else ""
        rates = (line[f"identification{end}"] for end in ("", "_low", "_high"))
        rows.append((name, line["label"], share, "{} ({} to {})".format(*map(ladder.percent, rates))))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
