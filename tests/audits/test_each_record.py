import csv
import dataclasses
import html
import re
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from drjax.attacks import exposure
from drjax.attacks.attack import Cost, EmbeddingAttack
from drjax.attacks.reconstruction.closed_form import reconstruct_pca
from drjax.attacks.reconstruction.stationarity.attacks import Stationarity
from drjax.attacks.registry import ATTACKS
from drjax.audits import AuditConfig, exposure_report, needs, run
from drjax.core import streamed
from drjax.core.types import Status
from drjax.data import files, load
from drjax.dr import PCA, Isomap
from drjax.reports import records
from drjax.reports.ladder import percent


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "images.npy"
    np.save(path, (load_digits().images[:60] / 16).astype(np.float32))
    return str(path)


@pytest.fixture(scope="module")
def patients(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "patients.csv"
    rng = np.random.default_rng(0)
    age = rng.integers(20, 90, 50)
    lines = [f"{a},{100 + a // 2 + rng.integers(-9, 9)},{rng.choice(['f', 'm'])}" for a in age]
    path.write_text("\n".join(["age,pressure,sex", *lines]) + "\n")
    return str(path)


def config(data, **options):
    return AuditConfig(data=data, each_record=True, **options)


def table(result):
    return list(csv.DictReader(result.table.read_text().splitlines()))


def test_ranks_every_record_and_shows_the_worst(images, tmp_path):
    result = run(config(images), tmp_path / "o")
    lines = table(result)
    assert [int(line["rank"]) for line in lines] == list(range(1, 61))
    assert all((float(line["error"]) < 0.5 * float(line["mean_error"])) >= (line["rebuilt"] == "yes") for line in lines)
    assert sorted(int(line["row"]) for line in lines) == list(range(60))
    ratios = [float(line["ratio"]) for line in lines]
    assert ratios == sorted(ratios)
    page = result.report.read_text("utf-8")
    assert "The most exposed records" in page
    # Every record is a point of the map, the most exposed ones are marked with their place.
    points = re.findall(r'(data-rank="\d+")?><title>row (\d+): (\S+) of the error of guessing', page)
    assert sorted(int(row) for _, row, _ in points) == list(range(60))
    marked = {int(mark[11:-1]): row for mark, row, _ in points if mark}
    assert [marked[place] for place in range(1, 21)] == [line["row"] for line in lines[:20]]
    found = result.exposure
    shares = dict(zip(map(str, found.row), found.error / found.mean_error, strict=True))
    assert all(html.unescape(share) == percent(shares[row]) for _, row, share in points if shares[row] <= 1)
    ranking = page[page.index('">The most exposed records</h2>') :]
    assert re.findall(r'<th scope="col">(\w+)</th>', ranking)[:2] == ["Row", "Rank"]
    assert "the other 59" in page
    assert result.verdict.level == "high"
    assert {f.name for f in (tmp_path / "o/figures").iterdir()} == {"worst.png", "exposure.svg"}
    kinds = [record["kind"] for record in records.read_records(tmp_path / "o/records.jsonl")]
    assert kinds.count("attack") == 4
    # The table is of the closed form, and that is the attack on each record alone.
    x, release = np.load(images).reshape(60, -1), records.load_arrays(tmp_path / "o/release.npz")["coords"]
    one = reconstruct_pca(np.delete(x, 9, axis=0), release, target_index=9, bounds=(0, 1))
    line = next(line for line in lines if line["row"] == "9")
    assert float(line["error"]) == pytest.approx(((one.x - x[9]) ** 2).mean(), rel=0.01)  # another prior


def test_features_of_a_table_are_listed_in_their_own_units(patients, tmp_path):
    result = run(config(patients, categorical=("sex",)), tmp_path / "o")
    page = result.report.read_text("utf-8")
    assert "What was taken back of them" in page
    assert ">sex<" in page
    assert "What an attacker learns, column by column" in page
    worst = int(table(result)[0]["row"])
    age = Path(patients).read_text().splitlines()[worst + 1].split(",")[0]
    assert f"<td>{age}</td>" in page


@pytest.mark.parametrize(("method", "attacks"), [("srp", {"map", "srp-closed-form"}), ("mds", {"map", "stationarity"})])
def test_other_methods_have_their_attacks_and_some_records_are_enough(images, tmp_path, method, attacks):
    result = run(config(images, method=method, max_records=12), tmp_path / "o")
    assert result.reconstructions.keys() == {"mean", "nearest"} | attacks
    assert len(table(result)) == 12
    page = result.report.read_text("utf-8")
    assert "12 of the 60 records were attacked" in page
    assert "not attacked: 48<" in page


@pytest.mark.figures
@pytest.mark.parametrize(("rows", "words"), [(30, "not measured"), (20, "not attacked or not measured")])
def test_a_record_on_which_the_attack_failed_is_not_called_unattacked(tmp_path, rows, words):
    data = load(np.random.default_rng(0).normal(size=(30, 4)))
    status = np.zeros(rows, np.uint32)
    status[7] = Status.NON_FINITE
    guess = np.where(status[:, None] > 0, np.nan, 0.9 * data.x[:rows])
    measured = {"mine": exposure.measure(guess, data.x, np.arange(rows), status)}
    options = {"labels": {"mine": "Mine"}, "strongest": "mine"}
    plot, *_ = exposure_report.contents(tmp_path, data, measured, {"mine": guess}, coords=data.x[:, :2], **options)[1]
    assert plot.unknown == words
    assert np.flatnonzero(np.isnan(plot.shares)).tolist() == [7, *range(rows, 30)]
    assert 7 not in plot.marked
    assert len(plot.marked) == min(20, rows - 1)
    flat = exposure_report.contents(tmp_path, data, measured, {"mine": guess}, coords=data.x[:, :3], **options)[1]
    assert [figure.title for figure in flat] == ["Exposure of every record"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mine(EmbeddingAttack):
    name: str = "mine"
    label: str = "Mine"
    description: str = "Mine."
    calls: list

    def suits(self, method, *, seed_known):
        del seed_known
        return None if method.name == "pca" else "is of PCA"

    def cost(self, threat):
        del threat
        return Cost(0.0, 0.0)

    def run(self, key, threat):
        del key
        assert threat.known.shape == (59, 64)
        self.calls.append(threat)
        if len(self.calls) == 15:
            raise KeyboardInterrupt
        return reconstruct_pca(threat.known, threat.coords, bounds=threat.bounds)


def test_an_attack_on_one_record_at_a_time_can_be_registered_and_resumed(images, tmp_path, monkeypatch):
    calls = []
    monkeypatch.setitem(ATTACKS["embedding"], "mine", Mine(calls=calls))
    chosen = config(images, attacks=("mine",), max_records=25)
    with pytest.raises(KeyboardInterrupt):
        run(chosen, tmp_path / "o")
    result = run(chosen, tmp_path / "o", resume=True)
    assert len(calls) == 15 + 15  # the first ten are read back
    whole = run(config(images, attacks=("closed-form",), max_records=25), tmp_path / "p")
    np.testing.assert_allclose(result.reconstructions["mine"], whole.reconstructions["closed-form"], atol=0.02)


class Slow(Mine):
    each = True

    def cost(self, threat):
        del threat
        return Cost(100.0, 0.0)


def test_an_attack_that_would_take_too_long_on_a_few_records_runs_where_it_is_asked_for_alone(
    images, tmp_path, monkeypatch
):
    monkeypatch.setitem(ATTACKS["embedding"], "mine", Slow(calls=[]))
    usual = run(config(images), tmp_path / "o")
    assert "mine" not in usual.reconstructions
    words = "Not run, because it would take about 33 min for 20 records: “Mine”. --attacks mine runs it"
    assert words in html.unescape(usual.report.read_text("utf-8"))
    asked = run(config(images, attacks=("mine",), max_records=2), tmp_path / "p")
    assert "mine" in asked.reconstructions
    assert "Not run, because" not in asked.report.read_text("utf-8")


def test_an_mds_map_gives_records_away_by_its_last_steps(images, tmp_path):
    result = run(config(images, method="mds", max_records=4), tmp_path / "o")
    truth = np.load(images)[result.exposure.row].reshape(4, -1)
    errors = {name: ((x - truth) ** 2).mean() for name, x in result.reconstructions.items()}
    # The prior is of 59 known records, the map of scikit-learn's stopping rule.
    assert errors["stationarity"] < 0.5 * errors["map"]


def test_bad_configurations_are_errors_before_anything_is_written(images, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="got none: Ridge regression needs public records"):
        run(config(images, attacks=("ridge",)), tmp_path / "o")
    with pytest.raises(ValueError, match=r"attacks must be among all, map, .* with each_record"):
        run(config(images, attacks=("geodesics",)), tmp_path / "o")
    with pytest.raises(ValueError, match="n_components"):
        run(config(images, n_components=61), tmp_path / "o")
    with pytest.raises(ValueError, match="max_records"):
        AuditConfig(max_records=3)
    monkeypatch.setattr(Stationarity, "most_each", 10)
    with pytest.raises(ValueError, match="takes at most 10 records"):
        run(config(images, method="mds", attacks=("stationarity",)), tmp_path / "o")
    np.save(tmp_path / "few.npy", np.eye(3))
    with pytest.raises(ValueError, match="at least 4 records"):
        run(config(str(tmp_path / "few.npy")), tmp_path / "o")
    assert not (tmp_path / "o").exists()


def test_records_of_a_large_file_are_audited_as_those_of_a_small_one(images, tmp_path, monkeypatch):
    settings = {"attacks": ("closed-form",), "max_records": 25, "dtype": "float64"}
    small = run(config(images, **settings), tmp_path / "small")
    monkeypatch.setattr(streamed, "is_large", lambda *_: True)
    monkeypatch.setattr(streamed, "BLOCK_ENTRIES", 7 * 64)
    monkeypatch.setattr(files, "MAPPED_BYTES", 100)
    large = run(config(images, **settings), tmp_path / "large")
    np.testing.assert_allclose(large.reconstructions["closed-form"], small.reconstructions["closed-form"], atol=1e-6)
    np.testing.assert_array_equal(large.exposure.row, small.exposure.row)
    np.testing.assert_array_equal(large.exposure.is_identified, small.exposure.is_identified)
    np.testing.assert_allclose(large.exposure.nearest_error, small.exposure.nearest_error, rtol=1e-12)


def test_a_million_records_are_said_to_take_no_copy_of_them():
    attack = ATTACKS["embedding"]["closed-form"]
    found = needs.of_each(PCA(), 1_000_000, 784, [attack])
    assert found.bytes < 1e9 < 4.0 * 1e6 * 784
    # Where the method has no factors the records are copied, and where an attack takes one record after the other.
    assert needs.of_each(Isomap(), 100_000, 784, [attack]).bytes > 8.0 * 1e5 * 784
    slow = ATTACKS["embedding"]["nearest"]
    assert not slow.shares_each
    assert needs.of_each(PCA(), 1_000_000, 784, [slow]).bytes > 8.0 * 1e6 * 784
