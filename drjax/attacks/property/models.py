"""Attack models: from a map, or a picture of one, to the share of its records that have a property.

Three kinds. "picture" is a densely connected network on what `raster.draw` draws, the paper's attack; "set" is a
network on the coordinates that rotation, mirror image, scale and order do not reach; "descriptors" is kernel ridge
regression on a few hundred invariant numbers of a map, which needs no training loop.

Source: "Property inference attacks against t-SNE plots" (2022), whose attack is a DenseNet-121 on 300 x 300 pictures.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from flax import nnx
from jax.sharding import Mesh
from scipy.special import softmax

from drjax.attacks.property import invariants
from drjax.attacks.property.kernel_model import KernelRidge, fit_kernel_ridge
from drjax.attacks.reconstruction.ensembles import mean_output, read_model, train_members
from drjax.core import validate
from drjax.core.kernel_regression import Choice, KernelRegression, Radial, matern
from drjax.core.statistics import conformal_radius
from drjax.core.types import Array, PyTree, is_usable
from drjax.data.preprocess import StandardScaler
from drjax.nets import arrays, densenet_files, plot_networks, set_network
from drjax.nets.plot_networks import PlotNetworkConfig
from drjax.nets.set_network import SetNetworkConfig
from drjax.nets.training import History, MakeModel, TrainConfig, abstract_state
from drjax.nets.training_data import as_inputs

TASKS = ("regression", "classification")
KINDS = ("picture", "set", "descriptors")
MAX_CLASSES = 101
CLASSIFICATION_LOSSES = ("cross_entropy", "mse")


@dataclass(frozen=True, kw_only=True)
class PropertyConfig(TrainConfig):
    """The attack model and how it is trained; networks that regress minimise the mean squared error.

    Attributes:
        classification_loss: What networks that classify minimise: "cross_entropy", or "mse" of the classes' indicators.
        n_ensemble: Networks from different keys whose outputs are averaged, >= 1; trained side by side.
        validation_share: Share in (0, 1) of the maps that early stopping looks at; "descriptors" trains on them.
        calibration_share: Share in (0, 1) of the maps that intervals are calibrated on, and nothing else.
        network: Network of kind "picture"; with its `turns`, answers are means over the eight turns of a picture.
        weights: Path of published weights for it, see `drjax.nets.densenet_files`; None starts at random.
        set_network: Network of kind "set".
        aligned: Kind "set" sees aligned coordinates too; see `invariants.point_features`.
    """

    epochs: int = 60
    batch_size: int = 16
    learning_rate: float = 1e-2
    schedule: str = "cosine"
    warmup_epochs: int = 1
    patience: int = 60
    drop_last: bool = True
    l1_weight: float = 0.0
    classification_loss: str = "cross_entropy"
    n_ensemble: int = 1
    validation_share: float = 0.15
    calibration_share: float = 0.15
    network: PlotNetworkConfig = plot_networks.CONFIGS["cpu"]
    weights: str | None = None
    set_network: SetNetworkConfig = field(default_factory=SetNetworkConfig)
    aligned: bool = False

    def __post_init__(self) -> None:
        """Checks every field."""
        super().__post_init__()
        validate.one_of(CLASSIFICATION_LOSSES, classification_loss=self.classification_loss)
        validate.integer(n_ensemble=self.n_ensemble)
        validate.positive(validation_share=self.validation_share, calibration_share=self.calibration_share)
        if not self.validation_share + self.calibration_share < 1:
            raise ValueError(
                "validation_share + calibration_share must be < 1, got "
                f"{self.validation_share} + {self.calibration_share}"
            )


CONFIGS = {
    "picture": PropertyConfig(),
    "set": PropertyConfig(epochs=40, patience=40, batch_size=32, learning_rate=1e-2, aligned=True),
    "descriptors": PropertyConfig(),
}
"""Default configurations of `fit` by kind of attack."""


class Prediction(NamedTuple):
    """What a model says of g maps.

    Attributes:
        proportion: (g,) in [0, 1]; of a classifier, that of the most probable class.
        expected: (g,) the mean of the classes' proportions under their probabilities; `proportion` in regression.
        probabilities: (g, c), rows summing to 1; None in regression.
    """

    proportion: np.ndarray
    expected: np.ndarray
    probabilities: np.ndarray | None


@dataclass(frozen=True)
class PropertyModel:
    """A trained attack.

    Attributes:
        task: "regression" or "classification".
        kind: "picture", "set" or "descriptors".
        config: Configuration, as given to `fit`.
        classes: (c,) ascending proportions of a classifier; empty in regression.
        residuals: (r,) ascending |expected - true| on the maps of the calibration part.
        state: Weights of the networks with a leading axis of members; None for "descriptors".
        member_status: (members,) uint32 flags; those with an excluding flag do not enter the mean.
        scaler: Scaler of the points' features, for "set".
        kernel: Kernel ridge regression, for "descriptors".
        history: History of the training; None for "descriptors" and after `load`.
    """

    task: str
    kind: str
    config: PropertyConfig
    classes: np.ndarray
    residuals: np.ndarray
    state: PyTree = None
    member_status: np.ndarray = field(default_factory=lambda: np.zeros(0, np.uint32))
    scaler: StandardScaler | None = None
    kernel: KernelRidge | None = None
    history: History | None = None

    def predict(self, inputs: Array | Sequence[Array]) -> Prediction:
        """The proportions of g inputs, of the kind that `fit` was given.

        Raises:
            ValueError: inputs that `fit` would refuse, or no member of the ensemble that training did not fail.
        """
        if self.kernel is not None:
            value = self.kernel.predict(invariants.descriptors(inputs))
            if self.task == "regression":
                share = np.clip(value, 0, 1)
                return Prediction(share, share, None)
            distance = (value[:, None] - self.classes) / self.kernel.loo_error
            return self._of_probabilities(softmax(-(distance**2) / 2, axis=1))
        make = _maker(self.kind, self.task, self.config, max(1, len(self.classes)))
        found = _network_inputs(self.kind, self.config, inputs, self.scaler)
        if not is_usable(self.member_status).any():
            raise ValueError("predict needs a member whose training did not fail, got none: fit with a smaller rate")
        n_turns = plot_networks.N_TURNS if self.kind == "picture" and self.config.network.turns else 1
        # All turns in one call: each would trace the network anew.
        views = np.concatenate([plot_networks.turned_by(how, found) for how in range(n_turns)])
        each = mean_output(make, self.state, self.member_status, views, max(1, len(self.classes)))
        outputs = each.reshape(n_turns, len(found), -1).mean(axis=0, dtype=np.float64)
        if self.task == "regression":
            return Prediction(outputs[:, 0], outputs[:, 0], None)
        return self._of_probabilities(outputs)

    def _of_probabilities(self, probabilities: np.ndarray) -> Prediction:
        best = self.classes[probabilities.argmax(axis=1)]
        return Prediction(best, probabilities @ self.classes, probabilities)

    def interval(self, inputs: Array | Sequence[Array], level: float = 0.9) -> np.ndarray:
        """(g, 2) intervals around `expected`, cut to [0, 1]: split conformal prediction.

        If the maps of the calibration part and a new one are exchangeable, the new one's proportion lies in its
        interval with a probability of at least `level`, and of at most level + 1 / (r + 1) if no two residuals are
        equal; over calibration and new map together, not for each map. Of maps made otherwise (other records,
        another t-SNE) it promises nothing. With fewer than level / (1 - level) residuals it is [0, 1].

        Raises:
            ValueError: level not in (0, 1), or inputs that `predict` refuses.

        Source: Vovk, Gammerman & Shafer (2005); Lei et al. (2018), theorem 2.2.
        """
        reach = conformal_radius(self.residuals, level)
        expected = self.predict(inputs).expected
        return np.clip(np.stack([expected - reach, expected + reach], axis=1), 0, 1)

    def save(self, path: str | Path) -> None:
        """Writes an npz file that `load` reads; no pickle, and never half a file."""
        header = {"task": self.task, "kind": self.kind, "config": dataclasses.asdict(self.config)}
        fields = {"classes": self.classes, "residuals": self.residuals, "member_status": self.member_status}
        if self.scaler is not None:
            fields |= {"offset": self.scaler.offset, "scale": self.scaler.scale}
        if self.kernel is not None:
            kernel = self.kernel
            found = kernel.regression
            header |= {"intercept": float(found.intercept), "unit": found.unit, "loo_error": kernel.loo_error}
            fields |= {"inputs": found.inputs, "weights": found.weights}
            fields |= {"offset": kernel.scaler.offset, "scale": kernel.scaler.scale}
        else:
            fields |= arrays.flatten(self.state, "state")
        arrays.write_npz(Path(path), header, fields)

    @classmethod
    def load(cls, path: str | Path) -> PropertyModel:
        """Reads what `save` wrote; the file of published weights is not needed again.

        Raises:
            ValueError: the file is damaged or not such a model's.
            FileNotFoundError: there is no file.
        """
        names = {"classes", "residuals", "member_status"}
        header, fields = read_model(path, "PropertyModel", {"task", "kind", "config"}, names)
        options = dict(header["config"])
        options["network"] = PlotNetworkConfig(**options["network"] | {"blocks": tuple(options["network"]["blocks"])})
        options["set_network"] = SetNetworkConfig(**options["set_network"])
        config = PropertyConfig(**options)
        task, kind, classes = header["task"], header["kind"], fields["classes"]
        validate.one_of(TASKS, task=task)
        validate.one_of(KINDS, kind=kind)
        scaler = StandardScaler(fields["offset"], fields["scale"]) if "offset" in fields else None
        model = cls(task, kind, config, classes, fields["residuals"], member_status=fields["member_status"])
        if kind == "descriptors":
            if scaler is None:
                raise ValueError(f"{path} must be a saved PropertyModel, got an npz file without its fields")
            loo_error, intercept = header["loo_error"], np.asarray(header["intercept"])
            # Files do not hold the penalty, which no prediction takes.
            choice = Choice(loo_error**2, math.nan, Radial(header["unit"], matern))
            regression = KernelRegression(fields["inputs"], fields["weights"], intercept, choice)
            return dataclasses.replace(model, kernel=KernelRidge(scaler, regression, loo_error))
        make = _maker(kind, task, config, max(1, len(classes)))
        state = arrays.unflatten(abstract_state(make, config.n_ensemble), fields, "state")
        return dataclasses.replace(model, state=state, scaler=scaler)


def fit(
    key: Array,
    inputs: Array | Sequence[Array],
    proportions: Array,
    *,
    task: str = "regression",
    kind: str = "picture",
    config: PropertyConfig | None = None,
    redrawn: Array | None = None,
    mesh: Mesh | None = None,
    checkpoint: Path | None = None,
    progress: bool = False,
) -> PropertyModel:
    """Trains an attack on maps of known proportion.

    Args:
        key: Decides the split, initialisation, shuffling and turns; ensemble member e uses fold_in(key, e).
        inputs: Maps. For "picture", (m, size, size) or (m, size, size, 3) pictures in [0, 255], white 255 (fastest in
            uint8); for the other kinds, maps (m, n, 2) or m arrays (n_i, 2).
        proportions: (m,) in [0, 1]; the classes of a classifier are the values that occur.
        task: "regression" or "classification".
        kind: "picture", "set" or "descriptors".
        config: How to train; that of the kind in `CONFIGS` if None.
        mesh: Devices to train on, see `drjax.nets.training.train`.
        checkpoint: Checkpoint file, see `drjax.nets.training.train`; yours to delete once the model is saved.
        redrawn: (m, v, ...) v further pictures of each map for kind "picture", as of the map turned by any angle: in
            training a step sees the map's own picture or one of these, at random. All else sees its own alone.
        progress: Show a bar of epochs on standard error.

    Raises:
        ValueError: inputs or proportions out of range or of unequal number, too few for three parts, fewer than two
            classes or more than `MAX_CLASSES`, or a checkpoint of another run.
    """
    validate.prng_key(key)
    validate.one_of(TASKS, task=task)
    validate.one_of(KINDS, kind=kind)
    config = config if config is not None else CONFIGS[kind]
    y = np.asarray(proportions, np.float64)
    if y.ndim != 1 or len(y) != len(inputs):
        raise ValueError(f"proportions must be one number per input, {len(inputs)}, got shape {y.shape}")
    validate.probability(proportions=y)
    classes = np.unique(y) if task == "classification" else np.zeros(0)
    if task == "classification" and not 2 <= len(classes) <= MAX_CLASSES:
        raise ValueError(f"proportions must have 2 to {MAX_CLASSES} values for a classifier, got {len(classes)}")

    if redrawn is not None and (kind != "picture" or np.ndim(redrawn) < 2 or len(redrawn) != len(y)):
        raise ValueError(f"redrawn must be pictures (m, v, ...) of the {len(y)} maps of kind picture, got {kind}")

    split_key, train_key = jax.random.split(key)
    order = np.asarray(jax.random.permutation(split_key, len(y)))
    n_held, n_check = (math.ceil(s * len(y)) for s in (config.validation_share, config.calibration_share))
    if len(y) - n_held - n_check < 2:
        raise ValueError(f"inputs must be at least 2 beside the {n_held} and {n_check} held out, got {len(y)}")
    held, check, train = np.split(order, [n_held, n_held + n_check])

    model = PropertyModel(task, kind, config, classes, np.zeros(0))
    if kind == "descriptors":
        found = invariants.descriptors(_taken(inputs, np.concatenate([held, train])))
        model = dataclasses.replace(model, kernel=fit_kernel_ridge(found, y[np.concatenate([held, train])]))
    else:
        targets = y[:, None] if task == "regression" else (y[:, None] == classes).astype(np.float64)
        scaler = None
        if kind == "set":
            points = invariants.point_features(_taken(inputs, train), aligned=config.aligned)
            # Of the points alone, without padding and without the column that says which is which.
            scaler = StandardScaler.fit(points[points[..., -1] > 0][:, :-1])
        found = _network_inputs(kind, config, inputs, scaler)
        shown = found[train]
        if redrawn is not None:
            further = np.asarray(redrawn)[train]
            own = _pictures(further.reshape(-1, *further.shape[2:]), config.network, "redrawn")
            shown = np.concatenate([shown[:, None], own.reshape(further.shape)], axis=1)
        state, history = train_members(
            train_key,
            config.n_ensemble,
            _maker(kind, task, config, targets.shape[1], fresh=True),
            shown,
            targets[train],
            config,
            validation=(found[held], targets[held]),
            loss="cross_entropy" if task == "classification" and config.classification_loss != "mse" else "errors",
            mesh=mesh,
            checkpoint=checkpoint,
            tag=f"property {kind} {task}",
            progress=progress,
        )
        model = dataclasses.replace(model, state=state, member_status=history.status, scaler=scaler, history=history)
    expected = model.predict(_taken(inputs, check)).expected
    return dataclasses.replace(model, residuals=np.sort(np.abs(expected - y[check])))


def network_of(model: PropertyModel) -> tuple[Any, PyTree]:
    """The graph of a model's network in evaluation mode, and the states of the members that training did not fail.

    Raises:
        ValueError: a model without networks, or whose members all failed.
    """
    usable = is_usable(model.member_status)
    if not usable.any():
        raise ValueError(f"model must have a network that training did not fail, got none of {len(usable)}")
    make = _maker(model.kind, model.task, model.config, max(1, len(model.classes)))
    network = nnx.eval_shape(lambda: make(nnx.Rngs(params=0)))
    network.eval()
    return nnx.graphdef(network), jax.tree.map(lambda leaf: leaf[usable], model.state)


def _maker(kind: str, task: str, config: PropertyConfig, n_outputs: int, *, fresh: bool = False) -> MakeModel:
    """Networks of the model's shape; for training (`fresh`), with the published weights if there are any."""
    if kind == "set":
        n_features = invariants.N_POINT_FEATURES + (invariants.N_ALIGNED if config.aligned else 0)
        return set_network.maker(config.set_network, n_features, task, n_outputs)
    if fresh and config.weights is not None:
        published = densenet_files.read_densenet(config.weights, config.network)
        return densenet_files.pretrained_maker(published, config.network, task, n_outputs)
    return plot_networks.maker(config.network, task, n_outputs)


def _network_inputs(
    kind: str, config: PropertyConfig, inputs: Array | Sequence[Array], scaler: StandardScaler | None
) -> np.ndarray:
    if kind == "picture":
        return _pictures(inputs, config.network)
    points = invariants.point_features(inputs, aligned=config.aligned)
    assert scaler is not None
    points[..., :-1] = scaler.transform(points[..., :-1]) * points[..., -1:]
    return points


def _pictures(inputs: Any, network: PlotNetworkConfig, name: str = "inputs") -> np.ndarray:
    pictures = np.asarray(inputs)
    shape = (network.size, network.size) + ((3,) if network.channels == 3 else ())
    if pictures.shape[1:] != shape or len(pictures) == 0:
        raise ValueError(f"{name} must be pictures of shape {('m', *shape)}, got {pictures.shape}")
    validate.finite(**{name: pictures})
    if pictures.min() < 0 or pictures.max() > 255:
        raise ValueError(f"{name} must be pictures in [0, 255], got {pictures.min()} to {pictures.max()}")
    return as_inputs(pictures)


def _taken(inputs: Array | Sequence[Array], rows: np.ndarray) -> Any:
    return inputs[rows] if isinstance(inputs, (np.ndarray, jax.Array)) else [inputs[int(i)] for i in rows]
