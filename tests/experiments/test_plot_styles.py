import sys

import numpy as np
import pytest

from drjax.reports import records
from experiments import command, sweep
from experiments.cells import LeftOut
from experiments.plot_styles import report
from experiments.plot_styles import run as experiment
from experiments.plot_styles.styles import Drawn


def test_a_plot_of_discs_is_read_and_one_of_crosses_refused(tmp_path, capsys):
    command.main(experiment.SWEEP, ["--scale", "smoke", "--out", str(tmp_path)])
    discs, crosses = records.read_records(tmp_path / sweep.RESULTS)[1:]
    assert (discs["outcome"], discs["n_drawn"]) == ("right", 200)
    assert 196 <= discs["n_in_place"] <= discs["n_found"] <= 204
    assert discs["off"] < 0.1
    assert crosses["outcome"] == "refused"
    assert "round markers" in crosses["why"]
    assert str(tmp_path) not in crosses["why"]
    assert "| matplotlib: crosses | refused |" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("found", "n_given", "outcome"),
    [
        (np.arange(98), 98, "right"),
        (np.arange(97), 97, "wrong"),
        (np.arange(97), 99, "right"),
        (np.arange(97), 103, "wrong"),
        (np.arange(103) % 100, 103, "wrong"),
        (np.arange(100) // 2, 100, "wrong"),
    ],
)
def test_a_number_that_is_off_and_markers_that_are_doubled_or_elsewhere_are_wrong(found, n_given, outcome):
    places = np.stack([20.0 * np.arange(100), np.zeros(100)], axis=1)
    facts = {"n_drawn": n_given, "share_hidden": 0.0}
    read = experiment._compared(type("Reading", (), {"pixels": places[found], **facts}), Drawn(places, 4.0))
    assert (read["outcome"], read["n_given"]) == (outcome, n_given)
    away = experiment._compared(type("Reading", (), {"pixels": places + 3.0, **facts}), Drawn(places, 4.0))
    assert away["n_in_place"] == 0


def test_plots_that_are_right_by_their_hidden_markers_alone_are_counted():
    drawn = {"map": "PCA", "n": 100, "n_drawn": 100, "outcome": "right"}
    lines = [
        {"style": "matplotlib: default", "n_given": 99, "n_found": 97, "n_in_place": 97, **drawn},
        {"style": "matplotlib: crosses", "n_given": 99, "n_found": 99, "n_in_place": 98, **drawn},
    ]
    assert report.to_markdown(lines).rstrip().endswith("by the markers found alone | 1 |")
    assert report.counts_table([*lines, lines[0] | {"n": 400, "outcome": "wrong"}]).splitlines() == [
        "| of 2 styles | PCA, 100 | PCA, 400 |",
        "| --- | --- | --- |",
        "| right | 2 | 0 |",
        "| refused | 0 | 0 |",
        "| wrong | 0 | 1 |",
    ]


def test_a_style_whose_library_is_not_there_is_left_out(monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly", None)
    monkeypatch.setitem(sys.modules, "plotly.express", None)
    config = experiment.Config(styles=("plotly: default, colours",), maps=("PCA",), n=(60,))
    (group,) = experiment.groups(type("Asked", (), {"config": config}))
    ((_, left),) = group.compute(group.cells)
    assert left == LeftOut("plotly.express is not installed")


@pytest.mark.parametrize("wrong", [{"styles": ("none",)}, {"maps": ("none",)}, {"n": (10,)}, {"seed": -1}])
def test_a_configuration_is_checked(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must"):
        experiment.Config(**wrong)
