"""Figures of the pages in docs/results, but for those that belong to `experiments.prose.membership`."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from bench import scale_tables, speed_tables, tables
from drjax.reports import records
from experiments.best_attacks import report as best_attacks
from experiments.dr_reconstruction import pages as reconstruction
from experiments.dr_reconstruction import paper
from experiments.dr_reconstruction.config import NETWORK
from experiments.dr_reconstruction.results import BEST, MEAN, NEAREST, Results
from experiments.informed_adversary import pages as informed
from experiments.informed_adversary.cells import INVERSION
from experiments.markdown import Figures
from experiments.pages import report
from experiments.private_embeddings import report as private_embeddings
from experiments.sweep import RESULTS
from experiments.tsne_property import pages as plots
from experiments.tsne_property.claim_tests import DESCRIPTORS, LFW, MALE, PICTURE, Rows, Score

figures = Figures()

FEWEST, MOST = 9, 999
"""Known records of the smallest and of the largest release of paper 000."""

X_RAYS, X_RAYS_KNOWN = "nih_chest_xray", 199


@functools.cache
def _reconstruction() -> Results:
    return Results.read(reconstruction.FILE)


@functools.cache
def _plots() -> Rows:
    return Rows(records.read_records(plots.FOLDER / RESULTS))


def _mean(found: Any) -> float:
    if found is None:
        raise LookupError("results must hold the cell, got none")
    return found.mean


@figures
def projections_of_known_seed() -> Sequence[float]:
    """Error with its ends on drjax's kernels and on the library, and the share identified on drjax's."""
    lines = best_attacks.lines_of(best_attacks.FOLDERS)
    ours, theirs = (
        best_attacks.line_of(lines, "SRP, seed known", maker, "srp-closed-form")["scores"]
        for maker in (best_attacks.OURS, "library")
    )
    errors = [scores["mse"][end] for scores in (ours, theirs) for end in ("estimate", "low", "high")]
    return (*errors, ours["identification"]["estimate"])


@figures
def medians_of_many_known() -> Sequence[float]:
    """Median error with 999 known records: PCA, and MDS that converged."""
    lines = best_attacks.lines_of(best_attacks.MORE_KNOWN)
    kinds = (("PCA", "closed-form"), ("MDS, converged", "stationarity"))
    return [
        best_attacks.line_of(lines, row, best_attacks.OURS, attack)["scores"]["mse_median"]["estimate"]
        for row, attack in kinds
    ]


@figures
def network_of_the_paper() -> Sequence[float]:
    """Error of the split network on PCA of MNIST with 199 known records."""
    return (_mean(_reconstruction().estimate(paper.TABLE_4_DATA, "pca", paper.TABLE_4_KNOWN, NETWORK)),)


@figures
def from_few_to_many_known() -> Sequence[float]:
    """Error of the strongest attack with 9 and with 999 known records: of PCA, then of SRP."""
    return [
        _mean(_reconstruction().estimate("mnist", method, n, BEST)) for method in ("pca", "srp") for n in (FEWEST, MOST)
    ]


@figures
def x_rays() -> Sequence[float]:
    """X-rays in a map by MDS: the strongest attack, the mean image and the nearest neighbour."""
    results = _reconstruction()
    best = results.estimate(X_RAYS, "mds", X_RAYS_KNOWN, BEST)
    return (_mean(best), *(_mean(results.baseline(X_RAYS, X_RAYS_KNOWN, name)) for name in (MEAN, NEAREST)))


@figures
def largest_noise() -> Sequence[float]:
    """PCA of MNIST with 99 known records under the paper's largest noise: the strongest attack and the mean image."""
    results, where = _reconstruction(), (paper.NOISE_DATA, paper.NOISE_KNOWN)
    best = results.estimate(where[0], "pca", where[1], BEST, sigma=paper.NOISE_SIGMA)
    return _mean(best), _mean(results.baseline(*where, MEAN, sigma=paper.NOISE_SIGMA))


@figures
def mds_of_digits() -> Sequence[float]:
    """Error of `stationarity` with its ends, and its share of the mean record's."""
    found = report.attacks_of("mds-of-digits", "60")
    mse = found["stationarity"]["mse"]
    share = mse["estimate"] / found["mean"]["mse"]["estimate"]
    return mse["estimate"], mse["low"], mse["high"], share


@figures
def incomes() -> Sequence[float]:
    """How many splits of Adult there were, and in which share of them the interval held the share of high incomes."""
    own = [row for row in tables.rows_of(scale_tables.COVERAGE) if row["attribute"] == "label=>50K"]
    row = tables.newest(own, splits=max(row["splits"] for row in own))
    return row["coverage"], row["splits"]


@figures
def faces() -> Sequence[float]:
    """UTKFace: accuracy with its ends on pictures and on coordinates, error of both; LFW: accuracy of both."""
    both = (PICTURE, DESCRIPTORS)
    ends = [number for attack in both for number in _score("accuracy", MALE, attack).interval]
    errors = [_score("error", MALE, attack).interval.estimate for attack in both]
    return (*ends, *errors, *(_score("accuracy", LFW, attack).interval.estimate for attack in both))


def _score(field: str, prop: str, attack: str) -> Score:
    found = _plots().score("main", field, prop, attack=attack)
    if found is None:
        raise LookupError(f"results must hold {field} of {attack} on {prop}, got none")
    return found


@figures
def plain_maps() -> Sequence[float]:
    """Seconds of 1,000 t-SNE maps of 1,000 records, and how many times longer openTSNE and scikit-learn take."""
    row = tables.newest(tables.rows_of("tsne_maps.jsonl"), name="drjax", device_kind="cpu", cores=2)
    return row["wall_s"], row["speedup"]["openTSNE/opentsne_bh"], row["speedup"]["sklearn/tsne"]


def _error(factor: str, setting: str, attack: str, measure: str = "mse") -> float:
    return informed.attacked()[factor, setting][attack]["scores"][measure]["estimate"]


@figures
def other_starts() -> Sequence[float]:
    """Inversion from three other starts: its mean errors, then the least and the largest of its medians."""
    names = [f"another known start, {i}" for i in (1, 2, 3)]
    means, medians = (
        [_error("start", name, INVERSION, measure) for name in names] for measure in ("mse", "mse_median")
    )
    return (*means, min(medians), max(medians))


@figures
def reconstructors() -> Sequence[float]:
    """Errors of RecoNN: the notebook's recipe with 1,000 shadow models, the fast one with as many and with 20,000."""
    lines = [line for line in informed.committed() if line.get("attack") == "notebook"]
    (notebook,) = (
        line for line in lines if line["of"]["n_shadow"] == 1000 and line["of"].get("learned_epochs") is None
    )
    ours = [_error(*place, "network") for place in (("default", "default"), ("shadows", "20000 shadows"))]
    return (notebook["scores"]["mse"]["estimate"], *ours)


@figures
def cifar() -> Sequence[float]:
    """Errors of inversion and of the nearest neighbour on CIFAR-10."""
    return [_error("cifar10", "MLP", attack) for attack in (INVERSION, "nearest")]


@figures
def models_a_second() -> Sequence[float]:
    """Shadow models of MNIST with 1,000 records that are trained in a second on two cores, and on a card."""
    rows = [row for row in tables.rows_of("shadow_models.jsonl") if (row.get("data"), row.get("n")) == ("mnist", 1000)]
    on_cores, on_card = (
        [row for row in rows if (row["device_kind"] == "cpu") == is_cpu and row["name"] == "drjax"]
        for is_cpu in (True, False)
    )
    return [1e3 / tables.newest(own)["ms_per_model"] for own in (on_cores, on_card)]


@figures
def bounds() -> Sequence[float]:
    """Seconds of a million bounds, and the fewest and the most of a composed curve."""
    rows = tables.rows_of("bounds.jsonl")
    first = tables.newest(rows, name="bounds/rero", curve="Gaussian")
    composed = [row["run_s"] for row in rows if row["name"] == "bounds/compose"]
    return first["run_s"], min(composed), max(composed)


@figures
def noisy_digits() -> Sequence[float]:
    """The bound at mu = 1 and the success of the best attack."""
    lines = records.read_records(private_embeddings.HERE / RESULTS)[1:]
    own = [line for line in lines if line["mu"] == 1]
    return own[0]["bound"], max(line["success"]["estimate"] for line in own)


@figures
def epsilon_of_mu() -> Sequence[float]:
    """Epsilon at delta 1e-5 of DP-GD with mu = 10."""
    found = {cell["epsilon"] for cells in informed.attacked().values() for cell in cells.values() if _is_private(cell)}
    (epsilon,) = found
    return (epsilon,)


def _is_private(cell: Mapping[str, Any]) -> bool:
    return cell["factor"] == "privacy" and cell["of"]["mu"] == 10


@figures
def pca_beside_its_floor() -> Sequence[float]:
    """This machine's best matrix product in GFLOP/s, and how many times longer than the products PCA takes."""
    row = speed_tables.shadow_row("pca", 1000)
    return row["gflop_per_s"] / row["gemm_share"], 1 / row["gemm_share"]


@figures
def product_of_the_other_machine() -> Sequence[float]:
    """GFLOP/s of the best matrix product of the machine that timed the iterative methods."""
    row = speed_tables.shadow_row("tsne", 1000)
    return (row["gflop_per_s"] / row["gemm_share"],)


@figures
def share_of_the_product() -> Sequence[float]:
    """Of the machine's best matrix product, what t-SNE has."""
    return (speed_tables.shadow_row("tsne", 1000)["gemm_share"],)


@figures
def programs_of_an_audit() -> Sequence[float]:
    """Seconds of finding the programs of `drjax audit` on disk, and of compiling them with nothing kept."""
    rows = tables.rows_of("first_call.jsonl")
    kept, off = (tables.newest(rows, command="audit", kept=state) for state in ("kept", "off"))
    return kept["found_s"], off["compile_s"]
