"""Figures of experiments/tsne_property/README.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from drjax.attacks.property.groups import LEVELS
from drjax.core.statistics import Interval
from drjax.nets.plot_networks import flops
from experiments.markdown import Figures
from experiments.tsne_property.claim_tests import DESCRIPTORS, LFW, MALE, PICTURE, Rows, Score
from experiments.tsne_property.config import DENSENET, SCALES
from experiments.tsne_property.map_sets import NOISED
from experiments.tsne_property.pages import FOLDER, rows_of
from experiments.tsne_property.tables import CHANCE, GUESS, PAPER, defended, summary

figures = Figures()

PROPERTIES = {"utkface": MALE, "lfw": LFW}
CPU = FOLDER / "cpu"


def _cells(folder: str = "full") -> list[dict[str, Any]]:
    return rows_of(CPU if folder == "cpu" else FOLDER)[1:]


def _interval(found: Score | None) -> Interval:
    if found is None:
        raise LookupError("results must hold the cells of a score, got none")
    return found.interval


@figures
def minutes(folder: str) -> Sequence[float]:
    """Minutes that the seconds of a scale's cells add up to; of scale `full` those of its graphics card."""
    origins = rows_of()[0]["origins"]
    own = [c for c in _cells(folder) if folder == "cpu" or origins[c["origin"]]["backend"] == "gpu"]
    return (sum(c.get("seconds") or 0.0 for c in own) / 60,)


@figures
def size_of_the_networks() -> Sequence[float]:
    """Million operations for a picture of DenseNet-121 and of the small network."""
    return [flops(config.network) / 1e6 for config in (DENSENET, SCALES["full"].picture)]


@figures
def without_a_plot() -> Sequence[float]:
    """Chance of a class, error of always saying one half, and of a uniform guess in the paper."""
    return CHANCE, Rows(rows_of()).constant, GUESS


@figures
def always_one_half() -> Sequence[float]:
    """Error of always saying one half."""
    return (Rows(rows_of()).constant,)


@figures
def accuracies(name: str, *attacks: str) -> Sequence[float]:
    """Accuracies of five in setting 1, over seeds; "paper" for the paper's."""
    rows, prop = Rows(rows_of()), PROPERTIES[name]
    return [
        PAPER[prop][0] if attack == "paper" else _interval(rows.score("main", "accuracy", prop, attack=attack)).estimate
        for attack in attacks
    ]


@figures
def error_of_pictures() -> Sequence[float]:
    """Error of the network on pictures on UTKFace."""
    return (_interval(Rows(rows_of()).score("main", "error", MALE, attack=PICTURE)).estimate,)


@figures
def first_seed(*attacks: str) -> Sequence[float]:
    """Accuracies of five on UTKFace of the first seed."""
    rows = Rows(rows_of())
    return [_interval(rows.score("main", "accuracy", MALE, attack=a, seeds=(0,))).estimate for a in attacks]


@figures
def coverages(*names: str) -> Sequence[float]:
    """Shares of test plots that intervals of 90% hold in regression: by descriptors and by pictures, by data set."""
    return [_coverage(PROPERTIES[name], attack) for name in names for attack in (DESCRIPTORS, PICTURE)]


def _coverage(prop: str, attack: str) -> float:
    wanted = ("main", "regression", attack, prop)
    own = [c for c in _cells() if (c["part"], c.get("task"), c.get("attack"), c["test"]["prop"]) == wanted]
    return float(np.mean([c["coverage"] for c in own]))


@figures
def defence(name: str, *facts: str) -> Sequence[float]:
    """Of a defence ("none", or one with _ for a blank): errors, or what the maps keep of their neighbours."""
    kinds = defended(_cells())["" if name == "none" else name.replace("_", " ")]
    found = {
        "error": lambda: summary(kinds["not adaptive"], "error").mean,
        "adaptive": lambda: summary(kinds["adaptive"], "error").mean,
        "kept": lambda: float(np.mean([c["knn_preservation"] for c in kinds["utility"]])),
    }
    return [found[fact]() for fact in facts]


def _one(part: str, **labels: Any) -> Mapping[str, Any]:
    (found,) = (
        c
        for c in _cells()
        if c["part"] == part and labels == {name: c["test"].get(name, c.get(name)) for name in labels}
    )
    return found


@figures
def pictures_under(*names: str) -> Sequence[float]:
    """Accuracies of the network on pictures, trained without noise, under defences, and half an interval at most."""
    found = [_one("pictures", defence=name.replace("_", " ")) for name in names]
    ends = [cell["interval"] for cell in found]
    return *(cell["accuracy"] for cell in found), max(high - low for low, high in ends) / 2


@figures
def noised(*names: str) -> Sequence[float]:
    """Accuracies under a noised share: "none", or a share and "yes" or "no" for an adaptive attack, as "10%/yes"."""
    return [_noised(name)["accuracy"] for name in names]


def _noised(name: str) -> Mapping[str, Any]:
    if name == "none":
        return _one("noised", defence="")
    share, _, adaptive = name.partition("/")
    note = "adaptive" if adaptive == "yes" else "not adaptive"
    return _one("noised", defence=f"noised share, {share}", note=note)


@figures
def noised_ends(name: str) -> Sequence[float]:
    """Ends of the interval of one accuracy under a noised share."""
    return _noised(name)["interval"]


@figures
def half_of_noised() -> Sequence[float]:
    """Half the widest interval under a noised share."""
    ends = [c["interval"] for c in _cells() if c["part"] == "noised"]
    return (max(high - low for low, high in ends) / 2,)


@figures
def off_share(name: str) -> Sequence[float]:
    """How far a plotted share is from the data set's, expected over the noise and the paper's five shares."""
    label = f"noised share, {name}"
    n = _one("noised", defence=label, note="adaptive")["test"]["n"]
    noise = NOISED[label]
    n_records, (low, high) = round(noise.RECORDS * n), noise.LIMITS
    values = np.arange(-20 * n_records, 20 * n_records + 1)
    weights = np.exp(-np.abs(values) / round(noise.changed * n_records))
    off = [np.abs(np.clip(level + values / n_records, low, high) - level) for level in LEVELS]
    return (float(np.average(np.mean(off, axis=0), weights=weights)),)


@figures
def silhouette_of_lfw() -> Sequence[float]:
    """Silhouette of the sexes in a map of LFW at 500 points, and accuracy of descriptors at 1,000."""
    (cell,) = (
        c
        for c in _cells("cpu")
        if (c["part"], c["test"]["prop"], c["test"]["extractor"]) == ("separability", LFW, "imagenet")
    )
    return cell["silhouette"], _interval(Rows(rows_of()).score("main", "accuracy", LFW)).estimate


@figures
def half_of_few() -> Sequence[float]:
    """Half the widest interval of an accuracy over test plots at 500 points."""
    ends = [c["interval"] for c in _cells("cpu") if c.get("task") == "classification" and c["attack"] == DESCRIPTORS]
    return (max(high - low for low, high in ends) / 2,)
