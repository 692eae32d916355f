"""RecoNN: a network trained on shadow models maps a released classifier to the one record that is not known.

Source: Balle, Cherubin & Hayes, "Reconstructing training data with informed adversaries" (2022), called BCH22,
sections IV and V; what tables VI to IX of their text lost is from their public notebook for MNIST, and our own choice
for CIFAR-10.
"""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jax.sharding import Mesh

from drjax.attacks.reconstruction import ensembles
from drjax.attacks.reconstruction.model_vectors import Inputs, choose_queries, representation
from drjax.attacks.reconstruction.vector_regression import RegressionModel, fit_quadratic, fit_ridge, shadow_vectors
from drjax.core import validate
from drjax.core.types import Array, PyTree, Reconstruction
from drjax.data.preprocess import StandardScaler
from drjax.nets import arrays, vector_reconstructors
from drjax.nets.patch_discriminator import PatchAdversary
from drjax.nets.training import History, MakeModel, TrainConfig, abstract_state
from drjax.nets.vector_reconstructors import VectorReconstructor

__all__ = [
    "RECIPES",
    "ReconnConfig",
    "ReconnModel",
    "RegressionModel",
    "choose_queries",
    "fit",
    "fit_quadratic",
    "fit_ridge",
    "reconstruct",
    "representation",
]


@dataclass(frozen=True, kw_only=True)
class ReconnConfig(TrainConfig):
    """The network and how it is trained; the defaults are those of BCH22's notebook for MNIST.

    Attributes:
        hidden: Widths of the hidden layers; see `VectorReconstructor` for this and the next three.
        has_products: Whether the first hidden layer is a product of two linear maps.
        image_shape: (height, width, channels) for a decoder of transposed convolutions, None for a dense one.
        channels: Channels of that decoder.
        dropout: Share of hidden units left out in training, in [0, 1).
        has_equal_lengths: Whether the inputs are scaled to equal lengths; see `Inputs`.
        n_components: Directions that the inputs are projected onto, >= 1; None for no projection.
        adversarial_weight: Weight of the term of a patch discriminator in the loss, >= 0; 0 for none, and it needs
            `image_shape`.
        discriminator_learning_rate: Learning rate of that discriminator, > 0.
        n_ensemble: Networks from different keys whose outputs are averaged, >= 1.

    Example:
        >>> import dataclasses
        >>> from drjax.attacks.reconstruction import reconn
        >>> config = dataclasses.replace(reconn.RECIPES["fast"], n_ensemble=1)  # a recipe with one network
        >>> config.optimizer, config.epochs < reconn.ReconnConfig().epochs
        ('adam', True)
    """

    epochs: int = 200
    batch_size: int = 32
    optimizer: str = "rmsprop"
    learning_rate: float = 3e-4
    patience: int = 200
    hidden: tuple[int, ...] = (1000, 1000)
    has_products: bool = False
    image_shape: tuple[int, int, int] | None = None
    channels: tuple[int, int] = (128, 64)
    dropout: float = 0.0
    has_equal_lengths: bool = False
    n_components: int | None = None
    adversarial_weight: float = 0.0
    discriminator_learning_rate: float = 2e-4
    n_ensemble: int = 1

    def __post_init__(self) -> None:
        """Checks every field."""
        super().__post_init__()
        vector_reconstructors.check_shape(self.hidden, self.has_products, self.image_shape, self.channels)
        validate.non_negative(dropout=self.dropout, adversarial_weight=self.adversarial_weight)
        if not self.dropout < 1:
            raise ValueError(f"dropout must be < 1, got {self.dropout}")
        if self.n_components is not None:
            validate.integer(n_components=self.n_components)
        validate.integer(n_ensemble=self.n_ensemble)
        validate.positive(discriminator_learning_rate=self.discriminator_learning_rate)
        if self.adversarial_weight and self.image_shape is None:
            raise ValueError(f"adversarial_weight must be 0 without image_shape, got {self.adversarial_weight}")


_FAST = ReconnConfig(
    epochs=60,
    batch_size=64,
    drop_last=True,
    optimizer="adam",
    learning_rate=1e-3,
    schedule="cosine",
    warmup_epochs=1,
    patience=20,
    hidden=(1000,),
    has_products=True,
    dropout=0.3,
    has_equal_lengths=True,
    n_components=1000,
    n_ensemble=2,
)

RECIPES = {
    "notebook": ReconnConfig(),
    "fast": _FAST,
    "cifar10": ReconnConfig(
        epochs=100,
        batch_size=64,
        optimizer="adam",
        learning_rate=2e-4,
        patience=100,
        hidden=(),
        image_shape=(32, 32, 3),
        n_components=2000,
        adversarial_weight=0.01,
    ),
    "cifar10-fast": dataclasses.replace(_FAST, image_shape=(32, 32, 3)),
}
"""Configurations by name. "notebook" is BCH22's for MNIST, but for the weights kept, which are those of the epoch that
was best on the validation records and not the last. "fast" is ours, for any records: products, vectors of equal length,
and a projection that makes the first layer small. "cifar10" follows BCH22's tables VI, VIII and IX as far as they go
without their numbers; it leaves out LPIPS, and adds a projection, without which the 54,514 parameters of a released CNN
give the first layer 447 million weights. "cifar10-fast" is "fast" with its decoder and without a discriminator."""


@dataclass(frozen=True)
class ReconnModel:
    """A trained attack.

    Attributes:
        config: Configuration, as given to `fit`.
        p: Length of a vector.
        d: Entries of a record.
        inputs: Fitted on the training vectors.
        state: Weights, with a leading axis of members.
        member_status: (members,) uint32 `Status` flags; those with an excluding flag do not enter the mean.
    """

    config: ReconnConfig
    p: int
    d: int
    inputs: Inputs
    state: PyTree
    member_status: np.ndarray

    def save(self, path: str | Path) -> None:
        """Writes an npz file that `load` reads; no pickle, and never half a file."""
        scaler, basis = self.inputs.scaler, self.inputs.basis
        header = {"config": dataclasses.asdict(self.config), "p": self.p, "d": self.d}
        fields = {"offset": scaler.offset, "scale": scaler.scale, "member_status": self.member_status}
        if basis is not None:
            fields["basis"] = basis
        arrays.write_npz(Path(path), header, fields | arrays.flatten(self.state, "state"))

    @classmethod
    def load(cls, path: str | Path) -> ReconnModel:
        """Reads what `save` wrote.

        Raises:
            ValueError: the file is damaged or not a model's.
            FileNotFoundError: there is no file.
        """
        names = {"config", "p", "d"}, {"offset", "scale", "member_status"}
        header, fields = ensembles.read_model(path, "ReconnModel", *names)
        lists = {name: tuple(value) for name, value in header["config"].items() if isinstance(value, list)}
        config = ReconnConfig(**header["config"] | lists)
        basis, d = fields.get("basis"), header["d"]
        inputs = Inputs(StandardScaler(fields["offset"], fields["scale"]), config.has_equal_lengths, basis)
        template = abstract_state(_make_model(config, inputs, d), config.n_ensemble)
        state = arrays.unflatten(template, fields, "state")
        return cls(config, header["p"], d, inputs, state, fields["member_status"])


def fit(
    key: Array,
    releases: Array,
    targets: Array,
    config: ReconnConfig,
    *,
    validation: tuple[Array, Array],
    mesh: Mesh | None = None,
    checkpoint: Path | None = None,
    progress: bool = False,
) -> tuple[ReconnModel, History]:
    """Trains the attack on shadow models of known targets.

    Args:
        key: Decides initialisation, shuffling and dropout; ensemble member e uses fold_in(key, e).
        releases: (m, p) vectors of shadow models, from `representation`.
        targets: (m, d) the records that they were trained on beside the known ones, in [0, 1].
        config: Configuration, one of `RECIPES` or your own.
        validation: Vectors (v, p) and targets (v, d) that early stopping looks at, disjoint from the training ones.
        mesh: Devices to train on, see `drjax.nets.training.train`.
        checkpoint: Checkpoint file, see `drjax.nets.training.train`: lets a killed run go on; yours to delete once the
            model is saved.
        progress: Show a bar of epochs on standard error.

    Returns:
        The model with each member's best weights, and the training history.

    Raises:
        ValueError: arrays that are not finite or do not fit each other, targets outside [0, 1] or of another size than
            `config.image_shape`, or a checkpoint of another run.

    Example:
        >>> import jax, numpy as np
        >>> from drjax.attacks.reconstruction import reconn
        >>> targets = np.random.default_rng(0).random((60, 4))
        >>> vectors = targets @ np.random.default_rng(1).normal(size=(4, 10))  # of models, as by `representation`
        >>> config = reconn.ReconnConfig(epochs=2, hidden=(8,))
        >>> validation = vectors[50:], targets[50:]
        >>> model, history = reconn.fit(jax.random.key(0), vectors[:50], targets[:50], config, validation=validation)
        >>> reconn.reconstruct(model, vectors[50:]).x.shape
        (10, 4)
    """
    validate.prng_key(key)
    vectors, y = shadow_vectors(releases, targets)
    p, d = vectors.shape[1], y.shape[1]
    held_out, held_out_y = shadow_vectors(*validation, columns=(p, d), names=("validation[0]", "validation[1]"))
    inputs = Inputs.fit(vectors, has_equal_lengths=config.has_equal_lengths, n_components=config.n_components)
    adversary = None
    if config.adversarial_weight and config.image_shape is not None:
        rate = config.discriminator_learning_rate
        adversary = PatchAdversary(config.image_shape, config.adversarial_weight, learning_rate=rate)
    state, history = ensembles.train_members(
        key,
        config.n_ensemble,
        _make_model(config, inputs, d),
        inputs.transform(vectors),
        y,
        config,
        validation=(inputs.transform(held_out), held_out_y),
        adversary=adversary,
        mesh=mesh,
        checkpoint=checkpoint,
        tag="reconn",
        progress=progress,
    )
    return ReconnModel(config, p, d, inputs, state, history.status), history


def reconstruct(model: ReconnModel, releases: Array) -> Reconstruction:
    """The ensemble's mean reconstruction of the target of each released model.

    Args:
        model: Trained model from `fit` or `ReconnModel.load`.
        releases: (m, p) as in training; a vector that is not finite gets status NON_FINITE and nan.

    Returns:
        x (m, d) float32 in [0, 1], its only candidate; residual_norm is nan, because a network knows nothing of it.

    Raises:
        ValueError: vectors of another length than the model was trained on.
    """
    vectors = np.asarray(releases)
    if vectors.ndim != 2 or vectors.shape[1] != model.p or vectors.dtype.kind not in "fiu":
        raise ValueError(f"releases must be numeric, of shape (m, {model.p}), got {vectors.shape} of {vectors.dtype}")
    make_model = _make_model(model.config, model.inputs, model.d)
    inputs = model.inputs.transform(vectors)
    x = ensembles.mean_output(make_model, model.state, model.member_status, inputs, model.d)
    return ensembles.reconstruction(x, vectors)


def _make_model(config: ReconnConfig, inputs: Inputs, d: int) -> MakeModel:
    width = inputs.scaler.offset.size if inputs.basis is None else inputs.basis.shape[1]
    names = ("hidden", "has_products", "image_shape", "channels", "dropout")
    shape = {name: getattr(config, name) for name in names}
    return functools.partial(_network, width, d, **shape)


def _network(width: int, d: int, rngs: Any, **shape: Any) -> VectorReconstructor:
    return VectorReconstructor(width, d, **shape, rngs=rngs)
