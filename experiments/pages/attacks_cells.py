"""What attacks leave of a map behind a scaler, and what is believed of maps of many kinds: figures of docs/attacks."""

from __future__ import annotations

import functools
import itertools
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.manifold import TSNE
from sklearn.preprocessing import StandardScaler

from drjax.attacks.reconstruction import directions
from drjax.attacks.reconstruction.priors import GaussianPrior
from drjax.dr import metrics
from experiments.pages import audits
from experiments.pipelines import recognition
from tests.data import messy

N_KNOWN = 99

KINDS = ("foreign", "multiplied")
"""Sets of maps of `recognition.SETS`."""


def behind_a_scaler(is_toy: bool) -> dict[str, Any]:
    """Scores of an audit that is told nothing of scikit-learn's t-SNE of scikit-learn's breast cancer, standardised."""
    found: Any = load_breast_cancer()
    coords = TSNE(perplexity=25, random_state=0).fit_transform(StandardScaler().fit_transform(found.data))
    words = f"--max-records {4 if is_toy else 40} --options False"
    with tempfile.TemporaryDirectory() as folder:
        for name, heads, rows in (("bc", found.feature_names, found.data), ("map", ("a", "b"), coords)):
            head = ",".join(heads)
            np.savetxt(f"{folder}/{name}.csv", rows, fmt="%.9g", delimiter=",", header=head, comments="")
        scores = audits.audited(f"audit --data {folder}/bc.csv --released {folder}/map.csv {words}")
    return scores | {"command": f"drjax audit --data bc.csv --released map.csv {words}"}


def patients(is_toy: bool) -> dict[str, Any]:
    """Scores of an audit of some of the 3,000 patients in a t-SNE map of all."""
    words = f"--method tsne --max-records {4 if is_toy else 220} --options False"
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "patients.csv").write_text(messy.patients().text, encoding="utf-8")
        scores = audits.audited(f"audit --data {folder}/patients.csv {words}")
    return scores | {"command": f"drjax audit --data patients.csv {words}"}


def believed(maps: str, name: str, is_toy: bool) -> dict[str, Any]:
    """How many maps of a data set are named right, and what is believed of the others."""
    verdicts = recognition.SETS[maps](name, n_known=N_KNOWN, seed=0)
    found = list(itertools.islice(verdicts, 2 if is_toy else None))
    others = [{"kind": kind, "believed": title} for kind, title, is_right in found if not is_right]
    return {"n_known": N_KNOWN, "n_maps": len(found), "n_right": len(found) - len(others), "others": others}


def sizes(name: str, _: bool) -> dict[str, Any]:
    """What is left of the mean record's error where a record's direction is known: by the regression of sizes, and by
    the most probable size under a Gaussian prior."""
    x = RECORDS[name]()
    x = x[np.random.default_rng(0).permutation(len(x))]
    public, targets = x[:300], x[300:500]
    rays, prior = metrics.prepared("cosine", targets), GaussianPrior.fit(public)
    weighed = rays @ np.linalg.pinv(prior.covariance, hermitian=True)
    most_probable = (weighed @ prior.mean / (weighed * rays).sum(axis=1))[:, None] * rays
    found = {"regression": directions.fit("cosine", public).records(rays), "most_probable": most_probable}
    of_mean = np.mean((public.mean(axis=0) - targets) ** 2)
    return {name: float(np.mean((rows - targets) ** 2) / of_mean) for name, rows in found.items()}


def _scaled_tumours() -> np.ndarray:
    found: Any = load_breast_cancer()
    return StandardScaler().fit_transform(found.data)


def _digits() -> np.ndarray:
    found: Any = load_digits()
    return found.data / 16


RECORDS = {"digits": _digits, "breast-cancer": _scaled_tumours}

TABLES = {
    "near-forces": {"breast-cancer": behind_a_scaler, "patients": patients},
    "recognition": {f"{maps}-wine": functools.partial(believed, maps, "wine") for maps in KINDS},
    "sizes": {name: functools.partial(sizes, name) for name in RECORDS},
}
"""What computes the facts of a cell, by table and cell."""
