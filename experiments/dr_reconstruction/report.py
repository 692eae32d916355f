"""Figures and tables of a run, from its records and images alone.

    python -m experiments.dr_reconstruction.report runs/dr_reconstruction-cpu
    python -m experiments.dr_reconstruction.report runs/dr_reconstruction-cpu --to experiments/dr_reconstruction/results

The first writes `results.md` and `figures/` into the folder of the run; the second somewhere else, with a copy of what
they were drawn from, so that the first draws them again from there. Several folders, of machines that shared the work
by `run --only`, are put together the second way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from matplotlib.figure import Figure

from drjax.audits import choice
from drjax.core.types import Status
from drjax.dr import METHODS
from drjax.reports import records
from drjax.reports.ladder import number
from experiments import drawings, sweep
from experiments.dr_reconstruction import claims, figures, order
from experiments.dr_reconstruction.config import ADAPTIVE, DENSE_NETWORK, NETWORK, SCALES, Config
from experiments.dr_reconstruction.paper import (
    DATA_NAMES,
    METHOD_NAMES,
    N_REPEATS,
    N_SHADOW,
    N_TARGETS,
    SIZES,
    TABLE_4,
    TABLE_4_DATA,
    TABLE_4_KNOWN,
)
from experiments.dr_reconstruction.results import BEST, MEAN, NEAREST, Estimate, Results, examples
from experiments.dr_reconstruction.run import SWEEP
from experiments.dr_reconstruction.verdicts import NOT_TESTED
from experiments.markdown import markdown_table
from experiments.sweep import RESULTS

TABLES, FIGURES = "results.md", "figures"

EXAMPLE_FIGURES = {"mnist": "figure3", "nih_chest_xray": "figure5", "cxr_mednist": "figure5-mednist"}
CURVE_FIGURES = {"mnist": "figure2", "nih_chest_xray": "figure4", "cxr_mednist": "figure4-mednist"}
CLAIMS_NOTE = (
    f"The paper: known sets of {', '.join(map(str, SIZES))} records, {N_SHADOW:,} shadows, {N_TARGETS} targets, "
    f"{N_REPEATS} repeats. A claim of which a size or method was not run is not tested unless what was run refutes it. "
    "“At most”: an attack that is stronger elsewhere was not run; such a figure counts only where a smaller one would."
)
LENS_SUFFIXES = {BEST: "", NETWORK: "-network"}


def write(sources: Sequence[Path], target: Path) -> list[Path]:
    """Draws everything that the records of some runs allow into a folder; returns the files, the tables first.

    Args:
        sources: Folders of one run, or of several that computed parts of one configuration.
        target: Where to write; if it is not the one source, with a copy of the records and images.

    Raises:
        FileNotFoundError: a source has no results.
        ValueError: they hold no attack, are of different configurations, or the target has a run in progress.
    """
    if [source.resolve() for source in sources] != [target.resolve()]:
        sweep.merge(SWEEP, sources, target)
    results = Results.read(target / RESULTS)
    records.atomic_write_text(target / TABLES, tables(results))
    return [target / TABLES, *drawings.save(_drawn(results, examples(target)), target / FIGURES)]


def drawn(rows: Path) -> dict[str, Figure]:
    """The figures of a run by their names.

    Args:
        rows: Folder of `results.jsonl`; what shows pictures of records is drawn where those lie beside it.
    """
    return _drawn(Results.read(rows / RESULTS), examples(rows))


def _drawn(results: Results, images: Mapping[str, np.ndarray]) -> dict[str, Figure]:
    found: dict[str, Figure | None] = {}
    for data in results.data:
        found[CURVE_FIGURES.get(data, f"{data}-errors")] = figures.error_by_known(results, data)
        found[f"{CURVE_FIGURES.get(data, data)}-attacks"] = figures.attacks_by_known(results, data)
        for lens, suffix in LENS_SUFFIXES.items():
            name = f"{EXAMPLE_FIGURES.get(data, f'{data}-examples')}{suffix}"
            found[name] = figures.example_grid(results, images, data, lens)
        if results.sigmas(data):
            prefix = "" if data == TABLE_4_DATA else f"{data}-"
            found[f"{prefix}figure6"] = figures.error_by_noise(results, data)
            for lens, suffix in LENS_SUFFIXES.items():
                found[f"{prefix}figure7{suffix}"] = figures.noisy_examples(results, images, data, lens)
    return {name: figure for name, figure in found.items() if figure is not None}


def tables(results: Results) -> str:
    """All tables of a run as Markdown."""
    parts = [_head(results), "## Table 4 of the paper", table_4(results)]
    for data in results.data:
        parts += [f"## {DATA_NAMES.get(data, data)}: error by known records", _about(results, data)]
        parts += [errors(results, data)]
    parts += ["## What the paper says", claims_table(results)]
    for data in results.data:
        if results.sigmas(data):
            parts += [f"## {DATA_NAMES.get(data, data)}: noise on the records", noise(results, data)]
    parts += ["## What was left out", _left_out(results)]
    return "\n\n".join(parts) + "\n"


def _about(results: Results, data: str) -> str:
    """What the records of a run say of a data set: where it is from, and whether it names patients."""
    found = results.head["data"][data]
    return f"{found['source']}. {found['note']}"


def table_4(results: Results) -> str:
    """The paper's Table 4 with what it prints, what the same networks do here, the baselines and the best attack."""
    data, n = TABLE_4_DATA, TABLE_4_KNOWN

    def ours(attack: str) -> list[str]:
        return [_pm(results.estimate(data, m, n, attack)) for m in METHOD_NAMES]

    def printed(attack: str) -> list[str]:
        return ["{:.3f} ± {:.3f}".format(*TABLE_4[attack][m]) for m in METHOD_NAMES]

    names = [results.named(BEST, data, m, n) for m in METHOD_NAMES]
    config = results.head["config"]
    n_shadow = next((plan["n_shadow"] for plan in config["plans"] if plan["data"] == data), None)
    about = "" if n_shadow is None else f" ({n_shadow:,} shadows, recipe {{!r}})"
    as_printed = f"as printed ({N_SHADOW:,} shadows)"
    rows = [
        [f"BCH22's network, {as_printed}", *printed(DENSE_NETWORK)],
        [f"BCH22's network, here{about.format(config['dense_network'])}", *ours(DENSE_NETWORK)],
        [f"the paper's network, {as_printed}", *printed(NETWORK)],
        [f"the paper's network, here{about.format(config['network'])}", *ours(NETWORK)],
        ["mean image", *ours(MEAN)],
        ["nearest neighbour", *ours(NEAREST)],
        ["best other attack", *ours(BEST)],
        ["which", *(_which(results, name, m) for name, m in zip(names, METHOD_NAMES, strict=True))],
    ]
    return markdown_table([f"{DATA_NAMES[data]}, {n} known", *METHOD_NAMES.values()], rows)


def errors(results: Results, data: str) -> str:
    """Error of every attack on every method by the size of the known set; the best attack of each is bold."""
    sizes = results.sizes(data)
    rows = []
    for method in results.methods(data):
        best = {n: results.named(BEST, data, method, n) for n in sizes}
        names = {a for n in sizes for a in results.attacks(data, method, n)}
        for attack in (name for name in results.labels if name in names):
            row = [METHOD_NAMES[method], results.labels[attack]]
            for n in sizes:
                found = results.estimate(data, method, n, attack)
                text = "refused" if results.is_refused(data, method, n, attack) else _pm(found)
                row.append(f"**{text}**" if best[n] == attack else text)
            rows.append(row)
    for name, label in ((MEAN, "mean image"), (NEAREST, "nearest neighbour")):
        rows.append(["", label, *(_pm(results.baseline(data, n, name)) for n in sizes)])
    pools = ", ".join(f"{_pool(results, data, n)} ({n} known)" for n in sizes)
    lacking = [
        f"{METHOD_NAMES[m]} ({', '.join(str(n) for n in sizes if results.lacks_strongest(data, m, n))})"
        for m in results.methods(data)
        if any(results.lacks_strongest(data, m, n) for n in sizes)
    ]
    note = "Bold: the least error of what was run."
    if lacking:
        note += f" An attack that is stronger elsewhere was not run on {', '.join(lacking)} known: at most the bold."
    note += f" The nearest neighbour is among the known and shadow-train images of the cell: {pools}."
    return markdown_table(["method", "attack", *(f"{n} known" for n in sizes)], rows) + f"\n\n{note}"


def claims_table(results: Results) -> str:
    """The paper's claims with the verdict on each attack, what it rests on, and how that differs from the paper."""
    rows: list[list[str]] = []
    lost: dict[str, int] = {}
    config = results.head.get("config")
    known = {plan["data"] for plan in config["plans"]} if config else {claim.data for claim in claims.CLAIMS}
    for claim, verdicts in claims.verdicts(results):
        if claim.data not in known:
            lost[claim.data] = lost.get(claim.data, 0) + 1
            continue
        for lens, verdict in verdicts.items():
            about = claim.text if lens == claim.lenses[0] else ""
            section = claim.section if lens == claim.lenses[0] else ""
            is_tested = verdict.outcome != NOT_TESTED
            setting = ", ".join(claims.differences(results, claim, lens)) if is_tested else ""
            devices = ", ".join(results.devices(claim.data, lens)) if is_tested else ""
            asked = claims.LENSES[lens]
            rows.append([section, about, asked, f"**{verdict.outcome}**", setting, devices, verdict.evidence])
    heads = ["section", "claim", "asked", "verdict", "not as in the paper", "run on", "figures (mean squared error)"]
    parts = [CLAIMS_NOTE, *([markdown_table(heads, rows)] if rows else [])]
    if lost:
        names = ", ".join(f"{count} on {DATA_NAMES[data]}" for data, count in lost.items())
        parts.append(f"{NOT_TESTED.capitalize()}, because the configuration lacks the data: {names}.")
    return "\n\n".join(parts)


def noise(results: Results, data: str) -> str:
    """Eq. 12 and the error against the original of every attack by noise; the least error of each noise is bold."""
    sigmas = results.sigmas(data)
    rows = []
    for n in results.noisy_sizes(data):
        for method in results.methods(data):
            best = [results.named(BEST, data, method, n, s) for s in sigmas]
            names = {name for s in sigmas for name in results.attacks(data, method, n, s)}
            for attack in (name for name in results.labels if name in names):
                found = [_pm(results.estimate(data, method, n, attack, sigma=s)) for s in sigmas]
                found = [f"**{text}**" if name == attack else text for text, name in zip(found, best, strict=True)]
                rows.append([METHOD_NAMES[method], results.labels[attack], "against the original", *found])
                if not attack.startswith(ADAPTIVE):
                    moved = [results.estimate(data, method, n, attack, sigma=s, measure="eq12") for s in sigmas]
                    rows.append(["", "", "Eq. 12", *map(_pm, moved)])
        for attack, label in ((MEAN, "mean image"), (NEAREST, "nearest neighbour")):
            found = [results.baseline(data, n, attack, sigma=s) for s in sigmas]
            rows.append(["", label, "against the original", *map(_pm, found)])
    return markdown_table(["method", "attack", "error", *(f"noise {s:g}" for s in sigmas)], rows)


def _head(results: Results) -> str:
    made, config = results.head["provenance"], results.head["config"]
    versions = ", ".join(f"{name} {version}" for name, version in made["versions"].items())
    plans = "; ".join(
        f"{p['data']}: {p['n_shadow']} / {p['n_validation']} / {p['n_targets']} shadows for training, validation and "
        f"test, known {', '.join(map(str, p['n_known']))} with {', '.join(map(str, p['repeats']))} repeats"
        for p in config["plans"]
    )
    few = "; ".join(f"{name} only on {', '.join(patterns)}" for name, patterns in config["dear"].items())
    few = few or "every attack on every release that it fits"
    return (
        "# Reconstruction attacks on six methods\n\n"
        "Written by `experiments.dr_reconstruction.report`. Figures are means over targets and repeats ± half the "
        "width of the 95% interval, on records in [0, 1].\n\n"
        f"- {plans}\n- networks: the paper's by recipe {config['network']!r}, BCH22's by {config['dense_network']!r}\n"
        f"- {few}\n- drjax {made['drjax']}, Python {made['python']}, {versions}, where the run began\n"
        + "\n".join(f"- {line}" for line in _run_where(results))
    )


def _run_where(results: Results) -> list[str]:
    """Which cells were run where, and how many were not."""
    lines = [
        f"{count:,} cells {'by a run begun' if origin.get('of_run') else 'computed'} at commit "
        f"{str(origin.get('commit'))[:9]}"
        f"{' with changes' if origin['dirty'] else ''}, {str(origin['utc'])[:10]}, on {_device(origin)}"
        for origin, count in results.origins()
    ]
    config = _config(results)
    if config is None:
        return lines
    counts = {plan.data: [0, 0] for plan in config.plans}
    for task in order.tasks(config):
        for cell in task.cells:
            counts[task.release.data][cell in results.done] += 1
    told = ", ".join(f"{DATA_NAMES.get(d, d)} {done:,} of {done + lost:,}" for d, (lost, done) in counts.items())
    return [*lines, f"cells run of those of this configuration: {told}"]


def _device(origin: Mapping[str, Any]) -> str:
    host = f"{origin['cores']} cores of {origin['cpu']}"
    return host if origin["device_kind"] == "cpu" else f"{origin['device_kind']}, {host}"


def _config(results: Results) -> Config | None:
    """The scale that the results are of; None for a configuration of somebody's own."""
    fingerprint = results.head["fingerprint"]
    return next((c for c in SCALES.values() if records.config_fingerprint(c) == fingerprint), None)


def _left_out(results: Results) -> str:
    counts: dict[str, int] = {}
    for stage in results.stages:
        for flag, count in stage["status_counts"].items():
            counts[flag] = counts.get(flag, 0) + count
    excluded = sum(counts.get(str(flag.name), 0) for flag in Status if flag & Status.excluded())
    lines = [
        f"Of {sum(s['n_lanes'] for s in results.stages):,} attacked releases {excluded:,} were unusable and left out. "
        f"All flags: {', '.join(f'{flag} {count:,}' for flag, count in sorted(counts.items()))}."
    ]
    told = sorted({(r["data"], r["method"], r["n_known"], r["attack"], r["refused"]) for r in results.refusals})
    lines += [f"- {d}, {METHOD_NAMES[m]}, {n} known: {a} refused: {why}" for d, m, n, a, why in told]
    for method in dict.fromkeys(m for data in results.data for m in results.methods(data)):
        possible = choice.possible(METHODS[method](), seed_known=False)
        lost = [attack.label for name, attack in possible.items() if name not in results.labels]
        lines += [f"- {METHOD_NAMES[method]}: run nowhere: {', '.join(lost)}"] if lost else []
    return "\n".join(lines)


def _which(results: Results, name: str | None, method: str) -> str:
    """Name of the attack, and on how many targets of each repeat it was run."""
    if name is None:
        return ""
    found = results.records(TABLE_4_DATA, method, TABLE_4_KNOWN, name)
    counts = sorted({record["scores"]["n_targets"] for record in found})
    return f"{results.labels[name]}, {' or '.join(map(str, counts))} targets"


def _pool(results: Results, data: str, n_known: int) -> str:
    sizes = {
        record["n_pool"]
        for method in results.methods(data)
        for record in results.records(data, method, n_known, NEAREST)
    }
    return " or ".join(f"{size:,}" for size in sorted(sizes))


def _pm(estimate: Estimate | None) -> str:
    if estimate is None:
        return "not run"
    return f"{number(estimate.mean)} ± {number(estimate.high - estimate.mean)}"


def main(runs: tyro.conf.Positional[tuple[Path, ...]], /, *, to: Path | None = None) -> None:
    """Draws figures and tables of a run, or of several that computed parts of one configuration.

    Args:
        runs: Folders with `results.jsonl`.
        to: Where to write them, with a copy of the results; the folder of the run if there is one only.
    """
    if to is None and len(runs) != 1:
        raise ValueError(f"to must be given for results of other than one run, got {len(runs)}")
    for file in write(runs, to or runs[0]):
        print(file)


if __name__ == "__main__":
    tyro.cli(main)
