import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from sklearn.datasets import load_digits

from drjax.cli import main

COLUMNS = [f"p{i}" for i in range(8)]
FAST = ("--trials", "19", "--splits", "2", "--quiet")


def failure(capsys, *arguments):
    with pytest.raises(SystemExit) as stopped:
        main([str(a) for a in arguments])
    error = capsys.readouterr().err
    assert stopped.value.code == 2
    assert error.count("\n") == 1
    return error


def csv(path, x):
    np.savetxt(path, x, delimiter=",", header=",".join(COLUMNS), comments="", fmt="%g")
    return path


@pytest.fixture
def digits(tmp_path):
    x = load_digits().data[:, 18:26]
    csv(tmp_path / "private.csv", x[:80])
    csv(tmp_path / "public.csv", x[80:200])
    (tmp_path / "bounds.json").write_text(json.dumps({name: [0, 16] for name in COLUMNS}))
    return tmp_path


def test_a_release_from_public_records_is_written_and_said(digits, capsys):
    out = digits / "out"
    main(["release", "pca", f"{digits}/private.csv", "--epsilon", "1", "--public", f"{digits}/public.csv",
          "--out", str(out), *FAST[:-1]])  # fmt: skip
    said = capsys.readouterr().out
    found = json.loads((out / "manifest.json").read_text())
    assert f"Released: {found['released']}." in said
    assert "Guarantee: epsilon 1 at delta 1e-06; replace_one" in said
    assert str(digits / "out.private" / "report.html") in said
    assert found["guarantee"]["holds"]
    assert found["bounds"]["row_norm"].endswith("the 120 public records")
    assert found["mechanism"]["n_components_from"] == "those with 90% of the energy of the public records"
    with np.load(out / "components.npz") as arrays:
        v = arrays["components"]
        np.testing.assert_allclose(v @ v.T, np.eye(len(v)), atol=1e-9)
        np.testing.assert_allclose(arrays["center"], load_digits().data[80:200, 18:26].mean(axis=0))


def test_a_release_that_is_worth_nothing_is_called_so_in_red_on_a_terminal(digits, capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    csv(digits / "noise.csv", np.random.default_rng(0).uniform(0, 16, (80, 8)))
    main(["release", "pca", f"{digits}/noise.csv", "--epsilon", "0.001", "--bounds", f"{digits}/bounds.json",
          "--out", str(digits / "pca"), *FAST[:-1]])  # fmt: skip
    assert "\x1b[1;31mTHE COMPONENTS ARE NO BETTER THAN RANDOM DIRECTIONS" in capsys.readouterr().out
    main(["release", "synthetic", f"{digits}/noise.csv", "--epsilon", "0.001", "--bounds", f"{digits}/bounds.json",
          "--out", str(digits / "table"), "--trials", "2"])  # fmt: skip
    assert "\x1b[1;31mExpected to be no better than knowing nothing" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["pca", "synthetic", "map"])
def test_a_quiet_release_prints_nothing(digits, capsys, kind):
    main(["release", kind, f"{digits}/private.csv", "--epsilon", "1", "--bounds", f"{digits}/bounds.json",
          "--out", str(digits / "out"), "--trials", "0", "--quiet"])  # fmt: skip
    assert (digits / "out" / "manifest.json").is_file()
    assert capsys.readouterr().out == ""


def test_the_default_folder_is_in_runs(digits, monkeypatch):
    monkeypatch.chdir(digits)
    for _ in range(2):
        main(["release", "pca", "private.csv", "--epsilon", "1", "--bounds", "bounds.json", "--trials", "0", "--quiet"])
    made = {path.name for path in (digits / "runs").iterdir() if not path.name.endswith(".private")}
    assert made == {"release-pca-private", "release-pca-private-2"}


def test_without_bounds_there_is_no_release(digits, capsys):
    out = digits / "out"
    error = failure(capsys, "release", "pca", digits / "private.csv", "--epsilon", "1", "--out", out)
    for option in ("--bounds FILE", "--public FILE", "--bounds-from-private-data"):
        assert option in error
    assert not out.exists()


def test_the_flag_that_names_the_risk_is_repeated_first(digits, capsys):
    out = digits / "out"
    main(["release", "pca", f"{digits}/private.csv", "--epsilon", "1", "--bounds-from-private-data",
          "--out", str(out), *FAST[:-1]])  # fmt: skip
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("THE GUARANTEE DOES NOT HOLD")
    assert not any(line.startswith("Publish") or "Guarantee:" in line for line in said[1:])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nothing.csv",), "there is no file nothing.csv"),
        (("--epsilon", "-1"), "epsilon must be a finite number > 0"),
        (("--delta", "0.5"), "delta must be below 1 / records = 0.013"),
        (("--delta", "1"), "delta must be in [0, 1)"),
        (("--mechanism", "noisy-power"), "must have an exact sampler"),
        (("--mechanism", "magic"), "mechanism must be one of"),
        (("--mechanism", "laplace-vector", "--delta", "1e-6"), "pass --delta 0"),
        (("--mechanism", "analytic-gauss", "--delta", "0"), "delta must be > 0"),
        (("--n-components", "9"), "n_components must be <= the columns = 8"),
        (("--n-components", "1.5"), "n_components must be an integer >= 1 or in (0, 1)"),
        (("--neighbouring", "add_or_remove"), "divisor must be given under add_or_remove"),
        (("--divisor", "10"), "divisor must be given under add_or_remove"),
        (("--drop", "zzz"), "got no 'zzz'"),
        (("--bounds-from-private-data",), "must be left out with --bounds"),
        (("--ledger", "nothing.json"), "nothing.json"),
        (("--out", "."), "out must be a new folder"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(digits, capsys, monkeypatch, arguments, message):
    monkeypatch.chdir(digits)
    base = {"--epsilon": "1", "--bounds": "bounds.json", "--out": "out"}
    given = dict(zip(arguments[::2], arguments[1::2], strict=False))
    words = [word for pair in {**base, **given}.items() for word in pair]
    words += [arguments[-1]] if len(arguments) % 2 else []
    words += [] if arguments == ("nothing.csv",) else ["private.csv"]
    assert message in failure(capsys, "release", "pca", *words)
    assert sorted(path.name for path in digits.iterdir()) == ["bounds.json", "private.csv", "public.csv"]


@pytest.mark.parametrize("columns", [{"a": pa.array([], pa.float64())}, {}])
@pytest.mark.parametrize("kind", ["pca", "synthetic"])
def test_a_file_without_records_is_one_line(tmp_path, capsys, kind, columns):
    pyarrow.parquet.write_table(pa.table(columns), tmp_path / "none.parquet")
    (tmp_path / "bounds.json").write_text('{"a": [0, 1]}' if columns else "{}")
    given = [tmp_path / "none.parquet", "--bounds", tmp_path / "bounds.json", "--out", tmp_path / "out"]
    assert "must hold records, got none" in failure(capsys, "release", kind, *given, "--epsilon", "1")
