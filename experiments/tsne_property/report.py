"""Tables and figures of a run.

python -m experiments.tsne_property.report --results runs/tsne_property --out experiments/tsne_property/results
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import tyro
from matplotlib.figure import Figure

from drjax.reports import records
from experiments import drawings
from experiments.sweep import RESULTS
from experiments.tsne_property import figures, tables
from experiments.tsne_property.map_sets import Store
from experiments.tsne_property.run import CACHE, SCALES, Config
from experiments.tsne_property.tables import Record


def main(*, results: Path, out: Path | None = None) -> None:
    """Writes tables.md and figures; those of maps only where the run's maps are still there.

    Args:
        results: Folder of `results.jsonl`, and of the cache of maps.
        out: Where to write; `results` if None.

    Raises:
        ValueError: no cells in `results`.
    """
    found = records.read_records(results / RESULTS)
    if len(found) < 2:
        raise ValueError(f"results must hold a cell, got none in {results}")
    out = out or results
    out.mkdir(parents=True, exist_ok=True)
    records.atomic_write_text(out / "tables.md", tables.tables(found))
    made = _of_rows(found)
    config = configuration(found[0]["fingerprint"])
    store = Store(results / CACHE)
    if config is not None and store.folder.is_dir():
        made["means"] = figures.means(store, config)
        if "defences" in made:
            made["maps"] = figures.maps(store, config)
        rest = {"more_maps": figures.more_maps(store, config), "grad_cam": figures.attention(store, config)}
        made |= {name: figure for name, figure in rest.items() if figure is not None}
    drawings.save(made, out)


def drawn(rows: Path) -> dict[str, Figure]:
    """The figures of cells by their names; those of maps need the run's maps.

    Args:
        rows: Folder of `results.jsonl`.
    """
    return _of_rows(records.read_records(rows / RESULTS))


def _of_rows(found: Sequence[Record]) -> dict[str, Figure]:
    return {"scores": figures.scores(found)} | (
        {"defences": figures.defences(found)} if tables.defended(found[1:]) else {}
    )


def configuration(fingerprint: str) -> Config | None:
    """The scale that a run was of; None for another configuration."""
    return next((config for config in SCALES.values() if records.config_fingerprint(config) == fingerprint), None)


if __name__ == "__main__":
    tyro.cli(main)
