"""Kinds that are stated: each cell by itself, fills in the place of what does not parse, written as it is read."""

import numpy as np
import pyarrow as pa
import pytest

from drjax.data import schema_sources
from drjax.data.schema import Column


def column(entry):
    """What an entry of a bounds file says of one column."""
    schema, rest = schema_sources.stated(["a", "other"], {"a": entry, "other": [0, 1]})
    assert rest == ()
    found = schema.columns[0]
    # What is published of it says the same.
    again, _ = schema_sources.stated(["a", "other"], schema.to_json())
    assert again == schema
    return found


def cells(*texts):
    return pa.chunked_array([pa.array(texts, pa.string())])


DATE = {"kind": "date", "format": "%d.%m.%Y", "lower": "2000-01-01", "upper": "01.01.2010", "fill": "2005-01-01"}
TIME = {"kind": "time", "lower": "06:00", "upper": "22:00", "fill": "12:00"}
MOMENT = {"kind": "date", "format": "%Y-%m-%dT%H:%M", "lower": "2024-01-01", "upper": "2024-01-02T12:00"}
GRADE = {"kind": "ordinal", "categories": ["mild", "moderate", "severe"], "fill": "moderate"}
COMMA = {"kind": "number", "format": "decimal comma", "lower": 0, "upper": 2000, "decimals": 2, "fill": 7.5}
LIMIT = {"kind": "number", "lower": 0, "upper": 100, "decimals": 1, "fill": 10, "missing": ["-9"]}
SMOKER = {"kind": "yes/no", "categories": ["no", "yes"], "fill": "no"}


@pytest.mark.parametrize(
    ("entry", "texts", "written"),
    [
        (DATE, ["03.02.2001", "2001-02-03", "tomorrow", "", "1990-01-01", "05.05.2050"],
         ["03.02.2001", "03.02.2001", "01.01.2005", "01.01.2005", "01.01.2000", "01.01.2010"]),
        (DATE, ["31.02.2001", "2001-02-29", "29.02.2004"], ["01.01.2005", "01.01.2005", "29.02.2004"]),
        (DATE | {"format": "%d%m%Y", "upper": "2010-01-01"}, ["03022001", "31022001"], ["03022001", "01012005"]),
        (TIME, ["07:30", "07:30:20", "03:00", "noon", None], ["07:30", "07:30", "06:00", "12:00", "12:00"]),
        (MOMENT, ["2024-01-01T06:30", "2024-01-01", ""], ["2024-01-01T06:30", "2024-01-01T00:00", "2024-01-01T18:00"]),
        (GRADE, ["severe", "MILD", "deadly", ""], ["severe", "mild", "moderate", "moderate"]),
        (COMMA, ["1.234,50", "0,1", "x", "9.999.999"], [1234.5, 0.1, 7.5, 2000]),
        (LIMIT, ["<5", "12 mg/L", "-9", "n/a", "1e400", "-5"], [5, 12, 10, 10, 100, 0]),
        (SMOKER, ["yes", "No", "", "perhaps"], ["yes", "no", "no", "no"]),
    ],
)  # fmt: skip
def test_a_cell_becomes_what_is_stated_and_is_written_as_it_is_read(entry, texts, written):
    found = column(entry)
    assert found.decode(found.encode(cells(*texts))).to_pylist() == written


def test_what_is_written_is_read_without_the_decimal_comma_of_the_private_file():
    schema, _ = schema_sources.stated(["a", "b"], {"a": COMMA, "b": DATE})
    x, _ = schema.encode({"a": cells("1.234,50", "0,25"), "b": cells("03.02.2001", "04.05.2006")})
    made = schema.written.decode(x)
    assert schema.written.write(made, ".csv") == b"a,b\n1234.50,03.02.2001\n0.25,04.05.2006\n"
    texts = {"a": cells("1234.50", "0.25"), "b": made["b"]}
    for table in (texts, {name: made[name] for name in made.column_names}):
        np.testing.assert_allclose(schema.written.encode(table)[0], x)


def test_cells_that_are_missing_are_the_middle_unless_a_fill_is_stated_or_they_are_asked_for():
    plain = column([0, 10])
    assert plain.encode(cells("x", "3")).ravel().tolist() == [5, 3]
    assert np.isnan(plain.encode(cells("x", "3"), is_filled=False).ravel()).tolist() == [True, False]
    assert column({"lower": 0, "upper": 10, "fill": 2}).encode(cells("x"), is_filled=False).tolist() == [[2.0]]
    unlisted = column(["a", "b"])
    assert unlisted.encode(cells("c", "b")).tolist() == [[0, 0], [0, 1]]


def test_counts_of_what_was_changed_say_why():
    assert column(DATE).outside(cells("x", "1990-01-01", "2001-01-01")) == {
        "beyond the bounds": 1, "missing or no date": 1
    }  # fmt: skip
    assert column(GRADE).outside(cells("x", "mild"))["none of the categories"] == 1
    assert column(SMOKER).outside(cells("x", "yes")) == {"none of the categories": 1}


def test_scales_are_those_that_are_stated():
    half = {"kind": "date", "lower": "2000-01-01", "upper": "2000-01-11", "scale": "half the range"}
    given = {"a": half, "b": {"lower": 0, "upper": 10, "scale": 2.5}, "c": ["x", "y"], "d": [0, 1]}
    schema, _ = schema_sources.stated(list(given), given)
    np.testing.assert_array_equal(schema.scales, [5, 2.5, np.nan, np.nan, np.nan])


def test_a_column_is_left_out_by_a_statement():
    schema, rest = schema_sources.stated(["a", "b"], {"a": [0, 1], "b": "drop"})
    assert [one.name for one in schema.columns] == ["a"]
    assert rest == ()
    with pytest.raises(ValueError, match="drop must leave the target"):
        schema_sources.stated(["a", "b"], {"a": [0, 1], "b": {"stated": "drop", "seen": {}}}, target="b")


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (DATE | {"lower": "yesterday"}, "lower of 'a' must be a date written as %d.%m.%Y or %Y-%m-%d, got 'yesterday'"),
        (DATE | {"lower": 5}, "lower of 'a' must be a date"),
        (DATE | {"upper": "31.02.2010"}, "upper of 'a' must be a date written as .*, got '31.02.2010'"),
        (DATE | {"fill": "2020-01-01"}, "fill of 'a' must lie within its bounds"),
        (DATE | {"upper": "2000-01-01"}, "bounds of 'a' must be finite, lower < upper"),
        (DATE | {"decimals": 2}, "kind of 'a' must fit"),
        (DATE | {"format": 5}, "format of 'a' must be a text"),
        (GRADE | {"categories": ["one"]}, "at least two"),
        (GRADE | {"fill": "deadly"}, "fill of 'a' must be one of its categories"),
        (SMOKER | {"categories": ["no", "yes", "both"]}, "categories of 'a' must be two"),
        (LIMIT | {"fill": 101}, "fill of 'a' must lie within its bounds"),
        (LIMIT | {"scale": 0}, "scale of 'a' must be a finite number > 0"),
        (LIMIT | {"scale": "wide"}, "scale of 'a' must be a number"),
        (LIMIT | {"format": "roman"}, "format of 'a' must be one of"),
        (LIMIT | {"missing": "x"}, "missing of 'a' must be a list of texts"),
        (LIMIT | {"kind": "text"}, "kind of 'a' must be one of"),
        (LIMIT | {"lower": "0"}, "lower of 'a' must be a number"),
        ({"categories": ["a", "b"], "scale": 2}, "scale of 'a' must be a finite number > 0 of numbers"),
        (Column, "bounds of 'a' must be"),
    ],
)
def test_a_statement_that_does_not_fit_is_refused_by_name(entry, message):
    with pytest.raises(ValueError, match=message):
        column(entry)
