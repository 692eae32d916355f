"""Synthetic tables: refusals before any work, a manifest without private numbers, the claim of the mechanism."""

import csv
import hashlib
import json

import numpy as np
import pytest

from drjax.bounds.ledger import BudgetExceeded, Ledger
from drjax.cli import main
from drjax.data import schema as schemas
from drjax.release import manifest, rehearsal
from drjax.release.synthetic import SyntheticReleaseConfig, release_synthetic

N = 400
BOUNDS = {"age": [0, 100], "pay": {"lower": 0, "upper": 10, "decimals": 1}, "work": ["no", "part", "full"],
          "rich": ["no", "yes"]}  # fmt: skip


def people(n=N, seed=0):
    rng = np.random.default_rng(seed)
    age, work = rng.integers(18, 80, n), rng.choice(["no", "part", "full"], n, p=[0.1, 0.3, 0.6])
    pay = np.clip(2 + 0.05 * age + 2 * (work == "full") + rng.normal(0, 0.7, n), 0, 10).round(1)
    rich = np.where(pay + rng.normal(0, 0.5, n) > 5.5, "yes", "no")
    return [("age", "pay", "work", "rich"), *zip(age, pay, work, rich, strict=True)]


@pytest.fixture
def folder(tmp_path):
    with (tmp_path / "people.csv").open("w", newline="") as file:
        csv.writer(file).writerows(people())
    (tmp_path / "bounds.json").write_text(json.dumps(BOUNDS))
    return tmp_path


@pytest.fixture(autouse=True)
def fewer_epsilons(monkeypatch):
    """Five rehearsals where two do: only the report's curve is shorter."""
    monkeypatch.setattr(rehearsal, "FACTORS", (1.0, 4.0))


def config(folder, **fields):
    given = {"data": folder / "people.csv", "bounds": folder / "bounds.json", "target": "rich"}
    return SyntheticReleaseConfig(**{**given, "epsilon": 2.0, "trials": 2, **fields})


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_release_has_the_columns_and_bounds_of_the_records_and_the_claim_of_the_mechanism(folder):
    result = release_synthetic(config(folder), folder / "out")
    rows = read(folder / "out/synthetic.csv")
    assert len(rows) == N
    assert list(rows[0]) == ["age", "pay", "work", "rich"]
    assert {row["work"] for row in rows} <= {"no", "part", "full"}
    assert all(0 <= int(row["age"]) <= 100 and 0 <= float(row["pay"]) <= 10 for row in rows)
    found = result.manifest
    assert found["guarantee"]["holds"]
    assert (found["guarantee"]["epsilon"], found["guarantee"]["delta"]) == (2.0, 1e-6)
    curve = manifest.curve_of(found)
    assert curve is not None
    assert curve.delta_at(2.0) <= 1e-6 < curve.delta_at(1.9)
    assert {"synthetic.csv", "schema.json"} == set(found["files"])
    assert (
        found["files"]["synthetic.csv"]["sha256"]
        == hashlib.sha256((folder / "out/synthetic.csv").read_bytes()).hexdigest()
    )
    page = (folder / "out/private/report.html").read_text()
    assert "DO NOT PUBLISH THIS REPORT" in page


def test_releases_differ_and_manifest_and_schema_do_not_even_for_other_records(folder):
    texts = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        with (folder / "people.csv").open("w", newline="") as file:
            csv.writer(file).writerows(people(seed=seed))
        release_synthetic(config(folder), folder / name)
        found = json.loads((folder / name / "manifest.json").read_text())
        table = found["files"].pop("synthetic.csv")
        # The time and the state of the machine.
        found.pop("provenance")
        texts.append((json.dumps(found), (folder / name / "schema.json").read_text(), table["sha256"]))
    assert len({text[:2] for text in texts}) == 1
    assert len({text[2] for text in texts}) == 3


def test_with_a_large_budget_the_table_has_the_relations_of_the_records(folder):
    release_synthetic(config(folder, epsilon=5000.0, n_synthetic=4000), folder / "out")
    made = read(folder / "out/synthetic.csv")
    real = read(folder / "people.csv")
    for rows in (made, real):
        for row in rows:
            row["full"] = float(row["work"] == "full")

    def correlation(rows, *names):
        return np.corrcoef([[float(row[name]) for row in rows] for name in names])[0, 1]

    # A category is chosen by thresholds, and classes share one covariance: both weaken what a linear model keeps.
    for pair in (("age", "pay"), ("full", "pay")):
        assert correlation(made, *pair) > 0.5 * correlation(real, *pair) > 0.2
    assert np.mean([row["rich"] == "yes" for row in made]) == pytest.approx(
        np.mean([row["rich"] == "yes" for row in real]), abs=0.05
    )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"bounds": None}, "bounds must not depend on the private records, got none for 'age', 'pay', 'work', 'rich'"),
        ({"target": "poor"}, "target must name columns of the table"),
        ({"delta": 0.01}, "delta must be below 1 / records"),
        ({"n_components": 99}, "n_components must be <= the features = 5"),
        ({"drop": ("age", "pay", "work")}, "bounds|given must name|drop must leave"),
        ({"data": "nothing.csv"}, "there is no file"),
    ],
)
def test_what_cannot_be_released_is_refused_before_anything_is_written(folder, fields, message):
    before = sorted(folder.iterdir())
    if isinstance(fields.get("data"), str):
        fields = {"data": folder / fields["data"]}
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        release_synthetic(config(folder, **fields), folder / "out")
    assert sorted(folder.iterdir()) == before


def test_bounds_of_the_records_go_with_a_warning_in_the_first_line(folder):
    result = release_synthetic(config(folder, bounds=None, bounds_from_private_data=True), folder / "out")
    first = (folder / "out/manifest.json").read_text().splitlines()[0]
    assert "THE GUARANTEE DOES NOT HOLD" in first
    assert manifest.curve_of(result.manifest) is None
    assert all(entry["from_records"] for entry in json.loads((folder / "out/schema.json").read_text()).values())


def test_a_spent_ledger_refuses_and_a_fresh_one_is_charged(folder):
    digest = hashlib.sha256((folder / "people.csv").read_bytes()).hexdigest()
    fields = {"dataset": "people", "sha256": digest, "neighbouring": "replace_one", "accountant": "zcdp"}
    path = folder / "ledger.json"
    Ledger.create(path, epsilon=2.5, delta=1e-6, **fields)
    release_synthetic(config(folder, ledger=path), folder / "one")
    with pytest.raises(BudgetExceeded):
        release_synthetic(config(folder, ledger=path), folder / "two")
    assert not (folder / "two").exists()


def test_public_records_give_bounds_and_components(folder):
    with (folder / "public.csv").open("w", newline="") as file:
        csv.writer(file).writerows(people(200, seed=9))
    result = release_synthetic(
        config(folder, bounds=None, public=folder / "public.csv", n_components=3), folder / "out"
    )
    assert result.schema.from_records == ()
    assert "public records" in result.manifest["bounds"]["components"]
    assert result.manifest["method"]["budget"] == {"moments": 1.0}


@pytest.mark.parametrize(("target", "method"), [("pay", "pca-gauss"), (None, "pca-gauss"), ("rich", "ron-gauss")])
def test_other_tasks_and_methods(folder, target, method):
    given = json.loads((folder / "bounds.json").read_text())
    release_synthetic(config(folder, target=target, method=method), folder / "out")
    columns = schemas.read_table(folder / "out/synthetic.csv")
    again = schemas.infer(columns, target=target, given=given)
    x, _ = again.encode(columns)
    lower, upper = again.bounds
    assert ((x >= lower) & (x <= upper)).all()


def test_the_command_releases_and_says_what_may_be_published(folder, capsys):
    main(["release", "schema", str(folder / "people.csv"), "--out", str(folder / "s.json"), "--target", "rich"])
    assert "4 entries were read off the records" in capsys.readouterr().out
    with pytest.raises(SystemExit) as stopped:
        main(["release", "synthetic", str(folder / "people.csv"), "--target", "rich", "--epsilon", "1", "--bounds",
              str(folder / "s.json"), "--out", str(folder / "out")])  # fmt: skip
    assert stopped.value.code == 2
    assert "bounds must not depend on the private records" in capsys.readouterr().err
    text = (folder / "s.json").read_text().replace('"from_records": true, ', "")
    (folder / "s.json").write_text(text)
    main(["release", "synthetic", str(folder / "people.csv"), "--target", "rich", "--epsilon", "1", "--bounds",
          str(folder / "s.json"), "--out", str(folder / "out"), "--trials", "2"])  # fmt: skip
    said = capsys.readouterr().out
    assert "Guarantee: epsilon 1 at delta 1e-06; replace_one" in said
    assert f"Publish: {folder}/out/synthetic.csv, {folder}/out/schema.json, {folder}/out/manifest.json" in said
