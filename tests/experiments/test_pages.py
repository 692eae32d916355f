import pytest

from drjax.reports import records
from experiments import command, sweep
from experiments.pages import audits, report
from experiments.pages import run as experiment


def test_cells_are_computed_once_and_a_looser_solver_hides_more(tmp_path, capsys):
    words = ["--scale", "smoke", "--out", str(tmp_path), "--only", "glm-tolerances/0.01", "glm-tolerances/1e-06"]
    command.main(experiment.SWEEP, words)
    assert capsys.readouterr().out.count("processor time") == 2
    loose, tight = records.read_records(tmp_path / sweep.RESULTS)[1:]
    assert (loose["cell"], tight["cell"]) == ("0.01", "1e-06")
    assert tight["mse_median"] < 1e-4 < loose["mse_median"]
    assert sum(tight["status_counts"].values()) == 2
    command.main(experiment.SWEEP, words)
    assert "processor time" not in capsys.readouterr().out


def test_the_least_deviation_is_below_the_classical_and_what_a_release_takes():
    for cell in experiment.TABLES["deviations"].values():
        found = cell(True)["deviations"]
        assert found["tight"] < found["release"] < found["classical"]


def test_an_audit_keeps_scores_by_attack():
    sizes = "--n-known 9 --n-shadow 20 --n-validation 10 --n-targets 5"
    found = audits.audited(f"audit {sizes} --attacks closed-form")
    attacks = {attack["name"]: attack for attack in found["attacks"]}
    assert list(attacks) == ["mean", "nearest", "closed-form"]
    assert attacks["closed-form"]["mse"]["estimate"] < attacks["mean"]["mse"]["estimate"]
    assert {attack["n_targets"] for attack in found["attacks"]} == {5}


def test_a_table_says_which_line_is_missing():
    with pytest.raises(LookupError, match="weaker/nobody"):
        report.line_of("weaker", "nobody")
