"""What an Isomap map gives away: the target's neighbours, its exact distances to them, and from those the target.

`recover` needs no training: it searches for the target's place in the neighbourhood graph until the published
eigenvectors fit, which they do to rounding for the true place alone. `fit` learns from public records, for which
geodesics are computed and not recovered, what a record with such geodesics looks like.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from drjax.attacks.attack import Cost, EmbeddingAttack, EmbeddingThreat
from drjax.attacks.reconstruction import geodesic_graph, geodesic_search
from drjax.attacks.reconstruction import geodesic_releases as releases
from drjax.attacks.shadow import DENSE_FLOPS
from drjax.core import host, validate
from drjax.core.kernel_regression import KernelRegression, fit_with_errors, squared_distances, tune
from drjax.core.linalg import blas
from drjax.core.types import Array, DRMethod, Reconstruction, Status
from drjax.dr import Isomap, metrics
from drjax.dr.isomap import path_insertion, shortest_paths

N_CANDIDATES = 50
"""Public records whose releases are most like the attacked one, from whose places in the graph the search may start."""

N_STARTS_OF_CHOICE = 3
"""Starts per target, at most, for each further choice among equal neighbours; one is the best place so far."""

REACHES = (0.4, 0.6, 0.8, 1.2, 2.0)
"""Grid of the geodesic at which a feature has fallen to exp(-1/2), in units of the median n_neighbors-th geodesic."""

WIDTHS = (0.3, 1.0, 3.0)
"""Grid of the kernel's width, in units of the median squared distance between the features of two records."""

SEARCH_FLOPS = 1e6
"""What a search takes where no early start leads to the true place, times the square of the number of known records.

In `DENSE_FLOPS`: 2 s at 200, as measured on maps of raw breast cancer by two cores (12 maps in 23 to 25 s).
"""

DETOUR = 1e-9
"""Share by which rounding can make a path seem shorter than a link."""

BENDS = 10
"""Rounds in which the signs of differences settle where distances are sums of absolute ones."""

TINY = np.finfo(np.float64).tiny

N_SEARCHED = 1000
"""Most public records that reach, width and penalty are chosen on."""


class Geodesics(NamedTuple):
    """Places of m targets in the neighbourhood graph of n-1 known records.

    Attributes:
        lengths: (m, n-1), distance to each known record the target is adjacent to, inf to the others; units of the
            distances.
        paths: (m, n-1), lengths of the shortest paths; nan for a release that is not usable.
        residual: (m,), norm of H A v - lambda v over all components, over the largest lambda; inf if not usable.
        is_certified: (m,), whether the residual is what rounding of the release explains.
    """

    lengths: np.ndarray
    paths: np.ndarray
    residual: np.ndarray
    is_certified: np.ndarray


def recover(
    known: Array,
    coords: Array,
    starts: Array,
    start_coords: Array,
    *,
    n_neighbors: int = 5,
    precision: float | None = None,
    n_starts: int = 16,
    metric: str = metrics.EUCLIDEAN,
) -> Geodesics:
    """Finds the target's neighbours among the known records, and its distances to them, from Isomap releases.

    Nothing is drawn. About 0.1 s per target on one core if an early start leads to the true place, some seconds if none
    does (n = 200); targets are spread over the cores. Where known records have neighbours at equal distance, of which a
    release may have taken any, the search is repeated for a few choices.

    Args:
        known: (n-1, d).
        coords: (m, n, k) releases, target in row 0. Signs, order of components and place do not matter.
        starts: (s, d) records to start from, e.g. public ones.
        start_coords: (s, n, k), what each of them would have been released as; see `attacks.shadow`. Lanes that are
            not finite are left out.
        n_neighbors: Neighbours of the attacked Isomap.
        precision: Largest error of a published coordinate; that of the dtype of coords if None.
        n_starts: Starts per target, at most.
        metric: Metric of the attacked Isomap.

    Raises:
        ValueError: shapes that do not match, values that are not finite, no usable start, or a hyperparameter out of
            range.
    """
    known = validate.matrix(known, "known", min_rows=2).astype(np.float64)
    n = len(known) + 1
    validate.integer(n_neighbors=n_neighbors, n_starts=n_starts)
    validate.at_most(n - 1, f"n - 1 of n = {n} records", n_neighbors=n_neighbors)
    starts = validate.matrix(starts, "starts", columns=known.shape[1]).astype(np.float64)
    release = releases.checked("coords", coords, n)
    start_release = releases.checked("start_coords", start_coords, n)
    if start_release.shape != (len(starts), *release.shape[1:]):
        raise ValueError(
            f"start_coords must have one release of the shape of those in coords, {release.shape[1:]}, for each of "
            f"{len(starts)} starts, got shape {start_release.shape}"
        )
    if precision is None:
        precision = releases.rounding(np.asarray(coords), release)
    validate.non_negative(precision=precision)
    usable = np.isfinite(start_release).all(axis=(1, 2))
    if not usable.any():
        raise ValueError("start_coords must have a finite release, got none")
    start_release = releases.centred(start_release[usable])
    rows = metrics.between(metric, starts[usable], known)
    is_finite = np.asarray(np.isfinite(release).all(axis=(1, 2)))
    theta = releases.centred(np.where(is_finite[:, None, None], release, 0))

    m = len(release)
    found = Geodesics(np.full((m, n - 1), np.inf), np.full((m, n - 1), np.nan), np.full(m, np.inf), np.zeros(m, bool))
    with blas().limit(limits=1, user_api="blas"):
        for choice, graph in enumerate(geodesic_graph.known_graphs(known, n_neighbors, metric)):
            left = np.flatnonzero(is_finite & ~found.is_certified)
            if not len(left):
                break
            lengths, displaced = geodesic_graph.links(rows, graph, n_neighbors)

            def work(
                part: slice,
                graph: geodesic_graph.Known = graph,
                left: np.ndarray = left,
                places: tuple[np.ndarray, np.ndarray] = (lengths, displaced),
                most: int = min(n_starts, N_STARTS_OF_CHOICE) if choice else n_starts,
            ) -> None:
                for lane in left[part]:
                    order = np.argsort(releases.mismatch(start_release, theta[lane]), kind="stable")[:N_CANDIDATES]
                    chosen = (places[0][order], places[1][order])
                    if np.isfinite(found.lengths[lane]).any():
                        so_far = geodesic_graph.links(found.lengths[[lane]], graph, n_neighbors)
                        chosen = (np.concatenate([so_far[0], chosen[0]]), np.concatenate([so_far[1], chosen[1]]))
                    _recover_one(found, lane, graph, theta[lane], chosen, n_neighbors, most, precision)

            host.spread(work, len(left), size=1)
    return found


def _recover_one(
    found: Geodesics,
    lane: int,
    graph: geodesic_graph.Known,
    theta: np.ndarray,
    places: tuple[np.ndarray, np.ndarray],
    n_neighbors: int,
    n_starts: int,
    precision: float,
) -> None:
    """Searches one release, centred (n, k), from places as of `geodesic_graph.links`; keeps what is better."""
    n = len(theta)
    eigenpairs = releases.eigenpairs(theta, precision)
    if eigenpairs is None:
        return
    values = eigenpairs.values
    size = float(np.linalg.norm(np.where(np.isfinite(graph.paths), graph.paths, 0) ** 2)) / 2
    enough = releases.explained_by_rounding(values, precision, size, n)
    own = np.empty(n - 1)
    residual = max(geodesic_search.search(graph, eigenpairs, *places, n_neighbors, enough, n_starts, own))
    if not residual / values.max() < found.residual[lane] or not np.isfinite(own).any():
        return
    found.lengths[lane] = own
    found.paths[lane] = geodesic_search.insert(graph, own, n_neighbors)[0][0, 1:]
    found.residual[lane] = residual / values.max()
    found.is_certified[lane] = residual <= enough


@dataclass(frozen=True)
class GeodesicModel:
    """Kernel ridge regression from geodesics to the target, and its error's covariance; see `fit`.

    Attributes:
        known: (n-1, d).
        reach: Geodesic at which a feature has fallen to exp(-1/2), units of the distances.
        regression: Regression from features (n-1,) to a record and, as the last of d + 1 numbers, its squared norm, or
            for a metric of directions its size; that has no part in the choice of width and penalty.
        factor: (r, d + 1); its Gram matrix is the covariance of the leave-one-out errors.
        metric: Metric of the attacked Isomap.
    """

    known: np.ndarray
    reach: float
    regression: KernelRegression
    factor: np.ndarray
    metric: str = metrics.EUCLIDEAN

    def reconstruct(self, geodesics: Geodesics, *, bounds: tuple[float, float] | None = None) -> Reconstruction:
        """The targets of m recovered places; 2 m (s + 8 r) d FLOP for s public records and 8 links.

        Lanes that are not usable give a row of nan with status NON_FINITE, those not certified carry NOT_CONVERGED.
        The error to expect is that of left-out public records, in certified lanes less what distances tell.

        Args:
            geodesics: Geodesics from `recover`.
            bounds: Least and greatest value of each feature, to clip to.
        """
        paths = np.asarray(geodesics.paths, np.float64)
        if paths.ndim != 2 or paths.shape[1] != len(self.known):
            raise ValueError(f"geodesics must be to {len(self.known)} known records, got paths of shape {paths.shape}")
        finite = np.isfinite(paths).all(axis=1)
        features = _features(paths[finite], self.reach)
        predicted = self.regression.predict(features)
        squares = self.regression.expected_squares(features)[:, :-1]
        # Some records are harder to tell than others, as those show that are most like them.
        harder = squares / np.maximum((self.factor[:, :-1] ** 2).sum(axis=0), TINY)
        x = np.full((len(paths), self.known.shape[1]), np.nan)
        expected = np.full(x.shape, np.nan)
        for lane, own, squared, times in zip(np.flatnonzero(finite), predicted, squares, harder, strict=True):
            # Paths that are about right still tell the record; lengths that are about right mislead.
            place, certified = (geodesics.lengths[lane], paths[lane]), geodesics.is_certified[lane]
            if certified:
                found, left = self._given_distances(own, *place)
                x[lane], expected[lane] = found[:-1], times * (left[:, :-1] ** 2).sum(axis=0)
            else:
                x[lane], expected[lane] = own[:-1], squared
        if bounds is not None:
            x = np.clip(x, *bounds)
        status = np.where(geodesics.is_certified, np.uint32(Status.OK), np.uint32(Status.NOT_CONVERGED))
        status = np.where(finite, status, np.uint32(Status.NON_FINITE))
        unknown = np.full(len(x), np.nan)
        return Reconstruction(x, None, x[:, None], unknown, status, expected.mean(axis=1), feature_mse=expected)

    def _given_distances(self, predicted: np.ndarray, lengths: np.ndarray, paths: np.ndarray) -> tuple:
        """The predicted record and size, (d + 1,), given distances to its neighbours; `factor` of what is left open.

        A normal error of the prediction is conditioned on equations that are linear in both; see `_equations`.
        """
        # A link that a detour is shorter than leaves no trace in a release; by Euclidean distances there is none.
        linked = np.isfinite(lengths) & (lengths <= paths * (1 + DETOUR))
        found, left = predicted, self.factor
        for _ in range(int(linked.any()) * (BENDS if self.metric == "manhattan" else 1)):
            operator, values = _equations(self.metric, self.known[linked], lengths[linked], found)
            loading = operator @ self.factor.T
            gram = loading @ loading.T
            gram[np.diag_indices(len(gram))] += 1e-4 * np.trace(gram) / len(gram) + TINY
            missing = values - operator @ predicted
            found = predicted + np.linalg.solve(gram, missing) @ loading @ self.factor
            left = self.factor - loading.T @ np.linalg.solve(gram, loading @ self.factor)
        return found, left


def fit(known: Array, public: Array, *, n_neighbors: int = 5, metric: str = metrics.EUCLIDEAN) -> GeodesicModel:
    """Learns records from their geodesics to known ones; nothing is drawn, and no release is needed.

    Features are exp(-(g / reach)^2 / 2) of the geodesics g. Reach, kernel width and penalty are those of the least
    leave-one-out error on the first `N_SEARCHED` records. O(m^2 (n + d) + m^3) beside 0.2 ms per record for the paths.

    Args:
        known: (n-1, d).
        public: (m, d) records the adversary may learn from, m >= 2.
        n_neighbors: Neighbours of the attacked Isomap.
        metric: Metric of the attacked Isomap.

    Raises:
        ValueError: arguments that are not finite numeric matrices of matching width, or n_neighbors out of range.
    """
    known = validate.matrix(known, "known", min_rows=2).astype(np.float64)
    public = validate.matrix(public, "public", min_rows=2, columns=known.shape[1]).astype(np.float64)
    validate.integer(n_neighbors=n_neighbors)
    validate.at_most(len(known), "the number of known records", n_neighbors=n_neighbors)
    paths = _paths_of(known, public, n_neighbors, metric)
    targets = np.column_stack([public, _size(metric, public)])
    searched = slice(min(len(public), N_SEARCHED))
    away = (public - public.mean(axis=0))[searched]
    typical = float(np.median(np.partition(paths, n_neighbors - 1, axis=1)[:, n_neighbors - 1])) or 1.0
    choices = {}
    for reach in REACHES:
        squared = squared_distances(_features(paths[searched], reach * typical))
        choices[reach * typical] = tune(squared, away, widths=WIDTHS)
    reach, choice = min(choices.items(), key=lambda item: item[1].loo_mse)
    regression, errors = fit_with_errors(_features(paths, reach), targets, choice)
    factor = np.asarray(np.linalg.qr(errors / np.sqrt(len(errors)), mode="r"))
    return GeodesicModel(known, reach, regression, factor, metric)


def _size(metric: str, records: np.ndarray) -> np.ndarray:
    """What beside a record (m, d) its distances are linear in, (m,): see `_equations`."""
    if metric in metrics.OF_DIRECTIONS:
        return (records * metrics.prepared(metric, records)).sum(axis=1)
    return (records**2).sum(axis=1)


def _equations(metric: str, known: np.ndarray, lengths: np.ndarray, near: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Operator (q, d + 1) on a record and its size, and values (q,), that say how far it is from known (q, d).

    |x|^2 - 2 k.x + |k|^2 = length^2; by directions k / |k| . x = (1 - length) |x|, both less their means for the
    correlation; by manhattan distances sum s (x - k) = length, with the signs s that x has at `near` (d + 1,).
    """
    if metric in metrics.OF_DIRECTIONS:
        return np.column_stack([metrics.prepared(metric, known), lengths - 1]), np.zeros(len(known))
    if metric == "manhattan":
        sign = np.sign(near[:-1] - known)
        return np.column_stack([sign, np.zeros(len(known))]), lengths + (sign * known).sum(axis=1)
    return np.column_stack([-2 * known, np.ones(len(known))]), lengths**2 - (known**2).sum(axis=1)


def _paths_of(known: np.ndarray, records: np.ndarray, n_neighbors: int, metric: str) -> np.ndarray:
    """(s, n-1) geodesics of each record inserted by itself among the known ones."""
    graph = shortest_paths.graph(known, n_neighbors, metric)
    neighbors = np.ascontiguousarray(graph.neighbors, np.int64)
    edges = path_insertion.adjacency(neighbors, graph.between)
    rows = metrics.between(metric, records, known)
    paths = np.empty_like(rows)

    def work(part: slice) -> None:
        out = np.empty((len(known) + 1, len(known) + 1))
        for lane in range(part.start, part.stop):
            path_insertion.insert(graph.between, neighbors, graph.paths, *edges, rows[lane], n_neighbors, out)
            paths[lane] = out[0, 1:]

    host.spread(work, len(records))
    return paths


def _features(paths: np.ndarray, reach: float) -> np.ndarray:
    return np.exp(-0.5 * (paths / reach) ** 2)


@dataclass(frozen=True, kw_only=True)
class GeodesicSearch(EmbeddingAttack):
    """`recover`, then `fit` and `GeodesicModel.reconstruct`."""

    name: str = "geodesics"
    label: str = "Geodesics"
    description: str = (
        "Finds which known records the target is next to, and how far from each, until the published components fit "
        "exactly; then predicts the record from these distances."
    )
    why: str = (
        "The published components are eigenvectors of the shortest paths, and those hang on which few known records "
        "the target is linked to: only the true links and lengths make the components fit."
    )
    needs_shadows: bool = True
    needs_public: bool = True

    def suits(self, method: DRMethod, *, seed_known: bool) -> str | None:
        """See `EmbeddingAttack`."""
        del seed_known
        return None if isinstance(method, Isomap) else "is of Isomap"

    def cost(self, threat: EmbeddingThreat) -> Cost:
        """See `Attack`."""
        (p, d), s, m = threat.known.shape, len(threat.expected_of), threat.n_releases
        searched = min(s, N_SEARCHED)
        search = m * SEARCH_FLOPS * p**2
        fitted = len(REACHES) * len(WIDTHS) * 3.0 * searched**3 + 2.0 * s**2 * (p + d) + s * 4.0 * p**2
        return Cost((search + fitted) / DENSE_FLOPS, 8.0 * (4 * s**2 + 3 * p**2 + s * (p + d)))

    def run(self, key: Array, threat: EmbeddingThreat) -> Reconstruction:
        """See `Attack`; nothing is drawn."""
        del key
        assert isinstance(threat.method, Isomap)
        options, shadows = {"n_neighbors": threat.method.n_neighbors, "metric": threat.method.metric}, threat.shadows()
        # The releases are of the records as they are rounded for it.
        known, starts, public = (
            rows.astype(threat.dtype) for rows in (threat.known, shadows.records, threat.expected_of)
        )
        found = recover(known, threat.coords, starts, shadows.coords, precision=threat.precision, **options)
        model = fit(known, public, **options)
        choice, n_certified = model.regression.choice, int(found.is_certified.sum())
        facts = {"n_certified": n_certified, "penalty": choice.penalty, "loo_mse": choice.loo_mse}
        return model.reconstruct(found, bounds=threat.bounds)._replace(facts=facts)
