"""The benchmark harness on toy functions: what a row holds, what memory it sees, what a broken append leaves."""

import json
import sys
import time
import types
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sklearn.decomposition
import sklearn.manifold
import sklearn.random_projection
import umap
from sklearn.datasets import load_digits

from bench import harness, peers, shadow_embeddings, work
from bench.shadow_embeddings import Cell
from drjax.dr import METHODS
from drjax.reports import records

FIELDS = {
    *(
        "row_version",
        "name",
        "first_s",
        "compile_s",
        "programs_compiled",
        "programs_found",
        "run_s",
        "run_iqr_s",
        "run_min_s",
        "repeats",
        "gflop_per_s",
    ),
    *("gbyte_per_s", "output_bytes", "extra_rss_bytes", "device_peak_bytes"),
    *("drjax", "commit", "dirty", "python", "versions", "platform", "cpu", "cores", "backend", "device_kind"),
    *("device_count", "x64", "utc"),
}


def test_a_row_has_every_field_and_its_labels():
    row = harness.measure("double", lambda x: 2 * x, jnp.ones(3), repeats=4, flops=3.0, n_bytes=12.0, n=3)
    assert set(row) == FIELDS | {"n"}
    assert (row["name"], row["n"], row["repeats"], row["output_bytes"]) == ("double", 3, 4, 12)
    assert row["versions"]["jax"] == jax.__version__
    assert row["gflop_per_s"] == pytest.approx(3e-9 / row["run_s"])
    assert row["gbyte_per_s"] == pytest.approx(12e-9 / row["run_s"])


def test_the_first_call_is_reported_apart_from_the_repeats(monkeypatch):
    seconds = iter([7.0, 1.0, 2.0, 4.0])
    clock = iter(np.cumsum([step for s in seconds for step in (0.0, s)]))
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    row = harness.measure("steps", lambda: None, repeats=3, budget_s=100.0)
    assert (row["first_s"], row["run_s"], row["run_min_s"], row["compile_s"]) == (7.0, 2.0, 1.0, 5.0)
    assert row["run_iqr_s"] == 1.5  # quartiles of 1, 2, 4 are 1.5 and 3


def test_repeating_stops_at_the_budget_but_not_before_one_repeat(monkeypatch):
    clock = iter(range(0, 1000, 10))
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(clock)))
    assert harness.measure("slow", lambda: None, repeats=50, budget_s=15.0)["repeats"] == 2
    assert harness.measure("slow", lambda: None, repeats=50, budget_s=1.0)["repeats"] == 1


def test_memory_that_a_call_takes_and_gives_back_is_seen():
    size = 64 * 2**20

    def spike():
        np.ones(size, np.uint8)

    row = harness.measure("spike", spike, repeats=1)
    if row["extra_rss_bytes"] is None:
        pytest.skip("this system does not report the resident memory's high-water mark")
    assert 0.9 * size < row["extra_rss_bytes"] < 2 * size
    assert harness.measure("nothing", lambda: None, repeats=1)["extra_rss_bytes"] < 0.5 * size


def test_a_label_may_not_overwrite_a_field():
    with pytest.raises(ValueError, match="labels must not use the names of other fields, got run_s"):
        harness.measure("x", lambda: None, run_s=1.0)


@pytest.mark.parametrize(("change", "message"), [({"repeats": 0}, "repeats must be"), ({"budget_s": 0.0}, "budget_s")])
def test_bad_settings_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        harness.measure("x", lambda: None, **change)


def test_a_failing_append_leaves_the_file_as_it_was(tmp_path):
    path = tmp_path / "results" / "rows.jsonl"
    harness.append_row(path, harness.measure("one", lambda: jnp.ones(2), repeats=1))
    before = path.read_bytes()
    with pytest.raises(ValueError, match="a record must"):
        harness.append_row(path, {"name": "two", "bad": object()})
    assert path.read_bytes() == before
    harness.append_row(path, harness.measure("three", lambda: jnp.ones(2), repeats=1))
    assert [json.loads(line)["name"] for line in path.read_text().splitlines()] == ["one", "three"]
    assert [row["name"] for row in records.read_records(path)] == ["one", "three"]


def test_a_row_comes_after_those_of_the_committed_history_and_of_other_processes(tmp_path):
    path = tmp_path / "rows.jsonl"
    history = sorted(harness.RESULTS.glob("*.jsonl"))[0].read_bytes()
    path.write_bytes(history)
    harness.append_row(path, {"name": "first"})
    # Another process has put its row, and has not come to write the file.
    records.put_record(path, "run", "0" * 20 + "-x", name="other")
    harness.append_row(path, {"name": "first"})
    content = path.read_bytes()
    assert content.startswith(history)
    assert [json.loads(line)["name"] for line in content[len(history) :].splitlines()] == ["other", "first", "first"]


def test_peaks_name_their_library_and_leave_x64_alone():
    before = jax.config.jax_enable_x64
    rows = harness.machine_peaks(gemm_size=64, copy_entries=2**12, repeats=2)
    assert jax.config.jax_enable_x64 == before
    for dtype in ("float32", "float64"):
        found = [row["gflop_per_s"] for row in rows if row["name"] == "peak/gemm" and row["dtype"] == dtype]
        assert harness.best_peak(rows, "peak/gemm", dtype) == max(found) > 0
    assert harness.best_peak(rows, "peak/triad", "float32") > 0
    assert all(row["x64"] == (row["dtype"] == "float64") for row in rows if row["name"] == "peak/gemm")


def test_the_fastest_call_sets_the_peak(monkeypatch):
    seconds = iter([9.0, 4.0, 2.0, 3.0])
    monkeypatch.setattr(harness, "_timed", lambda *_: (next(seconds), 0))
    row = harness._gemm_peak("numpy", "float32", 100, 3)
    assert row["gflop_per_s"] == pytest.approx(2 * 100**3 / 2.0 / 1e9)


def test_peer_workers_are_limited_to_one_thread_each(monkeypatch):
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "7")
    environments = []
    monkeypatch.setattr(peers.subprocess, "Popen", lambda *_, env, **__: environments.append(env))
    peers.PeerPool(3)
    assert [[env[name] for name in peers.THREAD_VARIABLES] for env in environments] == [["1"] * 5] * 3


def test_peer_workers_report_what_they_did():
    rng = np.random.default_rng(0)
    with peers.PeerPool(2) as pool:
        pool.load(rng.uniform(size=(9, 5)), rng.uniform(size=(4, 5)))
        result = pool.fit("pca_full", budget_s=0.02)
        assert result["workers"] == 2
        assert result["fits"] >= 2
        assert result["wall_s"] >= 0.02
        assert result["ms_per_shadow"] == pytest.approx(1e3 * result["wall_s"] / result["fits"])
        assert pool.fit("srp_rows", budget_s=0.01)["fits"] % peers.ROWS_BLOCK == 0


def test_a_dead_peer_is_an_error_and_not_a_number(capfd):
    with peers.PeerPool(1) as pool:
        pool.load(np.zeros((3, 2)), np.zeros((2, 2)))
        with pytest.raises(RuntimeError, match="a peer worker ended with code 1"):
            pool.fit("kernel_pca", budget_s=0.01)
    assert "method must be a peer's name, got 'kernel_pca'" in capfd.readouterr().err


PEER_CLASSES = {
    "pca_default": (sklearn.decomposition.PCA, "fit_transform"),
    "pca_full": (sklearn.decomposition.PCA, "fit_transform"),
    "srp_fit_transform": (sklearn.random_projection.SparseRandomProjection, "fit_transform"),
    "srp_transform": (sklearn.random_projection.SparseRandomProjection, "transform"),
    "classical_mds": (sklearn.manifold.ClassicalMDS, "fit_transform"),
    "mds": (sklearn.manifold.MDS, "fit_transform"),
    "isomap": (sklearn.manifold.Isomap, "fit_transform"),
    "tsne": (sklearn.manifold.TSNE, "fit_transform"),
    "umap": (umap.UMAP, "fit"),
}


@pytest.mark.parametrize("method", PEER_CLASSES)
def test_every_peer_fits_the_target_beside_the_known_records(monkeypatch, method):
    rng = np.random.default_rng(1)
    known, targets = rng.uniform(size=(19, 6)), rng.uniform(size=(3, 6))
    seen = []
    peer, name = PEER_CLASSES[method]
    fit = getattr(peer, name)

    def spy(self, x, *args):
        seen.append(x.copy())
        return fit(self, x, *args)

    monkeypatch.setattr(peer, name, spy)
    step = peers._shadows(method, known, targets)
    queue = iter(targets)
    assert [step(queue)[0], step(queue)[0]] == [1, 1]
    for i in range(2):
        np.testing.assert_array_equal(seen[i], np.concatenate([targets[i : i + 1], known]))


class Peer:
    """Stands for a class of TorchDR."""

    made: ClassVar[list] = []

    def __init__(self, **options):
        self.made.append((options, []))
        self.n_iter_ = 7

    def fit_transform(self, x):
        self.made[-1][1].append(x.copy())
        return x[:, :2]


def test_torchdr_fits_the_target_beside_the_known_records(monkeypatch):
    cuda = types.SimpleNamespace(is_available=lambda: True)
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda))
    monkeypatch.setitem(sys.modules, "torchdr", types.SimpleNamespace(PCA=Peer, TSNE=Peer, UMAP=Peer))
    rng = np.random.default_rng(1)
    known, targets = rng.uniform(size=(19, 6)), rng.uniform(size=(3, 6))
    common = {"n_components": 2, "device": "cuda"}
    own = {"pca": {}, "tsne": {"perplexity": peers.perplexity(20)}, "umap": {"n_neighbors": 15, "backend": None}}
    assert set(own) == set(shadow_embeddings.TORCHDR)
    for name, options in own.items():
        step = peers._shadows(f"torchdr_{name}", known, targets)
        assert step(iter(targets[1:])) == (1, 7)
        given, (seen,) = Peer.made[-1]
        assert given == common | options
        np.testing.assert_array_equal(seen, np.concatenate([targets[1:2], known]))
    with pytest.raises(ValueError, match="got 'torchdr_mds'"):
        peers._shadows("torchdr_mds", known, targets)


def test_a_peer_that_is_not_installed_is_said_and_not_asked(monkeypatch):
    monkeypatch.setattr(peers.importlib.util, "find_spec", lambda _: None)
    assert peers.lacking("torchdr_pca") == "torchdr is not installed"
    assert peers.lacking("umap") == "umap is not installed"
    assert peers.lacking("pca_full") is None
    cell = Cell("umap", "fresh", np.zeros((9, 4), np.float32), np.zeros((3, 4), np.float32))
    row = shadow_embeddings._peer_row("umap-learn/umap", "umap", cell, None, 1.0)
    assert row["skipped"] == "umap is not installed"


def naive_of(monkeypatch, method, seconds):
    """The row of naive vmap where a call with so many lanes takes `seconds(lanes)`, and the lanes that were tried."""
    tried = []

    def measure(name, fn, known, given, *, repeats, budget_s, **labels):
        del fn, known, repeats, budget_s
        tried.append(len(given[0]))
        return {"name": name, "run_s": seconds(tried[-1])} | labels

    monkeypatch.setattr(harness, "measure", measure)
    cell = Cell(method, "fresh", np.zeros((99, 64), np.float32), np.zeros((300, 64), np.float32))
    return shadow_embeddings._measure_naive(cell, shadow_embeddings.Config(), {}), tried


def test_a_naive_batch_that_was_too_small_is_timed_again_with_more_lanes(monkeypatch):
    row, tried = naive_of(monkeypatch, "tsne", lambda lanes: 0.02 + 1e-4 * lanes)
    assert tried == sorted(tried)
    assert 1 < len(tried) <= shadow_embeddings.NAIVE_TRIES
    assert row["shadows"] == tried[-1] == shadow_embeddings.NAIVE_LANES_MAX
    assert row["ms_per_shadow"] == pytest.approx(1e3 * row["run_s"] / tried[-1])


def test_naive_vmap_that_runs_out_of_memory_is_tried_with_fewer_lanes_and_then_said(monkeypatch):
    def full(lanes):
        raise jax.errors.JaxRuntimeError(f"RESOURCE_EXHAUSTED: {lanes} lanes")

    def broken(_):
        raise jax.errors.JaxRuntimeError("INTERNAL: x")

    row, tried = naive_of(monkeypatch, "pca", full)
    assert tried == sorted(tried, reverse=True)
    assert len(set(tried)) == shadow_embeddings.NAIVE_TRIES
    assert row["skipped"] == "it ran out of memory"
    with pytest.raises(jax.errors.JaxRuntimeError, match="INTERNAL"):
        naive_of(monkeypatch, "pca", broken)


def test_a_table_has_naive_vmap_beside_every_row():
    row = {"naive": 2.5} | dict.fromkeys(("n", "d", "n_iter", "n_updates", "chunk", "extra_rss_bytes"), 1)
    row |= {"threat_model": "none", "dtype": "float32", "speedup": {}, "status": {}}
    row |= dict.fromkeys(("ms_per_shadow", "run_s", "run_iqr_s", "prepare_s", "compile_s", "gflop_per_s"), 1.0)
    row |= dict.fromkeys(("gemm_share", "gbyte_per_s", "memory_share", "output_bytes", "chunk_budget_bytes"), 1.0)
    lines = shadow_embeddings.table("pca", [row, row | {"naive": "it ran out of memory"}]).splitlines()
    column = lines[3].split(" | ").index("naive vmap, ms/shadow")
    assert [line.split(" | ")[column] for line in lines[5:]] == ["2.5000", "it ran out of memory"]


def test_standardised_records_are_timed_beside_scikit_learns_pipeline(tmp_path):
    config = shadow_embeddings.Config(
        quick=True, method=["pca"], dtype=["float32"], is_standard=True, out=tmp_path / "rows.jsonl"
    )
    config.n = [30]
    shadow_embeddings.main(config)
    rows = [json.loads(line) for line in config.out.read_text().splitlines()]
    (row,) = [one for one in rows if one["name"] == "drjax"]
    assert row["scale"] == "standard"
    assert row["status"] == {"OK": row["shadows"]}
    assert row["speedup"].keys() == {"naive", "sklearn/standard_pca_default", "sklearn/standard_pca_full"}


def test_every_method_has_cells_and_peers_and_a_model_of_its_operations():
    kinds = shadow_embeddings.kinds()
    assert {method for method, _ in kinds} == set(METHODS) == set(shadow_embeddings.Config().method)
    assert set(shadow_embeddings.PEERS) <= set(kinds)
    # A block of rows by itself is no fit, and tested apart.
    compared = {peer for peers_of_kind in shadow_embeddings.PEERS.values() for peer in peers_of_kind}
    assert compared == {*PEER_CLASSES, "srp_rows"}
    for name, randomness in kinds:
        for n in (10, 100, 1000):
            work.method_for(name, n).prepare(np.random.default_rng(2).uniform(size=(min(n, 100) - 1, 5)))
            small, large = (work.flops(name, randomness, n, d, 50.0, 1e4) for d in (4, 4096))
            assert 0 < small < large or (name == "mds" and 0 < small == large)
            assert work.naive_flops(name, n, 64) > 0


def test_a_method_without_a_model_of_its_operations_is_charged_what_it_says_it_costs(monkeypatch):
    monkeypatch.setitem(work.METHODS, "other", METHODS["isomap"])
    cost = METHODS["isomap"]().cost(100, 40)
    assert work.flops("other", "fresh", 100, 40, 1.0, 0.0) == cost.flops
    assert work.naive_flops("other", 100, 40) == cost.shared_flops + cost.flops
    assert work.seconds("other", 200, 40) > work.seconds("other", 100, 40) > 0
    with pytest.raises(ValueError, match=r"method must be one of .*other.*; got 'kernel_pca'"):
        shadow_embeddings.Config(method=["pca", "kernel_pca"])


def test_umap_learn_makes_as_many_updates_as_drjax():
    x = load_digits().data[:104].astype(np.float32) / 16
    known, targets = x[:99], x[99:]
    found = shadow_embeddings.shadow_embeddings(jax.random.key(0), METHODS["umap"](), known, targets)
    step, queue = peers._shadows("umap", known, targets), iter(targets)
    # From the same graphs; a weight rounded to float32 may shift an edge's last update past the end.
    assert np.mean([step(queue)[1] for _ in targets]) == pytest.approx(work.updates(found.info), rel=1e-3)


def test_peers_report_their_iterations():
    rng = np.random.default_rng(3)
    known, targets = rng.uniform(size=(19, 6)), rng.uniform(size=(2, 6))
    step = peers._shadows("mds", known, targets)
    expected = sklearn.manifold.MDS(n_init=1, init="random", eps=1e-6, random_state=0)
    expected.fit(np.concatenate([targets[:1], known]))
    assert step(iter(targets)) == (1, expected.n_iter_)
    assert peers._shadows("isomap", known, targets)(iter(targets)) == (1, 0.0)


def test_a_quick_run_measures_the_methods_that_it_is_told(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(harness, "machine_peaks", lambda **_: PEAKS)
    monkeypatch.setattr(shadow_embeddings, "n_workers", lambda: 1)
    out = tmp_path / "rows.jsonl"
    before = jax.config.jax_enable_x64
    try:
        config = shadow_embeddings.Config(quick=True, dtype=["float32"], out=out)
        config.n, config.shadows, config.peer_s, config.repeats = [12], 3, 0.01, 1
        config.method = ["pca", "srp"]
        shadow_embeddings.main(config)
    finally:
        jax.config.update("jax_enable_x64", before)
    rows = [row for row in records.read_records(out) if row["name"] == "drjax"]
    told = [kind[0] for kind in shadow_embeddings.PEERS if kind[0] in config.method]
    assert [(row["method"], row["n"]) for row in rows] == [(method, 12) for method in told]
    for row in rows:
        assert row["gflop_per_s"] > 0
        assert {name.split("/")[0] for name in row["speedup"]} <= {"naive", "sklearn", "umap-learn"}
        assert len(row["speedup"]) == 1 + len(shadow_embeddings.PEERS[row["method"], _randomness(row)])
        assert all(value > 0 for value in row["speedup"].values())
        assert row["n_updates"] == 0
    table = capsys.readouterr().out
    assert all((f"\n{method}\n" in table) == (method in told) for method in METHODS)


PEAKS = [
    {"name": "peak/gemm", "dtype": "float32", "gflop_per_s": 100.0, "cpu": "a", "cores": 2, "device_kind": "cpu"},
    {"name": "peak/gemm", "dtype": "float64", "gflop_per_s": 50.0},
    {"name": "peak/triad", "dtype": "float32", "gbyte_per_s": 10.0},
]


def _randomness(row):
    return "shared" if row["threat_model"] == "seed known" else "fresh"


@pytest.mark.parametrize(("n", "rank"), [(20, 18), (200, 50)])
def test_pca_is_charged_the_operations_of_its_two_products(n, rank):
    cell = Cell("pca", "fresh", np.zeros((n - 1, 50)), np.zeros((4, 50)))
    assert work.flops("pca", "fresh", n, 50, 8.0, 0.0) == 2 * 50 * rank + 4 * n * rank  # k = 2: r d in, 2 n r for rows
    assert (cell.labels["n"], cell.labels["d"], cell.labels["shadows"], cell.labels["dtype"]) == (n, 50, 4, "float64")
