"""Attack models: that each kind learns a proportion, what intervals promise, invariance, and files."""

import dataclasses
import functools

import jax
import numpy as np
import pytest

from drjax.attacks.property import invariants, models, raster
from drjax.attacks.property.models import PropertyConfig, fit
from drjax.dr import TSNE
from drjax.nets.plot_networks import PlotNetworkConfig
from drjax.nets.set_network import SetNetworkConfig

SMALL = PropertyConfig(
    epochs=20,
    patience=20,
    batch_size=16,
    learning_rate=1e-2,
    validation_share=0.1,
    calibration_share=0.2,
    network=PlotNetworkConfig(size=32, blocks=(1, 1), growth=8, stem=8, stem_size=3),
    set_network=SetNetworkConfig(width=16),
)


def clusters(m, n=80, seed=0, values=None):
    """Maps (m, n, 2) of two clusters, a share of the points in the one that is long and narrow, turned at random."""
    rng = np.random.default_rng(seed)
    proportions = rng.uniform(size=m) if values is None else rng.choice(values, size=m)
    counts = np.round(proportions * n).astype(int)
    maps = rng.normal(size=(m, n, 2))
    has = np.arange(n) < counts[:, None]
    maps[has] = maps[has] * [0.4, 1.5] + [5, 0]
    angles = rng.uniform(0, 2 * np.pi, size=m)
    turns = np.stack([np.cos(angles), -np.sin(angles), np.sin(angles), np.cos(angles)], axis=-1).reshape(m, 2, 2)
    turns[rng.uniform(size=m) < 0.5, 0] *= -1
    return rng.permuted(np.arange(n)[None].repeat(m, 0), axis=1), maps @ turns, counts / n


def shuffled(*args, **options):
    order, maps, proportions = clusters(*args, **options)
    return np.take_along_axis(maps, order[..., None], axis=1), proportions


def inputs_of(kind, maps):
    return raster.draw(maps, size=32, radius=0.8) if kind == "picture" else maps


COORDINATES = ("set", "descriptors")


@functools.cache
def trained(kind):
    maps, proportions = shuffled(300)
    return fit(jax.random.key(0), inputs_of(kind, maps), proportions, kind=kind, config=SMALL)


@pytest.fixture(params=models.KINDS)
def regression(request):
    return request.param, trained(request.param)


def test_every_kind_learns_the_proportion_and_its_intervals_cover(regression):
    kind, model = regression
    maps, proportions = shuffled(200, seed=1)
    found = model.predict(inputs_of(kind, maps))
    assert found.probabilities is None
    # A guess of 1/2 errs by 0.25; pictures show turned maps, of which 210 are few.
    assert np.abs(found.proportion - proportions).mean() < (0.16 if kind == "picture" else 0.11)
    for level in (0.5, 0.9):
        low, high = model.interval(inputs_of(kind, maps), level).T
        share = ((low <= proportions) & (proportions <= high)).mean()
        # Of 60 residuals the coverage is beta distributed: three deviations, with those of 200 maps.
        assert abs(share - level) < 3 * np.sqrt(level * (1 - level) * (1 / 60 + 1 / 200)) + 1 / 61


def test_what_is_saved_is_loaded(regression, tmp_path):
    kind, model = regression
    model.save(tmp_path / "model.npz")
    loaded = models.PropertyModel.load(tmp_path / "model.npz")
    inputs = inputs_of(kind, shuffled(7, seed=2)[0])
    np.testing.assert_array_equal(loaded.predict(inputs).proportion, model.predict(inputs).proportion)
    np.testing.assert_array_equal(loaded.interval(inputs, 0.8), model.interval(inputs, 0.8))
    assert loaded.config == model.config


@pytest.fixture(params=COORDINATES)
def of_coordinates(request):
    return trained(request.param)


def test_coordinates_say_the_same_turned_mirrored_scaled_shifted_and_shuffled(of_coordinates):
    maps, _ = shuffled(5, seed=3)
    turn = np.array([[0.6, 0.8], [0.8, -0.6]])
    moved = 30 * maps[:, ::-1] @ turn + [100, -7]
    expected = of_coordinates.predict(maps).proportion
    np.testing.assert_allclose(of_coordinates.predict(moved).proportion, expected, atol=1e-4)  # float32 networks


def test_pictures_say_the_same_turned_and_mirrored():
    pictures = inputs_of("picture", shuffled(5, seed=3)[0])
    expected = trained("picture").predict(pictures).proportion
    for same in (np.rot90(pictures, 1, (1, 2)), pictures[:, :, ::-1], pictures.swapaxes(1, 2)):
        found = trained("picture").predict(same).proportion
        np.testing.assert_allclose(found, expected, atol=1e-5)  # the mean of eight float32 answers, in another order


def test_further_pictures_of_a_map_are_trained_on_and_nothing_else_sees_them():
    # Pictures that say nothing, and others of the same maps that do: only training may tell them apart.
    shares = np.tile([0.2, 0.8], 40)
    blank = np.full((80, 16, 16), 255, np.uint8)
    telling = np.where(np.random.default_rng(0).uniform(size=(80, 2, 16, 16)) < shares[:, None, None, None], 0, 255)
    network = PlotNetworkConfig(size=16, blocks=(1,), growth=4, stem=4, stem_size=3)
    config = dataclasses.replace(SMALL, epochs=6, network=network)
    model = fit(jax.random.key(0), blank, shares, config=config, redrawn=telling.astype(np.uint8))
    assert np.ptp(model.predict(blank).proportion) < 1e-6
    assert np.ptp(model.residuals) < 0.61  # of one answer to two shares
    # From blank pictures alone nothing is better than always 0.5, which errs by 0.3.
    assert model.history.train_loss[-1, 0] < 0.8 * 0.3**2


def test_maps_of_other_sizes_are_read_side_by_side(of_coordinates):
    (many, of_many), (few, of_few) = shuffled(30, n=120, seed=4), shuffled(30, n=60, seed=5)
    found = of_coordinates.predict([*many, *few]).proportion
    assert np.abs(found - np.concatenate([of_many, of_few])).mean() < 0.15


@pytest.mark.parametrize("kind", models.KINDS)
def test_classifiers_name_the_class_of_most_maps(kind):
    values = [0.2, 0.5, 0.8]
    maps, proportions = shuffled(240, values=values)
    config = dataclasses.replace(SMALL, n_ensemble=2 if kind == "set" else 1)
    model = fit(jax.random.key(0), inputs_of(kind, maps), proportions, task="classification", kind=kind, config=config)
    maps, proportions = shuffled(100, seed=1, values=values)
    found = model.predict(inputs_of(kind, maps))
    np.testing.assert_array_equal(model.classes, np.unique(proportions))
    np.testing.assert_allclose(found.probabilities.sum(axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(found.expected, found.probabilities @ model.classes)
    assert (found.proportion == proportions).mean() > (0.55 if kind == "picture" else 0.75)


def test_learns_from_tsne_maps_of_records():
    rng = np.random.default_rng(0)
    n, d, m = 60, 10, 90
    # Up to a half: t-SNE makes dense and sparse clusters alike, so that a share and its complement look the same.
    counts = rng.integers(3, 31, size=m)
    records = rng.normal(size=(m, n, d))
    has = np.arange(n) < counts[:, None]
    records[has] = 0.3 * records[has] + 2
    method = TSNE(perplexity=10.0, max_iter=500)
    keys = jax.random.split(jax.random.key(0), m)
    fitted = jax.jit(method.fit_transform)
    maps = np.stack([fitted(key, x).coords for key, x in zip(keys, np.float32(records), strict=True)])
    model = fit(jax.random.key(0), maps[:60], counts[:60] / n, kind="descriptors", config=SMALL)
    error = np.abs(model.predict(maps[60:]).proportion - counts[60:] / n).mean()
    assert error < 0.5 * np.abs(counts[60:] / n - counts[:60].mean() / n).mean()


def test_features_do_not_drift_with_the_number_of_points():
    rng = np.random.default_rng(0)
    few, many = (invariants.point_features([rng.normal(size=(n, 2))])[0] for n in (500, 2000))
    # Of the same law: only the nearest neighbours of the few are smoothed by the floor less.
    np.testing.assert_allclose(few.mean(axis=0), many.mean(axis=0), atol=0.25)
    assert few.shape == (500, invariants.N_POINT_FEATURES + 1)


def test_aligned_coordinates_do_not_turn():
    maps, _ = shuffled(4)
    turn = np.array([[0.6, 0.8], [0.8, -0.6]])
    plain, turned = (invariants.point_features(x, aligned=True)[..., -3:-1] for x in (maps, 5 * maps @ turn))
    np.testing.assert_allclose(plain, turned, atol=1e-4)


def test_further_pictures_have_to_be_pictures_of_the_maps():
    pictures, shares = np.zeros((20, 32, 32), np.uint8), np.full(20, 0.5)
    cases = ((np.zeros((19, 2, 32, 32)), "picture"), (np.zeros((20, 32, 32)), "picture"), (1, "descriptors"))
    for redrawn, kind in cases:
        inputs = pictures if kind == "picture" else np.random.default_rng(0).normal(size=(20, 9, 2))
        with pytest.raises(ValueError, match="redrawn must be pictures"):
            fit(jax.random.key(0), inputs, shares, kind=kind, config=SMALL, redrawn=redrawn)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"proportions": np.full(20, 1.5)}, "proportions"),
        ({"proportions": np.full(19, 0.5)}, "proportions"),
        ({"task": "ranking"}, "task"),
        ({"kind": "sound"}, "kind"),
        ({"task": "classification", "proportions": np.full(20, 0.5)}, "2 to 101 values"),
        ({"inputs": np.zeros((20, 2, 2))}, r"maps\[\d*\] must have at least 3 rows"),
        ({"inputs": np.zeros((20, 9, 3))}, r"maps\[\d*\] must have 2 columns"),
        ({"inputs": np.zeros((20, 9, 9)), "kind": "picture"}, "pictures of shape"),
        ({"inputs": np.full((20, 32, 32), 256), "kind": "picture"}, r"\[0, 255\]"),
        ({"inputs": np.zeros((2, 9, 2)), "proportions": [0, 1]}, "at least 2 beside"),
        ({"key": 0}, "key"),
    ],
)
def test_bad_arguments_raise_and_are_named(change, message):
    arguments = {"key": jax.random.key(0), "inputs": np.zeros((20, 9, 2)), "proportions": np.full(20, 0.5)} | change
    options = {"kind": "descriptors", "config": SMALL} | {k: v for k, v in arguments.items() if k in ("kind", "task")}
    with pytest.raises(ValueError, match=message):
        fit(arguments["key"], arguments["inputs"], arguments["proportions"], **options)


@pytest.mark.parametrize(
    "change",
    [
        {"classification_loss": "hinge"},
        {"n_ensemble": 0},
        {"validation_share": 0.0},
        {"calibration_share": 0.95},
        {"epochs": 0},
    ],
)
def test_bad_configurations_raise(change):
    with pytest.raises(ValueError, match=next(iter(change))):
        dataclasses.replace(SMALL, **change)
