import datetime
import json

import numpy as np
import pyarrow as pa
import pytest

from drjax.data import kinds
from drjax.data.plan import planned, read_plan
from tests.data import messy

N = 60


def column(cells):
    return pa.chunked_array([pa.array(cells)])


def of(cells, name="value", **said):
    """The plan of a column beside one of numbers, so that something is always left."""
    table = {name: column(cells), "beside": column([float(i) / 7 for i in range(len(cells))])}
    plan = planned(table, {name: said} if said else None)
    return plan.of(name), plan.encode(table)


def repeated(*cells, n=N):
    return [cells[i % len(cells)] for i in range(n)]


DATES = [f"2024-{1 + i % 12:02d}-{1 + i % 28:02d}" for i in range(N)]

KINDS = {
    "numbers": ([str(i / 4) for i in range(N)], "number"),
    "typed numbers": ([i / 4 for i in range(N)], "number"),
    "thousands": ([f"{1 + i},{i:03d}" for i in range(N)], "number"),
    "percent": ([f"{i}%" for i in range(N)], "number"),
    "a unit": ([f"{i / 2} kg" for i in range(N)], "number"),
    "a few texts among numbers": (["see note", *[str(i * 3) for i in range(N - 1)]], "number"),
    "limits": (repeated("<5", "7.5", "12", "30"), "number"),
    "a scale": (repeated(*map(str, range(11))), "ordinal"),
    "words with an order": (repeated("mild", "moderate", "severe"), "ordinal"),
    "bands": (repeated("0-17", "18-40", "41-64", "65+"), "ordinal"),
    "yes and no": (repeated("yes", "no"), "yes/no"),
    "0 and 1": (repeated(0, 1), "yes/no"),
    "logical values": (repeated(True, False), "yes/no"),
    "days": (DATES, "date"),
    "days first": ([f"{1 + i % 28:02d}.{1 + i % 12:02d}.1960" for i in range(N)], "date"),
    "months first": ([f"{1 + i % 12:02d}/{1 + i % 28:02d}/1960" for i in range(N)], "date"),
    "moments": ([f"{day}T10:{i:02d}:00.5Z" for i, day in enumerate(DATES)], "date"),
    "typed moments": ([datetime.datetime(2024, 1, 1 + i % 28) for i in range(N)], "date"),
    "times of day": ([f"{i % 24:02d}:{i:02d}" for i in range(N)], "time"),
    "codes": (repeated("A1", "B2", "3C"), "category"),
    "two sexes": (repeated("F", "M"), "category"),
    "several units": (repeated("12a", "13b", "14c"), "category"),
    "names": ([f"P{i:04d}" for i in range(N)], "id"),
    "a count": (list(range(1, 1 + N)), "id"),
    "years": (list(range(1950, 1950 + N)), "number"),
    "months": ([f"{1990 + i // 12}-{1 + i % 12:02d}" for i in range(N)], "date"),
    "months in words": ([f"{('Jan', 'May', 'Dec')[i % 3]}-{80 + i // 3}" for i in range(N)], "date"),
    "days in words": ([f"Jan {1 + i % 28} {2000 + i // 28}" for i in range(N)], "date"),
    "free text": ([f"patient {i} sleeps well today" for i in range(N)], "text"),
    "one value": (repeated("X"), "constant"),
    "nothing": (repeated("", "NA"), "empty"),
}


@pytest.mark.parametrize("what", KINDS)
def test_a_column_is_told_by_its_cells(what):
    cells, kind = KINDS[what]
    found, encoded = of(cells)
    assert found.kind == kind
    assert found.reason
    assert np.isfinite(encoded.values).all()
    assert ("value" in encoded.sources) == (kind in kinds.ENCODED)


def test_numbers_that_are_all_different_tell_records_apart_by_their_name_alone():
    cells = [str(v) for v in np.random.default_rng(0).choice(10**7, N, replace=False)]
    assert of(cells, "mrn")[0].kind == "id"
    assert of(cells, "patient_id")[0].kind == "id"
    assert of(cells, "income")[0].kind == "number"
    assert of(cells, "idle minutes")[0].kind == "number"


@pytest.mark.parametrize(
    ("cells", "delimiter", "value"),
    [
        (["3,14", *[f"{i},5" for i in range(N)]], None, 3.14),
        (["1.234,5", *[f"{i},5" for i in range(N)]], None, 1234.5),
        (["1,234", *[f"{i + 1},000" for i in range(N)]], None, 1234),
        (["1,234", *[f"{i + 1},000" for i in range(N)]], ";", 1.234),
        (["1 234.5", *[f"{i}.5" for i in range(N)]], None, 1234.5),
        (["€1,234.50", *[f"€{i}.50" for i in range(N)]], None, 1234.5),
        (["−3.5", *[f"{i}.5" for i in range(N)]], None, -3.5),
        (["1e-3", *[f"{i}.5" for i in range(N)]], None, 0.001),
    ],
)
def test_numbers_are_read_as_people_write_them(cells, delimiter, value):
    plan = planned({"value": column(cells)}, delimiter=delimiter)
    assert plan.encode({"value": column(cells)}).values[0, 0] == pytest.approx(value)


def test_a_limit_is_its_number_and_marked():
    found, encoded = of(repeated("<5", "7.5", "12", ">30"))
    assert found.censored == ("<", ">")
    assert encoded.names[:3] == ("value", "value < limit", "value > limit")
    np.testing.assert_array_equal(encoded.values[:4, :3], [[5, 1, 0], [7.5, 0, 0], [12, 0, 0], [30, 0, 1]])
    assert list(encoded.is_number[:3]) == [True, False, False]


def test_a_missing_number_is_the_median_and_a_missing_category_the_most_frequent_both_marked():
    found, encoded = of(repeated("1", "2", "NA", "9", "unknown"))
    assert (found.fill, found.has_missing) == (2.0, True)
    assert encoded.names[:2] == ("value", "value is missing")
    np.testing.assert_array_equal(encoded.values[:5, :2], [[1, 0], [2, 0], [2, 1], [9, 0], [2, 1]])
    assert not encoded.is_known[2, 0]
    found, encoded = of(repeated("ward A", "", "ward B", "ward A"))
    assert found.fill == "ward A"
    np.testing.assert_array_equal(encoded.values[:3, :3], [[1, 0, 0], [1, 0, 1], [0, 1, 0]])


def test_a_median_between_two_numbers_is_shown_without_its_rounding():
    # Half way between 1920 and 1920.03 is 1920.0149999999999 in floating point.
    found = planned({"income": column(["", *(["1920"] * N), *(["1920.03"] * N)])})
    assert found.lines()[0][2] == "a number; missing: 1920.015, marked"


def test_dates_are_days_and_times_hours():
    found, encoded = of(["1970-01-03", *DATES])
    assert (encoded.values[0, 0], found.unit) == (2.0, "days since 1970-01-01")
    found, encoded = of(["1970-02", *[f"{1990 + i // 12}-{1 + i % 12:02d}" for i in range(N)]])
    assert encoded.values[0, 0] == 31
    found, encoded = of(["06:30", *[f"{i % 24:02d}:15" for i in range(N)]])
    assert (encoded.values[0, 0], found.unit) == (6.5, "hours")


def test_a_date_that_nothing_decides_says_so():
    found, _ = of(repeated(*[f"{i:02d}/{13 - i:02d}/2020" for i in range(1, 13)]))
    assert "nothing tells which" in found.reason


def test_rare_texts_of_many_are_one_category():
    rng = np.random.default_rng(0)
    cells = [f"code {i}" for i in np.minimum(rng.geometric(0.02, 2000), 300)]
    found, encoded = of(cells, kind="category")
    assert len(found.categories) == kinds.MOST_CATEGORIES
    assert found.categories[-1] == kinds.OTHER
    np.testing.assert_array_equal(encoded.values[:, : len(found.categories)].sum(axis=1), 1)


def test_what_is_stated_counts():
    found, _ = of(repeated("1", "2", "3"), kind="category")
    assert found.categories == ("1", "2", "3")
    found, encoded = of(repeated("low", "top", "mid"), kind="ordinal", categories=["low", "mid", "top"])
    np.testing.assert_array_equal(encoded.values[:3, 0], [0, 2, 1])
    assert of([float(i) for i in range(N)], kind="drop")[0].kind == "drop"
    found, encoded = of(repeated("1", "2", "-9", "4", "8"), kind="number", missing=["-9"])
    assert found.has_missing
    assert encoded.values[:, 0].min() == 1
    found, encoded = of(repeated("01/02/2020", "03/04/2020"), kind="date", format="%m/%d/%Y")
    assert encoded.values[0, 0] == (datetime.date(2020, 1, 2) - datetime.date(1970, 1, 1)).days
    found, encoded = of(repeated("hot", "cold"), kind="yes/no", categories=["cold", "hot"])
    np.testing.assert_array_equal(encoded.values[:2, 0], [1, 0])


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ({"age": "number"}, r"a plan must name columns of the table, which has value, beside; got 'age'"),
        ({"value": "wish"}, r"kind of 'value' in the plan must be one of"),
        ({"value": "date"}, r"kind of 'value' in the plan must fit its cells, got 'date' for 'A1', 'B2'"),
        ({"value": {"why": "x"}}, r"must be a kind, or an object with kind"),
        ({"value": {"kind": "category", "categories": ["a", "a"]}}, r"categories of 'value' .* must be different"),
        ({"value": {"kind": "category", "categories": "ab"}}, r"categories of 'value' .* must be a list of texts"),
        ({"value": {"kind": "date", "format": 3}}, r"format of 'value' in the plan must be a text"),
        ({"value": "drop", "beside": "drop"}, r"a table must have a column of numbers, dates or categories"),
        ([], r"a plan must be an object"),
    ],
)
def test_a_plan_that_cannot_be_meant_is_refused(stated, message):
    table = {"value": column(repeated("A1", "B2")), "beside": column([float(i) for i in range(N)])}
    table["beside"] = column([i / 7 for i in range(N)])
    with pytest.raises(ValueError, match=message):
        planned(table, stated)


def test_a_plan_file_makes_the_same_plan_again(tmp_path):
    made = messy.patients(400)
    table = {name: column(cells) for name, cells in zip(*_rows(made.text), strict=True)}
    plan = planned(table)
    assert {one.name: one.kind for one in plan.columns} == made.kinds
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(plan.to_json()))
    again = planned(table, read_plan(file))
    for one, other in zip(plan.columns, again.columns, strict=True):
        assert one.__dict__ | {"reason": ""} == other.__dict__ | {"reason": ""}
    np.testing.assert_array_equal(plan.encode(table).values, again.encode(table).values)
    for line in plan.lines():
        assert all(line)


@pytest.mark.parametrize("text", ["", "[1]", "{"])
def test_a_plan_file_that_is_none_is_refused(tmp_path, text):
    file = tmp_path / "plan.json"
    file.write_text(text)
    with pytest.raises(ValueError, match=r"write a new one|must hold an object"):
        read_plan(file)
    with pytest.raises(FileNotFoundError, match="drjax data plan"):
        read_plan(tmp_path / "none.json")


def test_many_columns_that_are_alike_have_one_line():
    rng = np.random.default_rng(0)
    table = {f"gene {i}": column([f"{v:.2f}" for v in rng.normal(size=N)]) for i in range(40)}
    table["sex"] = column(repeated("F", "M"))
    lines = planned(table).lines()
    assert [line[:2] for line in lines] == [("gene 0 to gene 39, 40 columns", "number"), ("sex", "category")]
    assert len(planned(dict(list(table.items())[30:])).lines()) == 11
    # Each is filled in with its own median.
    for i in (3, 17):
        table[f"gene {i}"] = column(["", *(f"{v:.2f}" for v in rng.normal(size=N - 1))])
    found = planned(table)
    assert found.lines()[0][2] == "a number; missing, in 2 of them: the median, marked"
    assert len(found.lines()) == 2
    ids = {f"code {i}": column(["", *repeated("a", "b")[1:]]) for i in range(30)}
    assert planned(ids).lines()[0][2].endswith("missing, in 30 of them: the most frequent, marked")


def test_a_table_without_a_column_of_the_plan_is_refused():
    plan = planned({"value": column([i / 7 for i in range(N)])})
    with pytest.raises(ValueError, match="the plan must name columns of the table, which has other; got 'value'"):
        plan.encode({"other": column([1.0])})


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_every_column_of_a_hospitals_table_is_told(seed):
    made = messy.patients(3000, seed)
    table = {name: column(cells) for name, cells in zip(*_rows(made.text), strict=True)}
    plan = planned(table)
    assert {one.name: one.kind for one in plan.columns} == made.kinds
    encoded = plan.encode(table)
    for name in ("weight_kg", "age", "monthly income"):
        known = encoded.is_known[:, encoded.names.index(name)]
        truth = np.array([np.nan if v is None else v for v in made.columns[name]], float)
        np.testing.assert_allclose(encoded.values[known, encoded.names.index(name)], truth[known], atol=0.06)


def _rows(text):
    import csv
    import io

    header, *rows = csv.reader(io.StringIO(text))
    return header, list(zip(*rows, strict=True))
