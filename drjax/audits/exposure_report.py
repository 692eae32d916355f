"""What the audit of every record writes: the table of all records, the worst cases, and what was assumed."""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from drjax.attacks import exposure, metrics
from drjax.attacks.column_gain import column_gain
from drjax.attacks.exposure import Exposure
from drjax.attacks.gain import gain
from drjax.audits import describe, learned
from drjax.audits.report import LIMITATIONS as ALL_LIMITATIONS
from drjax.audits.report import save_figures
from drjax.core.statistics import share_interval
from drjax.core.types import Array, DRMethod, count_status
from drjax.data import Dataset
from drjax.reports import alt_texts, plots
from drjax.reports.ladder import LadderRow, number
from drjax.reports.records import atomic_write_text
from drjax.reports.scatter import ScatterPlot
from drjax.reports.sections import Figure, Table

TABLE = "exposure.csv"

WORST_PICTURES = 10
"""Most exposed records shown as pictures."""

WORST_RECORDS = 3
"""Most exposed records whose features are listed."""

WORST_FEATURES = 40
"""Features that are listed of them."""

WORST_ROWS = 20
"""Lines of the ranking in the report, and records that the map marks."""

LIMITATIONS = (ALL_LIMITATIONS[0], *ALL_LIMITATIONS[2:])

CURVE = (
    "Exposure of every record",
    "Share of the records whose error is at most the value on the horizontal axis. The most exposed records are at the "
    "left; the grey line is the error of the most similar other record.",
)
PICTURES = (
    "The most exposed records",
    "The first row shows the records that the strongest attack took back best, each unknown to the adversary; below "
    "them the most similar other record and what each attack rebuilt. The number under a picture is its mean squared "
    "error.",
)
"""Title and caption of each figure; `reports.alt_texts` has what it shows in words."""


BASELINES = {
    "mean": (
        "Mean of the others",
        "Guesses the average of the other records without looking at the release.",
    ),
    "nearest": (
        "Most similar other record",
        "Picks the other record most similar to the target, which takes looking at the target.",
    ),
}
"""Label and description of each baseline."""


def ladder_row(
    key: Array,
    words: tuple[str, str],
    result: Mapping[str, np.ndarray],
    seconds: float,
    own: Exposure,
    mean: Exposure,
    data: Dataset,
) -> LadderRow:
    """Scores as of `metrics.evaluate`, the other records being both neighbours and decoys of each target.

    Args:
        key: Seeds the intervals.
        words: Label and description.
        result: Reconstructions `x` and their `status`.
        seconds: Wall time of the attack.
        own: Exposure by it.
        mean: Exposure by the mean of the others, of the same records.
        data: All records.
    """
    records, truth = data.x, data.x[own.row]
    scores = metrics.evaluate(
        key,
        result["x"],
        truth,
        neighbors=truth[:1],  # both shares are replaced below: the others differ from record to record
        decoys=truth[:1],
        status=result["status"],
        seconds=seconds,
    )
    used = np.isfinite(own.error)
    guess = np.asarray(result["x"], np.float64)[used]
    closer = own.error[used] < own.nearest_error[used]
    scores = dataclasses.replace(
        scores,
        success=share_interval(int(closer.sum()), closer.size),
        identification=share_interval(int(own.is_identified[used].sum()), closer.size),
        identification_chance=1 / len(records),
        gain=gain(
            key,
            guess,
            truth[used].astype(np.float64),
            mean_error=own.mean_error[used],
            nearest_error=own.nearest_error[used],
            identified=own.is_identified[used],
            mean_identified=mean.is_identified[used],
        ),
        columns=column_gain(
            guess, truth[used], exposure.means_of_others(records, own.row[used]), data.sources or data.feature_names
        ),
        n_singled=int((own.chance < exposure.SINGLE_LEVEL).sum()),
    )
    return LadderRow(label=words[0], description=words[1], scores=scores)


def write_table(path: Path, data: Dataset, measured: Exposure, result: Mapping[str, np.ndarray]) -> None:
    """Writes one line per record, the most exposed first, for its owner's eyes.

    Rows count from 0, without a header line of the data; of an own table the id and the line in its file stand beside,
    if it has them.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    heads = ("error", "nearest_other_error", "mean_error", "ratio", "rebuilt", "identified", "chance")
    heads += ("residual_norm", "status")
    writer.writerow(["rank", "row", *_place_heads(data), *heads])
    residual = result.get("residual_norm", np.full(len(measured.row), np.nan))
    for i in np.argsort(measured.rank):
        names = [name for name in count_status(result["status"][i]) if name != "OK"]
        figures = (measured.error[i], measured.nearest_error[i], measured.mean_error[i], measured.ratio[i])
        writer.writerow(
            [
                int(measured.rank[i]),
                int(measured.row[i]),
                *_place(data, int(measured.row[i])),
                *(f"{value:.6g}" for value in figures),
                "yes" if measured.is_rebuilt[i] else "no",
                "yes" if measured.is_identified[i] else "no",
                f"{measured.chance[i]:.6g}",
                f"{residual[i]:.6g}",
                "+".join(names) or "OK",
            ]
        )
    atomic_write_text(path, text.getvalue())
    path.chmod(0o600)


def _place_heads(data: Dataset) -> list[str]:
    """What an own table has beside rows: ids, and lines but where these are the rows of a DataFrame."""
    if data.rows is None:
        return []
    lines = [] if data.rows.counted == "row" else [data.rows.counted.replace(" ", "_")]
    return ["id"] * (data.rows.ids is not None) + lines


def _place(data: Dataset, row: int) -> list[str]:
    """Id and line of a record of an own table."""
    if data.rows is None:
        return []
    own = {"id": "" if data.rows.ids is None else data.rows.ids[row]}
    return [own.get(head, str(int(data.rows.lines[row]))) for head in _place_heads(data)]


def contents(
    folder: Path,
    data: Dataset,
    measured: Mapping[str, Exposure],
    reconstructions: Mapping[str, np.ndarray],
    *,
    coords: np.ndarray,
    labels: Mapping[str, str],
    strongest: str,
) -> tuple[tuple[Table, ...], tuple[ScatterPlot | Figure, ...]]:
    """Tables and figures of the report; the figures are written into the folder's `figures`.

    Args:
        folder: The run folder.
        data: All n records.
        measured: Exposure of the attacked records by each attack and baseline.
        reconstructions: (m, d), one of each.
        coords: (n, k) the release. The first figure is its map where k is 2.
        labels: Label of each attack and baseline.
        strongest: Name of the strongest attack.
    """
    best = measured[strongest]
    worst = np.argsort(best.rank)
    tables = [_ranking(data, best, worst, labels[strongest])]
    if data.plan is not None:
        found = learned.learned(data, best.row, reconstructions[strongest])
        tables.insert(0, learned.table(found, labels[strongest]))
    drawn = []
    if describe.is_image(data.shape):
        some = worst[:WORST_PICTURES]
        shown = {labels[name]: x[some] for name, x in reconstructions.items() if name != "mean"}
        truth = data.x[best.row[some]]
        alt = alt_texts.image_grid(truth, shown)
        drawn.append(("worst", plots.image_grid(truth, shown, data.shape), (*PICTURES, alt)))
    else:
        listed = _features if data.plan is None else _columns
        tables.append(listed(data, best, worst, reconstructions[strongest], labels[strongest]))
    errors = {labels[name]: m.error for name, m in measured.items() if name != "nearest"}
    alt = alt_texts.error_distribution(errors, best.nearest_error)
    drawn.append(("exposure", plots.error_distribution(errors, best.nearest_error), (*CURVE, alt)))
    shown = (_map(data, best, coords, labels[strongest]),) if coords.shape[1] == 2 else ()
    return tuple(tables), (*shown, *save_figures(folder, drawn))


SCALING = (
    "Every feature was scaled to run from 0 to 1, and the adversary knows the scaling, which the range of the unknown "
    "record may have set."
)
"""What the audit's own releases are made of."""


def assumptions(data: Dataset, method: DRMethod, n_attacked: int, *, scaling: str = SCALING) -> tuple[str, ...]:
    """Who the adversary is, what they know and what was attacked; whole sentences.

    Args:
        data: All records.
        method: Method of the release.
        n_attacked: Number of records that were attacked.
        scaling: Sentence on the units of the records.
    """
    n = len(data.x)
    sentences = [
        f"There is one release, of all {n:,} records. Each attacked record was in turn the one unknown record: the "
        f"adversary knows the other {n - 1:,}, and which row of the release is the unknown record's.",
        "The adversary knows the method and its settings, and sees the published coordinates of all records.",
        "The adversary has no other data: what is to be expected of a record comes from the known ones.",
        scaling,
    ]
    if n_attacked < n:
        sentences.append(f"{n_attacked:,} of the {n:,} records were attacked, drawn at random.")
    if not method.deterministic:
        sentences.append("The method is randomised; the attacks use no knowledge of its random seed.")
    if data.groups is not None:
        sentences.append("Records of one person or group may be among the known ones, and then help the adversary.")
    if data.provenance.note:
        sentences.append(f"About the data: {data.provenance.note.strip()}")
    return tuple(sentences)


def _map(data: Dataset, best: Exposure, coords: np.ndarray, label: str) -> ScatterPlot:
    """The release as a picture, each record coloured by what the strongest attack leaves of a guess's error."""
    n, m = len(coords), len(best.row)
    shares, rebuilt = np.full(n, np.nan), np.zeros(n, bool)
    is_known = np.isfinite(best.error) & (best.mean_error > 0)
    shares[best.row[is_known]] = best.error[is_known] / best.mean_error[is_known]
    rebuilt[best.row] = best.is_rebuilt
    left = ["not attacked"] * (m < n) + ["not measured"] * (not is_known.all())
    return ScatterPlot(
        title="The map, and who is exposed on it",
        points=coords,
        shares=shares,
        labels=tuple(data.called(i) for i in range(n)),
        marked=tuple(int(best.row[i]) for i in np.argsort(best.rank) if is_known[i])[:WORST_ROWS],
        rebuilt=rebuilt,
        caption=f"The attack is “{label}”, the strongest one.",
        guess="of the error of guessing the mean",
        unknown=" or ".join(left) or "not attacked",
    )


def _ranking(data: Dataset, best: Exposure, worst: np.ndarray, label: str) -> Table:
    failed, beyond = int((~np.isfinite(best.error)).sum()), int((best.chance < exposure.SINGLE_LEVEL).sum())
    counted = " Rows count from 0." if data.rows is None else ""
    return Table(
        title="The most exposed records",
        paragraphs=(
            f"By “{label}”, the strongest attack. {int(best.is_rebuilt.sum()):,} of {len(best.row):,} records were "
            "rebuilt, which is more closely than the most similar other record and with less than half of the error of "
            f"guessing the mean of the others, {beyond:,} of them beyond what chance "
            f"explains, and {int(best.is_identified.sum()):,} were told from all others"
            f"{f'; {failed:,} could not be scored' if failed else ''}.{counted} All records are in {TABLE}.",
        ),
        headers=(
            "Row" if data.rows is None else "Record",
            "Rank",
            "Error (MSE)",
            "Most similar other record",
            "Mean of the others",
            "Ratio to the lower of both",
            "Rebuilt",
            "Identified",
        ),
        rows=tuple(
            (
                f"{best.row[i]:,}" if data.rows is None else data.called(int(best.row[i])),
                f"{best.rank[i]:,}",
                number(float(best.error[i])),
                number(float(best.nearest_error[i])),
                number(float(best.mean_error[i])),
                number(float(best.ratio[i])),
                "yes" if best.is_rebuilt[i] else "no",
                "yes" if best.is_identified[i] else "no",
            )
            for i in worst[:WORST_ROWS]
        ),
    )


def _features(data: Dataset, best: Exposure, worst: np.ndarray, reconstructed: np.ndarray, label: str) -> Table:
    some = [i for i in worst[:WORST_RECORDS] if np.isfinite(best.error[i])]
    names = data.feature_names or tuple(f"feature {j}" for j in range(data.x.shape[1]))
    truth = data.x[best.row[some]].astype(np.float64) * data.scale + data.offset
    guess = reconstructed[some] * data.scale + data.offset
    left_out = f" The first {WORST_FEATURES} of {len(names)} features." if len(names) > WORST_FEATURES else ""
    return Table(
        title="What was taken back of them",
        paragraphs=(f"True values and what “{label}” rebuilt, in the units of the data.{left_out}",),
        headers=("Feature", *(text for i in some for text in (f"Row {best.row[i]:,}", "rebuilt"))),
        rows=tuple(
            (name, *(f"{value[j]:.4g}" for pair in zip(truth, guess, strict=True) for value in pair))
            for j, name in enumerate(names[:WORST_FEATURES])
        ),
    )


def _columns(data: Dataset, best: Exposure, worst: np.ndarray, reconstructed: np.ndarray, label: str) -> Table:
    """True and rebuilt values of an own table, as it writes them."""
    some = [i for i in worst[:WORST_RECORDS] if np.isfinite(best.error[i])]
    assert data.plan is not None
    assert data.values is not None
    columns = data.plan.used[:WORST_FEATURES]
    truth = data.values[best.row[some]]
    guess = np.asarray(reconstructed[some], np.float64) * data.scale + data.offset
    left_out = f" The first {WORST_FEATURES} columns." if len(data.plan.used) > WORST_FEATURES else ""
    at = [[j for j, source in enumerate(data.sources) if source == column.name] for column in columns]
    pairs = [values for pair in zip(truth, guess, strict=True) for values in pair]
    return Table(
        title="What was taken back of them",
        paragraphs=(f"True values and what “{label}” rebuilt.{left_out}",),
        headers=("Column", *(text for i in some for text in (data.called(int(best.row[i])), "rebuilt"))),
        rows=tuple(
            (
                column.name,
                *(learned.shown(column, values[own]) for values in pairs),
            )
            for column, own in zip(columns, at, strict=True)
        ),
    )
