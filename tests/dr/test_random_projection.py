import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from sklearn.random_projection import SparseRandomProjection as Reference

from drjax.core.types import Status
from drjax.dr import random_projection
from drjax.dr.random_projection import SparseRandomProjection


def data(n, d, seed=0):
    return np.random.default_rng(seed).random((n, d)).astype(np.float32)


def matrices(method, d, count, seed=0):
    """Projecting the identity returns the matrix itself."""
    keys = jax.random.split(jax.random.key(seed), count)
    return np.asarray(jax.jit(jax.vmap(lambda key: method.fit_transform(key, jnp.eye(d)).coords))(keys))


@pytest.mark.parametrize("density", [None, 0.02, 0.5, 1.0])
@pytest.mark.parametrize("k", [1, 2, 5])
def test_entries_come_from_the_three_values_of_scikit_learn(density, k):
    d = 49
    found = np.unique(np.abs(matrices(SparseRandomProjection(n_components=k, density=density), d, 50)))
    reference = Reference(n_components=k, density=density or "auto", random_state=0, dense_output=True)
    expected = np.unique(np.abs(reference.fit(np.zeros((2, d))).transform(np.eye(d))))
    np.testing.assert_allclose(found, expected, rtol=1e-6)  # one float32 rounding


@pytest.mark.parametrize("density", [0.01, 1 / 28, 0.3, 0.9])
def test_each_entry_is_nonzero_with_the_density_and_has_a_fair_sign(density):
    # Up to 1 / 28 the entries are drawn as gaps, from 0.3 on one by one.
    entries = matrices(SparseRandomProjection(n_components=2, density=density), 100, 2000)
    n_positive = np.count_nonzero(entries > 0)
    # p-values of exact tests on 400,000 entries: a density 5% off would give less than 1e-6 in every case.
    assert stats.binomtest(np.count_nonzero(entries), entries.size, density).pvalue > 1e-3
    assert stats.binomtest(n_positive, np.count_nonzero(entries), 0.5).pvalue > 1e-3
    # The same for every feature, the first and the last included; 100 tests at once.
    p = [stats.binomtest(int(count), 4000, density).pvalue for count in np.count_nonzero(entries, axis=(0, 2))]
    assert min(p) > 1e-3 / 100


@pytest.mark.parametrize("density", [0.06, 0.3])
@pytest.mark.parametrize("axis", [1, 2])
def test_neighbouring_entries_are_independent(density, axis):
    entries = np.sign(matrices(SparseRandomProjection(n_components=2, density=density), 100, 2000))
    first, second = (np.take(entries, range(i, entries.shape[axis], 2), axis).ravel() for i in (0, 1))
    counts = np.array([[np.sum((first == i) & (second == j)) for j in (-1, 0, 1)] for i in (-1, 0, 1)])
    law = np.array([density / 2, 1 - density, density / 2])
    assert stats.chisquare(counts.ravel(), first.size * np.outer(law, law).ravel()).pvalue > 1e-3


@pytest.mark.parametrize(("d", "density"), [(784, 1 / 28), (100, 0.2), (5, 0.01), (10**6, 1e-3), (30, 0.7)])
def test_gap_tables_hold_the_geometric_law(d, density):
    bits, threshold, alias = random_projection._gap_tables(d, density)
    own = np.minimum((threshold.astype(np.float64) + 1) / 2**32, 1)
    law = np.bincount(np.arange(2**bits), own, 2**bits) + np.bincount(alias, 1 - own, 2**bits)
    g = np.arange(min(d, 2**bits))
    np.testing.assert_allclose(law[: len(g)] / 2**bits, density * (1 - density) ** g, atol=2e-9)  # cut at 1e-9
    assert law[len(g) :].sum() / 2**bits == pytest.approx((1 - density) ** len(g), abs=2e-9)


def test_sparse_and_dense_products_agree():
    # Just below and above the share of non-zero entries at which `insert` goes from one to the other.
    known, targets = data(20, 400), data(5, 400, seed=1)
    keys = jax.random.split(jax.random.key(2), 5)
    for density in (0.15, 0.2):
        method = SparseRandomProjection(n_components=3, density=density)
        out = method.insert_batch(keys, method.prepare(known), targets)
        for i in range(5):
            expected = method.fit_transform(keys[i], np.vstack([targets[i : i + 1], known]))
            np.testing.assert_allclose(out.coords[i], expected.coords, atol=1e-4)  # float32 sums of 80 terms
            assert int(out.info.n_nonzero[i]) == int(expected.info.n_nonzero)


def test_number_of_nonzeros_has_the_law_of_scikit_learn():
    d, runs = 64, 1000
    method = SparseRandomProjection(n_components=2)
    keys = jax.random.split(jax.random.key(3), runs)
    ours = jax.jit(jax.vmap(lambda key: method.fit_transform(key, jnp.eye(d)).info.n_nonzero))(keys)
    theirs = [Reference(2, random_state=i).fit(np.zeros((2, d))).components_.nnz for i in range(runs)]
    assert stats.ks_2samp(np.asarray(ours), theirs).pvalue > 1e-3


def test_coordinates_equal_scikit_learn_given_its_matrix():
    x = data(30, 49)
    reference = Reference(n_components=3, random_state=0, dense_output=True)
    expected = reference.fit_transform(x)
    method = SparseRandomProjection(n_components=3)
    key = jax.random.key(0)
    matrix = np.asarray(method.fit_transform(key, np.eye(49, dtype=np.float32)).coords)
    reference.components_ = type(reference.components_)(matrix.T)
    ours = method.fit_transform(key, x).coords
    np.testing.assert_allclose(ours, reference.transform(x), atol=1e-5)  # float32 sums of about 7 terms below 10
    assert ours.shape == expected.shape


def test_an_odd_number_of_entries_leaves_no_entry_undrawn():
    entries = matrices(SparseRandomProjection(n_components=1, density=1.0), 7, 3)
    assert np.all(entries != 0)


def test_random_words_are_not_repeated_between_entries_or_keys():
    entries = matrices(SparseRandomProjection(n_components=2, density=1.0), 64, 8).reshape(8, -1)
    assert np.max(np.abs(np.corrcoef(entries) - np.eye(8))) < 0.5  # 128 fair signs: standard deviation 0.09


def test_projected_squared_distances_are_unbiased():
    x = data(2, 100)
    keys = jax.random.split(jax.random.key(1), 20_000)
    method = SparseRandomProjection(n_components=2)
    y = np.asarray(jax.jit(jax.vmap(lambda key: method.fit_transform(key, x).coords))(keys))
    found = np.sum((y[:, 0] - y[:, 1]) ** 2, axis=1)
    error = stats.sem(found)
    assert abs(found.mean() - np.sum((x[0] - x[1]) ** 2)) < 4 * error


def test_shared_matrix_serves_all_shadows_and_ignores_their_keys():
    known, targets = data(20, 30), data(5, 30, seed=1)
    method = SparseRandomProjection()
    key = jax.random.key(7)
    out = method.insert_batch(jax.random.split(jax.random.key(1), 5), method.prepare(known, shared_key=key), targets)
    assert np.ptp(np.asarray(out.coords[:, 1:]), axis=0).max() == 0
    for i in range(5):
        expected = method.fit_transform(key, np.vstack([targets[i : i + 1], known])).coords
        np.testing.assert_allclose(out.coords[i], expected, atol=1e-5)  # known rows in float64, then rounded


def test_fresh_matrices_differ_between_shadows_and_follow_their_keys():
    known, targets = data(20, 30), data(5, 30, seed=1)
    method = SparseRandomProjection()
    keys = jax.random.split(jax.random.key(1), 5)
    out = np.asarray(method.insert_batch(keys, method.prepare(known), targets).coords)
    again = np.asarray(method.insert_batch(keys[::-1], method.prepare(known), targets[::-1]).coords)[::-1]
    np.testing.assert_allclose(out, again, atol=1e-5)  # GEMMs of another column order
    assert all(np.abs(out[i, 1:] - out[j, 1:]).max() > 0.1 for i in range(5) for j in range(i))


def test_a_shared_matrix_projects_the_known_rows_in_float64():
    # 1e8 + small: a float32 product would lose the small part before the rows' difference is formed.
    method = SparseRandomProjection(n_components=1, density=1.0)
    known = np.array([[1.0, 0.0], [1.0, 2.0**-24]])
    with jax.enable_x64(True):
        shared = method.prepare(known, shared_key=jax.random.key(0))
    difference = np.asarray(shared.known_coords)[1] - np.asarray(shared.known_coords)[0]
    assert abs(difference[0]) == 2.0**-24


def test_more_components_than_features_are_allowed():
    out = SparseRandomProjection(n_components=8).fit_transform(jax.random.key(0), data(4, 3))
    assert out.coords.shape == (4, 8)
    assert int(out.status) == Status.OK


def test_overflow_is_reported_and_not_raised():
    x = np.full((3, 400), 3e38, np.float32)
    out = SparseRandomProjection(density=1.0).fit_transform(jax.random.key(0), x)
    assert int(out.status) == Status.NON_FINITE


@pytest.mark.parametrize("density", [0, -0.1, 1.01, float("nan"), float("inf"), True, "auto"])
def test_density_out_of_range_is_refused(density):
    with pytest.raises(ValueError, match="density"):
        SparseRandomProjection(density=density)


def test_targets_of_another_width_are_refused():
    method = SparseRandomProjection()
    for shared_key in (None, jax.random.key(0)):
        shared = method.prepare(data(5, 6), shared_key=shared_key)
        with pytest.raises(ValueError, match="targets"):
            method.insert(jax.random.key(0), shared, jnp.zeros(7))


def test_known_rows_that_are_not_finite_are_refused():
    with pytest.raises(ValueError, match="known must be finite"):
        SparseRandomProjection().prepare(np.array([[0.0, np.nan]]))


def test_objective_is_nan_because_there_is_none():
    assert np.isnan(SparseRandomProjection().objective(jnp.zeros((3, 2)), jnp.zeros((3, 5))))
