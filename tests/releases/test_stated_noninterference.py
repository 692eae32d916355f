"""As `test_noninterference`, for columns whose kinds are stated: dates, times, ranks, formats, fills and layouts."""

import itertools
import json

import numpy as np
import pytest

from drjax.data.private_tables import FILE
from drjax.releases import PCAReleaseConfig, release_pca
from drjax.releases.map import MapReleaseConfig, release_map
from drjax.releases.synthetic import SyntheticReleaseConfig, release_synthetic
from tests.releases.test_noninterference import (
    N,
    StubbedMoment,
    as_csv,
    as_parquet,
    close,
    neighbours,
    noise,
    published,
    stubbed_files,
)

__all__ = ["noise"]

PAIRS = 60
"""Neighbours of every setting."""

BOUNDS = {
    "born": {"kind": "date", "format": "%d.%m.%Y", "lower": "1920-01-01", "upper": "2006-01-01", "fill": "1960-01-01"},
    "came": {"kind": "time", "lower": "00:00", "upper": "23:59", "fill": "12:00", "scale": "half the range"},
    "grade": {"kind": "ordinal", "categories": ["mild", "moderate", "severe"], "fill": "mild"},
    "smoker": {"kind": "yes/no", "categories": ["no", "yes"], "fill": "no"},
    "crp": {"lower": 0, "upper": 100, "decimals": 1, "fill": 10, "missing": ["-9"], "scale": 20},
    "ward": {"categories": ["north", "south", "(other)"], "fill": "(other)"},
    "notes": "drop",
}
ODD = {
    "born": (
        "1950-03-01",
        "31.02.1950",
        "01.01.0001",
        "01/02/1950",
        "unknown",
        "",
        "5",
        "1950-03-01 14:30:59",
        "1e400",
    ),
    "came": ("30:15", "7:5", "2:30 PM", "", "noon", "00:00:00", "-1:00", "12:00:00.123456"),
    "grade": ("SEVERE", "deadly", "", "2", "mild ", "x" * 300, "nan"),
    "smoker": ("YES", "y", "", "1", "true", "unknown"),
    "crp": ("<5", ">50 mg/L", "1,234.5", "5,5", "-9", "1e400", "", "n/a", "$7", "5 ± 1", "(3)", "1.234.567"),
    "ward": ("NORTH", "", "unseen", "a,b", 'say "x"', "two\nlines", "ünï©ödé"),
    "notes": ("", "well; better", "1", "a\r\nb", '"'),
}


def usual(rng, n):
    """Records as text."""
    days = [f"{d:02d}.{m:02d}.{y}" for d, m, y in rng.integers([1, 1, 1930], [29, 13, 2000], (n, 3))]
    clocks = [f"{h:02d}:{m:02d}" for h, m in rng.integers([0, 0], [24, 60], (n, 2))]
    grade, smoker, ward = (
        rng.choice(o, n) for o in (["mild", "moderate", "severe"], ["no", "yes"], ["north", "south"])
    )
    rows = zip(days, clocks, grade, smoker, rng.uniform(5, 60, n).round(1), ward, ["well"] * n, strict=True)
    return [[str(cell) for cell in row] for row in rows]


def write_text(path, rows):
    as_csv(path, rows, tuple(BOUNDS))


def write_messy(path, rows):
    """Lines of a person's own making below a title, totals behind them; a record may have any cells in any number."""
    lines = [";".join(cell.replace("\r\n", " ").replace("\n", " ") for cell in row) for row in rows]
    path.write_text("\n".join(["Ward 3", "", ";".join(BOUNDS), *lines, "Total;;;;;12;", "* by hand"]) + "\n")


def write_typed(path, rows):
    """Numbers are typed unless one of them is none: one cell changes the type of the column."""
    at = list(BOUNDS).index("crp")
    as_parquet(path, [[*row[:at], number_or_text(row[at]), *row[at + 1 :]] for row in rows], tuple(BOUNDS))


def number_or_text(cell):
    try:
        return float(cell)
    except ValueError:
        return cell


SETTINGS = {
    "csv": ("p.csv", write_text, {}),
    "lines of a person's own making": (
        "p.csv", write_messy, {FILE: {"stated": {"first_line": 4, "lines_below": 2, "quotes": "line"}}}
    ),
    "parquet": ("p.parquet", write_typed, {}),
}  # fmt: skip


def tables(setting, tmp_path):
    """The path of a table, what writes it, its records, and the records of its neighbours."""
    name, write, layout = SETTINGS[setting]
    rng = np.random.default_rng(sum(map(ord, setting)))
    rows = usual(rng, N)
    (tmp_path / "bounds.json").write_text(json.dumps(BOUNDS | layout))
    odd = list(neighbours(rng, rows, ODD, PAIRS, usual))
    if write is write_messy:
        # A record with too few cells, with too many, and with none.
        for cells in (["01.01.1950"], [*rows[0], "more", "cells"], [" "], ['"open', *rows[0][1:]]):
            odd.append([*rows[:3], cells, *rows[4:]])
        # What an audit takes for a header that comes again, and for a total behind the records.
        odd += [[*rows[:3], list(BOUNDS), *rows[4:]], [*rows[:-1], ["Total", "", "", "", "12", "", ""]]]
    return tmp_path / name, write, rows, odd


def compared(make, setting, tmp_path, taken):
    path, write, rows, others = tables(setting, tmp_path)
    write(path, rows)
    make(path, tmp_path / "first")
    expected, kept = published(tmp_path / "first"), taken()
    for i, table in enumerate(others):
        write(path, table)
        make(path, tmp_path / f"out{i}")
        differing = [name for name, blob in published(tmp_path / f"out{i}").items() if blob != expected[name]]
        assert not differing, [pair for pair in itertools.zip_longest(rows, table) if pair[0] != pair[1]]
        yield kept, taken()


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_synthetic_table_of_stated_kinds_shows_nothing_of_one_record_but_what_is_noised(setting, tmp_path, noise):
    def make(path, out):
        config = SyntheticReleaseConfig(data=path, epsilon=1.0, bounds=tmp_path / "bounds.json", trials=0)
        release_synthetic(config, out)

    for kept, others in compared(make, setting, tmp_path, noise.taken):
        close(kept, others)


@pytest.mark.parametrize("setting", SETTINGS)
def test_components_of_stated_kinds_show_nothing_of_one_record_but_what_is_noised(setting, tmp_path, monkeypatch):
    stubbed_files(monkeypatch)
    stub = StubbedMoment(monkeypatch)

    def make(path, out):
        config = PCAReleaseConfig(data=path, epsilon=1.0, n_components=2, bounds=tmp_path / "bounds.json", trials=0)
        release_pca(config, out)

    for kept, others in compared(make, setting, tmp_path, stub.taken):
        assert int(((kept[-1] - others[-1]) ** 2).sum()) <= stub.limits[-1]


def test_a_map_shows_nothing_of_one_record_but_what_is_noised(tmp_path, noise, monkeypatch):
    monkeypatch.setattr("tests.releases.test_stated_noninterference.PAIRS", 6)

    def make(path, out):
        bounds = tmp_path / "bounds.json"
        config = MapReleaseConfig(data=path, epsilon=1.0, bounds=bounds, trials=0, method="pca", n_synthetic=20)
        release_map(config, out)
        assert "map.csv" in {file.name for file in out.iterdir()}

    for kept, others in compared(make, "csv", tmp_path, noise.taken):
        close(kept, others)
