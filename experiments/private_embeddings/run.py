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
from pathlib import Path
from typing import Any

import jax
import numpy as np
import tyro
from scipy.spatial.distance import cdist
from scipy.special import softmax

from drjax.attacks.reconstruction import closed_form
from drjax.attacks.reconstruction.baselines import fit_ridge
from drjax.attacks.reconstruction.priors import GaussianPrior
from drjax.attacks.shadow import shadow_embeddings
from drjax.bounds.prior import EmpiricalKappa, kappa_empirical
from drjax.bounds.rero import success_of_mu
from drjax.core import validate
from drjax.core.statistics import share_interval
from drjax.data import load, split
from drjax.defenses.noisy_dr import InputNoise
from drjax.dr import PCA
from drjax.reports import bound_plots, plots, records
from experiments import merging

RESULTS, FIGURE = "results.jsonl", "success.png"


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


def run(config: Config) -> list[dict[str, Any]]:
    """One row for each guarantee and attack: mu, success with its interval, and the bound.

    Raises:
        ValueError: too few records.
        OSError: the data set is not there.
    """
    split_key, release_key, shadow_key, noise_key = jax.random.split(jax.random.key(config.seed), 4)
    data = load(config.data)
    parts = split(
        split_key, data, n_known=config.n_known, n_shadow=config.n_shadow, n_validation=0, n_targets=config.n_targets
    )
    x = data.x.reshape(len(data.x), -1).astype(np.float64)
    x *= np.minimum(1, config.norm / np.linalg.norm(x, axis=1, keepdims=True))
    known, public, targets = x[parts.known], x[parts.shadow], x[parts.targets]
    others = np.concatenate([known, public])
    radius = float(np.sqrt(np.mean(np.min(cdist(targets, others), axis=1) ** 2)))
    kappa = kappa_empirical(public, radius)
    prior, rows = GaussianPrior.fit(public), []
    for mu in config.mu:
        sigma = config.norm / mu
        method = InputNoise(method=PCA(n_components=2), sigma=sigma)
        released = shadow_embeddings(release_key, method, known, targets)
        shadows = shadow_embeddings(shadow_key, method, known, public)
        coords = np.asarray(released.coords)
        # The adversary knows of the noise and measures it on shadows.
        noise = closed_form.noise_of(known, np.asarray(shadows.coords))
        seen = targets + sigma * np.asarray(jax.random.normal(noise_key, targets.shape), np.float64)
        found = {
            "posterior over public records, noisy record itself": most_likely(seen, public, sigma, radius),
            "Gaussian posterior, noisy record itself": denoised(seen, prior, sigma),
            "ridge on shadow embeddings": fit_ridge(np.asarray(shadows.coords), public).reconstruct(coords).x,
            "closed form of PCA": closed_form.reconstruct_pca(known, coords, prior=prior, noise=noise).x,
        }
        for name, guess in found.items():
            hits = int(np.sum(np.linalg.norm(guess - targets, axis=1) <= radius))
            rows.append(_row(mu, name, hits, len(targets), kappa, radius**2 / x.shape[1]))
    return rows


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


def _row(mu: float, attack: str, hits: int, n: int, kappa: EmpiricalKappa, mse: float) -> dict[str, Any]:
    bound = {
        "bound": float(success_of_mu(kappa.upper_of_all, mu)),
        "estimate": float(success_of_mu(kappa.kappa, mu)),
    }
    kappas = {"kappa": kappa.kappa, "kappa_of_all": kappa.upper_of_all}
    return {"mu": mu, "attack": attack, "success": share_interval(hits, n), "mse": mse, **bound, **kappas}


def main(*, config: tyro.conf.OmitArgPrefixes[Config] = Config(), out: Path = Path("runs/private_embeddings")) -> None:
    """Computes all rows, prints them and writes results.jsonl and success.png.

    Args:
        config: What to compute.
        out: Folder to write.
    """
    rows = run(config)
    head = {"kind": "run", "config": config, "provenance": records.provenance(config.seed)}
    lines = [head, *({"kind": "attack", **row} for row in rows)]
    merging.write([{"schema": records.SCHEMA_VERSION, **line} for line in lines], out / RESULTS)
    first = rows[0]
    figure = bound_plots.success_over_mu(rows, kappa=first["kappa_of_all"], guess=first["kappa"], mse=first["mse"])
    plots.save_figure(figure, out / FIGURE)
    print(
        f"radius (MSE) {first['mse']:.4f}; without the release the best guess found has {first['kappa']:.4f}, "
        f"and none more than {first['kappa_of_all']:.3f} (95%), from which the bound is computed"
    )
    print("| mu | attack | success (95% interval) | bound | with the best guess found (no bound) |")
    print("|---|---|---|---|---|")
    for row in rows:
        low_high = "{:.3f} ({:.3f} to {:.3f})".format(*row["success"])
        print(f"| {row['mu']:g} | {row['attack']} | {low_high} | {row['bound']:.3f} | {row['estimate']:.3f} |")


if __name__ == "__main__":
    tyro.cli(main)
