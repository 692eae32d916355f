"""Sparse random projections: known records determine a matrix with entries 0 and one number of either sign."""

from __future__ import annotations

import numpy as np

from drjax.attacks.recognition.belief import Candidate, NotTested, Release
from drjax.attacks.recognition.linear_span import EXACT
from drjax.dr import SparseRandomProjection

LIMIT = 0.02
"""Largest difference of an entry from 0 and from the common size, as a share of that."""

SAME = 0.01
"""Share by which a density may differ from the default to be that."""


class RandomProjectionFamily:
    """Sparse random projection of the records as they are."""

    name, doubtful, seconds = SparseRandomProjection.name, 1.0, 0.05

    def candidates(self, release: Release) -> list[Candidate]:
        """See `Family`. Records that do not outnumber their features fit every map."""
        matrix = _matrix(release)
        if matrix is None:
            return []
        d, k = release.known.shape[1], release.coords.shape[1]
        misfit, size = _off(matrix)
        density = min(1 / (k * size**2), 1.0) if size > 0 else np.inf
        if not 0.5 / d < density <= 1:
            return []
        is_default = abs(density * np.sqrt(d) - 1) <= SAME
        method = SparseRandomProjection(n_components=k, density=None if is_default else density)
        return [Candidate(self.name, method, misfit, LIMIT, is_sharp=True)]

    def misfit(self, release: Release, candidate: Candidate) -> float:
        """See `Family`."""
        del candidate
        try:
            matrix = _matrix(release)
        except NotTested:
            return np.inf
        return np.inf if matrix is None else _off(matrix)[0]


def _matrix(release: Release) -> np.ndarray | None:
    """The matrix (d', k) of the features that are not 0 throughout; None where none fits.

    Raises:
        NotTested: more than one fits.
    """
    known, coords = release.known[:, release.known.any(axis=0)], release.coords[1:]
    unit = np.linalg.norm(known, axis=0)
    n, d = known.shape
    if n <= d:
        raise NotTested(
            f"{n} known records cannot tell a projection of {d} features, it takes more than there are features"
        )
    found, _, rank, _ = np.linalg.lstsq(known / unit, coords, rcond=1e-9)
    if rank < d:
        raise NotTested(f"known records that lie in {rank} dimensions cannot tell a projection of {d} features")
    largest = float(np.abs(known @ (found / unit[:, None]) - coords).max())
    allowed = EXACT * float(np.abs(coords).max()) + 4 * release.rounding
    return found / unit[:, None] if largest <= allowed else None


def _off(matrix: np.ndarray) -> tuple[float, float]:
    """How far entries are from 0 and a common size, as a share of that, and the size."""
    entries = np.abs(matrix)
    size = float(np.median(entries[entries > entries.max() / 2]))
    return float(np.minimum(entries, np.abs(entries - size)).max() / size), size
