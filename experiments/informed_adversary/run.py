"""Paper 004's factors: RecoNN, regressions on shadow models, and inversion of the training run, side by side.

    python -m experiments.informed_adversary.run                        # MNIST, every factor: hours on two cores
    python -m experiments.informed_adversary.run --factors default      # the first rows alone
    python -m experiments.informed_adversary.run --scale smoke          # digits, a minute

Every cell is a setting and an attack: one line of `results.jsonl`, kept when the cell is done; the same command goes
on with an interrupted run. All settings attack the same targets. Runtime and figures: README.md in this folder.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

import jax
import tyro

from drjax.core import validate
from drjax.core.store import key_of
from drjax.data import Dataset, Splits, load
from drjax.reports import ladder, records
from experiments import merging
from experiments.informed_adversary.case import Case, parts_of
from experiments.informed_adversary.cells import attack, attacks_of
from experiments.informed_adversary.config import FACTORS, SCALES, Scale, Setting, settings
from experiments.informed_adversary.judges import judge_of
from experiments.resume import cell_name, take_up

RESULTS = "results.jsonl"

WORK = "work"
"""Folder of trainings that were interrupted."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """What decides the results.

    Attributes:
        scale: How much is computed.
        seed: Of the split, the models and the intervals.
    """

    scale: Scale
    seed: int = 0

    def __post_init__(self) -> None:
        """Checks the seed."""
        validate.integer(minimum=0, seed=self.seed)


def places(scale: Scale, factors: Iterable[str]) -> Iterator[tuple[str, Setting, str]]:
    """Factor, setting and attack of every cell of some factors, sizes that a setting leaves open filled in."""
    for factor in factors:
        for setting in settings(factor, scale):
            sized = dataclasses.replace(
                setting, n_fixed=setting.n_fixed or scale.n_fixed, n_shadow=setting.n_shadow or scale.n_shadow
            )
            for which in attacks_of(sized):
                yield factor, sized, which


def path_of(factor: str, setting: Setting, which: str) -> str:
    """What a cell is called: "cifar10/CNN, ReLU/ridge"."""
    return f"{factor}/{setting.name}/{which}"


def run(
    config: Config, out: Path, *, factors: Iterable[str], only: str = "*", say: Callable[[str], None] = print
) -> list[dict[str, Any]]:
    """Computes the cells of some factors that `out` does not hold yet, and returns the records of all it holds.

    Args:
        config: What to compute.
        out: Folder of `results.jsonl`; made if missing.
        factors: Names in `FACTORS`.
        only: Pattern as in a shell of the cells to compute, "shadows/59000 shadows/*"; all by default.
        say: Told of each cell as it is done.

    Raises:
        ValueError: an unknown factor, a pattern that no cell fits, results of another configuration in `out`, or too
            few records for the split.
        OSError: `out` cannot be written, or the data set is not there.
    """
    scale, factors = config.scale, tuple(factors)
    validate.one_of(FACTORS, **{f"factor {i + 1}": name for i, name in enumerate(factors)})
    chosen: dict[tuple[str, str], tuple[Setting, list[str]]] = {}
    for factor, setting, which in places(scale, factors):
        if fnmatchcase(path_of(factor, setting, which), only):
            chosen.setdefault((factor, setting.name), (setting, []))[1].append(which)
    if not chosen:
        example = path_of(*next(places(scale, factors or FACTORS)))
        raise ValueError(f"only must fit some cell, such as {example!r}, got {only!r}")
    names = dict.fromkeys([scale.data, *(s.data for s, _ in chosen.values() if s.data)])
    data = {name: load(name) for name in names}
    split_key, case_key, score_key, judge_key = _keys(config.seed)
    parts = {name: parts_of(split_key, data[name], name, scale) for name in names}
    file = out / RESULTS
    done = _cells(take_up(file, config, data))
    # A file may be gone on with by later code and on another machine, of which its first line says nothing.
    where = merging.origin(records.provenance(config.seed))
    for (factor, _), (setting, attacks) in chosen.items():
        missing = [attack for attack in attacks if (factor, setting.name, attack) not in done]
        if not missing:
            continue
        name = setting.data or scale.data
        case = Case(setting, data[name], parts[name], case_key)
        judge = judge_of(out / f"judge-{name}.npz", judge_key, data[name], parts[name].targets, name)
        numbers = [one.name for one in settings(factor, scale)]
        for which in missing:
            checkpoint = out / WORK / f"{key_of(path_of(factor, setting, which))}.npz"
            checkpoint.parent.mkdir(exist_ok=True)
            facts = attack(case, which, score_key, judge, checkpoint=checkpoint)
            place = {"factor": factor, "setting": setting.name, "attack": which}
            order = FACTORS.index(factor), numbers.index(setting.name), attacks_of(setting).index(which)
            own = {**place, "of": setting, "provenance": where, **facts}
            records.put_record(file, "attack", cell_name(*order, *place.values()), **own)
            checkpoint.unlink(missing_ok=True)
            say(f"{factor}, {setting.name}, {which}: {facts['scores'].mse.estimate:.3g}")
    return list(_cells(records.gather_records(file)).values())


def to_markdown(cells: Iterable[Mapping[str, Any]]) -> str:
    """The records of cells as a Markdown table, one row each; errors in units of the records squared."""
    heads = (
        "factor",
        "setting",
        "attack",
        "MSE, mean",
        "MSE, median",
        "success",
        "label",
        "SSIM",
        "KL",
        "s per target",
    )
    lines = [f"| {' | '.join(heads)} |", f"|{' --- |' * len(heads)}"]
    for cell in cells:
        scores = cell["scores"]
        row = (
            cell["factor"],
            cell["setting"],
            cell["attack"],
            f"{ladder.number(scores['mse']['estimate'])} ({ladder.number(scores['mse']['low'])} to "
            f"{ladder.number(scores['mse']['high'])})",
            ladder.number(scores["mse_median"]["estimate"]),
            ladder.percent(scores["success"]["estimate"]),
            ladder.percent(cell["label"]["estimate"]) if "label" in cell else "",
            f"{cell['ssim']:.3f}",
            ladder.number(cell["kl"]["mean"]) if "kl" in cell else "",
            ladder.number(scores["seconds_per_target"]),
        )
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines)


def main(
    *,
    scale: Literal["smoke", "cpu", "full", "paper"] = "cpu",
    factors: tuple[str, ...] = (),
    only: str = "*",
    seed: int = 0,
    out: Path | None = None,
) -> None:
    """Attacks released models, factor by factor.

    Args:
        scale: How much is computed.
        factors: Those to run, all of the scale's if none is given.
        only: Pattern of the cells to compute, such as "shadows/59000 shadows/*".
        seed: Of the split, the models and the intervals.
        out: Folder of the results; runs/informed_adversary-SCALE if not given.
    """
    folder = out or Path("runs") / f"informed_adversary-{scale}"
    config = Config(scale=SCALES[scale], seed=seed)
    print(to_markdown(run(config, folder, factors=factors or config.scale.factors, only=only)))


def records_of(config: Mapping[str, Any], name: str | None = None) -> tuple[Dataset, Splits]:
    """A data set of a run, by default the scale's, and who knows which record; from the run's first line."""
    fields: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in config["scale"].items()}
    scale = Scale(**fields)
    name = name or scale.data
    data = load(name)
    return data, parts_of(_keys(config["seed"])[0], data, name, scale)


def identity(record: Mapping[str, Any]) -> tuple[str, str, str]:
    """What tells the records of cells apart."""
    return record["factor"], record["setting"], record["attack"]


def _keys(seed: int) -> jax.Array:
    """Of the split, the models, the scores and the judges."""
    return jax.random.split(jax.random.key(seed), 4)


def _cells(found: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str, str], dict[str, Any]]:
    return {identity(r): dict(r) for r in found if r["kind"] == "attack"}


if __name__ == "__main__":
    tyro.cli(main)
