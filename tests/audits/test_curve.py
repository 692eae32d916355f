import dataclasses

import jax
import numpy as np
import pytest
from scipy.spatial.distance import cdist

from drjax.attacks.reconstruction import invariant
from drjax.attacks.registry import ATTACKS
from drjax.audits import AuditConfig, adversary, curve, run
from drjax.core.types import Status
from drjax.data import load, split
from drjax.reports import records
from tests.attacks.threats import of_shapes

SMALL = AuditConfig(
    n_known=80,
    n_shadow=120,
    n_validation=40,
    n_targets=30,
    attacks=("ridge", "closed-form"),
    defense="output-noise",
    defense_scale=(0.3, 0.01),
)


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    return run(SMALL, tmp_path_factory.mktemp("curve") / "out")


def arrays_of(folder):
    return {file.relative_to(folder): records.load_arrays(file) for file in sorted(folder.rglob("*.npz"))}


def test_a_curve_runs_from_the_undefended_release_to_the_strongest_defence(audited):
    points = audited.curve.points
    assert [point.scale for point in points] == [0.0, 0.01, 0.3]
    plain = points[0]
    assert plain.adaptive.mse == plain.non_adaptive.mse
    # More noise: less is taken back and the map is worth less. On 81 digits the closed form is nearly exact without.
    errors = [point.adaptive.mse.estimate for point in points]
    assert errors[0] < 1e-3 < errors[1] < errors[2]
    assert points[0].adaptive.success.estimate > 0.9 > points[2].adaptive.success.estimate
    worth = [point.trustworthiness.estimate for point in points]
    assert worth[0] > worth[2] + 0.01
    assert worth[0] == audited.quality.trustworthiness.estimate
    assert points[0].knn_accuracy.estimate > audited.curve.majority
    mean = next(row for row in audited.curve.baselines if row.label == "Mean record")
    # Drawn towards the mean by what held-out records say, an answer is no worse than the mean but by chance.
    assert all(point.adaptive.mse.estimate < 1.05 * mean.scores.mse.estimate for point in points)


def test_the_main_ladder_is_that_of_an_audit_without_a_defence(audited, tmp_path):
    plain = run(dataclasses.replace(SMALL, defense="none", defense_scale=()), tmp_path / "plain")
    assert plain.curve is None
    assert "What a defence would cost" not in plain.report.read_text("utf-8")
    assert [row.scores.mse for row in plain.rows] == [row.scores.mse for row in audited.rows]


def test_the_adaptive_adversary_s_releases_carry_the_defence_s_noise(audited):
    clean = records.load_arrays(audited.folder / "shadows/00000000.npz")["coords"]
    for scale in (0.01, 0.3):
        noisy = records.load_arrays(audited.folder / f"curve/{scale}/releases/00000000.npz")["coords"]
        m = min(len(clean), len(noisy))
        spread = np.sqrt(np.mean((clean[:m] - clean[:m].mean(axis=1, keepdims=True)) ** 2, axis=(1, 2)))
        noise = (noisy[:m] - clean[:m]) / spread[:, None, None]
        assert np.std(noise) == pytest.approx(scale, rel=0.05)  # 10^4 deviates


def test_records_hold_one_line_per_scale_and_the_report_the_section(audited):
    lines = [r for r in records.read_records(audited.folder / "records.jsonl") if r["kind"] == "curve"]
    assert [line["point"]["scale"] for line in lines] == [0.0, 0.01, 0.3]
    for line, point in zip(lines, audited.curve.points, strict=True):
        assert line["point"] == records.to_json(point)
        assert line["adaptive_choice"]["name"] in (*SMALL.attacks, "invariant")
    page = audited.report.read_text("utf-8")
    assert "What a defence would cost, and what it would buy" in page
    assert "--defense output-noise --defense-scale 0.3 0.01" in page
    assert "output-noise at scale 0.3" in page
    assert (audited.folder / "figures" / "defense.svg").exists()


def test_an_interrupted_curve_resumes_to_bit_identical_results(audited, tmp_path, monkeypatch):
    class Killed(Exception):
        pass

    put, count = records.put_arrays, iter(range(100))

    def put_some(path, arrays):
        if next(count) == 16:  # of 21 files: in the middle of the curve
            raise Killed
        return put(path, arrays)

    monkeypatch.setattr(records, "put_arrays", put_some)
    with pytest.raises(Killed):
        run(SMALL, tmp_path / "part")
    monkeypatch.undo()
    before = arrays_of(tmp_path / "part")
    assert any(name.parts[0] == "curve" for name in before)
    resumed = run(SMALL, tmp_path / "part", resume=True)
    first, second = arrays_of(audited.folder), arrays_of(tmp_path / "part")
    assert first.keys() == second.keys()
    assert len(before) < len(first)
    for name in first:
        assert (audited.folder / name).read_bytes() == (tmp_path / "part" / name).read_bytes()
    for a, b in zip(audited.curve.points, resumed.curve.points, strict=True):
        assert (a.adaptive.mse, a.non_adaptive.success) == (b.adaptive.mse, b.non_adaptive.success)


def test_a_trained_attack_is_trained_on_noise_by_one_adversary_and_without_by_the_other(tmp_path):
    # One matrix for all: the target's own coordinates are two exact numbers, which noise of the records makes inexact.
    config = dataclasses.replace(SMALL, attacks=("ridge",), defense="input-noise", defense_scale=(0.5,), method="srp")
    result = run(dataclasses.replace(config, seed_known=True), tmp_path / "out")
    adaptive, other = result.curve.points[1].adaptive, result.curve.points[1].non_adaptive
    assert adaptive.mse.estimate < other.mse.estimate
    files = {file.name for file in (result.folder / "curve").rglob("*.npz")}
    assert {"ridge.npz", "invariant.npz"} <= files
    assert {"non-adaptive-ridge.npz", "non-adaptive-invariant.npz"} & files


def test_an_unlabelled_table_has_no_accuracy_and_a_release_that_says_nothing_leaves_the_mean_record(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 3)) @ rng.normal(size=(3, 5)) + 0.1 * rng.normal(size=(200, 5))
    np.save(tmp_path / "x.npy", x)
    config = dataclasses.replace(SMALL, data=str(tmp_path / "x.npy"), n_known=30, defense="rounding")
    # On so coarse a grid all points of a release coincide: the closed form has no answer, and what is trained on such
    # releases answers with the mean of the records that it is trained on.
    result = run(
        dataclasses.replace(config, defense_scale=(20.0,), attacks=("closed-form",), n_shadow=100), tmp_path / "out"
    )
    assert result.curve.points[0].knn_accuracy is None
    assert result.curve.majority is None
    assert "no labels" in result.report.read_text("utf-8")
    last = result.curve.points[-1].adaptive
    assert (last.n_targets, last.n_excluded) == (30, 0)
    mean = next(row for row in result.curve.baselines if row.label == "Mean record")
    # The mean of 100 records and that of 140.
    assert last.mse.estimate == pytest.approx(mean.scores.mse.estimate, rel=0.05)


def test_a_correction_is_the_factor_of_least_squares_between_0_and_1():
    rng = np.random.default_rng(0)
    truth, mean = rng.normal(size=(40, 8)), np.full(8, 0.3)
    answers = mean + 2.5 * (truth - mean) + rng.normal(size=truth.shape)
    factor, error = curve._correction(answers, truth, mean)
    grid = np.linspace(0, 1, 20001)
    errors = [np.mean((mean + f * (answers - mean) - truth) ** 2) for f in grid]
    assert factor == pytest.approx(grid[np.argmin(errors)], abs=1e-4)
    assert error == pytest.approx(min(errors), rel=1e-6)
    assert curve._correction(mean + 0.5 * (truth - mean), truth, mean)[0] == 1
    assert curve._correction(mean - truth, truth - mean, 0 * mean)[0] == 0
    assert curve._correction(np.full_like(answers, np.nan), truth, mean)[1] == np.inf


def test_attacks_trained_on_defended_releases_join_whatever_was_asked_for(tmp_path):
    config = dataclasses.replace(SMALL, attacks=("closed-form",), defense="input-noise", defense_scale=(0.05,))
    result = run(config, tmp_path / "out")
    releases = [
        records.load_arrays(file)["coords"] for file in sorted((result.folder / "curve/0.05/releases").glob("0*.npz"))
    ]
    coords = np.concatenate(releases)
    data = load("digits").x
    parts = split(jax.random.split(jax.random.key(config.seed), 4)[0], load("digits"), **adversary.sizes(config, 1797))
    n_shadow, n_targets = config.n_shadow, config.n_targets
    model = invariant.fit(coords[:n_shadow], data[parts.shadow])
    answers = model.reconstruct(coords[-n_targets:]).x
    error = np.mean((np.clip(answers, 0, 1) - data[parts.targets]) ** 2)
    noisy = result.curve.points[1]
    # The best on 20 held-out records is chosen and corrected by a factor fitted on them, which costs next to nothing.
    assert noisy.adaptive.mse.estimate < 1.05 * error
    assert {"closed-form", "ridge", "invariant"} <= {file.stem for file in (result.folder / "curve/0.05").glob("*.npz")}
    assert [row.label for row in result.rows] == ["Mean record", "Nearest neighbour", "Closed form with prior"]


def test_a_defence_that_leaves_nothing_to_train_on_stops_no_audit_and_failed_lanes_are_left_out(tmp_path):
    # Noise beyond the largest number of float32: no release under it is finite.
    config = dataclasses.replace(SMALL, attacks=("ridge",), dtype="float32", defense_scale=(1e39,))
    last = run(config, tmp_path / "out").curve.points[-1].adaptive
    assert (last.n_targets, last.n_excluded) == (30, 30)
    assert np.isnan(last.mse.estimate)


def of(*names):
    return {name: ATTACKS["embedding"][name] for name in ("mean", "nearest", *names)}


def test_dear_attacks_run_only_where_nothing_else_was_chosen_and_learned_ones_always():
    pca = of_shapes("pca", d=784)
    always = {"ridge", "invariant"}
    assert set(curve.candidates(pca, of("network", "closed-form"))) == {"closed-form", *always}
    assert set(curve.candidates(pca, of("network"))) == {"network", *always}
    # The strongest attack on MDS is dear; those that join it do not push it out.
    assert set(curve.candidates(of_shapes("mds"), of("stationarity-mixture"))) >= {"stationarity-mixture", *always}


def test_a_curve_says_which_attacks_of_the_ladder_it_did_not_run():
    assert curve.left_out(of_shapes("tsne"), of("affinities", "inversion")) == ("Inversion",)
    assert curve.left_out(of_shapes("pca"), of("closed-form")) == ()


def test_accuracy_is_that_of_a_majority_among_the_nearest_others():
    from drjax.audits import quality

    rng = np.random.default_rng(0)
    coords, known, targets = rng.normal(size=(3, 25, 2)), rng.integers(0, 3, 24), rng.integers(0, 3, 3)
    status = np.array([0, Status.NON_FINITE, 0], np.uint32)
    shares = []
    for i in (0, 2):
        labels = np.r_[targets[i], known]
        distances = cdist(coords[i], coords[i])
        np.fill_diagonal(distances, np.inf)
        near = labels[np.argsort(distances, axis=1)[:, :5]]
        # The smallest label wins a tie, as in scikit-learn.
        guess = [np.bincount(row, minlength=3).argmax() for row in near]
        shares.append(np.mean(guess == labels))
    found = quality.knn_accuracy(known, targets, coords, status)
    assert found.estimate == pytest.approx(np.mean(shares))
    assert np.isnan(quality.knn_accuracy(known, targets, coords, status | np.uint32(Status.DEGENERATE)).estimate)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"defense": "blur"}, "defense must be one of"),
        ({"defense": "rounding"}, "defense_scale must be one or more different finite numbers > 0"),
        ({"defense": "rounding", "defense_scale": (0.1, 0.0)}, "defense_scale must be"),
        ({"defense": "rounding", "defense_scale": (0.1, 0.1)}, "defense_scale must be"),
        ({"defense": "rounding", "defense_scale": (float("nan"),)}, "defense_scale must be"),
        ({"defense_scale": (0.1,)}, "defense_scale must be left out"),
        ({"defense": "rounding", "defense_scale": (0.1,), "n_validation": 3}, "n_validation with a defense must be"),
    ],
)
def test_bad_defences_are_refused_before_any_work(options, message):
    with pytest.raises(ValueError, match=message):
        AuditConfig(**options)
