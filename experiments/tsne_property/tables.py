"""Tables of the cells."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from drjax.core.statistics import mean_interval, share_interval
from experiments.markdown import markdown_table
from experiments.tsne_property import data

Record = Mapping[str, Any]

FEWEST_SEEDS = 3
CHANCE = 0.2
GUESS = 0.34
"""Error of a uniformly random guess, as the paper gives it."""

NOT_SHOWN = "not shown"
"""What is said of a score that is not above that of an adversary who sees no plot by all of its interval."""

LEAD = (
    "Intervals are 95%: over seeds where there are {seeds} or more, else over the test plots of the seeds, which says "
    "nothing about other halves or trainings. *{words}*: not all of the interval is better than what is reached "
    "without a plot, an accuracy of {chance:.2f} or the error of always saying 0.5, {constant:.3f}."
)

PAPER = {
    "utkface:male": (0.41, 0.08),
    "lfw:male": (0.56, 0.07),
    "celeba:male": (0.92, 0.02),
    "celeba:big_nose": (0.57, None),
    "celeba:smiling": (0.30, None),
    "celeba:oval_face": (0.26, 0.16),
    "fairface:male": (0.22, 0.17),
}
"""The paper's accuracy and error in setting 1 where its text or tables give them; chance is 0.20, and 0.34."""

PAPER_DEFENCES = {
    "": (0.02, None),
    "E-N 2*STD": (0.48, 0.15),
    "E-N 1*STD": (0.30, 0.04),
    "C-N 5%*STD": (0.48, 0.25),
    "C-N 2%*STD": (0.48, 0.24),
    "E-R 0.1": (0.02, None),
    "E-R INT": (0.03, None),
    "C-R 0.1": (0.02, None),
    "C-R INT": (0.05, None),
    "E-T 50%": (0.03, None),
    "E-T 75%": (0.02, None),
}
"""The paper's tables 5 and 6, CelebA: error without and with adaptation."""

TITLES = {
    "main": "Setting 1 (figures 1a and 2a)",
    "properties": "Other properties (figures 1b and 2b)",
    "extractors": "Other extractors, the adversary's and the victim's the same (figures 1c and 2c)",
    "shadow": "Setting 2: the adversary's extractor is another one (tables 3 and 4)",
    "transfer": "Between data sets (tables 1 and 2)",
    "mixed": "Mixed training: maps a level of the second data set (figure 12)",
    "density": "Density: points of the maps (figures 8 and 9)",
    "numbers": "Training maps for each level (figure 7)",
    "pictures": "Defences against the network on pictures",
    "coordinates": "Noise on coordinates against networks on pictures that were trained under it",
    "noised": "A noised share: epsilon-DP at epsilon 1 for data sets whose shares differ by 1% or 10%",
    "fine": "Extractors that each side fine-tuned on its own pictures (table 7)",
}


class Summary(NamedTuple):
    """A figure over seeds.

    Attributes:
        mean: Over seeds.
        low, high: Ends of the 95% interval: Student's t of the mean over seeds, cut to [0, 1], or with fewer than
            `FEWEST_SEEDS` over their test maps.
        n_seeds: How many.
    """

    mean: float
    low: float
    high: float
    n_seeds: int

    def __str__(self) -> str:
        """Mean and interval."""
        return f"{self.mean:.3f} ({self.low:.3f}, {self.high:.3f})"

    def accuracy_in_words(self) -> str:
        """Mean and interval; `NOT_SHOWN` behind them unless all of it is above chance."""
        return str(self) if self.low > CHANCE else f"{self}, *{NOT_SHOWN}*"

    def error_in_words(self, constant: float) -> str:
        """Mean and interval; `NOT_SHOWN` behind them unless all of it is below the error of always saying 0.5."""
        return str(self) if self.high < constant else f"{self}, *{NOT_SHOWN}*"


def summary(cells: Sequence[Record], field: str) -> Summary:
    """Of cells that differ in their seeds alone; `field` is "accuracy" or "error".

    With one or two seeds the interval says nothing about other halves, groups or trainings: over two, Student's t would
    say nothing at all.
    """
    values = np.array([cell[field] for cell in cells])
    if len(values) >= FEWEST_SEEDS:
        return Summary(*mean_interval(values, lowest=0.0, highest=1.0), len(values))
    if field == "accuracy":
        n_test = sum(cell["n_test"] for cell in cells)
        ends = share_interval(round(sum(cell["n_test"] * cell["accuracy"] for cell in cells)), n_test)
        return Summary(float(values.mean()), ends.low, ends.high, len(values))
    half = float(np.linalg.norm([cell["error_half"] for cell in cells])) / len(cells)
    return Summary(float(values.mean()), float(values.mean()) - half, float(values.mean()) + half, len(values))


def grouped(cells: Sequence[Record], key: Callable[[Record], Any]) -> dict[Any, list[Record]]:
    """Cells by key, in order of appearance."""
    found: dict[Any, list[Record]] = {}
    for cell in cells:
        found.setdefault(key(cell), []).append(cell)
    return found


def constant_error(found: Sequence[Record]) -> float:
    """Error of whoever always says 0.5, over the levels that the run has."""
    (config,) = [record["config"] for record in found if record["kind"] == "run"]
    return float(np.mean(np.abs(np.array(config["levels"]) - 0.5)))


def tables(records: Sequence[Record]) -> str:
    """All tables that the cells fill; the first of the records is of the run."""
    cells, constant = records[1:], constant_error(records)
    parts = grouped(cells, lambda cell: cell["part"])
    found = [LEAD.format(seeds=FEWEST_SEEDS, words=NOT_SHOWN, chance=CHANCE, constant=constant)]
    found += [f"## {TITLES[part]}\n\n{_scores(own, constant)}" for part, own in parts.items() if part in TITLES]
    if "defences" in parts:
        found.append(f"## Defences (tables 5 and 6)\n\n{_defences(cells, constant)}")
    if "separability" in parts:
        found.append(f"## What a map shows of a property (figure 6)\n\n{_separability(cells)}")
    found.append(f"## The paper's data sets\n\n{_missing(cells)}")
    return "\n\n".join(found) + "\n"


def where(wanted: Record) -> str:
    """One set of maps in words, without its seed."""
    hidden = f", {wanted['defence']}" if wanted.get("defence") else ""
    return f"{wanted['prop']}, {wanted['extractor']}, n = {wanted['n']}{hidden}"


def trained_on(cell: Record) -> str:
    """All of a cell's training sets in words."""
    sets = zip(cell["train"], cell["limits"], strict=True)
    # Elsewhere only the two tasks differ in it.
    counted = cell["part"] in ("numbers", "mixed")
    return " + ".join(where(wanted) + (f" ({limit} a level)" if counted else "") for wanted, limit in sets)


def _scores(cells: Sequence[Record], constant: float) -> str:
    heads = ("trained on", "tried on", "attack", "accuracy of five", "error", "coverage at 90%", "paper", "seeds")
    rows = []
    own = grouped(cells, lambda cell: (trained_on(cell), where(cell["test"]), cell["attack"]))
    for (train, test, attack), found in own.items():
        tasks = grouped(found, lambda cell: cell["task"])
        score = {task: summary(some, field) for task, field, some in _by_task(tasks)}
        covered = [cell["coverage"] for cell in tasks.get("regression", []) if "coverage" in cell]
        n_seeds = sorted({value.n_seeds for value in score.values()})
        facts = found[0]
        accuracies = (
            f", network right {facts['shadow_accuracy']:.2f} / {facts['target_accuracy']:.2f}"
            if "target_accuracy" in facts
            else ""
        )
        rows.append(
            [
                train,
                test + accuracies,
                attack,
                score["classification"].accuracy_in_words() if "classification" in score else "",
                score["regression"].error_in_words(constant) if "regression" in score else "",
                f"{np.mean(covered):.2f}" if covered else "",
                _of_paper(facts),
                "/".join(map(str, n_seeds)),
            ]
        )
    return markdown_table(heads, rows)


def _by_task(tasks: Mapping[str, list[Record]]) -> list[tuple[str, str, list[Record]]]:
    fields = {"classification": "accuracy", "regression": "error"}
    return [(task, field, tasks[task]) for task, field in fields.items() if task in tasks]


def _of_paper(cell: Record) -> str:
    if cell["part"] not in ("main", "properties") or cell["attack"] == "mean":
        return ""
    numbers = PAPER.get(cell["test"]["prop"], ())
    return " / ".join("?" if value is None else f"{value:.2f}" for value in numbers)


def defended(cells: Sequence[Record]) -> dict[str, dict[str, list[Record]]]:
    """Cells by defence ("" for none) and by "not adaptive", "adaptive" and "utility", for the seeds of the defences."""
    own = [cell for cell in cells if cell["part"] in ("defences", "utility")]
    if not own:
        return {}
    seeds, prop = {cell["test"]["seed"] for cell in own}, own[0]["test"]["prop"]
    extractor = own[0]["test"]["extractor"]
    found: dict[str, dict[str, list[Record]]] = {}
    for cell in cells:
        test = cell["test"]
        if cell["part"] == "utility":
            kind = "utility"
        elif cell["part"] == "defences":
            kind = cell["note"]
        elif (
            cell["part"] == "main"
            and (cell["task"], cell["attack"]) == ("regression", "descriptors")
            and (test["prop"], test["extractor"]) == (prop, extractor)
            and test["seed"] in seeds
        ):
            kind = "not adaptive"
        else:
            continue
        found.setdefault(test["defence"], {}).setdefault(kind, []).append(cell)
    return {name: found[name] for name in PAPER_DEFENCES if name in found}


def _defences(cells: Sequence[Record], constant: float) -> str:
    heads = ("defence", "error", "adaptive", "paper", "paper, adaptive")
    measures = ("trustworthiness", "knn_preservation", "silhouette")
    rows = []
    for name, kinds in defended(cells).items():
        scores = [
            summary(kinds[k], "error").error_in_words(constant) if k in kinds else ""
            for k in ("not adaptive", "adaptive")
        ]
        paper = ["" if value is None else f"{value:.2f}" for value in PAPER_DEFENCES[name]]
        worth = [
            f"{np.mean([cell[m] for cell in kinds['utility']]):.3f}" if "utility" in kinds else "" for m in measures
        ]
        rows.append([name or "none", *scores, *paper, *worth])
    return markdown_table((*heads, "trustworthiness", "neighbours kept", "silhouette of the property"), rows)


def _separability(cells: Sequence[Record]) -> str:
    """The property's silhouette in maps at share 0.5, beside what map and mean embedding give away."""
    heads = ("property, extractor", "silhouette in the map", "accuracy from the map", "accuracy from mean embeddings")
    rows = []
    for cell in (one for one in cells if one["part"] == "separability"):
        like = [
            c
            for c in cells
            if c["part"] in ("main", "properties", "extractors")
            and c["task"] == "classification"
            and where(c["test"]) == where(cell["test"])
        ]
        by_attack = grouped(like, lambda one: one["attack"])
        scores = [
            summary(by_attack[a], "accuracy").accuracy_in_words() if a in by_attack else ""
            for a in ("descriptors", "mean")
        ]
        rows.append([where(cell["test"]), f"{cell['silhouette']:.3f}", *scores])
    return markdown_table(heads, rows)


def _missing(cells: Sequence[Record]) -> str:
    there = {cell["test"]["prop"] for cell in cells}
    rows = []
    for name in data.USER_PROPERTIES:
        state = "above" if name in there else f"needs the user's file {data.USER_FOLDER}/{data.user_file(name).name}"
        rows.append([name, *("" if value is None else f"{value:.2f}" for value in PAPER.get(name, ())), state])
    return markdown_table(("property", "paper: accuracy", "paper: error", "here"), rows)
