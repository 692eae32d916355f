"""The factors of the experiment: what each setting changes of the default, and the scales."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from drjax.core import validate
from drjax.nets.classifier_training import Training
from drjax.nets.classifiers import ACTIVATIONS, Classifier


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One released model and what the adversary knows of how it was made.

    Attributes:
        name: Unique within its factor.
        training: How the model is trained.
        n_fixed: Records known; None for the scale's default.
        n_shadow: Shadow models of the learned attacks; None for the scale's default.
        precision: "float32" or "float64" of the release; inversion computes in the same.
        is_start_known: Whether the adversary knows the parameters that training began with.
        is_order_known: Whether it knows the order of mini-batches.
        access: "weights", "logits" (black box) or "layers" (the last one).
        mu: Of DP-GD with zeroed-out neighbours, or None without privacy.
        clip_norm: Of DP-GD.
        learned: Attacks on shadow models: "ridge", "quadratic", or recipes of `reconn`.
    """

    name: str
    training: Training = Training()  # noqa: RUF009 (frozen)
    n_fixed: int | None = None
    n_shadow: int | None = None
    precision: str = "float32"
    is_start_known: bool = True
    is_order_known: bool = True
    access: str = "weights"
    mu: float | None = None
    clip_norm: float = 1.0
    learned: tuple[str, ...] = ("ridge", "quadratic", "fast")

    @property
    def has_inversion(self) -> bool:
        """Whether training can be repeated but for the target, the order and noise, and its end is seen whole."""
        return self.is_start_known and self.access == "weights"


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How much is computed.

    Attributes:
        data: Name of the data set.
        targets: Released models attacked, one a target.
        n_fixed: Records known.
        n_shadow: Shadow models.
        sizes: Numbers of shadow models of the factor "shadows".
        fixed_sizes: Sizes of the known set of the factor "fixed".
        factors: Those that are run.
    """

    data: str
    targets: int
    n_fixed: int
    n_shadow: int
    sizes: tuple[int, ...]
    fixed_sizes: tuple[int, ...]
    factors: tuple[str, ...]

    def __post_init__(self) -> None:
        """Checks every field that can be checked without the data."""
        validate.integer(targets=self.targets, n_fixed=self.n_fixed, n_shadow=self.n_shadow)
        validate.one_of(FACTORS, **{f"factor {i + 1}": name for i, name in enumerate(self.factors)})


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
    "privacy",
)


def settings(factor: str, scale: Scale) -> list[Setting]:
    """What a factor varies, at a scale.

    Raises:
        ValueError: an unknown factor.
    """
    validate.one_of(FACTORS, factor=factor)
    default = Training()
    short = dataclasses.replace(default, epochs=20, batch_size=max(8, scale.n_fixed // 10))
    return {
        "default": [Setting(name="default")],
        "precision": [Setting(name="float64", precision="float64")],
        "shadows": [
            *(Setting(name=f"{size} shadows", n_shadow=size) for size in scale.sizes[:-1]),
            # The authors' notebook, at the sizes that were measured with its own code.
            *(
                Setting(name=f"notebook, {size} shadows", n_shadow=size, learned=("notebook",))
                for size in (scale.n_shadow // 2, scale.n_shadow)
            ),
            *(Setting(name=f"{size} shadows", n_shadow=size) for size in scale.sizes[-1:]),
        ],
        "fixed": [Setting(name=f"{size} known", n_fixed=size) for size in scale.fixed_sizes],
        "width": [Setting(name=f"width {w}", training=_model(hidden=(w,))) for w in (100, 1000)],
        "depth": [
            Setting(name="no hidden layer", training=_model(hidden=())),
            Setting(name="two hidden layers", training=_model(hidden=(10, 10))),
        ],
        "activation": [Setting(name=a, training=_model(activation=a)) for a in ACTIVATIONS if a != "elu"],
        "epochs": [Setting(name=f"{e} epochs", training=dataclasses.replace(default, epochs=e)) for e in (10, 30, 300)],
        "learning_rate": [
            Setting(name=f"rate {r:g}", training=dataclasses.replace(default, learning_rate=r))
            for r in (0.01, 0.03, 0.3)
        ],
        "optimizer": [
            Setting(name="Adam", training=dataclasses.replace(default, optimizer="adam", learning_rate=0.01)),
            Setting(name="no momentum", training=dataclasses.replace(default, momentum=0.0)),
        ],
        "batch": [
            Setting(name="mini-batches, order known", training=short),
            Setting(name="mini-batches, order unknown", training=short, is_order_known=False),
        ],
        "start": [Setting(name="start unknown", is_start_known=False)],
        "access": [Setting(name="black box", access="logits"), Setting(name="last layer", access="layers")],
        "privacy": [Setting(name=f"mu {mu:g}", mu=mu) for mu in (1.0, 3.0, 10.0, 30.0, 100.0, 300.0)],
    }[factor]


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
        sizes=(60,),
        fixed_sizes=(50,),
        factors=("default", "shadows", "start", "privacy"),
    ),
    "cpu": Scale(
        data="mnist",
        targets=100,
        n_fixed=999,
        n_shadow=1000,
        sizes=(500, 2000, 5000, 20000),
        fixed_sizes=(99, 9999),
        factors=FACTORS,
    ),
    "full": Scale(
        data="mnist",
        targets=1000,
        n_fixed=9999,
        n_shadow=50_000,
        sizes=(1000, 5000, 10_000, 20_000),
        fixed_sizes=(99, 999),
        factors=FACTORS,
    ),
}
"""By name: "smoke" takes a minute on digits, "cpu" hours on two cores, "full" (the paper's sizes) a GPU."""
