"""Cells as spreadsheets hold them: each column read right, or left out with the way out in its reason."""

import datetime

import numpy as np
import pyarrow as pa
import pytest

from drjax.data.plan import planned

N = 60


def column(cells):
    return pa.chunked_array([pa.array(cells)])


def of(cells, name="value", delimiter=",", **said):
    """The plan of a column beside one of numbers, and its features."""
    table = {name: column(cells), "beside": column([float(i) / 7 for i in range(len(cells))])}
    plan = planned(table, {name: said} if said else None, delimiter=delimiter)
    encoded = plan.encode(table)
    return plan.of(name), encoded.values[:, [source == name for source in encoded.sources]]


def repeated(*cells, n=N):
    return [cells[i % len(cells)] for i in range(n)]


def test_formula_errors_are_missing_and_counted():
    cells = [*map(str, np.arange(N) * 1.5), "#DIV/0!", "#N/A", "#REF!", "#VALUE!", "#NAME?", "#NUM!", "#WERT!"]
    found, values = of(cells)
    assert (found.kind, found.has_missing) == ("number", True)
    assert "7 are errors of formulas, as '#DIV/0!', taken for missing" in found.reason
    assert values[N:, 1].tolist() == [1] * 7
    found, _ = of(repeated("ward A", "ward B", "#REF!"))
    assert found.categories == ("ward A", "ward B")
    assert "20 are errors of formulas, as '#REF!'" in found.reason


@pytest.mark.parametrize(
    ("cell", "value", "unit"),
    [
        ("CHF 1'234.50", 1234.5, "CHF"), ("US$ 1,234.50", 1234.5, "US$"), ("¥1234.5", 1234.5, "¥"),
        ("1234.5 zł", 1234.5, "zł"), ("₹12,34,567.5", 1234567.5, "₹"), ("EUR 1234.5", 1234.5, "EUR"),
        ("-$1,234.50", -1234.5, "$"), ("$-1,234.50", -1234.5, "$"), ("(1,234.50)", -1234.5, ""),
        ("$(1,234.50)", -1234.5, "$"), ("1,234.50-", -1234.5, ""), ("75 /min", 75, "/min"),
        ("24.5 kg/m2", 24.5, "kg/m2"), ("20.5 ± 0.3", 20.5, ""), ("20.5+/-0.3", 20.5, ""),
        ("20.5 ± 0.3 kg", 20.5, "kg"), ("20.5 kg ± 0.3 kg", 20.5, "kg"),
    ],
)  # fmt: skip
def test_numbers_with_currencies_signs_and_deviations_are_read(cell, value, unit):
    others = [cell.replace("5", digit) for digit in "678"]
    found, values = of([cell, *others] * 10)
    assert (found.kind, found.unit) == ("number", unit)
    assert values[0, 0] == value


def test_what_is_read_of_a_number_in_part_or_as_negative_is_said():
    assert "what stands behind ± is left out" in of([f"{i}.5 ± 0.1" for i in range(N)])[0].reason
    assert "those in brackets are negative" in of([*(f"({i}.5)" for i in range(5)), *map(str, range(N))])[0].reason
    assert "brackets" not in of([f"{i}.5" for i in range(N)])[0].reason


def test_points_that_may_part_thousands_are_said():
    found, values = of([f"{1 + i}.{i * 17 % 1000:03d}" for i in range(N)], delimiter=";")
    assert values[1, 0] == 2.017
    assert 'three digits behind each point: state the format "decimal comma" if they are thousands' in found.reason
    assert (
        of([f"{1 + i}.{i:03d}" for i in range(N)], delimiter=";", kind="number", format="decimal comma")[1][1, 0]
        == 2001
    )
    assert "thousands" not in of([f"{i}.{i * 17 % 1000:03d}" for i in range(N)], delimiter=";")[0].reason
    assert "thousands" not in of([f"{i}.{i:02d}" for i in range(N)], delimiter=";")[0].reason
    found, _ = of([f"{1 + i},{i * 17 % 1000:03d}" for i in range(N)])
    assert 'three digits behind each comma: state the format "decimal comma" if they are decimals' in found.reason


def test_points_part_thousands_where_other_columns_have_decimal_commas():
    table = {
        "kg": column([f"{50 + i},5" for i in range(N)]),
        "income": column([f"{1 + i % 9}.{i * 17 % 1000:03d}" if i % 3 else str(100 + i) for i in range(N)]),
        "ph": column([f"7.{i:02d}" for i in range(N)]),
    }
    plan = planned(table, delimiter=";")
    income = plan.encode(table).values[:, 1]
    assert income[:3].tolist() == [100, 2017, 3034]
    assert "points part thousands, because other columns have decimal commas" in plan.of("income").reason
    assert plan.encode(table).values[1, 2] == 7.01
    del table["kg"]
    plan = planned(table, delimiter=";")
    assert plan.encode(table).values[1, 0] == 2.017
    assert "if they are thousands" in plan.of("income").reason


def test_a_number_that_may_stand_for_none_is_said():
    found, values = of(repeated("-999", "3.5", "4.25", "7", "8.5"))
    assert "-999 in 12 cells may stand for none: state it as missing if so" in found.reason
    assert values[:, 0].min() == -999
    assert of(repeated("-999", "3.5", "4.25", "7"), kind="number", missing=["-999"])[1][:, 0].min() == 3.5
    assert "may stand" not in of([*map(str, range(20, 80)), "99", "99"])[0].reason
    assert "may stand" not in of(repeated("-999", "-500", "3", "400"))[0].reason


def test_numbers_among_some_words_are_numbers_and_the_words_missing():
    cells = [*(f"{36 + i / 10:.1f}" for i in range(40)), *["refused"] * 12, *["machine off"] * 8]
    found, values = of(cells)
    assert (found.kind, found.has_missing) == ("number", True)
    assert "20 are none, as 'machine off', taken for missing" in found.reason
    assert values[40:, 1].tolist() == [1] * 20
    assert of([*map(str, range(100, 130)), *(f"{i}{chr(65 + i % 3)}" for i in range(30))], "room")[0].kind != "number"
    assert of(repeated("1", "2", "3", "A", "B"))[0].kind == "category"


@pytest.mark.parametrize(
    ("cells", "yes"),
    [
        (("TRUE", "FALSE", "1", "0"), [1, 0, 1, 0]), (("yes", "no", "Y", "N"), [1, 0, 1, 0]),
        (("Ja", "nein", "JA", "0"), [1, 0, 1, 0]), (("-", "+"), [0, 1]),
    ],
)  # fmt: skip
def test_yes_and_no_in_several_spellings(cells, yes):
    found, values = of(repeated(*cells))
    assert (found.kind, found.has_missing) == ("yes/no", False)
    assert values[: len(cells), 0].tolist() == yes
    assert of(repeated("yes", "no", "maybe"))[0].kind == "category"
    assert of(repeated("yes", "true"))[0].kind == "category"


def test_signs_of_a_test_strip_have_an_order():
    found, values = of(repeated("++", "-", "+", "+++", "(+)"))
    assert (found.kind, found.categories) == ("ordinal", ("-", "(+)", "+", "++", "+++"))
    assert values[:5, 0].tolist() == [3, 0, 2, 4, 1]
    assert of(repeated("-", "A", "B"))[0].has_missing


@pytest.mark.parametrize(
    "bands",
    [
        ("20-29", "30-39"), ("[20,30)", "[30,40)", "[40,50)"), ("(20.5, 30.5]", "(30.5, 40.5]"),
        ("20 to 29 years", "30 to 39 years", "40 years and over"), ("under 20", "20–29", "30–39", "40 or more"),
        ("5 bis 9 Jahre", "10 bis 19 Jahre"), ("$0-$10,000", "$10,000-$25,000"), ("0–4 kg", "5–9 kg", ">9 kg"),
    ],
)  # fmt: skip
def test_intervals_have_an_order(bands):
    found, values = of(repeated(*reversed(bands)))
    assert (found.kind, found.categories) == ("ordinal", bands)
    assert values[: len(bands), 0].tolist() == list(range(len(bands)))[::-1]


@pytest.mark.parametrize("cell", ["555-{:04d}", "{0}-{0}", "9-{:d}"])
def test_codes_with_a_stroke_are_no_intervals(cell):
    assert of([cell.format(i * 37 % 1999) for i in range(N)])[0].kind == "id"


DAY = datetime.date(1990, 3, 1)


@pytest.mark.parametrize(
    ("cell", "when"),
    [
        ("90-03-01", DAY), ("03-01-1990", DAY), ("1. März 1990", DAY), ("01.mrz.1990", DAY), ("1 mars 1990", DAY),
        ("1 de marzo de 1990", DAY), ("Thursday, 1 March 1990", DAY), ("Thu 1 Mar 1990", DAY), ("March 1st, 1990", DAY),
        ("1st March 1990", DAY), ("3/1/1990 6:00 AM", DAY), ("1990-W09", datetime.date(1990, 2, 26)), ("19900301", DAY),
        ("1990Q1", datetime.date(1990, 1, 1)), ("Q1 1990", datetime.date(1990, 1, 1)),
        ("1850-03-01", datetime.date(1850, 3, 1)),
    ],
)  # fmt: skip
def test_dates_as_people_write_them(cell, when):
    others = [cell.replace("90", year).replace("1850", "18" + year) for year in ("91", "75", "89", "94")]
    others += [cell.replace("03-01", "03-28").replace("3/1/", "3/28/")] if "03-01" in cell or "3/1/" in cell else []
    found, values = of([cell, *others] * 10)
    assert found.kind == "date"
    assert np.floor(values[0, 0]) == (when - datetime.date(1970, 1, 1)).days


@pytest.mark.parametrize(
    ("form", "none"),
    [
        ("%d.%m.%Y", "31.02.2001"), ("%d.%m.%Y", "29.02.2001"), ("%d.%m.%y", "31.04.01"), ("%d %b %Y", "31 Jun 2001"),
        ("%Y-%m-%d %H:%M", "2001-09-31 09:30"), ("%m/%d/%Y %I:%M %p", "11/31/2001 09:30 AM"),
    ],
)  # fmt: skip
def test_a_day_that_its_month_does_not_have_is_missing(form, none):
    days = [datetime.datetime(1980 + i, 1 + i % 12, 1 + i, 9, 30).strftime(form) for i in range(28)]
    found, values = of([*days, none])
    assert (found.kind, found.format, values[:, 1].tolist()) == ("date", form, [*[0] * 28, 1])
    assert "1 is none, taken for missing" in found.reason


def test_months_of_two_digits_are_no_fractions():
    found, values = of([f"{1 + i % 12:02d}/{26 + i % 7}" for i in range(N)])
    assert (found.kind, found.format) == ("date", "%m/%y")
    assert values[0, 0] == (datetime.date(2026, 1, 1) - datetime.date(1970, 1, 1)).days
    assert of(repeated("6/12", "6/6", "6/9", "3/10"))[0].kind == "category"


def test_an_id_with_some_letters_is_one_by_its_name():
    cells = [*(str(2_000_000_000_000 + 37_000_001 * i) for i in range(N)), "2A0123456789", "2B0123456788"]
    assert of(cells, "ssn")[0].kind == "id"


@pytest.mark.parametrize("cell", ["mar 19{}", "März 19{}", "March 19{}", "3/19{}"])
def test_a_month_and_a_year_are_no_day(cell):
    found, values = of([cell.format(year) for year in range(50, 99)])
    assert found.kind == "date"
    assert values[40, 0] == (datetime.date(1990, 3, 1) - datetime.date(1970, 1, 1)).days
    assert "nothing tells which" not in found.reason


def test_noon_and_midnight_of_twelve_hours():
    found, values = of(["12:05 AM", "12:05 PM", "1:30 pm", "11:15 am"] * 10)
    assert found.kind == "time"
    np.testing.assert_allclose(values[:4, 0], [1 / 12, 12 + 1 / 12, 13.5, 11.25])


@pytest.mark.parametrize("seconds", ["", ":30"])
def test_hours_beyond_a_day_are_lengths_of_time(seconds):
    found, values = of([f"{20 + i}:{i:02d}{seconds}" for i in range(N)])
    assert (found.kind, found.unit) == ("time", "hours")
    assert values[30, 0] == pytest.approx(50.5 + (1 / 120 if seconds else 0))
    assert "beyond 24 hours" in found.reason
    assert of([f"{i % 24}:{i:02d}" for i in range(N)])[0].reason.startswith("written as %H:%M")


def test_numbers_of_eight_digits_are_dates_only_if_all_are():
    cells = [f"{1940 + i}{1 + i % 12:02d}{1 + i % 28:02d}" for i in range(N)]
    assert of([*cells, "19901399"])[0].kind != "date"
    assert of([int(cell) for cell in cells])[0].kind == "date"
    assert of([str(20_000_000 + 37 * i) for i in range(N)])[0].kind != "date"


@pytest.mark.parametrize(
    ("cell", "hint"),
    [
        ("{0:02d}/2/{1:02d}/13:{0:02d}", 'if these are dates, state the kind "date" and their format'),
        ("year 19{0:02d} day {1}", 'if these are dates, state the kind "date" and their format'),
        ("{0}/{1}", "two numbers a cell: give each a column of its own to use them"),
        ("{0}.5, {1}.25", "two numbers a cell: give each a column of its own to use them"),
    ],
)
def test_texts_that_are_left_out_say_how_to_use_them(cell, hint):
    found, _ = of([cell.format(10 + i, 70 + i % 25) for i in range(N)])
    assert found.kind in ("id", "text")
    assert hint in found.reason


def test_names_and_codes_get_no_hint():
    for cell in ("P{:04d}", "Anna Meier{}", "{}@b.org", "patient {} sleeps well today"):
        assert "state" not in of([cell.format(i) for i in range(N)])[0].reason
