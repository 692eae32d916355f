"""Geodesics from Isomap releases: scikit-learn's releases against scikit-learn's own shortest paths."""

import dataclasses

import jax
import numpy as np
import pytest
from scipy.sparse.csgraph import shortest_path
from sklearn.datasets import load_digits
from sklearn.kernel_ridge import KernelRidge
from sklearn.manifold import Isomap as Peer
from sklearn.metrics.pairwise import euclidean_distances

from drjax.attacks.reconstruction import geodesic_graph, geodesic_search, geodesics
from drjax.attacks.reconstruction.geodesic_fit import Release
from drjax.attacks.shadow import shadow_embeddings
from drjax.audits import AuditConfig, run
from drjax.core.types import Status
from drjax.dr import Isomap

N_KNOWN, N_TARGETS = 60, 12


def records(n=N_KNOWN + N_TARGETS + 150, d=6, seed=0):
    """Three clouds that overlap."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) + 2 * np.eye(3, d)[rng.integers(3, size=n)]


def peers(known, targets, n_components=2):
    """scikit-learn's releases and geodesics of the target."""
    fits = [Peer(n_neighbors=5, n_components=n_components).fit(np.vstack([x, known])) for x in targets]
    return np.array([fit.embedding_ for fit in fits]), np.array([fit.dist_matrix_[0, 1:] for fit in fits])


@pytest.fixture(scope="module")
def data():
    x = records()
    known, targets, public = np.split(x, [N_KNOWN, N_KNOWN + N_TARGETS])
    coords, paths = peers(known, targets)
    with jax.enable_x64(True):
        public_coords = np.asarray(shadow_embeddings(jax.random.key(0), Isomap(), known, public).coords)
    return known, targets, public, coords, paths, public_coords


@pytest.fixture(scope="module")
def found(data):
    known, _, public, coords, _, public_coords = data
    return geodesics.recover(known, coords, public, public_coords)


def test_what_the_loss_of_a_neighbour_lengthens_does_not_depend_on_the_order_of_records():
    x = records(30)
    there, back = (next(geodesic_graph.known_graphs(some, 4)) for some in (x, x[::-1]))
    assert len(there.effects) > 0
    for i in range(30):
        one, other = (
            np.sort(known.effects[known.effect_start[at] : known.effect_start[at + 1]])
            for known, at in ((there, i), (back, 29 - i))
        )
        np.testing.assert_allclose(one, other, rtol=1e-9)  # sums of paths in another order


def test_certified_paths_are_those_of_scikit_learn(data, found):
    known, targets, _, _, paths, _ = data
    certified = found.is_certified
    assert certified.sum() >= 0.8 * N_TARGETS
    np.testing.assert_allclose(found.paths[certified], paths[certified], rtol=1e-8)
    apart = euclidean_distances(targets, known)
    linked = np.isfinite(found.lengths)
    both = linked & certified[:, None]
    np.testing.assert_allclose(found.lengths[both], apart[both], rtol=1e-8)
    nearest = np.argsort(apart, axis=1)[:, :5]
    assert np.take_along_axis(linked, nearest, axis=1)[certified].all()
    assert (found.residual[certified] < 1e-9).all()


def test_signs_order_and_place_of_the_components_do_not_matter(data, found):
    known, _, public, coords, _, public_coords = data
    turned = coords[:4, :, ::-1] * [-1, 1] + 3
    again = geodesics.recover(known, turned, public, public_coords)
    certified = found.is_certified[:4]
    assert certified.any()
    np.testing.assert_array_equal(again.is_certified, certified)
    np.testing.assert_allclose(again.paths[certified], found.paths[:4][certified], rtol=1e-8)


def test_releases_of_float32_and_of_three_decimals_are_recovered_to_their_precision(data, found):
    known, _, public, coords, paths, public_coords = data
    for rounded, precision, rtol in ((coords.astype(np.float32), None, 1e-4), (np.round(coords, 3), 5e-4, 0.1)):
        got = geodesics.recover(known, rounded, public, public_coords, precision=precision)
        certified = got.is_certified & found.is_certified
        assert certified.sum() >= 0.6 * N_TARGETS
        # Rounding by 1e-7 or 1e-4 of the largest coordinate, amplified by the smallest target coordinate.
        np.testing.assert_allclose(got.paths[certified], paths[certified], rtol=rtol)
        assert np.abs(got.paths - paths)[certified].max() > 1e-9


def test_what_is_no_release_of_the_known_records_is_not_certified(data):
    known, targets, public, coords, _, public_coords = data
    noisy = coords[:3] + 0.3 * np.random.default_rng(1).normal(size=coords[:3].shape)
    wrong = geodesics.recover(known, noisy, public, public_coords, n_starts=2)
    assert not wrong.is_certified.any()
    assert (wrong.residual > 1e-4).all()
    other, _ = peers(known, targets[:1] + 0.05)
    right = geodesics.recover(known, other, targets[:1] + 0.05, other)
    assert right.is_certified.all()


def test_one_component_and_three_suffice(data):
    known, targets, public, *_ = data
    for k in (1, 3):
        coords, paths = peers(known, targets[:4], k)
        with jax.enable_x64(True):
            start_coords = np.asarray(
                shadow_embeddings(jax.random.key(0), Isomap(n_components=k), known, public).coords
            )
        got = geodesics.recover(known, coords, public, start_coords)
        assert got.is_certified.sum() >= 2
        np.testing.assert_allclose(got.paths[got.is_certified], paths[got.is_certified], rtol=1e-7)


def test_parts_of_the_graph_are_joined_as_in_the_release():
    x = records(100, seed=3)
    x[:35] += 40
    x = np.random.default_rng(0).permutation(x)
    known, targets, public = np.split(x, [50, 54])
    with pytest.warns(UserWarning, match="connected components"):
        coords, paths = peers(known, targets)
    with jax.enable_x64(True):
        public_coords = np.asarray(shadow_embeddings(jax.random.key(0), Isomap(), known, public).coords)
    got = geodesics.recover(known, coords, public, public_coords)
    assert got.is_certified.any()
    np.testing.assert_allclose(got.paths[got.is_certified], paths[got.is_certified], rtol=1e-8)


def test_neighbours_at_equal_distance_are_tried_both_ways():
    x = np.random.default_rng(0).permutation(load_digits().data / 16)
    known, targets, public = x[:100], x[[100, 101, 105, 106]], x[140:640]
    between = np.sort(euclidean_distances(known), axis=1)
    n_tied = int(np.isclose(between[:, 5], between[:, 6], rtol=1e-12).sum())
    assert n_tied == 2
    graphs = list(geodesic_graph.known_graphs(known, 5))
    assert len(graphs) == 2**n_tied
    for graph in graphs:
        lists = np.zeros((100, 100))
        np.put_along_axis(lists, graph.neighbors, np.take_along_axis(graph.between, graph.neighbors, axis=1), axis=1)
        np.testing.assert_allclose(np.sort(lists, axis=1)[:, -5:], between[:, 1:6], rtol=1e-6)
        np.testing.assert_allclose(graph.paths, shortest_path(lists, directed=False), rtol=1e-12)
    assert len({graph.neighbors.tobytes() for graph in graphs}) == len(graphs)

    coords, paths = peers(known, targets)
    with jax.enable_x64(True):
        public_coords = np.asarray(shadow_embeddings(jax.random.key(0), Isomap(), known, public).coords)
    got = geodesics.recover(known, coords, public, public_coords)
    # Of these four releases scikit-learn 1.9 takes another neighbour than the one of lowest index in all.
    assert got.is_certified.sum() >= 3
    np.testing.assert_allclose(got.paths[got.is_certified], paths[got.is_certified], rtol=1e-8)


def test_a_known_set_no_larger_than_the_neighbourhood():
    x = records(40, seed=4)
    known, targets, public = np.split(x, [5, 8])
    coords, _ = peers(known, targets)
    with jax.enable_x64(True):
        public_coords = np.asarray(shadow_embeddings(jax.random.key(0), Isomap(), known, public).coords)
    got = geodesics.recover(known, coords, public, public_coords)
    assert got.is_certified.all()
    # Distances of a complete graph have many solutions for few equations: what is found must explain the release.
    assert np.isfinite(got.lengths).all()


def test_the_regression_is_scikit_learns_and_the_distances_hold(data):
    known, targets, public, _, paths, _ = data
    model = geodesics.fit(known, public)
    public_paths = np.array([Peer(n_neighbors=5).fit(np.vstack([x, known])).dist_matrix_[0, 1:] for x in public])

    def features(p):
        return np.exp(-0.5 * (p / model.reach) ** 2)

    peer = KernelRidge(kernel="rbf", alpha=model.regression.choice.penalty, gamma=1 / model.regression.unit)
    peer.fit(features(public_paths), public - public.mean(axis=0))
    expected = peer.predict(features(paths)) + public.mean(axis=0)
    apart = euclidean_distances(targets, known)
    lengths = np.where(apart <= np.sort(apart, axis=1)[:, 4:5], apart, np.inf)
    place = geodesics.Geodesics(lengths, paths, np.zeros(len(paths)), np.zeros(len(paths), bool))
    plain = model.reconstruct(place)
    np.testing.assert_allclose(plain.x, expected, atol=1e-6)
    assert (plain.status == Status.NOT_CONVERGED).all()

    certain = model.reconstruct(place._replace(is_certified=np.ones(len(paths), bool)))
    assert (certain.status == Status.OK).all()
    # Differences of squared distances to the neighbours are linear in the record: 4 equations for 6 numbers.
    for row, length in zip(certain.x, lengths, strict=True):
        near = np.isfinite(length)
        excess = ((row - known[near]) ** 2).sum(axis=1) - length[near] ** 2
        np.testing.assert_allclose(excess - excess.mean(), 0, atol=0.02 * length[near].min() ** 2)
    assert np.mean((certain.x - targets) ** 2) < 0.7 * np.mean((plain.x - targets) ** 2)


def test_beats_the_mean_record_and_the_nearest_public_one_on_digits():
    rng = np.random.default_rng(0)
    x = rng.permutation(load_digits().data / 16)[:700]
    # Digits have few levels and neighbours at equal distance, which scikit-learn takes in no defined order.
    x = x + 1e-3 * rng.uniform(-1, 1, size=x.shape)
    known, targets, public = np.split(x, [100, 115])
    coords, _ = peers(known, targets)
    with jax.enable_x64(True):
        public_coords = np.asarray(shadow_embeddings(jax.random.key(0), Isomap(), known, public).coords)
    got = geodesics.recover(known, coords, public, public_coords, n_starts=4)
    model = geodesics.fit(known, public)
    answer = model.reconstruct(got, bounds=(0, 1))
    x = answer.x
    assert x.min() >= 0
    # What the answers that are not certified rest on, too.
    assert 0.3 < np.mean((x - targets) ** 2) / answer.expected_mse.mean() < 3
    assert got.is_certified.mean() > 0.8
    error = np.mean((x - targets) ** 2)
    assert error < 0.5 * np.mean((public.mean(axis=0) - targets) ** 2)
    assert error < np.mean(euclidean_distances(targets, np.vstack([known, public])).min(axis=1) ** 2) / x.shape[1]


def test_a_release_that_is_not_finite_leaves_the_others_alone(data, found):
    known, _, public, coords, _, public_coords = data
    broken = coords[:2].copy()
    broken[0, 3] = np.nan
    got = geodesics.recover(known, broken, public, public_coords)
    np.testing.assert_array_equal(got.paths[1], found.paths[1])
    assert not got.is_certified[0]
    result = geodesics.fit(known, public).reconstruct(got)
    assert result.status[0] == Status.NON_FINITE
    assert np.isnan(result.x[0]).all()
    assert np.isfinite(result.x[1]).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"coords": np.zeros((2, 5, 2))}, "coords must be numeric of shape"),
        ({"start_coords": np.zeros((3, N_KNOWN + 1, 2))}, "start_coords must have one release"),
        ({"start_coords": np.full((150, N_KNOWN + 1, 2), np.nan)}, "finite release"),
        ({"starts": np.zeros((150, 2))}, "starts"),
        ({"n_neighbors": N_KNOWN + 1}, "n_neighbors must be <="),
        ({"n_starts": 0}, "n_starts must be an integer >= 1"),
        ({"precision": -1.0}, "precision must be >= 0"),
    ],
)
def test_bad_arguments_are_named(data, change, message):
    known, _, public, coords, _, public_coords = data
    arguments = {"known": known, "coords": coords, "starts": public, "start_coords": public_coords}
    with pytest.raises(ValueError, match=message):
        geodesics.recover(**arguments | change)


def test_the_model_refuses_paths_to_other_records(data, found):
    known, _, public, *_ = data
    model = geodesics.fit(known, public)
    with pytest.raises(ValueError, match="60 known records"):
        model.reconstruct(found._replace(paths=found.paths[:, 1:]))
    with pytest.raises(ValueError, match="public must"):
        geodesics.fit(known, public[:1])


def test_the_audit_runs_it_on_isomap_alone(tmp_path):
    config = AuditConfig(
        method="isomap", n_known=50, n_shadow=150, n_validation=2, n_targets=8, attacks=("geodesics", "invariant")
    )
    result = run(config, tmp_path / "out")
    errors = {row.label: row.scores.mse.estimate for row in result.rows}
    assert errors["Geodesics"] < min(errors["Kernel on invariant features"], errors["Mean record"])
    with pytest.raises(ValueError, match="geodesics"):
        run(dataclasses.replace(config, method="pca"), tmp_path / "pca")


def test_lengths_are_fitted_to_the_release_from_afar(data):
    known, targets, _, coords, *_ = data
    graph = next(geodesic_graph.known_graphs(known, 5))
    theta = coords[0] - coords[0].mean(axis=0)
    values = (theta**2).sum(axis=0)
    release = Release(np.ascontiguousarray((theta / np.sqrt(values)).T), values)
    lengths, displaced = geodesic_graph.links(euclidean_distances(targets[:1], known), graph, 5)
    truth = lengths[0].copy()
    lengths *= 1 + 0.05 * np.random.default_rng(0).normal(size=lengths.shape)
    got = np.empty(len(known))
    # Nothing but lengths is wrong, and `enough` is met before any other state is looked at.
    state, checked = geodesic_search.search(graph, release, lengths, displaced, 5, 1e-8 * values[0], 1, got)
    assert max(state, checked) < 1e-8 * values[0]
    np.testing.assert_allclose(got[np.isfinite(truth)], truth[np.isfinite(truth)], rtol=1e-6)
