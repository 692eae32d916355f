"""`drjax attack membership`: which candidates are among the records of a published PCA?"""

from __future__ import annotations

import csv
import dataclasses
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import jax
import numpy as np
import pyarrow as pa
import tyro
from rich.console import Console
from rich.table import Table as Grid

from drjax.attacks import roc
from drjax.attacks.membership_attacks import ComponentsThreat, MembershipAttack
from drjax.attacks.registry import ATTACKS, answer, fitting
from drjax.cli.commands import check_new
from drjax.core import validate
from drjax.core.statistics import Interval
from drjax.data import table_cells
from drjax.data.checksums import sha256
from drjax.data.kind_words import NO, YES
from drjax.data.own_units import labelled_records_of
from drjax.releases import figures, published
from drjax.releases.inputs import Table
from drjax.releases.published import Intercepted
from drjax.reports import plots, records

RATES = (0.01, 0.001)

STRONGEST = "strongest"

NAMES = (STRONGEST, *(name for name, attack in ATTACKS["components"].items() if attack.works_on_files))
"""Names of the attacks whose needs files can meet."""

WHERE = {
    "public": "--public",
    "n_records": "--n-records",
    "noise": "--manifest",
    "matrix": "moment among the components",
}
"""What meets a need of an attack; other needs are met by arrays of their name among the components."""


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """Whose membership is asked about: --candidates, or --members and --others to measure the attack.

    Attributes:
        candidates: Candidate records, one a row (CSV, Excel, Parquet, NPY or NPZ).
        label: Column of --candidates with the truth, 1 or yes for members and 0 or no for others; no feature.
        members: Records that were in the release.
        others: Records that were not in the release.
    """

    candidates: Path | None = None
    label: str | None = None
    members: Path | None = None
    others: Path | None = None

    @property
    def files(self) -> list[Path]:
        """The one file, or members and others.

        Raises:
            ValueError: options that do not go together.
        """
        pair = (self.members, self.others)
        if self.candidates is None:
            if None in pair or self.label is not None:
                raise ValueError("candidates must be given, or members and others both and no label")
            return [path for path in pair if path is not None]
        if pair != (None, None):
            raise ValueError("members and others must be left out with --candidates: use --label for the truth")
        return [self.candidates]

    def truth(self, tables: Sequence[Table], labels: Sequence[pa.ChunkedArray | None]) -> np.ndarray | None:
        """For each row of the tables whether it is a member, if that is known.

        Raises:
            ValueError: a label that is neither 0 and 1 nor no and yes.
        """
        if self.candidates is None:
            return np.repeat([True, False], [len(table.values) for table in tables])
        if self.label is None:
            return None
        if labels[0] is None:
            held = ", ".join((tables[0].columns or ("no names of columns",))[:10])
            raise ValueError(
                f"{tables[0].source} must have the columns that options name, got no {self.label!r} in {held}"
            )
        texts = [str(text).lower().removesuffix(".0") for text in table_cells.cell_texts(labels[0])]
        wrong = [text for text in texts if text not in NO | YES]
        if wrong:
            raise ValueError(
                f"label must be a column of 0 and 1, or of no and yes, got {wrong[0]!r} in {self.label!r} of "
                f"{tables[0].source}"
            )
        return np.isin(texts, list(YES))


def _read(
    who: Candidates, public: Path | None, schema: Path | None
) -> tuple[list[Table], np.ndarray | None, Table | None]:
    """Tables of candidates, which are members if that is known, and the public table; says what a plan made of them."""
    files = [*who.files, *(() if public is None else (public,))]
    for path in files:
        if not path.is_file():
            raise FileNotFoundError(f"there is no file {path}: check the path")
    found = labelled_records_of(*files, schema=schema, label=who.label, only_common=True)
    read = [
        Table(path, values.x.astype(np.float64), values.names or None, None, sha256(path.read_bytes()))
        for path, values in zip(files, found.values, strict=True)
    ]
    if found.plan is not None:
        print(found.plan.in_words(files[0]))
    tables = read[: len(who.files)]
    return tables, who.truth(tables, found.labels), None if public is None else read[-1]


def attack_membership(
    components: Path,
    out: Path,
    *,
    who: Annotated[Candidates, tyro.conf.arg(name="")] = Candidates(),
    public: Path | None = None,
    manifest: Path | None = None,
    n_records: int | None = None,
    centred: bool = False,
    standardise_by: Literal["nothing", "public"] = "nothing",
    schema: Path | None = None,
    attack: Annotated[str, tyro.conf.arg(metavar=f"{{{','.join(NAMES)}}}")] = STRONGEST,
    n_shadows: int = 32,
    top: int = 10,
    plot: Path | None = None,
    seed: int = 0,
) -> None:
    """Score candidates for membership in the records that principal components were computed from.

    Values are used as they are: candidates and public records must be in the units that the components were computed
    in. Columns of tables are matched by name where the components name theirs. Tables that hold more than numbers
    become features by one plan of all of them, which is said: "sex=F" is the name of one.

    Args:
        components: The release: NPZ with components (k, d) and, if published, eigenvalues (of X^T X / N), mean (of the
            records) and n_records; what `drjax release pca` writes; or CSV or NPY with a component a row.
        out: CSV or NPZ file to write: a score for each candidate, larger for members.
        who: The candidates.
        public: Other records of the same kind, as many as the release has or more: for the strongest attack.
        manifest: Manifest of `drjax release pca`, from which the attack takes the noise and the clipping of records.
        n_records: Number of records of the release, if no file says it.
        centred: Whether the curator subtracted the records' mean without publishing it.
        standardise_by: Standardisation of columns: public subtracts their mean among the public records and divides by
            their deviation.
        attack: Attack to run; strongest takes the best that the files allow.
        n_shadows: Number of shadow releases, made from public records.
        top: Number of most likely members to print.
        plot: PNG file to write where the truth is known: the ROC curve, and the ceiling that a manifest proves.
        seed: Random seed of shadow releases and of intervals.
    """
    validate.one_of(NAMES, attack=attack)
    validate.integer(minimum=2, n_shadows=n_shadows)
    validate.integer(minimum=0, top=top, seed=seed)
    if out.suffix not in (".csv", ".npz"):
        raise ValueError(f"out must end in .csv or .npz, got {out}")
    for file in (out, *(() if plot is None else (plot,))):
        check_new(file)
    found = published.intercept(components, manifest=manifest, n_records=n_records, centred=centred)
    tables, is_member, sample = _read(who, public, schema)
    if plot is not None and is_member is None:
        raise ValueError("plot must be left out where nobody says who the members are: --label, or --members --others")
    if standardise_by == "public":
        if sample is None:
            raise ValueError("public must be given with --standardise-by public")
        found = published.standardised(found, sample)
    candidates = np.concatenate([found.prepared(table) for table in tables])
    threat = published.threat(found, candidates, None if sample is None else found.prepared(sample))
    chosen = dataclasses.replace(_chosen(attack, threat), n_shadows=n_shadows)
    attack_key, figure_key = jax.random.split(jax.random.key(seed))
    name, scores = chosen.name, answer(chosen, attack_key, threat).scores
    rows = np.concatenate([np.arange(len(table.values)) for table in tables])
    _write(out, rows, scores, is_member)
    console = Console()
    print(_released(found))
    print(f"Attack: {name}, {chosen.why}.")
    print(_units(found, standardise_by))
    if top:
        console.print(_grid(rows, scores, is_member, top))
    if is_member is not None:
        print("\n".join(_figures(figure_key, found, scores, is_member)))
        if plot is not None:
            curve = roc.roc_curve(scores, is_member)
            ceilings = {} if found.curve is None else {"no attack is above this": found.curve}
            plots.save_figure(figures.roc_under_ceilings({name: (curve.fpr, curve.tpr)}, ceilings), plot)
            print(f"Written: {plot}")
    print(f"Written: {out}")


def _chosen(name: str, threat: ComponentsThreat) -> MembershipAttack:
    """The attack of a name, or the strongest that fits.

    Raises:
        ValueError: one that needs what is not there.
    """
    if name == STRONGEST:
        return next(iter(fitting(threat).values()))
    attack = ATTACKS[threat.kind][name]
    hints = [WHERE.get(need, f"{need} among the components") for need in attack.missing(threat.has)]
    if hints:
        raise ValueError(f"attack {name} must have {' and '.join(hints)}, got none")
    return attack


def _write(out: Path, rows: np.ndarray, scores: np.ndarray, is_member: np.ndarray | None) -> None:
    """One line per candidate in the order of the files, rows counted from 0."""
    rank = np.empty(len(scores), np.int64)
    rank[np.argsort(-scores, kind="stable")] = np.arange(1, len(scores) + 1)
    columns = {"row": rows, "score": scores, "rank": rank}
    if is_member is not None:
        columns["member"] = is_member.astype(np.int64)
    if out.suffix == ".npz":
        records.save_arrays(out, **columns)
        return
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*(column.tolist() for column in columns.values()), strict=True))
    records.atomic_write_text(out, text.getvalue())


def _released(found: Intercepted) -> str:
    release = found.release
    parts = [name for name in ("eigenvalues", "mean") if getattr(release, name) is not None]
    parts += ["the noisy second moment"] if found.moment is not None else []
    of = "" if release.n_records is None else f" of {release.n_records:,} records"
    held = f", with {' and '.join(parts)}" if parts else ""
    return f"Release: {release.n_components} components of {release.components.shape[1]} columns{of}{held}."


def _units(found: Intercepted, standardise_by: str) -> str:
    if found.mechanism is not None:
        return "Values are centred, scaled and cut as those of the release were."
    if standardise_by == "public":
        return "Values are standardised by the public records."
    if found.center.any() or (found.scale != 1).any():
        return "Values are centred and scaled by the vectors that come with the components."
    return "Values are used as they are: they must be in the units that the components were computed in."


def _grid(rows: np.ndarray, scores: np.ndarray, is_member: np.ndarray | None, top: int) -> Grid:
    heads = ["rank", "row", "score", *([] if is_member is None else ["member"])]
    grid = Grid(*heads, title="Most likely members", title_justify="left")
    for rank, i in enumerate(np.argsort(-scores, kind="stable")[:top], start=1):
        truth = [] if is_member is None else ["yes" if is_member[i] else "no"]
        grid.add_row(str(rank), str(rows[i]), f"{scores[i]:.4g}", *truth)
    return grid


def _figures(key: jax.Array, found: Intercepted, scores: np.ndarray, is_member: np.ndarray) -> list[str]:
    measured = roc.evaluate(key, scores, is_member, rates=RATES)
    lines = [f"{measured.n_members:,} members and {measured.n_non_members:,} others; figures with 95% intervals."]
    ceiling = "" if found.curve is None else f"; the guarantee allows {roc.auc_ceiling(found.curve):.3f} at most"
    lines.append(f"AUC: {_interval(measured.auc)} (guessing: 0.5){ceiling}")
    for rate, value in measured.tpr.items():
        most = "" if found.curve is None else f"; {float(found.curve.power(rate)):.4f} at most"
        lines.append(f"Members found at {rate:.1%} false alarms: {_interval(value)}{most}")
    lines.append(f"Balanced accuracy: {_interval(measured.balanced_accuracy.held_out)} (guessing: 0.5)")
    return lines


def _interval(value: Interval) -> str:
    if math.isnan(value.estimate):
        return "too few others"
    return f"{value.estimate:.3f} [{value.low:.3f}, {value.high:.3f}]"
