"""How far one record moves what a synthesizer is made of; and what papers 002 (PCA-Gauss) and RON-Gauss say.

Everything that is released is a sum over records, each of which is bounded in Euclidean norm by R: of vectors w, of
outer products w w^T, or the leading eigenvalues of such a sum. "zero_out" and "add_or_remove" move a sum by one term,
"replace_one" by the difference of two. All functions take R = 1; sums of vectors scale with R, outer products with R^2.
Proofs: docs/synthesis/mechanism.md; the neighbours that a search found against the papers' claims:
docs/synthesis/claims.md.
"""

from __future__ import annotations

import math

import numpy as np

from drjax.bounds.curve import RELATIONS
from drjax.bounds.gdp import SENSITIVITY, check_positive
from drjax.core import validate
from drjax.core.types import Array
from drjax.defenses.dp_pca_sensitivity import moment_sensitivity

ROUNDING = 1 + 1e-12


def sum_l2(*, neighbouring: str) -> float:
    """Euclidean norm of the change of a sum of vectors: 1, and 2 under "replace_one"."""
    validate.one_of(RELATIONS, neighbouring=neighbouring)
    return float(SENSITIVITY[neighbouring])


def sum_l1(q: int, *, neighbouring: str) -> float:
    """L1 norm of the change of a sum of vectors (q,): sqrt(q) times as much as in L2."""
    validate.integer(q=q)
    return sum_l2(neighbouring=neighbouring) * math.sqrt(q) * ROUNDING


def moment_l2(*, neighbouring: str) -> float:
    """Frobenius norm of the change of a sum of outer products, alike for one sum and for one sum for each class.

    1, and sqrt(2) under "replace_one": a record that changes its class leaves one sum and enters another, and
    sqrt(1 + 1) is what replacing it within a class may cost anyway.
    """
    return moment_sensitivity(1.0, neighbouring=neighbouring)


def moment_l1(q: int, *, neighbouring: str, n_groups: int = 1) -> float:
    """L1 norm of the change of the upper triangles of sums of outer products (q, q).

    (q + 1) / 2; under "replace_one" sqrt(q (q + 3) / 2) for one sum, and q + 1 for a sum for each of several classes,
    where the record may change its class: in L1 that is twice the cost, and not what parallel composition promises.

    Args:
        q: Number of rows and columns, >= 1.
        neighbouring: A name in `RELATIONS`.
        n_groups: Sums; every record belongs to one of them.

    Raises:
        ValueError: an argument out of its range.
    """
    validate.integer(q=q, n_groups=n_groups)
    validate.one_of(RELATIONS, neighbouring=neighbouring)
    one = (q + 1) / 2
    if neighbouring != "replace_one":
        return one
    if n_groups > 1:
        return 2 * one
    return 1.0 if q == 1 else math.sqrt(q * (q + 3) / 2) * ROUNDING


def full_moment_l1(q: int, *, neighbouring: str) -> float:
    """L1 norm as `moment_l1` of one sum, but over all entries: q, and sqrt(2) q under "replace_one"."""
    validate.integer(q=q)
    one = moment_sensitivity(1.0, neighbouring=neighbouring)
    return q * (1.0 if q == 1 else one)


def labelled_moment_l1(p: int, *, neighbouring: str, label: float = 1.0) -> float:
    """An upper bound as `full_moment_l1` for (z, y) with |z| <= 1 in p dimensions and |y| <= label.

    (sqrt(p) + label)^2, attained; under "replace_one" sqrt(2) p + 4 sqrt(p) label + label^2, term by term.
    """
    check_positive(label=label)
    root = math.sqrt(p)
    if neighbouring != "replace_one":
        validate.one_of(RELATIONS, neighbouring=neighbouring)
        return (root + label) ** 2 * ROUNDING
    return full_moment_l1(p, neighbouring=neighbouring) + (4 * root * label + label**2) * ROUNDING


def spectrum_l1(p: int, *, neighbouring: str) -> float:
    """L1 norm of the change of the p largest eigenvalues of a sum of outer products: 1, and 2 under "replace_one".

    It does not grow with p (1 even under "replace_one" where p is 1). For a public centre: about the mean of the sample
    it is more.
    """
    validate.integer(p=p)
    return 1.0 if p == 1 else sum_l2(neighbouring=neighbouring)


def spectrum_l2(p: int, *, neighbouring: str) -> float:
    """Euclidean norm of the change that `spectrum_l1` bounds: 1, and sqrt(2) under "replace_one" where p > 1."""
    validate.integer(p=p)
    return 1.0 if p == 1 else moment_sensitivity(1.0, neighbouring=neighbouring)


# ---- what the papers state, for features in [-a, a] and neighbours that differ in one record


def paper_identity(m: int, n_components: int | None = None, a: float = 1.0) -> float:
    """Propositions 1 and 2: L1 sensitivity of the records themselves, 2 m a, or 2 p a for p components."""
    return 2.0 * (m if n_components is None else n_components) * a


def paper_covariance(m: int, n: int, a: float = 1.0) -> float:
    """Proposition 3: of X X^T / n over all entries, m^2 a^2 / n."""
    return m**2 * a**2 / n


def paper_unsupervised(p: int, n: int, a: float = 1.0) -> float:
    """Theorem 4: of the p leading eigenvalues, p a^2 / n, with components divided by sqrt(m)."""
    return p * a**2 / n


def paper_supervised(p: int, n: int, a: float = 1.0) -> float:
    """Theorem 5: of the covariance of p components and a label, (p^2 + 4 p + 1) a^2 / n.

    (p + 1)^2 a^2 / n is tight about a public centre, and `about_sample_mean` times that about the records' own mean.
    """
    return (p**2 + 4 * p + 1) * a**2 / n


def about_sample_mean(n: int, *, is_bounded_centred: bool) -> float:
    """How much more a second moment of n records moves about their own mean than about a public centre.

    With d from a record to the mean of the others, its share of the moment is (n - 1) / n d d^T, and the centred record
    is (n - 1) / n d. So it is n / (n - 1) where the *centred* records of both neighbours have entries in [-a, a], which
    is what paper 002 assumes, and 4 (n - 1) / n where the records had them before they were centred. A record and a
    common place of the others attain both.

    Args:
        n: Records, >= 2.
        is_bounded_centred: Whether a bounds the centred records.
    """
    validate.integer(minimum=2, n=n)
    return n / (n - 1) if is_bounded_centred else 4 * (n - 1) / n


def paper_data_dependent(p: int, n: int, a: float = 1.0) -> float:
    """Proposition 4: of that covariance where the components come from the same records, (p + 1) a^2 / n + 4 p a^2."""
    return (p + 1) * a**2 / n + 4 * p * a**2


def proposition_4_bound(m: int, p: int) -> float:
    """Below this n data-dependent components lower the paper's sensitivity: (m^2 + 4 m - p) / (4 p)."""
    validate.integer(m=m, p=p)
    return (m**2 + 4 * m - p) / (4 * p)


def ron_gauss_covariance(p: int, n: int) -> float:
    """What RON-Gauss's code takes for z z^T / n of records of norm 1: 2 sqrt(p) / n; truly sqrt(2) p / n for even p."""
    return 2 * math.sqrt(p) / n


def ron_gauss_supervised(p: int, n: int, y: float = 1.0) -> float:
    """What RON-Gauss's code takes with a label in [-y, y]: (2 sqrt(p) + 4 sqrt(p) y + y^2) / n."""
    return (2 * math.sqrt(p) + 4 * math.sqrt(p) * y + y**2) / n


def ron_gauss_mean(m: int, n: int) -> float:
    """What RON-Gauss's code takes for the mean of records of norm 1: sqrt(m) / n; "replace_one" needs twice that."""
    return math.sqrt(m) / n


# ---- why dimensions are reduced


def laplace_snr(value: Array, sensitivity: float, epsilon: float) -> np.ndarray:
    """Definition 4: the squared value over the variance of its Laplace noise, 2 (sensitivity / epsilon)^2.

    Raises:
        ValueError: sensitivity or epsilon is not a finite number > 0.
    """
    check_positive(sensitivity=sensitivity, epsilon=epsilon)
    return np.asarray(value, np.float64) ** 2 / (2 * (sensitivity / epsilon) ** 2)


def sir(singular_values: Array, sensitivities: Array) -> np.ndarray:
    """Section IX-A: gain in sensitivity over loss of information, for every number of components p = 1, ..., m.

    (S(m) / S(p)) / (all singular values' sum over that of the p largest); 1 at p = m. The text that we have lost the
    formula; this is its description: loss is the share of the spectrum that goes, gain the ratio of sensitivities.

    Args:
        singular_values: (m,) >= 0, not all 0, of the centred records; sorted here.
        sensitivities: (m,) > 0, S(p) for p = 1, ..., m.

    Returns:
        (m,).

    Raises:
        ValueError: not two vectors of m numbers in their ranges.
    """
    values, steps = np.asarray(singular_values, np.float64), np.asarray(sensitivities, np.float64)
    if values.ndim != 1 or values.shape != steps.shape or not values.size:
        raise ValueError(
            f"singular_values and sensitivities must be m numbers each, got shapes {values.shape} and {steps.shape}"
        )
    check_positive(sensitivities=steps)
    if not (np.isfinite(values).all() and (values >= 0).all() and values.any()):
        raise ValueError(f"singular_values must be finite, >= 0 and not all 0, got {singular_values!r}")
    kept = np.cumsum(np.sort(values)[::-1])
    return (steps[-1] / steps) * (kept / kept[-1])
