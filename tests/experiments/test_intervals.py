import pytest

from drjax.reports import records
from experiments import command, sweep
from experiments.intervals import report
from experiments.intervals import run as experiment


def test_a_cell_says_how_often_intervals_of_a_map_by_scikit_learn_hold(tmp_path, capsys):
    words = ["--scale", "smoke", "--only", "*PCA*", "--out", str(tmp_path)]
    command.main(experiment.SWEEP, words)
    (line,) = records.read_records(tmp_path / sweep.RESULTS)[1:]
    assert line["map"] == "PCA, 3 decimals"
    assert line["n_targets"] == 4
    assert line["n_counted"] == 4 * 30
    assert line["practice_releases"] == 12
    assert 0.6 < line["coverage_alone"] <= line["coverage"] <= 1
    assert line["width"] >= line["width_alone"] > 0
    said = capsys.readouterr().out
    assert "| PCA, 3 decimals | all |" in said


def test_kinds_of_maps_are_pooled_by_the_features_that_count():
    def line(kind, count, coverage):
        rest = {"factors": (1.0, 1.0), "width": 1.0, "width_alone": 1.0, "elsewhere": None, "n_elsewhere": 0}
        return {"map": kind, "data": "x", "n_counted": count, "coverage": coverage, "coverage_alone": coverage, **rest}

    table = report.to_markdown([line("a", 30, 1.0), line("a", 10, 0.6), line("b", 0, None)])
    assert "| a | all |  | 90.0% |" in table
    assert "| b | all | 1.0 |  |  |" in table


def test_the_table_of_the_docs_has_every_kind_of_map_or_none(monkeypatch):
    lines = records.read_records(report.HERE / sweep.RESULTS)
    monkeypatch.setattr(report.records, "read_records", lambda _: [line for line in lines if line.get("map") != "MDS"])
    with pytest.raises(LookupError, match="MDS"):
        report.block("attacks")
