"""Attacks on what somebody published, and embeddings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

from drjax.attacks.answer import Answer
from drjax.attacks.embedding import attack_embedding, attack_rows
from drjax.attacks.recognition.agreement import Stated
from drjax.attacks.shadow import shadow_embeddings
from drjax.core import validate
from drjax.core.types import DRMethod, Embedding
from drjax.data import Values, records_of
from drjax.data.frames import values_from_memory
from drjax.data.given_map import read_map
from drjax.dr import PCA, make_method


def attack(
    known: Any,
    coords: Any,
    *,
    method: str | DRMethod | None = None,
    scale: tuple[str, ...] = (),
    first_pca: int | None = None,
    whiten: bool = False,
    angle: float | None = None,
    release_seed: int | None = None,
    public: Any = None,
    target_row: int | Sequence[int] | None = None,
    known_features: Mapping[Any, float] | None = None,
    shuffled: bool = False,
    attack: str | None = None,
    decimals: int | None = None,
    bounds: tuple[float, float] | None = None,
    schema: Any = None,
    seed: int = 0,
    **hyperparameters: Any,
) -> Answer | tuple[Answer, ...]:
    """Reconstructs the one unknown record of a published embedding from the others; values are used as they are.

    Args:
        known: (n-1, d) records in the order of the release, unless shuffled: path, array or DataFrame. Tables that hold
            more than numbers are read by a plan, see `drjax.data.plan`.
        coords: (n, k) coordinates, given in one of these ways.
        method: Key of `METHODS`, of which what is not stated is recognised; a method with all its hyperparameters; or
            None: recognised by the known records.
        scale: Steps on the records before a method that is named, such as "standard".
        first_pca: Principal components that it is given in place of the records; None for the records.
        whiten: Whether coordinates are scaled to unit variance.
        angle: Opening angle of the Barnes-Hut algorithm, to be compared with a map of "tsne"; None if it is not stated.
        release_seed: Seed that `drjax.embed` was given, where it is known; of use where a method draws and does not
            descend. None if it is not stated.
        public: (s, d) other records of the same kind, given in one of these ways; None if there are none.
        target_row: Row of the unknown record in coords, from 0; 0 if None. Of several unknown records their rows, and
            the answer is one for each; that needs a method, and known has as many rows less.
        known_features: Values of the target that the adversary has, by the number of the feature from 0 or the name of
            its column; needs public records.
        shuffled: Whether nobody knows which row is whose: they are matched.
        attack: Name in `ATTACKS["embedding"]`; the one that errs least on practice releases if None.
        decimals: Decimals that coordinates are rounded to; found out if None.
        bounds: Least and greatest value of every feature, which then count in one unit; None if there are none.
        schema: What is stated of the columns of known and public, by column, or a file of that (`drjax data plan`).
        seed: Seed of shadow releases.
        **hyperparameters: Hyperparameters of the method by name.

    Raises:
        ValueError: as of `drjax.attacks.embedding.attack_embedding`, or a known feature that is none.

    Example:
        >>> import drjax, numpy as np
        >>> x = np.random.default_rng(0).random((60, 5))
        >>> coords = drjax.embed(x, n_components=2)
        >>> answer = drjax.attack(x[1:], coords)
        >>> answer.verdict
        'reliable'
        >>> bool(np.abs(answer.found.x - x[0]).max() < 1e-3)
        True
    """
    is_file = isinstance(coords, str | Path)
    released = read_map(coords, argument="coords").coords if is_file else values_from_memory(coords).x
    (given, *more), _ = records_of(known, *([] if public is None else [public]), schema=schema)
    steps = {"scale": scale, "first_pca": first_pca, "whiten": whiten}
    is_told = bool(hyperparameters) or any(steps.values()) or angle is not None or release_seed is not None
    if method is None and is_told:
        raise ValueError("method must be named with hyperparameters of it, steps around it or its seed, got None")
    stated: Any = None if method is None else _method(method, released.shape[1], hyperparameters, **steps)
    if isinstance(method, str):
        has_steps = any(map(bool, steps.values()))
        stated = Stated(stated, frozenset(hyperparameters), has_steps=has_steps, angle=angle, seed=release_seed)
    elif angle is not None:
        raise ValueError('angle must be left out unless method is "tsne" by name')
    elif release_seed is not None:
        stated = Stated.whole(stated, release_seed)
    rest: dict[str, Any] = {"attack": attack, "decimals": decimals, "bounds": bounds, "names": given.names}
    rest["public"] = more[0].x if more else None
    key = jax.random.key(seed)
    if isinstance(target_row, Sequence):
        if stated is None or shuffled or known_features is not None:
            raise ValueError(
                f"target_row must be one row without method, or shuffled or with known_features, got {target_row}"
            )
        return attack_rows(key, stated, given.x, released, target_rows=target_row, **rest)
    features = None if known_features is None else _features(known_features, given)
    options: dict[str, Any] = {"target_row": target_row, "shuffled": shuffled, "known_features": features}
    return attack_embedding(key, stated, given.x, released, **options, **rest)


def embed(
    data: Any,
    *,
    method: str | DRMethod = PCA.name,
    n_components: int = 2,
    scale: tuple[str, ...] = (),
    first_pca: int | None = None,
    whiten: bool = False,
    schema: Any = None,
    seed: int = 0,
    dtype: Literal["float32", "float64"] = "float64",
    **hyperparameters: Any,
) -> np.ndarray:
    """Coordinates (n, k) of records; values are used as they are.

    Args:
        data: (n, d): path, array or DataFrame of numbers.
        method: Key of `METHODS`, or a method with its hyperparameters.
        n_components: k.
        scale: Steps on the records before a method that is named, such as "standard".
        first_pca: Principal components that it is given in place of the records; None for the records.
        whiten: Whether coordinates are scaled to unit variance.
        schema: What is stated of the columns of a table, by column, or a file of that (`drjax data plan`).
        seed: Seed of a randomised method, in [0, 2^32), for experiments: who knows it knows the draws.
        dtype: Floating-point type of the computation.
        **hyperparameters: Hyperparameters of the method by name.

    Raises:
        ValueError: as of the method, or a seed out of its range.

    Example:
        >>> import drjax
        >>> drjax.embed(drjax.load("digits").x[:50], method="isomap", n_neighbors=6).shape
        (50, 2)
    """
    validate.seed(seed=seed)
    (given,), _ = records_of(data, schema=schema)
    x = given.x.astype(dtype)
    made = _method(method, n_components, hyperparameters, scale=scale, first_pca=first_pca, whiten=whiten)
    with jax.enable_x64(dtype == "float64"):
        # One more record beside the others: the same embedding by the faster way, with draws that the seed gives again.
        found: Embedding = shadow_embeddings(jax.random.key(seed), made, x[1:], x[:1], randomness="shared")
    return np.asarray(found.coords[0])


def _method(method: str | DRMethod, n_components: int, hyperparameters: Mapping[str, Any], **steps: Any) -> DRMethod:
    if isinstance(method, str):
        return make_method(method, n_components, hyperparameters, **steps)
    given = {**hyperparameters, **{name: value for name, value in steps.items() if value}}
    if given:
        raise ValueError(f"hyperparameters must be left out with a method that has its own, got {given}")
    return method


def _features(known_features: Mapping[Any, float], known: Values) -> np.ndarray:
    """(d,) values of features by name or number, nan for the others."""
    features = np.full(known.x.shape[1], np.nan)
    for name, value in known_features.items():
        column = known.names.index(name) if name in known.names else name
        if not isinstance(column, int) or not 0 <= column < len(features):
            raise ValueError(
                f"known_features must be by columns of known or numbers from 0 to {len(features) - 1}, got {name!r}"
            )
        features[column] = value
    return features
