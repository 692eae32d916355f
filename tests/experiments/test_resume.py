"""Experiments that were killed, that several processes compute, and whose committed results are taken up."""

import dataclasses
import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from drjax.data import load
from drjax.reports import records
from experiments import merging
from experiments.resume import cell_name, take_up

COMMITTED = sorted(Path(__file__).parents[2].glob("experiments/*/results/**/*.jsonl"))


@dataclasses.dataclass(frozen=True)
class Config:
    seed: int = 0


@pytest.mark.parametrize("file", COMMITTED, ids=lambda file: file.as_posix().split("/experiments/")[-1])
def test_committed_results_are_read_and_gone_on_with_and_stay_as_they_are(file, tmp_path):
    own = tmp_path / file.name
    shutil.copy(file, own)
    found = records.read_records(own)
    assert len(found) == len(file.read_bytes().splitlines())
    records.put_record(own, "attack", "new", i=7)
    assert records.gather_records(own) == [*found, {"schema": 1, "kind": "attack", "i": 7}]
    assert own.read_bytes().startswith(file.read_bytes())


def test_a_committed_file_is_done_and_its_configuration_checked(tmp_path):
    file, data = tmp_path / "results.jsonl", load("digits")
    head = {"schema": 1, "kind": "run", "fingerprint": records.config_fingerprint(Config())}
    lines = [head, {"schema": 1, "kind": "attack", "n": 3}]
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert take_up(file, Config(), data) == lines
    records.put_record(file, "attack", cell_name(0, 4), n=4)
    assert [line.get("n") for line in take_up(file, Config(), data)] == [None, 3, 4]
    with pytest.raises(ValueError, match="one of the same configuration"):
        take_up(file, Config(seed=1), data)


def test_a_kill_before_the_first_line_was_whole_does_not_stop_the_next_run(tmp_path):
    file, data = tmp_path / "results.jsonl", load("digits")
    file.write_bytes(b'{"schema": 1, "ki')
    (tmp_path / ".results.jsonl.999999999.tmp").touch()
    (head,) = take_up(file, Config(), data)
    assert head["fingerprint"] == records.config_fingerprint(Config())
    assert records.gather_records(file) == [head]
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["results.cells", "results.jsonl"]


def test_processes_that_begin_at_once_have_one_first_line(tmp_path):
    file, data = tmp_path / "results.jsonl", load("digits")
    with ThreadPoolExecutor(4) as pool:
        heads = list(pool.map(lambda _: take_up(file, Config(), data)[0], range(4)))
    assert all(head == heads[0] for head in heads)
    assert len(records.gather_records(file)) == 1


def test_names_of_cells_sort_as_numbers_do():
    names = [cell_name(i, n, "a") for i in (0, 2, 10) for n in (50, 200, 10_000)]
    assert names == sorted(names)


def test_merged_results_do_not_mix_with_cells_of_the_same_file(tmp_path):
    file = tmp_path / "results.jsonl"
    records.put_record(file, "run", "experiment")
    with pytest.raises(ValueError, match="out must be a folder without results of its own"):
        merging.write([], file)
    assert not file.exists()
