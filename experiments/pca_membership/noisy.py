"""What knowing the mechanism is worth against private PCA: attacks on digits, mean AUC over splits.

    python -m experiments.pca_membership.noisy          # 2 minutes

The simulation of `drjax release pca`: a quarter of the digits are members, a quarter others, and the adversary has the
rest; 20 components, delta 1e-6, public centre and norm bound from 400 further digits.
"""

from __future__ import annotations

import jax
import numpy as np
import tyro

from drjax.data import load
from drjax.defenses.dp_pca import AnalyticGauss
from drjax.releases import expected

EPSILONS = (1.0, 8.0, 64.0, 512.0)


def main(*, n_splits: int = 20, n_components: int = 20, seed: int = 0) -> None:
    """Prints a table: AUC with its 95% interval, by attack and epsilon.

    Args:
        n_splits: Splits and draws of noise.
        n_components: Released.
        seed: Of all.
    """
    x = np.random.default_rng(seed).permutation(load("digits").x.astype(np.float64))
    public, private = x[:400], x[400:]
    center = public.mean(axis=0)
    fields = {
        "neighbouring": "replace_one",
        "n_components": n_components,
        "center": center,
        "row_norm": float(np.quantile(np.linalg.norm(public - center, axis=1), 0.9)),
    }
    rows: dict[str, list[str]] = {}
    for epsilon in EPSILONS:
        mechanism = AnalyticGauss.analytic(epsilon, 1e-6, **fields)
        found = expected.membership(jax.random.key(seed), mechanism, private, n_splits=n_splits)
        for attack in found.attacks:
            if attack.is_private:
                half = (attack.auc.high - attack.auc.low) / 2
                rows.setdefault(attack.name, []).append(f"{attack.auc.estimate:.3f} ± {half:.3f}")
    print(f"| {' | '.join(['attack', *(f'epsilon {epsilon:g}' for epsilon in EPSILONS)])} |")
    print(f"|{' --- |' * (len(EPSILONS) + 1)}")
    for name, cells in rows.items():
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    tyro.cli(main)
