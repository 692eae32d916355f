import dataclasses
import hashlib
import json

import numpy as np
import pytest

from drjax.bounds import tradeoff
from drjax.bounds.ledger import BudgetExceeded, Ledger
from drjax.defenses.dp_pca import MECHANISMS, AnalyticGauss
from drjax.releases import PCAReleaseConfig, budget, manifest, pca_report, release_pca
from drjax.releases import mechanism as mechanisms
from drjax.releases.bounds import Bounds
from drjax.releases.published import intercept

FAST = {"trials": 19, "splits": 2}
UNREHEARSED = {"trials": 0}
D = 5
BOUNDS = Bounds(-np.ones(D), np.ones(D), np.zeros(D), np.ones(D), 1.5, {}, True)


def written(folder, *, seed=0, n=60):
    x = np.random.default_rng(seed).normal(size=(n, D)) * 2.0 ** -np.arange(D)
    np.savetxt(folder / "x.csv", x, delimiter=",", header="a,b,c,d,e", comments="")
    (folder / "bounds.json").write_text(json.dumps({"lower": [-4] * D, "upper": [4] * D}))
    return {"data": folder / "x.csv", "bounds": folder / "bounds.json"}


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    folder = tmp_path_factory.mktemp("release")
    config = PCAReleaseConfig(epsilon=2.0, n_components=3, **written(folder), **FAST)
    return config, release_pca(config, folder / "out"), folder


def test_the_claim_of_the_manifest_is_the_guarantee_of_the_mechanism(released):
    _, result, _ = released
    found = manifest.read(result.folder / "manifest.json")
    curve = manifest.curve_of(found)
    fields = {"n_components": 3, "row_norm": 4 * np.sqrt(D), "mean_weight": 0.625}
    least = AnalyticGauss.for_release(2.0, 1e-6, neighbouring="replace_one", **fields)
    assert isinstance(curve, tradeoff.ZCDP)
    assert curve == result.release.curve
    # mu^2 / 2, mu = sqrt(2) (1 + weight^2) / multiplier
    assert curve.rho == pytest.approx((1 + 0.625**2) ** 2 / least.noise_multiplier**2, rel=1e-12)
    claim = found["guarantee"]
    assert curve.delta_at(claim["epsilon"]) <= claim["delta"] < curve.delta_at(0.999 * claim["epsilon"])
    assert (claim["epsilon"], claim["delta"], claim["neighbouring"]) == (2.0, 1e-6, "replace_one")
    blob = (result.folder / "components.npz").read_bytes()
    assert found["files"]["components.npz"]["sha256"] == hashlib.sha256(blob).hexdigest()
    assert result.ceiling is not None
    assert result.expected is not None
    assert max(attack.auc.low for attack in result.expected[1].attacks if attack.is_private) < result.ceiling


def test_the_components_are_those_of_the_published_matrix(released):
    _, result, _ = released
    with np.load(result.folder / "components.npz") as arrays:
        values, vectors = np.linalg.eigh(arrays["moment"])
        np.testing.assert_allclose(arrays["eigenvalues"], values[::-1][:3], rtol=1e-9)
        np.testing.assert_allclose(np.abs(np.sum(arrays["components"] * vectors[:, ::-1].T[:3], axis=1)), 1, rtol=1e-9)
        assert list(arrays["columns"]) == list("abcde")
        np.testing.assert_array_equal(arrays["origin"], np.zeros(D))
        joint = arrays["joint"]
        np.testing.assert_allclose(arrays["center"], joint[0, 1:])
        made = intercept(result.folder / "components.npz", manifest=result.folder / "manifest.json").mechanism
        raw, mean = joint[1:, 1:] - np.outer(joint[0, 1:], joint[0, 1:]), joint[0, 1:]
        np.testing.assert_allclose(arrays["moment"], made.steadied(raw, mean, 60), rtol=1e-9)
        assert joint[0, 0] == 1
        assert (arrays["lower"] == -4).all()
        assert (arrays["upper"] == 4).all()
        assert arrays["row_norm"] == 4 * np.sqrt(D)
        assert arrays["n_records"] == 60


def test_two_releases_differ_and_their_manifests_hold_nothing_that_depends_on_the_records(released, tmp_path):
    config, result, _ = released
    files = written(tmp_path, seed=1)
    other = release_pca(PCAReleaseConfig(epsilon=2.0, n_components=3, **files, **UNREHEARSED), tmp_path / "out")
    again = release_pca(dataclasses.replace(config, **UNREHEARSED), tmp_path / "again")
    assert np.abs(again.release.moment - result.release.moment).min() > 0

    def public(found):
        # The hash is of the noisy release.
        return {name: entry for name, entry in found.items() if name != "files"}

    assert public(other.manifest) == public(result.manifest) == public(again.manifest)
    assert "seed" not in result.manifest["provenance"]
    assert sorted(path.name for path in result.folder.iterdir()) == ["components.npz", "manifest.json"]


def test_the_report_says_first_that_it_is_not_for_publication(released):
    text = (released[1].private_folder / "report.html").read_text()
    assert text.index("DO NOT PUBLISH THIS REPORT") < text.index("expected to keep")
    assert text.count("data:image/png;base64,") == 2
    assert "<script" not in text
    assert "http" not in text.replace("http-equiv", "")


def test_an_attack_rebuilds_the_mechanism_from_what_is_published(released):
    _, result, _ = released
    found = intercept(result.folder / "components.npz", manifest=result.folder / "manifest.json")
    assert found.mechanism.guarantee().curve.mu ** 2 / 2 == pytest.approx(result.release.curve.rho)
    assert found.mechanism.row_norm == 4 * np.sqrt(D)
    assert found.release.n_records == 60
    assert found.curve == result.release.curve


def test_under_add_or_remove_the_number_of_records_is_published_nowhere(tmp_path):
    files = written(tmp_path, n=61)
    config = PCAReleaseConfig(epsilon=1.0, neighbouring="add_or_remove", divisor=50.0, **files, **UNREHEARSED)
    result = release_pca(config, tmp_path / "out")
    assert result.manifest["n_records"] is None
    assert "61" not in result.manifest["released"]
    with np.load(result.folder / "components.npz") as arrays:
        assert "n_records" not in arrays.files
        assert arrays["components"].shape == (2, D)  # 10, but at most half of the columns
        assert arrays["joint"][0, 0] != 61 / 50  # noisy
    found = intercept(result.folder / "components.npz", manifest=result.folder / "manifest.json")
    assert found.release.n_records == 50


def test_bounds_from_the_records_leave_no_claim_and_no_number_of_them(tmp_path):
    files = written(tmp_path)
    config = PCAReleaseConfig(data=files["data"], epsilon=1.0, delta=0.0, bounds_from_private_data=True, **UNREHEARSED)
    result = release_pca(config, tmp_path / "out")
    text = (tmp_path / "out" / "manifest.json").read_text()
    assert text.splitlines()[0].startswith('{"warning": "THE GUARANTEE DOES NOT HOLD')
    assert manifest.curve_of(result.manifest) is None
    assert result.ceiling is None
    assert "curves" not in text
    assert "scale 1" not in text
    page = (tmp_path / "out.private" / "report.html").read_text()
    assert page.index("THE GUARANTEE DOES NOT HOLD") < page.index("DO NOT PUBLISH") < page.index("NOT guaranteed")
    assert "no attack is above" not in page


def test_a_ledger_is_charged_before_the_noise_and_refuses_what_is_too_much(tmp_path, monkeypatch):
    files = written(tmp_path)
    digest = hashlib.sha256(files["data"].read_bytes()).hexdigest()
    path = tmp_path / "ledger.json"
    ledger = Ledger.create(path, dataset="x", sha256=digest, neighbouring="replace_one", epsilon=1.3, delta=1e-6,
                           accountant="zcdp")  # fmt: skip
    config = PCAReleaseConfig(epsilon=1.0, ledger=path, **files, **UNREHEARSED)
    kind, spent = AnalyticGauss, []
    draw = kind.release

    def watched(self, x):
        spent.append((len(x), len(ledger.entries)))
        return draw(self, x)

    monkeypatch.setattr(kind, "release", watched)
    result = release_pca(config, tmp_path / "one")
    assert spent[-1] == (60, 1)
    assert {n for n, _ in spent[:-1]} == {1}  # a record at the centre: what is proven, before anything is drawn
    assert ledger.entries[0].curve == result.release.curve
    before = path.read_bytes()
    with pytest.raises(BudgetExceeded, match="must fit into what is left"):
        release_pca(config, tmp_path / "two")
    assert path.read_bytes() == before
    assert {n for n, _ in spent[3:]} == {1}
    assert sorted(p.name for p in tmp_path.iterdir() if not p.name.startswith(".")) == [
        "bounds.json", "ledger.json", "one", "one.private", "x.csv",
    ]  # fmt: skip
    with pytest.raises(ValueError, match="sha256 must be that of the ledger"):
        budget.check_budget(path, "0" * 64, "replace_one", result.release.curve, 1e-6, "x")


@pytest.mark.parametrize(
    ("accountant", "kind"),
    [("basic", tradeoff.EpsilonDelta), ("zcdp", (tradeoff.ZCDP, tradeoff.EpsilonDelta))],
)
@pytest.mark.parametrize("name", mechanisms.exact())
def test_every_release_can_be_charged(tmp_path, accountant, kind, name):
    name, delta = mechanisms.choose(name, None)
    made = mechanisms.calibrated(name, 0.5, delta, neighbouring="zero_out", bounds=BOUNDS, n_components=2, divisor=9.0)
    proof = mechanisms.proof_of(made)
    ledger = Ledger.create(tmp_path / "l.json", dataset="x", sha256="0" * 64, neighbouring="zero_out",
                           epsilon=0.75, delta=1e-5, accountant=accountant)  # fmt: skip
    entry = budget.entry_curve(ledger, proof.curve, delta)
    assert isinstance(entry, kind)
    budget.charge(ledger.path, "0" * 64, "zero_out", proof.curve, delta, name)
    assert ledger.spent().epsilon_at(1e-5) <= 0.5 + 1e-9
    assert made.release(np.random.default_rng(0).normal(size=(20, D))).curve == proof.curve


@pytest.mark.parametrize(
    ("curve", "words"),
    [
        (tradeoff.EpsilonDelta(1.5, neighbouring="zero_out"), "1.5-DP"),
        (tradeoff.EpsilonDelta(1.5, 1e-6, neighbouring="zero_out"), "(1.5, 1e-06)-DP"),
        (tradeoff.Gaussian(0.5, neighbouring="zero_out"), "Gaussian of mu 0.5"),
    ],
)
def test_the_report_says_all_that_a_curve_proves_and_no_more(curve, words):
    assert pca_report._curve(curve) == words
    both = tradeoff.minimum(curve, tradeoff.ZCDP(0.25, neighbouring="zero_out"))
    assert pca_report._curve(both) == f"{words} and 0.25-zCDP"


def test_mechanisms_without_an_exact_sampler_are_refused():
    assert set(MECHANISMS) - set(mechanisms.exact()) == {"noisy-power", "wishart"}
    for name in ("noisy-power", "wishart"):
        with pytest.raises(ValueError, match="must have an exact sampler"):
            mechanisms.choose(name, None)
    assert mechanisms.choose(None, None) == ("analytic-gauss", 1e-6)
    assert mechanisms.choose(None, 0.0) == ("laplace-scalar", 0.0)
    assert mechanisms.choose("lap-pca", None) == ("lap-pca", 0.0)


def test_nothing_is_left_of_a_release_that_fails(tmp_path, monkeypatch):
    files = written(tmp_path)

    def broken(*_, **__):
        raise OSError("no space left")

    monkeypatch.setattr("drjax.releases.pca.manifest.write", broken)
    with pytest.raises(OSError, match="no space left"):
        release_pca(PCAReleaseConfig(epsilon=1.0, **files, **UNREHEARSED), tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bounds.json", "x.csv"]


def test_components_of_stated_kinds_are_those_of_the_features_that_they_become(tmp_path):
    """Dates, ranks, categories and missing cells, with a budget at which the noise does not show."""
    rng = np.random.default_rng(0)
    days, grades, wards = rng.integers(0, 3000, 500), rng.integers(0, 3, 500), rng.integers(0, 2, 500)
    names, places = ("mild", "moderate", "severe"), ("north", "south")
    crp = np.where(grades == 2, 60, 10) + rng.integers(0, 20, 500)
    written = ["n/a" if i % 5 == 0 else f"{value} mg/L" for i, value in enumerate(crp)]
    lines = [
        f"{np.datetime64('2010-01-01') + day},{names[grade]},{places[ward]},{text},x"
        for day, grade, ward, text in zip(days, grades, wards, written, strict=True)
    ]
    (tmp_path / "t.csv").write_text("\n".join(["born,grade,ward,crp,note", *lines]) + "\n")
    stated = {
        "born": {"kind": "date", "lower": "2010-01-01", "upper": "2020-01-01", "scale": "half the range"},
        "grade": {"kind": "ordinal", "categories": list(names)},
        "ward": list(places),
        "crp": {"kind": "integer", "lower": 0, "upper": 100, "fill": 15, "scale": 50},
        "note": "drop",
    }
    (tmp_path / "bounds.json").write_text(json.dumps(stated))
    config = PCAReleaseConfig(
        data=tmp_path / "t.csv", epsilon=1e6, bounds=tmp_path / "bounds.json", n_components=5, **UNREHEARSED
    )
    result = release_pca(config, tmp_path / "out")
    filled = np.where(np.arange(500) % 5 == 0, 15, crp)
    start = (np.datetime64("2010-01-01") - np.datetime64("1970-01-01")).astype(int)
    features = np.column_stack([days + start, grades, wards == 0, wards == 1, filled]).astype(float)
    scale = np.array([3652 / 2, 1, 1, 1, 50])
    with np.load(result.folder / "components.npz") as arrays:
        assert list(arrays["columns"]) == ["born", "grade", "ward=north", "ward=south", "crp"]
        np.testing.assert_array_equal(arrays["scale"], scale)
        np.testing.assert_allclose(arrays["center"], features.mean(axis=0), rtol=1e-3)
        expected = np.cov((features / scale).T, bias=True)
        np.testing.assert_allclose(arrays["moment"], expected, atol=2e-3)
        # At the middle: halves of the numbers, and of the two wards an equal share.
        np.testing.assert_array_equal(arrays["origin"][1:], [1, 0.5, 0.5, 50])
        assert arrays["row_norm"] == pytest.approx(np.sqrt(1 + 1 + 0.5 + 1))
    assert result.outside == 100
    assert json.loads((result.folder / "schema.json").read_text())["crp"]["fill"] == 15
    assert result.manifest["bounds"]["scale"] == "stated; where nothing is, 1: columns keep their units"
