"""What the report of a private PCA says: expected utility, membership attacks, and the most that any reaches."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from drjax.attacks import roc
from drjax.bounds.curve import TradeOff
from drjax.core.statistics import Interval
from drjax.defenses.dp_pca import PCARelease
from drjax.releases import expected, figures, manifest, private_report
from drjax.releases.expected import Membership, Utility
from drjax.reports import plots
from drjax.reports.sections import Figure, Report, Table

LIMITS = (
    "Utility and attacks are computed on the records themselves, with noise drawn for this report: the published "
    "release has a draw of its own, better or worse.",
    "Whoever chooses epsilon, mechanism, bounds or the number of components after a look at this report makes the "
    "choice depend on the records, which the guarantee does not cover. Rehearse on public records instead.",
    "The attacks are those of drjax: a stronger one may find more, up to the ceiling, which holds for any. The ceiling "
    "is that of an adversary who knows everything but which of two records is there.",
    "Figures are averages over records: an unusual one is easier to find than most, up to the ceiling.",
)


NO_BETTER = "THE COMPONENTS ARE NO BETTER THAN RANDOM DIRECTIONS: the noise drowns the records"
"""First warning of a report on a release that is worth nothing."""


PUBLISH = (
    "components.npz, all of it: components, eigenvalues and the noisy second moment have one guarantee together.",
    "manifest.json, which says what is guaranteed and holds no number that depends on the records.",
)


def report(
    title: str,
    *,
    mechanism: str,
    epsilon: float,
    delta: float,
    n_records: int,
    columns: int,
    released: PCARelease,
    swapped: TradeOff,
    holds: bool,
    sources: Mapping[str, str],
    outside: int,
    expectation: tuple[Utility, Membership] | None,
    not_expected: str,
    command: str,
    seed: int,
) -> Report:
    """The report of a release.

    Args:
        title: Heading of the page.
        mechanism: Name of the mechanism.
        epsilon: Epsilon of the guarantee.
        delta: Delta of the guarantee.
        n_records: n, private or not.
        columns: d.
        released: What was drawn.
        swapped: Trade-off curve of the same noise for a record replaced by another, which is the simulated game.
        holds: Whether the bounds are public.
        sources: Where each bound is from, in words.
        outside: How many cells of the records were cut or replaced.
        expectation: Utility and membership; None where there are none.
        not_expected: Why there are none.
        command: The shell command.
        seed: Seed of the simulations.
    """
    k = len(released.components)
    curve = released.curve
    relation = str(curve.neighbouring)
    ceiling = roc.auc_ceiling(swapped)
    most = f"No attack of any kind has an AUC above {ceiling:.3f}." if holds else "Nothing is guaranteed beyond these."
    headline, summary = "the expected utility was not measured", (f"Not measured: {not_expected}.", most)
    tables, drawn, worthless = (), (), None
    if expectation is not None:
        utility, membership = expectation
        headline, summary = _in_words(utility, membership, most)
        tables = (_utility_table(utility, k), _membership_table(membership))
        drawn = _figures(epsilon, utility, membership, swapped if holds else None)
        if utility.is_no_better_than_random:
            worthless = NO_BETTER + ".", _no_better(utility)
    return private_report.report(
        title=title,
        holds=holds,
        worthless=worthless,
        headline=f"epsilon {epsilon:g} at delta {delta:g}: {headline if holds else 'NOT guaranteed'}",
        summary=summary,
        facts=(
            ("Mechanism", mechanism),
            ("Neighbours", f"{relation}: {manifest.RELATIONS[relation]}"),
            ("Proven", _curve(curve) if holds else "nothing"),
            ("Records", f"{n_records:,}"),
            ("Columns", f"{columns:,}"),
            ("Components published", f"{k:,}"),
            ("Cells cut to their range, or no number", f"{outside:,}"),
        ),
        measured=(
            *tables,
            *((_ceiling_table(curve, swapped),) if holds else ()),
            _bounds_table(sources, released.note if holds else "nothing"),
            *drawn,
        ),
        publish=PUBLISH,
        reading=LIMITS,
        command=command,
        seed=seed,
    )


def _in_words(utility: Utility, membership: Membership, most: str) -> tuple[str, tuple[str, ...]]:
    best = {flag: _strongest(membership, flag) for flag in (False, True)}
    kept = f"{_percent(utility.chosen.estimate)} (90% of releases: {_range(utility.chosen, _percent)})"
    return _headline(utility), (
        f"The components are expected to keep {kept} of the variance about the mean that as many components can keep; "
        f"as many random directions keep {_percent(utility.random)}.",
        f"{best[True].name}, the strongest attack tried, tells members from others with an AUC of "
        f"{_interval(best[True].auc)} (1/2 is guessing); without noise {best[False].name.lower()} has "
        f"{_interval(best[False].auc)}. {most}",
    )


def _strongest(membership: Membership, is_private: bool) -> expected.AttackResult:
    own = [attack for attack in membership.attacks if attack.is_private == is_private]
    return max(own, key=lambda attack: attack.auc.estimate)


def _headline(utility: Utility) -> str:
    if utility.is_no_better_than_random:
        return "no better than random directions"
    return f"{_percent(utility.chosen.estimate)} of the variance kept"


def _no_better(utility: Utility) -> str:
    gain = utility.gain
    assert gain is not None
    return (
        f"They keep {utility.chosen.estimate:.3f} of the variance in the mean, as many random directions "
        f"{utility.random:.3f}; the 95% interval of the gain, {_range(gain)}, does not lie above 0. More records, "
        "fewer columns or tighter public ranges help; so does a larger epsilon, chosen without a look at this report."
    )


def _utility_table(utility: Utility, k: int) -> Table:
    rows = [
        (
            "Variance about the mean that is kept, q",
            f"{utility.chosen.estimate:.3f}",
            _range(utility.chosen),
            "1: nothing is lost",
        ),
        (
            "The same of as many random directions",
            f"{utility.random:.3f}",
            "",
            "knowing nothing: no record is needed for them",
        ),
    ]
    if utility.gain is not None:
        gain = utility.gain
        rows.append(
            (
                "Gain over random directions",
                f"{gain.estimate:.3f}",
                "",
                f"95% interval of the mean: {_range(gain)}; better in {_percent(utility.wins or 0.0)} of the draws",
            )
        )
    if utility.angle is not None:
        angle = utility.angle
        rows.append(
            (
                "Largest angle to the true components, degrees",
                f"{angle.estimate:.1f}",
                _range(angle, lambda value: f"{value:.1f}"),
                "0: the same subspace; 90: one direction is missed",
            )
        )
    else:
        rows.append(("Components published", f"{k}", _range(utility.n_components, _whole), "of the noisy matrix"))
    rows.append(
        (
            "Components with 90% of the energy",
            f"{utility.k_noisy.estimate:.0f}",
            _range(utility.k_noisy, _whole),
            f"{utility.k_true} without noise: noise has energy too",
        )
    )
    return Table(
        title="Expected utility",
        paragraphs=(f"From {utility.n_trials} draws of the noise on the records. Private: computed from them.",),
        headers=("Measure", "Mean", "90% of releases", "How to read it"),
        rows=tuple(rows),
        text_columns=(3,),
    )


def _membership_table(membership: Membership) -> Table:
    whose = "public ones" if membership.has_public else "a part of the private ones, which no real adversary has"
    lead = (
        f"Who was in the release? {membership.n_splits} random splits: {membership.n_members:,} records are released, "
        f"{membership.n_others:,} others are not, and the adversary has {membership.n_population:,} records, {whose}. "
        "With fewer records than in the real release each one counts for more, so the figures err towards finding "
        "members. Mean over the splits with the 95% interval of that mean."
    )
    rows = tuple(
        (attack.name, "with noise" if attack.is_private else "none", _interval(attack.auc), _interval(attack.tpr))
        for attack in membership.attacks
    )
    return Table(
        title="Expected membership attacks",
        paragraphs=(lead,),
        headers=("Attack", "Noise", "AUC", f"Members found at {expected.FPR:.0%} false alarms"),
        rows=rows,
        text_columns=(1,),
    )


def _ceiling_table(curve: TradeOff, swapped: TradeOff) -> Table:
    games = {"Is the record there, or another in its place? (as simulated)": swapped}
    if curve != swapped:
        named = {"zero_out": "one that counts for nothing", "add_or_remove": "none"}[str(curve.neighbouring)]
        games[f"Is the record there, or {named}? (the relation of the guarantee)"] = curve
    return Table(
        title="The most that any attack reaches",
        paragraphs=(
            "What the proven curve leaves to an adversary who knows all records but one, and everything else.",
        ),
        headers=("Question", "AUC, at most", "Found at 1% false alarms, at most", "At 0.1%, at most"),
        rows=tuple(
            (
                question,
                f"{roc.auc_ceiling(one):.3f}",
                *(f"{float(one.power(alpha)):.4f}" for alpha in (0.01, 0.001)),
            )
            for question, one in games.items()
        ),
    )


def _bounds_table(sources: Mapping[str, str], note: str) -> Table:
    return Table(
        title="Bounds, and what is proven",
        paragraphs=("Records are cut to bounds, and noise is in units of them. They must be public.",),
        headers=("Bound", "Where it is from"),
        rows=(*((name.replace("_", " "), text) for name, text in sources.items()), ("proven", note)),
        text_columns=(1,),
    )


def _figures(epsilon: float, utility: Utility, membership: Membership, ceiling: TradeOff | None) -> tuple[Figure, ...]:
    kept = figures.kept_over_epsilon(
        utility.epsilons,
        utility.energy,
        epsilon,
        label="variance kept, q (1: nothing is lost)",
        baseline=(utility.random, "random directions"),
    )
    shown = {
        f"{attack.name}, {'with noise' if attack.is_private else 'without noise'}": attack
        for attack in membership.attacks
    }
    curves = {label: (attack.fpr, attack.tprs) for label, attack in shown.items()}
    ceilings = {} if ceiling is None else {"no attack is above this": ceiling}
    dotted = frozenset(label for label, attack in shown.items() if not attack.is_private)
    drawn = figures.roc_under_ceilings(curves, ceilings, dotted=dotted)
    return (
        Figure(
            title="What is kept at other epsilons",
            caption="Captured variance about the mean over the most that as many components capture, with the range "
            "that 90% of releases are in; dotted, what as many random directions capture. "
            "The epsilon of this release is marked. Private: do not choose epsilon by it (see below).",
            png=plots.png(kept),
            alt="Line of the variance kept over epsilon on a logarithmic axis, the chosen epsilon marked.",
        ),
        Figure(
            title="Telling members from others",
            caption="Share of members found over the share of others called members, of all splits "
            "together; dashed without noise, solid with it. "
            + (
                "With noise no attack on the release gets into the shaded area, whatever it knows; a curve, which is a "
                "measurement, may touch it by chance."
                if ceiling is not None
                else "There is no ceiling: nothing is guaranteed."
            ),
            png=plots.png(drawn),
            alt="ROC curves on linear and logarithmic axes, under the ceiling that the guarantee proves.",
        ),
    )


def _curve(curve: TradeOff) -> str:
    return " and ".join(_part_in_words(**part) for part in manifest.curves_to_json(curve))


def _part_in_words(kind: str, **numbers: Any) -> str:
    if kind == "ZCDP":
        return f"{numbers['rho']:.4g}-zCDP"
    if kind == "EpsilonDelta":
        delta = numbers["delta"]
        return f"({numbers['epsilon']:g}, {delta:g})-DP" if delta else f"{numbers['epsilon']:g}-DP"
    return f"{kind} of {', '.join(f'{name} {value}' for name, value in numbers.items())}"


def _interval(value: Interval) -> str:
    if math.isnan(value.estimate):
        return "too few records"
    return f"{value.estimate:.3f} [{value.low:.3f}, {value.high:.3f}]"


def _range(value: Interval, text=lambda value: f"{value:.3f}") -> str:
    return f"{text(value.low)} to {text(value.high)}"


def _percent(value: float) -> str:
    return f"{value:.0%}"


def _whole(value: float) -> str:
    return f"{value:.0f}"
