"""The rows of a benchmark that starts processes, without starting any."""

import json
import statistics

from bench import first_call


def test_a_row_for_each_state_has_medians_of_processes_that_ran_in_turn(tmp_path, monkeypatch):
    told = []

    def run(command, cache, *, is_on):
        told.append((command, cache, is_on))
        return {"run_s": float(len(told)), "compile_s": 1.0, "compiled": 2, "found": 0, "found_s": 0.0}

    monkeypatch.setattr(first_call, "_run", run)
    first_call.main(commands=("audit",), repeats=3, out=tmp_path / "rows.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert [row["kept"] for row in rows] == ["off", "empty", "kept"]
    assert [row["run_s"] for row in rows] == [statistics.median(range(first, 10, 3)) for first in (1, 2, 3)]
    assert [is_on for _, _, is_on in told] == [False, True, True] * 3
    folders = [cache for _, cache, _ in told]
    assert folders[1] == folders[2]  # what the second keeps the third finds
    assert len(set(folders)) == 3
