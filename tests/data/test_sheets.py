import csv
import datetime
import io
import re
import zipfile

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from drjax.data.sheets import SUFFIXES, Sheet, read_sheet, sheet_of
from tests.data.messy import patients, variants

MAIN = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
RELATIONS = 'xmlns="http://schemas.openxmlformats.org/package/2006/relationships"'
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
STYLES = {"date": 1, "clock": 2, "hours": 3}


def cells(sheet):
    return {name: column.to_pylist() for name, column in sheet.columns.items()}


def workbook(sheets, merged=(), hidden=(), errors=False):
    """An .xlsx file: rows of sheets by name, in which ("date", 45292) is a number that is shown so.

    With errors, a text such as #N/A is one of a formula.
    """
    pytest.importorskip("python_calamine")
    numbered = list(enumerate(sheets.items(), 1))
    listed = "".join(
        f'<sheet name="{name}" sheetId="{i}" state="{"hidden" if name in hidden else "visible"}" r:id="r{i}"/>'
        for i, (name, _) in numbered
    )
    related = "".join(
        f'<Relationship Id="r{i}" Type="{OFFICE}/worksheet" Target="worksheets/sheet{i}.xml"/>' for i, _ in numbered
    )
    formats = "".join(f'<xf numFmtId="{number}"/>' for number in (0, 22, 20, 46))
    ranges = "".join(f'<mergeCell ref="{cells}"/>' for cells in merged)
    parts = {
        "_rels/.rels": f'<Relationships {RELATIONS}><Relationship Id="r" Type="{OFFICE}/officeDocument" '
        'Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook {MAIN} xmlns:r="{OFFICE}"><sheets>{listed}</sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f'<Relationships {RELATIONS}>{related}<Relationship Id="s" '
        f'Type="{OFFICE}/styles" Target="styles.xml"/></Relationships>',
        "xl/styles.xml": f'<styleSheet {MAIN}><cellXfs count="4">{formats}</cellXfs></styleSheet>',
    }
    for i, (_, rows) in numbered:
        data = "".join(
            f'<row r="{r}">{"".join(_cell(f"{chr(65 + c)}{r}", cell) for c, cell in enumerate(row))}</row>'
            for r, row in enumerate(rows, 1)
        )
        merges = f'<mergeCells count="{len(merged)}">{ranges}</mergeCells>' if i == 1 and merged else ""
        if errors:
            data = re.sub(r't="inlineStr"><is><t>(#[^<]+)</t></is>', r't="e"><v>\1</v>', data)
        parts[f"xl/worksheets/sheet{i}.xml"] = f"<worksheet {MAIN}><sheetData>{data}</sheetData>{merges}</worksheet>"
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, part in parts.items():
            archive.writestr(name, part)
    return file.getvalue()


def _cell(at, value):
    if value is None:
        return ""
    if isinstance(value, bool):
        return f'<c r="{at}" t="b"><v>{value:d}</v></c>'
    if isinstance(value, tuple):
        return f'<c r="{at}" s="{STYLES[value[0]]}"><v>{value[1]}</v></c>'
    if isinstance(value, str):
        return f'<c r="{at}" t="inlineStr"><is><t>{value}</t></is></c>'
    return f'<c r="{at}"><v>{value}</v></c>'


def test_a_plain_table_is_read_without_a_note(read, tmp_path):
    sheet = read("id,age,sex\nP1, 31.50 ,m\nP2,,f\nP3,007,\n")
    assert isinstance(sheet, Sheet)
    assert cells(sheet) == {"id": ["P1", "P2", "P3"], "age": ["31.50", None, "007"], "sex": ["m", "f", None]}
    assert {column.type for column in sheet.columns.values()} == {pa.string()}
    assert sheet.lines.dtype == np.int64
    assert sheet.lines.tolist() == [2, 3, 4]
    assert (sheet.name, sheet.counted, sheet.notes, sheet.delimiter) == (str(tmp_path / "t.csv"), "line", (), ",")


@pytest.mark.parametrize(
    ("encoding", "note"),
    [
        ("utf-8", None), ("utf-8-sig", None), ("utf-16", None),
        ("cp1252", "The file is no UTF-8 and was read as Windows-1252; the first line that shows it is line 2."),
    ],
)  # fmt: skip
def test_encodings(read, encoding, note):
    sheet = read("ward,age\nGefäßchirurgie,61\nInnere,70\n", encoding=encoding)
    assert cells(sheet) == {"ward": ["Gefäßchirurgie", "Innere"], "age": ["61", "70"]}
    assert sheet.lines.tolist() == [2, 3]
    assert sheet.notes == (() if note is None else (note,))


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.txt", "T.CSV"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_separators_are_told_by_the_lines_and_not_by_the_ending(read, delimiter, name):
    file = io.StringIO()
    rows = [["id", "note", "x"], ["1", "a, b; c | d\te", "3"], ["2", "plain", "4"]]
    csv.writer(file, delimiter=delimiter).writerows(rows)
    sheet = read(file.getvalue(), name)
    assert cells(sheet) == {"id": ["1", "2"], "note": ["a, b; c | d\te", "plain"], "x": ["3", "4"]}
    assert (sheet.lines.tolist(), sheet.notes, sheet.delimiter) == ([2, 3], (), delimiter)


@pytest.mark.parametrize("header", ["a;b\n", ""])
def test_decimal_commas_are_no_separators_and_stay(read, header):
    sheet = read(header + "1,5;2,5\n3,5;4,5\n0,1;0,2\n")
    assert list(cells(sheet).values()) == [["1,5", "3,5", "0,1"], ["2,5", "4,5", "0,2"]]
    assert sheet.delimiter == ";"
    single = read("weight\n1,5\n2,5\n3,7\n")
    assert (cells(single), single.delimiter, single.notes) == ({"weight": ["1,5", "2,5", "3,7"]}, None, ())


def test_a_separator_that_is_only_in_the_cells_is_none(read):
    text = "id,note,age\n" + "".join(f"P{i},stable; afebrile,{40 + i}\n" for i in range(30))
    sheet = read(text)
    assert (list(sheet.columns), sheet.delimiter) == (["id", "note", "age"], ",")


@pytest.mark.parametrize("line", ["sep=;", '"sep=;"', "SEP=;"])
def test_a_line_that_names_the_separator_is_obeyed(read, line):
    sheet = read(f"{line}\r\na;b\r\n1,2;x\r\n3,4;y\r\n")
    assert cells(sheet) == {"a": ["1,2", "3,4"], "b": ["x", "y"]}
    assert (sheet.lines.tolist(), sheet.notes, sheet.delimiter) == ([3, 4], (), ";")


def test_one_column_is_a_table(read):
    sheet = read("age\n3\n4\n\n5\n")
    assert (cells(sheet), sheet.lines.tolist(), sheet.delimiter) == ({"age": ["3", "4", "5"]}, [2, 3, 5], None)
    assert sheet.notes == ("Line 4 holds nothing and was left out.",)
    assert cells(read("note\nfine, thanks\nbad\nfine\nworse\n")) == {"note": ["fine, thanks", "bad", "fine", "worse"]}


@pytest.mark.parametrize(
    ("above", "note"),
    [
        ("Admissions 2022\n", "Line 1 stands above the header and was left out."),
        ("Admissions 2022\n\n", "Lines 1 and 2 stand above the header and were left out."),
        ("Report,,\n,,\n\n,,\n", "Lines 1 to 4 stand above the header and were left out."),
        ("\n", "Line 1 stands above the header and was left out."),
    ],
)
def test_titles_above_the_header_are_left_out(read, above, note):
    sheet = read(above + "id,age,sex\n1,30,m\n2,40,f\n")
    assert cells(sheet) == {"id": ["1", "2"], "age": ["30", "40"], "sex": ["m", "f"]}
    assert (sheet.lines - above.count("\n")).tolist() == [2, 3]
    assert sheet.notes == (note,)


def test_a_title_with_a_value_or_above_two_columns_is_left_out(read):
    sheet = read("Exported by:,Ward 3\nid,age,sex,na,k\n1,30,m,140,4\n2,40,f,141,5\n")
    assert list(sheet.columns) == ["id", "age", "sex", "na", "k"]
    assert sheet.notes == ("Line 1 stands above the header and was left out.",)
    assert cells(read("Report\nname,age\nAnna,30\nBert,40\n")) == {"name": ["Anna", "Bert"], "age": ["30", "40"]}


def test_names_below_groups_are_joined(read):
    sheet = read("Lab,,,Vitals,,\nNa,K,Cl,BP,HR,T\n140,4,100,120,60,36.5\n141,5,101,130,70,37.1\n")
    assert list(sheet.columns) == ["Lab Na", "Lab K", "Lab Cl", "Vitals BP", "Vitals HR", "Vitals T"]
    assert (sheet.lines.tolist(), sheet.notes) == ([3, 4], ("Lines 1 and 2 name the columns together.",))
    sheet = read("ID,Lab,,Vitals,\n,Na,K,BP,HR\nP1,140,4,120,60\nP2,141,5,130,70\n")
    assert list(sheet.columns) == ["ID", "Lab Na", "Lab K", "Vitals BP", "Vitals HR"]
    sheet = read(",Lab,Lab,Vitals\n,Na,K,BP\n0,140,4,120\n1,141,5,130\n2,143,4,110\n")
    assert list(sheet.columns) == ["Lab Na", "Lab K", "Vitals BP"]


def test_units_below_names_are_added(read):
    sheet = read("age,sex,weight\nyears,,(kg)\n31,m,80\n44,f,60\n")
    assert cells(sheet) == {"age [years]": ["31", "44"], "sex": ["m", "f"], "weight [kg]": ["80", "60"]}
    assert (sheet.lines.tolist(), sheet.notes) == ([3, 4], ("Lines 1 and 2 name the columns together.",))
    sheet = read("Lab,,Vitals,\nNa,K,BP,HR\nmmol/l,mmol/l,mmHg,1/min\n140,4,120,60\n141,5,130,70\n")
    assert list(sheet.columns) == ["Lab Na [mmol/l]", "Lab K [mmol/l]", "Vitals BP [mmHg]", "Vitals HR [1/min]"]
    assert sheet.notes == ("Lines 1 to 3 name the columns together.",)


@pytest.mark.parametrize(
    "record",
    [
        "Anna,f,Berlin,,", "Anna,f,Berlin,NA,n/a", "Anna,f,Berlin,unknown,-", "Anna,f,Berlin,refused,refused",
        "Anna,f,Berlin,see note,4",
    ],
)  # fmt: skip
def test_a_first_record_without_numbers_is_no_header(read, record):
    sheet = read(f"name,sex,town,age,weight\n{record}\nBert,m,Bonn,41,80\nCarl,m,Ulm,52,75\n")
    assert cells(sheet)["name"] == ["Anna", "Bert", "Carl"]
    assert (list(sheet.columns)[3:], sheet.lines.tolist(), sheet.notes) == (["age", "weight"], [2, 3, 4], ())


def test_a_table_of_text_has_its_header_in_the_first_line(read):
    sheet = read("name,sex,town\nAnna,f,Berlin\nBert,m,Bonn\n")
    assert (list(sheet.columns), sheet.lines.tolist(), sheet.notes) == (["name", "sex", "town"], [2, 3], ())


@pytest.mark.parametrize(
    "text",
    ["1,2.5,m\n2,3.5,f\n3,4.5,f\n", "Anna,2024-01-05,70\nBert,2024-02-01,81\nCarl,2024-03-09,77\n", "3,3\n4,8\n"],
)
def test_a_table_without_a_header_gets_numbered_names(read, text):
    sheet = read(text)
    rows = list(csv.reader(io.StringIO(text)))
    assert cells(sheet) == {f"column {j + 1}": list(column) for j, column in enumerate(zip(*rows, strict=True))}
    assert sheet.lines.tolist() == list(range(1, len(rows) + 1))
    assert sheet.notes == ("No line names the columns, so they are called column 1, column 2 and so on.",)


@pytest.mark.parametrize(
    "header",
    ["0,1,2", "id,2019,2020", "name,1,2", "400,402,404,406,408", "x,2024-01-01,2024-02-01"],
)
def test_what_may_be_a_header_is_one(read, header):
    names = header.split(",")
    sheet = read(
        header + "\n" + "".join(",".join(str(7 * i + j * j) for j in range(len(names))) + "\n" for i in (1, 2))
    )
    assert (list(sheet.columns), sheet.lines.tolist(), sheet.notes) == (names, [2, 3], ())


def test_columns_without_a_name(read):
    sheet = read("id,,age,,\nP1,x,30,,\nP2,y,31,,\n")
    assert cells(sheet) == {"id": ["P1", "P2"], "column 2": ["x", "y"], "age": ["30", "31"]}
    assert sheet.notes == (
        "Columns 4 and 5 have neither name nor cells and were left out.",
        "Column 2 has no name and is called by its number.",
    )
    named = read("id,comment,age\n1,,30\n2,,31\n")
    assert (cells(named)["comment"], named.notes) == ([None, None], ())
    assert read("id,age,\n1,30,\n2,31,\n").notes == ("Column 3 has neither name nor cells and was left out.",)
    assert read("id,age,sex,\n1,30,m\n2,31,f\n").notes == ()
    assert list(read("id,age\n1,30,\n2,31,\n").columns) == ["id", "age"]


@pytest.mark.parametrize("start", [0, 1])
@pytest.mark.parametrize("name", ["", "Unnamed: 0"])
def test_the_index_that_pandas_writes_is_left_out(read, name, start):
    sheet = read(f"{name},age,sex\n" + "".join(f"{start + i},{30 + i},m\n" for i in range(5)))
    assert (list(sheet.columns), sheet.lines.tolist()) == (["age", "sex"], [2, 3, 4, 5, 6])
    assert sheet.notes == ("Column 1 only counts the records and was left out.",)
    kept = read("index,age\n0,30\n1,31\n")
    assert (list(kept.columns), kept.notes) == (["index", "age"], ())


def test_names_that_repeat_and_break(read):
    sheet = read('bp,"blood\n  sugar",bp,bp (2),bp\n1,2,3,4,x\n5,6,7,8,y\n')
    assert list(sheet.columns) == ["bp", "blood sugar", "bp (3)", "bp (2)", "bp (4)"]
    assert sheet.lines.tolist() == [3, 4]
    assert sheet.notes == ("Names of columns repeat, so there are 'bp (3)', 'bp (4)'.",)
    assert read("bp,bp\n1,x\n2,y\n").notes == ("Names of columns repeat, so there is 'bp (2)'.",)


BODY = "id,age,stay,ward\nP1,30,2,A\nP2,41,5,B\nP3,52,6,A\n"


@pytest.mark.parametrize(
    ("below", "note"),
    [
        ("Total,,13,\n", "Line 5 holds totals and was left out."),
        ("TOTAL:,123,13,2 wards\n", "Line 5 holds totals and was left out."),
        ("Mean,41,4.33,\nSumme,123,13,\n", "Lines 5 and 6 hold totals and were left out."),
        (",,13,\n", "Line 5 holds totals and was left out."),
        (",41.0,4.3,A\n", "Line 5 holds totals and was left out."),
        ("Count,3,3,3\n", "Line 5 holds totals and was left out."),
        (",Grand total,13,\n", "Line 5 holds totals and was left out."),
        ("* values below 5\n", "Line 5 holds a footnote and was left out."),
        ("Source: ward 3, 2024\n", "Line 5 holds a footnote and was left out."),
        ("Exported on Monday,,,\nby the clerk,,,\n", "Lines 5 and 6 hold footnotes and were left out."),
    ],
)
def test_what_stands_below_the_records_is_left_out(read, below, note):
    sheet = read(BODY + below)
    assert cells(sheet)["id"] == ["P1", "P2", "P3"]
    assert (sheet.lines.tolist(), sheet.notes) == ([2, 3, 4], (note,))


def test_totals_and_a_footnote_behind_an_empty_line(read):
    sheet = read(f"{BODY}\nTotal,123,13,\n* as of May\n")
    assert sheet.lines.tolist() == [2, 3, 4]
    assert sheet.notes == (
        "Line 5 holds nothing and was left out.",
        "Line 6 holds totals and was left out.",
        "Line 7 holds a footnote and was left out.",
    )


def test_totals_with_decimal_commas_are_told(read):
    sheet = read("id;a;b\nx;1,5;1.000,5\ny;2,5;2.000,5\n;4,0;3.001,0\n")
    assert (sheet.lines.tolist(), sheet.notes) == ([2, 3], ("Line 4 holds totals and was left out.",))


@pytest.mark.parametrize(
    "last",
    [
        '"Total, Anna",60,3,B', "Total,60,3,B", "Sum,60,3,B", "P4,60,,", "P4,,,", ",60,3,B", "Maria Sumerer,60,3,B",
        "*4,60,3,B",
    ],
)  # fmt: skip
def test_a_last_record_stays(read, last):
    sheet = read(BODY + last + "\n")
    said = "Line 5 begins with a word for totals and was read as a record: take it out of the file if it is none."
    assert sheet.lines.tolist() == [2, 3, 4, 5]
    assert sheet.notes == ((said,) if last.startswith(("Total,", "Sum,")) else ())


def test_a_first_column_that_is_empty_at_times_makes_no_totals(read):
    sheet = read("room,age,stay,ward\n,30,2,A\n4,41,5,B\n,52,6,\n,,6,A\n")
    assert (cells(sheet)["room"], sheet.lines.tolist()) == ([None, "4", None, None], [2, 3, 4, 5])
    assert sheet.notes == ()


def test_a_column_may_be_named_sum(read):
    sheet = read("sum,total,mean\n3,1,2\n4,2,2\n")
    assert (cells(sheet), sheet.notes) == ({"sum": ["3", "4"], "total": ["1", "2"], "mean": ["2", "2"]}, ())


def test_records_with_one_cell_stay_where_others_have_one_too(read):
    sheet = read("a,b,c\nx,1,2\ny,,\nz,3,4\nlow again,,\n")
    assert (sheet.lines.tolist(), sheet.notes) == ([2, 3, 4, 5], ())


def test_empty_lines_and_repeated_headers_are_left_out(read):
    sheet = read("id,age\nP1,30\n\n,\nP2,31\nid,age\nP3,32\n\n\n")
    assert (cells(sheet)["id"], sheet.lines.tolist()) == (["P1", "P2", "P3"], [2, 5, 7])
    assert sheet.notes == (
        "2 lines hold nothing and were left out, the first is line 3.",
        "Line 6 repeats the header and was left out.",
    )


def test_a_few_lines_may_be_short(read):
    rows = [f"P{i},{i},m" for i in range(2000)]
    rows[998], rows[1500] = "P998,998", "P1500"
    sheet = read("id,n,sex\n" + "\n".join(rows) + "\n")
    assert sheet.notes == (
        "2 lines have fewer cells than the header, the first is line 1,000: what is missing was taken for empty.",
    )
    assert (len(sheet.lines), cells(sheet)["sex"][998], cells(sheet)["n"][1500]) == (2000, None, None)
    rows = [row.removesuffix(",m") if i % 10 == 0 else row for i, row in enumerate(rows)]
    with pytest.raises(
        ValueError, match=r"^line 2 of .* has 2 cells, but the header names 3 columns, and 200 more .*: write"
    ):
        read("id,n,sex\n" + "\n".join(rows) + "\n")


def test_one_line_with_more_cells_is_named(read):
    with pytest.raises(
        ValueError, match=r"^line 3 of .*t\.csv has 4 cells, but the header names 3 .*: put .* in quotes"
    ):
        read("id,name,age\n1,Anna,30\n2,Meier, Bert,41\n3,Carl,52\n")


def test_names_of_rows_as_r_writes_them(read):
    sheet = read('"age","sex"\n"a",30,"m"\n"b",31,"f"\n')
    assert cells(sheet) == {"row": ["a", "b"], "age": ["30", "31"], "sex": ["m", "f"]}
    assert sheet.notes == ("The header has one name less than the lines have cells: the first column is called row.",)
    assert list(read('"age"\n"1",30\n"2",31\n').columns) == ["row", "age"]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_quotes_hold_separators_quotes_and_breaks(read, end):
    rows = ["id,note,age", f'1,"a ""b"", c{end}second{end}third",30', '2, "x",31', '3,5" needle,32']
    sheet = read(end.join(rows) + end)
    assert cells(sheet)["note"] == [f'a "b", c{end}second{end}third', "x", '5" needle']
    assert (sheet.lines.tolist(), sheet.notes) == ([2, 5, 6], ())


def test_quotes_that_are_not_written_twice(read):
    sheet = read('id,note,age\n1,"he said \\"ok\\", left",30\n2,x,31\n')
    assert cells(sheet)["note"] == ['he said "ok", left', "x"]
    assert sheet.notes == (
        "Line 2 has a quote inside a cell that is not written twice, so \\ was read as the sign before it.",
    )
    sheet = read('id,note,age\n1,"5" needle,30\n2,x,31\n')
    assert cells(sheet) == {"id": ["1", "2"], "note": ["5 needle", "x"], "age": ["30", "31"]}
    assert sheet.notes[0].startswith("Line 2 has a quote inside a cell")
    for rest in ("3,x,32\n", "y,4\n" * 100_000):
        with pytest.raises(ValueError, match=r"^the record that begins in line 3 of .*: close each quote"):
            read(f'id,note,age\n1,x,30\n2,"open,31\n{rest}')


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        (b"", "t.csv", r"^.*t\.csv is empty: write a first line"),
        (b" \n\n", "t.csv", "is empty"),
        (b",,\n,,\n", "t.csv", "is empty: write a header"),
        ("\ufeff".encode("utf-16-le"), "t.csv", "is empty"),
        (b"a,b,c\n", "t.csv", "has a header but no records: add"),
        (b"Title\na,b,c\n", "t.csv", "has a header but no records"),
        (b"a,b\n1,2\n3,\x004\n", "t.csv", r"^line 3 of .* holds a NUL byte"),
        (b"PK\x03\x04......xl/workbook.xml", "t.csv", "is no text but an Excel file: name it .xlsx"),
        (b"PK\x03\x04......data.csv", "t.csv", "is no text but a zip archive: unpack it"),
        (b"PAR1....", "t.txt", "is no text but a Parquet file: name it .parquet"),
        (b"\xd0\xcf\x11\xe0....", "t.csv", "old Excel file or a protected one"),
        (b"\xff\xfea", "t.csv", "begins as UTF-16 but is damaged"),
        (b"a", "t.docx", "the suffix of .* must be one of"),
        (b"a", "table", "the suffix of .* must be one of"),
        (b"no table", "t.parquet", "is not a readable Parquet file"),
    ],
)
def test_what_is_no_table_is_refused_in_one_line(read, content, name, message):
    with pytest.raises(ValueError, match=message) as error:
        read(content, name)
    assert "\n" not in str(error.value)


def test_a_file_that_is_missing(tmp_path):
    path = tmp_path / "t.csv"
    with pytest.raises(FileNotFoundError, match=r"there is no file .*t\.csv: check the path"):
        read_sheet(path)


def test_a_workbook_has_types_and_rows(read):
    rows = [
        ["Ward 3"],
        [],
        ["id", "age", "kg", "ok", "in", "at", "crp", "mixed"],
        ["P1", 30, 70.5, True, ("date", 45292), ("clock", 0.5), 12, ("date", 45292)],
        ["P2", None, 71, False, ("date", 45293.5), ("hours", 0.75), "&lt;5", 1.5],
        ["P3", 41, 80, None, None, None, 7.25, True],
        ["Total", 71, None, None, None, None, None, None],
    ]
    sheet = read(workbook({"empty": [], "data": rows, "more": [["x"]], "lists": [["y"]]}, hidden=("lists",)), "t.xlsx")
    assert cells(sheet) == {
        "id": ["P1", "P2", "P3"],
        "age": [30, None, 41],
        "kg": [70.5, 71, 80],
        "ok": [True, False, None],
        "in": [datetime.datetime(2024, 1, 1), datetime.datetime(2024, 1, 2, 12), None],
        "at": [datetime.time(12), datetime.time(18), None],
        "crp": ["12", "<5", "7.25"],
        "mixed": ["2024-01-01", "1.5", "true"],
    }
    types = {name: str(column.type) for name, column in sheet.columns.items()}
    assert (types["age"], types["kg"], types["in"], types["at"]) == ("int64", "double", "timestamp[us]", "time64[us]")
    assert (sheet.lines.tolist(), sheet.counted, sheet.delimiter) == ([4, 5, 6], "row of the sheet", None)
    assert sheet.notes == (
        "Sheet 'data' was read, but not 'more', 'lists' (hidden): to read another, move it to the front and delete or "
        "hide these, or save it as CSV.",
        "Rows 1 and 2 of the sheet stand above the header and were left out.",
        "Row 7 of the sheet holds totals and was left out.",
    )


def test_merged_cells_of_a_workbook(read):
    rows = [
        ["Report", None, None, None],
        ["ward", "Lab", None, None],
        [None, "Na", "K", "Cl"],
        ["A", 140, 4, 100],
        [None, 141, 5, 101],
        ["B", 142, 4, 102],
    ]
    sheet = read(workbook({"s": rows}, merged=("A1:D1", "A2:A3", "B2:D2", "A4:A5")), "t.xlsx")
    assert cells(sheet) == {
        "ward": ["A", "A", "B"],
        "Lab Na": [140, 141, 142],
        "Lab K": [4, 5, 4],
        "Lab Cl": [100, 101, 102],
    }
    assert sheet.lines.tolist() == [4, 5, 6]
    assert sheet.notes == (
        "Row 1 of the sheet stands above the header and was left out.",
        "Rows 2 and 3 of the sheet name the columns together.",
        "Row 5 of the sheet got cells from merged ones above or beside.",
    )


def test_an_open_document_is_read(read):
    pytest.importorskip("python_calamine")
    names = "urn:oasis:names:tc:opendocument:xmlns"
    spaces = " ".join(f'xmlns:{name}="{names}:{name}:1.0"' for name in ("office", "table", "text", "manifest"))
    rows = "".join(
        f'<table:table-row><table:table-cell office:value-type="string"><text:p>{name}</text:p></table:table-cell>'
        f'<table:table-cell office:value-type="float" office:value="{age}"/></table:table-row>'
        for name, age in (("P1", 30), ("P2", 31.5))
    )
    content = f'<office:body><office:spreadsheet><table:table table:name="s">{rows}</table:table></office:spreadsheet>'
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("mimetype", "application/vnd.oasis.opendocument.spreadsheet")
        archive.writestr("META-INF/manifest.xml", f"<manifest:manifest {spaces}/>")
        archive.writestr(
            "content.xml",
            f"<office:document-content {spaces}>{content}</office:body></office:document-content>",
        )
    sheet = read(file.getvalue(), "t.ods")
    assert cells(sheet) == {"column 1": ["P1", "P2"], "column 2": [30, 31.5]}
    assert (sheet.lines.tolist(), sheet.counted) == ([1, 2], "row of the sheet")
    with pytest.raises(ValueError, match=r"is no text but an OpenDocument file: name it \.ods"):
        read(file.getvalue(), "t.csv")


def test_a_workbook_may_begin_anywhere(read):
    sheet = read(workbook({"s": [[], [None, None, "age"], [None, None, 30], [None, None, 31]]}), "t.xlsx")
    assert (cells(sheet), sheet.lines.tolist()) == ({"age": [30, 31]}, [3, 4])
    assert sheet.notes == (
        "Row 1 of the sheet stands above the header and was left out.",
        "Columns 1 and 2 have neither name nor cells and were left out.",
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty: save the sheet again"),
        (
            b"\xd0\xcf\x11\xe0" + b"\0" * 99 + "EncryptedPackage".encode("utf-16-le"),
            "is protected by a password: save it",
        ),
        (b"PK\x03\x04" + b"\0" * 99, "is no workbook or a damaged one .*: open and save it again"),
        (b"<html><table><tr><td>a,b</td></tr></table></html>", "is no workbook or a damaged one"),
        (b"hello", "is no workbook or a damaged one"),
    ],
)
def test_workbooks_that_cannot_be_read(read, content, message):
    pytest.importorskip("python_calamine")
    for suffix in (".xlsx", ".xls", ".ods"):
        with pytest.raises(ValueError, match=message) as error:
            read(content, f"t{suffix}")
        assert "\n" not in str(error.value)


def test_workbooks_without_cells_or_that_are_cut(read):
    with pytest.raises(ValueError, match="is empty: none of its sheets holds a cell"):
        read(workbook({"s": []}), "t.xlsx")
    with pytest.raises(ValueError, match="has a header but no records"):
        read(workbook({"s": [["a", "b"]]}), "t.xlsx")
    whole = workbook({"s": [["a", "b"], [1, 2]]})
    with pytest.raises(ValueError, match="is no workbook or a damaged one"):
        read(whole[: len(whole) // 2], "t.xlsx")
    with pytest.raises(ValueError, match=r"is no text but an Excel file: name it \.xlsx"):
        read(whole, "t.csv")


def test_a_text_that_is_named_as_a_workbook_is_read(read):
    pytest.importorskip("python_calamine")
    sheet = read("id\tage\nP1\t30\nP2\t31\n", "t.xls")
    assert (cells(sheet), sheet.counted) == ({"id": ["P1", "P2"], "age": ["30", "31"]}, "line")
    assert sheet.notes == ("The file is no workbook but text, and was read as such.",)


def test_a_workbook_without_its_reader_says_what_to_install(read, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "python_calamine", None)
    with pytest.raises(ValueError, match="pip install python-calamine, or save the sheet as CSV"):
        read(b"PK\x03\x04", "t.xlsx")


def test_parquet_keeps_types_and_counts_rows(tmp_path):
    frame = pd.DataFrame(
        {"age": [30, 31], "in": pd.to_datetime(["2024-01-01", None]), "sex": ["m", None]}, index=[7, 9]
    )
    frame.to_parquet(tmp_path / "t.parquet")
    sheet = read_sheet(str(tmp_path / "t.parquet"))
    assert cells(sheet)["sex"] == ["m", None]
    assert list(sheet.columns) == ["age", "in", "sex"]
    assert pa.types.is_timestamp(sheet.columns["in"].type)
    assert (sheet.lines.tolist(), sheet.counted, sheet.notes, sheet.delimiter) == ([0, 1], "row", (), None)
    frame[:0].to_parquet(tmp_path / "t.parquet")
    with pytest.raises(ValueError, match="must hold records, got none"):
        read_sheet(tmp_path / "t.parquet")


@pytest.mark.parametrize("library", [pd, pl])
def test_frames_are_sheets(library):
    frame = library.DataFrame({"age": [30, 31], "sex": ["m", None]})
    sheet = sheet_of(frame)
    assert cells(sheet) == {"age": [30, 31], "sex": ["m", None]}
    assert sheet.lines.dtype == np.int64
    assert (sheet.name, sheet.lines.tolist(), sheet.counted, sheet.notes) == ("DataFrame", [0, 1], "row", ())
    with pytest.raises(ValueError, match="DataFrame must hold records, got none"):
        sheet_of(frame[:0])
    with pytest.raises(ValueError, match="DataFrame must hold records, got none"):
        sheet_of(library.DataFrame())


def test_frames_of_mixed_cells_become_text():
    frame = pd.DataFrame({"crp": [5.0, "<5", None, np.int64(7)], "n": [1, 2, 3, 4]})
    assert cells(sheet_of(frame)) == {"crp": ["5", "<5", None, "7"], "n": [1, 2, 3, 4]}
    with pytest.raises(TypeError, match="records must be"):
        sheet_of([1, 2])
    with pytest.raises(ValueError, match="name"):
        sheet_of(pd.DataFrame([[1, 2]], columns=["a", "a"]))


def test_the_table_of_a_hospital_is_the_same_in_every_export(read):
    messy = patients(300)
    plain = read(messy.text)
    assert (plain.notes, plain.lines.tolist(), plain.delimiter) == ((), list(range(2, 302)), ",")
    assert list(plain.columns) == list(messy.kinds)
    for name, blob in variants(messy).items():
        sheet = read(blob)
        assert list(sheet.columns) == list(plain.columns), name
        for column in ("patient_id", "admitted", "notes", "comment2"):
            assert sheet.columns[column].to_pylist() == plain.columns[column].to_pylist(), name
        shift = 2 if "title" in name else 0
        assert (sheet.lines - shift).tolist() == plain.lines.tolist(), name
        assert len(sheet.notes) == {"tab, UTF-16": 0, "BOM": 0, "title and blank line above, totals below": 2}.get(
            name, 1
        )


def test_endings():
    assert SUFFIXES == (".csv", ".tsv", ".txt", ".parquet", ".xlsx", ".xls", ".ods")
