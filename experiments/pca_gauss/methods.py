"""What is compared, for a task and a number of components: the paper's rows, as printed and made sound.

"As printed" is the noise of the paper or its authors' code, and what it takes for public: a record's label, the
records' own mean, their own principal components. "As coded" leaves the division of components by sqrt(m) out that
lemma 1 asks for, as the authors' code does, so that its noise is smaller. "Sound" is drjax, for a guarantee
that is proven.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from drjax.synthesis.contract import Box
from drjax.synthesis.pca_gauss import Budget, PCAGauss, PCAGaussSpectrum
from drjax.synthesis.ron_gauss import RONGauss
from experiments.pca_gauss.baselines import (
    MODIPS,
    BernoulliIdentity,
    ExponentialMechanism,
    LDAIdentity,
    PCAIdentity,
    RandomProjectionGauss,
)
from experiments.pca_gauss.config import RELATION, Config
from experiments.pca_gauss.data import Task


@dataclasses.dataclass(frozen=True)
class Entry:
    """One row of a table.

    Attributes:
        label: What the row is called.
        make: From the task, the number of components and the configuration.
        is_pure: Whether delta is 0, else 1 / n.
        has_dimension: Whether it has a number of components.
        printed: Whether it follows the paper instead of what is proven.
        broken: Why nothing is guaranteed although the method's own guarantee says otherwise: what it was given.
    """

    label: str
    make: Callable[[Task, int, Config], Any]
    is_pure: bool = True
    has_dimension: bool = True
    printed: bool = False
    broken: str = ""


def box_of(task: Task) -> Box:
    """The public bounds of a task."""
    return Box.of(task.lower, task.upper)


def n_classes_of(task: Task) -> int:
    """Classes of a classification, which are public."""
    assert task.y_public is not None
    return int(task.y_public.max()) + 1


def public_center(task: Task) -> np.ndarray:
    """The mean of the public records."""
    return task.x_public.mean(axis=0, dtype=np.float64)


@functools.lru_cache(maxsize=64)
def components_of(task: Task, p: int, *, of_private: bool = False) -> np.ndarray:
    """Principal components (p, m) of the public records; or of the private ones, which nobody may know."""
    records = task.x if of_private else task.x_public
    found = PCAIdentity.from_public(records, neighbouring=RELATION, box=box_of(task), n_components=p)
    return np.asarray(found.components)


def default_dimension(task: Task, share: float) -> int:
    """Components that hold the share of the public records' variance, scaled to their bounds; public."""
    scaled = np.asarray(box_of(task).encode(task.x_public), np.float64)
    energy = np.cumsum(np.linalg.eigvalsh(np.cov(scaled.T))[::-1])
    return int(np.searchsorted(energy, share * energy[-1]) + 1)


def _common(task: Task) -> dict[str, Any]:
    fields: dict[str, Any] = {"neighbouring": RELATION, "box": box_of(task)}
    if task.kind == "classification":
        fields["n_classes"] = n_classes_of(task)
    if task.kind == "regression":
        fields["target_range"] = task.y_bounds
    return fields


def _li(task: Task, p: int, config: Config, *, paper: bool = False) -> Any:
    del config
    return BernoulliIdentity(**_common(task), n_components=p, paper=paper)


def _jiang(task: Task, p: int, config: Config, *, source: str, paper: bool = False) -> Any:
    del config
    found = None if source == "private" else components_of(task, p, of_private=source == "own")
    return PCAIdentity(**_common(task), n_components=p, components=found, paper=paper)


def _jiang_lda(task: Task, p: int, config: Config, *, paper: bool = False) -> Any:
    del p, config
    assert task.y_public is not None
    return LDAIdentity.from_public(task.x_public, task.y_public, **_common(task), paper=paper)


def _blum(task: Task, p: int, config: Config) -> Any:
    del p
    return ExponentialMechanism(
        **_common(task),
        n_candidates=config.n_candidates,
        n_records=config.n_candidate_records,
        public_seed=config.seed,
    )


def _liu(task: Task, p: int, config: Config) -> Any:
    del p, config
    return MODIPS(**_common(task))


def _blocki(task: Task, p: int, config: Config) -> Any:
    del config
    return RandomProjectionGauss(**_common(task), n_components=p)


def _spectrum(task: Task, p: int, config: Config, *, paper: bool = False) -> Any:
    del config
    center = None if paper else tuple(public_center(task).tolist())
    return PCAGaussSpectrum(**_common(task), n_components=p, center=center, paper=paper)


def _pca_gauss(task: Task, p: int, config: Config, *, source: str, paper: bool = False, is_divided: bool = True) -> Any:
    del config
    # The clip factor that the committed results were computed with.
    fields: dict[str, Any] = {"projection": source, "decode": False, "clip_factor": 0.8}
    if source == "public":
        fields["components"] = components_of(task, p)
    common = _common(task)
    if paper:
        fields |= {"paper": True, "budget": Budget.paper(), "is_divided": is_divided}
        if task.kind == "regression":
            common["target_range"] = _centered_range(task)
    return PCAGauss(**common, n_components=p, **fields)


def _centered_range(task: Task) -> tuple[float, float]:
    """Bounds of targets with the public targets' mean in the middle: algorithm 2 is of a Gaussian with mean 0."""
    assert task.y_public is not None
    low, high = task.y_bounds
    middle = float(np.mean(task.y_public, dtype=np.float64))
    width = max(middle - low, high - middle)
    return middle - width, middle + width


def _ron_gauss(task: Task, p: int, config: Config, *, paper: bool = False) -> Any:
    del config
    return RONGauss(**_common(task), n_components=p, decode=False, paper=paper)


OWN = "the components are those of the private records"

_BOTH = {
    "li": Entry("Li et al., Bernoulli projection", _li),
    "blum": Entry("Blum et al., exponential mechanism", _blum, has_dimension=False),
    "liu": Entry("Liu, MODIPS", _liu, has_dimension=False),
    "blocki": Entry("Blocki et al. adapted, Gaussian projection", _blocki, is_pure=False),
    "ron-gauss": Entry("RON-Gauss", _ron_gauss, is_pure=False),
    "li-printed": Entry("Li et al., as printed", functools.partial(_li, paper=True), printed=True),
}

CLUSTERING = {
    **_BOTH,
    "ron-gauss-printed": Entry("RON-Gauss, as in its code", functools.partial(_ron_gauss, paper=True), printed=True),
    "jiang": Entry("Jiang et al., private PCA", functools.partial(_jiang, source="private")),
    "jiang-printed": Entry("Jiang et al., PCA of the records, as printed",
                           functools.partial(_jiang, source="own", paper=True), printed=True, broken=OWN),
    "pca-gauss": Entry("PCA-Gauss, algorithm 1", _spectrum),
    "pca-gauss-delta": Entry("PCA-Gauss, algorithm 1, delta = 1/n", _spectrum, is_pure=False),
    "pca-gauss-printed": Entry("PCA-Gauss, algorithm 1, as printed", functools.partial(_spectrum, paper=True),
                               printed=True),
    "pca-gauss-directions": Entry("PCA-Gauss with private directions, delta = 1/n",
                                  functools.partial(_pca_gauss, source="private"), is_pure=False),
}  # fmt: skip
"""Of table II."""

SUPERVISED = {
    **_BOTH,
    "jiang-pub": Entry("Jiang et al., Pub-PCA", functools.partial(_jiang, source="public")),
    "jiang-printed": Entry("Jiang et al., Pub-PCA, as printed",
                           functools.partial(_jiang, source="public", paper=True), printed=True),
    "pca-gauss-pub": Entry("PCA-Gauss, Pub-PCA", functools.partial(_pca_gauss, source="public")),
    "pca-gauss-lap": Entry("PCA-Gauss, Lap-PCA", functools.partial(_pca_gauss, source="private")),
    "pca-gauss-ag": Entry("PCA-Gauss, AG-PCA, delta = 1/n", functools.partial(_pca_gauss, source="private"),
                          is_pure=False),
    "pca-gauss-pub-printed": Entry("PCA-Gauss, Pub-PCA, as printed",
                                   functools.partial(_pca_gauss, source="public", paper=True), printed=True),
    "pca-gauss-lap-printed": Entry("PCA-Gauss, Lap-PCA, as printed",
                                   functools.partial(_pca_gauss, source="private", paper=True), printed=True),
    "pca-gauss-ag-printed": Entry("PCA-Gauss, AG-PCA, as printed",
                                  functools.partial(_pca_gauss, source="private", paper=True), is_pure=False,
                                  printed=True),
}  # fmt: skip
"""Of tables III and IV."""

CLASSIFICATION = {
    **SUPERVISED,
    "jiang-lda": Entry("Jiang et al., Pub-LDA", _jiang_lda, has_dimension=False),
    "jiang-lda-printed": Entry("Jiang et al., Pub-LDA, as printed", functools.partial(_jiang_lda, paper=True),
                               has_dimension=False, printed=True),
    "pca-gauss-pub-coded": Entry("PCA-Gauss, Pub-PCA, as coded: without the division by √m",
                                 functools.partial(_pca_gauss, source="public", paper=True, is_divided=False),
                                 printed=True),
}  # fmt: skip
"""Of table III."""
