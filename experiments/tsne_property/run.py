"""Property inference on t-SNE plots (paper 003) on UTKFace, LFW and MNIST.

    python -m experiments.tsne_property.run                         # README.md says how long
    python -m experiments.tsne_property.run --scale smoke           # digits, seconds
    python -m experiments.tsne_property.run --parts main defences

Plots show a property in a known share of their records; the adversary trains on plots of one half of the records and is
tried on plots of the other. A cell is an attack, trained and tried on stated sets of plots: one line of `results.jsonl`
as soon as it is done; the same command goes on with an interrupted run. Plots are kept beside it until deleted.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from drjax.attacks.property.defences import TABLE5
from drjax.attacks.property.groups import LEVELS
from drjax.attacks.property.models import CONFIGS
from drjax.core import validate
from drjax.data import describe, load
from drjax.reports import records
from experiments import cells as experiment_cells
from experiments import command
from experiments.cells import Computed, Group, LeftOut, Line
from experiments.sweep import Asked, Sweep, cell_name
from experiments.tsne_property import cells, data, extractors
from experiments.tsne_property.cells import MEAN, Cell, Utility
from experiments.tsne_property.config import SCALES, Config
from experiments.tsne_property.map_sets import FINE_TUNED, NOISED, SIDES, Store, Wanted

CACHE = "cache"
ADAPTIVE = ("E-N 2*STD", "E-N 1*STD", "C-N 5%*STD", "C-N 2%*STD")
"""The defences of the paper's table 6."""


class Plan:
    """The cells of every part, in order of worth."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.parts: dict[str, Callable[[], Iterator[Cell | Utility]]] = {
            "main": self._main,
            "picture": self._picture,
            "densenet": self._densenet,
            "defences": self._defences,
            "pictures": self._pictures,
            "noised": self._noised,
            "properties": self._properties,
            "separability": self._separability,
            "extractors": self._extractors,
            "transfer": self._transfer,
            "mixed": self._mixed,
            "density": self._density,
            "fine": self._fine,
            "numbers": self._numbers,
            "set": self._set,
            "coordinates": self._coordinates,
        }

    def _side(self, side: str, prop: str, seed: int, task: str = "regression", **changes: Any) -> Wanted:
        fields: dict[str, Any] = {"extractor": self.config.extractor, "n": self.config.n}
        fields |= {**sizes(self.config, side, task), **changes}
        return Wanted(prop=prop, seed=seed, side=side, **fields)

    def _cell(
        self,
        part: str,
        prop: str,
        seed: int,
        attack: str = "descriptors",
        task: str = "regression",
        *,
        train: dict[str, Any] | None = None,
        test: dict[str, Any] | None = None,
        test_prop: str | None = None,
        limit: int | None = None,
        note: str = "",
    ) -> Cell:
        shadow = self._side("shadow", prop, seed, task, **(train or {}))
        target = self._side("target", test_prop or prop, seed, task, **(test or {}))
        limits = (limit or shadow.per_level,)
        return Cell(part=part, task=task, attack=attack, train=(shadow,), limits=limits, test=target, note=note)

    def _both(self, part: str, prop: str, seed: int, *attacks: str, **options: Any) -> Iterator[Cell]:
        for attack in attacks:
            for task in cells.TASKS:
                yield self._cell(part, prop, seed, attack, task, **options)

    def _main(self) -> Iterator[Cell]:
        for seed in range(self.config.seeds):
            for prop in self.config.main:
                yield from self._both("main", prop, seed, "descriptors", MEAN)

    def _picture(self) -> Iterator[Cell]:
        for seed in range(self.config.picture_seeds):
            for prop in self.config.main:
                yield self._cell("main", prop, seed, "picture", "classification")
        for seed in range(self.config.picture_regression_seeds):
            for prop in self.config.main:
                yield self._cell("main", prop, seed, "picture")

    def _densenet(self) -> Iterator[Cell]:
        for seed in range(self.config.densenet_seeds):
            for prop in self.config.main:
                yield from self._both("main", prop, seed, "densenet")

    def _set(self) -> Iterator[Cell]:
        for seed in range(self.config.set_seeds):
            for prop in self.config.main:
                yield from self._both("main", prop, seed, "set")

    def _properties(self) -> Iterator[Cell]:
        for seed in range(self.config.property_seeds):
            for prop in self.config.others:
                yield from self._both("properties", prop, seed, "descriptors", MEAN)

    def _separability(self) -> Iterator[Utility]:
        for seed in range(self.config.other_seeds):
            for prop in (*self.config.main, *self.config.others):
                yield Utility(part="separability", test=self._side("target", prop, seed))
            for name in self.config.other_extractors:
                test = self._side("target", self.config.main[0], seed, extractor=name)
                yield Utility(part="separability", test=test)

    def _defences(self) -> Iterator[Cell | Utility]:
        prop = self.config.main[0]
        for seed in range(self.config.defence_seeds):
            yield Utility(part="utility", test=self._side("target", prop, seed))
            # Coordinates first: they need no maps of their own.
            for name in sorted(TABLE5, key=lambda one: not one.startswith("C")):
                test = {"defence": name}
                yield Utility(part="utility", test=self._side("target", prop, seed, **test))
                yield self._cell("defences", prop, seed, test=test, note="not adaptive")
                if name in ADAPTIVE:
                    yield self._cell("defences", prop, seed, train=test, test=test, note="adaptive")

    def _pictures(self) -> Iterator[Cell]:
        """The network on pictures of the main part, tried on defended plots."""
        prop = self.config.main[0]
        for seed in range(min(self.config.defence_seeds, self.config.picture_seeds)):
            for name in ADAPTIVE:
                test = {"defence": name}
                yield self._cell("pictures", prop, seed, "picture", "classification", test=test, note="not adaptive")

    def _coordinates(self) -> Iterator[Cell]:
        """Networks on pictures trained on plots with the noise on coordinates that they are tried on: table 6."""
        prop = self.config.main[0]
        seeds = {"picture": min(self.config.defence_seeds, self.config.picture_seeds)}
        seeds["densenet"] = min(self.config.defence_seeds, self.config.densenet_seeds)
        for attack, count in seeds.items():
            for seed in range(count):
                for name in (name for name in ADAPTIVE if name.startswith("C")):
                    own = {"defence": name}
                    yield from self._both("coordinates", prop, seed, attack, train=own, test=own, note="adaptive")

    def _noised(self) -> Iterator[Cell]:
        # The publisher's data set is larger than the plot, so plots are half as large as elsewhere.
        prop, half = self.config.main[0], {"n": self.config.n // 2, "defence": ""}
        for seed in range(self.config.defence_seeds):
            for name in ("", *NOISED):
                test = half | {"defence": name}
                adversaries = {"not adaptive": half, "adaptive": test} if name else {"no defence": half}
                for note, train in adversaries.items():
                    task = "classification"
                    yield self._cell("noised", prop, seed, task=task, train=train, test=test, note=note)

    def _extractors(self) -> Iterator[Cell]:
        prop = self.config.main[0]
        for seed in range(self.config.other_seeds):
            for name in self.config.other_extractors:
                other = {"extractor": name}
                yield from self._both("extractors", prop, seed, "descriptors", MEAN, train=other, test=other)
                # Setting 2: the adversary has the experiment's extractor, the victim another.
                yield from self._both("shadow", prop, seed, "descriptors", test=other)

    def _transfer(self) -> Iterator[Cell]:
        for seed in range(self.config.other_seeds):
            for prop in self.config.main:
                for other in self.config.main:
                    if prop != other:
                        yield from self._both("transfer", prop, seed, "descriptors", test_prop=other)

    def _mixed(self) -> Iterator[Cell]:
        if len(self.config.main) < 2:
            return
        many, few = self.config.main[:2]
        for seed in range(self.config.other_seeds):
            train = (self._side("shadow", many, seed), self._side("shadow", few, seed))
            for count in self.config.few:
                used = 2 if count else 1
                for prop in (few, many):
                    yield Cell(
                        part="mixed",
                        task="regression",
                        attack="descriptors",
                        train=train[:used],
                        limits=(self.config.n_train, count)[:used],
                        test=self._side("target", prop, seed),
                        note=str(count),
                    )

    def _density(self) -> Iterator[Cell]:
        prop = self.config.main[0]
        for seed in range(self.config.other_seeds):
            for n in self.config.densities:
                # Fewer points are cheap to train on; more are for the test alone.
                if n < self.config.n:
                    yield from self._both("density", prop, seed, "descriptors", train={"n": n}, test={"n": n})
                    yield from self._both("density", prop, seed, "descriptors", train={"n": n})
                yield from self._both("density", prop, seed, "descriptors", test={"n": n})

    def _fine(self) -> Iterator[Cell]:
        for seed in range(self.config.other_seeds):
            for prop in self.config.fine_tuned:
                own = {"extractor": FINE_TUNED + extractors.TUNABLE}
                yield from self._both("fine", prop, seed, "descriptors", train=own, test=own)

    def _numbers(self) -> Iterator[Cell]:
        prop = self.config.main[0]
        for seed in range(self.config.other_seeds):
            for count in self.config.numbers:
                yield from self._both("numbers", prop, seed, "descriptors", limit=count, note=str(count))


def sizes(config: Config, side: str, task: str) -> dict[str, Any]:
    """Shares of a set of maps, and maps for each."""
    shares, counts = config.levels, (config.n_train, config.n_test)
    if task == "classification":
        shares, counts = LEVELS, (config.n_class_train, config.n_class_test)
    return {"levels": shares, "per_level": counts[SIDES.index(side)]}


def path_of(cell: Cell | Utility) -> str:
    """What a cell is called: "main/utkface:male/0/densenet/regression", with a defence, at last, where it has one."""
    words = [cell.part, cell.test.prop, str(cell.test.seed)]
    words += [cell.attack, cell.task] if isinstance(cell, Cell) else []
    return "/".join(words + ([cell.test.defence] if cell.test.defence else []))


def groups(asked: Asked[Config]) -> Iterator[Group]:
    """The cells of some parts.

    Raises:
        ValueError: a part that there is not.
    """
    plan, store = Plan(asked.config), Store(asked.out / CACHE)
    for part in asked.options.parts:
        validate.one_of(plan.parts, parts=part)
    for part in asked.options.parts or plan.parts:
        for i, what in enumerate(plan.parts[part]()):
            identity = records.config_fingerprint(what)[:16]
            cell = experiment_cells.Cell(
                path=path_of(what),
                name=cell_name(list(plan.parts).index(part), i, what.part, identity),
                identity=identity,
                fields={"id": identity, **described(what)},
                what=what,
            )
            yield Group(cells=(cell,), compute=functools.partial(_compute, asked.config, store))


def _compute(config: Config, store: Store, missing: Sequence[experiment_cells.Cell]) -> Iterator[Computed]:
    for cell in missing:
        facts: Line | LeftOut
        try:
            facts = _measured(store, config, cell.what)
        except FileNotFoundError as error:
            # Its pictures are not there: it is left for the day when they are.
            facts = LeftOut(str(error))
        yield cell, facts


def _measured(store: Store, config: Config, cell: Cell | Utility) -> dict[str, Any]:
    if isinstance(cell, Utility):
        return cells.utility(store, cell)
    chosen = {"picture": config.picture, "densenet": config.densenet, "set": config.set}.get(
        cell.attack, CONFIGS["descriptors"]
    )
    return cells.attack(store, cell, chosen)


def described(cell: Cell | Utility) -> dict[str, Any]:
    """What tables are made from."""
    test = dataclasses.asdict(cell.test)
    del test["levels"], test["side"]
    if isinstance(cell, Utility):
        return {"part": cell.part, "test": test}
    train = [
        {k: v for k, v in dataclasses.asdict(w).items() if k not in ("levels", "side", "seed")} for w in cell.train
    ]
    facts = {"part": cell.part, "task": cell.task, "attack": cell.attack, "note": cell.note}
    return {**facts, "train": train, "limits": cell.limits, "test": test}


def _sources(asked: Asked[Config], _: Sequence[Group]) -> dict[str, Any]:
    config = asked.config
    names = {name.partition(":")[0] for name in (*config.main, *config.others) if name in data.PROPERTIES}
    used = {config.extractor, *config.other_extractors}
    names |= {"cifar10"} if used & set(extractors.OBJECTS) else set()
    named = {name: "lfw:all" if name == "lfw" else name for name in sorted(names)}
    # Cells of what is not there are left out, one by one.
    return {name: load(source) for name, source in named.items() if None not in describe(source).files.values()}


def _said(line: Line) -> str:
    test = line["test"]
    where = f"{line['part']}, {test['prop']}, {test['extractor']}, n = {test['n']}, seed {test['seed']}"
    if "attack" not in line:
        return f"{where}, {test['defence'] or 'no defence'}: trustworthiness {line['trustworthiness']:.3f}"
    score = f"accuracy {line['accuracy']:.2f}" if "accuracy" in line else f"error {line['error']:.3f}"
    return f"{where}, {test['defence']} {line['note']} {line['attack']}: {score}, {line['seconds']:.0f} s"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Further options.

    Attributes:
        parts: Which of main, picture, densenet, defences, pictures, noised, properties, separability, extractors,
            transfer, mixed, density, fine, numbers, set and coordinates; all if none.
    """

    parts: tuple[str, ...] = ()


SWEEP = Sweep(
    name="tsne_property",
    about=__doc__,
    scales=SCALES,
    plain="cpu",
    groups=groups,
    sources=_sources,
    identity=lambda line: line["id"],
    said=_said,
    options=Options(),
)


if __name__ == "__main__":
    command.main(SWEEP)
