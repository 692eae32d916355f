"""Tables of what was timed and is no embedding: models, synthetic tables, plots, bounds, audits. From committed rows.

    python -m bench.part_tables NAME      # a name of `block`

Of several rows of a cell the newest on two cores stands in a table, unless it says that it is of a card.
"""

from __future__ import annotations

import sys

from bench import tables
from bench.tables import Row, short, times
from drjax.reports.ladder import duration
from experiments.markdown import Tables, markdown_table

made = Tables()
block = made.block

MODELS, SYNTHESIS, AUDITS = "shadow_models.jsonl", "synthesis.jsonl", "audits.jsonl"


@made
def shadow_models() -> str:
    """Training of classifiers by three engines, on two cores."""
    return _shadow_models(is_card=False)


@made
def shadow_models_on_a_card() -> str:
    """Training of classifiers by three engines, on a card."""
    return _shadow_models(is_card=True)


def _shadow_models(*, is_card: bool) -> str:
    engines = {"drjax": "shared GEMM", "vmap": "`vmap` over models", "loop": "loop over one jitted model"}
    own = [
        row for row in tables.rows_of(MODELS) if (row["device_kind"] != "cpu") == is_card and row.get("data") == "mnist"
    ]
    used, rows = [], []
    for n in (1000, 10_000):
        ours = tables.newest(own, name="drjax", n=n)
        for name, title in engines.items():
            row = tables.newest(own, name=name, n=n, commit=ours["commit"])
            used.append(row)
            ms, share = row["ms_per_model"], f"{row['gemm_share']:.0%}"
            speed = [] if is_card else [f"{row['gflop_per_s']:.0f}"]
            ahead = "" if row is ours else short(ms / ours["ms_per_model"])
            rows.append((f"{n:,}", title, short(ms), *speed, share, ahead))
    speed = () if is_card else ("GFLOP/s",)
    heads = ("n", "engine", "ms a model", *speed, "share of the best GEMM", "ours is faster by")
    return f"{markdown_table(heads, rows)}\n\n{tables.origin(MODELS, used)}"


@made
def synthesis() -> str:
    """100 trials of algorithm 1 beside three loops."""
    loops = {
        "loop_svd": "loop, singular values of the records in every trial",
        "loop_eigh": "loop, eigenvalues of the covariance in every trial",
        "loop_once": "loop, eigenvalues once for all trials",
    }
    p = (5, 17)
    ours = [_newest(SYNTHESIS, name="synthesis/drjax", p=of) for of in p]
    rows = [(f"drjax, {ours[0]['trials']} trials", *(f"{row['run_s']:.2f} s" for row in ours))]
    used = [*ours]
    for name, title in loops.items():
        own = [_newest(SYNTHESIS, name=f"synthesis/{name}", p=of) for of in p]
        used += own
        rows.append((title, *(f"{short(row['all_trials_s'])} s, {short(row['times_drjax'])} x" for row in own)))
    return f"{markdown_table(('', *(f'p = {of}' for of in p)), rows)}\n\n{tables.origin(SYNTHESIS, used)}"


@made
def others() -> str:
    """What else was timed beside another library, each in one run."""
    maps, plots, member, bounds = (f"{name}.jsonl" for name in ("tsne_maps", "plot_pictures", "membership", "bounds"))
    rows, said = [], []

    def add(file: str, what: str, ours: Row, by: str, theirs: Row, seconds: tuple[float, float]) -> None:
        rows.append((what, duration(seconds[0]), by, duration(seconds[1]), times(seconds[1] / seconds[0])))
        said.append((file, [ours, theirs]))

    ours = _newest(maps, name="drjax")
    libraries = {
        "openTSNE/opentsne_bh": "openTSNE, Barnes-Hut",
        "sklearn/tsne": "scikit-learn",
        "naive": "naive `vmap`",
    }
    for name, by in libraries.items():
        theirs = _newest(maps, name=name)
        what = f"a t-SNE map of {ours['n']:,} records that share none, d = {ours['d']}"
        add(maps, what, ours, by, theirs, (ours["ms_per_fit"] / 1e3, theirs["ms_per_fit"] / 1e3))
    for n in (1000, 5000):
        ours, theirs = (_newest(member, name=f"membership/{name}", n=n) for name in ("drjax", "scikit-learn"))
        what = f"membership by PCA of {n:,} records at all {ours['ks']} numbers of components"
        by = f"loop over scikit-learn, {theirs['ks']} of them timed and scaled"
        add(member, what, ours, by, theirs, (ours["run_s"], theirs["all_ks_s"]))
    for size in (75, 300):
        ours, theirs = (_newest(plots, by=name, size=size) for name in ("host", "matplotlib"))
        what = f"a plot of {ours['n']:,} points, {size} pixels wide"
        add(plots, what, ours, "matplotlib", theirs, (1 / ours["plots_per_s"], 1 / theirs["plots_per_s"]))
    ours = tables.newest(tables.rows_of(bounds), name="bounds/rero", curve="Gaussian")
    theirs = tables.newest(tables.rows_of(bounds), name="bounds/riskcal", curve="Gaussian")
    what = "a million bounds of reconstruction, Gaussian, one core"
    add(bounds, what, ours, "riskcal, without digits in the tail", theirs, (ours["run_s"], theirs["run_s"]))
    origins = [
        tables.origin(file, [row for name, pair in said if name == file for row in pair])
        for file in dict.fromkeys(name for name, _ in said)
    ]
    heads = ("what", "drjax", "beside", "it takes", "times as long")
    return "\n\n".join([markdown_table(heads, rows), "\n".join(f"- {_indented(text)}" for text in origins)])


def last_audits() -> dict[float, Row]:
    """The newest row of each mu that was audited."""
    return {row["mu"]: row for row in sorted(tables.rows_of(AUDITS), key=lambda row: row["utc"])}


@made
def audits() -> str:
    """Which share of mu and epsilon the lower bounds of audits have, and how often a true claim is refuted."""
    last = last_audits()
    rows = [
        (
            f"{row['mu']:g}",
            f"{row['mu_share_mean']:.2f} ({row['mu_share_least']:.2f} to {row['mu_share_largest']:.2f})",
            f"{row['epsilon_share_mean']:.2f}",
            f"{row['refuted']} of {row['audits']}",
        )
        for row in (last[mu] for mu in sorted(last))
    ]
    heads = ("mu", "`mu_lower` over mu, mean (least to largest)", "`epsilon_lower` over epsilon", "true claims refuted")
    return f"{markdown_table(heads, rows)}\n\n{tables.origin(AUDITS, list(last.values()))}"


def _newest(file: str, **labels: str | int) -> Row:
    return tables.newest(tables.rows_of(file), device_kind="cpu", cores=2, **labels)


def _indented(text: str) -> str:
    return text.replace("\n", "\n  ")


if __name__ == "__main__":
    print(block(*sys.argv[1:]))
