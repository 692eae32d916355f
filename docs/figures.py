"""Figures of docs/explain, and beside each the numbers that it shows.

python docs/figures.py                  # writes NAME.svg and NAME.json into docs/images/explain
python docs/figures.py --pdf --out DIR  # NAME.pdf as well, into another folder

All but `leak_neighbours` are computed here, on scikit-learn's digits; that one reads committed rows of
experiments/best_attacks. `leak_synthetic` draws its noise from the operating system, and differs a little every time.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator, PercentFormatter
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.manifold import MDS

from drjax.attacks.reconstruction.closed_form import (
    of_estimator,
    reconstruct_glm,
    reconstruct_pca,
    reconstruct_pca_many,
)
from drjax.attacks.reconstruction.priors import GaussianPrior
from drjax.attacks.reconstruction.stationarity.mds import target_distances
from drjax.bounds import rero, tradeoff
from drjax.core.store import atomic_open
from drjax.reports import plots, records, styles
from drjax.reports.styles import BLUE, FAINT, GREEN, ORANGE, RED, SKY, label
from drjax.synthesis.contract import Box
from drjax.synthesis.pca_gauss import PCAGauss

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "docs" / "images" / "explain"
ROWS = ROOT / "experiments" / "best_attacks" / "results"

N = 200
"""Records of a release; the others of the first 1,200 digits are the adversary's public records."""

Data = dict[str, Any]


def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Records (n, 64) in [0, 1] that are released, public ones (1000, 64), and the labels of the former."""
    x, y = all_digits()
    return x[:N] / 16, x[N : N + 1000] / 16, y[:N]


def all_digits() -> tuple[np.ndarray, np.ndarray]:
    """scikit-learn's digits (1797, 64) with pixels from 0 to 16, and their labels."""
    bunch: Any = load_digits()
    return bunch.data, bunch.target


def axes(height: float = 3.8) -> tuple[Figure, Axes]:
    """A figure with one panel in the common style."""
    figure, grid = styles.panels(width=7.0, height=height, grid="x")
    return figure, grid[0, 0]


def unknown_records() -> Data:
    """Error that an attack on a PCA leaves, by how many of its 200 records the adversary does not know."""
    x, public, _ = digits()
    coords = PCA(2, svd_solver="full").fit_transform(x)
    prior = GaussianPrior.fit(public)
    guess = ((x - public.mean(axis=0)) ** 2).mean(axis=1)
    counts, left = [1, 2, 3, 5, 10, 20, 50, 100], []
    for unknown in counts:
        errors = []
        for target in range(0, N, 10):  # the records behind the target are the other unknown ones
            rows = [(target + i) % N for i in range(unknown)]
            known = np.delete(x, rows, axis=0)
            found = reconstruct_pca_many(known, coords, unknown=rows, n_wanted=1, prior=prior, bounds=(0, 1))
            errors.append(((found.x[0] - x[target]) ** 2).mean())
        left.append(float(np.mean(errors) / guess[::10].mean()))
    return {"unknown": counts, "error_left": rounded(left)}


def draw_unknown_records(data: Data) -> Figure:
    """The line of `unknown_records`."""
    figure, ax = axes()
    x, y = data["unknown"], data["error_left"]
    ax.plot(x, y, "o-", color=BLUE, clip_on=False)
    ax.axhline(1, color=FAINT, linestyle=":")
    label(ax, 1, 1.04, "a guess without the map: the average public record", FAINT, va="bottom")
    label(ax, 1, 0.06, "one or two:\nrebuilt", BLUE, va="bottom")
    label(ax, 8, 0.47, "more unknown than published columns:\nthe map says something, not the record", BLUE, va="top")
    ax.set_xscale("log")
    ax.set_xticks(x, [str(value) for value in x])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_ylim(0, 1.2)
    ax.yaxis.set_major_formatter(PercentFormatter(1))
    ax.set_xlabel(f"records that the adversary does not know, of {N} in a PCA with two columns")
    ax.set_ylabel("error left, of a guess's error")
    return figure


def reconstruction_bound() -> Data:
    """Success of any reconstruction, at most, by the success of the best guess, under five guarantees."""
    kappa = np.geomspace(1e-5, 1, 61)
    curves = {}
    for epsilon in (0.5, 1, 2, 4, 8):
        curve = tradeoff.EpsilonDelta(epsilon, 1e-6)
        curves[f"{epsilon:g}"] = rounded(rero.from_tradeoff(kappa, curve))
    return {"guess": rounded(kappa), "delta": 1e-6, "at_most": curves}


def draw_reconstruction_bound(data: Data) -> Figure:
    """The curves of `reconstruction_bound`."""
    figure, ax = axes(height=4.2)
    x = np.array(data["guess"])
    for (epsilon, y), color in zip(data["at_most"].items(), (GREEN, SKY, BLUE, ORANGE, RED), strict=True):
        ax.plot(x, y, color=color)
        label(ax, x[0] / 1.15, y[0], f"epsilon {epsilon}", color, ha="right")
    ax.plot(x, x, color=FAINT, linestyle=":")
    label(ax, 3e-4, 1.3e-4, "without the release", FAINT, va="top")
    for side in (ax.set_xscale, ax.set_yscale):
        side("log")
    ticks = [1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1]
    names = ["1 in 100,000", "1 in 10,000", "1 in 1,000", "1 in 100", "1 in 10", "always"]
    ax.set_xlim(7e-7, 1.2)
    ax.set_ylim(7e-6, 1.3)
    ax.set_xticks(ticks, names, fontsize=8)
    ax.set_yticks(ticks, names)
    ax.grid(axis="y", color=styles.GRID, linewidth=0.8)
    ax.minorticks_off()
    ax.set_xlabel("how often the best guess is right without the release")
    ax.set_ylabel("how often any attack is right, at most")
    return figure


def pca_digits() -> Data:
    """Six digits, and what is taken back of each from two principal scores, computed exactly and rounded."""
    x, public, _ = digits()
    coords = PCA(2, svd_solver="full").fit_transform(x)
    prior = GaussianPrior.fit(public)
    images, errors = {}, {}
    for name, decimals in (("exact", 12), ("3", 3), ("2", 2), ("1", 1)):
        rows = []
        for target in range(6):
            known, published = np.delete(x, target, axis=0), coords.round(decimals)
            rows.append(reconstruct_pca(known, published, target_index=target, prior=prior, bounds=(0, 1)).x)
        images[name], errors[name] = np.array(rows), rounded(((np.array(rows) - x[:6]) ** 2).mean(axis=1))
    guess = np.broadcast_to(public.mean(axis=0), (6, 64))
    images["guess"], errors["guess"] = guess, rounded(((guess - x[:6]) ** 2).mean(axis=1))
    shown = {name: np.round(own, 2).tolist() for name, own in {"record": x[:6], **images}.items()}
    return {"images": shown, "mse": errors}


def draw_pca_digits(data: Data) -> Figure:
    """The pictures of `pca_digits`."""
    names = {
        "exact": "taken back from\n12 decimals",
        "3": "from 3 decimals",
        "2": "from 2 decimals",
        "1": "from 1 decimal",
        "guess": "a guess without\nthe map",
    }
    images = {text: np.array(data["images"][name]) for name, text in names.items()}
    errors = {text: np.array(data["mse"][name]) for name, text in names.items()}
    return plots.image_grid(np.array(data["images"]["record"]), images, (8, 8), errors=errors)


def mds_distances() -> Data:
    """Distances of one digit to 99 others: in the records, in an MDS map, and as solved from the map."""
    x, _, _ = digits()
    x = x[:100]
    method = MDS(n_components=2, n_init=1, max_iter=100_000, eps=1e-15, random_state=0, init="random")
    coords = np.asarray(method.fit_transform(x))
    true = np.linalg.norm(x[1:] - x[0], axis=1)
    shown = np.linalg.norm(coords[1:] - coords[0], axis=1)
    (solved,) = target_distances(x[1:], coords[None])
    return {"true": rounded(true), "map": rounded(shown), "solved": rounded(solved)}


def draw_mds_distances(data: Data) -> Figure:
    """The points of `mds_distances`."""
    figure, ax = axes(height=4.2)
    true = np.array(data["true"])
    ax.plot(true, data["map"], "o", color=ORANGE, markerfacecolor="none", markersize=5)
    ax.plot(true, data["solved"], "o", color=BLUE, markersize=3.5)
    label(ax, true.max() * 1.02, true.max(), "solved from\nthe map's balance", BLUE)
    label(ax, true.max() * 0.88, 1.3, "read off the map with a ruler", ORANGE)
    ax.set_xlim(right=true.max() * 1.2)
    ax.set_xlabel("true distance of the unknown digit to a known one (features from 0 to 1)")
    ax.set_ylabel("distance found")
    return figure


def neighbour_attacks() -> Data:
    """Errors of the strongest attacks on t-SNE and UMAP, from committed rows of experiments/best_attacks."""
    found = []
    for folder, row, attack in (
        ("tsne", "t-SNE", "inversion"),
        ("tsne", "t-SNE", "affinities"),
        ("isomap_umap_srp", "UMAP", "invariant"),
    ):
        lines = records.read_records(ROWS / folder / "results.jsonl")
        for maker in ("drjax", "library"):
            (scores,) = (
                line["scores"]
                for line in lines
                if (line.get("row"), line.get("attack"), line.get("maker")) == (row, attack, maker)
            )
            mse = scores["mse"]
            found.append(
                {
                    "row": row,
                    "attack": attack,
                    "maker": maker,
                    "targets": scores["n_targets"],
                    "mse": rounded([mse["estimate"], mse["low"], mse["high"]]),
                    "identified": rounded([scores["identification"]["estimate"]])[0],
                }
            )
    lines = records.read_records(ROWS / "tsne" / "results.jsonl")
    base = {
        name: rounded([line["scores"]["mse"]["estimate"]])[0]
        for name in ("mean", "nearest")
        for line in lines
        if (line.get("attack"), line.get("maker")) == (name, "drjax")
    }
    return {"attacks": found, **base}


def draw_neighbour_attacks(data: Data) -> Figure:
    """The intervals of `neighbour_attacks`."""
    figure, ax = axes(height=3.4)
    colors = {"inversion": RED, "affinities": ORANGE, "invariant": BLUE}
    makers = {"t-SNE": {"drjax": "exact", "library": "scikit-learn's"}, "UMAP": {"drjax": "drjax's", "library": "own"}}
    names = []
    for position, own in enumerate(data["attacks"]):
        estimate, low, high = own["mse"]
        color = colors[own["attack"]]
        ax.plot([low, high], [position, position], color=color, linewidth=2.2, solid_capstyle="butt")
        ax.plot(estimate, position, "o", color=color, markersize=6)
        label(ax, 0.0765, position, f"{own['identified']:.0%}", color)
        maker = makers[own["row"]][own["maker"]]
        whose = {"own": "umap-learn's"}.get(maker, maker)
        names.append(f"{own['row']}, {whose} maps, {own['targets']:,} records\n“{own['attack']}”")
    for name, text in (("nearest", "the most similar\nrecord at hand"), ("mean", "the average\nrecord")):
        ax.axvline(data[name], color=FAINT, linestyle=":")
        label(ax, data[name], -0.75, text, FAINT, ha="center", va="bottom")
    label(ax, 0.0765, -0.75, "picked\nout of 1,001", FAINT, va="bottom")
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.5, -0.6)
    ax.set_xlim(0, 0.075)
    ax.set_xlabel("mean squared error of a rebuilt image (left: more taken back)")
    return figure


def regression_tolerances() -> Data:
    """Error of the record taken out of a logistic regression, by how far its solver went."""
    x, y = all_digits()
    x, y = x[:300] / 16, (y[:300] > 4).astype(int)
    tolerances, errors, guess = [1e-2, 1e-4, 1e-6, 1e-8], [], []
    for tolerance in tolerances:
        own = []
        for target in range(6):
            a, b = np.roll(x, -target, axis=0), np.roll(y, -target)
            model = LogisticRegression(tol=tolerance, max_iter=100_000).fit(a, b)
            found = reconstruct_glm(known_x=a[1:], known_y=b[1:], **of_estimator(model)._asdict())
            own.append(((found.x - x[target]) ** 2).mean())
        errors.append(rounded(own))
    guess = rounded([((x[i] - np.delete(x, i, axis=0).mean(axis=0)) ** 2).mean() for i in range(6)])
    return {"tolerance": tolerances, "mse": errors, "guess": guess}


def draw_regression_tolerances(data: Data) -> Figure:
    """The points of `regression_tolerances`."""
    figure, ax = axes()
    x, guess = data["tolerance"], float(np.median(data["guess"]))
    for tolerance, own in zip(x, data["mse"], strict=True):
        ax.plot([tolerance] * len(own), own, "o", color=SKY, markersize=4)
    ax.plot(x, np.median(data["mse"], axis=1), "-", color=BLUE)
    ax.axhline(guess, color=FAINT, linestyle=":")
    label(ax, 1e-8, guess * 2, "a guess: the average known record", FAINT, ha="right", va="bottom")
    label(ax, 8e-3, 1e-8, "the record as taken back\n(line: median; points: six digits)", BLUE)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlim(2e-2, 5e-9)
    ax.set_ylim(top=2)
    ax.set_xticks(x, ["0.01", "0.0001\n(the default)", "0.000001", "0.00000001"])
    ax.minorticks_off()
    ax.set_xlabel("where the training stops (`tol` of scikit-learn's LogisticRegression)")
    ax.set_ylabel("squared error (features from 0 to 1)")
    return figure


def synthetic_digits() -> Data:
    """What synthetic digits under a guarantee are worth, and the most that any attack rebuilds, by epsilon."""
    x, y = all_digits()
    order = np.random.default_rng(0).permutation(len(x))
    x, y = x[order], y[order]
    method = PCAGauss(neighbouring="replace_one", box=Box.of(0.0, 16.0, 64), n_components=15, n_classes=10)
    epsilons, accuracy, at_most = [0.5, 1.0, 2.0, 4.0, 8.0, 16.0], [], []
    for epsilon in epsilons:
        own = []
        for _ in range(2):
            released = method.release(x[:1400], y[:1400], epsilon, 1e-6)
            made = released.sample(None, 1400)
            own.append(accuracy_on(np.asarray(made.x), np.asarray(made.y), x[1400:], y[1400:]))
        accuracy.append(rounded(own))
        at_most.append(float(rero.from_tradeoff(0.001, released.guarantee.curve)))
    real = accuracy_on(x[:1400], y[:1400], x[1400:], y[1400:])
    return {
        "epsilon": epsilons,
        "delta": 1e-6,
        "guess": 0.001,
        "accuracy": accuracy,
        "real_accuracy": rounded([real])[0],
        "at_most": rounded(at_most),
    }


def accuracy_on(x: np.ndarray, y: np.ndarray, test_x: np.ndarray, test_y: np.ndarray) -> float:
    """Share of test digits that a logistic regression trained on other digits names right."""
    model = LogisticRegression(max_iter=1000).fit(x / 16, y)
    return float((model.predict(test_x / 16) == test_y).mean())


def draw_synthetic_digits(data: Data) -> Figure:
    """Both curves of `synthetic_digits`."""
    figure, ax = axes()
    x = data["epsilon"]
    for epsilon, own in zip(x, data["accuracy"], strict=True):
        ax.plot([epsilon] * len(own), own, "o", color=GREEN, markersize=4)
    means = np.mean(data["accuracy"], axis=1)
    ax.plot(x, means, color=GREEN)
    ax.plot(x, data["at_most"], "o-", color=RED, markersize=4)
    ax.axhline(data["real_accuracy"], color=FAINT, linestyle=":")
    label(ax, 0.5, data["real_accuracy"] + 0.02, "a classifier trained on the real digits", FAINT, va="bottom")
    label(ax, 1.4, 0.72, "a classifier trained on\nthe synthetic digits", GREEN, va="top")
    label(ax, 6.5, 0.16, "records that any attack\nrebuilds, at most", RED, ha="right")
    ax.set_xscale("log")
    ax.set_xticks(x, [f"{value:g}" for value in x])
    ax.minorticks_off()
    ax.set_ylim(0, 1.1)
    ax.set_yticks([0, 0.25, 0.5, 0.75, 1])
    ax.yaxis.set_major_formatter(PercentFormatter(1))
    ax.set_xlabel("epsilon (smaller is more private), delta 1e-6")
    ax.set_ylabel("digits named right; records rebuilt")
    return figure


def rounded(values: Any, digits: int = 4) -> list[float]:
    """Numbers with some significant digits, so that the committed file is short."""
    return [float(f"{value:.{digits}g}") for value in np.asarray(values, np.float64)]


FIGURES: dict[str, tuple[Callable[[], Data], Callable[[Data], Figure]]] = {
    "threat_models": (unknown_records, draw_unknown_records),
    "rero": (reconstruction_bound, draw_reconstruction_bound),
    "leak_pca": (pca_digits, draw_pca_digits),
    "leak_distances": (mds_distances, draw_mds_distances),
    "leak_neighbours": (neighbour_attacks, draw_neighbour_attacks),
    "leak_models": (regression_tolerances, draw_regression_tolerances),
    "leak_synthetic": (synthetic_digits, draw_synthetic_digits),
}
"""What is computed and how it is drawn, by the name of the page."""


def write(name: str, out: Path, *, pdf: bool = False) -> None:
    """Computes one figure and writes its numbers and the drawing."""
    compute, draw = FIGURES[name]
    data = compute()
    figure = draw(data)
    with atomic_open(out / f"{name}.json") as file:
        file.write((json.dumps(data, separators=(",", ":")) + "\n").encode())
    plots.save_figure(figure, out / f"{name}.svg")
    if pdf:
        plots.save_figure(figure, out / f"{name}.pdf")


def main() -> None:
    """Writes the figures that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="figures to make; all if none is named", metavar="NAME")
    parser.add_argument("--out", type=Path, default=OUT, help="folder of the figures")
    parser.add_argument("--pdf", action="store_true", help="write PDF files as well")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    for name in asked.names or FIGURES:
        write(name, asked.out, pdf=asked.pdf)


if __name__ == "__main__":
    main()
