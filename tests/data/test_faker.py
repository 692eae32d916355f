"""Tables of people by somebody else's generator (Faker, five countries): each column is told, and the audit runs."""

import csv
import importlib.resources
import io

import pytest

from drjax.cli import main
from drjax.data import load
from drjax.data.sheets import read_sheet
from drjax.decisions import search

faker = pytest.importorskip("faker")

N = 300
LOCALES = ("en_US", "de_DE", "fr_FR", "es_ES", "pl_PL")
TRUTH = {
    "uuid": "id", "name": "id", "ssn": "id", "e-mail": "id", "address": "text", "remarks": "text", "sex": "category",
    "blood group": "category", "born": "date", "registered": "date", "card expires": "date",
    "passport gender": "category", "latitude": "number", "longitude": "number", "price": "number", "visit": "date",
    "arrival": "time", "active": "yes/no", "card": "category", "weekday": "category", "month": "category",
    "colour": "category", "region": "category", "mail provider": "category", "year": "number", "steps": "number",
}  # fmt: skip
"""By Faker's documentation of the providers; a name, a number of the state or an address tells people apart."""


def people(locale, n=N):
    """A CSV file of n people."""
    fake = faker.Faker(locale)
    fake.seed_instance(0)
    rows = []
    for _ in range(n):
        who = fake.profile(fields=["sex", "blood_group"])
        rows.append(
            [
                fake.uuid4(), fake.name(), fake.ssn(), fake.email(), fake.address(), fake.sentence(), who["sex"],
                who["blood_group"], fake.date_of_birth(), fake.date_time_this_decade(), fake.credit_card_expire(),
                fake.passport_gender(), fake.latitude(), fake.longitude(), fake.pricetag(), fake.date("%B %d, %Y"),
                fake.time(), fake.boolean(), fake.credit_card_provider(), fake.day_of_week(), fake.month_name(),
                fake.safe_color_name(), fake.administrative_unit(), fake.free_email_domain(), fake.year(),
                fake.random_int(),
            ]
        )  # fmt: skip
    file = io.StringIO()
    csv.writer(file).writerows([list(TRUTH), *rows])
    return file.getvalue(), rows


@pytest.mark.parametrize("locale", LOCALES)
def test_every_column_of_fakers_people_is_told(locale, tmp_path):
    text, rows = people(locale)
    (tmp_path / "t.csv").write_text(text)
    found = load(tmp_path / "t.csv")
    told = {one.name: one.kind for one in found.plan.columns}
    # Names and addresses tell people apart; whether they are called ids or texts depends on their words.
    for name in ("name", "address", "remarks", "e-mail"):
        assert told.pop(name) in ("id", "text")
    assert told == {name: kind for name, kind in TRUTH.items() if name in told}
    assert len(found.plan.used) == 20
    assert not found.notes
    # An address has two lines.
    assert (found.rows.lines[0], found.rows.lines[1]) == (2, 2 + 1 + rows[0][4].count("\n"))
    values = dict(zip(found.feature_names, found.values.T, strict=True))
    price = "".join(character for character in rows[0][14] if character.isdigit())
    assert values["price"][0] == float(price) / 100
    assert values["latitude"].tolist() == [float(row[12]) for row in rows]
    assert values["born"][0] == (rows[0][8] - type(rows[0][8])(1970, 1, 1)).days
    assert values["active"].tolist() == [float(row[17]) for row in rows]


def test_fakers_people_are_audited_in_one_command(tmp_path, capsys, monkeypatch):
    # No time but for the least number of options: they have tests of their own.
    monkeypatch.setattr(search, "SECONDS", 0.0)
    (tmp_path / "people.csv").write_text(people("de_DE")[0])
    main(["audit", "--data", f"{tmp_path}/people.csv", "--out", f"{tmp_path}/run", "--attacks", "closed-form"])
    said = " ".join(capsys.readouterr().out.split())
    assert "20 of 26 columns become" in said
    assert "300 records" in said
    assert (tmp_path / "run" / "report.html").is_file()


def test_a_table_that_scikit_learn_ships_is_read_though_spaces_part_its_cells():
    sklearn_data = importlib.resources.files("sklearn.datasets.data")
    sheet = read_sheet(sklearn_data / "linnerud_exercise.csv")
    assert list(sheet.columns) == ["Chins", "Situps", "Jumps"]
    assert (len(sheet.lines), sheet.columns["Situps"][0].as_py()) == (20, "162")


def test_iris_with_its_names_is_told(tmp_path):
    datasets = pytest.importorskip("sklearn.datasets")
    frame = datasets.load_iris(as_frame=True).frame
    frame["species"] = datasets.load_iris().target_names[frame.pop("target")]
    frame.to_csv(tmp_path / "iris.csv")
    found = load(tmp_path / "iris.csv")
    assert [one.kind for one in found.plan.columns] == ["number"] * 4 + ["category"]
    assert found.notes == ("Column 1 only counts the records and was left out.",)
