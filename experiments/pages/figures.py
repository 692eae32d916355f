"""The figure of the patients' tutorial, from the committed rows."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from drjax.reports import styles
from experiments.pages.report import options_of_each_kind


def drawn(_: Path) -> dict[str, Figure]:
    """Usefulness by exposure of what could be published instead, numbered as in the table."""
    drawing = Figure(figsize=(styles.WIDTH, 4.6), layout="constrained")
    ax = drawing.add_subplot()
    styles.style_axes(ax)
    for place, option in enumerate(options_of_each_kind(), 1):
        color = styles.BEST if option["is_recommended"] else styles.ATTACK
        at = option["taken"], option["usefulness"]
        ax.plot(*at, "o", ms=9, mec=color, mfc=color if option["passes"] else "none", mew=1.5)
        ax.annotate(str(place), at, xytext=(8, 4), textcoords="offset points", fontsize=9, color=styles.INK)
    ax.set_xlabel("share of the guess's error that the best attack takes away")
    ax.set_ylabel("usefulness beside the audited map")
    ax.set_xlim(-0.03, 1.03)
    ax.set_ylim(-0.05, 1.1)
    return {"patients_options": drawing}
