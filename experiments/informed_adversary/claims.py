"""What paper 004 says of the factors of its attack, and whether the rows agree.

Every claim is put to the paper's attack, a reconstructor network (RecoNN) that learns from shadow models, and to
inversion of the training run. Errors are means over targets for RecoNN. They are medians for inversion, whose mean
depends on single targets that it may miss.

Two errors count as alike where they differ by at most a quarter of the nearest neighbour's, which is what the paper
measures its errors by.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from drjax.core.statistics import Interval
from drjax.reports.ladder import number, percent
from experiments.claims import ELSEWHERE, NOT_RUN, UNDECIDED, Told, alike, below, difference, no_better, outcome
from experiments.informed_adversary.cells import INVERSION, NEAREST
from experiments.informed_adversary.report import COLUMNS, Settings, by_setting
from experiments.sweep import Claim

NETWORK = "network"
LENSES = (NETWORK, INVERSION)
MEASURES = {NETWORK: ("mse", "mean"), INVERSION: ("mse_median", "median")}

SLACK = 0.25
"""Share of the nearest neighbour's error by which two errors may differ and count as alike."""

COST = 0.05
"""Accuracy that a guarantee may cost and count as negligible."""

DEFAULT = ("default", "default")
PRINTED = "0.0089 (MNIST); nearest neighbour 0.0232"
LOST = "direction only"

Key = tuple[str, str]


@dataclass(frozen=True)
class View:
    """The rows as one attack sees them."""

    settings: Settings
    attack: str

    def error(self, key: Key, attack: str | None = None) -> Interval | None:
        """Error of the attack, or of another by the same measure; None if it was not run."""
        cell = self.settings.get(key, {}).get(attack or self.attack)
        if cell is None:
            return None
        found = cell["scores"][MEASURES[self.attack][0]]
        return Interval(found["estimate"], found["low"], found["high"])

    def text(self, key: Key, name: str) -> str:
        """The error in words, with its interval."""
        found = self.error(key)
        return f"{name} {NOT_RUN}" if found is None else f"{name} {_shown(found)}"


Test = Callable[[View], Told]


@dataclass(frozen=True)
class Sentence:
    """A sentence of the paper with the test of it.

    Attributes:
        text: What it says, in our words.
        test: From the rows, as an attack sees them, to what they say.
        printed: What the paper prints.
        lenses: Attacks that it is put to.
        elsewhere: How the rows' setting is another one than the paper's, so that they cannot decide; empty if they can.
    """

    text: str
    test: Test
    printed: str = LOST
    lenses: tuple[str, ...] = LENSES
    elsewhere: str = ""


def _shown(found: Interval) -> str:
    return f"{number(found.estimate)} ({number(found.low)} to {number(found.high)})"


def _beats_nearest(*keys: Key, by: Callable[[Interval, Interval], bool | None] = below) -> Test:
    """In each setting the error is below the nearest neighbour's, or else as `by` says."""

    def test(view: View) -> Told:
        answers, told, lacks = [], [], False
        for key in keys:
            own, nearest = view.error(key), view.error(key, NEAREST)
            told.append(view.text(key, key[1]))
            if own is None or nearest is None:
                lacks = True
                continue
            answers.append(by(own, nearest))
            told[-1] += f", nearest neighbour {_shown(nearest)}"
        return Told(outcome(answers, lacks=lacks), "; ".join(told))

    return test


def _alike(*keys: Key) -> Test:
    """The error of each setting is that of the first, within `SLACK` of its nearest neighbour's."""

    def test(view: View) -> Told:
        first, nearest = view.error(keys[0]), view.error(keys[0], NEAREST)
        others = [view.error(key) for key in keys[1:]]
        told = "; ".join(view.text(key, key[1]) for key in keys)
        if first is None or nearest is None:
            return Told(NOT_RUN, told)
        slack = SLACK * nearest.estimate
        answers = [alike(difference(other, first), slack) for other in others if other is not None]
        return Told(outcome(answers, lacks=None in others), told, f"alike means a difference of at most {slack:.2g}")

    return test


def _below(*pairs: tuple[Key, Key]) -> Test:
    """Of each pair the first has the smaller error."""

    def test(view: View) -> Told:
        found = [(view.error(a), view.error(b)) for a, b in pairs]
        answers = [below(a, b) for a, b in found if a is not None and b is not None]
        told = "; ".join(view.text(key, key[1]) for key in dict.fromkeys(key for pair in pairs for key in pair))
        return Told(outcome(answers, lacks=len(answers) < len(pairs)), told)

    return test


def _all(*tests: Test) -> Test:
    """Every test holds."""

    def test(view: View) -> Told:
        found = [one(view) for one in tests]
        answers = {"confirmed": True, "refuted": False, UNDECIDED: None}
        made = [answers[one.outcome] for one in found if one.outcome in answers]
        parts = list(dict.fromkeys(part for one in found for part in one.evidence.split("; ")))
        # A figure that stands beside its nearest neighbour need not stand alone too.
        evidence = "; ".join(p for p in parts if not any(q != p and q.startswith(p) for q in parts))
        why = "; ".join(dict.fromkeys(one.why for one in found if one.why))
        return Told(outcome(made, lacks=len(made) < len(found)), evidence, why)

    return test


def _falls(*keys: Key) -> Test:
    """The error falls from the first setting to the last, and is not seen to rise at any step."""

    def test(view: View) -> Told:
        found = [view.error(key) for key in keys]
        ran = [one for one in found if one is not None]
        answers: list[bool | None] = [below(ran[-1], ran[0])] if len(ran) > 1 else []
        answers += [False for few, many in pairwise(ran) if below(few, many)]
        told = "; ".join(view.text(key, key[1]) for key in keys)
        return Told(outcome(answers, lacks=len(ran) < len(keys)), told)

    return test


def _no_gain(key: Key, other: Key) -> Test:
    """The error of a setting is no smaller than that of another."""

    def test(view: View) -> Told:
        own, rival, nearest = view.error(key), view.error(other), view.error(key, NEAREST)
        told = f"{view.text(other, other[1])}; {view.text(key, key[1])}"
        if own is None or rival is None or nearest is None:
            return Told(NOT_RUN, told)
        return Told(outcome([no_better(own, rival, SLACK * nearest.estimate)]), told)

    return test


def _private(settings: Settings, factor: str) -> list[tuple[float, Key]]:
    """Settings of DP-GD by mu."""
    found = [(mu, key) for key, cells in settings.items() if (mu := _mu(cells)) is not None and key[0] == factor]
    return sorted(found)


def _mu(cells: Mapping[str, Mapping[str, Any]]) -> float | None:
    return next(iter(cells.values()))["of"]["mu"]


def _withstood(factor: str) -> Test:
    """No guarantee leaves an error below the nearest neighbour's, however large its epsilon."""

    def test(view: View) -> Told:
        answers, told = [], []
        for mu, key in _private(view.settings, factor):
            own, nearest = view.error(key), view.error(key, NEAREST)
            if own is not None and nearest is not None:
                answers.append(no_better(own, nearest, SLACK * nearest.estimate))
                told.append((mu, answers[-1], f"mu {mu:g}: {_shown(own)}"))
        found, words = outcome(answers), "; ".join(text for *_, text in told)
        broken = [mu for mu, answer, _ in told if answer is False]
        held = [mu for mu, answer, _ in told if answer]
        if not broken:
            return Told(found, words, "the paper's epsilons are lost")
        if not held:
            return Told(found, words, f"it fails at mu {broken[0]:g} and above")
        # The paper's largest epsilon is lost: it may lie on either side.
        why = f"withstood up to mu {held[-1]:g}, not from mu {broken[0]:g} on; which epsilons the paper has is lost"
        return Told(UNDECIDED, words, why)

    return test


def _costs_little(factor: str, free: Key) -> Test:
    """At the largest epsilon of the rows the accuracy is that without a guarantee, within `COST`."""

    def test(view: View) -> Told:
        def accuracy(key: Key) -> float:
            return view.settings[key]["mean"]["accuracy"]

        rows = [(mu, accuracy(key)) for mu, key in _private(view.settings, factor) if "mean" in view.settings[key]]
        if not rows or "mean" not in view.settings.get(free, {}):
            return Told(NOT_RUN, "")
        told = "; ".join(f"mu {mu:g}: {percent(value)}" for mu, value in rows)
        loss = accuracy(free) - rows[-1][1]
        words = f"accuracy without {percent(accuracy(free))}; {told}"
        why = f"at mu {rows[-1][0]:g} {loss:.1%} is lost, negligible means at most {COST:.0%}; one split, no interval"
        return Told(outcome([loss <= COST]), words, why)

    return test


def _not_run(_: View) -> Told:
    return Told(NOT_RUN, "")


def _of(factor: str, *names: str) -> tuple[Key, ...]:
    return tuple((factor, name) for name in names)


_SHADOWS = (*_of("shadows", "500 shadows"), DEFAULT, *_of("shadows", "2000 shadows", "5000 shadows", "20000 shadows"))
_RATES = _of("learning_rate", "rate 0.01", "rate 0.03", "rate 0.3")
_EPOCHS = _of("epochs", "10 epochs", "30 epochs", "300 epochs")
_RELU, _LEAKY = _of("activation", "relu", "leaky_relu")
_OTHERS = _of(
    "activation", "leaky_relu", "selu", "tanh", "gelu", "sigmoid", "identity", "silu", "softplus", "celu"
)  # fmt: skip
_KNOWN, _UNKNOWN, _SLOW = _of(
    "batch", "mini-batches, order known", "mini-batches, order unknown", "mini-batches, order unknown, rate 0.01"
)
_START, _STARTS = _of("start", "start unknown", "start unknown, 4 models a shadow record")
_OTHER_STARTS = _of("start", *(f"another known start, {i}" for i in (1, 2, 3)))
_BLACK_BOX, _LAST_LAYER = _of("access", "black box", "last layer")
_CIFAR = "other networks and fewer known records than the paper's, 2,000 shadow models"

CLAIMS = (
    Sentence(
        "Reconstruction works: the error is below the nearest neighbour's (VI-A)", _beats_nearest(DEFAULT), PRINTED
    ),
    Sentence("It works on CIFAR-10 too (VI-A)", _beats_nearest(("cifar10", "CNN")), elsewhere=_CIFAR),
    Sentence("More shadow models, a better attack (figure 5c)", _falls(*_SHADOWS), lenses=(NETWORK,)),
    Sentence(
        "The error hardly depends on the size of the fixed set (VI-B)",
        _alike(DEFAULT, *_of("fixed", "99 known", "9999 known")),
    ),
    Sentence("It falls a little as the fixed set gets smaller (-H)", _below((("fixed", "99 known"), DEFAULT))),
    Sentence(
        "The width of the hidden layer hardly matters (VI-B, table IV)",
        _alike(DEFAULT, *_of("width", "width 100", "width 1000")),
        "all far below 0.0232",
    ),
    Sentence(
        "The last layer alone is nearly enough (VI-B)",
        _all(_alike(DEFAULT, _LAST_LAYER), _beats_nearest(_LAST_LAYER)),
        lenses=(NETWORK,),
    ),
    Sentence(
        "More than twice the epochs raise the error a little; targets are still reconstructed (VI-B)",
        _all(_below((_EPOCHS[0], _EPOCHS[-1])), _beats_nearest(*_EPOCHS)),
    ),
    Sentence(
        "Networks with ReLU are the hardest to attack (VI-B, table V)", _below(*((other, _RELU) for other in _OTHERS))
    ),
    Sentence("A ReLU with a small negative slope is attacked as well as others (-M)", _alike(DEFAULT, _LEAKY)),
    Sentence("The rate does not matter in full batches (VI-B, -H)", _alike(DEFAULT, *_RATES)),
    Sentence("Mini-batches whose order is known are attacked as well (VI-B, figure 7)", _beats_nearest(_KNOWN)),
    Sentence(
        "An unknown order makes it harder, the more the larger the rate (VI-B)",
        _below((DEFAULT, _UNKNOWN), (_SLOW, _UNKNOWN)),
    ),
    Sentence(
        "An unknown start defeats the attack (VI-B, -A)",
        _below((DEFAULT, _START)),
        "0.0695, with a known start 0.0089",
        lenses=(NETWORK,),
    ),
    Sentence(
        "With an unknown start several models a shadow record do not help (VI-B)",
        _no_gain(_STARTS, _START),
        lenses=(NETWORK,),
    ),
    Sentence(
        "From other known starts nearly all reconstructions are close to the nearest neighbour's error or below (-G)",
        _beats_nearest(*_OTHER_STARTS),
        "ten starts",
    ),
    Sentence(
        "Black-box access is enough: marginally worse, much better than the nearest neighbour (VI-C)",
        _all(_alike(DEFAULT, _BLACK_BOX), _beats_nearest(_BLACK_BOX)),
        lenses=(NETWORK,),
    ),
    Sentence(
        "A network of another fixed set, tuned on few own models, does as well as one trained from scratch (-B)",
        _alike(DEFAULT, ("transfer", "another fixed set, 100 own models")),
        lenses=(NETWORK,),
        elsewhere="own models were added to the training set, the network was not tuned on them afterwards",
    ),
    Sentence("A start near convergence is harder (-C)", _below((DEFAULT, ("convergence", "start near convergence")))),
    Sentence(
        "Shadow records of another distribution do as well: CIFAR-100 for CIFAR-10 (figure 6)",
        _alike(*_of("cifar10", "MLP, shadows of all classes", "MLP, shadows of five classes, targets of five others")),
        elsewhere="five classes of CIFAR-10 stand in for CIFAR-100, an MLP for the CNN",
    ),
    Sentence("DP with a large epsilon defeats the attack (VI-D)", _withstood("privacy")),
    Sentence(
        "It costs little accuracy (VI-D)", _costs_little("privacy", DEFAULT), lenses=(NETWORK,), printed="negligible"
    ),
    Sentence("On CIFAR-10 DP with a large epsilon defeats it (-E)", _withstood("cifar10"), elsewhere=_CIFAR),
    Sentence(
        "It keeps the accuracy on CIFAR-10 (-E)",
        _costs_little("cifar10", ("cifar10", "MLP")),
        "preserved",
        (NETWORK,),
        _CIFAR,
    ),
    Sentence(
        "Models trained by Adam are attacked as well (table X, CIFAR-10)",
        _beats_nearest(("cifar10", "MLP, Adam")),
        elsewhere=_CIFAR,
    ),
    Sentence("On CIFAR-10 the attack fails from about 240 epochs on (-L)", _not_run, "240 to 250", (NETWORK,)),
    Sentence("MSE and LPIPS are strongly correlated (figure 5a)", _not_run, lenses=(NETWORK,)),
    Sentence("MSE is weakly correlated with the sum of gradient norms (-K)", _not_run, lenses=(NETWORK,)),
)
"""In the order of the paper."""


def judged_claims(lines: Sequence[Mapping[str, Any]]) -> list[Claim]:
    """Every claim as put to each attack that it is about."""
    settings = by_setting([line for line in lines if line["kind"] == "attack"])
    return [_judged(sentence, View(settings, lens)) for sentence in CLAIMS for lens in sentence.lenses]


def _judged(sentence: Sentence, view: View) -> Claim:
    told = sentence.test(view)
    verdict, ours = told.outcome, told.evidence
    if verdict == NOT_RUN:
        note = "a setting that it is about has no row" if ours else "no row is about it"
    else:
        ours = f"{COLUMNS[view.attack]}, {MEASURES[view.attack][1]}: {ours}"
        note = "; ".join(part for part in (told.why, sentence.elsewhere or _differs(view)) if part)
        if sentence.elsewhere:
            verdict, note = ELSEWHERE, f"the claim is {told.outcome} there: {note}"
    about = "" if len(sentence.lenses) == 1 else f", of {COLUMNS[view.attack]}"
    return Claim(claim=sentence.text + about, paper=sentence.printed, ours=ours, verdict=verdict, note=note)


def _differs(view: View) -> str:
    """How the rows of MNIST differ from the paper's."""
    cell = view.settings.get(DEFAULT, {}).get(view.attack)
    if cell is None:
        return ""
    learned = f", {cell['of']['n_shadow']:,} shadow models (59,000)" if view.attack == NETWORK else ""
    known, n_targets = cell["of"]["n_fixed"], cell["scores"]["n_targets"]
    return f"by default {known:,} known (paper: 9,999){learned}, {n_targets} targets (1,000)"
