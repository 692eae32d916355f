"""Figures in the sentences of docs/explain, from committed rows and from the numbers beside the pages' pictures."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from drjax.bounds import rero, tradeoff
from drjax.reports import records
from experiments.best_attacks import report as best
from experiments.cells import Line
from experiments.informed_adversary import pages as informed
from experiments.informed_adversary.cells import INVERSION, NEAREST
from experiments.leak_vs_n import report as leak
from experiments.leak_vs_n.tables import series_of
from experiments.markdown import Figures
from experiments.pages.report import attacks_of
from experiments.pca_membership import pages as membership
from experiments.sweep import RESULTS
from experiments.tsne_property import pages as properties
from experiments.tsne_property.claim_tests import MALE, PICTURE, Rows

ROOT = Path(__file__).parents[2]

figures = Figures()


def picture(name: str) -> Mapping[str, Any]:
    """The numbers that a picture of docs/explain shows, as docs/figures.py wrote them."""
    return json.loads((ROOT / "docs" / "images" / "explain" / f"{name}.json").read_text(encoding="utf-8"))


def scores_of(row: str, attack: str, maker: str = best.OURS) -> Mapping[str, Any]:
    """Scores of an attack on maps of MNIST, 199 records of which are known."""
    return best.line_of(best.lines_of(best.FOLDERS), row, maker, attack)["scores"]


def mse_of(row: str, attack: str, maker: str = best.OURS) -> float:
    """The mean squared error of one of these."""
    return scores_of(row, attack, maker)["mse"]["estimate"]


def identified_of(row: str, attack: str, maker: str = best.OURS) -> float:
    """The share of targets that one of these identifies among 1,001 records."""
    return scores_of(row, attack, maker)["identification"]["estimate"]


def network_of(factor: str, setting: str, attack: str) -> Line:
    """The committed line of an attack on networks that were trained on MNIST."""
    return informed.attacked()[factor, setting][attack]


@figures
def mds_distances() -> Sequence[float]:
    """Relative errors of distances: read off the map, the median; solved, the largest."""
    true, shown, solved = (np.array(picture("leak_distances")[name]) for name in ("true", "map", "solved"))
    return float(np.median(np.abs(shown / true - 1))), float(np.abs(solved / true - 1).max())


@figures
def certified() -> Sequence[float]:
    """Share of the records attacked in Isomap maps of which the attack is certain."""
    line = best.line_of(best.lines_of(best.FOLDERS), "Isomap", best.OURS, "geodesics")
    return (line["facts"]["n_certified"] / line["scores"]["n_targets"],)


@figures
def inversion() -> Sequence[float]:
    """Median error of inversion of a training, and of the mean record."""
    found = (network_of("default", "default", attack) for attack in (INVERSION, "mean"))
    return [line["scores"]["mse_median"]["estimate"] for line in found]


@figures
def order() -> Sequence[float]:
    """Median error of inversion where the order of mini-batches is known, where it is not, and of the mean record."""
    known, unknown = "mini-batches, order known", "mini-batches, order unknown"
    shown = ((known, INVERSION), (unknown, INVERSION), (unknown, "mean"))
    return [network_of("batch", *place)["scores"]["mse_median"]["estimate"] for place in shown]


@figures
def precision() -> Sequence[float]:
    """Median error of inversion from weights of 64 bits and of 32."""
    found = (network_of(*place, INVERSION) for place in (("precision", "float64"), ("default", "default")))
    return [line["scores"]["mse_median"]["estimate"] for line in found]


@figures
def learned() -> Sequence[float]:
    """Error of a network that reads weights, with 5,000 shadow models, and of the nearest record."""
    found = (network_of("shadows", "5000 shadows", attack) for attack in ("network", NEAREST))
    return [line["scores"]["mse"]["estimate"] for line in found]


@figures
def learned_without_start() -> Sequence[float]:
    """Error of a network that reads weights where the start is unknown, and of the mean record."""
    found = (network_of("start", "start unknown", attack) for attack in ("network", "mean"))
    return [line["scores"]["mse"]["estimate"] for line in found]


@figures
def noise() -> Sequence[float]:
    """Epsilon at mu 10 and 30, and the share that inversion rebuilds at 30 to within the nearest neighbour's error."""
    epsilons = [network_of("privacy", f"mu {mu}", INVERSION)["epsilon"] for mu in (10, 30)]
    errors, nearest = (network_of("privacy", "mu 30", attack)["errors"] for attack in (INVERSION, NEAREST))
    return *epsilons, float(np.mean(np.array(errors) <= np.mean(nearest)))


@figures
def places() -> Sequence[float]:
    """Share of 200 digits that their places in a t-SNE map bring closer than the most similar other record."""
    return (attacks_of("each-record", "digits-tsne")["map"]["success"]["estimate"],)


@figures
def barnes_hut() -> Sequence[float]:
    """Error of inversion of maps by Barnes and Hut's algorithm and of exact ones, and whom the former identifies."""
    return (
        mse_of("t-SNE", "inversion", "library"),
        mse_of("t-SNE", "inversion"),
        identified_of("t-SNE", "inversion", "library"),
    )


@figures
def shrinks(way: str) -> Sequence[float]:
    """Error left of MNIST in three decimals at the least and the greatest number of records, of the mean record's."""
    lines = series_of(way, "mnist", "3 decimals")
    return [float(np.median(leak.shares(line))) for line in (lines[0], lines[-1])]


@figures
def umap() -> Sequence[float]:
    """Error of the attack on UMAP and of the nearest record; whom it identifies, and whom a draw does."""
    scores = scores_of("UMAP", "invariant")
    chance = scores["identification_chance"]
    return mse_of("UMAP", "invariant"), mse_of("UMAP", "nearest"), scores["identification"]["estimate"], chance


@figures
def share_of_a_group() -> Sequence[float]:
    """Mean error of the attack on pictures of plots of 1,000 faces, for the share of men.

    Raises:
        LookupError: it was not measured.
    """
    score = Rows(records.read_records(properties.FOLDER / RESULTS)).score("main", "error", MALE, attack=PICTURE)
    if score is None:
        raise LookupError(f"results must hold {PICTURE} of {MALE}, got no such line")
    return (score.interval.estimate,)


@figures
def decimals() -> Sequence[float]:
    """Largest error from three decimals; least and largest from one, and of a guess."""
    errors = picture("leak_pca")["mse"]
    return max(errors["3"]), *(end(errors[name]) for name in ("1", "guess") for end in (min, max))


@figures
def pca() -> Sequence[float]:
    """Error of the closed form on PCA of MNIST, and of the mean record."""
    return mse_of("PCA", "closed-form"), mse_of("PCA", "mean")


@figures
def srp() -> Sequence[float]:
    """Error of the closed form on random projections of MNIST, and of the mean record."""
    return mse_of("SRP, seed unknown", "srp-closed-form"), mse_of("SRP, seed unknown", "mean")


@figures
def members() -> Sequence[float]:
    """Share of members of 1,000 faces that the likelihood ratio finds at 1% false alarms."""
    return (membership.without_noise("lfw", 1000, "ratio")["tpr"][membership.RATE]["mean"],)


@figures
def synthetic() -> Sequence[float]:
    """Accuracy at epsilon 1, at 4 and of real digits; most records in 1,000 rebuilt at 1 and at 4; share at 16."""
    found = picture("leak_synthetic")
    accuracy = dict(zip(found["epsilon"], np.mean(found["accuracy"], axis=1), strict=True))
    most = dict(zip(found["epsilon"], found["at_most"], strict=True))
    return accuracy[1.0], accuracy[4.0], found["real_accuracy"], 1000 * most[1.0], 1000 * most[4.0], most[16.0]


@figures
def most_at_epsilon_1() -> Sequence[float]:
    """How many times as well as a guess any attack does at epsilon 1, at most, of the guesses that are drawn."""
    found = picture("rero")
    return (float(np.max(np.array(found["at_most"]["1"]) / np.array(found["guess"]))),)


@figures
def one_value() -> Sequence[float]:
    """Success of any attack on one yes-or-no value at epsilon 1 and delta 1e-6, at most."""
    return (float(rero.from_tradeoff(0.5, tradeoff.EpsilonDelta(1.0, 1e-6))),)


@figures
def unknown_records() -> Sequence[float]:
    """Error left of a guess's with one, three and a hundred unknown records."""
    found = picture("threat_models")
    left = dict(zip(found["unknown"], found["error_left"], strict=True))
    return left[1], left[3], left[100]
