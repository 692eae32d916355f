"""Audits with more shadow releases than are kept: sums over the others, the same whoever made them."""

import dataclasses
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from drjax.attacks import passing
from drjax.attacks.reconstruction import baselines, invariant, neural
from drjax.audits import AuditConfig, further, needs, run
from drjax.dr import PCA
from drjax.reports import records
from drjax.sweeps import SweepConfig
from drjax.sweeps import run as run_sweep
from tests.audits.test_pieces import Apart, assert_same_files

CONFIG = AuditConfig(
    method="pca",
    n_known=20,
    n_shadow=500,
    n_held=150,
    n_validation=40,
    n_targets=60,
    decimals=3,
    attacks=("ridge", "invariant"),
)


@pytest.fixture(scope="module", autouse=True)
def short_ranges():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passing, "RANGE", 140)
        patch.setattr(invariant, "N_LANDMARKS", 150)
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return run(CONFIG, tmp_path_factory.mktemp("further") / "out")


def errors(result):
    return {row.label: row.scores.mse.estimate for row in result.rows}


def test_regressions_learn_from_all_shadows_of_which_few_are_kept(made, tmp_path):
    chunks = [np.load(file)["coords"] for file in (made.folder / "shadows").glob("0*.npz")]
    assert sum(map(len, chunks)) == 150 + 40
    assert all(np.array_equal(coords, np.round(coords, 3)) for coords in chunks)
    assert not (made.folder / further.SUMS).exists()
    few = run(dataclasses.replace(CONFIG, n_held=None, n_shadow=150), tmp_path / "few")
    for name, label, less in (("ridge", "Ridge regression", 0.9), ("invariant", "Kernel on invariant features", 0.8)):
        # Of 350 more the regressions err less.
        assert errors(made)[label] < less * errors(few)[label]
        assert records.find_record(made.folder / "records.jsonl", "stage", f"0000-{name}")["n_shadows"] == 500


def test_workers_add_up_ranges_and_a_resumed_run_finds_them(made, tmp_path, monkeypatch):
    pool, ranges = Apart(), []
    made_by, sums = passing._sums, passing.PassingShadows.sums
    monkeypatch.setattr(passing, "_sums", lambda *told: ranges.append(told[2]) or made_by(*told))

    def killed(self, inputs, name="sums", **options):
        if name == "invariant":
            raise KeyboardInterrupt
        return sums(self, inputs, name, **options)

    monkeypatch.setattr(passing.PassingShadows, "sums", killed)
    with pytest.raises(KeyboardInterrupt):
        run(CONFIG, tmp_path / "out", executor=pool)
    assert {(piece.name, piece.parts) for piece in pool.tasks if piece.is_attack} == {
        (name, range(i, i + 1)) for name in ("ridge", "invariant") for i in range(3)
    }
    assert sorted(ranges) == sorted(2 * [150, 290, 430])
    monkeypatch.setattr(passing.PassingShadows, "sums", sums)
    assert_same_files(run(CONFIG, tmp_path / "out", resume=True).folder, made.folder)
    assert len(ranges) == 6


def test_workers_take_what_the_first_made_of_the_known_records(tmp_path, monkeypatch):
    calls, prepare = [], PCA.prepare
    monkeypatch.setattr(PCA, "prepare", lambda self, x, **k: calls.append(x.shape) or prepare(self, x, **k))
    run(dataclasses.replace(CONFIG, attacks=("ridge",)), tmp_path / "out", executor=Apart())
    assert calls == [(20, 64)]


def test_networks_train_on_further_shadows(tmp_path, monkeypatch):
    epochs, epoch = [], passing.PassingShadows.epoch

    def counted(self, number, size):
        made = epoch(self, number, size)
        epochs.append((number, made[0].shape, made[1].shape))
        return made

    monkeypatch.setattr(passing.PassingShadows, "epoch", counted)
    monkeypatch.setitem(neural.RECIPES, "bch22-fast", dataclasses.replace(neural.RECIPES["bch22-fast"], epochs=3))
    config = dataclasses.replace(CONFIG, n_shadow=300, attacks=("dense-network",))
    run(config, tmp_path / "out")
    assert epochs == [(number, (150, 21, 2), (150, 64)) for number in (1, 2)]


def test_too_many_coordinates_are_not_added_up(made, tmp_path, monkeypatch):
    monkeypatch.setattr(baselines, "MOST_INPUTS", 41)
    few = dataclasses.replace(CONFIG, attacks=("ridge",))
    found = run(few, tmp_path / "out")
    assert errors(found)["Ridge regression"] > 1.02 * errors(made)["Ridge regression"]


def test_as_many_are_kept_as_a_gibibyte_holds():
    config = AuditConfig(method="mds", n_known=9_999, n_shadow=50_000)
    assert further.n_held(config, 10_000, 784) == 2**30 // 80_000
    assert further.n_held(dataclasses.replace(config, n_shadow=3000), 10_000, 784) == 3000
    assert further.n_held(dataclasses.replace(config, seed_known=True), 10_000, 784) == 50_000
    # Of PCA with so many records factors are kept.
    assert further.n_held(dataclasses.replace(config, method="pca"), 10_000, 784) == 50_000


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_held": 1}, "n_held must be an integer >= 2"),
        ({"n_held": 501}, "n_held must be <= n_shadow"),
        ({"seed_known": True}, "n_held must be left out with"),
        ({"each_record": True}, "must be left out with each_record"),
    ],
)
def test_bad_input_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(CONFIG, **changes)


def test_a_cell_of_a_sweep_is_such_an_audit(made, tmp_path):
    with ThreadPoolExecutor(1) as pool:
        cells = run_sweep(SweepConfig(base=CONFIG, over={"n_held": (150,)}), tmp_path / "sweep", executor=pool)
    assert {line["label"]: line["mse"] for line in cells.lines} == pytest.approx(errors(made), rel=1e-3)


def test_what_is_not_kept_takes_time_and_no_memory():
    config = dataclasses.replace(CONFIG, n_known=999, n_shadow=100_000, n_held=2_000)
    few, every = (needs.of_audit(one, 999, 64) for one in (config, dataclasses.replace(config, n_held=100_000)))
    assert few.bytes < every.bytes - 0.9 * 98_000 * 1000 * 2 * 4
    assert few.seconds == every.seconds
