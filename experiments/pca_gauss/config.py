"""What is computed, by scale. README.md beside this file says what each takes and what comes out."""

from __future__ import annotations

import dataclasses

from drjax.core import validate
from drjax.synthesis import utility
from experiments.pca_gauss import data

TABLES = ("clustering", "classification", "regression", "dimensions", "adult")
"""Tables II, III and IV, figures 1 and 2, and the comparison with what practitioners use."""

RELATION = "replace_one"
"""The paper's neighbours: remark 1, "the values of one entry vary"."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part:
    """One task in a table.

    Attributes:
        data: A name in `data.NAMES`.
        dimensions: Numbers of components p that every method with components is run at.
        trials: Draws of noise and synthetic records of a cell.
        n_private: Records that are private; all if None.
        n_test: Test records at most.
        n_synthetic: Records of a synthetic data set, and of the real one beside it.
        kernel: Of the support vector machine, as of `utility.svm_accuracy`.
        sweep: Numbers of components of figure 1; none if empty.
        sweep_epsilons: Of figure 1.
        sweep_trials: Of figure 1.
    """

    data: str
    dimensions: tuple[int, ...]
    trials: int
    n_private: int | None = None
    n_test: int = 4000
    n_synthetic: int = 5000
    kernel: str = "linear"
    sweep: tuple[int, ...] = ()
    sweep_epsilons: tuple[float, ...] = ()
    sweep_trials: int = 10

    def __post_init__(self) -> None:
        """Checks what needs no data."""
        validate.one_of(data.NAMES, data=self.data)
        validate.integer(minimum=2, trials=self.trials, sweep_trials=self.sweep_trials, n_synthetic=self.n_synthetic)
        validate.integer(n_test=self.n_test)
        validate.one_of(utility.KERNELS, kernel=self.kernel)
        for p in (*self.dimensions, *self.sweep):
            validate.integer(**{f"a dimension of {self.data}": p})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Practice:
    """Adult against MST and AIM.

    Attributes:
        data: Adult, or None to leave it out.
        n_private: As of a part.
        delta: Of all methods.
        dimensions: Of PCA-Gauss and RON-Gauss.
        trials: Of both.
        package_trials: Of MST and AIM, which take longer.
        n_rounds: Of AIM.
        n_bins: Of columns that are numbers.
    """

    data: str | None = "adult"
    n_private: int | None = None
    delta: float = 1e-6
    dimensions: tuple[int, ...] = (10, 40, 80)
    trials: int = 5
    package_trials: int = 3
    n_rounds: int = 16
    n_bins: int = 16

    def __post_init__(self) -> None:
        """Checks what needs no data."""
        validate.integer(minimum=2, trials=self.trials, package_trials=self.package_trials, n_bins=self.n_bins)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """What decides the results.

    Attributes:
        clustering: Table II.
        classification: Table III, by data set.
        regression: Table IV.
        practice: Adult.
        epsilon: Of the tables.
        n_clusters: k of k-means; GFE has nine expressions. The paper does not say its own.
        other_clusters: Other k, at which a few methods are run again.
        n_init: Starts of k-means.
        silhouette_sample: Records of a silhouette.
        n_regressed: Records that kernel ridge regression is trained on.
        n_candidates: Data sets that the exponential mechanism chooses from.
        n_candidate_records: Of each.
        public_energy: Share of the public records' variance that the default p captures.
        only: Methods, beside what has no privacy or knows nothing; all if empty.
        seed: Of all that is drawn.
    """

    clustering: Part
    classification: tuple[Part, ...]
    regression: Part
    practice: Practice = Practice()
    epsilon: float = 1.0
    n_clusters: int = 9
    other_clusters: tuple[int, ...] = (2, 18)
    n_init: int = 3
    silhouette_sample: int = 1000
    n_regressed: int = 1000
    n_candidates: int = 1000
    n_candidate_records: int = 1000
    public_energy: float = 0.9
    only: tuple[str, ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        """Checks what needs no data."""
        validate.positive(epsilon=self.epsilon)
        validate.integer(minimum=2, n_clusters=self.n_clusters, silhouette_sample=self.silhouette_sample)
        validate.integer(n_init=self.n_init, n_regressed=self.n_regressed)
        validate.integer(n_candidates=self.n_candidates, n_candidate_records=self.n_candidate_records)
        validate.integer(minimum=0, seed=self.seed)


SCALES = {
    "smoke": Config(
        clustering=Part(data="digits", dimensions=(2, 4), trials=4, n_synthetic=300, sweep=(2, 8),
                        sweep_epsilons=(0.1,), sweep_trials=3),
        classification=(Part(data="realdisp", n_private=2000, n_test=300, dimensions=(4,), trials=3,
                             n_synthetic=500),),
        regression=Part(data="twitter", n_private=2000, n_test=300, dimensions=(2,), trials=3, n_synthetic=300),
        practice=Practice(data=None),
        n_clusters=3,
        other_clusters=(),
        silhouette_sample=200,
        n_regressed=200,
        n_candidates=20,
        n_candidate_records=50,
        only=("li", "pca-gauss", "pca-gauss-printed", "jiang-printed", "pca-gauss-pub"),
    ),
    "cpu": Config(
        clustering=Part(data="gfe", dimensions=(1, 2, 5, 10), trials=100, sweep=(1, 2, 5, 20, 100, 300),
                        sweep_epsilons=(0.01, 0.1, 1.0), sweep_trials=10),
        classification=(
            Part(data="realdisp", n_private=40_000, n_test=1290, dimensions=(5, 20), trials=10,
                 sweep=(2, 5, 20, 117), sweep_epsilons=(0.01, 0.1, 1.0), sweep_trials=5),
            Part(data="adult", dimensions=(5, 20), trials=10),
            Part(data="mnist", n_private=20_000, n_test=2000, dimensions=(10,), trials=5, n_synthetic=2000,
                 kernel="rbf"),
        ),
        regression=Part(data="twitter", n_private=100_000, n_test=4715, dimensions=(2, 5), trials=10,
                        sweep=(1, 2, 5, 20, 77), sweep_epsilons=(0.01, 0.1, 1.0), sweep_trials=5),
    ),
    "full": Config(
        clustering=Part(data="gfe", dimensions=(1, 2, 3, 5, 10, 20, 40), trials=100, n_synthetic=10_000,
                        sweep=(1, 2, 3, 5, 10, 20, 50, 100, 300), sweep_epsilons=(0.001, 0.01, 0.1, 1.0),
                        sweep_trials=100),
        classification=(
            Part(data="adult", dimensions=(2, 5, 10, 20, 40), trials=100, n_test=16_281),
            Part(data="realdisp", dimensions=(2, 5, 10, 20, 40), trials=100, n_test=1290,
                 sweep=(2, 5, 10, 20, 40, 80, 117), sweep_epsilons=(0.01, 0.1, 1.0), sweep_trials=100),
            Part(data="mnist", dimensions=(10, 20, 40), trials=100, n_test=2000, n_synthetic=2000, kernel="rbf"),
        ),
        regression=Part(data="twitter", dimensions=(1, 2, 5, 10, 20), trials=100, n_test=4715,
                        sweep=(1, 2, 5, 10, 20, 40, 77), sweep_epsilons=(0.01, 0.1, 1.0), sweep_trials=100),
        practice=Practice(trials=100, package_trials=10, n_rounds=32),
        n_init=10,
        silhouette_sample=2000,
        n_candidates=10_000,
    ),
}  # fmt: skip
