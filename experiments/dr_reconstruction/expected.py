"""What embeddings and attacks are expected to take, and what a machine has shown that they take there.

The figures are fitted to the committed run of scale "cpu" on two cores of an AMD EPYC, most within a factor of three:
enough to put cheap cells first and to see what does not fit into the time that is left. What a machine took for some of
the work scales what is expected of the rest (`Pace`).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from drjax.attacks.reconstruction import neural
from drjax.data import SOURCES
from experiments.dr_reconstruction.config import ADAPTIVE, DENSE_NETWORK, NETWORK, Config, Release

MS_PER_LANE = {
    "pca": (0.5, 0.001, 0.0),
    "srp": (0.3, 0.002, 0.0),
    "mds": (1.0, 0.0, 4.8e-5),
    "isomap": (0.5, 0.005, 0.0),
    "tsne": (4.0, 0.07, 0.0),
    "umap": (3.0, 0.08, 3.5e-5),
}
"""Milliseconds of an embedding of n records on two cores, as coefficients of 1, n and n^2."""

NOISY_FACTOR = 3.0
"""How many lanes one with noise on all its records costs: it shares nothing with the others."""

FIRST_CALL = 1.0
"""Seconds in which the embedding of a new shape is compiled or read from a cache."""

UNKNOWN_ATTACK = 4.0

NETWORKS = (NETWORK, DENSE_NETWORK, "residual-network")

ON_ACCELERATOR = 1 / 50
"""Share of the seconds above that networks are taken to train in on a card until one was trained there. It is the ratio
of other networks in bench/results/shadow_models.jsonl, 0.17 ms a model on an H100 and 8.9 on two cores."""


class Size(NamedTuple):
    """What an attack is given: shadows, targets of all noises, records of a release, features, passes of a training."""

    m: int
    t: int
    n: int
    d: int
    passes: int = 0

    @property
    def wide(self) -> float:
        """Features as a multiple of MNIST's."""
        return self.d / 784


SECONDS: dict[str, Callable[[Size], float]] = {
    "mean": lambda s: 1e-5 * s.t,
    "nearest": lambda s: 5e-5 * s.t,
    "ridge": lambda s: 0.05 + 2e-7 * s.m * s.n + 5e-11 * s.m**3,
    "invariant": lambda s: 0.3 + 6e-6 * s.m**2,
    "closed-form-known": lambda s: 0.007 * s.t * s.wide**2.6,
    "closed-form": lambda s: 0.01 * s.t * s.wide**1.3,
    "closed-form-mixture": lambda s: 0.035 * s.t * s.wide**1.8,
    "srp-closed-form": lambda s: 0.025 * s.t * s.wide**1.4,
    "stationarity": lambda s: s.t * (0.1 + 4e-5 * s.n**2) * s.wide**0.5,
    "geodesics": lambda s: s.t * (0.02 + 4e-6 * s.n**2),
    "affinities": lambda s: (s.m + s.t) / 600 * (1.5 + 3e-5 * s.n**2),
    "inversion": lambda s: s.t * (0.2 + 8e-5 * s.n**2),
    "network": lambda s: 1.0 + 3e-3 * s.passes * s.wide,
    "dense-network": lambda s: 1.0 + 1e-4 * s.passes * (0.5 + 0.5 * s.wide),
    "residual-network": lambda s: 2.0 + 0.02 * s.m,
}
"""Seconds of an attack by name, on two cores."""


def of_attack(config: Config, release: Release, attack: str, n_answers: int) -> float:
    """Seconds that an attack is expected to take for some answers on two cores, its training included.

    Args:
        config: Sizes and recipes.
        release: What it attacks.
        attack: Its name; one that is trained under the noise takes as long as without.
        n_answers: Targets of all noises.
    """
    plan = config.plan(release)
    recipe = {NETWORK: config.network, DENSE_NETWORK: config.dense_network}.get(attack)
    passes = 0 if recipe is None else neural.RECIPES[recipe].epochs * plan.n_shadow
    size = Size(plan.n_shadow, n_answers, release.n_known + 1, _features(release), passes)
    return SECONDS.get(attack.removeprefix(ADAPTIVE), lambda _: UNKNOWN_ATTACK)(size)


def of_lanes(release: Release, n_lanes: int, sigma: float = 0) -> float:
    """Seconds that some embeddings of a release are expected to take on two cores."""
    if not n_lanes:
        return 0.0
    n = release.n_known + 1
    constant, linear, quadratic = MS_PER_LANE[release.method]
    lane = (constant + linear * n + quadratic * n**2) / 1e3
    return FIRST_CALL + n_lanes * lane * (NOISY_FACTOR if sigma else 1)


def n_answers(config: Config, release: Release, attack: str, sigmas: Iterable[float]) -> int:
    """Targets of an attack at some noises, all together."""
    few = config.few_targets.get(attack)
    counts = [n_lanes(config, release, sigma) for sigma in sigmas]
    return sum(counts if few is None else [min(few, count) for count in counts])


def n_lanes(config: Config, release: Release, sigma: float) -> int:
    """Releases that are attacked at a noise."""
    n_targets = config.plan(release).n_targets
    return min(n_targets, config.n_noisy_targets) if sigma else n_targets


class Pace:
    """How long work takes on this machine as a multiple of what was expected, by what it was.

    Until some work of a kind was done, all that was done counts; until any was done, the expected seconds themselves,
    but on a card `ON_ACCELERATOR` of them for networks.
    """

    def __init__(self, config: Config, *, on_accelerator: bool = False) -> None:
        """Nothing was done yet."""
        self._config, self._on_accelerator = config, on_accelerator
        self._releases = {release.name: release for release in config.releases()}
        self._expected: dict[str, float] = defaultdict(float)
        self._took: dict[str, float] = defaultdict(float)

    @property
    def n_kinds(self) -> int:
        """Kinds of work that were done here."""
        return len(self._took)

    def take(self, found: Iterable[Mapping[str, Any]]) -> None:
        """Learns from records of this machine; those of one attack on one release belong into one call.

        Attacks that are trained under the noise are left out: with earlier versions they count their shadows.
        """
        answers: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0, 0.0])
        for record in found:
            release = self._releases.get(record.get("release", ""))
            if release is None or "refused" in record:
                continue
            if record["kind"] == "stage" and record.get("n_made"):
                lanes = of_lanes(release, record["n_made"], record["sigma"])
                self._learn(release.method, lanes, record["seconds"])
            if record["kind"] == "attack" and not record["attack"].startswith(ADAPTIVE):
                scores, total = record["scores"], answers[release.name, record["attack"]]
                total[0] += scores["n_targets"]
                total[1] += scores["n_targets"] * scores["seconds_per_target"]
        for (name, attack), (count, seconds) in answers.items():
            expected = of_attack(self._config, self._releases[name], attack, int(count))
            self._learn(attack, expected, seconds)

    def lanes(self, release: Release, n_lanes: int, sigma: float = 0) -> float:
        """Seconds expected here of some embeddings."""
        return self._factor(release.method) * of_lanes(release, n_lanes, sigma)

    def attack(self, release: Release, attack: str, n_answers: int) -> float:
        """Seconds expected here of an attack."""
        kind = attack.removeprefix(ADAPTIVE)
        return self._factor(kind) * of_attack(self._config, release, attack, n_answers)

    def _learn(self, kind: str, expected: float, took: float) -> None:
        self._expected[kind] += expected
        self._took[kind] += took

    def _factor(self, kind: str) -> float:
        if kind in self._took:
            return self._took[kind] / self._expected[kind]
        if kind in NETWORKS and self._on_accelerator:
            known = [name for name in NETWORKS if name in self._took]
            return self._ratio(known) if known else ON_ACCELERATOR
        return self._ratio(self._took) if self._took else 1.0

    def _ratio(self, kinds: Iterable[str]) -> float:
        names = list(kinds)
        return sum(self._took[name] for name in names) / sum(self._expected[name] for name in names)


def _features(release: Release) -> int:
    return math.prod(SOURCES[release.data].shape)
