import csv
import io
import json
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import drjax
from drjax.attacks import exposure
from drjax.audits import AuditConfig, exposure_report, learned, worst_off
from drjax.audits.every_record import EveryRecordSetting
from drjax.cli import main
from drjax.data import load
from tests.data import messy


@pytest.fixture(scope="module")
def made():
    return messy.patients(150, 3)


@pytest.fixture(scope="module")
def audited(made, tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    (folder / "patients.csv").write_text(made.text)
    return drjax.audit(folder / "patients.csv", out=folder / "run", options=False), folder / "run"


def table_of(audited):
    return audited[1].parent / "patients.csv"


def rows_of(made):
    return list(csv.DictReader(io.StringIO(made.text)))


def test_all_records_of_a_table_are_the_release(audited):
    result, _ = audited
    assert len(result.exposure.row) == 150
    assert result.targets.shape == (150, load(table_of(audited)).x.shape[1])
    assert result.verdict.level == "high"


def test_the_table_of_records_has_their_ids_and_lines(made, audited):
    result, folder = audited
    lines = (folder / "exposure.csv").read_text().splitlines()
    records = rows_of(made)
    for line in csv.DictReader(lines):
        assert line["id"] == records[int(line["row"])]["patient_id"]
        assert int(line["line"]) == int(line["row"]) + 2
    assert (folder / "exposure.csv").stat().st_mode & 0o077 == 0
    worst = next(csv.DictReader(lines))
    assert f"Most exposed: {worst['id']} (line {worst['line']})" in result.verdict.details[2]


def test_nobody_is_named_whom_no_attack_finds_better_than_the_mean(made, audited):
    data, rows = load(table_of(audited)), np.arange(150)
    means = exposure.means_of_others(data.x, rows)
    away = means + 1.01 * (data.x - means) * np.where(rows < 2, 1, -1)[:, None]
    for found, named in ((2 * means - data.x, []), (away, rows_of(made)[:2])):
        measured = exposure.measure(found, data.x, rows, np.zeros(150, np.uint32))
        _, worst, *most, assumed = worst_off.in_words(data, measured, found, "the method")
        assert assumed.startswith("Assumed: ")
        if named:
            assert ", with 0.01% of the error of guessing the mean of the others: " in worst
            assert sum(record["patient_id"] in most[0] for record in named) == 2
            assert most[0].count("line") == 2
        else:
            assert (
                worst
                == "Nobody stands out: for none of 150 records it does better than guessing the mean of the others."
            )
            assert not most


def test_records_of_a_frame_have_one_place(made, tmp_path):
    frame = pd.read_csv(io.StringIO(made.text))
    for data, own in ((load(frame, id="patient_id"), ["id"]), (load(frame[["age", "ward"]]), [])):
        measured = exposure.measure(data.x, data.x, np.arange(150), np.zeros(150, np.uint32))
        table = tmp_path / "exposure.csv"
        exposure_report.write_table(table, data, measured, {"status": np.zeros(150, np.uint32)})
        heads, first, *_ = csv.reader(table.read_text().splitlines())
        assert heads[: 3 + len(own)] == ["rank", "row", *own, "error"]
        assert len(set(heads)) == len(heads) == len(first)
        if own:
            assert first[2] == frame["patient_id"][int(first[1])]


def test_what_is_learned_is_in_the_columns_units(made, audited):
    folder = audited[1]
    data = load(table_of(audited))
    found = {one.column.name: one for one in learned.learned(data, np.arange(150), data.x)}
    assert set(found) == {name for name, kind in made.kinds.items() if kind not in ("id", "text", "constant", "empty")}
    assert all(np.nanmax(one.missed) < 1e-3 * max(1, np.nanmax(one.guessed)) for one in found.values())
    truth = np.array(made.columns["age"], float)
    off = data.x.copy()
    off[:, data.feature_names.index("age")] += 3 / data.scale[data.feature_names.index("age")]
    age = next(one for one in learned.learned(data, np.arange(150), off) if one.column.name == "age")
    np.testing.assert_allclose(age.missed, 3, rtol=1e-4)
    np.testing.assert_allclose(age.guessed, np.abs(truth - np.median(truth)), rtol=1e-4)
    missing = np.array([value is None for value in made.columns["weight_kg"]])
    assert np.isnan(found["weight_kg"].missed[missing]).all()
    assert not np.isnan(found["weight_kg"].missed[~missing]).any()
    wrong = np.roll(data.x, 1, axis=0)
    ward = next(one for one in learned.learned(data, np.arange(150), wrong) if one.column.name == "ward")
    of_ward = np.array(made.columns["ward"])
    np.testing.assert_array_equal(ward.missed, np.roll(of_ward, 1) != of_ward)
    assert "What an attacker learns, column by column" in (folder / "report.html").read_text()


def test_what_is_learned_of_a_typical_person_is_counted(audited):
    data = load(table_of(audited))
    x, names = data.x.astype(np.float64), list(data.feature_names)
    sexes = [j for j, name in enumerate(names) if name.startswith("sex")]
    x[:10, sexes] = 1 - x[:10, sexes]
    x[:, names.index("age")] += 3 / data.scale[names.index("age")]
    x[50:, names.index("height_cm")] += 9 / data.scale[names.index("height_cm")]
    some = [one for one in learned.learned(data, np.arange(150), x) if one.column.name in ("age", "sex", "height_cm")]
    assert {one.column.name: one.n_right for one in some} == {"age": 0, "height_cm": 50, "sex": 140}
    said = learned.typical(tuple(some))
    assert "learns age within 3 (a guess: within 1" in said
    assert "sex exactly for 140 of 150 (a guess: for 78)" in said
    assert "height_cm" not in said
    assert "right together" not in said
    x[5:12, [j for j, name in enumerate(names) if name.startswith("ward")]] = 0.5
    two = [one for one in learned.learned(data, np.arange(150), x) if one.column.name in ("ward", "sex")]
    wrong = np.isin(np.arange(150), np.arange(10)) | two[0].is_off | two[1].is_off
    assert {one.column.name: one.n_right for one in two}["sex"] == 140
    assert f"All that is exact is right together for {(~wrong).sum()} of 150 people." in learned.typical(tuple(two))
    assert learned.of_one(tuple(some), 3) == "1 of 3 columns exactly (height_cm); age within 3; wrong in sex"
    assert learned.of_one(tuple(some), 60) == "1 of 3 columns exactly (sex); age within 3, height_cm within 9"


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("age", 0.41, "within 0.41"),
        ("age", 1e-9, "exactly"),
        ("admitted", 3.0, "within 3 days"),
        ("admitted", 0.25, "within 6 hours"),
        ("time of admission", 0.5, "within 30 minutes"),
        ("severity", 0.2, "exactly"),
        ("severity", 1.0, "within 1 rank"),
        ("saturation", 2.0, "within 2%"),
        ("monthly income", 1234.5, "within 1,234"),
    ],
)
def test_errors_are_said_in_the_columns_units(audited, name, value, words):
    assert learned.within(load(table_of(audited)).plan.of(name), value, 10.0) == words


def test_the_page_shows_values_as_the_table_writes_them_and_says_private(made, audited):
    page = (audited[1] / "report.html").read_text()
    assert "PRIVATE" in page
    result, _ = audited
    worst = rows_of(made)[int(result.exposure.row[result.exposure.rank.argmin()])]
    assert worst["ward"] in page
    assert worst["admitted"] in page
    assert f"{worst['patient_id']} (line" in page


@pytest.mark.parametrize(
    ("options", "is_each"),
    [
        ({}, True),
        ({"attacks": ("closed-form",)}, True),
        ({"max_records": 5}, True),
        ({"n_known": 50}, False),
        ({"defense": "input-noise", "defense_scale": (0.1,)}, False),
        ({"public_data": "other.csv"}, False),
        ({"seed_known": True, "method": "srp"}, False),
    ],
)
def test_the_release_of_own_data_is_all_of_them_unless_a_split_is_asked_for(options, is_each):
    assert AuditConfig(data="patients.csv", **options).attacks_each == is_each
    if "max_records" not in options:
        assert not AuditConfig(data="digits", **options).attacks_each


def test_as_many_records_are_attacked_as_the_time_allows(made, tmp_path, monkeypatch):
    monkeypatch.setattr("drjax.audits.every_record.MOST_SECONDS", 1e-9)
    (tmp_path / "patients.csv").write_text(made.text)
    for options, n in (({}, 20), ({"max_records": 30}, 30), ({"each_record": True}, 150)):
        setting = EveryRecordSetting(AuditConfig(data=str(tmp_path / "patients.csv"), scale=("standard",), **options))
        setting.prepare(progress=False)
        assert len(setting._threat.rows) == n


def test_a_frame_is_audited_as_its_file(made, audited, tmp_path):
    frame = pd.read_csv(io.StringIO(made.text))
    again = drjax.audit(frame, out=tmp_path / "run", id="mrn", options=False)
    assert "(row " in again.verdict.details[2]
    assert str(rows_of(made)[int(again.exposure.row[again.exposure.rank.argmin()])]["mrn"]) in again.verdict.details[2]
    np.testing.assert_allclose(again.targets, audited[0].targets, atol=1e-6)


def test_the_plan_is_written_and_read(made, tmp_path, capsys):
    table, plan = tmp_path / "patients.csv", tmp_path / "plan.json"
    table.write_text(made.text)
    main(["data", "plan", str(table), str(plan)])
    said = capsys.readouterr().out
    assert "21 of 26 columns become" in said
    assert "To change" not in said
    assert "PRIVATE" in said
    assert plan.stat().st_mode & 0o077 == 0
    plan.write_text(plan.read_text().replace('"kind": "text"', '"kind": "drop"'))
    words = ["--schema", str(plan), "--drop", "ward", "--options", "False"]
    main(["audit", "--data", str(table), *words, "--out", str(tmp_path / "run")])
    said = " ".join(capsys.readouterr().out.split())
    assert "PRIVATE" in said
    assert f"To change what a column is, correct {plan}." in said
    assert "Most exposed: P" in said


def test_an_audit_says_which_file_changes_the_plan(made, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("my patients.csv").write_text(made.text)
    main(["audit", "--data", "my patients.csv", "--options", "False", "--out", "run"])
    said = " ".join(capsys.readouterr().out.split())
    words = "drjax data plan 'my patients.csv' plan.json"
    assert f"To change what a column is: {words}, correct plan.json, and add --schema plan.json." in said
    main(shlex.split(words)[1:])
    assert json.loads(Path("plan.json").read_text())["ward"]["kind"] == "category"


def test_an_embedding_of_a_table_needs_no_option(made, tmp_path, capsys):
    (tmp_path / "patients.csv").write_text(made.text)
    main(["embed", str(tmp_path / "patients.csv"), str(tmp_path / "map.csv"), "--quiet"])
    assert "150 records, 2 coordinates each" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--drop", "wards"], "drop must name columns of the table, which has patient_id, mrn, "),
        (["--drop", "ward", "--categorical", "ward"], "column 'ward' is named in categorical and in drop"),
        (["--schema", "none.json"], "there is no plan none.json: write one with drjax data plan"),
        (["--id", "name"], "id must name columns of the table"),
    ],
)
def test_options_that_fit_no_column_are_refused(made, tmp_path, options, message, capsys):
    (tmp_path / "patients.csv").write_text(made.text)
    with pytest.raises(SystemExit):
        main(["audit", "--data", str(tmp_path / "patients.csv"), "--out", str(tmp_path / "run"), *options])
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
