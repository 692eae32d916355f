import numpy as np
import pandas as pd
import pytest

from drjax.data.dataset import Rows
from drjax.data.given_map import read_map

N = 40
COORDS = np.random.default_rng(0).normal(size=(N, 2)) * 10
FRAME = pd.DataFrame(COORDS, columns=["u", "v"])
IDS = tuple(f"P{i:03d}" for i in range(N))
ROWS = Rows("patient", IDS, np.arange(2, N + 2), "line")


@pytest.mark.parametrize(
    ("save", "said"),
    [
        (lambda path: FRAME.to_csv(path, index=False), None),
        # As pandas and R write their row numbers.
        (lambda path: FRAME.to_csv(path), "only counts the records"),
        (lambda path: FRAME.set_axis(range(1, N + 1)).to_csv(path), "only counts the records"),
        # As spreadsheets and R write numbers where commas are decimal.
        (lambda path: FRAME.to_csv(path, sep=";", decimal=",", index=False), None),
        (lambda path: FRAME.to_csv(path, header=False, index=False), "No line names the columns"),
        (lambda path: FRAME.assign(patient=IDS)[["patient", "u", "v"]].to_csv(path, index=False), "names the records"),
        (lambda path: FRAME.set_axis(list(IDS)).to_csv(path), "names the records"),
    ],
)
def test_coordinates_are_read_as_programs_write_them(tmp_path, save, said):
    path = tmp_path / "map.csv"
    save(path)
    found = read_map(path, ROWS)
    np.testing.assert_allclose(found.coords, COORDS, rtol=1e-12)
    assert (said is None and not found.notes) or any(said in note for note in found.notes)


def test_arrays_and_frames_are_taken_as_they_are(tmp_path):
    np.save(tmp_path / "map.npy", COORDS)
    for source in (COORDS, FRAME, tmp_path / "map.npy", FRAME.assign(patient=IDS)):
        np.testing.assert_array_equal(read_map(source, ROWS).coords, COORDS)


def test_names_of_numbers_are_told_by_the_name_of_their_column(tmp_path):
    numbers = [str(1000 - i) for i in range(N)]
    named = FRAME.assign(patient=numbers)
    named.to_csv(tmp_path / "map.csv", index=False)
    rows = ROWS._replace(ids=tuple(numbers))
    np.testing.assert_allclose(read_map(tmp_path / "map.csv", rows).coords, COORDS, rtol=1e-12)
    # Under another name they may be coordinates.
    assert read_map(tmp_path / "map.csv", rows._replace(named_by="person")).coords.shape == (N, 3)


def test_a_map_whose_names_are_in_another_order_is_refused(tmp_path):
    path = tmp_path / "map.csv"
    named = FRAME.assign(patient=IDS)
    named.iloc[[0, 1, 3, 2, *range(4, N)]].to_csv(path, index=False)
    with pytest.raises(ValueError, match=r"column 'patient' of .*got 'P003' for record 2 .*'P002' in column 'patient'"):
        read_map(path, ROWS)
    # Nobody says whose its rows are where the records have no names.
    found = read_map(path)
    assert found.coords.shape == (N, 2)
    assert "holds no numbers and was left out" in found.notes[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("u,v\n1,2\n3,\n5,6\n", "released must hold a map, one row of finite numbers per record.*missing"),
        ("name\na\nb\n", "has no column of numbers"),
        # A cell that is no number makes a column of coordinates none of names, with points or commas.
        ("u,v\n1,2\n3,x4\n5,6\n7,8\n", "'v'.*'x4'"),
        ("u;v\n1,5;2,5\n3,5;x4\n5,5;6,5\n7,5;8,5\n", "'v'"),
        ("", "released must hold a map.*is empty"),
    ],
)
def test_what_is_no_map_is_refused(tmp_path, text, message):
    path = tmp_path / "map.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_map(path)
    with pytest.raises(ValueError, match="there is no file"):
        read_map(tmp_path / "other.csv")
