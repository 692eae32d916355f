import csv
import dataclasses

import jax
import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.decomposition import PCA as SklearnPCA
from sklearn.decomposition import FastICA, KernelPCA
from sklearn.manifold import TSNE as SklearnTSNE
from sklearn.manifold import Isomap as SklearnIsomap
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

import drjax
from drjax.attacks.recognition import recognise
from drjax.audits import AuditConfig, map_check, run
from drjax.audits.released import MULTIPLIED, NOT_RECOGNISED, ReleasedSetting
from drjax.dr import PCA, TSNE, Isomap, Pipeline, Rescale, Rotate, Shift, Standardise
from drjax.dr.quality import knn_preservation
from drjax.reports.records import load_arrays
from drjax.reports.verdict_rule import CONCLUSIONS

N = 60


@pytest.fixture(scope="module")
def x():
    return load_breast_cancer().data[:N, :8]


@pytest.fixture(scope="module")
def standardised(x):
    return StandardScaler().fit_transform(x)


@pytest.fixture(scope="module")
def saved(x, tmp_path_factory):
    """The table as a CSV file, and a function that writes a map with four decimals beside it."""
    folder = tmp_path_factory.mktemp("data")
    names = ",".join(f"feature{j}" for j in range(x.shape[1]))
    np.savetxt(folder / "table.csv", x, delimiter=",", header=names, comments="", fmt="%.10g")

    def write(name, coords):
        head = ",".join(f"c{j}" for j in range(coords.shape[1]))
        np.savetxt(folder / f"{name}.csv", coords, delimiter=",", header=head, comments="", fmt="%.4f")
        return {"data": str(folder / "table.csv"), "released": str(folder / f"{name}.csv")}

    return write


def table(result):
    return list(csv.DictReader(result.table.read_text().splitlines()))


def test_a_map_by_scikit_learn_of_a_table_in_its_own_units_gives_its_records_away(x, saved, tmp_path):
    config = AuditConfig(method="pca", n_components=6, **saved("pca", SklearnPCA(6).fit_transform(x)))
    result = run(config, tmp_path / "o")
    lines = table(result)
    assert sorted(int(line["row"]) for line in lines) == list(range(N))
    # Six of eight components of values up to 1,000 show all but the finest; scaled to [0, 1] before, they would not.
    assert np.median([float(line["ratio"]) for line in lines]) < 0.05
    assert result.verdict.level == "high"
    assert result.belief is None
    page = result.report.read_text("utf-8")
    assert "stated: PCA" in page
    assert "made of the records as they are in the file" in page
    assert "rounded to 4 decimals" in page
    # The table of features is in the units of the file.
    worst = int(lines[0]["row"])
    assert f"{x[worst, 0]:.4g}" in page
    # What is kept of an attack is in these units as well.
    kept = load_arrays(tmp_path / "o/attacks/closed-form.npz")["x"]
    assert np.median(np.abs(kept - x) / x.std(axis=0)) < 0.05


def test_a_map_is_recognised_and_the_report_says_how_far(saved, standardised, tmp_path):
    pair = saved("standardised", SklearnPCA(2).fit_transform(standardised))
    result = run(AuditConfig(max_records=3, seed=1, **pair), tmp_path / "o")
    assert result.belief.title == "PCA of standardised records"
    assert len(table(result)) == 3
    page = result.report.read_text("utf-8")
    for words in ("believed: PCA of standardised records", "runner-up", "times as large", "(recognised)", "made anew"):
        assert words in page
    assert "behind-steps" in {file.name for file in (tmp_path / "o/attacks").iterdir()}


def test_isomap_is_compared_with_the_map_made_anew(saved, standardised, tmp_path):
    pair = saved("isomap", SklearnIsomap(n_neighbors=7).fit_transform(standardised))
    options = {"method": "isomap", "scale": ("standard",), "attacks": ("map",), **pair}
    result = run(AuditConfig(hyperparameters={"n_neighbors": 7}, **options), tmp_path / "o")
    assert "Compared with the map made anew" in result.report.read_text("utf-8")
    with pytest.raises(ValueError, match="released must be the map that Isomap of standardised records makes"):
        run(AuditConfig(hyperparameters={"n_neighbors": 8}, **options), tmp_path / "other")


def test_a_random_map_is_not_compared(saved, x, tmp_path):
    pair = saved("tsne", SklearnTSNE(perplexity=10, random_state=0).fit_transform(x))
    config = AuditConfig(method="tsne", hyperparameters={"perplexity": 10}, attacks=("map",), **pair)
    said = run(config, tmp_path / "o").report.read_text("utf-8")
    assert f"{map_check.NOT_COMPARED} But of a record&#39;s 10 nearest " in said


def test_a_random_map_whose_rows_are_in_another_order_is_refused(saved, x, tmp_path):
    made = SklearnTSNE(perplexity=10, random_state=0).fit_transform(x)
    rng = np.random.default_rng(0)
    unrelated = {"another order": made[rng.permutation(len(made))], "noise": rng.normal(size=made.shape)}
    for name, coords in unrelated.items():
        config = AuditConfig(method="tsne", hyperparameters={"perplexity": 10}, attacks=("map",), **saved(name, coords))
        with pytest.raises(ValueError, match="released must be a map of data, one row for each record in the same ord"):
            run(config, tmp_path / name)
        assert not (tmp_path / name).exists()


@pytest.mark.parametrize("factor", [1.0, 0.01])
def test_neighbours_tell_a_map_from_one_of_other_rows_whatever_its_scaling(standardised, x, factor):
    coords = factor * SklearnTSNE(perplexity=10, random_state=0).fit_transform(standardised)
    # Stated without the scaling, too: that is another question.
    for method, seen in ((TSNE(), x), (Pipeline(before=(Standardise(),), method=TSNE()), standardised)):
        (found,), (other,) = (map_check.compare((method,), x, one, None) for one in (coords, coords[::-1]))
        assert found.fits
        assert found.kept[0] == pytest.approx(float(knn_preservation(seen, coords, n_neighbors=10)), abs=0.01)
        assert 10 / (N - 1) < found.kept[1] < found.kept[0]
        assert not other.fits
    (few,) = map_check.compare((TSNE(),), x[:29], coords[:29], None)
    assert few.fits
    assert few.sentence == map_check.NOT_COMPARED


def test_a_map_of_tsne_that_was_scaled_is_attacked_as_it_was_before(saved, standardised, tmp_path):
    made = SklearnTSNE(perplexity=10, method="exact", random_state=0).fit_transform(standardised)
    scaled = (made - made.min(axis=0)) / np.ptp(made, axis=0)
    options = {"method": "tsne", "hyperparameters": {"perplexity": 10}, "scale": ("standard",)}
    options |= {"attacks": ("near-forces-behind-steps",), "max_records": 6}
    found = {
        name: run(AuditConfig(**pair, **more), tmp_path / name)
        for name, pair, more in (
            ("whole", saved("whole", made), options),
            ("scaled", saved("scaled", scaled), options),
            ("recognised", saved("recognised", scaled), {name: options[name] for name in ("attacks", "max_records")}),
        )
    }
    left = {name: np.median(result.exposure.error / result.exposure.mean_error) for name, result in found.items()}
    assert left["whole"] < 0.01
    assert left["scaled"] < 0.1
    assert left["recognised"] < 0.1
    said = {name: result.report.read_text("utf-8") for name, result in found.items()}
    assert [MULTIPLIED in said[name] for name in found] == [False, True, False]
    assert "each column multiplied by a constant" in said["recognised"]


def test_a_small_map_of_tsne_is_to_be_inverted_too(saved, standardised, x):
    steps = {"x": (x, ()), "standardised": (standardised, ("standard",))}
    for name, (records, scale) in steps.items():
        pair = saved(name, SklearnTSNE(perplexity=10, method="exact", random_state=0).fit_transform(records))
        options = {"method": "tsne", "hyperparameters": {"perplexity": 10}, "scale": scale}
        setting = ReleasedSetting(AuditConfig(max_records=2, **options, **pair))
        setting.prepare(progress=False)
        behind = "-behind-steps" if scale else ""
        assert setting.chosen.keys() >= {"map", f"near-forces{behind}", f"inversion{behind}"}


def test_a_map_that_the_stated_method_did_not_make_is_refused(saved, standardised, tmp_path):
    pair = saved("standardised", SklearnPCA(2).fit_transform(standardised))
    with pytest.raises(ValueError, match=r"released must be the map that PCA makes of data.*leave out --method"):
        run(AuditConfig(method="pca", **pair), tmp_path / "o")
    assert not (tmp_path / "o").exists()


def test_a_map_of_none_of_the_methods_is_attacked_by_what_needs_to_know_none(saved, standardised, tmp_path):
    pair = saved("kernel", KernelPCA(2, kernel="rbf", gamma=0.05).fit_transform(standardised))
    result = run(AuditConfig(**pair), tmp_path / "o")
    assert result.belief.method is None
    attacks = [row.label for row in result.rows if not row.is_baseline]
    assert attacks == ["Neighbours in the map", "Regression on places"]
    assert result.verdict.level == "high"
    assert NOT_RECOGNISED in result.verdict.caveats
    assert not any("the method" in line for line in result.verdict.details)
    page = result.report.read_text("utf-8")
    for words in (
        "this unrecognised release",
        "not known; the map in",
        "does not know how they were made",
        "nearest in",
    ):
        assert words in page
    for words in ("believed:", "knows the method", "randomised; the attacks"):
        assert words not in page


@pytest.mark.parametrize(
    "peer", [FastICA(3, random_state=0, max_iter=3000), make_pipeline(SklearnPCA(3), MinMaxScaler())]
)
def test_components_behind_a_linear_map_are_compared_with_those_made_anew(saved, x, standardised, tmp_path, peer):
    pair = saved("mixed", peer.fit_transform(standardised))
    result = run(AuditConfig(n_components=3, options=False, **pair), tmp_path / "o")
    assert "mixed by a linear map" in result.belief.title
    assert result.verdict.level == "high"
    best = next(row for row in result.rows if row.label == "Closed form behind steps")
    assert best.scores.mse.estimate < 0.05 * next(row for row in result.rows if row.is_baseline).scores.mse.estimate
    assert "differs by" in result.report.read_text("utf-8")
    changed = peer.fit_transform(standardised)
    assert map_check.compare((result.belief.method,), x, changed, None)[0].fits
    changed[7] += 0.1 * changed.std(axis=0)
    compared = map_check.compare((result.belief.method,), x, changed, None)[0]
    assert not compared.fits
    assert compared.row == 7


def test_what_is_not_found_in_such_a_map_is_no_all_clear(saved, standardised, tmp_path):
    # Most records lie far apart by this kernel, and the map keeps few neighbours.
    pair = saved("kernel", KernelPCA(2, kernel="rbf", gamma=1.0).fit_transform(standardised))
    result = run(AuditConfig(**pair), tmp_path / "o")
    assert result.verdict.level == "undetermined"
    assert result.verdict.headline == CONCLUSIONS["weak"]
    assert NOT_RECOGNISED in result.verdict.caveats


def test_a_map_that_has_nothing_to_do_with_the_records_as_they_stand_is_refused(saved, x, standardised, tmp_path):
    rng = np.random.default_rng(0)
    kernel = KernelPCA(2, kernel="rbf", gamma=0.2).fit_transform(standardised)
    kinds = {
        "another order": kernel[rng.permutation(N)],
        "noise": rng.normal(size=(N, 2)),
        "PCA in another order": SklearnPCA(4).fit_transform(standardised)[rng.permutation(N)],
    }
    for name, coords in kinds.items():
        with pytest.raises(
            ValueError, match=r"released must be made by one of the methods.*got .*which is no all-clear"
        ):
            run(AuditConfig(n_components=coords.shape[1], **saved(name, coords)), tmp_path / name)
        assert not (tmp_path / name).exists()
    assert not map_check.related(x[: map_check.LEAST_SEEN - 1], kernel[: map_check.LEAST_SEEN - 1]).fits


def test_a_recognised_map_of_another_record_is_a_misfit(saved, x, tmp_path):
    other = x.copy()
    other[0] = x[0] + 2 * x.std(axis=0)  # the record that recognition leaves out
    pair = saved("other", SklearnPCA(2).fit_transform(StandardScaler().fit_transform(other)))
    with pytest.raises(ValueError, match=r"recognised as PCA of standardised records.*MISFIT.*no all-clear"):
        run(AuditConfig(**pair), tmp_path / "o")


def test_the_verb_takes_what_is_in_memory_and_finds_the_same(x, saved, tmp_path):
    pair = saved("pca", SklearnPCA(6).fit_transform(x))
    coords = np.loadtxt(pair["released"], delimiter=",", skiprows=1)
    values = np.loadtxt(pair["data"], delimiter=",", skiprows=1)
    of_files, in_memory = (
        drjax.audit(data, released=released, method="pca", n_components=6, options=False, out=tmp_path / out)
        for data, released, out in ((pair["data"], pair["released"], "a"), (values, coords, "b"))
    )
    np.testing.assert_array_equal(in_memory.exposure.error, of_files.exposure.error)


def test_a_run_goes_on_with_its_own_map_alone(x, saved, tmp_path):
    coords = SklearnPCA(2).fit_transform(x)
    config = AuditConfig(method="pca", **saved("resumed", coords))
    first = run(config, tmp_path / "o")
    assert table(run(config, tmp_path / "o", resume=True)) == table(first)
    saved("resumed", coords * [1, -1])
    with pytest.raises(ValueError, match="out must hold a run on the map"):
        run(config, tmp_path / "o", resume=True)


def test_comparison_is_up_to_signs_and_sees_another_order(x, standardised):
    method, coords = Pipeline(before=(Standardise(),), method=PCA()), SklearnPCA(2).fit_transform(standardised)
    (same,) = map_check.compare((method,), x, coords * [-1, 1], None)
    assert same.fits
    assert same.difference < 1e-9  # two float64 solvers
    (turned,) = map_check.compare((method,), x, coords[::-1].copy(), None)
    assert not turned.fits
    # One row alone of another record.
    coords[5] = coords[6]
    (swapped,) = map_check.compare((method,), x, coords, None)
    assert not swapped.fits
    assert swapped.row == 5


def test_comparison_finds_the_factor_of_a_map(x, standardised):
    method = Pipeline(before=(Standardise(),), method=PCA(), after=(Rescale(factor=2.9),))
    (found,) = map_check.compare((method,), x, 3 * SklearnPCA(2).fit_transform(standardised), None)
    assert found.fits
    assert found.method.after[0].factor == pytest.approx(3)


def test_a_map_that_was_turned_and_shifted_is_turned_back_for_the_comparison(x, standardised):
    turn = np.array([[0.8, -0.6], [0.6, 0.8]])
    coords = SklearnPCA(2).fit_transform(standardised) @ turn + [3, 1]
    belief = recognise(jax.random.key(0), x[1:], coords)
    assert {type(step) for step in belief.method.after} == {Rotate, Shift}
    (found,) = map_check.compare((belief.method,), x, coords, None)
    assert found.fits
    assert found.difference < 1e-9
    assert not map_check.compare((belief.method,), x, coords[::-1].copy(), None)[0].fits
    assert not map_check.compare((belief.method,), x, coords + np.array([0.1, 0]), None)[0].fits


def test_comparison_allows_for_rounding(standardised):
    coords = SklearnIsomap(n_neighbors=6).fit_transform(standardised)
    method = Isomap(n_neighbors=6)
    assert map_check.compare((method,), standardised, np.round(coords, 1), 1)[0].fits
    assert not map_check.compare((method,), standardised, np.round(coords, 1), None)[0].fits
    assert map_check.compare((method,), standardised, coords.astype(np.float16), None)[0].fits


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"n_targets": 40}, "n_targets must be left out with released"),
        ({"n_shadow": 10}, "n_shadow must be left out with released"),
        ({"n_unknown": 3}, "n_unknown must be left out with released"),
        ({"each_record": True}, "each_record must be left out with released"),
        ({"seed_known": True}, "seed_known must be left out with released"),
        ({"dtype": "float64"}, "dtype must be left out with released"),
        ({"defense": "output-noise", "defense_scale": (0.1,)}, "defense must be left out with released"),
        ({"scale": ("standard",)}, "scale must be left out where the method is recognised"),
        ({"hyperparameters": {"perplexity": 5}}, "hyperparameters must be left out where the method is recognised"),
        ({"method": "kernel_pca"}, "method must be one of"),
    ],
)
def test_settings_that_do_not_go_with_a_map_are_refused(changed, words):
    with pytest.raises(ValueError, match=words):
        AuditConfig(released="map.csv", **changed)


def test_method_is_pca_without_a_map_and_recognised_with_one():
    assert AuditConfig().method == "pca"
    assert AuditConfig(released="map.csv").method == "recognised"
    with pytest.raises(ValueError, match="method must be one of"):
        AuditConfig(method="recognised")
    assert dataclasses.replace(AuditConfig(released="map.csv"), method="pca").dr_method == PCA()
