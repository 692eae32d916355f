"""What the report of a synthetic table says: expected utility, columns side by side, membership, the ceiling."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from drjax.bounds import rero
from drjax.bounds.curve import TradeOff
from drjax.core.statistics import Interval
from drjax.data.schema import Schema
from drjax.releases import expected, figures, manifest, private_report
from drjax.releases.rehearsal import FACTORS, Rehearsal
from drjax.reports import plots, styles
from drjax.reports.sections import Figure as Picture
from drjax.reports.sections import Report, Table
from drjax.synthesis.exposure import auc_ceiling

MOST_COLUMNS, MOST_BARS = 12, 12
"""Columns, and categories of one, that are drawn."""

KAPPAS = (0.1, 0.01, 0.001)

LIMITS = (
    "Rehearsals have six tenths of the records, so that noise weighs more than in the release, and their own draws of "
    "noise: the published table may be better or worse.",
    "Whoever chooses epsilon, method, bounds or dimensions after a look at this report makes the choice depend on the "
    "records, which the guarantee does not cover. Rehearse on public records instead.",
    "The attacks are those of drjax: a stronger one may find more, up to the ceiling, which holds for any.",
    "Knowing nothing is a table drawn from the public bounds alone, columns uniform and independent of each other; "
    "for a class the most frequent one. Better means better at 95% confidence, paired over the rehearsals.",
    "A model of Gaussians keeps linear relations of columns, and no others: a column of two peaks becomes one, within "
    "each class. What it keeps of each column's spread is measured above.",
)


def report(
    title: str,
    *,
    method: str,
    neighbouring: str,
    epsilon: float,
    delta: float,
    schema: Schema,
    table_name: str,
    n_records: int,
    curve: TradeOff | None,
    proven: str,
    budget: Mapping[str, float],
    rehearsed: Rehearsal | None,
    not_rehearsed: str,
    outside: Mapping[str, Mapping[str, int]],
    private: tuple[np.ndarray, np.ndarray | None],
    published: tuple[np.ndarray, np.ndarray | None],
    command: str,
    seed: int,
) -> Report:
    """The report of a release.

    Args:
        title: Heading of the page.
        method: Name of the method.
        neighbouring: Neighbouring relation that the guarantee is for.
        epsilon: Epsilon of the guarantee.
        delta: Delta of the guarantee.
        schema: Columns of the tables.
        table_name: File of the synthetic table.
        n_records: n, private or not.
        curve: Trade-off curve of the release; None if nothing is guaranteed.
        proven: The guarantee in words.
        budget: Share of each step.
        rehearsed: Expected utility and attacks; None where there are none.
        not_rehearsed: Why there are none.
        outside: Counts by column of the cells that were no value that the column may hold, and why.
        private: Records, encoded.
        published: Synthetic records, encoded.
        command: The shell command.
        seed: Seed of the rehearsals.
    """
    holds = curve is not None
    most = f"No attack of any kind has an AUC above {auc_ceiling(curve):.3f}." if curve is not None else (
        "Nothing is guaranteed beyond that."
    )  # fmt: skip
    worse = None if rehearsed is None else rehearsed.worse_than_nothing
    sizes = f"{len(published[0]):,} synthetic records for {n_records:,}"
    if rehearsed is None:
        summary, tables = (f"What to expect of the table was not measured: {not_rehearsed}.", most), ()
    else:
        summary = _expected(rehearsed, most)
        tables = (_utility_table(rehearsed), _spread_table(rehearsed), _attack_table(rehearsed))
    return private_report.report(
        title=title,
        holds=holds,
        worthless=None if worse is None else ("NO BETTER THAN KNOWING NOTHING.", worse),
        headline=f"epsilon {epsilon:g} at delta {delta:g}: {sizes}" if holds else f"NOT guaranteed: {sizes}",
        summary=summary,
        facts=(
            ("Method", method),
            ("Neighbours", f"{neighbouring}: {manifest.RELATIONS[neighbouring]}"),
            ("Proven", proven if holds else "nothing"),
            ("Budget", ", ".join(f"{step} {share:.0%}" for step, share in budget.items())),
            ("Columns", f"{len(schema.columns):,}"),
        ),
        measured=(
            *tables,
            *((_ceiling_table(curve),) if curve is not None else ()),
            _schema_table(schema, outside),
            *_figures(epsilon, schema, rehearsed, private, published, curve),
        ),
        publish=(
            f"{table_name}: the guarantee is of the whole model that it is drawn from.",
            "schema.json and manifest.json, which hold no number that depends on the records.",
        ),
        reading=LIMITS,
        command=command,
        seed=seed,
    )


def _expected(rehearsed: Rehearsal, most: str) -> tuple[str, ...]:
    best = max(rehearsed.attacks, key=lambda attack: attack.auc.estimate)
    chosen = rehearsed.chosen
    return (
        f"Expected {rehearsed.measure}: {chosen.estimate:.3f} ({chosen.low:.3f} to {chosen.high:.3f}); "
        f"real records in their place have {rehearsed.real:.3f}; knowing nothing, {rehearsed.ignorant:.3f}.",
        rehearsed.spread_sentence,
        f"{best.name}, the stronger of the attacks tried, tells members from others with an AUC of "
        f"{_interval(best.auc)} (1/2 is guessing). {most}",
    )


def _utility_table(rehearsed: Rehearsal) -> Table:
    rows = [
        (
            one.name[0].upper() + one.name[1:],
            _interval(one.synthetic),
            f"{one.real:.3f}",
            f"{one.nothing:.3f}",
            "yes" if one.is_better else "NO",
        )
        for one in rehearsed.compared
    ]
    return Table(
        title="Expected utility",
        paragraphs=(
            f"{rehearsed.n_trials} rehearsals on {rehearsed.n_fitted:,} records each: mean and 95% interval. Private.",
        ),
        headers=(
            "Measure",
            "Synthetic records",
            "Real records in their place",
            "Knowing nothing",
            "Better than nothing",
        ),
        rows=tuple(rows),
    )


def _spread_table(rehearsed: Rehearsal) -> Table:
    return Table(
        title="Expected spread of each column",
        paragraphs=(
            "Standard deviation of the synthetic column over that of the real one; of categories, the root of the "
            "ratio of the summed variances of their indicators. 1 is kept, less is too narrow, more is too wide. "
            "Private.",
        ),
        headers=("Column", "Synthetic over real, mean and 95% interval"),
        rows=tuple(
            (one.name, "constant" if math.isnan(one.ratio.estimate) else f"{one.ratio.estimate:.2f} "
             f"[{one.ratio.low:.2f}, {one.ratio.high:.2f}]")
            for one in rehearsed.spreads
        ),
    )  # fmt: skip


def _attack_table(rehearsed: Rehearsal) -> Table:
    return Table(
        title="Expected membership attacks",
        paragraphs=(
            "Who was in the data? The adversary has the synthetic table, the candidates and other records of the same "
            "kind. Mean of the rehearsals with the 95% interval of that mean.",
        ),
        headers=("Attack", "AUC", f"Members found at {expected.FPR:.0%} false alarms"),
        rows=tuple((attack.name, _interval(attack.auc), _interval(attack.tpr)) for attack in rehearsed.attacks),
    )


def _ceiling_table(curve: TradeOff) -> Table:
    power = [
        (f"Found at {alpha:.1%} false alarms, at most", f"{float(curve.power(alpha)):.4f}") for alpha in (0.01, 0.001)
    ]
    rebuilt = [
        (
            f"Rebuilt, if a guess without the table succeeds with {kappa:g}",
            f"{float(rero.from_tradeoff(kappa, curve)):.4f}",
        )
        for kappa in KAPPAS
    ]
    return Table(
        title="The most that any attack reaches",
        paragraphs=(f"What is left to an adversary who knows all records but one; neighbours: {curve.neighbouring}.",),
        headers=("Quantity", "At most"),
        rows=(*power, *rebuilt),
    )


def _schema_table(schema: Schema, outside: Mapping[str, Mapping[str, int]]) -> Table:
    rows = []
    for column in schema.columns:
        name, _, words = str(column).partition(": ")
        mapped = ", ".join(f"{n:,} {why}" for why, n in outside.get(name, {}).items())
        rows.append((name, words, "stated or public" if column.is_public else "READ OFF THE RECORDS", mapped or "none"))
    return Table(
        title="Columns",
        paragraphs=(
            "A number beyond its bounds became the bound, a cell that is no number the middle of the bounds; a "
            "category that is not listed counts for none. How many is private.",
        ),
        headers=("Column", "What it may hold", "Where that is from", "Cells outside"),
        rows=tuple(rows),
        text_columns=(1, 2),
    )


def _figures(
    epsilon: float,
    schema: Schema,
    rehearsed: Rehearsal | None,
    private: tuple[np.ndarray, np.ndarray | None],
    published: tuple[np.ndarray, np.ndarray | None],
    curve: TradeOff | None,
) -> tuple[Picture, ...]:
    columns = Picture(
        title="Columns side by side",
        caption="Private records (grey) and the published ones (colour), as shares. Private.",
        png=plots.png(_columns(schema, private, published)),
        alt="Histograms of each column, private and synthetic.",
    )
    if rehearsed is None:
        return (columns,)
    kept = figures.kept_over_epsilon(
        rehearsed.epsilons, rehearsed.useful, epsilon, label=rehearsed.measure.replace(" on real", "\non real")
    )
    ax = kept.axes[0]
    ax.axhline(rehearsed.real, color=styles.INK, linewidth=1, linestyle="--")
    ax.axhline(rehearsed.ignorant, color=styles.BASELINE, linewidth=1, linestyle=":")
    ax.text(0.01, rehearsed.real, "real records", transform=ax.get_yaxis_transform(), fontsize=8, va="bottom")
    ax.text(0.01, rehearsed.ignorant, "knowing nothing", transform=ax.get_yaxis_transform(), fontsize=8, va="top")
    shown = {attack.name.lower(): (attack.fpr, attack.tprs) for attack in rehearsed.attacks}
    ceilings = {} if curve is None else {"no attack is above this": curve}
    return (
        Picture(
            title="What is kept at other epsilons",
            caption=f"The {rehearsed.measure}, at {', '.join(f'{factor:g}' for factor in FACTORS)} times the epsilon. "
            "Private: do not choose epsilon by it (see below).",
            png=plots.png(kept),
            alt="Line of utility over epsilon on a logarithmic axis, the chosen epsilon marked.",
        ),
        columns,
        Picture(
            title="Telling members from others",
            caption="Share of members found over the share of others called members, of all rehearsals together."
            + ("" if curve is None else " No attack reaches the shaded area, whatever it knows."),
            png=plots.png(figures.roc_under_ceilings(shown, ceilings)),
            alt="ROC curves on linear and logarithmic axes, under the ceiling that the guarantee proves.",
        ),
    )


def _columns(
    schema: Schema, private: tuple[np.ndarray, np.ndarray | None], published: tuple[np.ndarray, np.ndarray | None]
) -> Figure:
    shown = schema.columns[:MOST_COLUMNS]
    n_rows = math.ceil(len(shown) / 3)
    figure = Figure(figsize=(styles.WIDTH, 1.9 * n_rows), layout="constrained")
    axes = figure.subplots(n_rows, 3, squeeze=False).ravel()
    at, places = 0, {}
    for column in schema.features:
        places[column.name] = slice(at, at + column.width)
        at += column.width
    for ax, column in zip(axes, shown, strict=False):
        pair = [
            np.asarray(part[1])[:, None] if column.name == schema.target else part[0][:, places[column.name]]
            for part in (private, published)
        ]
        if column.kind == "category":
            if column.name == schema.target:
                pair = [part == np.arange(len(column.categories)) for part in pair]
            shares = [part.mean(axis=0) for part in pair]
            largest = np.argsort(shares[0])[::-1][:MOST_BARS]
            for offset, share, color in ((-0.2, shares[0], styles.BASELINE), (0.2, shares[1], styles.ATTACK)):
                ax.bar(np.arange(len(largest)) + offset, share[largest], 0.4, color=color)
            names = [styles.plain(column.categories[i][:8]) or "missing" for i in largest]
            ax.set_xticks(np.arange(len(largest)), names, rotation=60, ha="right", fontsize=6)
        else:
            edges = np.linspace(column.lower, column.upper, 21)
            for part, color, alpha in ((pair[0], styles.BASELINE, 1.0), (pair[1], styles.ATTACK, 0.55)):
                values = np.clip(part[:, 0], column.lower, column.upper)
                ax.hist(values, edges, weights=np.full(len(values), 1 / len(values)), color=color, alpha=alpha)
        ax.set_title(styles.plain(column.name[:28]), fontsize=8)
        styles.style_axes(ax)
        ax.tick_params(labelsize=6)
    for ax in axes[len(shown) :]:
        ax.remove()
    return figure


def _interval(value: Interval) -> str:
    return (
        "too few records" if math.isnan(value.estimate) else f"{value.estimate:.3f} [{value.low:.3f}, {value.high:.3f}]"
    )
