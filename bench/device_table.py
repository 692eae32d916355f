"""What was measured on a card, as a table made from the rows of `results/`, and what was not.

    python -m bench.device_table

`python docs/generated.py` puts it into its page. A row is one run of one engine at one commit: ours, the naive `vmap`
beside it, and the reference libraries on the cores of the same host. What has no row stands as "not run".
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from bench import harness, shadow_embeddings
from bench.tables import NOT_RUN, filled
from drjax.dr import METHODS
from drjax.reports import records
from experiments.markdown import markdown_table

SHADOWS, PALLAS = "shadow_embeddings.jsonl", "shadow_embeddings_pallas.jsonl"

FILES = {
    SHADOWS: "ms_per_shadow",
    PALLAS: "ms_per_shadow",
    "tsne_maps.jsonl": "ms_per_fit",
    "shadow_models.jsonl": "ms_per_model",
}
"""Files with rows of what runs on a card -> the field with milliseconds."""

OURS, NAIVE = "drjax", ("naive", "vmap")

LEFT = "ms_left_on_device"
"""Field with the milliseconds of a shadow whose embedding is not copied to the host."""

LABELS = ("method", "threat_model", "n", "d", "dtype", "kernels", "width", "epochs")
RUN = ("commit", "device_kind", "config")

HEADS = (
    "what", "n", "d", "dtype", "ours: ms (compile s)", "ours, left on the card: ms", "naive `vmap`: ms (compile s)",
    "ours is faster by", "the host's libraries: ms", "share of the product", "measured",
)  # fmt: skip


@dataclass(frozen=True)
class Measured:
    """One row of ours and those of the same run beside it.

    Attributes:
        file: Where they are.
        row: Ours.
        naive: Row of the naive `vmap`; None if there is none.
        peers: Rows of the reference libraries.
    """

    file: str
    row: Mapping[str, Any]
    naive: Mapping[str, Any] | None
    peers: tuple[Mapping[str, Any], ...]

    @property
    def what(self) -> str:
        """Method, or what else was timed, with what decides it."""
        if self.file == "shadow_models.jsonl":
            return f"classifiers of width {self.row['width']}, {self.row['epochs']} epochs"
        name = METHODS[self.row["method"]].title
        if self.file == "tsne_maps.jsonl":
            return f"{name}, maps that share no records"
        about = "" if self.row["threat_model"] == "none" else f", {self.row['threat_model']}"
        return f"{name}{about}{', Pallas kernels' if self.is_pallas else ''}"

    @property
    def is_pallas(self) -> bool:
        """Whether the sums over pairs were Pallas kernels, which are not the default."""
        return self.file == PALLAS or self.row.get("kernels") == "pallas"

    @property
    def dtype(self) -> str:
        """Of the computation."""
        return self.row.get("dtype") or ("float64" if self.row["x64"] else "float32")


def measured(folder: Path) -> list[Measured]:
    """Everything of ours that was timed on another device than a CPU, with what was timed beside it.

    Args:
        folder: With the files of `FILES`; those that are not there have no rows.

    Raises:
        ValueError: a file that does not hold records.
    """
    found = []
    for file in FILES:
        if not (folder / file).exists():
            continue
        rows = [row for row in records.read_records(folder / file) if row["device_kind"] != "cpu"]
        for row in rows:
            if row["name"] == OURS:
                beside = _beside(row, rows)
                naive = next((beside[name] for name in NAIVE if name in beside), None)
                peers = tuple(other for name, other in beside.items() if name not in NAIVE)
                found.append(Measured(file, row, naive, peers))
    order, files = list(METHODS), list(FILES)
    return sorted(
        found,
        key=lambda e: (
            "shadow_embeddings" not in e.file,
            order.index(e.row["method"]) if "method" in e.row else len(order),
            files.index(e.file),
            e.row["n"],
        ),
    )


def table(found: Sequence[Measured]) -> str:
    """Markdown: a line for every row of ours, with commit and device."""
    return markdown_table(HEADS, [tuple(_cells(entry)) for entry in found])


def gaps(found: Sequence[Measured]) -> list[str]:
    """Sentences on what of the grid of `bench.shadow_embeddings` was never timed on a card."""
    rows, grid = [entry for entry in found if entry.file in (SHADOWS, PALLAS)], shadow_embeddings.Config()
    own = {name: {e.row["n"] for e in rows if e.row["method"] == name and not e.is_pallas} for name in grid.method}
    never = [METHODS[name].title for name, done in own.items() if not done]
    told = [f"shadows by {' and '.join(never)}, at any size"] if never else []
    by_sizes: dict[str, list[str]] = {}
    for name, done in own.items():
        lost = ", ".join(str(n) for n in grid.n if n not in done)
        if done and lost:
            by_sizes.setdefault(lost, []).append(METHODS[name].title)
    told += [f"n = {lost}: {', '.join(names)}" for lost, names in by_sizes.items()]
    alone = [e for e in rows if e.is_pallas and e.row["n"] not in own[e.row["method"]]]
    told[-1:] = [told[-1] + "".join(f" ({e.what} at n = {e.row['n']:,} apart)" for e in alone)] if told else []
    for name, field, wanted in (("precision", "dtype", grid.dtype), ("d =", "d", grid.d)):
        lost = [str(value) for value in wanted if value not in {entry.row[field] for entry in rows}]
        told += [f"{name} {', '.join(lost)}"] if lost else []
    beside = {entry.what for entry in rows if entry.naive is not None and "skipped" not in entry.naive}
    bare = dict.fromkeys(entry.what for entry in rows if entry.what not in beside)
    return told + ([f"the naive `vmap` beside {'; '.join(bare)}"] if bare else [])


def section(folder: Path = harness.RESULTS) -> str:
    """The table, what its columns mean, and what was not measured."""
    found = measured(folder)
    if not found:
        return "Nothing was measured on a card."
    hosts = dict.fromkeys(f"{e.row['device_kind']} with {e.row['cores']} cores of {e.row['cpu']}" for e in found)
    about = (
        f"{'; '.join(hosts)}. One run a line; milliseconds a shadow, map or model, compilation apart. The host's "
        "libraries have all its cores for themselves in their turn. What the naive `vmap` makes stays on the card: it "
        "is compared with ours left there, where that was timed. The share is of the card's best matrix product in "
        "that run."
    )
    limits = {e.row["config"]["naive_limit_s"] for e in found if "skipped" in (e.naive or {})}
    why = f" (the runs skipped it by `--naive-limit-s {', '.join(map(str, limits))}`)" if limits else ""
    lost = "\n".join(filled(f"- {gap}{why if gap.startswith('the naive') else ''}", "  ") for gap in gaps(found))
    return "\n\n".join([filled(about), table(found), *(["Never measured on a card:", lost] if lost else [])])


def _beside(row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Rows of other engines on the same cell in the same run, by name; those next in time where a run was repeated."""

    def apart(other: Mapping[str, Any]) -> float:
        times = (datetime.fromisoformat(one["utc"]) for one in (row, other))
        return abs(operator.sub(*times).total_seconds())

    same = [other for other in rows if all(row.get(name) == other.get(name) for name in (*LABELS, *RUN))]
    rivals = [other for other in same if other["name"] != OURS and not other["name"].startswith("peak/")]
    names = dict.fromkeys(other["name"] for other in rivals)
    return {name: min((other for other in rivals if other["name"] == name), key=apart) for name in names}


def _cells(entry: Measured) -> Iterator[str]:
    row, naive, unit = entry.row, entry.naive, FILES[entry.file]
    yield from (entry.what, f"{row['n']:,}", str(row["d"]), entry.dtype)
    yield _with_compilation(row, unit)
    yield _ms(row[LEFT]) if LEFT in row else NOT_RUN if entry.file in (SHADOWS, PALLAS) else ""
    if naive is None or "skipped" in naive:
        yield from (NOT_RUN, "")
    else:
        # Naive maps are not copied to the host either.
        own = row.get(LEFT, row[unit])
        yield from (_with_compilation(naive, unit), f"{float(f'{naive[unit] / own:.2g}'):,g}")
    yield "; ".join(_peer(peer, unit) for peer in entry.peers) or NOT_RUN
    share = row.get("gemm_share")
    yield "" if share is None else f"{share:.1%}" if share >= 0.001 else "< 0.1%"
    changed = " with changes" if row["dirty"] else ""
    commit = (row["commit"] or "no commit")[:9]
    yield f"{commit}{changed}, {row['utc'][:10]}, {row['device_kind']}, JAX {row['versions']['jax']}"


def _with_compilation(row: Mapping[str, Any], unit: str) -> str:
    compiled = "not recorded" if row.get("compile_s") is None else f"{row['compile_s']:.1f}"
    return f"{_ms(row[unit])} ({compiled})"


def _peer(row: Mapping[str, Any], unit: str) -> str:
    name = "a loop over one model" if row["name"] == "loop" else row["name"]
    return f"{name} {NOT_RUN if 'skipped' in row else _ms(row[unit])}"


def _ms(value: float) -> str:
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def block() -> str:
    """What stands in docs/kernels/gpu_rows.md."""
    return section()


if __name__ == "__main__":
    print(block())
