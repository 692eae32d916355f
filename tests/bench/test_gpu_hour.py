"""The hour on a card: what is run, in what order, how it stops and goes on, and the whole of it at toy size."""

import dataclasses
import functools
import tarfile

import jax
import numpy as np
import pytest

from bench.gpu_hour import __main__ as command
from bench.gpu_hour import archive, grid, hour, listing, papers, parity, profiles, registry, steps, suite
from bench.gpu_hour.hour import Hour
from bench.gpu_hour.steps import Cell
from drjax.attacks.reconstruction import reconn
from drjax.core import platforms
from drjax.dr import METHODS, pallas
from drjax.nets.judge import JudgeConfig
from drjax.reports import records
from experiments.informed_adversary import judges

TOY = registry.TOY

CHAOTIC = {name for name, method in METHODS.items() if not method.repeatable}
"""Methods that two devices are compared in the mean by, beside their first steps."""


def cell(name, seconds=10.0, compute=lambda _: {"value": 1}, lacks=lambda: None):
    return Cell(name=name, seconds=seconds, compute=compute, lacks=lacks)


@functools.cache
def full_size(only="*"):
    """The steps that fit a pattern, which take long to count."""
    return registry.all_steps(registry.CARD, only)


def some(*cells, name="some"):
    return steps.step(name, "a", "guess", cells)


def quiet(_):
    pass


class Clock:
    """Seconds that pass when a cell takes some."""

    now = 0.0

    def __call__(self):
        return self.now

    def cell(self, name, seconds):
        def compute(_):
            self.now += seconds
            return {"value": name}

        return cell(name, seconds, compute)


@pytest.fixture(scope="module")
def dry_run(tmp_path_factory):
    """The whole hour at toy size: its folder, its exit status and what it says."""
    out = tmp_path_factory.mktemp("hour") / "out"
    before = jax.config.jax_enable_x64
    with pytest.MonkeyPatch.context() as patch:
        # How well networks learn is tested elsewhere.
        patch.setitem(judges.CONFIGS, "digits", JudgeConfig(epochs=1, batch_size=32))
        patch.setitem(reconn.RECIPES, "fast", dataclasses.replace(reconn.RECIPES["fast"], epochs=3))
        assert command.main(dry_run=True, out=out) == 0
    assert jax.config.jax_enable_x64 == before
    return out


def test_the_dry_run_computes_every_cell_of_every_step(dry_run):
    with Hour(dry_run, TOY) as run:
        wanted = [cell.name for step in registry.all_steps(TOY) for cell in step.cells(run)]
        found = {record["cell"]: record for record in run.records()}
    assert sorted(found) == sorted(wanted)
    assert {record["part"] for record in found.values()} == set(steps.PARTS)
    assert not (dry_run / hour.FAILURES).exists()
    for record in found.values():
        assert record["provenance"]["device_kind"] == jax.devices()[0].device_kind
        assert record["seconds"] > 0
        assert record["expected_s"] > 0


def test_the_dry_run_compares_every_method_entry_and_precision(dry_run):
    with Hour(dry_run, TOY) as run:
        compared = [record for record in run.records() if record["step"].startswith("parity")]
    places = {(record["method"], record["entry"], record["dtype"]) for record in compared}
    wanted = {(name, "float32") for name in METHODS} | {(name, "float64") for name in parity.TOY_FLOAT64}
    assert places == {(name, entry, dtype) for name, dtype in wanted for entry in parity.ENTRIES}
    assert all(record["agrees"] and record["finding"] is None for record in compared)
    assert {record["method"] for record in compared if record["view"] == "first steps"} == CHAOTIC


def test_every_method_entry_and_precision_is_compared_at_full_size():
    names = {c.name for step in registry.all_steps(registry.CARD, "parity/*") for c in step.cells(None)}
    for name in METHODS:
        for entry in parity.ENTRIES:
            for dtype in parity.DTYPES:
                assert f"parity/{name}/{entry}/{dtype}/whole" in names
    first = {name for name in names if name.endswith("/first-steps")}
    assert len(first) == len(CHAOTIC) * len(parity.ENTRIES) * len(parity.DTYPES)
    assert {name.split("/")[1] for name in first} == CHAOTIC


def test_the_dry_run_says_of_every_engine_what_it_took_or_why_not(dry_run):
    with Hour(dry_run, TOY) as run:
        rows = [row for record in run.records() for row in record.get("rows", ()) if "method" in row]
    for method in ("pca", "mds"):
        own = {row["name"]: row for row in rows if row["method"] == method}
        assert {"drjax", "naive", f"torchdr/{method}"} < set(own)
        assert own["drjax"]["naive"] == own["naive"]["ms_per_shadow"] > 0
        for row in own.values():
            assert "skipped" in row or row["ms_per_shadow"] > 0
    skipped = {row["name"]: row["skipped"] for row in rows if "skipped" in row}
    assert skipped["torchdr/mds"] == "TorchDR has no such method"


def test_the_dry_run_profiles_two_methods_and_hands_the_traces_on(dry_run):
    with Hour(dry_run, TOY) as run:
        found = [record for record in run.records() if record["step"] == "profiles"]
    assert len(found) == profiles.COUNT
    for record in found:
        assert record["kernels"]
        shares = [kernel["share"] for kernel in record["kernels"]]
        assert sorted(shares, reverse=True) == shares
        assert 0 < sum(shares) < 1 + 1e-9
        with tarfile.open(dry_run / record["file"]) as packed:
            assert [member.name.endswith(".xplane.pb") for member in packed] == [True]


def test_the_dry_run_leaves_cells_of_every_experiment(dry_run):
    for folder in papers.KEPT.keys() - {"informed_adversary-cpu"}:
        found = records.read_records(dry_run / papers.FOLDER / folder / "results.jsonl")
        assert sum(line["kind"] == "attack" for line in found) > 0


def test_what_came_back_of_a_run_is_not_computed_again(dry_run, tmp_path, capsys):
    back = tmp_path / "back"
    archive.pack(dry_run, back)
    assert all(file.name.startswith(("cells-", "profile-")) for file in back.iterdir())
    assert command.main(dry_run=True, out=tmp_path / "out", done=(back,)) == 0
    assert "0 cells computed" in capsys.readouterr().out
    assert command.main(dry_run=True, done=(back,), list_=True) == 0
    totals = [line.split()[-2:] for line in capsys.readouterr().out.splitlines() if line.startswith("total")]
    assert totals == [["0", "0.0"]] * (len(steps.PARTS) + 1)


def test_a_run_begins_nothing_that_does_not_fit_and_says_so(tmp_path):
    clock, said = Clock(), []
    with Hour(tmp_path, TOY) as run:
        cells = [clock.cell("a", 50.0), clock.cell("b", 90.0), clock.cell("c", 60.0), clock.cell("d", 5.0)]
        outcome = hour.run(run, [some(*cells)], minutes=2.0, say=said.append, clock=clock)
    assert outcome.computed == ["a", "c", "d"]
    assert outcome.unfit == {"b": 90.0}
    assert "b is not begun: 90 s are expected, 70 s are left" in said
    assert "1 not begun for lack of time; the first is b (90 s)" in outcome.summary()


def test_a_run_goes_on_where_one_ended(tmp_path):
    clock = Clock()
    cells = [clock.cell(name, 50.0) for name in "abc"]
    with Hour(tmp_path, TOY) as run:
        hour.run(run, [some(*cells)], minutes=1.0, say=quiet, clock=clock)
    with Hour(tmp_path, TOY) as run:
        outcome = hour.run(run, [some(*cells)], say=quiet, clock=clock)
    assert (outcome.kept, outcome.computed) == (["a"], ["b", "c"])
    lines = records.read_records(tmp_path / hour.RECORDS)
    assert [line["cell"] for line in lines[1:]] == ["a", "b", "c"]


def test_a_cell_that_fails_is_kept_apart_and_tried_again(tmp_path):
    def fail(_):
        jax.config.update("jax_enable_x64", not before)
        raise RuntimeError("out of\nmemory")

    before = jax.config.jax_enable_x64
    with Hour(tmp_path, TOY) as run:
        outcome = hour.run(run, [some(cell("bad/1", compute=fail), cell("good"))], say=quiet)
        assert outcome.failed == {"bad/1": "RuntimeError: out of memory"}
        assert outcome.computed == ["good"]
        assert jax.config.jax_enable_x64 == before
        trace = run.failure_file("bad/1")
        assert "Traceback" in trace.read_text()
        assert hour.run(run, [some(cell("bad/1"))], say=quiet).computed == ["bad/1"]
        assert not trace.exists()


def test_a_cell_whose_needs_are_not_here_is_named(tmp_path):
    with Hour(tmp_path, TOY) as run:
        outcome = hour.run(run, [some(cell("x", lacks=lambda: "the files of mnist"))], say=quiet)
    assert outcome.summary() == ["0 cells computed, 0 done before", "needs: x: the files of mnist"]


def test_findings_are_told_again_by_a_run_that_has_them_from_before(tmp_path):
    step = some(cell("x", compute=lambda _: {"finding": "differs"}))
    for _ in range(2):
        with Hour(tmp_path, TOY) as run:
            assert hour.run(run, [step], say=quiet).findings == {"x": "differs"}


def test_a_kill_loses_at_most_one_cell_of_what_is_packed(tmp_path):
    class Killed(BaseException):
        pass

    def kill(_):
        raise Killed

    out, back = tmp_path / "out", tmp_path / "back"
    with Hour(out, TOY) as run, pytest.raises(Killed):
        hour.run(run, [some(cell("a"), cell("b"), cell("c", compute=kill))], pack=back, say=quiet)
    with Hour(tmp_path / "next", TOY, done=[back]) as run:
        assert hour.run(run, [some(cell("a"), cell("b"), cell("c"))], say=quiet).kept == ["a", "b"]


def test_archives_stay_small_and_hold_what_is_below_a_folder(tmp_path, monkeypatch):
    out, back = tmp_path / "out", tmp_path / "back"
    with Hour(out, TOY) as run:
        hour.run(run, [some(*(cell(f"c{i}", compute=lambda _: {"text": "x" * 400}) for i in range(5)))], say=quiet)
    (out / "experiments" / "e" / "examples").mkdir(parents=True)
    records.save_arrays(out / "experiments" / "e" / "examples" / "x.npz", x=np.ones(3))
    (out / "experiments" / "e" / "work").mkdir()
    (out / "experiments" / "e" / "work" / "large.npz").write_bytes(b"0" * 5000)
    sizes = [(out / member).stat().st_size for member in archive.members(out)]
    monkeypatch.setattr(archive, "PART_BYTES", max(sizes) + min(sizes))
    written = archive.pack(out, back)
    assert len(written) > 2
    archive.take_over(back, tmp_path / "again")
    assert archive.members(tmp_path / "again") == archive.members(out)
    assert not (tmp_path / "again" / "experiments" / "e" / "work").exists()
    # Fewer parts than before leave none of the old ones.
    monkeypatch.undo()
    assert len(archive.pack(out, back)) == len(list(back.iterdir())) == 1


def test_an_archive_that_would_write_elsewhere_is_refused(tmp_path):
    (tmp_path / "outside").write_text("x")
    (tmp_path / "back").mkdir()
    with tarfile.open(tmp_path / "back" / "cells-01.tar.gz", "w:gz") as packed:
        packed.add(tmp_path / "outside", arcname="../outside")
    with pytest.raises(ValueError, match=r"plain files below its folder, got \.\./outside"):
        archive.take_over(tmp_path / "back", tmp_path / "out")


def test_results_of_another_scale_and_folders_without_any_are_refused(tmp_path):
    with Hour(tmp_path / "card", registry.CARD):
        pass
    with pytest.raises(ValueError, match="same configuration"):
        Hour(tmp_path / "card", TOY)
    with Hour(tmp_path / "toy", TOY), pytest.raises(ValueError, match="of the scale of out"):
        Hour(tmp_path / "toy", TOY, done=[tmp_path / "card"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="cells of an earlier run"):
        Hour(tmp_path / "x", TOY, done=[tmp_path / "empty"])


def test_no_step_at_full_size_is_expected_to_take_more_than_eight_minutes():
    found = full_size()
    assert len({step.name for step in found}) == len(found)
    assert [step.part for step in found] == sorted(step.part for step in found)
    assert max(step.seconds for step in found) <= steps.STEP_SECONDS == 8 * 60
    with pytest.raises(ValueError, match="at most 480, got 481"):
        list(steps.cut("long", "a", "guess", [cell("x", 481.0)]))


def test_names_of_cells_are_unique_at_full_size():
    names = [c.name for step in full_size() if step.part != "c" for c in step.cells(None)]
    assert len(set(names)) == len(names)


def test_cells_are_cut_into_steps_in_their_order():
    cells = [cell(str(i), seconds) for i, seconds in enumerate((200, 200, 200, 400, 100))]
    found = list(steps.cut("x", "a", "guess", cells))
    assert [(step.name, step.count, step.seconds) for step in found] == [
        ("x/01", 2, 400),
        ("x/02", 1, 200),
        ("x/03", 1, 400),
        ("x/04", 1, 100),
    ]
    assert [c.name for step in found for c in step.cells(None)] == list("01234")


def test_the_first_repeat_of_figure_2_comes_before_the_second():
    cells = [c.name for step in registry.all_steps(registry.CARD, "figure2/*") for c in step.cells(None)]
    assert len(cells) == 5 * 5 * 6 * 2
    repeats = [int(name.split(":")[0].rpartition("/")[2]) for name in cells]
    assert repeats == sorted(repeats)
    first = {tuple(name.split("/")[2:4]) for name in cells[:60]}
    assert len(first) == 5 * 6  # every method at every size


def test_xrays_are_attacked_by_both_networks_with_999_known():
    cells = [c.name for step in registry.all_steps(registry.CARD, "x-rays/*") for c in step.cells(None)]
    assert len(cells) == 5 * 6 * 2
    assert all(name.startswith("reconstruction/cxr_mednist/") and "/999/" in name for name in cells)


def test_what_is_committed_is_not_run_again():
    cells = [c.name for step in registry.all_steps(registry.CARD, "densenet/*") for c in step.cells(None)]
    assert cells[0] == "plots/main/utkface:male/0/densenet/regression"
    # Its classes were computed on an H100.
    assert "plots/main/utkface:male/0/densenet/classification" not in cells
    assert any(name.startswith("plots/coordinates/utkface:male/0/densenet/") for name in cells)


def test_the_largest_number_of_shadow_models_is_that_of_the_paper():
    found = [c.name for step in registry.all_steps(registry.CARD, "59000-shadows/*") for c in step.cells(None)]
    assert found[0] == "models/paper/shadows/59000 shadows/learned"


def test_patterns_choose_steps_and_parts():
    assert {step.part for step in registry.all_steps(TOY, "b")} == {"b"}
    for only in ("tests", "tests/*"):
        assert {step.name.split("/")[0] for step in registry.all_steps(TOY, only)} == {"tests"}
    assert [step.name for step in full_size("grid/0[12]")] == ["grid/01", "grid/02"]
    with pytest.raises(ValueError, match=r"only must fit a step of parity, tests, grid.*got 'gird'"):
        registry.all_steps(TOY, "gird")


def test_the_list_says_what_is_not_on_this_machine(tmp_path, monkeypatch):
    monkeypatch.setenv(papers.DATA_VARIABLE, str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with Hour(tmp_path / "hour", registry.CARD) as run:
        lines = listing.lines(full_size(), run)
    missing = "\n".join(line for line in lines if line.startswith("not here"))
    for name in ("mnist", "cxr_mednist", "mnist, cifar10", "efficientnet_lite0.onnx"):
        assert name in missing


def test_the_list_adds_up(tmp_path):
    found = full_size()
    with Hour(tmp_path / "none", registry.CARD) as run:
        lines, each = (listing.lines(found, run, each=each) for each in (False, True))
    needed = [line for line in lines if line.startswith("not here")]
    sums = {line.split("  ")[0]: line.split()[-3:] for line in lines if line.startswith("total")}
    total = sum(step.seconds for step in found) / 60
    assert float(sums["total"][-1]) == pytest.approx(total, abs=0.06)
    assert int(sums["total"][0]) == len(found)
    parts = [float(sums[f"total of part {part}"][-1]) for part in steps.PARTS]
    assert sum(parts) == pytest.approx(total, abs=0.3)
    assert len(each) == 1 + len(found) + 2 * len(steps.PARTS) + 1 + len(needed)
    with Hour(tmp_path / "begun", registry.CARD) as run:
        step = found[0]
        first = step.cells(run)[0]
        run.keep(step, first, 1.0, {})
        assert hour.left(run, step) == (step.count - 1, step.seconds - first.seconds)


def test_the_worst_are_those_least_ahead_of_the_best_other_engine():
    def row(method, n, threat_model="none", **speedup):
        return {"name": "drjax", "method": method, "n": n, "threat_model": threat_model, "speedup": speedup}

    rows = [
        row("pca", 200, naive=5.0, sklearn=33.0),
        row("tsne", 200, naive=9.0, sklearn=142.0),
        row("tsne", 1000, naive=0.6, sklearn=16.0),
        row("srp", 200, "seed known", sklearn=0.08),
        row("mds", 200, naive=2.0),
        {"name": "naive", "method": "pca", "n": 200},
    ]
    assert profiles.worst(rows) == [("tsne", "none", 1000), ("mds", "none", 200), ("pca", "none", 200)]


def test_profiles_wait_for_the_grid_and_keep_what_was_profiled(tmp_path):
    with Hour(tmp_path, TOY) as run:
        (step,) = profiles.steps(TOY)
        assert step.cells(run) == []
        said = []
        hour.run(run, [step], say=said.append)
        assert said == ["profiles: nothing, its cells follow from results that are not there"]


def test_a_kernel_that_differs_is_a_finding():
    rng = np.random.default_rng(0)
    known, targets = rng.normal(size=(19, 4)), rng.normal(size=(6, 4))
    coords = rng.normal(size=(6, 20, 2))
    here = parity.Embedding(coords, np.ones(6), np.ones(6), np.zeros(6, np.uint32), None)
    moved = here._replace(coords=coords + 1e-3)
    for found, wrong in ((here, []), (moved, [False])):
        facts = parity._in_coordinates("pca", "float32", known, targets, found, here)
        assert [agrees for _, agrees in facts["checks"] if not agrees] == wrong
    worse = here._replace(objective=np.full(6, 2.0))
    lost = here._replace(objective=np.full(6, np.nan))
    for found, wrong in ((here, 0), (worse, 1), (lost, 1)):
        facts = parity._in_the_mean("tsne", "float32", known, targets, found, here)
        assert sum(not agrees for _, agrees in facts["checks"]) == wrong


def test_the_comparison_tells_the_two_engines_of_a_method_apart(monkeypatch):
    """XLA's engine, which an accelerator would run, against the compiled loop of the CPU."""
    known, targets = parity._records((20, 6, 3), "float32", 0)
    device = jax.devices()[0]
    there = parity._embedded(METHODS["mds"](), "insert_batch", known, targets, device)
    monkeypatch.setattr(platforms, "by_platform", lambda *args, default, **_: default(*args))
    jax.clear_caches()
    here = parity._embedded(METHODS["mds"](), "insert_batch", known, targets, device)
    jax.clear_caches()
    facts = parity._in_coordinates("mds", "float32", known, targets, here, there)
    assert 0 < facts["apart"] <= facts["limit"]
    assert all(agrees for _, agrees in facts["checks"])


def test_marked_tests_are_found_and_their_failures_are_findings(tmp_path):
    files = suite.marked()
    assert suite.CHEAPEST in files
    assert "tests/dr/test_pallas.py" in files
    assert "tests/bench/test_gpu_hour.py" not in files
    report = tmp_path / "report.xml"
    report.write_text(
        '<testsuites><testsuite><testcase name="a"/><testcase name="b"><failure message="1 != 2"/></testcase>'
        '<testcase name="c"><skipped message="no card"/></testcase></testsuite></testsuites>'
    )
    found = suite._outcome(report, "tests/x.py")
    assert (found["tests"], found["skipped"], found["failures"]) == (3, 1, {"b": "1 != 2"})
    assert found["finding"] == "1 of 3 tests failed, the first is b"


def test_programs_with_pallas_kernels_are_not_those_without(monkeypatch):
    forgotten = []
    monkeypatch.setattr(jax, "clear_caches", lambda: forgotten.append(pallas.is_enabled()))
    monkeypatch.delenv(pallas.VARIABLE, raising=False)
    with grid._kernels(True):
        assert pallas.is_enabled()
    assert not pallas.is_enabled()
    assert forgotten == [True, False]
    names = [cell.name for step in full_size("grid") for cell in step.cells(None)]
    assert "grid/tsne/seed-unknown/200/pallas" in names[:8]
    assert "grid/tsne/seed-unknown/200" in names
