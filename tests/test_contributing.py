"""Every example of CONTRIBUTING.md, added as it says, is taken by everything that lists such things."""

import dataclasses
import hashlib
import inspect
import json
import types

import jax
import jinja2
import numpy as np
import pytest
from sklearn.datasets import load_digits, load_wine
from sklearn.decomposition import PCA

import drjax
from drjax.cli import main
from drjax.defenses.dp_pca import MECHANISMS
from drjax.defenses.noisy_dr import spread
from drjax.releases.published import intercept
from drjax.reports import page, records
from experiments import command, sweep
from tests import contributing
from tests.audits import test_report
from tests.dr import test_contract

shared_key = test_contract.shared_key


def of_one_method(test):
    """A test of the contract with its cases, each once, in which only the method differs there."""
    copy = types.FunctionType(test.__code__, test.__globals__, test.__name__, test.__defaults__, test.__closure__)
    copy.pytestmark = [mark for mark in map(of_one_kind, getattr(test, "pytestmark", [])) if mark is not None]
    return copy


def of_one_kind(mark):
    """A mark without the kind of method; None if nothing is left."""
    if mark.name != "parametrize":
        return mark
    names = mark.args[0].replace(" ", "").split(",") if isinstance(mark.args[0], str) else list(mark.args[0])
    if "kind" not in names:
        return mark
    at, cases = names.index("kind"), {}
    names.remove("kind")
    for case in mark.args[1]:
        values = list(getattr(case, "values", case if names else [case]))
        del values[at]
        cases[tuple(id(value) if isinstance(value, np.ndarray) else value for value in values)] = values
    indirect = mark.kwargs.get("indirect", False)
    told = names if indirect is True else [name for name in indirect or () if name in names]
    return pytest.mark.parametrize(names, list(cases.values()), indirect=told).mark if names else None


# The contract suite, of which every test that takes a method is given the one of CONTRIBUTING.md.
for name, test in list(vars(test_contract).items()):
    if name.startswith("test_") and "method" in inspect.signature(test).parameters:
        globals()[name] = of_one_method(test)

SIZES = {"n-known": 30, "n-shadow": 40, "n-validation": 8, "n-targets": 5}
SMALL = [word for size, n in SIZES.items() for word in (f"--{size}", str(n))]


@pytest.fixture
def method(monkeypatch):
    return contributing.add(monkeypatch, "Add a dimensionality-reduction method").WhitenedPCA()


@pytest.fixture
def settled(method):
    return method


@pytest.fixture(autouse=True)
def _examples_end_with_their_test():
    before = [dict(known) for known in contributing.LISTS]
    yield
    assert before == [dict(known) for known in contributing.LISTS]


def test_the_page_says_in_about_half_a_page_how_to_add_each_kind_of_thing():
    found = contributing.sections()
    assert len(found) == 7
    for heading, text in found.items():
        assert contributing.block(heading)
        assert len(text.splitlines()) <= 56, heading


def digits(n):
    return (load_digits().data / 16)[np.random.default_rng(0).permutation(1797)[:n]]


def test_a_new_method_is_that_of_scikit_learn_and_is_embedded_and_audited(method, tmp_path, capsys):
    x = digits(40)
    with jax.enable_x64(True):
        ours = np.asarray(method.fit_transform(jax.random.key(0), x).coords)
    theirs = PCA(2, whiten=True, svd_solver="full").fit_transform(x)
    np.testing.assert_allclose(ours, theirs * np.sign((ours * theirs).sum(axis=0)), atol=1e-10)  # rounding
    np.testing.assert_allclose(drjax.embed(x, method="whitened"), ours, atol=1e-6)
    main(["audit", "--method", "whitened", "--attacks", "ridge", "--out", f"{tmp_path}/o", *SMALL])
    assert "whitened PCA to 2 components" in (tmp_path / "o" / "report.html").read_text("utf-8")
    assert "Ridge" in capsys.readouterr().out


def test_a_new_defence_is_audited_and_embedded(monkeypatch, tmp_path, capsys):
    kind = contributing.add(monkeypatch, "Add a defence").UniformNoise
    options = ["--defense", "uniform-noise", "--defense-scale"]
    main(["audit", "--attacks", "ridge", "--out", f"{tmp_path}/o", *options, "0.01", "0.5", *SMALL])
    said = (tmp_path / "o" / "report.html").read_text("utf-8")
    assert kind.action in said
    assert kind.scale_unit in said
    np.save(tmp_path / "x.npy", digits(30))
    capsys.readouterr()
    main(["embed", f"{tmp_path}/x.npy", f"{tmp_path}/plain.npy"])
    main(["embed", f"{tmp_path}/x.npy", f"{tmp_path}/noisy.npy", *options, "0.5", "--seed", "0"])
    plain, noisy = (np.load(tmp_path / f"{name}.npy") for name in ("plain", "noisy"))
    moved = np.abs(noisy - plain).max() / spread(plain)
    assert 0.4 < moved <= 0.5 + 1e-5  # the most of 60 draws; rounding in float32
    facts = json.loads((tmp_path / "noisy.npy.json").read_text())
    assert (facts["defense"], facts["defense_scale"]) == ("uniform-noise", 0.5)
    with pytest.raises(SystemExit):
        main(["embed", f"{tmp_path}/x.npy", f"{tmp_path}/bad.npy", *options, "-1"])


@pytest.fixture
def mechanism(monkeypatch):
    return contributing.add(monkeypatch, "Add a mechanism").LaplaceInBall


def tables(folder):
    rng = np.random.default_rng(0)
    for name in ("members", "others", "public"):
        x = rng.normal(size=(60, 4)) * [2, 1, 0.5, 0.25]
        np.savetxt(folder / f"{name}.csv", x, delimiter=",", header="a,b,c,d", comments="")
    (folder / "bounds.json").write_text(json.dumps({name: [-9, 9] for name in "abcd"}))


def test_a_new_mechanism_is_released_charged_and_read_back(mechanism, tmp_path, capsys):
    tables(tmp_path)
    release = ["release", "pca", f"{tmp_path}/members.csv", "--epsilon", "2", "--mechanism", "laplace-ball"]
    main([*release, "--public", f"{tmp_path}/public.csv", "--trials", "19", "--splits", "2", "--n-components", "2",
          "--out", f"{tmp_path}/out"])  # fmt: skip
    said = capsys.readouterr().out
    assert "Guarantee: epsilon 2 at delta 0; replace_one" in said
    assert "not measured" not in said
    written = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert written["guarantee"]["curves"] == [{"kind": "EpsilonDelta", "epsilon": 2.0, "delta": 0.0}]
    assert written["mechanism"]["name"] == "laplace-ball"
    assert written["mechanism"]["parameters"] == {"epsilon": 2.0}
    assert {"lower", "upper", "row_norm"} <= written["arrays"].keys()
    assert "2-DP" in (tmp_path / "out.private" / "report.html").read_text("utf-8")
    found = intercept(tmp_path / "out" / "components.npz", manifest=tmp_path / "out" / "manifest.json")
    assert type(found.mechanism) is mechanism
    assert found.mechanism.row_norm == written["mechanism"]["row_norm"]
    main(["attack", "membership", "--components", f"{tmp_path}/out/components.npz", "--manifest",
          f"{tmp_path}/out/manifest.json", "--members", f"{tmp_path}/members.csv", "--others",
          f"{tmp_path}/others.csv", "--public", f"{tmp_path}/public.csv", "--n-shadows", "4", "--out",
          f"{tmp_path}/scores.npz"])  # fmt: skip
    said = capsys.readouterr().out
    assert "the guarantee allows" in said
    assert "centred, scaled and cut" in said


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("--public", "public.csv", "--delta", "1e-6"), "delta must be 0 with --mechanism laplace-ball"),
        (("--bounds", "bounds.json"), "public records must be given with --mechanism laplace-ball"),
    ],
)
@pytest.mark.usefixtures("mechanism")
def test_a_release_that_a_new_mechanism_cannot_make_is_refused(given, message, tmp_path, monkeypatch, capsys):
    tables(tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        main(["release", "pca", "members.csv", "--epsilon", "2", "--mechanism", "laplace-ball", *given])
    assert message in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("d", [1, 2, 5])
def test_the_new_mechanism_s_neighbours_are_no_further_apart_than_its_noise_says(mechanism, monkeypatch, d):
    scales = []

    def no_noise(scale, size):
        scales.append(scale)
        return np.zeros(size, np.int64)

    monkeypatch.setattr(contributing.add(monkeypatch, "Add a mechanism"), "discrete_laplace", no_noise)
    made = mechanism(neighbouring="replace_one", n_components=1, epsilon=0.7, row_norm=3.0)
    spread_out = np.full((1, d), 1e9)
    one, other = spread_out, spread_out * (-1.0) ** np.arange(d)
    change = (made.released(one)[0] - made.released(other)[0])[np.triu_indices(d)]
    alone = made.released(one)[0][np.triu_indices(d)]
    assert np.abs(change).sum() <= scales[0] * 0.7
    assert 2 * np.abs(alone).sum() == pytest.approx(scales[0] * 0.7, rel=1e-4)  # rounding to the grid


def test_the_experiments_tools_take_a_new_mechanism(mechanism):
    assert MECHANISMS["laplace-ball"] is mechanism
    made = mechanism.for_release(1.0, 0.0, neighbouring="zero_out", n_components=2, row_norm=2.0)
    assert mechanism.public_arrays() == ("lower", "upper", "row_norm")
    assert made.parameters() == {"epsilon": 1.0}
    assert made.guarantee().epsilon(0.0) == 1.0
    assert made.fit(jax.random.key(0), digits(20)).components.shape == (2, 64)


def test_a_new_data_set_is_listed_described_loaded_and_audited(monkeypatch, tmp_path, capsys):
    contributing.add(monkeypatch, "Add a data set")
    monkeypatch.setenv("DRJAX_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"wine/wine\.csv.*load_wine, written as CSV"):
        drjax.load("wine")
    table = load_wine()
    lines = [",".join([*table.feature_names, "grower"])]
    lines += [",".join([*(f"{v:g}" for v in x), str(y)]) for x, y in zip(table.data, table.target, strict=True)]
    (tmp_path / "wine").mkdir()
    (tmp_path / "wine" / "wine.csv").write_bytes(("\n".join(lines) + "\n").encode())
    main(["data", "list"])
    assert "wine" in capsys.readouterr().out
    main(["data", "info", "wine"])
    said = capsys.readouterr().out
    assert "CC BY 4.0" in said
    assert hashlib.sha256((tmp_path / "wine" / "wine.csv").read_bytes()).hexdigest() in said
    found = drjax.load("wine")
    assert found.x.shape == (178, 13)
    np.testing.assert_array_equal(found.y, table.target)
    np.testing.assert_allclose(found.x * found.scale + found.offset, table.data, rtol=1e-4)  # float32, six digits
    main(["audit", "--data", "wine", "--attacks", "closed-form", "--out", f"{tmp_path}/o", *SMALL])
    assert "wine" in (tmp_path / "o" / "report.html").read_text("utf-8")


def test_a_new_report_section_is_rendered_and_its_text_escaped(monkeypatch):
    made = contributing.add(monkeypatch, "Add a report section")
    own = {"bars.html.jinja": contributing.block("Add a report section", "jinja")}
    environment = page._environment()
    monkeypatch.setattr(environment, "loader", jinja2.ChoiceLoader([jinja2.DictLoader(own), environment.loader]))
    rows = (test_report.row("a <b>", 0.1, 0.75), test_report.row("guess", 0.2, 0.0, is_baseline=True))
    report = test_report.report(rows=rows)
    report = dataclasses.replace(report, sections=(*report.sections, made.success(rows)))
    text = page.render(report)
    assert "<h2 id" in text
    assert '<meter value="0.75">0.75</meter> a &lt;b&gt;' in text
    assert text.count("<meter") == 1


def test_a_new_experiment_is_computed_once_by_its_command(tmp_path, monkeypatch, capsys):
    one = contributing.add(monkeypatch, "Add an experiment").SWEEP
    words = ["--scale", "smoke", "--out", str(tmp_path)]
    command.main(one, [*words, "--part", "1/2"])
    assert len(capsys.readouterr().out.splitlines()) == 2
    command.main(one, words)
    assert len(capsys.readouterr().out.splitlines()) == 1
    command.main(one, [*words, "--list"])
    assert capsys.readouterr().out.splitlines()[-1] == "# 3 cells done, 0 to do"
    for line in records.read_records(tmp_path / sweep.RESULTS)[1:]:
        assert 0.2 < line["captured"] < 0.5
        assert line["provenance"]
