import dataclasses
import gzip
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from drjax.data import SOURCES, available, describe, load
from drjax.data.checksums import sha256

DATA = os.environ.get("DRJAX_DATA")
needs_data = pytest.mark.skipif(not DATA, reason="needs the data folder that DRJAX_DATA names")


@pytest.fixture
def no_data(monkeypatch, tmp_path):
    monkeypatch.delenv("DRJAX_DATA", raising=False)
    monkeypatch.setattr("drjax.data.sources.cache_dir", lambda: tmp_path / "cache")
    return tmp_path


def on_disk(name):
    found = describe(name)
    if not found.present:
        pytest.skip(f"DRJAX_DATA has no {name}")
    return load(name)


def idx(array):
    header = bytes([0, 0, 8, array.ndim]) + b"".join(length.to_bytes(4, "big") for length in array.shape)
    return gzip.compress(header + array.tobytes())


def write_small_mnist(folder):
    """Two training and one test record in the idx format; returns the pixels, labels and checksums."""
    pixels = np.arange(3 * 28 * 28, dtype=np.uint8).reshape(3, 28, 28)
    labels = np.array([5, 0, 9], np.uint8)
    files = {
        "train-images-idx3-ubyte.gz": idx(pixels[:2]),
        "train-labels-idx1-ubyte.gz": idx(labels[:2]),
        "t10k-images-idx3-ubyte.gz": idx(pixels[2:]),
        "t10k-labels-idx1-ubyte.gz": idx(labels[2:]),
    }
    folder.mkdir(parents=True)
    for file, blob in files.items():
        (folder / file).write_bytes(blob)
    return pixels, labels, {file: sha256(blob) for file, blob in files.items()}


@pytest.mark.usefixtures("no_data")
def test_digits_are_scikit_learns_and_need_no_folder():
    digits, bunch = load("digits"), load_digits()
    np.testing.assert_array_equal(digits.x * 16, bunch.data)
    np.testing.assert_array_equal(digits.y, bunch.target)
    assert digits.shape == (8, 8)
    assert digits.x.dtype == np.float32
    np.testing.assert_array_equal(digits.x * digits.scale + digits.offset, bunch.data)


def test_idx_files_are_read_training_records_first(no_data, monkeypatch):
    pixels, labels, checksums = write_small_mnist(no_data / "mnist")
    monkeypatch.setitem(SOURCES, "mnist", dataclasses.replace(SOURCES["mnist"], files=checksums))
    mnist = load("mnist", data_dir=no_data)
    np.testing.assert_array_equal(np.round(mnist.x * 255).reshape(3, 28, 28), pixels)
    np.testing.assert_array_equal(mnist.y, labels)
    assert mnist.provenance.files == checksums


@pytest.mark.parametrize("where", ["argument", "variable", "cache"])
def test_named_sets_are_found_in_every_data_folder(no_data, monkeypatch, where):
    root = {"argument": no_data / "own", "variable": no_data / "shared", "cache": no_data / "cache"}[where]
    checksums = write_small_mnist(root / "mnist")[2]
    monkeypatch.setitem(SOURCES, "mnist", dataclasses.replace(SOURCES["mnist"], files=checksums))
    monkeypatch.setenv("DRJAX_DATA", str(no_data / "shared"))
    assert len(load("mnist", data_dir=no_data / "own").x) == 3
    assert describe("mnist", data_dir=no_data / "own").files["t10k-labels-idx1-ubyte.gz"] == (
        root / "mnist" / "t10k-labels-idx1-ubyte.gz"
    )


def test_a_damaged_file_is_refused_before_it_is_parsed(no_data):
    write_small_mnist(no_data / "mnist")
    with pytest.raises(ValueError, match=r"train-images.*checksum differs.*delete it and run `drjax data fetch mnist`"):
        load("mnist", data_dir=no_data)
    (no_data / "gfe").mkdir()
    (no_data / "gfe" / "gfe.npz").write_bytes(b"PK")
    with pytest.raises(ValueError, match=r"gfe\.npz is damaged.*undamaged copy"):
        load("gfe", data_dir=no_data)
    (no_data / "cifar10").mkdir()
    (no_data / "cifar10" / "cifar10_10k_1k.npz").write_bytes(b"PK")
    with pytest.raises(ValueError, match=r"cifar10_10k_1k\.npz is damaged"):
        load("cifar10", data_dir=no_data)


def test_a_missing_set_says_where_it_was_looked_for_and_how_to_get_it(no_data):
    with pytest.raises(
        FileNotFoundError, match=r"--data-dir or DRJAX_DATA .* run `drjax data fetch fashion_mnist`"
    ) as e:
        load("fashion_mnist", data_dir=no_data)
    assert str(no_data) in str(e.value)
    assert "\n" not in str(e.value)
    with pytest.raises(FileNotFoundError, match=r"utkface/utkface_6000_gray32\.npz.*susanqq"):
        load("utkface")


@pytest.mark.usefixtures("no_data")
def test_an_unknown_name_lists_the_names():
    with pytest.raises(FileNotFoundError, match=r"'minst'.*digits, mnist, fashion_mnist"):
        load("minst")
    with pytest.raises(ValueError, match=r"one of digits.*'minst'"):
        describe("minst")


@pytest.mark.usefixtures("no_data")
def test_table_options_are_refused_for_named_sets():
    with pytest.raises(ValueError, match="digits is a named set"):
        load("digits", drop=["x"])


def test_a_path_object_is_never_a_name(no_data, monkeypatch):
    monkeypatch.chdir(no_data)
    np.save("digits.npy", np.eye(3))
    Path("digits.npy").rename("digits")
    assert len(load("digits").x) == 1797
    with pytest.raises(ValueError, match="must be a folder of images or end in"):
        load(Path("digits"))


@pytest.mark.usefixtures("no_data")
def test_the_catalog_lists_every_set_and_what_is_present():
    listed = {summary.name: summary for summary in available()}
    assert {
        "digits", "mnist", "fashion_mnist", "cifar10", "lfw", "utkface", "nih_chest_xray", "cxr_mednist", "adult",
        "census", "gfe",
    } <= set(listed)  # fmt: skip
    assert [name for name, summary in listed.items() if summary.present] == ["digits"]
    assert {name for name, summary in listed.items() if summary.fetchable} == {
        "mnist", "fashion_mnist", "cifar10", "adult",
    }  # fmt: skip
    for summary in listed.values():
        assert summary.provenance.source
        assert summary.provenance.licence
        assert summary.provenance.note
    assert describe("lfw:person") == describe("lfw")


@needs_data
@pytest.mark.parametrize(
    "name", ["lfw", "lfw:all", "utkface", "nih_chest_xray", "cxr_mednist", "census", "cifar10", "gfe"]
)
def test_real_sets_are_as_the_catalog_says(name):
    data, source = on_disk(name), SOURCES[name]
    assert data.x.shape == (source.n, int(np.prod(source.shape)))
    assert data.shape == source.shape
    assert data.x.dtype == np.float32
    assert (data.x.min(), data.x.max()) == (0.0, 1.0)
    assert data.offset.shape == data.scale.shape == (data.x.shape[1],)
    assert set(data.provenance.files) == set(source.files)
    assert (data.y is None) == (source.class_names is None)
    if data.y is not None:
        assert data.y.shape == (source.n,)
        assert data.y.max() == len(source.class_names) - 1


@needs_data
def test_mnist_has_the_published_class_counts_and_first_labels():
    mnist = on_disk("mnist")
    assert np.bincount(mnist.y[:60_000]).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert np.bincount(mnist.y[60_000:]).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert mnist.y[:5].tolist() == [5, 0, 4, 1, 9]
    # The mean and deviation that the literature normalises the training images with.
    assert mnist.x[:60_000].mean(dtype=np.float64) == pytest.approx(0.1307, abs=5e-5)
    assert mnist.x[:60_000].std(dtype=np.float64) == pytest.approx(0.3081, abs=5e-5)


@needs_data
def test_adult_has_the_published_rows_and_reads_back_in_original_units():
    adult = on_disk("adult")
    assert (adult.x.shape, int(adult.y[:32_561].sum()), int(adult.y.sum())) == ((48_842, 108), 7841, 11_687)
    assert (adult.x.min(), adult.x.max()) == (0.0, 1.0)
    names = list(adult.feature_names)
    original = adult.x * adult.scale + adult.offset
    first = {name: round(float(value)) for name, value in zip(names, original[0], strict=True) if round(float(value))}
    assert first == {
        "age": 39,
        "workclass=State-gov": 1,
        "fnlwgt": 77516,
        "education=Bachelors": 1,
        "education-num": 13,
        "marital-status=Never-married": 1,
        "occupation=Adm-clerical": 1,
        "relationship=Not-in-family": 1,
        "race=White": 1,
        "sex=Male": 1,
        "capital-gain": 2174,
        "hours-per-week": 40,
        "native-country=United-States": 1,
    }
    # 2,799 records of the whole set have no known workclass.
    assert adult.x[:, names.index("workclass=?")].sum() == 2799


@needs_data
def test_census_reads_back_its_first_line():
    census = on_disk("census")
    first = [270914, 45554, 4173, 4621, 45527, 1428, 30809, 27, 27, 45500, 3480, 45500, 45500]
    # float32 keeps seven digits of a column's range.
    np.testing.assert_allclose(census.x[0] * census.scale + census.offset, first, atol=0.1)
    assert census.feature_names[0] == "AFNLWGT"


@needs_data
def test_faces_and_patients_come_with_groups():
    assert len(np.unique(on_disk("lfw").groups)) == 5749
    everybody = on_disk("lfw:all")
    # Everybody knows that LFW's most frequent person has 530 images.
    assert (len(np.unique(everybody.groups)), np.bincount(everybody.groups).max()) == (5749, 530)
    assert len(np.unique(on_disk("nih_chest_xray").groups)) == 682
    assert len(np.unique(on_disk("gfe").groups)) == 17


@needs_data
def test_two_files_of_chest_x_rays_are_two_sets_and_only_one_names_patients():
    named, unnamed = on_disk("nih_chest_xray"), on_disk("cxr_mednist")
    assert named.name != unnamed.name
    assert not named.provenance.files.keys() & unnamed.provenance.files.keys()
    assert named.groups is not None
    assert unnamed.groups is None
    assert unnamed.y is None
    assert len(np.unique(unnamed.x, axis=0)) == 2000
    assert "682 patients" in named.provenance.note
    assert "one patient may be on two sides of a split" in unnamed.provenance.note


@needs_data
def test_a_changed_byte_in_a_real_file_is_noticed(no_data):
    source = Path(DATA or "") / "census_casc" / "Census.csv"
    if not source.is_file():
        pytest.skip("DRJAX_DATA has no census")
    (no_data / "census_casc").mkdir()
    copy = no_data / "census_casc" / "Census.csv"
    shutil.copyfile(source, copy)
    assert len(load("census", data_dir=no_data).x) == 1080
    blob = bytearray(copy.read_bytes())
    blob[-3] ^= 1
    copy.write_bytes(bytes(blob))
    with pytest.raises(ValueError, match="checksum differs"):
        load("census", data_dir=no_data)
