import dataclasses

import joblib
import numpy as np
import pytest

from experiments import sweep
from experiments.equivalence import run as experiment

SMALL = dataclasses.replace(experiment.SMOKE, n=(20,), n_sets=(3,), method=("tsne",))


@pytest.fixture(autouse=True)
def _light_work(monkeypatch):
    monkeypatch.setattr(experiment, "TREES", 50)
    # In threads, because a process of its own would import JAX first.
    with joblib.parallel_config(backend="threading"):
        yield


def test_data_sets_are_compared_and_a_second_run_computes_nothing_again(tmp_path, monkeypatch):
    written = sweep.run(experiment.SWEEP, SMALL, tmp_path, say=lambda _: None).lines
    assert [r["kind"] for r in written] == ["run", "stage", "stage", "stage"]
    (summary,) = experiment.summaries(tmp_path, SMALL)
    assert set(summary["tests"]) == {"objective", "n_iter", "trustworthiness"}
    table = experiment.to_markdown([summary])
    assert table.count("| tsne | 20 |") == 3 + 2 * len(experiment.VIEWS)

    def refuse(*_):
        raise AssertionError("computed again")

    monkeypatch.setattr(experiment, "_pair", refuse)
    assert sweep.run(experiment.SWEEP, SMALL, tmp_path, say=lambda _: None).lines == written


def test_equivalence_is_claimed_where_it_holds_and_nowhere_else():
    rng = np.random.default_rng(0)
    same, other = rng.normal(0, 1, 400), rng.normal(0.5, 1, 400)
    # The standard error is 0.05: a margin of 0.2 is four of them, of 0.05 one.
    assert experiment.equivalence(same, 0.2)["equivalent"]
    assert not experiment.equivalence(same, 0.05)["equivalent"]
    assert not experiment.equivalence(other, 0.5)["equivalent"]
    assert not experiment.equivalence(same[:4], 0.2)["equivalent"]


def test_the_classifier_tells_different_maps_apart_and_is_at_chance_on_equal_ones():
    rng = np.random.default_rng(0)
    maps = rng.normal(size=(3, 60, 40, 2))
    found = [np.array([experiment.features(m) for m in maps[i] * (1.3 if i == 2 else 1)]) for i in range(3)]
    same, wider = (experiment.two_sample_accuracy(found[i], found[0]) for i in (1, 2))
    assert same["low"] < 0.5 < same["high"]
    assert wider["low"] > 0.8


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": ("pca",)}, "method must be one of tsne, umap"),
        ({"n_sets": (3, 4)}, "n_sets must have one entry for each of n"),
        ({"n": (10,)}, "n must be an integer >= 16, got 10"),
    ],
)
def test_bad_configurations_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(experiment.SMOKE, **changes)


def test_an_upright_map_is_the_same_whatever_its_place_and_reflection():
    coords = np.random.default_rng(0).exponential(size=(40, 2))
    expected = experiment.upright(coords)
    np.testing.assert_allclose(expected.mean(axis=0), 0, atol=1e-12)
    for sign in ([1, -1], [-1, 1], [-1, -1]):
        np.testing.assert_allclose(experiment.upright(coords * sign + 7), expected, atol=1e-12)
