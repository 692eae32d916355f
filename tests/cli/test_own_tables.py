"""Commands beside `audit` on tables as they are exported: the same plan, --schema, and numbers as they stand."""

import html
import io
import json

import jax
import numpy as np
import pandas as pd
import pytest

from drjax.cli import main
from drjax.data import load, records_of
from drjax.nets.classifier_training import Training, train_many
from drjax.nets.classifiers import Classifier
from drjax.nets.weights_files import write_params
from tests.data import messy
from tests.data.test_sheets import workbook


@pytest.fixture(scope="module")
def table():
    return pd.read_csv(io.StringIO(messy.patients(300, 1).text), dtype=str, keep_default_na=False)


def failure(capsys, *arguments):
    with pytest.raises(SystemExit) as stopped:
        main([str(one) for one in arguments])
    error = capsys.readouterr().err
    assert stopped.value.code == 2
    assert error.count("\n") == 1
    return error


def test_audit_model_prints_the_plan_of_a_table_and_obeys_a_schema(table, tmp_path, capsys):
    table.to_csv(tmp_path / "t.csv", index=False, sep=";")
    (tmp_path / "plan.json").write_text('{"notes": "drop", "ward": "drop", "severity": "category"}')
    size = ["--n-known", "40", "--n-shadow", "40", "--n-targets", "2", "--epochs", "5", "--n-classes", "2"]
    given = ["audit-model", "--data", f"{tmp_path}/t.csv", "--label", "diabetic", *size, "--out", f"{tmp_path}/run"]
    main([*given, "--schema", f"{tmp_path}/plan.json", "--id", "mrn"])
    said = " ".join(capsys.readouterr().out.split())
    assert "PRIVATE" in said
    assert "20 of 25 columns become" not in said
    assert "columns become" in said
    config = json.loads((tmp_path / "run" / "config.json").read_text())["config"]
    assert (config["schema"], config["id"]) == (f"{tmp_path}/plan.json", "mrn")
    found = load(tmp_path / "t.csv", label="diabetic", schema=tmp_path / "plan.json")
    assert f"become {found.x.shape[1]} features" in said


@pytest.mark.parametrize("suffix", ["csv", "xlsx"])
def test_a_plot_of_a_table_is_attacked_by_its_plan(table, tmp_path, capsys, suffix):
    path = tmp_path / f"t.{suffix}"
    if suffix == "xlsx":
        rows = [list(table.columns), *table.to_numpy().tolist()]
        path.write_bytes(workbook({"s": [[html.escape(cell) or None for cell in row] for row in rows]}))
    else:
        table.to_csv(path, index=False)
    rng = np.random.default_rng(0)
    np.savetxt(tmp_path / "plot.csv", rng.normal(size=(60, 2)), delimiter=",", header="x,y", comments="")
    (tmp_path / "plan.json").write_text('{"ward": "drop", "diabetic": "yes/no"}')
    given = [
        "attack",
        "property",
        "--coords",
        f"{tmp_path}/plot.csv",
        "--shadow",
        str(path),
        "--attribute",
        "diabetic=Y",
    ]
    more = ["--schema", f"{tmp_path}/plan.json", "--features", "standard", "--method", "pca", "--n-shadow", "20"]
    main([*given, *more])
    said = " ".join(capsys.readouterr().out.split())
    assert f"Columns of {path} are taken for: patient_id (id)" in said
    assert "ward (drop)" in said
    found = load(path, label="diabetic", schema={"ward": "drop"})
    assert f"{found.x.shape[1]} features each" in said


TRAINING = Training(model=Classifier(hidden=(6,), activation="elu", n_classes=2), epochs=30)


@pytest.fixture
def network(tmp_path):
    """A table of mixed columns, and a network trained on all its records."""
    rng = np.random.default_rng(0)
    n = 60
    frame = pd.DataFrame(
        {
            "ward": rng.choice(["A", "B", "C"], n), "age": (rng.integers(20, 80, n) / 100).astype(str),
            "crp": np.where(rng.random(n) < 0.3, "<0.05", (rng.integers(5, 99, n) / 100).astype(str)),
            "risk": rng.choice(["low", "high"], n),
        }
    )  # fmt: skip
    frame.iloc[1:].to_csv(tmp_path / "known.csv", index=False)
    frame.to_csv(tmp_path / "all.csv", index=False)
    (values,), _ = records_of(tmp_path / "all.csv", schema={"risk": "drop"})
    y = (frame["risk"] == "low").to_numpy(int)
    start = jax.tree.map(np.asarray, TRAINING.model.init(jax.random.key(1), values.x.shape[1]))
    write_params(tmp_path / "start.npz", start)
    with jax.enable_x64(True):
        x = values.x
        released = train_many(TRAINING, x[1:], y[1:], x[:1], y[:1], init=start)
    write_params(tmp_path / "released.npz", jax.tree.map(lambda leaf: leaf[0], released))
    return tmp_path, x, y


def test_the_record_of_a_network_on_a_table_is_rebuilt_in_the_features_of_the_plan(network, capsys):
    folder, x, y = network
    files = ["--known", f"{folder}/known.csv", "--weights", f"{folder}/released.npz", "--init", f"{folder}/start.npz"]
    given = ["attack", "model", *files, "--hidden", "6", "--n-classes", "2", "--epochs", "30", "--label", "risk"]
    main([*given, "--out", f"{folder}/found.npz"])
    said = " ".join(capsys.readouterr().out.split())
    with np.load(folder / "found.npz") as found:
        assert np.abs(found["x"] - x[0]).max() < 1e-3
        assert found["y"] == y[0]
    assert f"Columns of {folder}/known.csv are taken for: ward (category), age (number), crp (number)" in said
    assert "Numbers are as they stand in the file" in said
    assert "Features in their order: ward=A, ward=B, ward=C, age, crp, crp < limit" in said
    assert "Classes: 0 is 'high', 1 is 'low'" in said


def test_what_a_network_on_a_table_cannot_be_attacked_with_is_named(network, capsys):
    folder, *_ = network
    files = ["--weights", f"{folder}/released.npz", "--init", f"{folder}/start.npz", "--out", f"{folder}/o.npz"]
    given = ["attack", "model", *files, "--hidden", "6", "--n-classes", "2"]
    known = ["--known", f"{folder}/known.csv"]
    assert "label must name the column of the classes in" in failure(capsys, *given, *known)
    np.savez(folder / "known.npz", x=np.zeros((5, 6)), y=np.zeros(5, int))
    (folder / "plan.json").write_text("{}")
    plan = ["--schema", f"{folder}/plan.json"]
    assert "schema applies to tables" in failure(capsys, *given, "--known", f"{folder}/known.npz", *plan)
    text = (folder / "known.csv").read_text().splitlines()
    (folder / "gap.csv").write_text("\n".join([*text[:4], text[4].rsplit(",", 1)[0] + ",", *text[5:]]))
    said = failure(capsys, *given, "--known", f"{folder}/gap.csv", "--label", "risk")
    assert "column 'risk', the label, must be known of every record" in said
    assert "the first in line 5" in said


def test_members_of_a_principal_component_analysis_of_a_table_are_found_by_one_plan(table, tmp_path, capsys):
    names = ["weight_kg", "height_cm", "bmi", "saturation", "crp", "sex", "notes"]
    frame = table[names]
    frame.to_csv(tmp_path / "all.csv", index=False)
    frame[:40].to_csv(tmp_path / "members.csv", index=False)
    frame[40:80].to_csv(tmp_path / "others.csv", index=False)
    frame[80:].assign(more="1").to_csv(tmp_path / "public.csv", index=False)
    (values,), _ = records_of(tmp_path / "all.csv")
    x = values.x[:40]
    components = np.linalg.svd(x)[2][:3]
    np.savez(tmp_path / "r.npz", components=components, columns=list(values.names), n_records=40)
    who = ["--members", f"{tmp_path}/members.csv", "--others", f"{tmp_path}/others.csv"]
    given = ["attack", "membership", "--components", f"{tmp_path}/r.npz", *who, "--public", f"{tmp_path}/public.csv"]
    main([*given, "--attack", "reconstruction", "--out", f"{tmp_path}/s.npz"])
    said = " ".join(capsys.readouterr().out.split())
    assert "are taken for: weight_kg (number), height_cm (number)" in said
    residual = values.x[:80] - values.x[:80] @ components.T @ components
    with np.load(tmp_path / "s.npz") as found:
        assert len(found["score"]) == 80
        ranks = np.argsort(found["score"])
    assert abs(np.corrcoef(np.argsort(ranks), np.argsort(np.argsort(-(residual**2).sum(1))))[0, 1]) > 0.99


def test_candidates_of_a_table_may_say_yes_and_no(table, tmp_path, capsys):
    frame = table[["weight_kg", "height_cm", "sex"]].assign(member=["yes", "no"] * 150)
    frame.to_csv(tmp_path / "c.csv", index=False)
    (values,), _ = records_of(table[["weight_kg", "height_cm", "sex"]])
    np.savez(tmp_path / "r.npz", components=np.eye(len(values.names))[:2], columns=list(values.names), n_records=150)
    given = ["attack", "membership", "--components", f"{tmp_path}/r.npz", "--candidates", f"{tmp_path}/c.csv"]
    main([*given, "--label", "member", "--attack", "reconstruction", "--out", f"{tmp_path}/s.npz"])
    with np.load(tmp_path / "s.npz") as found:
        assert found["member"].tolist() == [1, 0] * 150
    capsys.readouterr()
    frame.assign(member="maybe").to_csv(tmp_path / "d.csv", index=False)
    given[-1] = f"{tmp_path}/d.csv"
    assert "label must be a column of 0 and 1" in failure(
        capsys, *given, "--label", "member", "--out", f"{tmp_path}/t.npz"
    )
