"""What every experiment is promised: cells that are computed once, kept through kills, and put together."""

import dataclasses
import functools
import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import pytest

from drjax.data import load
from drjax.reports import records
from experiments import cells, command, merging, sweep
from experiments.best_attacks import run as best_attacks
from experiments.cells import Cell, Group, LeftOut
from experiments.dr_reconstruction import run as dr_reconstruction
from experiments.equivalence import run as equivalence
from experiments.informed_adversary import run as informed_adversary
from experiments.intervals import run as intervals
from experiments.leak_vs_n import run as leak_vs_n
from experiments.pages import run as pages
from experiments.pca_closed_form import run as pca_closed_form
from experiments.pca_gauss import run as pca_gauss
from experiments.pca_membership import norms, private
from experiments.pca_membership import run as pca_membership
from experiments.pipelines import run as pipelines
from experiments.plot_styles import run as plot_styles
from experiments.private_embeddings import run as private_embeddings
from experiments.tsne_property import run as tsne_property
from tests.experiments import toy_sweep

MERGED_EARLIER = Path(__file__).parents[2] / "experiments/tsne_property/results/results.jsonl"
COMMITTED = sorted(Path(__file__).parents[2].glob("experiments/*/results/**/*.jsonl"))
EXPERIMENTS = (best_attacks, dr_reconstruction, equivalence, informed_adversary, pca_closed_form, pca_gauss, private)
EXPERIMENTS = (*EXPERIMENTS, intervals, leak_vs_n, norms, pca_membership, pipelines, plot_styles)
EXPERIMENTS = (*EXPERIMENTS, pages, private_embeddings, tsne_property)


@dataclasses.dataclass(frozen=True)
class Config:
    names: tuple[str, ...] = ("a", "b")
    sizes: tuple[int, ...] = (9, 50, 200)
    seed: int = 0


@dataclasses.dataclass(frozen=True)
class Options:
    """Further options.

    Attributes:
        absent: Names that are not here.
    """

    absent: tuple[str, ...] = ()


class Killed(Exception):
    """Ends a run as a kill does."""


def toy(seen=None, *, kill_at=None, seconds=None, **options):
    """Squares of sizes by name; what is computed goes into `seen`."""
    seen = [] if seen is None else seen

    def compute(asked, missing):
        for cell in missing:
            if cell.path == kill_at:
                raise Killed
            if cell.fields["of"] in asked.options.absent:
                yield cell, LeftOut("it is not here")
                continue
            seen.append(cell.path)
            yield cell, {"value": cell.fields["n"] ** 2}
            # The next is asked for when the line is on the disk.
            assert records.find_record(asked.out / sweep.RESULTS, "attack", cell.name)

    def groups(asked):
        for i, name in enumerate(asked.config.names):
            own = [
                Cell(
                    path=f"{name}/{n}",
                    name=sweep.cell_name(i, n, name),
                    identity=(name, n),
                    fields={"of": name, "n": n},
                )
                for n in asked.config.sizes
            ]
            yield Group(cells=tuple(own), compute=functools.partial(compute, asked), seconds=seconds)

    fields = {
        "name": "toy",
        "about": "Squares.",
        "scales": {"cpu": Config(), "smoke": Config(sizes=(9,))},
        "groups": groups,
        "sources": lambda *_: load("digits"),
        "identity": lambda line: (line["of"], line["n"]),
        "said": lambda line: f"{line['of']}/{line['n']} is {line['value']}",
        "options": Options(),
    }
    return sweep.Sweep(**fields | options)


ALL = ["a/9", "a/50", "a/200", "b/9", "b/50", "b/200"]


def run(out, one=None, config=Config(), say=lambda _: None, **options):
    return sweep.run(one or toy(), config, out, say=say, **options)


def values(lines):
    return [(line["of"], line["n"], line["value"]) for line in lines[1:]]


@pytest.mark.parametrize("file", COMMITTED, ids=lambda file: file.as_posix().split("/experiments/")[-1])
def test_committed_results_are_read_and_gone_on_with_and_stay_as_they_are(file, tmp_path):
    own = tmp_path / file.name
    shutil.copy(file, own)
    found = records.read_records(own)
    assert len(found) == len(file.read_bytes().splitlines())
    records.put_record(own, "attack", "new", i=7)
    assert records.gather_records(own) == [*found, {"schema": 1, "kind": "attack", "i": 7}]
    assert own.read_bytes().startswith(file.read_bytes())


def test_every_committed_line_has_the_identity_of_a_cell_and_no_two_have_the_same():
    by_name = {(module.SWEEP.name, module.SWEEP.results): module.SWEEP for module in EXPERIMENTS}
    for file in COMMITTED:
        name = file.as_posix().split("/experiments/")[1].split("/")[0]
        lines = records.read_records(file)[1:]
        assert len({by_name[name, file.name].identity(line) for line in lines}) == len(lines), file


PRESENT = (equivalence, pca_closed_form, norms, pca_gauss, pca_membership, private, private_embeddings)


@pytest.mark.parametrize("module", PRESENT, ids=lambda m: m.__name__)
def test_a_committed_run_at_a_present_scale_is_done(module, tmp_path):
    one = module.SWEEP
    file = Path(module.__file__).parent / "results" / one.results
    shutil.copy(file, tmp_path / one.results)
    assert one.done(one.asked(one.scales["cpu"], tmp_path)) == {
        one.identity(line) for line in records.read_records(file)[1:]
    }


def test_a_committed_file_is_done_and_its_configuration_checked(tmp_path):
    file, data = tmp_path / "results.jsonl", load("digits")
    head = {"schema": 1, "kind": "run", "fingerprint": records.config_fingerprint(Config())}
    lines = [head, {"schema": 1, "kind": "attack", "of": "a", "n": 9, "value": -1}]
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert sweep.take_up(file, Config(), data) == lines
    seen = []
    assert values(run(tmp_path, toy(seen)).lines)[0] == ("a", 9, -1)
    assert seen == ALL[1:]
    before = records.gather_records(file)
    with pytest.raises(ValueError, match="out must be a new folder or one of the same configuration"):
        run(tmp_path, config=Config(seed=1))
    assert records.gather_records(file) == before


def test_a_run_of_an_earlier_version_that_wrote_its_configuration_alone_is_taken_up(tmp_path):
    file = tmp_path / "results.jsonl"
    file.write_bytes(records.encoded_line({"schema": 1, "kind": "run", "config": Config()}))
    assert len(sweep.found(file, Config())) == 1
    with pytest.raises(ValueError, match="of another"):
        sweep.found(file, Config(seed=1))


def test_a_kill_before_the_first_line_was_whole_does_not_stop_the_next_run(tmp_path):
    file, data = tmp_path / "results.jsonl", load("digits")
    file.write_bytes(b'{"schema": 1, "ki')
    (tmp_path / ".results.jsonl.999999999.tmp").touch()
    (head,) = sweep.take_up(file, Config(), data)
    assert head["fingerprint"] == records.config_fingerprint(Config())
    assert records.gather_records(file) == [head]
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["results.cells", "results.jsonl"]


def test_a_killed_run_goes_on_with_what_is_missing_and_a_finished_one_computes_nothing(tmp_path):
    whole = run(tmp_path / "whole").lines
    with pytest.raises(Killed):
        run(tmp_path / "cut", toy(kill_at="a/200"))
    # A kill leaves cells and no file of all.
    assert not (tmp_path / "cut" / sweep.RESULTS).exists()
    seen, said = [], []
    found = run(tmp_path / "cut", toy(seen), say=said.append).lines
    assert seen == ALL[2:]
    assert said == ["a/200 is 40000", "b/9 is 81", "b/50 is 2500", "b/200 is 40000"]
    assert values(found) == values(whole) == [(p[0], int(p[2:]), int(p[2:]) ** 2) for p in ALL]
    before = (tmp_path / "cut" / sweep.RESULTS).read_bytes()
    again = []
    run(tmp_path / "cut", toy(again))
    assert again == []
    assert (tmp_path / "cut" / sweep.RESULTS).read_bytes() == before


def test_processes_that_begin_at_once_have_one_first_line_and_every_cell_once(tmp_path):
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: run(tmp_path).lines, range(4)))
    assert len({json.dumps(lines[0]) for lines in found}) == 1
    lines = records.gather_records(tmp_path / sweep.RESULTS)
    assert values(lines) == values(found[0])
    assert len(lines) == 1 + len(ALL)


def test_of_two_processes_that_compute_a_cell_the_first_one_s_line_stays(tmp_path):
    def groups(asked):
        for group in toy().groups(asked):
            yield dataclasses.replace(group, compute=functools.partial(late, group))

    def late(group, missing):
        for cell, facts in group.compute(missing):
            records.put_record(tmp_path / sweep.RESULTS, cell.kind, cell.name, **cell.fields, value=-1)
            yield cell, facts

    said = []
    lines = run(tmp_path, dataclasses.replace(toy(), groups=groups), say=said.append, only="a/9").lines
    assert said == ["a/9 is -1"]
    assert values(lines) == [("a", 9, -1)]


def test_every_line_says_where_it_was_computed(tmp_path):
    head, *lines = run(tmp_path).lines
    assert head["provenance"]["seed"] == 0
    assert head["config"] == records.to_json(Config())
    for line in lines:
        assert line["provenance"].keys() == merging.origin({}).keys()
        assert line["provenance"]["device_kind"] == jax.devices()[0].device_kind


def test_patterns_choose_cells_and_one_that_fits_none_is_refused_before_anything_is_written(tmp_path):
    for only in ("*/50", ["a/50", "b/5*"]):
        seen = []
        run(tmp_path / str(len(only)), toy(seen), only=only)
        assert seen == ["a/50", "b/50"]
    with pytest.raises(ValueError, match="only must fit some cell, such as 'a/9', got 'c/'"):
        run(tmp_path / "none", only=["a/9", "c/"])
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("n", [1, 2, 4, 7])
def test_parts_are_disjoint_and_complete_and_share_a_folder(n, tmp_path):
    seen = []
    for i in range(n, 0, -1):
        run(tmp_path, toy(seen), part=f"{i}/{n}")
    assert sorted(seen) == sorted(ALL)
    assert values(records.read_records(tmp_path / sweep.RESULTS)) == values(run(tmp_path / "whole").lines)
    # Whatever is done, a part is the same.
    one = toy()
    parts = [one.chosen(one.asked(Config(), tmp_path), f"{i}/{n}") for i in range(1, n + 1)]
    assert sorted(cell.path for part in parts for group in part for cell in group.cells) == sorted(ALL)


def test_a_part_has_all_cells_of_a_group_that_is_whole_or_none():
    def group(*paths, is_whole):
        own = tuple(Cell(path=path, name=path, identity=path, fields={}) for path in paths)
        return Group(cells=own, compute=lambda _: iter(()), is_whole=is_whole)

    groups = [group("a", "b", is_whole=True), group("c", "d", is_whole=False), group("e", "f", is_whole=True)]
    parts = [[cell.path for group in cells.shared(groups, i, 2) for cell in group.cells] for i in (1, 2)]
    assert parts == [["a", "b", "d"], ["c", "e", "f"]]


@pytest.mark.parametrize("part", ["0/2", "3/2", "1", "1/0", "a/b", "-1/2"])
def test_a_part_that_there_is_not_is_refused(part, tmp_path):
    with pytest.raises(ValueError, match="part must be"):
        run(tmp_path / "out", part=part)
    assert not (tmp_path / "out").exists()


def test_a_run_begins_nothing_that_does_not_fit_and_ends_between_two_cells(tmp_path, monkeypatch):
    said = []
    left = run(tmp_path, toy(seconds=lambda: 61.0), minutes=1, say=said.append).left
    assert [[cell.path for cell in group.cells] for group in left] == [ALL[:3], ALL[3:]]
    assert said == ["a/9 takes about 1.0 min: not begun"]
    # Nobody knows how long: the time is over after the second cell.
    times = iter([0.0, 0.0, 30.0, 61.0, 61.0])
    monkeypatch.setattr(sweep.time, "monotonic", lambda: next(times))
    seen = []
    left = run(tmp_path, toy(seen), minutes=1).left
    assert seen == ALL[:2]
    assert len(left) == 2
    monkeypatch.undo()
    assert run(tmp_path, toy(seen), minutes=1).left == []
    assert seen == ALL
    with pytest.raises(ValueError, match="minutes must be > 0, got 0"):
        run(tmp_path, minutes=0)


def test_what_cannot_be_computed_here_is_told_and_stays_to_do(tmp_path):
    said, seen = [], []
    run(tmp_path, toy(), options=Options(absent=("b",)), say=said.append)
    assert said[3:] == [f"{path}: left out, it is not here" for path in ALL[3:]]
    run(tmp_path, toy(seen))
    assert seen == ALL[3:]


def test_names_of_cells_sort_as_numbers_do():
    names = [sweep.cell_name(i, n, "a") for i in (0, 2, 10) for n in (50, 200, 10_000)]
    assert names == sorted(names)


def test_merged_parts_are_the_whole_and_merging_again_changes_nothing(tmp_path):
    one = toy(place=lambda head, line: (head["config"]["names"].index(line["of"]), line["n"]))
    parts = [tmp_path / str(i) for i in (1, 2, 3)]
    for i, part in enumerate(parts, start=1):
        run(part, part=f"{i}/3")
    assert sweep.merge(one, parts[::-1], tmp_path / "all") == len(ALL)
    file = tmp_path / "all" / sweep.RESULTS
    assert values(records.read_records(file)) == values(run(tmp_path / "whole").lines)
    once = file.read_bytes()
    for again in ([tmp_path / "all"], [tmp_path / "all", *parts]):
        sweep.merge(one, again, tmp_path / "all")
        assert file.read_bytes() == once
    # A run goes on with the whole, and a folder with cells of its own is not written over.
    seen = []
    run(tmp_path / "all", toy(seen))
    assert seen == []
    with pytest.raises(ValueError, match="out must be a folder without results of its own"):
        sweep.merge(one, parts, parts[0])


def part_of(folder, device, of, *, fingerprint="one", **own):
    """A file of results of one machine: cells by name and value."""
    utc = "2026-01-01T00:00:00+00:00"
    provenance = {"commit": f"of {device}", "dirty": False, "device_kind": device, "utc": utc, "versions": {"jax": "1"}}
    head = {"schema": 1, "kind": "run", "fingerprint": fingerprint, "provenance": provenance}
    lines = [{"schema": 1, "kind": "attack", "cell": name, "value": value, **own} for name, value in of.items()]
    file = folder / "results.jsonl"
    merging.write([head, *lines], file)
    return file


def by_cell(line):
    return line["cell"]


def test_every_merged_line_says_where_it_was_computed_and_the_first_part_decides(tmp_path):
    mine = part_of(tmp_path / "mine", "cpu", {"a": 1, "b": 2})
    theirs = part_of(tmp_path / "theirs", "a card", {"b": 20, "c": 3})
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
    merging.merge([part_of(tmp_path / "own", "cpu", {"d": 4}, provenance=own)], out, by_cell)
    assert records.read_records(out)[1]["provenance"] == own
    assert lines[2]["provenance"]["jax"] == "1"


def test_merging_into_a_part_and_in_another_order_keeps_what_is_there(tmp_path):
    mine = part_of(tmp_path / "mine", "cpu", {"a": 1, "b": 2})
    theirs = part_of(tmp_path / "theirs", "a card", {"b": 20, "c": 3})
    out = tmp_path / "out.jsonl"
    merging.merge([mine, theirs], out, by_cell)
    once = out.read_bytes()
    for parts in ([out], [out, theirs], [out, mine, theirs], [mine, theirs, out]):
        merging.merge(parts, out, by_cell)
        assert out.read_bytes() == once


def test_parts_of_another_configuration_or_without_results_are_refused_and_nothing_is_written(tmp_path):
    one = part_of(tmp_path / "1", "cpu", {"a": 1})
    other = part_of(tmp_path / "2", "cpu", {"b": 1}, fingerprint="other")
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


def test_what_folders_have_beside_lines_is_read_before_and_written_after_merging(tmp_path):
    run(tmp_path / "one")
    written = []

    def beside(parts):
        return lambda out: written.append((list(parts), out, (out / sweep.RESULTS).exists()))

    sweep.merge(toy(beside=beside), [tmp_path / "one"], tmp_path / "all")
    assert written == [([tmp_path / "one"], tmp_path / "all", True)]
    with pytest.raises(FileNotFoundError):
        sweep.merge(toy(beside=beside), [tmp_path / "none"], tmp_path / "all")
    assert len(written) == 1


def test_the_command_lists_computes_merges_and_reports(tmp_path, capsys):
    seen = []
    one = toy(seen, report=lambda out, config: f"{len(config.sizes)} sizes in {out.name}", plain="cpu")

    def told(*words):
        command.main(one, [*words])
        return capsys.readouterr().out.splitlines()

    out = ["--out", str(tmp_path / "out")]
    assert told(*out, "--list", "--only", "a/*", "--part", "1/3")[-1] == "# 0 cells done, 1 to do"
    assert not (tmp_path / "out").exists()
    assert told(*out, "--only", "a/*", "b/9", "--absent", "b") == [
        "a/9 is 81",
        "a/50 is 2500",
        "a/200 is 40000",
        "b/9: left out, it is not here",
        "3 sizes in out",
    ]
    assert [line.split()[1:] for line in told(*out, "--list")] == [
        *[["done"]] * 3,
        *[["to", "do"]] * 3,
        ["3", "cells", "done,", "3", "to", "do"],
    ]
    assert told("--merge", str(tmp_path / "out"), "--out", str(tmp_path / "all")) == ["3 lines"]
    assert "2 cells did not fit" not in told(*out, "--minutes", "60", "--only", "b/9")
    with pytest.raises(ValueError, match="scale must be one of cpu, smoke"):
        told("--scale", "huge")
    assert command.folder_of(one, "cpu") == Path("runs/toy")
    assert command.folder_of(one, "smoke") == Path("runs/toy-smoke")


def test_the_command_prints_what_the_paper_says_and_whether_it_holds(tmp_path, capsys):
    def claims(lines):
        return [sweep.Claim(claim="a | b", paper="> 2", ours=f"{len(lines) - 1}", verdict="holds", note="on a")]

    out = ["--out", str(tmp_path), "--claims"]
    with pytest.raises(ValueError, match="out must hold results"):
        command.main(toy(claims=claims), out)
    run(tmp_path)
    command.main(toy(claims=claims), out)
    assert capsys.readouterr().out.splitlines()[2] == r"| a \| b | > 2 | 6 | holds | on a |"
    with pytest.raises(ValueError, match="claims must be asked of an experiment that tests some, got toy"):
        command.main(toy(), out)


def test_options_that_are_the_configuration_change_that_of_a_scale():
    configured = command.overriding(Config())
    small = Config(sizes=(9,))
    assert configured(small, Config()) == small
    assert configured(small, Config(seed=3)) == Config(sizes=(9,), seed=3)


@pytest.mark.parametrize("module", EXPERIMENTS, ids=lambda module: module.__name__.split(".", 1)[1])
def test_every_experiment_has_the_same_command_and_cells_with_names_of_their_own(module, tmp_path, capsys):
    one = module.SWEEP
    with pytest.raises(SystemExit):
        command.main(one, ["--help"])
    text = capsys.readouterr().out
    for option in ("--scale", "--only", "--part", "--minutes", "--list", "--merge", "--out"):
        assert option in text
    scale = "smoke" if "smoke" in one.scales else one.scale
    found = [cell for group in one.chosen(one.asked(one.scales[scale], tmp_path)) for cell in group.cells]
    by_identity = {cell.identity: cell for cell in found}
    # A cell may be in two parts of an experiment.
    assert len({(cell.kind, cell.name) for cell in by_identity.values()}) == len(by_identity)
    for cell in found[:1]:
        command.main(one, ["--scale", scale, "--out", str(tmp_path / "none"), "--list", "--only", cell.path])
        assert "to do" in capsys.readouterr().out
    assert not (tmp_path / "none").exists()


def test_workers_compute_what_one_process_does_though_one_dies(tmp_path):
    alone = sweep.run(toy_sweep.SWEEP, toy_sweep.Config(), tmp_path / "alone", say=lambda _: None)
    said, config = [], toy_sweep.Config(deadly="a/1")
    asked = {"executor": "local", "workers": 2, "say": said.append}
    spread = sweep.run(toy_sweep.SWEEP, config, tmp_path / "spread", **asked)
    assert (tmp_path / "spread/died-1").exists()
    assert not spread.left
    facts = [[(line["of"], line["i"], line["value"]) for line in found.lines[1:]] for found in (alone, spread)]
    assert facts[0] == facts[1]
    # The cell before the kill was kept, and is neither computed nor said again.
    assert sorted(said) == ["[c]*/0", "[c]*/1", "a/1", "b/0", "b/1"]
    processes = {(line["of"], line["i"]): line["process"] for line in spread.lines[1:]}
    assert processes["a", 1] == processes["[c]*", 0] == processes["[c]*", 1] != processes["b", 0]
    # Nothing is left, and no worker starts.
    assert sweep.run(toy_sweep.SWEEP, config, tmp_path / "spread", **asked).left == []


def test_what_a_worker_refuses_ends_the_run_and_the_time_ends_it_early(tmp_path):
    with ThreadPoolExecutor(1) as pool:
        asked = {"executor": pool, "say": lambda _: None}
        with pytest.raises(ValueError, match="of must not be boom"):
            sweep.run(toy_sweep.SWEEP, toy_sweep.Config(names=("boom",)), tmp_path / "refused", **asked)
        many = toy_sweep.Config(names=tuple("bdefghijklmn"))
        cut = sweep.run(toy_sweep.SWEEP, many, tmp_path / "cut", minutes=1e-9, **asked)
    assert cut.left
    assert len(cut.left) + (len(cut.lines) - 1) / 2 == 12
    with pytest.raises(ValueError, match="executor must be one of dask, local, ray, slurm; got 'spark'"):
        sweep.run(toy_sweep.SWEEP, toy_sweep.Config(), tmp_path / "none", executor="spark")
    assert not (tmp_path / "none").exists()
