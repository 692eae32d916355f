"""Tables and figures of the results.

python -m experiments.pca_gauss.report --results experiments/pca_gauss/results
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import tyro

from drjax.core.statistics import Interval
from drjax.reports import records
from experiments import drawings
from experiments.markdown import markdown_table
from experiments.pca_gauss import claims, figures, practice, theory, trials
from experiments.pca_gauss.run import entries
from experiments.sweep import RESULTS, Claim

Line = Mapping[str, Any]

SMALL_SAMPLES = (8, 1000)
"""Numbers of records at which theorems 4 and 5 are shown."""

CENTRES = {
    "claimed": "as stated",
    "public": "public centre",
    "centred": "own mean, centred records in [-1, 1]",
    "scaled": "scaled to [-1, 1], then centred",
}
"""Columns of the table on them."""

LABELS = {
    kind: {**{name: entry.label for name, entry in entries(kind).items()}, **trials.CONTROL_LABELS}
    for kind in trials.METRICS
}
"""Of methods, by kind of task."""

ORDER = (
    "real", "public", "li", "jiang", "jiang-pub", "jiang-lda", "blum", "liu", "blocki", "ron-gauss", "pca-gauss",
    "pca-gauss-delta", "pca-gauss-directions", "pca-gauss-pub", "pca-gauss-lap", "pca-gauss-ag", "li-printed",
    "jiang-printed", "jiang-lda-printed", "ron-gauss-printed", "pca-gauss-printed", "pca-gauss-pub-printed",
    "pca-gauss-pub-coded", "pca-gauss-lap-printed", "pca-gauss-ag-printed", "normal", "constant", "uniform",
)  # fmt: skip
"""Of rows."""

HINDSIGHT = "\\* of least error, chosen in hindsight as in the paper: that choice is not private."

TITLES = {
    "clustering": "Table II, clustering",
    "classification": "Table III, classification",
    "regression": "Table IV, regression",
}
HEADS = {"silhouette": ("S.C.", "S.C. error"), "accuracy": ("accuracy", "error"), "rmse": ("RMSE", "RMSE")}
CLAIMS = {
    "clustering": (claims.CLUSTERING, "S.C. error of theirs over ours"),
    "classification": (claims.CLASSIFICATION, "accuracy, ours less theirs"),
    "regression": (claims.REGRESSION, "RMSE of theirs over ours"),
}


def markdown(lines: Sequence[Line]) -> str:
    """Everything that the results hold, as Markdown."""
    parts = ["# Results", _run_words(lines[0])]
    for table, own in _tasks(lines):
        parts += _task_parts(TITLES[table], table, own)
    found = [line for line in lines[1:] if line.get("table") == "adult"]
    if found:
        parts += [f"## Adult against MST and AIM, epsilon {found[-1]['epsilon']:g}", practice_table(found)]
    curve = next((line for line in lines[1:] if line["kind"] == "curve"), None)
    parts += _theory_parts(curve, lines[0]["config"]["epsilon"])
    return "\n\n".join(parts) + "\n"


def judged_claims(lines: Sequence[Line]) -> list[Claim]:
    """What the paper says of each data set, by each way of computing and rule for p."""
    return [
        Claim(
            claim=judged.claim.text,
            paper=f"more than {judged.claim.least:g}",
            ours=f"{judged.found.estimate:.3g} ({_interval(judged.found)})",
            verdict=judged.verdict,
            note=f"{own[0]['shown']}, {variant}, {rule}",
        )
        for table, own in _tasks(lines)
        for variant, wanted in CLAIMS[table][0].items()
        for rule in claims.RULES
        for judged in claims.judge(_main(own), wanted, rule)
    ]


def _tasks(lines: Sequence[Line]) -> Iterator[tuple[str, list[Line]]]:
    """Tables, and their lines on each data set."""
    for table in TITLES:
        own = [line for line in lines[1:] if line.get("table") == table]
        for name in dict.fromkeys(line["data"] for line in own):
            yield table, [line for line in own if line["data"] == name]


def _main(own: Sequence[Line]) -> list[Line]:
    """Lines of the paper's number of clusters."""
    return [line for line in own if line["k"] == own[0]["k"]]


def _task_parts(title: str, table: str, own: Sequence[Line]) -> list[str]:
    first = own[0]
    ks = list(dict.fromkeys(line["k"] for line in own))
    main = _main(own)
    words = (
        f"{first['n_private']:,} private and {first['n_public']:,} public records, m = {first['d']}; default p = "
        f"{first['default_p']}, from public records."
    )
    if first["is_stand_in"]:
        words = f"**Synthetic stand-in: nothing here is measured on the paper's records.** {words}"
    parts = [f"## {title}: {first['shown']}", words, method_table(main)]
    wanted, what = CLAIMS[table]
    parts += [f"### What the paper says: {first['shown']}", claim_table(main, wanted, what)]
    if len(ks) > 1:
        parts += [f"### Other numbers of clusters: {first['shown']}", cluster_table(own, ks)]
    return parts


def method_table(lines: Sequence[Line]) -> str:
    """A row for each method: at its best p in hindsight, and at the default."""
    value, loss = HEADS[lines[0]["metric"]]
    heads = ("method", "epsilon, delta", "proven epsilon", f"best p*: {value}", loss, "p",
             f"default p: {value}", loss, "trials", "flags", "s")  # fmt: skip
    rows, labels = [], LABELS[lines[0]["kind_of_task"]]
    for name in ORDER:
        best, default = (claims.pick(lines, name, rule) for rule in claims.RULES)
        if best is None:
            continue
        seconds = sum(line["seconds"] for line in lines if line["method"] == name)
        raised = {flag for line in lines if line["method"] == name for flag in line["status"]}
        rows.append((
            labels[name], _budget(best), _proven(best), *_figures(lines, best), _number(best["p"]),
            *(("", "") if default is None else _figures(lines, default)), str(best["trials"]),
            ", ".join(sorted(raised - {"OK"})), f"{seconds:.0f}",
        ))  # fmt: skip
    return f"{markdown_table(heads, rows)}\n\n{HINDSIGHT}"


def claim_table(lines: Sequence[Line], wanted: Mapping[str, Sequence[claims.Comparison]], what: str) -> str:
    """A row for each claim, way of computing and rule for p."""
    heads = ("the paper", "variant", "number of components", "ours", "theirs", what, "95% interval", "verdict")
    others = ("S.C. of ours over theirs", "95% interval", "verdict")
    rows = []
    for variant, own in wanted.items():
        for rule in claims.RULES:
            for judged in claims.judge(lines, own, rule):
                row = [
                    judged.claim.text, variant, rule, f"{judged.ours['mean']:.4f}", f"{judged.theirs['mean']:.4f}",
                    f"{judged.found.estimate:.3g}", _interval(judged.found), judged.verdict,
                ]  # fmt: skip
                if judged.of_values is not None:
                    again = claims.verdict(judged.of_values, judged.claim.least)
                    row += [f"{judged.of_values.estimate:.3g}", _interval(judged.of_values), again]
                rows.append(row)
    is_clustering = lines[0]["metric"] == "silhouette"
    return markdown_table(heads + others if is_clustering else heads, rows)


def cluster_table(lines: Sequence[Line], ks: Sequence[int]) -> str:
    """Silhouettes at the default p for every k; p = 1 beside it is in the table above."""
    heads = ("method, default p", *(f"k = {k}" for k in sorted(ks)))
    rows = []
    labels = LABELS[lines[0]["kind_of_task"]]
    for name in ORDER:
        found = {line["k"]: line for line in lines if line["method"] == name and line["p"] in (None, line["default_p"])}
        if len(found) == len(ks):
            rows.append((labels[name], *(_with_half(found[k]) for k in sorted(ks))))
    return markdown_table(heads, rows)


def practice_table(lines: Sequence[Line]) -> str:
    """A row for each method and number of components."""
    heads = ("method", "p", "logistic regression", "SVM", "one-way TV", "two-way TV", "s a fit", "trials", "proven")
    rows = []
    for line in lines:
        found = {name: line["measures"].get(name) for name in practice.MEASURES}
        label = practice.LABELS[line["method"]] + (f" ({line['package']})" if line["package"] else "")
        seconds = found["fit_seconds"]
        rows.append((
            label, _number(line["p"]),
            *("" if found[m] is None else _with_half(found[m]) for m in practice.MEASURES[:4]),
            "" if seconds is None else f"{seconds['mean']:.1f}", str(line["trials"]),
            _proven(line) if line["epsilon"] else "",
        ))  # fmt: skip
    return markdown_table(heads, rows)


def _theory_parts(curve: Line | None, epsilon: float) -> list[str]:
    m = 300 if curve is None else int(curve["d"])
    key = jax.random.key(0)
    second = [(f"{row['scale']:g}", f"{row['sensitivity']:g}", f"{row['snr']:.4g}", f"{row['measured']:.4g}")
              for row in theory.theorem_2(key, m, epsilon)]  # fmt: skip
    third = [
        (f"{row['p']:g}", f"{row['snr']:.4g}", f"{row['measured']:.4g}", f"{row['gain']:.6g}", f"{row['claimed']:.6g}")
        for row in theory.theorem_3(key, m, epsilon)
    ]
    fourth = [(f"{row['p']:g}", f"{row['n_below']:,}", f"{row['claimed']:,.2f}") for row in theory.proposition_4(m)]
    shares = ", ".join(f"{name} {share:.1%}" for name, share in theory.gains_by_data_set().items())
    parts = [
        f"## Theorems 2 and 3, proposition 4, m = {m}",
        f"Noise of {theory.N_DRAWS:,} draws of the Laplace mechanism, epsilon {epsilon:g}, at an entry of "
        f"{theory.VALUE:g} of its bound: relative standard error 0.5%.",
        "Theorem 2, scaling does not change the signal-to-noise ratio:",
        markdown_table(("scale", "sensitivity", "SNR", "SNR of draws"), second),
        "Theorem 3, p of m components raise it by (m / p)²:",
        markdown_table(("p", "SNR", "SNR of draws", "gain", "(m / p)²"), third),
        "Proposition 4, the largest number of records at which components of the same records lower the sensitivity, "
        "by search, and the paper's bound on it:",
        markdown_table(("p", "largest n by search", "(m² + 4m - p) / 4p"), fourth),
        f"At p = 1, the most generous, the bound is of the records of the paper's data sets: {shares}.",
        "## Theorems 4 and 5: which records are in [-1, 1]",
        "n times the sensitivity. The paper bounds the centred records. Scaling records to [-1, 1] and centring them "
        "then leaves them in [-2, 2].",
    ]
    for n in SMALL_SAMPLES:
        rows = [
            (f"{row['name']}, p = {row['p']}", *(f"{row[centre]:.4g}" for centre in CENTRES))
            for row in theory.theorems_4_and_5(n)
        ]
        parts += [f"n = {n}:", markdown_table(("", *CENTRES.values()), rows)]
    if curve is not None:
        curves = theory.sir_curves(np.asarray(curve["singular_values"]))
        shown = [p for p in (1, 2, 5, 10, 30, 100, 300) if p <= m]
        rows = [(name, *(f"{values[p - 1]:.3g}" for p in shown)) for name, values in curves.items()]
        parts += [
            f"## Figure 2, gain in sensitivity over loss of information, {curve['shown']}",
            markdown_table(("sensitivity", *(f"p = {p}" for p in shown)), rows),
        ]
    return parts


def _run_words(head: Line) -> str:
    config, origin = head["config"], head["provenance"]
    changed = ", with changes" if origin["dirty"] else ""
    return (
        f"Commit {origin['commit']}{changed}; {origin['cpu']}; seed {config['seed']}. Neighbours: one record is "
        f"replaced. Means with 95% intervals over trials. k-means with {config['n_init']} starts, silhouettes of "
        f"{config['silhouette_sample']:,} records; the exponential mechanism chooses from {config['n_candidates']:,} "
        f"public data sets of {config['n_candidate_records']:,} records on a grid of 11 values."
    )


def _figures(lines: Sequence[Line], line: Line) -> tuple[str, str]:
    value = _with_half(line)
    if line["metric"] == "rmse":
        return value, f"{line['mean'] - claims.real_mean(lines):+.4f}"
    if line["metric"] == "accuracy":
        return value, f"{claims.real_mean(lines) - line['mean']:+.4f}"
    return value, f"{claims.losses(line, claims.real_mean(lines)).mean():.4f}"


def _with_half(found: Mapping[str, Any]) -> str:
    half = found["half"]
    return f"{found['mean']:.4f}" + ("" if half is None else f" ± {half:.4f}")


def _budget(line: Line) -> str:
    if line["epsilon"] is None:
        return ""
    return f"{line['epsilon']:g}, {line['delta']:.2g}"


def _proven(line: Line) -> str:
    if line["epsilon"] is None:
        return "not private" if line["method"] == "real" else ""
    epsilon = line["epsilon_proven"]
    if math.isinf(epsilon):
        return "**none**"
    return f"{epsilon:.3g}" if line["holds"] else f"**{epsilon:.3g}**"


def _interval(found: Interval) -> str:
    return f"{found.low:.3g} to {found.high:.3g}"


def _number(value: Any) -> str:
    return "" if value is None else f"{value:g}"


def main(*, results: Path = Path("runs/pca_gauss")) -> None:
    """Writes tables.md and the figures beside the results.

    Args:
        results: Folder of a run.
    """
    lines = records.read_records(results / RESULTS)
    records.atomic_write_text(results / "tables.md", markdown(lines))
    drawings.save(figures.drawn(lines), results)


if __name__ == "__main__":
    tyro.cli(main)
