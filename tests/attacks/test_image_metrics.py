"""Image metrics against scikit-image, SciPy, naive loops and, for LPIPS, stand-ins of its packages."""

import math
import sys
from contextlib import nullcontext
from pickle import UnpicklingError
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import log_softmax, rel_entr
from skimage.metrics import structural_similarity

from drjax.attacks import image_metrics, metrics
from drjax.attacks.image_metrics import lpips, oracle_percentiles, prediction_kl, ssim


def images(m=6, shape=(16, 14), seed=0):
    return np.random.default_rng(seed).uniform(size=(m, math.prod(shape)))


def log_predictions(m=5, n_classes=4, seed=0, scale=3.0):
    return log_softmax(scale * np.random.default_rng(seed).normal(size=(m, n_classes)), axis=1)


@pytest.mark.parametrize("shape", [(28, 28), (11, 15), (32, 32, 3), (12, 13, 1)])
@pytest.mark.parametrize("data_range", [1.0, 255.0])
def test_ssim_is_scikit_images_with_the_settings_of_wang(shape, data_range):
    x, guess = data_range * images(shape=shape), data_range * images(shape=shape, seed=1)
    expected = [
        structural_similarity(
            a.reshape(shape),
            b.reshape(shape),
            data_range=data_range,
            gaussian_weights=True,
            sigma=1.5,
            use_sample_covariance=False,
            channel_axis=2 if len(shape) == 3 else None,
        )
        for a, b in zip(x, guess, strict=True)
    ]
    np.testing.assert_allclose(ssim(guess, x, image_shape=shape, data_range=data_range), expected, rtol=1e-12)


@pytest.mark.parametrize(("shape", "window"), [((8, 8), 7), ((3, 20), 3), ((9, 10, 3), 9), ((10, 10), 9)])
def test_ssim_of_small_images_has_the_largest_odd_window_that_fits(shape, window):
    x, guess = images(shape=shape), images(shape=shape, seed=2)
    channels = 1 if len(shape) == 2 else shape[2]
    place = np.arange(window) - window // 2
    taps = np.exp(-(place**2) / (2 * (1.5 * window / 11) ** 2))
    weights = np.outer(taps, taps) / taps.sum() ** 2

    def windows(row):
        image = row.reshape(*shape[:2], channels)
        return np.lib.stride_tricks.sliding_window_view(image, (window, window), axis=(0, 1))

    def naive(a, b):
        a, b = windows(a), windows(b)
        mean_a, mean_b = (np.sum(weights * v, axis=(-2, -1)) for v in (a, b))
        var_a, var_b = (np.sum(weights * v**2, axis=(-2, -1)) - mean**2 for v, mean in ((a, mean_a), (b, mean_b)))
        covariance = np.sum(weights * a * b, axis=(-2, -1)) - mean_a * mean_b
        c1, c2 = 0.01**2, 0.03**2
        alike = (2 * mean_a * mean_b + c1) * (2 * covariance + c2)
        return np.mean(alike / ((mean_a**2 + mean_b**2 + c1) * (var_a + var_b + c2)))

    expected = [naive(a, b) for a, b in zip(x, guess, strict=True)]
    np.testing.assert_allclose(ssim(guess, x, image_shape=shape), expected, rtol=1e-10)


@pytest.mark.parametrize("shape", [(8, 8), (28, 28), (16, 16, 3)])
def test_ssim_is_1_for_equal_images_and_falls_as_noise_grows(shape):
    x = images(20, shape)
    noise = np.random.default_rng(3).normal(size=x.shape)
    levels = [ssim(x + scale * noise, x, image_shape=shape).mean() for scale in (0.0, 0.02, 0.1, 0.3, 1.0)]
    assert levels[0] == pytest.approx(1, abs=1e-12)  # the same sums, divided
    assert np.all(np.diff(levels) < 0)
    assert levels[-1] < 0.5


def test_ssim_does_not_depend_on_which_image_is_the_target():
    x, guess = images(), images(seed=4)
    shape = (16, 14)
    np.testing.assert_allclose(ssim(x, guess, image_shape=shape), ssim(guess, x, image_shape=shape), rtol=1e-12)


def test_failed_reconstructions_score_nan_and_leave_the_others_alone():
    x, guess = images(), images(seed=5)
    whole = ssim(guess, x, image_shape=(16, 14))
    guess[1, 3], guess[4] = np.nan, np.inf
    found = ssim(guess, x, image_shape=(16, 14))
    np.testing.assert_array_equal(np.isnan(found), [False, True, False, False, True, False])
    np.testing.assert_array_equal(found[[0, 2, 3, 5]], whole[[0, 2, 3, 5]])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reconstructions": images(5)}, "reconstructions must be numeric with the targets' shape"),
        ({"targets": np.full((6, 224), np.nan)}, "targets must be finite"),
        ({"image_shape": (16, 15)}, "targets must have 240 columns"),
        ({"image_shape": (224,)}, r"image_shape must be \(h, w\) or \(h, w, c\)"),
        ({"image_shape": (2, 112)}, r"image_shape\[0\] must be an integer >= 3"),
        ({"image_shape": (16, 14, 0)}, r"image_shape\[2\] must be an integer >= 1"),
        ({"data_range": 0.0}, "data_range must be > 0"),
        ({"data_range": np.nan}, "data_range must be > 0"),
        ({"data_range": np.inf}, "data_range must be finite"),
    ],
)
def test_bad_input_to_ssim_is_named(change, message):
    arguments = {"reconstructions": images(), "targets": images(), "image_shape": (16, 14)}
    with pytest.raises(ValueError, match=message):
        ssim(**(arguments | change))


def test_kl_is_scipys_relative_entropy():
    p, q = log_predictions(), log_predictions(seed=1)
    np.testing.assert_allclose(prediction_kl(p, q), rel_entr(np.exp(p), np.exp(q)).sum(axis=1), rtol=1e-12)


def test_kl_of_equal_predictions_is_0_and_of_others_is_positive():
    p = log_predictions(200, 10)
    np.testing.assert_array_equal(prediction_kl(p, p), 0.0)
    assert np.all(prediction_kl(p, log_predictions(200, 10, seed=1)) > 0)
    # Float32 rows do not sum to 1 exactly: without normalising them again, many would diverge by less than 0.
    assert np.all(prediction_kl(p.astype(np.float32), p) >= 0)


def test_kl_keeps_classes_that_have_no_float32_probability():
    # A fair coin against one that is sure up to exp(-200): (200 - 2 log 2) / 2 up to exp(-200).
    fair, sure = np.log([[0.5, 0.5]]), np.array([[0.0, -200.0]])
    np.testing.assert_allclose(prediction_kl(fair, sure), 100 - math.log(2), rtol=1e-14)
    np.testing.assert_allclose(prediction_kl(sure, fair), math.log(2), rtol=1e-14)


def test_kl_of_impossible_classes_is_0_or_infinite():
    certain = np.array([[0.0, -np.inf]])
    fair = np.log([[0.5, 0.5]])
    tiny = np.array([[0.0, -800.0]])  # exp(-800) is 0 in float64
    assert prediction_kl(certain, certain) == 0
    assert prediction_kl(certain, fair) == pytest.approx(math.log(2))
    assert prediction_kl(fair, certain) == np.inf
    assert prediction_kl(tiny, certain) == 0


def test_kl_of_a_failed_reconstruction_is_nan():
    p, q = log_predictions(), log_predictions(seed=1)
    q[2, 1] = np.nan
    np.testing.assert_array_equal(np.isnan(prediction_kl(p, q)), [False, False, True, False, False])


@pytest.mark.parametrize(
    ("p", "q", "message"),
    [
        (log_predictions(4), log_predictions(5), "reconstruction_log_probabilities must have the targets' shape"),
        (np.exp(log_predictions()), log_predictions(), "target_log_probabilities must be logarithms"),
        (log_predictions(), log_predictions() + 0.01, "reconstruction_log_probabilities must be logarithms"),
        (log_predictions(), np.full((5, 4), -np.inf), "the first of sum 0"),
        (log_predictions(), np.full((5, 4), 1e3), "reconstruction_log_probabilities must be logarithms"),
        (np.full((5, 4), np.nan), log_predictions(), "target_log_probabilities must not be nan, got 5"),
        (log_predictions()[0], log_predictions(), "target_log_probabilities must be a non-empty array"),
        (log_predictions(), np.full((5, 4), "a"), "reconstruction_log_probabilities must be numeric"),
    ],
)
def test_bad_log_probabilities_are_named(p, q, message):
    with pytest.raises(ValueError, match=message):
        prediction_kl(p, q)


class FakeNetwork:
    """Remembers how it was made and called; its distance is the mean absolute difference."""

    made = None

    def __init__(self, **options):
        self.options, self.calls, self.state = options, [], None
        FakeNetwork.made = self

    def load_state_dict(self, state):
        if "lin0" not in state:
            raise RuntimeError("missing keys")
        self.state = state

    def __call__(self, a, b):
        assert a.dtype == b.dtype == np.float32
        self.calls.append((a, b))
        return np.abs(a - b).mean(axis=(1, 2, 3), keepdims=True)


@pytest.fixture
def fakes(monkeypatch, tmp_path):
    """A file of weights, and modules lpips and torch that pass arrays through."""
    weights = tmp_path / "lpips.pth"
    weights.write_bytes(b"lin0")
    loads = []

    def load(path, *, map_location, weights_only):
        loads.append((path, map_location, weights_only))
        content = path.read_bytes()
        if content == b"code":
            raise UnpicklingError("weights only")
        return {content.decode(): 0}

    def from_numpy(array):
        assert array.flags.c_contiguous
        assert array.flags.writeable  # torch warns otherwise
        return array

    torch = SimpleNamespace(load=load, from_numpy=from_numpy, no_grad=nullcontext)
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "lpips", SimpleNamespace(LPIPS=FakeNetwork))
    return SimpleNamespace(weights=weights, loads=loads)


@pytest.mark.parametrize("shape", [(32, 33), (32, 33, 1), (32, 33, 3)])
def test_lpips_is_given_three_channels_first_between_minus_1_and_1(fakes, shape):
    x, guess = images(shape=shape), images(shape=shape, seed=1)
    guess[2, 5] = 1.5
    found = lpips(guess, x, image_shape=shape, weights=str(fakes.weights))
    network = FakeNetwork.made
    assert network.options == {"net": "alex", "pretrained": False, "pnet_rand": True, "verbose": False}
    assert network.state == {"lin0": 0}
    assert fakes.loads == [(fakes.weights, "cpu", True)]
    ((a, b),) = network.calls
    for passed, given in ((a, np.minimum(guess, 1)), (b, x)):
        expected = 2 * given.reshape(-1, 32, 33, shape[2] if len(shape) == 3 else 1) - 1
        assert passed.shape == (6, 3, 32, 33)
        np.testing.assert_allclose(passed, np.broadcast_to(np.moveaxis(expected, 3, 1), passed.shape), atol=1e-6)
    assert found.shape == (6,)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, 2 * np.abs(np.minimum(guess, 1) - x).mean(axis=1), rtol=1e-5)


def test_lpips_of_many_images_is_that_of_each_and_nan_where_a_reconstruction_failed(fakes, monkeypatch):
    monkeypatch.setattr(image_metrics, "LPIPS_CHUNK", 2)
    x, guess = images(shape=(16, 16)), images(shape=(16, 16), seed=1)
    guess[3, 0] = np.nan
    found = lpips(guess, x, image_shape=(16, 16), weights=fakes.weights, net="vgg")
    assert [len(a) for a, _ in FakeNetwork.made.calls] == [2, 2, 1]
    np.testing.assert_array_equal(np.isnan(found), np.arange(6) == 3)
    used = np.arange(6) != 3
    np.testing.assert_allclose(found[used], 2 * np.abs(guess - x).mean(axis=1)[used], rtol=1e-5)


@pytest.mark.parametrize("content", [b"other", b"code"])
def test_a_file_that_is_no_lpips_network_is_refused(fakes, content):
    fakes.weights.write_bytes(content)
    x = images(shape=(32, 32))
    with pytest.raises(ValueError, match="weights must be a state dictionary of LPIPS with backbone alex"):
        lpips(x, x, image_shape=(32, 32), weights=fakes.weights)


@pytest.mark.parametrize("missing", ["lpips", "torch"])
def test_lpips_says_what_to_install(fakes, monkeypatch, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    x = images(shape=(32, 32))
    with pytest.raises(ImportError, match="pip install lpips torch"):
        lpips(x, x, image_shape=(32, 32), weights=fakes.weights)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weights": None}, "weights must be the file of an LPIPS state dictionary, got None"),
        ({"weights": "/nowhere/lpips.pth"}, "weights must be the file of an LPIPS state dictionary"),
        ({"net": "resnet"}, "net must be one of alex, vgg"),
        ({"image_shape": (30, 32)}, r"image_shape\[0\] must be an integer >= 31"),
        (
            {"image_shape": (32, 32, 2), "targets": images(shape=(32, 64)), "reconstructions": images(shape=(32, 64))},
            "channels must be one of 1, 3",
        ),
        ({"targets": images(shape=(32, 32)) + 1}, r"targets must be in \[0, 1\]"),
        ({"targets": np.full((6, 1024), np.nan)}, "targets must be finite"),
        ({"reconstructions": images(5, (32, 32))}, "reconstructions must be numeric with the targets' shape"),
    ],
)
def test_bad_input_to_lpips_is_named(fakes, change, message):
    x = images(shape=(32, 32))
    arguments = {"reconstructions": x, "targets": x, "image_shape": (32, 32), "weights": fakes.weights}
    with pytest.raises(ValueError, match=message):
        lpips(**(arguments | change))


@pytest.mark.parametrize("entries", [50, metrics.CHUNK_ENTRIES])
def test_the_oracle_is_a_loop_over_targets_and_records(monkeypatch, entries):
    monkeypatch.setattr(metrics, "CHUNK_ENTRIES", entries)
    # An offset far above the distances, which uncentred products would lose three digits to.
    x, records = 1e3 + images(7, (2, 3)), 1e3 + images(23, (2, 3), seed=1)
    distances = [[np.mean((record - target) ** 2) for record in records] for target in x]
    found = oracle_percentiles(x, records, percentiles=(0, 1, 10, 50, 100))
    assert found.nearest == pytest.approx(np.mean([min(row) for row in distances]), rel=1e-12)
    expected = np.mean([np.percentile(row, [0, 1, 10, 50, 100]) for row in distances], axis=0)
    np.testing.assert_allclose(found.percentiles, expected, rtol=1e-10)
    assert found.nearest == pytest.approx(found.percentiles[0], rel=1e-10)  # the 0th percentile is the nearest


def test_the_oracle_says_exactly_0_for_targets_that_are_records():
    records = images(30)
    found = oracle_percentiles(records[:4], records)
    assert found.nearest == 0.0
    assert found.percentiles.shape == (3,)
    assert np.all(np.diff(found.percentiles) > 0)
    alone = oracle_percentiles(records[:1], records[:1])
    assert np.all(alone.percentiles == 0)


def test_more_records_bring_the_oracle_nearer():
    x, records = images(20), images(200, seed=1)
    few, many = oracle_percentiles(x, records[:20]), oracle_percentiles(x, records)
    assert many.nearest < few.nearest


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"targets": np.full((2, 224), np.nan)}, "targets must be finite"),
        ({"records": images(shape=(3, 3))}, "records must have 224 columns"),
        ({"records": np.full((2, 224), np.inf)}, "records must be finite"),
        ({"percentiles": (1, 101)}, r"percentiles must be numbers in \[0, 100\]"),
        ({"percentiles": (np.nan,)}, "percentiles must be numbers"),
        ({"percentiles": ()}, "percentiles must be numbers"),
        ({"percentiles": 50}, "percentiles must be numbers"),
    ],
)
def test_bad_input_to_the_oracle_is_named(change, message):
    with pytest.raises(ValueError, match=message):
        oracle_percentiles(**({"targets": images(), "records": images()} | change))
