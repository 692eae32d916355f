import jax
import numpy as np
import pytest

from drjax.defenses.dp_pca import AnalyticGauss, LaplaceVector
from drjax.release import expected
from drjax.release.mechanism import MomentNoise, bounded

KEY, D = jax.random.key(7), 6
SPREAD = 1.5 ** -np.arange(D)


def population(n, seed=0):
    return np.random.default_rng(seed).normal(size=(n, D)) * SPREAD


def gauss(noise, **fields):
    given = {"n_components": 3, "row_norm": 4.0, "center": np.zeros(D), "neighbouring": "replace_one"}
    return AnalyticGauss(**{**given, "noise_multiplier": noise, **fields})


def test_noise_of_shadows_is_that_of_the_mechanism():
    mechanism = gauss(2.0, divisor=50.0, center=np.arange(D) * 1.0)
    noise, scatter = MomentNoise(mechanism), np.eye(D)
    drawn = np.asarray(jax.vmap(lambda key: noise(key, scatter))(jax.random.split(KEY, 400))) - scatter
    np.testing.assert_array_equal(drawn, np.swapaxes(drawn, 1, 2))
    unit = 2.0 * 16 / 50
    # Standard deviations from 400 draws are off by 4%, averages over entries by less.
    assert np.std(drawn[:, np.arange(D), np.arange(D)]) == pytest.approx(unit, rel=0.1)
    assert np.std(drawn[:, 0, 1:]) == pytest.approx(unit / np.sqrt(2), rel=0.1)


def test_records_are_cut_as_the_mechanism_cuts_them():
    x = population(40) * 3
    ball = gauss(1.0, row_norm=2.0, center=np.ones(D))
    z = bounded(ball, x)
    norms = np.linalg.norm(x - 1, axis=1)
    np.testing.assert_allclose(z, (x - 1) * np.minimum(1, 2 / norms)[:, None], rtol=1e-5)  # float32
    box = LaplaceVector(
        neighbouring="zero_out", n_components=2, epsilon=1.0, lower=-np.ones(D), upper=2 * np.ones(D), center=np.ones(D)
    )
    np.testing.assert_allclose(bounded(box, x), np.clip(x - 1, -1, 2), atol=1e-5)


def test_noise_that_drowns_everything_leaves_half_an_auc_and_no_noise_leaves_the_energy():
    x = population(160)
    drowned, loud = gauss(1e4), expected.membership(KEY, gauss(1e4), x, n_splits=4, n_shadows=6)
    for attack in loud.attacks:
        if attack.is_private:
            assert attack.auc.low - 0.05 < 0.5 < attack.auc.high + 0.05
    assert (loud.n_members, loud.n_population, loud.has_public) == (40, 80, False)
    quiet = expected.utility(KEY, gauss(1e-6), lambda epsilon: gauss(1e-6 / epsilon), 1.0, x, n_trials=8)
    assert quiet.chosen.estimate == pytest.approx(1, abs=1e-3)  # float32
    assert quiet.angle is not None
    assert quiet.angle.estimate < 1  # degrees, float32
    assert quiet.k_noisy.estimate == quiet.k_true
    lost = expected.utility(KEY, drowned, lambda epsilon: gauss(1e4 / epsilon), 1.0, x, n_trials=40)
    values = np.sort(np.linalg.eigvalsh(x.T @ x / len(x)))[::-1]
    random = values.sum() * 3 / D / values[:3].sum()
    assert lost.chosen.estimate == pytest.approx(random, abs=0.1)  # 40 random subspaces


def test_public_records_are_the_adversary_s_where_there_are_enough():
    found = expected.membership(KEY, gauss(1.0), population(80), public=population(60, 5), n_splits=2, n_shadows=3)
    assert found.has_public
    assert (found.n_members, found.n_population) == (30, 60)
    found = expected.membership(KEY, gauss(1.0), population(80), public=population(6, 5), n_splits=2, n_shadows=3)
    assert not found.has_public
    with pytest.raises(ValueError, match="the number of records must be >= 40"):
        expected.membership(KEY, gauss(1.0), population(39))
