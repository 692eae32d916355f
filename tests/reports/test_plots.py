import io
import math

import numpy as np
import pytest
from matplotlib import rcParams
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cbook import is_math_text
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

from drjax.attacks.metrics import AttackScores
from drjax.bounds import tradeoff
from drjax.core.statistics import Interval
from drjax.releases import figures
from drjax.reports import bound_plots, plots, styles
from drjax.reports.ladder import LadderRow

pytestmark = pytest.mark.figures


def uniform(*shape, seed=0):
    return np.random.default_rng(seed).uniform(size=shape)


def named(n, make):
    return {f"attack number {i} with a long name": make(i) for i in range(n)}


def row(label, mse, *, is_baseline=False):
    interval = Interval(mse, mse * 0.8, mse * 1.3)
    scores = AttackScores(10, 0, interval, interval, interval, interval, 0.001, 0.1)
    return LadderRow(label=label, description="d", scores=scores, is_baseline=is_baseline)


def baselines():
    return [row("mean record", 0.067, is_baseline=True), row("nearest neighbour", 0.066, is_baseline=True)]


def boxes(fig):
    """The extents, in pixels, of all text that is drawn, legends among it."""
    canvas = FigureCanvasAgg(fig)
    canvas.draw()
    renderer = canvas.get_renderer()
    legends = [*fig.legends, *(ax.get_legend() for ax in fig.axes if ax.get_legend())]
    found = [text for legend in legends for text in (*legend.get_texts(), legend.get_title())]
    for ax in fig.axes:
        found += [*ax.texts, ax.xaxis.label, ax.yaxis.label, ax.title, ax._left_title]
        for axis in (ax.xaxis, ax.yaxis):
            # An axis keeps ticks beyond its limits, which are not drawn.
            low, high = sorted(axis.get_view_interval())
            found += [tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
    found += [text for text in (fig._supxlabel, fig._suptitle) if text is not None]
    drawn = [text for text in found if text.get_visible() and text.get_text().strip()]
    return [(text.get_text(), text.get_window_extent(renderer)) for text in drawn]


def assert_legible(fig):
    """No two texts overlap and none leaves the canvas."""
    entries = boxes(fig)
    width, height = fig.canvas.get_width_height()
    for i, (text, box) in enumerate(entries):
        # One pixel: extents are rounded outwards when glyphs are rasterised.
        assert box.x0 >= -1 and box.y0 >= -1 and box.x1 <= width + 1 and box.y1 <= height + 1, text  # noqa: PT018
        for other, second in entries[i + 1 :]:
            apart = (
                box.x1 <= second.x0 + 1 or second.x1 <= box.x0 + 1 or box.y1 <= second.y0 + 1 or second.y1 <= box.y0 + 1
            )
            assert apart, (text, other)


def rendered(fig):
    buffer = io.BytesIO()
    fig.savefig(buffer, format="png", dpi=plots.DPI)
    return np.asarray(Image.open(buffer))


DOLLARS = ["a$b", "$", "$\\frac{", "_^%", "$x_1$", "a\\$b", "$$", "$a$ and $b$"]
"""Names that matplotlib takes for formulas, or for parts of them."""


def drawings(names):
    """Every kind of figure, with these names wherever a name may stand."""
    some = uniform(5, len(names))
    interval = (0.4, 0.3, 0.5)
    curves = dict.fromkeys(names, tradeoff.Gaussian(1.0))
    rows = [row(name, 0.05) for name in names]
    fpr = np.linspace(0, 1, 5)
    return {
        "image grid": plots.image_grid(uniform(3, 4), {name: uniform(3, 4) for name in names}, (2, 2)),
        "features": plots.feature_errors(some, dict.fromkeys(names, some / 2), some[0], feature_names=names),
        "ladder": plots.ladder([*rows, *(row(name, 0.07, is_baseline=True) for name in names)]),
        "distribution": plots.error_distribution(dict.fromkeys(names, fpr), fpr),
        "baseline": bound_plots.success_over_baseline(
            curves, looser=dict.fromkeys(names, fpr + 1), kappa=(fpr + 1) / 2
        ),
        "mu": bound_plots.success_over_mu(
            [{"mu": 1.0, "attack": n, "success": interval} for n in names], kappa=0.1, mse=1
        ),
        "power": bound_plots.power_over_level(curves),
        "line": bound_plots.over_noise(fpr + 1, fpr + 1, found=(1.0, 1.0), label=names[0]),
        "roc": figures.roc_under_ceilings(dict.fromkeys(names, (fpr, fpr)), curves),
        "kept": figures.kept_over_epsilon(np.array([1.0, 2.0]), (interval, interval), 1.0, label=names[0]),
    }


@pytest.mark.parametrize("first", range(len(DOLLARS)))
def test_a_name_is_drawn_as_it_is_and_never_as_a_formula(first):
    name = DOLLARS[first]
    shown, plain = Figure(figsize=(2, 1)), Figure(figsize=(2, 1))
    shown.text(0.1, 0.5, styles.plain(name))
    plain.text(0.1, 0.5, name, parse_math=False)
    np.testing.assert_array_equal(rendered(shown), rendered(plain))


def test_no_name_breaks_a_figure():
    for names in (DOLLARS, DOLLARS[2:3], DOLLARS[4:5]):
        for kind, figure in drawings(names).items():
            rendered(figure)
            # Labels of logarithmic axes are formulas, and meant to be.
            texts = [text.get_text() for text in figure.findobj(Text) if "mathdefault" not in text.get_text()]
            assert any("$" in text or "_^%" in text for text in texts), kind
            assert not any(is_math_text(text) for text in texts), kind


@pytest.mark.parametrize("shape", [(28, 28), (8, 8, 3), (62, 47)])
def test_an_image_grid_has_one_axes_per_target_in_each_row_and_shows_the_images(shape):
    targets = uniform(5, math.prod(shape))
    fig = plots.image_grid(targets, {"a": targets * 0.5, "b": 1 - targets}, shape)
    assert len(fig.axes) == 3 * 5
    for row_index, images in enumerate((targets, targets * 0.5, 1 - targets)):
        shown = fig.axes[row_index * 5 + 2].images[0]
        np.testing.assert_array_equal(shown.get_array(), images[2].reshape(shape))
        assert shape[2:] or shown.get_clim() == (0, 1)
    assert_legible(fig)


def test_each_cell_carries_its_mean_squared_error():
    targets = uniform(4, 16)
    shifted = targets + np.array([0.1, 0.01, 0, 0.001])[:, None]
    fig = plots.image_grid(targets, {"a": shifted}, (4, 4))
    assert [ax.get_xlabel() for ax in fig.axes[4:]] == ["0.010", "0.00010", "0", "1.0e-06"]
    assert [ax.get_xlabel() for ax in fig.axes[:4]] == [""] * 4


def test_a_failed_reconstruction_is_marked_and_does_not_hide_the_others():
    targets = uniform(2, 16)
    broken = targets.copy()
    broken[0, 3] = np.nan
    fig = plots.image_grid(targets, {"a": broken}, (4, 4))
    assert [ax.get_xlabel() for ax in fig.axes[2:]] == ["failed", "0"]


def test_an_image_grid_prints_the_errors_it_is_given_in_the_place_of_those_of_rounded_images():
    targets = uniform(2, 16)
    fig = plots.image_grid(targets, {"a": targets, "b": targets + 0.1}, (4, 4), errors={"a": [1e-9, math.nan]})
    assert [ax.get_xlabel() for ax in fig.axes[2:]] == ["1.0e-09", "failed", "0.010", "0.010"]
    for errors in ({"c": [0.0, 0.0]}, {"a": [0.0]}):
        with pytest.raises(ValueError, match="errors must be 2 numbers for attacks that are shown"):
            plots.image_grid(targets, {"a": targets}, (4, 4), errors=errors)


def test_ten_attacks_on_twelve_targets_stay_legible():
    targets = uniform(12, 64)
    fig = plots.image_grid(targets, named(10, lambda i: targets + 1e-9 * (i + 1)), (8, 8))
    assert len(fig.axes) == 11 * 12
    assert_legible(fig)


@pytest.mark.parametrize(
    ("targets", "recons", "shape", "message"),
    [
        (uniform(2, 16), {}, (4, 4), "at least one attack"),
        (uniform(2, 16), {"a": uniform(3, 16)}, (4, 4), "must match targets"),
        (uniform(2, 16), {"a": uniform(2, 16)}, (4, 5), "must have 20 values"),
        (uniform(2, 16), {"a": uniform(2, 16)}, (16,), "shape must be"),
        (uniform(2, 32), {"a": uniform(2, 32)}, (4, 4, 2), "shape must be"),
    ],
)
def test_images_that_do_not_fit_are_refused(targets, recons, shape, message):
    with pytest.raises(ValueError, match=message):
        plots.image_grid(targets, recons, shape)


def test_feature_errors_draw_one_panel_per_attack_and_say_what_is_left_out():
    targets = uniform(20, 45)
    fig = plots.feature_errors(targets, named(3, lambda i: targets * (0.9 - 0.1 * i)), targets.mean(0))
    assert len(fig.axes) == 3
    assert all(len(ax.texts) == plots.MAX_FEATURES for ax in fig.axes)
    assert "15 of 45" in fig.legends[0].get_title().get_text()
    assert_legible(fig)


def test_feature_medians_and_ranges_are_those_of_numpy_in_original_units():
    targets, recon = uniform(40, 2), uniform(40, 2, seed=1)
    mean, scale = np.array([0.5, 0.4]), np.array([10.0, 200.0])
    fig = plots.feature_errors(targets, {"a": recon}, mean, feature_names=["age", "income"], scale=scale)
    (ax,) = fig.axes
    error, guess = np.abs(recon - targets), np.abs(mean - targets)
    order = [["age", "income"].index(label.get_text()) for label in ax.get_yticklabels()]
    for position, j in enumerate(order):
        attack, base = np.median(error[:, j]) * scale[j], np.median(guess[:, j]) * scale[j]
        assert ax.texts[position].get_text() == f"{plots.number(attack)} | {plots.number(base)}"
        typical = np.sqrt(np.mean(guess[:, j] ** 2))
        segment = ax.collections[1].get_segments()[position]
        np.testing.assert_allclose(segment[:, 0], np.quantile(error[:, j], [0.05, 0.95]) / typical, rtol=1e-12)


def test_the_most_exposed_features_come_first_and_constant_ones_last():
    targets = uniform(50, 4)
    targets[:, 1] = 0.5
    recon = targets.mean(0) + (targets - targets.mean(0)) * np.array([0.1, 0.0, 0.9, 0.5])
    fig = plots.feature_errors(targets, {"a": recon}, targets.mean(0), feature_names=["low", "constant", "high", "mid"])
    assert [label.get_text() for label in fig.axes[0].get_yticklabels()] == ["high", "mid", "low", "constant"]


def test_a_category_that_hardly_anybody_has_does_not_come_first():
    rng = np.random.default_rng(0)
    targets = np.stack([rng.random(200) < 0.01, rng.random(200) < 0.5], axis=1).astype(float)
    # The rare one is rebuilt without any error, the common one with some.
    recon = targets * [1, 0.9]
    fig = plots.feature_errors(targets, {"a": recon}, targets.mean(0), feature_names=["a" * 40, "common"])
    assert [label.get_text() for label in fig.axes[0].get_yticklabels()] == ["common", "a" * 27 + "…"]


def test_an_attack_far_worse_than_guessing_stays_inside_its_panel():
    targets = uniform(10, 3)
    fig = plots.feature_errors(targets, {"a": targets + 100}, targets.mean(0))
    (ax,) = fig.axes
    assert max(line.get_xdata().max() for line in ax.lines) == ax.get_xlim()[1]
    assert all(text.get_text().startswith("100 | ") for text in ax.texts)


def test_an_attack_without_a_usable_row_keeps_its_panel():
    targets = uniform(10, 3)
    fig = plots.feature_errors(targets, {"a": targets * np.nan, "b": targets}, targets.mean(0))
    assert len(fig.axes) == 2
    assert all(text.get_text().startswith("n/a | ") for text in fig.axes[0].texts)
    rendered(fig)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"feature_names": ["a"]}, "feature_names must have 3 entries"),
        ({"scale": [1.0, 0.0, 1.0]}, "scale must be > 0"),
        ({"scale": [1.0]}, "scale must have 3 columns"),
    ],
)
def test_names_and_scales_that_do_not_fit_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        plots.feature_errors(uniform(4, 3), {"a": uniform(4, 3)}, np.zeros(3), **options)


def test_the_ladder_figure_shows_ten_attacks_and_both_baselines_without_overlap():
    rows = [*baselines(), *(row(f"attack number {i} with a long label", 10.0 ** -(i + 1)) for i in range(10))]
    fig = plots.ladder(rows)
    (ax,) = fig.axes
    assert ax.get_xscale() == "log"
    assert [label.get_text() for label in ax.get_legend().get_texts()] == [
        "mean record: 0.067",
        "nearest neighbour: 0.066",
    ]
    vertical = [line for line in ax.lines if list(line.get_ydata()) == [0, 1]]
    assert [list(line.get_xdata()) for line in vertical[:2]] == [[0.067] * 2, [0.066] * 2]
    assert [text.get_text().split()[0] for text in ax.texts[:4]] == ["0.10", "0.010", "0.0010", "0.00010"]
    assert_legible(fig)


@pytest.mark.parametrize("errors", [(0.0, 0.01), (1e-30, 0.01), (math.nan, 0.01), (0.0, 0.0), (math.nan, math.nan)])
def test_exact_and_failed_attacks_do_not_spoil_the_ladder_axis(errors):
    fig = plots.ladder([*baselines(), *(row(f"a{i}", error) for i, error in enumerate(errors))])
    low, high = fig.axes[0].get_xlim()
    assert 1e-9 < low < high
    rendered(fig)


def test_the_error_distribution_is_the_empirical_distribution_function():
    values = uniform(9)
    fig = plots.error_distribution({"a": values, "b": [np.nan, 0.5]}, values * 2)
    (ax,) = fig.axes
    reference, attack, second = ax.lines
    for curve, entries in ((reference, values * 2), (attack, values), (second, np.array([0.5]))):
        for error, share in zip(curve.get_xdata()[1:], curve.get_ydata()[1:], strict=True):
            assert share == pytest.approx(np.mean(entries <= error))
    assert_legible(fig)


def test_ten_distributions_have_ten_different_looks_and_a_legible_legend():
    fig = plots.error_distribution(named(10, lambda i: uniform(30, seed=i) * (i + 1)), uniform(30))
    looks = {(line.get_color(), line.get_linestyle()) for line in fig.axes[0].lines}
    assert len(looks) == 11
    assert_legible(fig)


def test_exact_and_failed_attacks_do_not_spoil_the_distribution_axis():
    fig = plots.error_distribution({"exact": np.zeros(4), "failed": np.full(4, np.nan)}, uniform(4))
    low, high = fig.axes[0].get_xlim()
    assert 1e-9 < low < high
    rendered(fig)


@pytest.mark.parametrize("bad", [[-0.1, 0.2], [np.inf, 0.1]])
def test_impossible_errors_are_refused(bad):
    with pytest.raises(ValueError, match="a must hold finite errors >= 0"):
        plots.error_distribution({"a": bad}, uniform(4))


def test_a_saved_figure_is_a_png_and_the_same_figure_gives_the_same_bytes(tmp_path):
    for name in ("a.png", "b.png"):
        plots.save_figure(plots.ladder([*baselines(), row("a", 0.01)]), tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    with Image.open(tmp_path / "a.png") as image:
        assert image.format == "PNG"
        assert image.size[0] == round(styles.WIDTH * plots.DPI)


def test_a_figure_that_fails_to_draw_leaves_the_old_file(tmp_path):
    class Broken(Figure):
        def savefig(self, fname, **_):
            fname.write(b"half")
            raise RuntimeError("drawing failed")

    path = tmp_path / "a.png"
    path.write_bytes(b"old")
    with pytest.raises(RuntimeError, match="drawing failed"):
        plots.save_figure(Broken(), path)
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.png"]


def test_drawing_leaves_global_settings_alone():
    before = dict(rcParams)
    plots.ladder([*baselines(), row("a", 0.01)])
    plots.image_grid(uniform(2, 16), {"a": uniform(2, 16)}, (4, 4))
    assert dict(rcParams) == before
