"""The judge of reconstructions: how well it classifies, what it keeps on disk and what it refuses."""

import dataclasses
import functools
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from drjax import data
from drjax.nets import arrays, judge
from drjax.nets.judge import Judge, JudgeConfig, train_judge

SMALL = JudgeConfig(widths=(2, 3, 4), epochs=1, batch_size=8)
DIGITS = JudgeConfig(epochs=40, batch_size=32, held_out=0.2)


def images(m=24, d=64, seed=0):
    return np.random.default_rng(seed).uniform(size=(m, d)).astype(np.float32)


def labels(m=24, n_classes=3):
    return np.arange(m) % n_classes


def small(seed=0, **changes):
    arguments = {"images": images(), "labels": labels(), "image_shape": (8, 8), "n_classes": 3, "config": SMALL}
    return train_judge(jax.random.key(seed), **(arguments | changes))


@functools.cache
def digits_judge():
    digits = data.load("digits")
    return train_judge(jax.random.key(0), digits.x, digits.y, image_shape=digits.shape, n_classes=10, config=DIGITS)


def test_reads_digits_that_it_was_not_trained_on():
    trained = digits_judge()
    assert trained.n_held_out == 360  # a fifth of 1,797, rounded up
    assert trained.held_out_accuracy >= 0.97


def test_log_probabilities_are_normalised_and_agree_with_the_accuracy():
    digits, trained = data.load("digits"), digits_judge()
    found = trained.log_probabilities(digits.x)
    assert found.shape == (1797, 10)
    assert found.dtype == np.float64
    np.testing.assert_allclose(np.exp(found).sum(axis=1), 1, rtol=1e-13)  # float64 softmax of ten classes
    assert trained.accuracy(digits.x, digits.y) == np.mean(found.argmax(axis=1) == digits.y)
    # Whoever stands beside an image changes the rounding of batched products only.
    np.testing.assert_allclose(trained.log_probabilities(digits.x[300:301]), found[300:301], rtol=1e-4, atol=1e-5)


@pytest.mark.skipif("DRJAX_DATA" not in os.environ, reason="needs the files of MNIST; set DRJAX_DATA to their folder")
@pytest.mark.optimised
def test_one_epoch_of_a_tenth_of_mnist_reads_95_percent_of_the_official_test_digits():
    mnist = data.load("mnist")
    trained = train_judge(
        jax.random.key(0),
        mnist.x[:6_000],
        mnist.y[:6_000],
        image_shape=mnist.shape,
        n_classes=10,
        config=JudgeConfig(epochs=1),
        held_out=(mnist.x[60_000:61_000], mnist.y[60_000:61_000]),
    )
    assert trained.n_held_out == 1000
    assert trained.held_out_accuracy >= 0.95


def test_a_saved_judge_predicts_the_same(tmp_path):
    trained = digits_judge()
    trained.save(tmp_path / "judge.npz")
    loaded = Judge.load(tmp_path / "judge.npz")
    x = data.load("digits").x
    np.testing.assert_array_equal(loaded.log_probabilities(x), trained.log_probabilities(x))
    for field in ("config", "image_shape", "n_classes", "held_out_accuracy", "n_held_out"):
        assert getattr(loaded, field) == getattr(trained, field)
    assert os.listdir(tmp_path) == ["judge.npz"]


def test_damaged_and_foreign_files_are_refused(tmp_path):
    path = tmp_path / "judge.npz"
    trained = small()
    trained.save(path)
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", whole[:-40] + bytes(40)):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="npz file"):
            Judge.load(path)
    for header in ({}, {"config": 3}, {"config": {**dataclasses.asdict(SMALL), "depth": 9}}):
        arrays.write_npz(path, header, {})
        with pytest.raises(ValueError, match="must be a saved Judge"):
            Judge.load(path)
    dataclasses.replace(trained, n_classes=4).save(path)
    with pytest.raises(ValueError, match=r"must have shape \(1, 4\)"):
        Judge.load(path)
    with pytest.raises(FileNotFoundError):
        Judge.load(tmp_path / "none.npz")


@pytest.mark.parametrize("shape", [(8, 8), (9, 11), (8, 8, 1), (10, 8, 3)])
def test_any_image_shape_of_8_pixels_or_more_is_judged(shape):
    x = images(d=int(np.prod(shape)))
    found = small(images=x, image_shape=shape).log_probabilities(x)
    assert found.shape == (24, 3)
    assert np.isfinite(found).all()


def test_equal_keys_give_equal_judges_and_others_do_not():
    x = images(seed=5)
    first, again, other = (small(seed).log_probabilities(x) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_held_out_images_are_not_trained_on():
    # Labels of the held-out images that contradict those trained on leave every prediction as it is.
    other = images(seed=6)
    true, false = (small(held_out=(other, y)) for y in (labels(), (labels() + 1) % 3))
    np.testing.assert_array_equal(true.log_probabilities(other), false.log_probabilities(other))
    assert true.held_out_accuracy == true.accuracy(other, labels())
    assert false.held_out_accuracy == true.accuracy(other, (labels() + 1) % 3)
    assert small(config=dataclasses.replace(SMALL, held_out=0.3)).n_held_out == 8  # 7.2 rounded up


def test_an_epoch_is_compiled_once():
    judge._epoch.clear_cache()
    small(config=dataclasses.replace(SMALL, epochs=4))
    small(3, config=dataclasses.replace(SMALL, epochs=4))
    assert judge._epoch._cache_size() == 1


@pytest.mark.parametrize("channels", [1, 3])
def test_the_convolution_by_matrix_products_is_xlas(channels, monkeypatch):
    rng = np.random.default_rng(7)
    x, kernel = (jnp.asarray(rng.normal(size=s), jnp.float32) for s in ((2, 9, 7, channels), (3, 3, channels, 4)))
    ours = judge._convolve(x, kernel)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    np.testing.assert_allclose(ours, judge._convolve(x, kernel), atol=1e-5)  # float32 sums of up to 27 products


def test_pooling_takes_the_largest_of_four_pixels():
    x = np.random.default_rng(8).normal(size=(2, 7, 6, 3)).astype(np.float32)
    expected = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    np.testing.assert_array_equal(judge._pool(jnp.asarray(x)), expected)


def test_shifts_move_each_image_by_whole_pixels_within_reach():
    image = np.zeros((20, 30), np.float32)
    image[10, 15] = 1
    moved = np.asarray(judge._shifted(jax.random.key(0), jnp.tile(image[..., None], (400, 1, 1, 1)), 0.1))
    places = np.argwhere(moved[..., 0] == 1)[:, 1:] - (10, 15)
    assert moved.sum() == 400
    assert {tuple(place) for place in places} == {(i, j) for i in range(-2, 3) for j in range(-3, 4)}
    still = judge._shifted(jax.random.key(0), jnp.asarray(moved), 0.0)
    np.testing.assert_array_equal(still, moved)


def test_a_training_that_diverges_is_refused():
    with pytest.raises(ValueError, match="learning_rate must be small enough"):
        small(config=dataclasses.replace(SMALL, epochs=4, learning_rate=1e38))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images": images() + 1}, r"images must be in \[0, 1\]"),
        ({"images": np.full((24, 64), np.nan)}, "images must be finite"),
        ({"images": images(d=63)}, "images must have 64 columns"),
        ({"labels": labels(23)}, r"labels must be 24 integers in \[0, 3\)"),
        ({"labels": labels() + 1}, "labels must be 24 integers"),
        ({"labels": labels() - 1}, "labels must be 24 integers"),
        ({"labels": labels().astype(float)}, "labels must be 24 integers"),
        ({"held_out": (images(), labels(5))}, "held-out labels must be 24 integers"),
        ({"held_out": (images() - 1, labels())}, "held-out images must be in"),
        ({"image_shape": (64,)}, r"image_shape must be \(h, w\) or \(h, w, c\)"),
        ({"image_shape": (7, 8)}, r"image_shape\[0\] must be an integer >= 8"),
        ({"image_shape": (8, 8, 0)}, r"image_shape\[2\] must be an integer >= 1"),
        ({"n_classes": 1}, "n_classes must be an integer >= 2"),
        ({"config": JudgeConfig(batch_size=22)}, "batch_size must be <= the 21 images"),
    ],
)
def test_bad_input_is_named(change, message):
    with pytest.raises(ValueError, match=message):
        small(**change)


def test_a_key_must_be_typed():
    with pytest.raises(ValueError, match="key must be a single key"):
        train_judge(0, images(), labels(), image_shape=(8, 8), n_classes=3)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("widths", (16, 32)),
        ("widths", (16, 0, 64)),
        ("epochs", 0),
        ("batch_size", 1.5),
        ("learning_rate", np.nan),
        ("weight_decay", -1),
        ("shift", 0.6),
        ("shift", np.nan),
        ("held_out", 0.0),
        ("held_out", 1.0),
        ("held_out", np.nan),
    ],
)
def test_bad_configurations_are_named(field, value):
    with pytest.raises(ValueError, match=field):
        JudgeConfig(**{field: value})


@pytest.mark.parametrize("x", [images(d=63), np.full((2, 64), np.nan), images()[0], np.array([["a"] * 64])])
def test_bad_images_to_judge_are_named(x):
    with pytest.raises(ValueError, match="x must"):
        small().log_probabilities(x)
