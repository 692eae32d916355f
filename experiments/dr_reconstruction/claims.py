"""What the paper says about its results, sentence by sentence, and whether ours agree.

Each claim is put to two questions: is it so of the paper's network, which it was said of, and is it so of the method,
attacked by the strongest attack there is? A comparison counts where 95% of differences of such estimates have its sign;
a claim of several comparisons is refuted by one that counts against it, and undecided if one does not count. Sizes of
the known set are compared by the strongest of the attacks that ran at all of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise

from drjax.reports.ladder import number
from experiments.dr_reconstruction.paper import DATA_NAMES, DETERMINISTIC, METHOD_NAMES, RANDOMISED
from experiments.dr_reconstruction.results import BEST, DENSE_NETWORK, MEAN, NETWORK, Estimate, Results, below

CONFIRMED, REFUTED, UNDECIDED, NOT_TESTED = "confirmed", "refuted", "undecided", "not tested at this scale"

LENSES = {NETWORK: "of the paper's network", BEST: "of the strongest attack"}


@dataclass(frozen=True)
class Verdict:
    """An outcome, one of the four, and the figures that it rests on."""

    outcome: str
    evidence: str = ""


@dataclass(frozen=True)
class View:
    """The results on one data set as one attack sees them."""

    results: Results
    data: str
    attack: str

    def mse(self, method: str, n_known: int, sigma: float = 0) -> Estimate | None:
        """Mean squared error of the attack."""
        return self.results.estimate(self.data, method, n_known, self.attack, sigma=sigma)

    def sizes(self, *methods: str) -> list[int]:
        """Sizes of the known set at which all of these methods were attacked."""
        return [n for n in self.results.sizes(self.data) if all(self.mse(m, n) is not None for m in methods)]

    def trend(self, method: str, sizes: list[int]) -> list[Estimate | None]:
        """The error at these sizes, the strongest attack being one that ran at all of them."""
        among = self.results.attacks_at_all(self.data, method, sizes)
        names = [self.results.named(self.attack, self.data, method, n, among=among) for n in sizes]
        return [self.results.estimate(self.data, method, n, name or "") for n, name in zip(sizes, names, strict=True)]

    def mean_record(self, n_known: int, sigma: float = 0) -> Estimate | None:
        """Error of guessing the mean image, on the targets attacked at this noise."""
        return self.results.baseline(self.data, n_known, MEAN, sigma=sigma)


Test = Callable[[View], Verdict]


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper with the test of it.

    Attributes:
        name: Unique.
        section: Where the paper says it.
        text: What it says, in our words.
        data: The data set it is about.
        test: From the results of one attack to the verdict.
        lenses: Attacks it is tested on.
    """

    name: str
    section: str
    text: str
    data: str
    test: Test
    lenses: tuple[str, ...] = (NETWORK, BEST)


def judge(answers: Iterable[bool | None], evidence: str) -> Verdict:
    """One verdict from comparisons that are each for (True), against (False) or do not count (None)."""
    found = list(answers)
    if not found:
        return Verdict(NOT_TESTED)
    if False in found:
        return Verdict(REFUTED, evidence)
    return Verdict(UNDECIDED if None in found else CONFIRMED, evidence)


def _is_first(method: str, *, after: tuple[str, ...] = (), largest: bool = False) -> Test:
    """The method's error is the smallest (or largest) of all but those in `after`, at every size."""

    def test(view: View) -> Verdict:
        others = [m for m in METHOD_NAMES if m != method and m not in after]
        answers, worst = [], []
        for n in view.sizes(method, *others):
            own = view.mse(method, n)
            for other in others:
                pair = (view.mse(other, n), own) if largest else (own, view.mse(other, n))
                answers.append(below(*pair))
            rival = (max if largest else min)(others, key=lambda m: _mean(view.mse(m, n)))
            worst.append(f"{n} known: {_text(own)}, next {METHOD_NAMES[rival]} {_text(view.mse(rival, n))}")
        return judge(answers, "; ".join(worst))

    return test


def _ranked(*methods: str, below_all: tuple[str, ...]) -> Test:
    """Each method's error is below those of all in `below_all`, at every size."""

    def test(view: View) -> Verdict:
        sizes = view.sizes(*methods, *below_all)
        pairs = [(m, other, n) for n in sizes for m in methods for other in below_all]
        answers = [below(view.mse(m, n), view.mse(other, n)) for m, other, n in pairs]
        against = [
            f"{n} known: {METHOD_NAMES[m]} {_text(view.mse(m, n))}, {METHOD_NAMES[other]} {_text(view.mse(other, n))}"
            for (m, other, n), answer in zip(pairs, answers, strict=True)
            if answer is not True
        ]
        return judge(answers, "; ".join(against) or f"at {', '.join(map(str, sizes))} known")

    return test


def _falls(method: str) -> Test:
    """The error falls from the smallest known set to the largest, and at no step rises."""

    def test(view: View) -> Verdict:
        sizes = view.sizes(method)
        if len(sizes) < 2:
            return Verdict(NOT_TESTED)
        errors = view.trend(method, sizes)
        rises = any(below(a, b) for a, b in pairwise(errors))
        return judge([below(errors[-1], errors[0]), not rises], _series(view, method))

    return test


def _no_trend(view: View) -> Verdict:
    sizes = view.sizes("pca")
    if len(sizes) < 2:
        return Verdict(NOT_TESTED)
    errors = view.trend("pca", sizes)
    return judge([not below(errors[-1], errors[0])], _series(view, "pca"))


def _isomap_gets_harder(view: View) -> Verdict:
    sizes = view.sizes("isomap")
    errors = dict(zip(sizes, view.trend("isomap", sizes), strict=True))
    small, large = ([n for n in sizes if (n < 499) == is_small] for is_small in (True, False))
    if not small or not large:
        return Verdict(NOT_TESTED)
    best = min(small, key=lambda n: _mean(errors[n]))
    return judge([below(errors[best], errors[n]) for n in large], _series(view, "isomap"))


def _versus_mean(methods: tuple[str, ...], *, is_effective: bool, sigma: bool = False) -> Test:
    """Whether the error is below that of the mean image, at every size (without noise) or under the strongest noise."""

    def test(view: View) -> Verdict:
        if sigma:
            noises = view.results.sigmas(view.data)[-1:]
            cells = [(m, n, s) for s in noises for n in view.results.noisy_sizes(view.data) for m in methods]
        else:
            cells = [(m, n, 0.0) for n in view.sizes(*methods) for m in methods]
        cells = [cell for cell in cells if view.mse(*cell) is not None]
        answers, told = [], []
        for m, n, s in cells:
            is_below = below(view.mse(m, n, s), view.mean_record(n, s))
            answers.append(is_below if is_effective else not is_below)
            told.append(f"{METHOD_NAMES[m]}, {n} known: {_text(view.mse(m, n, s))}")
        wrong = [t for t, a in zip(told, answers, strict=True) if a is not True] or told
        means = f"mean image {_text(view.mean_record(*cells[0][1:]))}; " if cells else ""
        return judge(answers, means + "; ".join(wrong))

    return test


def _beats_dense_network(methods: tuple[str, ...]) -> Test:
    def test(view: View) -> Verdict:
        cells = [(m, n) for m in methods for n in view.results.sizes(view.data)]
        pairs = [(m, n, view.mse(m, n), view.results.estimate(view.data, m, n, DENSE_NETWORK)) for m, n in cells]
        both = [p for p in pairs if p[2] is not None and p[3] is not None]
        told = [f"{METHOD_NAMES[m]}, {n} known: {_text(own)} against {_text(other)}" for m, n, own, other in both]
        return judge([below(own, other) for _, _, own, other in both], "; ".join(told))

    return test


def _first_step_is_the_largest(view: View) -> Verdict:
    answers, told = [], []
    for method in METHOD_NAMES:
        sizes = view.sizes(method)
        if sizes[:2] != [9, 99] or len(sizes) < 3:
            continue
        means = [_mean(e) for e in view.trend(method, sizes)]
        drops = [a - b for a, b in pairwise(means)]
        answers.append(drops[0] == max(drops))
        told.append(f"{METHOD_NAMES[method]}: {' '.join(f'{-drop:+.3f}' for drop in drops)}")
    return judge(answers, "changes from size to size: " + "; ".join(told))


def _some_method_gets_harder(view: View) -> Verdict:
    found, is_tested = [], False
    for method in METHOD_NAMES:
        sizes = [n for n in view.sizes(method) if n >= 99]
        for pair in itertools.combinations(sizes, 2):
            is_tested = True
            few, many = view.trend(method, list(pair))
            if below(few, many):
                found.append(f"{METHOD_NAMES[method]}: {_text(few)} with {pair[0]} known, {_text(many)} with {pair[1]}")
    if not is_tested:
        return Verdict(NOT_TESTED)
    return judge([bool(found)], "; ".join(found) or "no method's error rises from any size to a larger one")


def _more_known_helps(view: View) -> Verdict:
    answers, told = [], []
    for method in METHOD_NAMES:
        sizes = view.sizes(method)
        if len(sizes) > 1:
            errors = view.trend(method, sizes)
            answers.append(below(errors[-1], errors[0]))
            told.append(f"{METHOD_NAMES[method]}: {_series(view, method)}")
    return judge(answers, "; ".join(told))


def _noise_moves_most(method: str) -> Test:
    def test(view: View) -> Verdict:
        results, answers, told = view.results, [], []
        for sigma in results.sigmas(view.data)[-1:]:
            for n in results.noisy_sizes(view.data):
                moved = {
                    m: results.estimate(view.data, m, n, view.attack, sigma=sigma, measure="eq12") for m in METHOD_NAMES
                }
                if any(e is None for e in moved.values()):
                    continue
                answers += [below(moved[m], moved[method]) for m in METHOD_NAMES if m != method]
                told.append(", ".join(f"{METHOD_NAMES[m]} {_text(e)}" for m, e in moved.items()))
        return judge(answers, "; ".join(told))

    return test


def _claims_of(data: str, section: str) -> list[Claim]:
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
        Claim(f"{data}:{key}", sections.get(key, f"{section}, 5"), f"{name}: {text}", data, test)
        for key, text, test in found
    ]


CLAIMS = (
    *_claims_of("mnist", "4.1"),
    Claim("mnist:pca-falls", "4.1", "MNIST: the error on PCA falls as the known set grows", "mnist", _falls("pca")),
    Claim(
        "mnist:isomap-gets-harder",
        "4.1",
        "MNIST: Isomap is attacked well with small known sets and gets harder at 499 and 999",
        "mnist",
        _isomap_gets_harder,
    ),
    Claim(
        "mnist:mds-third",
        "4.1",
        "MNIST: MDS is the third most vulnerable method at every size, after PCA and Isomap",
        "mnist",
        _is_first("mds", after=DETERMINISTIC),
    ),
    Claim(
        "mnist:network-beats-dense",
        "4.1, 5",
        "MNIST: on PCA and Isomap the paper's network beats that of BCH22",
        "mnist",
        _beats_dense_network(DETERMINISTIC),
        (NETWORK,),
    ),
    *_claims_of("nih_chest_xray", "4.2"),
    Claim(
        "nih_chest_xray:no-trend",
        "4.2",
        "NIH chest X-ray: the error on PCA does not clearly fall as the known set grows",
        "nih_chest_xray",
        _no_trend,
    ),
    Claim(
        "nih_chest_xray:isomap-second",
        "4.2",
        "NIH chest X-ray: Isomap is the second most vulnerable method (except at 499 known)",
        "nih_chest_xray",
        _is_first("isomap", after=("pca",)),
    ),
    Claim(
        "mnist:noise-isomap",
        "6",
        "MNIST, 99 known: noise on the records moves the reconstructions of Isomap most (Eq. 12)",
        "mnist",
        _noise_moves_most("isomap"),
    ),
    Claim(
        "mnist:noise-hides-deterministic",
        "6, 7",
        "MNIST, 99 known: under the largest noise nothing is left of the target in the reconstructions of PCA and "
        "Isomap (they do not beat the mean image)",
        "mnist",
        _versus_mean(DETERMINISTIC, is_effective=False, sigma=True),
    ),
    Claim(
        "mnist:noise-hides-randomised",
        "6, 7",
        "MNIST, 99 known: under the largest noise the reconstructions of SRP, MDS, t-SNE and UMAP look like digits but "
        "not like the target (they do not beat the mean image)",
        "mnist",
        _versus_mean(RANDOMISED, is_effective=False, sigma=True),
    ),
)
"""In the order of the paper. What it says of the looks of images alone has no test and is not listed."""


def verdicts(results: Results) -> list[tuple[Claim, dict[str, Verdict]]]:
    """Every claim with its verdict on each attack that it is tested on."""
    return [(claim, {lens: claim.test(View(results, claim.data, lens)) for lens in claim.lenses}) for claim in CLAIMS]


def _mean(estimate: Estimate | None) -> float:
    return float("nan") if estimate is None else estimate.mean


def _text(estimate: Estimate | None) -> str:
    return "n/a" if estimate is None else number(estimate.mean)


def _series(view: View, method: str) -> str:
    sizes = view.sizes(method)
    errors = zip(sizes, view.trend(method, sizes), strict=True)
    return ", ".join(f"{_text(error)} with {n} known" for n, error in errors)
