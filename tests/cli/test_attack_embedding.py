"""`drjax attack embedding`, as its user sees it: words, files and refusals."""

import dataclasses
import json
import re

import jax
import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_wine
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE
from sklearn.preprocessing import StandardScaler

import drjax
from drjax import dr
from drjax.attacks import embedding
from drjax.attacks.attack import Cost
from drjax.attacks.embedding import attack_embedding, attack_rows
from drjax.attacks.recognition.agreement import Stated
from drjax.attacks.registry import ATTACKS
from drjax.cli.main import main
from drjax.core.types import Status

WINE = load_wine(as_frame=True).data.sample(178, random_state=1)


def written(path, values):
    np.savetxt(path, values, delimiter=",", header=",".join("xyzuv"[: values.shape[1]]), comments="")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A standardised table of 61 wines as scikit-learn's PCA and t-SNE publish it, 40 further wines, and pictures."""
    path = tmp_path_factory.mktemp("maps")
    x, public = WINE[:61], WINE[61:101]
    x[1:].to_csv(path / "known.csv", index=False)
    public.to_csv(path / "public.csv", index=False)
    standard = StandardScaler().fit_transform(x)
    written(path / "pca.csv", PCA(2).fit_transform(standard))
    written(path / "tsne.csv", TSNE(perplexity=8, random_state=0).fit_transform(standard))
    return path


def run(folder, out, *words, coords="pca.csv"):
    names = ["--known", folder / "known.csv", "--coords", folder / coords, "--out", out, "--quiet", *words]
    main(["attack", "embedding", *(str(word) for word in names)])


def refused(capsys, folder, tmp_path, *words, coords="pca.csv"):
    with pytest.raises(SystemExit) as stopped:
        run(folder, tmp_path / "refused.npz", *words, coords=coords)
    assert stopped.value.code == 2
    assert not list(tmp_path.iterdir())
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


def test_a_record_is_told_with_intervals_in_words_arrays_json_and_a_page(folder, tmp_path, capsys):
    run(folder, tmp_path / "found.npz")
    said = capsys.readouterr().out
    assert said.startswith("Verdict: reliable\nRelease: believed: PCA of standardised records")
    truth = WINE.iloc[0].to_numpy()
    assert "  alcohol " in said
    assert "as the attack predicts its errors, the known records saying what to expect; --public would have" in said
    with np.load(tmp_path / "found.npz") as found:
        np.testing.assert_allclose(found["x"], truth, rtol=1e-3)
        low, high = found["interval"].T
        assert (low <= found["x"]).all()
        assert (found["x"] <= high).all()
        assert found["interval"].shape == (13, 2)
        assert found["feature_mse"].shape == (13,)
    facts = json.loads((tmp_path / "found.json").read_text())
    assert facts["verdict"] == "reliable"
    assert [one["name"] for one in facts["features"]] == list(WINE.columns)
    assert all(one["shown"] and one["low"] <= one["value"] <= one["high"] for one in facts["features"])
    page = (tmp_path / "found.html").read_text()
    assert "The record was taken back" in page
    assert "color_intensity" in page
    first = facts["features"][0]
    words = f"The release tells 13 of them, the first of them alcohol {first['low']:.4g} to {first['high']:.4g};"
    assert words in re.search('role="img" aria-label="(.*?)"', page).group(1)


def test_public_records_check_the_intervals(folder, tmp_path, capsys):
    run(
        folder, tmp_path / "found.npz", "--public", folder / "public.csv", "--method", "pca", "--attack", "behind-steps"
    )
    said = capsys.readouterr().out
    assert "checked on 12 releases of public records" in said
    assert json.loads((tmp_path / "found.json").read_text())["intervals"]["practice_releases"] == 12


@pytest.mark.parametrize(
    ("words", "is_contradicted"),
    [
        (["--perplexity", "auto"], False),
        (["--perplexity", "9"], False),
        (["--perplexity", "25"], True),
        (["--metric", "cosine"], True),
        (["--scale", "min-max"], True),
        (["--angle", "0.5"], False),
        (["--angle", "0.9"], True),
    ],
)
def test_what_is_stated_is_compared_with_the_map_and_the_rest_is_recognised(
    folder, tmp_path, capsys, words, is_contradicted
):
    run(folder, tmp_path / "found.npz", "--method", "tsne", *words, "--attack", "map", coords="tsne.csv")
    said = capsys.readouterr().out
    assert "believed: t-SNE with perplexity 8" in said
    assert ("contradicts what was stated: it is t-SNE with perplexity 8" in said) == is_contradicted
    if is_contradicted:
        assert "Verdict: not reconstructed" in said
        assert int(np.load(tmp_path / "found.npz")["status"]) & Status.UNCERTIFIED
        # Errors that rest on what is wrong say nothing of any feature.
        assert "Intervals hold" not in said
        assert "they do not hold if that is wrong" in said
        assert "Error to expect" not in said
        features = json.loads((tmp_path / "found.json").read_text())["features"]
        assert not any(one["shown"] for one in features)
        page = (tmp_path / "found.html").read_text()
        assert "they do not hold if that is wrong" in page
        assert "a feature that the release tells" not in page
        assert "it is right if the release was made just as stated" not in said + page


def test_a_map_is_read_as_an_audit_reads_it(folder, tmp_path, capsys):
    with_names = pd.read_csv(folder / "tsne.csv")
    plain, numbered = tmp_path / "plain.csv", tmp_path / "numbered.csv"
    with_names.to_csv(plain, index=False, header=False)
    with_names.assign(name=[f"wine {i}" for i in range(len(with_names))]).to_csv(numbered)
    found = []
    for file in (folder / "tsne.csv", plain, numbered):
        out = tmp_path / f"{file.stem}.npz"
        words = "--known", folder / "known.csv", "--coords", file, "--out", out, "--method", "tsne", "--attack", "map"
        main(["attack", "embedding", *map(str, words)])
        found.append(np.load(out)["x"])
    assert "Column 'name' of the map holds no numbers and was left out." in capsys.readouterr().out
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0])


def test_a_method_of_another_map_is_contradicted_and_places_alone_are_believed(folder, tmp_path, capsys):
    run(folder, tmp_path / "found.npz", "--method", "isomap", coords="tsne.csv")
    said = capsys.readouterr().out
    assert "Attack: Regression on places." in said
    assert "Verdict: reliable" not in said
    assert "The map does not bear out Isomap" in said
    assert "Leave out the method to have the release recognised." in said
    run(folder, tmp_path / "asked.npz", "--method", "isomap", "--attack", "map", coords="tsne.csv")
    said = capsys.readouterr().out
    assert "Verdict: not reconstructed" in said
    assert "The map does not bear out Isomap" in said


def test_several_unknown_rows_are_attacked_one_by_one(tmp_path, capsys):
    x = WINE.to_numpy()[:40]
    np.save(tmp_path / "known.npy", np.delete(x, [3, 7], axis=0))
    np.save(tmp_path / "pca.npy", PCA(5).fit_transform(x))
    np.save(tmp_path / "public.npy", WINE.to_numpy()[40:100])
    out = tmp_path / "found.npz"
    words = ["--known", tmp_path / "known.npy", "--public", tmp_path / "public.npy", "--method", "pca"]
    run(tmp_path, out, *words, "--target-row", 3, 7, "--attack", "closed-form", coords="pca.npy")
    said = capsys.readouterr().out
    assert "Row 3\n" in said
    assert "Row 7\n" in said
    with np.load(out) as found:
        np.testing.assert_array_equal(found["rows"], [3, 7])
        usual = WINE.to_numpy().std(axis=0)
        error = np.mean(((found["x"] - x[[3, 7]]) / usual) ** 2)
        assert error < np.mean(((x.mean(axis=0) - x[[3, 7]]) / usual) ** 2)
        assert found["interval"].shape == (2, 13, 2)
    assert [one["row"] for one in json.loads(out.with_suffix(".json").read_text())["rows"]] == [3, 7]
    assert "Row 7: The record" in out.with_suffix(".html").read_text()


def test_known_features_come_back_as_they_are_and_help_with_the_others():
    x, public = WINE.to_numpy()[:30], WINE.to_numpy()[30:130]
    coords = np.round(PCA(1).fit_transform(x), 0)
    options = {"public": public, "attack": "closed-form"}
    plain = attack_embedding(jax.random.key(0), dr.PCA(n_components=1), x[1:], coords, **options)
    own = np.full(13, np.nan)
    own[[0, 6]] = x[0, [0, 6]]
    told = attack_embedding(jax.random.key(0), dr.PCA(n_components=1), x[1:], coords, known_features=own, **options)
    np.testing.assert_allclose(told.found.x[[0, 6]], x[0, [0, 6]])
    rest = np.setdiff1d(np.arange(12), [0, 6])
    usual = WINE.to_numpy().std(axis=0)[rest]
    errors = [np.mean(((one.found.x - x[0])[rest] / usual) ** 2) for one in (plain, told)]
    assert errors[1] < errors[0]


def test_a_picture_of_images_is_on_the_page(tmp_path):
    x = drjax.load("digits").x[:60]
    np.save(tmp_path / "known.npy", x[1:].reshape(-1, 8, 8))
    np.save(tmp_path / "pca.npy", PCA(2).fit_transform(x.astype(np.float64)))
    run(tmp_path, tmp_path / "found.npz", "--known", tmp_path / "known.npy", coords="pca.npy")
    page = (tmp_path / "found.html").read_text()
    assert "half the width of the interval" in page or "how far each pixel may be off" in page
    assert np.load(tmp_path / "found.npz")["x"].shape == (64,)


def test_bad_input_is_one_line_that_says_what_to_do(folder, tmp_path, capsys):
    x = WINE[:61]
    bad = tmp_path.parent / f"{tmp_path.name}-bad"
    bad.mkdir()

    def save(name, table):
        table.to_csv(bad / name, index=False)
        return bad / name

    error = refused(capsys, folder, tmp_path, "--known", save("all.csv", x))
    assert "coords must have shape (62, 2) for 61 known records and 1 unknown, got (61, 2): leave out of known" in error
    other = save("other.csv", WINE[61:100].rename(columns={"hue": "hew"}))
    assert "public must have the columns of known in their order, got" in refused(
        capsys, folder, tmp_path, "--public", other
    )
    coords = np.loadtxt(folder / "pca.csv", delimiter=",", skiprows=1)
    coords[4, 1] = np.nan
    written(bad / "same.csv", np.ones_like(coords) * [1, 2])
    written(bad / "nan.csv", coords)
    assert "nan.csv" in refused(capsys, bad, tmp_path, "--known", folder / "known.csv", coords="nan.csv")
    error = refused(capsys, bad, tmp_path, "--known", folder / "known.csv", coords="same.csv")
    assert "coords must have rows that differ, got 1 different ones of 61" in error
    (bad / "plot.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    error = refused(capsys, bad, tmp_path, "--known", folder / "known.csv", coords="plot.png")
    assert "is a picture, and must be a table or an array of numbers" in error
    words = ["--public", folder / "public.csv", "--known-features"]
    error = refused(capsys, folder, tmp_path, *words, "colour=3")
    assert "known_features must be NAME=VALUE with a column (alcohol, malic_acid" in error
    assert "got 'hue=high'" in refused(capsys, folder, tmp_path, *words, "hue=high")
    error = refused(capsys, folder, tmp_path, "--known-features", "hue=1")
    assert "public must be given with known_features" in error
    assert "target_row must be one row without --method" in refused(capsys, folder, tmp_path, "--target-row", "1", "2")


def test_several_rows_differ():
    x = WINE.to_numpy()[:30]
    coords = PCA(2).fit_transform(x)
    with pytest.raises(ValueError, match="target_row must be rows that differ"):
        attack_rows(jax.random.key(0), dr.PCA(), x[2:], coords, target_rows=(1, 1))


def test_the_front_door_takes_frames_names_and_several_rows():
    x, public = WINE[:40], WINE[40:100]
    coords = PCA(3).fit_transform(x)
    answer = drjax.attack(x[1:], coords, public=public, known_features={"hue": x.iloc[0]["hue"]})
    assert answer.names == tuple(WINE.columns)
    assert "reliable" in repr(answer) or "partly" in repr(answer)
    np.testing.assert_allclose(answer.found.x, x.iloc[0], rtol=1e-2)
    rows = drjax.attack(x[2:], coords, method="pca", public=public, target_row=(0, 1), attack="closed-form")
    assert [one.row for one in rows] == [0, 1]
    with pytest.raises(ValueError, match="known_features must be by columns of known or numbers from 0 to 12"):
        drjax.attack(x[1:], coords, public=public, known_features={"hew": 1.0})


def test_units_of_features_change_neither_the_choice_nor_what_is_expected():
    x, public = WINE.to_numpy()[:40], WINE.to_numpy()[40:80]
    coords = np.round(PCA(2).fit_transform(StandardScaler().fit_transform(x)), 3)
    units = np.logspace(-4, 4, 13)
    method = dr.Pipeline(before=(dr.Standardise(),), method=dr.PCA())
    key = jax.random.key(0)
    plain = attack_embedding(key, method, x[1:], coords, public=public)
    other = attack_embedding(key, method, x[1:] * units, coords, public=public * units)
    assert plain.attack.name == other.attack.name
    assert plain.verdict == other.verdict
    np.testing.assert_allclose(other.share, plain.share, rtol=0.02)
    away = (other.found.x / units - plain.found.x) / x.std(axis=0)
    assert np.abs(away).max() < 0.02
    widths = [np.diff(one.found.interval, axis=1)[:, 0] for one in (plain, other)]
    np.testing.assert_allclose(widths[1] / units, widths[0], rtol=0.05)


def test_an_attack_too_slow_for_practice_counts_where_the_release_confirms_it(monkeypatch):
    x, public = WINE.to_numpy()[:41], WINE.to_numpy()[41:81]
    coords = PCA(2).fit_transform(StandardScaler().fit_transform(x))
    method = dr.Pipeline(before=(dr.Standardise(),), method=dr.PCA())
    slow = {name: one for name, one in ATTACKS["embedding"].items() if name in ("ridge", "behind-steps")}
    monkeypatch.setattr(embedding, "_pool", lambda *_: slow)
    monkeypatch.setattr(type(slow["behind-steps"]), "cost", lambda _, threat: Cost(20.0 * threat.n_releases, 0.0))
    answer = attack_embedding(jax.random.key(0), method, x[1:], coords, public=public)
    assert list(answer.errors) == ["ridge"]
    assert answer.attack.name == "behind-steps"
    np.testing.assert_allclose(answer.found.x, x[0], rtol=1e-4)
    monkeypatch.setattr(embedding, "LATE_SECONDS", 10.0)
    assert attack_embedding(jax.random.key(0), method, x[1:], coords, public=public).attack.name == "ridge"


def test_nothing_that_was_learned_elsewhere_is_reliable(folder, tmp_path, capsys):
    x, public = WINE.to_numpy()[:61], WINE.to_numpy()[61:]
    answer = attack_embedding(
        jax.random.key(0), dr.PCA(n_components=12), x[1:], PCA(12).fit_transform(x), public=public, attack="ridge"
    )
    assert answer.is_shown.any()
    assert int(answer.found.status) & ~Status.PARTIAL == Status.OK
    assert answer.verdict == "partly"
    assert any("nothing in this one confirms its answer" in line for line in answer.why)
    # A map of t-SNE tells of any answer whether it is at rest with it.
    run(folder, tmp_path / "found.npz", "--attack", "map", coords="tsne.csv")
    assert "nothing in this one confirms" not in capsys.readouterr().out


def test_a_stated_method_is_kept_where_nobody_can_compare_it():
    x = WINE.to_numpy()[:15]
    answer = attack_embedding(jax.random.key(0), Stated(dr.PCA()), x[1:], PCA(2).fit_transform(x))
    assert any("Nobody compared the map with the method" in note for note in answer.notes)
    assert answer.belief is None


def test_a_seed_is_that_of_drjax_embed(tmp_path, capsys):
    WINE[:61].to_csv(tmp_path / "x.csv", index=False)
    WINE[1:61].to_csv(tmp_path / "known.csv", index=False)
    embed = [str(tmp_path / "x.csv"), str(tmp_path / "map.csv"), "--method", "srp", "--n-components", "6"]
    main(["embed", *embed, "--seed", "3", "--quiet"])
    for seed, said in ((3, "Seed 3 makes the rows of the known records as they were published."), (4, "Seed 4 makes")):
        words = ["--method", "srp", "--scale", "min-max", "--release-seed", seed, "--attack", "inversion"]
        run(tmp_path, tmp_path / f"found{seed}.npz", *(words if seed == 3 else words[:-2]), coords="map.csv")
        out = capsys.readouterr().out
        assert said in out
        assert ("Attack: Regression on places." in out) == (seed == 4)


@pytest.mark.parametrize(
    ("share", "changes", "verdict"),
    [
        (0.3, {}, "partly: a likeness, half of the features expected to be off by less than 0.55 standard deviations"),
        (0.6, {}, "not reconstructed"),
        (0.3, {"contradiction": "It is no such map."}, "not reconstructed"),
        (0.05, {}, "reliable"),
    ],
)
def test_a_record_that_is_alike_is_no_all_clear_although_no_feature_is_close(share, changes, verdict):
    x = WINE[:61].to_numpy()
    answer = drjax.attack(x[1:], PCA(2).fit_transform(x), method="pca")
    mse = share * answer.usual[1] ** 2
    mse[:3] = 2 * answer.usual[1][:3] ** 2 if share > 0.1 else mse[:3]  # a few that are open decide nothing
    found = answer.found._replace(feature_mse=mse, status=np.uint32(0))
    made = dataclasses.replace(answer, found=found, is_confirmed=True, **changes)
    assert made.verdict_in_words() == verdict
    assert made.facts()["verdict"] == made.verdict
