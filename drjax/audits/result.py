"""What an audit found."""

from __future__ import annotations

import html
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
from matplotlib.figure import Figure as Drawing

from drjax.attacks.exposure import Exposure
from drjax.attacks.recognition import Belief
from drjax.audits.quality import ReleaseScores
from drjax.data.frames import frame_of
from drjax.reports import ladder, plots
from drjax.reports.curve import DefenseCurve
from drjax.reports.ladder import LadderRow
from drjax.reports.sections import Verdict

SHOWN = 9
"""Rows of the ladder that the text of a result holds, at most."""


@dataclass(frozen=True, repr=False)
class AuditResult:
    """What an audit found.

    Attributes:
        folder: The run folder.
        report: Path of the HTML report in it.
        rows: The attack ladder.
        verdict: Verdict on the ladder.
        reconstructions: Attack name -> (m, d).
        targets: (m, d) the truth.
        quality: Quality of the attacked releases as embeddings; None where it cannot be measured.
        curve: Curve of the defence; None if none was asked for.
        exposure: Exposure of every attacked record, by the strongest attack; None unless every record was attacked.
        table: Path of the CSV file with one line per record; None unless every record was attacked.
        accuracy: Accuracy of the released models on public records; None unless models were attacked.
        belief: What a published map shows of how it was made; None unless one was recognised.
        options: Other things to publish, a `drjax.decisions.found.Found`; None without a search.
    """

    folder: Path
    report: Path
    rows: tuple[LadderRow, ...]
    verdict: Verdict
    reconstructions: dict[str, np.ndarray]
    targets: np.ndarray
    quality: ReleaseScores | None = None
    curve: DefenseCurve | None = None
    exposure: Exposure | None = None
    table: Path | None = None
    accuracy: float | None = None
    belief: Belief | None = None
    options: Any = None

    @property
    def ladder(self) -> Any:
        """The ladder as a DataFrame (a pyarrow table without pandas): a row for each baseline and attack."""
        columns: dict[str, list[Any]] = {"attack": [row.label for row in self.rows]}
        columns["is_baseline"] = [row.is_baseline for row in self.rows]
        for name in ("mse", "mse_median", "success", "identification"):
            intervals = [getattr(row.scores, name) for row in self.rows]
            columns |= {name: [i.estimate for i in intervals], f"{name}_low": [i.low for i in intervals]}
            columns[f"{name}_high"] = [i.high for i in intervals]
        columns["rebuilt"] = [row.scores.gain.rebuilt.estimate if row.scores.gain else None for row in self.rows]
        return frame_of(pa.table(columns))

    @property
    def exposed(self) -> Any:
        """The table of all attacked records as a DataFrame (a pyarrow table without pandas), the most exposed first:
        rank, row, id and line of an own table, errors; None unless every record was attacked. Private."""
        if self.table is None:
            return None
        # Ids are texts, whatever they look like.
        as_text = pyarrow.csv.ConvertOptions(column_types={"id": pa.string()})
        return frame_of(pyarrow.csv.read_csv(self.table, convert_options=as_text))

    def figure(self) -> Drawing:
        """The ladder as a matplotlib figure, which notebooks show."""
        return plots.ladder(self.rows)

    def save(self, folder: str | Path) -> Path:
        """Copies the run folder, for its owner alone to read; returns the copy.

        Raises:
            ValueError: the folder exists.
            OSError: it cannot be written.
        """
        out = Path(folder)
        if out.exists():
            raise ValueError(f"folder must be a new one, got {out} which exists")
        with tempfile.TemporaryDirectory(dir=out.parent, prefix=".drjax-") as part:
            shutil.copytree(self.folder, Path(part) / "run").chmod(0o700)
            (Path(part) / "run").rename(out)
        return out

    def __repr__(self) -> str:
        """The verdict, and the attacks that say most; ten lines at most."""
        return "\n".join([f"{self.verdict.headline}. Report: {self.report}", *map("  ".join, self._lines())])

    def _repr_html_(self) -> str:
        """The same for a notebook."""
        cells = ("".join(f"<td>{html.escape(cell)}</td>" for cell in line) for line in self._lines())
        body = "".join(f"<tr>{line}</tr>" for line in cells)
        headline = f"{self.verdict.headline}. {self.verdict.sentence}"
        return f"<p>{html.escape(headline)}</p><table>{body}</table><p>{html.escape(str(self.report))}</p>"

    def _lines(self) -> list[tuple[str, str, str]]:
        """Label, mean squared error and identification rate of the baselines and of the best attacks."""
        ranked = sorted(self.rows, key=lambda row: (not row.is_baseline, row.scores.mse.estimate))
        return [
            (
                row.label,
                f"MSE {ladder.number(row.scores.mse.estimate)}",
                f"identified {ladder.percent(row.scores.identification.estimate)}",
            )
            for row in ranked[:SHOWN]
        ]
