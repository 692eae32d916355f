"""The training loop: what it learns, keeps, resumes and refuses. Networks and data are tiny."""

import dataclasses
import functools
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from drjax.core.types import Status
from drjax.nets import checkpoints, training
from drjax.nets.reconstructors import Architecture, Reconstructor, Up
from drjax.nets.training import TrainConfig, predict, train

DENSE = Architecture(split=True, output=lambda x: x, hidden=(8,))
CONV = Architecture(
    split=True,
    output=jax.nn.relu,
    convolutions=(Up(6, 2, 1, 0), Up(4, 4, 2, 1, dropout=0.2), Up(1, 1, 1, 1)),
)
QUICK = TrainConfig(epochs=6, batch_size=16, learning_rate=1e-2, patience=6)


def maker(architecture=DENSE, d=4):
    return functools.partial(_network, architecture, d)


def _network(architecture, d, rngs):
    return Reconstructor(architecture, 3, 2, d, rngs=rngs)


def linear_data(m=200, d=4, seed=0):
    """Records that are a noisy linear function of the first row of their release."""
    rng = np.random.default_rng(seed)
    releases = rng.normal(size=(m, 3, 2)).astype(np.float32)
    mixing = np.random.default_rng(99).normal(size=(2, d))
    targets = releases[:, 0] @ mixing + 0.05 * rng.normal(size=(m, d))
    return releases, targets.astype(np.float32)


def keys(n, seed=0):
    return jax.random.split(jax.random.key(seed), n)


def leaves(tree):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_learns_a_linear_map_far_better_than_the_mean(schedule):
    config = TrainConfig(
        epochs=30, batch_size=16, learning_rate=1e-2, schedule=schedule, warmup_epochs=2, patience=30, l1_weight=0.5
    )
    validation = linear_data(seed=1)
    state, history = train(keys(1), maker(), *linear_data(), config, validation=validation)
    fresh_x, fresh_y = linear_data(seed=2)
    error = np.mean((predict(maker(), state, fresh_x)[0] - fresh_y) ** 2)
    assert error < 0.05 * np.var(fresh_y, axis=0).mean()  # noise alone is about 0.2% of it
    assert history.validation_loss[-1, 0] < history.validation_loss[0, 0]
    assert history.status.tolist() == [0]


def test_predictions_of_the_result_have_the_best_recorded_validation_loss():
    # A rate that overshoots, so that the best epoch is not the last.
    config = TrainConfig(epochs=25, batch_size=8, learning_rate=0.3, patience=25)
    x, y = linear_data(m=40)
    validation = linear_data(m=300, seed=1)
    state, history = train(keys(3), maker(), x, y, config, validation=validation)
    assert (history.best_epoch < 24).any()
    assert history.best_epoch.tolist() == history.validation_loss.argmin(axis=0).tolist()
    predicted = predict(maker(), state, validation[0])  # 300 records: more than one chunk
    loss = np.mean((predicted - validation[1]) ** 2 + np.abs(predicted - validation[1]), axis=(1, 2))
    np.testing.assert_allclose(loss, history.validation_loss.min(axis=0), rtol=1e-5)  # float32 means


@pytest.mark.parametrize("drop_last", [False, True])
def test_records_that_do_not_fill_a_batch_are_a_smaller_one_or_sit_out(drop_last):
    x, y = linear_data(m=4)
    # So small a rate that all batches of the epoch meet the same network.
    config = TrainConfig(epochs=1, batch_size=3, learning_rate=1e-9, patience=1, drop_last=drop_last)
    state, history = train(keys(1), maker(), x, y, config, validation=(x, y))
    error = np.asarray(predict(maker(), state, x)[0]) - y
    losses = np.mean(error**2 + np.abs(error), axis=1)
    three = (losses.sum() - losses) / 3
    expected = three if drop_last else (three + losses) / 2  # whichever record was left over
    assert np.min(np.abs(expected - history.train_loss[0, 0])) < 1e-5
    assert np.ptp(expected) > 0.1


def test_stops_after_patience_epochs_without_improvement_and_freezes_that_member_only():
    x, y = linear_data()
    # Validation targets unrelated to the inputs get worse as training goes on.
    validation = x, -y
    config = TrainConfig(epochs=40, batch_size=16, learning_rate=1e-2, patience=3)
    _, history = train(keys(4), maker(), x, y, config, validation=validation)
    ran = np.isfinite(history.validation_loss).sum(axis=0)
    assert ran.tolist() == (history.best_epoch + 1 + 3).tolist()
    assert len(history.epoch_seconds) == ran.max() < 40


@pytest.mark.parametrize("architecture", [DENSE, CONV], ids=["dense", "convolutional"])
def test_member_of_an_ensemble_equals_the_network_trained_alone_with_its_key(architecture):
    d = 4
    x, y = linear_data(m=64, d=d)
    validation = linear_data(m=20, d=d, seed=1)
    together, history = train(keys(3), maker(architecture, d), x, y, QUICK, validation=validation)
    alone, single = train(keys(3)[1:2], maker(architecture, d), x, y, QUICK, validation=validation)
    np.testing.assert_allclose(history.train_loss[:, 1], single.train_loss[:, 0], rtol=1e-4)  # batched GEMMs reorder
    for a, b in zip(leaves(together), leaves(alone), strict=True):
        np.testing.assert_allclose(a[1], b[0], atol=1e-4)  # rounding, amplified by 24 steps
    assert not np.allclose(leaves(together)[0][0], leaves(together)[0][1], atol=1e-3)


def test_stacked_data_give_each_member_its_own():
    x, y = linear_data()
    validation = linear_data(seed=1)
    both = np.stack([x, x]), np.stack([y, -y])
    both_validation = np.stack([validation[0]] * 2), np.stack([validation[1], -validation[1]])
    state, _ = train(keys(2), maker(), *both, QUICK, validation=both_validation, stacked=True)
    alone, _ = train(keys(2)[1:], maker(), x, -y, QUICK, validation=(validation[0], -validation[1]))
    for a, b in zip(leaves(state), leaves(alone), strict=True):
        np.testing.assert_allclose(a[1], b[0], atol=1e-4)  # batched GEMMs reorder sums
    with pytest.raises(ValueError, match="inputs must have a leading axis of 3 members"):
        train(keys(3), maker(), *both, QUICK, validation=both_validation, stacked=True)


def test_running_statistics_are_trained_carried_and_returned():
    x, y = linear_data(m=64)
    (_, rest), _ = train(keys(1), maker(CONV), x, y, QUICK, validation=linear_data(m=20, seed=1))
    means, variances = leaves(rest)[0::2], leaves(rest)[1::2]
    assert all(np.abs(mean).max() > 1e-3 for mean in means)  # 0 before training
    assert all(np.abs(variance - 1).max() > 1e-3 for variance in variances)  # 1 before training


class Interrupted(Exception):
    pass


def renewed(epoch):
    return linear_data(m=64, seed=100 + epoch)


@pytest.mark.parametrize(
    ("architecture", "renew"),
    [(DENSE, None), (CONV, None), (DENSE, renewed)],
    ids=["dense", "convolutional", "other data each epoch"],
)
def test_resumed_run_is_bit_identical_to_an_uninterrupted_one(architecture, renew, tmp_path, monkeypatch):
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", 0.0)
    checkpoint = tmp_path / "net.npz"
    x, y = linear_data(m=64)
    validation = linear_data(m=20, seed=1)

    def run(path):
        options = {"validation": validation, "checkpoint": path, "renew": renew}
        return train(keys(2), maker(architecture), x, y, QUICK, **options)

    expected, expected_history = run(None)
    write, written = checkpoints.write, []

    def write_then_die(*arguments):
        write(*arguments)
        written.append(1)
        if len(written) == 3:
            raise Interrupted

    monkeypatch.setattr(checkpoints, "write", write_then_die)
    with pytest.raises(Interrupted):
        run(checkpoint)
    assert [p.name for p in tmp_path.iterdir()] == ["net.npz"]  # no temporary file is left
    state, history = run(checkpoint)
    assert len(written) == 6  # three epochs before, three after
    for a, b in zip(leaves(state), leaves(expected), strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(history.validation_loss, expected_history.validation_loss)
    np.testing.assert_array_equal(history.best_epoch, expected_history.best_epoch)
    again, _ = run(checkpoint)
    assert len(written) == 6  # a finished checkpoint trains nothing
    np.testing.assert_array_equal(leaves(again)[0], leaves(expected)[0])


def test_data_that_are_renewed_are_trained_on_in_their_epoch_and_held_no_longer():
    x, y = linear_data(m=64)
    validation, asked = linear_data(m=20, seed=1), []

    def same(epoch):
        asked.append(epoch)
        return x, y

    expected, _ = train(keys(1), maker(), x, y, QUICK, validation=validation)
    state, _ = train(keys(1), maker(), x, y, QUICK, validation=validation, renew=same)
    assert asked == [1, 2, 3, 4, 5]
    for a, b in zip(leaves(state), leaves(expected), strict=True):
        np.testing.assert_array_equal(a, b)
    # The first epoch is of the given data, the others are not.
    few, many = (
        train(keys(1), maker(), *linear_data(m=64), QUICK, validation=validation, renew=renew)[1]
        for renew in (None, renewed)
    )
    assert not np.array_equal(few.train_loss[1:], many.train_loss[1:])
    np.testing.assert_array_equal(few.train_loss[0], many.train_loss[0])
    with pytest.raises(ValueError, match=r"renewed inputs and targets must have shapes \(64, 3, 2\) and \(64, 4\)"):
        train(keys(1), maker(), x, y, QUICK, validation=validation, renew=lambda _: linear_data(m=63))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The checkpoint of a run to its end."""
    checkpoint = tmp_path_factory.mktemp("run") / "net.npz"
    options = {"validation": linear_data(m=20, seed=1), "checkpoint": checkpoint}
    train(keys(1), maker(), *linear_data(m=40), QUICK, **options)
    return checkpoint


@pytest.mark.parametrize("change", ["configuration", "data", "keys", "tag"])
def test_checkpoint_of_another_run_is_refused(change, finished):
    checkpoint = finished
    x, y = linear_data(m=40)
    options = {"validation": linear_data(m=20, seed=1), "checkpoint": checkpoint}
    before = checkpoint.read_bytes()
    config = TrainConfig(epochs=7, batch_size=16, learning_rate=1e-2) if change == "configuration" else QUICK
    y = y + 1 if change == "data" else y
    seed = 5 if change == "keys" else 0
    with pytest.raises(ValueError, match="checkpoint must come from the same configuration, data and keys"):
        train(keys(1, seed), maker(), x, y, config, tag="other" if change == "tag" else "", **options)
    assert checkpoint.read_bytes() == before


def test_damaged_checkpoint_is_a_value_error(tmp_path):
    checkpoint = tmp_path / "net.npz"
    checkpoint.write_bytes(b"PK not a zip")
    with pytest.raises(ValueError, match=r"net\.npz must be an npz file"):
        train(keys(1), maker(), *linear_data(40), QUICK, validation=linear_data(20), checkpoint=checkpoint)


class Constant(nnx.Module):
    """The same probabilities of three classes for every input."""

    def __init__(self, rngs):
        del rngs
        self.level = nnx.Param(jnp.zeros(3))

    def __call__(self, x, key=None):
        del key
        return jnp.tile(jax.nn.softmax(self.level[...]), (x.shape[0], 1))


def test_constant_learns_the_shares_of_the_classes_and_its_loss_is_their_entropy():
    shares = np.array([0.5, 0.3, 0.2])
    x, y = np.zeros((40, 1)), np.repeat(np.eye(3), [20, 12, 8], axis=0)
    # One batch of all records: the descent is of the loss itself.
    config = TrainConfig(epochs=150, batch_size=40, learning_rate=0.1, schedule="cosine", patience=150)
    state, history = train(keys(1), Constant, x, y, config, validation=(x, y), loss="cross_entropy")
    np.testing.assert_allclose(predict(Constant, state, x[:1])[0, 0], shares, atol=1e-3)
    np.testing.assert_allclose(history.validation_loss.min(), -(shares * np.log(shares)).sum(), rtol=1e-5)
    # The squared part is recorded all the same: of indicators, sum p (1 - p) / 3.
    np.testing.assert_allclose(history.validation_mse[-1, 0], (shares * (1 - shares)).sum() / 3, rtol=1e-3)


def test_targets_of_the_cross_entropy_have_to_be_probabilities():
    x, y = np.zeros((9, 1)), np.eye(3)[np.arange(9) % 3]
    for bad, message in ((2 * y, r"targets must be in \[0, 1\]"), (y * [1, 1, 0.5], "rows that sum to 1")):
        with pytest.raises(ValueError, match=message):
            train(keys(1), Constant, x, bad, QUICK, validation=(x, y), loss="cross_entropy")
        with pytest.raises(ValueError, match=f"validation .*{message}"):
            train(keys(1), Constant, x, y, QUICK, validation=(x, bad), loss="cross_entropy")
    with pytest.raises(ValueError, match="loss"):
        train(keys(1), Constant, x, y, QUICK, validation=(x, y), loss="hinge")


def test_inputs_of_one_byte_train_the_same_network_as_their_floats():
    rng = np.random.default_rng(0)
    x, y = rng.integers(256, size=(40, 3, 2), dtype=np.uint8), rng.normal(size=(40, 4))
    found = [train(keys(2), maker(), kind(x), y, QUICK, validation=(kind(x), y)) for kind in (np.uint8, np.float32)]
    for a, b in zip(leaves(found[0][0]), leaves(found[1][0]), strict=True):
        np.testing.assert_array_equal(a, b)
    outputs = [predict(maker(), found[0][0], kind(x)) for kind in (np.uint8, np.float32)]
    np.testing.assert_array_equal(*outputs)


class Explosive(nnx.Module):
    """Predicts a constant that its own gradient step doubles; infinite as soon as it passes a threshold."""

    def __init__(self, rngs):
        self.level = nnx.Param(jax.random.uniform(rngs.params(), ()))

    def __call__(self, x, key=None):
        del key
        level = self.level[...]
        return jnp.where(level > 0.5, jnp.inf, level) * jnp.ones((x.shape[0], 4))


def test_member_whose_loss_is_never_finite_says_so_and_the_others_train_on():
    starts = [float(jax.random.uniform(nnx.Rngs(params=key).params(), ())) for key in keys(8)]
    assert 0 < sum(start > 0.5 for start in starts) < 8
    x, y = linear_data(m=40)
    _, history = train(keys(8), lambda rngs: Explosive(rngs), x, 0 * y, QUICK, validation=(x, 0 * y))
    expected = [Status.NON_FINITE if start > 0.5 else Status.OK for start in starts]
    assert history.status.tolist() == [int(s) for s in expected]
    assert [int(b) < 0 for b in history.best_epoch] == [start > 0.5 for start in starts]


def test_member_that_diverges_late_keeps_its_best_weights_and_is_not_converged():
    x, y = linear_data(m=40)
    starts = [float(jax.random.uniform(nnx.Rngs(params=key).params(), ())) for key in keys(8)]
    config = TrainConfig(epochs=30, batch_size=16, learning_rate=2e-2, patience=30)
    # Targets beyond the threshold: training climbs towards them and over it.
    (params, _), history = train(keys(8), lambda rngs: Explosive(rngs), x, 0 * y + 2, config, validation=(x, 0 * y + 2))
    for start, status, level in zip(starts, history.status, leaves(params)[0], strict=True):
        if start < 0.4:
            assert status == Status.NOT_CONVERGED
            assert start < level <= 0.5


def test_float32_with_x64_on():
    with jax.enable_x64(True):
        x, y = (a.astype(np.float64) for a in linear_data(m=40))
        state, _ = train(keys(1), maker(CONV), x, y, QUICK, validation=(x, y))
    assert {leaf.dtype.name for leaf in leaves(state)} == {"float32"}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("epochs", 0),
        ("batch_size", 1.5),
        ("learning_rate", float("nan")),
        ("schedule", "step"),
        ("warmup_epochs", 500),
        ("patience", 0),
        ("mse_weight", -1.0),
    ],
)
def test_bad_configuration_raises_and_names_the_field(field, value):
    with pytest.raises(ValueError, match=field):
        TrainConfig(**{field: value})


def test_loss_without_weights_is_refused():
    with pytest.raises(ValueError, match="mse_weight"):
        TrainConfig(mse_weight=0.0, l1_weight=0.0)


def test_data_that_do_not_fit_or_are_not_finite_are_refused():
    x, y = linear_data(m=40)
    with pytest.raises(ValueError, match="targets must be one row per input"):
        train(keys(1), maker(), x, y[:-1], QUICK, validation=(x, y))
    with pytest.raises(ValueError, match="validation targets must be an integer"):
        train(keys(1), maker(), x, y, QUICK, validation=(x[:0], y[:0]))
    y[3, 1] = np.nan
    with pytest.raises(ValueError, match="targets must be finite"):
        train(keys(1), maker(), x, y, QUICK, validation=(x, y))


class Noted(nnx.Module):
    """Notes every call, each of which is one tracing."""

    calls: ClassVar = []

    def __init__(self, start, rngs):
        del rngs
        self.w = nnx.Param(jnp.full(4, float(start)))

    def __call__(self, x, *_):
        self.calls.append(x.shape)
        return x[:, 0, :1] * self.w[...]


def test_a_network_of_the_same_parts_is_traced_once_and_one_of_others_is_not_taken_for_it():
    x, y = linear_data(m=32)

    def run(maker, config=QUICK):
        Noted.calls.clear()
        params = train(keys(1), maker, x, y, config, validation=(x, y))[0][0]
        return len(Noted.calls), leaves(params)[0]

    first, expected = run(functools.partial(Noted, 0))
    assert first > 0
    again, params = run(functools.partial(Noted, 0))
    assert again == 0
    np.testing.assert_array_equal(params, expected)
    # The graph is the same, so that an epoch is; the start is another.
    traced, other = run(functools.partial(Noted, 100))
    assert traced == 0
    assert (other > 50).all()
    assert run(functools.partial(Noted, 0), dataclasses.replace(QUICK, l1_weight=0.5))[0] > 0
    start = 100
    # What a function holds may change.
    held = lambda rngs: Noted(start, rngs)  # noqa: E731
    np.testing.assert_array_equal(run(held)[1], other)
    in_part = functools.partial(lambda rngs, start_of: Noted(start + start_of, rngs), start_of=0)
    np.testing.assert_array_equal(run(in_part)[1], other)
    start = 0
    np.testing.assert_array_equal(run(held)[1], expected)
    np.testing.assert_array_equal(run(in_part)[1], expected)


def test_progress_goes_to_standard_error(capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    x, y = linear_data(m=40)
    train(keys(1), maker(), x, y, QUICK, validation=(x, y), progress=True)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "6/6" in captured.err
