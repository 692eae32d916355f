"""Tests of what paper 003 says of shares read off t-SNE plots: from the rows of both scales to what they say."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from drjax.core.statistics import Interval
from experiments.claims import NOT_RUN, Told, alike, below, difference, no_better, outcome, sign
from experiments.tsne_property.tables import CHANCE, PAPER_DEFENCES, constant_error, defended, summary, where

DESCRIPTORS, PICTURE, MEAN = "descriptors", "picture", "mean"
MALE, LFW = "utkface:male", "lfw:male"

SLACK = 0.05
"""Error by which two may differ and count as unchanged."""

AROUND = 0.1
"""Accuracy above chance that still counts as about chance."""

OVERLAP = 0.05
"""Silhouette below which two groups of a map count as overlapping."""


class Score(NamedTuple):
    """A mean over seeds.

    Attributes:
        interval: With its ends.
        n_seeds: How many.
    """

    interval: Interval
    n_seeds: int

    def __str__(self) -> str:
        """Mean and interval."""
        found = self.interval
        return f"{found.estimate:.3f} ({found.low:.3f} to {found.high:.3f})"


@dataclass(frozen=True)
class Rows:
    """The cells of one scale.

    Attributes:
        records: Lines of results: the run, then its cells.
    """

    records: Sequence[Mapping[str, Any]]

    @functools.cached_property
    def constant(self) -> float:
        """Error of always saying 0.5."""
        return constant_error(self.records)

    @property
    def n(self) -> int:
        """Points of a plot by default."""
        return self.records[0]["config"]["n"]

    def score(
        self,
        part: str,
        field: str,
        test: str = MALE,
        *,
        train: str | None = None,
        attack: str = DESCRIPTORS,
        note: str | None = None,
        seeds: Sequence[int] | None = None,
        **of_test: Any,
    ) -> Score | None:
        """Accuracy of five or error of regression, over seeds; None without cells.

        Args:
            part: Name of the part of the sweep.
            field: "accuracy" or "error".
            test: Data set and property that it was tried on.
            train: Those it was trained on first, if others.
            attack: Which.
            note: What the cells say beside it.
            seeds: Seeds to take; all if None.
            **of_test: What the plots that it was tried on must have; `train_NAME` of those that it was trained on.
        """
        task = "classification" if field == "accuracy" else "regression"
        of_train = {key.removeprefix("train_"): v for key, v in of_test.items() if key.startswith("train_")}
        own = {key: v for key, v in of_test.items() if not key.startswith("train_")} | {"prop": test}
        cells = [
            c
            for c in self.records[1:]
            if (c["part"], c.get("task"), c.get("attack")) == (part, task, attack)
            and own.items() <= c["test"].items()
            and (of_train | {"prop": train or test}).items() <= c["train"][0].items()
            and note in (None, c.get("note"))
            and (seeds is None or c["test"]["seed"] in seeds)
        ]
        return _score(cells, field)


def _score(cells: Sequence[Mapping[str, Any]], field: str) -> Score | None:
    if not cells:
        return None
    found = summary(cells, field)
    return Score(Interval(found.mean, found.low, found.high), found.n_seeds)


class Runs(NamedTuple):
    """Both scales."""

    full: Rows
    cpu: Rows


def _told(
    scores: Mapping[str, Score | None], answers: Sequence[bool | None], why: str = "", *, lacks: bool = False
) -> Told:
    seeds = sorted({score.n_seeds for score in scores.values() if score})
    words = f"{'/'.join(map(str, seeds))} seed{'s' if seeds != [1] else ''}"
    evidence = "; ".join(f"{name} {score if score else NOT_RUN}" for name, score in scores.items())
    verdict = outcome(answers, lacks=lacks or None in scores.values())
    return Told(verdict, evidence, "; ".join(part for part in (why, words if seeds else "") if part))


Test = Callable[[Runs], Told]


def _over(score: Score | None, level: float) -> list[bool | None]:
    return [] if score is None else [sign(score.interval, over=level)]


def _under(score: Score | None, level: float) -> list[bool | None]:
    found = _over(score, level)
    return [None if one is None else not one for one in found]


def _less(a: Score | None, b: Score | None) -> list[bool | None]:
    return [] if a is None or b is None else [below(a.interval, b.interval)]


def _unchanged(a: Score | None, b: Score | None) -> list[bool | None]:
    return [] if a is None or b is None else [alike(difference(a.interval, b.interval), SLACK)]


def tells_classes(prop: str) -> Test:
    """The attack on pictures is above chance."""

    def test(runs: Runs) -> Told:
        scores = {attack: runs.full.score("main", "accuracy", prop, attack=attack) for attack in (PICTURE, DESCRIPTORS)}
        return _told(scores, _over(scores[PICTURE], CHANCE), f"accuracy of five, chance {CHANCE:.2f}; of pictures")

    return test


def tells_shares(prop: str) -> Test:
    """The attack on pictures errs by less than 0.10."""

    def test(runs: Runs) -> Told:
        scores = {attack: runs.full.score("main", "error", prop, attack=attack) for attack in (PICTURE, DESCRIPTORS)}
        return _told(
            scores, _under(scores[PICTURE], 0.10), f"error, always 0.5 has {runs.full.constant:.3f}; of pictures"
        )

    return test


def means_tell(runs: Runs) -> Told:
    """Mean embeddings of the plots tell the classes, by regression on them."""
    scores = {prop: runs.full.score("main", "accuracy", prop, attack=MEAN) for prop in (MALE, LFW)}
    return _told(
        scores, [a for score in scores.values() for a in _over(score, CHANCE)], "accuracy from mean embeddings"
    )


def overlap_hides(runs: Runs) -> Told:
    """Where the groups overlap in a map the attack errs as always saying 0.5 does."""
    rows, scores, answers = runs.cpu, {}, []
    for cell in (c for c in rows.records[1:] if c["part"] == "separability"):
        like = [
            c for c in rows.records[1:] if c.get("attack") == DESCRIPTORS and where(c["test"]) == where(cell["test"])
        ]
        like = [c for c in like if c["task"] == "regression" and c["part"] in ("main", "properties", "extractors")]
        score = _score(like, "error")
        scores[f"{where(cell['test'])}, silhouette {cell['silhouette']:.3f}:"] = score
        if cell["silhouette"] < OVERLAP and score is not None:
            answers.append(no_better(score.interval, _constant(rows), SLACK))
    why = f"error, always 0.5 has {rows.constant:.3f}; overlapping means a silhouette below {OVERLAP:g}"
    return _told(scores, answers, why)


def _constant(rows: Rows) -> Interval:
    return Interval(rows.constant, rows.constant, rows.constant)


def property_matters(runs: Runs) -> Told:
    """One property is told better than each of the others."""
    easy = "mnist:3"
    scores = {
        p: runs.cpu.score("properties", "error", p) for p in (easy, "utkface:white", "lfw:smiling", "lfw:big_nose")
    }
    answers = [a for p, score in scores.items() if p != easy for a in _less(scores[easy], score)]
    return _told(scores, answers, f"error, always 0.5 has {runs.cpu.constant:.3f}")


def extractors_work(runs: Runs) -> Told:
    """The error is below that of always saying 0.5, whatever the network that extracts."""
    scores = {name: runs.cpu.score("extractors", "error", extractor=name) for name in ("imagenet-2", "objects", "pca")}
    scores = {"imagenet": runs.cpu.score("main", "error", extractor="imagenet")} | scores
    answers = [a for name, score in scores.items() if name != "pca" for a in _under(score, runs.cpu.constant)]
    why = f"error, always 0.5 has {runs.cpu.constant:.3f}; principal components (pca) are no network"
    return _told(scores, answers, why)


def transfer_fails(train: str, test: str) -> Test:
    """On another data set the classes are told about as by chance, and shares as by always saying 0.5."""

    def found(runs: Runs) -> Told:
        accuracy, error = (runs.full.score("transfer", field, test, train=train) for field in ("accuracy", "error"))
        answers: list[bool | None] = []
        if accuracy and error:
            own = accuracy.interval
            answers.append(_about_chance(own))
            answers.append(no_better(error.interval, _constant(runs.full), SLACK))
        why = (
            f"chance {CHANCE:.2f}, always 0.5 has {runs.full.constant:.3f}; about means within {AROUND:g} and {SLACK:g}"
        )
        return _told({"accuracy": accuracy, "error": error}, answers, why)

    return found


def _about_chance(accuracy: Interval) -> bool | None:
    if accuracy.low > CHANCE:
        return False
    return True if accuracy.high < CHANCE + AROUND else None


def few_repair(runs: Runs) -> Told:
    """Five plots a level of the second data set lower the error there."""
    scores = {f"{n} a level": runs.full.score("mixed", "error", LFW, train=MALE, note=str(n)) for n in (0, 5, 10, 20)}
    return _told(scores, _less(scores["5 a level"], scores["0 a level"]), "error on LFW beside 30 a level of UTKFace")


def mixing_is_free(runs: Runs) -> Told:
    """The error on the first data set stays within `SLACK`."""
    scores = {f"{n} a level": runs.full.score("mixed", "error", MALE, note=str(n)) for n in (0, 5, 10, 20)}
    first, *others = scores.values()
    return _told(scores, [a for score in others for a in _unchanged(score, first)], f"unchanged means within {SLACK:g}")


def more_plots_help(runs: Runs) -> Told:
    """The error falls and the accuracy rises from the fewest plots a level to the most."""
    rows = runs.full
    seeds = sorted({c["test"]["seed"] for c in rows.records[1:] if c["part"] == "numbers"})
    config, scores, answers = rows.records[0]["config"], {}, []
    for field, most in (("error", config["n_train"]), ("accuracy", config["n_class_train"])):
        own = {n: rows.score("numbers", field, note=str(n)) for n in config["numbers"]}
        few, many = own[min(own)], rows.score("main", field, seeds=seeds)
        answers += _less(many, few) if field == "error" else _less(few, many)
        scores |= {f"{field}, {n} a level": score for n, score in {**own, most: many}.items()}
    return _told(scores, answers)


def other_shadow_is_worse(runs: Runs) -> Told:
    """By another extractor the adversary errs more than by the publisher's, and less than always saying 0.5."""
    scores: dict[str, Score | None] = {}
    answers: list[bool | None] = []
    for name in ("imagenet-2", "objects", "pca"):
        own, other = (
            runs.cpu.score("extractors", "error", extractor=name),
            runs.cpu.score("shadow", "error", extractor=name),
        )
        scores |= {f"{name}, own shadow": own, f"{name}, by imagenet": other}
        answers += _less(own, other) + _under(other, runs.cpu.constant)
    return _told(scores, answers, f"error, always 0.5 has {runs.cpu.constant:.3f}")


def own_density_is_best(runs: Runs) -> Told:
    """Plots of as many points as those it was trained on are read with less error than others."""
    rows = runs.cpu
    found = {
        (250, 250): rows.score("density", "error", n=250, train_n=250),
        (250, 500): rows.score("density", "error", n=500, train_n=250),
        (500, 500): rows.score("main", "error", n=500, extractor="imagenet"),
        (500, 250): rows.score("density", "error", n=250, train_n=500),
        (500, 1000): rows.score("density", "error", n=1000, train_n=500),
    }
    answers = [a for pair in ((250, 500), (500, 250), (500, 1000)) for a in _less(found[pair[0], pair[0]], found[pair])]
    scores = {f"trained on {train}, tried on {test}:": score for (train, test), score in found.items()}
    return _told(scores, answers, "error by points of a plot")


def _defence(runs: Runs, names: Sequence[str], kind: str = "not adaptive") -> dict[str, Score | None]:
    found = defended(runs.full.records[1:])
    return {name or "none": _score(found.get(name, {}).get(kind, []), "error") for name in names}


def noise_hides(names: Sequence[str]) -> Test:
    """Under the defence the attack errs as always saying 0.5 does, or more."""

    def test(runs: Runs) -> Told:
        scores = _defence(runs, ("", *names))
        answers = [no_better(s.interval, _constant(runs.full), SLACK) for n, s in scores.items() if s and n != "none"]
        return _told(scores, answers, f"error, always 0.5 has {runs.full.constant:.3f}")

    return test


def noise_hides_pictures(names: Sequence[str]) -> Test:
    """Under the defence the network on pictures, trained without it, tells the classes about as by chance."""

    def test(runs: Runs) -> Told:
        scores = {n: runs.full.score("pictures", "accuracy", attack=PICTURE, defence=n) for n in names}
        answers = [_about_chance(score.interval) for score in scores.values() if score]
        return _told(scores, answers, f"accuracy of five, chance {CHANCE:.2f}; about means within {AROUND:g}")

    return test


def does_nothing(runs: Runs) -> Told:
    """Under rounding and thresholds the error is that without a defence, within `SLACK`."""
    names = [name for name in PAPER_DEFENCES if name.startswith(("E-R", "C-R", "E-T"))]
    none, scores = _defence(runs, ("",))["none"], _defence(runs, names)
    answers = [a for score in scores.values() for a in _unchanged(score, none)]
    return _told({"none": none, **scores}, answers, f"unchanged means within {SLACK:g}")


def adapting_helps(runs: Runs) -> Told:
    """An adversary trained under the noise errs less."""
    names = [name for name, (_, adaptive) in PAPER_DEFENCES.items() if adaptive is not None]
    plain, adaptive = _defence(runs, names), _defence(runs, names, "adaptive")
    scores = {
        f"{name}{words}": found[name] for name in names for words, found in (("", plain), (" adaptive", adaptive))
    }
    return _told(scores, [a for name in names for a in _less(adaptive[name], plain[name])])


def tuned_tell(runs: Runs) -> Told:
    """Plots by fine-tuned extractors are read better than by always saying 0.5."""
    scores = {prop: runs.cpu.score("fine", "error", prop) for prop in ("lfw:smiling", MALE)}
    answers = _under(scores["lfw:smiling"], runs.cpu.constant)
    return _told(scores, answers, f"error, always 0.5 has {runs.cpu.constant:.3f}; of smiling after tuning on the sex")
