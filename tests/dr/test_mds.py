"""SMACOF against scikit-learn: the same iterates from the same start, on both paths."""

import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.datasets import load_digits
from sklearn.manifold import smacof as reference_smacof

from drjax.attacks.shadow import shadow_embeddings
from drjax.core.types import Status
from drjax.data import load
from drjax.dr import MDS
from drjax.dr.mds.cpu import smacof_batch
from drjax.dr.mds.smacof import smacof

DIGITS = load_digits().data / 16
KEY = jax.random.key(0)


def reference(x, start, **options):
    """Coordinates, raw stress and iterations of scikit-learn."""
    return reference_smacof(
        cdist(x, x),
        n_components=start.shape[1],
        init=start,
        n_init=1,
        return_n_iter=True,
        normalized_stress=False,
        **options,
    )


def on_cpu(x, starts, max_iter=300, eps=1e-6):
    distances = cdist(x, x)
    return smacof_batch(distances[1:, 1:], distances[:1, 1:], starts[None], max_iter, eps)


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("n", [3, 10, 60])
def test_both_paths_follow_scikit_learn_in_float64(n, k):
    x, start = DIGITS[:n], np.random.default_rng(n).random((n, k))
    expected, stress, n_iter = reference(x, start.copy())
    with jax.enable_x64(True):
        compiled = jax.jit(smacof)(cdist(x, x), start)
    cpu = on_cpu(x, start[None])
    for coords, found, count in ((compiled[0], compiled[1], compiled[2]), (cpu[0][0], cpu[1][0], cpu[2][0])):
        assert int(count) == n_iter
        # Rounding of 1e-16 grows along up to 300 iterations; the stated limit is 1e-8.
        np.testing.assert_allclose(coords, expected, atol=1e-10)
        # A perfect fit leaves the rounding of sums of squares, which are of order n^2.
        np.testing.assert_allclose(found, stress, rtol=1e-9, atol=1e-14 * n**2)


@pytest.mark.skipif("DRJAX_DATA" not in os.environ, reason="needs the files of MNIST; set DRJAX_DATA to their folder")
@pytest.mark.parametrize("n", [10, 500])
def test_shadows_of_mnist_equal_scikit_learn_from_the_same_start(n):
    x = load("mnist").x[:n].astype(np.float64)
    with jax.enable_x64(True):
        method = MDS()
        start = np.asarray(method.prepare(x[1:], shared_key=KEY).starts[0])
        out = method.insert_batch(KEY[None], method.prepare(x[1:], shared_key=KEY), jnp.asarray(x[:1]))
        single = shadow_embeddings(KEY, method, x[1:].astype(np.float32), x[:1].astype(np.float32), randomness="shared")
    expected, stress, n_iter = reference(x, start)
    assert int(out.n_iter[0]) == n_iter
    np.testing.assert_allclose(out.coords[0], expected, atol=1e-8)  # the limit that was asked for
    assert float(out.objective[0]) == pytest.approx(stress, rel=1e-9)
    # float32 from its own start meets another local minimum: only the size of the stress can be compared.
    assert float(single.objective[0]) < 1.5 * stress


@pytest.mark.parametrize("n", [10, 100, 400])
def test_float32_ends_with_the_stress_of_float64(n):
    x = DIGITS[:n]
    starts = np.random.default_rng(1).random((8, 1, n, 2))
    distances = cdist(x, x)
    rows = np.repeat(distances[:1, 1:], 8, axis=0)
    _, exact, _, _ = smacof_batch(distances[1:, 1:], rows, starts, 300, 1e-6)
    _, single, _, _ = smacof_batch(distances[1:, 1:], rows, starts.astype(np.float32), 300, 1e-6)
    np.testing.assert_allclose(single, exact, rtol=0.005)


def test_the_best_of_several_starts_is_kept():
    x = DIGITS[:20]
    starts = np.random.default_rng(2).random((6, 20, 2))
    expected = [reference(x, start.copy())[1] for start in starts]
    assert np.ptp(expected) > 1e-3
    coords, stress, _, _ = on_cpu(x, starts)
    assert stress[0] == pytest.approx(min(expected), rel=1e-9)
    with jax.enable_x64(True):
        method = MDS(n_init=6)
        assert float(method.objective(coords[0], x)) == pytest.approx(min(expected), rel=1e-9)


def test_each_lane_stops_on_its_own_and_alike_in_any_company():
    x = DIGITS[:200].astype(np.float32)
    many = shadow_embeddings(KEY, MDS(), x[:15], x[100:140])
    assert len(np.unique(many.n_iter)) > 5
    few = shadow_embeddings(KEY, MDS(), x[:15], x[100:140], batch_size=7)
    np.testing.assert_array_equal(many.coords, few.coords)
    assert ((many.n_iter < 300) == (many.status == 0)).all()


def test_a_classical_start_is_deterministic_and_near_the_end():
    x = DIGITS[:40]
    method = MDS(init="classical")
    with jax.enable_x64(True):
        fit_transform = jax.jit(method.fit_transform)
        first, second = (fit_transform(jax.random.key(i), x) for i in (0, 1))
        random = jax.jit(MDS().fit_transform)(KEY, x)
    np.testing.assert_array_equal(first.coords, second.coords)
    assert method.deterministic
    assert int(first.n_iter) < int(random.n_iter)


def test_stress_1_is_scikit_learns_normalised_stress():
    x, start = DIGITS[:30], np.random.default_rng(3).random((30, 2))
    _, stress = reference_smacof(cdist(x, x), init=start.copy(), n_init=1, normalized_stress=True)
    coords, raw, _, _ = on_cpu(x, start[None])
    with jax.enable_x64(True):
        method = MDS()
        out = jax.jit(method.fit_transform)(KEY, x)
    assert float(out.info.stress_1) == pytest.approx(
        np.sqrt(float(out.objective) / (cdist(out.coords, out.coords) ** 2).sum() * 2)
    )
    assert np.sqrt(raw[0] / ((cdist(coords[0], coords[0]) ** 2).sum() / 2)) == pytest.approx(stress, rel=1e-9)


def test_gradient_of_the_stress_with_respect_to_the_target_equals_finite_differences():
    x = DIGITS[:12]
    coords = np.random.default_rng(4).random((12, 2))
    with jax.enable_x64(True):
        step = 1e-5

        @jax.jit
        def slope(target):
            return jax.grad(MDS().objective)(jnp.asarray(coords), jnp.concatenate([target[None], x[1:]]))

        jacobian = jax.jit(jax.jacrev(slope))(jnp.asarray(x[0]))
        for j in (10, 20, 43):
            change = np.zeros(64)
            change[j] = step
            numeric = (slope(jnp.asarray(x[0] + change)) - slope(jnp.asarray(x[0] - change))) / (2 * step)
            np.testing.assert_allclose(jacobian[..., j], numeric, atol=1e-7)  # central differences: eps / step


def on_both_paths(data):
    fitted = jax.jit(MDS().fit_transform)(KEY, data)
    batch = jax.jit(MDS().insert_batch)(KEY[None], MDS().prepare(data[1:]), jnp.asarray(data[:1]))
    return fitted, jax.tree.map(lambda leaf: leaf[0], batch)


@pytest.mark.parametrize("rows", [[0, 1, 2, 3, 0, 1, 2, 3], [0, 1]], ids=["duplicates", "two records"])
def test_duplicates_and_two_records_have_finite_coordinates(rows):
    for out in on_both_paths(DIGITS[rows].astype(np.float32)):
        assert np.isfinite(out.coords).all()
        assert int(out.status) & Status.excluded() == 0
        assert float(out.info.stress_1) < 0.5


def test_equal_records_are_degenerate():
    for out in on_both_paths(np.repeat(DIGITS[:1], 5, axis=0).astype(np.float32)):
        assert np.isfinite(out.coords).all()
        assert int(out.status) & Status.DEGENERATE


def test_a_record_at_1e30_overflows_float32_and_not_float64():
    data = DIGITS[:9].copy()
    data[0] = 1e30
    for out in on_both_paths(data.astype(np.float32)):
        assert int(out.status) & Status.NON_FINITE
    with jax.enable_x64(True):
        for out in on_both_paths(data):
            assert np.isfinite(out.coords).all()
            assert int(out.status) & Status.NON_FINITE == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"init": "pca"}, "init must be one of"),
        ({"n_init": 0}, "n_init must be an integer >= 1"),
        ({"max_iter": 0}, "max_iter must be an integer >= 1"),
        ({"eps": -1e-3}, "eps must be >= 0"),
        ({"eps": float("nan")}, "eps must be >= 0"),
        ({"init": "classical", "n_init": 2}, "n_init must be 1"),
    ],
)
def test_hyperparameters_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        MDS(**options)


def test_one_record_alone_is_refused():
    with pytest.raises(ValueError, match="number of rows of x must be an integer >= 2"):
        MDS().fit_transform(KEY, np.ones((1, 3)))
