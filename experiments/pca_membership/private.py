"""Figures 2, 3, 5 and 6 of paper 001, private PCA, with the paper's curators and with sound ones; stronger attacks.

    python -m experiments.pca_membership.private
    python -m experiments.pca_membership.private --scale smoke      # digits

Members are N records drawn at random, others as many; a trial draws members and noise anew. All d components of one fit
serve every number of components and every figure. A cell is a data set, an N, a curator and a relation, with all its
epsilons: one line of `private.jsonl` as soon as it is done; the same command goes on with an interrupted run.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from drjax.attacks import membership, roc
from drjax.bounds.tradeoff import EpsilonDelta
from drjax.core import validate
from drjax.core.statistics import half_width
from drjax.defenses import pca_utility
from drjax.defenses.dp_pca import PAPER, PUBLIC
from experiments import command
from experiments.cells import Cell, Computed, Group, Line
from experiments.pca_membership import curators, data, stronger
from experiments.pca_membership.curators import Case
from experiments.pca_membership.run import Trial, digits, sources, trials
from experiments.sweep import Asked, Sweep, cell_name

RESULTS = "private.jsonl"
NONE = "none"
"""The curator who adds nothing."""

RATE = 1e-2
LAPLACE = ("laplace_vector", "laplace_scalar", "laplace_advanced")
GAUSSIAN = ("analyze_gauss", "analyze_gauss_tight", "analytic_gauss")
CURVES = (NONE, "analyze_gauss", "analytic_gauss", "laplace_vector")
"""Whose AUC is kept for every k."""

CHANCE = {(PAPER, "analyze_gauss"), (PUBLIC, "analytic_gauss")}
"""Where the same attack is aimed at components of other records too: what chance and a k chosen in hindsight give."""

CLASSICAL_UP_TO = 3.0
"""Epsilon beyond which the classical deviation is too small at the deltas here, and the mechanism refuses it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """What decides the results; delta is 1 / N.

    Attributes:
        sizes: N of the figures, by data set.
        sweep: Other N.
        gauss: Epsilons of the paper's Analyze Gauss.
        laplace: Of the paper's Laplace mechanisms.
        sound_gauss: Of sound Gaussian mechanisms.
        sound_laplace: Of sound Laplace mechanisms.
        sweep_gauss: Of the Gaussian mechanisms at other N.
        sweep_laplace: Of the paper's vector query there.
        ratio: Epsilons of `AnalyticGauss` and of the vector query that the likelihood ratio is aimed at, by data set.
        informed_gauss: Of Analyze Gauss, in the games of who knows all records but one.
        informed_laplace: Of the vector query there.
        trials: Draws of members and noise.
        ratio_trials: The first of those trials.
        n_shadows: Of the ratio.
        games: Of the informed adversary, in the first trial.
        most_solved: d up to which these games are also played with components, at an eigendecomposition a game.
        n_ks: Numbers of components at which AUC is computed, spread evenly over 1 to d.
        ratio_ks: Of the ratio.
        most_candidates: Members, and others, that AUC is measured on, at most.
        ratio_candidates: Of the ratio.
        most_public: Public records, at most.
        seed: Of everything that is drawn.
    """

    sizes: dict[str, int]
    sweep: dict[str, tuple[int, ...]]
    gauss: tuple[float, ...] = (0.01, 0.03, 0.1, 0.3, 1.0)
    laplace: tuple[float, ...] = (0.1, 1.0, 10.0, 30.0, 100.0, 300.0, 1e3, 1e4, 3e4, 1e5, 3e5, 1e6, 1e7)
    sound_gauss: tuple[float, ...] = (0.1, 0.3, 1.0, 3.0, 10.0, 100.0)
    sound_laplace: tuple[float, ...] = (1.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6, 1e7)
    sweep_gauss: tuple[float, ...] = (0.1, 1.0)
    sweep_laplace: tuple[float, ...] = (1e2, 1e4, 1e6)
    ratio: dict[str, tuple[tuple[float, ...], tuple[float, ...]]]
    informed_gauss: tuple[float, ...] = (0.1, 1.0, 10.0)
    informed_laplace: tuple[float, ...] = (1.0, 1e2, 1e4)
    trials: int = 10
    ratio_trials: int = 5
    n_shadows: int = 24
    games: int = 500
    most_solved: int = 100
    n_ks: int = 40
    ratio_ks: int = 12
    most_candidates: int = 1000
    ratio_candidates: int = 500
    most_public: int = 20_000
    seed: int = 0

    def __post_init__(self) -> None:
        """Checks every field that can be checked without the data."""
        validate.integer(minimum=2, trials=self.trials, ratio_trials=self.ratio_trials, n_shadows=self.n_shadows)
        validate.integer(minimum=2, most_candidates=self.most_candidates, ratio_candidates=self.ratio_candidates)
        validate.integer(n_ks=self.n_ks, ratio_ks=self.ratio_ks, most_public=self.most_public)
        validate.integer(games=self.games)
        validate.integer(minimum=0, seed=self.seed, most_solved=self.most_solved)
        validate.at_most(self.trials, "trials", ratio_trials=self.ratio_trials)
        for name, n in self.sizes.items():
            validate.one_of(data.NAMES, **{"a data set": name})
            for size in (n, *self.sweep.get(name, ())):
                validate.integer(minimum=2, **{f"a size of {name}": size})
        for field in dataclasses.fields(self):
            if field.name.endswith(("gauss", "laplace")):
                values = getattr(self, field.name)
                if not values or list(values) != sorted(set(values)) or not values[0] > 0:
                    raise ValueError(f"{field.name} must be increasing numbers > 0, got {values}")


SCALES = {
    "smoke": Config(
        sizes={"digits": 300},
        sweep={"digits": (100,)},
        gauss=(0.1, 1.0),
        laplace=(1.0, 1e3, 1e5, 1e7),
        sound_gauss=(1.0, 10.0),
        sound_laplace=(1e3, 1e6),
        sweep_gauss=(1.0,),
        sweep_laplace=(1e4,),
        ratio={"digits": ((1.0,), (1e6,))},
        informed_gauss=(1.0,),
        informed_laplace=(1e2,),
        trials=3,
        ratio_trials=2,
        n_shadows=8,
        games=100,
        n_ks=8,
        ratio_ks=3,
        most_solved=0,
    ),
    "cpu": Config(
        sizes={"mnist": 1000, "lfw": 1000, "adult": 1000, "census": 200},
        sweep={"mnist": (10_000,), "lfw": (200, 2000), "adult": (100, 10_000), "census": (100, 400)},
        ratio={
            "mnist": ((1.0, 100.0), (1e6,)),
            "lfw": ((1.0, 10.0, 100.0), (1e4, 1e6)),
            "adult": ((1.0, 10.0, 100.0), (1e2, 1e3, 1e4)),
            "census": ((1.0, 10.0, 100.0), (1e2, 1e3, 1e4)),
        },
    ),
}


class Job(NamedTuple):
    """One cell but for its data set and N."""

    attack: str
    convention: str
    curator: str
    neighbouring: str
    epsilons: tuple[float, ...]

    @property
    def key(self) -> tuple[Any, ...]:
        """What tells cells of a data set and N apart; single epsilons are cells of the ratio alone."""
        return self[:4] + (self.epsilons[:1] if self.attack == "ratio" else ())


def jobs(config: Config, name: str, n: int) -> list[Job]:
    """The cells of a data set at an N.

    The paper's Analyze Gauss has the sensitivity of "zero_out" and "add_or_remove", and its Laplace noise is the same
    under every relation; so is that of a sound vector query, and of scalar queries by the L1 sensitivity.
    """
    if n != config.sizes[name]:
        return [
            Job("reconstruction", PAPER, NONE, "zero_out", ()),
            Job("reconstruction", PAPER, "analyze_gauss", "zero_out", config.sweep_gauss),
            Job("reconstruction", PAPER, "laplace_vector", "zero_out", config.sweep_laplace),
            *(Job("reconstruction", PUBLIC, each, "zero_out", config.sweep_gauss) for each in GAUSSIAN),
        ]
    classical = tuple(epsilon for epsilon in config.sound_gauss if epsilon <= CLASSICAL_UP_TO)
    gauss, laplace = config.ratio[name]
    return [
        Job("reconstruction", PAPER, NONE, "zero_out", ()),
        Job("reconstruction", PAPER, "analyze_gauss", "zero_out", config.gauss),
        *(Job("reconstruction", PAPER, each, "zero_out", config.laplace) for each in LAPLACE),
        Job("reconstruction", PUBLIC, NONE, "zero_out", ()),
        *(
            Job("reconstruction", PUBLIC, each, relation, classical if each == "analyze_gauss" else config.sound_gauss)
            for relation in ("zero_out", "replace_one")
            for each in GAUSSIAN
        ),
        *(Job("reconstruction", PUBLIC, each, "zero_out", config.sound_laplace) for each in LAPLACE),
        Job("reconstruction", PUBLIC, "laplace_advanced", "replace_one", config.sound_laplace),
        *(Job("ratio", PUBLIC, "analytic_gauss", stronger.RELATION, (epsilon,)) for epsilon in gauss),
        *(Job("ratio", PUBLIC, "laplace_vector", stronger.RELATION, (epsilon,)) for epsilon in laplace),
        Job("informed", PUBLIC, "analyze_gauss_tight", stronger.RELATION, config.informed_gauss),
        Job("informed", PUBLIC, "laplace_vector", stronger.RELATION, config.informed_laplace),
    ]


def groups(asked: Asked[Config]) -> Iterator[Group]:
    """The cells of every data set and N, which have their trials in common."""
    config = asked.config
    for i, (name, main) in enumerate(config.sizes.items()):
        for n in (main, *config.sweep.get(name, ())):
            cells = [
                Cell(
                    path="/".join((name, str(n), *map(str, job.key))),
                    name=cell_name(i, n, j, name, *job[:4]),
                    identity=(name, n, *job.key),
                    fields={"data": name, "n": n, **dict(zip(Job._fields[:4], job, strict=False))},
                    what=job,
                )
                for j, job in enumerate(jobs(config, name, n))
            ]
            yield Group(cells=tuple(cells), compute=functools.partial(_compute, config, name, n))


def identity(line: Line) -> tuple[Any, ...]:
    """What tells lines apart."""
    named, epsilons = [line[field] for field in Job._fields[:4]], tuple(p["epsilon"] for p in line["points"])
    return line["data"], line["n"], *Job(named[0], named[1], named[2], named[3], epsilons).key


def _compute(config: Config, name: str, n: int, missing: Sequence[Cell]) -> Iterator[Computed]:
    draws = Draws(config, name, n)
    for cell in missing:
        wall, cpu = time.perf_counter(), time.process_time()
        facts = _ATTACKS[cell.what.attack](config, draws, cell.what)
        facts |= {"seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - cpu}
        yield cell, {"d": draws.x.shape[1], **facts}


def _said(line: Line) -> str:
    what = " ".join(line[field] for field in Job._fields[:4])
    best = [np.mean(p["best"]) if "best" in p else p["scatter"]["auc"] for p in line["points"]]
    text = ", ".join(f"{p['epsilon']}: {auc:.3f}" for p, auc in zip(line["points"], best, strict=True))
    return f"{line['data']}, N = {line['n']}, {what}: AUC at epsilon {text}; {line['cpu_seconds']:.1f} s"


class Draws:
    """The trials of a data set at an N, in either convention; each is prepared when it is asked for, and kept."""

    def __init__(self, config: Config, name: str, n: int) -> None:
        self.config, self.name, self.n, self.x = config, name, n, data.records(name)
        self._kept: dict[tuple[str, bool], list[Case]] = {}

    @property
    def ks(self) -> np.ndarray:
        """Numbers of components that AUC is computed for."""
        return self.spread(self.config.n_ks)

    def spread(self, count: int) -> np.ndarray:
        """At most `count` numbers of components, from 1 to d."""
        d = self.x.shape[1]
        return np.unique(np.linspace(1, d, min(count, d)).round().astype(int))

    def cases(self, convention: str, *, of_others: bool = False) -> list[Case]:
        """One for every trial; of curators who hold N public records in the members' stead, for the same candidates."""
        kept = (convention, of_others)
        if kept not in self._kept:
            most, drawn = self.config.most_candidates, trials(self.config, self.x, self.n, self.config.trials)
            held = ((trial, trial.public[: self.n] if of_others else trial.members) for trial in drawn)
            self._kept[kept] = [curators.case(trial, convention, own, most_candidates=most) for trial, own in held]
        return self._kept[kept]


def reconstruction(config: Config, draws: Draws, job: Job) -> dict[str, Any]:
    """The paper's attack, and utility, at every epsilon; values of single trials, and means over them for every k."""
    scored = _scored(config, draws, job, draws.cases(job.convention))
    chance = None
    if (job.convention, job.curator) in CHANCE and draws.n == config.sizes[draws.name]:
        chance = _scored(config, draws, job, draws.cases(job.convention, of_others=True), first=config.trials)
    points = []
    for i, epsilon in enumerate(job.epsilons or (None,)):
        aucs = np.array([one.aucs[i] for one in scored])
        point: dict[str, Any] = {"epsilon": epsilon, "best": digits(aucs[:, :-1].max(axis=1))}
        # The last column is of the k at 90% of the energy, which nobody chose by its AUC.
        point |= {"at_k": digits(aucs[:, -1]), "utility": digits(np.array([one.utility[i] for one in scored]))}
        point["tpr"] = digits(np.array([one.tpr[i] for one in scored]))
        if job.curator in CURVES:
            point["auc"] = {"mean": digits(aucs[:, :-1].mean(axis=0)), "half": digits(half_width(aucs[:, :-1]))}
        if chance is not None:
            found = np.array([one.aucs[i] for one in chance])
            point["chance"] = {"best": digits(found[:, :-1].max(axis=1)), "at_k": digits(found[:, -1])}
        points.append(point)
    return {"k": draws.ks.tolist(), "energy_k": [one.k for one in draws.cases(job.convention)], "points": points}


class Scored(NamedTuple):
    """One trial at E epsilons.

    Attributes:
        aucs: (E, len(ks) + 1), the last at the k of 90% energy.
        utility: (E,), the paper's q at that k.
        tpr: (E,), at 1% false positives and the k with the largest AUC; nan where so few others cannot show it.
    """

    aucs: np.ndarray
    utility: np.ndarray
    tpr: np.ndarray


def _scored(config: Config, draws: Draws, job: Job, cases: Sequence[Case], *, first: int = 0) -> list[Scored]:
    scored = []
    for given, curator, found in _published(config, draws, job, cases, first):
        candidates = given.candidates if curator is None else curators.bounded(curator, given.candidates)
        columns = np.append(draws.ks, given.k) - 1
        aucs, tpr = [], []
        for vectors in found:
            scores = -membership.pca_score_prefixes(vectors, candidates)[:, columns]
            aucs.append(roc.auc_columns(scores, given.is_member))
            best = int(np.argmax(aucs[-1][:-1]))
            tpr.append(float(roc.tpr_at_fpr(scores[:, best], given.is_member, fpr=RATE).estimate))
        utility = np.asarray(pca_utility.energy_ratio(found[:, : given.k], given.moment))
        scored.append(Scored(np.array(aucs), utility, np.array(tpr)))
    return scored


def _published(
    config: Config, draws: Draws, job: Job, cases: Sequence[Case], first: int = 0
) -> Iterator[tuple[Case, Any, np.ndarray]]:
    """Of each trial the case, one of the curators, and the components (E, d, d) of all."""
    if job.curator == NONE:
        for given in cases:
            yield given, None, membership.release_of(given.records).components[None]
        return
    made = [
        [curators.mechanism(job.curator, job.neighbouring, epsilon, 1 / draws.n, given) for epsilon in job.epsilons]
        for given in cases
    ]
    # The same draws for every curator: what differs between two of them is what their noise does.
    found = curators.components(jax.random.key(config.seed), made, [given.records for given in cases], first=first)
    for given, own, vectors in zip(cases, made, found, strict=True):
        yield given, own[0], vectors


def ratio(config: Config, draws: Draws, job: Job) -> dict[str, Any]:
    """The likelihood ratio on the same components, and the paper's attack on the same candidates."""
    ks, found = draws.spread(config.ratio_ks), []
    cases = [
        curators.case(trial, PUBLIC, trial.members, most_candidates=config.ratio_candidates, keep_public=True)
        for trial in (Trial(config, draws.x, draws.n, index) for index in range(config.ratio_trials))
    ]
    for i, (given, curator, vectors) in enumerate(_published(config, draws, job, cases)):
        # A key that no trial draws its noise from.
        key = jax.random.fold_in(jax.random.key(config.seed + 1), i)
        found.append(stronger.ratio(key, given, curator, vectors[0], ks=ks, n_shadows=config.n_shadows))
    ratios, errors = (np.array(part) for part in zip(*found, strict=True))
    point: dict[str, Any] = {"epsilon": job.epsilons[0], "best": digits(ratios.max(axis=1))}
    point["auc"] = {"mean": digits(ratios.mean(axis=0)), "half": digits(half_width(ratios))}
    point["reconstruction"] = {
        "best": digits(errors.max(axis=1)),
        "mean": digits(errors.mean(axis=0)),
        "half": digits(half_width(errors)),
    }
    return {"k": ks.tolist(), "points": [point]}


def informed(config: Config, draws: Draws, job: Job) -> dict[str, Any]:
    """Who knows all members but one, and what the guarantee allows any adversary."""
    given, points = draws.cases(PUBLIC)[0], []
    for i, epsilon in enumerate(job.epsilons):
        curator = curators.mechanism(job.curator, job.neighbouring, epsilon, 1 / draws.n, given)
        point: dict[str, Any] = {
            "epsilon": epsilon,
            "ceiling": roc.auc_ceiling(curator.guarantee().curve),
            "promised": roc.auc_ceiling(EpsilonDelta(epsilon, 1 / draws.n, neighbouring=job.neighbouring)),
        }
        for published in ("scatter", *(("components",) if draws.x.shape[1] <= config.most_solved else ())):
            key = jax.random.fold_in(jax.random.key(config.seed + 2), i)
            game = stronger.informed(key, given, curator, games=config.games, published=published)
            point[published] = {"auc": game.auc.estimate, "low": game.auc.low, "high": game.auc.high}
        points.append(point)
    return {"games": config.games, "points": points}


_ATTACKS = {"reconstruction": reconstruction, "ratio": ratio, "informed": informed}


SWEEP = Sweep(
    name="pca_membership",
    about=__doc__,
    scales=SCALES,
    plain="cpu",
    groups=groups,
    sources=sources,
    identity=identity,
    said=_said,
    results=RESULTS,
)


if __name__ == "__main__":
    command.main(SWEEP)
