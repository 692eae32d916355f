"""A map with a guarantee: of the synthetic records alone, in their order, and judged in private."""

import csv
import json
import stat

import jax
import numpy as np
import pandas as pd
import pytest

import drjax
from drjax.cli import main
from drjax.data import schema_sources
from drjax.data.table_files import read_table
from drjax.dr import make_method
from drjax.releases import map as maps
from drjax.releases import map_picture
from drjax.releases.map import MapReleaseConfig, map_config, release_map
from tests.data.messy import patients
from tests.releases.stated_messy import KNOWN, filled_in

N = 300
BOUNDS = {"level": [0, 1], "twin": [0, 1], "group": ["low", "middle", "high"]}


def people(n=N, seed=0):
    rng = np.random.default_rng(seed)
    level = rng.uniform(0, 1, n)
    group = np.array(["low", "middle", "high"])[np.digitize(level, [0.3, 0.6])]
    return zip(level.round(3), np.clip(level + rng.normal(0, 0.03, n), 0, 1).round(3), group, strict=True)


@pytest.fixture
def folder(tmp_path):
    with (tmp_path / "people.csv").open("w", newline="") as file:
        csv.writer(file).writerows([list(BOUNDS), *people()])
    (tmp_path / "bounds.json").write_text(json.dumps(BOUNDS))
    return tmp_path


def config(folder, **fields):
    given = {"data": folder / "people.csv", "bounds": folder / "bounds.json", "epsilon": 2.0, "trials": 0}
    return map_config(**{**given, **fields})


def coords_of(folder):
    return np.loadtxt(folder / "map.csv", delimiter=",", skiprows=1)


def features_of(folder):
    """The published records from 0 to 1, as anybody encodes them by the published schema."""
    columns = read_table(folder / "synthetic.csv")
    schema, _ = schema_sources.stated(list(columns), json.loads((folder / "schema.json").read_text()))
    lower, upper = schema.bounds
    return (schema.encode(columns)[0] - lower) / (upper - lower)


@pytest.mark.parametrize(("scale", "steps"), [(None, ("standard",)), ((), ()), (("min-max",), ("min-max",))])
def test_the_map_is_computed_from_what_is_published_beside_it_alone(folder, scale, steps):
    result = release_map(config(folder, method="pca", scale=scale), folder / "out")
    x = features_of(folder / "out")
    found, _ = maps.embedded(key(), make_method("pca", 2, {}, scale=steps), x)
    np.testing.assert_allclose(coords_of(folder / "out"), found, atol=1e-6)
    assert len(x) == N
    manifest = result.manifest
    assert set(manifest["files"]) == {"synthetic.csv", "schema.json", "map.csv"}
    assert manifest["released"] == "300 synthetic records with 3 columns, and a map of them by PCA"
    assert manifest["map"]["steps"]["scale"] == list(steps)
    assert manifest["guarantee"]["holds"]
    assert manifest["guarantee"]["epsilon"] == 2.0
    names = {path.name for path in (folder / "out").iterdir()}
    assert names == {"synthetic.csv", "schema.json", "map.csv", "manifest.json"}
    assert stat.S_IMODE((result.private_folder / "report.html").stat().st_mode) == 0o600


def key():
    return jax.random.key(0)


def test_how_good_a_picture_it_is_stays_in_the_private_report(folder):
    good = release_map(config(folder, epsilon=1e4), folder / "good")
    poor = release_map(config(folder, epsilon=0.01), folder / "poor")
    assert good.picture.published.trustworthiness > 0.9
    assert good.picture.own.trustworthiness > 0.9
    assert good.picture.nothing.trustworthiness < good.picture.published.trustworthiness
    assert good.picture.published.kept > poor.picture.published.kept
    assert not good.picture.is_no_better_than_nothing
    page = (good.private_folder / "report.html").read_text()
    assert "DO NOT PUBLISH THIS REPORT" in page
    assert good.picture.sentence[:60] in page
    published = "".join(path.read_text() for path in good.folder.iterdir())
    assert "trustworthiness" not in published.lower()
    assert repr(good).startswith("Released: ")
    assert "0." not in repr(good)


def test_a_place_is_that_of_the_nearest_synthetic_record_and_is_scored_by_ranks():
    rng = np.random.default_rng(0)
    real = rng.uniform(0, 1, (60, 3))
    made = np.concatenate([real, rng.uniform(5, 6, (20, 3))])
    places = made / real.std(axis=0)
    uniform = rng.uniform(0, 1, (80, 3))
    found = map_picture.measured(key(), real, made, places, uniform, lambda x: x[:, :1])
    assert found.published == (1.0, 1.0)
    assert max(found.own.trustworthiness, found.nothing.trustworthiness) < 1
    assert not found.is_no_better_than_nothing
    assert found._replace(nothing=found.published).is_no_better_than_nothing
    moved = np.concatenate([places[59::-1], places[60:]])
    assert map_picture.measured(key(), real, made, moved, uniform, lambda x: x).published.kept < 0.5


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"method": "tsne", "perplexity": 400}, "perplexity must be < n = 300"),
        ({"method": "tsne", "perplexity": 40, "n_synthetic": 30}, "perplexity must be < n = 30"),
        ({"method": "magic"}, "method must be one of"),
        ({"method": "pca", "perplexity": 5}, "options must be among"),
        ({"n_components": 0}, "n_components must be an integer"),
        ({"synthesizer": "magic"}, "method must be one of pca-gauss"),
        ({"scale": ("magic",)}, "scale must be one of"),
        ({"bounds": None}, "got none for 'level', 'twin', 'group'"),
    ],
)
def test_what_cannot_be_mapped_is_refused_before_anything_is_charged_or_written(folder, fields, message):
    before = sorted(folder.iterdir())
    with pytest.raises(ValueError, match=message):
        release_map(config(folder, **fields), folder / "out")
    assert sorted(folder.iterdir()) == before


def test_a_method_that_fails_on_the_synthetic_records_leaves_them_released(folder, monkeypatch):
    def broken(*_):
        raise ValueError("no such map")

    monkeypatch.setattr(maps, "embedded", broken)
    result = release_map(config(folder), folder / "out")
    assert result.coords is None
    assert result.failure == "ValueError: no such map"
    assert set(result.manifest["files"]) == {"synthetic.csv", "schema.json"}
    assert result.manifest["map"]["failed"] == "ValueError: no such map"
    assert "There is no map: ValueError: no such map" in (result.private_folder / "report.html").read_text()


def test_the_front_door_takes_hyperparameters_and_statements_in_memory(folder):
    options = {"method": "tsne", "perplexity": 10.0, "max_iter": 250, "trials": 0, "bounds": BOUNDS, "n_synthetic": 60}
    result = drjax.release(folder / "people.csv", kind="map", epsilon=1.0, out=folder / "out", **options)
    assert result.coords.shape == (60, 2)
    assert result.manifest["map"]["hyperparameters"]["perplexity"] == 10.0
    assert (folder / "out/map.csv").read_text().startswith("tsne1,tsne2\n")


def test_one_odd_cell_of_a_frame_refuses_no_release(folder):
    levels = [0.5, 0.25, "high", None, 0.75] * 12
    frame = pd.DataFrame({"level": levels, "group": ["low", "high", 3, "middle", None] * 12})
    bounds = {"level": [0, 1], "group": BOUNDS["group"]}
    for kind in ("pca", "synthetic"):
        result = drjax.release(frame, kind=kind, epsilon=1.0, out=folder / kind, bounds=bounds, trials=0)
        assert result.manifest["n_records"] == 60


def test_the_configuration_of_the_table_is_that_of_the_map():
    one = MapReleaseConfig(data="d.csv", epsilon=1.0, target="a", synthesizer="ron-gauss", synthesizer_components=3)
    table = one.table()
    assert (table.target, table.method, table.n_components, table.epsilon) == ("a", "ron-gauss", 3, 1.0)


def test_the_messy_table_becomes_a_form_is_refused_filled_in_and_released(tmp_path, capsys):
    """From the audited table to components, synthetic records and a map, on the command line."""
    (tmp_path / "patients.csv").write_text(patients(400).text)
    data, form, stated = (str(tmp_path / name) for name in ("patients.csv", "form.json", "stated.json"))
    main(["release", "schema", data, "--out", form])
    said = capsys.readouterr().out
    assert "To fill in: patient_id, mrn, admitted" in said
    assert stat.S_IMODE((tmp_path / "form.json").stat().st_mode) == 0o600
    for kind in ("pca", "synthetic", "map"):
        with pytest.raises(SystemExit):
            main(["release", kind, data, "--epsilon", "1", "--bounds", form, "--out", str(tmp_path / kind)])
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert "got none for 'patient_id', 'mrn', 'admitted', 'discharged'" in error
    (tmp_path / "stated.json").write_text(json.dumps(filled_in(json.loads((tmp_path / "form.json").read_text()))))
    options = ["--epsilon", "4", "--bounds", stated, "--trials", "0", "--out"]
    main(["release", "pca", data, *options, str(tmp_path / "pca")])
    with np.load(tmp_path / "pca/components.npz") as arrays:
        assert "ward=Cardiology" in arrays["columns"]
        assert "crp" in arrays["columns"]
        assert arrays["scale"][list(arrays["columns"]).index("height_cm")] == 10
    main(["release", "synthetic", data, *options, str(tmp_path / "synthetic")])
    main(["release", "map", data, *options, str(tmp_path / "map"), "--method", "isomap", "--n-neighbors", "8"])
    said = capsys.readouterr().out
    assert "The map as a picture of the real records: trustworthiness" in said
    assert f"Publish: {tmp_path}/map/synthetic.csv, {tmp_path}/map/schema.json, {tmp_path}/map/map.csv" in said
    for kind in ("synthetic", "map"):
        with (tmp_path / kind / "synthetic.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert len(rows) == 400
        assert list(rows[0]) == list(KNOWN)
        assert all(row["severity"] in ("mild", "moderate", "severe", "critical") for row in rows)
        assert all("1920" <= row["date of birth"][-4:] <= "2006" for row in rows)
    assert json.loads((tmp_path / "map/manifest.json").read_text())["map"]["hyperparameters"]["n_neighbors"] == 8
    # What was published is read by what was published with it, to the last cell.
    columns = read_table(tmp_path / "map/synthetic.csv")
    schema, _ = schema_sources.stated(list(columns), json.loads((tmp_path / "map/schema.json").read_text()))
    assert schema.outside(columns) == {}
