"""What the target did to a scaling: known records standardised among themselves are not quite as they were with it.

With it the deviation of feature j was larger or smaller by an unknown factor, so that the records' products are
W W^T = sum_j c_j w_j w_j^T for columns w_j of what is known. Scores that W W^T maps to themselves are linear equations
in c, whose least squares tell it; c_j is within what the target's likes among the known records would have done.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from drjax.attacks.recognition.belief import Release

FURTHER = 9.0
"""Times as far from the mean, squared, as the farthest known record a target may be in one feature."""

FARTHEST = 2.0
"""The same in the mean of all features. Targets of four tables were within 0.92; records scaled to [0, 1] or behind
quartiles take a target of 4.3 and more to look standardised."""

MOST_NUMBERS = 3e7
"""Numbers in the equations, above which nothing is tried."""

PULLS = tuple(10.0**-i for i in range(1, 8))
"""Weights of no change beside the equations, the greatest first."""


def rescaled(release: Release, rows: np.ndarray) -> Iterator[np.ndarray]:
    """Standardised records (n, d), a stand-in in row 0, in the units that they may have had with the target.

    With ever more change, as far as a target explains it; none of one component, or of a target without scores: then no
    equation is free of its own part. O(n k d^2 + d^3).
    """
    scores, varies = release.coords - release.coords.mean(axis=0), rows[1:].any(axis=0)
    (n, k), w, own = scores.shape, rows[:, varies], scores[0]
    d = w.shape[1]
    if k < 2 or not own.any() or min(n, d) * (k - 1) * d > MOST_NUMBERS:
        return
    # At a known row the target adds to each component a multiple of its own score: across those it adds nothing.
    across = np.linalg.svd(own[None])[2][1:].T
    known = w[1:] - w[1:].mean(axis=0)
    outside, _ = np.linalg.qr(scores[1:] - scores[1:].mean(axis=0))
    left = np.linalg.qr(known - outside @ (outside.T @ known), mode="r")
    design = np.linalg.qr(np.einsum("ij,ja->iaj", left, w.T @ scores @ across).reshape(-1, d), mode="r")
    squares, own_part = w[1:] ** 2, 1 + w[0] ** 2 / n
    farthest, reach = FARTHEST * squares.mean(axis=1).max(), FURTHER * squares.max(axis=0)
    # The equations leave the unit of c open: its mean is kept at 1.
    unit = np.linalg.norm(design, 2)
    for weight in PULLS:
        pull = weight * unit / (own_part - own_part / (1 + reach / n))
        equations = np.concatenate([design, np.diag(pull), unit / own_part[None] / d])
        found = np.linalg.lstsq(equations, np.concatenate([np.zeros(len(design)), pull, [unit]]), rcond=None)[0]
        if not (found > 0).all():
            return
        found /= (found / own_part).max()
        target = n * (own_part / found - 1)
        if target.mean() > farthest or (target > reach).any():
            return
        changed = rows.copy()
        changed[:, varies] *= np.sqrt(found)
        yield changed
