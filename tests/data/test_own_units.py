import io

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits

from drjax.data import in_own_units, load, load_values, records_of
from drjax.data.own_units import labelled_records_of
from tests.data import messy
from tests.data.test_sheets import workbook


def test_a_table_keeps_its_numbers_and_order_of_features(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("id,age,sex,height,y\n7,31.25,m,180.123456789012,0\n8,44,f,170,1\n9,1e-9,m,160,1\n")
    options = {"categorical": ("sex",), "drop": ("id",), "label": "y"}
    found = in_own_units(str(path), load(path, **options))
    expected = [[31.25, 0, 1, 180.123456789012], [44, 1, 0, 170], [1e-9, 0, 1, 160]]
    np.testing.assert_array_equal(found, expected)
    frame = pd.read_csv(path)
    np.testing.assert_array_equal(in_own_units(frame, load(frame, **options)), expected)


def test_arrays_are_as_they_are(tmp_path):
    x = np.arange(24, dtype=np.uint8).reshape(3, 4, 2)
    np.save(tmp_path / "x.npy", x)
    for given in (x, str(tmp_path / "x.npy")):
        np.testing.assert_array_equal(in_own_units(given, load(given)), x.reshape(3, 8))


def test_a_named_set_has_the_levels_that_it_was_published_with():
    np.testing.assert_array_equal(in_own_units("digits", load("digits")), load_digits().data)


def test_tables_of_numbers_and_arrays_are_read_as_they_are(tmp_path):
    (tmp_path / "known.csv").write_text("a,b\n1.25,2\n3,4\n")
    (known, public), plan = records_of(tmp_path / "known.csv", np.ones((3, 2)))
    assert plan is None
    assert known.names == ("a", "b")
    np.testing.assert_array_equal(known.x, [[1.25, 2], [3, 4]])
    np.testing.assert_array_equal(public.x, np.ones((3, 2)))


def test_tables_that_belong_together_have_one_plan(tmp_path):
    whole = pd.read_csv(io.StringIO(messy.patients(200, 1).text), dtype=str, keep_default_na=False)
    whole.to_csv(tmp_path / "whole.csv", index=False)
    whole[:50].to_csv(tmp_path / "known.csv", index=False)
    (together,), of_whole = records_of(tmp_path / "whole.csv")
    (known, public), plan = records_of(tmp_path / "known.csv", whole[50:])
    assert known.names == public.names == together.names
    assert [one.kind for one in plan.columns] == [one.kind for one in of_whole.columns]
    np.testing.assert_array_equal(np.concatenate([known.x, public.x]), together.x)
    stated = records_of(whole, schema={"ward": "drop"})[0][0]
    assert not [name for name in stated.names if name.startswith("ward")]


def test_records_that_do_not_belong_together_are_refused(tmp_path):
    (tmp_path / "known.csv").write_text("a,b\n1.25,x\n3,y\n")
    (tmp_path / "public.csv").write_text("a,c\n1.25,x\n3,y\n")
    with pytest.raises(ValueError, match=r"public.csv must have the columns of .*known.csv, got another: 'b'"):
        records_of(tmp_path / "known.csv", tmp_path / "public.csv")
    (tmp_path / "gap.csv").write_text("a,b\n1.25,\n3,4\n")
    with pytest.raises(ValueError, match="column 'b' has 1 missing"):
        records_of(tmp_path / "gap.csv")
    with pytest.raises(FileNotFoundError, match="check the path"):
        records_of(tmp_path / "none.csv")


def test_a_workbook_of_numbers_is_taken_as_it_is(tmp_path):
    path = tmp_path / "known.xlsx"
    path.write_bytes(workbook({"s": [["a", "b"], [1.25, 2], [3, 2], [7, 2]]}))
    (known,), plan = records_of(path)
    assert plan is None
    np.testing.assert_array_equal(known.x, [[1.25, 2], [3, 2], [7, 2]])
    np.testing.assert_array_equal(load_values(path), known.x)


def test_labels_are_no_feature_and_columns_may_be_the_common_ones(tmp_path):
    (tmp_path / "known.csv").write_text("a,b,y\n1.25,x,0\n3,y,1\n")
    (tmp_path / "public.csv").write_text("b,a,more\ny,7,1\nx,8,2\n")
    found = labelled_records_of(tmp_path / "known.csv", tmp_path / "public.csv", label="y", only_common=True)
    assert [values.names for values in found.values] == [("a", "b=x", "b=y")] * 2
    np.testing.assert_array_equal(found.values[1].x, [[7, 0, 1], [8, 1, 0]])
    assert (found.labels[0].to_pylist(), found.labels[1]) == (["0", "1"], None)
    (tmp_path / "y.csv").write_text("y\n1\n")
    with pytest.raises(ValueError, match="must have columns beside its label, got y alone"):
        labelled_records_of(tmp_path / "y.csv", label="y")
    with pytest.raises(ValueError, match="schema applies to tables"):
        records_of(np.ones((3, 2)), schema={"a": "number"})


def test_a_constant_that_is_stated_to_be_a_number_stays(tmp_path):
    (tmp_path / "t.csv").write_text("a,b,c\n1.25,2,x\n3,2,y\n")
    (known,), _ = records_of(tmp_path / "t.csv", schema={"b": "number"})
    np.testing.assert_array_equal(known.x[:, :2], [[1.25, 2], [3, 2]])
