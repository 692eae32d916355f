"""Success of attacks on embeddings of noisy records against what reconstruction robustness allows.

    python -m experiments.private_embeddings.run

Every record is cut to a norm and gets Gaussian noise before PCA, which is post-processing: with the target's row zeroed
out in one of two neighbours the release is mu-GDP, mu = norm / sigma. The adversary knows all other records without
noise. Success is an error of at most eta^2 / d, the mean over targets of the error of the nearest other record.

Whoever sees the noisy record itself, of which the embedding is made, knows more: two attacks do, by a posterior over
public records and by a Gaussian one. Two others see only the embedding.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from matplotlib.figure import Figure
from scipy.spatial.distance import cdist
from scipy.special import softmax

from drjax.attacks.reconstruction import closed_form
from drjax.attacks.reconstruction.baselines import fit_ridge
from drjax.attacks.reconstruction.priors import GaussianPrior
from drjax.attacks.shadow import shadow_embeddings
from drjax.bounds.prior import EmpiricalKappa, kappa_empirical
from drjax.bounds.rero import success_of_mu
from drjax.core import validate
from drjax.core.statistics import Interval, share_interval
from drjax.data import Dataset, load, split
from drjax.defenses.noisy_dr import InputNoise
from drjax.dr import PCA
from drjax.reports import bound_plots, records
from experiments import command, drawings
from experiments.cells import Cell, Computed, Group, by, cell_of
from experiments.private_embeddings.report import to_markdown
from experiments.sweep import RESULTS, Asked, Sweep, cell_name


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """What decides the results.

    Attributes:
        data: Name of a data set, as `drjax.data.load` takes it.
        n_known: Records known beside the target.
        n_shadow: Public records: shadow releases, candidates of the posterior, samples of the prior.
        n_targets: Records attacked, each in a release of its own.
        norm: Largest Euclidean norm of a record; longer ones are cut.
        mu: Guarantees.
        seed: Of everything that is drawn.
    """

    data: str = "digits"
    n_known: int = 99
    n_shadow: int = 1200
    n_targets: int = 400
    norm: float = 4.0
    mu: tuple[float, ...] = (0.3, 1.0, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0)
    seed: int = 0

    def __post_init__(self) -> None:
        """Checks every field that can be checked without the data."""
        validate.integer(minimum=2, n_known=self.n_known, n_targets=self.n_targets)
        validate.integer(minimum=8, n_shadow=self.n_shadow)
        validate.integer(minimum=0, seed=self.seed)
        validate.positive(norm=self.norm, **{f"mu {i + 1}": mu for i, mu in enumerate(self.mu)})


ATTACKS = (
    "posterior over public records, noisy record itself",
    "Gaussian posterior, noisy record itself",
    "ridge on shadow embeddings",
    "closed form of PCA",
)


def groups(asked: Asked[Config]) -> Iterator[Group]:
    """The attacks at each guarantee, which have the releases in common."""
    for i, mu in enumerate(asked.config.mu):
        cells = [cell_of(cell_name(i, j, attack), mu=mu, attack=attack) for j, attack in enumerate(ATTACKS)]
        yield Group(cells=tuple(cells), compute=functools.partial(_compute, asked.config, mu))


class Given(NamedTuple):
    """What all guarantees have in common.

    Attributes:
        data: The data set.
        known: (n_known, d), cut to the norm as all of them.
        public: (n_shadow, d).
        targets: (n_targets, d).
        radius: Largest distance of a success.
        kappa: What a guess without the release has.
        prior: Law of the public records.
    """

    data: Dataset
    known: np.ndarray
    public: np.ndarray
    targets: np.ndarray
    radius: float
    kappa: EmpiricalKappa
    prior: GaussianPrior


@functools.lru_cache(maxsize=1)
def _given(config: Config) -> Given:
    data = load(config.data)
    split_key = _keys(config)[0]
    parts = split(
        split_key, data, n_known=config.n_known, n_shadow=config.n_shadow, n_validation=0, n_targets=config.n_targets
    )
    x = data.x.reshape(len(data.x), -1).astype(np.float64)
    x *= np.minimum(1, config.norm / np.linalg.norm(x, axis=1, keepdims=True))
    known, public, targets = x[parts.known], x[parts.shadow], x[parts.targets]
    others = np.concatenate([known, public])
    radius = float(np.sqrt(np.mean(np.min(cdist(targets, others), axis=1) ** 2)))
    kappa = kappa_empirical(public, radius)
    return Given(data, known, public, targets, radius, kappa, GaussianPrior.fit(public))


def _keys(config: Config) -> jax.Array:
    """Of the split, the releases, the shadows and the noise."""
    return jax.random.split(jax.random.key(config.seed), 4)


def _compute(config: Config, mu: float, missing: Sequence[Cell]) -> Iterator[Computed]:
    """Success of each attack with its interval, and the bound."""
    _, known, public, targets, radius, kappa, prior = _given(config)
    _, release_key, shadow_key, noise_key = _keys(config)
    sigma = config.norm / mu
    method = InputNoise(method=PCA(n_components=2), sigma=sigma)
    released = shadow_embeddings(release_key, method, known, targets)
    shadows = np.asarray(shadow_embeddings(shadow_key, method, known, public).coords)
    coords = np.asarray(released.coords)
    seen = targets + sigma * np.asarray(jax.random.normal(noise_key, targets.shape), np.float64)

    def closed() -> np.ndarray:
        # The adversary knows of the noise and measures it on shadows.
        noise = closed_form.noise_of(known, shadows)
        return closed_form.reconstruct_pca(known, coords, prior=prior, noise=noise).x

    attacks: tuple[Callable[[], np.ndarray], ...] = (
        lambda: most_likely(seen, public, sigma, radius),
        lambda: denoised(seen, prior, sigma),
        lambda: fit_ridge(shadows, public).reconstruct(coords).x,
        closed,
    )
    for cell in missing:
        guess = attacks[ATTACKS.index(cell.fields["attack"])]()
        hits = int(np.sum(np.linalg.norm(guess - targets, axis=1) <= radius))
        yield cell, _facts(mu, hits, len(targets), kappa, radius**2 / targets.shape[1])


def most_likely(seen: np.ndarray, public: np.ndarray, sigma: float, radius: float) -> np.ndarray:
    """For each noisy record (m, d) the public record (N, d) that has most of the posterior within `radius`.

    The prior is the public records, all alike; costs O(m N^2).
    """
    within = cdist(public, public) <= radius
    posterior = softmax(-(cdist(seen, public, "sqeuclidean")) / (2 * sigma**2), axis=1)
    return public[np.argmax(posterior @ within, axis=1)]


def denoised(seen: np.ndarray, prior: GaussianPrior, sigma: float) -> np.ndarray:
    """The posterior mean of each noisy record (m, d) under a Gaussian prior."""
    covariance = prior.covariance
    gain = np.linalg.solve(covariance + sigma**2 * np.eye(len(covariance)), covariance)
    return prior.mean + (seen - prior.mean) @ gain


def _facts(mu: float, hits: int, n: int, kappa: EmpiricalKappa, mse: float) -> dict[str, Any]:
    bound = {
        "bound": float(success_of_mu(kappa.upper_of_all, mu)),
        "estimate": float(success_of_mu(kappa.kappa, mu)),
    }
    kappas = {"kappa": kappa.kappa, "kappa_of_all": kappa.upper_of_all}
    return {"success": share_interval(hits, n), "mse": mse, **bound, **kappas}


def drawn(out: Path) -> dict[str, Figure]:
    """The figure by its name.

    Args:
        out: Folder of `results.jsonl`.
    """
    rows = _rows(out)
    of = {"kappa": rows[0]["kappa_of_all"], "guess": rows[0]["kappa"], "mse": rows[0]["mse"]}
    return {"success": bound_plots.success_over_mu(rows, **of)}


def _rows(out: Path) -> list[dict[str, Any]]:
    lines = records.read_records(out / RESULTS)[1:]
    return [{**line, "success": Interval(**line["success"])} for line in lines]


def report(out: Path, _: Config) -> str | None:
    """Writes success.svg and returns the table; None where nothing was computed."""
    lines = records.read_records(out / RESULTS)[1:]
    if not lines:
        return None
    drawings.save(drawn(out), out)
    return to_markdown(lines)


SWEEP = Sweep(
    name="private_embeddings",
    about=__doc__,
    scales={"cpu": Config()},
    plain="cpu",
    groups=groups,
    sources=lambda asked, _: _given(asked.config).data,
    identity=by("mu", "attack"),
    said=lambda line: f"mu {line['mu']:g}, {line['attack']}: {line['success']['estimate']:.3f}",
    options=Config(),
    configured=command.overriding(Config()),
    report=report,
)


if __name__ == "__main__":
    command.main(SWEEP)
