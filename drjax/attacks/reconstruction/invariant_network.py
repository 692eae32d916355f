"""A network on invariant features, beside the kernel regression on them: what neither rotation nor mirroring hides.

`invariant` picks one kind of features and one width of kernel for all of the map. Here a network of residual blocks
sees three kinds at once and learns what matters where; the two are averaged with the weight that errs least on records
that neither was trained on.
"""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from drjax.attacks.attack import COMPILING, Cost, EmbeddingThreat, LearnedAttack
from drjax.attacks.reconstruction import invariant
from drjax.attacks.shadow import DENSE_FLOPS
from drjax.core import validate
from drjax.core.kernel_regression import Choice, KernelRegression, Radial
from drjax.core.types import Array, PyTree, Reconstruction, Status, is_usable
from drjax.data.preprocess import StandardScaler
from drjax.nets import arrays
from drjax.nets.residual import ResidualMLP
from drjax.nets.training import History, MakeModel, TrainConfig, abstract_state, predict, train

FEATURES = ("log distances", "affinities", "local affinities")
"""Kinds of `invariant.FEATURES` that the network sees, side by side."""


@dataclass(frozen=True, kw_only=True)
class InvariantNetworkConfig(TrainConfig):
    """The network and how it is trained; the squared error alone, since its mean is what is wanted.

    Attributes:
        width: Units of a layer, >= 1.
        n_blocks: Residual blocks, >= 0.
        dropout: Share of units left out in training, in [0, 1).
        n_outputs: Principal directions of the training records that the network predicts, at most; the rest stays at
            the mean.
        n_ensemble: Networks from different keys whose outputs are averaged, >= 1.
    """

    epochs: int = 40
    learning_rate: float = 1e-3
    schedule: str = "cosine"
    warmup_epochs: int = 1
    patience: int = 10
    drop_last: bool = True
    l1_weight: float = 0.0
    width: int = 512
    n_blocks: int = 2
    dropout: float = 0.4
    n_outputs: int = 128
    n_ensemble: int = 2

    def __post_init__(self) -> None:
        """Checks every field."""
        super().__post_init__()
        validate.integer(width=self.width, n_outputs=self.n_outputs, n_ensemble=self.n_ensemble)
        validate.integer(minimum=0, n_blocks=self.n_blocks)
        validate.non_negative(dropout=self.dropout)
        if not self.dropout < 1:
            raise ValueError(f"dropout must be < 1, got {self.dropout}")


@dataclass(frozen=True)
class InvariantNetwork:
    """A trained attack.

    Attributes:
        config: Configuration, as given to `fit`.
        kernel: The kernel regression beside the network.
        scaler: Scaler of the features.
        directions: (r, d) principal directions of the training records, orthonormal; mean (d,) of the records.
        mean: (d,) mean of the training records.
        state: Weights, with a leading axis of members.
        member_status: (members,) uint32 flags; those with an excluding flag do not enter the mean.
        weight: Weight of the network beside the kernel regression, in [0, 1].
    """

    config: InvariantNetworkConfig
    kernel: invariant.KernelModel
    scaler: StandardScaler
    directions: np.ndarray
    mean: np.ndarray
    state: PyTree
    member_status: np.ndarray
    weight: float

    def reconstruct(self, coords: Array) -> Reconstruction:
        """Reconstructs the targets of b releases, coords (b, n, k).

        A release that is not finite gives a row of nan with status NON_FINITE.

        Raises:
            ValueError: coords of another shape than in training.
        """
        result = self.kernel.reconstruct(coords)
        finite = result.status == Status.OK
        if self.weight > 0 and finite.any():
            own = self._network(np.asarray(coords, np.float64)[finite])
            result.x[finite] += self.weight * (own - result.x[finite])
        return result._replace(candidates=result.x[:, None])

    def _network(self, coords: np.ndarray) -> np.ndarray:
        inputs = self.scaler.transform(_features(coords, self.kernel.reference))
        usable = is_usable(self.member_status)
        state = jax.tree.map(lambda leaf: leaf[usable], self.state)
        scores = np.asarray(predict(_maker(self.config, inputs.shape[1], len(self.directions)), state, inputs))
        return scores.mean(axis=0, dtype=np.float64) @ self.directions + self.mean

    def save(self, path: str | Path) -> None:
        """Writes an npz file that `load` reads; no pickle, and never half a file."""
        regression = self.kernel.regression
        numbers = {"features": self.kernel.features, "unit": regression.unit, "penalty": regression.choice.penalty}
        numbers |= {"loo_mse": self.kernel.loo_mse}
        header = {"config": dataclasses.asdict(self.config), "kernel": numbers, "weight": self.weight}
        kernel = {"reference": self.kernel.reference, "inputs": regression.inputs, "weights": regression.weights}
        assert regression.squares is not None
        kernel |= {"squares": regression.squares}
        fields = {f"kernel.{name}": value for name, value in kernel.items()}
        fields |= {"kernel.intercept": regression.intercept}
        fields |= {"offset": self.scaler.offset, "scale": self.scaler.scale, "directions": self.directions}
        fields |= {"mean": self.mean, "member_status": self.member_status}
        arrays.write_npz(Path(path), header, fields | arrays.flatten(self.state, "state"))

    @classmethod
    def load(cls, path: str | Path) -> InvariantNetwork:
        """Reads what `save` wrote.

        Raises:
            ValueError: the file is damaged or not such a model's.
            FileNotFoundError: there is no file.
        """
        header, fields = arrays.read_npz(Path(path))
        if not {"config", "kernel", "weight"} <= header.keys() or "directions" not in fields:
            raise ValueError(f"{path} must be a saved InvariantNetwork, got an npz file without its fields")
        config = InvariantNetworkConfig(**header["config"])
        parts = {name.removeprefix("kernel."): a for name, a in fields.items() if name.startswith("kernel.")}
        make_model = _maker(config, len(fields["offset"]), len(fields["directions"]))
        return cls(
            config=config,
            kernel=_kernel_model(**(header["kernel"] | parts)),
            scaler=StandardScaler(fields["offset"], fields["scale"]),
            directions=fields["directions"],
            mean=fields["mean"],
            state=arrays.unflatten(abstract_state(make_model, config.n_ensemble), fields, "state"),
            member_status=fields["member_status"],
            weight=float(header["weight"]),
        )


def _kernel_model(
    *,
    features: str,
    reference: np.ndarray,
    inputs: np.ndarray,
    weights: np.ndarray,
    intercept: np.ndarray,
    unit: float,
    penalty: float,
    loo_mse: dict[str, float],
    squares: np.ndarray,
) -> invariant.KernelModel:
    choice = Choice(loo_mse[features], penalty, Radial(unit))
    regression = KernelRegression(inputs, weights, intercept, choice, squares)
    return invariant.KernelModel(features, reference, regression, loo_mse)


def fit(
    key: Array,
    releases: Array,
    targets: Array,
    config: InvariantNetworkConfig | None = None,
    *,
    validation: tuple[Array, Array],
    mesh: Mesh | None = None,
    checkpoint: Path | None = None,
    progress: bool = False,
) -> tuple[InvariantNetwork, History]:
    """Trains the attack on shadow releases of known targets.

    Args:
        key: Decides initialisation, shuffling and dropout; ensemble member e uses fold_in(key, e).
        releases: (m, n, k) shadow releases, target in row 0, finite.
        targets: (m, d) the records behind those rows.
        config: How to train; the defaults if None.
        validation: Releases (v, n, k) and targets (v, d), disjoint from the others, on which training stops and on
            which network and kernel regression are weighed.
        mesh: Devices to train on, see `drjax.nets.training.train`.
        checkpoint: Checkpoint file, see `drjax.nets.training.train`; yours to delete once the model is saved.
        progress: Show a bar of epochs on standard error.

    Returns:
        The model with each member's best weights, and the training history, in squared principal scores.

    Raises:
        ValueError: arrays that are not finite or do not fit each other, or a checkpoint of another run.
    """
    validate.prng_key(key)
    config = config if config is not None else InvariantNetworkConfig()
    kernel = invariant.fit(releases, targets)
    coords, y = np.asarray(releases, np.float64), np.asarray(targets, np.float64)
    held_out = np.asarray(validation[0], np.float64)
    held_out_y = validate.matrix(validation[1], "validation[1]", columns=y.shape[1]).astype(np.float64)
    if held_out.shape != (len(held_out_y), *coords.shape[1:]):
        raise ValueError(
            f"validation[0] must have shape ({len(held_out_y)}, {coords.shape[1]}, {coords.shape[2]}), "
            f"got {held_out.shape}"
        )
    validate.finite(**{"validation[0]": held_out})

    mean = y.mean(axis=0)
    _, _, directions = np.linalg.svd(y - mean, full_matrices=False)
    directions = directions[: config.n_outputs]
    inputs = _features(coords, kernel.reference)
    scaler = StandardScaler.fit(inputs)
    keys = jax.vmap(lambda e: jax.random.fold_in(key, e))(np.arange(config.n_ensemble))
    state, history = train(
        keys,
        _maker(config, inputs.shape[1], len(directions)),
        scaler.transform(inputs),
        (y - mean) @ directions.T,
        config,
        validation=(scaler.transform(_features(held_out, kernel.reference)), (held_out_y - mean) @ directions.T),
        mesh=mesh,
        checkpoint=checkpoint,
        tag="invariant network",
        progress=progress,
    )
    state = jax.tree.map(np.asarray, state)
    model = InvariantNetwork(config, kernel, scaler, directions, mean, state, history.status, 0.0)
    return dataclasses.replace(model, weight=_weight(model, held_out, held_out_y)), history


def _weight(model: InvariantNetwork, coords: np.ndarray, targets: np.ndarray) -> float:
    """Least squares of the validation targets on the line from the kernel regression to the network."""
    if not is_usable(model.member_status).any():
        return 0.0
    base = model.kernel.reconstruct(coords).x
    difference = model._network(coords) - base
    along = float(np.sum(difference**2))
    return float(np.clip(np.sum(difference * (targets - base)) / along, 0, 1)) if along > 0 else 0.0


def _features(coords: np.ndarray, reference: np.ndarray) -> np.ndarray:
    return np.concatenate([invariant.FEATURES[name](coords, reference) for name in FEATURES], axis=1)


def _maker(config: InvariantNetworkConfig, n_inputs: int, n_outputs: int) -> MakeModel:
    shape = {"width": config.width, "n_blocks": config.n_blocks, "dropout": config.dropout}
    return functools.partial(_network, n_inputs, n_outputs, **shape)


def _network(n_inputs: int, n_outputs: int, rngs: Any, **shape: Any) -> ResidualMLP:
    return ResidualMLP(n_inputs, n_outputs, **shape, rngs=rngs)


@dataclass(frozen=True, kw_only=True)
class ResidualNetwork(LearnedAttack):
    """Kernel regression with a network for its residual; see `fit`."""

    name: str = "residual-network"
    label: str = "Network on invariant features"
    description: str = (
        "A network of residual blocks on the same distances, averaged with the regression above by what serves best on "
        "records held out."
    )

    def cost(self, threat: EmbeddingThreat) -> Cost:
        """See `Attack`."""
        assert threat.public is not None
        config = InvariantNetworkConfig()
        kernel = invariant.InvariantKernel().cost(threat)
        n_inputs = len(FEATURES) * len(threat.known)
        weights = n_inputs * config.width + 2 * config.n_blocks * config.width**2 + config.width * config.n_outputs
        passes = 2.0 * config.n_ensemble * config.epochs * len(threat.public)
        return Cost(
            COMPILING + kernel.seconds + passes * weights / DENSE_FLOPS,
            kernel.bytes + 16.0 * config.n_ensemble * weights,
        )

    def run(self, key: Array, threat: EmbeddingThreat) -> Reconstruction:
        """See `Attack`; draws weights, the order of records and dropout."""
        shadows = threat.shadows()
        model, history = fit(
            key,
            shadows.coords,
            shadows.records,
            validation=(shadows.validation_coords, shadows.validation),
            checkpoint=threat.checkpoint,
            progress=threat.progress,
        )
        facts = {"best_epoch": history.best_epoch, "epochs_run": len(history.epoch_seconds), "weight": model.weight}
        return threat.clipped(model.reconstruct(threat.coords))._replace(facts=facts)
