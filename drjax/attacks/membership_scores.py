"""What a curator publishes of a PCA, and scores of candidate records that need no public data.

The paper's scatter matrix is A = X^T X / N, of records that the curator has standardised before; its eigenvectors are
the components. A curator who subtracts the mean of the N records too ("centred") publishes that mean, or not.

All scores come for every number of components k at once: one product of candidates and components, then cumulative
sums. Everything runs on the host in float64.

Source: Zari et al., "Membership inference attack against principal component analysis" (paper 001), section 4.1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from drjax.attacks.metrics import nearest
from drjax.core import validate
from drjax.core.linalg import eigh
from drjax.core.types import Array

ORTHONORMAL = 1e-3
"""How far released rows may be from orthonormal: components rounded to three decimals still pass."""

EQUAL = 5e-3
"""How much the mean squares of whitened scores may differ from column to column, in shares: rounded ones still pass."""

PROBES = 4
"""Random directions along which orthonormality is checked: k d operations each, where a Gram matrix takes k^2 d."""


@dataclass(frozen=True, eq=False)
class Release:
    """What an adversary intercepts. Rows are records, so components are the paper's V_k transposed.

    Attributes:
        components: (k, d), orthonormal rows, leading first.
        eigenvalues: (k,) of A, >= 0 and not increasing (those of the scatter matrix over N); None if kept back.
        mean: (d,) that the curator subtracted; None if there is none or it was kept back.
        scores: (N, k), the records' coordinates (x - mean) components^T in any order: the embedding; or None.
        n_records: N, needed with eigenvalues and mean; None if not known.

    Raises:
        ValueError: an array of the wrong shape, not finite or not numeric; rows further than `ORTHONORMAL` from
            orthonormal; eigenvalues negative or increasing; n_records not a positive integer or not that of scores.

    Example:
        >>> import numpy as np
        >>> from drjax.attacks import membership
        >>> release = membership.Release(components=np.eye(4)[:2])
        >>> release.n_components, release.leading(1).components.shape
        (2, (1, 4))
    """

    components: np.ndarray
    eigenvalues: np.ndarray | None = None
    mean: np.ndarray | None = None
    scores: np.ndarray | None = None
    n_records: int | None = None

    def __post_init__(self) -> None:
        components = check_components(self.components)
        k, d = components.shape
        checked: dict[str, np.ndarray] = {"components": components}
        for name, size in (("eigenvalues", k), ("mean", d)):
            if getattr(self, name) is not None:
                checked[name] = check_vector(getattr(self, name), name, size)
        if "eigenvalues" in checked:
            values = checked["eigenvalues"]
            # Of a scatter matrix whose rank is below k the last ones are 0 up to rounding.
            rounding = max(d, k) * np.finfo(np.float32).eps * abs(values[0])
            if values.min() < -rounding or np.any(np.diff(values) > rounding):
                raise ValueError(f"eigenvalues must be >= 0 and not increase, got {values.min():g} as the least")
            checked["eigenvalues"] = np.maximum(values, 0)
        if self.scores is not None:
            checked["scores"] = validate.matrix(self.scores, "scores", columns=k).astype(np.float64)
        if self.n_records is not None:
            validate.integer(n_records=self.n_records)
            if self.scores is not None and len(checked["scores"]) != self.n_records:
                raise ValueError(
                    f"scores must have n_records = {self.n_records} rows, got {len(checked['scores'])}: all or none"
                )
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        if self.n_records is None and self.scores is not None:
            object.__setattr__(self, "n_records", len(checked["scores"]))

    @property
    def n_components(self) -> int:
        """k."""
        return self.components.shape[0]

    @property
    def coordinates(self) -> np.ndarray | None:
        """Scores in the units of the records, (N, k), whitened ones with the eigenvalues put back.

        None without scores, or where they are whitened and nothing says what they were divided by.
        """
        if self.scores is None or self.n_components < 2:
            return self.scores
        squares = np.mean(self.scores**2, axis=0)
        if squares.max() > (1 + EQUAL) * squares.min():
            return self.scores
        if self.eigenvalues is None:
            return None
        return self.scores * np.sqrt(self.eigenvalues / squares)

    def leading(self, k: int) -> Release:
        """What an adversary has who intercepts the first k components only.

        Raises:
            ValueError: k is not in [1, n_components].
        """
        validate.integer(k=k)
        validate.at_most(self.n_components, "n_components", k=k)
        eigenvalues = None if self.eigenvalues is None else self.eigenvalues[:k]
        scores = None if self.scores is None else self.scores[:, :k]
        return Release(self.components[:k], eigenvalues, self.mean, scores, self.n_records)


def release_of(
    records: Array,
    n_components: int | None = None,
    *,
    centred: bool = False,
    eigenvalues: bool = False,
    scores: bool = False,
) -> Release:
    """The release of the curator of the paper, from an exact eigendecomposition; O(N d^2 + d^3).

    Args:
        records: (N, d), standardised.
        n_components: k, in [1, d]; all d by default, those beyond the rank being an arbitrary basis.
        centred: Subtract the records' mean and publish it; the paper does neither.
        eigenvalues: Publish them.
        scores: Publish the embedding.

    Raises:
        ValueError: records not a finite numeric matrix, or n_components out of range.

    Example:
        >>> import drjax
        >>> from drjax.attacks import membership
        >>> x = drjax.load("digits").x[:60]
        >>> release = membership.release_of(x, 5, eigenvalues=True)
        >>> release.components.shape, release.eigenvalues.shape
        ((5, 64), (5,))
    """
    x = validate.matrix(records, "records").astype(np.float64)
    n, d = x.shape
    k = d if n_components is None else n_components
    validate.integer(n_components=k)
    validate.at_most(d, "d", n_components=k)
    mean = x.mean(axis=0) if centred else None
    x = x if mean is None else x - mean
    values, vectors = eigh(x.T @ x / n)
    components = vectors[:, ::-1].T[:k]
    return Release(
        components,
        np.maximum(values[::-1][:k], 0) if eigenvalues else None,
        mean,
        x @ components.T if scores else None,
        n,
    )


def pca_scores(components: Array, candidates: Array, *, mean: Array | None = None) -> np.ndarray:
    """The paper's score: squared reconstruction error of each candidate; small for members.

    |z - V V^T z|^2, computed as written. At k = d it is rounding noise, of the order 1e-31 |z|^2, and says nothing.
    Negate it for `drjax.attacks.roc`, where larger means member. Costs 4 m k d.

    Args:
        components: (k, d), orthonormal rows.
        candidates: (m, d), in the units that the components were computed in.
        mean: (d,) to subtract from the candidates first; None for 0.

    Returns:
        (m,) >= 0, squared units of the candidates.

    Raises:
        ValueError: not finite numeric arrays of matching shapes, or rows of components not orthonormal.

    Source: paper 001, algorithm 1.

    Example:
        >>> import drjax
        >>> from drjax.attacks import membership
        >>> x = drjax.load("digits").x
        >>> release = membership.release_of(x[:60], 30)
        >>> errors = membership.pca_scores(release.components, x[:120])
        >>> bool(errors[:60].mean() < errors[60:].mean())  # members are smaller
        True
    """
    v = check_components(components)
    z = check_candidates(candidates, v.shape[1], mean)
    return np.sum((z - (z @ v.T) @ v) ** 2, axis=1)


def pca_score_prefixes(components: Array, candidates: Array, *, mean: Array | None = None) -> np.ndarray:
    """`pca_scores` for every prefix of the components, k = 1, 2, ... in one pass.

    |z|^2 minus a sum of squares would lose all digits as k nears d. The squares are summed from the last component
    forward instead, on top of the last prefix's error, so every column is a sum of terms >= 0 with full relative
    accuracy. The error at k = d is 0 and is set to that: all candidates tie there.

    Costs 2 m k d, and as much again if k < d.

    Args:
        components: (k, d), orthonormal rows.
        candidates: (m, d).
        mean: (d,) to subtract first; None for 0.

    Returns:
        (m, k), column j for the first j + 1 components; not increasing along a row.

    Raises:
        ValueError: as `pca_scores`.

    Example:
        >>> import drjax
        >>> from drjax.attacks import membership
        >>> x = drjax.load("digits").x
        >>> release = membership.release_of(x[:60], 30)
        >>> membership.pca_score_prefixes(release.components, x[:120]).shape  # for k = 1, 2, ..., 30
        (120, 30)
    """
    v = check_components(components)
    z = check_candidates(candidates, v.shape[1], mean)
    along = z @ v.T
    k, d = v.shape
    last = np.sum((z - along @ v) ** 2, axis=1) if k < d else np.zeros(len(z))
    # Column j is what lies beyond component j: the last prefix's error and the squares of all components after j.
    errors = np.empty(along.shape)
    errors[:, -1] = last
    np.square(along[:, 1:], out=errors[:, :-1])
    np.cumsum(errors[:, ::-1], axis=1, out=errors[:, ::-1])
    return errors


def leverages(release: Release, candidates: Array) -> np.ndarray:
    """The share of the released scatter that a candidate would have to make up itself, for every k; small for members.

    With B = N (V diag(eigenvalues) V^T + eigenvalue_k (I - V V^T)), which is at least N A in every direction, this is
    z^T B^-1 z. If z is one of the N records then z z^T <= N A <= B, so that **a leverage above 1 by more than rounding
    proves that z was not among them** (for a centred release with its mean: still, as the scatter about the mean holds
    z's own part). Of 40 digits rounding puts 30 above 1, by up to 3e-13. The
    converse does not hold: most strangers with small leverage are no members, so that as a ranking it is worse than
    what `drjax.attacks.membership_ratio` makes of it.

    Eigenvalues at rounding level count as that level, so that the rounding of a member's coordinates costs it little,
    while a stranger outside the span gets an enormous leverage. Costs 2 m k d, and as much again if k < d.

    Args:
        release: What was published, with eigenvalues and n_records.
        candidates: (m, d).

    Returns:
        (m, k) >= 0; infinite where all released eigenvalues are 0.

    Raises:
        ValueError: the release lacks eigenvalues or n_records, or candidates not a finite (m, d) matrix.

    Source: the statistical leverage, z^T (X^T X)^-1 z.

    Example:
        >>> import drjax
        >>> from drjax.attacks import membership
        >>> x = drjax.load("digits").x
        >>> release = membership.release_of(x[:40], eigenvalues=True)
        >>> outside = membership.leverages(release, x[:80])[:, -1] > 1.001  # proven not to be members
        >>> int(outside[:40].sum()), int(outside[40:].sum())
        (0, 40)
    """
    values, n = need(release, "eigenvalues"), need(release, "n_records")
    errors = pca_score_prefixes(release.components, candidates, mean=release.mean)
    z = check_candidates(candidates, release.components.shape[1], release.mean)
    squares = (z @ release.components.T) ** 2
    d = z.shape[1]
    floor = np.finfo(np.float64).eps * max(n, d) * values[0]
    scale = n * np.maximum(values, floor)
    with np.errstate(divide="ignore", invalid="ignore"):
        inside = np.cumsum(np.where(squares > 0, squares / scale, 0), axis=1)
        outside = np.where(errors > 0, errors / scale, 0)
    return inside + outside


def embedding_distances(release: Release, candidates: Array) -> np.ndarray:
    """Distance of each candidate's own coordinates to the nearest released row; (m,), 0 for members up to rounding.

    Who has components and embedding need not infer anything: a member's coordinates are one of the rows. A stranger's
    are so by chance only, which k coordinates of b digits leave to records that agree in all of them. A centred release
    without its mean shifts all rows by one unknown vector; then the embedding's own mean, which is 0, says nothing, and
    the distances are those without subtracting any mean.

    Whitened scores, whose columns all have the same mean square, are compared with eigenvalues put back.

    Costs 2 m N k. Squared distances cancel: below about 1e-8 of the coordinates' size they are rounding.

    Raises:
        ValueError: the release has no scores, or whitened ones and no eigenvalues; or candidates not a finite (m, d)
            matrix.

    Example:
        >>> import drjax
        >>> from drjax.attacks import membership
        >>> x = drjax.load("digits").x
        >>> release = membership.release_of(x[:60], 5, scores=True)
        >>> distances = membership.embedding_distances(release, x[:120])
        >>> bool(distances[:60].max() < 1e-6 < distances[60:].min())
        True
    """
    need(release, "scores")
    rows = release.coordinates
    if rows is None:
        raise ValueError(
            "scores must not be whitened without eigenvalues, got columns of equal mean squares: multiply each by the "
            "deviation that whitening divided by"
        )
    z = check_candidates(candidates, release.components.shape[1], release.mean)
    return np.sqrt(nearest(z @ release.components.T, rows)[1])


def need(release: Release, name: str) -> np.ndarray:
    """A part of the release that an attack cannot do without.

    Raises:
        ValueError: the release does not have it.
    """
    value = getattr(release, name)
    if value is None:
        raise ValueError(f"release must have {name} for this attack, got None")
    return value


def check_components(components: Array) -> np.ndarray:
    """(k, d) float64 with orthonormal rows; see `Release` for what raises."""
    v = validate.matrix(components, "components").astype(np.float64)
    k, d = v.shape
    validate.at_most(d, "d", **{"the rows k of components": k})
    # For orthonormal rows V V^T x = x for every x; a wrong one shows along almost any direction.
    probes = np.random.default_rng(0).normal(size=(k, PROBES))
    error = np.abs(v @ (v.T @ probes) - probes).max() / np.abs(probes).max()
    if not error <= ORTHONORMAL:
        raise ValueError(f"components must have orthonormal rows within {ORTHONORMAL:g}, got an error of {error:.2g}")
    return v


def check_candidates(candidates: Array, d: int, mean: Array | None) -> np.ndarray:
    """(m, d) float64, the mean subtracted."""
    z = validate.matrix(candidates, "candidates", columns=d).astype(np.float64)
    return z if mean is None else z - check_vector(mean, "mean", d)


def check_vector(value: Array, name: str, size: int) -> np.ndarray:
    """(size,) float64, finite."""
    array = np.asarray(value)
    if array.dtype.kind not in "fiub" or array.shape != (size,):
        raise ValueError(f"{name} must be numeric of shape ({size},), got {array.dtype} of shape {array.shape}")
    validate.finite(**{name: array})
    return array.astype(np.float64)
