"""t-SNE against scikit-learn: affinities, gradient and steps to rounding, whole maps by what they are worth."""

import functools
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.distance import cdist, squareform
from sklearn.datasets import load_digits
from sklearn.manifold import TSNE as ReferenceTSNE
from sklearn.manifold import _t_sne as reference

from drjax.attacks.shadow import shadow_embeddings
from drjax.core.types import Status
from drjax.data import load
from drjax.dr import TSNE
from drjax.dr.tsne.affinity import P_FLOOR, joint_probabilities
from drjax.dr.tsne.cpu import Descent, tsne_batch
from drjax.dr.tsne.fits_cpu import principal_start
from drjax.dr.tsne.xla import descend, descend_batch, gradient

DIGITS = load_digits().data
"""Integers up to 16: their squared distances are exact in float32, to which scikit-learn rounds them."""
KEY = jax.random.key(0)
DESCENT = Descent(
    exaggeration=12.0, learning_rate=50.0, max_iter=1000, exploration=250, patience=300, min_grad_norm=1e-7
)

BITS_OF_A_CPU = pytest.mark.skipif(
    jax.default_backend() != "cpu", reason="bits are promised of the compiled loop, which is a CPU's"
)


def start_of(n, k=2, seed=0):
    return 1e-4 * np.random.default_rng(seed).standard_normal((n, k))


def reference_affinities(x, perplexity):
    """(n, n), scikit-learn's."""
    return squareform(reference._joint_probabilities(cdist(x, x, "sqeuclidean"), perplexity, 0))


def reference_steps(p, start, n_steps, **options):
    """Coordinates after the first steps of scikit-learn's descent, under exaggeration."""
    n, k = start.shape
    arguments = [12.0 * squareform(p, checks=False), max(k - 1, 1), n, k]
    options = {"momentum": 0.5, "learning_rate": 50.0, "n_iter_check": 50, **options}
    found = reference._gradient_descent(
        reference._kl_divergence, start.ravel(), it=0, max_iter=n_steps, args=arguments, **options
    )
    return found[0].reshape(n, k)


def on_cpu(x, start, perplexity, **changes):
    squared = cdist(x, x, "sqeuclidean")
    return tsne_batch(squared[1:, 1:], squared[:1, 1:], start[None], perplexity, DESCENT._replace(**changes))


@pytest.mark.parametrize(("n", "perplexity"), [(2, 1.0), (3, 1.5), (10, 3.0), (100, 30.0), (100, 99.5), (300, 30.0)])
def test_affinities_equal_scikit_learn(n, perplexity):
    x = DIGITS[:n]
    expected = reference_affinities(x, perplexity)
    with jax.enable_x64(True):
        found = jax.jit(joint_probabilities, static_argnums=1)(cdist(x, x, "sqeuclidean"), perplexity)
    # Sums of n terms in another order. Neighbours that underflow here are at the floor there.
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=P_FLOOR)


@pytest.mark.parametrize("seed", range(5))
def test_the_search_that_starts_from_the_known_records_takes_the_same_steps(seed):
    # Ten steps on either path; different bandwidths would show in the seventh digit, their tolerance.
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(40, 5)) * 10.0 ** rng.integers(-3, 3)
    x[rng.integers(1, 40, size=3)] = x[0] if seed == 4 else x[1]
    start = start_of(40)
    # A low rate, at which even coinciding points do not part within ten steps.
    slow = DESCENT._replace(max_iter=10, exploration=10, learning_rate=1.0)
    with jax.enable_x64(True):
        p = joint_probabilities(jnp.asarray(cdist(x, x, "sqeuclidean")), 8.0)
        expected = jax.jit(descend, static_argnums=2)(p, jnp.asarray(start), slow)
    found = on_cpu(x, start, 8.0, max_iter=10, exploration=10, learning_rate=1.0)
    np.testing.assert_allclose(found[0][0], expected[0], atol=1e-12)
    assert float(found[1][0]) == pytest.approx(float(expected[1]), rel=1e-12)


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("n", [10, 100])
def test_the_gradient_equals_scikit_learn(n, k):
    p = reference_affinities(DIGITS[:n], 3.0)
    y = np.random.default_rng(n).standard_normal((n, k)) * 10
    freedom = max(k - 1, 1)
    _, expected = reference._kl_divergence(y.ravel(), squareform(p, checks=False), freedom, n, k)
    with jax.enable_x64(True):
        found = np.asarray(jax.jit(gradient)(p, y))
    limit = 1e-12 * np.abs(expected).max()
    np.testing.assert_allclose(found, expected.reshape(n, k), atol=limit)
    # The compiled loop has no gradient to show, but a first step: by the gradient times its first gain, 0.8.
    rate = 1e6
    moved = on_cpu(DIGITS[:n], y, 3.0, exaggeration=1.0, max_iter=1, exploration=1, learning_rate=rate)[0][0]
    np.testing.assert_allclose((y - moved) / (0.8 * rate), expected.reshape(n, k), atol=limit)


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("n", [10, 100])
def test_ten_steps_equal_scikit_learn_on_both_paths(n, k):
    x, start, perplexity = DIGITS[:n], start_of(n, k), 3.0 if n == 10 else 30.0
    expected = reference_steps(reference_affinities(x, perplexity), start.copy(), 10)
    ten = DESCENT._replace(max_iter=10, exploration=10)
    with jax.enable_x64(True):
        p = joint_probabilities(jnp.asarray(cdist(x, x, "sqeuclidean")), perplexity)
        compiled = jax.jit(descend, static_argnums=2)(p, start, ten)[0]
    cpu = on_cpu(x, start, perplexity, max_iter=10, exploration=10)[0][0]
    for found in (compiled, cpu):
        # The asked limit, relative to the map.
        np.testing.assert_allclose(found, expected, atol=1e-12 * np.abs(expected).max())


@pytest.mark.parametrize("max_iter", [50, 60, 250, 260, 300])
def test_phases_and_cap_are_those_of_scikit_learn(max_iter):
    # A low rate keeps rounding small for hundreds of steps, so that switch of phase and cap show. No gradient is too
    # small: it vanishes where exaggeration pulls all points together.
    x, start = DIGITS[:60], start_of(60)
    p = reference_affinities(x, 10.0)
    rate = {"learning_rate": 0.5, "min_grad_norm": -1.0}
    expected = reference_steps(p, start.copy(), min(max_iter, 250), **rate)
    if max_iter > 250:
        arguments = [squareform(p, checks=False), 1, 60, 2]
        expected, _, last = reference._gradient_descent(
            reference._kl_divergence, expected.ravel(), it=250, max_iter=max_iter, args=arguments, momentum=0.8,
            n_iter_check=50, **rate,
        )  # fmt: skip
        expected = expected.reshape(60, 2)
        assert last == max_iter - 1
    options = {"max_iter": max_iter, "exploration": min(max_iter, 250), **rate}
    with jax.enable_x64(True):
        compiled = jax.jit(descend, static_argnums=2)(p, start, DESCENT._replace(**options))
    cpu = on_cpu(x, start, 10.0, **options)
    for coords, n_iter, stopped in ((compiled[0], compiled[3], compiled[4]), (cpu[0][0], cpu[3][0], cpu[4][0])):
        np.testing.assert_allclose(coords, expected, atol=1e-9 * np.abs(expected).max())
        assert int(n_iter) == max_iter
        assert not stopped


@pytest.mark.parametrize(
    ("n", "perplexity", "rate", "rule", "expected_iter"),
    [
        (60, 10.0, 2.0, {"min_grad_norm": 1e-2}, 300),
        (60, 10.0, 2.0, {"min_grad_norm": 1e9}, 100),
        (60, 10.0, 0.5, {}, 1000),
    ],
    ids=["gradient", "at once", "cap"],
)
def test_both_paths_stop_where_scikit_learn_stops(n, perplexity, rate, rule, expected_iter):
    # Low rates keep the descents together to the end. They always make progress: how often runs at the usual rate stop
    # for want of it is compared in the experiment `equivalence`.
    x, start = DIGITS[:n], start_of(n)
    p = reference_affinities(x, perplexity)
    rule = {"min_grad_norm": 1e-9, "patience": 300, **rule}
    options = {"learning_rate": rate, "n_iter_check": 50, "min_grad_norm": rule["min_grad_norm"]}
    arguments = [12.0 * squareform(p, checks=False), 1, n, 2]
    y, _, last = reference._gradient_descent(
        reference._kl_divergence, start.ravel(), it=0, max_iter=250, args=arguments, momentum=0.5,
        n_iter_without_progress=250, **options,
    )  # fmt: skip
    arguments[0] = arguments[0] / 12.0
    y, _, last = reference._gradient_descent(
        reference._kl_divergence, y, it=last + 1, max_iter=1000, args=arguments, momentum=0.8,
        n_iter_without_progress=rule["patience"], **options,
    )  # fmt: skip
    assert last + 1 == expected_iter
    descent = DESCENT._replace(learning_rate=rate, **rule)
    with jax.enable_x64(True):
        compiled = jax.jit(descend, static_argnums=2)(p, start, descent)
    cpu = on_cpu(x, start, perplexity, learning_rate=rate, **rule)
    for coords, n_iter, stopped in ((compiled[0], compiled[3], compiled[4]), (cpu[0][0], cpu[3][0], cpu[4][0])):
        assert int(n_iter) == expected_iter
        assert bool(stopped) == (expected_iter < 1000)
        # Rounding grows by ten orders of magnitude in a thousand steps at this rate.
        np.testing.assert_allclose(np.ravel(coords), y, atol=1e-5)


def test_data_sets_that_stop_leave_the_others_alone():
    # Twelve of them, more than the width at which the loop stops compacting.
    starts = np.stack([start_of(60, seed=seed) for seed in range(12)])
    p = np.stack([reference_affinities(DIGITS[seed * 60 : seed * 60 + 60], 10.0) for seed in range(12)])
    descent = DESCENT._replace(learning_rate=2.0, min_grad_norm=1e-2)
    with jax.enable_x64(True):
        batch = jax.jit(descend_batch, static_argnums=2)(p, starts, descent)
        single = [jax.jit(descend, static_argnums=2)(p[i], starts[i], descent) for i in range(12)]
    assert len(set(np.asarray(batch[3]).tolist())) > 2
    for i in range(12):
        assert int(batch[3][i]) == int(single[i][3])
        np.testing.assert_allclose(batch[0][i], single[i][0], atol=1e-6)


@pytest.mark.usefixtures("all_platforms")
def test_the_whole_descent_lowers_for_tpu():
    # The contract suite lowers ten steps, which have no loop over lanes in them.
    method = TSNE(perplexity=5.0)
    shared = method.prepare(DIGITS[1:20].astype(np.float32))
    keys, targets = jax.random.split(KEY, 12), DIGITS[30:42].astype(np.float32)
    jitted = jax.jit(lambda keys, targets: method.insert_batch(keys, shared, targets).coords)
    assert jax.export.export(jitted, platforms=["tpu"])(keys, targets).platforms == ("tpu",)


WHOLE = {"perplexity": 15.0, "init": "pca", "n_iter_without_progress": 100}


@functools.cache
def whole_maps():
    """24 data sets of 60 records, and the divergence of the map of each."""
    rng = np.random.default_rng(0)
    x = np.stack([DIGITS[rng.choice(len(DIGITS), 60, replace=False)] for _ in range(24)]).astype(np.float32)
    fit_transform = jax.jit(TSNE(**WHOLE).fit_transform)
    return x, np.array([float(fit_transform(KEY, own).objective) for own in x])


def test_maps_of_digits_are_worth_scikit_learns():
    # The experiment `equivalence` has hundreds of data sets, with margins and a classifier.
    x, ours = whole_maps()
    theirs = [ReferenceTSNE(method="exact", random_state=0, **WHOLE).fit(own).kl_divergence_ for own in x]
    difference = ours - theirs
    # Divergences of about 0.15; the mean difference of two chaotic runs is zero within four standard errors.
    assert abs(difference.mean()) < 4 * difference.std() / np.sqrt(len(difference)) + 1e-4


@pytest.mark.skipif("DRJAX_DATA" not in os.environ, reason="needs the files of MNIST; set DRJAX_DATA to their folder")
@pytest.mark.parametrize("n", [100, 500])
def test_first_steps_on_mnist_equal_scikit_learn_given_its_affinities(n):
    x = load("mnist").x[:n].astype(np.float64)
    start = start_of(n)
    p = reference_affinities(x, 30.0)
    expected = reference_steps(p, start.copy(), 10)
    with jax.enable_x64(True):
        found = jax.jit(descend, static_argnums=2)(p, start, DESCENT._replace(max_iter=10, exploration=10))[0]
    np.testing.assert_allclose(found, expected, atol=1e-12 * np.abs(expected).max())


@pytest.mark.parametrize("init", ["pca", "random"])
def test_insert_starts_and_steps_as_fit_transform_does(init):
    # The low rate shows the start and affinities for ten steps without chaos.
    x = DIGITS[:80]
    with jax.enable_x64(True):
        method = TSNE(init=init, perplexity=20.0, max_iter=10)
        fitted = jax.jit(method.fit_transform)(KEY, jnp.asarray(x))
        inserted = jax.jit(method.insert)(KEY, method.prepare(x[1:]), jnp.asarray(x[0]))
    np.testing.assert_allclose(inserted.coords, fitted.coords, atol=1e-12 * float(np.abs(fitted.coords).max()))


@BITS_OF_A_CPU
def test_a_shadow_does_not_depend_on_chunks_mesh_or_company():
    x = (DIGITS / 16).astype(np.float32)
    method = TSNE(perplexity=8.0, init="random", max_iter=300)
    whole = shadow_embeddings(KEY, method, x[1:40], x[40:50])
    parts = shadow_embeddings(KEY, method, x[1:40], x[40:50], batch_size=3)
    mesh = shadow_embeddings(KEY, method, x[1:40], x[40:50], mesh=jax.make_mesh((2,), ("shadows",)))
    # The compiled loop sees one data set at a time: bit for bit.
    np.testing.assert_array_equal(parts.coords, whole.coords)
    np.testing.assert_array_equal(mesh.coords, whole.coords)


@BITS_OF_A_CPU
def test_the_compiled_loop_is_safe_under_vmap_of_everything():
    x = np.stack([DIGITS[i : i + 20] for i in range(3)]).astype(np.float32)
    method = TSNE(perplexity=5.0, max_iter=60)
    mapped = jax.jit(jax.vmap(lambda data: method.fit_transform(KEY, data)))(x)
    for i in range(3):
        alone = jax.jit(lambda data: method.fit_transform(KEY, data))(x[i])
        assert mapped.objective[i] == pytest.approx(float(alone.objective), rel=0.2)
        assert np.isfinite(mapped.coords[i]).all()


class TestManyFits:
    """Whole data sets, side by side."""

    SETS = np.stack([np.random.default_rng(i).choice(300, 50, replace=False) for i in range(4)])
    KEYS = jax.random.split(KEY, 4)

    @pytest.mark.parametrize(("init", "columns", "k"), [("pca", 64, 2), ("pca", 10, 3), ("random", 10, 2)])
    def test_they_start_and_step_as_fit_transform_does(self, init, columns, k):
        # More columns than records, and fewer; the low rate keeps rounding small.
        x = (DIGITS[:300, 10 : 10 + columns] if columns < 64 else np.hstack([DIGITS[:300]] * 2)) / 16
        method = TSNE(n_components=k, init=init, perplexity=12.0, max_iter=20, learning_rate=1.0)
        with jax.enable_x64(True):
            found = jax.jit(method.fit_batch)(self.KEYS, jnp.asarray(x[self.SETS]))
            fit_transform = jax.jit(method.fit_transform)
            alone = [fit_transform(key, x[rows]) for key, rows in zip(self.KEYS, self.SETS, strict=True)]
        for i, one in enumerate(alone):
            limit = float(np.abs(one.coords).max())
            np.testing.assert_allclose(found.coords[i], one.coords, atol=1e-10 * limit)
            assert float(found.objective[i]) == pytest.approx(float(one.objective), rel=1e-10)
            assert int(found.n_iter[i]) == 20

    @pytest.mark.gpu
    @pytest.mark.parametrize("init", ["pca", "random"])
    def test_other_devices_start_and_step_as_fit_transform_does(self, init):
        x = jnp.asarray(DIGITS[:300] / 16, jnp.float32)
        method = TSNE(init=init, perplexity=12.0, max_iter=2, learning_rate=1.0)
        starts = None if init == "pca" else jax.vmap(lambda key: method._draw(key, 50, x.dtype))(self.KEYS)
        found = jax.jit(method._fit_many_in_xla)(x, self.SETS, starts)
        fit_transform = jax.jit(method.fit_transform)
        for i, (key, rows) in enumerate(zip(self.KEYS, self.SETS, strict=True)):
            one = fit_transform(key, x[rows])
            # Variances of the eleventh and the second component are far apart: what differs is rounding.
            np.testing.assert_allclose(found.coords[i], one.coords, atol=2e-4 * float(np.abs(one.coords).max()))

    @BITS_OF_A_CPU
    def test_subsets_of_a_pool_are_their_own_fits_to_the_bit(self, dtype):
        method = TSNE(perplexity=12.0, max_iter=300)
        x = (DIGITS[:300] / 16).astype(dtype)
        pooled = jax.jit(method.fit_subsets)(self.KEYS, method.pool(x), self.SETS)
        own = jax.jit(method.fit_batch)(self.KEYS, x[self.SETS])
        jax.tree.map(np.testing.assert_array_equal, pooled, own)
        assert pooled.coords.dtype == dtype
        single = jax.jit(method.fit_batch)(self.KEYS[2:3], x[self.SETS[2:3]])
        np.testing.assert_array_equal(single.coords[0], own.coords[2])

    @pytest.mark.gpu
    def test_whole_maps_are_worth_those_of_fit_transform(self):
        x, alone = whole_maps()
        many = np.asarray(jax.jit(TSNE(**WHOLE).fit_batch)(jax.random.split(KEY, 24), x).objective)
        difference = many - alone
        assert abs(difference.mean()) < 4 * difference.std() / np.sqrt(24) + 1e-4

    @pytest.mark.gpu
    def test_a_set_that_fails_says_so_and_leaves_the_others_alone(self):
        method = TSNE(perplexity=12.0, max_iter=60)
        x = (DIGITS[self.SETS] / 16).astype(np.float32)
        broken = x.copy()
        broken[1, 3, 4], broken[2] = np.nan, 0.5
        found, whole = jax.jit(method.fit_batch)(self.KEYS, broken), jax.jit(method.fit_batch)(self.KEYS, x)
        expected = [0, Status.NON_FINITE, Status.DEGENERATE, 0]
        np.testing.assert_array_equal(found.status & int(Status.excluded()), expected)
        assert np.isfinite(np.asarray(found.coords)[[0, 3]]).all()
        if jax.default_backend() == "cpu":
            assert int(found.n_iter[1]) == 0
            np.testing.assert_array_equal(np.asarray(found.coords)[[0, 3]], np.asarray(whole.coords)[[0, 3]])

    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    def test_what_centring_leaves_of_equal_records_is_no_variance(self, dtype):
        # Centred coordinates that are one rounding error each, and differ by its rounding.
        left = np.full((1, 12, 2), np.finfo(dtype).eps, dtype)
        left[0, 3, 0] *= 1 + 4 * np.finfo(dtype).eps
        with jax.enable_x64(dtype == "float64"):
            starts, status = TSNE()._scaled(jnp.asarray(left))
        assert int(status[0]) == Status.DEGENERATE
        assert np.abs(starts).max() < 1e-3
        for n in range(3, 40):
            start, is_flat = principal_start(np.full((n, 5), 0.1, dtype), 2)
            assert is_flat
            assert np.abs(start).max() < 1e-3

    def test_a_far_point_does_not_overflow(self):
        x = (DIGITS[self.SETS] / 16).astype(np.float32)
        x[0, 0] = 1e30
        found = jax.jit(TSNE(perplexity=12.0, init="random", max_iter=60).fit_batch)(self.KEYS, x)
        assert np.isfinite(found.coords).all()

    @pytest.mark.usefixtures("all_platforms")
    def test_they_lower_for_tpu(self):
        method = TSNE(perplexity=12.0)
        jitted = jax.jit(lambda keys, x: method.fit_batch(keys, x).coords)
        exported = jax.export.export(jitted, platforms=["tpu"])(self.KEYS, np.zeros((4, 50, 64), np.float32))
        assert exported.platforms == ("tpu",)

    def test_wrong_shapes_are_refused(self):
        with pytest.raises(ValueError, match="perplexity must be < n = 50 records"):
            jax.eval_shape(TSNE(perplexity=60.0).fit_batch, self.KEYS, np.zeros((4, 50, 3)))
        with pytest.raises(ValueError, match=r"n_components must be <= min\(n, d\)"):
            jax.eval_shape(TSNE(n_components=4).fit_batch, self.KEYS, np.zeros((4, 50, 3)))
        with pytest.raises(ValueError, match="x must have shape"):
            jax.eval_shape(TSNE().fit_batch, self.KEYS, np.zeros((4, 50)))


def test_a_far_point_leaves_the_map_of_the_others_finite(dtype):
    x = (DIGITS[:30] / 16).astype(dtype)
    x[0] = 1e30
    method = TSNE(perplexity=5.0, init="random", max_iter=60)
    fitted = jax.jit(method.fit_transform)(KEY, x)
    for out in (fitted, jax.jit(method.insert)(KEY, method.prepare(x[1:]), x[0])):
        assert np.isfinite(out.coords).all()
        assert not int(out.status) & Status.NON_FINITE


class TestDerivatives:
    """In float64 against central differences."""

    @pytest.fixture(autouse=True)
    def _x64(self):
        with jax.enable_x64(True):
            yield

    @staticmethod
    def exact(x, perplexity=6.0):
        """Affinities with the bandwidths searched for to rounding: a smooth function of x."""
        return joint_probabilities(jnp.sum((x[:, None] - x[None]) ** 2, axis=-1), perplexity, tol=0.0)

    def test_of_the_affinities(self):
        x = jnp.asarray(DIGITS[:20] / 16)
        weights = np.random.default_rng(0).normal(size=(20, 20))
        step = jnp.asarray(np.random.default_rng(1).normal(size=x.shape))

        @jax.jit
        def total(t):
            return jnp.sum(weights * self.exact(x + t * step))

        h = 1e-5  # error h^2 of the difference, 1e-16 / h of rounding
        numeric = (total(h) - total(-h)) / (2 * h)
        assert float(jax.jit(jax.grad(total))(0.0)) == pytest.approx(float(numeric), rel=1e-7)
        assert float(jax.jvp(total, (0.0,), (1.0,))[1]) == pytest.approx(float(numeric), rel=1e-7)

    def test_of_the_stationarity_residual_in_the_target(self):
        x = jnp.asarray(DIGITS[:20] / 16)
        method = TSNE(perplexity=6.0)
        y = jnp.asarray(np.random.default_rng(0).normal(size=(20, 2)))
        direction = jnp.asarray(np.random.default_rng(1).normal(size=64))

        @jax.jit
        def residual(target):
            return jax.grad(method.objective)(y, x.at[0].set(target))

        analytic = jax.jvp(residual, (x[0],), (direction,))[1]
        reverse = jnp.einsum("nkd,d->nk", jax.jit(jax.jacrev(residual))(x[0]), direction)
        from drjax.dr.quality import kl_divergence

        @jax.jit
        def smooth(t):
            return jax.grad(lambda y: kl_divergence(self.exact(x.at[0].set(x[0] + t * direction)), y))(y)

        h = 1e-5
        numeric = (smooth(h) - smooth(-h)) / (2 * h)
        np.testing.assert_allclose(reverse, analytic, rtol=1e-9, atol=1e-12)
        # The method's search ends within 1e-5 nats of the bandwidths that the difference is taken at.
        np.testing.assert_allclose(analytic, numeric, atol=1e-3 * float(jnp.abs(numeric).max()))

    def test_of_ten_unrolled_steps_in_the_target(self):
        x = jnp.asarray(DIGITS[:15] / 16)
        start, ten = jnp.asarray(start_of(15)), DESCENT._replace(max_iter=10, exploration=10)
        weights = jnp.asarray(np.random.default_rng(0).normal(size=(15, 2)))
        direction = jnp.asarray(np.random.default_rng(1).normal(size=64))

        @jax.jit
        def total(t):
            return jnp.sum(weights * descend(self.exact(x.at[0].set(x[0] + t * direction), 4.0), start, ten)[0])

        h = 1e-7  # ten steps bend the map a lot
        numeric = (total(h) - total(-h)) / (2 * h)
        assert float(jax.jit(jax.grad(total))(0.0)) == pytest.approx(float(numeric), rel=1e-4)

    def test_of_an_inserted_target_flow_through_start_and_affinities(self):
        x = jnp.asarray(DIGITS[:15] / 16)
        method = TSNE(perplexity=4.0, max_iter=5, learning_rate=1.0)
        shared = method.prepare(np.asarray(x[1:]))

        def inserted(target):
            return jnp.sum(method.insert(KEY, shared, target).coords ** 2)

        def refitted(target):
            return jnp.sum(method.fit_transform(KEY, x.at[0].set(target)).coords ** 2)

        gradient, fitted = (jax.jit(jax.grad(f))(x[0]) for f in (inserted, refitted))
        assert np.abs(gradient).max() > 0
        np.testing.assert_allclose(gradient, fitted, atol=1e-9 * float(jnp.abs(fitted).max()))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"perplexity": 0.5}, "perplexity must be >= 1, got 0.5"),
        ({"perplexity": float("nan")}, "perplexity must be >= 1, got nan"),
        ({"early_exaggeration": 0.0}, "early_exaggeration must be >= 1"),
        ({"learning_rate": 0.0}, "learning_rate must be > 0, got 0.0"),
        ({"learning_rate": "fast"}, "learning_rate must be a number > 0 or 'auto'"),
        ({"max_iter": 0}, "max_iter must be an integer >= 1, got 0"),
        ({"n_iter_without_progress": 0}, "n_iter_without_progress must be an integer >= 1"),
        ({"min_grad_norm": -1.0}, "min_grad_norm must be >= 0"),
        ({"init": "spectral"}, "init must be one of pca, random"),
    ],
)
def test_bad_hyperparameters_are_refused_on_construction(options, message):
    with pytest.raises(ValueError, match=message):
        TSNE(**options)


def test_a_perplexity_of_n_or_more_is_refused_before_any_work():
    x = DIGITS[:30].astype(np.float32)
    with pytest.raises(ValueError, match="perplexity must be < n = 30 records, got 30"):
        jax.eval_shape(TSNE().fit_transform, KEY, x)
    with pytest.raises(ValueError, match="perplexity must be < n = 30 records, got 30"):
        TSNE().prepare(x[1:])
    with pytest.raises(ValueError, match="perplexity must be < n = 30 records, got 30"):
        TSNE().objective(np.zeros((30, 2), np.float32), x)


def test_more_components_than_a_pca_start_has_are_refused():
    with pytest.raises(ValueError, match=r"n_components must be <= min\(n, d\)"):
        jax.eval_shape(TSNE(n_components=4, perplexity=2.0).fit_transform, KEY, jnp.zeros((20, 3)))
    out = TSNE(n_components=4, perplexity=2.0, init="random", max_iter=20).fit_transform(KEY, DIGITS[:20, :3])
    assert out.coords.shape == (20, 4)
