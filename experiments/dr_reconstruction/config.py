"""What the experiment computes: data sets, methods, sizes, repeats and noise, at three scales.

A release is one method on one known set: its attacks share its shadows. A cell is one attack on one release. Releases
are named by their path, "mnist/pca/199/0" for repeat 0 of PCA on MNIST with 199 known records, and every random draw
comes from a key of such a name, so that no figure depends on what else is computed.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

import jax

from drjax.attacks.attack import EmbeddingAttack
from drjax.attacks.reconstruction import neural
from drjax.audits import choice
from drjax.audits.config import AuditConfig
from drjax.core import validate

METHODS = ("pca", "srp", "mds", "isomap", "tsne", "umap")
"""The paper's six, in the order of its Table 4."""

DTYPES = {"tsne": "float32", "umap": "float32"}
"""Of coordinates as the reference library publishes them; float64 where not named."""

ADAPTIVE = "adaptive-"
"""Begins the name of an attack that is trained on releases with the noise that it meets."""

NETWORK, DENSE_NETWORK = "network", "dense-network"
"""Names of the paper's network and of the one that it compares with."""

DEAR = ("map", "residual-network", NETWORK, DENSE_NETWORK, "stationarity-mixture", "inversion")
"""Attacks that run only where a configuration wants them: slow ones, and one that needs no public records."""

LEVELS = 255
"""The paper's noise is on pixels from 0 to this; records here are in [0, 1]."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is done with one data set.

    Attributes:
        data: Name of a data set, as `drjax.data.load` takes it.
        n_known: Sizes of the known set; a smaller one is the beginning of a larger one.
        repeats: Of each size, as many splits of the data.
        max_known: Known records that every split sets apart, whatever sizes are run: it decides who is a target.
        n_shadow: Public records that attacks are trained on.
        n_validation: Public records that training is stopped on.
        n_targets: Records attacked, the same for every method and size of a repeat.
    """

    data: str
    n_known: tuple[int, ...]
    repeats: tuple[int, ...]
    max_known: int
    n_shadow: int
    n_validation: int
    n_targets: int

    def __post_init__(self) -> None:
        """Checks every field that can be checked without the data."""
        if not self.n_known:
            raise ValueError("n_known must hold at least one size, got none")
        if len(self.repeats) != len(self.n_known):
            raise ValueError(f"repeats must have one entry for each of n_known = {self.n_known}, got {self.repeats}")
        for n_known, repeats in zip(self.n_known, self.repeats, strict=True):
            # Isomap with 5 neighbours needs 6 records, the known ones and the target.
            validate.integer(minimum=5, n_known=n_known)
            validate.at_most(self.max_known, "max_known", n_known=n_known)
            validate.integer(repeats=repeats)
        validate.integer(minimum=2, n_shadow=self.n_shadow)
        validate.integer(n_validation=self.n_validation, n_targets=self.n_targets)


@dataclass(frozen=True, kw_only=True)
class Release:
    """One method on one known set: the attacks on it share its shadows."""

    data: str
    method: str
    n_known: int
    repeat: int

    @property
    def name(self) -> str:
        """Path of the release."""
        return f"{self.data}/{self.method}/{self.n_known}/{self.repeat}"


@dataclass(frozen=True, kw_only=True)
class Config:
    """What decides the results. Patterns are as in a shell, of the paths of releases.

    Attributes:
        plans: One per data set.
        methods: Names of DR methods.
        dear: Attacks that are too slow to run everywhere -> patterns of the releases that they run on. Others run on
            every release that they fit, but for those in `DEAR`, which then run on none.
        few_targets: Attacks that are slow by the target -> how many they attack, the first ones of every noise.
        network: Recipe of the paper's network.
        dense_network: Recipe of the network that the paper compares with.
        noisy: Patterns of the releases that are also attacked with noise on the records.
        sigmas: Standard deviations of the noise, on pixels from 0 to 255.
        n_noisy_targets: Targets attacked at each noise, the first ones.
        n_examples: Targets whose reconstructions are kept for the figures, of repeat 0.
        seed: Of everything that is drawn.
    """

    plans: tuple[Plan, ...]
    methods: tuple[str, ...] = METHODS
    dear: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    few_targets: Mapping[str, int] = field(default_factory=dict)
    network: str = "paper000"
    dense_network: str = "bch22"
    noisy: tuple[str, ...] = ("mnist/*/99/*",)
    sigmas: tuple[float, ...] = (2, 4, 8, 16, 32)
    n_noisy_targets: int = 500
    n_examples: int = 2
    seed: int = 0

    def __post_init__(self) -> None:
        """Checks every field that can be checked without the data."""
        for name in self.methods:
            validate.one_of(METHODS, methods=name)
        if not self.methods or not self.plans:
            raise ValueError("methods and plans must each hold at least one entry, got none")
        names = [plan.data for plan in self.plans]
        if len(set(names)) != len(names):
            raise ValueError(f"plans must each be of another data set, got {names}")
        validate.integer(**{f"few_targets of {name}": count for name, count in self.few_targets.items()})
        validate.one_of(neural.RECIPES, network=self.network, dense_network=self.dense_network)
        for sigma in self.sigmas:
            validate.positive(sigmas=sigma)
        if len(set(self.sigmas)) != len(self.sigmas):
            raise ValueError(f"sigmas must differ from each other, got {self.sigmas}")
        validate.integer(n_noisy_targets=self.n_noisy_targets)
        validate.integer(minimum=0, n_examples=self.n_examples, seed=self.seed)

    def releases(self) -> list[Release]:
        """All releases, first repeats first: an interrupted run has something to say of every method."""
        return [
            Release(data=plan.data, method=method, n_known=n_known, repeat=repeat)
            for repeat in range(max(max(plan.repeats) for plan in self.plans))
            for plan in self.plans
            for n_known, repeats in zip(plan.n_known, plan.repeats, strict=True)
            for method in self.methods
            if repeat < repeats
        ]

    def plan(self, release: Release) -> Plan:
        """The plan that a release belongs to."""
        return next(plan for plan in self.plans if plan.data == release.data)

    def audit(self, release: Release) -> AuditConfig:
        """The release as an audit describes it: what attacks are told of the method and the training."""
        plan = self.plan(release)
        return AuditConfig(
            data=release.data,
            method=release.method,
            hyperparameters=options(release.method, release.n_known + 1),
            n_known=release.n_known,
            n_shadow=plan.n_shadow,
            n_validation=plan.n_validation,
            n_targets=plan.n_targets,
            dtype="float32" if DTYPES.get(release.method) == "float32" else "float64",
            network=self.network,
            dense_network=self.dense_network,
            seed=self.seed,
        )

    def attacks(self, release: Release) -> dict[str, EmbeddingAttack]:
        """Every attack that drjax has for the method and that needs no seed, the dear ones where they are wanted.

        Where there is noise, those that learn from releases are there once more, by an adversary who knows of it.
        """
        audit = self.audit(release)
        possible = choice.possible(audit.dr_method, seed_known=False)
        found = {
            name: choice.configured(name, audit)
            for name in possible
            if _fits(release, self.dear.get(name, () if name in DEAR else ("*",)))
        }
        if _fits(release, self.noisy):
            found |= {
                ADAPTIVE + name: dataclasses.replace(attack, label=f"{attack.label}, trained under the noise")
                for name, attack in possible.items()
                if attack.trains and name not in DEAR
            }
        return found

    def sigmas_of(self, release: Release, attack: str = "") -> tuple[float, ...]:
        """Noise that a release is attacked under: 0, which is none, and where wanted the others.

        Without noise an adaptive attack is the attack itself, and not run again.
        """
        if attack.startswith(ADAPTIVE):
            return self.sigmas
        return (0, *self.sigmas) if _fits(release, self.noisy) else (0,)

    def key(self, *path: Any) -> Any:
        """The PRNG key of a name: another one for every path, whatever else is computed."""
        return jax.random.fold_in(jax.random.key(self.seed), zlib.crc32("/".join(map(str, path)).encode()))


def options(method: str, n: int) -> dict[str, Any]:
    """Hyperparameters at n records where the library's defaults, which hold otherwise, do not fit so few."""
    chosen_here = {
        "isomap": {"n_neighbors": 5},
        "tsne": {"perplexity": min(30.0, (n - 1) / 3)},
        "umap": {"n_neighbors": min(15, n - 1)},
    }
    return chosen_here.get(method, {})


def _fits(release: Release, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(release.name, pattern) for pattern in patterns)


def _everywhere(repeats: int, **plan: Any) -> Plan:
    """A plan with as many repeats of every size."""
    return Plan(repeats=(repeats,) * len(plan["n_known"]), **plan)


def _smoke() -> Iterator[Plan]:
    sizes = {"max_known": 20, "n_shadow": 60, "n_validation": 10, "n_targets": 12}
    yield Plan(data="digits", n_known=(9, 20), repeats=(2, 1), **sizes)


def _cpu() -> Iterator[Plan]:
    sizes = {"n_shadow": 500, "n_validation": 50, "n_targets": 100}
    known = (9, 99, 199, 499, 999)
    yield Plan(data="mnist", n_known=known, repeats=(2, 2, 2, 1, 1), max_known=999, **sizes)
    # 4,096 entries a record make the bounds of the closed forms dear by the target, and the kernel by the shadow.
    xray = {"n_shadow": 200, "n_validation": 30, "n_targets": 30}
    yield _everywhere(1, data="nih_chest_xray", n_known=known[:3], max_known=199, **xray)
    yield _everywhere(1, data="digits", n_known=known[:4], max_known=499, **sizes)


def _full() -> Iterator[Plan]:
    known = (9, 99, 199, 499, 999)
    yield _everywhere(5, data="mnist", n_known=known, max_known=999, n_shadow=4000, n_validation=500, n_targets=500)
    # 1,000 images of 682 patients, each on one side of a split: what these data allow.
    xray = {"n_shadow": 600, "n_validation": 100, "n_targets": 100}
    yield _everywhere(5, data="nih_chest_xray", n_known=known[:3], max_known=199, **xray)
    # 2,000 images without patients, of which what is not known is divided 80/10/10.
    xray = {"n_shadow": 801, "n_validation": 100, "n_targets": 100}
    yield _everywhere(5, data="cxr_mednist", n_known=known, max_known=999, **xray)
    # 1,797 images, of which what is not known is divided 80/10/10.
    yield _everywhere(
        5, data="digits", n_known=known[:4], max_known=499, n_shadow=1038, n_validation=130, n_targets=130
    )


SCALES = {
    "smoke": Config(
        plans=tuple(_smoke()),
        methods=("pca", "srp"),
        dear={"network": ("digits/pca/9/0",), "dense-network": ("digits/pca/9/0",)},
        network="fast",
        dense_network="bch22-fast",
        noisy=("digits/*/20/*",),
        sigmas=(8, 32),
        n_noisy_targets=6,
    ),
    "cpu": Config(
        plans=tuple(_cpu()),
        dear={
            "network": ("mnist/pca/199/0",),
            "dense-network": ("mnist/*/199/0",),
            # Simulates the last steps for every target: a minute for each with 999 known records.
            "stationarity": ("*/mds/9/*", "*/mds/99/*", "*/mds/199/0", "*/mds/499/0"),
            "residual-network": ("mnist/tsne/199/0", "mnist/umap/199/0"),
            # Not where there is noise: each of its levels is inverted anew, 20 minutes of a core for 20 targets.
            "inversion": ("mnist/tsne/199/0",),
        },
        few_targets={"stationarity": 20, "inversion": 20},
        network="fast",
        dense_network="bch22-fast",
        n_noisy_targets=30,
    ),
    "full": Config(
        plans=tuple(_full()),
        dear={
            "network": ("*",),
            "dense-network": ("*",),
            "residual-network": ("*",),
            "inversion": ("*/tsne/*",),
        },
    ),
}
"""Configurations by name: "smoke" shows in under a minute that everything runs; "cpu" takes well under an hour on two
cores; "full" is the paper's grid."""


def of_scale(scale: str) -> Config:
    """The configuration of a scale.

    Raises:
        ValueError: no scale has this name.
    """
    validate.one_of(SCALES, scale=scale)
    return dataclasses.replace(SCALES[scale])
