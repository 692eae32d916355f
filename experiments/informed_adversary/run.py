"""Paper 004's factors: RecoNN, regressions on shadow models, and inversion of the training run, side by side.

    python -m experiments.informed_adversary.run                        # MNIST, every factor: hours on two cores
    python -m experiments.informed_adversary.run --factors default      # the first rows alone
    python -m experiments.informed_adversary.run --scale smoke          # digits, a minute

Every cell is a setting and an attack: one line of `results.jsonl`, kept when the cell is done; the same command goes
on with an interrupted run. All settings attack the same targets. Runtime and figures: README.md in this folder.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import jax
import tyro

from drjax.core import validate
from drjax.data import Dataset, Splits, load
from drjax.reports import ladder, records
from experiments import merging
from experiments.informed_adversary.case import Case, parts_of
from experiments.informed_adversary.cells import attack, attacks_of
from experiments.informed_adversary.config import FACTORS, SCALES, Scale, settings
from experiments.informed_adversary.judges import judge_of
from experiments.resume import cell_name, take_up

RESULTS = "results.jsonl"


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


def run(
    config: Config, out: Path, *, factors: Iterable[str], say: Callable[[str], None] = print
) -> list[dict[str, Any]]:
    """Computes the cells of some factors that `out` does not hold yet, and returns the records of all it holds.

    Args:
        config: What to compute.
        out: Folder of `results.jsonl`; made if missing.
        factors: Names in `FACTORS`.
        say: Told of each cell as it is done.

    Raises:
        ValueError: an unknown factor, results of another configuration in `out`, or too few records for the split.
        OSError: `out` cannot be written, or the data set is not there.
    """
    scale, factors = config.scale, tuple(factors)
    validate.one_of(FACTORS, **{f"factor {i + 1}": name for i, name in enumerate(factors)})
    chosen = [(factor, i, setting) for factor in factors for i, setting in enumerate(settings(factor, scale))]
    names = dict.fromkeys([scale.data, *(s.data for _, _, s in chosen if s.data)])
    data = {name: load(name) for name in names}
    split_key, case_key, score_key, judge_key = _keys(config.seed)
    parts = {name: parts_of(split_key, data[name], name, scale) for name in names}
    file = out / RESULTS
    done = _cells(take_up(file, config, data))
    # A file may be gone on with by later code and on another machine, of which its first line says nothing.
    where = merging.origin(records.provenance(config.seed))
    for factor, i, setting in chosen:
        name = setting.data or scale.data
        sized = dataclasses.replace(
            setting, n_fixed=setting.n_fixed or scale.n_fixed, n_shadow=setting.n_shadow or scale.n_shadow
        )
        missing = [attack for attack in attacks_of(sized) if (factor, setting.name, attack) not in done]
        if not missing:
            continue
        case = Case(sized, data[name], parts[name], case_key)
        judge = judge_of(out / f"judge-{name}.npz", judge_key, data[name], parts[name].targets, name)
        for which in missing:
            facts = attack(case, which, score_key, judge)
            place = {"factor": factor, "setting": setting.name, "attack": which}
            order = FACTORS.index(factor), i, attacks_of(sized).index(which)
            own = {**place, "of": sized, "provenance": where, **facts}
            records.put_record(file, "attack", cell_name(*order, *place.values()), **own)
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
    scale: Literal["smoke", "cpu", "full"] = "cpu",
    factors: tuple[str, ...] = (),
    seed: int = 0,
    out: Path | None = None,
) -> None:
    """Attacks released models, factor by factor.

    Args:
        scale: How much is computed.
        factors: Those to run, all of the scale's if none is given.
        seed: Of the split, the models and the intervals.
        out: Folder of the results; runs/informed_adversary-SCALE if not given.
    """
    folder = out or Path("runs") / f"informed_adversary-{scale}"
    config = Config(scale=SCALES[scale], seed=seed)
    print(to_markdown(run(config, folder, factors=factors or config.scale.factors)))


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


def _cells(found: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str, str], dict[str, Any]]:
    return {(r["factor"], r["setting"], r["attack"]): dict(r) for r in found if r["kind"] == "attack"}


if __name__ == "__main__":
    tyro.cli(main)
