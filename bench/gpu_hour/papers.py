"""Part d: what of the papers' experiments needs a card, as cells of those experiments.

Every experiment computes and keeps its own cells, in a folder of its own below that of the run, and `gpu_merge` files
them from there. A cell here is a pattern that the experiment is told.
"""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.gpu_hour import needs
from bench.gpu_hour.hour import Hour, Scale
from bench.gpu_hour.steps import Cell, Step, cut
from bench.peers import ROOT
from drjax.attacks.property.models import PropertyConfig
from drjax.data.sources import DATA_VARIABLE
from drjax.nets.plot_networks import PlotNetworkConfig
from drjax.reports import records
from experiments import sweep
from experiments.dr_reconstruction import config as dr_config
from experiments.dr_reconstruction import order as dr_order
from experiments.dr_reconstruction import run as dr_run
from experiments.informed_adversary import config as models_config
from experiments.informed_adversary import run as models_run
from experiments.sweep import Sweep
from experiments.tsne_property import cells as plots_cells
from experiments.tsne_property import config as plots_config
from experiments.tsne_property import run as plots_run
from experiments.tsne_property.pretrained import FILES

NETWORKS = (dr_config.NETWORK, dr_config.DENSE_NETWORK)
FOLDER = "experiments"


@dataclass(frozen=True, kw_only=True)
class Kept:
    """Where an experiment's results are.

    Attributes:
        committed: File of the repository that results are filed into, relative to its root.
        sweep: The experiment.
        scale: Its scale that is run.
    """

    committed: str
    sweep: Sweep[Any]
    scale: str

    @property
    def config(self) -> Any:
        """The configuration that is run."""
        return self.sweep.scales[self.scale]


KEPT = {
    "dr_reconstruction-full": Kept(
        committed="experiments/dr_reconstruction/results/full/results.jsonl", sweep=dr_run.SWEEP, scale="full"
    ),
    "informed_adversary-paper": Kept(
        committed="experiments/informed_adversary/results/paper/results.jsonl", sweep=models_run.SWEEP, scale="paper"
    ),
    "informed_adversary-cpu": Kept(
        committed="experiments/informed_adversary/results/results.jsonl", sweep=models_run.SWEEP, scale="cpu"
    ),
    "tsne_property-full": Kept(
        committed="experiments/tsne_property/results/results.jsonl", sweep=plots_run.SWEEP, scale="full"
    ),
}
"""By the name of the folder below `experiments` in that of a run."""


def steps(scale: Scale) -> Iterator[Step]:
    """Paper 000, chest X-rays, paper 004, paper 003."""
    networks = "guess: 31,250 steps of each network at 2 ms, and maps by the times of an H100 at n = 200"
    yield from cut("figure2", "d", networks, _reconstruction(scale, "mnist"))
    if scale.name != "toy":
        yield from cut("x-rays", "d", networks, _reconstruction(scale, "cxr_mednist"))
    models = "an H100: 5,900 shadow models a second at n = 1,000, 2.5 ms a shadow for RecoNN; the rest guessed"
    yield from cut("59000-shadows", "d", models, _shadows(scale))
    yield from cut("cnn", "d", "an H100: shadow models 85 s, 15 to 50 s an attack; inversion guessed", _cnn(scale))
    plots = "an H100: 345 s for 750 plots and 40 epochs"
    yield from cut("densenet", "d", plots, _densenet(scale))


TINY_RELEASES = dr_config.Config(
    plans=(
        dr_config.Plan(
            data="digits", n_known=(9,), repeats=(1,), max_known=9, n_shadow=24, n_validation=4, n_targets=4
        ),
    ),
    methods=("pca",),
    dear=dict.fromkeys(NETWORKS, ("*",)),
    network="fast",
    dense_network="bch22-fast",
    noisy=(),
    n_examples=1,
)

MAPS = {"pca": (0.01, 1), "srp": (0.01, 1), "mds": (0.2, 2), "isomap": (0.2, 3), "tsne": (0.6, 2), "umap": (3.0, 1)}
"""Milliseconds of one embedding of 200 records, and the power of their number with which it grows. UMAP was never timed
on a card; MDS and Isomap were in float32, and are expected to take twice as long in float64."""

NETWORK_SECONDS = {dr_config.NETWORK: 90.0, dr_config.DENSE_NETWORK: 45.0}


def _reconstruction(scale: Scale, data: str) -> Iterator[Cell]:
    if scale.name == "toy":
        data = "digits"
    config = TINY_RELEASES if scale.name == "toy" else dr_config.of_scale("full")
    # X-rays have been run without networks where fewer are known: the 2,000 images allow 999.
    size = "999/*" if data == "cxr_mednist" else "*"
    tasks = dr_order.tasks(config, [f"{data}/*/{size}:{name}:0" for name in NETWORKS])
    done = set() if scale.name == "toy" else committed("dr_reconstruction-full")
    tasks = [task for task in tasks if task.cells[0] not in done]
    last = {task.release.name: task for task in tasks}
    seen = set()
    for task in tasks:
        release = task.release
        maps = 0.0
        if release.name not in seen:
            seen.add(release.name)
            plan = config.plan(release)
            lanes = plan.n_shadow + plan.n_validation + plan.n_targets
            milliseconds, power = MAPS[release.method]
            maps = 20 + 1e-3 * lanes * milliseconds * max(1.0, (release.n_known + 1) / 200) ** power
        name = dr_order.text_of(task.cells[0])
        yield Cell(
            name=f"reconstruction/{name}",
            seconds=maps + NETWORK_SECONDS[task.attack],
            compute=_in_folder(
                "dr_reconstruction-full", functools.partial(_run_releases, config, name, task != last[release.name])
            ),
            lacks=functools.partial(needs.data, data),
        )


def _run_releases(config: dr_config.Config, only: str, keep: bool, out: Path) -> None:
    options = dr_run.Options(keep=keep)
    sweep.run(dr_run.SWEEP, config, out, only=only, options=options, say=_say)


TINY_MODELS = models_run.Config(
    scale=models_config.Scale(
        data="digits",
        targets=3,
        n_fixed=30,
        n_shadow=24,
        n_other=1,
        sizes=(24,),
        fixed_sizes=(20,),
        factors=("shadows",),
    )
)


def _shadows(scale: Scale) -> Iterator[Cell]:
    """The largest number of shadow models first: it is the one that the paper prints."""
    config = _models(scale, "paper")
    # Ten times the known records of those that were measured.
    yield from _settings(config, "paper", "shadows", lambda s, _: 60 + (s.n_shadow or 0) * (10 / 5900 + 2.5e-3))


def _cnn(scale: Scale) -> Iterator[Cell]:
    if scale.name != "toy":
        config = _models(scale, "cpu")
        yield from _settings(config, "cpu", "cifar10", lambda _, which: 400.0 if which == "inversion" else 85 + 3 * 40)


def _models(scale: Scale, name: str) -> models_run.Config:
    return TINY_MODELS if scale.name == "toy" else models_run.Config(scale=models_config.SCALES[name])


def _settings(
    config: models_run.Config, name: str, factor: str, seconds: Callable[[models_config.Setting, str], float]
) -> Iterator[Cell]:
    """A cell for each setting of a factor, whose attacks share the shadow models; inversion needs none: one apart."""
    is_toy = config is TINY_MODELS
    done = set() if is_toy else committed(f"informed_adversary-{name}")
    groups: dict[tuple[str, str], tuple[models_config.Setting, str]] = {}
    for _, setting, which in models_run.places(config.scale, (factor,)):
        wanted = setting.name.startswith("CNN") if factor == "cifar10" else "fast" in setting.learned
        if wanted and (factor, setting.name, which) not in done:
            kind = which if which == "inversion" else "learned"
            groups.setdefault((setting.name, kind), (setting, which))
    for (setting_name, kind), (setting, which) in sorted(
        groups.items(), key=lambda item: (item[0][1] == "inversion", -(item[1][0].n_shadow or 0))
    ):
        only = f"{factor}/{setting_name}/" + ("inversion" if kind == "inversion" else "[!i]*")
        sources = () if is_toy else tuple(dict.fromkeys((config.scale.data, setting.data or config.scale.data)))
        yield Cell(
            name=f"models/{name}/{factor}/{setting_name}/{kind}",
            seconds=seconds(setting, which),
            compute=_in_folder(f"informed_adversary-{name}", functools.partial(_run_models, config, factor, only)),
            lacks=functools.partial(needs.data, *sources),
        )


def _run_models(config: models_run.Config, factor: str, only: str, out: Path) -> None:
    options = models_run.Options(factors=(factor,))
    sweep.run(models_run.SWEEP, config, out, only=only, options=options, say=_say)


TINY_PLOTS = plots_config.Config(
    main=("digits:even",),
    extractor="pca",
    levels=(0.0, 0.5, 1.0),
    n=40,
    n_train=5,
    n_test=2,
    seeds=1,
    picture_seeds=0,
    picture_regression_seeds=0,
    densenet_seeds=1,
    set_seeds=0,
    defence_seeds=1,
    densenet=PropertyConfig(epochs=2, batch_size=4, network=PlotNetworkConfig(size=20, blocks=(1,), growth=4, stem=4)),
)

PLOTS = ("densenet", "coordinates")
PLOTS_SECONDS = {"densenet": 430.0, "picture": 45.0}


def _densenet(scale: Scale) -> Iterator[Cell]:
    """DenseNet-121 by shares, then both networks adapted to noise on coordinates, then what else DenseNet-121 has."""
    config = TINY_PLOTS if scale.name == "toy" else plots_config.SCALES["full"]
    done = set() if scale.name == "toy" else committed("tsne_property-full")
    parts = plots_run.Plan(config).parts
    found = [cell for name in PLOTS for cell in parts[name]() if isinstance(cell, plots_cells.Cell)]

    def rank(cell: plots_cells.Cell) -> tuple[bool, bool, bool]:
        return cell.test.prop != config.main[0], cell.task != "regression", cell.part != "main"

    for cell in sorted(found, key=rank)[: 1 if scale.name == "toy" else None]:
        if records.config_fingerprint(cell)[:16] not in done:
            only = plots_run.path_of(cell)
            yield Cell(
                name=f"plots/{only}",
                seconds=PLOTS_SECONDS[cell.attack],
                compute=_in_folder("tsne_property-full", functools.partial(_run_plots, config, only)),
                lacks=functools.partial(_lacks_plots, config, cell.test.prop),
            )


def _run_plots(config: plots_config.Config, only: str, out: Path) -> None:
    cache = out / plots_run.CACHE
    if config.extractor in FILES and not (cache / FILES[config.extractor]).exists():
        cache.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(_extractor(config.extractor), cache / FILES[config.extractor])
    options = plots_run.Options(parts=PLOTS)
    sweep.run(plots_run.SWEEP, config, out, only=only, options=options, say=_say)


def _lacks_plots(config: plots_config.Config, prop: str) -> str | None:
    if config.extractor not in FILES:
        return None
    file = _extractor(config.extractor)
    if not file.is_file():
        return f"{file} (python -m experiments.tsne_property.pretrained)"
    return needs.data(prop.partition(":")[0]) or needs.package("onnxruntime", "which runs the extractor")


def _extractor(name: str) -> Path:
    """Where the file of an extractor is among the data."""
    return Path(os.environ.get(DATA_VARIABLE, "data")) / "tsne_property" / FILES[name]


def committed(folder: str) -> set[Any]:
    """What the repository holds of an experiment already, by `Sweep.identity`."""
    file = ROOT / KEPT[folder].committed
    found = records.read_records(file) if file.exists() else []
    return {KEPT[folder].sweep.identity(line) for line in found if line["kind"] != "run"}


def _in_folder(folder: str, compute: Callable[[Path], None]) -> Callable[[Hour], dict[str, Any]]:
    """Computes in an experiment's folder of the run; the record says how many cells came to it."""

    def run(hour: Hour) -> dict[str, Any]:
        out = hour.out / FOLDER / folder
        before = len(list(out.glob("*.cells/*.json")))
        compute(out)
        return {"folder": folder, "new_cells": len(list(out.glob("*.cells/*.json"))) - before}

    return run


def _say(text: str) -> None:
    print(f"  {text}", flush=True)
