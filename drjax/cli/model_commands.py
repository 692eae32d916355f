"""Commands about networks: `drjax attack model` on files, `drjax audit-model` on a data set."""

from __future__ import annotations

import dataclasses
import math
import shlex
import sys
from pathlib import Path
from typing import Annotated, Literal

import jax
import numpy as np
import tyro
from PIL import Image
from rich.console import Console

from drjax import data as datasets
from drjax.attacks.reconstruction.training_inversion import reconstruct_model
from drjax.attacks.reconstruction.training_inversion.model import mean_error
from drjax.audits import ModelAuditConfig, run
from drjax.audits.folder import run_folder
from drjax.cli.commands import check_new
from drjax.cli.model_files import labelled_records
from drjax.cli.printed import print_plan, print_verdict, to_correct
from drjax.core import executors, validate
from drjax.core.types import Status
from drjax.data.own_table import OPTIONS
from drjax.nets.classifier_training import Training, check_labels
from drjax.nets.classifiers import ACTIVATIONS, ARCHITECTURES, Classifier
from drjax.nets.weights_files import read_params
from drjax.reports import ladder, records

_FAILED = "The attack failed, which says nothing about whether the release is safe"

PICTURE_SIDE = 256
"""Pixels of the longer side of a picture, at least: of a digit of 8 x 8, a viewer shows a dot."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Network:
    """The architecture of the released model.

    Attributes:
        architecture: Name of the network; mlp if neither this nor --hidden is given.
        hidden: Widths of the dense hidden layers, instead of --architecture; none if no number follows.
        activation: Activation of the hidden layers; if not given elu, or the named network's.
        n_classes: Number of classes.
    """

    architecture: Annotated[str | None, tyro.conf.arg(metavar=f"{{{','.join(ARCHITECTURES)}}}")] = None
    hidden: tuple[int, ...] | None = None
    activation: Annotated[str | None, tyro.conf.arg(metavar=f"{{{','.join(ACTIVATIONS)}}}")] = None
    n_classes: int = 10

    def classifier(self) -> Classifier:
        """The network that the options ask for.

        Raises:
            ValueError: an unknown name, or both a named network and widths.
        """
        if self.hidden is not None and self.architecture is not None:
            raise ValueError(f"hidden must be left out with --architecture {self.architecture}, got {self.hidden}")
        if self.architecture is not None:
            validate.one_of(ARCHITECTURES, architecture=self.architecture)
        named = ARCHITECTURES[self.architecture or next(iter(ARCHITECTURES))]
        return dataclasses.replace(
            named,
            hidden=named.hidden if self.hidden is None else self.hidden,
            activation=named.activation if self.activation is None else self.activation,
            n_classes=self.n_classes,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Descent:
    """How the released model was trained.

    Attributes:
        optimizer: Optimizer: sgd, or adam with beta 0.9 and 0.999 and epsilon 1e-8.
        learning_rate: Learning rate, the same at every step.
        momentum: Momentum of sgd, in [0, 1).
        nesterov: Whether the momentum is Nesterov's.
        epochs: Number of passes over all n records, the unknown one included; with full batches, of steps.
        batch_size: Number of records per step; all if not given. If fewer than n, --batches must say which.
        l2: Weight of |weights|^2 / 2 beside the mean cross-entropy: PyTorch's weight_decay where biases have none;
            scikit-learn's alpha / n in full batches.
    """

    optimizer: Literal["sgd", "adam"] = "sgd"
    learning_rate: float = 0.1
    momentum: float = 0.9
    nesterov: bool = False
    epochs: int = 100
    batch_size: int | None = None
    l2: float = 0.0

    def training(self, model: Classifier) -> Training:
        """The training of a model.

        Raises:
            ValueError: what `Training` refuses.
        """
        return Training(model=model, **dataclasses.asdict(self))


def attack_model(
    known: Path,
    weights: Path,
    init: Path,
    out: Path,
    *,
    network: Annotated[Network, tyro.conf.arg(name="")] = Network(),
    descent: Annotated[Descent, tyro.conf.arg(name="")] = Descent(),
    label: str | None = None,
    batches: Path | None = None,
    target_label: int | None = None,
    public: Path | None = None,
    bounds: tuple[float, float] | Literal["none"] = (0.0, 1.0),
    schema: Path | None = None,
    image_shape: tuple[int, ...] | None = None,
    picture: Path | None = None,
) -> None:
    """Reconstruct the one unknown training record of a released network, and its label, from the other records.

    The start, the hyperparameters and the order of the training must be known; a training that draws anything else
    (dropout, augmentation, noise) is out of reach. Records are taken as they are: scale them as the training script
    did. Tables that hold more than numbers become features by a plan, which is said; the network must have been trained
    on these. Exit status: 0 if the record is reconstructed; 1 if the attack failed, which shows nothing about safety; 2
    for bad input.

    Args:
        known: Known records: an NPZ file with x (n-1, d) and y (n-1,), or a table (CSV, Excel, Parquet) with --label.
        weights: Released weights (safetensors or NPZ), named as PyTorch, Flax, Keras or scikit-learn name them.
        init: Weights that training began with, in a file of the same form.
        out: NPZ file to write: x (d,), y, residual_norm (the share of the release that is not explained), expected_mse
            (the mean squared error that x is expected to have), mean_mse (that of the mean record) and status. A status
            other than 0 says that x and y are only the nearest that was found.
        network: The architecture.
        descent: The training.
        label: Column of the tables with the classes: integers from 0, or texts, which count from 0 in their order.
        batches: NPY file (steps, b) with the records of each step: 0 is the unknown one, 1 the first known one and so
            on; negative 1 fills up a shorter batch.
        target_label: Class of the unknown record, if it is known.
        public: Other records that look like the unknown one, in a file like --known; the known ones if not given.
        bounds: Least and greatest value of a feature, or none.
        schema: File that says what the columns of tables are; see `drjax data plan`.
        image_shape: Height, width and perhaps channels of a record, for --picture.
        picture: PNG file to write of the record, if it is reconstructed.
    """
    model = network.classifier()
    training = descent.training(model)
    check_new(out)
    (x, y), like = labelled_records(known, public, label, model.n_classes, schema)
    d = x.shape[1]
    limits = None if bounds == "none" else bounds
    for name, values in {"known": x, "public": x if like is None else like[0]}.items():
        if limits is not None and not limits[0] <= values.min() <= values.max() <= limits[1]:
            raise ValueError(
                f"bounds must hold all values, got {limits[0]:g} and {limits[1]:g} where those of {name} go from "
                f"{values.min():g} to {values.max():g}: pass other --bounds, or none"
            )
    if (picture is None) != (image_shape is None):
        raise ValueError("picture and image_shape must be given together: pass both --picture and --image-shape")
    if picture is not None and image_shape is not None:
        _check_picture(picture, image_shape, d, out)
    classes = None if target_label is None else np.array([target_label])
    if classes is not None:
        check_labels(classes, 1, model.n_classes, "target_label")
    released, start = read_params(weights, model, d), read_params(init, model, d)
    # A training that does not stay finite is reported by the status, in words.
    with np.errstate(over="ignore", invalid="ignore"):
        found = reconstruct_model(
            training,
            jax.tree.map(lambda leaf: leaf[None], released),
            x,
            y,
            init=start,
            batches=None if batches is None else _order(batches),
            target_y=classes,
            public=like,
            bounds=limits,
        )
    assert found.y is not None
    assert found.expected_mse is not None
    residual, expected, status = found.residual_norm[0], found.expected_mse[0], found.status[0]
    mean = mean_error(x if like is None else like[0])
    records.save_arrays(
        out, x=found.x[0], y=found.y[0], residual_norm=residual, expected_mse=expected, mean_mse=mean, status=status
    )
    words = in_words(
        found.x[0], int(found.y[0]), float(residual), Status(int(status)), expected=float(expected), mean=mean
    )
    print(words)
    print(f"Written: {out}")
    if status != Status.OK:
        sys.exit(1)
    if picture is not None and image_shape is not None:
        _draw(picture, found.x[0].reshape(image_shape), limits)
        print(f"Written: {picture}")


def audit_model(
    *,
    data: str = "digits",
    network: Annotated[Network, tyro.conf.arg(name="")] = Network(),
    descent: Annotated[Descent, tyro.conf.arg(name="")] = Descent(),
    n_known: int = 299,
    n_shadow: int = 1000,
    n_targets: int = 20,
    attacks: tuple[str, ...] = (),
    epsilon: float | None = None,
    delta: float = 1e-5,
    clip_norm: float = 1.0,
    dtype: Literal["float32", "float64"] = "float32",
    data_dir: str | None = None,
    categorical: tuple[str, ...] = (),
    drop: tuple[str, ...] = (),
    label: str | None = None,
    schema: str | None = None,
    id: str | None = None,
    n_decoys: int = 1000,
    seed: int = 0,
    out: Path | None = None,
    resume: bool = False,
    executor: Annotated[str | None, tyro.conf.arg(metavar=f"{{{','.join(executors.NAMES)}}}")] = None,
    workers: int | None = None,
    quiet: bool = False,
) -> None:
    """Attack networks trained on a data set and write a report of what publishing one would give away.

    Args:
        data: Name of a data set or path of a file with labels.
        network: The architecture.
        descent: The training; the adversary knows its start and its order.
        n_known: Number of records that the adversary knows; a network is trained on one more.
        n_shadow: Number of public records, whose shadow models the learned attacks train on.
        n_targets: Number of records attacked, each in a network of its own.
        attacks: Attacks to run: quadratic, network and inversion, or all; inversion if none is given.
        epsilon: Epsilon of DP-GD, for a record that is zeroed out; no noise if not given.
        delta: Delta of DP-GD.
        clip_norm: Clipping norm of DP-GD: largest norm of a record's gradient.
        dtype: Precision that training computes in.
        data_dir: Folder of the named data sets.
        categorical: Columns of a table that are categories, where it is not seen.
        drop: Columns of a table to leave out.
        label: Column of a table with the classes.
        schema: File that says what the columns of a table are; see `drjax data plan`. Told by their cells if not given.
        id: Column of a table that records are called by; the first that tells them apart if not given.
        n_decoys: Number of decoys beside the target in the identification test.
        seed: Random seed.
        out: Run folder to write; runs/DATA-model-nN if not given, with a number behind it if that exists.
        resume: Go on with the interrupted run in the folder.
        executor: Where attacks are run: local for processes of this machine, ray, dask or slurm, whose workers must all
            reach the folder and the data; in this process if not given.
        workers: Workers to ask for; one per core, or what the cluster has, if not given.
        quiet: Print errors only.
    """
    config = ModelAuditConfig(
        data=data,
        data_dir=data_dir,
        categorical=categorical,
        drop=drop,
        label=label,
        schema=schema,
        id=id,
        training=descent.training(network.classifier()),
        n_known=n_known,
        n_shadow=n_shadow,
        n_targets=n_targets,
        epsilon=epsilon,
        delta=delta,
        clip_norm=clip_norm,
        dtype=dtype,
        attacks=attacks,
        n_decoys=n_decoys,
        seed=seed,
    )
    console = Console(quiet=quiet)
    command = shlex.join(["drjax", *sys.argv[1:]]) if Path(sys.argv[0]).stem == "drjax" else None
    folder = out or run_folder(f"{Path(data).stem}-model-n{n_known + 1}", resume=resume)
    given = datasets.load(data, data_dir=data_dir, **{name: getattr(config, name) for name in OPTIONS})
    if given.plan is not None and not quiet:
        print_plan(console, given)
        console.print(to_correct(config.data, config.schema), markup=False, soft_wrap=True)
        console.print(f"PRIVATE: what follows, and all in {folder}, is for the owner of the records.", markup=False)
    result = run(
        config,
        folder,
        data=given,
        executor=executor,
        workers=workers,
        resume=resume,
        progress=not quiet,
        command=command,
        console=console,
    )
    ladder.print_ladder(console, result.rows)
    assert result.accuracy is not None
    console.print(f"Accuracy of the networks on public records: {ladder.percent(result.accuracy)}")
    print_verdict(console, result.verdict)
    console.print(f"Report: {result.report}", soft_wrap=True)


def in_words(x: np.ndarray, y: int, residual: float, status: Status, *, expected: float, mean: float) -> str:
    """What was found, and how far to rely on it.

    Args:
        x: (d,) the record.
        y: Class of the record.
        residual: Share of the release that is not explained, nan where no training stays finite.
        status: OK, DEGENERATE, or else a refusal.
        expected: Mean squared error that x is expected to have, nan where nothing was found.
        mean: Error of the mean record.
    """
    if status & Status.DEGENERATE:
        return (
            "No unknown record: the released weights are, up to rounding, those of a training in which it counts "
            "for nothing.\nDoes the order of the batches name record 0?"
        )
    if status & Status.NON_FINITE:
        return (
            f"{_FAILED}: training with these options does not stay finite.\n"
            "Look at the learning rate, and at the scale of the records."
        )
    explained = f"Share of the release explained: {_share(residual)}"
    error = (
        f"a root mean square error of about {math.sqrt(expected):.2g} a feature, where the mean record has "
        f"{math.sqrt(mean):.2g} (mean squared errors {expected:.2g} and {mean:.2g})"
    )
    if status != Status.OK:
        return (
            f"{_FAILED}: the nearest record that was found is expected to have {error}.\n{explained}\n"
            "One of these may not be that of the release: the known records, their scaling or their order; the start; "
            "the order of the batches; a hyperparameter or the activation; the label, if given; the bounds. Or the "
            "weights are rounded too much, or were trained with the known records alone.\n"
            f"The nearest (label {y}) is written for inspection, and is not to be relied on."
        )
    # Of a feature that is 0, the solver leaves 1e-19 or so.
    clean = np.where(np.abs(x) < 1e-6 * np.abs(x).max(), 0, x)
    shown = ", ".join(f"{value:.4g}" for value in clean[:8]) + (", ..." if x.size > 8 else "")
    return f"Label: {y}\nRecord, {x.size} features: {shown}\nReconstructed to {error}.\n{explained}"


def _share(residual: float) -> str:
    """1 - residual as a percentage, never rounded up to the whole."""
    percent = 100 * max(0.0, 1 - residual)
    digits = min(9, max(1, math.ceil(-math.log10(residual)) - 2)) if 0 < residual < 1 else 0
    return f"{math.floor(percent * 10**digits) / 10**digits:.{digits}f}%"


def _order(path: Path) -> np.ndarray:
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}: check the path")
    try:
        loaded = np.load(path, allow_pickle=False)
    except Exception as error:  # NumPy raises errors of many kinds on damage
        raise ValueError(f"{path} is damaged or no NPY file: write the batches with numpy.save") from error
    if not isinstance(loaded, np.ndarray):
        raise ValueError(f"{path} must be an NPY file with one array (steps, b), got an NPZ file")
    return loaded


def _check_picture(picture: Path, shape: tuple[int, ...], d: int, out: Path) -> None:
    check_new(picture)
    if picture.suffix.lower() != ".png" or picture == out:
        raise ValueError(f"picture must end in .png, got {picture}")
    if len(shape) not in (2, 3) or shape[2:] not in ((), (1,), (3,)) or math.prod(shape) != d:
        raise ValueError(
            f"image_shape must be height, width and perhaps 1 or 3 channels, of {d} values in all, got {shape}"
        )


def _draw(path: Path, x: np.ndarray, limits: tuple[float, float] | None) -> None:
    """Black is the least value and white the greatest: of the bounds, or of the record without any."""
    low, high = limits or (x.min(), x.max())
    # A record of one value only has no contrast to show.
    levels = np.round(255 * (x - low) / (high - low if high > low else 1)).clip(0, 255).astype(np.uint8)
    image = Image.fromarray(levels[..., 0] if levels.shape[2:] == (1,) else levels)
    times = max(1, -(-PICTURE_SIDE // max(image.size)))
    with records.atomic_open(path) as file:
        image.resize((times * image.width, times * image.height), Image.Resampling.NEAREST).save(file, "PNG")
