"""The factors of the experiment: what each setting changes of the default, and the scales."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from drjax.attacks.reconstruction.training_inversion import Settings as InversionSettings
from drjax.core import validate
from drjax.nets.classifier_training import Training
from drjax.nets.classifiers import ACTIVATIONS, ARCHITECTURES, Classifier

LEARNED = ("ridge", "quadratic", "fast")
"""The learned attacks that are tried if nothing else is said."""

MOST_KERNEL = 6000
"""Shadow models up to which the two regressions are tried: they decompose a matrix of that side."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One released model and what the adversary knows of how it was made.

    Attributes:
        name: Unique within its factor.
        training: How the model is trained.
        data: Name of the data set; None for the scale's.
        n_fixed: Records known; None for the scale's default.
        n_shadow: Shadow models of the learned attacks, or records they are of; None for the scale's default.
        n_targets: Targets, the first of the scale's; None for all.
        models_per_shadow: Models of each shadow record, where the start or the order is drawn anew for each.
        precision: "float32" or "float64" of the release; inversion computes in the same.
        start: Number of the start that is drawn.
        is_start_known: Whether the adversary knows the parameters that training began with.
        is_order_known: Whether it knows the order of mini-batches.
        access: "weights", "logits" (black box) or "layers" (the last one).
        mu: Of DP-GD with zeroed-out neighbours, or None without privacy.
        clip_norm: Of DP-GD.
        is_pretrained: Whether training goes on from a model of other records, known to the adversary, near convergence.
        n_own: Shadow models with the released models' own fixed set, where all others are of another fixed set
            (transfer); None where all are of the own one.
        shadow_classes: Classes of the shadow records; None for all.
        target_classes: Classes of the targets; None for all.
        learned: Attacks on shadow models: "ridge", "quadratic", or recipes of `reconn`.
        learned_epochs: Of the recipes of `reconn`; None for the recipe's own.
        inversion: How hard the inversion of training tries.
        has_inversion: Whether the inversion of training is tried where it can be.
        has_examples: Whether some reconstructions are kept to be looked at.
    """

    name: str
    training: Training = Training()  # noqa: RUF009 (frozen)
    data: str | None = None
    n_fixed: int | None = None
    n_shadow: int | None = None
    n_targets: int | None = None
    models_per_shadow: int = 1
    precision: str = "float32"
    start: int = 0
    is_start_known: bool = True
    is_order_known: bool = True
    access: str = "weights"
    mu: float | None = None
    clip_norm: float = 1.0
    is_pretrained: bool = False
    n_own: int | None = None
    shadow_classes: tuple[int, ...] | None = None
    target_classes: tuple[int, ...] | None = None
    learned: tuple[str, ...] = LEARNED
    learned_epochs: int | None = None
    inversion: InversionSettings = InversionSettings()  # noqa: RUF009 (frozen)
    has_inversion: bool = True
    has_examples: bool = False

    @property
    def is_invertible(self) -> bool:
        """Whether training can be repeated but for the target, the order and noise, and its end is seen whole."""
        return self.has_inversion and self.is_start_known and self.access == "weights"


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How much is computed.

    Attributes:
        data: Name of the data set.
        targets: Released models attacked, one a target.
        n_fixed: Records known.
        n_shadow: Shadow models.
        n_other: Records beside these: of another fixed set, or that a start is trained on.
        sizes: Numbers of shadow models of the factor "shadows".
        fixed_sizes: Sizes of the known set of the factor "fixed".
        factors: Those that are run.
        cifar_fixed: Records known of CIFAR-10, by default and in the setting with more.
        cifar_shadows: Shadow models on CIFAR-10.
        cnn_epochs: Steps of the CNN, which is trained on half as many records, and on a tenth where it is inverted.
        cnn_directions: In which inversion measures the Jacobian of the CNN's training.
        cnn_targets: Whose training is inverted.
    """

    data: str
    targets: int
    n_fixed: int
    n_shadow: int
    n_other: int
    sizes: tuple[int, ...]
    fixed_sizes: tuple[int, ...]
    factors: tuple[str, ...]
    cifar_fixed: tuple[int, int] = (999, 4999)
    cifar_shadows: int = 2000
    cnn_epochs: int = 50
    cnn_directions: int = 300
    cnn_targets: int = 20

    def __post_init__(self) -> None:
        """Checks every field that can be checked without the data."""
        validate.integer(targets=self.targets, n_fixed=self.n_fixed, n_shadow=self.n_shadow, n_other=self.n_other)
        validate.one_of(FACTORS, **{f"factor {i + 1}": name for i, name in enumerate(self.factors)})


LOWER, UPPER = (0, 1, 2, 3, 4), (5, 6, 7, 8, 9)
"""Classes of shadow records and of targets, where they are to differ: half of a data set stands in for another."""


def _model(**change: Any) -> Training:
    return Training(model=Classifier(**change))


FACTORS = (
    "default",
    "precision",
    "shadows",
    "fixed",
    "width",
    "depth",
    "activation",
    "epochs",
    "learning_rate",
    "optimizer",
    "batch",
    "start",
    "access",
    "transfer",
    "convergence",
    "distribution",
    "privacy",
    "cifar10",
)


def settings(factor: str, scale: Scale) -> list[Setting]:
    """What a factor varies, at a scale.

    Raises:
        ValueError: an unknown factor.
    """
    validate.one_of(FACTORS, factor=factor)
    default = Training()
    few = scale.n_shadow // 10
    # Where steps stop helping at most targets (kinks, Adam, a late start), a new Jacobian for each is most of the work.
    brief = InversionSettings(max_refreshes=1, n_restarts=0)
    short = dataclasses.replace(default, epochs=20, batch_size=max(8, scale.n_fixed // 10))
    return {
        "default": [Setting(name="default", has_examples=True)],
        "precision": [Setting(name="float64", precision="float64")],
        "shadows": [
            *(_shadows(size) for size in scale.sizes),
            # The authors' notebook: its 200 epochs, and the fewer that its own cells were measured with at these sizes.
            *(
                Setting(
                    name=f"notebook, {size} shadows" + (f", {epochs} epochs" if epochs else ""),
                    n_shadow=size,
                    learned=("notebook",),
                    learned_epochs=epochs,
                    has_inversion=False,
                )
                for size, short in ((scale.n_shadow // 2, 20), (scale.n_shadow, 40))
                for epochs in (None, short)
            ),
        ],
        "fixed": [Setting(name=f"{size} known", n_fixed=size) for size in scale.fixed_sizes],
        "width": [Setting(name=f"width {w}", training=_model(hidden=(w,))) for w in (100, 1000)],
        "depth": [
            Setting(name="no hidden layer", training=_model(hidden=())),
            Setting(name="two hidden layers", training=_model(hidden=(10, 10))),
        ],
        "activation": [
            Setting(name=a, training=_model(activation=a), inversion=brief) for a in ACTIVATIONS if a != "elu"
        ],
        "epochs": [Setting(name=f"{e} epochs", training=dataclasses.replace(default, epochs=e)) for e in (10, 30, 300)],
        "learning_rate": [
            Setting(name=f"rate {r:g}", training=dataclasses.replace(default, learning_rate=r))
            for r in (0.01, 0.03, 0.3)
        ],
        "optimizer": [
            Setting(
                name="Adam",
                training=dataclasses.replace(default, optimizer="adam", learning_rate=0.01),
                inversion=brief,
            ),
            Setting(name="no momentum", training=dataclasses.replace(default, momentum=0.0)),
        ],
        "batch": [
            Setting(name="mini-batches, order known", training=short),
            Setting(name="mini-batches, order unknown", training=short, is_order_known=False),
            Setting(
                name="mini-batches, order unknown, rate 0.01",
                training=dataclasses.replace(short, learning_rate=0.01),
                is_order_known=False,
            ),
        ],
        "start": [
            *(Setting(name=_starts(models), is_start_known=False, models_per_shadow=models) for models in (1, 4)),
            *(Setting(name=f"another known start, {i}", start=i) for i in (1, 2, 3)),
        ],
        "access": [Setting(name="black box", access="logits"), Setting(name="last layer", access="layers")],
        "transfer": [
            # Inversion needs no shadow models: once is enough.
            Setting(name="another fixed set, 0 own models", n_own=0),
            Setting(name=f"another fixed set, {few} own models", n_own=few, has_inversion=False),
            Setting(name=f"{few} own models alone", n_shadow=few, has_inversion=False),
        ],
        "convergence": [Setting(name="start near convergence", is_pretrained=True, inversion=brief)],
        "distribution": [
            Setting(name=f"shadows of {name}", shadow_classes=classes, target_classes=UPPER)
            for name, classes in (("all digits", None), ("0 to 4, targets 5 to 9", LOWER))
        ],
        "privacy": [Setting(name=f"mu {mu:g}", mu=mu) for mu in (1.0, 3.0, 10.0, 30.0, 100.0, 300.0)],
        "cifar10": _cifar10(scale),
    }[factor]


def _shadows(size: int) -> Setting:
    few = size <= MOST_KERNEL
    return Setting(name=f"{size} shadows", n_shadow=size, learned=LEARNED if few else ("fast",), has_inversion=False)


def _starts(models: int) -> str:
    return "start unknown" if models == 1 else f"start unknown, {models} models a shadow record"


def _cifar10(scale: Scale) -> list[Setting]:
    """Colour images, by the dense network and by the paper's CNN, at sizes that the subset of 11,000 records allows."""
    few, many = scale.cifar_fixed

    default = Training(learning_rate=0.01)

    def dense(name: str, n_fixed: int = few, training: Training = default, **change: Any) -> Setting:
        size = scale.cifar_shadows
        return Setting(name=name, data="cifar10", n_fixed=n_fixed, n_shadow=size, training=training, **change)

    def convolved(name: str, n_fixed: int = few // 2, activation: str = "elu", **change: Any) -> Setting:
        model = dataclasses.replace(ARCHITECTURES["cnn"], activation=activation)
        training = Training(model=model, epochs=scale.cnn_epochs, learning_rate=0.03)
        # A network for images in the place of the dense one.
        learned = ("ridge", "quadratic", "cifar10-fast")
        return dense(name, n_fixed, training, learned=learned, **change)

    # No layer of a CNN tells what the Jacobian is outside the directions it is measured in: many, once a class.
    hard = InversionSettings(n_directions=scale.cnn_directions, max_refreshes=0, n_restarts=0, max_evaluations=20)
    return [
        dense("MLP", has_examples=True),
        dense(f"MLP, {many} known", n_fixed=many),
        dense("MLP, Adam", training=dataclasses.replace(default, optimizer="adam", learning_rate=0.001)),
        dense("MLP, 300 epochs", training=dataclasses.replace(default, epochs=300)),
        dense("MLP, shadows of all classes", target_classes=UPPER),
        dense("MLP, shadows of five classes, targets of five others", shadow_classes=LOWER, target_classes=UPPER),
        *(dense(f"MLP, mu {mu:g}", mu=mu) for mu in (10.0, 100.0)),
        convolved("CNN", has_inversion=False, has_examples=True),
        convolved("CNN, ReLU", activation="relu", has_inversion=False),
        # Inversion trains thousands of CNNs, here small ones on few records.
        convolved(f"CNN, {few // 10} known", few // 10, inversion=hard, n_targets=scale.cnn_targets, has_examples=True),
    ]


def noise_multiplier(setting: Setting) -> float:
    """Of full-batch DP-GD that is mu-GDP over all its steps, for zeroed-out neighbours."""
    assert setting.mu is not None
    return math.sqrt(setting.training.epochs) / setting.mu


SCALES = {
    "smoke": Scale(
        data="digits",
        targets=6,
        n_fixed=150,
        n_shadow=120,
        n_other=200,
        sizes=(60,),
        fixed_sizes=(50,),
        factors=("default", "shadows", "start", "transfer", "convergence", "privacy"),
    ),
    "cpu": Scale(
        data="mnist",
        targets=100,
        n_fixed=999,
        n_shadow=1000,
        n_other=10_000,
        sizes=(500, 2000, 5000, 20_000),
        fixed_sizes=(99, 9999),
        factors=FACTORS,
    ),
    "full": Scale(
        data="mnist",
        targets=1000,
        n_fixed=9999,
        n_shadow=10_000,
        n_other=10_000,
        sizes=(1000, 5000, 20_000, 45_000),
        fixed_sizes=(99, 999),
        factors=FACTORS,
    ),
    # All of MNIST: 9,999 known and 59,000 shadow records, 1,000 targets and the one of `n_other` are its 70,000.
    "paper": Scale(
        data="mnist",
        targets=1000,
        n_fixed=9999,
        n_shadow=1000,
        n_other=1,
        sizes=(1000, 10_000, 59_000),
        fixed_sizes=(99, 999),
        factors=("default", "shadows"),
    ),
}
"""By name: "smoke" takes a minute on digits, "cpu" hours on two cores, "full" (the paper's sizes) a GPU, and so does
"paper": the largest number of shadow models that MNIST has room for, and no other factor."""
