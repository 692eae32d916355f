"""The five releases that paper 002 compares PCA-Gauss with, behind the protocol of `drjax.synthesis.contract`.

| in paper 002 | here | what it is |
|---|---|---|
| Li et al. | `BernoulliIdentity` | random projection of either sign, every record with noise |
| Jiang et al. | `PCAIdentity`, `LDAIdentity` | principal or discriminant components, every record with noise |
| Blum et al. | `ExponentialMechanism` | one of many public data sets, by the exponential mechanism |
| Liu | `MODIPS` | a Gaussian in all dimensions with noisy moments |
| adapted Blocki et al. | `RandomProjectionGauss` | Gaussian random projection, a Gaussian with noisy moments |

Sensitivities, proofs, and what the paper leaves open: experiments/pca_gauss/baselines/README.md.
"""

from __future__ import annotations

from typing import Any

from experiments.pca_gauss.baselines.exponential import ExponentialMechanism
from experiments.pca_gauss.baselines.gaussian import MODIPS, RandomProjectionGauss
from experiments.pca_gauss.baselines.identity import BernoulliIdentity, LDAIdentity, PCAIdentity, ReleasedRecords

__all__ = [
    "BASELINES",
    "MODIPS",
    "BernoulliIdentity",
    "ExponentialMechanism",
    "LDAIdentity",
    "PCAIdentity",
    "RandomProjectionGauss",
    "ReleasedRecords",
]

BASELINES: dict[str, Any] = {
    method.name: method
    for method in (BernoulliIdentity, PCAIdentity, LDAIdentity, ExponentialMechanism, MODIPS, RandomProjectionGauss)
}
"""By name."""
