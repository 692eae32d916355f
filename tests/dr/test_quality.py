import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.distance import pdist, squareform
from scipy.stats import rankdata
from sklearn.manifold import MDS, TSNE, smacof
from sklearn.manifold import trustworthiness as sklearn_trustworthiness
from sklearn.manifold._t_sne import _joint_probabilities, _kl_divergence
from sklearn.neighbors import NearestNeighbors

from drjax.attacks.shadow import shadow_embeddings
from drjax.dr import PCA
from drjax.dr import quality as q

RANK_MEASURES = (q.trustworthiness, q.continuity, q.knn_preservation)
MEASURES = (*RANK_MEASURES, q.stress_1)

# Two distances of different points that agree to rounding may change places; each exchange moves a sum of ranks by 1.
EXCHANGES = 4


def data_and_coords(n, d=10, k=2, dtype="float64", seed=0):
    """An embedding between a perfect and an unrelated one, so that every measure is far from its limits."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    return x.astype(dtype), (x[:, :k] + rng.normal(size=(n, k)) / 2).astype(dtype)


def rank_unit(n, n_neighbors):
    return 2 / (n * n_neighbors * (2 * n - 3 * n_neighbors - 1))


def rank_tolerance(n, n_neighbors, dtype):
    # In float64 no distances of these seeds are that close; sums of integers are exact but for the last division.
    exchanges = EXCHANGES if dtype == "float32" else 0
    return exchanges * rank_unit(n, n_neighbors) + 8 * np.finfo(dtype).eps


def ordered_neighbors(distances):
    """Every record's others, nearest first and by index at equal distance: the definition, by sorting tuples."""
    n = len(distances)
    return [sorted((j for j in range(n) if j != i), key=lambda j: (distances[i, j], j)) for i in range(n)]


def literal(x, coords, n_neighbors):
    """Trustworthiness, continuity and neighbours kept, straight from their definitions."""
    orders = [ordered_neighbors(squareform(pdist(np.asarray(a, np.float64)))) for a in (x, coords)]
    n = len(x)

    def score(near, other):
        pairs = [(i, j) for i in range(n) for j in near[i][:n_neighbors]]
        return 1 - rank_unit(n, n_neighbors) * sum(max(0, other[i].index(j) + 1 - n_neighbors) for i, j in pairs)

    kept = np.mean([len({*a[:n_neighbors]} & {*b[:n_neighbors]}) / n_neighbors for a, b in zip(*orders, strict=True)])
    return score(orders[1], orders[0]), score(orders[0], orders[1]), kept


def kruskal(x, coords):
    delta, embedded = (pdist(np.asarray(a, np.float64)) for a in (x, coords))
    return np.sqrt(np.sum((embedded - delta) ** 2) / np.sum(embedded**2))


def rotated(x, seed=3):
    return x @ np.linalg.qr(np.random.default_rng(seed).normal(size=(x.shape[1], x.shape[1])))[0]


@pytest.mark.parametrize(
    ("n", "k", "n_neighbors", "dtype"),
    [
        (3, 1, 1, "float64"),
        (11, 2, 5, "float32"),
        (50, 5, 24, "float64"),
        (50, 1, 1, "float32"),
        (200, 2, 5, "float32"),
        (200, 2, 5, "float64"),
    ],
    indirect=["dtype"],
)
def test_trustworthiness_and_continuity_equal_scikit_learn(n, k, n_neighbors, dtype):
    x, coords = data_and_coords(n, k=k, dtype=dtype)
    tolerance = rank_tolerance(n, n_neighbors, dtype)
    found = q.evaluate(x, coords, n_neighbors=n_neighbors)
    expected = sklearn_trustworthiness(x, coords, n_neighbors=n_neighbors)
    assert abs(float(found.trustworthiness) - expected) <= tolerance
    expected = sklearn_trustworthiness(coords, x, n_neighbors=n_neighbors)
    assert abs(float(found.continuity) - expected) <= tolerance


@pytest.mark.parametrize(("n", "n_neighbors"), [(2, 1), (3, 2), (50, 49), (200, 20)])
def test_the_share_of_neighbors_kept_equals_that_of_scikit_learns_neighbors(n, n_neighbors, dtype):
    x, coords = data_and_coords(n, dtype=dtype)
    near = [NearestNeighbors(n_neighbors=n_neighbors).fit(a).kneighbors(return_distance=False) for a in (x, coords)]
    expected = np.mean([len({*a} & {*b}) / n_neighbors for a, b in zip(*near, strict=True)])
    # One neighbour in float32 may be another at the edge of the neighbourhood.
    tolerance = (1 / (n * n_neighbors) if dtype == "float32" else 0) + 8 * np.finfo(dtype).eps
    assert abs(float(q.knn_preservation(x, coords, n_neighbors=n_neighbors)) - expected) <= tolerance


@pytest.mark.parametrize(("n", "k"), [(2, 1), (30, 2), (200, 3)])
def test_stress_1_equals_the_normalized_stress_of_scikit_learn(n, k, dtype):
    x = data_and_coords(n)[0]
    for max_iter in (1, 30):
        coords, expected = smacof(
            squareform(pdist(x)),
            metric=True,
            n_components=k,
            init=data_and_coords(n, k=k, seed=1)[1],
            n_init=1,
            max_iter=max_iter,
            normalized_stress=True,
        )
        # Rounding of the distances over the stress, which is 0.01 or more but for two and three points.
        tolerance = 100 * np.finfo(dtype).eps
        assert abs(float(q.stress_1(x.astype(dtype), coords.astype(dtype))) - expected) < tolerance


def test_stress_1_equals_what_the_estimator_of_scikit_learn_reports():
    x = data_and_coords(40)[0]
    mds = MDS(2, normalized_stress=True, n_init=1, init="random", random_state=0).fit(x)
    with jax.enable_x64(True):
        # Rounding of a sum of 780 squares.
        assert float(q.stress_1(x, mds.embedding_)) == pytest.approx(mds.stress_, rel=1e-12)


@pytest.mark.parametrize(("n", "k"), [(2, 2), (30, 1), (100, 2), (100, 5)])
@pytest.mark.parametrize("scale", [1e-4, 1.0, 100.0])
def test_kl_divergence_equals_the_objective_of_scikit_learn(n, k, scale, dtype):
    x, coords = data_and_coords(n, k=k)
    coords = (scale * coords).astype(dtype)
    p = _joint_probabilities(squareform(pdist(x, "sqeuclidean")).astype(np.float32), min(10.0, n - 1), 0)
    expected, _ = _kl_divergence(coords.astype(np.float64).ravel(), p, max(k - 1, 1), n, k)
    # Weights p sum to 1, so that the error is that of the largest logarithms, some tens of units.
    tolerance = 100 * np.finfo(dtype).eps
    assert abs(float(q.kl_divergence(squareform(p), coords)) - expected) < tolerance


def test_kl_divergence_equals_what_the_estimator_of_scikit_learn_reports():
    x = data_and_coords(60)[0].astype(np.float32)
    tsne = TSNE(2, perplexity=10, method="exact", init="random", random_state=0).fit(x)
    p = squareform(_joint_probabilities(squareform(pdist(x, "sqeuclidean")).astype(np.float32), 10.0, 0))
    with jax.enable_x64(True):
        # scikit-learn reports the value before its last update, which is below 1e-7 of the coordinates.
        assert float(q.kl_divergence(p, tsne.embedding_)) == pytest.approx(tsne.kl_divergence_, rel=1e-4)


def test_kl_divergence_is_zero_where_p_is_the_affinity_of_the_coords(dtype):
    coords = data_and_coords(30, dtype=dtype)[1]
    affinity = 1 / (1 + squareform(pdist(coords.astype(np.float64), "sqeuclidean")))
    np.fill_diagonal(affinity, 0)
    # Rounding of logarithms of about -7.
    assert abs(float(q.kl_divergence(affinity / affinity.sum(), coords))) < 20 * np.finfo(dtype).eps


def test_kl_divergence_reads_no_diagonal_and_floors_the_affinity_of_pairs_out_of_sight(dtype):
    p = np.full((3, 3), 1 / 6)
    near, far = np.array([[0.0, 0], [1, 0], [0, 1]]), np.array([[0.0, 0], [1, 0], [1e15, 0]])
    off = p.copy()
    np.fill_diagonal(off, 0)
    assert float(q.kl_divergence(p, near.astype(dtype))) == float(q.kl_divergence(off, near.astype(dtype)))
    # The two distant pairs, two entries each, take the floor, the near pair all of the affinity.
    expected = np.log(1 / 6) - (4 * np.log(q.Q_FLOOR) + 2 * np.log(1 / 2)) / 6
    assert float(q.kl_divergence(off, far.astype(dtype))) == pytest.approx(expected, rel=1e-6)
    # All affinities underflow before they are normalised: three equal distances are still uniform.
    triangle = 1e30 * np.array([[0, 0], [1, 0], [0.5, np.sqrt(3) / 2]])
    with jax.enable_x64(True):
        assert abs(float(q.kl_divergence(off, triangle))) < 1e-12


@pytest.mark.parametrize("n", [3, 12, 100])
@pytest.mark.parametrize("with_duplicates", [False, True])
def test_data_that_embed_themselves_are_perfect_to_the_bit(n, with_duplicates, dtype):
    x = data_and_coords(n, dtype=dtype)[0]
    if with_duplicates:
        x[1::2] = x[: 2 * (n // 2) : 2]
    k = max(1, (n - 1) // 2)
    assert [float(value) for value in q.evaluate(x, x, n_neighbors=k)] == [1, 1, 1, 0]


def test_every_measure_is_perfect_for_an_isometry_and_the_ranks_for_any_scale(dtype):
    x = data_and_coords(60, d=4, dtype=dtype)[0]
    moved = rotated(x).astype(dtype) + np.asarray(2, dtype)
    tolerance = rank_tolerance(60, 5, dtype)
    for scale in (1, 2**-70, 1e18):  # squares of the last two overflow or vanish in float32
        found = q.evaluate(x, (moved * np.asarray(scale, dtype)), n_neighbors=5)
        assert abs(float(found.trustworthiness) - 1) <= tolerance
        assert abs(float(found.continuity) - 1) <= tolerance
        assert abs(float(found.knn_preservation) - 1) <= 2 / 300  # two neighbours at the edge
        if scale == 1:
            assert float(found.stress_1) < 20 * np.finfo(dtype).eps  # rounding of rotated coordinates
        elif scale > 1:
            assert float(found.stress_1) == pytest.approx(1, rel=1e-6)  # the data are a point beside it
        else:
            assert float(found.stress_1) == pytest.approx(2.0**70, rel=1e-6)


@pytest.mark.parametrize("measure", MEASURES)
def test_scaling_by_powers_of_two_changes_no_bit_and_stress_only_counts_the_ratio(measure, dtype):
    x, coords = data_and_coords(40, dtype=dtype)
    plain = np.asarray(measure(x, coords))
    assert np.asarray(measure(x * np.asarray(2.0**80, dtype), coords * np.asarray(2.0**80, dtype))) == plain
    assert np.asarray(measure(x * np.asarray(2.0**-80, dtype), coords * np.asarray(2.0**-80, dtype))) == plain


@pytest.mark.parametrize("n_neighbors", [1, 4])
def test_a_monotone_map_of_the_line_leaves_ranks_from_its_end_as_they_are(n_neighbors, dtype):
    # All neighbours of record i of 0, 1, 3, 9, 27... are the smaller records, largest first, then the next larger;
    # the squares are exact in float32.
    x = np.concatenate([[0], 3.0 ** np.arange(8)])[:, None].astype(dtype)
    found = q.evaluate(x, x**2, n_neighbors=n_neighbors)
    assert [float(value) for value in found[:3]] == [1, 1, 1]


def test_the_worst_order_scores_no_less_than_zero_and_no_more_than_one(dtype):
    for seed in range(20):
        rng = np.random.default_rng(seed)
        x, coords = rng.normal(size=(15, 1)).astype(dtype), rng.normal(size=(15, 1)).astype(dtype)
        for n_neighbors in (1, 7):
            for value in q.evaluate(x, coords, n_neighbors=n_neighbors)[:3]:
                assert 0 <= float(value) <= 1


def test_measures_equal_their_definitions_with_ties_broken_by_index(dtype):
    for seed in range(10):
        rng = np.random.default_rng(seed)
        # Small integers: distances tie exactly in either dtype, and several records are duplicates.
        x, coords = rng.integers(0, 3, (18, 3)).astype(dtype), rng.integers(0, 4, (18, 2)).astype(dtype)
        for n_neighbors in (1, 8):
            found = q.evaluate(x, coords, n_neighbors=n_neighbors)
            # Rounding of the final scaling of sums of integers.
            np.testing.assert_allclose(found[:3], literal(x, coords, n_neighbors), atol=8 * np.finfo(dtype).eps)
            assert float(found.stress_1) == pytest.approx(kruskal(x, coords), rel=float(100 * np.finfo(dtype).eps))


def test_with_ties_in_x_scikit_learn_and_we_lie_between_the_best_and_the_worst_order(dtype):
    for seed in range(10):
        rng = np.random.default_rng(seed)
        x, coords = rng.integers(0, 3, (30, 3)).astype(dtype), rng.normal(size=(30, 2)).astype(dtype)
        distances = squareform(pdist(x.astype(np.float64)))
        np.fill_diagonal(distances, np.inf)
        near = np.argsort(squareform(pdist(coords.astype(np.float64))) + np.diag(np.full(30, np.inf)), axis=1)[:, :5]
        worst, best = (
            1 - rank_unit(30, 5) * np.maximum(np.take_along_axis(rankdata(distances, m, axis=1), near, 1) - 5, 0).sum()
            for m in ("max", "min")
        )
        slack = 8 * np.finfo(dtype).eps  # rounding of the scaling
        assert worst < best
        for value in (float(q.trustworthiness(x, coords)), sklearn_trustworthiness(x, coords)):
            assert worst - slack <= value <= best + slack


def test_duplicates_whose_order_cannot_matter_score_as_in_scikit_learn(dtype):
    # Five clusters of four copies: the three other copies are the neighbourhood, in whatever order.
    x = np.repeat(data_and_coords(5, dtype=dtype)[0], 4, axis=0)
    coords = np.repeat(data_and_coords(5, seed=1, dtype=dtype)[1], 4, axis=0)
    assert sklearn_trustworthiness(x, coords, n_neighbors=3) == 1
    assert [float(value) for value in q.evaluate(x, coords, n_neighbors=3)[:3]] == [1, 1, 1]


def test_stress_of_an_embedding_in_one_point_is_infinite_unless_the_data_are_one(dtype):
    x = data_and_coords(8, dtype=dtype)[0]
    point = np.ones((8, 2), dtype)
    assert float(q.stress_1(x, point)) == np.inf
    assert float(q.stress_1(point, point)) == 0
    assert float(q.stress_1(point, x[:, :2])) == pytest.approx(1, abs=float(8 * np.finfo(dtype).eps))
    collapsed = q.evaluate(x, point, n_neighbors=3)
    np.testing.assert_allclose(collapsed[:3], literal(x, point, 3), atol=8 * np.finfo(dtype).eps)


def test_close_points_far_from_the_origin_and_from_each_other_keep_their_distances_in_float32():
    rng = np.random.default_rng(0)
    # Pairs 2^-10 apart, the pairs 1 apart, all of it 1000 away from 0: |a|^2 + |b|^2 - 2ab would be all noise.
    x = (1000 + np.repeat(rng.normal(size=(30, 20)), 2, axis=0) + rng.normal(size=(60, 20)) / 2**10).astype(np.float32)
    found = np.asarray(q._between(jnp.asarray(x)))
    exact = squareform(pdist(x.astype(np.float64)))
    # Rounding of a sum of 20 squares of exact differences.
    np.testing.assert_allclose(found, exact, rtol=20 * np.finfo(np.float32).eps)
    coords = x[:, :2] + rng.normal(size=(60, 2)).astype(np.float32)
    expected = sklearn_trustworthiness(exact, coords, n_neighbors=5, metric="precomputed")
    assert abs(float(q.trustworthiness(x, coords)) - expected) <= rank_tolerance(60, 5, "float32")


@pytest.mark.parametrize("measure", MEASURES)
def test_a_measure_is_the_same_alone_jitted_and_in_evaluate(measure, dtype):
    x, coords = data_and_coords(40, dtype=dtype)
    options = {} if measure is q.stress_1 else {"n_neighbors": 7}
    alone = measure(x, coords, **options)
    assert alone.shape == ()
    assert alone.dtype == dtype
    # Rounding: jit may fuse multiplications and additions.
    tolerance = {"rtol": 8 * np.finfo(dtype).eps, "atol": rank_tolerance(40, 7, dtype)}
    jitted = jax.jit(functools.partial(measure, **options))(x, coords)
    np.testing.assert_allclose(jitted, alone, **tolerance)
    together = getattr(q.evaluate(x, coords, n_neighbors=7), measure.__name__)
    np.testing.assert_allclose(together, alone, **tolerance)


def test_vmap_equals_a_loop(dtype):
    pairs = [data_and_coords(30, dtype=dtype, seed=seed) for seed in range(6)]
    x, coords = (np.stack(part) for part in zip(*pairs, strict=True))
    p = np.stack([squareform(pdist(a)) / squareform(pdist(a)).sum() for a in x]).astype(dtype)
    found = jax.vmap(q.evaluate)(x, coords)
    kl = jax.vmap(q.kl_divergence)(p, coords)
    for i in range(6):
        expected = q.evaluate(x[i], coords[i])
        np.testing.assert_allclose([part[i] for part in found], expected, atol=rank_tolerance(30, 5, dtype))
        # Rounding of 900 terms, of another order of summation.
        np.testing.assert_allclose(kl[i], q.kl_divergence(p[i], coords[i]), rtol=100 * np.finfo(dtype).eps)


@pytest.mark.parametrize("batch_size", [None, 1, 4])
def test_the_batch_equals_single_data_sets_whatever_the_chunk(batch_size, dtype):
    rng = np.random.default_rng(0)
    known, targets = rng.normal(size=(24, 6)).astype(dtype), rng.normal(size=(7, 6)).astype(dtype)
    targets[2] = known[5]  # a candidate that is known already: ties with the record's own distances
    coords = rng.normal(size=(7, 25, 2)).astype(dtype)
    found = q.evaluate_batch(known, targets, coords, n_neighbors=4, batch_size=batch_size)
    assert all(isinstance(part, np.ndarray) and part.shape == (7,) and part.dtype == dtype for part in found)
    for i in range(7):
        expected = q.evaluate(np.vstack([targets[i], known]), coords[i], n_neighbors=4)
        np.testing.assert_allclose([part[i] for part in found], expected, atol=rank_tolerance(25, 4, dtype))


def test_the_batch_of_data_sets_with_ties_equals_the_definitions(dtype):
    rng = np.random.default_rng(0)
    known, targets = rng.integers(0, 3, (15, 3)), rng.integers(0, 3, (5, 3))
    coords = rng.integers(0, 4, (5, 16, 2)).astype(dtype)
    found = q.evaluate_batch(known.astype(dtype), targets, coords, n_neighbors=3)
    for i in range(5):
        expected = literal(np.vstack([targets[i], known]), coords[i], 3)
        # Distances of small integers are exact; rounding of the scaling is left.
        np.testing.assert_allclose([part[i] for part in found[:3]], expected, atol=8 * np.finfo(dtype).eps)


def test_shadow_embeddings_of_pca_are_measured_as_scikit_learn_measures_them():
    rng = np.random.default_rng(0)
    known, targets = rng.normal(size=(59, 8)), rng.normal(size=(4, 8))
    with jax.enable_x64(True):
        shadows = shadow_embeddings(jax.random.key(0), PCA(), known, targets)
        found = q.evaluate_batch(known, targets, shadows.coords)
    for i in range(4):
        expected = sklearn_trustworthiness(np.vstack([targets[i], known]), shadows.coords[i])
        assert found.trustworthiness[i] == pytest.approx(expected, abs=rank_tolerance(60, 5, "float64"))


def test_a_target_whose_squared_distance_overflows_has_the_stress_of_float64():
    rng = np.random.default_rng(0)
    known, coords = rng.normal(size=(14, 3)).astype(np.float32), rng.normal(size=(2, 15, 2)).astype(np.float32)
    targets = np.stack([np.full(3, 1e25), np.full(3, -1e25)]).astype(np.float32)
    found = q.evaluate_batch(known, targets, coords, n_neighbors=3).stress_1
    for i, target in enumerate(targets.astype(float)):
        expected = q.stress_1(np.vstack([target, known]) / 1e20, coords[i] / 1e20)
        np.testing.assert_allclose(found[i], expected, rtol=1e-5)


def test_a_lane_that_is_not_finite_is_nan_and_leaves_the_others_alone(dtype):
    rng = np.random.default_rng(0)
    known, targets = rng.normal(size=(14, 6)).astype(dtype), rng.normal(size=(4, 6)).astype(dtype)
    coords = rng.normal(size=(4, 15, 2)).astype(dtype)
    clean = q.evaluate_batch(known, targets, coords)
    coords[1, 3, 0], coords[2, 0, 1] = np.nan, np.inf
    for part, expected in zip(q.evaluate_batch(known, targets, coords), clean, strict=True):
        assert np.isnan(part[1:3]).all()
        assert (part[[0, 3]] == expected[[0, 3]]).all()
    x = np.vstack([targets[0], known])
    for measure in RANK_MEASURES:
        assert np.isnan(measure(x, coords[1], n_neighbors=2))
        assert np.isnan(measure(coords[2], x, n_neighbors=2))
    assert np.isnan(q.stress_1(x, coords[1]))
    assert np.isnan(q.kl_divergence(np.full((15, 15), 1 / 210), coords[2]))


def test_gradients_are_finite_where_points_coincide(dtype):
    x, coords = data_and_coords(10, dtype=dtype)
    coords[1] = coords[0]
    p = np.full((10, 10), 1 / 90, dtype)
    assert np.isfinite(jax.grad(q.stress_1, argnums=1)(x, coords)).all()
    assert (np.asarray(jax.grad(q.stress_1, argnums=1)(x, x)) == 0).all()
    found = jax.grad(q.kl_divergence, argnums=1)(p, coords)
    _, expected = _kl_divergence(coords.astype(np.float64).ravel(), squareform(p, checks=False), 1, 10, 2)
    # Rounding of sums of 10 forces below 1.
    np.testing.assert_allclose(np.ravel(found), expected, atol=20 * np.finfo(dtype).eps)


@pytest.mark.parametrize("given", ["float16", "int32", "bool"])
def test_other_dtypes_are_computed_in_the_working_precision(given):
    x = (data_and_coords(20)[0] * 2).astype(given)
    coords = data_and_coords(20)[1]
    found = q.evaluate(x, coords)
    assert {value.dtype.name for value in found} == {"float32"}
    np.testing.assert_allclose(found, q.evaluate(x.astype(np.float32), coords.astype(np.float32)))


@pytest.mark.parametrize("measure", [q.trustworthiness, q.continuity, q.evaluate])
@pytest.mark.parametrize(("n", "n_neighbors"), [(2, 1), (3, 2), (10, 5), (10, 10)])
def test_half_of_the_records_or_more_are_no_neighborhood(measure, n, n_neighbors):
    x, coords = data_and_coords(n)
    limit = rf"n_neighbors must be < n / 2 = {n / 2}, got {n_neighbors}"
    with pytest.raises(ValueError, match=limit):
        measure(x, coords, n_neighbors=n_neighbors)
    with pytest.raises(ValueError, match=limit):
        jax.jit(jax.vmap(functools.partial(measure, n_neighbors=n_neighbors)))(x[None], coords[None])
    with pytest.raises(ValueError, match="should be less than n_samples / 2"):
        sklearn_trustworthiness(x, coords, n_neighbors=n_neighbors)


@pytest.mark.parametrize("measure", [*RANK_MEASURES, q.evaluate])
@pytest.mark.parametrize("n_neighbors", [0, -1, 1.5, True, None])
def test_a_number_of_neighbors_is_a_positive_integer(measure, n_neighbors):
    with pytest.raises(ValueError, match="n_neighbors must be an integer >= 1"):
        measure(*data_and_coords(10), n_neighbors=n_neighbors)


def test_a_record_has_at_most_all_others_as_neighbors():
    assert float(q.knn_preservation(*data_and_coords(2), n_neighbors=1)) == 1
    with pytest.raises(ValueError, match=r"n_neighbors must be <= n - 1 = 1, got 2"):
        q.knn_preservation(*data_and_coords(2), n_neighbors=2)


@pytest.mark.parametrize("measure", [*MEASURES, q.evaluate])
def test_shapes_that_do_not_match_are_errors_that_name_them(measure):
    x, coords = data_and_coords(10)
    with pytest.raises(ValueError, match="coords must have as many rows as x, 10, got 9"):
        measure(x, coords[:9])
    with pytest.raises(ValueError, match="coords must be a non-empty array"):
        measure(x, coords[:, 0])
    with pytest.raises(ValueError, match="number of rows of x must be an integer >= 2, got 1"):
        measure(x[:1], coords[:1])


def test_shapes_of_p_and_of_a_batch_that_do_not_match_are_errors_that_name_them():
    x, coords = data_and_coords(10)
    with pytest.raises(ValueError, match=r"p must have shape \(10, 10\) to match coords, got \(9, 9\)"):
        q.kl_divergence(np.ones((9, 9)), coords)
    with pytest.raises(ValueError, match="number of rows of coords must be an integer >= 2"):
        q.kl_divergence(np.ones((1, 1)), coords[:1])
    for wrong in (coords, coords[None, 1:], coords[None].repeat(3, 0), coords[None, :, :0]):
        with pytest.raises(ValueError, match=r"coords must have shape \(1, 10, k >= 1\)"):
            q.evaluate_batch(x[1:], x[:1], wrong, n_neighbors=2)
    with pytest.raises(ValueError, match="targets must have 10 columns, got 9"):
        q.evaluate_batch(x[1:], x[:1, 1:], coords[None], n_neighbors=2)
    with pytest.raises(ValueError, match=r"n_neighbors must be < n / 2 = 5.0, got 5"):
        q.evaluate_batch(x[1:], x[:1], coords[None])
    with pytest.raises(ValueError, match="known must be finite"):
        q.evaluate_batch(np.full_like(x[1:], np.nan), x[:1], coords[None], n_neighbors=2)
