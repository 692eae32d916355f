"""How much precision the closed-form attack on PCA needs, and what a prior and bounds add to it.

    python -m experiments.pca_closed_form.run                  # MNIST: 1,000 targets, 4,000 public records
    python -m experiments.pca_closed_form.run --scale smoke    # digits: the same code in seconds

Every cell is one size of the known set, one precision of the published coordinates and one attack. It is one line of
`results.jsonl`, kept when the cell is done; the same command goes on with an interrupted run. All cells attack the
same targets, and a smaller known set is the beginning of a larger one. Runtime and figures: README.md in this folder.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from drjax.attacks import metrics
from drjax.attacks.reconstruction import closed_form
from drjax.attacks.reconstruction.priors import GaussianPrior
from drjax.attacks.shadow import shadow_embeddings
from drjax.core import validate
from drjax.core.types import Embedding, count_status
from drjax.data import Dataset, Splits, load, split
from drjax.dr import PCA
from drjax.reports import records
from experiments import command
from experiments.cells import Cell, Computed, Group, by, cell_of
from experiments.pca_closed_form.report import to_markdown
from experiments.sweep import RESULTS, Asked, Sweep, cell_name

RELEASES = {
    "float64": (np.float64, None),
    "float32": (np.float32, None),
    "6 decimals": (np.float64, 6),
    "4 decimals": (np.float64, 4),
    "2 decimals": (np.float64, 2),
}
"""Precision of the published coordinates by name: what they are computed in, and the decimals they are rounded to."""

ATTACKS = {
    "closed form": (False, None),
    "with Gaussian prior": (True, None),
    "with Gaussian prior and bounds": (True, (0.0, 1.0)),
}
"""Attacks by name: whether they have a prior, and the bounds of every feature that they know of."""

N_DECOYS = 1000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """What decides the results.

    Attributes:
        data: Name of a data set or path of a file, as `drjax.data.load` takes it.
        n_known: Sizes of the known set; a release has one record more.
        targets: Records attacked, each in a release of its own.
        public: Records that the prior is fitted on.
        seed: Of the split and the intervals; PCA has no randomness.
    """

    data: str = "mnist"
    n_known: tuple[int, ...] = (9, 99, 199, 499, 999)
    targets: int = 1000
    public: int = 4000
    seed: int = 0

    def __post_init__(self) -> None:
        """Checks every field that can be checked without the data."""
        validate.integer(targets=self.targets)
        validate.integer(minimum=2, public=self.public)
        validate.integer(minimum=0, seed=self.seed)
        if not self.n_known:
            raise ValueError("n_known must hold at least one size, got none")
        for n_known in self.n_known:
            validate.integer(n_known=n_known)


SMOKE = Config(data="digits", n_known=(9, 99), targets=50, public=500)


def groups(asked: Asked[Config]) -> Iterator[Group]:
    """The cells of each size of the known set, which have its releases in common."""
    for n_known in asked.config.n_known:
        cells = [
            cell_of(cell_name(n_known, i, j, release, attack), n_known=n_known, release=release, attack=attack)
            for i, release in enumerate(RELEASES)
            for j, attack in enumerate(ATTACKS)
        ]
        yield Group(cells=tuple(cells), compute=functools.partial(_compute, asked.config, n_known))


def report(out: Path, config: Config) -> str:
    """The table of all cells of the configuration."""
    done = {SWEEP.identity(line): line for line in records.read_records(out / RESULTS)[1:]}
    order = itertools.product(config.n_known, RELEASES, ATTACKS)
    return to_markdown(done[cell] for cell in order if cell in done)


class _Given(NamedTuple):
    """What all cells have in common."""

    data: Dataset
    parts: Splits
    score_key: jax.Array
    prior: Callable[[], GaussianPrior]


@functools.lru_cache(maxsize=1)
def _given(config: Config) -> _Given:
    data = load(config.data)
    split_key, score_key = jax.random.split(jax.random.key(config.seed))
    parts = split(
        split_key,
        data,
        n_known=max(config.n_known),
        n_shadow=config.public,
        n_validation=0,
        n_targets=config.targets,
    )
    return _Given(data, parts, score_key, functools.cache(lambda: GaussianPrior.fit(data.x[parts.shadow])))


def _compute(config: Config, n_known: int, missing: Sequence[Cell]) -> Iterator[Computed]:
    data, parts, score_key, prior = _given(config)
    known = data.x[parts.known[:n_known]]
    embed = functools.cache(functools.partial(_embed, known, data.x[parts.targets]))
    for cell in missing:
        dtype, decimals = RELEASES[cell.fields["release"]]
        embedding = embed(dtype)
        coords = embedding.coords if decimals is None else np.round(embedding.coords, decimals)
        published = embedding._replace(coords=coords)
        yield cell, _attack(cell.fields["attack"], known, published, data, parts, prior, score_key)


def _embed(known: np.ndarray, targets: np.ndarray, dtype: type[np.floating]) -> Embedding:
    with jax.enable_x64(True):
        # PCA ignores the key.
        return shadow_embeddings(jax.random.key(0), PCA(), known.astype(dtype), targets.astype(dtype))


def _attack(
    name: str,
    known: np.ndarray,
    release: Embedding,
    data: Dataset,
    parts: Splits,
    prior: Callable[[], GaussianPrior],
    key: jax.Array,
) -> dict[str, Any]:
    has_prior, bounds = ATTACKS[name]
    fitted = prior() if has_prior else None
    begun = time.perf_counter()
    result = closed_form.reconstruct_pca(known, release.coords, prior=fitted, bounds=bounds)
    seconds = time.perf_counter() - begun
    public = data.x[parts.shadow]
    decoy_key, bootstrap_key = jax.random.split(key)
    status = np.asarray(release.status) | result.status
    scores = metrics.evaluate(
        bootstrap_key,
        result.x,
        data.x[parts.targets],
        neighbors=np.concatenate([known, public]),
        decoys=metrics.sample_decoys(decoy_key, public, min(N_DECOYS, len(public))),
        status=status,
        seconds=seconds,
    )
    return {"scores": scores, "status_counts": count_status(status)}


SWEEP = Sweep(
    name="pca_closed_form",
    about=__doc__,
    scales={"smoke": SMOKE, "cpu": Config()},
    plain="cpu",
    groups=groups,
    sources=lambda asked, _: _given(asked.config).data,
    identity=by("n_known", "release", "attack"),
    said=lambda line: f"{line['n_known']} known, {line['release']}, {line['attack']}",
    options=Config(),
    configured=command.overriding(Config()),
    report=report,
    x64=True,
)


if __name__ == "__main__":
    command.main(SWEEP)
