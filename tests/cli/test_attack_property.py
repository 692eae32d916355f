"""The attack on plots from the command line: what it predicts of digits, what it writes, and what it refuses."""

import dataclasses
import json
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA as SkPCA
from sklearn.manifold import TSNE as SkTSNE

from drjax import data
from drjax.attacks.property import models, shadow_data
from drjax.attacks.property.shadow_data import Features, read_shadow
from drjax.cli import main
from drjax.nets.plot_networks import PlotNetworkConfig

N = 80
DIGITS: Any = load_digits()
IS_ZERO = DIGITS.target == 0


def group(share, seed=0):
    """Rows of N digits, of which a share is 0."""
    rng = np.random.default_rng(seed)
    n_zero = round(share * N)
    sides = np.flatnonzero(IS_ZERO), np.flatnonzero(~IS_ZERO)
    return np.concatenate([rng.choice(s, n, replace=False) for s, n in zip(sides, (n_zero, N - n_zero), strict=True)])


def write_csv(path, x, names=None):
    names = names or [f"c{i}" for i in range(x.shape[1])]
    np.savetxt(path, x, delimiter=",", header=",".join(names), comments="", fmt="%.9g")
    return path


def write_plot(path, points, size=14):
    figure, axes = plt.subplots()
    axes.scatter(*points.T, s=size, linewidths=0)
    axes.set_title("digits")
    figure.savefig(path)
    plt.close(figure)
    return path


def attack(*arguments):
    main(["attack", "property", *(str(a) for a in arguments)])


def failure(capsys, *arguments):
    with pytest.raises(SystemExit) as stopped:
        attack(*arguments)
    error = capsys.readouterr().err
    assert stopped.value.code == 2
    assert error.count("\n") == 1
    return error


@pytest.fixture(scope="module")
def coords(tmp_path_factory):
    # By scikit-learn's t-SNE, not ours: another implementation of the same method.
    x = DIGITS.data[group(0.3)] / 16
    found = SkTSNE(perplexity=15, random_state=0).fit_transform(x)
    return write_csv(tmp_path_factory.mktemp("plots") / "coords.csv", found, ["x", "y"])


TSNE = ("--perplexity", 15, "--max-iter", 300)
ZERO = ("--shadow", "digits", "--attribute", "label=0")


def test_a_t_sne_of_scikit_learn_gives_its_share_away_and_the_file_says_how(coords, tmp_path, capsys):
    attack("--coords", coords, *ZERO, "--perplexity", 15, "--n-shadow", 80, "--out", tmp_path / "o.json")
    said = capsys.readouterr().out
    facts = json.loads((tmp_path / "o.json").read_text())
    (found,) = facts["outcome"]["findings"]
    # A guess errs by a quarter on average; the attack's own error is below half of that.
    assert found["error"] < 0.15 < 0.2 < facts["outcome"]["error_of_guessing"]
    assert found["low"] <= 0.3 <= found["high"]
    assert abs(found["proportion"] - 0.3) < 0.2
    assert facts["outcome"]["n_maps"] == [40, 40]
    assert facts["outcome"]["n_points"] == N
    assert facts["provenance"]["seed"] == 0
    assert facts["hyperparameters"]["perplexity"] == 15
    assert facts["property"] == "label is 0"
    assert f"{found['proportion']:.3f}" in said
    assert "guessing" in said
    assert "exchangeable" in said
    assert "measurably better than guessing" not in said


def test_a_picture_is_read_and_shown_as_it_was_read(coords, tmp_path, capsys):
    points = np.loadtxt(coords, delimiter=",", skiprows=1)
    plot = write_plot(tmp_path / "plot.png", points)
    attack("--plot", plot, *ZERO, *TSNE, "--n-shadow", 20, "--picture-out", tmp_path / "read.png",
           "--out", tmp_path / "o.json")  # fmt: skip
    facts = json.loads((tmp_path / "o.json").read_text())
    n_found = facts["reading"]["n_found"]
    # Of the markers that lie over each other one may be missed.
    assert N - 2 <= n_found <= N
    assert facts["outcome"]["n_points"] == pytest.approx(N, abs=3)
    assert 0.9 < facts["outcome"]["share_found"] <= 1
    said = capsys.readouterr().out
    assert f"{n_found} points found" in said
    assert "drawn and read back" in said
    with Image.open(plot) as image, Image.open(tmp_path / "read.png") as shown:
        assert shown.size == (3 * image.width, 3 * image.height)
        pixels = np.asarray(shown).astype(int)
    # As many red rings as there are points: the inside of a ring is marked, the ring itself red.
    red = (pixels[..., 0] - pixels[..., 1:].max(axis=-1)) > 200
    assert red.sum() > N * 20


def test_a_map_that_hides_the_property_is_no_better_than_guessing_and_says_so(tmp_path, capsys):
    # The property is drawn by lot, so that no map shows it.
    rng = np.random.default_rng(0)
    x, has = rng.normal(size=(300, 4)), rng.permutation(np.arange(300) % 2)
    write_csv(tmp_path / "t.csv", np.column_stack([x, has]), ["a", "b", "c", "d", "sick"])
    write_csv(tmp_path / "c.csv", SkPCA(2).fit_transform(rng.normal(size=(40, 4))))
    attack("--coords", tmp_path / "c.csv", "--shadow", tmp_path / "t.csv", "--attribute", "sick", "--method", "pca",
           "--n-shadow", 60, "--n-points", 40)  # fmt: skip
    said = capsys.readouterr().out
    assert "measurably better than guessing" in said
    assert "sick is 1 for 150 (50%)" in said


def test_a_plot_unlike_the_shadow_maps_is_told_from_them(tmp_path, capsys):
    angle = np.linspace(0, 2 * np.pi, N, endpoint=False)
    write_csv(tmp_path / "c.csv", np.stack([np.cos(angle), np.sin(angle)], axis=1))
    attack("--coords", tmp_path / "c.csv", *ZERO, *TSNE, "--n-shadow", 70)
    assert "unlike the shadow maps (p = 0.014)" in capsys.readouterr().out


def test_an_adaptive_attack_defends_its_own_maps(coords, tmp_path, capsys):
    base = ("--coords", coords, *ZERO, "--method", "pca", "--n-shadow", 30)
    for name, options in (("plain", ()), ("adaptive", ("--defence", "C-N 5%*STD"))):
        attack(*base, *options, "--out", tmp_path / f"{name}.json")
    plain, adaptive = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("plain", "adaptive"))
    assert (plain["defence"], adaptive["defence"]) == (None, "C-N 5%*STD")
    # The same groups, other maps.
    assert plain["outcome"]["error_of_guessing"] == adaptive["outcome"]["error_of_guessing"]
    assert plain["outcome"]["findings"] != adaptive["outcome"]["findings"]
    assert "defended by C-N 5%*STD" in capsys.readouterr().out


def test_the_same_seed_gives_the_same_figures_and_options_reach_the_maps(coords, tmp_path):
    base = ("--coords", coords, *ZERO, "--method", "pca", "--n-shadow", 30, "--levels", 0.2, 0.6, "--level", 0.8)
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        attack(*base, "--features", "pca:5", "--seed", seed, "--out", tmp_path / f"{name}.json")
    a, b, c = (json.loads((tmp_path / f"{name}.json").read_text())["outcome"] for name in "abc")
    assert a == b
    assert a["findings"] != c["findings"]
    assert a["levels"] == [0.2, 0.6]
    assert a["level"] == 0.8


def test_pictures_are_attacked_too(coords, capsys, monkeypatch):
    network = PlotNetworkConfig(size=32, blocks=(1,), growth=4, stem=8, stem_size=3)
    small = dataclasses.replace(models.CONFIGS["picture"], epochs=2, batch_size=8, network=network)
    monkeypatch.setitem(models.CONFIGS, "picture", small)
    attack("--coords", coords, *ZERO, "--method", "pca", "--n-shadow", 20, "--attack", "both", "--n-points", 40)
    said = capsys.readouterr().out
    assert "│ descriptors" in said
    assert "│ picture" in said
    assert "Shadow maps have 40 points, the plot 80." in said


@pytest.fixture(scope="module")
def bad(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bad")
    rng = np.random.default_rng(0)
    write_csv(folder / "three.csv", rng.normal(size=(50, 3)))
    write_csv(folder / "few.csv", np.column_stack([rng.normal(size=(300, 2)), np.arange(300) < 8]), ["a", "b", "ill"])
    (folder / "text.csv").write_text("a,sex\n" + "\n".join(f"{i / 7},{'fmx'[i % 3]}" for i in range(60)) + "\n")
    np.savez(folder / "plain.npz", x=rng.normal(size=(60, 3)))
    Image.new("RGB", (300, 300), "white").save(folder / "blank.png")
    return folder


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--coords", "{bad}/three.csv", *ZERO), "coords must have 2 columns, got 3"),
        (("--plot", "{bad}/blank.png", *ZERO), "path must be a scatter plot"),
        (("--plot", "{bad}/none.png", *ZERO), "there is no file"),
        (ZERO, "plot or coords must be given, one of them, got neither"),
        (("--coords", "{coords}", "--plot", "{bad}/blank.png", *ZERO), "got both"),
        (("--coords", "{coords}", "--shadow", "digits", "--attribute", "label"), "attribute must be binary"),
        (("--coords", "{coords}", "--shadow", "digits", "--attribute", "label=x"), "one of 0, 1, 2, 3"),
        (("--coords", "{coords}", "--shadow", "digits", "--attribute", "sex"), "attribute must be label=VALUE"),
        (("--coords", "{coords}", "--shadow", "{bad}/text.csv", "--attribute", "sex"), "has the values f, m, x"),
        (("--coords", "{coords}", "--shadow", "{bad}/text.csv", "--attribute", "age"), "age"),
        (("--coords", "{coords}", "--shadow", "{bad}/few.csv", "--attribute", "ill"), "no range of 0.1 is left"),
        (("--coords", "{coords}", "--shadow", "{bad}/plain.npz", "--attribute", "label=1"), "has none"),
        (("--coords", "{coords}", *ZERO, "--levels", 0.0, 1.5), "levels must be in [0, 1]"),
        (("--coords", "{coords}", *ZERO, "--levels", 0.0, 1.0, "--n-points", 150), "levels must be within 0 to 0.59"),
        (("--coords", "{coords}", *ZERO, "--n-shadow", 10), "n_shadow must be >= 20"),
        (("--coords", "{coords}", *ZERO, "--features", "unit"), "features must be one of pixels, pca, onnx"),
        (("--coords", "{coords}", *ZERO, "--features", "onnx:none.onnx"), "there is no file none.onnx"),
        (("--coords", "{coords}", *ZERO, "--onnx-imagenet"), "onnx_imagenet must be left out"),
        (("--coords", "{coords}", *ZERO, "--defence", "C-N"), "defence must be one of"),
        (("--coords", "{coords}", *ZERO, "--perplexity", -1), "perplexity"),
        (("--coords", "{coords}", *ZERO, "--method", "pca", "--perplexity", 5), "must be an option of the method"),
        (("--coords", "{coords}", *ZERO, "--out", "{coords}"), "out must be a new file"),
        (("--coords", "{coords}", *ZERO, "--picture-out", "{bad}/p.png"), "picture_out must be left out"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_said_in_one_line(arguments, message, bad, coords, capsys):
    filled = [str(a).format(bad=bad, coords=coords) for a in arguments]
    assert message in failure(capsys, *filled)


def test_a_table_is_taken_as_it_is_unless_told_otherwise(tmp_path):
    x = np.random.default_rng(0).normal(size=(20, 2)) * [3, 50] + [7, -4]
    path = write_csv(tmp_path / "t.csv", np.column_stack([x, np.arange(20) % 2]), ["a", "b", "has"])
    as_it_is = read_shadow(path, "has")
    np.testing.assert_allclose(as_it_is.features, x, rtol=1e-5, atol=1e-4)  # float32 records in [0, 1]
    np.testing.assert_array_equal(as_it_is.has_property, np.arange(20) % 2 == 1)
    unit = read_shadow(path, "has=0", Features(kind="unit"))
    np.testing.assert_allclose(unit.features, (x - x.min(axis=0)) / np.ptp(x, axis=0), atol=1e-6)
    np.testing.assert_array_equal(unit.has_property, np.arange(20) % 2 == 0)
    standard = read_shadow(path, "has", Features(kind="standard")).features
    np.testing.assert_allclose(standard, (x - x.mean(axis=0)) / x.std(axis=0), atol=1e-5)


def test_records_of_unknown_attribute_are_left_out(monkeypatch):
    whole = data.load("digits")
    hidden = np.where(np.arange(len(whole.y)) % 3 == 0, -1, whole.y)
    monkeypatch.setattr(data, "load", lambda *_, **__: dataclasses.replace(whole, y=hidden))
    found = shadow_data.read_shadow("digits", "label=0")
    np.testing.assert_array_equal(found.has_property, hidden[hidden >= 0] == 0)
    assert found.n_unknown == (hidden < 0).sum()
    assert len(found.features) == len(found.dataset.x) == (hidden >= 0).sum()


def test_folders_arrays_and_named_sets_call_their_attribute_label(tmp_path):
    images = (DIGITS.images[:12] * 15).astype(np.uint8)
    for i, image in enumerate(images):
        (tmp_path / "faces" / "mf"[i % 2]).mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(tmp_path / "faces" / "mf"[i % 2] / f"{i:02}.png")
    found = read_shadow(tmp_path / "faces", "label=f")
    assert found.has_property.tolist() == [True] * 6 + [False] * 6
    np.testing.assert_allclose(found.features[0], images[1].ravel() / 255, atol=1e-6)
    np.savez(tmp_path / "a.npz", x=images, y=np.arange(12) % 2)
    assert read_shadow(tmp_path / "a.npz", "label").has_property.tolist() == [False, True] * 6
    scores = read_shadow("digits", "label=0", Features(kind="pca:3")).features
    expected = SkPCA(3).fit_transform(DIGITS.data / 16)
    np.testing.assert_allclose(np.abs(scores), np.abs(expected), atol=1e-3)  # float32, signs free
