import dataclasses
from pathlib import Path

import numpy as np
import pytest

from drjax.attacks import practice
from drjax.audits import AuditConfig, choice, run
from drjax.core import streamed
from drjax.dr import METHODS
from drjax.reports import records

SMALL = AuditConfig(
    n_known=40, n_shadow=120, n_validation=30, n_targets=25, attacks=("ridge", "closed-form", "closed-form-known")
)


def contents(folder):
    """Every file whole, but the records and the page, which say when and how long; and those without their times."""
    files = {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    written = {name for name in files if name.startswith("records.") or name == "report.html"}
    timeless = [_timeless(record) for record in records.read_records(folder / "records.jsonl")]
    return {name: content for name, content in files.items() if name not in written} | {"records.json": timeless}


def _timeless(value):
    if isinstance(value, dict):
        times = ("seconds", "seconds_per_target", "utc", "median_epoch_s", "compile_s")
        return {key: _timeless(entry) for key, entry in value.items() if key not in times}
    return [_timeless(entry) for entry in value] if isinstance(value, list) else value


@pytest.mark.figures
def test_writes_report_records_arrays_and_figures(tmp_path):
    result = run(SMALL, tmp_path / "out")
    assert result.verdict.level == "high"
    page = result.report.read_text("utf-8")
    assert result.verdict.headline in page
    assert "Closed form with prior" in page
    assert "knows 40 of the 41 released records, all but one" in page
    kinds = [record["kind"] for record in records.read_records(tmp_path / "out" / "records.jsonl")]
    assert kinds.count("attack") == 5
    assert kinds.count("run") == 1
    figures = {file.name for file in (tmp_path / "out" / "figures").iterdir()}
    assert figures == {"reconstructions.png", "ladder.svg", "errors.svg"}
    for told in ("the strongest attack: ", "Pictures of 10 records", "one curve for each attack"):  # alternative texts
        assert told in page


def test_equal_runs_leave_equal_files_byte_for_byte(tmp_path):
    for name in "ab":
        run(SMALL, tmp_path / name)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    assert len(list((tmp_path / "a").rglob("*.npz"))) == 9


@pytest.mark.figures
@pytest.mark.parametrize("method", ["pca", "srp"])
def test_an_interrupted_run_resumes_to_bit_identical_results(tmp_path, monkeypatch, method):
    attacks = ("ridge", "closed-form") if method == "pca" else ("ridge", "srp-closed-form")
    config = dataclasses.replace(SMALL, method=method, attacks=attacks)
    whole = run(config, tmp_path / "whole")

    class Killed(Exception):
        pass

    put = records.put_arrays
    count = iter(range(100))

    def put_some(path, arrays):
        if next(count) == 4:
            raise Killed
        return put(path, arrays)

    monkeypatch.setattr(records, "put_arrays", put_some)
    with pytest.raises(Killed):
        run(config, tmp_path / "part")
    monkeypatch.undo()
    with pytest.raises(ValueError, match="--resume"):
        run(config, tmp_path / "part")
    resumed = run(config, tmp_path / "part", resume=True)
    first, second = contents(tmp_path / "whole"), contents(tmp_path / "part")
    assert first == second
    assert {Path(name).suffix for name in first} == {".npz", ".png", ".svg", ".json"}
    assert [row.scores.mse for row in whole.rows] == [row.scores.mse for row in resumed.rows]


@pytest.mark.parametrize(("method", "attack"), [("pca", "closed-form"), ("srp", "srp-closed-form")])
def test_of_many_records_factors_are_kept_and_the_results_are_the_same(tmp_path, monkeypatch, method, attack):
    config = dataclasses.replace(SMALL, method=method, attacks=(attack, "ridge"), dtype="float64", n_known=60)
    few = run(config, tmp_path / "few")
    monkeypatch.setattr(streamed, "is_large", lambda *_: True)
    monkeypatch.setattr(streamed, "BLOCK_ENTRIES", 7 * 64)
    many = run(config, tmp_path / "many")
    assert "turn" in records.load_arrays(tmp_path / "many" / "releases" / "00000000.npz")
    for name, x in few.reconstructions.items():
        np.testing.assert_allclose(many.reconstructions[name], x, atol=1e-5, err_msg=name)
    for name in ("trustworthiness", "knn_preservation", "stress_1"):
        np.testing.assert_allclose(getattr(many.quality, name), getattr(few.quality, name), rtol=1e-6)
    # Read back, factors are of the known records, whatever basis they were found in.
    (tmp_path / "many" / "attacks" / f"{attack}.npz").unlink()
    resumed = run(config, tmp_path / "many", resume=True)
    np.testing.assert_allclose(resumed.reconstructions[attack], many.reconstructions[attack], atol=1e-9)


def test_refuses_a_folder_of_another_configuration_and_leaves_it_alone(tmp_path):
    run(SMALL, tmp_path / "out")
    before = sorted(p.stat().st_mtime_ns for p in (tmp_path / "out").rglob("*"))
    with pytest.raises(ValueError, match="seed differ"):
        run(dataclasses.replace(SMALL, seed=1), tmp_path / "out", resume=True)
    assert before == sorted(p.stat().st_mtime_ns for p in (tmp_path / "out").rglob("*"))


def test_a_known_seed_gives_shadows_and_releases_one_matrix(tmp_path):
    config = dataclasses.replace(SMALL, method="srp", attacks=("ridge",), seed_known=True)
    run(config, tmp_path / "out")
    shadows = records.load_arrays(tmp_path / "out/shadows/00000000.npz")["coords"]
    released = records.load_arrays(tmp_path / "out/releases/00000000.npz")["coords"]
    np.testing.assert_array_equal(shadows[0, 1:], released[0, 1:])


def test_too_few_records_and_unfit_attacks_are_errors_before_anything_is_written(tmp_path):
    with pytest.raises(ValueError, match="record"):
        run(dataclasses.replace(SMALL, n_shadow=5000), tmp_path / "out")
    with pytest.raises(ValueError, match="attacks"):
        run(dataclasses.replace(SMALL, method="srp"), tmp_path / "out")
    with pytest.raises(ValueError, match="n_components"):
        run(dataclasses.replace(SMALL, n_components=60), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_tabular_data_get_error_bars_per_feature(tmp_path):
    rng = np.random.default_rng(0)
    table = rng.normal(size=(200, 3)) @ rng.normal(size=(3, 6)) + rng.normal(size=(200, 6))
    lines = ["a,b,c,d,e,f", *(",".join(f"{v:.6f}" for v in row) for row in table)]
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    small = dataclasses.replace(SMALL, data=str(tmp_path / "t.csv"), n_known=30, n_shadow=100)
    result = run(small, tmp_path / "out")
    assert "Error of each feature" in result.report.read_text("utf-8")


def test_an_audit_runs_by_default_what_errs_least_where_the_answer_is_known(tmp_path, monkeypatch):
    monkeypatch.setattr(practice, "MOST_SECONDS", 5.0)  # without the inversion
    config = dataclasses.replace(SMALL, method="isomap", attacks=(), hyperparameters={"n_neighbors": 5})
    result = run(config, tmp_path / "out")
    tried = {
        file.stem: records.load_arrays(file)["error"].mean() for file in (result.folder / "practice").glob("*.npz")
    }
    assert {"ridge", "invariant", "map", "geodesics"} <= tried.keys()
    assert "inversion" not in tried
    ran = result.reconstructions.keys() - {"mean", "nearest"}
    best = min(tried, key=lambda name: tried[name])
    assert best in ran
    assert len(ran) <= 3
    errors = {name: np.mean((x - result.targets) ** 2) for name, x in result.reconstructions.items()}
    assert errors[best] < 0.5 * errors["mean"]
    assert run(config, tmp_path / "out", resume=True).reconstructions.keys() == result.reconstructions.keys()


def test_an_exact_answer_ends_the_search(tmp_path, monkeypatch):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).random((300, 6)))  # more known records than features
    config = dataclasses.replace(SMALL, data=str(tmp_path / "x.npy"), dtype="float64", attacks=())
    monkeypatch.setattr(practice, "QUICK_SECONDS", 1e-4)
    result = run(config, tmp_path / "out")
    tried = {file.stem for file in (result.folder / "practice").glob("*.npz")}
    assert "closed-form-known" in tried
    assert not {"invariant", "map", "inversion"} & tried
    assert {"mean", "nearest", "closed-form-known"} <= result.reconstructions.keys()


@pytest.mark.parametrize("method", METHODS)
def test_all_attacks_are_those_that_suit_the_method(method):
    options = {"srp": {"seed_known": True}}.get(method, {})
    known = choice.possible(METHODS[method](), seed_known=True)
    assert {"mean", "nearest", "map", "ridge", "invariant", "residual-network", "dense-network", "network"} <= set(
        known
    )
    unknown = choice.possible(METHODS[method](), seed_known=False)
    assert set(known) - set(unknown) == ({"inversion"} if options else set())
