"""The experiment on models: cells are computed once, and what they say of digits."""

import dataclasses

import pytest

from drjax.reports import records
from experiments.informed_adversary import cells, config
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
    learned = len(cells.BASELINES) + len(cells.LEARNED)
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
