"""Lines and sheets as spreadsheets export them: each read right, or refused in one line with line and way out."""

import pyarrow as pa
import pytest

from drjax.data import load
from drjax.data.plan import planned
from tests.data.test_sheets import workbook

N = 30
HEADER = "id,age,ward,kg\n"
BODY = "".join(f"P{i},{20 + i * 7 % 50},{'AB'[i % 2]},{50 + i * 1.3:.1f}\n" for i in range(N))
AGES, KG = [20 + i * 7 % 50 for i in range(N)], [round(50 + i * 1.3, 1) for i in range(N)]


def test_columns_parted_by_spaces_are_read_where_every_line_has_as_many(read):
    sheet = read("age  bmi sex\n" + "".join(f"{30 + i}  {20 + i / 7:.2f}   {'mf'[i % 2]}\n" for i in range(N)))
    assert list(sheet.columns) == ["age", "bmi", "sex"]
    assert (sheet.columns["sex"].to_pylist()[:2], sheet.lines.tolist()[:2]) == (["m", "f"], [2, 3])
    assert sheet.notes == ("Cells are parted by spaces.",)
    sheet = read("".join(f" {i * 1.7:9.4f} {-i * 0.3:9.4f} {i % 7:9.4f}\n" for i in range(N)))
    assert len(sheet.lines) == N
    assert list(sheet.columns) == ["column 1", "column 2", "column 3"]
    sheet = read(
        "Patient id   Ward name    kg\n" + "".join(f"P {i}   Ward {'AB'[i % 2]}   {i * 1.3:.1f}\n" for i in range(N))
    )
    assert list(sheet.columns) == ["Patient id", "Ward name", "kg"]
    assert sheet.columns["Ward name"].to_pylist()[:2] == ["Ward A", "Ward B"]
    sheet = read('"age" "bmi"\n' + "".join(f'"r {i}" {30 + i} {20 + i / 7:.2f}\n' for i in range(N)))
    assert list(sheet.columns) == ["row", "age", "bmi"]
    assert sheet.columns["row"].to_pylist()[:2] == ["r 0", "r 1"]


@pytest.mark.parametrize(
    "text",
    [
        "name\n" + "".join(f"Anna Meier{i}\n" for i in range(N)),
        "first name\n" + "".join(f"Anna{i} Meier\n" for i in range(N)),
        "note\n" + "".join(f"some words here {i} a\n" for i in range(N)),
    ],
)
def test_words_of_one_column_are_not_parted(read, text):
    sheet = read(text)
    assert (len(sheet.columns), len(sheet.lines)) == (1, N)


@pytest.mark.parametrize("separator", ["~", "^", "\x01", ":", "¦"])
def test_unusual_separators_are_taken_where_there_is_no_other(read, separator):
    sheet = read(
        "id,age,kg\n".replace(",", separator)
        + "".join(f"P{i}{separator}{20 + i}{separator}{i / 7:.2f}\n" for i in range(N))
    )
    assert list(sheet.columns) == ["id", "age", "kg"]
    assert sheet.notes == (f"Cells are parted by {separator!r}.",)
    assert list(read("time\n10:30\n11:45\n").columns) == ["time"]


def test_lines_that_are_quoted_as_a_whole_are_split(read):
    sheet = read('"id,age,kg"\n' + "".join(f'"P{i},{20 + i},{i / 7:.2f}"\n' for i in range(N)))
    assert (list(sheet.columns), sheet.lines.tolist()[:2], len(sheet.lines)) == (["id", "age", "kg"], [2, 3], N)
    assert sheet.notes == ("Each line is quoted as a whole, and was split at ','.",)


def test_apostrophes_around_and_before_cells_are_left_out(read):
    sheet = read("'id','note','age'\n" + "".join(f"'P{i}','a, b','{20 + i}'\n" for i in range(N)))
    assert list(sheet.columns) == ["id", "note", "age"]
    assert (sheet.columns["note"].to_pylist()[0], sheet.columns["age"].to_pylist()[0]) == ("a, b", "20")
    assert sheet.notes == ("Cells are quoted by apostrophes.",)
    sheet = read("id,age\n" + "".join(f"'00{i},'{20 + i}\n" for i in range(N)))
    assert (sheet.columns["id"].to_pylist()[1], sheet.columns["age"].to_pylist()[0]) == ("001", "20")
    assert sheet.notes == ("60 cells begin with an apostrophe or are formulas of a text, which was left out.",)
    sheet = read("id,age\n" + "".join(f'"=""00{i}""",{20 + i}\n' for i in range(N)))
    assert sheet.columns["id"].to_pylist()[1] == "001"
    assert read("name,age\n'Anna,3\nO'Neill,4\n").columns["name"].to_pylist() == ["'Anna", "O'Neill"]


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32", "utf-16"])
def test_encodings_of_two_and_four_bytes_are_told_without_a_mark_too(read, encoding):
    sheet = read("id\tward\n" + "".join(f"P{i}\tä{i % 3}\n" for i in range(N)), encoding=encoding)
    assert sheet.columns["ward"].to_pylist()[:2] == ["ä0", "ä1"]
    assert sheet.notes == (("No mark tells the encoding; the file was read as UTF-16.",) if "-" in encoding[4:] else ())


@pytest.mark.parametrize("line", ["--,---,----,--", "-------,----,-----,----", "===,===,===,===", ":--,:-:,--:,---"])
def test_a_line_of_dashes_below_the_header_is_left_out(read, line):
    sheet = read(HEADER + line + "\n" + BODY)
    assert (len(sheet.lines), sheet.lines[0]) == (N, 3)
    assert sheet.notes == ("Line 2 only underlines the header and was left out.",)


def test_a_table_as_in_a_readme_is_read(read):
    rows = "".join(f"| P{i} | {20 + i} | {i / 7:.2f} |\n" for i in range(N))
    sheet = read("| id | age | kg |\n|---|---:|---|\n" + rows)
    assert list(sheet.columns) == ["id", "age", "kg"]
    assert len(sheet.lines) == N


@pytest.mark.parametrize(
    "below",
    [
        f"Gesamtsumme,{sum(AGES)},,{sum(KG):.1f}\n", f"Total (n=30),{sum(AGES)},,{sum(KG):.1f}\n",
        f"Durchschnitt,{sum(AGES) / N:.2f},,{sum(KG) / N:.2f}\n", f"Somme,{sum(AGES)},,{sum(KG):.1f}\n",
        f"Min,{min(AGES)},,{min(KG)}\n", f"Max,{max(AGES)},B,{max(KG)}\n", f"N,{N},,{N}\n",
        f"Median,{sorted(AGES)[14] / 2 + sorted(AGES)[15] / 2},,{sorted(KG)[14] / 2 + sorted(KG)[15] / 2:.2f}\n",
    ],
)  # fmt: skip
def test_totals_in_other_words_are_left_out(read, below):
    sheet = read(HEADER + BODY + below)
    assert (len(sheet.lines), sheet.notes) == (N, (f"Line {N + 2} holds totals and was left out.",))


def test_a_deviation_among_totals_is_left_out(read):
    import statistics

    below = (
        f"Mean,{sum(AGES) / N:.2f},,{sum(KG) / N:.2f}\nSD,{statistics.stdev(AGES):.2f},,{statistics.stdev(KG):.2f}\n"
    )
    assert read(HEADER + BODY + below).notes == (f"Lines {N + 2} and {N + 3} hold totals and were left out.",)


@pytest.mark.parametrize("last", ["Max,30,A,60.5", "N,30,A,60.5"])
def test_a_person_called_max_stays(read, last):
    assert len(read(HEADER.replace("id", "name") + BODY + last + "\n").lines) == N + 1


def test_totals_between_the_records_are_said(read):
    sheet = read(HEADER + BODY + "Total,1000,,3000\n" + BODY.replace("P", "Q"))
    assert len(sheet.lines) == 2 * N + 1
    assert sheet.notes == (
        f"Line {N + 2} begins with a word for totals and was read as a record: take it out of the file if it is none.",
    )


def test_a_header_that_comes_again_with_another_name_is_left_out(read):
    sheet = read(HEADER + BODY + "id,age,ward,weight\n" + BODY.replace("P", "Q"))
    assert (len(sheet.lines), sheet.notes) == (2 * N, (f"Line {N + 2} repeats the header and was left out.",))
    kept = read("item,answer\nsex,answer\nage,30\nage,31\nitem,answers\n")
    assert len(kept.lines) == 4


def test_a_second_table_below_is_refused_with_its_line(read):
    way_out = "write empty cells too, or take another table that begins there out of the file"
    with pytest.raises(ValueError, match=rf"^line 34 of .* has 2 cells, but .* 4 columns, and 2 more .*: {way_out}"):
        read(HEADER + BODY + "\n\nward,n\nA,20\nB,20\n")


def test_decimal_commas_that_part_cells_too_are_refused(read):
    text = "age,kg\n" + "".join(f"{20 + i * 7 % 11},{50 + i},{i % 10}\n" for i in range(N))
    with pytest.raises(
        ValueError, match=r"^line 2 of .* has 3 cells, but the header names 2 columns: .* decimal commas"
    ):
        read(text)


def test_merged_cells_that_a_text_file_has_left_empty_are_said(read):
    rows = "".join(f"{'A' if i == 0 else 'B' if i == 15 else ''},{i * 1.5},{i % 7}\n" for i in range(N))
    sheet = read("ward,x,y\n" + rows)
    assert sheet.notes == (
        "Column 'ward' has a cell in 2 of 30 records only, the first of them in line 2, as merged cells have: write it "
        "into every line if it holds for all below.",
    )
    assert read("ward,x,y\n" + rows.replace("A,", ",", 1)).notes == ()
    assert read("name,x,y\n" + "".join(f"{'abc'[i % 3]},{i},{i % 7}\n" for i in range(N))).notes == ()


def test_a_cover_sheet_is_passed_over_and_the_way_to_another_said(read):
    data = [["a", "b"], *[[i * 1.5, "xy"[i % 2]] for i in range(N)]]
    cover = [["Study", "ABC"], ["Owner", "Dr X"], ["Date", "2022"]]
    sheet = read(workbook({"Read me": cover, "Data": data, "More": data[:20]}), "t.xlsx")
    assert (list(sheet.columns), len(sheet.lines)) == (["a", "b"], N)
    assert sheet.notes == (
        "Sheet 'Data' was read, but not 'Read me', 'More': to read another, move it to the front and delete or hide "
        "these, or save it as CSV.",
    )
    assert len(read(workbook({"Data": data[:9], "More": data}), "t.xlsx").lines) == 8
    hidden = read(workbook({"old": data, "Data": data[:9]}, hidden=("old",)), "t.xlsx")
    assert len(hidden.lines) == 8
    assert "Sheet 'Data' was read, but not 'old' (hidden)" in hidden.notes[0]


def test_errors_of_formulas_in_a_workbook_are_missing(read):
    rows = [["a", "b"], *[[i * 1.5, f"#{'DIV/0!' if i % 2 else 'N/A'}" if i < 6 else i * 3] for i in range(N)]]
    for blob in (workbook({"s": rows}), workbook({"s": rows}, errors=True)):
        sheet = read(blob, "t.xlsx")
        plan = planned(dict(sheet.columns))
        assert (plan.of("b").kind, plan.of("b").has_missing) == ("number", True)
        # A workbook has cells of errors, which the reader gives as empty ones; their texts are counted.
        assert ("are errors of formulas" in plan.of("b").reason) == (sheet.columns["b"].type == pa.string())


def test_times_and_dates_of_a_workbook_that_have_no_type(tmp_path):
    rows = [["a", "b", "c"], *[[i * 1.5, ("hours", 0.3 + i / 10), f"{1850 + i}-03-04"] for i in range(N)]]
    (tmp_path / "t.xlsx").write_bytes(workbook({"s": rows}))
    found = load(tmp_path / "t.xlsx").plan
    assert [(one.name, one.kind) for one in found.columns] == [("a", "number"), ("b", "time"), ("c", "date")]
    assert "beyond 24 hours" in found.of("b").reason


@pytest.mark.parametrize(("content", "n"), [("id,age\nP1,30\n", 1), ("a,b\n1,2\n", 1)])
def test_one_record_is_refused_with_the_number_there_is(tmp_path, content, n):
    (tmp_path / "t.csv").write_text(content)
    with pytest.raises(ValueError, match=rf"t.csv must hold at least two records, got {n}: add others"):
        load(tmp_path / "t.csv")


def test_a_column_that_cannot_be_split_says_which_separators_are_known(tmp_path):
    lines = "".join(f"P{i:<5} {20 + i:>3} {'Ward A' if i % 2 else '      '} {i / 7:6.2f}\n" for i in range(N))
    (tmp_path / "t.csv").write_text("id     age ward      kg\n" + lines)
    with pytest.raises(
        ValueError, match=r"'id age ward kg' \((id|text)\): if it has more than one column, save it with commas between"
    ):
        load(tmp_path / "t.csv")
