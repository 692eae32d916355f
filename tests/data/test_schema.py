"""A table survives encoding and decoding, cells outside what is stated are mapped one by one, formats are public."""

import json
import tracemalloc

import numpy as np
import pyarrow as pa
import pytest

from drjax.data import schema, schema_sources, table_cells, tables
from drjax.data.private_tables import read_private
from drjax.data.table_files import read_table

CSV = b"""age,income,work,height,smoker
39,12.50,Private,1.8,yes
50,7.25,State-gov,1.75,no
17,99.00,,1.62,no
90,0.00,Private,1.90,yes
"""
GIVEN = {
    "age": {"lower": 0, "upper": 120, "kind": "integer"},
    "income": {"lower": 0, "upper": 100, "decimals": 2},
    "work": ["", "Private", "Self-employed", "State-gov"],
    "height": {"lower": 0.5, "upper": 2.5, "decimals": 2},
    "smoker": ["no", "yes"],
}
NAMES = list(GIVEN)


def table(text=CSV):
    return tables.read_csv("people.csv", text)


def stated(given=None, **options):
    """The schema of the columns that something is stated of."""
    return schema_sources.stated(NAMES, GIVEN if given is None else given, **options)[0]


def row(**cells):
    usual = {"age": "20", "income": "1.0", "work": "Private", "height": "1.7", "smoker": "no"} | cells
    return table(f"{','.join(usual)}\n{','.join(usual.values())}\n".encode())


def test_a_table_comes_back_as_it_was_with_the_decimals_that_are_stated():
    found = stated(target="smoker")
    x, y = found.encode(table())
    assert x.shape == (4, 7)
    made = found.write(found.decode(x, y), ".csv")
    assert made == CSV.replace(b"1.8,", b"1.80,")


@pytest.mark.parametrize(
    ("bounds", "decimals", "shown"),
    [([0, 120], 1, "37.5"), ([0, 1], 3, "0.375"), ([0, 1e6], 0, "375000"), ([-1e-3, 1e-3], 6, "-0.000250"),
     ([1e12, 1e12 + 1], 3, "1000000000000.375"), ([-(2.0**53), 2.0**53], 0, "-2251799813685248")],
)  # fmt: skip
def test_decimals_follow_from_the_width_of_the_range_alone(bounds, decimals, shown):
    column = schema.Column(name="a", kind="number", lower=bounds[0], upper=bounds[1])
    assert column.decimals == decimals
    share = {"37.5": 0.3125}.get(shown, 0.375)
    made = column.decode(np.array([[bounds[0] + share * (bounds[1] - bounds[0])]]))
    assert column.texts(made) == [shown]


def test_the_schema_of_stated_bounds_looks_at_no_record():
    found, rest = schema_sources.stated(NAMES, {"age": [0, 120]})
    assert rest == ("income", "work", "height", "smoker")
    assert str(found.columns[0]) == "age: number in [0, 120], 1 decimal"
    written = {
        found.write(found.decode(found.encode(row(age=cell))[0]), ".csv").split(b"\n")[1]
        for cell in ("37", "37.0", " 37")
    }
    assert written == {b"37.0"}


def test_what_it_writes_makes_it_again():
    found = stated(target="smoker")
    again = stated(json.loads(json.dumps(found.to_json())), target="smoker")
    assert again == found


def test_kinds_of_public_records_are_told_by_their_values():
    kinds = {c.name: (c.kind, c.decimals) for c in schema_sources.infer(table(), target="smoker").columns}
    assert kinds == {
        "age": ("integer", 0),
        "income": ("number", 2),
        "work": ("category", None),
        "height": ("number", 2),
        "smoker": ("category", None),
    }


@pytest.mark.parametrize(
    ("task", "kind"), [(None, "category"), ("regression", "integer"), ("classification", "category")]
)
def test_a_public_target_of_few_whole_numbers_is_a_class_unless_told_otherwise(task, kind):
    few = table(b"x,y\n1,0\n2,1\n3,1\n")
    found = schema_sources.infer(few, target="y", task=task).target_column
    assert found is not None
    assert found.kind == kind


def test_decoded_values_are_within_their_bounds_whatever_they_were():
    found = stated(GIVEN | {"age": {"lower": 0.5, "upper": 99.5, "kind": "integer"}})
    x = np.random.default_rng(0).normal(scale=1e3, size=(50, 9))
    x[:3] = [[np.nan], [np.inf], [-np.inf]]
    made = found.decode(x)
    again, _ = found.encode({name: made[name] for name in made.column_names})
    lower, upper = found.bounds
    assert ((again >= lower) & (again <= upper)).all()
    assert set(made["age"].to_pylist()) <= set(range(1, 100))


@pytest.mark.parametrize(
    ("cell", "value"),
    [("20", 20), ("20.0", 20), (" 20 ", 20), ("130", 120), ("-1e400", 0), ("1e400", 120), ("inf", 120), ("", 60),
     ("x", 60), ("nan", 60), ("1_0", 60), ("0x10", 60), ("+7", 7)],
)  # fmt: skip
def test_a_number_outside_becomes_the_bound_and_what_is_no_number_the_middle(cell, value):
    assert stated().encode(row(age=cell))[0][0, 0] == value


def test_unknown_categories_count_for_none_and_unknown_classes_are_minus_one():
    found = stated(target="smoker")
    x, y = found.encode(row(work="Never", smoker="maybe"))
    assert y is not None
    assert x[0, 2:6].tolist() == [0, 0, 0, 0]
    assert y.tolist() == [-1]
    assert found.outside(row(work="Never", smoker="maybe", age="130", income="?")) == {
        "age": {"beyond the bounds": 1},
        "income": {"missing or no number": 1},
        "work": {"none of the categories": 1},
        "smoker": {"none of the categories": 1},
    }


@pytest.mark.parametrize(
    ("categories", "cell", "code"),
    [(["0", "1"], "1.0", 1), (["0.0", "1.0"], "1", 1), (["7", "07"], "07", 1), (["7", "07"], "7.0", -1),
     (["True", "False"], "false", 1), (["yes", "no"], "YES", 0), (["Ja", "JA"], "ja", -1), (["", "a"], "", 0),
     (["a "], " a", 0)],
)  # fmt: skip
def test_a_cell_is_the_category_of_its_text_its_number_or_its_text_in_another_case(categories, cell, code):
    column = schema.Column(name="a", kind="category", categories=tuple(categories))
    assert column.codes(pa.chunked_array([[cell]])).tolist() == [code]


@pytest.mark.parametrize(
    "cells",
    [pa.array([1, 2, None], pa.int8()), pa.array([1.0, 2.0, None], pa.float32()), pa.array(["1", "2.0", ""]),
     pa.array(["1", "2", None], pa.large_string()), pa.array(["1", "2", None]).dictionary_encode(),
     pa.array([1, 2, None], pa.decimal128(5, 2)), pa.array([b"1", b"2", b"\xff"])],
)  # fmt: skip
def test_a_cell_is_read_alike_whatever_type_the_others_give_its_column(cells):
    column = schema.Column(name="a", kind="category", categories=("1", "2"))
    assert column.codes(pa.chunked_array([cells])).tolist() == [0, 1, -1]
    number = schema.Column(name="a", kind="number", lower=0, upper=10)
    assert number.numbers(pa.chunked_array([cells])).tolist() == [1, 2, 5]


def as_text(*cells):
    """Text whose bytes nobody checked, as files may hold it."""
    bytes_of = pa.array(cells, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(bytes_of), bytes_of.buffers())


@pytest.mark.parametrize(
    "cells",
    [pa.array([b"1", b"2", b"\xff"], pa.binary(1)), pa.array([b"1", b"2", b"\xff"], pa.binary_view()),
     pa.array([b"1", b"2", b"\xff"], pa.large_binary()), as_text(b"1", b"2", b"\xff"),
     as_text(b"1", b"2", b"\xff").dictionary_encode(), as_text(b"1", b"2", b"\xff").cast(pa.string_view())],
)  # fmt: skip
def test_bytes_of_one_cell_that_are_no_text_change_no_other_cell(cells):
    assert table_cells.cell_texts(pa.chunked_array([cells])).tolist() == ["1", "2", "\ufffd"]
    np.testing.assert_array_equal(table_cells.cell_numbers(pa.chunked_array([cells])), [1, 2, np.nan])


def test_bytes_of_an_identifier_that_are_no_text_change_no_other_cell():
    stored = pa.array([b"a" * 16, b"\xff" * 16], pa.binary(16))
    cells = pa.ExtensionArray.from_storage(pa.uuid(), stored)
    assert table_cells.cell_texts(pa.chunked_array([cells])).tolist() == ["a" * 16, "\ufffd" * 16]


def test_every_line_of_a_private_table_of_one_column_is_a_record_an_empty_one_too(tmp_path):
    """A missing cell is an empty line there; left out, it would show in the number of records."""
    for text in ("age\n37\n\n40\n", "age\n37\n40\n\n", "\nage\r\n\r\n37\r\n40"):
        (tmp_path / "a.csv").write_bytes(text.encode())
        cells = read_private(tmp_path / "a.csv")["age"]
        assert sorted(table_cells.cell_texts(cells)) == ["", "37", "40"]
    (tmp_path / "a.csv").write_bytes(b"age\n\n\n")
    assert len(read_private(tmp_path / "a.csv")["age"]) == 2
    (tmp_path / "a.csv").write_bytes(b"age\n37\n40\n\n")
    assert read_table(tmp_path / "a.csv")["age"].to_pylist() == ["37", "40"]
    (tmp_path / "b.csv").write_bytes(b"age,pay\n37,1\n\n40,2\n\n")
    assert len(read_private(tmp_path / "b.csv")["age"]) == 2


def test_one_long_cell_takes_no_more_memory_than_itself():
    """An array of text as wide as its widest cell would take 1.2 GB here: one record would refuse a release."""
    long = "x" * 10**6
    cells = pa.chunked_array([[*["a", "b"] * 150, long]])
    column = schema.Column(name="a", kind="category", categories=("a", "b"))
    tracemalloc.start()
    try:
        codes = column.codes(cells)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert codes.tolist() == [*[0, 1] * 150, -1]
    assert peak < 20 * len(long)


def test_a_file_has_the_types_of_the_kinds_and_none_of_the_private_file():
    cells = {"a": [1, 2, 3], "b": [0.5, 1.5, 2.25], "c": [True, False, True]}
    private = {name: pa.chunked_array([pa.array(values)]) for name, values in cells.items()}
    bounds = {"a": {"lower": 0, "upper": 1000, "kind": "integer"}, "b": [0, 10], "c": ["false", "true"]}
    found, _ = schema_sources.stated(list(cells), bounds, target="c")
    again = tables.read_parquet("q", found.write(found.decode(*found.encode(private)), ".parquet"))
    assert {name: str(values.type) for name, values in again.items()} == {"a": "int64", "b": "double", "c": "string"}
    assert again["a"].to_pylist() == [1, 2, 3]
    made = found.decode(np.array([[300.0, 1.0]]), np.array([0]))
    assert made["a"].to_pylist() == [300]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"given": {"sex": [0, 1]}}, "given must name columns of the table, .* got 'sex'"),
        ({"target": "sex"}, "target must name columns of the table, .* got 'sex'"),
        ({"given": {"age": [1]}}, "bounds of 'age' must be"),
        ({"given": {"age": [5, 5]}}, "bounds of 'age' must be finite, lower < upper, got 5.0, 5.0"),
        ({"given": {"age": {"lower": 1}}}, "bounds of 'age' must be"),
        ({"given": {"age": {"lower": 1, "upper": 2, "categories": ["1"]}}}, "bounds of 'age' must be"),
        ({"given": {"work": []}}, "categories, at least one"),
        ({"given": {"work": {"categories": []}}}, "categories of 'work' must be a list of texts, at least one"),
        ({"given": {"work": {"stated": []}}}, "categories, at least one"),
        ({"given": {"work": {}}}, "bounds of 'work' must be"),
        ({"given": {"work": ["a", "a "]}}, "categories of 'work' must be distinct"),
        ({"given": {"work": [str(i) for i in range(1001)]}}, "categories of 'work' must be at most 1000, got 1001"),
        ({"given": {"age": {"lower": 0, "upper": 9, "from_records": True}}}, "must not be those of the records"),
        ({"given": {"age": {"lower": "a", "upper": "b"}}}, "lower of 'age' must be a number, got 'a'"),
        ({"given": {"age": {"lower": 0, "upper": 9, "kind": "text"}}}, "kind of 'age' must be one of"),
        ({"given": {"age": {"lower": 0, "upper": 9, "kind": "category"}}}, "kind of 'age' must fit"),
        ({"given": {"work": {"categories": ["a"], "kind": "integer"}}}, "kind of 'work' must fit"),
        ({"given": {"age": {"lower": 0, "upper": 9, "decimals": 16}}}, "decimals of 'age' must be <= the most = 15"),
        # What was once decoded to numbers that the bounds do not hold:
        ({"given": {"age": {"lower": 0.2, "upper": 0.8, "kind": "integer"}}}, "must hold from 2 to 2.53 whole numbers"),
        ({"given": {"age": {"lower": -1e300, "upper": 1e300, "kind": "integer"}}}, r"must lie within \+-2.53"),
        ({"given": {"age": [0, 1e-300]}}, "must hold from 2 to 2.53 numbers of 15 decimals"),
        ({"given": {"age": {"lower": 0, "upper": 1e9, "decimals": 12}}}, "must hold from 2 to 2.53 numbers of 12"),
        ({"given": {"age": [0, 9]}, "target": "age", "task": "classification"}, "must be a list of its classes"),
        (
            {"given": {"age": ["0", "9"]}, "target": "age", "task": "regression"},
            r"must be \[lower, upper\] for regression",
        ),
        ({"drop": ["age", "income", "work", "height"], "target": "smoker"}, "drop must leave a column"),
        ({"target": "age", "drop": ["age"]}, "drop must leave the target, got 'age'"),
    ],
)
def test_what_cannot_be_a_schema_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        schema_sources.stated(NAMES, **{"given": {}, **options})


def test_missing_public_numbers_are_refused_by_name():
    with pytest.raises(ValueError, match="column 'a' has 1 missing"):
        schema_sources.infer(table(b"a,b\n1,2\n,3\n"))
