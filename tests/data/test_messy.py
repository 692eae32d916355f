import csv
import datetime
import io
from collections import Counter

import numpy as np
import pytest

from tests.data.messy import WARDS, patients, variants

COUNTS = {
    "id": 2, "text": 1, "date": 3, "time": 1, "number": 10, "category": 3, "ordinal": 2, "yes/no": 2, "constant": 1,
    "empty": 1,
}  # fmt: skip


@pytest.fixture(scope="module")
def messy():
    return patients()


def cells_of(text, delimiter=","):
    head, *rows = csv.reader(io.StringIO(text), delimiter=delimiter)
    return dict(zip(head, map(list, zip(*rows, strict=True)), strict=True))


def test_there_are_26_columns_of_the_promised_kinds(messy):
    cells = cells_of(messy.text)
    assert list(cells) == list(messy.kinds) == list(messy.columns)
    assert len(cells) == 26
    assert Counter(messy.kinds.values()) == COUNTS
    assert sum(kind not in ("id", "text", "constant", "empty") for kind in messy.kinds.values()) >= 20
    assert {len(column) for column in (*cells.values(), *messy.columns.values())} == {3000}


def test_ids_are_unique_and_in_no_order(messy):
    cells = cells_of(messy.text)
    for name in ("patient_id", "mrn"):
        assert len(set(cells[name])) == 3000
        assert cells[name] != sorted(cells[name])
        assert cells[name] == messy.columns[name]


def test_ages_agree_with_birth_dates_and_stays_with_dates(messy):
    cells = cells_of(messy.text)
    table = zip(
        *(cells[name] for name in ("date of birth", "admitted", "discharged", "age", "length_of_stay")), strict=True
    )
    for birth, admitted, discharged, age, stay in table:
        born = datetime.datetime.strptime(birth, "%d.%m.%Y").date()
        day = datetime.date.fromisoformat(admitted)
        assert int(age) == day.year - born.year - ((day.month, day.day) < (born.month, born.day))
        assert (discharged == "") == (stay == "")
        if discharged:
            assert (datetime.datetime.fromisoformat(discharged).date() - day).days == int(stay) >= 1


def test_the_index_is_that_of_weight_and_height(messy):
    kg, cm, index = (np.array(messy.columns[name], float) for name in ("weight_kg", "height_cm", "bmi"))
    np.testing.assert_array_equal(np.isnan(kg), np.isnan(index))
    assert np.nanmax(np.abs(kg / (cm / 100) ** 2 - index)) <= 0.05 + 1e-9


@pytest.mark.parametrize(
    ("name", "cell", "share"),
    [
        ("discharged", "", 0.04), ("weight_kg", "", 0.05), ("smoker", "unknown", 0.06), ("crp", "<5", 0.25),
        ("troponin", "<0.01", 0.25), ("troponin", ">50", 0.015), ("heart_rate", "n/a", 0.03), ("notes", "", 0.3),
        ("monthly income", "NA", 0.08), ("saturation", "-", 0.02), ("sex", "", 0.01), ("comment2", "", 1),
        ("heart_rate", "see note", 1 / 3000),
    ],
)  # fmt: skip
def test_what_makes_it_messy_is_about_as_frequent_as_promised(messy, name, cell, share):
    found = cells_of(messy.text)[name].count(cell) / 3000
    assert abs(found - share) <= 4 * np.sqrt(share * (1 - share) / 3000)
    assert found > 0


def test_true_values_are_those_of_the_cells(messy):
    cells = cells_of(messy.text)
    for name in (name for name, kind in messy.kinds.items() if kind == "number"):
        for value, cell in zip(messy.columns[name], cells[name], strict=True):
            if value is None:
                assert cell in ("", "n/a", "NA", "-", "see note")
            elif cell[0] in "<>":
                assert (value < float(cell[1:])) == (cell[0] == "<")
            else:
                assert value == float(cell.rstrip("%").replace(",", ""))


def test_categories_are_skewed_and_notes_short(messy):
    wards, codes = Counter(messy.columns["ward"]), Counter(messy.columns["diagnosis"])
    assert set(wards) == set(WARDS)
    assert len(codes) == 60
    assert min(wards.values()) * 5 < max(wards.values())
    assert np.median(list(codes.values())) * 10 < max(codes.values())
    lengths = {len(note.split()) for note in messy.columns["notes"] if note is not None}
    assert lengths == set(range(4, 16))


def test_four_directions_hold_more_than_noise_would(messy):
    numbers = np.array([messy.columns[name] for name, kind in messy.kinds.items() if kind == "number"], float).T
    numbers = np.log1p(numbers[~np.isnan(numbers).any(1)])
    variances = np.linalg.eigvalsh(np.corrcoef(numbers.T))
    assert variances[-4:].sum() > 0.6 * variances.sum()


def test_a_seed_repeats_and_two_differ():
    assert patients(200, 3) == patients(200, 3)
    first, second = patients(200, 3), patients(200, 4)
    assert first.text != second.text
    assert first.kinds == second.kinds
    with pytest.raises(ValueError, match="at least 100"):
        patients(99)


def test_other_exports_hold_the_same_table(messy):
    made, cells = variants(messy), cells_of(messy.text)
    assert cells_of(made["tab, UTF-16"].decode("utf-16"), "\t") == cells
    assert made["BOM"].startswith(b"\xef\xbb\xbf")
    assert made["BOM"].decode("utf-8-sig") == messy.text
    title, blank, *rest = made["title and blank line above, totals below"].decode().splitlines(keepends=True)
    assert title.startswith("Admissions")
    assert blank == "\n"
    assert "".join(rest[:-1]) == messy.text
    assert rest[-1].startswith("Total,")
    blob = made["semicolon with decimal commas, Windows-1252"]
    with pytest.raises(UnicodeDecodeError):
        blob.decode()
    european = cells_of(blob.decode("cp1252"), ";")
    assert "Gefäßchirurgie" in european["ward"]
    for name, kind in messy.kinds.items():
        if kind == "number":
            back = [cell.replace(".", "").replace(",", ".") for cell in european[name]]
            assert back == [cell.replace(",", "") for cell in cells[name]]
        elif name != "ward":
            assert european[name] == cells[name]
