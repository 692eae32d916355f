"""What `import drjax` offers: at once, and without JAX."""

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import drjax
from drjax.data import frames
from drjax.data.arrow import arrow_of
from drjax.releases.manifest import MANIFEST
from drjax.verbs import releasing

VERBS = {"audit", "attack", "embed", "release", "bound", "sweep"}


def test_importing_it_is_quick_and_imports_neither_jax_nor_numpy():
    code = "import sys, drjax; print(sorted(set(sys.modules) & {'jax', 'numpy', 'scipy'})); print(drjax.__version__)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == ["[]", drjax.__version__]


def test_dir_is_the_front_door():
    assert set(dir(drjax)) == {*drjax.__all__, "__version__"}
    assert set(drjax.__all__) >= VERBS
    assert all(getattr(drjax, name) is not None for name in drjax.__all__)
    assert set(drjax.METHODS) == {kind.name for kind in drjax.METHODS.values()}
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = drjax.nothing


def table():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 3)) @ rng.normal(size=(3, 5))
    return pd.DataFrame(x, columns=list("abcde")).assign(sex=rng.choice(["f", "m"], 60))


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow", "csv", "parquet"])
def test_a_table_is_the_same_data_set_however_it_comes(kind, tmp_path):
    frame = table()
    whole = drjax.load(frame, categorical=("sex",), drop=("e",))
    if kind == "csv":
        frame.to_csv(tmp_path / "t.csv", index=False)
    if kind == "parquet":
        frame.to_parquet(tmp_path / "t.parquet", index=False)
    given = {
        "pandas": frame.copy(),
        "polars": pl.from_pandas(frame),
        "arrow": pa.Table.from_pandas(frame, preserve_index=False),
        "csv": tmp_path / "t.csv",
        "parquet": tmp_path / "t.parquet",
    }[kind]
    found = drjax.load(given, categorical=("sex",), drop=("e",))
    np.testing.assert_array_equal(found.x, whole.x)
    assert found.feature_names == ("a", "b", "c", "d", "sex=f", "sex=m")
    np.testing.assert_allclose(found.scale, whole.scale)
    if kind == "pandas":
        assert found.name == whole.name != drjax.load(frame.iloc[::-1], categorical=("sex",)).name


def test_an_array_is_scaled_as_the_file_of_it(tmp_path):
    x = np.random.default_rng(0).normal(size=(20, 3))
    np.save(tmp_path / "x.npy", x)
    np.testing.assert_array_equal(drjax.load(x).x, drjax.load(tmp_path / "x.npy").x)
    assert drjax.load(x).name != drjax.load(x + 1).name
    with pytest.raises(ValueError, match="records are an array"):
        drjax.load(x, label="a")
    with pytest.raises(TypeError, match="got dict"):
        drjax.load({"a": [1]})
    with pytest.raises(TypeError, match="got list"):
        arrow_of([1])


def test_an_audit_of_a_frame_is_that_of_its_file_and_resumes(tmp_path):
    frame = table().drop(columns="sex")
    frame.to_csv(tmp_path / "t.csv", index=False)
    sizes = {"n_known": 20, "n_shadow": 20, "n_validation": 8, "n_targets": 6, "attacks": ("ridge", "closed-form")}
    own = drjax.audit(frame, out=tmp_path / "a", **sizes)
    file = drjax.audit(tmp_path / "t.csv", out=tmp_path / "b", **sizes)
    for name, x in own.reconstructions.items():
        np.testing.assert_array_equal(x, file.reconstructions[name])
    assert len(repr(own).splitlines()) <= 10
    assert repr(own).startswith(own.verdict.headline)
    assert "<td>Ridge regression</td><td>MSE " in own._repr_html_()
    assert drjax.audit(frame, out=tmp_path / "a", resume=True, **sizes).verdict == own.verdict
    with pytest.raises(ValueError, match="data differ"):
        drjax.audit(frame + 1e-3 * (frame > 0), out=tmp_path / "a", resume=True, **sizes)
    with pytest.raises(ValueError, match=r"options must be among .* got \['perplexity'\]"):
        drjax.audit(frame, perplexity=5)


def test_attack_takes_frames_and_refuses_what_the_method_lacks():
    frame = table().drop(columns="sex")
    coords = drjax.embed(frame)
    np.testing.assert_allclose(drjax.attack(frame.iloc[1:], coords).found.x, frame.iloc[0], atol=1e-6)
    said = repr(drjax.attack(frame.iloc[1:], coords)).splitlines()
    assert said[0].startswith("reliable: [")
    assert said[0].endswith("by Closed form, known only, status OK")
    assert len(said) <= 10
    assert (
        repr(drjax.load(frame))
        == f"Dataset {drjax.load(frame).name!r}: 60 records of shape (5,), no labels: a, b, c, d, e"
    )
    method = drjax.PCA(n_components=2)
    assert drjax.attack(frame.iloc[1:], coords, method=method).found.x.shape == (5,)
    with pytest.raises(ValueError, match=r"options must be among \[\] for method 'pca', got \['perplexity'\]"):
        drjax.attack(frame.iloc[1:], coords, method="pca", perplexity=3)
    with pytest.raises(
        ValueError, match="method must be named with hyperparameters of it, steps around it or its seed"
    ):
        drjax.attack(frame.iloc[1:], coords, scale=("standard",))
    with pytest.raises(ValueError, match="must be left out with a method that has its own"):
        drjax.embed(frame, method=method, perplexity=3)


def test_the_index_of_a_frame_is_no_feature():
    frame = pd.DataFrame({"a": [0.1, 0.2, 0.4, 0.8], 7: [1, 0, 0, 1]}, index=[40, 10, 30, 20])
    assert arrow_of(frame[["a"]]).column_names == ["a"]
    assert arrow_of(frame).column_names == ["a", "7"]
    assert frames.from_memory(frame).x.shape == (4, 2)
    named = frame.rename_axis("patient")
    assert frames.values_from_memory(named).names == ("a", "7")


def test_numbers_that_are_missing_are_refused_by_the_column():
    frame = table()
    coords = drjax.embed(frame.drop(columns="sex"))
    assert drjax.embed(frame).shape == coords.shape
    hole = frame.drop(columns="sex").astype({"a": float})
    hole.loc[4, "b"] = None
    for given in (hole, pl.from_pandas(hole)):
        with pytest.raises(ValueError, match=r"must hold numbers only: column 'b' has 1 missing.* first in row 3"):
            drjax.attack(given.iloc[1:] if given is hole else given[1:], coords)
    assert drjax.embed(pd.DataFrame({"a": ["1", "2", "3", "5"], "b": [True, False, True, True]})).shape == (4, 2)


def test_runs_without_a_folder_get_one_by_name_and_a_number_behind(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sizes = {"n_known": 12, "n_shadow": 8, "n_validation": 4, "n_targets": 4, "attacks": ("closed-form",)}
    for _ in range(2):
        drjax.audit("digits", **sizes)
    drjax.audit(table().drop(columns="sex")[:20], each_record=True, options=False, attacks=("closed-form",))
    names = sorted(path.name for path in (tmp_path / "runs").iterdir())
    assert names[1:] == ["digits-pca-n13", "digits-pca-n13-2"]
    assert names[0].startswith("DataFrame-")
    assert names[0].endswith("-pca-each")


def test_a_release_takes_bounds_and_public_records_from_memory(tmp_path):
    frame = table().drop(columns="sex")
    bounds = {name: [-9.0, 9.0] for name in frame}
    made = drjax.release(frame, epsilon=1.0, out=tmp_path / "o", bounds=bounds, public=frame[:30], trials=0)
    assert made.manifest["guarantee"]["holds"]
    files = drjax.release(frame, epsilon=1.0, out=tmp_path / "p", bounds=_file(tmp_path, bounds), trials=0)
    memory = drjax.release(frame, epsilon=1.0, out=tmp_path / "q", bounds=bounds, trials=0)
    noised = ("files", "provenance")
    of_both = [{k: v for k, v in one.manifest.items() if k not in noised} for one in (memory, files)]
    assert of_both[0] == of_both[1]
    x = frame.to_numpy()
    pair = {"lower": -9 * np.ones(5), "upper": 9 * np.ones(5)}
    assert drjax.release(x, epsilon=1.0, out=tmp_path / "r", bounds=pair, trials=0).manifest["guarantee"]["holds"]
    with pytest.raises(ValueError, match="bounds must be given for every column, got none for 'e'"):
        drjax.release(frame, epsilon=1.0, out=tmp_path / "s", bounds={n: bounds[n] for n in "abcd"}, trials=0)


def _file(folder, bounds):
    path = folder / "bounds.json"
    path.write_text(json.dumps(bounds))
    return path


def test_a_release_of_a_frame_publishes_what_one_of_its_file_does(tmp_path, monkeypatch):
    frame = table().drop(columns="sex")
    frame.to_parquet(tmp_path / "t.parquet", index=False)
    seen = []
    monkeypatch.setitem(releasing._RELEASES, "pca", (releasing.PCAReleaseConfig, lambda c, *_, **__: seen.append(c)))
    drjax.release(frame, epsilon=1.0, out=tmp_path / "o", public=tmp_path / "t.parquet")
    assert seen[0].data.suffix == ".parquet"
    assert not seen[0].data.exists()  # it was there while the release was made
    monkeypatch.undo()
    made = drjax.release(frame, epsilon=1.0, out=tmp_path / "o", public=tmp_path / "t.parquet", trials=0)
    assert (tmp_path / "o" / MANIFEST).exists()
    assert made.manifest["guarantee"]["epsilon"] == 1.0
    assert repr(made).splitlines()[1] == "Guarantee: epsilon 1 at delta 1e-06, replace_one"
    assert repr(made).endswith(f"Publish: {tmp_path / 'o'}")


def test_bounds_of_one_and_of_several():
    kappa = np.array([1e-6, 0.01, 0.5])
    found = drjax.bound(kappa, mu=0.5)
    assert found.shape == (3,)
    assert np.all(found >= kappa)
    assert np.all(drjax.bound(kappa, mu=0.5, targets=2) >= found)
    with pytest.raises(ValueError, match="mechanism must be one of"):
        drjax.bound(0.1)
