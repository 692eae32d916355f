import json
from pathlib import Path

import numpy as np
import pytest

from drjax.releases.bounds import LEAST_WIDTH, make_bounds, read_bounds
from drjax.releases.inputs import Table, matched, read_table

NONE = {"file": None, "public": None, "from_private": False, "row_norm": None, "standardise": False}
COLUMNS = ("a", "b", "c")


def table(seed=0, n=50, columns=COLUMNS):
    values = np.random.default_rng(seed).normal([1, -2, 50], [1, 2, 10], (n, 3))
    return Table(Path("t.csv"), values, columns, None, "0" * 64)


def written(tmp_path, content):
    path = tmp_path / "bounds.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_bounds_of_a_file_do_not_depend_on_the_records(tmp_path):
    path = written(tmp_path, {"c": [0, 100], "a": [-1, 3], "b": [-10, 10]})
    for standardise in (False, True):
        one, other = (make_bounds(table(seed), **{**NONE, "file": path, "standardise": standardise}) for seed in (0, 1))
        for name in ("lower", "upper", "center", "scale", "row_norm"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
        assert one.is_public
        np.testing.assert_array_equal(one.lower, [-1, -10, 0])
        np.testing.assert_array_equal(one.center, [1, 0, 50])
        # Nothing within the ranges is cut off: the norm is that of a corner.
        assert one.row_norm == np.linalg.norm([1, 1, 1] if standardise else [2, 10, 50])


def test_bounds_of_public_records_are_their_mean_ranges_and_quantile():
    public = table(1, columns=("b", "a", "c"))
    bounds = make_bounds(table(0), **{**NONE, "public": public, "standardise": True})
    x = public.values[:, [1, 0, 2]]
    np.testing.assert_allclose(bounds.center, x.mean(axis=0))
    np.testing.assert_allclose(bounds.scale, x.std(axis=0))
    norms = np.linalg.norm((x - x.mean(axis=0)) / x.std(axis=0), axis=1)
    assert bounds.row_norm == pytest.approx(np.quantile(norms, 0.9))
    low, high = bounds.ranges
    assert (low < 0).all()
    assert (high > 0).all()
    assert bounds.is_public
    same = make_bounds(table(5), **{**NONE, "public": public, "standardise": True})
    np.testing.assert_array_equal(same.center, bounds.center)
    assert same.row_norm == bounds.row_norm


def test_a_public_column_without_variance_gets_a_range():
    values = np.array([[0.0, 1, 5], [4, 1, 5.5]])
    bounds = make_bounds(table(), **{**NONE, "public": Table(Path("p.csv"), values, COLUMNS, None, "")})
    assert bounds.upper[1] - bounds.lower[1] == pytest.approx(2 * LEAST_WIDTH * 2)


def test_bounds_of_the_records_themselves_say_that_they_are_not_public():
    bounds = make_bounds(table(), **{**NONE, "from_private": True})
    assert not bounds.is_public
    assert "PRIVATE" in bounds.sources["center"]
    assert not any(character.isdigit() for character in bounds.sources["center"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({}, "bounds must not depend on the private records: pass --bounds"),
        ({"from_private": True, "public": table()}, "bounds_from_private_data must be left out"),
        ({"public": table(columns=("a", "b", "d"))}, "got no 'c'"),
        ({"public": table(), "row_norm": 0.0}, "row_norm must be a finite number > 0"),
        ({"public": table(n=1)}, "at least 2 rows"),
    ],
)
def test_missing_or_contradictory_bounds_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        make_bounds(table(), **{**NONE, **change})


@pytest.mark.parametrize(
    ("content", "columns", "message"),
    [
        ("{", COLUMNS, "must be a JSON file"),
        ([1, 2], COLUMNS, "must be a JSON object"),
        ({"a": [0, 1], "b": [0, 1]}, COLUMNS, "none for 'c'"),
        ({"a": [0, 1], "b": [0, 1], "c": [0, 1], "d": [0, 1]}, COLUMNS, "some for 'd', which is no column"),
        ({"a": [0, 1], "b": [1, 1], "c": [0, 1]}, COLUMNS, r"lower must be < upper, got \[1, 1\] for column 'b'"),
        ({"a": [0, 1], "b": [0, True], "c": [0, 1]}, COLUMNS, "2 finite numbers"),
        ({"lower": [0, 0], "upper": [1, 1]}, COLUMNS, "3 finite numbers"),
        ('{"lower": [0, 0, NaN], "upper": [1, 1, 1]}', None, "NaN is not JSON"),
        ('{"a": [0, 1], "b": [0, 1], "c": [0, 1], "a": [0, 2]}', COLUMNS, "key 'a' comes twice"),
        ({"a": [0, 1]}, None, "bounds of an array file"),
        (
            {"a": [0, 1], "b": [0, 1e200], "c": [0, 1]},
            COLUMNS,
            r"must lie within \+-1e\+150, got \[0, 1e\+200\] .* 'b'",
        ),
    ],
)
def test_a_bad_file_of_bounds_is_named(tmp_path, content, columns, message):
    with pytest.raises(ValueError, match=message):
        read_bounds(written(tmp_path, content), columns, 3)


def test_columns_named_lower_and_upper_are_columns(tmp_path):
    path = written(tmp_path, {"lower": [0, 5], "upper": [-1, 1]})
    np.testing.assert_array_equal(read_bounds(path, ("lower", "upper"), 2), [[0, -1], [5, 1]])
    np.testing.assert_array_equal(
        read_bounds(written(tmp_path, {"lower": [0, -1], "upper": [5, 1]}), None, 2), [[0, -1], [5, 1]]
    )


def test_a_file_keeps_its_units_and_its_columns_are_found_by_name(tmp_path):
    (tmp_path / "t.csv").write_text("id,b,a,y\n1,20,300,1\n2,-5,7.5,0\n")
    found = read_table(tmp_path / "t.csv", drop=("id",), label="y")
    np.testing.assert_array_equal(found.values, [[20, 300], [-5, 7.5]])
    np.testing.assert_array_equal(found.label, [1, 0])
    np.testing.assert_array_equal(matched(found, ("a",), 1), [[300], [7.5]])
    with pytest.raises(ValueError, match="got no 'z'"):
        read_table(tmp_path / "t.csv", drop=("z",))
    (tmp_path / "text.csv").write_text("a,b\n1,x\n")
    with pytest.raises(ValueError, match="must hold numbers only: column 'b'"):
        read_table(tmp_path / "text.csv")
    np.save(tmp_path / "x.npy", np.eye(3))
    with pytest.raises(ValueError, match="must have 2 columns, got 3"):
        matched(read_table(tmp_path / "x.npy"), ("a", "b"), 2)
