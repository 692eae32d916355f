"""Scatter plots as pictures: what matplotlib draws of a map, for thousands of maps at a time.

A marker is a disc whose edge pixels carry the exact share of their area that it covers; markers are laid over each
other in the order of the points, as Agg, the rasteriser of matplotlib, does.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from drjax.core import batching, host, validate
from drjax.core.compiled import njit
from drjax.core.types import Array, hyperparams

METHODS = ("host", "xla")
WHITE = 255
MARGIN = 0.05
"""matplotlib's `axes.xmargin` and `axes.ymargin`: what is left free at each side, as a share of the data's range."""

PALETTE = np.array(
    [
        (31, 119, 180),
        (255, 127, 14),
        (44, 160, 44),
        (214, 39, 40),
        (148, 103, 189),
        (140, 86, 75),
        (227, 119, 194),
        (127, 127, 127),
        (188, 189, 34),
        (23, 190, 207),
    ],
    np.uint8,
)
"""Red, green and blue of matplotlib's colours C0 to C9."""


def radius_of(s: float, dpi: float = 100.0) -> float:
    """Radius in pixels of the marker that `scatter(s=s, linewidths=0)` draws; s in points squared, as in matplotlib."""
    validate.positive(s=s, dpi=dpi)
    return math.sqrt(s) / 2 * dpi / 72


def draw(
    coords: Array,
    *,
    size: int = 300,
    radius: float | None = None,
    margin: float = MARGIN,
    color: Array | None = None,
    palette: Array = PALETTE,
    alpha: float = 1.0,
    snap: bool = False,
    method: str | None = None,
) -> np.ndarray:
    """Pictures of maps on a white ground, axes filling the picture, y up.

    Each axis goes from the least to the largest coordinate plus `margin` at both ends; where all coordinates of an
    axis are equal the points lie in the middle of it.

    Args:
        coords: (g, n, 2) finite maps of n points each.
        size: Pixels of a side, >= 1.
        radius: Radius of a marker, in pixels, > 0; None is size / 150, so that pictures of all sizes look alike.
        margin: Share of the range, >= 0.
        color: (g, n) integers, rows of the palette; None draws black.
        palette: (c, 3) red, green and blue in [0, 255].
        alpha: Opacity of a marker, in [0, 1]; overlaps add up as in matplotlib, where later points lie above.
        snap: Put every marker in the middle of a pixel, the one right of and below the nearest corner of pixels: what
            Agg does if all markers are of one colour and size. Without it the places are exact, as Agg's are of
            several colours.
        method: "host" (compiled loop, all cores), "xla", or None: "host" on a CPU and "xla" elsewhere.

    Returns:
        uint8 (g, size, size), row 0 at the top, 255 where there is nothing; (g, size, size, 3) with colours. O(n
        radius^2 + size^2) per picture.

    Raises:
        ValueError: an argument out of its range, coordinates not finite, or labels that are no rows of the palette.
    """
    places, labels, table = _checked(coords, size, margin, color, palette)
    radius = size / 150 if radius is None else radius
    validate.positive(radius=radius)
    validate.at_most(size, "size", radius=radius)
    validate.probability(alpha=alpha)
    method = method or ("host" if jax.default_backend() == "cpu" else "xla")
    validate.one_of(METHODS, method=method)
    canvas = Canvas(size=size, radius=float(radius), alpha=float(alpha))
    if snap:
        places = np.floor(places + 0.5) + 0.5
    if method == "host":
        pictures = _on_host(places, labels, table, canvas)
    else:
        context = canvas, table.astype(np.float32)
        pictures = batching.map_lanes(_draw_lanes, context, (places.astype(np.float32), labels))
    return pictures[..., 0] if color is None else pictures


@hyperparams
class Canvas:
    """What pictures share, for `draw_xla`; static.

    Attributes:
        size: Pixels of a side.
        radius: Radius of a marker, in pixels.
        alpha: Opacity of a marker, in [0, 1].
    """

    size: int
    radius: float
    alpha: float

    @property
    def reach(self) -> int:
        """Pixels that a marker may lie over to each side of the one that its centre is in."""
        return math.ceil(self.radius) + 1


def draw_xla(canvas: Canvas, palette: Array, places: Array, labels: Array) -> jax.Array:
    """`draw` without its checks, pure and for any backend: a point at a time, on all pictures at once; in float32.

    Args:
        canvas: Sizes.
        palette: (c, channels) in [0, 255].
        places: (g, n, 2) centres in pixels from the upper left corner, y down.
        labels: (g, n) rows of the palette.

    Returns:
        uint8 (g, size, size, channels).
    """
    colors = jnp.asarray(palette, jnp.float32)[labels]

    def picture(places: Array, colors: Array) -> jax.Array:
        side = canvas.size + 2 * canvas.reach
        blank = jnp.full((side, side, colors.shape[-1]), WHITE, jnp.float32)
        painted = lax.fori_loop(0, len(places), lambda i, below: _painted(canvas, below, places[i], colors[i]), blank)
        inner = slice(canvas.reach, canvas.reach + canvas.size)
        return jnp.round(painted[inner, inner]).astype(jnp.uint8)

    return jax.vmap(picture)(jnp.asarray(places, jnp.float32), colors)


def _draw_lanes(context: tuple[Canvas, Array], lanes: tuple[Array, Array]) -> jax.Array:
    return draw_xla(*context, *lanes)


def _painted(canvas: Canvas, below: Array, place: Array, color: Array) -> jax.Array:
    """The picture `below`, framed by `reach` pixels, with one disc over it."""
    reach = canvas.reach
    n = 2 * reach + 1
    # Margins keep every centre within the picture, so that the patch lies within the frame.
    corner = jnp.clip(jnp.floor(place).astype(jnp.int32), 0, canvas.size - 1)
    share = canvas.alpha * coverage(corner - reach - place, canvas.radius, n)[..., None]
    at = (corner[1], corner[0], 0)
    patch = lax.dynamic_slice(below, at, (n, n, below.shape[2]))
    return lax.dynamic_update_slice(below, patch + (color - patch) * share, at)


def coverage(corner: Array, radius: float, n: int) -> jax.Array:
    """Share of each of n x n unit squares, row by row from a corner (x, y), that the disc around 0 covers.

    Exact but for rounding: differences of the areas of the disc below and left of the squares' corners.
    """
    x, y = corner[0] + jnp.arange(n + 1), corner[1] + jnp.arange(n + 1)
    areas = _area_below(x[None, :], y[:, None], radius)
    return jnp.clip(areas[1:, 1:] - areas[1:, :-1] - areas[:-1, 1:] + areas[:-1, :-1], 0, 1)


def _area_below(x: Array, y: Array, radius: float) -> jax.Array:
    """Area of {u <= x, v <= y} within the disc around 0."""
    x, y = jnp.clip(x, -radius, radius), jnp.clip(y, -radius, radius)
    # Where |u| < half, a vertical line through u is cut by v = y within the disc.
    half, high, far = _other_leg(y, radius), jnp.abs(y), _other_leg(x, radius)
    inner = jnp.clip(x, -half, half)
    of_half = _half_disc(half, high, radius)
    cut = y * (inner + half) + _half_disc(inner, jnp.maximum(far, high), radius) + of_half
    left = _half_disc(jnp.minimum(x, -half), jnp.where(x < -half, far, high), radius)
    right = _half_disc(jnp.maximum(x, half), jnp.where(x > half, far, high), radius)
    return jnp.asarray(cut + jnp.where(y >= 0, 2 * (left + jnp.pi / 4 * radius**2 + right - of_half), 0))


def _other_leg(x: Array, radius: float) -> jax.Array:
    return jnp.sqrt(jnp.maximum((radius - x) * (radius + x), 0))


def _half_disc(x: Array, other: Array, radius: float) -> jax.Array:
    """Integral of sqrt(radius^2 - u^2) from 0 to x, of which `other` is the integrand at x.

    By an arc tangent of both: the arc sine of x / radius has no digits left in float32 where that is near 1.
    """
    return jnp.asarray(x * other + radius**2 * jnp.arctan2(x, other)) / 2


def _on_host(places: Array, labels: Array, palette: Array, canvas: Canvas) -> np.ndarray:
    size = canvas.size
    pictures = np.empty((len(places), size, size, palette.shape[1]), np.uint8)
    places, labels = np.ascontiguousarray(places, np.float64), np.ascontiguousarray(labels, np.int64)
    colors = np.ascontiguousarray(palette, np.float32)

    def work(part: slice) -> None:
        _paint(places[part], labels[part], colors, float(canvas.radius), float(canvas.alpha), pictures[part])

    host.spread(work, len(places))
    return pictures


@njit
def _paint(places, labels, colors, radius, alpha, pictures):
    size, channels = pictures.shape[1], pictures.shape[3]
    n = 2 * (int(np.ceil(radius)) + 1) + 1
    xs, ys, over_x, halves, over_y = np.empty(n + 1), np.empty(n + 1), np.empty(n + 1), np.empty(n + 1), np.empty(n + 1)
    lower, upper = np.empty(n + 1), np.empty(n + 1)
    canvas = np.empty((size, size, channels), np.float32)
    for g in range(len(places)):
        canvas[:] = WHITE
        for i in range(places.shape[1]):
            px, py = places[g, i, 0], places[g, i, 1]
            left, top = int(np.floor(px - radius)), int(np.floor(py - radius))
            n_x, n_y = int(np.ceil(px + radius)) - left, int(np.ceil(py + radius)) - top
            # The integrals of `_half_disc` at every line of the grid; those at corners are among them.
            for c in range(n_x + 1):
                xs[c] = min(max(left + c - px, -radius), radius)
                over_x[c] = _antiderivative(xs[c], radius)
            for r in range(n_y + 1):
                ys[r] = min(max(top + r - py, -radius), radius)
                halves[r] = np.sqrt(max(radius * radius - ys[r] * ys[r], 0.0))
                over_y[r] = _antiderivative(halves[r], radius)
            _areas(xs[: n_x + 1], over_x, ys[0], halves[0], over_y[0], radius, lower)
            for r in range(n_y):
                _areas(xs[: n_x + 1], over_x, ys[r + 1], halves[r + 1], over_y[r + 1], radius, upper)
                row = top + r
                if 0 <= row < size:
                    for c in range(max(0, -left), min(n_x, size - left)):
                        share = upper[c + 1] - upper[c] - lower[c + 1] + lower[c]
                        share = np.float32(alpha * min(max(share, 0.0), 1.0))
                        for k in range(channels):
                            below = canvas[row, left + c, k]
                            canvas[row, left + c, k] = below + (colors[labels[g, i], k] - below) * share
                lower, upper = upper, lower
        for r in range(size):
            for c in range(size):
                for k in range(channels):
                    pictures[g, r, c, k] = np.uint8(np.rint(canvas[r, c, k]))


@njit(inline="always")
def _antiderivative(x, radius):
    return (x * np.sqrt(max(radius * radius - x * x, 0.0)) + radius * radius * np.arcsin(x / radius)) / 2


@njit
def _areas(xs, over_x, y, half, over_half, radius, areas):
    """`_area_below` of every x at one y; over_x and over_half are antiderivatives at xs and half."""
    end = np.pi * radius * radius / 4
    for c in range(len(xs)):
        x = xs[c]
        if x <= -half:
            inner, over_inner, whole = -half, -over_half, over_x[c] + end
        elif x < half:
            inner, over_inner, whole = x, over_x[c], end - over_half
        else:
            inner, over_inner, whole = half, over_half, end - 2 * over_half + over_x[c]
        areas[c] = y * (inner + half) + over_inner + over_half + (2 * whole if y >= 0 else 0.0)


def _checked(
    coords: Array, size: int, margin: float, color: Array | None, palette: Array
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Places in pixels (g, n, 2), y down; rows of the palette (g, n); the palette (c, channels)."""
    maps = np.asarray(coords)
    if maps.ndim != 3 or maps.shape[2] != 2 or 0 in maps.shape:
        raise ValueError(f"coords must have shape (g, n, 2), got {maps.shape}")
    validate.finite(coords=maps)
    validate.integer(size=size)
    validate.non_negative(margin=margin)
    labels, table = np.zeros(maps.shape[:2], np.int32), np.zeros((1, 1))
    if color is not None:
        table = validate.matrix(palette, "palette", columns=3)
        if table.min() < 0 or table.max() > WHITE:
            raise ValueError(f"palette must be in [0, 255], got {table.min()} to {table.max()}")
        labels = np.asarray(color)
        is_integer = labels.dtype.kind in "iu"
        if labels.shape != maps.shape[:2] or not is_integer or labels.min() < 0 or labels.max() >= len(table):
            raise ValueError(
                f"color must be integers in [0, {len(table)}) of shape {maps.shape[:2]}, got shape {labels.shape} of "
                f"{labels.dtype}"
            )
    return pixels_of(maps, size, margin), labels.astype(np.int32), table


def pixels_of(coords: Array, size: int, margin: float = MARGIN) -> np.ndarray:
    """Where `draw` centres the markers of maps (..., n, 2): pixels from the upper left corner, y down; float64."""
    maps = np.asarray(coords, np.float64)
    low, high = maps.min(axis=-2, keepdims=True), maps.max(axis=-2, keepdims=True)
    extent = np.where(high > low, high - low, 1)
    unit = np.where(high > low, ((maps - low) / extent + margin) / (1 + 2 * margin), 0.5)
    return size * np.stack([unit[..., 0], 1 - unit[..., 1]], axis=-1)


def coverage_on_host(corner: np.ndarray, radius: float, n: int) -> np.ndarray:
    """`coverage` in float64, without JAX."""
    areas = np.zeros((n + 1, n + 1))
    xs = np.clip(corner[0] + np.arange(n + 1), -radius, radius)
    over_x = (xs * np.sqrt(np.maximum(radius**2 - xs**2, 0)) + radius**2 * np.arcsin(xs / radius)) / 2
    for row in range(n + 1):
        y = min(max(corner[1] + row, -radius), radius)
        half = np.sqrt(max(radius**2 - y**2, 0.0))
        _areas(xs, over_x, y, half, _antiderivative(half, radius), radius, areas[row])
    return np.clip(np.diff(np.diff(areas, axis=0), axis=1), 0, 1)
