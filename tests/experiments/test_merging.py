"""One home for putting parts of a run together: what is kept, what is refused, and where each line was computed."""

import json
from pathlib import Path

import pytest

from drjax.reports import records
from experiments import merging

MERGED_EARLIER = Path(__file__).parents[2] / "experiments/tsne_property/results/results.jsonl"


def part(folder, device, cells, *, fingerprint="one", utc="2026-01-01T00:00:00+00:00", **own):
    """A file of results of one machine: cells by name and value."""
    provenance = {"commit": f"of {device}", "dirty": False, "device_kind": device, "utc": utc, "versions": {"jax": "1"}}
    head = {"schema": 1, "kind": "run", "fingerprint": fingerprint, "provenance": provenance}
    lines = [{"schema": 1, "kind": "attack", "cell": name, "value": value, **own} for name, value in cells.items()]
    file = folder / "results.jsonl"
    merging.write([head, *lines], file)
    return file


def by_cell(line):
    return line["cell"]


def test_every_line_says_where_it_was_computed_and_the_first_part_decides(tmp_path):
    mine = part(tmp_path / "mine", "cpu", {"a": 1, "b": 2})
    theirs = part(tmp_path / "theirs", "a card", {"b": 20, "c": 3})
    out = tmp_path / "out" / "results.jsonl"
    assert merging.merge([mine, theirs], out, by_cell) == 3
    head, *lines = records.read_records(out)
    assert head["provenance"]["device_kind"] == "cpu"
    where = [merging.origin_of(line, head) for line in lines]
    assert [(line["cell"], line["value"], of["device_kind"]) for line, of in zip(lines, where, strict=True)] == [
        ("a", 1, "cpu"),
        ("b", 2, "cpu"),
        ("c", 3, "a card"),
    ]
    assert lines[2]["provenance"]["commit"] == "of a card"
    # The first line says where the first part was computed; a thousand lines need not repeat it.
    assert ["provenance" in line for line in lines] == [False, False, True]
    # What a line does not say itself is of the run's beginning, and what it says is kept.
    assert all(of["of_run"] for of in where)
    own = {"commit": "later", "device_kind": "a card"}
    merging.merge([part(tmp_path / "own", "cpu", {"d": 4}, provenance=own)], out, by_cell)
    assert records.read_records(out)[1]["provenance"] == own
    assert lines[2]["provenance"]["jax"] == "1"


def test_merging_again_and_into_a_part_changes_nothing(tmp_path):
    mine = part(tmp_path / "mine", "cpu", {"a": 1, "b": 2})
    theirs = part(tmp_path / "theirs", "a card", {"b": 20, "c": 3})
    out = tmp_path / "out.jsonl"
    merging.merge([mine, theirs], out, by_cell)
    once = out.read_bytes()
    for parts in ([out], [out, theirs], [out, mine, theirs], [mine, theirs, out]):
        merging.merge(parts, out, by_cell)
        assert out.read_bytes() == once


def test_a_place_orders_cells_whatever_the_order_of_the_parts(tmp_path):
    one, two = part(tmp_path / "1", "cpu", {"b": 2}), part(tmp_path / "2", "cpu", {"c": 3, "a": 1})
    for i, parts in enumerate(([one, two], [two, one])):
        out = tmp_path / f"out-{i}.jsonl"
        merging.merge(parts, out, by_cell, lambda _, line: (line["cell"],))
        assert [line["cell"] for line in records.read_records(out)[1:]] == ["a", "b", "c"]


def test_parts_of_another_configuration_or_without_results_are_refused_and_nothing_is_written(tmp_path):
    one = part(tmp_path / "1", "cpu", {"a": 1})
    other = part(tmp_path / "2", "cpu", {"b": 1}, fingerprint="other")
    (tmp_path / "empty.jsonl").write_bytes(b"")
    out = tmp_path / "out.jsonl"
    with pytest.raises(ValueError, match="parts must be of one configuration"):
        merging.merge([one, other], out, by_cell)
    with pytest.raises(ValueError, match=r"parts must hold results, got .*empty.jsonl without any"):
        merging.merge([one, tmp_path / "empty.jsonl"], out, by_cell)
    with pytest.raises(ValueError, match="parts must name at least one file"):
        merging.merge([], out, by_cell)
    with pytest.raises(FileNotFoundError):
        merging.merge([tmp_path / "none.jsonl"], out, by_cell)
    assert not out.exists()


def test_lines_that_an_earlier_version_merged_keep_the_provenance_that_they_number(tmp_path):
    head, *lines = map(json.loads, MERGED_EARLIER.read_text(encoding="utf-8").splitlines())
    merging.merge([MERGED_EARLIER], tmp_path / "out.jsonl", lambda line: line["id"])
    found = records.read_records(tmp_path / "out.jsonl")[1:]
    assert len({line["origin"] for line in lines}) > 1
    for line, merged in zip(lines, found, strict=True):
        said, kept = head["origins"][line["origin"]], merging.origin_of(merged, head)
        assert "origin" not in merged
        assert kept["commit"] == said["commit"]
        assert kept["device_kind"] == said["device_kind"]
        assert kept["utc"] == said["utc"]
