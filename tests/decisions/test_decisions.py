"""The search as a whole, on a table whose two components tell most of it."""

import csv
import dataclasses
import shlex
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from matplotlib.figure import Figure

import drjax
from drjax.attacks.attack import EveryRecord
from drjax.attacks.registry import ATTACKS
from drjax.audits import AuditConfig, describe, run
from drjax.audits.pipeline import Session
from drjax.cli import main
from drjax.decisions import attacked, decide, options, page, search, statistics_attacks
from drjax.decisions.attacked import TreesInMap
from drjax.decisions.audited import Audited
from drjax.decisions.found import Found, Measured
from drjax.decisions.guaranteed import PrivateComponents, SyntheticMap
from drjax.decisions.options import Defended, DensityContours, FewerNumbers, MergedExposed, WithoutExposed
from drjax.decisions.usefulness import Usefulness
from drjax.defenses import Groups, OutputNoise, Rounding, contours
from drjax.dr import PCA, TSNE, Pipeline, Standardise, Unnamed, make_method
from drjax.reports.records import load_arrays, read_records
from drjax.reports.sections import Verdict

N = 80


def table(path, n=N, seed=0):
    """Records of two clusters that follow two components, as a CSV file with ids."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2)) @ rng.normal(size=(2, 5)) + 0.3 * rng.normal(size=(n, 5))
    x += 4 * (rng.random(n) < 0.5)[:, None]
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["person", *(f"c{j}" for j in range(5))])
        writer.writerows([f"P{i:03d}", *(f"{value:.6f}" for value in row)] for i, row in enumerate(x))
    return path


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    folder = tmp_path_factory.mktemp("audited")
    path = table(folder / "people.csv")
    said = []
    result = run(AuditConfig(data=str(path)), folder / "run", decide=decide, console=Console(said))
    return folder, result, said


class Clairvoyant(TreesInMap):
    """An attack that sees what the others do not."""

    def run_each(self, key, every):
        return super().run_each(key, every)._replace(x=every.x[every.rows].astype(np.float64))


class Console:
    def __init__(self, said):
        self.print = said.append


def test_a_highly_exposed_map_comes_with_alternatives_that_are_attacked_again(audited):
    _, result, said = audited
    found = result.options
    assert result.verdict.level == "high"
    assert len(found.measured) >= 3
    kinds = {
        Defended, DensityContours, FewerNumbers, MergedExposed, WithoutExposed, PrivateComponents, SyntheticMap,
    }  # fmt: skip
    assert {type(one.option) for one in found.measured} == kinds
    assert sum(line.startswith("Instead: ") for line in said) == len(found.measured)
    for one in found.measured:
        on_maps = {"Neighbours in the map", "Closed form with prior"}
        aggregates = isinstance(one.option, DensityContours) or getattr(one.option, "kind", None) is Groups
        worked_out = {f"{label}, place worked out from the others'" for label in on_maps if aggregates}
        expected = {"Difference of means"} if one.option.guarantee else on_maps | worked_out
        assert {row.label for row in one.rows} == expected
        assert 0 <= one.usefulness.share <= 1
        assert one.passes == (one.verdict.level == "not shown")


def test_the_recommended_option_is_the_most_useful_that_holds_against_an_attack_that_was_not_used(audited):
    _, result, _ = audited
    found = result.options
    best = found.recommended
    assert best is not None
    assert best.option.is_map
    assert best.held
    assert "Randomised trees in the map" in {row.label for row in best.check}
    for one in found.measured:
        if one.passes and one.option.is_map and one.usefulness.share > best.usefulness.share:
            assert one.held is False
    (said,) = [line.text for line in result.verdict.advice if line.command == best.command]
    assert said.startswith(f"Publish instead: {best.option.label[0].lower()}{best.option.label[1:]}. It keeps ")
    assert "lies outside its guarantee" in result.report.read_text()


def measured(option, share):
    """An option that the rule passes in the search."""
    return Measured(
        option=option,
        command="c",
        n_records=9,
        rows=(),
        verdict=Verdict("not shown", "", ""),
        usefulness=Usefulness(trustworthiness=0.9, neighbors=0.5, clusters=0.5, classes=np.nan, share=share),
        seconds=1.0,
        ceiling=0.12 if option.guarantee else None,
    )


@pytest.mark.parametrize(
    ("fails", "best", "proven"),
    [
        ((), Defended(Groups, 20), PrivateComponents(4.0)),
        ((PrivateComponents(4.0),), Defended(Groups, 20), PrivateComponents(1.0)),
        ((Defended(Groups, 20),), SyntheticMap(4.0), SyntheticMap(4.0)),
        ((Defended(Groups, 20), SyntheticMap(4.0), SyntheticMap(1.0)), PrivateComponents(4.0), PrivateComponents(4.0)),
    ],
)
def test_what_has_a_guarantee_is_checked_too_where_the_best_map_has_none(monkeypatch, fails, best, proven):
    shares = {
        Defended(Groups, 20): 0.7,
        PrivateComponents(4.0): 0.6,
        PrivateComponents(1.0): 0.5,
        SyntheticMap(4.0): 0.3,
        SyntheticMap(1.0): 0.0,
    }
    checked = []

    def check(*given):
        checked.append(given[-1])
        return given[-1] in fails

    monkeypatch.setattr(search, "_check", check)
    verdicts = {True: Verdict("high", "", ""), False: Verdict("not shown", "", "")}
    monkeypatch.setattr(search.ladder, "verdict", verdicts.get)
    session = Session(SimpleNamespace(record=lambda *_, **__: None), False, lambda _: None)
    given = [measured(option, share) for option, share in shares.items()]
    found, *held = search._checked(jax.random.key(0), None, session, given)
    assert [one.option for one in held] == [best, proven]
    assert {one.option for one in found if one.held is not None} == set(checked)
    assert len(set(checked)) == len(checked)


def test_a_guarantee_is_said_beside_what_has_none():
    coarse, proven = measured(Defended(Groups, 20), 0.7), measured(PrivateComponents(1.0), 0.6)
    checked = dataclasses.replace(coarse, check=(Row,), held=True)
    proven = dataclasses.replace(proven, check=(Row,), held=True)
    found = Found(
        own=coarse.usefulness,
        measured=(coarse, proven, measured(SyntheticMap(1.0), 0.0)),
        not_run=(),
        recommended=checked,
        proven=proven,
        n_rows=9,
        judge=TreesInMap(),
        slow=(),
        seconds=1.0,
    )
    first, second = (one.text for one in page.advice(found))
    assert first.startswith("Publish instead: groups of at least 20 records")
    assert "It has no guarantee" in first
    assert second.startswith("Or publish, under the stated guarantee (epsilon 1, delta 1e-06): principal components")
    assert "equally likely records with more than 12.0% probability (guessing: 11.1%)" in second

    # One attack that found nothing did not come to high exposure; two came neither.
    class One(Row):
        label = "Difference of means"

    said = page.advice(dataclasses.replace(found, recommended=dataclasses.replace(proven, check=(One,))))[0].text
    assert said.endswith(" On 9 records “Difference of means” did not come to high exposure.")
    (only,) = (one.text for one in page.advice(dataclasses.replace(found, recommended=proven)))
    assert only.startswith("Publish, under the stated guarantee (epsilon 1, delta 1e-06): principal components")
    assert "no guarantee" not in only


class Row:
    """A row of a ladder, as far as a sentence asks."""

    label = "Leak into the components"

    class scores:
        n_targets = 9


def test_options_that_leave_much_of_the_map_leave_much_to_the_attacker(audited):
    _, result, _ = audited
    taken = {one.option.name: one.taken for one in result.options.measured}
    assert taken["rounding-0.1"] > taken["rounding-1"] > 0
    assert taken["output-noise-0.1"] > taken["output-noise-1"]
    assert taken["contours-0.5"] > 0
    assert taken["rounding-0.1"] > taken["groups-5"] > taken["groups-20"]
    # The closed form rebuilds everything behind a map that is neither rounded nor noisy.
    assert taken["without-4"] > 0.99
    assert taken["components-1"] > 0.95
    useful = {one.option.name: one.usefulness.share for one in result.options.measured}
    assert useful["rounding-0.1"] > useful["rounding-1"]
    assert useful["output-noise-0.1"] > useful["output-noise-1"]


def test_the_page_has_the_table_the_figure_and_the_commands(audited):
    _, result, _ = audited
    page = result.report.read_text()
    assert page.index("What to publish instead") < page.index("What was released")
    for one in result.options.measured:
        assert one.option.label.replace("'", "&#39;") in page
    assert "Exposure and usefulness of the options" in page
    assert "--defense-scale 0.3" in page
    assert page.count("not finished") == 0


def test_every_command_makes_what_was_attacked(audited, monkeypatch, capsys):
    folder, result, _ = audited
    monkeypatch.chdir(folder)
    for one in result.options.measured:
        if isinstance(one.option, Defended) and one.option.kind is OutputNoise:
            continue  # the command's noise is the operating system's
        if one.option.guarantee or isinstance(one.option, DensityContours):
            continue  # so is this, and what is private is stated first; and a picture has no coordinates
        words = shlex.split(one.command)
        out = f"{one.option.name}.csv"
        main([*words[1:2], words[2], out, *words[4:]])
        published = np.loadtxt(out, delimiter=",", skiprows=1, ndmin=2)
        kept = load_arrays(result.folder / "options" / f"{one.option.name}.npz")
        np.testing.assert_allclose(published, kept["coords"], atol=2e-6)
    capsys.readouterr()


def test_contours_are_made_of_a_map_that_stays_private_and_show_no_point(audited, monkeypatch, capsys):
    folder, result, _ = audited
    monkeypatch.chdir(folder)
    one = next(one for one in result.options.measured if isinstance(one.option, DensityContours))
    first, second = one.command.split(" && ")
    main(shlex.split(first)[1:])
    main(shlex.split(second)[1:])
    assert "PRIVATE-map.csv" in first
    assert "PRIVATE-map.csv" in second
    assert capsys.readouterr().out.endswith("Written: published.svg\n")
    drawn = (folder / "published.svg").read_text()
    assert "<svg" in drawn  # tests stub drawing itself
    found = contours.contours(np.loadtxt("PRIVATE-map.csv", delimiter=",", skiprows=1), one.option.radius)
    words = shlex.split(second)[1:]
    main([*words[:2], "lattice.csv", *words[3:]])
    lattice = np.loadtxt("lattice.csv", delimiter=",", skiprows=1)
    assert len(lattice) == (found.levels > 0).sum()
    at = np.round(lattice[:, :2] / found.cell).astype(int) - found.corner
    np.testing.assert_array_equal(lattice[:, 2], contours.LEAST_RECORDS * 2 ** (found.levels[tuple(at.T)] - 1))
    for bad, match in (
        (["PRIVATE-map.csv", "a.npy", "--contours", "1"], "out must end in .svg, .png or .csv, got a.npy"),
        (["PRIVATE-map.csv", "a.svg", "--contours", "0"], "contours must be > 0, got 0.0"),
        (["PRIVATE-map.csv", "a.svg", "--contours", "0.001"], "radius must leave"),
        (["PRIVATE-map.csv", "a.svg", "--contours", "inf"], "radius must be finite, got inf"),
        (["PRIVATE-map.csv", "a.csv"], "one of defense, contours and merge must be given, got none"),
        (
            ["PRIVATE-map.csv", "a.svg", "--contours", "1", "--defense", "groups", "--defense-scale", "4"],
            "defense must be left out with --contours, got groups",
        ),
    ):
        with pytest.raises(SystemExit):
            main(["defend", *bad])
        assert match in capsys.readouterr().err
        assert not list(folder.glob("a.*"))


def test_commands_with_a_guarantee_begin_with_a_form_that_refuses_until_it_is_filled_in(audited, monkeypatch, capsys):
    folder, result, _ = audited
    monkeypatch.chdir(folder)
    for one in result.options.measured:
        if not one.option.guarantee:
            continue
        form, release = one.command.split("   # fill it in, then: ")
        if not (folder / "form.json").exists():
            main(shlex.split(form)[1:])
        with pytest.raises(SystemExit):
            main(shlex.split(release)[1:])
        assert "bounds must not depend on the private records" in capsys.readouterr().err
        assert not (folder / "published").exists()


def test_a_run_that_is_resumed_finds_the_same(audited):
    folder, result, _ = audited
    again = run(AuditConfig(data=str(folder / "people.csv")), result.folder, decide=decide, resume=True)
    for one, other in zip(result.options.measured, again.options.measured, strict=True):
        assert one.option == other.option
        assert (one.taken, one.usefulness.share, one.held) == (other.taken, other.usefulness.share, other.held)
    kinds = [record["name"] for record in read_records(result.folder / "records.jsonl") if record["kind"] == "option"]
    assert {one.option.name for one in result.options.measured} <= set(kinds)


def test_the_result_has_frames_a_figure_and_a_copy(audited, tmp_path):
    _, result, _ = audited
    exposed = result.exposed
    assert list(exposed["id"]) == [f"P{row:03d}" for row in exposed["row"]]
    assert list(exposed["line"]) == [row + 2 for row in exposed["row"]]
    assert list(exposed["rank"]) == list(range(1, N + 1))
    assert set(exposed["row"]) == set(range(N))
    frame = result.options.frame
    assert list(frame["option"]) == [one.option.label for one in result.options.measured]
    assert frame["passes"].is_monotonic_decreasing
    assert list(result.ladder["attack"]) == [row.label for row in result.rows]
    assert result.ladder["mse"].min() == min(row.scores.mse.estimate for row in result.rows)
    assert isinstance(result.figure(), Figure)
    copy = result.save(tmp_path / "copy")
    assert (copy / "report.html").read_bytes() == result.report.read_bytes()
    assert copy.stat().st_mode & 0o777 == 0o700
    assert [path.name for path in tmp_path.iterdir()] == ["copy"]
    with pytest.raises(ValueError, match="folder must be a new one, got"):
        result.save(tmp_path / "copy")


def test_none_found_is_said(tmp_path, monkeypatch):
    weak = (Defended(Rounding, 0.01), Defended(Rounding, 0.02), Defended(Groups, 2))
    monkeypatch.setattr(search, "options_for", lambda _: weak)
    monkeypatch.setattr(search, "guaranteed_for", lambda _: ())
    result = run(AuditConfig(data=str(table(tmp_path / "people.csv"))), tmp_path / "run", decide=decide)
    assert result.options.recommended is None
    (advice,) = result.verdict.advice
    assert advice.text.startswith("Instead: none found. None of 3 ")
    assert result.options.not_run == ()


@pytest.mark.parametrize(
    ("option", "judge"),
    [(SyntheticMap(4.0), "Difference of second moments"), (PrivateComponents(1.0), "Leak into the components")],
)
def test_an_option_with_a_guarantee_is_checked_by_an_attack_of_its_own(tmp_path, monkeypatch, option, judge):
    monkeypatch.setattr(search, "options_for", lambda _: (Defended(Rounding, 0.01),))
    monkeypatch.setattr(search, "guaranteed_for", lambda _: (option,))
    path = str(table(tmp_path / "people.csv"))
    result = run(AuditConfig(data=path), tmp_path / "run", decide=decide)
    best = result.options.recommended
    assert best.option == option
    assert best.held
    assert [row.label for row in best.check] == ["Difference of means", judge]
    (advice,) = result.verdict.advice
    said = advice.text
    assert said.startswith("Publish, under the stated guarantee")
    assert advice.command == best.command
    assert f"On 80 records neither “Difference of means” nor “{judge}” came to high exposure" in said
    # A mechanism that published exact numbers would not hold, whatever it said of itself.
    monkeypatch.setattr(statistics_attacks, "KEPT", (Clairvoyant,))
    again = run(AuditConfig(data=path), tmp_path / "again", decide=decide)
    assert again.options.recommended is None
    assert [one.held for one in again.options.measured if one.option.guarantee] == [False]


def test_an_option_that_fails_the_final_check_is_not_recommended(tmp_path, monkeypatch):
    monkeypatch.setattr(search, "options_for", lambda _: (Defended(OutputNoise, 5.0), Defended(OutputNoise, 9.0)))
    monkeypatch.setattr(search, "guaranteed_for", lambda _: ())
    monkeypatch.setattr(search, "TreesInMap", Clairvoyant)
    result = run(AuditConfig(data=str(table(tmp_path / "people.csv"))), tmp_path / "run", decide=decide)
    assert [one.held for one in result.options.measured] == [False, False]
    assert result.options.recommended is None
    assert "failed the final check" in result.report.read_text()


def test_what_time_does_not_allow_is_said_not_to_be_run(tmp_path, monkeypatch):
    monkeypatch.setattr(search, "SECONDS", 0.0)
    result = run(AuditConfig(data=str(table(tmp_path / "people.csv"))), tmp_path / "run", decide=decide)
    assert len(result.options.measured) == search.LEAST_OPTIONS
    assert result.options.not_run
    assert "Not run for lack of time" in result.report.read_text()
    (advice,) = page.advice(dataclasses.replace(result.options, recommended=None))
    count = len(result.options.not_run)
    assert advice.text.startswith("Instead: none found so far. None of 3 ")
    assert advice.text.endswith(f"{count} others were not run for lack of time: this says nothing of them.")


def test_time_goes_to_every_kind_of_option_before_the_second_of_any():
    mild, strong = Defended(Rounding, 0.1), Defended(Rounding, 1.0)
    small, large = Defended(Groups, 5), Defended(Groups, 100)
    found = search._in_turn(None, [mild, strong, small, large, MergedExposed(3)])
    assert set(found[:3]) == {strong, large, MergedExposed(3)}
    assert set(found[3:]) == {mild, small}


def test_an_attack_that_took_longer_than_it_said_waits_for_the_final_check(audited):
    _, result, _ = audited
    every = EveryRecord(
        method=Pipeline(before=(Standardise(),), method=PCA()), x=np.eye(50), coords=np.eye(50)[:, :2],
        rows=np.arange(50), stand_ins=None,
    )  # fmt: skip
    slow = ATTACKS["embedding"]["behind-steps"]
    at = Audited(
        config=AuditConfig(data="a.csv"), data=Sized(50), every=every, in_records=None, attacks={slow.name: slow},
        exposure=result.exposure, table=None, key=None,
    )  # fmt: skip
    said = attacked.seconds_of(at, slow, 50)
    assert said == 50 * slow.cost(every.threat(0)).seconds
    if said <= attacked.MOST_SECONDS:
        assert slow.name in attacked.searched(at, 50)
    late = dataclasses.replace(at, seconds={slow.name: 0.5})
    assert attacked.seconds_of(late, slow, 50) == 25
    assert slow.name not in attacked.searched(late, 50)
    assert slow.name in search._slow(late)


def test_options_are_left_out_where_they_are_not_asked_for(tmp_path):
    path = str(table(tmp_path / "people.csv"))
    assert run(AuditConfig(data=path, options=False), tmp_path / "a", decide=decide).options is None
    with pytest.raises(ValueError, match="options must be left out where a sample of targets is attacked, got True"):
        AuditConfig(data="digits", options=True)


def test_a_map_of_somebody_else_is_made_coarser_and_not_made_anew(tmp_path, monkeypatch, capsys):
    x = np.random.default_rng(0).normal(size=(N, 2)) @ np.random.default_rng(1).normal(size=(2, 5))
    x += 0.2 * np.random.default_rng(2).normal(size=x.shape)
    coords = (x - x.mean(axis=0)) @ np.linalg.svd(x - x.mean(axis=0))[2][:2].T
    np.savetxt(tmp_path / "t.csv", x, delimiter=",", header="a,b,c,d,e", comments="")
    np.savetxt(tmp_path / "map.csv", coords, delimiter=",", header="u,v", comments="")
    monkeypatch.chdir(tmp_path)
    result = drjax.audit("t.csv", released="map.csv", method="pca", out="run")
    assert result.verdict.level == "high"
    kinds = {type(one.option) for one in result.options.measured}
    assert kinds == {Defended, DensityContours, MergedExposed, PrivateComponents, SyntheticMap}
    one = next(one for one in result.options.measured if one.option.name == "groups-5")
    main([*shlex.split(one.command)[1:]])
    published = np.loadtxt("published.csv", delimiter=",", skiprows=1)
    kept = load_arrays(result.folder / "options" / "groups-5.npz")
    np.testing.assert_allclose(published, kept["coords"], atol=1e-6)
    assert "Written" in capsys.readouterr().out


def test_maps_that_contours_cannot_be_drawn_of_have_none_among_their_options(audited):
    _, result, _ = audited
    coords = np.random.default_rng(0).normal(size=(N, 2))
    every = EveryRecord(method=PCA(), x=np.zeros((N, 5)), coords=coords, rows=np.arange(N), stand_ins=None)
    plain = Audited(
        config=AuditConfig(data="a.csv"), data=None, every=every, in_records=None, attacks={},
        exposure=result.exposure, table=None, key=None,
    )  # fmt: skip
    far = np.concatenate([coords] * 800)
    far[0] += 1e6
    same = np.ones((N, 2))
    for places, radii in ((coords, {0.5, 1.5}), (far, {1.5}), (same, set())):
        one = dataclasses.replace(plain, every=dataclasses.replace(every, coords=places), data=Sized(len(places)))
        drawn = {option.radius for option in options.options_for(one) if isinstance(option, DensityContours)}
        assert drawn == radii


class Sized:
    """Data of which only the number of records is asked."""

    def __init__(self, n):
        self.x = np.zeros((n, 1))


def test_commands_of_a_recognised_map_have_its_method_steps_and_settings(audited):
    _, result, _ = audited
    x = np.random.default_rng(0).normal(size=(40, 4))
    for made, expected in (
        (PCA(n_components=3), "--method pca --n-components 3"),
        (TSNE(perplexity=7.0), "--method tsne --n-components 2 --perplexity 7.0"),
        (
            make_method("pca", 2, {}, scale=("robust", "unit-rows"), first_pca=3, whiten=True),
            "--method pca --n-components 2 --scale robust unit-rows --first-pca 3 --whiten",
        ),
        (Unnamed(n_components=2), "--method pca --n-components 2"),
    ):
        every = EveryRecord(method=made, x=x, coords=x[:, :2], rows=np.arange(40), stand_ins=None)
        one = Audited(
            config=AuditConfig(data="a.csv", released="m.csv"), data=Sized(40), every=every, in_records=None,
            attacks={}, exposure=result.exposure, table=None, key=None,
        )  # fmt: skip
        assert shlex.join(options.method_words(one)) == expected
        assert shlex.split(SyntheticMap(4.0).command(one))[-len(expected.split()) :] == expected.split()


def test_refinement_is_half_way_between_what_fails_and_what_passes():
    tried = [(Defended(Rounding, 0.1), False), (Defended(Rounding, 1.0), True), (Defended(Groups, 5), False)]
    assert options.between(tried) == (Defended(Rounding, 0.3),)
    assert options.between([*tried, (Defended(Groups, 20), True)])[1] == Defended(Groups, 10.0)
    assert options.between([*tried, (Defended(Rounding, 0.3), True)]) == (Defended(Rounding, 0.2),)


def test_the_command_that_reruns_an_audit_says_whether_options_were_asked_for():
    assert describe.command(AuditConfig(data="a.csv", options=False)) == "drjax audit --data a.csv --options False"
    assert describe.command(AuditConfig(each_record=True, options=True)).endswith("--options True")
