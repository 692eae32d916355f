"""What is computed, by scale. README.md beside this file says what each takes and what comes out."""

from __future__ import annotations

import dataclasses

from drjax.attacks.property.models import CONFIGS, PropertyConfig
from drjax.core import validate
from drjax.nets import plot_networks
from drjax.nets.plot_networks import PlotNetworkConfig
from experiments.tsne_property import data, extractors

TENTHS = tuple(i / 10 for i in range(11))
TWENTIETHS = tuple(i / 20 for i in range(21))
OTHERS = ("utkface:white", "lfw:big_nose", "lfw:smiling", f"mnist:{data.DIGIT}", *data.USER_PROPERTIES)


DENSENET = dataclasses.replace(
    CONFIGS["picture"],
    epochs=40,
    patience=40,
    learning_rate=1e-3,
    network=dataclasses.replace(plot_networks.CONFIGS["densenet121"], dtype="bfloat16"),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """What decides the results.

    Attributes:
        main: Properties that every seed is spent on.
        others: Properties of the first seeds.
        extractor: Of shadow and target.
        other_extractors: Tried on the first property of `main`.
        fine_tuned: Properties whose sides each fine-tune the network of `extractors.TUNABLE` on another task.
        levels: Shares of the plots for regression.
        n: Points of a plot.
        n_train, n_test: Plots for each of these levels.
        n_class_train, n_class_test: Plots for each of the five classes.
        densities: Other numbers of points, of the first property of `main`.
        numbers: Other numbers of training plots for each level.
        few: Plots for each level of the second property that are mixed with all of the first.
        seeds: Of `main`.
        picture_seeds, picture_regression_seeds, densenet_seeds, set_seeds: Of those attacks on `main`.
        defence_seeds, property_seeds, other_seeds: Of the defences; of `others`; of everything else.
        picture: How the network on pictures is trained.
        densenet: How the paper's is, on pictures of 300 x 300; wants a GPU.
        set: How the network on coordinates is trained.
        seed: For the records of a run; halves and groups follow from the seeds above.
    """

    main: tuple[str, ...]
    others: tuple[str, ...] = ()
    extractor: str = "imagenet"
    other_extractors: tuple[str, ...] = ()
    fine_tuned: tuple[str, ...] = ()
    levels: tuple[float, ...] = TENTHS
    n: int = 500
    n_train: int = 40
    n_test: int = 15
    n_class_train: int = 40
    n_class_test: int = 15
    densities: tuple[int, ...] = ()
    numbers: tuple[int, ...] = ()
    few: tuple[int, ...] = ()
    seeds: int = 5
    picture_seeds: int = 5
    picture_regression_seeds: int = 1
    densenet_seeds: int = 0
    set_seeds: int = 1
    defence_seeds: int = 1
    property_seeds: int = 1
    other_seeds: int = 1
    picture: PropertyConfig = CONFIGS["picture"]
    densenet: PropertyConfig = DENSENET
    set: PropertyConfig = CONFIGS["set"]
    seed: int = 0

    def __post_init__(self) -> None:
        """Checks every field that can be checked without the data."""
        validate.integer(n=self.n, n_train=self.n_train, n_test=self.n_test, seeds=self.seeds)
        validate.integer(n_class_train=self.n_class_train, n_class_test=self.n_class_test)
        counts = {"picture_seeds": self.picture_seeds, "picture_regression_seeds": self.picture_regression_seeds}
        counts |= {
            "densenet_seeds": self.densenet_seeds,
            "set_seeds": self.set_seeds,
            "defence_seeds": self.defence_seeds,
        }
        counts |= {"property_seeds": self.property_seeds, "other_seeds": self.other_seeds}
        validate.integer(minimum=0, seed=self.seed, **counts)
        if not self.main:
            raise ValueError("main must name at least one property, got none")
        for name in (*self.main, *self.others, *self.fine_tuned):
            validate.one_of((*data.PROPERTIES, *data.USER_PROPERTIES), **{"a property": name})
        for name in (self.extractor, *self.other_extractors):
            validate.one_of(extractors.NAMES, **{"an extractor": name})


SCALES = {
    "smoke": Config(
        main=("digits:even",),
        extractor="pca",
        n=80,
        n_train=6,
        n_test=4,
        n_class_train=6,
        n_class_test=4,
        densities=(60,),
        few=(2,),
        seeds=2,
        picture_seeds=1,
        picture_regression_seeds=0,
        set_seeds=0,
        defence_seeds=0,
        picture=PropertyConfig(
            epochs=2, batch_size=16, network=PlotNetworkConfig(size=20, blocks=(1, 1), growth=4, stem=4)
        ),
    ),
    "cpu": Config(
        main=("utkface:male", "lfw:male"),
        others=OTHERS,
        other_extractors=("imagenet-2", "objects", "pca"),
        fine_tuned=("utkface:male", "lfw:smiling"),
        densities=(250, 1000),
        numbers=(5, 20),
        few=(0, 5, 20),
        set=dataclasses.replace(CONFIGS["set"], epochs=20),
    ),
    "full": Config(
        main=("utkface:male", "lfw:male"),
        others=OTHERS,
        other_extractors=("imagenet-2", "objects", "pca"),
        fine_tuned=("utkface:male", "lfw:smiling"),
        levels=TWENTIETHS,
        n=1000,
        n_train=30,
        n_test=10,
        n_class_train=150,
        n_class_test=50,
        densities=(500, 750),
        numbers=(5, 10, 20),
        few=(0, 5, 10, 20),
        picture_regression_seeds=5,
        densenet_seeds=1,
        set_seeds=5,
        defence_seeds=3,
        property_seeds=2,
        other_seeds=2,
    ),
}
"""`full` has the paper's numbers for the five classes: 750 and 250 plots of 1,000 points. For regression it has 630 and
210 at 21 shares, the paper 5,000 at 101."""
