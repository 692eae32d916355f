"""Tables of the pages on many records and many workers, from committed rows.

    python -m bench.scale_tables NAME      # a name of `block`

Of several rows of a cell the newest stands in a table.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from bench import tables
from bench.growth import seconds_of, slope
from bench.tables import NOT_RUN, Row
from drjax.reports.ladder import duration, percent
from experiments.markdown import Tables, markdown_table

made = Tables()
block = made.block

LARGE, GROWTH, FROZEN, SWEEPS, COVERAGE = (
    f"{name}.jsonl" for name in ("large_records", "growth", "frozen", "sweep_workers", "property_coverage")
)

MAPS = (
    ("t-SNE", "drjax"), ("t-SNE", "openTSNE"), ("UMAP", "drjax"), ("UMAP", "umap-learn"), ("Isomap", "drjax"),
    ("Isomap", "scikit-learn"), ("landmark MDS", "drjax"), ("landmark Isomap", "drjax"),
)  # fmt: skip
"""Method and library of what `bench.growth` makes, in the order of the table."""


@made
def large_audits() -> str:
    """A whole audit of PCA of many records, by their number and the precision of the release."""
    used = [
        tables.newest(tables.rows_of(LARGE), name="audit_of_pca", n=n, dtype=dtype)
        for n in (10_000, 100_000, 1_000_000)
        for dtype in ("float32", "float64")
    ]
    rows = [
        (
            f"{r['n']:,}",
            r["dtype"],
            percent(r["error_left"]),
            percent(r["rebuilt"]),
            f"{r['wall_s']:.0f} s",
            _gigabytes(r),
        )
        for r in used
    ]
    heads = ("records", "release in", "error left of the mean's", "rebuilt", "whole command", "memory")
    return f"{markdown_table(heads, rows)}\n\n{tables.origin(LARGE, used)}"


@made
def shadow_sums() -> str:
    """Sums of a linear regression over many shadows of PCA."""
    used = [tables.newest(tables.rows_of(LARGE), name="statistics_of_pca", m=m) for m in (10_000, 100_000, 1_000_000)]
    rows = [(f"{r['m']:,}", f"{r['wall_s']:.1f} s", f"{r['extra_rss_bytes'] / 1e6:.0f} MB") for r in used]
    return f"{markdown_table(('shadows', 'time', 'memory that they add'), rows)}\n\n{tables.origin(LARGE, used)}"


@made
def maps_of_mnist() -> str:
    """One map of MNIST beside the library that people use."""
    used, rows = [], []
    for method, library in (("t-SNE", "openTSNE"), ("UMAP", "umap-learn"), ("Isomap", "scikit-learn")):
        ours, theirs = (_map("mnist", method, by) for by in ("drjax", library))
        if ours["n"] != theirs["n"]:
            raise LookupError(f"rows of {method} on MNIST must be of as many records, got {ours['n']}, {theirs['n']}")
        used += [ours, theirs]
        trust = [f"{row['trustworthiness']:.3f}" for row in (ours, theirs)]
        own = (f"{ours['wall_s']:.1f} s", _gigabytes(ours), trust[0])
        rows.append(
            (method, f"{ours['n']:,}", *own, f"{library} {theirs['wall_s']:.1f} s", _gigabytes(theirs), trust[1])
        )
    heads = (
        "method", "records", "drjax", "memory", "trustworthiness", "the library", "memory", "trustworthiness",
    )  # fmt: skip
    return f"{markdown_table(heads, rows)}\n\n{tables.origin(GROWTH, used)}"


@made
def growth() -> str:
    """Seconds of one map of generated records by their number, with the exponents."""
    sizes, used, own = (1000, 3000, 10_000, 30_000, 100_000), [], {}
    for method, library in MAPS:
        for n in sizes:
            if found := [row for row in _maps("generated", method, library) if row["n"] == n]:
                own[method, library, n] = tables.newest(found)
    used = list(own.values())
    rows = [
        (f"{n:,}", *(f"{own[(*key, n)]['wall_s']:.1f}" if (*key, n) in own else NOT_RUN for key in MAPS)) for n in sizes
    ]
    for least in (1000, 3000):
        exponents = (f"{slope(seconds_of([dict(row) for row in used], key, least)):.2f}" for key in MAPS)
        rows.append((f"exponent, from {least:,} on", *exponents))
    heads = ("records", *(method if library == "drjax" else library for method, library in MAPS))
    return f"{markdown_table(heads, rows)}\n\n{tables.origin(GROWTH, used)}"


@made
def frozen() -> str:
    """Shadows in a frozen map beside exact ones: costs, neighbours, and an attack that learns from either."""
    used, rows = [], []
    for method in ("t-SNE", "UMAP"):
        costs = [
            tables.newest(tables.rows_of(FROZEN), name="cost_of_frozen", method=method, n=n) for n in (1000, 10_000)
        ]
        lost = tables.newest(tables.rows_of(FROZEN), name="loss_by_frozen", method=method)
        used += [*costs, lost]
        shares = (f"{lost[name]:.1%}" for name in ("shared_frozen", "shared_exact"))
        errors = (f"{lost[name]:.4f}" for name in ("mse_exact", "mse_frozen", "mse_nearest", "mse_mean"))
        rows.append((method, *(f"1/{row['ratio']:.0f}" for row in costs), *shares, *errors))
    heads = (
        "", "cost at 1,000 records", "at 10,000", "neighbours shared with an exact map", "of two exact maps",
        "error after exact shadows", "after frozen ones", "nearest record", "mean record",
    )  # fmt: skip
    return f"{markdown_table(heads, rows)}\n\n{tables.origin(FROZEN, used)}"


@made
def killed_sweeps() -> str:
    """Sweeps of which a worker was taken away: what was lost."""
    kinds = {
        "sweep_kills": "a worker of this machine killed (SIGKILL)",
        "sweep_ray": "one of two Ray nodes taken away",
    }
    used = [tables.newest(tables.rows_of(SWEEPS), name=name) for name in kinds]
    rows = [
        (kinds[row["name"]], *(str(row[field]) for field in ("disturbed", "cells_lost", "lines_twice", "other_bits")))
        for row in used
    ]
    heads = (f"two workers, {used[0]['cells']} cells", "sweeps", "lost", "done twice", "other bits than one process")
    return f"{markdown_table(heads, rows)}\n\n{tables.origin(SWEEPS, used)}"


@made
def cluster_costs() -> str:
    """Two kinds of shadows on one machine, as measured, and on a hundred such, by division."""
    machines, n_shadows, n_maps = 100, 10**9, 10_000
    sums = tables.newest(tables.rows_of(LARGE), name="statistics_of_pca", m=1_000_000)
    tsne = tables.newest(_maps("generated", "t-SNE", "drjax"), n=1000)
    each = sums["wall_s"] / sums["m"], tsne["wall_s"]
    spent = each[0] * n_shadows / machines, each[1] * n_maps / machines
    rows = [
        (f"one machine, {sums['cores']} cores, measured", *(f"{duration(seconds)} each" for seconds in each)),
        (
            f"{machines} of them, by the formula",
            f"{n_shadows:.0e} in {duration(spent[0])}".replace("e+0", "e"),
            f"{n_maps:,} in {duration(spent[1])}",
        ),
        ("one GPU", "[kernels](kernels/gpu_rows.md)", "[kernels](kernels/gpu_rows.md)"),
    ]
    heads = ("", f"shadows of PCA, n = {sums['n']}, d = {sums['d']}", "t-SNE maps of 1,000 records")
    origins = [tables.origin(LARGE, [sums]), tables.origin(GROWTH, [tsne])]
    return "\n\n".join([markdown_table(heads, rows), *origins])


@made
def interval_of_shares() -> str:
    """How often the interval of the attack on plots held the share of a victim."""
    kinds = {
        ("adult", "label=>50K"): "Adult, income",
        ("mnist", "label=1"): "MNIST, ones",
        ("nih_chest_xray", "label=pneumonia"): "1,000 chest X-rays, pneumonia",
    }
    used, rows = [], []
    for (data, attribute), title in kinds.items():
        own = [row for row in tables.rows_of(COVERAGE) if (row["data"], row["attribute"]) == (data, attribute)]
        row = max(own, key=lambda r: (r["splits"], r["utc"]))
        used.append(row)
        thirds = ", ".join(f"{row[f'coverage_third_{i}']:.0%}" for i in (1, 2, 3))
        alone = f"{row['one_split_width']:.2f} ({percent(row['one_split_coverage'])} inside)"
        rows.append((title, str(row["splits"]), percent(row["coverage"]), thirds, f"{row['width']:.2f}", alone))
    heads = ("records", "splits", "inside", "lowest, middle, highest third of shares", "width", "width of one split")
    return f"{markdown_table(heads, rows)}\n\n{tables.origin(COVERAGE, used)}"


def _maps(data: str, method: str, library: str) -> Sequence[Row]:
    rows = tables.rows_of(GROWTH)
    return [row for row in rows if (row["data"], row["method"], row["library"]) == (data, method, library)]


def _map(data: str, method: str, library: str) -> Row:
    return tables.newest(_maps(data, method, library))


def _gigabytes(row: Row) -> str:
    return f"{row['max_rss_bytes'] / 1e9:.1f} GB"


if __name__ == "__main__":
    print(block(*sys.argv[1:]))
