"""One record changes its own row alone, whatever it holds; all else is decided by the layout of the file."""

import csv
import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drjax.data.private_tables import FILE, Layout, layout_of, read_private
from tests.data.messy import patients, variants

ROWS = [["37", "north, upper", "5"], ["18", 'say "x"', "<5"], ["90", "two\nlines", ""]]
NAMES = ["age", "ward", "crp"]


def rows_of(path, layout=Layout()):  # noqa: B008 (frozen)
    columns = read_private(path, layout)
    return [list(row) for row in zip(*(cells.to_pylist() for cells in columns.values()), strict=True)]


def written(path, rows, names=NAMES, **options):
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, **options).writerows([names, *rows])
    return path


def test_a_table_that_a_program_wrote_comes_back_as_it_was(tmp_path):
    assert rows_of(written(tmp_path / "t.csv", ROWS)) == ROWS
    assert rows_of(written(tmp_path / "t.tsv", ROWS, delimiter="\t")) == ROWS


@settings(max_examples=200)
@given(cells=st.lists(st.text(st.characters(codec="utf-8"), max_size=12), min_size=3, max_size=3))
def test_no_text_of_one_record_changes_the_rows_of_the_others(tmp_path_factory, cells):
    path = tmp_path_factory.mktemp("any") / "t.csv"
    found = rows_of(written(path, [ROWS[0], cells, ROWS[2]]))
    assert len(found) == 3
    assert [found[0], found[2]] == [ROWS[0], ROWS[2]]


@pytest.mark.parametrize(
    ("line", "row"),
    [("1", ["1", "", ""]), ("1,2,3,4,5", ["1", "2", "3"]), (",,", ["", "", ""]), ("   ", ["   ", "", ""]),
     ("a\tb", ["a\tb", "", ""]), ("\ufffd,é,x", ["\ufffd", "é", "x"]), ('1,"a, b",c', ["1", "a, b", "c"])],
)  # fmt: skip
def test_a_line_with_more_or_fewer_cells_is_a_record_and_changes_no_other(tmp_path, line, row):
    (tmp_path / "t.csv").write_text(f"age,ward,crp\n37,north,5\n{line}\n18,south,6\n")
    assert rows_of(tmp_path / "t.csv") == [["37", "north", "5"], row, ["18", "south", "6"]]


@given(st.lists(st.lists(st.text(st.sampled_from("a1. é;"), max_size=4), min_size=1, max_size=4), min_size=1))
@settings(max_examples=100)
def test_a_quote_somewhere_does_not_change_how_other_lines_are_split(tmp_path_factory, rows):
    """Lines without quotes are split by pyarrow, files with one by our own rule: both agree."""
    folder = tmp_path_factory.mktemp("both")
    body = "".join(f"x{','.join(row)}\n" for row in rows)
    (folder / "plain.csv").write_text(f"age,ward\n{body}1,2\n")
    (folder / "quoted.csv").write_text(f'age,ward\n{body}"1",2\n')
    assert rows_of(folder / "plain.csv") == rows_of(folder / "quoted.csv")


@pytest.mark.parametrize("line", ['1,"open,5', '1,"a"b,5'])
def test_a_quote_that_could_hide_other_records_is_refused_unless_lines_are_records(tmp_path, line):
    (tmp_path / "t.csv").write_text(f'age,ward,crp\n37,north,5\n{line}\n18,"south",6\n')
    with pytest.raises(ValueError, match=r"the record that begins in line 3 of .* has a quote that is not closed"):
        read_private(tmp_path / "t.csv")
    found = rows_of(tmp_path / "t.csv", Layout(quotes="line"))
    assert [found[0], found[2]] == [["37", "north", "5"], ["18", "south", "6"]]
    assert len(found) == 3


def test_titles_and_totals_are_left_out_by_their_place_and_not_by_what_they_say(tmp_path):
    text = "Ward 3\n\nage;ward\n37;north\nTotal;1\n18;south\nTotal;55\nSource: us\n"
    (tmp_path / "t.csv").write_text(text)
    layout = layout_of({"first_line": 4, "lines_below": 2})
    assert rows_of(tmp_path / "t.csv", layout) == [["37", "north"], ["Total", "1"], ["18", "south"]]
    named = layout_of({"first_line": 4, "names": ["a", "b"], "separator": ";", "lines_below": 2})
    assert list(read_private(tmp_path / "t.csv", named)) == ["a", "b"]
    assert rows_of(tmp_path / "t.csv", named) == rows_of(tmp_path / "t.csv", layout)


@pytest.mark.parametrize("name", ["tab, UTF-16", "BOM"])
def test_a_byte_order_mark_tells_the_encoding(tmp_path, name):
    messy = patients(100)
    (tmp_path / "t.csv").write_bytes(variants(messy)[name])
    head, *rows = csv.reader(io.StringIO(messy.text))
    assert list(read_private(tmp_path / "t.csv")) == head
    assert rows_of(tmp_path / "t.csv") == rows


def test_bytes_that_are_no_text_are_unknown_characters_of_their_own_cell(tmp_path):
    (tmp_path / "t.csv").write_bytes(b"age,ward\n37,M\xfcller\n18,south\n")
    assert rows_of(tmp_path / "t.csv") == [["37", "M\ufffdller"], ["18", "south"]]
    assert rows_of(tmp_path / "t.csv", Layout(encoding="cp1252")) == [["37", "Müller"], ["18", "south"]]


@settings(max_examples=50)
@given(cell=st.lists(st.sampled_from(sorted({*range(256)} - {*b'\r\n,"'})), max_size=6).map(bytes))
@pytest.mark.parametrize("encoding", ["utf-8", "cp1252", "shift_jis", "gb18030", "big5", "euc_jp"])
def test_no_bytes_of_one_record_change_the_rows_of_the_others(tmp_path_factory, encoding, cell):
    path = tmp_path_factory.mktemp("bytes") / "t.csv"
    path.write_bytes(b"age,ward\n37,north\n1," + cell + b"\n18,south\n")
    found = rows_of(path, Layout(encoding=encoding))
    assert len(found) == 3
    assert [found[0], found[2]] == [["37", "north"], ["18", "south"]]


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ({"header": 1}, "must be an object with some of encoding, first_line"),
        ([], "must be an object"),
        ({"first_line": 1}, "must be an integer >= 2"),
        ({"first_line": True}, "must be an integer"),
        ({"names": ["a"]}, "first_line .* must be stated with names"),
        ({"first_line": 2, "names": ["a", "a"]}, "must be different texts"),
        ({"first_line": 2, "names": "ab"}, "must be a list of texts"),
        ({"separator": "x"}, "separator .* must be one of"),
        ({"encoding": "none-such"}, "encoding .* must be one that Python knows"),
        ({"encoding": "rot13"}, "encoding .* must be one that Python knows"),
        ({"encoding": "UTF_7"}, "encoding .* must be one .* in which no cell decides how others are read"),
        ({"encoding": "iso2022_jp"}, "in which no cell decides"),
        ({"encoding": "hz-gb-2312"}, "in which no cell decides"),
        ({"encoding": "unicode_escape"}, "in which no cell decides"),
        ({"encoding": "raw-unicode-escape"}, "in which no cell decides"),
        ({"quotes": "none"}, "quotes .* must be one of"),
        ({"lines_below": -1}, "lines_below .* must be an integer"),
    ],
)
def test_a_layout_out_of_its_range_is_refused_by_name(stated, message):
    with pytest.raises(ValueError, match=message) as raised:
        layout_of(stated)
    assert FILE in str(raised.value)


@pytest.mark.parametrize(
    ("name", "content", "layout", "message"),
    [
        ("t.xlsx", b"", {}, "must be a text or Parquet file .* save the sheet as CSV"),
        ("t.json", b"", {}, "the suffix of .* must be one of"),
        ("t.csv", b"", {}, "is empty"),
        ("t.csv", b"age,age\n1,2\n", {}, "2 columns named 'age'"),
        ("t.csv", b"age,ward\n", {}, "must hold records, got none"),
        ("t.csv", b"age,ward\n1,2\n", {"first_line": 9}, "first_line .* must be a line of"),
        ("t.parquet", b"", {"first_line": 9}, "must be left out for a Parquet file"),
    ],
)
def test_what_is_no_private_table_is_refused(tmp_path, name, content, layout, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_private(tmp_path / name, layout_of(layout))
