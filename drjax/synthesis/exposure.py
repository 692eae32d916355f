"""Privacy of synthetic data by attack: whether records can be seen to have been in the data it was made from.

    scores = membership_exposure(key, synthesizer, members, others, reference=public)
    scores["density_ratio"].auc.estimate <= auc_ceiling(synthesizer.guarantee.curve)

An attack shows what leaks at least, a guarantee what leaks at most; between them is what nobody has found yet. Attacks
here know the synthetic records, the candidates, and public records of the same kind; they know neither the other
private records nor the method. Candidates and public records go through `synthesizer.transform` first, so that all are
in the coordinates of the synthetic records.

Sources: distances to the closest record, Chen, Yu, Zhang & Fritz (2020), GAN-Leaks; density ratios, van Breugel, Sun,
Qian & van der Schaar (2023), DOMIAS.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np
from sklearn.mixture import GaussianMixture
from sklearn.neighbors import KernelDensity, NearestNeighbors

from drjax.attacks import roc
from drjax.attacks.metrics import nearest
from drjax.bounds import rero
from drjax.bounds.accounting import Guarantee
from drjax.bounds.curve import TradeOff
from drjax.core import validate
from drjax.core.statistics import Interval, share_interval
from drjax.core.types import Array
from drjax.synthesis.contract import Synthesizer

DENSITIES = ("kernel", "mixture", "neighbours")


class Memorisation(NamedTuple):
    """Signs that synthetic records copy the records that were used; see `memorisation_ratio`.

    Attributes:
        share: Share of synthetic records that are closer to a record that was used than to one that was not, ties
            counting half; 1/2 for data that remember nothing. With Clopper-Pearson's interval for independent records.
        median_ratio: Median distance to the closest record used over that to the closest one not used; 1 for data that
            remember nothing, 0 for copies. nan where both are 0.
        n_exact: Synthetic records that are copies of a record that was used.
    """

    share: Interval
    median_ratio: float
    n_exact: int


def closest_record_scores(synthetic: Array, candidates: Array, *, reference: Array | None = None) -> np.ndarray:
    """How close a candidate is to its closest synthetic record; (m,), larger for members.

    The negative Euclidean distance, in units of the records. With public records, the logarithm of the distance to the
    closest of those less that to the closest synthetic one: what is near everything tells nothing. O(m n d).

    Args:
        synthetic: (n, d); records that are not finite are left out.
        candidates: (m, d).
        reference: (r, d) public records that were not used, or None.

    Raises:
        ValueError: not finite numeric arrays with the same number of columns, or no usable synthetic record.
    """
    made, wanted = _made(synthetic), _columns(candidates, "candidates", synthetic)
    distance = np.sqrt(nearest(wanted, made)[1])
    if reference is None:
        return -distance
    typical = np.sqrt(nearest(wanted, _columns(reference, "reference", synthetic))[1])
    tiny = np.finfo(np.float64).tiny
    return np.log(np.maximum(typical, tiny)) - np.log(np.maximum(distance, tiny))


def density_ratio_scores(
    key: Array,
    synthetic: Array,
    reference: Array,
    candidates: Array,
    *,
    density: str = "kernel",
    n_components: int = 8,
    n_neighbours: int = 5,
    sample_size: int = 2000,
) -> np.ndarray:
    """Log-density of a candidate under the synthetic data less that under public data; (m,), larger for members.

    Both densities are estimated alike, after standardising by the public records: by Gaussian kernels with Scott's
    bandwidth, by a Gaussian mixture with diagonal covariances, or by the distance to the k-th neighbour.

    Args:
        key: Draws the samples and the mixture's start.
        synthetic: (n, d); records that are not finite are left out.
        reference: (r, d) public records that were not used.
        candidates: (m, d).
        density: A name in `DENSITIES`.
        n_components: Number of components of the mixture, >= 1; fewer where there are fewer different records.
        n_neighbours: k, >= 1; fewer where there are fewer different records.
        sample_size: Records that each density is fitted on at most, >= 2.

    Raises:
        ValueError: an argument out of its range, shapes that do not match, or no usable synthetic record.
    """
    validate.prng_key(key)
    validate.one_of(DENSITIES, density=density)
    validate.integer(n_components=n_components, n_neighbours=n_neighbours)
    validate.integer(minimum=2, sample_size=sample_size)
    made, public = _made(synthetic), _columns(reference, "reference", synthetic)
    wanted = _columns(candidates, "candidates", synthetic)
    entropy = np.asarray(jax.random.bits(key, (5,), np.uint32))
    rng = np.random.default_rng(entropy[1:])
    center, scale = public.mean(axis=0), public.std(axis=0)
    scale = np.where(scale > 0, scale, 1)
    groups = [_subset(rng, (records - center) / scale, sample_size) for records in (made, public)]
    size = min(len(np.unique(records, axis=0)) for records in groups)
    points = (wanted - center) / scale
    options = (density, min(n_components, size), min(n_neighbours, size), int(entropy[0] >> 1))
    ours, theirs = (_log_density(records, points, *options) for records in groups)
    return ours - theirs


def membership_exposure(
    key: Array,
    synthesizer: Synthesizer,
    members: Array,
    others: Array,
    *,
    reference: Array | None = None,
    n: int | None = None,
    density: str = "kernel",
    level: float = 0.95,
) -> dict[str, roc.RocScores]:
    """What attacks on the synthetic data find of who was in the data.

    Args:
        key: Draws the synthetic records, the samples and the split for the accuracy.
        synthesizer: A release.
        members: (m, d) records that it was fitted on, >= 2.
        others: (k, d) records of the same kind that it was not fitted on, >= 2.
        reference: (r, d) public records, neither members nor others; without them no densities are compared.
        n: Synthetic records to draw; by default as many as there are members, 1,000 at least.
        density: Number of components of the density, as in `density_ratio_scores`.
        level: Confidence level of the intervals, in (0, 1).

    Returns:
        Figures by attack ("closest_record", and with public records "closest_record_relative" and "density_ratio"):
        those of `drjax.attacks.roc.evaluate`. Small samples can be lucky: look at the intervals.

    Raises:
        ValueError: shapes that do not match, or a release that holds no way from records to its coordinates.
    """
    validate.prng_key(key)
    inside, outside = validate.matrix(members, "members", min_rows=2), validate.matrix(others, "others", min_rows=2)
    count = max(len(inside), 1000) if n is None else n
    validate.integer(n=count)
    sample_key, density_key, split_key = jax.random.split(key, 3)
    made = np.asarray(synthesizer.sample(sample_key, count).x, np.float64)
    candidates = np.concatenate([_shown(synthesizer, inside), _shown(synthesizer, outside)])
    is_member = np.arange(len(candidates)) < len(inside)
    scores = {"closest_record": closest_record_scores(made, candidates)}
    if reference is not None:
        public = _shown(synthesizer, validate.matrix(reference, "reference"))
        scores["closest_record_relative"] = closest_record_scores(made, candidates, reference=public)
        scores["density_ratio"] = density_ratio_scores(density_key, made, public, candidates, density=density)
    return {name: roc.evaluate(split_key, found, is_member, level=level) for name, found in scores.items()}


def auc_ceiling(curve: TradeOff) -> float:
    """`drjax.attacks.roc.auc_ceiling` of a member that is exchanged for a non-member.

    They are neighbours under "replace_one", and two steps apart under the other relations, or where the curve names
    none.

    Raises:
        ValueError: not a curve.
    """
    return roc.auc_ceiling(curve, steps=1 if getattr(curve, "neighbouring", None) == "replace_one" else 2)


def rero_ceiling(guarantee: Guarantee, kappa: Array | float) -> np.ndarray:
    """The largest probability with which a record is rebuilt that a guess without the release rebuilds with kappa.

    `drjax.bounds.rero.from_tradeoff` of the guarantee: the adversary knows all other records.

    Args:
        guarantee: Guarantee of a synthesizer.
        kappa: Baseline success, any shape, in [0, 1]; see `drjax.bounds.prior`.

    Raises:
        ValueError: kappa outside [0, 1].
    """
    return rero.from_tradeoff(kappa, guarantee.target_curve)


def memorisation_ratio(key: Array, synthetic: Array, used: Array, unused: Array) -> Memorisation:
    """The distance to closest record that practitioners report; it is no evidence of privacy.

    Groups of equal size are drawn, so that data which remember nothing are as close to one as to the other. A share
    near 1/2 proves nothing: a release can give a record away without putting a synthetic one near it, one copied
    outlier among thousands is not seen in a median, and no adversary was tried. Copies do prove a leak.

    Args:
        key: Draws the groups.
        synthetic: (n, d); records that are not finite are left out.
        used: (m, d) records that the release was fitted on, in the same coordinates.
        unused: (k, d) records of the same kind that it was not.

    Raises:
        ValueError: shapes that do not match, or no usable synthetic record.
    """
    validate.prng_key(key)
    made = _made(synthetic)
    groups = [_columns(used, "used", synthetic), _columns(unused, "unused", synthetic)]
    rng = np.random.default_rng(np.asarray(jax.random.bits(key, (4,), np.uint32)))
    size = min(map(len, groups))
    to_used, to_unused = (np.sqrt(nearest(made, _subset(rng, group, size))[1]) for group in groups)
    wins = int(np.sum(to_used < to_unused)) + int(np.sum(to_used == to_unused)) // 2
    middle = float(np.median(to_unused))
    top = float(np.median(to_used))
    ratio = top / middle if middle > 0 else (np.nan if top == 0 else np.inf)
    n_exact = int(np.sum(nearest(made, groups[0])[1] == 0))
    return Memorisation(share_interval(wins, len(made)), ratio, n_exact)


def _shown(synthesizer: Synthesizer, x: np.ndarray) -> np.ndarray:
    return np.asarray(synthesizer.transform(x), np.float64)


def _made(synthetic: Any) -> np.ndarray:
    x = np.asarray(synthetic, np.float64)
    if x.ndim != 2:
        raise ValueError(f"synthetic must be an array of shape (records, columns), got shape {x.shape}")
    kept = x[np.isfinite(x).all(axis=1)]
    if not kept.size:
        raise ValueError("synthetic must have a record that is finite, got none")
    return kept


def _columns(x: Any, name: str, synthetic: Any) -> np.ndarray:
    return validate.matrix(x, name, columns=np.shape(synthetic)[1]).astype(np.float64)


def _subset(rng: np.random.Generator, x: np.ndarray, size: int) -> np.ndarray:
    return x if len(x) <= size else x[rng.choice(len(x), size, replace=False)]


def _log_density(
    records: np.ndarray, points: np.ndarray, density: str, n_components: int, n_neighbours: int, seed: int
) -> np.ndarray:
    n, d = records.shape
    if density == "kernel":
        # Scott's factor; the spread of constant synthetic data is 0, and its kernel that of the public records.
        spread = float(np.sqrt(np.mean(records.var(axis=0)))) or 1.0
        return KernelDensity(bandwidth=spread * n ** (-1 / (d + 4))).fit(records).score_samples(points)
    if density == "mixture":
        mixture = GaussianMixture(n_components, covariance_type="diag", reg_covar=1e-4, random_state=seed)
        # It wants two records; twice the same one has the same mean and covariance.
        return mixture.fit(records if n > 1 else np.repeat(records, 2, axis=0)).score_samples(points)
    distances = NearestNeighbors(n_neighbors=n_neighbours).fit(records).kneighbors(points)[0][:, -1]
    floor = np.finfo(np.float64).tiny
    return np.log(n_neighbours / n) - d * np.log(np.maximum(distances, floor))
