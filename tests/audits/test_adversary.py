import dataclasses

import jax
import numpy as np
import pytest
from sklearn.datasets import load_digits

from drjax import data
from drjax.audits import AuditConfig, adversary, run
from drjax.reports import records

SMALL = AuditConfig(
    n_known=60, n_shadow=120, n_validation=40, n_targets=20, attacks=("ridge", "closed-form", "closed-form-known")
)


def audited(tmp_path, **changes):
    result = run(dataclasses.replace(SMALL, **changes), tmp_path / "o")
    scores = {
        r["name"]: r["scores"] for r in records.read_records(tmp_path / "o/records.jsonl") if r["kind"] == "attack"
    }
    return result, scores


def error(scores, name):
    return scores[name]["mse"]["estimate"]


def test_two_unknown_records_are_as_exposed_as_one_and_many_are_not(tmp_path):
    two, scores = audited(tmp_path / "a", n_unknown=2)
    assert error(scores, "closed-form") < 1e-3
    assert error(scores, "informed/closed-form") < 1e-3
    assert "informed/ridge" not in scores  # its shadows would be others
    page = two.report.read_text("utf-8")
    assert "Beside the informed adversary" in page
    assert "knows 59 of the 60 released records beside the target" in page
    _, scores = audited(tmp_path / "b", known_fraction=0.5)
    assert error(scores, "informed/closed-form") < 1e-3
    assert 0.02 < error(scores, "closed-form") < error(scores, "mean")
    assert error(scores, "ridge") < 1.1 * error(scores, "mean")
    coords = records.load_arrays(tmp_path / "b/o/shadows/00000000.npz")["coords"]
    assert coords.shape[1:] == (31, 2)


def test_every_shadow_has_strangers_of_its_own_and_a_run_resumes(tmp_path):
    config = dataclasses.replace(SMALL, known_fraction=0.8, attacks=("ridge",))
    first = run(config, tmp_path / "o")
    coords = records.load_arrays(tmp_path / "o/shadows/00000000.npz")["coords"]
    assert len(np.unique(np.abs(coords[:, 5, 0]))) == len(coords)
    (tmp_path / "o/shadows/00000064.npz").unlink()
    for file in (tmp_path / "o/attacks").rglob("*.npz"):
        file.unlink()
    second = run(config, tmp_path / "o", resume=True)
    np.testing.assert_array_equal(first.reconstructions["ridge"], second.reconstructions["ridge"])


def test_shuffled_rows_are_matched_and_the_share_is_told(tmp_path):
    result, scores = audited(tmp_path, shuffled=True)
    assert error(scores, "closed-form") < 0.5 * error(scores, "mean")
    stage = next(r for r in records.read_records(tmp_path / "o/records.jsonl") if r.get("name") == "matching")
    assert 0.9 < stage["known_rows"] <= 1
    assert 0.7 < stage["target_rows"] <= 1
    assert "not which row is whose" in result.report.read_text("utf-8")
    assert {"informed/ridge", "informed/closed-form"} <= scores.keys()


def test_matching_is_not_told_the_order():
    config = dataclasses.replace(SMALL, shuffled=True)
    x = load_digits().data[:40] / 16
    scene = adversary.Scene(x[1:], x[:0], x, x, x[:1], x, np.zeros(64, bool))
    noise = np.random.default_rng(0).normal(size=(1, 40, 2))  # no scores of these records: chance decides
    view = adversary.look(jax.random.key(0), config, scene, noise)
    assert view.matched[0] < 0.2


def test_known_features_help_and_are_not_scored(tmp_path):
    result, scores = audited(tmp_path, known_features=("0.5",), decimals=2, n_targets=80, n_validation=80)
    assert error(scores, "mean") < 0.9 * ((result.targets - 0.3) ** 2).mean()
    for name in ("ridge", "closed-form"):
        assert error(scores, name) < error(scores, f"informed/{name}")
    assert "32 of the target&#39;s 64 features" in result.report.read_text("utf-8")
    known = adversary._known_features(
        jax.random.fold_in(jax.random.fold_in(jax.random.split(jax.random.key(0), 4)[0], 1), 1),
        dataclasses.replace(SMALL, known_features=("0.5",)),
        data.load("digits"),
    )
    reconstructed = result.reconstructions["closed-form"]
    np.testing.assert_allclose(reconstructed[:, known], result.targets[:, known], atol=1e-6)


def test_a_wrong_hyperparameter_is_in_the_shadows_and_not_in_the_release(tmp_path):
    common = {"method": "isomap", "attacks": ("ridge",)}
    audited(tmp_path / "a", **common, hyperparameters={"n_neighbors": 5})
    result, _ = audited(tmp_path / "b", **common, hyperparameters={"n_neighbors": 5}, assumed=("n_neighbors=9",))
    right, wrong = (records.load_arrays(tmp_path / name / "o/releases/00000000.npz") for name in "ab")
    np.testing.assert_array_equal(right["coords"], wrong["coords"])
    right, wrong = (records.load_arrays(tmp_path / name / "o/shadows/00000000.npz") for name in "ab")
    assert not np.allclose(right["coords"], wrong["coords"])
    assert "takes its settings to be n_neighbors 9" in result.report.read_text("utf-8")


def test_public_records_of_another_set_are_the_adversary_s_and_not_the_decoys(tmp_path):
    inverted = 1 - load_digits().images[:300].astype(np.float32) / 16
    np.save(tmp_path / "other.npy", inverted)
    result, scores = audited(tmp_path, public_data=str(tmp_path / "other.npy"))
    assert error(scores, "mean") > 0.3
    # Mean digits are no gain over the mean of the inverted ones: the comparison is with the mean known record.
    gain = scores["nearest"]["gain"]["error"]["estimate"]
    assert gain == pytest.approx(1 - error(scores, "nearest") / 0.07, abs=0.15)  # digits' variance is 0.07
    assert error(scores, "closed-form-known") < 1e-3
    assert "records of another data set" in result.report.read_text("utf-8")
    assert scores["mean"]["identification_chance"] < 1 / 900  # a line-up of digits, of which there are more than 300


def test_a_table_from_elsewhere_is_read_in_the_same_units(tmp_path):
    rng = np.random.default_rng(0)
    for name, low, high in (("own", 0, 100), ("other", 50, 300)):
        values = np.column_stack([rng.uniform(low, high, 200), rng.uniform(0, 1, 200)])
        values[0] = low, 0
        values[1] = high, 1
        lines = ["a,b", *(f"{a},{b}" for a, b in values)]
        (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n")
    config = dataclasses.replace(SMALL, data=str(tmp_path / "own.csv"), public_data=str(tmp_path / "other.csv"))
    own = data.load(config.data)
    parts = data.split(jax.random.key(0), own, **adversary.sizes(config, 200))
    scene = adversary.set_scene(jax.random.key(0), config, own, parts)
    assert scene.public[:, 0].min() > 0.49
    assert scene.public[:, 0].max() > 2


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"n_unknown": 0}, "n_unknown must be an integer >= 1"),
        ({"n_unknown": 60}, "must leave 2 known records"),
        ({"known_fraction": 0.0}, "known_fraction must be > 0"),
        ({"known_fraction": 1.5}, "known_fraction must be <= "),
        ({"known_fraction": float("nan")}, "known_fraction must be > 0"),
        ({"known_fraction": 0.5, "n_unknown": 2}, "known_fraction must be left out"),
        ({"shuffled": True, "n_unknown": 2}, "shuffled and known_features need n_unknown to be 1"),
        ({"shuffled": True, "method": "tsne"}, "matched for pca and classical_mds"),
        ({"assumed": ("perplexity=5",)}, "assumed must name hyperparameters of 'pca'"),
        ({"assumed": ("perplexity",), "method": "tsne"}, "assumed must be NAME=VALUE"),
        ({"assumed": ("perplexity=0",), "method": "tsne"}, "perplexity"),
        ({"each_record": True, "shuffled": True}, "shuffled must be left out with each_record"),
        ({"each_record": True, "n_known": 20}, "n_known must be left out with each_record, got 20"),
    ],
)
def test_bad_switches_name_themselves(change, match):
    with pytest.raises(ValueError, match=match):
        dataclasses.replace(SMALL, attacks=(), **change)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"known_features": ("age",)}, "known_features must be numbers from 0 to 63"),
        ({"known_features": ("64",)}, "known_features must be numbers"),
        ({"known_features": tuple(map(str, range(64)))}, "must leave a feature unknown"),
        ({"public_data": "digits", "n_shadow": 1790}, "public_data must have n_shadow"),
        ({"method": "tsne", "attacks": ("ridge",), "assumed": ("perplexity=500",)}, "perplexity must be < n"),
        ({"public_data": "nothing"}, "nothing"),
    ],
)
def test_switches_that_do_not_fit_the_data_write_nothing(tmp_path, change, match):
    with pytest.raises((ValueError, OSError), match=match):
        run(dataclasses.replace(SMALL, **change), tmp_path / "o")
    assert not (tmp_path / "o").exists()


def test_public_records_of_another_form_write_nothing(tmp_path):
    np.save(tmp_path / "others.npy", np.random.default_rng(0).random((200, 5)))
    with pytest.raises(ValueError, match="public_data must have records of the same form"):
        run(dataclasses.replace(SMALL, public_data=str(tmp_path / "others.npy")), tmp_path / "o")
    assert not (tmp_path / "o").exists()


def test_features_are_named_by_column():
    table = dataclasses.replace(
        data.load("digits"), x=np.zeros((5, 4)), feature_names=("age", "sex=f", "sex=m", "ward")
    )
    for words, expected in ((("sex",), [1, 2]), (("age", "sex=m"), [0, 2]), (("3",), [3])):
        config = dataclasses.replace(SMALL, known_features=words)
        found = adversary._known_features(jax.random.key(0), config, table)
        assert np.flatnonzero(found).tolist() == expected
