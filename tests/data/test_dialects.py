"""Tables of known values, written in dialects drawn at random: every value comes back, and every record's line."""

import csv
import datetime
import io
import random

import numpy as np
import pytest

from drjax.data.plan import planned
from drjax.data.sheets import read_sheet

DATES = ("%Y-%m-%d", "%d.%m.%Y", "%d %b %Y", "%B %d, %Y", "%d-%b-%y", "%Y%m%d", "%A, %d %B %Y")
N = 60


def written(draw, *, comma, thousands):
    """A column of a kind drawn at random: kind, cells and numbers."""

    def number(value, decimals):
        sign = "," if comma else "."
        return f"{value:,.{decimals}f}".replace(",", "\0").replace(".", sign).replace("\0", thousands)

    kind = draw.choice(["measurement", "amount", "share", "limit", "date", "yes/no", "interval"])
    if kind == "measurement":
        values = [round(draw.gauss(0, 500), 2) for _ in range(N)]
        return "number", [number(value, 2) for value in values], values
    if kind == "amount":
        values = [round(draw.expovariate(1 / 2000), 2) for _ in range(N)]
        form = draw.choice(["${}", "€ {}", "CHF {}", "{} USD", "{} zł"])
        return "number", [form.format(number(value, 2)) for value in values], values
    if kind == "share":
        values = [round(100 * draw.random(), 1) for _ in range(N)]
        return "number", [number(value, 1) + draw.choice(["%", " %"]) for value in values], values
    if kind == "limit":
        values = [round(100 * draw.random(), 1) for _ in range(N)]
        return "number", ["<5" if v < 5 else number(v, 1) for v in values], [max(v, 5) for v in values]
    if kind == "date":
        days, form = [draw.randrange(19_000) for _ in range(N)], draw.choice(DATES)
        return "date", [f"{datetime.date(1970, 1, 1) + datetime.timedelta(day):{form}}" for day in days], days
    if kind == "yes/no":
        values, words = (
            [draw.randrange(2) for _ in range(N)],
            draw.choice([("no", "yes"), ("N", "Y"), ("FALSE", "TRUE")]),
        )
        return "yes/no", [words[value] for value in values], values
    values, words = (
        [draw.randrange(4) for _ in range(N)],
        draw.choice(["0-17 18-39 40-64 65+", "[0,9) [9,20) [20,50) [50,99)"]),
    )
    return "ordinal", [words.split()[value] for value in values], values


@pytest.mark.parametrize("seed", range(40))
def test_values_come_back_from_any_dialect(seed, tmp_path):
    draw = random.Random(seed)
    comma = draw.random() < 0.5
    separator = draw.choice(";\t|" if comma else ",;\t|")
    thousands = draw.choice(["", " ", "'", "." if comma else ","])
    columns = {f"c{j}": written(draw, comma=comma, thousands=thousands) for j in range(draw.choice([2, 5, 9]))}
    file = io.StringIO()
    above = draw.choice(["", "Export of 2022\n\n"])
    file.write(above)
    quoting = draw.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
    writer = csv.writer(file, delimiter=separator, quoting=quoting, lineterminator=draw.choice(["\n", "\r\n"]))
    writer.writerow(["id", *columns])
    writer.writerows(zip((f"P{i}" for i in range(N)), *(cells for _, cells, _ in columns.values()), strict=True))
    text = file.getvalue()
    encodings = ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", *([] if "zł" in text else ["cp1252"])]
    (tmp_path / "t.csv").write_bytes(text.encode(draw.choice(encodings)))

    sheet = read_sheet(tmp_path / "t.csv")
    assert list(sheet.columns) == ["id", *columns]
    assert sheet.lines.tolist() == list(range(2 + above.count("\n"), 2 + above.count("\n") + N))
    plan = planned(dict(sheet.columns), delimiter=sheet.delimiter)
    encoded = plan.encode(sheet.columns)
    for name, (kind, _, values) in columns.items():
        assert (plan.of(name).kind, plan.of(name).has_missing) == (kind, False)
        np.testing.assert_allclose(encoded.values[:, encoded.sources.index(name)], values, atol=1e-9)
