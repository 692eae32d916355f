"""Tables of the pages, from the committed results of `experiments.pages.run`.

python -m experiments.pages.report TABLE      # a name of `block`, such as erm
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from drjax.reports import records
from drjax.reports.ladder import number, percent
from experiments.cells import Line
from experiments.markdown import Tables, markdown_table
from experiments.pages import mechanisms, models
from experiments.pca_membership import private_mean
from experiments.sweep import RESULTS

HERE = Path(__file__).parent / "results"

made = Tables()
block = made.block

EPSILONS = [f"{epsilon:g}" for epsilon in mechanisms.EPSILONS]

GAUSSIAN = {
    "analytic": "`AnalyticGauss`",
    "release": "the same, for a release",
    "tight": "`AnalyzeGauss`, tight deviation",
    "classical": "`AnalyzeGauss`, classical (paper 001's)",
}

OTHERS = {
    "power": "`NoisyPowerMethod`, 2 steps",
    "wishart": "`Wishart`, excess 200",
    "advanced": "`LaplaceScalar.advanced`",
    "scalar": "`LaplaceScalar` (delta 0)",
    "vector": "`LaplaceVector` (delta 0)",
    "lap-pca": "`LapPCA` (delta 0)",
}

WEAKER = {
    "informed": "informed",
    "two": "two unknown records",
    "three": "three unknown records",
    "five": "five unknown records",
    "half": "half of the others known",
    "shuffled": "rows shuffled",
    "shuffled-five": "rows shuffled, five components",
    "public": "public records: MNIST, at 8 x 8",
    "features": "half of the features known",
}
"""Adversaries by their cell."""


@functools.cache
def lines() -> Mapping[tuple[str, str], Line]:
    """The committed lines by table and cell."""
    return {(line["table"], line["cell"]): line for line in records.read_records(HERE / RESULTS)[1:]}


def line_of(table: str, cell: str) -> Line:
    """The committed line of a cell.

    Raises:
        LookupError: there is none.
    """
    if (table, cell) not in lines():
        raise LookupError(f"results must hold {table}/{cell}, got no such line")
    return lines()[table, cell]


def attacks_of(table: str, cell: str) -> dict[str, Mapping[str, Any]]:
    """Scores of an audit by the name of the attack or baseline."""
    return {attack["name"]: attack for attack in line_of(table, cell)["attacks"]}


def error(scores: Mapping[str, Any]) -> str:
    """A mean squared error with its interval."""
    mse = scores["mse"]
    return f"{number(mse['estimate'])} ({number(mse['low'])} to {number(mse['high'])})"


def share(scores: Mapping[str, Any], name: str = "success") -> str:
    """A share without its interval."""
    return percent(scores[name]["estimate"])


@made
def deviations() -> str:
    """Deviation of Gaussian noise by epsilon."""
    rows = []
    for epsilon in mechanisms.DEVIATIONS:
        found = line_of("deviations", f"{epsilon:g}")["deviations"]
        ratio = found["classical"] / found["tight"]
        values = (found["classical"], found["tight"], ratio, 2**0.5 * ratio, found["release"])
        rows.append((f"{epsilon:g}", *(f"{value:.2f}" for value in values)))
    heads = ("epsilon", "classical", "tight", "classical / tight", "with the shape, spectral", "for a release (zCDP)")
    return markdown_table(heads, rows)


@made
def dp_digits() -> str:
    """Captured energy and accuracy of every mechanism under zero-out, and of components without noise."""
    rows = []
    without = line_of("dp-digits", "without")["by_kind"]
    titles = {"exact": "no noise", "public": "the public sample's components", "random": "random directions"}
    for kind, title in titles.items():
        own = without[kind]
        rows.append((f"*{title}*", *[f"{own['q']:.3f}"] * 3, *[f"{own['accuracy']:.3f}"] * 3))
    for name, title in {**GAUSSIAN, **OTHERS}.items():
        own = line_of("dp-digits", f"zero_out-{name}")["by_epsilon"]
        rows.append((title, *(f"{own[e][what]:.3f}" for what in ("q", "accuracy") for e in EPSILONS)))
    first, *rest = EPSILONS
    heads = ("mechanism, `zero_out`", f"q, epsilon {first}", *rest, f"accuracy, {first}", *rest)
    return markdown_table(heads, rows)


@made
def dp_digits_replaced() -> str:
    """Captured energy under replace-one."""
    rows = []
    for name in ("analytic", "tight", "classical"):
        own = line_of("dp-digits", f"replace_one-{name}")["by_epsilon"]
        rows.append((GAUSSIAN[name], *(f"{own[e]['q']:.3f}" for e in EPSILONS)))
    first, *rest = EPSILONS
    return markdown_table(("mechanism, `replace_one`", f"q, epsilon {first}", *rest), rows)


@made
def ranges() -> str:
    """What a release of Adult keeps by the number of records, with nothing public but ranges."""
    rows = []
    for n in private_mean.SIZES:
        kept = line_of("ranges", str(n))["kept"]
        values = [f"{kept[name]:.3f}" for name in ("random", "middle", "mean", "steadied")]
        rows.append((f"{n:,}", *values, f"{kept['low']:.3f} to {kept['high']:.3f}", f"{kept['in range']:.0%}"))
    further = f"of {mechanisms.FURTHER} further ones in it"
    heads = ("records", "random directions", "middle", "mean", "steadied", "announced for 90%", further)
    return markdown_table(heads, rows)


@made
def glm_tolerances() -> str:
    """Records from logistic regression by the tolerance of its solver."""
    rows = []
    for tol in models.TOLERANCES:
        line = line_of("glm-tolerances", f"{tol:g}")
        largest, counts = line["ratio_largest"], line["status_counts"]
        rows.append(
            (
                f"{tol:.0e}".replace("e-0", "e-"),
                number(line["mse_median"]),
                number(line["expected_median"]),
                "" if largest is None else number(largest),
                ", ".join(str(counts.get(status, 0)) for status in ("OK", "UNCERTIFIED", "NOT_CONVERGED")),
            )
        )
    heads = (
        "`tol`", "MSE, median", "expected, median", "actual over expected where OK, largest",
        "OK, UNCERTIFIED, NOT_CONVERGED",
    )  # fmt: skip
    return markdown_table(heads, rows)


@made
def erm() -> str:
    """Records from a network by the gradient that training leaves."""
    rows = []
    for stop in models.STOPS:
        line = line_of("erm", f"{stop:g}")
        names = ("gradient_left", "mse_median", "mse_largest", "bound_median", "residual_median")
        rows.append([number(line[name]) for name in names])
    heads = (
        "gradient left", "MSE, median", "MSE, largest", "bound to first order, median",
        "residual of the equations, median",
    )  # fmt: skip
    return markdown_table(heads, rows)


@made
def each_record() -> str:
    """The attack by neighbours in the map itself on 200 records, by method and data set."""
    titles = {"pca": "PCA", "srp": "SRP", "mds": "MDS", "isomap": "Isomap", "tsne": "t-SNE", "umap": "UMAP"}
    shown = [
        (f"*{title}*", "pca", name) for name, title in (("mean", "mean of the others"), ("nearest", "most similar"))
    ]
    shown += [(title, method, "map") for method, title in titles.items()]
    shown += [("PCA, closed form", "pca", "closed-form")]
    rows = []
    for title, method, name in shown:
        both = [attacks_of("each-record", f"{data}-{method}")[name] for data in ("mnist", "digits")]
        rows.append((title, *(cell for scores in both for cell in (error(scores), share(scores)))))
    return markdown_table(("method", "MNIST", "closer", "digits", "closer"), rows)


@made
def prior() -> str:
    """One Gaussian and a mixture for a prior."""
    shown = {
        "digits-5": ("PCA of digits, 5 known", "closed-form"),
        "digits-15": ("PCA of digits, 15 known", "closed-form"),
        "mnist-199": ("PCA of MNIST, 199 known", "closed-form"),
        "mds-49": ("MDS of MNIST, scikit-learn's defaults, 49 known", "stationarity"),
    }
    rows = []
    for cell, (title, name) in shown.items():
        found = attacks_of("prior", cell)
        one, mixture = found[name], found[f"{name}-mixture"]
        named = (share(scores, "identification") for scores in (one, mixture))
        rows.append((title, f"{one['n_targets']:,}", error(one), error(mixture), *named))
    heads = ("release", "targets", "one Gaussian", "mixture", "identified: one Gaussian", "mixture")
    return markdown_table(heads, rows)


@made
def kinds_of_attack() -> str:
    """Mean error of attacks on generated maps."""
    titles = {
        "descriptors": "239 invariants of a map; kernel ridge regression, no training loop",
        "set": "the same kind of numbers for each point, pooled by a network",
        "picture": "a drawing of 75 x 75 pixels, by a small densely connected network (27.2 MFLOP)",
    }
    found = {kind: line_of("property", kind) for kind in titles}
    rows = [
        (f"`{kind}`", title, f"{found[kind]['error']:.3f}", percent(found[kind]["held"]))
        for kind, title in titles.items()
    ]
    rows.append(("*guess*", "nothing", f"{found['set']['guess']:.3f}", ""))
    return markdown_table(("kind", "what it sees", "error on generated maps", "90% intervals hold"), rows)


@made
def trained_models() -> str:
    """The ladder of an audit of a training."""
    found = line_of("models", "digits")["attacks"]
    rows = [(a["label"], error(a), number(a["mse_median"]["estimate"]), share(a)) for a in found]
    return markdown_table(("attack", "MSE, mean (95% interval)", "MSE, median", "closer than nearest neighbour"), rows)


@made
def noise_digits() -> str:
    """Noise on digits before PCA and t-SNE, against an adversary who adapts and one who does not."""
    rows = []
    for method, title in {"pca": "PCA", "tsne": "t-SNE"}.items():
        for point in line_of("noise-digits", method)["curve"]:
            both = (point["adaptive"], point["non_adaptive"])
            scores = [cell for one in both for cell in (number(one["mse"]["estimate"]), share(one))]
            name = "" if point["scale"] else title
            rows.append((name, f"{point['scale']:g}", *_utility(point), *(scores if point["scale"] else scores[:2])))
    heads = (
        "method", "input noise", "trustworthiness", "labels right", "MSE, adaptive", "success", "MSE, non-adaptive",
        "success",
    )  # fmt: skip
    return markdown_table(heads, [[*row, *[""] * (len(heads) - len(row))] for row in rows])


@made
def noise_mnist() -> str:
    """Noise on records, noise on the release and rounding, on PCA of MNIST, against the same two adversaries."""
    titles = {"input": "noise on records", "output": "noise on the release", "rounding": "rounding of the release"}
    rows = []
    for cell, title in titles.items():
        for point in line_of("noise-mnist", cell)["curve"]:
            if point["scale"]:
                both = (point["adaptive"], point["non_adaptive"])
                scores = [text for one in both for text in (number(one["mse"]["estimate"]), share(one))]
                rows.append((title, f"{point['scale']:g}", *_utility(point), *scores))
                title = ""
    heads = (
        "defence", "scale", "trustworthiness", "labels right", "MSE, adaptive", "success", "MSE, non-adaptive",
        "success",
    )  # fmt: skip
    return markdown_table(heads, rows)


def _utility(point: Mapping[str, Any]) -> tuple[str, str]:
    return f"{point['trustworthiness']['estimate']:.3f}", percent(point["knn_accuracy"]["estimate"])


@made
def pca_of_mnist() -> str:
    """Attacks on PCA of MNIST."""
    rows = []
    for attack in line_of("pca-of-mnist", "attacks")["attacks"]:
        median = number(attack["mse_median"]["estimate"])
        rows.append((attack["label"], error(attack), median, share(attack), share(attack, "identification")))
    return markdown_table(("attack", "MSE, mean (95% interval)", "median", "closer than nearest", "identified"), rows)


@made
def weaker() -> str:
    """What adversaries who know less, or more, take back of PCA of digits."""
    rows = []
    for cell, title in WEAKER.items():
        known, prior = (attacks_of("weaker", cell)[name] for name in ("closed-form-known", "closed-form"))
        median = number(prior["mse_median"]["estimate"])
        named = share(prior, "identification")
        rows.append((title, number(known["mse"]["estimate"]), error(prior), median, share(prior), named))
    heads = ("adversary", "closed form, known only", "closed form with prior", "median", "closer", "identified")
    return markdown_table(heads, rows)


@made
def weaker_in_words() -> str:
    """The same of some, in the words of docs/explain."""
    titles = {
        "informed": "knows all others",
        "two": "does not know one more",
        "three": "does not know two more",
        "half": "knows half of the others",
        "shuffled": "does not know whose row is whose",
    }
    rows = []
    for cell, title in titles.items():
        prior = attacks_of("weaker", cell)["closed-form"]
        rows.append((title, number(prior["mse"]["estimate"]), share(prior, "identification")))
    rows.append(("guesses the mean record", number(attacks_of("weaker", "informed")["mean"]["mse"]["estimate"]), ""))
    return markdown_table(("the adversary", "mean squared error", "picked out of 1,001 records"), rows)


@made
def seed() -> str:
    """Attacks that are trained on shadows, by whether the adversary knows the seed."""
    rows = []
    for method, title in {"mds": "MDS", "tsne": "t-SNE, random start", "umap": "UMAP"}.items():
        for ending, said in {"": "unknown", "-known": "known"}.items():
            found = attacks_of("seed", f"{method}{ending}")
            rows.append((title, said, *(error(found[name]) for name in ("ridge", "invariant"))))
    return markdown_table(("method", "seed", "ridge on raw coordinates", "kernel on invariant features"), rows)


def options_of_each_kind() -> list[Mapping[str, Any]]:
    """Of each kind of thing to publish instead the one that passes and keeps most, in the order of the search."""
    found: dict[str, Mapping[str, Any]] = {}
    for option in line_of("options", "patients")["options"]:
        found.setdefault(option["kind"], option)
    return list(found.values())


@made
def options() -> str:
    """What to publish instead of a map of patients."""
    rows = []
    for place, option in enumerate(options_of_each_kind(), 1):
        rule = "guaranteed" if option["guarantee"] else "passes" if option["passes"] else "high"
        held = {True: ", holds", False: ", fails the final check", None: ""}[option["held"]]
        label = f"**{option['label']}**" if option["is_recommended"] else option["label"]
        scores = (percent(option[name]) for name in ("taken", "identified", "usefulness"))
        rows.append((str(place), label, f"{rule}{held}", *scores))
    return markdown_table(("", "option", "by the rule", "error taken away", "identified", "usefulness"), rows)


if __name__ == "__main__":
    print(block(*sys.argv[1:]))
