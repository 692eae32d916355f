"""The form of a messy file: its layout is stated as its columns are, and a release refuses in one line until then."""

import json
import stat

import pytest

from drjax.data.private_tables import FILE
from drjax.data.table_files import read_table
from drjax.releases import PCAReleaseConfig, release_pca
from drjax.releases.schema_form import write_schema
from drjax.releases.synthetic import SyntheticReleaseConfig, release_synthetic
from tests.data.messy import patients, variants
from tests.releases.stated_messy import KNOWN, filled_in

MESSY = patients(200)


def form_of(folder, name, **options):
    (folder / "t.csv").write_bytes(variants(MESSY)[name])
    _, rest = write_schema(folder / "t.csv", folder / "form.json", **options)
    return json.loads((folder / "form.json").read_text()), rest


def release(kind, folder, form, **fields):
    (folder / "stated.json").write_text(json.dumps(form))
    given = {"data": folder / "t.csv", "bounds": folder / "stated.json", "epsilon": 1.0, "trials": 0, **fields}
    if kind == "pca":
        return release_pca(PCAReleaseConfig(**given), folder / "out")
    return release_synthetic(SyntheticReleaseConfig(**given), folder / "out")


@pytest.mark.parametrize("kind", ["pca", "synthetic"])
def test_a_layout_that_is_drafted_and_not_stated_refuses_the_release(tmp_path, kind):
    form, rest = form_of(tmp_path, "title and blank line above, totals below")
    assert rest[0] == FILE
    stated = filled_in(form)
    assert stated[FILE]["stated"]["lines_below"] == 1
    with pytest.raises(ValueError, match=r"the layout must be stated in the bounds, got none for '\(file\)'") as raised:
        release(kind, tmp_path, stated | {FILE: form[FILE]})
    assert "\n" not in str(raised.value)
    assert release(kind, tmp_path, stated).manifest["n_records"] == 200


def test_decimal_commas_and_other_encodings_are_released_with_decimal_points(tmp_path):
    form, rest = form_of(tmp_path, "semicolon with decimal commas, Windows-1252")
    assert rest[0] == FILE
    stated = filled_in(form)
    wards = {"Surgery": "Gefäßchirurgie", "Obstetrics": "Geburtshilfe für Frauen"}
    stated["ward"]["stated"]["categories"] = [wards.get(name, name) for name in KNOWN["ward"]["categories"]]
    assert stated["crp"]["stated"]["format"] == "decimal comma"
    result = release("synthetic", tmp_path, stated)
    # Nothing was taken for missing that is there.
    assert "ward" not in result.outside
    assert "crp" not in result.outside
    columns = read_table(result.folder / "synthetic.csv")
    assert all(float(cell) <= 400 for cell in columns["crp"].to_pylist())
    assert "format" not in json.loads((result.folder / "schema.json").read_text())["crp"]


def test_statements_for_the_audit_shape_the_draft_and_state_nothing(tmp_path):
    form, rest = form_of(tmp_path, "BOM", schema={"pain": "category", "age": "drop"}, drop=("ward",))
    assert form["pain"]["draft"] == {"kind": "category", "categories": None, "fill": None}
    assert form["age"]["draft"] == "drop"
    assert form["age"]["stated"] is None
    assert form["ward"] == "drop"
    assert "ward" not in rest
    assert {"pain", "age"} <= set(rest)
    assert stat.S_IMODE((tmp_path / "form.json").stat().st_mode) == 0o600
    with pytest.raises(ValueError, match="out must be a new file"):
        write_schema(tmp_path / "t.csv", tmp_path / "form.json")


def test_what_public_records_hold_is_stated_in_the_form(tmp_path):
    (tmp_path / "public.csv").write_text("age,pain,sex\n20,0,M\n90,10,F\n")
    form, rest = form_of(tmp_path, "BOM", public=tmp_path / "public.csv")
    assert form["age"] == {"kind": "integer", "lower": 20, "upper": 90}
    assert form["sex"] == {"kind": "category", "categories": ["F", "M"]}
    assert not {"age", "pain", "sex"} & set(rest)


def test_a_workbook_is_refused_before_a_form_is_written(tmp_path):
    (tmp_path / "t.xlsx").write_bytes(b"PK")
    with pytest.raises(ValueError, match="save the sheet as CSV"):
        write_schema(tmp_path / "t.xlsx", tmp_path / "form.json")
    assert not (tmp_path / "form.json").exists()
