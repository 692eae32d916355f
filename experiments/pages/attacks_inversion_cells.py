"""How far known and wrong records are from rest in t-SNE maps, under three forces: tables of docs/attacks."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.manifold import TSNE

from drjax.attacks.reconstruction import barnes_hut
from drjax.attacks.reconstruction.equations import TSNERest
from drjax.data import load

N_KNOWN, N_MAPS, PERPLEXITY = 199, 8, 30.0

MADE_BY = {"exact": {"method": "exact", "init": "random"}, "barnes-hut": {}}
"""Options of scikit-learn's t-SNE."""


def forces(kind: str, is_toy: bool) -> dict[str, Any]:
    """Norms of the gradient of maps of MNIST with the target and with the mean record in its place, and the median
    over known records of a record's gradient with the mean record there, by the forces that are taken.

    Args:
        kind: Key of `MADE_BY`.
        is_toy: Whether one map of digits does.
    """
    x = load("digits" if is_toy else "mnist").x
    n_known, m = (59, 1) if is_toy else (N_KNOWN, N_MAPS)
    perplexity = 6.0 if is_toy else PERPLEXITY
    order = np.random.default_rng(0).permutation(len(x))
    known, targets = x[order[:n_known]], x[order[n_known : n_known + m]]
    found: dict[str, dict[str, list[float]]] = {}
    for i, target in enumerate(targets):
        made = TSNE(perplexity=perplexity, random_state=i, **MADE_BY[kind]).fit_transform(np.vstack([target, known]))
        for name, (truth, wrong, median) in _norms(known, target, made, perplexity).items():
            own = found.setdefault(name, {"truth": [], "mean": [], "median_known": []})
            for what, value in zip(own, (truth, wrong, median), strict=True):
                own[what].append(value)
    return {"n_maps": m, "by_forces": found}


def _norms(known: np.ndarray, target: np.ndarray, made: np.ndarray, perplexity: float) -> dict[str, Any]:
    with jax.enable_x64(True):
        records, release = jnp.asarray(known, jnp.float64), jnp.asarray(made, jnp.float64)
        between = jnp.sum((records[:, None] - records) ** 2, axis=-1)
        every = TSNERest(known=records, between=between, perplexity=perplexity)
        cut = every.nearest()
        groups = dataclasses.replace(cut, excess=jnp.asarray(barnes_hut.excess(np.asarray(release))))
        found = {}
        for name, equations in {"all": every, "cut": cut, "groups": groups}.items():
            left, wrong = (_residual(equations, release, jnp.asarray(x)) for x in (target, records.mean(axis=0)))
            rows = jnp.linalg.norm(wrong.reshape(release.shape)[1:], axis=1)
            found[name] = [float(jnp.linalg.norm(r)) for r in (left, wrong)] + [float(jnp.median(rows))]
    return found


@jax.jit
def _residual(equations: TSNERest, release: jax.Array, x: jax.Array) -> jax.Array:
    return jnp.asarray(equations.residual(release, x.astype(release.dtype)))


TABLES = {"tsne-forces": {kind: functools.partial(forces, kind) for kind in MADE_BY}}
"""What computes the facts of a cell, by table and cell."""
