"""Tables of speed in the pages, from the committed rows of `bench.shadow_embeddings` and of `bench.first_call`.

    python -m bench.speed_tables NAME      # a name of `block`: readme, projections, iterative, scaled, limits, ...

Of several rows of a cell the newest on the machine that the page names stands in a table.
"""

from __future__ import annotations

import sys

from bench import tables
from bench.tables import EPYC, XEON, Row, short
from drjax.dr import METHODS
from experiments.markdown import Tables, markdown_table

made = Tables()
block = made.block

SHADOWS = "shadow_embeddings.jsonl"

LIBRARY = {
    "pca": "sklearn/pca_default",
    "srp": "sklearn/srp_fit_transform",
    "mds": "sklearn/mds",
    "isomap": "sklearn/isomap",
    "tsne": "sklearn/tsne",
    "umap": "umap-learn/umap",
}
"""What a method is compared with, as rows name it."""

ITERATIVE = {"mds": "MDS", "isomap": "Isomap", "tsne": "t-SNE", "umap": "UMAP"}
"""Methods that iterate, and what tables call them."""


def shadow_row(method: str, n: int, *, threat_model: str | None = None, dtype: str = "float32", **labels: str) -> Row:
    """The newest row of drjax on MNIST, on the machine on which the grid of a method was timed.

    Args:
        method: One of `drjax.dr.METHODS`.
        n: Records of a release.
        threat_model: What the adversary knows of the seed; of a method without one, "none".
        dtype: Precision.
        **labels: Others that the row must have.
    """
    if threat_model is None:
        threat_model = "none" if METHODS[method]().deterministic else "seed unknown"
    wanted = {"device_kind": "cpu", "cpu": XEON if method in ITERATIVE else EPYC, "cores": 2, "data": "mnist", "d": 784}
    wanted |= {"name": "drjax", "scale": None, "kernels": None} | labels
    rows = tables.rows_of(SHADOWS)
    return tables.newest(rows, method=method, n=n, threat_model=threat_model, dtype=dtype, **wanted)


def _beside(row: Row) -> str:
    return f"{short(row['ms_per_shadow'])} ({short(row['speedup'][LIBRARY[row['method']]])})"


@made
def readme() -> str:
    """Milliseconds of a shadow and how many times faster, of every method at two sizes."""
    kinds = {
        "pca": ("PCA", "scikit-learn's default"),
        "srp": ("SRP, seed unknown", "scikit-learn"),
        "mds": ("MDS", "scikit-learn's SMACOF"),
        "isomap": ("Isomap", "scikit-learn"),
        "tsne": ("t-SNE, exact gradient", "scikit-learn's Barnes-Hut, which approximates"),
        "umap": ("UMAP", "umap-learn"),
    }
    rows = [(title, *(_beside(shadow_row(name, n)) for n in (100, 1000)), by) for name, (title, by) in kinds.items()]
    return markdown_table(("method", "n = 100", "n = 1,000", "reference"), rows)


@made
def projections() -> str:
    """PCA and random projections at every size, beside scikit-learn's solvers and the naive vmap."""
    kinds = [("pca", "none", n) for n in (10, 100, 200, 500, 1000)]
    kinds += [("srp", threat, n) for threat in ("seed unknown", "seed known") for n in (100, 1000)]
    used, cells = [], []
    for method, threat, n in kinds:
        row = shadow_row(method, n, threat_model=threat)
        used.append(row)
        is_known = threat == "seed known"
        faster = row["speedup"]
        library = faster["sklearn/srp_transform" if is_known else LIBRARY[method]]
        grown, needed = row["extra_rss_bytes"] / 1e6, (row["output_bytes"] + row["chunk_budget_bytes"]) / 1e6
        cells.append(
            (
                "PCA" if method == "pca" else f"SRP, {threat}",
                f"{n:,}",
                f"{row['ms_per_shadow']:.4f}",
                f"{tables.times(library)}{' (`transform`)' if is_known else ''}",
                tables.times(faster["sklearn/pca_full"]) if method == "pca" else "",
                tables.times(faster["naive"]),
                f"{row['gflop_per_s']:.0f}",
                f"{grown:.0f} ({needed:.0f})",
            )
        )
    heads = (
        "method", "n", "ms per shadow", "x default", "x full SVD", "x naive `vmap`", "GFLOP/s",
        "MB grown (output + chunk)",
    )  # fmt: skip
    return f"{markdown_table(heads, cells)}\n\n{tables.origin(SHADOWS, used)}"


@made
def iterative() -> str:
    """MDS, Isomap, t-SNE and UMAP at three sizes, beside the reference library."""
    computed = {
        "mds": "scikit-learn's trajectory: within 1e-8 and equal iterations in float64",
        "isomap": "exact insertion: shortest paths equal SciPy's",
        "tsne": "exact gradient, 1,000 iterations at most; the reference approximates it",
        "umap": "umap-learn's graph and number of updates",
    }
    sizes = (100, 500, 1000)
    used = {name: [shadow_row(name, n) for n in sizes] for name in ITERATIVE}
    rows = [(ITERATIVE[name], *map(_beside, own), computed[name]) for name, own in used.items()]
    heads = ("ms per shadow (x)", *(f"n = {n:,}" for n in sizes), "what is computed")
    return f"{markdown_table(heads, rows)}\n\n{tables.origin(SHADOWS, [row for own in used.values() for row in own])}"


@made
def scaled() -> str:
    """PCA behind a scaler."""
    used = [
        shadow_row("pca", n, dtype=dtype, scale="standard") for dtype in ("float32", "float64") for n in (200, 1000)
    ]
    rivals = ("naive", "sklearn/standard_pca_default", "sklearn/standard_pca_full")
    rows = [
        (f"{r['n']:,}", r["dtype"], short(r["ms_per_shadow"]), *(short(r["speedup"][name]) for name in rivals))
        for r in used
    ]
    heads = ("n", "dtype", "ms", "naive `vmap`", "default, randomised", "full")
    return f"{markdown_table(heads, rows)}\n\n{tables.origin(SHADOWS, used)}"


@made
def limits() -> str:
    """How near to the best matrix product the iterative methods come at n = 1,000, and what binds them."""
    used = {name: shadow_row(name, 1000) for name in ITERATIVE}
    small = shadow_row("mds", 100)["gemm_share"]
    told = {
        "mds": (
            "12 per pair and iteration",
            f"root and division of a pair, and short loops at n = 100 ({small:.0%})",
        ),
        "isomap": (
            f"products with the shared matrix in {used['isomap']['n_iter']:.1f} steps",
            "those products alone would take a quarter of the time; the rest is repair of paths and small sums",
        ),
        "tsne": (
            "22 per pair and iteration",
            "arithmetic of the pass: 13 to 18 vector instructions, of which only some multiply and add at once",
        ),
        "umap": (
            "25 per attraction or repulsion",
            "latency: each repulsion of a record waits for the one before it",
        ),
    }
    rows = [
        (ITERATIVE[name], told[name][0], short(row["gflop_per_s"]), f"{row['gemm_share']:.0%}", told[name][1])
        for name, row in used.items()
    ]
    heads = ("method", "operations counted", "GFLOP/s", "share of the product", "what binds")
    return f"{markdown_table(heads, rows)}\n\n{tables.origin(SHADOWS, list(used.values()))}"


@made
def pallas() -> str:
    """Kernels that are written by hand beside XLA's, of one run on a card."""
    with_pallas = "shadow_embeddings_pallas.jsonl"
    used, rows = [], []
    for method in ("mds", "tsne"):
        by_hand = tables.newest(tables.rows_of(with_pallas), name="drjax", method=method, n=200)
        by_xla = tables.newest(tables.rows_of(SHADOWS), name="drjax", method=method, n=200, commit=by_hand["commit"])
        used += [by_xla, by_hand]
        rows.append((ITERATIVE[method], *(short(row["ms_per_shadow"]) for row in (by_xla, by_hand))))
    table = markdown_table(("", "ms a shadow, XLA", "Pallas"), rows)
    return f"{table}\n\n{tables.origin(f'{SHADOWS}` and `{with_pallas}', used)}"


@made
def first_call() -> str:
    """What three commands take in a new process, by what is kept on disk."""
    file = "first_call.jsonl"
    commands = {
        "audit": "PCA, the README's first command",
        "audit --method mds --n-known 60 --n-shadow 100 --n-targets 20 --attack stationarity invariant": (
            "MDS, 60 known, `stationarity invariant`"
        ),
        "audit --method tsne --n-known 60 --n-shadow 100 --n-validation 50 --n-targets 20": (
            "t-SNE, 60 known, the attacks it chooses"
        ),
    }
    states = {"off": "nothing kept", "empty": "empty folder", "kept": "kept by the process before"}
    used, rows = [], []
    for command, title in commands.items():
        for state, words in states.items():
            row = tables.newest(tables.rows_of(file), command=command, kept=state)
            used.append(row)
            compiled = f"{row['compiled']} in {short(row['compile_s'])}" if row["compiled"] else "0"
            found = f"{row['found']} in {short(row['found_s'])}" if row["found"] else ""
            seconds = (f"{row[name]:.1f}" for name in ("trace_s", "run_s", "cpu_s"))
            rows.append((title if state == "off" else "", words, compiled, found, *seconds))
    heads = (
        "`drjax audit` on digits", "state", "programs compiled, s", "found on disk, s", "tracing, s", "command, s",
        "processor s, imports included",
    )  # fmt: skip
    return f"{markdown_table(heads, rows)}\n\n{tables.origin(file, used)}"


if __name__ == "__main__":
    print(block(*sys.argv[1:]))
