"""The experiment on models: cells are computed once, and what they say of digits."""

import dataclasses
import functools
import re
import shutil

import jax
import numpy as np
import pytest

from drjax.core.types import Reconstruction
from drjax.data import load
from drjax.nets.classifiers import accuracy
from drjax.nets.judge import JudgeConfig
from drjax.reports import records
from experiments import merging, sweep
from experiments.informed_adversary import bound, cells, config, judges, report
from experiments.informed_adversary import run as experiment
from experiments.informed_adversary.case import Case, parts_of

SMALL = experiment.Config(
    scale=dataclasses.replace(
        config.SCALES["smoke"],
        targets=4,
        n_fixed=80,
        n_shadow=60,
        n_other=90,
        sizes=(60,),
        fixed_sizes=(40,),
        factors=("default",),
    )
)
TINY_SCALE = dataclasses.replace(SMALL.scale, targets=2, n_fixed=30, n_shadow=20, n_other=40)
TINY = dataclasses.replace(SMALL, scale=TINY_SCALE)


@pytest.fixture(scope="module", autouse=True)
def _quick_networks():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(judges, "CONFIGS", {"digits": JudgeConfig(epochs=2, batch_size=32)})
        # How well the networks learn is tested elsewhere.
        fast = dataclasses.replace(cells.reconn.RECIPES["fast"], epochs=3)
        patch.setitem(cells.reconn.RECIPES, "fast", fast)
        yield


def untold(_training, released, known, labels, **_):
    """In the place of the inversion, where how well it inverts is tested elsewhere."""
    m, d = len(released[0]["w"]), known.shape[1]
    nothing, ok = np.zeros((m, d)), np.zeros(m, np.uint32)
    return Reconstruction(nothing, labels[:m], nothing[:, None], np.zeros(m), ok)


def cases(config, setting):
    data = load(config.scale.data)
    keys = jax.random.split(jax.random.key(0))
    sized = dataclasses.replace(
        setting, n_fixed=setting.n_fixed or config.scale.n_fixed, n_shadow=setting.n_shadow or config.scale.n_shadow
    )
    return Case(sized, data, parts_of(keys[0], data, config.scale.data, config.scale), keys[1])


def run(config, out, *factors, say=lambda _: None, **options):
    """Lines of the cells of some factors."""
    options["options"] = experiment.Options(factors=factors)
    return sweep.run(experiment.SWEEP, config, out, say=say, **options).lines[1:]


def estimate(found, factor, attack):
    (cell,) = [c for c in found if (c["factor"], c["attack"]) == (factor, attack)]
    return cell["scores"]["mse"]["estimate"]


@pytest.fixture(scope="module")
def computed(tmp_path_factory):
    """A folder with the cells of two factors, their lines, and what was said."""
    out, said = tmp_path_factory.mktemp("models"), []
    return out, run(SMALL, out, "default", "access", say=said.append), said


def test_cells_are_computed_once(computed, monkeypatch):
    out, found, said = computed
    learned = len(cells.BASELINES) + len(config.Setting(name="default").learned)
    # Inversion needs all weights: neither of the two settings of `access` has it.
    assert len(found) == len(said) == learned + 1 + 2 * learned
    assert estimate(found, "default", "inversion") < 1e-4 < estimate(found, "default", "mean")
    table = experiment.to_markdown(found).splitlines()
    assert len(table) == 2 + len(found)
    assert all(set(c["provenance"]) == set(merging.origin({})) for c in found)
    inverted = next(c for c in found if c["attack"] == "inversion")
    assert inverted["kl"]["mean"] < 1e-3 < next(c for c in found if c["attack"] == "mean")["kl"]["mean"]
    nearest = next(c for c in found if c["attack"] == "nearest")
    low, middle, high = (nearest["percentiles"][p] for p in ("1", "10", "50"))
    assert nearest["scores"]["mse"]["estimate"] <= low <= middle <= high

    # A second run computes nothing, not even the models that a setting's attacks share.
    monkeypatch.setattr(experiment, "Case", None)
    assert run(SMALL, out, "default", "access", say=pytest.fail) == found


def test_a_pattern_chooses_cells_and_nothing_is_left_of_trainings_that_ended(tmp_path):
    found = run(SMALL, tmp_path, "default", only="default/default/[mn]e*")
    assert {c["attack"] for c in found} == {"mean", "nearest"}
    with pytest.raises(ValueError, match="only must fit some cell, such as 'default/default/mean', got 'x'"):
        run(SMALL, tmp_path, "default", only="x")
    assert list((tmp_path / experiment.WORK).iterdir()) == []


def test_a_killed_training_goes_on_and_the_cell_says_so(tmp_path, monkeypatch):
    class Killed(Exception):
        pass

    def kill(*_, checkpoint, **__):
        checkpoint.write_bytes(b"half")
        raise Killed

    one = functools.partial(run, SMALL, tmp_path, "default", only="default/default/fast")
    fit = cells.reconn.fit
    monkeypatch.setattr(cells.reconn, "fit", kill)
    with pytest.raises(Killed):
        one()
    (left,) = (tmp_path / experiment.WORK).iterdir()
    seen = []

    def go_on(*args, checkpoint, **options):
        seen.append(checkpoint.read_bytes())
        checkpoint.unlink()
        return fit(*args, checkpoint=checkpoint, **options)

    monkeypatch.setattr(cells.reconn, "fit", go_on)
    (cell,) = one()
    assert seen == [b"half"]
    assert cell["resumed"]
    assert not left.exists()


def test_the_papers_number_of_shadow_models_is_what_mnist_has_room_for():
    scale = config.SCALES["paper"]
    data = dataclasses.replace(load("digits"), x=np.zeros((70_000, 1), np.float32))
    parts = parts_of(jax.random.key(0), data, "mnist", scale)
    assert [len(rows) for rows in parts] == [9999, 59_000, 1, 1000]


def test_what_is_unknown_is_drawn_for_each_model(tmp_path, monkeypatch):
    names = ("start unknown", "mini-batches, order unknown", "mini-batches, order known")
    monkeypatch.setattr(
        experiment,
        "settings",
        lambda *what: [dataclasses.replace(s, learned=("ridge",)) for s in config.settings(*what) if s.name in names],
    )
    told = []

    def inverted(*args, batches, is_order_known, **options):
        told.append((is_order_known, batches is not None))
        return untold(*args, **options)

    monkeypatch.setattr(cells, "reconstruct_model", inverted)
    found = run(TINY, tmp_path, "start", "batch")
    settings = {(c["setting"], c["attack"]) for c in found}
    assert {name for name, _ in settings} == set(names)
    assert ("start unknown", "inversion") not in settings
    assert ("mini-batches, order unknown", "inversion") in settings
    assert ("mini-batches, order known", "inversion") in settings
    assert sorted(told) == [(False, False), (True, True)]


@pytest.mark.figures
def test_report_has_a_row_for_each_setting_and_the_errors_of_what_it_shows(computed, tmp_path, capsys):
    found = [line for line in computed[1] if line["factor"] == "default"]
    shutil.copytree(computed[0], tmp_path, dirs_exist_ok=True)
    report.main(results=tmp_path)
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| default | default |")]
    assert len(rows) == 1 + len(found)
    assert (tmp_path / "tables.md").read_text().startswith("| factor | setting |")
    for name in ("factors.svg", "examples-default.png"):
        assert (tmp_path / name).stat().st_size > 1000
    settings = report.by_setting(found)
    attacks = settings["default", "default"]
    assert "RecoNN, fast recipe" in [text.get_text() for text in report.draw_shadows(settings).axes[0].texts]
    figure = report.draw_examples(attacks, records.read_records(tmp_path / sweep.RESULTS)[0]["config"])
    # Bytes of the inverted images are those of the target: what is printed must be the error before rounding.
    texts = [ax.get_xlabel() for ax in figure.axes if ax.get_xlabel()]
    assert texts[-4:] == [report.number(e) for e in attacks["inversion"]["errors"][:4]]


def test_models_of_another_fixed_set_are_told_by_what_the_target_adds():
    """Transfer: without taking off what the fixed set alone leads to, the other set's models would say nothing."""
    (setting,) = (s for s in config.settings("transfer", SMALL.scale) if s.n_own == 0)
    case = cases(SMALL, setting)
    shadows = case.shadows
    assert len(shadows.vectors) == SMALL.scale.n_shadow
    own = case.vectors(case.released)
    # What a target adds is small beside how far two fixed sets are apart.
    assert np.linalg.norm(own - shadows.base, axis=1).max() < np.linalg.norm(
        own - case.vectors(case.models(case.targets, case.target_key, case.other[: len(case.known)]))
    )


def test_settings_choose_classes_targets_and_starts():
    lower = config.Setting(
        name="some", shadow_classes=config.LOWER, target_classes=config.UPPER, n_targets=1, n_shadow=20
    )
    case = cases(SMALL, lower)
    assert set(case.y[case.shadow]) <= set(config.LOWER)
    assert set(case.y[case.targets]) <= set(config.UPPER)
    assert (len(case.shadow), len(case.targets)) == (20, 1)
    with pytest.raises(ValueError, match="must leave 5000 shadow records"):
        cases(SMALL, dataclasses.replace(lower, n_shadow=5000))
    fresh, trained = (cases(SMALL, config.Setting(name="s", is_pretrained=is_so)) for is_so in (False, True))
    rows = fresh.shadow
    at_start = [accuracy(c.setting.training.model, c.init, c.x[rows], c.y[rows]) for c in (fresh, trained)]
    assert at_start[0] < 0.3 < 0.6 < at_start[1]
    another = cases(SMALL, config.Setting(name="s", start=1))
    assert np.abs(another.init[0]["w"] - fresh.init[0]["w"]).max() > 0.1
    several = cases(SMALL, config.Setting(name="s", is_start_known=False, models_per_shadow=2)).shadows
    assert len(several.vectors) == 2 * SMALL.scale.n_shadow
    assert np.all(several.rows[::2] == several.rows[1::2])
    assert np.abs(several.vectors[0] - several.vectors[1]).max() > 0.1


def test_bound_is_over_every_success(tmp_path, capsys, monkeypatch):
    # Half a minute for all six.
    monkeypatch.setattr(
        experiment,
        "settings",
        lambda *what: [dataclasses.replace(s, learned=("ridge",)) for s in config.settings(*what)[:1]],
    )
    monkeypatch.setattr(cells, "reconstruct_model", untold)
    found = run(SMALL, tmp_path, "privacy")
    assert {c["of"]["mu"] for c in found} == {1.0}
    bound.main(results=tmp_path)
    assert (tmp_path / "privacy.svg").is_file()
    text = capsys.readouterr().out
    assert (tmp_path / "bounds.md").read_text() == text[:-1]
    head, *table = [line.split("|") for line in text.splitlines() if line.startswith("| ")]
    assert [name.strip() for name in head[7:9]] == ["bound", "with the best guess found (no bound)"]
    assert len(table) == len(found) - 1
    # What is called a bound is computed from what no guess can have, which is far more than the best one found.
    certified = float(re.search(r"no guess has more than ([\d.]+)", text)[1])
    for row in table:
        # 4 targets: the lower end of the interval is what a bound can be held against.
        low = float(row[6].split("(")[1].split(" to ")[0])
        assert low <= float(row[7])
        assert float(row[8]) < certified <= float(row[7])


def test_kappa_takes_a_mean_squared_error():
    # Half of the records are one point, and the others are far from everything.
    public = np.concatenate([np.zeros((500, 4)), np.arange(1, 501)[:, None] * np.ones(4)])
    found = bound.kappa_of(np.random.default_rng(0).permutation(public), 0.01)
    assert found.lower < 0.5 < found.upper_of_all
    assert bound.kappa_of(public, 1e6).kappa == 1


def test_settings_have_names_of_their_own():
    for scale in config.SCALES.values():
        for factor in config.FACTORS:
            names = [s.name for s in config.settings(factor, scale)]
            assert names
            assert len(set(names)) == len(names)


def test_bad_input(tmp_path):
    with pytest.raises(ValueError, match="factor 1 must be one of"):
        run(SMALL, tmp_path, "colour")
    with pytest.raises(ValueError, match="seed must be"):
        dataclasses.replace(SMALL, seed=-1)
    with pytest.raises(ValueError, match="targets must be"):
        dataclasses.replace(SMALL.scale, targets=0)
