"""Isomap of records that move with the target: graph, paths and slopes against SciPy, releases by scikit-learn."""

import jax
import numpy as np
import pytest
import scipy.sparse
from sklearn import datasets, manifold, neighbors, preprocessing

from drjax import dr
from drjax.attacks.attack import EmbeddingThreat
from drjax.attacks.reconstruction import geodesic_releases as releases
from drjax.attacks.reconstruction import moving_geodesics as attack
from drjax.attacks.reconstruction.moving_equations import Equations, Linearised, Whitened, damped_step
from drjax.attacks.reconstruction.moving_graph import edges_of, paths_of, product_derivative
from drjax.attacks.registry import ATTACKS, answer
from drjax.core.types import Status

KEY = jax.random.key(0)
N = 40
SCALED = dr.Pipeline(before=(dr.Standardise(),), method=dr.Isomap())


def table():
    x = datasets.load_wine().data[:, :6]
    return x[np.random.default_rng(5).permutation(len(x))]


def released(scaler, known, targets):
    def one(target):
        rows = np.vstack([target[None], known])
        return manifold.Isomap().fit_transform(rows if scaler is None else scaler.fit_transform(rows))

    return np.stack([one(target) for target in targets])


def threat_of(method, known, coords, **more):
    return EmbeddingThreat(method=method, known=known, coords=coords, shadows=None, alike=False, **more)


def ratios(found, targets, known):
    spread = known.std(axis=0)
    error, mean = (found.x - targets) / spread, (known.mean(axis=0) - targets) / spread
    return (error**2).mean(axis=1) / (mean**2).mean(axis=1)


def sparse(edges, weights, n):
    return scipy.sparse.csr_array((weights, (edges[:, 0], edges[:, 1])), shape=(n, n))


def test_edges_are_those_of_the_peer_and_components_are_joined_by_their_closest_pair():
    x = np.random.default_rng(0).normal(size=(50, 4))
    x[25:] += 30
    between = ((x[:, None] - x) ** 2).sum(axis=2)
    edges = edges_of(between, 4)
    peer = neighbors.kneighbors_graph(x, 4).toarray()
    expected = np.triu(np.maximum(peer, peer.T)).astype(bool)
    found = np.zeros((50, 50), bool)
    found[edges[:, 0], edges[:, 1]] = True
    added = np.argwhere(found & ~expected)
    assert not (expected & ~found).any()
    across = between[:25, 25:]
    i, j = np.unravel_index(across.argmin(), across.shape)
    np.testing.assert_array_equal(added, [[i, j + 25]])


def test_of_equal_neighbours_the_lowest_index_is_listed():
    between = np.array([[0.0, 1, 1, 1], [1, 0, 2, 2], [1, 2, 0, 2], [1, 2, 2, 0]])
    np.testing.assert_array_equal(edges_of(between, 1), [[0, 1], [0, 2], [0, 3]])


def test_paths_and_their_products_slope_as_the_peers_paths_do():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(40, 3))
    edges = edges_of(((x[:, None] - x) ** 2).sum(axis=2), 3)
    lengths = rng.uniform(0.5, 2, len(edges))

    def peer(lengths):
        return scipy.sparse.csgraph.dijkstra(sparse(edges, lengths, 40), directed=False)

    paths = paths_of(edges, lengths, 40)
    np.testing.assert_allclose(paths, peer(lengths), rtol=1e-13)
    vectors = rng.normal(size=(40, 2))
    slopes = product_derivative(edges, lengths, paths, vectors)
    for e in rng.choice(len(edges), 10, replace=False):
        step = np.zeros(len(edges))
        step[e] = 1e-6
        above, below = (-0.5 * peer(lengths + sign * step) ** 2 @ vectors for sign in (1, -1))
        np.testing.assert_allclose(slopes[:, :, e], (above - below) / 2e-6, atol=1e-6)


def test_equal_records_make_no_circle_of_paths():
    edges = np.array([[0, 1], [0, 2], [1, 2], [2, 3]])
    lengths = np.array([0.0, 0.0, 0.0, 1.0])
    paths = paths_of(edges, lengths, 4)
    slopes = product_derivative(edges, lengths, paths, np.ones((4, 1)))
    assert np.isfinite(slopes).all()
    assert slopes[3, 0, 3] == -3  # three paths of length 1 end at the last point


STEPS = (
    ((dr.Standardise(),), "euclidean"),
    ((dr.MinMax(),), "cosine"),
    ((dr.Standardise(),), "manhattan"),
    ((dr.Standardise(), dr.FirstPCA(n_components=4)), "euclidean"),
)


@pytest.mark.parametrize(("before", "metric"), STEPS, ids=["scaler", "cosine", "manhattan", "first components"])
def test_only_the_true_record_leaves_nothing_and_slopes_are_those_of_differences(before, metric):
    x = table()
    known, target, other = x[: N - 1], x[N], x[N + 1]
    method = dr.Pipeline(before=before, method=dr.Isomap(metric=metric))
    with jax.enable_x64(True):
        coords = np.asarray(jax.jit(method.fit_transform)(KEY, np.vstack([target[None], known])).coords)
    equations = Equations(method, known, releases.eigenpairs(releases.centred(coords[None])[0], 0.0))
    assert np.linalg.norm(equations.residual(target)) < 1e-12
    assert np.linalg.norm(equations.residual(other)) > 1e-3
    # Not at a record: manhattan distances bend where features are equal.
    between = target + 0.3137 * (other - target)
    left, slope = equations.linearised(between)
    np.testing.assert_array_equal(left, equations.residual(between))
    for feature in range(len(target)):
        step = np.zeros(len(target))
        step[feature] = 1e-6 * known[:, feature].std()
        above, below = equations.residual(between + step), equations.residual(between - step)
        expected = (above - below) / (2 * step[feature])
        np.testing.assert_allclose(slope[:, feature], expected, atol=1e-6 * np.abs(slope).max())


def test_a_published_map_of_standardised_records_gives_the_records_and_says_which():
    x = table()
    known, targets = x[: N - 1], x[N : N + 6]
    coords = released(preprocessing.StandardScaler(), known, targets)
    found = answer(ATTACKS["embedding"]["moving-geodesics"], KEY, threat_of(SCALED, known, coords))
    error, is_ok = ratios(found, targets, known), found.status == Status.OK
    assert is_ok.sum() >= 3  # here 5
    assert error[is_ok].max() < 1e-12
    is_guessed = found.status == Status.NOT_CONVERGED
    np.testing.assert_allclose(found.x[is_guessed], np.broadcast_to(known.mean(axis=0), targets.shape)[is_guessed])
    assert (is_ok | is_guessed | (found.status == Status.UNCERTIFIED)).all()
    assert found.facts == {"n_certified": is_ok.sum()}


def test_a_map_that_was_multiplied_afterwards_gives_the_record():
    x = table()
    known, targets = x[: N - 1], x[N + 1 : N + 2]
    coords = 1e3 * released(preprocessing.StandardScaler(), known, targets)
    method = dr.Pipeline(before=SCALED.before, method=SCALED.method, after=(dr.Rescale(factor=1e3),))
    found = answer(ATTACKS["embedding"]["moving-geodesics"], KEY, threat_of(method, known, coords))
    assert found.status[0] == Status.OK
    assert ratios(found, targets, known)[0] < 1e-12


def test_a_map_of_three_decimals_says_how_far_off_the_record_is():
    x = table()
    known, targets = x[: N - 1], x[N : N + 4]
    coords = np.round(released(preprocessing.StandardScaler(), known, targets), 3)
    found = answer(ATTACKS["embedding"]["moving-geodesics"], KEY, threat_of(SCALED, known, coords, decimals=3))
    error = np.abs(found.x - targets)
    assert (error < 3 * np.sqrt(found.feature_mse)).mean() > 0.9
    is_answer = found.status != Status.NOT_CONVERGED
    assert is_answer.any()
    assert ratios(found, targets, known)[is_answer].max() < 1


def test_a_map_of_another_pipeline_is_refused_where_that_of_its_own_is_certified():
    x = table()
    known, targets = x[: N - 1], x[N : N + 1]
    prior = attack.GaussianPrior.fit(known)
    residuals = {}
    for scaler in (preprocessing.StandardScaler(), None, preprocessing.MinMaxScaler()):
        found = attack.recover(0, SCALED, known, released(scaler, known, targets), prior)
        residuals[type(scaler).__name__] = found.residual[0]
        assert found.is_certified[0] == (type(scaler) is preprocessing.StandardScaler)
    assert residuals["StandardScaler"] < 1e-9
    assert min(residuals["NoneType"], residuals["MinMaxScaler"]) > 1e-3


def test_records_that_are_all_alike_leave_nothing_to_search_for():
    known = np.ones((9, 3))
    coords = np.random.default_rng(0).normal(size=(1, 10, 2))
    found = attack.recover(0, SCALED, known, coords, attack.GaussianPrior.fit(known))
    assert not found.is_certified[0]
    assert np.isnan(found.x).all()


def test_releases_that_are_not_finite_are_left_out():
    x = table()
    known = x[: N - 1]
    coords = released(preprocessing.StandardScaler(), known, x[N : N + 1])
    coords[0, 3, 1] = np.nan
    found = answer(ATTACKS["embedding"]["moving-geodesics"], KEY, threat_of(SCALED, known, coords))
    assert found.status[0] == Status.NON_FINITE
    with pytest.raises(ValueError, match="coords must be numeric of shape"):
        attack.recover(0, SCALED, known, coords[:, 1:], attack.GaussianPrior.fit(known))


def test_each_pipeline_with_isomap_has_one_attack_on_its_geodesics():
    alone = dr.Pipeline(before=(dr.Log(),), method=dr.Isomap())
    moving, behind = (ATTACKS["embedding"][name] for name in ("moving-geodesics", "geodesics-behind-steps"))
    assert moving.suits(SCALED, seed_known=False) is None
    assert behind.suits(SCALED, seed_known=False) is not None
    assert moving.suits(alone, seed_known=False) is not None
    assert behind.suits(alone, seed_known=False) is None
    assert moving.suits(dr.Isomap(), seed_known=False) is not None


def test_directions_that_the_equations_hardly_show_leave_a_covariance_that_can_be_drawn_from():
    rng = np.random.default_rng(0)
    left, right = (np.linalg.qr(rng.normal(size=(n, 20)))[0] for n in (80, 20))
    slope = left @ np.diag(np.logspace(0, -14, 20)) @ right.T
    prior = Whitened(np.zeros(20), np.eye(20), np.eye(20), np.zeros(20, bool))
    found = Linearised.of(slope, prior, 1e-9)
    expected = right @ np.diag(1 / (1 + (np.logspace(0, -14, 20) / 1e-9) ** 2)) @ right.T
    np.testing.assert_allclose(found.covariance, expected, atol=1e-3)
    assert np.linalg.eigvalsh(found.covariance).min() > -1e-12
    # Equations that show one direction alone, with next to no noise: a step is finite.
    normal = 1e28 * np.ones((20, 20)) + np.eye(20)
    assert np.isfinite(damped_step(normal, np.ones(20), 0.0)).all()
