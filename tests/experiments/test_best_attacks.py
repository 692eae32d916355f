import dataclasses

import pytest

from drjax.reports import records
from experiments import command, sweep
from experiments.best_attacks import report
from experiments.best_attacks import run as experiment

SMALL = dataclasses.replace(experiment.SMOKE, rows=("PCA",), targets=3, library_targets=2, n_shadow=12)


def mse(found, row, maker, attack):
    (one,) = [r for r in found if (r["row"], r["maker"], r["attack"]) == (row, maker, attack)]
    return one["scores"]["mse"]["estimate"]


def test_smoke_attacks_releases_of_the_kernels_and_of_scikit_learn_alike(tmp_path, capsys):
    command.main(experiment.SWEEP, ["--scale", "smoke", "--out", str(tmp_path)])
    printed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    found = [r for r in records.read_records(tmp_path / sweep.RESULTS) if r["kind"] == "attack"]
    assert len(printed) == len(found) + 2
    for maker in (experiment.OURS, "library"):
        # 49 known digits of 64 pixels: the two maps give nearly all away, a projection two numbers.
        assert mse(found, "PCA", maker, "closed-form") < 0.05 * mse(found, "PCA", maker, "mean")
        assert mse(found, "MDS", maker, "stationarity") < 0.1 * mse(found, "MDS", maker, "mean")
        assert mse(found, "SRP, seed unknown", maker, "srp-closed-form") > 0.5 * mse(found, "PCA", maker, "mean")


def test_an_attack_that_is_missing_is_computed_on_the_same_releases(tmp_path):
    whole = sweep.run(experiment.SWEEP, SMALL, tmp_path / "whole", say=lambda _: None).lines[1:]
    assert {(r["row"], r["maker"]) for r in whole} == {(r, m) for r in SMALL.rows for m in (experiment.OURS, "library")}
    only = "PCA/*/closed-form"
    alone = sweep.run(experiment.SWEEP, SMALL, tmp_path / "alone", only=only, say=lambda _: None).lines[1:]
    of_whole = [r for r in whole if r["attack"] == "closed-form"]
    assert [r["scores"]["mse"] for r in alone] == [r["scores"]["mse"] for r in of_whole]


def test_the_command_attacks_the_maps_of_libraries_beside_the_attacks_that_know_the_method(tmp_path):
    asked = dataclasses.replace(SMALL, command=True, n_shadow=60)
    found = [r for r in sweep.run(experiment.SWEEP, asked, tmp_path, say=lambda _: None).lines if r["kind"] == "attack"]
    (own,) = [r for r in found if r["attack"] == experiment.COMMAND]
    assert (own["maker"], own["scores"]["n_targets"]) == ("library", 2)
    assert all(name.startswith("closed-form") for name in own["facts"]["attack"])
    assert len(own["facts"]["verdict"]) == len(own["facts"]["expected_mse"]) == 2
    assert mse(found, "PCA", "library", experiment.COMMAND) < 0.05 * mse(found, "PCA", "library", "mean")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rows": ("LLE",)}, "rows must be one of"),
        ({"library_targets": 9}, "library_targets must be"),
        ({"dear_targets": 0}, "dear_targets must be"),
    ],
)
def test_bad_configurations_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(experiment.SMOKE, **changes)


def test_a_table_takes_an_attack_that_is_there_once():
    line = {"row": "PCA", "maker": "drjax", "attack": "closed-form"}
    assert report.line_of([line, line | {"maker": "library"}], "PCA", "drjax", "closed-form") is line
    for lines in ([], [line, dict(line)]):
        with pytest.raises(LookupError, match=f"got {len(lines)} lines"):
            report.line_of(lines, "PCA", "drjax", "closed-form")
