"""Training of many models at once against one model with Optax, against scikit-learn, and its derivative."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from sklearn.neural_network import MLPClassifier

from drjax.nets import stacked
from drjax.nets.classifier_training import (
    PADDING,
    Lanes,
    Training,
    join_params,
    prepare,
    run,
    split_params,
    split_records,
    train_many,
)
from drjax.nets.classifiers import ACTIVATIONS, Classifier

N, D, M, CLASSES = 12, 6, 4, 3
DENSE = Classifier(hidden=(5,), n_classes=CLASSES)
CNN = Classifier(image_shape=(4, 5, 2), channels=(3,), hidden=(4,), n_classes=CLASSES)
RATES = {"sgd": 0.3, "adam": 0.02}
TOLERANCE = {"float32": 2e-4, "float64": 1e-9}
"""Largest difference of parameters of order 1. float32: Adam divides a gradient by its own size, so that the rounding
of a small one, up to 1e-4 of it, counts in full."""


def records(dtype="float64", n=N, d=D, m=M, seed=0):
    """Known records and labels, targets and labels; feature 1 is 0 in the known ones, feature 4 everywhere."""
    rng = np.random.default_rng(seed)
    known, targets = rng.normal(size=(n - 1, d)).astype(dtype), rng.normal(size=(m, d)).astype(dtype)
    known[:, [1, 4]] = targets[:, 4] = 0
    return known, rng.integers(0, CLASSES, n - 1), targets, rng.integers(0, CLASSES, m)


def start(model, d=D, seed=7, dtype="float64"):
    """The model's start with biases that are not 0."""
    params = model.init(jax.random.key(seed), d)
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: (np.asarray(leaf) + 0.1 * rng.normal(size=leaf.shape)).astype(dtype), params)


def stack(trees):
    return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)


def each(params, i):
    return jax.tree.map(lambda leaf: leaf[i], params)


def assert_close(found, expected, tolerance):
    chex.assert_trees_all_equal_dtypes(found, expected)
    chex.assert_trees_all_close(found, expected, rtol=tolerance, atol=tolerance)


@functools.partial(jax.jit, static_argnums=0)
def one_model(training, x, y, params, batches):
    """Trains one model on its records by the book: batches (steps, b), `PADDING` for none."""
    if training.optimizer == "adam":
        optimizer = optax.adam(training.learning_rate)
    else:
        optimizer = optax.sgd(training.learning_rate, momentum=training.momentum, nesterov=training.nesterov)

    def loss(p, rows):
        weight = (rows != PADDING) / jnp.sum(rows != PADDING)
        each = optax.softmax_cross_entropy_with_integer_labels(training.model.logits(p, x[rows]), y[rows])
        penalty = sum(jnp.sum(layer["w"] ** 2) for layer in p)
        return jnp.sum(weight.astype(x.dtype) * each) + training.l2 / 2 * penalty

    def step(carry, rows):
        p, state = carry
        updates, state = optimizer.update(jax.grad(loss)(p, rows), state, p)
        return (optax.apply_updates(p, updates), state), None

    return jax.lax.scan(step, (params, optimizer.init(params)), batches)[0][0]


def by_the_book(training, data, params, batches=None, *, own_init=False, own_batches=False):
    """`train_many`, one model after the other."""
    known_x, known_y, targets_x, targets_y = data
    if batches is None:
        batches = np.tile(np.arange(len(known_x) + 1), (training.epochs, 1))
    trained = []
    for i, (x, y) in enumerate(zip(targets_x, targets_y, strict=True)):
        joined = np.concatenate([x[None], known_x]), np.concatenate([[y], known_y])
        rows = batches[i] if own_batches else batches
        p = each(params, i) if own_init else params
        trained.append(jax.tree.map(np.asarray, one_model(training, *joined, p, jnp.asarray(rows))))
    return stack(trained)


OPTIMIZERS = {
    "plain": {"optimizer": "sgd", "momentum": 0.0},
    "momentum": {"optimizer": "sgd"},
    "nesterov": {"optimizer": "sgd", "nesterov": True},
    "adam": {"optimizer": "adam"},
}


def made(name, model=DENSE, **changes):
    options = OPTIMIZERS[name]
    return Training(**({"model": model, "epochs": 6, "learning_rate": RATES[options["optimizer"]]} | options | changes))


@pytest.mark.parametrize(
    ("optimizer", "l2", "dtype"),
    [
        *((optimizer, 0.05, "float64") for optimizer in OPTIMIZERS),
        *((optimizer, 0.0, "float64") for optimizer in ("plain", "adam")),
        *((optimizer, 0.0, "float32") for optimizer in ("momentum", "nesterov")),
        ("adam", 0.05, "float32"),
    ],
    indirect=["dtype"],
)
def test_equals_one_model_after_the_other_with_optax(optimizer, l2, dtype):
    training = made(optimizer, l2=l2)
    data, params = records(dtype), start(DENSE, dtype=dtype)
    found = train_many(training, *data, init=params)
    assert_close(found, by_the_book(training, data, params), TOLERANCE[dtype])


@pytest.mark.parametrize("hidden", [(), (7,), (5, 4)])
@pytest.mark.parametrize("optimizer", ["momentum", "adam"])
def test_any_number_of_hidden_layers(hidden, optimizer):
    with jax.enable_x64(True):
        model = Classifier(hidden=hidden, n_classes=CLASSES)
        training, data, params = made(optimizer, model), records(), start(model)
        assert_close(train_many(training, *data, init=params), by_the_book(training, data, params), 1e-9)


@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
def test_every_activation(activation):
    with jax.enable_x64(True):
        model = Classifier(hidden=(5, 4), activation=activation, n_classes=CLASSES)
        training, data, params = made("momentum", model, epochs=4), records(), start(model)
        assert_close(train_many(training, *data, init=params), by_the_book(training, data, params), 1e-9)


@pytest.mark.parametrize(("optimizer", "dtype"), [("nesterov", "float64"), ("adam", "float32")], indirect=["dtype"])
def test_a_network_with_convolutions(optimizer, dtype):
    training = made(optimizer, CNN, epochs=4, l2=0.01)
    data, params = records(dtype, d=40), start(CNN, 40, dtype=dtype)
    found = train_many(training, *data, init=params)
    assert_close(found, by_the_book(training, data, params), TOLERANCE[dtype])


@pytest.mark.parametrize(
    ("own_batches", "own_init", "model"),
    [
        *(pytest.param(own, init, DENSE, id=f"{own}-{init}-dense") for own in (False, True) for init in (False, True)),
        pytest.param(True, False, CNN, id="True-False-cnn"),
        pytest.param(False, True, CNN, id="False-True-cnn"),
    ],
)
def test_batches_of_a_known_order(own_batches, own_init, model):
    with jax.enable_x64(True):
        d = 40 if model is CNN else D
        training = made("momentum", model, epochs=2, batch_size=5)
        data = records(d=d)
        orders = np.stack([training.batches(key, N) for key in jax.random.split(jax.random.key(2), M)])
        assert orders.shape == (M, 6, 5)  # three batches an epoch, the last of two records
        assert (np.sort(orders[0, :3].ravel())[3:] == np.arange(N)).all()
        batches = orders if own_batches else orders[0]
        starts = [start(model, d, seed) for seed in range(M)]
        params = stack(starts) if own_init else starts[0]
        options = {"own_init": own_init, "own_batches": own_batches}
        found = train_many(training, *data, init=params, batches=batches, **options)
        assert_close(found, by_the_book(training, data, params, batches, **options), 1e-9)


def test_a_record_named_twice_counts_twice_the_target_as_any_other():
    with jax.enable_x64(True):
        training, data, params = made("plain", batch_size=4), records(), start(DENSE)
        batches = np.array([[0, 0, 3, 3], [5, 5, 0, PADDING], [1, 2, 3, PADDING]])
        found = train_many(training, *data, init=params, batches=batches)
        assert_close(found, by_the_book(training, data, params, batches), 1e-9)


def test_an_empty_batch_moves_nothing():
    training, data, params = made("plain", batch_size=2), records("float32"), start(DENSE, dtype="float32")
    found = train_many(training, *data, init=params, batches=np.full((3, 2), PADDING))
    assert_close(found, stack([params] * M), 0)


def test_full_batches_when_the_batch_is_as_large_as_the_data():
    assert made("plain", batch_size=N).batches(jax.random.key(0), N) is None
    data, params = records("float32"), start(DENSE, dtype="float32")
    whole = train_many(made("plain"), *data, init=params)
    assert_close(train_many(made("plain", batch_size=N), *data, init=params), whole, 0)


class FromOurStart(MLPClassifier):
    """scikit-learn's network, started from given parameters."""

    def _init_coef(self, fan_in, fan_out, dtype):
        layer = next(self.given)
        assert layer["w"].shape == (fan_out, fan_in)
        return layer["w"].T.astype(dtype), layer["b"].astype(dtype)


@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")
@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize(("ours", "theirs"), [("tanh", "tanh"), ("relu", "relu"), ("sigmoid", "logistic")])
def test_equals_scikit_learn(ours, theirs, nesterov):
    n, epochs, alpha, rate = 60, 80, 0.3, 0.2
    with jax.enable_x64(True):
        model = Classifier(hidden=(7, 4), activation=ours, n_classes=CLASSES)
        training = Training(model=model, epochs=epochs, learning_rate=rate, nesterov=nesterov, l2=alpha / n)
        known_x, known_y, targets_x, targets_y = records(n=n, m=2)
        params = start(model)
        found = train_many(training, known_x, known_y, targets_x, targets_y, init=params)
    for i in range(2):
        network = FromOurStart(
            (7, 4),
            theirs,
            solver="sgd",
            alpha=alpha,
            batch_size=n,
            learning_rate_init=rate,
            max_iter=epochs,
            shuffle=False,
            tol=0.0,
            n_iter_no_change=epochs,
            nesterovs_momentum=nesterov,
        )
        network.given = iter(params)
        network.fit(np.vstack([targets_x[i : i + 1], known_x]), np.append(targets_y[i], known_y))
        assert network.n_iter_ == epochs
        for layer, w, b in zip(each(found, i), network.coefs_, network.intercepts_, strict=True):
            # Two summation orders; a relu that just opens in one of them does not occur here.
            np.testing.assert_allclose(layer["w"], w.T, rtol=0, atol=1e-9)
            np.testing.assert_allclose(layer["b"], b, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("optimizer", "batch_size", "dtype"),
    [("momentum", 1, "float32"), ("momentum", 2, "float64"), ("adam", 1, "float64"), ("adam", 2, "float32")],
    indirect=["dtype"],
)
def test_a_model_does_not_depend_on_those_beside_it(optimizer, batch_size, dtype):
    training, data, params = made(optimizer), records(dtype, m=5), start(DENSE, dtype=dtype)
    together = train_many(training, *data, init=params)
    found = train_many(training, *data, init=params, batch_size=batch_size)
    alone = train_many(training, *data[:2], data[2][3:4], data[3][3:4], init=params)
    # Products of other sizes sum in another order; Adam repeats their relative rounding in full.
    assert_close(found, together, TOLERANCE[dtype])
    assert_close(each(alone, 0), each(together, 3), TOLERANCE[dtype])


def lanes_of(training, split, targets_x, classes, **own):
    b = len(targets_x)
    return Lanes(
        x=split_records(training.model, split, targets_x),
        y=jnp.eye(CLASSES)[jnp.asarray(classes)],
        weight=jnp.ones(b),
        **own,
    )


@pytest.mark.parametrize(
    ("optimizer", "model"), [("nesterov", CNN), ("adam", DENSE)], ids=["nesterov-cnn", "adam-dense"]
)
def test_the_derivative_in_the_target_is_that_of_finite_differences(optimizer, model):
    with jax.enable_x64(True):
        d = 40 if model is CNN else D
        training = made(optimizer, model, epochs=5, l2=0.01)
        known_x, known_y, targets_x, targets_y = records(d=d, m=2)
        split, context = prepare(training, known_x, known_y, init=start(model, d))

        @functools.partial(jax.jit, static_argnums=1)
        def total(x, checkpoint=False):
            params = run(context, lanes_of(training, split, x, targets_y), checkpoint=checkpoint)
            return sum(jnp.sum(jnp.sin(leaf)) for leaf in jax.tree.leaves(params))

        x = jnp.asarray(targets_x)
        gradient = jax.grad(total)(x)
        assert np.isfinite(gradient).all()
        assert np.abs(gradient).max() > 1e-3
        direction = np.random.default_rng(5).normal(size=x.shape)
        if optimizer == "adam":
            direction[:, 4] = 0  # 0 in all records: Adam's step jumps there from 0 to the rate
        h = 1e-5
        slope = (total(x + h * direction) - total(x - h * direction)) / (2 * h)
        # Adam divides by the gradients' own size, which h changes; the central difference is off by O(h^2).
        np.testing.assert_allclose(jnp.sum(gradient * direction), slope, rtol=1e-5)
        np.testing.assert_allclose(jax.grad(total)(x, True), gradient, rtol=1e-12, atol=1e-14)


def test_checkpoints_change_no_parameter():
    training, data = made("adam"), records("float32")
    split, context = prepare(training, *data[:2], init=start(DENSE, dtype="float32"))
    lanes = lanes_of(training, split, data[2], data[3])
    plain, kept = (jax.jit(functools.partial(run, checkpoint=flag))(context, lanes) for flag in (False, True))
    assert_close(kept, plain, 1e-6)  # another fusion, another rounding


def test_a_weight_of_zero_trains_without_the_target_and_divides_by_n_all_the_same():
    with jax.enable_x64(True):
        training, data, params = made("plain", epochs=1), records(), start(DENSE)
        split, context = prepare(training, *data[:2], init=params)
        lanes = lanes_of(training, split, data[2], data[3])
        without = join_params(DENSE, split, run(context, lanes._replace(weight=jnp.zeros(M))))
        batches = np.arange(1, N)[None]
        expected = by_the_book(training, data, params, batches)
        shrunk = jax.tree.map(lambda p, q: p + (q - p) * (N - 1) / N, stack([params] * M), expected)
        assert_close(jax.tree.map(np.asarray, without), shrunk, 1e-12)


def test_split_parameters_join_to_what_they_were():
    params = start(DENSE, dtype="float32")
    split, _ = prepare(made("plain"), *records()[:2], init=params)
    assert split.n_active == D - 2
    assert_close(join_params(DENSE, split, split_params(DENSE, split, params)), params, 0)


def test_records_that_are_zero_throughout_train_as_well():
    with jax.enable_x64(True):
        known_x, known_y, targets_x, targets_y = records()
        data = np.zeros_like(known_x), known_y, targets_x, targets_y
        training, params = made("momentum"), start(DENSE)
        assert_close(train_many(training, *data, init=params), by_the_book(training, data, params), 1e-9)


@pytest.mark.parametrize(("of", "optimizer"), [("records", "momentum"), ("start", "adam"), ("rate", "adam")])
def test_one_wider_input_does_not_change_the_dtype_of_the_rest(of, optimizer):
    with jax.enable_x64(True):
        known_x, known_y, targets_x, targets_y = records("float32")
        params = start(DENSE, dtype="float64" if of == "start" else "float32")
        rate = np.float64(0.1) if of == "rate" else 0.1
        training = made(optimizer, learning_rate=rate)
        targets_x = targets_x.astype("float64" if of == "records" else "float32")
        shared = train_many(training, known_x, known_y, targets_x, targets_y, init=params)
        own = train_many(training, known_x, known_y, targets_x, targets_y, init=stack([params] * M), own_init=True)
        assert {leaf.dtype for leaf in jax.tree.leaves((shared, own))} == {np.dtype("float32")}
        assert_close(own, shared, 1e-6)


def test_a_swept_learning_rate_does_not_trace_again():
    data, params = records("float32"), start(DENSE, dtype="float32")
    split, context = prepare(made("momentum"), *data[:2], init=params)
    lanes = lanes_of(made("momentum"), split, data[2], data[3])

    @jax.jit
    @chex.assert_max_traces(n=1)
    def trained(context, lanes):
        return run(context, lanes)

    for rate in (0.1, 0.2, 0.3):
        trained(context._replace(training=made("momentum", learning_rate=rate)), lanes)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epochs": 0}, "epochs must be an integer >= 1, got 0"),
        ({"batch_size": 0}, "batch_size must be an integer >= 1, got 0"),
        ({"optimizer": "lbfgs"}, "optimizer must be one of adam, sgd; got 'lbfgs'"),
        ({"learning_rate": 0.0}, "learning_rate must be > 0, got 0.0"),
        ({"learning_rate": np.float32("nan")}, "learning_rate must be > 0, got nan"),
        ({"learning_rate": float("inf")}, "learning_rate must be finite"),
        ({"momentum": 1.0}, r"momentum must be in \[0, 1\), got 1.0"),
        ({"momentum": float("nan")}, r"momentum must be in \[0, 1\), got nan"),
        ({"l2": -1.0}, "l2 must be >= 0, got -1.0"),
        ({"l2": float("inf")}, "l2 must be finite"),
    ],
)
def test_a_bad_setting_is_named(change, message):
    with pytest.raises(ValueError, match=message):
        Training(**change)


def broken(**changes):
    known_x, known_y, targets_x, targets_y = records("float32")
    arguments = {"known_x": known_x, "known_y": known_y, "targets_x": targets_x, "targets_y": targets_y}
    arguments |= {"training": made("plain"), "init": start(DENSE, dtype="float32")}
    return train_many(**(arguments | changes))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"known_x": np.full((N - 1, D), np.nan)}, "known_x must be finite"),
        ({"known_x": np.zeros(D)}, "known_x must be a non-empty array of shape"),
        ({"known_y": np.zeros(N)}, f"known_y must be {N - 1} classes"),
        ({"known_y": np.full(N - 1, CLASSES)}, "known_y must be integers from 0 to 2, got 3"),
        ({"targets_y": np.full(M, 0.5)}, "targets_y must be integers from 0 to 2, got 0.5"),
        ({"targets_y": np.full(M, np.nan)}, "targets_y must be integers from 0 to 2, got nan"),
        ({"targets_y": np.array(["a"] * M)}, f"targets_y must be {M} classes"),
        ({"targets_x": np.zeros((M, D + 1))}, f"targets_x must have {D} columns as known_x, got {D + 1}"),
        ({"init": start(CNN, 40)}, "params must have 2 layers for this architecture, got 3"),
        ({"init": None}, "params must have 2 layers for this architecture, got NoneType"),
        ({"init": ({"w": 1.0}, {})}, "layer 0 of params must have the arrays w and b"),
        ({"init": start(DENSE, D + 1)}, r"w of layer 0 must have shape \(5, 6\), got \(5, 7\)"),
        ({"own_init": True}, r"w of layer 0 must have shape \(4, 5, 6\), got \(5, 6\)"),
        ({"init": jax.tree.map(lambda leaf: leaf + np.nan, start(DENSE))}, "w of layer 0 must be finite"),
        ({"training": made("plain", batch_size=4)}, "batches must be given where batch_size 4 is less than n = 12"),
        ({"batches": np.zeros((2, 2))}, "batches must be integers"),
        ({"batches": np.zeros((2, 2), int), "own_batches": True}, "batches must be integers of shape"),
        ({"batches": np.full((2, 2), N)}, "batches must name records from 0 to 11, or -1"),
        ({"batches": np.full((2, 2), -2)}, "batches must name records from 0 to 11, or -1"),
        ({"batches": np.zeros((0, 2), int)}, "in at least one step"),
        ({"noise_keys": jax.random.split(jax.random.key(0), M)}, "noise_keys must be None without a mechanism"),
    ],
)
def test_bad_input_is_named(change, message):
    with pytest.raises(ValueError, match=message):
        broken(**change)


@pytest.mark.parametrize("n_known", [191, 200])
def test_blocks_of_records_change_nothing(monkeypatch, n_known):
    """191 known records make blocks of 48 with one to spare, 200 of 50 without."""
    rng = np.random.default_rng(4)
    x, y = rng.random((n_known + 3, 12)), rng.integers(0, 4, n_known + 3)
    training = Training(model=Classifier(hidden=(5,), n_classes=4), epochs=6)
    init = jax.tree.map(np.asarray, training.model.init(jax.random.key(0), 12))
    found = []
    with jax.enable_x64(True):
        for block in (1024, 50):
            monkeypatch.setattr(stacked, "BLOCK", block)
            jax.clear_caches()
            found.append(train_many(training, x[3:], y[3:], x[:3], y[:3], init=init, batch_size=3))
    # Only the order of sums differs.
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-13), *found)
