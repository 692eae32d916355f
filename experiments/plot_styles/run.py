"""What is read of scatter plots in the default styles of matplotlib, seaborn, plotnine (ggplot2) and plotly.

    python -m experiments.plot_styles.run                  # 36 styles, three sizes, two maps of digits; 15 minutes
    python -m experiments.plot_styles.run --scale smoke    # two styles of matplotlib, in seconds

A cell is one style, one map and one number of records. It is "right" where the number of markers that reading gives,
its estimate of hidden ones included, is within 2% of those drawn and 98% of the markers that it finds lie within half a
marker's radius of drawn ones, "refused" where reading refuses the picture, and "wrong" otherwise. Styles of libraries
that are not installed are left out: `pip install -e '.[plots]'`; plotly also needs a Chromium (`BROWSER_PATH`).
"""

from __future__ import annotations

import dataclasses
import functools
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE

from drjax.attacks.property.reading import Reading, read_picture
from drjax.core import validate
from drjax.data import Dataset, load
from drjax.reports import records
from experiments import command
from experiments.cells import Cell, Computed, Group, LeftOut, Line, by, cell_of
from experiments.plot_styles.report import ALL_STYLES, MOST_OFF, to_markdown
from experiments.plot_styles.styles import Drawn
from experiments.sweep import RESULTS, Asked, Sweep, cell_name

MAPS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "t-SNE": lambda x: TSNE(random_state=0).fit_transform(x),
    "PCA": lambda x: PCA(2).fit_transform(x),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """What decides the results.

    Attributes:
        styles: Keys of `styles.STYLES` and `styles.UNSEEN`.
        maps: Keys of `MAPS`.
        n: Numbers of records.
        seed: Seed of the records.
    """

    styles: tuple[str, ...] = tuple(ALL_STYLES)
    maps: tuple[str, ...] = tuple(MAPS)
    n: tuple[int, ...] = (200, 400, 1000)
    seed: int = 0

    def __post_init__(self) -> None:
        """Checks every field that can be checked without the data."""
        for name in self.styles:
            validate.one_of(ALL_STYLES, styles=name)
        for name in self.maps:
            validate.one_of(MAPS, maps=name)
        for n in self.n:
            validate.integer(minimum=60, n=n)
        validate.integer(minimum=0, seed=self.seed)


SMOKE = Config(styles=("matplotlib: default", "matplotlib: crosses"), maps=("PCA",), n=(200,))


def groups(asked: Asked[Config]) -> Iterator[Group]:
    """A cell of every style, those of one map together."""
    config = asked.config
    for i, (name, n) in enumerate((name, n) for name in config.maps for n in config.n):
        cells = [cell_of(cell_name(i, j, style), map=name, n=n, style=style) for j, style in enumerate(config.styles)]
        yield Group(cells=tuple(cells), compute=functools.partial(_compute, config, name, n))


def sources(*_: Any) -> dict[str, Dataset]:
    """The records."""
    return {"digits": load("digits")}


def _compute(config: Config, name: str, n: int, missing: Sequence[Cell]) -> Iterator[Computed]:
    digits = load("digits")
    rows = np.random.default_rng(config.seed).permutation(len(digits.x))[:n]
    points = MAPS[name](digits.x[rows]).astype(float)
    assert digits.y is not None
    labels = digits.y[rows] // 2
    for cell in missing:
        style = str(cell.fields["style"])
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"plot.{'jpg' if 'JPEG' in style else 'png'}"
            try:
                drawn = ALL_STYLES[style](points, labels, path)
            except ImportError as error:
                yield cell, LeftOut(f"{error.name} is not installed")
                continue
            yield cell, _read(path, drawn)


def _read(path: Path, drawn: Drawn) -> dict[str, Any]:
    begun = time.perf_counter()
    fields: dict[str, Any] = {"n_drawn": len(drawn.places), "radius": drawn.radius}
    try:
        found = read_picture(path)
    except ValueError as error:
        why = str(error).replace(str(path), "the picture")
        return fields | {"outcome": "refused", "why": why, "seconds": time.perf_counter() - begun}
    return fields | _compared(found, drawn) | {"seconds": time.perf_counter() - begun}


def _compared(found: Reading, drawn: Drawn) -> dict[str, Any]:
    distances = cdist(drawn.places, found.pixels)
    rows, columns = linear_sum_assignment(np.minimum(distances, 5 * drawn.radius))
    near = distances[rows, columns]
    near = near[near < drawn.radius / 2]
    n = len(drawn.places)
    is_right = abs(found.n_drawn - n) <= MOST_OFF * n and len(near) >= (1 - MOST_OFF) * len(found.pixels)
    return {
        "outcome": "right" if is_right else "wrong",
        "n_given": found.n_drawn,
        "n_found": len(found.pixels),
        "n_in_place": len(near),
        "off": float(np.median(near) / drawn.radius),
        "share_hidden": found.share_hidden,
    }


def _said(line: Line) -> str:
    found = ""
    if "n_given" in line:
        found = f", {line['n_given']:,} given, {line['n_found']:,} found, {line['n_in_place']:,} in place"
    return f"{line['style']}, {line['map']} of {line['n']:,}: {line['outcome']}{found}, {line['seconds']:.2g} s"


SWEEP = Sweep(
    name="plot_styles",
    about=__doc__,
    scales={"smoke": SMOKE, "cpu": Config()},
    plain="cpu",
    groups=groups,
    sources=sources,
    identity=by("map", "n", "style"),
    said=_said,
    options=Config(),
    configured=command.overriding(Config()),
    report=lambda out, _: to_markdown(records.read_records(out / RESULTS)[1:]),
)


if __name__ == "__main__":
    command.main(SWEEP)
