"""The audit of a network: what it finds on digits, resuming, DP-GD, and bad input."""

import dataclasses
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from drjax.attacks.models import attacks as model_attacks
from drjax.attacks.reconstruction import reconn
from drjax.audits import ModelAuditConfig, model, run
from drjax.cli import main
from drjax.core import executors
from drjax.nets.classifier_training import Training
from drjax.nets.classifiers import Classifier
from drjax.reports import records

SHORT = Training(epochs=40)
SMALL = ModelAuditConfig(training=SHORT, n_known=120, n_shadow=80, n_targets=6, attacks=("quadratic", "inversion"))


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    folder = tmp_path_factory.mktemp("audit") / "run"
    return run(SMALL, folder), folder


def test_inversion_is_exact_and_the_verdict_says_so(audited):
    result, _ = audited
    by_label = {row.label: row for row in result.rows}
    assert [row.is_baseline for row in result.rows] == [True, True, False, False]
    assert by_label["inversion of the training"].scores.mse.estimate < 1e-5
    assert by_label["inversion of the training"].scores.success.estimate == 1
    assert result.verdict.level == "high"
    assert 0.7 < result.accuracy <= 1
    page = result.report.read_text()
    for text in ("Published parameters", "760", "it was found for 100%", "121 private records"):
        assert text in page
    assert "coordinates per record" not in page


def test_a_second_run_computes_nothing_again(audited, monkeypatch):
    result, folder = audited
    for name in ("train_many", "reconstruct_model"):
        monkeypatch.setattr(model if name == "train_many" else model_attacks, name, None)
    lines = len(records.read_records(folder / "records.jsonl"))
    again = run(SMALL, folder, resume=True)
    assert [row.scores for row in again.rows] == [row.scores for row in result.rows]
    assert len(records.read_records(folder / "records.jsonl")) == lines
    with pytest.raises(ValueError, match="where n_targets differ"):
        run(dataclasses.replace(SMALL, n_targets=7), folder, resume=True)


def test_noise_of_dp_gd_protects(tmp_path):
    small = {"training": Training(epochs=10), "n_known": 60, "n_targets": 3}
    config = dataclasses.replace(SMALL, **small, epsilon=1.0, attacks=("inversion",))
    result = run(config, tmp_path / "run")
    mean, _, inversion = result.rows
    assert inversion.scores.mse.estimate > 0.7 * mean.scores.mse.estimate
    page = result.report.read_text()
    assert "epsilon 1 at delta 1e-05" in page
    failed = "failed for 3 of 3 records, which says nothing about whether they are safe"
    assert failed in result.verdict.caveats[-1]
    assert failed in page


def test_command_with_workers(tmp_path, capsys, monkeypatch):
    pieces = []

    class Pool(ThreadPoolExecutor):
        """Workers are threads: a process would import everything anew."""

        def submit(self, fn, job, piece):
            pieces.append(piece.name)
            return super().submit(fn, job, piece)

    monkeypatch.setattr(executors, "_local", lambda _: Pool(1))
    arguments = "--n-known 60 --n-shadow 40 --n-targets 3 --hidden 6 --activation tanh --epochs 20 --learning-rate 0.2"
    main(["audit-model", *arguments.split(), "--executor", "local", "--out", str(tmp_path / "run")])
    assert pieces == ["inversion"]
    assert "Do not publish this as it is" in capsys.readouterr().out
    assert (tmp_path / "run" / "report.html").is_file()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"attacks": ("guess",)}, "attacks must be one of"),
        ({"epsilon": 0.0}, "epsilon must be"),
        ({"epsilon": 1.0, "delta": 1.0}, "delta must be"),
        ({"epsilon": 1.0, "clip_norm": np.nan}, "clip_norm must be"),
        ({"epsilon": 1.0, "training": Training(batch_size=8)}, "batch_size must be left out"),
        ({"n_known": 1}, "n_known must be"),
        ({"dtype": "float16"}, "dtype must be one of"),
    ],
)
def test_bad_configurations(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(SMALL, **change)


def test_bad_data(tmp_path):
    few = dataclasses.replace(SMALL, training=dataclasses.replace(SHORT, model=Classifier(n_classes=5)))
    with pytest.raises(ValueError, match="n_classes must be more than every label"):
        run(few, tmp_path / "run")
    file = tmp_path / "x.npy"
    np.save(file, np.random.default_rng(0).random((300, 4)))
    with pytest.raises(ValueError, match="label must name the column"):
        run(dataclasses.replace(SMALL, data=str(file)), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_network_learns_from_all_shadows_but_a_tenth(tmp_path, monkeypatch):
    seen = []

    def fit(*arguments, validation):
        _, vectors, targets, _ = arguments
        seen.append([len(part) for part in (vectors, targets, *validation)])
        return reconn.fit_quadratic(vectors, targets), None

    monkeypatch.setattr(reconn, "fit", fit)
    monkeypatch.setattr(reconn, "reconstruct", lambda fitted, vectors: fitted.reconstruct(vectors))
    run(dataclasses.replace(SMALL, attacks=("network",), n_shadow=40), tmp_path / "run")
    assert seen == [[36, 36, 4, 4]]
