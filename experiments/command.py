"""The command line of every experiment: `python -m experiments.NAME.run`."""

from __future__ import annotations

import dataclasses
import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro

from drjax.core import validate
from drjax.core.parts import ALL
from experiments import sweep
from experiments.markdown import markdown_table
from experiments.sweep import Asked, C, Claim, Sweep


@dataclasses.dataclass(frozen=True)
class Nothing:
    """No further options."""


def main(experiment: Sweep[Any], args: Sequence[str] | None = None) -> None:
    """Computes what is missing, lists the cells, or puts folders together.

    Args:
        experiment: The experiment.
        args: Words of the command line; those of this process if None.

    Raises:
        ValueError: what `sweep.run` or `sweep.merge` refuses.
        OSError: results cannot be read or written, or a data set is not there.
    """
    main_module = sys.modules["__main__"]
    if experiment.groups.__module__ == "__main__" and main_module.__spec__ is not None:
        # Workers know what is in a module by the module's name.
        experiment = importlib.import_module(main_module.__spec__.name).SWEEP
    tyro.cli(_command(experiment), description=experiment.about, args=args)


def folder_of(experiment: Sweep[Any], scale: str) -> Path:
    """Where the results of a scale are by default."""
    return Path("runs") / (experiment.name if scale == experiment.plain else f"{experiment.name}-{scale}")


def overriding(default: C) -> Callable[[C, C], C]:
    """For experiments whose options are the fields of their configuration: what is not the default is taken over."""

    def configured(config: C, options: C) -> C:
        fields = {name: value for name, value in vars(options).items() if value != getattr(default, name)}
        return dataclasses.replace(config, **fields)

    return configured


def listing(experiment: Sweep[C], asked: Asked[C], part: str = ALL) -> Iterator[str]:
    """A line for every cell that is asked for: its path, and whether it is done. Writes nothing.

    Raises:
        ValueError: as `Sweep.chosen`, or a folder of another configuration.
    """
    if experiment.listed is not None:
        yield from experiment.listed(asked)
        return
    groups, done = experiment.chosen(asked, part), experiment.done(asked)
    counts = {True: 0, False: 0}
    for cell in (cell for group in groups for cell in group.cells):
        is_done = cell.identity in done
        counts[is_done] += 1
        yield f"{cell.path:60} {'done' if is_done else 'to do'}"
    yield f"# {counts[True]:,} cells done, {counts[False]:,} to do"


def claims_of(experiment: Sweep[C], asked: Asked[C]) -> str:
    """What the paper says and whether it holds by the lines of a folder, as a Markdown table.

    Raises:
        ValueError: an experiment that tests no claims, or a folder without results or of another configuration.
    """
    if experiment.claims is None:
        raise ValueError(f"claims must be asked of an experiment that tests some, got {experiment.name}")
    lines = sweep.found(asked.out / experiment.results, asked.config)
    if len(lines) < 2:
        raise ValueError(f"out must hold results, got {asked.out} without any")
    names = [field.name for field in dataclasses.fields(Claim)]
    return markdown_table(names, [[str(word) for word in vars(claim).values()] for claim in experiment.claims(lines)])


def _command(experiment: Sweep[Any]) -> Callable[..., None]:
    defaults = Nothing() if experiment.options is None else experiment.options

    def command(
        *,
        scale: str = experiment.scale,
        only: tuple[str, ...] = (),
        part: str = ALL,
        minutes: float | None = None,
        executor: str | None = None,
        workers: int | None = None,
        is_list: Annotated[bool, tyro.conf.arg(name="list")] = False,
        is_claims: Annotated[bool, tyro.conf.arg(name="claims")] = False,
        merge: tuple[Path, ...] = (),
        out: Path | None = None,
        options: Any = defaults,
    ) -> None:
        """Computes what is missing.

        Args:
            scale: How much is computed.
            only: Patterns of cells to compute, as --list names them; all by default.
            part: i/n computes one of n disjoint parts, for as many processes, which may share a folder.
            minutes: Begin nothing that is not expected to end within these minutes.
            executor: Where cells are computed: local for processes of this machine, ray, dask or slurm, whose workers
                must all reach --out; in this process if not given.
            workers: Workers to ask an executor for.
            is_list: List the cells in the order in which they are computed, and compute nothing.
            is_claims: Print what the paper says and whether it holds by what is computed, and compute nothing.
            merge: Put these folders, which hold parts of one configuration, together in --out; compute nothing.
            out: Folder of the results; below runs, by name and scale, if not given.
            options: Of the experiment.
        """
        validate.one_of(experiment.scales, scale=scale)
        folder = out or folder_of(experiment, scale)
        if merge:
            print(f"{sweep.merge(experiment, merge, folder)} lines")
            return
        config = experiment.configured(experiment.scales[scale], options)
        if is_list:
            print(*listing(experiment, experiment.asked(config, folder, only, options), part), sep="\n")
            return
        if is_claims:
            print(claims_of(experiment, experiment.asked(config, folder)))
            return
        told: dict[str, Any] = {"only": only, "part": part, "minutes": minutes, "options": options}
        told |= {"executor": executor, "workers": workers}
        left = sweep.run(experiment, config, folder, progress=True, **told).left
        if left:
            print(f"{sum(len(group.cells) for group in left):,} cells did not fit: the same command goes on with them")
        if text := experiment.report(folder, config):
            print(text)

    scales = tyro.conf.arg(metavar="{" + ",".join(experiment.scales) + "}", aliases=["-s"])
    command.__annotations__["scale"] = Annotated[str, scales]
    command.__annotations__["options"] = tyro.conf.OmitArgPrefixes[type(defaults)]  # pyrefly: ignore[invalid-annotation]
    return command
