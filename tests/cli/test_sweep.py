"""`drjax sweep`: the table of its cells, how far it is, and bad input in one line."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from drjax.cli import main
from drjax.core import executors

SIZES = ["--n-known", "30", "--n-shadow", "20", "--n-validation", "10", "--n-targets", "5", "--attacks", "closed-form"]


@pytest.fixture
def here(monkeypatch):
    """Workers are threads: a process would import everything anew."""

    @contextmanager
    def opened(_):
        with ThreadPoolExecutor(1) as pool:
            yield pool

    monkeypatch.setattr(executors, "_local", opened)


def said(capsys, *words):
    main(["sweep", *map(str, words)])
    return capsys.readouterr()


def test_a_sweep_prints_its_cells_and_goes_on_where_it_was(here, capsys, tmp_path):
    del here
    out = tmp_path / "out"
    crossed = ["--data", "digits", "--over", "n-components=1,2", "decimals=none,3", *SIZES]
    first = said(capsys, out, *crossed, "--part", "1/2")
    assert "cells of the sweep" not in first.out
    assert said(capsys, "status", out).out.startswith("2 of 4 cells done, 0 begun; the last one ")
    lines = said(capsys, out, *crossed, "--quiet").out
    assert lines == ""
    whole = said(capsys, out, *crossed).out.splitlines()
    assert whole[0].split("  ")[0] == "cell"
    assert [line.split("  ")[0] for line in whole[1:-1]] == [
        "n_components=1 decimals=None",
        "n_components=1 decimals=3",
        "n_components=2 decimals=None",
        "n_components=2 decimals=3",
    ]
    assert whole[-1] == f"4 cells in {out}"
    assert said(capsys, "status", out).out == "4 of 4 cells done, 0 begun\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--over", "n_known"], "over must be NAME=VALUE,VALUE, got 'n_known'"),
        (["--over", "n_known=1,,2"], "over must be NAME=VALUE,VALUE, got 'n_known=1,,2'"),
        (["--over", "method=pca,tsnee"], "method must be one of"),
        (["--over", "colour=red"], "over must name fields of audits or hyperparameters"),
        (["--over", "n_known=30", "--part", "0/4"], "part must be an integer >= 1, got 0"),
        (["--over", "n_known=30", "--executor", "cloud"], "executor must be one of"),
        (["--over", "n_known=30", "--workers", "0"], "workers must be an integer >= 1, got 0"),
        (["--data", "no.csv", "--over", "n_known=30"], "no.csv"),
    ],
)
def test_bad_input_is_one_line(capsys, tmp_path, words, message):
    with pytest.raises(SystemExit) as stop:
        main(["sweep", str(tmp_path / "out"), *words])
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("drjax: error: ")
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_the_status_of_no_sweep_is_one_line(capsys, tmp_path):
    with pytest.raises(SystemExit):
        main(["sweep", "status", str(tmp_path)])
    assert "out must be the store of a sweep, got" in capsys.readouterr().err
