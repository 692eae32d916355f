"""Privacy of synthetic data by attack: leaks are found, noise is not taken for one, ceilings are ceilings."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import norm
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import NearestNeighbors

from drjax.bounds import rero, tradeoff
from drjax.bounds.accounting import Guarantee
from drjax.core.types import Array
from drjax.defenses.mechanisms import Laplace
from drjax.synthesis.contract import Box, Synthetic
from drjax.synthesis.exposure import (
    DENSITIES,
    auc_ceiling,
    closest_record_scores,
    density_ratio_scores,
    membership_exposure,
    memorisation_ratio,
    rero_ceiling,
)

KEY = jax.random.key(0)
BOX = Box.of(-6.0, 6.0, d=3)


def normal(seed: int, n: int, d: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, d))


def no_privacy() -> Guarantee:
    curve = tradeoff.EpsilonDelta(0.0, 1.0, neighbouring="replace_one")
    return Guarantee(curve, curve, "nothing")


class Shown(NamedTuple):
    """A release of records (n, 3) as they are here."""

    guarantee: Guarantee
    x: np.ndarray

    def sample(self, key: Array, n: int) -> Synthetic:
        del key
        return Synthetic(self.x[np.arange(n) % len(self.x)], None)

    def transform(self, x: Array) -> Any:
        return BOX.clip(x)


def copied(x: np.ndarray, spread: float = 0.0) -> Shown:
    noise = spread * np.random.default_rng(9).normal(size=x.shape)
    return Shown(no_privacy(), np.asarray(x + noise, np.float32))


def test_closest_record_scores_are_the_distances_of_scikit_learn():
    made, wanted, public = normal(0, 50), normal(1, 20), normal(2, 40)
    near = NearestNeighbors(n_neighbors=1).fit(made).kneighbors(wanted)[0][:, 0]
    far = NearestNeighbors(n_neighbors=1).fit(public).kneighbors(wanted)[0][:, 0]
    np.testing.assert_allclose(closest_record_scores(made, wanted), -near)
    np.testing.assert_allclose(closest_record_scores(made, wanted, reference=public), np.log(far / near))
    assert closest_record_scores(made, made[:3], reference=public).min() > 100  # copies: certain, and no nan
    holes = np.concatenate([made, np.full((5, 3), np.nan)])
    np.testing.assert_array_equal(closest_record_scores(holes, wanted), closest_record_scores(made, wanted))


@pytest.mark.parametrize("density", DENSITIES)
def test_density_ratio_orders_candidates_as_the_true_ratio_does(density):
    # Synthetic records about (1, 1, 1), public ones about 0: the true log-ratio rises with the sum.
    made, public, wanted = normal(0, 1500) + 1, normal(1, 1500), 1.5 * normal(2, 300) + 0.5
    found = density_ratio_scores(KEY, made, public, wanted, density=density)
    assert np.isfinite(found).all()
    assert np.corrcoef(found.argsort().argsort(), wanted.sum(axis=1).argsort().argsort())[0, 1] > 0.8


@pytest.mark.parametrize("density", DENSITIES)
def test_densities_of_degenerate_synthetic_data_are_finite(density):
    found = density_ratio_scores(KEY, np.ones((30, 3)), normal(1, 40), normal(2, 10), density=density)
    assert np.isfinite(found).all()
    assert density_ratio_scores(KEY, np.ones((1, 3)), normal(1, 40), normal(2, 10), density=density).shape == (10,)


def test_copies_are_found_by_every_attack():
    members, others, public = normal(0, 300), normal(1, 300), normal(2, 600)
    found = membership_exposure(KEY, copied(members, 0.05), members, others, reference=public)
    assert sorted(found) == ["closest_record", "closest_record_relative", "density_ratio"]
    assert found["closest_record_relative"].auc.low > 0.9
    assert found["closest_record"].auc.low > 0.9
    assert found["density_ratio"].auc.low > 0.5
    assert found["closest_record"].tpr[0.01].estimate > 0.3
    assert list(membership_exposure(KEY, copied(members), members, others)) == ["closest_record"]


def test_fresh_draws_expose_nobody():
    found = []
    for seed in range(6):
        made, members, others, public = (normal(10 * seed + i, 300) for i in range(4))
        scores = membership_exposure(KEY, copied(made), members, others, reference=public)
        found.append([scores[name].auc.estimate for name in sorted(scores)])
    # An AUC of 300 and 300 has a deviation of 0.024, the mean of six 0.01: four of these.
    np.testing.assert_allclose(np.mean(found, axis=0), 0.5, atol=0.04)


def test_the_auc_of_an_exposure_is_that_of_scikit_learn_on_the_same_scores():
    members, others = normal(0, 60), normal(1, 70)
    release = copied(members, 0.3)
    found = membership_exposure(KEY, release, members, others)["closest_record"]
    made = np.asarray(release.sample(jax.random.split(KEY, 3)[0], 1000).x, np.float64)
    shown = np.asarray(release.transform(np.concatenate([members, others])), np.float64)
    scores = closest_record_scores(made, shown)
    assert found.auc.estimate == pytest.approx(roc_auc_score(np.arange(130) < 60, scores))


def test_noise_lowers_exposure_under_its_ceiling():
    members, others = normal(0, 400), normal(1, 400)
    found = {}
    for epsilon in (1.0, 1e4):
        # A record that is replaced moves three features by at most the width of the box.
        noise = Laplace.from_epsilon(epsilon, neighbouring="replace_one", sensitivity=3 * 12.0)
        rows = np.asarray(noise.sample(KEY, BOX.clip(members)))
        release = Shown(Guarantee(noise.curve, noise.curve, "noise on every record"), rows)
        found[epsilon] = membership_exposure(KEY, release, members, others)["closest_record"].auc
        assert found[epsilon].low <= auc_ceiling(release.guarantee.curve)
    assert found[1e4].low > 0.9 > found[1.0].high


@pytest.mark.parametrize("mu", [0.1, 1.0, 3.0])
def test_auc_ceiling_of_a_gaussian_is_the_area_in_closed_form_from_above(mu):
    exact = ndtr(mu / np.sqrt(2))
    found = auc_ceiling(tradeoff.Gaussian(mu, neighbouring="replace_one"))
    assert exact <= found <= exact + 1e-3
    # Two steps of a relation that exchanges nothing: a Gaussian of twice the mu.
    twice = auc_ceiling(tradeoff.Gaussian(mu, neighbouring="zero_out"))
    assert ndtr(2 * mu / np.sqrt(2)) <= twice <= ndtr(2 * mu / np.sqrt(2)) + 1e-3
    assert auc_ceiling(tradeoff.Gaussian(mu)) == twice


def test_auc_ceiling_of_no_privacy_is_one_and_of_perfect_privacy_a_half():
    assert auc_ceiling(tradeoff.EpsilonDelta(0.0, 1.0, neighbouring="replace_one")) == 1
    assert auc_ceiling(tradeoff.Gaussian(0.0, neighbouring="replace_one")) == pytest.approx(0.5, abs=1e-3)
    with pytest.raises(ValueError, match="curve must be"):
        auc_ceiling(0.5)


def test_rero_ceiling_is_that_of_the_curve_of_the_run_without_the_target():
    one, other = tradeoff.Gaussian(1.0, neighbouring="zero_out"), tradeoff.Gaussian(9.0, neighbouring="zero_out")
    kappa = np.array([1e-6, 0.1])
    found = rero_ceiling(Guarantee(other, one, "made up"), kappa)
    np.testing.assert_array_equal(found, rero.from_tradeoff(kappa, one))
    np.testing.assert_allclose(found, ndtr(norm.ppf(kappa) + 1), rtol=1e-9)


def test_memorisation_sees_copies_and_is_half_for_fresh_draws():
    used, unused = normal(0, 200), normal(1, 500)
    copies = memorisation_ratio(KEY, used[:50], used, unused)
    assert copies.share.estimate == 1
    assert copies.median_ratio == 0
    assert copies.n_exact == 50
    fresh = memorisation_ratio(KEY, normal(2, 400), used, unused)
    assert fresh.share.low < 0.5 < fresh.share.high
    assert fresh.median_ratio == pytest.approx(1, abs=0.1)  # medians of 400 distances
    assert fresh.n_exact == 0
    same = memorisation_ratio(KEY, used[:10], used, used)
    assert same.share.estimate == 0.5
    assert np.isnan(same.median_ratio)


def test_exposure_refuses_what_it_cannot_use():
    made, wanted = normal(0, 20), normal(1, 5)
    for attack in (closest_record_scores, functools.partial(density_ratio_scores, KEY, made)):
        with pytest.raises(ValueError, match="columns"):
            attack(made, wanted[:, :2])
    with pytest.raises(ValueError, match="record that is finite"):
        closest_record_scores(np.full((4, 3), np.nan), wanted)
    with pytest.raises(ValueError, match="density must be one of"):
        density_ratio_scores(KEY, made, made, wanted, density="flow")
    with pytest.raises(ValueError, match="members must have at least 2 rows"):
        membership_exposure(KEY, copied(made), made[:1], wanted)
