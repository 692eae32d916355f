"""Paper 004's factors: RecoNN, regressions on shadow models, and inversion of the training run, side by side.

    python -m experiments.informed_adversary.run                        # MNIST, every factor: hours on two cores
    python -m experiments.informed_adversary.run --factors default      # the first rows alone
    python -m experiments.informed_adversary.run --scale smoke          # digits, a minute

Every cell is a setting and an attack: one line of `results.jsonl`, kept when the cell is done; the same command goes
on with an interrupted run. All settings attack the same targets. Runtime and figures: README.md in this folder.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax

from drjax.core import validate
from drjax.core.store import key_of
from drjax.data import Dataset, Splits, load
from drjax.reports import ladder, records
from experiments import command
from experiments.cells import Cell, Computed, Group, Line, by, cell_of
from experiments.informed_adversary.case import Case, parts_of
from experiments.informed_adversary.cells import attack, attacks_of
from experiments.informed_adversary.config import FACTORS, SCALES, Scale, Setting, settings
from experiments.informed_adversary.judges import judge_of
from experiments.markdown import markdown_table
from experiments.sweep import RESULTS, Asked, Claim, Sweep, cell_name

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Further options.

    Attributes:
        factors: Factors to run, all of the scale's if none is given.
        seed: Seed of the split, the models and the intervals.
    """

    factors: tuple[str, ...] = ()
    seed: int = 0


def places(scale: Scale, factors: Iterable[str]) -> Iterator[tuple[str, Setting, str]]:
    """Factor, setting and attack of every cell of some factors, sizes that a setting leaves open filled in."""
    for factor in factors:
        for setting in settings(factor, scale):
            sized = dataclasses.replace(
                setting, n_fixed=setting.n_fixed or scale.n_fixed, n_shadow=setting.n_shadow or scale.n_shadow
            )
            for which in attacks_of(sized):
                yield factor, sized, which


def groups(asked: Asked[Config]) -> Iterator[Group]:
    """The attacks on each setting, which have its released and its shadow models in common.

    Raises:
        ValueError: an unknown factor.
    """
    scale = asked.config.scale
    factors = asked.options.factors or scale.factors
    validate.one_of(FACTORS, **{f"factor {i + 1}": name for i, name in enumerate(factors)})
    found: dict[tuple[str, str], list[Cell]] = {}
    for factor, setting, which in places(scale, factors):
        numbers = [one.name for one in settings(factor, scale)]
        order = FACTORS.index(factor), numbers.index(setting.name), attacks_of(setting).index(which)
        cell = cell_of(
            cell_name(*order, factor, setting.name, which),
            factor=factor,
            setting=setting.name,
            attack=which,
            what=setting,
        )
        found.setdefault((factor, setting.name), []).append(cell)
    for cells in found.values():
        yield Group(cells=tuple(cells), compute=functools.partial(_compute, asked))


def _compute(asked: Asked[Config], missing: Sequence[Cell]) -> Iterator[Computed]:
    setting: Setting = missing[0].what
    name = setting.data or asked.config.scale.data
    data, parts = _given(asked.config, name)
    _, case_key, score_key, judge_key = _keys(asked.config.seed)
    case = Case(setting, data, parts, case_key)
    judge = judge_of(asked.out / f"judge-{name}.npz", judge_key, data, parts.targets, name)
    for cell in missing:
        checkpoint = asked.out / WORK / f"{key_of(cell.path)}.npz"
        checkpoint.parent.mkdir(exist_ok=True)
        facts = attack(case, cell.fields["attack"], score_key, judge, checkpoint=checkpoint)
        yield cell, {"of": setting, **facts}
        checkpoint.unlink(missing_ok=True)


def _sources(asked: Asked[Config], chosen: Sequence[Group]) -> dict[str, Dataset]:
    """The scale's data set and those of the settings."""
    scale = asked.config.scale
    names = dict.fromkeys([scale.data, *(group.cells[0].what.data or scale.data for group in chosen)])
    return {name: _given(asked.config, name)[0] for name in names}


@functools.lru_cache(maxsize=2)
def _given(config: Config, name: str) -> tuple[Dataset, Splits]:
    """A data set, and who knows which of its records."""
    data = load(name)
    return data, parts_of(_keys(config.seed)[0], data, name, config.scale)


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
    rows = []
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
        rows.append(row)
    return markdown_table(heads, rows)


def records_of(config: Mapping[str, Any], name: str | None = None) -> tuple[Dataset, Splits]:
    """A data set of a run, by default the scale's, and who knows which record; from the run's first line."""
    fields: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in config["scale"].items()}
    scale = Scale(**fields)
    name = name or scale.data
    data = load(name)
    return data, parts_of(_keys(config["seed"])[0], data, name, scale)


def _keys(seed: int) -> jax.Array:
    """Of the split, the models, the scores and the judges."""
    return jax.random.split(jax.random.key(seed), 4)


def _said(line: Line) -> str:
    return f"{line['factor']}, {line['setting']}, {line['attack']}: {line['scores']['mse']['estimate']:.3g}"


def _claims(lines: Sequence[Line]) -> list[Claim]:
    from experiments.informed_adversary import claims  # which reads what this module computes

    return claims.judged_claims(lines)


SWEEP = Sweep(
    name="informed_adversary",
    about=__doc__,
    scales={name: Config(scale=scale) for name, scale in SCALES.items()},
    groups=groups,
    sources=_sources,
    identity=by("factor", "setting", "attack"),
    said=_said,
    options=Options(),
    configured=lambda config, options: dataclasses.replace(config, seed=options.seed),
    report=lambda out, _: to_markdown(records.read_records(out / RESULTS)[1:]),
    claims=_claims,
)


if __name__ == "__main__":
    command.main(SWEEP)
