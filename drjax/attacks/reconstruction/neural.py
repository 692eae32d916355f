"""The learned attack: a network trained on shadow releases maps a release to the target's record.

Sources: Lumbut & Ponnoprat, "Reconstruction attack on dimensionality reduction", section 3; Balle, Cherubin & Hayes
(2022), called BCH22, for the dense network.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from drjax.attacks.attack import COMPILING, Cost, EmbeddingThreat, LearnedAttack
from drjax.attacks.reconstruction import ensembles
from drjax.attacks.shadow import DENSE_FLOPS
from drjax.core import validate
from drjax.core.types import Array, PyTree, Reconstruction
from drjax.data.preprocess import MinMaxScaler, StandardScaler
from drjax.nets import arrays, reconstructors
from drjax.nets.training import History, MakeModel, TrainConfig, abstract_state

SCALERS = {"minmax": MinMaxScaler, "standard": StandardScaler}

FLOPS_PER_WEIGHT = 10.0
"""Operations of training by record and weight: forward, backward, update; convolutions use a weight more than once."""


@dataclass(frozen=True, kw_only=True)
class NeuralConfig(TrainConfig):
    """The network and how it is trained; the defaults are the paper's.

    Attributes:
        architecture: A name in `drjax.nets.reconstructors.ARCHITECTURES`, or "auto": see `resolve` there.
        scaling: "minmax" or "standard", of every coordinate of a release, fitted on the training releases.
        align_signs: Undo the arbitrary sign of each component first, by the known rows that all releases share.
        linear_output: Leave out the last activation of a convolutional decoder and start with small outputs: with the
            ReLU of the paper and PyTorch's initialisation a pixel can be dead from the start or die at a high rate.
        clip: Clip reconstructions to [0, 1].
        n_ensemble: Networks from different keys whose outputs are averaged, >= 1.

    Example:
        >>> from drjax.attacks.reconstruction.neural import RECIPES, NeuralConfig
        >>> NeuralConfig(epochs=100, n_ensemble=3).learning_rate == RECIPES["paper000"].learning_rate
        True
    """

    architecture: str = "auto"
    scaling: str = "minmax"
    align_signs: bool = False
    linear_output: bool = False
    clip: bool = False
    n_ensemble: int = 1

    def __post_init__(self) -> None:
        """Checks every field."""
        super().__post_init__()
        validate.one_of({*reconstructors.ARCHITECTURES, "auto"}, architecture=self.architecture)
        validate.one_of(SCALERS, scaling=self.scaling)
        validate.integer(n_ensemble=self.n_ensemble)


_FAST = NeuralConfig(
    epochs=20,
    learning_rate=1e-3,
    schedule="cosine",
    warmup_epochs=1,
    patience=20,
    scaling="standard",
    align_signs=True,
    linear_output=True,
    clip=True,
    drop_last=True,
)

RECIPES = {
    "paper000": NeuralConfig(),
    "fast": _FAST,
    "bch22": NeuralConfig(architecture="bch22"),
    "bch22-fast": dataclasses.replace(_FAST, architecture="bch22"),
}
"""Configurations by name. "paper000" and "bch22" are trained as the paper says: Adam at 1e-5, batches of 64, at most
500 epochs, patience 5."""


@dataclass(frozen=True)
class NeuralModel:
    """A trained attack.

    Attributes:
        config: Configuration, as given to `fit`.
        n: Points in a release.
        k: Coordinates of a point.
        d: Entries of a record.
        sign_reference: (n-1, k) centred mean coordinates of the known rows, or None without sign alignment.
        scaler: Fitted on the aligned training releases.
        state: Weights and running statistics, with a leading axis of members.
        member_status: (members,) uint32 `Status` flags; those with an excluding flag do not enter the mean.
    """

    config: NeuralConfig
    n: int
    k: int
    d: int
    sign_reference: np.ndarray | None
    scaler: MinMaxScaler | StandardScaler
    state: PyTree
    member_status: np.ndarray

    def save(self, path: str | Path) -> None:
        """Writes an npz file that `load` reads; no pickle, and never half a file."""
        header = {"config": dataclasses.asdict(self.config), "n": self.n, "k": self.k, "d": self.d}
        fields = {"offset": self.scaler.offset, "scale": self.scaler.scale, "member_status": self.member_status}
        if self.sign_reference is not None:
            fields["sign_reference"] = self.sign_reference
        arrays.write_npz(Path(path), header, fields | arrays.flatten(self.state, "state"))

    @classmethod
    def load(cls, path: str | Path) -> NeuralModel:
        """Reads what `save` wrote.

        Raises:
            ValueError: the file is damaged or not a model's.
            FileNotFoundError: there is no file.
        """
        names = {"config", "n", "k", "d"}, {"offset", "scale", "member_status"}
        header, fields = ensembles.read_model(path, "NeuralModel", *names)
        config = NeuralConfig(**header["config"])
        n, k, d = header["n"], header["k"], header["d"]
        template = abstract_state(_make_model(config, n, k, d), config.n_ensemble)
        return cls(
            config=config,
            n=n,
            k=k,
            d=d,
            sign_reference=fields.get("sign_reference"),
            scaler=SCALERS[config.scaling](fields["offset"], fields["scale"]),
            state=arrays.unflatten(template, fields, "state"),
            member_status=fields["member_status"],
        )


def fit(
    key: Array,
    releases: Array,
    targets: Array,
    config: NeuralConfig,
    *,
    validation: tuple[Array, Array],
    mesh: Mesh | None = None,
    renew: Callable[[int], tuple[Array, Array]] | None = None,
    checkpoint: Path | None = None,
    progress: bool = False,
) -> tuple[NeuralModel, History]:
    """Trains the attack on shadow releases of known targets.

    Args:
        key: Decides initialisation, shuffling and dropout; ensemble member e uses fold_in(key, e).
        releases: (m, n, k) shadow releases, target in row 0.
        targets: (m, d) the records behind those rows, in [0, 1].
        config: Configuration, one of `RECIPES` or your own.
        validation: Releases (v, n, k) and targets (v, d) that early stopping looks at, disjoint from the training ones.
        mesh: Devices to train on, see `drjax.nets.training.train`.
        renew: Gives releases (m, n, k) and targets (m, d) of epoch 1, 2, ..., finite; see there. Scaling and signs are
            those of the first ones.
        checkpoint: Checkpoint file, see `drjax.nets.training.train`: lets a killed run go on; yours to delete once the
            model is saved.
        progress: Show a bar of epochs on standard error.

    Returns:
        The model with each member's best weights, and the training history.

    Raises:
        ValueError: arrays that are not finite or do not fit each other, an architecture for other records, or a
            checkpoint of another run.

    Example:
        >>> import drjax, jax
        >>> from drjax.attacks.reconstruction import neural
        >>> x, key = drjax.load("digits").x, jax.random.key(0)
        >>> releases = drjax.shadow_embeddings(key, drjax.PCA(), x[:19], x[19:119]).coords
        >>> config = neural.NeuralConfig(epochs=2, architecture="bch22", learning_rate=1e-3)
        >>> validation = releases[80:], x[99:119]
        >>> model, history = neural.fit(key, releases[:80], x[19:99], config, validation=validation)
        >>> neural.reconstruct(model, releases[80:]).x.shape
        (20, 64)
    """
    validate.prng_key(key)
    releases = _releases(releases, "releases")
    n, k = releases.shape[1:]
    targets = validate.matrix(targets, "targets")
    validation_releases = _releases(validation[0], "validation[0]", (n, k))
    validation_targets = validate.matrix(validation[1], "validation[1]", columns=targets.shape[1])
    validate.finite(releases=releases, **{"validation[0]": validation_releases})
    d = targets.shape[1]
    name = reconstructors.resolve(config.architecture, (d,))

    reference = _sign_reference(releases) if config.align_signs else None
    aligned = _aligned(releases, reference)
    scaler = SCALERS[config.scaling].fit(aligned)
    make_model = _make_model(config, n, k, d)

    def renewed(epoch: int) -> tuple[np.ndarray, Array]:
        assert renew is not None
        others, their_targets = renew(epoch)
        return scaler.transform(_aligned(_releases(others, "renewed releases", (n, k)), reference)), their_targets

    state, history = ensembles.train_members(
        key,
        config.n_ensemble,
        make_model,
        scaler.transform(aligned),
        targets,
        config,
        validation=(scaler.transform(_aligned(validation_releases, reference)), validation_targets),
        mesh=mesh,
        renew=None if renew is None else renewed,
        checkpoint=checkpoint,
        tag=name,
        progress=progress,
    )
    model = NeuralModel(config, n, k, d, reference, scaler, state, history.status)
    return model, history


def reconstruct(model: NeuralModel, releases: Array) -> Reconstruction:
    """The ensemble's mean reconstruction of each release's first row.

    Args:
        model: Trained model from `fit` or `NeuralModel.load`.
        releases: (m, n, k), target in row 0; a release that is not finite gets status NON_FINITE and nan.

    Returns:
        x (m, d) float32, its only candidate; residual_norm is nan, because a network knows nothing of it.

    Raises:
        ValueError: releases of another shape than the model was trained on.
    """
    releases = _releases(releases, "releases", (model.n, model.k))
    inputs = model.scaler.transform(_aligned(releases, model.sign_reference))
    make_model = _make_model(model.config, model.n, model.k, model.d)
    x = ensembles.mean_output(make_model, model.state, model.member_status, inputs, model.d)
    if model.config.clip:
        x = np.clip(x, 0, 1)
    return ensembles.reconstruction(x, releases)


def _releases(releases: Array, name: str, shape: tuple[int, ...] | None = None) -> np.ndarray:
    array = np.asarray(releases)
    if array.ndim != 3 or 0 in array.shape or array.shape[1] < 2 or array.dtype.kind not in "fiu":
        raise ValueError(
            f"{name} must be numeric, of shape (m, n, k) with n >= 2, got {array.shape} and dtype {array.dtype}"
        )
    if shape is not None and array.shape[1:] != shape:
        raise ValueError(f"{name} must have shape (m, {shape[0]}, {shape[1]}), got {array.shape}")
    return array.astype(np.float32)


def _sign_reference(releases: np.ndarray) -> np.ndarray:
    # A plain mean would cancel where half of the releases are flipped: align with one of them first.
    return _centred_known(_aligned(releases, _centred_known(releases[:1])[0])).mean(axis=0)


def _aligned(releases: np.ndarray, reference: np.ndarray | None) -> np.ndarray:
    if reference is None:
        return releases
    correlation = np.einsum("mik,ik->mk", _centred_known(releases), reference)
    return releases * np.where(correlation < 0, -1, 1).astype(releases.dtype)[:, None]


def _centred_known(releases: np.ndarray) -> np.ndarray:
    known = releases[:, 1:]
    return known - known.mean(axis=1, keepdims=True)


def _make_model(config: NeuralConfig, n: int, k: int, d: int) -> MakeModel:
    shape = {"n": n, "k": k, "record_shape": (d,), "linear_output": config.linear_output}
    return functools.partial(_network, config.architecture, **shape)


def _network(architecture: Any, rngs: Any, **shape: Any) -> reconstructors.Reconstructor:
    return reconstructors.build(architecture, rngs=rngs, **shape)


@functools.lru_cache(maxsize=64)
def _n_weights(config: NeuralConfig, n: int, k: int, d: int) -> float:
    state = abstract_state(_make_model(config, n, k, d), config.n_ensemble)
    return float(sum(leaf.size for leaf in jax.tree.leaves(state)))


@dataclass(frozen=True, kw_only=True)
class Network(LearnedAttack):
    """A network trained by a recipe; see `fit`.

    Attributes:
        recipe: Key of `RECIPES`.

    Example:
        >>> from drjax.attacks.reconstruction.neural import DenseNetwork, Network, SplitNetwork
        >>> attacks = [DenseNetwork(), SplitNetwork(recipe="paper000")]
        >>> [(attack.name, attack.recipe) for attack in attacks if isinstance(attack, Network)]
        [('dense-network', 'bch22-fast'), ('network', 'paper000')]
    """

    recipe: str

    def __post_init__(self) -> None:
        """Checks the recipe."""
        validate.one_of(RECIPES, recipe=self.recipe)

    def cost(self, threat: EmbeddingThreat) -> Cost:
        """See `Attack`; as many epochs as the recipe has at most."""
        assert threat.public is not None
        config, (n, k), d = RECIPES[self.recipe], threat.coords.shape[1:], threat.known.shape[1]
        weights = _n_weights(config, n, k, d)
        flops = FLOPS_PER_WEIGHT * weights * config.epochs * len(threat.public)
        # Those of each epoch are made for it.
        making = 0.0 if threat.further is None else config.epochs * threat.further.seconds(threat.further.n_held)
        return Cost(COMPILING + flops / DENSE_FLOPS + making, 16.0 * weights + 8.0 * len(threat.public) * (n * k + d))

    def run(self, key: Array, threat: EmbeddingThreat) -> Reconstruction:
        """See `Attack`; draws weights and the order of records."""
        config, shadows, further = RECIPES[self.recipe], threat.shadows(), threat.further
        model, history = fit(
            key,
            shadows.coords,
            shadows.records,
            config,
            validation=(shadows.validation_coords, shadows.validation),
            renew=None if further is None else functools.partial(further.epoch, size=further.n_held),
            checkpoint=threat.checkpoint,
            progress=threat.progress,
        )
        facts = {
            "recipe": self.recipe,
            "best_epoch": history.best_epoch,
            "epochs_run": len(history.epoch_seconds),
            "median_epoch_s": float(np.median(history.epoch_seconds)),
            "compile_s": history.compile_seconds,
            "validation_mse": history.validation_mse,
        }
        return reconstruct(model, threat.coords)._replace(facts=facts)


@dataclass(frozen=True, kw_only=True)
class DenseNetwork(Network):
    """The network of BCH22.

    Example:
        >>> from drjax.attacks.reconstruction.neural import DenseNetwork
        >>> from drjax.dr import UMAP
        >>> DenseNetwork(recipe="bch22").suits(UMAP(), seed_known=False) is None  # it is an attack on UMAP
        True
    """

    name: str = "dense-network"
    label: str = "Dense network (BCH22)"
    description: str = "A network of two hidden layers of 1,000 units, trained on shadow releases."
    recipe: str = "bch22-fast"


@dataclass(frozen=True, kw_only=True)
class SplitNetwork(Network):
    """The network of paper 000.

    Example:
        >>> from drjax.attacks.reconstruction.neural import SplitNetwork
        >>> from drjax.dr import UMAP
        >>> SplitNetwork(recipe="paper000").suits(UMAP(), seed_known=False) is None  # it is an attack on UMAP
        True
    """

    name: str = "network"
    label: str = "Split network (paper 000)"
    description: str = (
        "A network that encodes the target's coordinates apart from the rest; trained on shadow releases."
    )
    recipe: str = "fast"
