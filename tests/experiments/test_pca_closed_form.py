import dataclasses
import shutil

import numpy as np
import pytest

from drjax.reports import records
from experiments.pca_closed_form import run as experiment

SMALL = dataclasses.replace(experiment.SMOKE, n_known=(9,), targets=8, public=60)


def estimate(cells, n_known, release, attack, score="mse"):
    (found,) = [c for c in cells if (c["n_known"], c["release"], c["attack"]) == (n_known, release, attack)]
    return found["scores"][score]["estimate"]


def test_smoke_prints_one_table_row_for_every_cell(tmp_path, capsys):
    experiment.main(out=tmp_path, smoke=True)
    printed = capsys.readouterr().out
    table = [line for line in printed.splitlines() if line.startswith("|")]
    n_cells = len(experiment.SMOKE.n_known) * len(experiment.RELEASES) * len(experiment.ATTACKS)
    assert len(table) == 2 + n_cells
    assert len({tuple(row.split("|")[1:4]) for row in table[2:]}) == n_cells

    written = records.read_records(tmp_path / experiment.RESULTS)
    assert [r["kind"] for r in written] == ["run"] + ["attack"] * n_cells
    assert written[0]["provenance"]["x64"] is True

    exact = estimate(written[1:], 99, "float64", "closed form", "mse_median")
    # 99 known digits span nearly all 64 pixels: what is left is rounding, amplified by the smallest singular values.
    assert exact < 1e-12
    assert exact < estimate(written[1:], 99, "float32", "closed form", "mse_median")
    for n_known in experiment.SMOKE.n_known:
        alone, prior, bounds = (estimate(written[1:], n_known, "2 decimals", attack) for attack in experiment.ATTACKS)
        assert bounds < prior < alone


def test_a_second_run_computes_nothing_again_and_an_interrupted_one_only_what_is_missing(tmp_path, monkeypatch):
    first = experiment.run(SMALL, tmp_path, say=lambda _: None)
    file = tmp_path / experiment.RESULTS
    content = file.read_bytes()

    computed = []
    assert experiment.run(SMALL, tmp_path, say=computed.append) == first
    assert computed == []
    assert file.read_bytes() == content

    lines = content.splitlines(keepends=True)
    # Results of an earlier version, without cells, that a kill tore in the middle of a line: that one is missing.
    shutil.rmtree(tmp_path / "results.cells")
    file.write_bytes(b"".join(lines[:-2]) + lines[-2][:20])
    attacked = []
    original = experiment.closed_form.reconstruct_pca
    monkeypatch.setattr(
        experiment.closed_form, "reconstruct_pca", lambda *a, **k: attacked.append(k) or original(*a, **k)
    )
    again = experiment.run(SMALL, tmp_path, say=computed.append)
    assert len(attacked) == len(computed) == 2
    for name in ("mse", "mse_median", "success", "identification"):
        np.testing.assert_equal([c["scores"][name] for c in again], [c["scores"][name] for c in first])


def test_results_of_another_configuration_are_refused_and_left_alone(tmp_path):
    experiment.run(SMALL, tmp_path, say=lambda _: None)
    content = (tmp_path / experiment.RESULTS).read_bytes()
    with pytest.raises(ValueError, match="out must be a new folder or one of the same configuration"):
        experiment.run(dataclasses.replace(SMALL, seed=1), tmp_path)
    assert (tmp_path / experiment.RESULTS).read_bytes() == content


@pytest.mark.parametrize("field", [{"targets": 0}, {"public": 1}, {"n_known": ()}, {"n_known": (0,)}, {"seed": -1}])
def test_a_configuration_out_of_range_is_refused_when_it_is_made(field):
    with pytest.raises(ValueError, match=f"{next(iter(field))} must"):
        dataclasses.replace(SMALL, **field)
