"""DP-GD: clipping against a loop over records, noise against its distribution, accounting against quadrature."""

import functools
import math
import warnings

import chex
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.stats

from drjax.defenses import dp_gd
from drjax.defenses.clipping import clip_factor
from drjax.defenses.dp_gd import (
    DPGD,
    OVERFLOW,
    SENSITIVITY,
    delta_of,
    epsilon_of,
    mu_of,
    noise_multiplier_for,
    poisson_batches,
    release,
)
from drjax.nets.classifier_training import PADDING, Lanes, Training, prepare, run, split_records, train_many
from drjax.nets.classifiers import Classifier

N, D, M, CLASSES = 9, 6, 3, 3
DENSE = Classifier(hidden=(5, 4), n_classes=CLASSES)
CNN = Classifier(image_shape=(4, 5, 2), channels=(3,), hidden=(4,), n_classes=CLASSES)
FLAT = Classifier(hidden=(), n_classes=CLASSES)

ALPHA = 1e-4
"""Level of the tests of distributions; their keys are fixed."""


def private(clip_norm=0.8, noise_multiplier=1.5, neighbouring="zero_out"):
    return DPGD(neighbouring=neighbouring, clip_norm=clip_norm, noise_multiplier=noise_multiplier)


def records(dtype="float64", n=N, d=D, m=M, seed=0):
    rng = np.random.default_rng(seed)
    known, targets = rng.normal(size=(n - 1, d)).astype(dtype), rng.normal(size=(m, d)).astype(dtype)
    known[:, 1] = 0
    return known, rng.integers(0, CLASSES, n - 1), targets, rng.integers(0, CLASSES, m)


def start(model, d=D, dtype="float64"):
    return jax.tree.map(lambda leaf: np.asarray(leaf, dtype), model.init(jax.random.key(7), d))


def zeros(n=N, d=D, m=M):
    """Records of which no gradient of a weight of `FLAT` depends: only noise moves them."""
    return np.zeros((n - 1, d), np.float32), np.arange(n - 1) % CLASSES, np.zeros((m, d), np.float32), np.zeros(m)


@functools.partial(jax.jit, static_argnums=0)
def clipped(model, p, x, y, clip_norm):
    g = jax.grad(lambda q: -jax.nn.log_softmax(model.logits(q, x[None])[0])[y])(p)
    norm = jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(g)))
    return jax.tree.map(lambda leaf: leaf / jnp.maximum(1, norm / clip_norm), g), norm


def loop(training, clip_norm, x, y, params, batches):
    """Clipped gradient descent, plain SGD, one record after the other."""

    norms = []
    for rows in batches:
        total = jax.tree.map(np.zeros_like, params)
        for i in rows[rows != PADDING]:
            g, norm = clipped(training.model, params, x[i], y[i], clip_norm)
            norms.append(norm)
            total = jax.tree.map(np.add, total, g)
        scale = training.learning_rate / (training.batch_size or len(x))
        params = jax.tree.map(lambda p, g: p - scale * g, params, total)  # noqa: B023
    assert min(norms) < clip_norm < max(norms)  # some are clipped and some are not
    return params


POISSON = np.array([[0, 2, 5, 8], [1, 3, PADDING, PADDING], [PADDING] * 4, [0, PADDING, PADDING, PADDING]])


@pytest.mark.parametrize(
    ("model", "batches", "dtype"),
    [
        pytest.param(DENSE, None, "float64", id="dense-full"),
        pytest.param(DENSE, POISSON, "float32", id="dense-poisson"),
        pytest.param(CNN, None, "float32", id="cnn-full"),
        pytest.param(CNN, POISSON, "float64", id="cnn-poisson"),
        pytest.param(FLAT, POISSON, "float64", id="logistic-poisson"),
        pytest.param(FLAT, None, "float32", id="logistic-full"),
    ],
    indirect=["dtype"],
)
def test_clipping_equals_a_loop_over_records(model, batches, dtype):
    d = 40 if model is CNN else D
    clip_norm = 1.2 if model is CNN else 1.5
    size = None if batches is None else 2  # the expected size, not what was drawn
    training = Training(model=model, epochs=3, batch_size=size, learning_rate=0.5, momentum=0.0)
    known_x, known_y, targets_x, targets_y = records(dtype, d=d)
    params = start(model, d, dtype)
    data = known_x, known_y, targets_x, targets_y
    found = train_many(training, *data, init=params, batches=batches, mechanism=private(clip_norm))
    steps = np.tile(np.arange(N), (3, 1)) if batches is None else batches
    for i in range(M):
        x, y = np.concatenate([targets_x[i : i + 1], known_x]), np.append(targets_y[i], known_y)
        expected = loop(training, clip_norm, x, y, params, steps)
        for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            # float32: rounding of parameters of order 1 over three steps.
            np.testing.assert_allclose(a[i], b, rtol=0, atol=2e-6 if dtype == "float32" else 1e-12)


def test_a_bound_that_no_gradient_reaches_changes_nothing():
    training, data, params = Training(model=DENSE, epochs=4), records("float32"), start(DENSE, dtype="float32")
    plain = train_many(training, *data, init=params)
    loose = train_many(training, *data, init=params, mechanism=private(1e30))
    chex.assert_trees_all_close(loose, plain, rtol=0, atol=1e-6)  # another fusion of the same sums


@pytest.mark.parametrize("clip_norm", [1e-30, 0.5, 1e30])
def test_the_factor_is_the_bound_over_the_norm_and_at_most_one(clip_norm, dtype):
    norms = np.array([0, 1e-18, 0.3, 0.5, 0.7, 1e4, 1e18], dtype)
    found = clip_factor(norms * norms, clip_norm)
    expected = np.minimum(1, clip_norm / np.maximum(norms.astype(np.float64), 1e-200))
    assert found.dtype == dtype
    # Rounding, and float32 has nothing below 1e-38.
    rtol, atol = (1e-6, 1e-38) if dtype == "float32" else (1e-14, 0)
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=atol)
    for bad in (np.inf, np.nan):
        for bound in (0.5, 1e30, np.inf):
            assert clip_factor(jnp.asarray(bad, dtype), bound) == 0


BAD = [math.inf, math.nan, 3e38, 1e39]
"""Entries of a record: 1e39 is a number in float64 and infinite in float32; 3e38 is one whose square is."""


def one_step(model, x, y, *, poisson=False, clip_norm=0.5, neighbouring="zero_out", init=None, dtype="float32"):
    """Sums of clipped gradients of one model, (p,), with record 0 as its own."""
    training = Training(model=model, epochs=1, learning_rate=1.0, momentum=0.0, batch_size=4 if poisson else None)
    init = start(model, x.shape[1], dtype) if init is None else init
    batches = np.array([[0, 1, 3, PADDING]]) if poisson else None
    mechanism = private(clip_norm, neighbouring=neighbouring)
    data = x[1:], y[1:], x[:1], y[:1]
    found = train_many(training, *data, init=init, batches=batches, mechanism=mechanism)
    divisor = 4 if poisson else len(x)
    moved = jax.tree.map(lambda a, b: (np.float64(b) - a[0]) * divisor, found, init)
    return np.concatenate([leaf.ravel() for leaf in jax.tree.leaves(moved)])


@pytest.mark.parametrize(
    ("model", "poisson", "value"),
    [
        *(pytest.param(DENSE, True, value, id=f"dense-poisson-{value}") for value in BAD),
        *(pytest.param(CNN, False, value, id=f"cnn-full-{value}") for value in BAD),
        *(pytest.param(FLAT, False, value, id=f"logistic-full-{value}") for value in BAD),
        *(pytest.param(DENSE, False, value, id=f"dense-full-{value}") for value in (math.nan, 3e38)),
        *(pytest.param(CNN, True, value, id=f"cnn-poisson-{value}") for value in (math.inf, 3e38)),
    ],
)
def test_no_record_moves_the_sum_by_more_than_the_bound(model, poisson, value):
    d = 40 if model is CNN else D
    known, known_y, targets, targets_y = records("float64", d=d)
    x, y = np.vstack([targets[:1], known]), np.append(targets_y[0], known_y)
    for i in (0, 1, 3):  # a model's own record; the one that padding stands on; another
        without, entry, whole = x.copy(), x.copy(), x.copy()
        without[i], entry[i, 2], whole[i] = 0, value, value
        others = one_step(model, without, y, poisson=poisson)
        for changed in (entry, whole):
            moved = one_step(model, changed, y, poisson=poisson)
            assert np.isfinite(moved).all()
            # A gradient of zeros is not nothing: zeroed out is what `without` has, at most a bound away from nothing.
            assert np.linalg.norm(moved - others) <= 2 * 0.5 * (1 + 1e-4)  # float32 sums
            if value != 3e38:
                away = one_step(model, changed, np.where(np.arange(N) == i, (y + 1) % CLASSES, y), poisson=poisson)
                np.testing.assert_array_equal(away, moved)  # it counts as 0, whatever its class


def test_a_norm_whose_factors_underflow_is_still_cut():
    # The gradient of a weight is 8e-20 times 1.5e19, longer than the bound; 8e-20 squared is 0 in float32.
    init = ({"w": np.zeros((2, 2), np.float32), "b": np.array([0.0, -43.97], np.float32)},)
    model = Classifier(hidden=(), n_classes=2)
    x, y = np.array([[1.0, 0.0], [0.0, 1.5e19]]), np.array([0, 0])
    with_record = one_step(model, x, y, clip_norm=0.05, init=init)
    without = one_step(model, x * [[1.0], [0.0]], y, clip_norm=0.05, init=init)
    assert np.linalg.norm(with_record - without) <= 0.1 * (1 + 1e-4)  # two records of at most the bound


@pytest.mark.parametrize("bad", [*BAD, "class"])
def test_a_release_refuses_no_record(bad):
    training, params = Training(model=DENSE, epochs=2), start(DENSE, dtype="float32")
    known_x, known_y, targets_x, targets_y = records("float64")
    for i in (0, 4):
        x, y = np.vstack([targets_x[:1], known_x]), np.append(targets_y[0], known_y).astype(float)
        if bad == "class":
            y[i] = CLASSES
        else:
            x[i, 1] = bad
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model = release(training, x, y, private(), init=params)
        chex.assert_tree_all_finite(model.params)


def test_the_factor_has_a_finite_derivative_at_zero_at_the_bound_and_beyond_it():
    with jax.enable_x64(True):
        slope = jax.vmap(jax.grad(clip_factor), (0, None))(jnp.array([0.0, 0.16, 0.25, 1.0]), 0.5)
        np.testing.assert_allclose(slope, [0, 0, 0, -0.25], atol=1e-15)
        of_norm = jax.vmap(jax.grad(clip_factor, 1), (None, 0))(4.0, jnp.array([0.5, 3.0]))
        np.testing.assert_allclose(of_norm, [0.5, 0], atol=1e-15)

        def shortened(v):
            return jnp.sum(v * clip_factor(jnp.sum(v * v), 0.5))

        np.testing.assert_allclose(jax.grad(shortened)(jnp.zeros(3)), np.ones(3))


def noise_of(mechanism, epochs=1, m=M, seed=0, **changes):
    """What noise alone did to the weights (m, CLASSES, D) of `FLAT`, in units of rate / n."""
    training = Training(model=FLAT, epochs=epochs, learning_rate=0.5, momentum=0.0)
    params = start(FLAT, dtype="float32")
    keys = jax.random.split(jax.random.key(seed), m)
    found = train_many(training, *zeros(m=m), init=params, mechanism=mechanism, noise_keys=keys, **changes)
    return (found[0]["w"].astype(np.float64) - params[0]["w"]) * N / 0.5


def assert_normal(sample, scale):
    """Chi-square for the scale, Kolmogorov and Smirnov for the shape."""
    n = sample.size
    p = scipy.stats.chi2(n).cdf(np.sum((sample / scale) ** 2))
    assert ALPHA / 2 < p < 1 - ALPHA / 2
    assert scipy.stats.kstest(sample.ravel() / scale, "norm").pvalue > ALPHA


@pytest.mark.parametrize(("clip_norm", "noise_multiplier"), [(0.8, 1.5), (20.0, 0.5)])
def test_noise_is_normal_with_the_multiplier_times_the_bound(clip_norm, noise_multiplier):
    sample = noise_of(private(clip_norm, noise_multiplier), m=1500)
    assert_normal(sample, noise_multiplier * clip_norm)
    for part in (sample[:, :, :1], sample[:, :, 1:]):  # the active feature, and those silent in the known records
        assert_normal(part, noise_multiplier * clip_norm)


def test_noise_is_independent_over_steps_models_and_weights():
    mechanism, m = private(2.0, 1.0), 1500
    one, two = (noise_of(mechanism, epochs, m) for epochs in (1, 2))
    steps = np.stack([one, two - one]).reshape(2, m, -1) / 2.0
    assert_normal(steps[1], 1.0)
    # Sums of products of independent normals are normal for so many terms.
    for a, b in [(steps[0], steps[1]), (steps[0, 1:], steps[0, :-1]), (steps[0, :, 1:], steps[0, :, :-1])]:
        assert abs(np.sum(a * b) / np.sqrt(a.size)) < scipy.stats.norm.isf(ALPHA / 2)


def test_every_parameter_of_every_layer_gets_noise_of_the_same_scale():
    for model, d in ((DENSE, D), (CNN, 40)):
        training = Training(model=model, epochs=1, learning_rate=1.0, momentum=0.0)
        data, params = records("float32", d=d, m=400), start(model, d, "float32")
        mechanism = private(0.1, 50.0)
        keys = jax.random.split(jax.random.key(1), 400)
        noisy = train_many(training, *data, init=params, mechanism=mechanism, noise_keys=keys)
        clean = train_many(training, *data, init=params, mechanism=mechanism)
        for a, b in zip(jax.tree.leaves(noisy), jax.tree.leaves(clean), strict=True):
            assert_normal((a - b) * N, 5.0)


def test_noise_of_a_model_depends_on_its_key_alone():
    mechanism = private()
    found = noise_of(mechanism, epochs=3, m=5)
    np.testing.assert_allclose(noise_of(mechanism, epochs=3, m=5, batch_size=2), found, rtol=0, atol=1e-5)
    assert np.abs(noise_of(mechanism, epochs=3, m=5, seed=1) - found).min() > 1e-5


def test_noise_of_batches_is_divided_by_the_expected_size():
    training = Training(model=FLAT, epochs=1, batch_size=4, learning_rate=1.0, momentum=0.0)
    params, m = start(FLAT, dtype="float32"), 800
    keys = jax.random.split(jax.random.key(2), m)
    batches = np.array([[0, 1, PADDING]])
    found = train_many(
        training, *zeros(m=m), init=params, batches=batches, mechanism=private(3.0, 2.0), noise_keys=keys
    )
    assert_normal((found[0]["w"].astype(np.float64) - params[0]["w"]) * 4, 6.0)


@pytest.mark.parametrize("model", [DENSE, CNN], ids=["dense", "cnn"])
@pytest.mark.usefixtures("all_platforms")
def test_private_training_lowers_for_tpu(model):
    d = 40 if model is CNN else D
    known_x, known_y, targets_x, _ = records("float32", d=d)
    training = Training(model=model, epochs=2, batch_size=4, optimizer="adam")
    split, context = prepare(
        training, known_x, known_y, init=start(model, d, "float32"), batches=POISSON, mechanism=private()
    )
    own = Lanes(split_records(model, split, targets_x), np.eye(CLASSES, dtype=np.float32), np.ones(M, np.float32))
    keys = jax.random.split(jax.random.key(0), M)

    def trained(lanes, keys):
        return run(context, lanes._replace(noise_key=keys))

    assert jax.export.export(jax.jit(trained), platforms=["tpu"])(own, keys).platforms == ("tpu",)


def test_a_sweep_of_noise_and_bound_does_not_trace_again():
    @jax.jit
    @chex.assert_max_traces(n=2)  # Python numbers, and an array
    def scale(mechanism):
        return mechanism.noise_scale * mechanism.factor(jnp.float32(4.0))

    found = [float(scale(private(c, s))) for c, s in [(1.0, 2.0), (1, 4), (3.0, jnp.float32(2.0))]]
    np.testing.assert_allclose(found[:2], [1.0, 2.0])
    assert found[2] == 6.0
    batch = jax.vmap(lambda s: private(0.5, s).noise_scale)(jnp.array([1.0, 2.0]))
    np.testing.assert_allclose(batch, [0.5, 1.0])


def hockey_stick(mu, epsilon):
    """delta by quadrature: the integral of (p - e^epsilon q)+ for p = N(mu, 1) and q = N(0, 1)."""

    def excess(t):
        return scipy.stats.norm.pdf(t - mu) - math.exp(epsilon) * scipy.stats.norm.pdf(t)

    edge = epsilon / mu + mu / 2
    return scipy.integrate.quad(excess, edge, edge + 40, epsabs=0, epsrel=1e-12, points=[mu] if mu > edge else None)[0]


@pytest.mark.parametrize(("mu", "epsilon"), [(1, 1), (1, 0), (0.1, 0.3), (0.5, 4), (3, 0.5), (4, 10), (6, 30)])
def test_delta_is_the_integral_of_the_excess_density(mu, epsilon):
    assert delta_of(mu, epsilon) == pytest.approx(hockey_stick(mu, epsilon), rel=1e-9)


def test_delta_has_its_known_values():
    # Rounded up by a slack of 1e-12 of the logarithm, which is more than SciPy's functions are off by.
    assert 1 < delta_of(1, 1) / 0.12693673750664397 < 1 + 3e-12
    assert 1 < delta_of(2, 0) / (2 * scipy.stats.norm.cdf(1) - 1) < 1 + 3e-12  # the total variation
    assert delta_of(1e3, 0) == 1
    assert delta_of(1e-3, 1e4) == 0


@pytest.mark.parametrize("mu", [1e-3, 0.1, 1, 10, 140])
@pytest.mark.parametrize("delta", [1e-250, 1e-10, 1e-5, 0.01, 0.5])
def test_epsilon_inverts_delta_from_above(mu, delta):
    epsilon = epsilon_of(mu, delta)
    if delta >= delta_of(mu, 0):
        assert epsilon == 0
    else:
        assert delta_of(mu, epsilon) <= delta
        assert delta_of(mu, epsilon * (1 - 1e-9)) > delta


@pytest.mark.parametrize("neighbouring", SENSITIVITY)
@pytest.mark.parametrize("steps", [1, 1000])
@pytest.mark.parametrize("delta", [1e-10, 1e-5, 0.3])
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 30.0, 1e4])
def test_the_noise_for_a_budget_meets_it_and_less_does_not(epsilon, delta, steps, neighbouring):
    sigma = noise_multiplier_for(epsilon, delta, steps, neighbouring)
    enough, less = private(1.0, sigma, neighbouring), private(1.0, sigma * (1 - 1e-9), neighbouring)
    assert enough.delta(epsilon, steps=steps) <= delta < less.delta(epsilon, steps=steps)
    assert enough.epsilon(delta, steps=steps) <= epsilon * (1 + 1e-9)


def test_the_noise_for_a_budget_falls_with_the_budget():
    found = [noise_multiplier_for(e, 1e-5, 100, "zero_out") for e in np.geomspace(0.01, 1e4, 60)]
    assert (np.diff(found) < 0).all()


def test_steps_compose_as_their_root_and_replacing_counts_twice():
    assert mu_of(2.0, 1, "zero_out") == mu_of(2.0, 1, "add_or_remove") == 0.5
    assert mu_of(2.0, 1, "replace_one") == 1.0
    assert mu_of(2.0, 49, "zero_out") == pytest.approx(7 * mu_of(2.0, 1, "zero_out"))
    assert private(5.0, 2.0).mu(49) == 3.5  # the bound itself is no part of it
    # T looks at one number, noise T times as variable, are one look.
    assert mu_of(3.0 * math.sqrt(20), 20, "zero_out") == pytest.approx(mu_of(3.0, 1, "zero_out"))


def test_no_test_of_the_noisy_sum_beats_the_guarantee():
    # The best attack on a target whose gradient is clip_norm long in every step of full batches: power by simulation.
    mechanism, steps, alpha, m = private(1.0, 4.0), 25, 0.1, 20_000
    total = np.random.default_rng(0).normal(scale=mechanism.noise_scale, size=(2, m, steps)).sum(axis=2)
    total[1] += steps * mechanism.clip_norm
    power = np.mean(total[1] > np.quantile(total[0], 1 - alpha))
    bound = scipy.stats.norm.cdf(scipy.stats.norm.ppf(alpha) + mechanism.mu(steps))
    assert power == pytest.approx(bound, abs=5 * np.sqrt(0.25 * 2 / m))


def test_poisson_batches_are_drawn_record_by_record():
    n, rate, steps = 40, 0.3, 4000
    rows = np.asarray(poisson_batches(jax.random.key(0), n, rate, steps))
    assert rows.dtype == np.int32
    joined = np.zeros((steps, n + 1), bool)
    joined[np.arange(steps)[:, None], rows] = True  # PADDING is the last column
    joined = joined[:, :n]
    counts = joined.sum(axis=1)
    assert (counts == (rows != PADDING).sum(axis=1)).all()  # nobody twice
    for row, count in zip(rows, counts, strict=True):
        assert (np.diff(row[:count]) > 0).all()
        assert (row[count:] == PADDING).all()
    size = np.arange(6, 20)
    observed = np.concatenate([[np.sum(counts < 6)], [np.sum(counts == k) for k in size], [np.sum(counts > 19)]])
    law = scipy.stats.binom(n, rate)
    expected = steps * np.concatenate([[law.cdf(5)], law.pmf(size), [law.sf(19)]])
    assert scipy.stats.chisquare(observed, expected).pvalue > ALPHA
    each = scipy.stats.binomtest(int(joined.sum()), joined.size, rate)
    assert each.pvalue > ALPHA
    z = (joined - rate) / np.sqrt(rate * (1 - rate))
    for a, b in [(z[1:], z[:-1]), (z[:, 1:], z[:, :-1])]:
        assert abs(np.sum(a * b) / np.sqrt(a.size)) < scipy.stats.norm.isf(ALPHA / 2)


@pytest.mark.parametrize(("n", "rate", "steps"), [(1000, 0.01, 10_000), (50, 0.5, 3), (60_000, 0.004, 100)])
def test_a_row_has_room_for_all_but_an_overflow_and_no_more(n, rate, steps):
    room = jax.eval_shape(lambda: poisson_batches(jax.random.key(0), n, rate, steps)).shape[1]
    assert steps * scipy.stats.binom.sf(room, n, rate) <= OVERFLOW
    assert steps * scipy.stats.binom.sf(room - 1, n, rate) > OVERFLOW


def test_a_rate_of_one_takes_everybody_and_the_least_rate_nobody():
    rows = poisson_batches(jax.random.key(0), 7, 1, 2)
    assert rows.tolist() == [list(range(7))] * 2
    assert (poisson_batches(jax.random.key(0), 7, 2**-32, 5) == PADDING).all()


def test_a_release_cannot_be_repeated_and_says_what_it_costs():
    training, params = Training(model=FLAT, epochs=4, learning_rate=1.0, momentum=0.0), start(FLAT, 400, "float32")
    x, y = np.zeros((N, 400), np.float32), np.arange(N) % CLASSES
    one, two = (release(training, x, y, private(2.0, 3.0), init=params) for _ in range(2))
    assert one.steps == 4
    assert 2 / 3 <= one.mu < 2 / 3 * (1 + 1e-12)  # never below, by roundings above
    assert one.params[0]["w"].shape == (CLASSES, 400)
    noise = [(model.params[0]["w"] - params[0]["w"]).astype(np.float64) * N / (6 * 2) for model in (one, two)]
    low, high = scipy.stats.chi2(1200).interval(1 - 1e-9)  # fresh noise at every run of this test
    for sample in (*noise, (noise[0] - noise[1]) / np.sqrt(2)):
        assert low < np.sum(sample**2) < high


def test_a_release_with_batches_draws_them_and_counts_every_step(monkeypatch):
    seen = []
    monkeypatch.setattr(dp_gd, "poisson_batches", lambda *args: seen.append(args) or poisson_batches(*args))
    training = Training(model=DENSE, epochs=3, batch_size=4)
    known_x, known_y, targets_x, targets_y = records("float32")
    x, y = np.vstack([targets_x[:1], known_x]), np.append(targets_y[0], known_y)
    mechanism = private(neighbouring="replace_one")
    model = release(training, x, y, mechanism, init=start(DENSE, dtype="float32"))
    assert seen[0][1:] == (N, 4 / N, 9)
    assert (model.steps, model.mu) == (9, mechanism.mu(9))
    chex.assert_tree_all_finite(model.params)


@pytest.mark.parametrize("value", [0, 0.0, -1.0, math.nan, math.inf, "1", True, None, np.array([1.0, -1.0])])
@pytest.mark.parametrize("name", ["clip_norm", "noise_multiplier"])
def test_a_bad_hyperparameter_is_named(name, value):
    with pytest.raises(ValueError, match=f"{name} must be a finite number > 0, got"):
        private(**{name: value})


def test_sampling_is_given_credit_by_the_guarantee():
    mechanism = private(noise_multiplier=1.5, neighbouring="replace_one")
    assert mechanism.guarantee(steps=9).curve.mu == pytest.approx(mechanism.mu(9))
    sampled = mechanism.guarantee(steps=9, rate=0.1)
    assert sampled.curve.neighbouring == "replace_one"
    assert 0 < sampled.epsilon(1e-5) < 0.5 * mechanism.epsilon(1e-5, steps=9)


def test_the_neighbouring_relation_has_no_default_and_only_known_names():
    with pytest.raises(TypeError, match="neighbouring"):
        DPGD(clip_norm=1.0, noise_multiplier=1.0)
    with pytest.raises(
        ValueError, match="neighbouring must be one of add_or_remove, replace_one, zero_out; got 'swap'"
    ):
        private(neighbouring="swap")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: delta_of(0, 1), "mu must be a finite number > 0, got 0"),
        (lambda: delta_of(math.nan, 1), "mu must be a finite number > 0, got nan"),
        (lambda: delta_of(1, -1), "epsilon must be a finite number >= 0, got -1"),
        (lambda: delta_of(1, math.nan), "epsilon must be a finite number >= 0, got nan"),
        (lambda: epsilon_of(1, 0), r"delta must be in \(0, 1\), got 0"),
        (lambda: epsilon_of(1, math.nan), r"delta must be in \(0, 1\), got nan"),
        (lambda: noise_multiplier_for(0, 0.1, 1, "zero_out"), "epsilon must be a finite number > 0, got 0"),
        (lambda: noise_multiplier_for(math.nan, 0.1, 1, "zero_out"), "epsilon must be a finite number > 0, got nan"),
        (lambda: noise_multiplier_for(1, 1, 1, "zero_out"), r"delta must be in \(0, 1\), got 1"),
        (lambda: mu_of(1, 0, "zero_out"), "steps must be an integer >= 1, got 0"),
        (lambda: mu_of(-1, 1, "zero_out"), "noise_multiplier must be a finite number > 0, got -1"),
        (lambda: mu_of(1, 1, "swap"), "neighbouring must be one of"),
        (lambda: private(1.0, np.ones(2)).mu(1), "noise_multiplier must be a single number"),
        (lambda: poisson_batches(0, 5, 0.5, 1), "key must be a single key"),
        (lambda: poisson_batches(jax.random.key(0), 0, 0.5, 1), "n must be an integer >= 1, got 0"),
        (lambda: poisson_batches(jax.random.key(0), 5, 0.5, 0), "steps must be an integer >= 1, got 0"),
        (lambda: poisson_batches(jax.random.key(0), 5, 0, 1), "rate must be in .*, got 0"),
        (lambda: poisson_batches(jax.random.key(0), 5, math.nan, 1), "rate must be in .*, got nan"),
        (lambda: release(Training(), np.ones((1, 2)), [0], private(), init=()), "x must have at least 2 rows, got 1"),
        (lambda: release(Training(), np.ones((3, 2)), [0], private(), init=()), r"y must be numbers of shape \(3,\)"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


KEYS = functools.partial(jax.random.split, jax.random.key(0))


@pytest.mark.parametrize(
    ("training", "change", "message"),
    [
        (Training(model=DENSE), {"noise_keys": KEYS(M + 1)}, f"noise_keys must be {M} keys"),
        (Training(model=DENSE), {"noise_keys": jax.random.key(0)}, f"noise_keys must be {M} keys"),
        (Training(model=DENSE), {"noise_keys": np.zeros(M)}, f"noise_keys must be {M} keys"),
        (Training(model=DENSE), {"batches": POISSON}, "training.batch_size must be the expected size"),
        (Training(model=DENSE, batch_size=2), {"batches": POISSON[:, [0, 1, 1]]}, "must name no record twice"),
        (
            Training(model=DENSE, batch_size=2),
            {"batches": np.zeros((M, 1, 2), int), "own_batches": True},
            "must name no record twice",
        ),
        (Training(model=DENSE, batch_size=3), {}, "batches must be given where batch_size 3 is less than n = 9"),
    ],
)
def test_training_refuses_what_would_not_be_private(training, change, message):
    with pytest.raises(ValueError, match=message):
        train_many(training, *records("float32"), init=start(DENSE), mechanism=private(), **change)
