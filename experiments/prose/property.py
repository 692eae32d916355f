"""Figures in the sentences of docs/property: from the rows of benchmarks, of paper 003 and of plots in many styles."""

from __future__ import annotations

from bench import tables
from bench.scale_tables import COVERAGE
from drjax.core.statistics import Interval
from drjax.nets.plot_networks import CONFIGS, flops
from drjax.reports import records
from experiments.markdown import Figures
from experiments.pages import report
from experiments.plot_styles import report as plot_styles
from experiments.sweep import RESULTS
from experiments.tsne_property.claim_tests import DESCRIPTORS, MALE, PICTURE, Rows, Score
from experiments.tsne_property.pages import FOLDER, rows_of

figures = Figures()

MAPS, PLOTS = "tsne_maps.jsonl", "plot_pictures.jsonl"


def _interval(found: Score | None) -> Interval:
    if found is None:
        raise LookupError("results must hold the cells of a score, got none")
    return found.interval


@figures
def coordinates() -> tuple[float, ...]:
    """Answer, ends of the interval, error with its deviation, and p of the example from coordinates."""
    return (*_said("coords"), report.line_of("example", "coords")["outcome"]["typicality"])


@figures
def picture() -> tuple[float, ...]:
    """Answer, ends of the interval and error with its deviation of the example from the picture."""
    return _said("picture")


def _said(seen: str) -> tuple[float, ...]:
    (one,) = report.line_of("example", seen)["outcome"]["findings"]
    return tuple(one[name] for name in ("proportion", "low", "high", "error", "error_deviation"))


@figures
def thirds_of_xrays(splits: str) -> tuple[float, ...]:
    """Shares of a victim's maps of chest X-rays that the intervals hold, by thirds of the shares."""
    labels = {"data": "nih_chest_xray", "maps": 200, "splits": int(splits)}
    row = tables.newest(tables.rows_of(COVERAGE), **labels)
    return tuple(row[f"coverage_third_{i}"] for i in (1, 2, 3))


@figures
def faces() -> tuple[float, ...]:
    """Error on faces by their principal components, of always saying one half, and by a network of ImageNet."""
    found = Rows(rows_of(FOLDER / "cpu"))
    by_parts, by_network = (
        found.score(part, "error", extractor=extractor, n=500)
        for part, extractor in (("extractors", "pca"), ("main", "imagenet"))
    )
    return _interval(by_parts).estimate, found.constant, _interval(by_network).estimate


@figures
def classes_of_faces() -> tuple[float, ...]:
    """Accuracy among five shares on UTKFace, of the network on pictures and of descriptors."""
    found = Rows(rows_of())
    return tuple(_interval(found.score("main", "accuracy", MALE, attack=a)).estimate for a in (PICTURE, DESCRIPTORS))


@figures
def hidden_and_right() -> tuple[float, ...]:
    """The least and the most that plots hide which are read right though they hide more than is asked for."""
    found = records.read_records(plot_styles.HERE / RESULTS)[1:]
    hidden = [1 - line["n_found"] / line["n_drawn"] for line in found if line["outcome"] == "right"]
    more = [share for share in hidden if share > plot_styles.MOST_OFF + 1e-9]
    return min(more), max(more)


@figures
def differences_of_pictures() -> tuple[float, ...]:
    """Mean and largest difference from matplotlib's pictures, in levels."""
    row = tables.newest(tables.rows_of(PLOTS), by="host", size=300, cpu=tables.EPYC)
    return row["mean_difference"], row["largest_difference"]


@figures
def pictures_a_second(by: str) -> tuple[float, ...]:
    """Plots a second at 300 and at 75 pixels on two cores."""
    return tuple(
        tables.newest(tables.rows_of(PLOTS), by=by, size=size, cpu=tables.EPYC)["plots_per_s"] for size in (300, 75)
    )


@figures
def fits(kind: str, *libraries: str) -> tuple[float, ...]:
    """Seconds of 1,000 fits of t-SNE, and how many times longer libraries take.

    Args:
        kind: Kind of device, "cpu" or another.
        *libraries: Names as the row has them.
    """
    own = [row for row in tables.rows_of(MAPS) if (row["device_kind"] == "cpu") == (kind == "cpu")]
    row = tables.newest(own, name="drjax")
    return (row["wall_s"], *(row["speedup"][library] for library in libraries))


@figures
def attack_seconds() -> tuple[float, ...]:
    """Seconds of processor time of the network on pictures, of the set network and of descriptors."""
    return tuple(report.line_of("property", kind)["processor_s"] for kind in ("picture", "set", "descriptors"))


@figures
def gigaflop() -> tuple[float, ...]:
    """Billion operations of DenseNet-121 for a picture of 300 x 300."""
    return (flops(CONFIGS["densenet121"]) / 1e9,)
