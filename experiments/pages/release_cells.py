"""What knowing the mechanism is worth against private PCA: attacks on digits, the table of docs/release/report.md.

The simulation of `drjax release pca`: a quarter of the digits are members, a quarter others, and the adversary has the
rest; 20 components, delta 1e-6, public centre and norm bound from 400 further digits.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np

from drjax.data import load
from drjax.defenses.dp_pca import AnalyticGauss
from drjax.releases import expected

EPSILONS, DELTA = (1.0, 8.0, 64.0, 512.0), 1e-6

N_SPLITS, N_COMPONENTS = 20, 20


def membership(epsilon: float, is_toy: bool) -> dict[str, Any]:
    """Mean AUC over splits and draws of noise with its 95% interval, by attack on the noisy release."""
    x = np.random.default_rng(0).permutation(load("digits").x.astype(np.float64))
    public, private = x[:400], x[400:]
    center = public.mean(axis=0)
    mechanism = AnalyticGauss.analytic(
        epsilon,
        DELTA,
        neighbouring="replace_one",
        n_components=N_COMPONENTS,
        center=center,
        row_norm=float(np.quantile(np.linalg.norm(public - center, axis=1), 0.9)),
    )
    found = expected.membership(jax.random.key(0), mechanism, private, n_splits=2 if is_toy else N_SPLITS)
    return {
        "n_members": found.n_members,
        "n_splits": found.n_splits,
        "auc": {attack.name: attack.auc._asdict() for attack in found.attacks if attack.is_private},
    }


TABLES = {"release-membership": {f"{epsilon:g}": functools.partial(membership, epsilon) for epsilon in EPSILONS}}
"""What computes the facts of a cell, by table and cell."""
