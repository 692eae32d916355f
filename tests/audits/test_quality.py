import dataclasses

import numpy as np
import pytest
import scipy.stats
from scipy.spatial.distance import pdist
from sklearn.manifold import trustworthiness
from sklearn.neighbors import NearestNeighbors

from drjax.audits import AuditConfig, quality, run
from drjax.core.types import Status
from drjax.dr import PCA, UMAP, SparseRandomProjection
from drjax.reports import records


def releases(m=6, n=40, d=7, k=2):
    rng = np.random.default_rng(0)
    known, targets = rng.normal(size=(n - 1, d)), rng.normal(size=(m, d))
    coords = np.stack([np.vstack([target, known])[:, :k] for target in targets]) + 0.1 * rng.normal(size=(m, n, k))
    return known, targets, coords, np.zeros(m, np.uint32)


def test_figures_are_means_and_student_intervals_of_scikit_learns_and_scipys():
    known, targets, coords, status = releases()
    found = quality.measure(PCA(), known, targets, coords, np.arange(6.0), status)
    values = {"trustworthiness": [], "continuity": [], "knn_preservation": [], "stress_1": []}
    for target, points in zip(targets, coords, strict=True):
        x = np.vstack([target, known])
        values["trustworthiness"].append(trustworthiness(x, points, n_neighbors=5))
        values["continuity"].append(trustworthiness(points, x, n_neighbors=5))
        near, shown = (NearestNeighbors(n_neighbors=5).fit(a).kneighbors(return_distance=False) for a in (x, points))
        values["knn_preservation"].append(np.mean([len(set(a) & set(b)) / 5 for a, b in zip(near, shown, strict=True)]))
        values["stress_1"].append(np.sqrt(np.sum((pdist(points) - pdist(x)) ** 2) / np.sum(pdist(points) ** 2)))
    values["objective"] = np.arange(6.0)
    for name, expected in values.items():
        low, high = scipy.stats.ttest_1samp(expected, 0).confidence_interval(0.95)
        # Distances in float32.
        np.testing.assert_allclose(getattr(found, name), (np.mean(expected), max(low, 0), high), rtol=1e-5)
    assert (found.n_releases, found.n_neighbors, found.n_records) == (6, 5, 40)
    assert found.chance == pytest.approx(5 / 39)


def test_without_a_unit_stress_is_the_least_that_any_scale_gives():
    known, targets, coords, status = releases(m=3)
    first, scaled = (
        quality.measure(UMAP(), known, targets, scale * coords, np.zeros(3), status).stress_1.estimate
        for scale in (1, 50)
    )
    assert first == pytest.approx(scaled, rel=1e-5)
    delta = [pdist(np.vstack([target, known])) for target in targets]
    scales = np.geomspace(0.2, 5, 2000)
    least = [
        min(np.sqrt(np.sum((s * pdist(y) - x) ** 2) / np.sum((s * pdist(y)) ** 2)) for s in scales)
        for x, y in zip(delta, coords, strict=True)
    ]
    assert first == pytest.approx(np.mean(least), rel=1e-4)  # the grid of scales


def test_unusable_releases_and_sizes_without_neighbourhoods_are_left_out():
    known, targets, coords, status = releases()
    whole = quality.measure(PCA(), known, targets[1:], coords[1:], np.zeros(5), status[1:])
    spoilt = coords.copy()
    spoilt[0] = np.nan
    status[0] = Status.NON_FINITE
    assert quality.measure(PCA(), known, targets, spoilt, np.zeros(6), status) == whole
    assert quality.measure(PCA(), known, targets, spoilt, np.zeros(6), np.full(6, Status.NON_FINITE)) is None
    assert quality.measure(PCA(), known[:1], targets, coords[:, :2], np.zeros(6), status) is None
    few = quality.measure(PCA(), known[:2], targets, coords[:, :3], np.zeros(6), 0 * status)
    assert few.n_neighbors == 1
    one = quality.measure(SparseRandomProjection(), known, targets[1:2], coords[1:2], np.array([np.nan]), status[1:2])
    assert np.isnan(one.trustworthiness.low)
    words = quality.in_words(SparseRandomProjection(), one)
    assert words.rows[1][1] == (f"{one.trustworthiness.estimate:.3f}",)
    assert len(words.rows) == 4  # a projection minimises nothing


def test_of_large_releases_records_drawn_at_random_are_looked_at_and_that_is_said(monkeypatch):
    known, targets, coords, status = releases(n=400)
    whole = quality.measure(PCA(), known, targets, coords, np.zeros(6), status)
    assert "looked at" not in quality.in_words(PCA(), whole).caption
    monkeypatch.setattr(quality, "MOST_RECORDS", 200)
    some = quality.measure(PCA(), known, targets, coords, np.zeros(6), status)
    assert (some.n_records, some.n_seen, some.chance) == (400, 200, 5 / 199)
    # A measure of all pairs is about the same in half of the records, and not the same.
    assert some.stress_1.estimate == pytest.approx(whole.stress_1.estimate, rel=0.05)
    assert some.stress_1.estimate != whole.stress_1.estimate
    # The target's row is looked at: of targets far from their places stress is large.
    away = coords.copy()
    away[:, 0] += 100
    assert quality.measure(PCA(), known, targets, away, np.zeros(6), status).stress_1.estimate > 0.5
    assert "200 of them looked at, drawn at random" in quality.in_words(PCA(), some).caption
    assert "in 200 records drawn from the data" in quality.lead(some)


def test_only_so_many_releases_are_measured_as_the_number_of_pairs_allows(monkeypatch):
    known, targets, coords, status = releases()
    monkeypatch.setattr(quality, "PAIRS", 40**2 * 3)
    monkeypatch.setattr(quality, "FEWEST", 2)
    assert quality.measure(PCA(), known, targets, coords, np.zeros(6), status).n_releases == 3


@pytest.mark.parametrize(("method", "options"), [("isomap", {"n_neighbors": 7}), ("tsne", {"perplexity": 8.0})])
def test_an_audit_writes_the_quality_of_its_releases(tmp_path, method, options):
    config = AuditConfig(
        method=method,
        hyperparameters=options,
        n_known=40,
        n_shadow=40,
        n_validation=10,
        n_targets=12,
        attacks=("ridge",),
        decimals=3,
    )
    result = run(config, tmp_path / "out")
    written = [r for r in records.read_records(tmp_path / "out" / "records.jsonl") if r["kind"] == "quality"]
    assert len(written) == 1
    assert written[0]["scores"] == records.to_json(result.quality)
    assert sum(written[0]["status_counts"].values()) >= 12
    chunk = records.load_arrays(tmp_path / "out/releases/00000000.npz")
    assert result.quality.objective.estimate == pytest.approx(chunk["objective"].mean(), rel=1e-6)
    page = result.report.read_text("utf-8")
    words = quality.in_words(config.dr_method, result.quality)
    for text in (quality.lead(result.quality), words.caption, *(figure[0] for _, figure, _ in words.rows)):
        assert text in page
    option = next(iter(options))
    assert f"--{option.replace('_', '-')} {options[option]}" in page
    again = run(config, tmp_path / "out", resume=True)
    assert again.quality == result.quality
    with pytest.raises(ValueError, match="hyperparameters differ"):
        run(dataclasses.replace(config, hyperparameters={}), tmp_path / "out", resume=True)


def test_options_that_a_method_lacks_are_refused():
    with pytest.raises(ValueError, match=r"options must be among .* for method 'pca', got"):
        AuditConfig(method="pca", hyperparameters={"perplexity": 3})
    with pytest.raises(ValueError, match="perplexity"):
        AuditConfig(method="tsne", hyperparameters={"perplexity": -3})
