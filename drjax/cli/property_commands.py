"""`drjax attack property`: which share of the records behind a published plot has a property?"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import jax
import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from drjax import data as datasets
from drjax.attacks.property import observation
from drjax.attacks.property.defences import TABLE5
from drjax.attacks.property.observation import Plot
from drjax.attacks.property.predict import Outcome, predict_proportion
from drjax.attacks.property.shadow_data import Features, ShadowData, read_shadow
from drjax.cli.commands import check_new
from drjax.cli.options import MethodOptions, Options, hinted, typed
from drjax.core import validate
from drjax.data.checksums import sha256
from drjax.dr import METHODS, TSNE
from drjax.reports import records

ATTACKS = {
    "descriptors": ("descriptors",),
    "set": ("set",),
    "picture": ("picture",),
    "both": ("descriptors", "picture"),
}


@dataclass(frozen=True, kw_only=True)
class Published:
    """The plot: --plot or --coords.

    Attributes:
        plot: Image file (PNG, JPEG, BMP or TIFF) of a scatter plot with round markers.
        coords: Coordinates of the plot (CSV, NPY or NPZ), two columns.
        most_hidden: Most of the markers in the image that others may hide, as a share; a plot that hides more is
            refused. Shadow maps lose as many, as they are drawn and read back.
    """

    plot: Path | None = None
    coords: Path | None = None
    most_hidden: float = observation.MOST_HIDDEN

    @property
    def file(self) -> Path:
        """The one that is given.

        Raises:
            ValueError: none or both.
        """
        found = [path for path in (self.plot, self.coords) if path is not None]
        if len(found) != 1:
            raise ValueError(f"plot or coords must be given, one of them, got {'both' if found else 'neither'}")
        return found[0]

    def read(self) -> Plot:
        """What is seen of it.

        Raises:
            ValueError, OSError: none or both are given, or what reading refuses.
        """
        file = self.file
        if self.coords is None:
            return observation.plot_of_picture(file, most_hidden=self.most_hidden)
        return observation.plot_of_coords(datasets.load_values(file))


@dataclass(frozen=True, kw_only=True)
class Shadow:
    """Records like those of the plot, whose attribute is known.

    Attributes:
        shadow: Shadow records: named data set, table (CSV, Excel, Parquet), array file (NPY, NPZ with y) or folder of
            images.
        attribute: Property of a record: COLUMN=VALUE, or COLUMN where it is 0 and 1, no and yes, or false and true. For
            all but tables the column is called label: classes of a named set, y of an NPZ file, subfolders of a folder
            of images.
        features: Features that the plot was computed from. Images: pixels, pca, pca:COMPONENTS or onnx:PATH. Tables:
            values (as they are), unit (columns scaled to [0, 1], as `drjax embed` does) or standard. Pixels or values
            if not given.
        onnx_size: Height and width that images are resized to for the network.
        onnx_imagenet: Standardise images as networks for ImageNet expect, in three channels.
        data_dir: Folder of the named data sets.
        categorical: Columns of a table that are categories, where it is not seen.
        drop: Columns of a table to leave out.
        schema: File that says what the columns of a table are; see `drjax data plan`. Told by their cells if not given.
    """

    shadow: str
    attribute: str
    features: str | None = None
    onnx_size: tuple[int, int] | None = None
    onnx_imagenet: bool = False
    data_dir: Path | None = None
    categorical: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    schema: Path | None = None

    def read(self) -> ShadowData:
        """The records.

        Raises:
            ValueError, OSError, ImportError: as `read_shadow`.
        """
        features = Features(kind=self.features, onnx_size=self.onnx_size, onnx_imagenet=self.onnx_imagenet)
        return read_shadow(
            self.shadow,
            self.attribute,
            features,
            data_dir=self.data_dir,
            categorical=self.categorical,
            drop=self.drop,
            schema=self.schema,
        )


def attack_property(
    shadow: Annotated[Shadow, tyro.conf.arg(name="")],
    *,
    published: Annotated[Published, tyro.conf.arg(name="")] = Published(),
    method: Annotated[str, tyro.conf.arg(metavar=f"{{{','.join(METHODS)}}}")] = TSNE.name,
    options: MethodOptions = Options(),  # noqa: B008 (frozen)
    attack: Literal["descriptors", "set", "picture", "both"] = "descriptors",
    n_shadow: int = 300,
    n_points: int | None = None,
    levels: tuple[float, float] | None = None,
    level: float = 0.9,
    defence: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None,
    out: Path | None = None,
    picture_out: Path | None = None,
    seed: int = 0,
    quiet: bool = False,
) -> None:
    """Predict the share of the records in a plot that have a property, from the plot and records like them.

    Shadow maps of the shadow records have shares drawn at random. Where the plot is a picture, they are drawn and read
    back in the same way. The attack is trained on maps of each half of the shadow records; maps of the other half
    calibrate the interval and measure the error, beside that of guessing.

    Args:
        shadow: The shadow records.
        published: The plot.
        method: DR method that made the plot, to two dimensions.
        options: Hyperparameters of the method.
        attack: Attack to run: descriptors (kernel regression on a few hundred numbers of a map), set (a network on its
            points), picture (a network on a drawing of them), or both: descriptors and picture.
        n_shadow: Number of shadow maps.
        n_points: Number of records in the plot; if not given, its points and an estimate of those that a picture hides.
        levels: Least and greatest share of the shadow maps; the widest range that the records allow if not given.
        level: Confidence level of the intervals.
        defence: Defence of the publisher against such attacks, applied to the shadow maps too: a name of the paper's
            table 5, such as "C-N 5%*STD".
        out: JSON file to write: the figures and where they come from.
        picture_out: PNG file to write: the plot with every marker that was found outlined.
        seed: Random seed of the shadow maps and of training.
        quiet: Show no progress.
    """
    validate.one_of(METHODS, method=method)
    validate.integer(minimum=0, seed=seed)
    if defence is not None:
        validate.one_of(TABLE5, defence=defence)
    file = published.file
    if picture_out is not None and published.plot is None:
        raise ValueError("picture_out must be left out with --coords: nothing is read off a picture")
    for path in (out, picture_out):
        if path is not None:
            check_new(path)
    with hinted(method):
        dr_method = METHODS[method](n_components=2, **typed(method, options))
    plot = published.read()
    if picture_out is not None and plot.reading is not None:
        with records.atomic_open(picture_out) as target:
            observation.overlay(file, plot.reading).save(target, "PNG")
        print(f"Written: {picture_out}")
    shadows = shadow.read()
    print("\n".join(_inputs(file, plot, shadows)))
    with hinted(method):
        outcome = predict_proportion(
            jax.random.key(seed),
            plot,
            shadows,
            dr_method,
            attacks=ATTACKS[attack],
            n_shadow=n_shadow,
            n_points=n_points,
            levels=levels,
            level=level,
            defence=None if defence is None else TABLE5[defence],
            progress=not quiet,
        )
    _report(outcome, plot, shadows, defence)
    if out is not None:
        facts = {
            "property": shadows.property,
            "outcome": outcome,
            "plot": {"file": file, "sha256": sha256(file.read_bytes())},
            "reading": None if plot.reading is None else _reading_facts(plot),
            "shadow": shadow,
            "shadow_provenance": shadows.dataset.provenance,
            "method": method,
            "hyperparameters": dr_method,
            "n_shadow": n_shadow,
            "defence": defence,
            "provenance": records.provenance(seed),
        }
        records.atomic_write_text(out, json.dumps(records.to_json(facts), indent=1, allow_nan=False) + "\n")
        print(f"Written: {out}")


def _inputs(file: Path, plot: Plot, shadows: ShadowData) -> list[str]:
    found = f"Plot: {file}, {len(plot.points):,} points"
    if plot.reading is not None:
        found += (
            f" found, of radius {plot.reading.radius:.1f} pixels in {len(plot.reading.palette)} colour"
            f"{'s' if len(plot.reading.palette) != 1 else ''}, {plot.reading.n_overlapping:,} touching another; "
            f"{plot.reading.confidence:.0%} of the edges are theirs; about {plot.reading.n_drawn:,} are drawn, "
            f"{plot.reading.share_hidden:.0%} of them hidden (of those in one place one is seen)"
        )
    n, has = len(shadows.has_property), int(shadows.has_property.sum())
    unknown = f", {shadows.n_unknown:,} of unknown attribute left out" if shadows.n_unknown else ""
    plan = shadows.dataset.plan
    return [
        *(() if plan is None else (plan.in_words(shadows.dataset.name), *shadows.dataset.notes)),
        f"{found}.",
        f"Shadow: {shadows.dataset.name}, {n:,} records with {shadows.features.shape[1]:,} features each; "
        f"{shadows.property} for {has:,} ({has / n:.0%}){unknown}.",
    ]


def _reading_facts(plot: Plot) -> dict[str, Any]:
    assert plot.reading is not None
    found = plot.reading
    return {
        "n_found": len(found.points),
        "n_drawn": found.n_drawn,
        "n_overlapping": found.n_overlapping,
        "share_hidden": found.share_hidden,
        "radius": found.radius,
        "confidence": found.confidence,
        "crop": found.crop,
        "palette": found.palette,
        "ground": found.ground,
    }


def _report(outcome: Outcome, plot: Plot, shadows: ShadowData, defence: str | None) -> None:
    low, high = outcome.levels
    read = ""
    if plot.reading is not None:
        read = f", drawn and read back like the plot, which shows {outcome.share_found:.1%} of their points"
    lost = f", {outcome.n_unread} could not be read back" if outcome.n_unread else ""
    print(
        f"Shadow maps: {outcome.n_maps[0]} of one half of the records and {outcome.n_maps[1]} of the other, "
        f"{outcome.n_points:,} records each, shares from {low:.3g} to {high:.3g}"
        f"{'' if defence is None else f', defended by {defence}'}{read}; status {outcome.status}{lost}."
    )
    title = escape(f"Share of the plot's records for which {shadows.property}")
    table = Table(
        "attack", "share", f"{outcome.level:.0%} interval", "held-out error", title=title, title_justify="left"
    )
    for found in outcome.findings:
        table.add_row(
            found.attack,
            f"{found.proportion:.3f}",
            escape(f"[{found.low:.3f}, {found.high:.3f}]"),
            f"{found.error:.3f} ± {found.error_deviation:.3f}",
        )
    table.add_row("guessing", "", "", f"{outcome.error_of_guessing:.3f}")
    Console().print(table)
    print(
        f"The interval holds the share with a probability of about {outcome.level:.0%} if the plot is exchangeable "
        "with the shadow maps: records drawn like the shadow records, a share drawn evenly from that range, the same "
        "features and method. It is an average over plots; of a plot made otherwise it says nothing."
    )
    print(f"How usual the plot is among the shadow maps: p = {outcome.typicality:.2g}.")
    for warning in outcome.warnings:
        print(f"Warning: {warning}")
