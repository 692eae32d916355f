"""Inversion of private training: what noise hides, and that it is measured right."""

import jax
import numpy as np
import pytest
from sklearn.datasets import load_digits

from drjax.attacks.reconstruction.training_inversion import reconstruct_model
from drjax.attacks.reconstruction.training_inversion.noise import Spread
from drjax.core.types import Status
from drjax.defenses.dp_gd import DPGD
from drjax.nets.classifier_training import Training, train_many

N_KNOWN, M = 60, 24
TRAINING = Training(epochs=10)


def attacked(mu, *, m=M, with_labels=True):
    """(errors of the attack, errors of the mean of the class, reconstruction) on digits at mu-GDP."""
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    x, y = (x[order] / 16).astype(np.float32), y[order]
    known_x, known_y, targets_x, targets_y = x[:N_KNOWN], y[:N_KNOWN], x[-m:], y[-m:]
    public = x[N_KNOWN:1200], y[N_KNOWN:1200]
    init = jax.tree.map(np.asarray, TRAINING.model.init(jax.random.key(1), 64))
    mechanism = DPGD(neighbouring="zero_out", clip_norm=1.0, noise_multiplier=np.sqrt(TRAINING.epochs) / mu)
    params = train_many(
        TRAINING,
        known_x,
        known_y,
        targets_x,
        targets_y,
        init=init,
        mechanism=mechanism,
        noise_keys=jax.random.split(jax.random.key(3), m),
    )
    found = reconstruct_model(
        TRAINING,
        params,
        known_x,
        known_y,
        init=init,
        mechanism=mechanism,
        target_y=targets_y if with_labels else None,
        public=public,
    )
    means = np.array([public[0][public[1] == c].mean(axis=0) for c in range(10)])
    baseline = np.mean((means[targets_y] - targets_x) ** 2, axis=1)
    return np.mean((found.x - targets_x) ** 2, axis=1), baseline, found, targets_y


def test_weak_noise_hides_little():
    errors, baseline, found, labels = attacked(1000.0, m=4, with_labels=False)
    assert errors.mean() < 0.2 * baseline.mean()
    assert np.mean(found.y == labels) > 0.9
    assert (found.status == Status.OK).all()


@pytest.mark.parametrize("with_labels", [True, False])
def test_strong_noise_leaves_what_was_known_before(with_labels):
    errors, baseline, found, _ = attacked(1.0, with_labels=with_labels)
    # The mean of the class, or without a label of all digits, which is 1.5 times as far; chance is good for a tenth.
    expected = baseline.mean() * (1 if with_labels else 1.5)
    assert 0.9 * expected < errors.mean() < 1.1 * expected
    np.testing.assert_allclose(found.residual_norm, 1, atol=0.2)


def test_an_unknown_order_is_noise():
    """At a small rate the order hardly matters: its effect is of second order in the rate, the target's of first."""
    training = Training(epochs=10, batch_size=34, learning_rate=0.003)
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    x, y = (x[order] / 16).astype(np.float32), y[order]
    known_x, known_y, targets_x, targets_y = x[:N_KNOWN], y[:N_KNOWN], x[-6:], y[-6:]
    init = jax.tree.map(np.asarray, training.model.init(jax.random.key(1), 64))
    orders = jax.vmap(lambda key: training.batches(key, N_KNOWN + 1))(jax.random.split(jax.random.key(9), 6))
    params = train_many(
        training, known_x, known_y, targets_x, targets_y, init=init, batches=np.asarray(orders), own_batches=True
    )
    found = reconstruct_model(
        training,
        params,
        known_x,
        known_y,
        init=init,
        is_order_known=False,
        target_y=targets_y,
        public=(x[N_KNOWN:1200], y[N_KNOWN:1200]),
    )
    means = np.array([x[N_KNOWN:1200][y[N_KNOWN:1200] == c].mean(axis=0) for c in range(10)])
    errors, baseline = np.mean((found.x - targets_x) ** 2, axis=1), np.mean((means[targets_y] - targets_x) ** 2, axis=1)
    assert errors.mean() < 0.5 * baseline.mean()
    assert (found.status == Status.OK).all()
    with pytest.raises(ValueError, match="is_order_known must be True"):
        reconstruct_model(TRAINING, params, known_x, known_y, init=init, is_order_known=False)


def test_spread_whitens():
    """Against draws of a Gaussian whose covariance is known."""
    rng = np.random.default_rng(0)
    p, q, n = 300, 5, 4000
    directions = np.linalg.qr(rng.normal(size=(p, q)))[0].T
    mixing = np.eye(q) + 0.3 * rng.normal(size=(q, q))
    draws = 0.1 * rng.normal(size=(n, p))
    draws += -(draws @ directions.T) @ directions + rng.normal(size=(n, q)) @ mixing @ directions
    spread = Spread.fit(draws[:2000], directions)
    white = spread(draws[2000:])
    # 2,000 draws give each entry of a covariance to 1 / sqrt(2000) = 0.022; five times that, for 15 entries.
    np.testing.assert_allclose(np.cov((white @ spread.basis.T).T), np.eye(q), atol=0.11)
    outside = white - (white @ spread.basis.T) @ spread.basis
    assert outside.var() * p / (p - q) == pytest.approx(1, abs=0.01)
