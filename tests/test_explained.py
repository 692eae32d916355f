"""The figures of docs/explain show what their script computes today."""

import importlib.util
import json
import re
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]

# By path: another package of the environment may be named "docs".
SPEC = importlib.util.spec_from_file_location("explained_figures", ROOT / "docs" / "figures.py")
figures = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(figures)


def committed(name):
    """The numbers that stand beside a committed figure."""
    return json.loads((figures.OUT / f"{name}.json").read_text(encoding="utf-8"))


def computed(name):
    """The numbers of a figure, computed now."""
    return figures.FIGURES[name][0]()


@pytest.mark.figures
@pytest.mark.parametrize("name", sorted(figures.FIGURES))
def test_each_figure_is_committed_and_drawn_from_the_numbers_beside_it(name):
    # Coordinates depend on matplotlib's version; which words there are, and how many marks, does not.
    again = figures.plots.svg(figures.FIGURES[name][1](committed(name))).decode()
    shown = (figures.OUT / f"{name}.svg").read_text(encoding="utf-8")
    words = re.compile(r">([^<>]+)</text>")
    assert words.findall(again) == words.findall(shown) != []
    for mark in ("<use", "<image", "<path"):
        assert again.count(mark) == shown.count(mark)


@pytest.mark.parametrize("name", sorted(figures.FIGURES))
def test_each_figure_is_on_the_page_of_its_name(name):
    page = (ROOT / "docs" / "explain" / f"{name}.md").read_text(encoding="utf-8")
    assert f"](../images/explain/{name}.svg)" in page


def test_unknown_records():
    then, now = committed("threat_models"), computed("threat_models")
    assert now["unknown"] == then["unknown"]
    # With one and two unknown records what is left is the solver's rounding of 0, or the prior's part.
    assert np.allclose(now["error_left"], then["error_left"], atol=1e-3)


def test_reconstruction_bound():
    then, now = committed("rero"), computed("rero")
    assert now["guess"] == then["guess"]
    assert now["delta"] == then["delta"]
    assert now["at_most"].keys() == then["at_most"].keys()
    for epsilon, bound in now["at_most"].items():
        assert np.allclose(bound, then["at_most"][epsilon], rtol=1e-3)  # four digits are kept


def test_pca_digits():
    then, now = committed("leak_pca"), computed("leak_pca")
    assert now["mse"].keys() == then["mse"].keys()
    for name in ("3", "2", "1", "guess"):
        assert np.allclose(now["mse"][name], then["mse"][name], rtol=0.05)  # a score may round the other way
    assert max(now["mse"]["exact"] + then["mse"]["exact"]) < 1e-8  # of rounding in the 12th decimal
    for name, images in now["images"].items():
        assert np.allclose(images, then["images"][name], atol=0.03)


def test_mds_distances():
    then, now = committed("leak_distances"), computed("leak_distances")
    assert np.allclose(now["true"], then["true"], rtol=1e-3)
    assert np.allclose(now["solved"], then["solved"], rtol=0.01)
    assert np.allclose(now["map"], then["map"], rtol=0.01)  # one start leads to one local minimum


def test_neighbour_attacks():
    assert computed("leak_neighbours") == committed("leak_neighbours")  # from committed rows


def test_regression_tolerances():
    then, now = committed("leak_models"), computed("leak_models")
    assert now["tolerance"] == then["tolerance"]
    assert np.allclose(now["guess"], then["guess"], rtol=1e-3)
    # A solver stops a step earlier or later on another processor, which is a factor of the error.
    medians = [np.median(data["mse"], axis=1) for data in (now, then)]
    assert np.abs(np.log10(medians[0] / medians[1])).max() < 1


def test_synthetic_digits():
    then, now = committed("leak_synthetic"), computed("leak_synthetic")
    assert now["epsilon"] == then["epsilon"]
    assert now["real_accuracy"] == pytest.approx(then["real_accuracy"], abs=0.01)
    assert np.allclose(now["at_most"], then["at_most"], rtol=1e-3)
    # Noise is the operating system's. Ten runs had these standard deviations; the limit is five of a difference.
    deviation = np.array([0.043, 0.025, 0.015, 0.006, 0.007, 0.004])
    gap = np.abs(np.mean(now["accuracy"], axis=1) - np.mean(then["accuracy"], axis=1))
    assert (gap < 5 * np.sqrt(2) * np.maximum(deviation, 0.006)).all()
