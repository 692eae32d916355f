"""What the target did to a scaling: known records standardised among themselves are not quite as they were with it.

With it the deviation of feature j was larger or smaller by an unknown factor, so that the records' products are
W W^T = sum_j c_j w_j w_j^T for columns w_j of what is known. Scores that W W^T maps to themselves are linear equations
in c, whose least squares tell it; c_j is within what the target's likes among the known records would have done.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.optimize import lsq_linear

from drjax.attacks.recognition.belief import Release

FURTHER = 9.0
"""Times as far from the mean, squared, as the farthest known record a target may be in one feature."""

FARTHEST = 2.0
"""The same in the mean of all features. Targets of four tables were within 0.92; records scaled to [0, 1] or behind
quartiles take a target of 4.3 and more to look standardised."""

PULLS = tuple(10.0**-i for i in range(1, 8))
"""Weights of no change beside the equations, the greatest first."""


def rescaled(release: Release, rows: np.ndarray) -> Iterator[np.ndarray]:
    """Standardised records (n, d), a stand-in in row 0, in the units that they may have had with the target.

    With ever more change, as far as a target explains it; none of one component, or of a target without scores: then no
    equation is free of its own part. O(n k d^2 + d^3).
    """
    scores = release.coords - release.coords.mean(axis=0)
    (n, k), d, own = scores.shape, rows.shape[1], scores[0]
    if k < 2 or not own.any():
        return
    # At a known row the target adds to each component a multiple of its own score: across those it adds nothing.
    across = np.linalg.svd(own[None])[2][1:].T
    known = rows[1:] - rows[1:].mean(axis=0)
    outside, _ = np.linalg.qr(scores[1:] - scores[1:].mean(axis=0))
    left = np.linalg.qr(known - outside @ (outside.T @ known), mode="r")
    design = np.linalg.qr(np.einsum("ij,ja->iaj", left, rows.T @ scores @ across).reshape(-1, d), mode="r")
    squares, own_part = rows[1:] ** 2, 1 + rows[0] ** 2 / n
    farthest = FARTHEST * squares.mean(axis=1).max()
    ends = own_part / (1 + FURTHER * squares.max(axis=0) / n), own_part * (1 + (2 + farthest) / n)
    # The equations leave the unit of c open: its mean is kept at 1.
    unit = np.linalg.norm(design, 2)
    for weight in PULLS:
        pull = weight * unit / (ends[1] - ends[0])
        equations = np.concatenate([design, np.diag(pull), unit / own_part[None] / d])
        aim = np.concatenate([np.zeros(len(design)), pull, [unit]])
        found = lsq_linear(equations, aim, ends, method="bvls", tol=1e-15, max_iter=20 * d).x
        found /= (found / own_part).max()
        if n * (own_part / found - 1).mean() > farthest:
            return
        yield rows * np.sqrt(found)
