"""The records of a run as a table: means over repeats with their errors, and the strongest attack of a release."""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from drjax.core.statistics import normal_quantile
from drjax.reports import records
from experiments import merging
from experiments.dr_reconstruction.cells import ALL_TARGETS, EXAMPLES, TARGETS
from experiments.dr_reconstruction.config import ADAPTIVE, DENSE_NETWORK, METHODS, NETWORK

IMAGES = f"{EXAMPLES}.npz"
"""In a folder: all images in one file."""

NORMAL = normal_quantile()

BEST, MEAN, NEAREST = "best", "mean", "nearest"
"""The strongest attack beside the paper's two networks; the two baselines."""

MARGIN = 0.1
"""Share of an error by which another may be smaller and still count as no better: about what the intervals of some
hundred targets can tell apart."""


class Estimate(NamedTuple):
    """A mean over repeats.

    Attributes:
        mean: Of the repeats' means over targets.
        error: Its standard error, from the spread between repeats or from that between targets, whichever is larger.
        spread: Standard deviation over repeats, which the paper reports; nan for one repeat.
        n_repeats: How many.
    """

    mean: float
    error: float
    spread: float
    n_repeats: int

    @property
    def low(self) -> float:
        """Lower end of the 95% interval."""
        return self.mean - NORMAL * self.error

    @property
    def high(self) -> float:
        """Upper end of the 95% interval."""
        return self.mean + NORMAL * self.error


def combine(intervals: Sequence[Mapping[str, float]]) -> Estimate | None:
    """The mean of the repeats' estimates, from their 95% intervals over targets; None if none of them is a number.

    Every repeat has targets of its own, so that the spread between repeats holds that between targets too; but three
    repeats measure it badly, and it is never taken for less than the targets alone explain.
    """
    found = [i for i in intervals if not math.isnan(i["estimate"])]
    if not found:
        return None
    means = np.array([i["estimate"] for i in found])
    within = np.mean([((i["high"] - i["low"]) / (2 * NORMAL)) ** 2 for i in found])
    spread = float(means.std(ddof=1)) if len(means) > 1 else math.nan
    between = spread**2 if len(means) > 1 else 0.0
    return Estimate(float(means.mean()), math.sqrt(max(within, between) / len(means)), spread, len(means))


def below(a: Estimate | None, b: Estimate | None) -> bool | None:
    """Whether a is smaller than b: True or False where 95% of such differences have that sign, else None."""
    if a is None or b is None:
        return None
    error = math.hypot(a.error, b.error)
    difference = b.mean - a.mean
    if abs(difference) <= NORMAL * error:
        return None
    return difference > 0


def no_better(a: Estimate | None, b: Estimate | None) -> bool | None:
    """Whether a is not smaller than b: False where it is, True where it is not by more than `MARGIN`, else None.

    Both with 95% confidence. That no difference was seen does not say that there is none.
    """
    if a is None or b is None:
        return None
    if below(a, b):
        return False
    return True if a.mean - (1 - MARGIN) * b.mean > NORMAL * math.hypot(a.error, (1 - MARGIN) * b.error) else None


def contrast(weights: Sequence[float], found: Sequence[Estimate | None]) -> bool | None:
    """Whether a weighted sum is above 0: True or False where 95% of such sums have that sign, else None."""
    if any(e is None for e in found):
        return None
    pairs = [(w, e) for w, e in zip(weights, found, strict=True) if e is not None]
    error = math.sqrt(sum((w * e.error) ** 2 for w, e in pairs))
    value = sum(w * e.mean for w, e in pairs)
    return None if abs(value) <= NORMAL * error else value > 0


class Results:
    """What a run found, by data set, method, known records, attack and noise.

    Attributes:
        head: The record of the run: configuration and provenance.
        labels: Attack -> its name in tables and figures, in the order of the ladder.
        refusals: Records of attacks that refused a release.
        stages: Records of what was attacked.
        done: Names of the cells, refused ones too.
    """

    def __init__(self, found: Iterable[Mapping[str, Any]]) -> None:
        """Takes the records of a run, or of several that computed parts of one configuration.

        Raises:
            ValueError: no record of a run, no attack, or runs of different configurations.
        """
        found = list(found)
        heads = [r for r in found if r["kind"] == "run"]
        # A cell that two runs computed is one cell.
        attacks = list({(r["release"], r["attack"], r["sigma"]): r for r in found if r["kind"] == "attack"}.values())
        if not heads or not attacks:
            raise ValueError(f"records must be those of a run with an attack, got {len(found)} without")
        if len({head["fingerprint"] for head in heads}) > 1:
            raise ValueError(f"records must be of one configuration, got {len(heads)} runs of several")
        self.head = heads[0]
        self.labels = {r["attack"]: r["label"] for r in attacks}
        self.refusals = [r for r in attacks if "refused" in r]
        stages = [r for r in found if r["kind"] == "stage" and r["name"] in (TARGETS, ALL_TARGETS)]
        whole = {r["release"] for r in stages if r["name"] == ALL_TARGETS}
        self.stages = [r for r in stages if r["name"] == ALL_TARGETS or r["release"] not in whole]
        self.done = {(r["release"], r["attack"], r["sigma"]) for r in attacks}
        self._baselines = {r["attack"] for r in attacks if r["is_baseline"]}
        self._estimates: dict[tuple, Estimate | None] = {}
        self._cells: dict[tuple, list[Mapping[str, Any]]] = defaultdict(list)
        for record in attacks:
            if "refused" not in record:
                where = (record["data"], record["method"], record["n_known"], record["attack"], float(record["sigma"]))
                self._cells[where].append(record)

    @classmethod
    def read(cls, *files: Path) -> Results:
        """From `results.jsonl` of one run or of several, as the constructor takes them.

        Raises:
            FileNotFoundError: there is no such file.
        """
        return cls(record for file in files for record in records.read_records(file))

    def origins(self, data: str | None = None, attack: str | None = None) -> list[tuple[Mapping[str, Any], int]]:
        """Where cells were computed, and how many there: the commits, machines and devices of their records.

        Args:
            data: Of this data set alone; of all if None.
            attack: Of this attack alone, or of "best", which is any beside the paper's two networks.
        """
        networks = (NETWORK, DENSE_NETWORK)
        chosen = [
            record
            for where, found in self._cells.items()
            for record in found
            if data in (None, where[0])
            and (attack in (None, where[3]) or (attack == BEST and where[3] not in networks))
        ]
        counts: dict[tuple, int] = defaultdict(int)
        places: dict[tuple, Mapping[str, Any]] = {}
        for record in chosen:
            origin = merging.origin_of(record, self.head)
            name = tuple(origin.get(field) for field in ("of_run", "commit", "dirty", "cpu", "cores", "device_kind"))
            counts[name] += 1
            places.setdefault(name, origin)
        return sorted(((places[name], count) for name, count in counts.items()), key=lambda pair: -pair[1])

    def devices(self, data: str | None = None, attack: str | None = None) -> list[str]:
        """What cells were computed on, as `origins` takes arguments: "cpu", or the name of a card."""
        found = (origin["device_kind"] for origin, _ in self.origins(data, attack))
        return list(dict.fromkeys(device for device in found if device is not None))

    @property
    def data(self) -> list[str]:
        """Data sets with results, in the order of the configuration."""
        return list(dict.fromkeys(where[0] for where in self._cells))

    def methods(self, data: str) -> list[str]:
        """Methods with results, in the order of the paper's table."""
        return [m for m in METHODS if any(where[:2] == (data, m) for where in self._cells)]

    def sizes(self, data: str) -> list[int]:
        """Sizes of the known set with results."""
        return sorted({where[2] for where in self._cells if where[0] == data})

    def noisy_sizes(self, data: str) -> list[int]:
        """Sizes of the known set with results under noise."""
        return sorted({where[2] for where in self._cells if where[0] == data and where[4] > 0})

    def sigmas(self, data: str) -> list[float]:
        """Noise with results, without 0."""
        return sorted({where[4] for where in self._cells if where[0] == data and where[4] > 0})

    def n_features(self, data: str) -> int:
        """Entries of a record."""
        return next(r["n_features"] for r in self.stages if r["data"] == data)

    def attacks(self, data: str, method: str, n_known: int, sigma: float = 0) -> list[str]:
        """Attacks with results, without the baselines, in the order of the ladder."""
        where = (data, method, n_known, float(sigma))
        names = {w[3] for w in self._cells if (*w[:3], w[4]) == where} - self._baselines
        return [name for name in self.labels if name in names]

    def is_refused(self, data: str, method: str, n_known: int, attack: str) -> bool:
        """Whether an attack refused such releases."""
        where = (data, method, n_known, attack)
        return any((r["data"], r["method"], r["n_known"], r["attack"]) == where for r in self.refusals)

    def lacks_strongest(self, data: str, method: str, n_known: int, sigma: float = 0) -> bool:
        """Whether "best" here is no more than a bound: an attack that is stronger elsewhere was not run.

        That is one that is the best on the method on some data set and at some size and was not run here, and under
        noise any attack that is trained under it.
        """
        ran = set(self.attacks(data, method, n_known, sigma))
        if sigma and not any(name.startswith(ADAPTIVE) for name in ran):
            return True
        lost = self._strongest.get(method, set()) - ran
        return any(not self.is_refused(data, method, n_known, name) for name in lost)

    @functools.cached_property
    def _strongest(self) -> dict[str, set[str]]:
        """Method -> the attacks that are the best on it in some cell without noise."""
        found: dict[str, set[str]] = defaultdict(set)
        for data, method, n_known in {where[:3] for where in self._cells}:
            name = self.named(BEST, data, method, n_known)
            if name is not None:
                found[method].add(name)
        return found

    def records(self, data: str, method: str, n_known: int, attack: str, sigma: float = 0) -> list[Mapping[str, Any]]:
        """The records of a cell, one for each repeat; none where no attack of this name was run."""
        return self._cells.get((data, method, n_known, attack, float(sigma)), [])

    def estimate(
        self, data: str, method: str, n_known: int, attack: str, *, sigma: float = 0, measure: str = "mse"
    ) -> Estimate | None:
        """A measure of an attack, or of "best", over the repeats; None where it was not run.

        Args:
            data: Data set.
            method: DR method.
            n_known: Known records.
            attack: Its name, or "best".
            sigma: Noise on the records.
            measure: A field of the scores, or "eq12".
        """
        key = (data, method, n_known, attack, float(sigma), measure)
        if key not in self._estimates:
            name = self.named(attack, data, method, n_known, sigma, measure=measure)
            found = self.records(data, method, n_known, name or "", sigma)
            scores = [r.get("eq12") if measure == "eq12" else r["scores"][measure] for r in found]
            self._estimates[key] = combine([s for s in scores if s is not None])
        return self._estimates[key]

    def baseline(self, data: str, n_known: int, attack: str, *, sigma: float = 0) -> Estimate | None:
        """The error of a baseline, which is the same for every method: of the first that has it."""
        found = (self.estimate(data, method, n_known, attack, sigma=sigma) for method in self.methods(data))
        return next((e for e in found if e is not None), None)

    def named(
        self,
        attack: str,
        data: str,
        method: str,
        n_known: int,
        sigma: float = 0,
        *,
        measure: str = "mse",
    ) -> str | None:
        """The attack itself; for "best" the one of the least mean error, the paper's two networks left aside.

        Equation 12 compares what one attack makes of two releases: for `measure` "eq12" it is the best of those that
        know of no noise.

        It is chosen on the targets that it is then reported for, at each noise anew. Where the choice matters, the
        errors differ by more than their intervals, so that this favours it by little.
        """
        if attack != BEST:
            return attack
        names = [n for n in self.attacks(data, method, n_known, sigma) if n not in (NETWORK, DENSE_NETWORK)]
        if measure == "eq12":
            names = [name for name in names if not name.startswith(ADAPTIVE)]
        found = {name: self.estimate(data, method, n_known, name, sigma=sigma) for name in names}
        usable = {name: e.mean for name, e in found.items() if e is not None}
        return min(usable, key=lambda name: usable[name]) if usable else None


def examples(*folders: Path) -> dict[str, np.ndarray]:
    """Images kept for the figures, (n, h, w) grey levels: "data/original", "data/method/n_known/attack/noise".

    From the one file of a folder that `report.write` made if there is one, else from those of the run.

    Raises:
        ValueError: a file is damaged.
    """
    found = {}
    for folder in folders:
        gathered = folder / IMAGES
        if gathered.exists():
            found |= records.load_arrays(gathered)
            continue
        for file in sorted((folder / EXAMPLES).glob("*.npz")):
            for name, array in records.load_arrays(file).items():
                # The name of an attack may have a hyphen of its own.
                found[f"{file.stem.replace('-', '/', 3)}/{name}"] = array
    return found
