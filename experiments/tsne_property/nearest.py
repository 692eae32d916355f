"""How far extractors hold a property apart: how often the five nearest pictures of others name it.

    python -m experiments.tsne_property.nearest --cache runs/tsne_property/cache

t-SNE keeps near neighbours, so this is what a map can show at best. Records of a person are never each other's
neighbours; classes count alike, whatever their sizes.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tyro
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import GroupKFold, cross_val_predict
from sklearn.neighbors import KNeighborsClassifier

from experiments.tsne_property import data, extractors, map_sets

N_NEIGHBORS = 5
N_FOLDS = 5


def balanced_accuracy(features: np.ndarray, flags: np.ndarray, persons: np.ndarray | None) -> float:
    """Of the property (N,) by the nearest of features (N, f) in other folds; persons (N,) are in one fold."""
    groups = np.arange(len(flags)) if persons is None else persons
    # In random order: GroupKFold deals groups of one size out as they come.
    order = np.random.default_rng(0).permutation(len(flags))
    classifier = KNeighborsClassifier(N_NEIGHBORS)
    folds = GroupKFold(N_FOLDS)
    said = cross_val_predict(classifier, features[order], flags[order], groups=groups[order], cv=folds)
    return float(balanced_accuracy_score(flags[order], said))


def main(
    *,
    cache: Path = Path("runs/tsne_property/cache"),
    props: tuple[str, ...] = ("utkface:male", "lfw:male"),
    names: tuple[str, ...] = extractors.NAMES,
) -> None:
    """Prints a table.

    Args:
        cache: Folder of the extractors and of their features.
        props: In `data.PROPERTIES`.
        names: Extractors.
    """
    fixed = extractors.Fixed(cache)
    print(f"| extractor | {' | '.join(props)} |\n|{' --- |' * (len(props) + 1)}")
    for name in names:
        found = []
        for prop in props:
            given = data.case(prop)
            public = data.sides(given, map_sets.split_key(0)).public
            features = fixed.features(name, given, public)
            found.append(f"{balanced_accuracy(features, given.has_property, given.persons):.3f}")
        print(f"| {name} | {' | '.join(found)} |", flush=True)


if __name__ == "__main__":
    tyro.cli(main)
