"""`drjax attack model` on digits: networks of our training and of scikit-learn's, refusals, and bad input."""

import dataclasses
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import safetensors.numpy
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier

from drjax.attacks.reconstruction.training_inversion.problem import Problem
from drjax.cli import main, model_commands
from drjax.core.types import Status
from drjax.nets.classifier_training import Training, train_many
from drjax.nets.classifiers import Classifier
from drjax.nets.weights_files import write_params

N_KNOWN, D = 80, 64
OURS = Training(epochs=20)
THEIRS = Training(model=Classifier(activation="tanh"), epochs=50, learning_rate=0.2)


@dataclasses.dataclass(frozen=True)
class Case:
    folder: Path
    target: np.ndarray
    label: int

    def arguments(self, **change):
        """Of `OURS`; an option may be changed, added, or left out with None."""
        files = {"known": "known.npz", "weights": "released.safetensors", "init": "start.npz", "out": "found.npz"}
        options = {name: self.folder / file for name, file in files.items()} | {"epochs": OURS.epochs} | change
        words = ["attack", "model"]
        for name, value in options.items():
            if value is not None:
                values = value if isinstance(value, tuple) else (value,)
                words += [f"--{name.replace('_', '-')}", *map(str, values)]
        return words

    def found(self):
        with np.load(self.folder / "found.npz") as arrays:
            return dict(arrays)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Files of a digit and of its release by our trainer and by scikit-learn's, made once."""
    folder = tmp_path_factory.mktemp("made")
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    x, y = x[order] / 16, y[order]
    known_x, known_y = x[:N_KNOWN], y[:N_KNOWN]
    np.savez(folder / "known.npz", x=known_x, y=known_y)
    np.savez(folder / "others.npz", x=x[N_KNOWN : 2 * N_KNOWN], y=y[N_KNOWN : 2 * N_KNOWN])
    table = ",".join([*(f"p{i}" for i in range(D)), "digit"])
    rows = np.column_stack([known_x, known_y])
    np.savetxt(folder / "known.csv", rows, delimiter=",", header=table, comments="", fmt="%.17g")

    start = jax.tree.map(np.asarray, OURS.model.init(jax.random.key(1), D))
    write_params(folder / "start.npz", start)
    with jax.enable_x64(True):
        released = train_many(OURS, known_x, known_y, x[-1:], y[-1:], init=start)
    write_params(folder / "released.safetensors", jax.tree.map(lambda leaf: leaf[0], released))

    problem = Problem(OURS, known_x.astype(np.float32), known_y, init=start, batches=None)
    theta = problem.run(x[-1:], np.zeros(1, int), with_target=False)[0].astype(np.float32)
    w1, b1, w2, b2 = np.split(theta, np.cumsum([640, 10, 100]))
    without = ({"w": w1.reshape(10, D), "b": b1}, {"w": w2.reshape(10, 10), "b": b2})
    write_params(folder / "without.npz", without)

    model = _fitted(start, x[-1:], y[-1:], known_x, known_y)
    arrays = {f"coefs_{i}": np.ascontiguousarray(w) for i, w in enumerate(model.coefs_)}
    arrays |= {f"intercepts_{i}": b for i, b in enumerate(model.intercepts_)}
    np.savez(folder / "theirs.npz", allow_pickle=False, **arrays)
    safetensors.numpy.save_file(arrays, folder / "theirs.safetensors")
    return folder, x[-1], int(y[-1])


class _FromOurStart(MLPClassifier):
    """scikit-learn's network, its arithmetic and its steps, from a start that the adversary knows."""

    def __init__(self, start: Any = None, **settings):
        super().__init__(**settings)
        self.start = start

    def _initialize(self, y, layer_units, dtype):
        super()._initialize(y, layer_units, dtype)
        self.coefs_ = [layer["w"].T.astype(dtype).copy() for layer in self.start]
        self.intercepts_ = [layer["b"].astype(dtype).copy() for layer in self.start]


def _fitted(start, x, y, known_x, known_y):
    model = _FromOurStart(
        start=start,
        hidden_layer_sizes=(10,),
        activation="tanh",
        solver="sgd",
        batch_size=N_KNOWN + 1,
        learning_rate_init=THEIRS.learning_rate,
        nesterovs_momentum=False,
        alpha=0.0,
        max_iter=THEIRS.epochs,
        n_iter_no_change=1000,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(np.concatenate([x, known_x]), np.concatenate([y, known_y]))


@pytest.fixture
def case(made, tmp_path):
    folder, target, label = made
    for file in folder.iterdir():
        (tmp_path / file.name).symlink_to(file)
    return Case(tmp_path, target, label)


def refusal(capsys, arguments, code):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == code
    return capsys.readouterr()


def test_a_digit_and_its_label_come_back_from_our_training(case, capsys):
    main(case.arguments(picture=case.folder / "digit.png", image_shape=(8, 8)))
    said = capsys.readouterr().out
    found = case.found()
    assert np.mean((found["x"] - case.target) ** 2) < 1e-6
    assert found["y"] == case.label
    assert found["status"] == Status.OK
    assert found["residual_norm"] < 1e-4
    assert f"Label: {case.label}\n" in said
    assert "Share of the release explained: 99.99" in said
    mse, mean = found["expected_mse"], found["mean_mse"]
    assert mse < 1e-6
    assert f"Reconstructed to a root mean square error of about {np.sqrt(mse):.2g} a feature, where the mean" in said
    assert f"(mean squared errors {mse:.2g} and {mean:.2g})" in said
    with Image.open(case.folder / "digit.png") as image:
        drawn = np.asarray(image)
    assert drawn.shape == (256, 256)
    np.testing.assert_allclose(drawn[16::32, 16::32].ravel() / 255, case.target, atol=3e-3)  # half a grey level


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_a_digit_comes_back_from_a_network_that_scikit_learn_trained(case, capsys, suffix):
    options = {"hidden": 10, "activation": "tanh", "epochs": THEIRS.epochs, "learning_rate": THEIRS.learning_rate}
    known = {"known": case.folder / "known.csv", "label": "digit", "target_label": case.label}
    main(case.arguments(weights=case.folder / f"theirs{suffix}", **options, **known))
    assert "Reconstructed to a root mean square error of about" in capsys.readouterr().out
    found = case.found()
    assert np.mean((found["x"] - case.target) ** 2) < 1e-6
    assert found["y"] == case.label


def test_another_fixed_set_is_refused_and_nothing_is_claimed(case, capsys):
    picture = case.folder / "digit.png"
    arguments = case.arguments(
        known=case.folder / "others.npz", picture=picture, image_shape=(8, 8), target_label=case.label
    )
    said = refusal(capsys, arguments, 1).out
    assert "The attack failed, which says nothing about whether the release is safe" in said
    assert "Reconstructed" not in said
    assert "the known records, their scaling or their order; the start; the order of the batches" in said
    found = case.found()
    assert found["status"] == Status.NOT_CONVERGED
    assert f"(mean squared errors {found['expected_mse']:.2g} and {found['mean_mse']:.2g})" in said
    assert found["expected_mse"] > 0.15 * found["mean_mse"]
    assert not picture.exists()


def test_a_release_without_a_target_says_so(case, capsys):
    said = refusal(capsys, case.arguments(weights=case.folder / "without.npz", target_label=0), 1).out
    assert "No unknown record" in said
    assert case.found()["status"] == Status.DEGENERATE


def test_a_training_that_does_not_stay_finite_says_so(case, capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        said = refusal(capsys, case.arguments(learning_rate=1e200, target_label=0), 1).out
    assert "does not stay finite" in said


def test_batches_are_read_and_numbered_from_the_unknown_record(case, capsys):
    n = N_KNOWN + 1
    order = np.tile(np.roll(np.arange(n), 3), (OURS.epochs, 1))  # full batches, written out
    np.save(case.folder / "order.npy", order)
    main(case.arguments(batches=case.folder / "order.npy", target_label=case.label, batch_size=n))
    assert "Reconstructed to a root mean square error of about" in capsys.readouterr().out
    assert np.mean((case.found()["x"] - case.target) ** 2) < 1e-6


def test_bad_input_is_one_line_and_nothing_is_written(case, capsys, monkeypatch):
    def worked(*_, **__):
        raise AssertionError("worked before all was checked")

    monkeypatch.setattr(Problem, "run", worked)
    folder = case.folder
    start = OURS.model.init(jax.random.key(1), D)
    start[1]["b"] = np.full(10, np.nan)
    write_params(folder / "nan.npz", start)
    with np.load(folder / "known.npz") as known:
        np.savez(folder / "labels.npz", x=known["x"], y=known["y"] + 1)
        np.savez(folder / "few.npz", x=known["x"], y=known["y"][1:])
        np.savez(folder / "grey.npz", x=known["x"] * 255, y=known["y"])
        np.savez(folder / "no_y.npz", x=known["x"])
    (folder / "damaged.npz").write_bytes(b"PK\x03\x04 nothing")
    (folder / "text.csv").write_text("a,digit\n.1,two\n.2,three\n")
    np.save(folder / "order.npy", np.full((3, 5), 200))
    before = sorted(folder.iterdir())
    for change, words in (
        ({"hidden": 12}, ["released.safetensors must hold 2 layers with weights (12, 64), (10, 12)", "(10, 64)"]),
        ({"architecture": "mlp-100"}, ["must hold 2 layers with weights (100, 64)"]),
        ({"architecture": "resnet"}, ["architecture must be one of", "'resnet'"]),
        ({"architecture": "mlp", "hidden": 10}, ["hidden must be left out with --architecture mlp"]),
        ({"activation": "maxout"}, ["activation must be one of", "'maxout'"]),
        ({"n_classes": 1}, ["n_classes must be an integer >= 2"]),
        ({"weights": folder / "nan.npz"}, ["1.b of", "nan.npz must be finite"]),
        ({"weights": folder / "known.csv"}, ["must end in .safetensors or .npz"]),
        ({"weights": folder / "damaged.npz"}, ["damaged.npz is damaged"]),
        ({"init": folder / "nothing.npz"}, ["there is no file", "nothing.npz"]),
        ({"known": folder / "nothing.npz"}, ["there is no file", "nothing.npz"]),
        ({"known": folder / "damaged.npz"}, ["intact npz file", "damaged.npz"]),
        ({"known": folder / "labels.npz"}, ["y of", "labels.npz must be integers from 0 to 9, got 10"]),
        ({"known": folder / "few.npz"}, [f"must be {N_KNOWN} classes"]),
        ({"known": folder / "no_y.npz"}, ["must hold the records as x (n, d) and their classes as y"]),
        ({"known": folder / "known.csv"}, ["label must name the column of the classes", "got None"]),
        ({"known": folder / "text.csv", "label": "digit"}, ["must hold 2 layers with weights (10, 1)"]),
        ({"known": folder / "order.npy"}, ["must end in .npz, or in .csv"]),
        ({"known": folder / "grey.npz"}, ["bounds must hold all values, got 0 and 1", "to 255", "--bounds"]),
        ({"public": folder / "grey.npz"}, ["where those of public go from 0 to 255"]),
        ({"bounds": (1, 0)}, ["bounds must"]),
        ({"target_label": 10}, ["target_label must be integers from 0 to 9, got 10"]),
        ({"batch_size": 50}, ["batches must be given where batch_size 50 is less than n = 81"]),
        ({"batches": folder / "order.npy"}, [f"batches must name records from 0 to {N_KNOWN}"]),
        ({"batches": folder / "known.npz"}, ["must be an NPY file with one array"]),
        ({"batches": folder / "damaged.npz"}, ["damaged.npz is damaged or no NPY file"]),
        ({"epochs": 0}, ["epochs must be an integer >= 1"]),
        ({"learning_rate": "nan"}, ["learning_rate must be > 0, got nan"]),
        ({"momentum": 1}, ["momentum must be in [0, 1)"]),
        ({"out": folder / "known.npz"}, ["out must be a new file"]),
        ({"picture": folder / "p.png"}, ["picture and image_shape must be given together"]),
        ({"picture": folder / "p.png", "image_shape": (7, 8)}, ["of 64 values in all, got (7, 8)"]),
        ({"picture": folder / "p.jpg", "image_shape": (8, 8)}, ["picture must end in .png"]),
    ):
        error = refusal(capsys, case.arguments(**change), 2).err
        assert error.count("\n") == 1
        for word in words:
            assert word in error
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize(
    ("residual", "share"), [(0.0, "100%"), (3e-7, "99.99997%"), (0.004, "99.6%"), (0.25, "75.0%"), (1.7, "0%")]
)
def test_a_share_is_never_rounded_up_to_the_whole(residual, share):
    assert model_commands._share(residual) == share
