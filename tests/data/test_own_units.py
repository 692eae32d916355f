import numpy as np
import pandas as pd
from sklearn.datasets import load_digits

from drjax.data import in_own_units, load


def test_a_table_keeps_its_numbers_and_order_of_features(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("id,age,sex,height,y\n7,31.25,m,180.123456789012,0\n8,44,f,170,1\n9,1e-9,m,160,1\n")
    options = {"categorical": ("sex",), "drop": ("id",), "label": "y"}
    found = in_own_units(str(path), load(path, **options), **options)
    expected = [[31.25, 0, 1, 180.123456789012], [44, 1, 0, 170], [1e-9, 0, 1, 160]]
    np.testing.assert_array_equal(found, expected)
    frame = pd.read_csv(path)
    np.testing.assert_array_equal(in_own_units(frame, load(frame, **options), **options), expected)


def test_arrays_are_as_they_are(tmp_path):
    x = np.arange(24, dtype=np.uint8).reshape(3, 4, 2)
    np.save(tmp_path / "x.npy", x)
    for given in (x, str(tmp_path / "x.npy")):
        np.testing.assert_array_equal(in_own_units(given, load(given)), x.reshape(3, 8))


def test_a_named_set_has_the_levels_that_it_was_published_with():
    np.testing.assert_array_equal(in_own_units("digits", load("digits")), load_digits().data)
