"""What the paper says about its results, sentence by sentence, and whether ours agree.

Each claim is put to two questions: is it so of the paper's network, which it was said of, and is it so of the method,
attacked by the strongest attack there is? A claim is of the paper's sizes of the known set and of its methods: where
one was not run, it is not tested unless what was run refutes it (`verdicts`). `differences` says how else a run differs
from the paper's.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from drjax.reports.ladder import number
from experiments.dr_reconstruction import paper
from experiments.dr_reconstruction.config import DENSE_NETWORK, NETWORK
from experiments.dr_reconstruction.paper import DATA_NAMES, DETERMINISTIC, METHOD_NAMES, RANDOMISED, SIZES
from experiments.dr_reconstruction.results import BEST, Estimate, Results, below
from experiments.dr_reconstruction.verdicts import NOT_TESTED, Case, Cell, Verdict, View
from experiments.sweep import Claim

LENSES = {NETWORK: "of the paper's network", BEST: "of the strongest attack"}

Test = Callable[[View], Verdict]


@dataclass(frozen=True)
class Sentence:
    """A sentence of the paper with the test of it.

    Attributes:
        name: Unique.
        section: Where the paper says it.
        text: What it says, in our words.
        data: The data set it is about.
        test: From the results of one attack to the verdict.
        lenses: Attacks it is tested on.
        is_noisy: Whether it is about releases of noisy records.
    """

    name: str
    section: str
    text: str
    data: str
    test: Test
    lenses: tuple[str, ...] = (NETWORK, BEST)
    is_noisy: bool = False


def _is_first(
    method: str, *, after: tuple[str, ...] = (), largest: bool = False, sizes: tuple[int, ...] = SIZES
) -> Test:
    """The method's error is the smallest (or largest) of all but those in `after`, at every size."""

    def test(view: View) -> Verdict:
        others = [m for m in METHOD_NAMES if m != method and m not in after]
        case, told = Case(view), []
        for n in sizes:
            own, rivals = Cell(method, n), [Cell(m, n) for m in others]
            for rival in rivals:
                case.below(*((rival, own) if largest else (own, rival)))
            ran = [rival for rival in rivals if view.error(rival) is not None]
            if ran and view.error(own) is not None:
                other = (max if largest else min)(ran, key=lambda cell: _mean(view.error(cell)))
                told.append(f"{n} known: {view.text(own)}, next {METHOD_NAMES[other.method]} {view.text(other)}")
        return case.verdict("; ".join(told))

    return test


def _ranked(*methods: str, below_all: tuple[str, ...]) -> Test:
    """Each method's error is below those of all in `below_all`, at every size."""

    def test(view: View) -> Verdict:
        case, told = Case(view), []
        for n, method, other in itertools.product(SIZES, methods, below_all):
            pair = Cell(method, n), Cell(other, n)
            answer = case.below(*pair)
            if case.needs(*pair):
                texts = [f"{METHOD_NAMES[cell.method]} {view.text(cell)}" for cell in pair]
                told.append((answer, f"{n} known: {', '.join(texts)}"))
        return case.verdict(_telling(told))

    return test


def _falls(method: str) -> Test:
    """The error falls from the smallest known set to the largest, and is not seen to rise at any step."""

    def test(view: View) -> Verdict:
        cells, case = _by_size(method), Case(view)
        case.below(cells[-1], cells[0])
        case.needs(*cells)
        for few, many in pairwise(cells):
            if below(view.error(few), view.error(many)):
                case.no_better(few, many)
        return case.verdict(view.series(cells))

    return test


def _no_trend(view: View) -> Verdict:
    cells, case = _by_size("pca"), Case(view)
    ran = [cell for cell in cells if view.error(cell) is not None]
    if len(ran) > 1:
        case.no_better(ran[-1], ran[0])
    case.needs(*cells)
    return case.verdict(view.series(cells))


def _isomap_gets_harder(view: View) -> Verdict:
    cells, case = _by_size("isomap"), Case(view)
    small, large = cells[:3], cells[3:]
    for cell in small:
        case.beats_mean(cell)
    if case.needs(*cells):
        best = min(small, key=lambda cell: _mean(view.error(cell)))
        for cell in large:
            case.below(best, cell)
    return case.verdict(view.series(cells))


def _versus_mean(methods: tuple[str, ...], *, is_effective: bool, is_noisy: bool = False) -> Test:
    """Whether the error is below that of the mean image, at every size (without noise) or under the largest noise."""

    def test(view: View) -> Verdict:
        places = [(paper.NOISE_KNOWN, paper.NOISE_SIGMA)] if is_noisy else [(n, 0) for n in SIZES]
        case, told, means = Case(view), [], {}
        for cell in (Cell(m, n, sigma) for n, sigma in places for m in methods):
            answer = case.beats_mean(cell) if is_effective else case.no_better_than_mean(cell)
            if case.needs(cell):
                told.append((answer, f"{cell}: {view.text(cell)}"))
                means[_text(view.mean_record(cell))] = None
        return case.verdict(f"mean image {' or '.join(means)}; {_telling(told)}")

    return test


def _beats_dense_network(methods: tuple[str, ...]) -> Test:
    """With as many known records as in Table 4, where the paper compares the two."""

    def test(view: View) -> Verdict:
        dense, case, told = View(view.results, view.data, DENSE_NETWORK), Case(view), []
        for cell in (Cell(m, paper.TABLE_4_KNOWN) for m in methods):
            if not case.needs(cell):
                continue
            if dense.error(cell) is None:
                case.missing[f"{cell} (BCH22's network)"] = None
                continue
            case.answers.append(below(view.error(cell), dense.error(cell)))
            told.append(f"{cell}: {view.text(cell)} against {dense.text(cell)}")
        return case.verdict("; ".join(told))

    return test


def _first_step_is_the_largest(view: View) -> Verdict:
    case, told = Case(view), []
    for method in METHOD_NAMES:
        cells = _by_size(method)
        for few, many in list(pairwise(cells))[1:]:
            # The fall of the first step less that of a later one.
            weights = dict.fromkeys(cells, 0.0)
            for cell, weight in ((cells[0], 1), (cells[1], -1), (few, -1), (many, 1)):
                weights[cell] += weight
            case.is_positive(weights)
        told.append(f"{METHOD_NAMES[method]}: {view.series(cells)}")
    return case.verdict("; ".join(told))


def _some_method_gets_harder(view: View) -> Verdict:
    case, found = Case(view), []
    for method in METHOD_NAMES:
        for few, many in itertools.combinations(_by_size(method)[1:], 2):
            if case.no_better(few, many) is False:
                texts = f"{view.text(few)} with {few.n_known} known, {view.text(many)} with {many.n_known}"
                found.append(f"{METHOD_NAMES[method]}: {texts}")
    return case.verdict("; ".join(found) or "no method's error is seen to rise", negated=True)


def _more_known_helps(view: View) -> Verdict:
    case, told = Case(view), []
    for method in METHOD_NAMES:
        cells = _by_size(method)
        case.below(cells[-1], cells[0])
        told.append(f"{METHOD_NAMES[method]}: {view.series(cells)}")
    return case.verdict("; ".join(told))


def _noise_moves_most(method: str) -> Test:
    """By equation 12, which is of attacks that know of no noise."""

    def test(view: View) -> Verdict:
        case, told = Case(view), []
        cells = {m: Cell(m, paper.NOISE_KNOWN, paper.NOISE_SIGMA) for m in METHOD_NAMES}
        for m, cell in cells.items():
            if case.needs(cell):
                told.append(f"{METHOD_NAMES[m]} {_text(view.shift(cell))}")
                if m != method and view.error(cells[method]) is not None:
                    case.answers.append(below(view.shift(cell), view.shift(cells[method])))
        return case.verdict(", ".join(told))

    return test


def _claims_of(data: str, section: str) -> list[Sentence]:
    name = DATA_NAMES[data]
    found = [
        ("pca-first", "PCA is the most vulnerable method at every size of the known set", _is_first("pca")),
        ("srp-last", "SRP is the least vulnerable method at every size", _is_first("srp", largest=True)),
        (
            "deterministic-effective",
            "The attack is effective on the methods without random start, PCA and Isomap (it beats the mean image)",
            _versus_mean(DETERMINISTIC, is_effective=True),
        ),
        (
            "randomised-ineffective",
            "The attack is ineffective on the methods with a random start, SRP, MDS, t-SNE and UMAP (it does not beat "
            "the mean image)",
            _versus_mean(RANDOMISED, is_effective=False),
        ),
        (
            "randomised-preferable",
            "Where privacy matters randomised methods are preferable: each of them withstands the attack better than "
            "PCA and Isomap",
            _ranked(*DETERMINISTIC, below_all=RANDOMISED),
        ),
        (
            "first-step",
            "The largest improvement is from 9 to 99 known records",
            _first_step_is_the_largest,
        ),
        (
            "more-can-hurt",
            "For some methods more known records beyond 99 make the attack worse",
            _some_method_gets_harder,
        ),
        (
            "more-helps",
            "The attack gets more effective with the adversary's knowledge of records (from the smallest known set to "
            "the largest, for every method)",
            _more_known_helps,
        ),
    ]
    sections = {"more-helps": "7", "randomised-preferable": "5", "first-step": "5", "more-can-hurt": "5"}
    return [
        Sentence(f"{data}:{key}", sections.get(key, f"{section}, 5"), f"{name}: {text}", data, test)
        for key, text, test in found
    ]


def _claims_of_x_rays(data: str) -> list[Sentence]:
    name = DATA_NAMES[data]
    return [
        *_claims_of(data, "4.2"),
        Sentence(
            f"{data}:no-trend",
            "4.2",
            f"{name}: the error on PCA does not clearly fall as the known set grows",
            data,
            _no_trend,
        ),
        Sentence(
            f"{data}:isomap-second",
            "4.2",
            f"{name}: Isomap is the second most vulnerable method (except at 499 known)",
            data,
            _is_first("isomap", after=("pca",), sizes=tuple(n for n in SIZES if n != 499)),
        ),
    ]


CLAIMS = (
    *_claims_of("mnist", "4.1"),
    Sentence("mnist:pca-falls", "4.1", "MNIST: the error on PCA falls as the known set grows", "mnist", _falls("pca")),
    Sentence(
        "mnist:isomap-gets-harder",
        "4.1",
        "MNIST: Isomap is attacked well with small known sets and gets harder at 499 and 999",
        "mnist",
        _isomap_gets_harder,
    ),
    Sentence(
        "mnist:mds-third",
        "4.1",
        "MNIST: MDS is the third most vulnerable method at every size, after PCA and Isomap",
        "mnist",
        _is_first("mds", after=DETERMINISTIC),
    ),
    Sentence(
        "mnist:network-beats-dense",
        "4.1, 5",
        "MNIST: on PCA and Isomap the paper's network beats that of BCH22",
        "mnist",
        _beats_dense_network(DETERMINISTIC),
        (NETWORK,),
    ),
    *(claim for data in paper.X_RAYS for claim in _claims_of_x_rays(data)),
    Sentence(
        "mnist:noise-isomap",
        "6",
        "MNIST, 99 known: noise on the records moves the reconstructions of Isomap most (Eq. 12)",
        "mnist",
        _noise_moves_most("isomap"),
        is_noisy=True,
    ),
    Sentence(
        "mnist:noise-hides-deterministic",
        "6, 7",
        "MNIST, 99 known: under the largest noise nothing is left of the target in the reconstructions of PCA and "
        "Isomap (they do not beat the mean image)",
        "mnist",
        _versus_mean(DETERMINISTIC, is_effective=False, is_noisy=True),
        is_noisy=True,
    ),
    Sentence(
        "mnist:noise-hides-randomised",
        "6, 7",
        "MNIST, 99 known: under the largest noise the reconstructions of SRP, MDS, t-SNE and UMAP look like digits but "
        "not like the target (they do not beat the mean image)",
        "mnist",
        _versus_mean(RANDOMISED, is_effective=False, is_noisy=True),
        is_noisy=True,
    ),
)
"""In the order of the paper. What it says of the looks of images alone has no test and is not listed."""


def verdicts(results: Results) -> list[tuple[Sentence, dict[str, Verdict]]]:
    """Every claim with its verdict on each attack that it is tested on."""
    return [(claim, {lens: claim.test(View(results, claim.data, lens)) for lens in claim.lenses}) for claim in CLAIMS]


def judged_claims(lines: Sequence[Mapping[str, Any]]) -> list[Claim]:
    """Every claim on data that the configuration has, as put to each attack."""
    results = Results(lines)
    config = results.head["config"]
    return [
        Claim(
            claim=f"{sentence.text}, {LENSES[lens]}",
            paper=f"section {sentence.section}",
            ours=verdict.evidence,
            verdict=verdict.outcome,
            note=", ".join(differences(results, sentence, lens)) if verdict.outcome != NOT_TESTED else "",
        )
        for sentence, told in verdicts(results)
        if sentence.data in {plan["data"] for plan in config["plans"]}
        for lens, verdict in told.items()
    ]


def differences(results: Results, claim: Sentence, lens: str) -> list[str]:
    """How the run that a verdict is from differs from the paper's, beside the sizes and methods that it lacks."""
    config = results.head.get("config")
    plan = next((p for p in config["plans"] if p["data"] == claim.data), None) if config else None
    if config is None or plan is None:
        return []
    n_targets = min(plan["n_targets"], config["n_noisy_targets"]) if claim.is_noisy else plan["n_targets"]
    repeats = sorted({*plan["repeats"]})
    found = []
    if plan["n_shadow"] != paper.N_SHADOW:
        found.append(f"{plan['n_shadow']:,} shadows (paper: {paper.N_SHADOW:,})")
    if n_targets != paper.N_TARGETS:
        found.append(f"at most {n_targets} targets ({paper.N_TARGETS})")
    if repeats != [paper.N_REPEATS]:
        several = "s" if repeats[-1] > 1 else ""
        found.append(f"{' or '.join(map(str, repeats))} repeat{several} ({paper.N_REPEATS})")
    if lens == NETWORK and config["network"] != paper.RECIPE:
        found.append(f"recipe {config['network']!r}")
    return found


def _telling(told: list[tuple[bool | None, str]]) -> str:
    """What decides: the figures against a claim, else those of no weight, else all."""
    against, open_ones = ([text for answer, text in told if answer is wanted] for wanted in (False, None))
    return "; ".join(against or open_ones or [text for _, text in told])


def _by_size(method: str) -> list[Cell]:
    return [Cell(method, n) for n in SIZES]


def _mean(estimate: Estimate | None) -> float:
    return float("nan") if estimate is None else estimate.mean


def _text(estimate: Estimate | None) -> str:
    return "n/a" if estimate is None else f"{number(estimate.mean)} ± {number(estimate.high - estimate.mean)}"
