"""Defences of maps: what they change, by how much, and what the noised share guarantees."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from drjax.attacks.property.defences import (
    TABLE5,
    CoordinateNoise,
    CoordinateRounding,
    EmbeddingNoise,
    EmbeddingRounding,
    EmbeddingThreshold,
)
from drjax.attacks.property.groups import sample_groups
from drjax.attacks.property.noised_proportion import NoisedProportion

KEY = jax.random.key(5)
RNG = np.random.default_rng(0)
X = (RNG.normal(size=(400, 300)) * RNG.uniform(0.1, 5, size=(400, 1)) + 3).astype(np.float32)
Y = (RNG.normal(size=(5000, 2)) * [1.0, 20.0] + [100.0, 0.0]).astype(np.float32)


def test_noise_on_embeddings_is_in_units_of_each_embeddings_own_spread():
    noise = EmbeddingNoise(scale=0.5).on_features(KEY, X) - X
    # 300 draws each: a standard deviation within 4.5 of its own standard errors, 1 / sqrt(600).
    np.testing.assert_allclose(np.std(noise, axis=1), 0.5 * X.std(axis=1), rtol=4.5 / np.sqrt(600))
    assert stats.kstest((noise / (0.5 * X.std(axis=1, keepdims=True))).ravel(), "norm").pvalue > 1e-3


def test_noise_in_units_of_features_follows_their_spread():
    x = X * RNG.uniform(0.1, 5, size=300).astype(np.float32)
    noise = EmbeddingNoise(scale=0.5, unit="feature").on_features(KEY, x) - x
    np.testing.assert_allclose(np.std(noise, axis=0), 0.5 * x.std(axis=0), rtol=4.5 / np.sqrt(800))


def test_noise_on_coordinates_is_in_units_of_each_axis():
    noise = CoordinateNoise(scale=0.05).on_coords(KEY, Y) - Y
    np.testing.assert_allclose(np.std(noise, axis=0), 0.05 * Y.std(axis=0), rtol=4.5 / np.sqrt(10_000))
    np.testing.assert_allclose(noise.mean(axis=0), 0, atol=4.5 * 0.05 * 20 / np.sqrt(5000))


@pytest.mark.parametrize(
    "defence", [EmbeddingNoise(scale=0.0), CoordinateNoise(scale=0.0), EmbeddingThreshold(keep=1.0)]
)
def test_a_defence_of_no_strength_changes_nothing(defence):
    np.testing.assert_array_equal(defence.on_coords(KEY, defence.on_features(KEY, X)), X)


def test_rounding_keeps_the_decimals_that_it_says():
    np.testing.assert_allclose(EmbeddingRounding(decimals=1).on_features(KEY, X), np.round(X, 1), atol=1e-6)
    np.testing.assert_array_equal(CoordinateRounding(decimals=0).on_coords(KEY, Y), np.round(Y))
    np.testing.assert_array_equal(CoordinateRounding(decimals=0).on_features(KEY, X), X)
    np.testing.assert_array_equal(EmbeddingRounding(decimals=0).on_coords(KEY, Y), Y)


def test_the_threshold_keeps_the_largest_values_of_each_embedding():
    found = np.asarray(EmbeddingThreshold(keep=0.25).on_features(KEY, X))
    for row, kept in zip(X, found, strict=True):
        largest = np.argsort(-row)[:75]
        expected = np.zeros_like(row)
        expected[largest] = row[largest]
        np.testing.assert_array_equal(kept, expected)
    # 0.7 * 10 is 7.000000000000001 in floating point and still 7 values.
    tens = np.arange(1.0, 11)[None]
    assert np.count_nonzero(EmbeddingThreshold(keep=0.7).on_features(KEY, tens)) == 7


def test_the_thresholds_of_the_paper_keep_the_share_in_their_name():
    for name, kept in (("E-T 50%", 150), ("E-T 75%", 225)):
        assert np.all(np.count_nonzero(TABLE5[name].on_features(KEY, 1 + np.abs(X)), axis=1) == kept)


def test_what_is_said_to_treat_records_by_themselves_does():
    for name, defence in TABLE5.items():
        whole = defence.on_features(KEY, jnp.asarray(X))
        part = defence.on_features(jax.random.key(9), jnp.asarray(X[5:9]))
        assert bool((whole[5:9] == part).all()) == defence.is_recordwise, name


def test_a_sweep_over_the_strength_traces_once():
    @jax.jit
    @chex.assert_max_traces(n=1)
    def noised(defence):
        return defence.on_coords(KEY, Y)

    spreads = [float(jnp.std(noised(CoordinateNoise(scale=s)) - Y)) for s in (0.02, 0.05)]
    assert spreads[1] == pytest.approx(2.5 * spreads[0], rel=1e-3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: EmbeddingNoise(scale=-1.0), "scale must be a finite number >= 0, got -1"),
        (lambda: CoordinateNoise(scale=float("nan")), "scale must be a finite number >= 0, got nan"),
        (lambda: EmbeddingNoise(scale=1.0, unit="pixel"), "unit must be one of embedding, feature"),
        (lambda: EmbeddingRounding(decimals=-1), "decimals must be an integer >= 0"),
        (lambda: CoordinateRounding(decimals=0.5), "decimals must be an integer >= 0"),
        (lambda: EmbeddingThreshold(keep=0.0), r"keep must be in \(0, 1\], got 0"),
    ],
)
def test_bad_strengths_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


class TestNoisedProportion:
    FLAGS = np.arange(900) % 3 == 0

    def test_a_plot_has_distinct_records_in_random_order(self):
        rows = NoisedProportion(epsilon=1.0, n_changed=1, high=0.9).sample(KEY, self.FLAGS, 300)
        assert len(set(rows.tolist())) == 300
        # The share of the first half of a random order: standard deviation 0.027 at most.
        assert abs(self.FLAGS[rows[:150]].mean() - self.FLAGS[rows].mean()) < 0.13

    def test_counts_follow_the_discrete_laplace_of_the_guarantee(self):
        # A plot of a third of the records: noise of scale 12 on the count is noise of scale 4 in the plot. With a
        # scale of 12 the noise is measured in whole data sets by releasing all that the limits let.
        mechanism = NoisedProportion(epsilon=0.25, n_changed=3)
        assert mechanism.noise_scale == 12
        flags = np.arange(400) % 2 == 0
        counts = [int(flags[mechanism.sample(jax.random.key(i), flags, 200)].sum()) for i in range(400)]
        edges = np.array([-np.inf, *range(88, 113, 4), np.inf])
        ratio = np.exp(-1 / 12)
        k = np.arange(-2000, 2001)
        law = ratio ** np.abs(k) * (1 - ratio) / (1 + ratio)
        plotted = np.array([round((200 + v) / 2) for v in k])
        expected = np.histogram(np.clip(plotted, 0, 200), edges, weights=law)[0]
        found = np.histogram(counts, edges)[0]
        assert stats.chisquare(found, 400 * expected / expected.sum()).pvalue > 1e-3
        wrong = ratio ** (2 * np.abs(k))
        expected = np.histogram(plotted, edges, weights=wrong / wrong.sum())[0]
        assert stats.chisquare(found, 400 * expected / expected.sum()).pvalue < 1e-6

    def test_the_law_of_the_count_is_within_epsilon_for_all_neighbours(self):
        # Exact probabilities of the released count for neighbouring counts of the data set, from the noise's law.
        mechanism = NoisedProportion(epsilon=0.5, n_changed=2, low=0.2, high=0.8)
        ratio, n, size = np.exp(-0.25), 60, 20
        k = np.arange(-3000, 3001)
        law = ratio ** np.abs(k) * (1 - ratio) / (1 + ratio)

        def released(count):
            plotted = np.clip([round((count + v) * size / n) for v in k], 4, 16)
            return np.bincount(plotted, weights=law, minlength=size + 1)[4:17]

        worst = max(
            np.abs(np.log(released(c) / released(c + change))).max() for c in range(16, 44) for change in (1, 2)
        )
        assert 0.9 * 0.5 < worst <= 0.5 + 1e-9
        assert mechanism.curve.epsilon == 0.5
        assert mechanism.curve.neighbouring == "replace_one"

    def test_a_release_draws_from_the_operating_system(self):
        mechanism = NoisedProportion(epsilon=1.0, n_changed=1, high=0.9)
        first, second = (mechanism.release(self.FLAGS, 300) for _ in range(2))
        assert set(first.tolist()) != set(second.tolist())

    def test_groups_keep_the_share_that_is_to_be_hidden(self):
        groups = sample_groups(KEY, self.FLAGS, (0.3, 0.5), 300, 2)
        mechanism = NoisedProportion(epsilon=1.0, n_changed=30)
        plots = mechanism.sample_groups(KEY, self.FLAGS, groups, 80)
        np.testing.assert_array_equal(plots.proportions, groups.proportions)
        for plot, group in zip(plots.rows, groups.rows, strict=True):
            assert set(plot.tolist()) <= set(group.tolist())
        again = mechanism.sample_groups(KEY, self.FLAGS, groups._replace(rows=groups.rows[:1]), 80)
        np.testing.assert_array_equal(again.rows[0], plots.rows[0])

    def test_limits_that_the_records_cannot_serve_are_refused_before_any_noise(self):
        with pytest.raises(ValueError, match="has_property must hold for 400 records and fail for 400"):
            NoisedProportion(epsilon=1e6, n_changed=1).sample(KEY, self.FLAGS, 400)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"epsilon": 0.0}, "epsilon must be"),
            ({"n_changed": 0}, "n_changed must be an integer >= 1"),
            ({"low": 0.6, "high": 0.5}, "low must be < high"),
            ({"high": 1.5}, r"high must be in \[0, 1\]"),
        ],
    )
    def test_bad_hyperparameters_are_refused(self, options, message):
        with pytest.raises(ValueError, match=message):
            NoisedProportion(**{"epsilon": 1.0, "n_changed": 1} | options)
