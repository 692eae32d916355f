import dataclasses

import joblib
import numpy as np
import pytest

from drjax.reports import records
from experiments import sweep
from experiments.equivalence import report
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
    assert [r["kind"] for r in written] == ["run", "stage"]
    line = written[1]
    assert (line["method"], line["n"], line["n_sets"]) == ("tsne", 20, 3)
    assert set(line["tests"]) == {"objective", "n_iter", "trustworthiness"}
    assert line["provenance"]["commit"] == written[0]["provenance"]["commit"]
    assert report.to_markdown(written).count("| tsne | 20 |") == 3 + 2 * len(experiment.VIEWS)

    def refuse(*_):
        raise AssertionError("computed again")

    monkeypatch.setattr(experiment, "_pair", refuse)
    assert sweep.run(experiment.SWEEP, SMALL, tmp_path, say=lambda _: None).lines == written


def test_an_interrupted_run_leaves_whole_files_only_and_goes_on_with_its_pairs(tmp_path, monkeypatch):
    embedded, pair = [], experiment._pair

    def killed(name, x, index, *reference):
        if index == 2 and not embedded.count(2):
            embedded.append(index)
            raise KeyboardInterrupt
        embedded.append(index)
        return pair(name, x, index, *reference)

    monkeypatch.setattr(experiment, "_pair", killed)
    with pytest.raises(KeyboardInterrupt):
        sweep.run(experiment.SWEEP, SMALL, tmp_path, say=lambda _: None)
    # The head alone: tests of some of the sets are no result.
    (head,) = records.read_records(tmp_path / sweep.RESULTS)
    assert len(records.read_records(tmp_path / experiment.PAIRS)) == 2
    assert {path.suffix for path in tmp_path.rglob("*") if path.is_file()} == {".json"}
    found = sweep.run(experiment.SWEEP, SMALL, tmp_path, say=lambda _: None).lines
    assert embedded == [0, 1, 2, 2]
    assert found[0] == head
    assert [line["n_sets"] for line in found[1:]] == [3]


def test_tables_say_what_was_not_run(tmp_path):
    wanted = dataclasses.replace(SMALL, n=(20, 30), n_sets=(2, 2))
    lines = sweep.run(experiment.SWEEP, wanted, tmp_path, only="tsne/20", say=lambda _: None).lines
    tests, classifier = report.tests_of(lines).splitlines(), report.classifier_of(lines).splitlines()
    for table in (tests, classifier):
        assert [line for line in table if line.startswith("| tsne | 30 |")] == table[-1:]
        assert table[-1].endswith("| not run |")
        assert "not run" not in "".join(table[:-1])


def test_committed_tests_are_of_the_configuration_and_of_a_clean_checkout():
    head, *lines = report.committed()
    assert head["fingerprint"] == records.config_fingerprint(experiment.Config())
    assert not any(line["provenance"]["dirty"] for line in (head, *lines))
    sets = dict(zip(head["config"]["n"], head["config"]["n_sets"], strict=True))
    assert lines
    assert all(line["n_sets"] == sets[line["n"]] for line in lines)
    assert report.block("tests") == report.tests_of(report.committed())
    assert report.block("classifier") == report.classifier_of(report.committed())


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
