"""What came back from a card and is filed into committed results: once, with where it was computed, or not at all."""

import dataclasses
import json

import pytest

from bench import gpu_merge
from bench.gpu_hour import archive, hour, papers, registry, steps
from bench.gpu_hour.hour import Hour
from bench.gpu_hour.steps import Cell
from drjax.reports import records
from experiments import merging, sweep

NAME = "informed_adversary-paper"
COMMITTED = papers.KEPT[NAME].committed


def line(attack, **fields):
    return {"factor": "shadows", "setting": "59000 shadows", "attack": attack, **fields}


def run_of(out, *, rows=(), attacks=(), where=None, config=None):
    """A run at full size with one cell of the grid and some of an experiment."""
    cell = Cell(name="grid/x", seconds=1.0, compute=lambda _: {"rows": list(rows)})
    with Hour(out, registry.CARD) as begun:
        hour.run(begun, [steps.step("grid", "b", "guess", [cell])], say=lambda _: None)
    if attacks:
        file = out / papers.FOLDER / NAME / "results.jsonl"
        sweep.take_up(file, config or papers.KEPT[NAME].config, {})
        for attack in attacks:
            own = {"provenance": where} if where else {}
            records.put_record(file, "attack", attack, **line(attack), **own)
    return out


def row(name, commit, ms):
    return {"name": name, "method": "pca", "n": 200, "commit": commit, "device_kind": "a card", "ms_per_shadow": ms}


def test_rows_cells_and_experiments_go_where_they_belong(tmp_path):
    card = {"commit": "abc", "device_kind": "a card"}
    rows = [row("drjax", "abc", 1.0), row("naive", "abc", 9.0)]
    out = run_of(tmp_path / "out", rows=rows, attacks=["mean", "fast"], where=card)
    added = gpu_merge.merge([out], tmp_path / "into")
    assert {str(file): count for file, count in added.items()} == {
        "bench/results/shadow_embeddings.jsonl": 2,
        "bench/results/gpu_hour.jsonl": 1,
        COMMITTED: 2,
    }
    found = records.read_records(tmp_path / "into" / gpu_merge.ROWS)
    assert [{key: one[key] for key in rows[0]} for one in found] == rows
    (cell,) = records.read_records(tmp_path / "into" / gpu_merge.CELLS)
    assert "rows" not in cell
    assert cell["provenance"]["device_kind"] == "cpu"
    head, *lines = records.read_records(tmp_path / "into" / COMMITTED)
    assert head["fingerprint"] == records.config_fingerprint(papers.KEPT[NAME].config)
    assert {one["attack"]: one["provenance"] for one in lines} == {"mean": card, "fast": card}


def test_a_second_time_adds_nothing(tmp_path):
    out = run_of(tmp_path / "out", rows=[row("drjax", "abc", 1.0)], attacks=["mean"])
    back = tmp_path / "back"
    archive.pack(out, back)
    gpu_merge.merge([out], tmp_path / "into")
    before = {file: file.read_bytes() for file in (tmp_path / "into").rglob("*.jsonl")}
    assert len(before) == 3
    for folders in ([out], [back], [out, back]):
        assert set(gpu_merge.merge(folders, tmp_path / "into").values()) == {0}
        assert {file: file.read_bytes() for file in (tmp_path / "into").rglob("*.jsonl")} == before


def test_what_is_there_keeps_its_commit_and_device(tmp_path):
    into = tmp_path / "into"
    first = {"commit": "old", "device_kind": "an older card"}
    gpu_merge.merge([run_of(tmp_path / "1", rows=[row("drjax", "old", 2.0)], attacks=["mean"], where=first)], into)
    second = {"commit": "new", "device_kind": "a card"}
    out = run_of(tmp_path / "2", rows=[row("drjax", "new", 1.0)], attacks=["mean", "fast"], where=second)
    assert gpu_merge.merge([out], into)[gpu_merge.Path(COMMITTED)] == 1
    lines = records.read_records(into / COMMITTED)[1:]
    assert [(one["attack"], one["provenance"]["commit"]) for one in lines] == [("mean", "old"), ("fast", "new")]
    assert [one["commit"] for one in records.read_records(into / gpu_merge.ROWS)] == ["old", "new"]


def test_results_of_another_configuration_are_refused_before_anything_is_written(tmp_path):
    now = papers.KEPT[NAME].config
    other = dataclasses.replace(now, seed=now.seed + 1)
    into = tmp_path / "into"
    out = run_of(tmp_path / "1", rows=[row("drjax", "abc", 1.0)], attacks=["mean"], config=other)
    with pytest.raises(ValueError, match=f"must hold {NAME} in its present configuration"):
        gpu_merge.merge([out], into)
    assert not into.exists()
    # What is committed decides once there is something.
    gpu_merge.merge([run_of(tmp_path / "2", attacks=["mean"])], into)
    before = {file: file.read_bytes() for file in into.rglob("*.jsonl")}
    with pytest.raises(ValueError, match="one configuration"):
        gpu_merge.merge([out], into)
    assert {file: file.read_bytes() for file in into.rglob("*.jsonl")} == before


def test_dry_runs_and_empty_folders_are_refused(tmp_path):
    with Hour(tmp_path / "toy", registry.TOY):
        pass
    with pytest.raises(ValueError, match=r"at full size, got .* of scale 'toy'"):
        gpu_merge.merge([tmp_path / "toy"], tmp_path / "into")
    with pytest.raises(ValueError, match="cells of an earlier run"):
        gpu_merge.merge([tmp_path], tmp_path / "into")
    with pytest.raises(ValueError, match="at least one"):
        gpu_merge.merge([], tmp_path / "into")


def test_cells_of_paper_000_are_filed_in_the_order_of_a_single_run_and_not_run_again(tmp_path, monkeypatch):
    name = "dr_reconstruction-full"
    file = tmp_path / "out" / papers.FOLDER / name / "results.jsonl"
    sweep.take_up(file, papers.KEPT[name].config, {})
    for number, method in enumerate(("tsne", "pca")):
        place = {"data": "mnist", "method": method, "n_known": 199, "repeat": 0, "release": f"mnist/{method}/199/0"}
        own = {"attack": "network", "sigma": 0.0, "provenance": {"commit": "abc"}}
        records.put_record(file, "attack", str(number), **place, **own)
    with Hour(tmp_path / "out", registry.CARD):
        pass
    gpu_merge.merge([tmp_path / "out"], tmp_path / "into")
    lines = records.read_records(tmp_path / "into" / papers.KEPT[name].committed)[1:]
    assert [line["method"] for line in lines] == ["pca", "tsne"]
    before = len(cells_of("figure2"))
    monkeypatch.setattr(papers, "ROOT", tmp_path / "into")
    after = cells_of("figure2")
    assert len(after) == before - 2
    assert "reconstruction/mnist/pca/199/0:network:0" not in after


def cells_of(family):
    return [cell.name for step in registry.all_steps(registry.CARD, family) for cell in step.cells(None)]


def test_what_is_committed_is_of_the_configuration_that_is_run():
    for name, kept in papers.KEPT.items():
        file = papers.ROOT / kept.committed
        if file.exists():
            assert records.read_records(file)[0]["fingerprint"] == records.config_fingerprint(kept.config), name


def test_committed_results_take_new_cells_and_lose_none(tmp_path):
    """What the repository holds now, whose older lines say where they were computed in another way."""
    for name, kept in papers.KEPT.items():
        source = papers.ROOT / kept.committed
        if not source.exists():
            continue
        before = records.read_records(source)
        target = tmp_path / kept.committed
        target.parent.mkdir(parents=True)
        target.write_bytes(source.read_bytes())
        part = tmp_path / name / papers.FOLDER / name / "results.jsonl"
        part.parent.mkdir(parents=True)
        records.put_record(
            part, "run", "experiment", **{k: before[0][k] for k in ("fingerprint", "config", "provenance")}
        )
        new = {**json.loads(json.dumps(before[1])), "id": "new", "attack": "new", "provenance": {"commit": "new"}}
        records.put_record(
            part, "attack", "new", **{k: v for k, v in new.items() if k not in ("schema", "kind", "origin")}
        )
        assert gpu_merge._merged(name, [part], tmp_path) == 1
        after = records.read_records(target)
        assert [kept.sweep.identity(one) for one in after[1:-1]] == [kept.sweep.identity(one) for one in before[1:]]
        wanted = [merging.origin_of(one, before[0]) for one in before[1:]]
        assert [merging.origin_of(one, after[0]) for one in after[1:]] == [*wanted, {"commit": "new"}]
