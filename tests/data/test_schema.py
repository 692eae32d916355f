"""A table survives encoding and decoding; what nobody has given is named; bounds hold of everything that is decoded."""

import json

import numpy as np
import pyarrow as pa
import pytest

from drjax.data import schema, tables

CSV = b"""age,income,work,height,smoker
39,12.50,Private,1.8,yes
50,7.25,State-gov,1.75,no
17,99.00,,1.62,no
90,0.00,Private,1.90,yes
"""
GIVEN = {
    "age": [0, 120],
    "income": {"lower": 0, "upper": 100, "decimals": 2},
    "work": ["", "Private", "Self-employed", "State-gov"],
    "height": [0.5, 2.5],
    "smoker": ["no", "yes"],
}


def table():
    return tables.read_csv("people.csv", CSV)


def test_a_table_comes_back_as_it_was():
    found = schema.infer(table(), target="smoker", given=GIVEN)
    x, y = found.encode(table())
    assert x.shape == (4, 7)
    made = schema.write_table(found.decode(x, y), ".csv")
    assert made == CSV.replace(b"12.50", b"12.5").replace(b"99.00", b"99.0").replace(b"0.00", b"0.0").replace(
        b"1.90", b"1.9"
    )


def test_names_the_columns_whose_bounds_come_from_the_records():
    assert schema.infer(table(), given=GIVEN).from_records == ()
    assert schema.infer(table(), given={"age": [0, 120]}).from_records == ("income", "work", "height", "smoker")


def test_what_it_writes_makes_it_again_without_the_records():
    found = schema.infer(table(), target="smoker", given=GIVEN)
    other = tables.read_csv("other", b"age,income,work,height,smoker\n20,1.0,Private,1.7,no\n")
    again = schema.infer(other, target="smoker", given=json.loads(json.dumps(found.to_json())))
    assert [str(c) for c in again.columns] == [str(c) for c in found.columns]
    assert again.from_records == ()


def test_what_was_read_off_the_records_remains_so_until_somebody_says_otherwise():
    said = json.loads(json.dumps(schema.infer(table(), given={"age": [0, 120]}).to_json()))
    assert schema.infer(table(), given=said).from_records == ("income", "work", "height", "smoker")
    del said["work"]["from_records"]
    assert schema.infer(table(), given=said).from_records == ("income", "height", "smoker")


def test_kinds_are_told_by_the_values():
    kinds = {column.name: (column.kind, column.decimals) for column in schema.infer(table(), target="smoker").columns}
    assert kinds == {
        "age": ("integer", None),
        "income": ("number", 2),
        "work": ("category", None),
        "height": ("number", 2),
        "smoker": ("category", None),
    }


@pytest.mark.parametrize(
    ("task", "kind"), [(None, "category"), ("regression", "integer"), ("classification", "category")]
)
def test_a_target_of_few_whole_numbers_is_a_class_unless_told_otherwise(task, kind):
    few = tables.read_csv("few", b"x,y\n1,0\n2,1\n3,1\n")
    found = schema.infer(few, target="y", task=task).target_column
    assert found is not None
    assert found.kind == kind


def test_decoded_values_are_within_their_bounds_whatever_they_were():
    found = schema.infer(table(), given=GIVEN | {"age": [0.5, 99.5]})
    x = np.random.default_rng(0).normal(scale=1e3, size=(50, 9))
    x[0] = np.nan
    made = found.decode(x)
    again, _ = found.encode({name: made[name] for name in made.column_names})
    lower, upper = found.bounds
    assert ((again >= lower) & (again <= upper)).all()
    assert set(made["age"].to_pylist()) <= set(range(1, 100))


def test_unknown_categories_become_no_category_and_unknown_classes_are_refused():
    found = schema.infer(table(), target="smoker", given=GIVEN)
    other = tables.read_csv("other", b"age,income,work,height,smoker\n20,1.0,Never,1.7,no\n")
    assert found.encode(other)[0][0, 2:6].tolist() == [0, 0, 0, 0]
    with pytest.raises(ValueError, match="target 'smoker' must be one of its categories, got 'maybe' in row 1"):
        found.encode(tables.read_csv("other", b"age,income,work,height,smoker\n20,1.0,Private,1.7,maybe\n"))


def test_parquet_types_are_kept():
    kinds = {"a": pa.int16(), "b": pa.float32(), "c": pa.bool_(), "d": pa.dictionary(pa.int8(), pa.string())}
    cells = {"a": [1, 2, 3], "b": [0.5, 1.5, 2.25], "c": [True, False, True], "d": ["u", "v", "u"]}
    source = pa.table({name: pa.array(cells[name]).cast(kind) for name, kind in kinds.items()})
    sink = pa.BufferOutputStream()
    pa.parquet.write_table(source, sink)
    columns = tables.read_parquet("p", sink.getvalue().to_pybytes())
    found = schema.infer(columns, target="c")
    made = found.decode(*found.encode(columns))
    again = tables.read_parquet("q", schema.write_table(made, ".parquet"))
    assert {name: values.to_pylist() for name, values in again.items()} == cells
    assert [str(again[name].type) for name in "abc"] == ["int16", "float", "bool"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"given": {"sex": [0, 1]}}, "given must name columns of the table, .* got 'sex'"),
        ({"target": "sex"}, "target must name columns of the table, .* got 'sex'"),
        ({"given": {"age": [1]}}, "bounds of 'age' must be"),
        ({"given": {"age": [5, 5]}}, "bounds of 'age' must be finite, lower < upper, got 5.0, 5.0"),
        ({"given": {"work": [0, 1]}}, "column 'work' holds text"),
        ({"given": {"age": {"lower": 1}}}, "bounds of 'age' must be"),
        ({"given": {"work": ["a", "a"]}}, "categories of 'work' must be distinct"),
        ({"given": {"age": {"lower": "a", "upper": "b"}}}, "lower of 'age' must be a number, got 'a'"),
        ({"drop": ["age", "income", "work", "height"], "target": "smoker"}, "drop must leave a column"),
        ({"target": "age", "drop": ["age"]}, "drop must leave the target, got 'age'"),
    ],
)
def test_what_cannot_be_a_schema_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        schema.infer(table(), **options)


def test_missing_numbers_are_refused_by_name():
    holed = tables.read_csv("holed", b"a,b\n1,2\n,3\n")
    with pytest.raises(ValueError, match="column 'a' has 1 missing"):
        schema.infer(holed)
