"""The figures of the pages show what the committed rows say."""

import html
import re
from pathlib import Path

import pytest

from experiments import drawings, figures

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", figures.FIGURES)
def test_committed_figures_are_drawn_from_the_committed_rows(name):
    folder, draw = figures.FIGURES[name]
    for title, figure in draw(figures.HERE / name / figures.ROWS).items():
        file = folder / f"{title}.svg"
        assert drawings.digest_of(file) == drawings.digest(figure), f"run: python -m experiments.figures {name}"
        words = set(map(html.unescape, re.findall(r">([^<>]+)</text>", file.read_text(encoding="utf-8"))))
        shown = {line for ax in figure.axes for text in ax.texts for line in text.get_text().splitlines()}
        assert {line.replace(r"\$", "$") for line in shown} <= words
        assert file.stat().st_size < 200_000
