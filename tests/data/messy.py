"""The table that a hospital's data owner has: ids, dates, codes, limits such as <5, and cells that are missing.

Every patient has an age, a severity and a metabolic burden, whose means are those of the ward; all other columns follow
these, so that maps of the table have structure. Missing cells are written in another way in each column.
"""

from __future__ import annotations

import csv
import datetime
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

WARDS = {
    "General medicine": (0.26, 66, 15, 0.0, 0.2, "E86.0 N39.0 A41.9 K52.9 D64.9 E11.9 R55.0 N17.9"),
    "Cardiology": (0.21, 70, 11, 0.5, 0.9, "I50.1 I21.4 I48.0 I20.0 I25.1 I10.0 I35.0 I47.1"),
    "Surgery": (0.16, 52, 17, -0.1, -0.2, "K80.0 K35.8 K40.9 K57.3 K56.6 L02.2 K43.9 I83.9"),
    "Orthopaedics": (0.12, 61, 18, -0.7, 0.1, "M17.1 S72.0 M16.1 S82.8 S52.5 M54.5 M75.1 S42.2"),
    "Pulmonology": (0.09, 67, 12, 0.7, 0.0, "J44.1 J18.9 J45.9 J20.9 J96.0 J15.9 J84.1"),
    "Obstetrics": (0.07, 31, 5, -1.2, -1.1, "O80.0 O82.0 O42.0 O14.1 O60.1 O24.4 O62.2"),
    "Neurology": (0.06, 64, 17, 0.3, 0.3, "I63.9 G40.9 G45.9 G35.0 G20.0 I61.9 G43.9"),
    "Oncology": (0.03, 63, 11, 1.1, -0.7, "C34.1 C50.9 C18.7 C61.0 C25.0 C83.3 C90.0"),
}
"""By ward: its share, mean and spread of the age, means of severity and burden, its diagnoses, most frequent first."""

SEVERITY = ("mild", "moderate", "severe", "critical")

VOCABULARY = (
    "patient stable, afebrile alert oriented reviewed mobile pain improving unchanged discussed with family plan "
    "repeat bloods tomorrow continue antibiotics oral fluids encouraged chest clear abdomen soft wound dry dressing "
    "changed slept well appetite poor nausea; vomiting settled awaiting scan results physiotherapy referral social "
    "worker informed discharge planned review monday dose reduced allergies none known home support needed lives alone "
    "walks unaided oxygen weaned catheter removed follow-up arranged"
)

_UMLAUTS = {"Surgery": "Gefäßchirurgie", "Obstetrics": "Geburtshilfe für Frauen"}
_YEAR = 365.2425


@dataclass(frozen=True)
class Messy:
    """A table as its owner exports it, and what it says.

    Attributes:
        text: A CSV file, separated by commas, header on the first line.
        kinds: What each column is: "id", "text", "date", "time", "number", "category", "ordinal", "yes/no", "constant"
            or "empty".
        columns: True values of each column, None where missing: numbers and scales of numbers as floats, those beyond a
            limit as measured; dates and times as those of `datetime`; yes and no as bool; all else as text.
    """

    text: str
    kinds: dict[str, str]
    columns: dict[str, list]


class _Table:
    """Columns as they are added: what each is, its true values and its cells."""

    def __init__(self, rng: np.random.Generator, n: int) -> None:
        self.rng, self.n = rng, n
        self.kinds: dict[str, str] = {}
        self.columns: dict[str, list] = {}
        self.cells: dict[str, list[str]] = {}

    def some(self, share: float) -> np.ndarray:
        """Rows (n,) drawn by chance."""
        return self.rng.random(self.n) < share

    def add(
        self,
        name: str,
        kind: str,
        values: Sequence[Any] | np.ndarray,
        write: Callable[[Any], str] = str,
        *,
        missing: np.ndarray | None = None,
        as_missing: str = "",
    ) -> None:
        """Adds a column; `missing` are rows (n,) whose cells become `as_missing`."""
        listed = values.tolist() if isinstance(values, np.ndarray) else list(values)
        gone = [False] * self.n if missing is None else missing.tolist()
        self.kinds[name] = kind
        self.columns[name] = [None if no else value for value, no in zip(listed, gone, strict=True)]
        self.cells[name] = [as_missing if no else write(value) for value, no in zip(listed, gone, strict=True)]

    def messy(self) -> Messy:
        """The table as a file."""
        rows = [list(self.cells), *map(list, zip(*self.cells.values(), strict=True))]
        return Messy(_written(rows), self.kinds, self.columns)


def patients(n: int = 3000, seed: int = 0) -> Messy:
    """Admissions of a hospital, one row a patient, in 26 columns of which 21 can be embedded.

    Args:
        n: Rows, 100 at least.
        seed: Of all that is drawn.

    Returns:
        The table, which is another for every seed.

    Raises:
        ValueError: fewer than 100 rows.
    """
    if n < 100:
        raise ValueError(f"n must be at least 100, got {n}: fewer rows lack some of what makes the table messy")
    rng = np.random.default_rng(seed)
    table = _Table(rng, n)

    def normal(spread: float = 1.0) -> np.ndarray:
        return spread * rng.standard_normal(n)

    shares, ages, spreads, severities, burdens = (np.array(of) for of in list(zip(*WARDS.values(), strict=True))[:5])
    names = np.array(list(WARDS))
    ward = rng.choice(len(names), n, p=shares / shares.sum())
    is_ward = {name: ward == i for i, name in enumerate(WARDS)}
    years = np.clip(ages[ward] + spreads[ward] * normal(), 18.2, 98)
    old = (years - 60) / 18
    severity = severities[ward] + 0.3 * old + normal(0.8)
    burden = burdens[ward] + 0.25 * old + normal(0.8)
    is_male = (rng.random(n) < 0.52) & ~is_ward["Obstetrics"]

    # Stay: admissions are of two years, those planned in the morning.
    admitted = np.datetime64("2022-01-01") + rng.integers(0, 730, n)
    is_planned = rng.random(n) < np.where(is_ward["Orthopaedics"] | is_ward["Oncology"], 0.85, 0.25 - 0.1 * severity)
    minutes = np.where(is_planned, 500 + normal(50), 840 + normal(270)).astype(int) % (24 * 60)
    days = np.clip(np.exp(1.2 + 0.45 * severity + 0.2 * old + normal(0.45)), 1, 90).astype(int)
    left = (admitted + days).astype("datetime64[m]") + rng.integers(9 * 60, 17 * 60, n)
    birth = admitted - np.rint(years * _YEAR).astype(int)
    still_there = table.some(0.04)

    # Body: the index is that of the weight and height as written.
    height = np.rint(np.where(is_male, 177, 164.5) - 0.08 * (years - 50) + normal(6.2))
    fat = np.exp(3.26 + 0.13 * burden + 0.12 * is_ward["Obstetrics"] + normal(0.1))
    weight = np.round(np.clip(fat, 15, 60) * (height / 100) ** 2, 1)
    unweighed = table.some(0.05)

    # Laboratory and the rest, one factor or two each.
    saturation = np.rint(np.clip(96.5 - 1.6 * severity - 2.5 * is_ward["Pulmonology"] + normal(1.2), 68, 100))
    rate = np.rint(np.clip(77 + 8 * severity - 2 * old + normal(8), 38, 180))
    inflamed = is_ward["Pulmonology"] | is_ward["Surgery"]
    crp = _spread_from(severity + 0.9 * inflamed + normal(0.5), 0.25, 5.0, 0.9)
    heart = 1.6 * is_ward["Cardiology"] + 0.7 * severity + 0.4 * old + normal(0.5)
    troponin = _spread_from(heart, 0.25, 0.01, 8.5 / (np.quantile(heart, 0.985) - np.quantile(heart, 0.25)))
    income = np.round(np.exp(7.8 - 0.25 * burden - 0.2 * np.abs(old + 0.7) + normal(0.35)), 2)
    pain = np.rint(np.clip(3.4 + 1.3 * severity + 2.2 * is_ward["Orthopaedics"] + normal(1.3), 0, 10))
    grades = np.searchsorted(np.quantile(severity, [0.45, 0.78, 0.94]), severity)
    smokes = _chance(rng, -1.3 + 0.5 * is_male + 0.6 * burden + 1.5 * is_ward["Pulmonology"])
    is_diabetic = _chance(rng, -1.9 + 1.5 * burden + 0.4 * old)
    words = VOCABULARY.split()
    note = rng.random((n, len(words))).argsort(1)[:, :15]
    notes = [" ".join(words[i] for i in row[:k]) for row, k in zip(note, rng.integers(4, 16, n), strict=True)]

    table.add("patient_id", "id", rng.choice(999_999, n, replace=False), "P{:06d}".format)
    table.add("mrn", "id", 10_000_000 + rng.choice(90_000_000, n, replace=False))
    for name in ("patient_id", "mrn"):
        table.columns[name] = list(table.cells[name])
    table.add("admitted", "date", admitted)
    table.add("discharged", "date", left, _to_the_minute, missing=still_there)
    table.add("date of birth", "date", birth, lambda day: f"{day:%d.%m.%Y}")
    clocks = [datetime.time(*divmod(at, 60)) for at in minutes.tolist()]
    table.add("time of admission", "time", clocks, lambda clock: f"{clock:%H:%M}")
    table.add("age", "number", _ages(birth, admitted), _whole)
    table.add("sex", "category", np.where(is_male, "M", "F"), missing=table.some(0.01))
    table.add("ward", "category", names[ward])
    table.add("diagnosis", "category", _diagnoses(rng, ward))
    table.add("severity", "ordinal", np.array(SEVERITY)[grades])
    table.add("pain", "ordinal", pain, _whole)
    table.add("smoker", "yes/no", smokes, _choose("yes", "no"), missing=table.some(0.06), as_missing="unknown")
    table.add("diabetic", "yes/no", is_diabetic, _choose("Y", "N"))
    table.add("weight_kg", "number", weight, missing=unweighed)
    table.add("height_cm", "number", height, _whole)
    table.add("bmi", "number", np.round(weight / (height / 100) ** 2, 1), missing=unweighed)
    table.add("saturation", "number", saturation, "{:.0f}%".format, missing=table.some(0.02), as_missing="-")
    table.add("crp", "number", *_limited(crp, 1, 5))
    table.add("troponin", "number", *_limited(troponin, 2, 0.01, 50))
    table.add("heart_rate", "number", rate, _whole, missing=table.some(0.03), as_missing="n/a")
    row = int(rng.integers(n))
    table.columns["heart_rate"][row], table.cells["heart_rate"][row] = None, "see note"
    table.add("length_of_stay", "number", days.astype(float), _whole, missing=still_there)
    table.add("monthly income", "number", income, "{:,.2f}".format, missing=table.some(0.08), as_missing="NA")
    table.add("notes", "text", notes, missing=table.some(0.3))
    table.add("hospital", "constant", ["St Anna Hospital"] * n)
    table.add("comment2", "empty", [""] * n, missing=np.ones(n, bool))
    return table.messy()


def variants(messy: Messy) -> dict[str, bytes]:
    """The same table as other programs export it.

    Args:
        messy: The table.

    Returns:
        Files by what is different in each. Decimal commas come with points between thousands, and with wards that have
        an umlaut; no other variant changes a cell.
    """
    head, *rows = csv.reader(io.StringIO(messy.text))
    is_number = [messy.kinds[name] == "number" for name in head]
    ward = head.index("ward")
    swap = str.maketrans(",.", ".,")
    european = [
        [cell.translate(swap) if swaps else cell for cell, swaps in zip(row, is_number, strict=True)] for row in rows
    ]
    for row in european:
        row[ward] = _UMLAUTS.get(row[ward], row[ward])
    stays = [float(days) for days in messy.columns["length_of_stay"] if days is not None]
    totals = [{"patient_id": "Total", "length_of_stay": _whole(sum(stays))}.get(name, "") for name in head]
    semicolons = _written([head, *european], ";", "\r\n")
    report = f"Admissions 2022 to 2023\n\n{messy.text}{_written([totals])}"
    return {
        "semicolon with decimal commas, Windows-1252": semicolons.encode("cp1252"),
        "tab, UTF-16": _written([head, *rows], "\t", "\r\n").encode("utf-16"),
        "BOM": messy.text.encode("utf-8-sig"),
        "title and blank line above, totals below": report.encode(),
    }


def _written(rows: Sequence[Sequence[str]], delimiter: str = ",", end: str = "\n") -> str:
    file = io.StringIO()
    csv.writer(file, delimiter=delimiter, lineterminator=end).writerows(rows)
    return file.getvalue()


def _to_the_minute(when: datetime.datetime) -> str:
    return when.isoformat(timespec="minutes")


def _whole(value: float) -> str:
    return f"{value:.0f}"


def _choose(yes: str, no: str) -> Callable[[bool], str]:
    return lambda value: yes if value else no


def _chance(rng: np.random.Generator, log_odds: np.ndarray) -> np.ndarray:
    return rng.random(len(log_odds)) < 1 / (1 + np.exp(-log_odds))


def _spread_from(factor: np.ndarray, share: float, limit: float, slope: float) -> np.ndarray:
    """A skewed measurement (n,) of which a share is below the limit."""
    return limit * np.exp(slope * (factor - np.quantile(factor, share)))


def _limited(values: np.ndarray, decimals: int, low: float, high: float = np.inf) -> tuple[list, Callable[[Any], str]]:
    """Values as measured, rounded between the limits only, and what writes them."""
    is_between = (values >= low) & (values <= high)

    def write(value: float) -> str:
        if value < low:
            return f"<{low}"
        return f">{high}" if value > high else f"{value:.{decimals}f}"

    return np.where(is_between, np.round(values, decimals), values).tolist(), write


def _ages(birth: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Birthdays (n,) that a person has had on a day."""
    months = at.astype("datetime64[M]").astype(int) - birth.astype("datetime64[M]").astype(int)
    day, day_of_birth = (when - when.astype("datetime64[M]").astype("datetime64[D]") for when in (at, birth))
    return ((months - (day < day_of_birth)) // 12).astype(float)


def _diagnoses(rng: np.random.Generator, ward: np.ndarray) -> np.ndarray:
    """Codes (n,), by rank as Zipf says: most are of the ward, and of others' only what is no birth."""
    lists = [of[-1].split() for of in WARDS.values()]
    codes = [(rank, home, code) for home, of in enumerate(lists) for rank, code in enumerate(of)]
    codes.sort()
    homes = np.array([home for _, home, _ in codes])
    obstetrics = list(WARDS).index("Obstetrics")
    weight = np.where(homes == np.arange(len(lists))[:, None], 40.0, 1.0)
    weight[:, homes == obstetrics] = 0
    weight[obstetrics] = homes == obstetrics
    weight /= np.arange(1, len(codes) + 1)
    to = np.cumsum(weight / weight.sum(1, keepdims=True), 1)
    to[:, -1] = 1
    return np.array([code for *_, code in codes])[(to[ward] <= rng.random((len(ward), 1))).sum(1)]
