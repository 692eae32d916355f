import dataclasses

import jax
import numpy as np
import pytest
from sklearn.decomposition import PCA

from drjax import dr
from drjax.core.types import Status
from drjax.reports import records
from experiments import command, sweep
from experiments.pipelines import recognition, report
from experiments.pipelines import run as experiment
from experiments.pipelines.releases import RELEASES, drawn, made


def test_the_smoke_scale_attacks_and_recognises_maps_by_scikit_learn(tmp_path, capsys):
    words = ["--scale", "smoke", "--only", "*PCA*", "--out", str(tmp_path)]
    command.main(experiment.SWEEP, words)
    lines = {one["map"]: one for one in records.read_records(tmp_path / sweep.RESULTS)[1:]}
    assert lines.keys() == {"PCA", "StandardScaler, PCA", "PCA whitened"}
    assert all(one["recognised"] == one["n_recognised"] == 1 for one in lines.values())
    assert lines["StandardScaler, PCA"]["error"] < 1e-6
    assert lines["StandardScaler, PCA"]["ok"] == 1
    assert not any(one["worse_ok"] for one in lines.values())
    assert "| StandardScaler, PCA | breast cancer | 4 |" in capsys.readouterr().out


def test_attacks_that_need_public_records_are_left_out_with_the_reason_where_there_are_none(tmp_path):
    config = dataclasses.replace(experiment.SMOKE, maps=("Isomap, cosine",), dear_targets=1, n_public=0)
    said = []
    assert len(sweep.run(experiment.SWEEP, config, tmp_path, say=said.append).lines) == 1
    (line,) = said
    assert "left out, the attack needs public records" in line


def test_attacks_that_need_public_records_have_them_and_others_do_not(tmp_path):
    maps = ("Isomap, cosine", "PCA")
    sizes = {"n_known": 30, "n_public": 30, "targets": 1, "dear_targets": 1, "recognised": 0}
    config = dataclasses.replace(experiment.SMOKE, maps=maps, **sizes)
    lines = sweep.run(experiment.SWEEP, config, tmp_path, say=lambda _: None).lines
    assert {line["map"]: line["n_public"] for line in lines if "map" in line} == {"Isomap, cosine": 30, "PCA": 0}


def test_targets_have_their_first_row_in_maps_of_their_own():
    known, targets, others = drawn("wine", 30, 3, seed=1)
    maps = made(RELEASES["StandardScaler, PCA"], known, list(targets), seed=0)
    assert maps.shape == (3, 31, 2)
    assert len(others) == 178 - 33
    x = np.concatenate([targets[1][None], known])
    ours = dr.Pipeline(before=(dr.Standardise(),), method=dr.PCA()).fit_transform(jax.random.key(0), x)
    np.testing.assert_allclose(np.abs(maps[1]), np.abs(ours.coords), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"maps": ("LLE",)}, "maps must be one of"), ({"targets": 0}, "targets must be"), ({"recognised": -1}, "recog")],
)
def test_bad_configurations_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(experiment.SMOKE, **changes)


def test_recognition_says_what_is_named_right_and_what_of_what_is_not(capsys, monkeypatch):
    def broken(*_):
        raise ValueError("no such map")

    chosen = ("kernel PCA, rbf", "normal noise", "PCA of others")
    kinds = {kind: recognition.KINDS[kind] for kind in chosen} | {"broken": broken}
    # A map of the records themselves is not foreign.
    kinds["own"] = lambda x, _, seed: PCA(2, random_state=seed).fit_transform(x)
    monkeypatch.setattr(recognition, "KINDS", kinds)
    recognition.main("foreign", data=("wine",), n_known=40)
    lines = capsys.readouterr().out.splitlines()
    assert lines[2:] == ["| own | wine | 0 | PCA of records as they are |", "", "3 of 4 maps named right"]


def test_maps_of_known_kinds_are_named_right_and_with_their_factor(capsys, monkeypatch):
    recognition.main("pca", data=("wine",), n_known=90)
    assert capsys.readouterr().out == "8 of 8 maps named right\n"
    recognition.main("mixed", data=("wine",), n_known=90)
    assert capsys.readouterr().out == "9 of 9 maps named right\n"
    # Scaled to [0, 1], a map shrinks.
    monkeypatch.setattr(recognition, "FACTORS", (7.7,))
    verdicts = list(recognition.multiplied("wine", n_known=60, seed=0))
    assert [right for *_, right in verdicts] == [True] * 6
    kinds, beliefs = zip(*(verdict[:2] for verdict in verdicts), strict=True)
    assert kinds[3:] == (
        "StandardScaler, MDS times 7.7",
        "StandardScaler, t-SNE times 7.7",
        "StandardScaler, t-SNE scaled to [0, 1]",
    )
    assert beliefs[3].startswith(
        "multidimensional scaling (SMACOF) of standardised records, multiplied by a constant, factors off by up to 0.00"
    )
    assert "of standardised records, each column multiplied by a constant" in beliefs[5]


def test_the_short_table_says_what_was_not_run():
    line = {"map": "PCA", "data": "a", "error": 0.0123, "ok": 0.925, "n_targets": 40, "coverage": 0.899}
    table = report.short_table([line, line | {"data": "b", "coverage": None}, line | {"map": "MDS", "data": "b"}])
    assert table.splitlines()[2:] == ["| PCA | 0.012, 37, 90% | 0.012, 37 |", "| MDS | not run | 0.012, 37, 90% |"]
    kinds = ("StandardScaler, PCA, k = 1", "StandardScaler, PCA(10), t-SNE", "MDS")
    assert [report.is_pca({"map": kind}) for kind in kinds] == [True, False, False]


def test_answers_are_counted_by_status_and_by_whether_they_are_worse():
    line = {"map": "PCA", "errors": [0.1, 2.0, float("nan")], "statuses": [0, 0, 1 << 20], "recognised": 1}
    partial = int(Status.PARTIAL)
    lines = [line | {"n_recognised": 1}, line | {"map": "MDS", "statuses": [partial, partial, 0], "n_recognised": 2}]
    assert report.answers_table(lines).splitlines()[2:] == [
        "| OK | 2 | 1 | 1 | 1 |",
        "| PARTIAL | 0 | 0 | 2 | 1 |",
        "| others | 1 | 1 | 0 | 0 |",
        "| all | 3 | 2 | 3 | 2 |",
        "| maps recognised | 1 of 1 |  | 1 of 2 |  |",
    ]
