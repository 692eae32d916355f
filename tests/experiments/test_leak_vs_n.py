import dataclasses

import numpy as np
import pytest
from sklearn.decomposition import PCA

from drjax.attacks.reconstruction.closed_form.each import reconstruct_pca_each
from drjax.reports import records
from experiments import command, drawings, sweep
from experiments.leak_vs_n import law, releases, report, tables
from experiments.leak_vs_n import run as experiment


@pytest.fixture(scope="module")
def drawn():
    return releases.generated(3, 4000)


def test_generated_records_are_the_first_of_more(drawn):
    assert drawn.dtype == np.float32
    assert drawn.min() >= 0
    assert drawn.max() <= 1
    np.testing.assert_array_equal(drawn[:500], releases.generated(3, 500))
    assert not np.array_equal(drawn[:500], releases.generated(4, 500))


@pytest.mark.parametrize("published", ["float32", "3 decimals"])
def test_the_law_says_what_rounding_takes_of_scores_by_scikit_learn(drawn, published):
    m, errors, expected = 20, [], []
    of = law.population(drawn, m)
    for n in (1000, 4000):
        scores = PCA(2, svd_solver="full").fit_transform(drawn[:n].astype(np.float64))
        rounded = releases.rounded(scores, published).astype(np.float64)
        found = reconstruct_pca_each(drawn[:n], rounded, rows=np.arange(m), noise=0.0)
        errors.append(np.mean((found.x - drawn[:m]) ** 2, axis=1))
        expected.append(law.predicted(of, n, law.rounding(of.scores, releases.PUBLISHED[published][1])))
    ratios = np.median(np.divide(errors, expected), axis=1)
    assert (ratios > 0.8).all()
    # In float32 the first component is rounded more than the second, and the attack takes their noise for the same.
    assert (ratios < (2.0 if published == "float32" else 1.3)).all()


def test_error_grows_as_the_number_of_records_until_nothing_is_left(drawn):
    of = law.population(drawn, 5)
    usual = (of.z**2).sum(axis=1) / of.d
    tiny, huge = np.full(2, 1e-20), np.full(2, 1e9)
    np.testing.assert_allclose(law.predicted(of, 10**6, tiny) / law.predicted(of, 10**5, tiny), 10, rtol=0.01)
    np.testing.assert_allclose(law.predicted(of, 10**5, 100 * tiny) / law.predicted(of, 10**7, tiny), 1, rtol=0.01)
    np.testing.assert_allclose(law.predicted(of, 10**5, huge), usual, rtol=1e-6)


@pytest.mark.parametrize("published", ["float32", "3 decimals"])
def test_rounding_has_the_variance_that_is_said(drawn, published):
    scores = (drawn[:, :2].astype(np.float64) - 0.5) * 7 + np.random.default_rng(0).uniform(-1e-3, 1e-3, (4000, 2))
    off = releases.rounded(scores, published) - scores
    dtype, decimals = releases.PUBLISHED[published]
    np.testing.assert_allclose(law.rounding(scores, decimals, dtype), (off**2).mean(axis=0), rtol=0.06)


def test_exponents_are_those_of_powers_with_an_interval_over_targets():
    n, own = np.array([100, 1000, 20_000]), np.array([1.0, 0.5, 0.75])
    found = law.exponent(n, 3.0 * n[:, None] ** own)
    assert found.estimate == pytest.approx(0.75)
    # Student's interval of the mean of 1, 0.5 and 0.75: 4.303 standard errors to each side.
    assert found.high - found.estimate == pytest.approx(4.303 * 0.25 / np.sqrt(3), rel=1e-3)
    assert np.isnan(law.exponent(n[:1], np.ones((1, 3))).estimate)


def test_the_command_writes_cells_tables_and_the_figure(tmp_path, capsys):
    command.main(experiment.SWEEP, ["--scale", "smoke", "--out", str(tmp_path)])
    lines = records.read_records(tmp_path / sweep.RESULTS)[1:]
    assert len(lines) == 9 + 4
    found = report.series(lines)
    exact = found["PCA", "digits", "float64"]
    assert max(np.median(report.shares(line)) for line in exact) < 1e-15
    rounded = found["PCA", "digits", "3 decimals"]
    assert [line["n"] for line in rounded] == [60, 300, 1200]
    assert ["predicted" in line for line in rounded] == [False, True, True]
    assert 0.4 < np.median(np.divide(rounded[-1]["error"], rounded[-1]["predicted"])) < 1.5
    nearest = [np.median(report.shares(line, "nearest_error")) for line in rounded]
    assert nearest == sorted(nearest, reverse=True)
    of_targets = {tuple(line["mean_error"]) for line in found["PCA", "digits", "float32"]}
    assert len(of_targets) == 3
    projected = found["random projection", "digits", "float32"]
    assert all(0.5 < np.median(report.shares(line)) < 1.0 for line in projected)
    said = capsys.readouterr().out
    assert "| PCA | digits | 3 decimals | 1,200 | 12 |" in said
    assert "| PCA | digits | 3 decimals | 300 to 1,200 |" in said
    assert drawings.digest_of(tmp_path / f"{report.FIGURE}.svg") == drawings.digest(report.figure(lines))


def test_releases_of_more_records_than_there_are_are_refused(tmp_path):
    plan = experiment.Plan(way="random projection", data="digits", n=(1795,), targets=12)
    config = dataclasses.replace(experiment.SMOKE, plans=(plan,))
    with pytest.raises(ValueError, match="n must be <= the records of digits = 1797, got 1806"):
        sweep.run(experiment.SWEEP, config, tmp_path)


def test_a_target_without_an_answer_counts_as_the_mean_record():
    line = {"error": [0.1, float("nan")], "mean_error": [0.2, 0.3]}
    np.testing.assert_allclose(report.shares(line), [0.5, 1.0])


def test_exponents_of_components_are_of_four_times_as_many_records_as_features():
    def line(n, way="PCA", power=2.0):
        errors = [n**power, 3 * n**power]
        own = {"way": way, "data": "mnist", "published": "float32", "n": n, "d": 10, "targets": 2}
        return own | {"error": errors, "nearest_error": [1.0, 1.0], "predicted": [2 * e for e in errors]}

    found = report.grown([line(20, power=5.0), line(40), line(400)])
    assert report.span(found.used) == "40 to 400"
    assert report.exponent_words(found.error) == "2.00 (2.00 to 2.00)"
    assert found.ratios == [0.5, 0.5]
    assert report.grown([line(20), line(40)]) is None
    assert report.span(report.grown([line(20, "UMAP"), line(40, "UMAP")]).used) == "20 to 40"


def test_a_series_that_is_not_committed_has_no_table():
    with pytest.raises(LookupError, match="t-SNE of cifar10"):
        tables.series_of("t-SNE", "cifar10", "float32")
