import dataclasses
import shutil

import numpy as np
import pytest

from drjax.reports import records
from experiments import command, sweep
from experiments.pca_closed_form import report
from experiments.pca_closed_form import run as experiment

SMALL = dataclasses.replace(experiment.SMOKE, n_known=(9,), targets=8, public=60)


def estimate(cells, n_known, release, attack, score="mse"):
    (found,) = [c for c in cells if (c["n_known"], c["release"], c["attack"]) == (n_known, release, attack)]
    return found["scores"][score]["estimate"]


def test_smoke_prints_one_table_row_for_every_cell(tmp_path, capsys):
    command.main(experiment.SWEEP, ["--scale", "smoke", "--out", str(tmp_path)])
    printed = capsys.readouterr().out
    table = [line for line in printed.splitlines() if line.startswith("|")]
    n_cells = len(experiment.SMOKE.n_known) * len(experiment.RELEASES) * len(experiment.ATTACKS)
    assert len(table) == 2 + n_cells
    assert len({tuple(row.split("|")[1:4]) for row in table[2:]}) == n_cells

    written = records.read_records(tmp_path / sweep.RESULTS)
    assert [r["kind"] for r in written] == ["run"] + ["attack"] * n_cells
    assert written[0]["provenance"]["x64"] is True

    exact = estimate(written[1:], 99, "float64", "closed form", "mse_median")
    # 99 known digits span nearly all 64 pixels: what is left is rounding, amplified by the smallest singular values.
    assert exact < 1e-12
    assert exact < estimate(written[1:], 99, "float32", "closed form", "mse_median")
    for n_known in experiment.SMOKE.n_known:
        alone, prior, bounds = (estimate(written[1:], n_known, "2 decimals", attack) for attack in experiment.ATTACKS)
        assert bounds < prior < alone


def test_results_of_an_earlier_version_torn_by_a_kill_are_gone_on_with(tmp_path):
    first = sweep.run(experiment.SWEEP, SMALL, tmp_path, say=lambda _: None).lines[1:]
    file = tmp_path / sweep.RESULTS
    lines = file.read_bytes().splitlines(keepends=True)
    # Without cells, torn in the middle of a line: that one is missing.
    shutil.rmtree(tmp_path / "results.cells")
    file.write_bytes(b"".join(lines[:-2]) + lines[-2][:20])
    computed = []
    again = sweep.run(experiment.SWEEP, SMALL, tmp_path, say=computed.append).lines[1:]
    assert len(computed) == 2
    for name in ("mse", "mse_median", "success", "identification"):
        np.testing.assert_equal([c["scores"][name] for c in again], [c["scores"][name] for c in first])


def test_a_table_of_errors_is_of_one_attack_and_says_what_was_not_run():
    lines = [
        {"n_known": n, "release": release, "attack": attack, "scores": {"mse": mean, "mse_median": median}}
        for n, release, attack, mean, median in (
            (9, "float64", "closed form", {"estimate": 0.5}, {"estimate": 1.5e-17}),
            (9, "float32", "closed form", {"estimate": 0.25}, {"estimate": 0.2}),
            (99, "float64", "closed form", {"estimate": 0.03}, {"estimate": 0.02}),
            (99, "float64", "with Gaussian prior", {"estimate": 0.1}, {"estimate": 0.1}),
        )
    ]
    assert report.errors_of(lines, "closed form").splitlines() == [
        "| known, closed form | float64 | float32 |",
        "| --- | --- | --- |",
        "| 9 | 0.50 / 1.5e-17 | 0.25 / 0.20 |",
        "| 99 | 0.030 / 0.020 | not run |",
    ]
    with pytest.raises(LookupError, match="attack must be one of closed form, with Gaussian prior, got none"):
        report.errors_of(lines, "none")


def test_committed_cells_are_all_of_the_configuration_and_of_a_clean_checkout():
    lines = report.committed()
    one = experiment.SWEEP
    wanted = {
        cell.identity for group in one.chosen(one.asked(experiment.Config(), report.HERE)) for cell in group.cells
    }
    assert {one.identity(line) for line in lines} == wanted
    assert not any(line["provenance"]["dirty"] for line in lines)
    assert len(report.to_markdown(lines).splitlines()) == 2 + len(wanted)
    for attack in experiment.ATTACKS:
        assert len(report.block("errors", attack).splitlines()) == 2 + len(experiment.Config().n_known)


@pytest.mark.parametrize("field", [{"targets": 0}, {"public": 1}, {"n_known": ()}, {"n_known": (0,)}, {"seed": -1}])
def test_a_configuration_out_of_range_is_refused_when_it_is_made(field):
    with pytest.raises(ValueError, match=f"{next(iter(field))} must"):
        dataclasses.replace(SMALL, **field)
