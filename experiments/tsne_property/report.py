"""Tables and figures of a run.

python -m experiments.tsne_property.report --results runs/tsne_property --out experiments/tsne_property/results
"""

from __future__ import annotations

from pathlib import Path

import tyro

from drjax.reports import plots, records
from experiments.sweep import RESULTS
from experiments.tsne_property import figures, tables
from experiments.tsne_property.map_sets import Store
from experiments.tsne_property.run import CACHE, SCALES, Config


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
    made = {"scores": figures.scores(found)}
    if tables.defended(found[1:]):
        made["defences"] = figures.defences(found)
    config = configuration(found[0]["fingerprint"])
    store = Store(results / CACHE)
    if config is not None and store.folder.is_dir():
        made["means"] = figures.means(store, config)
        if "defences" in made:
            made["maps"] = figures.maps(store, config)
        rest = {"more_maps": figures.more_maps(store, config), "grad_cam": figures.attention(store, config)}
        made |= {name: figure for name, figure in rest.items() if figure is not None}
    for name, figure in made.items():
        plots.save_figure(figure, out / f"{name}.png")


def configuration(fingerprint: str) -> Config | None:
    """The scale that a run was of; None for another configuration."""
    return next((config for config in SCALES.values() if records.config_fingerprint(config) == fingerprint), None)


if __name__ == "__main__":
    tyro.cli(main)
