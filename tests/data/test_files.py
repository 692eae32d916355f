import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from PIL import Image

from drjax.core import streamed
from drjax.data import count_duplicates, files, load, load_file, load_values


def write(path, text):
    path.write_text(text)
    return path


def one_line(error):
    message = str(error.value)
    assert "\n" not in message
    return message


def test_csv_columns_are_scaled_by_their_own_range_and_read_back(tmp_path):
    data = load(str(write(tmp_path / "a.csv", "age,pay,flat\n20,1.5,7\n40, -2.5 ,7\n30,0,7\n")))
    np.testing.assert_array_equal(data.x, np.float32([[0, 1], [1, 0], [0.5, 0.625]]))
    assert data.feature_names == ("age", "pay")
    assert data.plan.of("flat").kind == "constant"
    assert data.scale.tolist() == [20, 4]
    np.testing.assert_array_equal(data.x * data.scale + data.offset, [[20, 1.5], [40, -2.5], [30, 0]])
    np.testing.assert_array_equal(data.values, [[20, 1.5], [40, -2.5], [30, 0]])
    assert data.y is None
    assert list(data.provenance.files) == ["a.csv"]


@pytest.mark.parametrize("separator", [";", "\t", ","])
def test_the_separator_is_found_in_the_header(tmp_path, separator):
    text = separator.join("ab") + "\n" + separator.join("12") + "\n" + separator.join("34") + "\n"
    np.testing.assert_array_equal(load_file(write(tmp_path / "a.csv", text)).x, [[0, 0], [1, 1]])


def test_a_byte_order_mark_blank_lines_and_quotes_are_understood(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes('\ufeff"a","b, c"\r\n\r\n"1","2"\r\n3,4\r\n'.encode())
    data = load_file(path)
    assert data.feature_names == ("a", "b, c")
    np.testing.assert_array_equal(data.x, [[0, 0], [1, 1]])


def test_categorical_columns_become_one_hot_and_the_label_becomes_y(tmp_path):
    path = write(tmp_path / "a.csv", "age,city,id,sick\n20,Rome,x1,yes\n40,Bonn,x2,no\n30,Rome,x3,no\n")
    data = load(path, categorical=["city"], drop=["id"], label="sick")
    assert data.feature_names == ("age", "city=Bonn", "city=Rome")
    np.testing.assert_array_equal(data.x, [[0, 0, 1], [1, 1, 0], [0.5, 0, 1]])
    assert data.y.tolist() == [1, 0, 0]
    assert data.class_names == ("no", "yes")


def test_integer_labels_keep_their_values(tmp_path):
    data = load(write(tmp_path / "a.csv", "a,y\n1,7\n2,-1\n"), label="y")
    assert data.y.tolist() == [7, -1]
    assert data.class_names is None


@pytest.mark.parametrize(
    ("text", "options", "says"),
    [
        ("", {}, "is empty"),
        (" \n\n", {}, "is empty"),
        ("a,b\n", {}, "header but no records"),
        ("a,b", {}, "header but no records"),
        ("a,b\n1,2\n3,4\n", {"drop": ["c"]}, "drop must name columns of the table, which has a, b; got 'c'"),
        ("a,b\n1,2\n3,4\n", {"label": "c"}, "label must name columns of the table"),
        (
            "a,b\n1,2\n3,4\n",
            {"drop": ["a", "b"]},
            r"a table must have a column of numbers, .* 'a' \(drop\), 'b' \(drop\)",
        ),
        ("a,b\n1,2\n1,2\n", {}, r"a table must have a column of numbers, .* 'a' \(constant\), 'b' \(constant\)"),
        (
            "a,b\n1,x\n2,\n",
            {"label": "b"},
            "column 'b', the label, .* 1 of its cells in .*a.csv are missing, the first in line 3: fill",
        ),
        ("a,b\n1,2\n", {"drop": ["a"], "categorical": ["a"]}, "'a' is named in categorical and in drop"),
        ("a,b\n1,0.5\n", {"label": "b"}, "label column 'b' must hold integers or text, but row 0 .* holds 0.5"),
    ],
)
def test_a_csv_that_cannot_be_used_says_in_one_line_why(tmp_path, text, options, says):
    path = write(tmp_path / "a.csv", text)
    with pytest.raises(ValueError, match=says) as error:
        load(path, **options)
    one_line(error)


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_a_csv_in_another_encoding_is_read(tmp_path, encoding):
    (tmp_path / "a.csv").write_bytes("größe,b\n1,2\n3,4\n".encode(encoding))
    assert load(tmp_path / "a.csv").feature_names == ("größe", "b")


def test_the_header_that_pandas_gives_an_array_is_one(tmp_path):
    assert load(write(tmp_path / "a.csv", "0,1\n5,6\n7,8\n")).feature_names == ("0", "1")


def test_parquet_gives_what_the_same_csv_gives(tmp_path):
    columns = {"age": [20, 40, 30], "city": ["Rome", "Bonn", "Rome"], "ok": [True, False, True]}
    table = pa.table(columns | {"city": pa.array(columns["city"]).dictionary_encode()})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    write(tmp_path / "a.csv", "age,city,ok\n20,Rome,1\n40,Bonn,0\n30,Rome,1\n")
    ours, peer = (load(tmp_path / file, categorical=["city"]) for file in ("a.parquet", "a.csv"))
    np.testing.assert_array_equal(ours.x, peer.x)
    assert ours.feature_names == peer.feature_names


def test_the_numbers_of_rows_that_pandas_writes_into_parquet_are_no_feature(tmp_path):
    frame = pd.DataFrame({"a": [0.1, 0.4, 0.3], "b": [1.0, 2.0, 4.0]}, index=[7, 3, 5])
    frame.to_parquet(tmp_path / "a.parquet")
    assert pyarrow.parquet.read_schema(tmp_path / "a.parquet").names == ["a", "b", "__index_level_0__"]
    assert load(tmp_path / "a.parquet").feature_names == ("a", "b")
    assert load_values(tmp_path / "a.parquet").shape == (3, 2)


def test_parquet_that_cannot_be_used_says_why(tmp_path):
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 nonsense")
    with pytest.raises(ValueError, match="not a readable Parquet file") as error:
        load(tmp_path / "bad.parquet")
    one_line(error)
    pyarrow.parquet.write_table(pa.table({"a": [[1, 2], [3]]}), tmp_path / "list.parquet")
    with pytest.raises(ValueError, match=r"a table must have a column of numbers, .* 'a' \(empty\)"):
        load(tmp_path / "list.parquet")
    with pytest.raises(ValueError, match=r"kind of 'a' in the plan must fit its cells, got 'category'"):
        load(tmp_path / "list.parquet", categorical=["a"])
    pyarrow.parquet.write_table(pa.table({"a": pa.array([], pa.float64())}), tmp_path / "none.parquet")
    with pytest.raises(ValueError, match="must hold records, got none"):
        load(tmp_path / "none.parquet")


def test_eight_bit_arrays_are_scaled_by_255_and_keep_their_record_shape(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 200, (4, 3, 2), dtype=np.uint8)
    np.save(tmp_path / "a.npy", pixels)
    data = load(tmp_path / "a.npy")
    assert data.shape == (3, 2)
    np.testing.assert_array_equal(data.x, pixels.reshape(4, 6) / np.float32(255))
    assert set(data.scale) == {255.0}


def test_floats_in_the_unit_interval_are_left_alone(tmp_path):
    x = np.random.default_rng(0).uniform(0.2, 0.7, (5, 3))
    np.save(tmp_path / "a.npy", x)
    data = load(tmp_path / "a.npy")
    np.testing.assert_array_equal(data.x, x.astype(np.float32))
    assert (set(data.offset), set(data.scale)) == ({0.0}, {1.0})


def test_other_arrays_are_scaled_by_column_and_images_by_one_range(tmp_path):
    x = np.array([[0, 10], [4, 30], [2, 20]])
    np.save(tmp_path / "a.npy", x)
    np.testing.assert_array_equal(load(tmp_path / "a.npy").x, [[0, 0], [1, 1], [0.5, 0.5]])
    np.save(tmp_path / "b.npy", x[:, :, None].astype(np.float32))
    data = load(tmp_path / "b.npy")
    np.testing.assert_array_equal(data.x, (x / 30).astype(np.float32))
    assert data.scale.tolist() == [30, 30]


def test_npz_holds_records_as_x_or_as_its_only_matrix(tmp_path):
    x, y = np.eye(3), np.array(["b", "a", "b"])
    np.savez(tmp_path / "a.npz", x=x, y=y, other=np.zeros((2, 2)))
    data = load(tmp_path / "a.npz")
    np.testing.assert_array_equal(data.x, x)
    assert (data.y.tolist(), data.class_names) == ([1, 0, 1], ("a", "b"))
    np.savez_compressed(tmp_path / "b.npz", images=x, ids=np.arange(3))
    np.testing.assert_array_equal(load(tmp_path / "b.npz").x, x)
    np.savez(tmp_path / "c.npz", train=x, test=x)
    with pytest.raises(ValueError, match=r"array named x, got train \(3, 3\), test \(3, 3\)"):
        load(tmp_path / "c.npz")
    (tmp_path / "named_wrongly.npy").write_bytes((tmp_path / "a.npz").read_bytes())
    np.testing.assert_array_equal(load(tmp_path / "named_wrongly.npy").x, x)
    np.savez(tmp_path / "d.npz", x=x, y=np.zeros(2, int))
    with pytest.raises(ValueError, match=r"y of .* must hold 3 integers or strings"):
        load(tmp_path / "d.npz")


@pytest.mark.parametrize(
    ("array", "says"),
    [
        (np.array([[1.0, 2.0], [np.nan, np.inf], [3.0, np.inf]]), "column 0 .* has 1 missing, nan .* first in row 1 "),
        (np.arange(5.0), r"got shape \(5,\)"),
        (np.float64(3), r"got shape \(\)"),
        (np.empty((0, 4)), r"got shape \(0, 4\)"),
        (np.array([["a", "b"]]), "must be numbers, got dtype <U1"),
        (np.ones((2, 2), complex), "must be numbers, got dtype complex128"),
    ],
)
def test_an_array_that_cannot_be_used_says_in_one_line_why(tmp_path, array, says):
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(ValueError, match=says) as error:
        load(tmp_path / "a.npy")
    one_line(error)


def test_pickled_and_damaged_arrays_are_refused(tmp_path):
    np.save(tmp_path / "pickled.npy", np.array([[1, "a"]], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "pickled.npz", x=np.array([[1, "a"]], dtype=object))
    np.savez_compressed(tmp_path / "whole.npz", x=np.random.default_rng(0).normal(size=(50, 8)))
    whole = (tmp_path / "whole.npz").read_bytes()
    (tmp_path / "short.npz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "flipped.npz").write_bytes(whole[:900] + bytes([whole[900] ^ 255]) + whole[901:])
    (tmp_path / "text.npz").write_text("nothing of the kind")
    (tmp_path / "empty.npy").write_bytes(b"")
    for file in ("pickled.npy", "pickled.npz", "short.npz", "flipped.npz", "text.npz", "empty.npy"):
        with pytest.raises(ValueError, match=f"{file} is damaged or holds Python objects") as error:
            load(tmp_path / file)
        one_line(error)


def test_duplicate_rows_are_allowed_and_counted(tmp_path):
    data = load(write(tmp_path / "a.csv", "a,b\n1,2\n3,4\n1,2\n1,2\n"))
    assert count_duplicates(data.x) == 2
    assert "2 of 4 records repeat an earlier record" in data.provenance.note


def picture(path, pixels, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, **options)


def test_grey_images_keep_one_channel_and_subfolders_are_labels(tmp_path):
    rng = np.random.default_rng(0)
    first, second = rng.integers(0, 256, (2, 4, 3), dtype=np.uint8)
    picture(tmp_path / "sick" / "a.png", first)
    picture(tmp_path / "well" / "deep" / "b.bmp", np.stack([second] * 3, axis=-1))
    write(tmp_path / "well" / "notes.txt", "not an image")
    write(tmp_path / "well" / "._a.png", "what some systems leave beside a file")
    data = load(tmp_path)
    assert data.shape == (4, 3)
    np.testing.assert_array_equal(data.x, np.stack([first, second]).reshape(2, 12) / np.float32(255))
    assert (data.y.tolist(), data.class_names) == ([0, 1], ("sick", "well/deep"))


def test_colour_images_keep_three_channels(tmp_path):
    rng = np.random.default_rng(0)
    colour, grey = rng.integers(0, 256, (2, 2, 3), dtype=np.uint8), rng.integers(0, 256, (2, 2), dtype=np.uint8)
    picture(tmp_path / "a.png", colour)
    picture(tmp_path / "b.png", grey)
    data = load(tmp_path)
    assert data.shape == (2, 2, 3)
    assert data.y is None
    np.testing.assert_array_equal(
        data.x.reshape(2, 2, 2, 3), np.stack([colour, np.stack([grey] * 3, axis=-1)]) / np.float32(255)
    )


def test_image_folders_that_cannot_be_used_say_in_one_line_why(tmp_path):
    (tmp_path / "empty").mkdir()
    write(tmp_path / "empty" / "readme.txt", "no image")
    with pytest.raises(ValueError, match=r"holds no images: put \.png") as error:
        load(tmp_path / "empty")
    one_line(error)
    picture(tmp_path / "sizes" / "a.png", np.zeros((4, 3), np.uint8))
    picture(tmp_path / "sizes" / "b.png", np.zeros((3, 4), np.uint8))
    with pytest.raises(ValueError, match=r"b\.png is 4 x 3 pixels and .*a\.png is 3 x 4: resize"):
        load(tmp_path / "sizes")
    picture(tmp_path / "deep" / "a.png", np.zeros((4, 3), np.uint16))
    with pytest.raises(ValueError, match="more than 8 bits a channel"):
        load(tmp_path / "deep")
    pages = [Image.fromarray(np.full((4, 3), i, np.uint8)) for i in range(2)]
    (tmp_path / "pages").mkdir()
    pages[0].save(tmp_path / "pages" / "a.tif", save_all=True, append_images=pages[1:])
    with pytest.raises(ValueError, match="has 2 pages or frames"):
        load(tmp_path / "pages")


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".bmp", ".tif"])
def test_a_truncated_image_is_named_wherever_it_is_cut(tmp_path, suffix):
    pixels = np.random.default_rng(0).integers(0, 256, (16, 16), dtype=np.uint8)
    picture(tmp_path / f"whole{suffix}", pixels)
    whole = (tmp_path / f"whole{suffix}").read_bytes()
    folder = tmp_path / "cut"
    folder.mkdir()
    # Up to half the file: what is behind the last pixel row may be missing without harm.
    for length in range(0, len(whole) // 2, 7):
        (folder / f"a{suffix}").write_bytes(whole[:length])
        with pytest.raises(ValueError, match=f"a{suffix} is damaged or not an image"):
            load(folder)


def test_paths_that_lead_nowhere_and_other_files_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="check the path") as error:
        load(str(tmp_path / "absent.csv"))
    one_line(error)
    with pytest.raises(ValueError, match=r"end in one of \.csv, .*, got '\.docx'"):
        load(write(tmp_path / "a.docx", "x"))
    np.save(tmp_path / "a.npy", np.eye(2))
    with pytest.raises(ValueError, match="label applies to tables"):
        load(tmp_path / "a.npy", label="y")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(ValueError, match="holds no images"):
        load(tmp_path / "folder.csv")


def test_records_are_not_the_array_that_was_given():
    x = np.random.default_rng(0).uniform(size=(5, 3)).astype(np.float32)
    assert not np.shares_memory(load(x).x, x)


def test_large_arrays_stay_in_their_file(tmp_path, monkeypatch):
    x = np.random.default_rng(0).uniform(size=(50, 3)).astype(np.float32)
    np.save(tmp_path / "a.npy", x)
    np.save(tmp_path / "b.npy", (x * 7 - 2).astype(np.float64))
    small = [load(tmp_path / name) for name in ("a.npy", "b.npy")]
    monkeypatch.setattr(files, "MAPPED_BYTES", 100)
    monkeypatch.setattr(streamed, "BLOCK_ENTRIES", 60)
    large = [load(tmp_path / name) for name in ("a.npy", "b.npy")]
    for one, other in zip(small, large, strict=True):
        np.testing.assert_array_equal(one.x, other.x)
        np.testing.assert_array_equal(one.scale, other.scale)
        assert one.provenance == other.provenance
    assert isinstance(large[0].x.base, np.memmap)
    np.testing.assert_array_equal(load_values(tmp_path / "a.npy"), x)


def test_large_arrays_that_are_bad_are_refused_as_small_ones_are(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MAPPED_BYTES", 100)
    x = np.random.default_rng(0).uniform(size=(50, 3))
    np.save(tmp_path / "a.npy", x)
    (tmp_path / "cut.npy").write_bytes((tmp_path / "a.npy").read_bytes()[:-40])
    with pytest.raises(ValueError, match="is damaged or holds Python objects"):
        load(tmp_path / "cut.npy")
    x[40, 2] = np.nan
    np.save(tmp_path / "nan.npy", x)
    with pytest.raises(ValueError, match=r"column 2 \(counted from 0\)"):
        load(tmp_path / "nan.npy")
    np.save(tmp_path / "objects.npy", np.full(200, "text", object), allow_pickle=True)
    with pytest.raises(ValueError, match="is damaged or holds Python objects"):
        load(tmp_path / "objects.npy")
