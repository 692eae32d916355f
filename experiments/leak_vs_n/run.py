"""What the adversary who knows all records but one takes out of an embedding, as the number of records grows.

    python -m experiments.leak_vs_n.run                     # eight attacks, 100 to 1,000,000 records, an hour or two
    python -m experiments.leak_vs_n.run --scale decimals    # PCA rounded to 4, 3, 2 and 1 decimals
    python -m experiments.leak_vs_n.run --scale maps        # UMAP and t-SNE of 2,000 records and more, an hour
    python -m experiments.leak_vs_n.run --scale wide        # PCA of 784 generated features, 3 GB on disk
    python -m experiments.leak_vs_n.run --scale landmarks   # landmark MDS and landmark Isomap, 100 to 50,000 records
    python -m experiments.leak_vs_n.run --scale distances   # Isomap and MDS of 1,000 records and more, an hour
    python -m experiments.leak_vs_n.run --scale smoke       # digits: the same code in seconds

A cell is one method and attack, one number of records and one rounding of what is published. All cells of a data set
attack the same targets, and a smaller release is of the first records of a larger one. README.md in this folder has the
figures, docs/leak.md the law.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from drjax.core import streamed, validate
from drjax.data import Dataset
from drjax.reports import records
from drjax.reports.ladder import number
from experiments import command
from experiments.cells import Cell, Computed, Group, Line, by, cell_of
from experiments.leak_vs_n import law, releases
from experiments.sweep import RESULTS, Asked, Sweep, cell_name

ALL, LOSSY = ("float64", "float32", "3 decimals"), ("float32", "3 decimals")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """Releases by one method.

    Attributes:
        way: Key of `releases.WAYS`.
        data: Name of a data set, or `releases.GENERATED`.
        n: Numbers of records.
        targets: Records attacked.
        published: Keys of `releases.PUBLISHED`.
    """

    way: str
    data: str = "mnist"
    n: tuple[int, ...]
    targets: int
    published: tuple[str, ...] = LOSSY

    def __post_init__(self) -> None:
        """Checks every field that can be checked without the data."""
        validate.one_of(releases.WAYS, way=self.way)
        validate.integer(targets=self.targets)
        for name in self.published:
            validate.one_of(releases.PUBLISHED, published=name)
        for n in self.n:
            validate.integer(minimum=self.targets + 2, n=n)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """What decides the results.

    Attributes:
        plans: Releases, in the order of computing.
        seed: Seed of the order of records, of the methods and of the attacks.
    """

    plans: tuple[Plan, ...]
    seed: int = 0

    def __post_init__(self) -> None:
        """Checks the seed."""
        validate.integer(minimum=0, seed=self.seed)

    def most(self, data: str) -> int:
        """Most records of a data set that a release has."""
        return max(n for plan in self.plans if plan.data == data for n in plan.n)


SMOKE = Config(
    plans=(
        Plan(way="PCA", data="digits", n=(60, 300, 1200), targets=12, published=ALL),
        Plan(way="random projection", data="digits", n=(60, 300), targets=12),
    )
)

CPU = Config(
    plans=(
        Plan(way="PCA", n=(100, 300, 1000, 3000, 10_000, 30_000, 50_000), targets=50, published=ALL),
        Plan(
            way="PCA",
            data=releases.GENERATED,
            n=(100, 300, 1000, 3000, 10_000, 30_000, 100_000, 300_000, 1_000_000),
            targets=50,
            published=ALL,
        ),
        Plan(way="random projection", n=(100, 300, 1000, 3000, 10_000, 30_000, 50_000), targets=50),
        Plan(way="PCA, typed", n=(1000, 10_000, 50_000), targets=50, published=("float32",)),
        Plan(
            way="PCA, typed",
            data=releases.GENERATED,
            n=(1000, 10_000, 100_000, 1_000_000),
            targets=50,
            published=("float32",),
        ),
        Plan(way="classical MDS", n=(100, 300, 1000, 2000), targets=50),
        Plan(way="Isomap", n=(100, 300), targets=20),
        Plan(way="UMAP", n=(100, 300, 1000), targets=30),
        Plan(way="t-SNE", n=(100, 300, 1000), targets=20),
        Plan(way="MDS", n=(100, 200, 300), targets=10),
        Plan(way="PCA", data="cifar10", n=(100, 300, 1000, 3000, 10_000), targets=20),
        Plan(way="UMAP", n=(2000,), targets=30, published=("float32",)),
        Plan(way="t-SNE", n=(2000,), targets=20, published=("float32",)),
        Plan(way="Isomap", n=(1000,), targets=10, published=("float32",)),
        Plan(way="t-SNE, inversion", n=(100, 200), targets=10, published=("float32",)),
        Plan(way="MDS", n=(500,), targets=10, published=("float32",)),
    )
)

COARSE = ("4 decimals", "3 decimals", "2 decimals", "1 decimal")

DECIMALS = Config(
    plans=(
        Plan(way="PCA", n=(1000, 10_000, 50_000), targets=50, published=COARSE),
        Plan(way="PCA", data=releases.GENERATED, n=(1000, 10_000, 100_000, 1_000_000), targets=50, published=COARSE),
    )
)

MAPS = Config(
    plans=(
        Plan(way="UMAP", n=(2000,), targets=30, published=("3 decimals",)),
        Plan(way="t-SNE", n=(2000,), targets=20, published=("3 decimals",)),
        Plan(way="UMAP", n=(5000, 10_000), targets=30),
        Plan(way="t-SNE", n=(5000, 10_000), targets=20),
    )
)

WIDE = Config(
    plans=(Plan(way="PCA", data=releases.WIDE, n=(10_000, 100_000, 1_000_000), targets=50),),
)

LANDMARKS = Config(
    plans=(
        Plan(way="landmark MDS", n=(100, 300, 1000, 3000, 10_000, 30_000, 50_000), targets=50),
        Plan(way="landmark MDS, a landmark", n=(100, 300, 3000, 10_000, 30_000, 50_000), targets=50),
        Plan(way="landmark Isomap", n=(100, 300, 1000, 3000, 10_000, 30_000, 50_000), targets=50),
    )
)

DISTANCES = Config(
    plans=(
        Plan(way="Isomap", n=(1000,), targets=10, published=("float32",)),
        Plan(way="MDS, at rest", n=(100, 300, 1000), targets=10, published=("float32",)),
        Plan(way="Isomap", n=(3000,), targets=4, published=("float32",)),
        Plan(way="MDS, at rest", n=(2000,), targets=4, published=("float32",)),
    )
)


def groups(asked: Asked[Config]) -> Iterator[Group]:
    """The cells of each number of records, which have their releases in common."""
    for place, plan in enumerate(asked.config.plans):
        for n in plan.n:
            cells = [
                cell_of(
                    cell_name(place, n, i, plan.way, plan.data, name),
                    what=plan,
                    way=plan.way,
                    data=plan.data,
                    n=n,
                    published=name,
                )
                for i, name in enumerate(plan.published)
            ]
            yield Group(cells=tuple(cells), compute=functools.partial(_compute, asked.config, plan, n))


def _dataset(config: Config, data: str) -> Dataset:
    """Records in their order.

    Raises:
        ValueError: fewer of them than a release and its targets take.
    """
    found = releases.dataset(data, config.seed, config.most(data))
    for plan in (plan for plan in config.plans if plan.data == data):
        way = releases.WAYS[plan.way]
        needed = max(plan.n) + (0 if way.each else plan.targets - 1) + way.public
        validate.at_most(len(found.x), f"the records of {data}", n=needed)
    return found


def _sources(asked: Asked[Config], _: Sequence[Group]) -> Mapping[str, Dataset]:
    return {name: _dataset(asked.config, name) for name in dict.fromkeys(plan.data for plan in asked.config.plans)}


def _compute(config: Config, plan: Plan, n: int, missing: Sequence[Cell]) -> Iterator[Computed]:
    way, x = releases.WAYS[plan.way], _dataset(config, plan.data).x
    coords = releases.released(way, x, n, plan.targets, config.seed)
    for cell in missing:
        published = str(cell.fields["published"])
        shown = releases.rounded(coords, published)
        facts = releases.attacked(way, x, shown, plan.targets, published, config.seed)
        if plan.way == "PCA" and streamed.LEAST_SHAPE * x.shape[1] <= n and published != "float64":
            facts["predicted"] = _predicted(config, plan, n, published)
        yield cell, {"targets": plan.targets, "d": x.shape[1], **facts}


def _predicted(config: Config, plan: Plan, n: int, published: str) -> list[float]:
    """Errors by the law, of which nothing is known but the records."""
    of = _population(config, plan)
    dtype, decimals = releases.PUBLISHED[published]
    noise = law.rounding(of.scores, decimals, dtype)
    return [float(f"{value:.6g}") for value in law.predicted(of, n, noise)]


@functools.lru_cache(maxsize=1)
def _population(config: Config, plan: Plan) -> law.Population:
    return law.population(_dataset(config, plan.data).x[: config.most(plan.data)], plan.targets)


def _said(line: Line) -> str:
    share = np.nanmedian(np.divide(line["error"], line["mean_error"]))
    name = f"{line['way']}, {line['data']}, {line['n']:,} records, {line['published']}"
    return f"{name}: {number(float(share))} of the mean record's error, {line['seconds']:.2g} s"


def _report(out: Path, _: Config) -> str | None:
    from experiments.leak_vs_n import report

    lines = records.read_records(out / RESULTS)[1:]
    return report.written(lines, out) if lines else None


SWEEP = Sweep(
    name="leak_vs_n",
    about=__doc__,
    scales={
        "smoke": SMOKE,
        "cpu": CPU,
        "decimals": DECIMALS,
        "maps": MAPS,
        "wide": WIDE,
        "landmarks": LANDMARKS,
        "distances": DISTANCES,
    },
    plain="cpu",
    groups=groups,
    sources=_sources,
    identity=by("way", "data", "n", "published"),
    said=_said,
    report=_report,
)


if __name__ == "__main__":
    command.main(SWEEP)
