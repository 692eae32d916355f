"""Of which features a map tells, and what an answer says of those that it leaves open; maps by scikit-learn."""

import jax
import numpy as np
import pytest
from sklearn import datasets, manifold

import drjax
from drjax.attacks import shadow_sets
from drjax.attacks.attack import EmbeddingThreat
from drjax.attacks.registry import ATTACKS, answer
from drjax.core.types import Reconstruction, Status

KEY = jax.random.key(0)
N = 60
FIT = manifold.MDS(2, n_init=1, init="random", random_state=0, max_iter=3000, eps=1e-9)


def records():
    x = datasets.load_wine().data
    x = x[np.random.default_rng(5).permutation(len(x))]
    return x - x.mean(axis=0)


def threat_of(known, coords, method=None):
    method = drjax.MDS() if method is None else method
    return EmbeddingThreat(
        method=method,
        known=known,
        coords=coords,
        shadows=lambda: shadow_sets.stand_in_shadows(KEY, method, known),
        alike=False,
    )


@pytest.fixture(scope="module")
def of_units():
    """Wine as it is, where two features of thirteen are next to all of its variance; and each over its deviation."""
    found = {}
    for name, x in (("as they are", records()), ("alike", records() / records().std(axis=0))):
        threat = threat_of(x[: N - 1], FIT.fit_transform(x[np.r_[N, : N - 1]])[None])
        found[name] = x[N], threat, answer(ATTACKS["embedding"]["stationarity"], KEY, threat)
    return found


def test_a_map_of_large_units_says_that_it_leaves_most_features_open(of_units):
    target, threat, found = of_units["as they are"]
    variance = threat.known.var(axis=0)
    share = found.feature_mse[0] / variance
    assert found.status[0] == Status.PARTIAL
    # In squares nearly all is found, and the feature that is most of them.
    assert np.argmin(share) == np.argmax(variance)
    assert share.min() < 0.01
    assert ((found.x[0] - target) ** 2).mean() < 0.01 * variance.mean()
    assert np.median(share) > 0.5


def test_where_features_are_alike_the_same_attack_is_sure_of_them(of_units):
    target, threat, found = of_units["alike"]
    assert found.status[0] == Status.OK
    assert threat.open_share(found)[0] < 0.2
    error = (found.x[0] - target) ** 2 / threat.known.var(axis=0)
    assert error.mean() < 0.2
    assert found.residual_norm[0] ** 2 == pytest.approx(found.feature_mse[0].sum())


def test_what_is_guessed_errs_by_the_variance_of_every_feature():
    x = records()
    threat = threat_of(x[: N - 1], np.zeros((2, N, 2)))
    d = x.shape[1]
    found = Reconstruction(
        np.zeros((2, d)),
        None,
        np.zeros((2, 1, d)),
        np.zeros(2),
        np.array([Status.MISFIT, Status.OK], np.uint32),
        np.array([np.inf, 0.0]),
        feature_mse=np.stack([np.full(d, np.inf), np.zeros(d)]),
    )
    settled = threat.settled(found)
    np.testing.assert_allclose(settled.feature_mse[0], threat.known.var(axis=0))
    np.testing.assert_array_equal(settled.feature_mse[1], 0)
    assert settled.status.tolist() == [Status.MISFIT, Status.OK]


def test_half_open_is_the_limit_and_features_that_never_vary_have_no_part():
    x = np.column_stack([records(), np.ones(len(records()))])
    threat = threat_of(x[: N - 1], np.zeros((2, N, 2)))
    variance = threat.known.var(axis=0)
    errors = np.stack([variance * share for share in (0.49, 0.51)])
    errors[:, -1] = 7.0
    lanes = np.zeros((2, x.shape[1]))
    found = Reconstruction(lanes, None, lanes[:, None], np.zeros(2), np.zeros(2, np.uint32), feature_mse=errors)
    np.testing.assert_allclose(threat.open_share(found), [0.49, 0.51])
    assert threat.settled(found).status.tolist() == [Status.OK, Status.PARTIAL]
    assert (threat.open_share(found._replace(feature_mse=None)) == 0).all()


def test_a_feature_that_is_seldom_on_is_no_more_open_than_all_of_it():
    x = np.random.default_rng(0).normal(size=(N, 5))
    x[:, 3:] = np.eye(N)[:, :2] * 1e-3
    threat = threat_of(x[: N - 1], np.zeros((1, N, 2)))
    errors = np.r_[np.zeros(3), 1.0, 1.0][None]
    one = np.zeros((1, 5))
    found = Reconstruction(one, None, one[:, None], np.zeros(1), np.zeros(1, np.uint32), feature_mse=errors)
    np.testing.assert_allclose(threat.open_share(found), 0.4)
    assert threat.settled(found).status.tolist() == [Status.OK]
