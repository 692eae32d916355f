"""Files that nobody expects: each gives one line that names what is wrong, or a right answer; never a traceback."""

import datetime
import decimal
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from drjax.cli import commands, main
from drjax.data import load

N = 60
NUMBERS = np.random.default_rng(0).random(N)

READ = {
    "time64": (pa.array(range(N), pa.time64("us")), "time"),
    "time32": (pa.array(range(N), pa.time32("s")), "time"),
    "duration": (pa.array(range(N), pa.duration("s")), "number"),
    "timestamp": (pa.array([datetime.datetime(2020, 1, 1)] * N), "constant"),
    "time zone": (pa.array(range(N), pa.timestamp("us", tz="Europe/Berlin")), "date"),
    "unknown time zone": (pa.array(range(N), pa.timestamp("us", tz="Mars/Base")), "empty"),
    "date": (pa.array([datetime.date(2020, 1, 1)] * N), "constant"),
    "list": (pa.array([[1, 2]] * N), "empty"),
    "large list": (pa.array([[1.0]] * N, pa.large_list(pa.float64())), "empty"),
    "struct": (pa.array([{"x": 1}] * N), "empty"),
    "map": (pa.array([[("k", 1)]] * N, pa.map_(pa.string(), pa.int64())), "empty"),
    "binary": (pa.array([b"\xff\x00"] * N), "constant"),
    "binary of fixed size": (pa.array([b"abcd"] * N, pa.binary(4)), "constant"),
    "dictionary of binary": (pa.array([b"u", b"\xff"] * (N // 2)).dictionary_encode(), "category"),
    "dictionary of text": (pa.array(["u", "v"] * (N // 2)).dictionary_encode(), "category"),
    "large text": (pa.array(["u", "v"] * (N // 2), pa.large_string()), "category"),
    "null": (pa.nulls(N), "empty"),
    "infinite": (pa.array([float("inf")] * N), "constant"),
}
"""Columns that are no plain numbers, and what an audit takes them for."""

LABELS = ("dictionary of text", "large text")
"""Those that may be classes, and so the label of an audit of a model."""

TAKEN = {
    "dictionary of numbers": pa.array([1, 2] * (N // 2)).dictionary_encode(),
    "large text of numbers": pa.array([str(value) for value in NUMBERS], pa.large_string()),
    "decimal256": pa.array([decimal.Decimal(10) ** 60 * i for i in range(N)], pa.decimal256(70, 0)),
    "uint64": pa.array([2**63 + 10_000 * i for i in range(N)], pa.uint64()),
    "float16": pa.array(NUMBERS.astype(np.float16)),
    "bool": pa.array([True, False] * (N // 2)),
}


def outcome(capsys, *arguments):
    """Exit code and the one line of an error, or 0 and nothing."""
    code = 0
    try:
        main([str(a) for a in arguments])
    except SystemExit as stopped:
        code = stopped.code
    error = capsys.readouterr().err if code else ""
    if code:
        assert error.startswith("drjax: error: ")
        assert error.count("\n") == 1
        assert len(error) < 1500
    return code, error


def audits_of(file, tmp_path):
    """Commands that read somebody's own table as it is."""
    return {
        "embed": ["embed", file, tmp_path / "e.csv", "--n-components", "1"],
        "audit": ["audit", "--data", file, "--n-components", "1", "--options", "False", "--out", tmp_path / "o"],
    }


def commands_on(file, tmp_path):
    """Commands that need numbers in a file, or labels, with the least of arguments."""
    return {
        "audit-model": ["audit-model", "--data", file, "--label", "c", "--n-known", "20", "--out", tmp_path / "o"],
    }


def releases_of(file, tmp_path):
    """Every command that publishes with a guarantee: what its records hold refuses none."""
    (tmp_path / "bounds.json").write_text('{"a": [0, 1], "c": [0, 1]}')
    released = ["--epsilon", "1", "--bounds", tmp_path / "bounds.json", "--trials", "0"]
    return {name: ["release", name, file, *released, "--out", tmp_path / name] for name in ("pca", "synthetic")}


def parquet(tmp_path, column):
    path = tmp_path / "t.parquet"
    pyarrow.parquet.write_table(pa.table({"a": NUMBERS, "c": column}), path)
    return path


@pytest.mark.parametrize("name", sorted(READ))
def test_a_column_that_is_no_number_is_told_or_refused_by_name_with_what_to_do(tmp_path, capsys, name):
    column, kind = READ[name]
    path = parquet(tmp_path, column)
    for command, arguments in commands_on(path, tmp_path).items():
        if command == "audit-model" and name in LABELS:
            continue
        code, said = outcome(capsys, *arguments)
        assert code == 2
        assert "column 'c'" in said
    assert sorted(tmp_path.iterdir()) == [path]
    # An audit sees of a column what it is taken for: one of every kind is audited.
    first = next(each for each in sorted(READ) if READ[each][1] == kind)
    for command, arguments in audits_of(path, tmp_path).items():
        if command == "embed" or name == first:
            assert outcome(capsys, *arguments)[0] == 0, command
    assert load(path).plan.of("c").kind == kind


@pytest.mark.parametrize("name", sorted(READ))
def test_a_release_takes_such_a_column_cell_by_cell_because_a_refusal_would_tell_of_a_record(tmp_path, capsys, name):
    for arguments in releases_of(parquet(tmp_path, READ[name][0]), tmp_path).values():
        main([str(a) for a in arguments])
        why = "60 beyond the bounds" if name == "infinite" else "60 missing or no number"
        said = capsys.readouterr().out
        assert f"Cells outside what c may hold: {why}" in said or "no number: 60" in said


@pytest.mark.parametrize("name", sorted(TAKEN))
def test_numbers_in_an_unusual_type_are_read_as_those_numbers(tmp_path, capsys, name):
    code, _ = outcome(capsys, "embed", parquet(tmp_path, TAKEN[name]), tmp_path / "e.npy", "--n-components", 2)
    assert code == 0
    values = np.array([float(value.as_py()) for value in TAKEN[name]])
    scaled = (values - values.min()) / (values.max() - values.min())
    a = (NUMBERS - NUMBERS.min()) / (NUMBERS.max() - NUMBERS.min())
    # Two components of two columns keep all distances; float32 coordinates.
    coords, x = np.load(tmp_path / "e.npy"), np.column_stack([a, scaled])
    spread = np.linalg.norm(coords[:, None] - coords, axis=-1) - np.linalg.norm(x[:, None] - x, axis=-1)
    assert np.abs(spread).max() < 1e-5


CSV = {
    "NUL bytes": (b"a,c\n" + b"1,\x002\n" * N, "line 2 of "),
    "beyond a float": (b"a,c\n" + b"1e400,2\n" * N, "'a' (constant)"),
    "an integer of 400 digits": (b"a,c\n" + (b"9" * 400 + b",2\n") * N, "'a' (constant)"),
    "a cell of 10 MB": (b"a,c\n" + b"1,2\n" * N + b"x" * 10_000_000 + b",2\n", "line 62 of "),
    "a quote that never ends": (b'a,c\n"1,2\n' + b"3,4\n" * N, "line 2 of "),
}


@pytest.mark.parametrize("name", sorted(CSV))
def test_text_that_is_no_table_is_refused_by_line_or_column(tmp_path, capsys, name):
    content, words = CSV[name]
    (tmp_path / "t.csv").write_bytes(content)
    for arguments in audits_of(tmp_path / "t.csv", tmp_path).values():
        code, said = outcome(capsys, *arguments)
        assert code == 2
        assert words in said
    for command, arguments in commands_on(tmp_path / "t.csv", tmp_path).items():
        if len(content) < 10**6 and (command, name) != ("audit-model", "NUL bytes"):
            assert outcome(capsys, *arguments)[0] == 2
    if len(content) < 10**6:
        # Taken cell by cell, or refused for what is no cell: never a traceback.
        assert {outcome(capsys, *a)[0] for a in releases_of(tmp_path / "t.csv", tmp_path).values()} <= {0, 2}


def test_line_ends_of_windows_and_a_byte_order_mark_change_nothing(tmp_path, capsys):
    rows = [f"{a:.6f},{i * i}" for i, a in enumerate(NUMBERS)]
    found = []
    for i, (mark, end) in enumerate([(b"", "\n"), (b"\xef\xbb\xbf", "\n"), (b"", "\r\n"), (b"\xef\xbb\xbf", "\r\n")]):
        (tmp_path / f"{i}.csv").write_bytes(mark + (end.join(["a,c", *rows]) + end).encode())
        assert outcome(capsys, "embed", tmp_path / f"{i}.csv", tmp_path / f"{i}.npy")[0] == 0
        found.append(np.load(tmp_path / f"{i}.npy"))
    assert all(np.array_equal(found[0], other) for other in found[1:])


def header(shape):
    file = zipfile.io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": shape})
    return file.getvalue() + bytes(80)


ARRAYS = {
    "complex": (np.ones((N, 3), complex), "complex128"),
    "dates": (np.ones((N, 3), "datetime64[s]"), "datetime64"),
    "durations": (np.ones((N, 3), "timedelta64[s]"), "timedelta64"),
    "text": (np.full((N, 3), "x"), "<U1"),
    "records": (np.ones(N, [("a", float), ("b", int)]), "('a', '<f8')"),
    "no rows": (np.ones((0, 3)), "(0, 3)"),
    "no columns": (np.ones((N, 0)), "(60, 0)"),
    "a number": (np.float64(3), "()"),
    "no numbers": (np.full((N, 3), np.nan), "nan"),
    "more than a float64 spans": (np.outer(np.arange(N) % 2 * 2 - 1, np.full(3, 1.7e308)), "1.7e+308"),
    "a header that promises 24 TB": (header((10**12, 3)), "damaged"),
    "a header that promises more than a file can be": (header((10**30, 3)), "damaged"),
    "a header with a negative size": (header((-5, 3)), "damaged"),
}


@pytest.mark.parametrize("name", sorted(ARRAYS))
def test_an_array_that_is_no_table_of_numbers_is_refused_by_name(tmp_path, capsys, name):
    content, words = ARRAYS[name]
    path = tmp_path / "x.npy"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        np.save(path, content, allow_pickle=False)
    code, said = outcome(capsys, "embed", path, tmp_path / "e.csv")
    assert code == 2
    assert words in said
    assert "x.npy" in said or "values" in said


def test_archives_that_are_damaged_packed_otherwise_or_hold_objects_are_refused(tmp_path, capsys):
    np.savez(tmp_path / "good.npz", x=np.ones((N, 3)))
    good = (tmp_path / "good.npz").read_bytes()
    np.savez(tmp_path / "objects.npz", x=np.array([[{}]], object))
    (tmp_path / "short.npz").write_bytes(good[:-30])
    (tmp_path / "flipped.npz").write_bytes(good[:60] + bytes([good[60] ^ 255]) + good[61:])
    with zipfile.ZipFile(tmp_path / "lies.npz", "w") as archive:
        archive.writestr("x.npy", header((10**12, 3)))
    with zipfile.ZipFile(tmp_path / "nothing.npz", "w"):
        pass
    for name in ("objects", "short", "flipped", "lies", "nothing"):
        code, said = outcome(capsys, "embed", tmp_path / f"{name}.npz", tmp_path / "e.csv")
        assert code == 2
        assert f"{name}.npz" in said


def test_errors_of_arrow_that_no_reader_foresaw_are_one_line_and_bugs_are_not(tmp_path, capsys, monkeypatch):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).random((N, 3)))
    mended = [
        pa.ArrowNotImplementedError("Unsupported cast from time64[us] to double"),
        pa.ArrowTypeError("expected bytes"),
        pa.ArrowKeyError("no column"),
        pa.ArrowInvalid("straddling object"),
        OverflowError("int too large to convert to float"),
        zipfile.BadZipFile("File is not a zip file"),
    ]
    bugs = [TypeError("a bug"), KeyError("a bug"), NotImplementedError("a bug"), RecursionError("a bug")]
    for raised in (*mended, *bugs):

        def fail(*_, raised=raised, **__):
            raise raised

        monkeypatch.setattr(commands, "shadow_embeddings", fail)
        arguments = ["embed", tmp_path / "x.npy", tmp_path / "e.csv"]
        if raised in bugs:
            with pytest.raises(type(raised), match="a bug"):
                outcome(capsys, *arguments)
        else:
            code, said = outcome(capsys, *arguments)
            assert code == 2
            assert str(raised).strip("'") in said


def test_numbers_on_the_command_line_that_no_float_holds_are_one_line(tmp_path, capsys):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).random((N, 3)))
    huge = "1" + "0" * 400
    for arguments in (
        ["audit", "--data", tmp_path / "x.npy", "--seed", huge, "--out", tmp_path / "o", "--n-known", 20],
        ["embed", tmp_path / "x.npy", tmp_path / "e2.csv", "--n-components", huge],
    ):
        assert outcome(capsys, *arguments)[0] == 2


@pytest.mark.parametrize("command", ["pca", "synthetic"])
def test_json_that_is_nested_without_end_is_one_line_that_names_the_file(tmp_path, capsys, command):
    (tmp_path / "t.csv").write_text("a,c\n" + "\n".join(f"{a},{a}" for a in NUMBERS) + "\n")
    (tmp_path / "deep.json").write_text('{"a":' * 100_000)
    arguments = ["release", command, tmp_path / "t.csv", "--epsilon", 1, "--out", tmp_path / "r"]
    code, said = outcome(capsys, *arguments, "--bounds", tmp_path / "deep.json")
    assert code == 2
    assert "nested" in said
