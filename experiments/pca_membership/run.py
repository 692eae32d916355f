"""Figure 1 of paper 001, and a likelihood-ratio attack beside the paper's: AUC over k and N on its four data sets.

    python -m experiments.pca_membership.run
    python -m experiments.pca_membership.run --scale smoke      # digits

Members are N records drawn at random, others as many; the curator publishes the leading k eigenvectors of X^T X / N.
Every number of components comes from one decomposition and one product. The ratio has public records, neither members
nor the others, that stand in for the population. A cell is a data set, an N and an attack, one line of `results.jsonl`
as soon as it is done; the same command goes on with an interrupted run.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import jax
import numpy as np

from drjax.attacks import membership, roc
from drjax.core import validate
from drjax.core.statistics import half_width
from drjax.data import Dataset, load
from experiments import command
from experiments.cells import Cell, Computed, Group, Line, by, cell_of
from experiments.pca_membership import data
from experiments.sweep import Asked, Sweep, cell_name

ATTACKS = ("reconstruction", "ratio")
RATES = (1e-3, 1e-2)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """What decides the results.

    Attributes:
        sizes: N by data set.
        trials: Of the paper's attack at each N.
        ratio_trials: Of the ratio; the first of those trials.
        n_shadows: Of the ratio.
        n_ks: Numbers of components at which the ratio is computed, spread evenly over 1 to d.
        most_public: Public records of the ratio, at most.
        seed: Of everything that is drawn.
    """

    sizes: dict[str, tuple[int, ...]]
    trials: int = 10
    ratio_trials: int = 5
    n_shadows: int = 32
    n_ks: int = 12
    most_public: int = 20_000
    seed: int = 0

    def __post_init__(self) -> None:
        """Checks every field that can be checked without the data."""
        validate.integer(minimum=2, trials=self.trials, ratio_trials=self.ratio_trials, n_shadows=self.n_shadows)
        validate.integer(n_ks=self.n_ks, most_public=self.most_public)
        validate.integer(minimum=0, seed=self.seed)
        for name, sizes in self.sizes.items():
            validate.one_of(data.NAMES, **{"a data set": name})
            for n in sizes:
                validate.integer(minimum=2, **{f"a size of {name}": n})


SCALES = {
    "smoke": Config(sizes={"digits": (50, 200)}, trials=3, ratio_trials=2, n_shadows=8, n_ks=4),
    "cpu": Config(
        sizes={
            "mnist": (100, 200, 500, 1000, 2000, 5000, 10_000),
            "lfw": (100, 200, 500, 1000, 2000),
            "adult": (100, 200, 500, 1000, 2000, 5000, 10_000),
            "census": (50, 100, 200, 400),
        }
    ),
}


def groups(asked: Asked[Config]) -> Iterator[Group]:
    """Both attacks at every N."""
    for i, (name, sizes) in enumerate(asked.config.sizes.items()):
        for n in sizes:
            cells = [
                cell_of(cell_name(i, n, j, name, attack), data=name, n=n, attack=attack)
                for j, attack in enumerate(ATTACKS)
            ]
            yield Group(cells=tuple(cells), compute=functools.partial(_compute, asked.config, name, n))


def _compute(config: Config, name: str, n: int, missing: Sequence[Cell]) -> Iterator[Computed]:
    x = data.records(name)
    for cell in missing:
        yield cell, {"d": x.shape[1], **_ATTACKS[cell.fields["attack"]](config, x, n)}


def _said(line: Line) -> str:
    auc = max(line["auc"]["mean"], default=float("nan"))
    return f"{line['data']}, N = {line['n']}, {line['attack']}: AUC {auc:.3f}, {line['seconds']:.1f} s"


def sources(asked: Asked[Any], _: Sequence[Group]) -> dict[str, Dataset]:
    """The data sets of a configuration with `sizes`, by name."""
    return {name: load(data.SOURCES.get(name, name)) for name in asked.config.sizes}


class Draws(Protocol):
    """What a trial has to know of a configuration."""

    @property
    def seed(self) -> int:
        """Of the order of the records."""
        ...

    @property
    def most_public(self) -> int:
        """Public records, at most."""
        ...


class Trial:
    """One draw of members and others, and the curator's release of all components."""

    def __init__(self, config: Draws, x: np.ndarray, n: int, index: int) -> None:
        rng = np.random.default_rng([config.seed, n, index])
        rows = rng.permutation(len(x))
        if len(x) < 2 * n:
            raise ValueError(f"n must be at most half of the {len(x)} records, got {n}")
        parts = np.split(rows, [n, 2 * n, 2 * n + config.most_public])
        self.members, self.others, self.public = (x[part] for part in parts[:3])
        self.candidates = np.concatenate([self.members, self.others])
        self.is_member = np.arange(2 * n) < n

    def release(self) -> membership.Release:
        """All eigenvectors of X^T X / N."""
        return membership.release_of(self.members, self.members.shape[1])


def trials(config: Draws, x: np.ndarray, n: int, count: int) -> Iterator[Trial]:
    """The first `count` draws at that N: the same for every attack."""
    return (Trial(config, x, n, index) for index in range(count))


def reconstruction(config: Config, x: np.ndarray, n: int) -> dict[str, Any]:
    """The paper's attack, for every k."""
    begun, aucs, rates = time.perf_counter(), [], []
    for trial in trials(config, x, n, config.trials):
        scores = -membership.pca_score_prefixes(trial.release().components, trial.candidates)
        aucs.append(roc.auc_columns(scores, trial.is_member))
        rates.append(_rates(scores, trial.is_member, int(np.argmax(aucs[-1]))))
    return _summary(np.arange(1, x.shape[1] + 1), aucs, rates, time.perf_counter() - begun)


def ratio(config: Config, x: np.ndarray, n: int) -> dict[str, Any]:
    """The likelihood ratio of drjax, at some k."""
    if len(x) - 2 * n < 2 * n:
        why = f"needs 2 N public records beside 2 N candidates, got {len(x) - 2 * n}"
        return {**_summary(np.array([1]), [], [], 0.0), "left_out": why}
    d = x.shape[1]
    ks = np.unique(np.linspace(1, min(n, d), config.n_ks).round().astype(int))
    begun, aucs, rates = time.perf_counter(), [], []
    for i, trial in enumerate(trials(config, x, n, config.ratio_trials)):
        key = jax.random.fold_in(jax.random.key(config.seed), i)
        shadows = membership.fit_shadows(key, trial.public, n, n_shadows=config.n_shadows, n_pairs=0)
        scores = membership.ratio_score_prefixes(shadows, trial.release(), trial.candidates, ks=ks.tolist())
        aucs.append(roc.auc_columns(scores, trial.is_member))
        rates.append(_rates(scores, trial.is_member, int(np.argmax(aucs[-1]))))
    return _summary(ks, aucs, rates, time.perf_counter() - begun)


_ATTACKS = {"reconstruction": reconstruction, "ratio": ratio}


def _rates(scores: np.ndarray, is_member: np.ndarray, best: int) -> list[float]:
    """TPR at every rate of `RATES`; nan where so few others cannot show such a rate."""
    return [float(roc.tpr_at_fpr(scores[:, best], is_member, fpr=rate).estimate) for rate in RATES]


def _summary(ks: np.ndarray, aucs: list[np.ndarray], rates: list[list[float]], seconds: float) -> dict[str, Any]:
    """Means over trials with 95% intervals of the mean; TPR at the k whose AUC was the trial's best, in hindsight."""
    if not aucs:
        return {"k": [], "auc": {"mean": [], "half": []}, "best": None, "tpr": {}, "seconds": seconds, "trials": 0}
    table, shares = np.array(aucs), np.array(rates)
    best = table.max(axis=1)
    return {
        "k": ks.tolist(),
        "auc": {"mean": digits(table.mean(axis=0)), "half": digits(half_width(table))},
        "best": {"mean": float(best.mean()), "half": float(half_width(best[:, None])[0])},
        "best_k": int(ks[int(np.argmax(table.mean(axis=0)))]),
        "tpr": {
            f"{rate:g}": {"mean": float(column.mean()), "half": float(half_width(column[:, None])[0])}
            for rate, column in zip(RATES, shares.T, strict=True)
            if np.isfinite(column).all()
        },
        "seconds": seconds,
        "trials": len(table),
    }


def digits(values: np.ndarray) -> list[float]:
    """Five digits of each."""
    return [float(f"{value:.5g}") for value in values]


SWEEP = Sweep(
    name="pca_membership",
    about=__doc__,
    scales=SCALES,
    plain="cpu",
    groups=groups,
    sources=sources,
    identity=by("data", "n", "attack"),
    said=_said,
)


if __name__ == "__main__":
    command.main(SWEEP)
