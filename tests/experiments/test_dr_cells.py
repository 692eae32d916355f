"""Cells of dr_reconstruction: their names and order, what is computed of them, and when a run stops."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from drjax.core.types import count_status
from drjax.reports import records
from experiments import command, sweep
from experiments.dr_reconstruction import cells, config, expected, forecast, order, paper
from experiments.dr_reconstruction import run as experiment

SMOKE = config.SCALES["smoke"]
FULL = config.SCALES["full"]
ONE = dataclasses.replace(SMOKE, plans=(dataclasses.replace(SMOKE.plans[0], n_known=(20,), repeats=(1,)),))
SOME = ("digits/pca/20/0:mean", "digits/pca/20/0:ridge", "digits/pca/20/0:adaptive-ridge:32")


def names(tasks):
    return [order.text_of(cell) for task in tasks for cell in task.cells]


def attacks_of(folder):
    return [r for r in records.read_records(folder / sweep.RESULTS) if r["kind"] == "attack"]


def comparable(record):
    kept = {k: v for k, v in record.items() if k not in ("seconds", "provenance", "facts")}
    return kept | {"scores": {k: v for k, v in record["scores"].items() if k != "seconds_per_target"}}


def test_every_cell_has_one_name_and_one_place():
    for scale in config.SCALES.values():
        found = names(order.tasks(scale))
        wanted = {
            order.text_of((release.name, attack, sigma))
            for release in scale.releases()
            for attack in scale.attacks(release)
            for sigma in scale.sigmas_of(release, attack)
        }
        assert len(found) == len(wanted)
        assert set(found) == wanted


def test_first_repeats_come_first_and_in_a_repeat_what_is_cheap_and_then_what_decides_claims():
    tasks = order.tasks(FULL)
    repeats = [task.release.repeat for task in tasks]
    assert repeats == sorted(repeats)
    first = [task for task in tasks if task.release.repeat == 0]
    cheap = first[: next(i for i, task in enumerate(first) if task.attack.startswith(config.ADAPTIVE))]
    # Every data set, size and method has cheap attacks before anything dear is begun.
    assert {task.release for task in cheap} == {r for r in FULL.releases() if r.repeat == 0}
    assert {"mean", "nearest", "ridge"} <= {task.attack for task in cheap}
    assert not {config.NETWORK, config.DENSE_NETWORK, "inversion", "residual-network"} & {t.attack for t in cheap}
    seconds = [
        expected.of_attack(FULL, t.release, t.attack, expected.n_answers(FULL, t.release, t.attack, t.sigmas))
        for t in cheap
    ]
    assert max(seconds) <= order.CHEAP
    # Then the adversary who knows of the largest noise, Table 4, and the network at the other sizes.
    rest = list(first[len(cheap) :])
    adaptive = rest[:12]
    assert {task.sigmas for task in adaptive} == {(paper.NOISE_SIGMA,)}
    networks = rest[12:24]
    assert {(t.release.data, t.release.n_known) for t in networks} == {(paper.TABLE_4_DATA, paper.TABLE_4_KNOWN)}
    assert {t.attack for t in networks} == {config.NETWORK, config.DENSE_NETWORK}
    n_releases = sum(r.repeat == 0 for r in FULL.releases())
    assert {t.attack for t in rest[24 : 24 + n_releases - 6]} == {config.NETWORK}


def test_patterns_name_releases_attacks_and_cells():
    assert {t.release.name for t in order.tasks(FULL, "mnist/pca/*")} == {
        f"mnist/pca/{n}/{i}" for n in paper.SIZES for i in range(5)
    }
    grid = order.tasks(FULL, ["mnist/*:network:0", "mnist/*:dense-network:0"])
    assert len(grid) == 5 * 5 * 6 * 2
    assert {task.sigmas for task in grid} == {(0,)}
    # An attack that knows of no noise needs its clean answer for equation 12, one that is trained under it does not.
    assert names(order.tasks(FULL, "mnist/pca/99/0:ridge:32")) == ["mnist/pca/99/0:ridge:0", "mnist/pca/99/0:ridge:32"]
    assert names(order.tasks(FULL, "mnist/pca/99/0:adaptive-ridge:32")) == ["mnist/pca/99/0:adaptive-ridge:32"]
    assert len(order.tasks(FULL, "mnist/pca/99/0:adaptive-*")) == 2 * len(FULL.sigmas)
    everything = names(order.tasks(SMOKE))
    assert names(order.tasks(SMOKE, everything)) == everything


@pytest.mark.parametrize(
    "pattern", ["mnist/*", "digits/pca/9/0:nothing", "digits/pca/9/0:ridge:8", "digits/pca/20/0:ridge:8:0"]
)
def test_a_pattern_that_names_no_cell_is_refused(pattern):
    with pytest.raises(ValueError, match=r"only must name some release or cell, such as digits/pca/9/0:mean:0, got"):
        order.tasks(SMOKE, ["digits/*", pattern])


def test_a_list_of_cells_is_read_back(tmp_path):
    lines = list(forecast.listed(SMOKE, tmp_path / "none"))
    file = tmp_path / "cells.txt"
    file.write_text("\n".join(["", *lines]), encoding="utf-8")
    assert order.read_names(file) == names(order.tasks(SMOKE))
    assert lines[-1].startswith(f"# 0 cells done, {len(order.read_names(file)):,} to do in about ")
    assert not (tmp_path / "none").exists()
    file.write_text("# nothing\n\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"cells must be a file with a name on every line, got .*cells.txt with none"):
        order.read_names(file)


def test_the_command_lists_and_computes_the_cells_that_a_file_names(tmp_path, capsys):
    file, out = tmp_path / "cells.txt", tmp_path / "out"
    common = ["--scale", "smoke", "--out", str(out)]
    command.main(experiment.SWEEP, [*common, "--only", "digits/srp/9/0:mean", "digits/srp/9/1:mean", "--list"])
    text = capsys.readouterr().out
    assert not out.exists()
    file.write_text(text, encoding="utf-8")
    command.main(experiment.SWEEP, [*common, "--cells", str(file)])
    assert [cells.identity(r) for r in attacks_of(out)] == [
        ("digits/srp/9/0", "mean", 0),
        ("digits/srp/9/1", "mean", 0),
    ]
    capsys.readouterr()
    command.main(experiment.SWEEP, [*common, "--cells", str(file), "--list"])
    assert capsys.readouterr().out.count("  done\n") == 2


def test_named_cells_are_computed_and_no_others_and_are_those_of_a_whole_run(tmp_path):
    sweep.run(experiment.SWEEP, ONE, tmp_path / "whole", only=SOME, say=lambda _: None)
    whole = {cells.identity(r): r for r in attacks_of(tmp_path / "whole")}
    assert len(whole) == 3 + 3 + 1

    out = tmp_path / "one"
    sweep.run(experiment.SWEEP, ONE, out, only="digits/pca/20/0:mean:0", say=lambda _: None)
    (mean,) = attacks_of(out)
    np.testing.assert_equal(comparable(mean), comparable(whole["digits/pca/20/0", "mean", 0]))
    sweep.run(experiment.SWEEP, ONE, out, only="digits/pca/20/0:adaptive-ridge:32", say=lambda _: None)
    adaptive = attacks_of(out)[1]
    np.testing.assert_equal(comparable(adaptive), comparable(whole["digits/pca/20/0", "adaptive-ridge", 32]))
    # The rest is computed by a later command, with no cell twice; nothing of the release is kept then.
    said = []
    sweep.run(experiment.SWEEP, ONE, out, only=SOME, say=said.append)
    assert len(said) == len(whole) - 2
    assert not list((out / "work").iterdir())
    assert {cells.identity(r) for r in attacks_of(out)} == whole.keys()
    # Which noises are learned at once changes no more than the rounding of a product.
    for name, record in whole.items():
        again = next(r for r in attacks_of(out) if cells.identity(r) == name)
        assert again["scores"]["mse"]["estimate"] == pytest.approx(record["scores"]["mse"]["estimate"], rel=1e-6)
        assert ("eq12" in again) == ("eq12" in record)


def test_what_is_embedded_is_recorded_once_with_what_it_took(tmp_path):
    sweep.run(
        experiment.SWEEP,
        ONE,
        tmp_path,
        only=[*SOME[:1], SOME[2]],
        options=experiment.Options(keep=True),
        say=lambda _: None,
    )
    stages = [r for r in records.read_records(tmp_path / sweep.RESULTS) if r["kind"] == "stage"]
    plan = ONE.plans[0]
    lanes = {(r["name"], r["sigma"]): r["n_lanes"] for r in stages}
    assert lanes == {
        ("shadows", 0): plan.n_shadow + plan.n_validation,
        ("shadows", 32): plan.n_shadow,
        ("targets", 0): plan.n_targets,
        ("targets", 8): ONE.n_noisy_targets,
        ("targets", 32): ONE.n_noisy_targets,
    }
    assert all(r["n_made"] == r["n_lanes"] and r["seconds"] > 0 for r in stages)
    sweep.run(experiment.SWEEP, ONE, tmp_path, only=SOME[1], say=lambda _: None)
    assert [r for r in records.read_records(tmp_path / sweep.RESULTS) if r["kind"] == "stage"] == stages
    assert set(count_status(np.zeros(1, np.uint32))) <= set(stages[0]["status_counts"])


def test_a_run_ends_before_what_does_not_fit_and_keeps_the_shadows_of_what_it_began(tmp_path, monkeypatch):
    dear = "adaptive-ridge"
    monkeypatch.setitem(expected.SECONDS, "ridge", lambda size: 1e6 if size.t == ONE.n_noisy_targets else 0.01)
    said = []
    left = sweep.run(experiment.SWEEP, ONE, tmp_path, only=SOME, minutes=60, say=said.append).left
    (task,) = (group.cells[0].what for group in left)
    assert task.attack == dear
    assert said[-1].startswith("digits/pca/20/0:adaptive-ridge:32 takes about ")
    assert {r["attack"] for r in attacks_of(tmp_path)} == {"mean", "ridge"}
    assert cells.work_folder(tmp_path, task.release).is_dir()
    ((forecasted, seconds),) = forecast.forecast(ONE, tmp_path, SOME)
    assert forecasted == task
    assert seconds > 3600
    monkeypatch.undo()
    assert sweep.run(experiment.SWEEP, ONE, tmp_path, only=SOME, minutes=60, say=said.append).left == []
    assert not cells.work_folder(tmp_path, task.release).exists()


def test_what_a_machine_took_scales_what_is_expected_of_it_and_of_no_other():
    release = FULL.releases()[0]
    size = expected.n_answers(FULL, release, "ridge", (0,))
    base = expected.of_attack(FULL, release, "ridge", size)
    scores = {"n_targets": size, "seconds_per_target": 3 * base / size}
    record = {"kind": "attack", "release": release.name, "attack": "ridge", "sigma": 0, "scores": scores}
    pace = expected.Pace(FULL)
    pace.take([record])
    assert pace.attack(release, "ridge", size) == pytest.approx(3 * base)
    # Of what was not done yet, by all that was.
    unseen = expected.of_attack(FULL, release, "invariant", size)
    assert pace.attack(release, "invariant", size) == pytest.approx(3 * unseen)
    here = {"cpu": "x", "cores": 2, "device_kind": "cpu", "device_count": 1}
    for there, factor in ((here, 3.0), (here | {"device_kind": "a card"}, 1.0)):
        found = forecast.pace_of(FULL, {}, [record | {"provenance": there}], here)
        assert found.attack(release, "ridge", size) == pytest.approx(factor * base)
    card = expected.Pace(FULL, on_accelerator=True)
    network = expected.of_attack(FULL, release, "network", size)
    assert card.attack(release, "network", size) == pytest.approx(expected.ON_ACCELERATOR * network)
    assert card.attack(release, "ridge", size) == pytest.approx(base)


def test_expected_seconds_are_near_those_of_the_committed_run():
    file = Path(__file__).parents[2] / "experiments/dr_reconstruction/results" / sweep.RESULTS
    cpu = config.SCALES["cpu"]
    releases = {release.name: release for release in cpu.releases()}
    answers, pairs = {}, {}
    for record in records.read_records(file):
        release = releases.get(record.get("release"))
        if record["kind"] == "stage" and record["name"] == cells.ALL_TARGETS and record["repeat"] == 0:
            plan, noisy = cpu.plan(release), cpu.sigmas_of(release)[1:]
            pair = pairs.setdefault(release.method, [0.0, 0.0])
            pair[0] += expected.of_lanes(release, plan.n_shadow + plan.n_validation + plan.n_targets)
            pair[0] += sum(expected.of_lanes(release, cpu.n_noisy_targets, sigma) for sigma in noisy)
            pair[1] += record["seconds"]
        if record["kind"] == "attack" and not record["attack"].startswith(config.ADAPTIVE):
            count, seconds = answers.get((release.name, record["attack"]), (0, 0.0))
            own = record["scores"]["n_targets"]
            taken = own * record["scores"]["seconds_per_target"]
            answers[release.name, record["attack"]] = count + own, seconds + taken
    for (name, attack), (count, seconds) in answers.items():
        pair = pairs.setdefault(attack, [0.0, 0.0])
        pair[0] += expected.of_attack(cpu, releases[name], attack, count)
        pair[1] += seconds
    assert pairs.keys() == {*cpu.methods, *expected.SECONDS}
    for name, (wanted, seconds) in pairs.items():
        assert 1 / 3 < (wanted + 2) / (seconds + 2) < 3, name
    wanted, seconds = map(sum, zip(*pairs.values(), strict=True))
    assert wanted == pytest.approx(seconds, rel=0.3)
