"""Figures of docs/kernels, from the rows of bench/ and of experiments/pages."""

from __future__ import annotations

from collections.abc import Sequence

from bench import device_table, harness, tables
from bench.device_table import PALLAS, Measured
from bench.gpu_merge import CELLS
from bench.speed_tables import LIBRARY, SHADOWS, shadow_row
from bench.tables import XEON
from experiments.markdown import Figures
from experiments.pages.report import line_of

figures = Figures()


def _on_card(*methods: str, file: str = SHADOWS) -> list[Measured]:
    """What was timed on a card by the default kernels beside the naive `vmap`."""
    found = device_table.measured(harness.RESULTS)
    own = [entry for entry in found if entry.file == file and not entry.is_pallas]
    return [e for e in own if e.row["method"] in methods and e.naive is not None and "skipped" not in e.naive]


def _faster(*methods: str) -> list[float]:
    return [e.naive["ms_per_shadow"] / e.row["ms_per_shadow"] for e in _on_card(*methods) if e.naive is not None]


@figures
def on_a_card_faster() -> Sequence[float]:
    """How many times faster than the naive `vmap` on the same card."""
    inserted, tsne = _faster("pca", "svd", "classical_mds"), _faster("tsne")
    return min(inserted), max(inserted), *_faster("umap"), min(tsne), max(tsne)


@figures
def on_a_card_slower() -> Sequence[float]:
    """How many times as long as the naive `vmap` on the same card: Isomap, projections, maps of other records."""
    every = _on_card("srp")
    newest = max(every, key=lambda entry: entry.row["utc"]).row["commit"]
    runs = [entry for entry in every if entry.row["commit"] == newest]
    projections = [e.row["ms_per_shadow"] / e.naive["ms_per_shadow"] for e in runs if e.naive is not None]
    (apart,) = _on_card("tsne", file="tsne_maps.jsonl")
    assert apart.naive is not None
    (isomap,) = _faster("isomap")
    return 1 / isomap, min(projections), max(projections), apart.row["ms_per_fit"] / apart.naive["ms_per_fit"]


@figures
def on_a_card_limits() -> Sequence[float]:
    """Shares of the matrix product of iterative methods, and how far apart runs of two days are."""
    found = device_table.measured(harness.RESULTS)
    shares = [e.row["gemm_share"] for e in found if e.row.get("method") in ("mds", "isomap", "tsne", "umap")
              and e.row.get("gemm_share") is not None]  # fmt: skip
    pca = [e.row["ms_per_shadow"] for e in found if e.row.get("method") == "pca" and e.row["n"] == 200]
    own, naive = {}, {}
    for entry in _on_card("srp"):
        own.setdefault(entry.row["threat_model"], []).append(entry.row["ms_per_shadow"])
        assert entry.naive is not None
        naive.setdefault(entry.row["threat_model"], []).append(entry.naive["ms_per_shadow"])
    apart = [max(max(times) / min(times) for times in kind.values()) for kind in (own, naive)]
    return min(shares), max(shares), max(pca) / min(pca), *apart


@figures
def parity() -> Sequence[float]:
    """Largest distances of a card's coordinates from the CPU's: float64, float32, and UMAP's with its limit."""
    rows = [row for row in tables.rows_of(CELLS.name) if "apart" in row]
    wide = max(row["apart"] for row in rows if row["dtype"] == "float64")
    narrow = [row for row in rows if row["dtype"] == "float32"]
    by_method = {m: max(row["apart"] for row in narrow if row["method"] == m) for m in {r["method"] for r in narrow}}
    umap = next(row for row in rows if row["method"] == "umap" and row["dtype"] == "float32")
    others = max(value for method, value in by_method.items() if method not in ("mds", "umap"))
    of_umap = max(row["apart"] for row in rows if row["method"] == "umap" and row["dtype"] == "float64")
    return wide, others, by_method["mds"], by_method["umap"], umap["limit"], of_umap


@figures
def gpu_tests() -> Sequence[float]:
    """Tests marked `gpu` that passed on a card, and their files."""
    rows = [row for row in tables.rows_of(CELLS.name) if "tests" in row]
    return sum(row["tests"] - row["skipped"] - len(row["failures"]) for row in rows), len(rows)


@figures
def card_compiles() -> Sequence[float]:
    """Seconds of the longest compilation of shadows on a card."""
    found = [entry for entry in device_table.measured(harness.RESULTS) if entry.file == SHADOWS]
    return (max(entry.row["compile_s"] for entry in found),)


@figures
def pallas() -> Sequence[float]:
    """How many times faster SMACOF is with kernels that are written by hand, n = 200."""
    by_hand = tables.newest(tables.rows_of(PALLAS), name="drjax", method="mds", n=200)
    by_xla = tables.newest(tables.rows_of(SHADOWS), name="drjax", method="mds", n=200, commit=by_hand["commit"])
    return (by_xla["ms_per_shadow"] / by_hand["ms_per_shadow"],)


@figures
def best_product() -> Sequence[float]:
    """GFLOP/s of the best matrix product in float32 of the machine of the limits."""
    row = shadow_row("tsne", 1000)
    return (row["gflop_per_s"] / row["gemm_share"],)


@figures
def tsne_beside_library() -> Sequence[float]:
    """How many times faster than scikit-learn at n = 1,000, and seconds of one of its fits on one thread."""
    row = shadow_row("tsne", 1000)
    library = tables.newest(
        tables.rows_of(SHADOWS), name=LIBRARY["tsne"], n=1000, d=784, commit=row["commit"], cores=2, cpu=XEON
    )
    return row["speedup"][LIBRARY["tsne"]], library["ms_per_shadow"] * library["workers"] / 1e3


@figures
def umap_beside_library() -> Sequence[float]:
    """Milliseconds of a shadow on two cores at three sizes, and of umap-learn's."""
    rows = [shadow_row("umap", n) for n in (100, 500, 1000)]
    ours = [row["ms_per_shadow"] for row in rows]
    return *ours, *(row["speedup"][LIBRARY["umap"]] * ms for row, ms in zip(rows, ours, strict=True))


@figures
def pca_head() -> Sequence[float]:
    """Poles met one by one, and all, of insertions into 99 and 999 records of MNIST."""
    return [line_of("pca-head", n)[what] for n in ("100", "1000") for what in ("head", "poles")]


@figures
def isomap_changes() -> Sequence[float]:
    """Share of the pairs whose shortest path a record of MNIST changes among 999 others."""
    return (line_of("isomap-changes", "1000")["share"],)


@figures
def umap_start() -> Sequence[float]:
    """MNIST sets where umap-learn's start leaves out the leading vector, of how many."""
    line = line_of("umap-start", "mnist")
    return line["missed"], line["sets"]


@figures
def repulsion() -> Sequence[float]:
    """Errors of the repulsion and of the normaliser: the mesh's, and openTSNE's two ways."""
    line = line_of("tsne-repulsion", "5000")
    return [line[f"{name}{what}"] for name in ("mesh", "fft", "tree") for what in ("", "_normaliser")]
