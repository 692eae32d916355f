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
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Protocol

import jax
import numpy as np
import tyro

from drjax.attacks import membership, roc
from drjax.core import validate
from drjax.core.statistics import half_width
from drjax.data import load
from drjax.reports import records
from experiments.pca_membership import data
from experiments.resume import cell_name, take_up

RESULTS = "results.jsonl"
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


def run(config: Config, out: Path, *, say: Callable[[str], None] = print) -> list[dict[str, Any]]:
    """Computes the cells that `out` does not hold yet, and returns all.

    Raises:
        ValueError: results of another configuration in `out`, or too few records.
        OSError: `out` cannot be written, or a data set is not there.
    """
    file = out / RESULTS
    sources = {name: load(data.SOURCES.get(name, name)) for name in config.sizes}
    found = take_up(file, config, sources)
    done = {(cell["data"], cell["n"], cell["attack"]) for cell in found[1:]}
    for i, (name, sizes) in enumerate(config.sizes.items()):
        x = data.records(name)
        for n in sizes:
            for j, attack in enumerate(ATTACKS):
                if (name, n, attack) in done:
                    continue
                facts = _ATTACKS[attack](config, x, n)
                facts = {"data": name, "n": n, "attack": attack, "d": x.shape[1], **facts}
                records.put_record(file, "attack", cell_name(i, n, j, name, attack), **facts)
                auc = max(facts["auc"]["mean"], default=float("nan"))
                say(f"{name}, N = {n}, {attack}: AUC {auc:.3f}, {facts['seconds']:.1f} s")
    return records.gather_records(file)


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


def main(
    *,
    scale: Annotated[str, tyro.conf.arg(metavar="{" + ",".join(SCALES) + "}")] = "cpu",
    out: Path = Path("runs/pca_membership"),
) -> None:
    """Computes what is missing of figure 1.

    Args:
        scale: How much: smoke is digits alone.
        out: Folder of the results.
    """
    validate.one_of(SCALES, scale=scale)
    run(SCALES[scale], out)


if __name__ == "__main__":
    tyro.cli(main)
