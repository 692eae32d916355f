"""A form drafts what an audit sees and states nothing; filled in, a release reads the records that the audit does."""

import json

import numpy as np
import pytest

from drjax.data import schema_draft, schema_sources
from drjax.data.plan import planned
from drjax.data.private_tables import FILE, layout_of, read_private
from drjax.data.schema import Schema
from drjax.data.schema_sources import DRAFT, SEEN, STATED
from drjax.data.sheets import read_sheet
from drjax.data.table_cells import cell_texts
from tests.data.messy import patients, variants
from tests.releases.stated_messy import KNOWN, filled_in

MESSY = patients(300)


def form_of(path, known=None, drop=()):
    sheet = read_sheet(path)
    plan = planned(sheet.columns, delimiter=sheet.delimiter)
    return json.loads(json.dumps(schema_draft.drafted(path, sheet, plan, known or Schema(()), drop))), sheet


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "patients.csv"
    path.write_text(MESSY.text)
    return path


def test_a_form_of_the_messy_table_states_nothing_and_drafts_every_kind(table):
    form, sheet = form_of(table)
    assert list(form) == list(sheet.columns)
    assert all(entry[STATED] is None for entry in form.values())
    schema, rest = schema_sources.stated(list(form), form)
    assert schema.columns == ()
    assert rest == tuple(form)
    same = {"number": ("number", "integer"), "ordinal": ("ordinal", "integer")}
    for name, kind in MESSY.kinds.items():
        draft = form[name][DRAFT]
        if kind in ("id", "text", "constant", "empty"):
            assert draft == "drop", name
        else:
            assert draft["kind"] in same.get(kind, (kind,)), name
            assert {key for key, value in draft.items() if value is None} == {
                "fill", *(("categories",) if "categories" in draft else ("lower", "upper"))
            }  # fmt: skip
    assert form["date of birth"][DRAFT]["format"] == "%d.%m.%Y"
    # Nothing of an id or of free text stands in the form but how many there are.
    assert not any(cell in json.dumps(form) for cell in MESSY.columns["patient_id"])
    assert set(form["notes"][SEEN]) == {"kind", "why", "different values"}


def test_a_draft_counts_once_every_null_in_it_is_replaced(table):
    form, _ = form_of(table)
    form["age"][STATED] = form["age"][DRAFT]
    form["crp"][STATED] = form["crp"][DRAFT] | {"lower": 0, "upper": 400}
    schema, _ = schema_sources.stated(list(form), form)
    assert schema.columns == ()
    form["crp"][STATED]["fill"] = 10
    (column,) = schema_sources.stated(list(form), form)[0].columns
    assert (column.name, column.fill, column.scale) == ("crp", 10.0, 200.0)
    # Taking the wrapping off does not turn what was seen into what is stated.
    with pytest.raises(ValueError, match="bounds of 'bmi' must be"):
        schema_sources.stated(list(form), form | {"bmi": form["bmi"][SEEN]})


def test_the_form_filled_in_reads_what_the_table_truly_says(table):
    form, _ = form_of(table)
    schema, rest = schema_sources.stated(list(form), filled_in(form))
    assert rest == ()
    assert {column.name for column in schema.columns} == set(KNOWN)
    columns = read_private(table)
    for column in schema.columns:
        true = MESSY.columns[column.name]
        if column.kind == "category":
            there = [i for i, value in enumerate(true) if value is not None]
            shown = column.of_codes(column.codes(columns[column.name])).to_pylist()
            if MESSY.kinds[column.name] == "yes/no":
                true = [None if value is None else column.categories[int(value)] for value in true]
            assert [shown[i] for i in there] == [true[i] for i in there]
            assert {shown[i] for i in range(len(true)) if true[i] is None} <= {column.fill}
            continue
        found = column.known(columns[column.name])
        assert np.isnan(found).tolist() == [value is None for value in true], column.name
        if column.kind in ("number", "integer"):
            numbers = np.array([np.nan if value is None else value for value in true])
            limits = {"crp": (5, np.inf), "troponin": (0.01, 50)}.get(column.name, (-np.inf, np.inf))
            np.testing.assert_allclose(found, np.clip(numbers, *limits))
        elif column.kind == "ordinal":
            assert [column.categories[int(code)] for code in found] == true
        elif column.kind == "date":
            days = [value if value is None else np.datetime64(value, "s") for value in true]
            expected = [np.nan if day is None else day.astype(int) / 86400 for day in days]
            np.testing.assert_allclose(found, expected, atol=1e-9)


@pytest.mark.parametrize("name", list(variants(MESSY)))
def test_the_layout_that_is_drafted_gives_a_release_the_records_of_the_audit(tmp_path, name):
    path = tmp_path / "t.csv"
    path.write_bytes(variants(MESSY)[name])
    form, sheet = form_of(path)
    layout = layout_of(form[FILE][DRAFT]) if FILE in form else layout_of({})
    columns = read_private(path, layout)
    assert list(columns) == [key for key in form if key != FILE]
    assert (FILE in form) == (name not in ("tab, UTF-16", "BOM"))
    for key, cells in columns.items():
        assert cell_texts(cells).tolist() == cell_texts(sheet.columns[key]).tolist()


def test_columns_that_an_audit_leaves_out_stand_in_the_form_to_be_dropped(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(",age,ward\n0,31,north\n1,45,south\n2,27,north\n3,60,south\n")
    form, _ = form_of(path)
    assert form[FILE][DRAFT]["names"] == ["column 1", "age", "ward"]
    assert form["column 1"][DRAFT] == "drop"
    columns = read_private(path, layout_of(form[FILE][DRAFT]))
    assert columns["age"].to_pylist() == ["31", "45", "27", "60"]


def test_what_is_public_or_left_out_by_a_person_is_stated_in_the_form(table):
    known, _ = schema_sources.stated(["age"], {"age": [0, 120]})
    form, _ = form_of(table, known, drop=("ward",))
    assert form["age"] == {"kind": "number", "lower": 0, "upper": 120, "decimals": 1}
    assert form["ward"] == "drop"


def test_a_column_of_the_name_of_the_layout_is_refused(tmp_path):
    (tmp_path / "t.csv").write_text("(file),b\n1,2\n3,4\n5,7\n")
    with pytest.raises(ValueError, match=r"no column may be called '\(file\)'"):
        form_of(tmp_path / "t.csv")
