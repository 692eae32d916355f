"""The experiment on models: cells are computed once, and what they say of digits."""

import dataclasses

import numpy as np
import pytest

from drjax.reports import records
from experiments.informed_adversary import bound, cells, config
from experiments.informed_adversary import run as experiment

SMALL = experiment.Config(
    scale=dataclasses.replace(
        config.SCALES["smoke"], targets=4, n_fixed=80, n_shadow=60, sizes=(60,), fixed_sizes=(40,), factors=("default",)
    )
)


def estimate(found, factor, attack):
    (cell,) = [c for c in found if (c["factor"], c["attack"]) == (factor, attack)]
    return cell["scores"]["mse"]["estimate"]


def test_cells_are_computed_once_and_resumed(tmp_path, monkeypatch):
    said = []
    found = experiment.run(SMALL, tmp_path, factors=("default", "access"), say=said.append)
    learned = len(cells.BASELINES) + len(config.Setting(name="default").learned)
    # Inversion needs all weights: neither of the two settings of `access` has it.
    assert len(found) == len(said) == learned + 1 + 2 * learned
    assert estimate(found, "default", "inversion") < 1e-4 < estimate(found, "default", "mean")
    table = experiment.to_markdown(found).splitlines()
    assert len(table) == 2 + len(found)

    file = tmp_path / experiment.RESULTS
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:-1]))
    monkeypatch.setattr(cells, "reconstruct_model", None)
    again = []
    experiment.run(SMALL, tmp_path, factors=("default", "access"), say=again.append)
    assert again == said[-1:]
    assert len(records.read_records(file)) == len(lines)


def test_what_is_unknown_is_drawn_for_each_model(tmp_path):
    found = experiment.run(SMALL, tmp_path, factors=("start", "batch"), say=lambda _: None)
    settings = {(c["setting"], c["attack"]) for c in found}
    assert ("start unknown", "inversion") not in settings
    assert ("mini-batches, order unknown", "inversion") in settings
    assert ("mini-batches, order known", "inversion") in settings


def test_bound_is_over_every_success(tmp_path, capsys, monkeypatch):
    # Half a minute for all six.
    monkeypatch.setattr(
        experiment,
        "settings",
        lambda *what: [dataclasses.replace(s, learned=("ridge",)) for s in config.settings(*what)[:1]],
    )
    found = experiment.run(SMALL, tmp_path, factors=("privacy",), say=lambda _: None)
    assert {c["of"]["mu"] for c in found} == {1.0}
    bound.main(results=tmp_path)
    assert (tmp_path / "privacy.png").is_file()
    table = [line.split("|") for line in capsys.readouterr().out.splitlines() if line.startswith("| ")][1:]
    assert len(table) == len(found) - 1
    for row in table:
        # 4 targets: the lower end of the interval is what a bound can be held against.
        low = float(row[6].split("(")[1].split(" to ")[0])
        assert low <= float(row[7])


def test_kappa_and_bound():
    public = np.array([[0.0, 0.0], [0.0, 0.1], [0.1, 0.0], [1.0, 1.0], [0.9, 0.2]])
    # Within an MSE of 0.01 of the first lie two of the four others.
    assert bound.kappa_of(public, 0.01) == 0.5
    assert bound.bound(0.5, 1.0) == pytest.approx(0.8413447)
    assert bound.bound(0.1, 1.0) == pytest.approx(0.389, abs=1e-3)


def test_settings_have_names_of_their_own():
    for scale in config.SCALES.values():
        for factor in config.FACTORS:
            names = [s.name for s in config.settings(factor, scale)]
            assert names
            assert len(set(names)) == len(names)


def test_bad_input(tmp_path):
    with pytest.raises(ValueError, match="factor 1 must be one of"):
        experiment.run(SMALL, tmp_path, factors=("colour",))
    with pytest.raises(ValueError, match="seed must be"):
        dataclasses.replace(SMALL, seed=-1)
    with pytest.raises(ValueError, match="targets must be"):
        dataclasses.replace(SMALL.scale, targets=0)
