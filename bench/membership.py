"""The paper's membership attack on PCA at every number of components, beside the plain loop with scikit-learn.

    OPENBLAS_NUM_THREADS=1 python -m bench.membership

README.md beside this file says what is compared.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tyro
from sklearn.decomposition import PCA
from sklearn.metrics import roc_auc_score

from bench import harness
from drjax.attacks import membership, roc
from experiments.pca_membership.data import records


def main(
    *,
    data: str = "mnist",
    n: tuple[int, ...] = (1000, 5000),
    n_ks: int = 8,
    repeats: int = 5,
    out: Path = harness.RESULTS / "membership.jsonl",
) -> None:
    """Measures one trial: N members, N others, AUC at every k.

    Args:
        data: A data set of the experiment.
        n: Records of the release.
        n_ks: Numbers of components that the loop is timed at, spread over 1 to d; its time is scaled to all d.
        repeats: Timed calls, at most.
        out: JSON-lines file that the rows are added to.
    """
    x = records(data)
    for size in n:
        rows = np.random.default_rng(0).permutation(len(x))[: 2 * size]
        candidates, is_member = x[rows], np.arange(2 * size) < size
        d = x.shape[1]
        ks = np.unique(np.linspace(1, min(size, d), n_ks).round().astype(int))

        def ours(candidates: np.ndarray = candidates, is_member: np.ndarray = is_member) -> np.ndarray:
            release = membership.release_of(candidates[is_member])
            errors = membership.pca_score_prefixes(release.components, candidates)
            return roc.auc_columns(-errors, is_member)

        def loop(
            candidates: np.ndarray = candidates, is_member: np.ndarray = is_member, ks: np.ndarray = ks
        ) -> np.ndarray:
            found = []
            for k in ks:
                model = PCA(n_components=int(k)).fit(candidates[is_member])
                errors = np.sum((candidates - model.inverse_transform(model.transform(candidates))) ** 2, axis=1)
                found.append(roc_auc_score(is_member, -errors))
            return np.array(found)

        labels = {"data": data, "n": size, "d": d}
        fast = harness.measure("membership/drjax", ours, repeats=repeats, ks=d, **labels)
        slow = harness.measure("membership/scikit-learn", loop, repeats=1, budget_s=1e-3, ks=len(ks), **labels)
        slow["all_ks_s"] = slow["run_s"] * d / len(ks)
        ratio = slow["all_ks_s"] / fast["run_s"]
        print(f"{data}, N = {size}: {fast['run_s']:.2f} s, loop {slow['all_ks_s']:.0f} s, {ratio:.0f} x")
        for row in (fast, slow):
            harness.append_row(out, row)


if __name__ == "__main__":
    tyro.cli(main)
