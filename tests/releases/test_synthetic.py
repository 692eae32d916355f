"""Synthetic tables: refusals before any work, a manifest without private numbers, the claim of the mechanism."""

import csv
import getpass
import hashlib
import json
import os
import platform
import shutil
import signal
import stat
import subprocess
import sys

import numpy as np
import pytest

from drjax.bounds.ledger import BudgetExceeded, Ledger
from drjax.cli import main
from drjax.data import schema_sources
from drjax.data.table_files import read_table
from drjax.releases import manifest, rehearsal
from drjax.releases.folder import check_new_folder
from drjax.releases.synthetic import SyntheticReleaseConfig, release_synthetic
from drjax.reports import records

N = 400
BOUNDS = {
    "age": {"lower": 0, "upper": 100, "kind": "integer"},
    "pay": {"lower": 0, "upper": 10, "decimals": 1},
    "work": ["no", "part", "full"],
    "rich": ["no", "yes"],
}


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
    return SyntheticReleaseConfig(**{**given, "epsilon": 2.0, "trials": 0, **fields})


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_release_has_the_columns_and_bounds_of_the_records_and_the_claim_of_the_mechanism(folder):
    result = release_synthetic(config(folder, trials=2), folder / "out")
    rows = read(folder / "out/synthetic.csv")
    assert len(rows) == N
    assert result.rehearsed is not None
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
    assert sorted(path.name for path in (folder / "out").iterdir()) == ["manifest.json", "schema.json", "synthetic.csv"]
    assert "DO NOT PUBLISH THIS REPORT" in (result.private_folder / "report.html").read_text()


def test_releases_differ_and_manifest_and_schema_do_not_even_for_other_records(folder):
    texts = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        with (folder / "people.csv").open("w", newline="") as file:
            csv.writer(file).writerows(people(seed=seed))
        release_synthetic(config(folder), folder / name)
        found = json.loads((folder / name / "manifest.json").read_text())
        table = found["files"].pop("synthetic.csv")
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
        ({"trials": 1}, "trials, unless 0, must be an integer >= 2"),
        ({"neighbouring": "add_or_remove", "n_synthetic": 20, "delta": 0.06}, "delta must be below 1 / records = 0.05"),
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


def test_ranges_of_the_records_go_with_a_warning_in_the_first_line_and_categories_are_never_theirs(folder):
    options = {"bounds_from_private_data": True, "trials": 0}
    with pytest.raises(ValueError, match="categories must be stated or public, got none for 'work', 'rich'"):
        release_synthetic(config(folder, bounds=None, **options), folder / "out")
    (folder / "texts.json").write_text(json.dumps({name: BOUNDS[name] for name in ("work", "rich")}))
    result = release_synthetic(config(folder, bounds=folder / "texts.json", **options), folder / "out")
    first = (folder / "out/manifest.json").read_text().splitlines()[0]
    assert "THE GUARANTEE DOES NOT HOLD" in first
    assert manifest.curve_of(result.manifest) is None
    schema = json.loads((folder / "out/schema.json").read_text())
    assert [name for name, entry in schema.items() if entry.get("from_records")] == ["age", "pay"]
    # It is no bounds file for another release.
    with pytest.raises(ValueError, match="must not be those of the records"):
        release_synthetic(config(folder, bounds=folder / "out/schema.json"), folder / "other")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"age": [0, 120], "age": [0, 37]}', "key 'age' comes twice"),
        ('{"age": [0, 120], "work": []}', "categories, at least one"),
        ('{"age": {"stated": null, "seen": {"least": 18, "largest": 79}}}', "got none for 'age'"),
    ],
)
def test_bounds_that_say_nothing_or_two_things_are_refused(folder, text, message):
    (folder / "bounds.json").write_text(text)
    with pytest.raises(ValueError, match=message):
        release_synthetic(config(folder), folder / "out")
    assert not (folder / "out").exists()


def test_the_manifest_names_no_machine_user_or_path(folder):
    with (folder / "public.csv").open("w", newline="") as file:
        csv.writer(file).writerows(people(200, seed=9))
    options = {"public": folder / "public.csv", "n_components": 3, "trials": 0}
    release_synthetic(config(folder, **options), folder / "out", command="drjax release synthetic people.csv")
    text = (folder / "out/manifest.json").read_text()
    machine = records.provenance()
    words = (str(folder), "people.csv", "public.csv", "bounds.json", machine["cpu"], machine["platform"])
    # A short name may be part of a word.
    for word in (*words, *filter(lambda name: len(name) > 3, (platform.node(), getpass.getuser(), platform.release()))):
        assert word not in text
    assert machine["utc"][:10] in text
    assert machine["utc"][11:13] + ":" not in text


def test_private_files_lie_beside_the_release_and_are_the_owners_alone(folder):
    result = release_synthetic(config(folder, trials=0), folder / "out")
    assert result.private_folder == folder / "out.private"
    assert stat.S_IMODE(result.private_folder.stat().st_mode) == 0o700
    assert [path.name for path in result.private_folder.iterdir()] == ["report.html"]
    assert stat.S_IMODE((result.private_folder / "report.html").stat().st_mode) == 0o600
    shutil.rmtree(folder / "out")
    with pytest.raises(ValueError, match=r"out\.private exists"):
        release_synthetic(config(folder, trials=0), folder / "out")


KILLED = """
import os, signal, sys
from pathlib import Path
from drjax.releases import folder

def killed(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

if sys.argv[2] == "rename":
    folder.Path.rename = killed
else:
    os.link = killed
with folder.new_folder(Path(sys.argv[1]), {"report.html": "a secret"}) as temporary:
    (temporary / "synthetic.csv").write_text("noised")
"""


NAMELESS = pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="the system has no files without a name")


@pytest.mark.parametrize("when", ["rename", pytest.param("link", marks=NAMELESS)])
def test_a_release_that_is_killed_leaves_no_private_report_and_the_next_one_cleans_up(tmp_path, when):
    out = tmp_path / "out"
    done = subprocess.run([sys.executable, "-c", KILLED, str(out), when], timeout=60)
    assert done.returncode == -signal.SIGKILL
    held = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert held == [b"noised"]
    assert out.exists() == (when == "link")
    if when == "rename":
        check_new_folder(out)
        assert not list(tmp_path.iterdir())


def test_a_rehearsal_that_fails_decides_nothing(folder, monkeypatch):
    def broken(*_, **__):
        raise ValueError("a class has one record")

    monkeypatch.setattr(rehearsal, "rehearse", broken)
    result = release_synthetic(config(folder, trials=2), folder / "out")
    assert result.rehearsed is None
    assert result.not_rehearsed == "ValueError: a class has one record"
    assert "a class has one record" in (result.private_folder / "report.html").read_text()
    assert len(read(folder / "out/synthetic.csv")) == N


def test_a_report_that_fails_decides_nothing(folder, monkeypatch):
    def broken(*_, **__):
        raise ValueError("no such font")

    monkeypatch.setattr("drjax.releases.synthetic.synthetic_report.report", broken)
    result = release_synthetic(config(folder, trials=0), folder / "out")
    text = (result.private_folder / "report.html").read_text()
    assert "DO NOT PUBLISH THIS REPORT" in text
    assert "no such font" in text


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
    assert str(result.schema.columns[0]).startswith("age: integer in [18, 79]")
    assert "public records" in result.manifest["bounds"]["components"]
    assert result.manifest["method"]["budget"] == {"moments": 1.0}


@pytest.mark.parametrize(("target", "method"), [("pay", "pca-gauss"), (None, "pca-gauss"), ("rich", "ron-gauss")])
def test_other_tasks_and_methods(folder, target, method):
    given = json.loads((folder / "bounds.json").read_text())
    release_synthetic(config(folder, target=target, method=method), folder / "out")
    columns = read_table(folder / "out/synthetic.csv")
    again, _ = schema_sources.stated(list(columns), given, target=target)
    assert again.outside(columns) == {}


def test_the_command_releases_and_says_what_may_be_published(folder, capsys):
    main(["release", "schema", str(folder / "people.csv"), "--out", str(folder / "s.json"), "--target", "rich"])
    assert "To fill in: age, pay, work, rich." in capsys.readouterr().out
    assert stat.S_IMODE((folder / "s.json").stat().st_mode) == 0o600
    with pytest.raises(SystemExit) as stopped:
        main(["release", "synthetic", str(folder / "people.csv"), "--target", "rich", "--epsilon", "1", "--bounds",
              str(folder / "s.json"), "--out", str(folder / "out")])  # fmt: skip
    assert stopped.value.code == 2
    assert "bounds must not depend on the private records" in capsys.readouterr().err
    form = json.loads((folder / "s.json").read_text())
    for name, entry in form.items():
        entry["stated"] = BOUNDS[name]
    (folder / "s.json").write_text(json.dumps(form))
    main(["release", "synthetic", str(folder / "people.csv"), "--target", "rich", "--epsilon", "1", "--bounds",
          str(folder / "s.json"), "--out", str(folder / "out"), "--trials", "2"])  # fmt: skip
    said = capsys.readouterr().out
    assert "Guarantee: epsilon 1 at delta 1e-06; replace_one" in said
    assert f"Publish: {folder}/out/synthetic.csv, {folder}/out/schema.json, {folder}/out/manifest.json" in said
    assert f"Keep:    {folder}/out.private/report.html" in said
