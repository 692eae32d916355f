"""The target of a published Isomap of records that all move with it, as behind a scaler.

The published components are eigenvectors of the squared shortest paths, to rounding for the true record alone. Descents
on what a candidate leaves of these equations (`moving_equations`) end where a jump stops them. So the search goes on
from the best ends: it moves them a little, or mirrors features about their mean (scales tell how far a feature is from
its mean, and hardly on which side), and descends again from the move that one more step promises most of.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import numpy as np

from drjax.attacks.attack import MOSTLY_OPEN, Cost, EmbeddingAttack, EmbeddingThreat
from drjax.attacks.reconstruction import geodesic_releases as releases
from drjax.attacks.reconstruction.moving_equations import TINY, Equations, Linearised, Whitened, damped_step
from drjax.attacks.reconstruction.priors import GaussianPrior
from drjax.attacks.reconstruction.through_steps import is_held
from drjax.attacks.shadow import DENSE_FLOPS
from drjax.core import host
from drjax.core.linalg import blas
from drjax.core.types import Array, DRMethod, Reconstruction, Status
from drjax.dr import Isomap, Pipeline

N_FIRST, N_POOL = 8, 4
"""Candidates that are descended from at first, and ends of which the search keeps the best."""

N_DRAWN, N_BETWEEN, N_NEAR = 24, 60, 15
"""Candidates: draws of the prior, records between three known ones near the target in the map, and such themselves."""

NEAREST = 25
"""Known records that count as near in the map."""

MIRRORED, N_MIRRORED, N_MOVED = 0.42, 30, 8
"""Share of the search's moves that mirror features; and among how many of either kind the best is chosen."""

MOVES = ("posterior", "posterior", "features", "known", "prior")
"""The other moves, as often as they stand here."""

SHARES, LEASTS, EASED, PATIENCE = (1 / 15, 1 / 100), (1e-9, 1e-16), (10.0, 100.0), (2, 4)
"""What descents draw of: noise of an equation as a share of the norm of what is left of all, least damping, factor by
which damping falls, and steps that may make the fit worse. None does best everywhere, and few failures are shared."""

STEPS, LAST_STEPS = 25, 6
"""Steps of a descent, and of the last one, from a record of which rounding explains what is left."""

CLOSE = 2e-3
"""Norm of what is left, over the largest eigenvalue, below which descents are repeated for as long as they halve it."""

MOST_EVALUATIONS = 8_000
"""Times that the residual of a release is computed, its derivative counting as two."""

TELLING = 3e-6
"""Norm that rounding of a release explains, below which the end of a search is taken for the target. False ends were
seen from 4e-6 on, and float32 leaves 1e-6."""

ROUNDED = 2.0
"""What rounding explains, over the root of the number of equations, is this many times the noise of one: three times
what is expected of independent errors, which those of one coordinate in all equations are not."""

FAR_OFF = 3.0
"""Noise of an equation, in units of the norm of what is left, where another record may be as good: ends are held up by
jumps, about which slopes tell little. Nine tenths of features are then within what is expected of them."""


class End(NamedTuple):
    """Where a descent ended.

    Attributes:
        norm: Norm of what is left of the equations there.
        x: (d,).
        scale: How far the search moves on from here, in standard deviations or as a share.
    """

    norm: float
    x: np.ndarray
    scale: float = 0.5


@dataclass
class Search:
    """A search for the record that leaves least of one release's equations.

    Attributes:
        equations: The release's equations.
        prior: What the record may be.
        rng: Generator that the moves are drawn with.
        enough: Norm of the residual, over the largest eigenvalue, that rounding explains; the search ends there.
        most_evaluations: Times that the residual is computed, at most; a descent that has begun is ended.
    """

    equations: Equations
    prior: Whitened
    rng: np.random.Generator
    enough: float
    most_evaluations: int = MOST_EVALUATIONS

    def run(self) -> End:
        """The best end; `most_evaluations` times O(n^3)."""
        first = (End(float(np.linalg.norm(self.equations.residual(x))), x) for x in self._candidates())
        starts = sorted(first, key=lambda end: end.norm)[:N_FIRST]
        pool = sorted((self._descended(end.x, end) for end in starts), key=lambda end: end.norm)[:N_POOL]
        slopes: list[Linearised | None] = [None] * len(pool)
        while pool[0].norm > self.enough and self.equations.n_evaluations < self.most_evaluations:
            place = int(self.rng.integers(len(pool))) if self.rng.random() < 0.5 else 0
            own = pool[place]
            slope = slopes[place] or Linearised.at(self.equations, self.prior, own.x, max(SHARES[0] * own.norm, 1e-12))
            slopes[place] = slope
            found = self._descended(self._moved(own, slope), own)
            if not found.norm < 0.999 * own.norm:
                pool[place] = own._replace(scale=max(0.95 * own.scale, 0.05))
                continue
            while self.enough < found.norm < CLOSE:
                nearer = self._descended(found.x, found)
                if not nearer.norm < 0.5 * found.norm:
                    break
                found = nearer
            pool[place], slopes[place] = found._replace(scale=min(1.3 * own.scale, 2.0)), None
            order = np.argsort([end.norm for end in pool], kind="stable")
            pool, slopes = [pool[i] for i in order], [slopes[i] for i in order]
        return pool[0]

    def _candidates(self) -> list[np.ndarray]:
        release, prior, rng = self.equations.release, self.prior, self.rng
        placed = release.vectors.T * np.sqrt(release.values)
        order = np.argsort(((placed[1:] - placed[0]) ** 2).sum(axis=1), kind="stable")
        near = np.where(prior.is_held, prior.mean, self.equations.known[order[:NEAREST]])
        found = [prior.mean, *(0.9 * near[:N_NEAR] + 0.1 * prior.mean)]
        for _ in range(N_BETWEEN):
            few = near[rng.choice(len(near), min(len(near), 3), replace=False)]
            found.append(rng.dirichlet(np.ones(len(few))) @ few + 0.1 * prior.draw(rng))
        return found + [prior.mean + prior.draw(rng) for _ in range(N_DRAWN)]

    def _moved(self, own: End, slope: Linearised) -> np.ndarray:
        """A record to go on from an end with: most often that of several of which a step promises most."""
        rng = self.rng
        if rng.random() < MIRRORED:
            moved = self._mirrored(own.x)
        else:
            moved = [self._nudged(own, slope) for _ in range(N_MOVED)]
        order = np.argsort([slope.promise(self.equations, self.prior, x) for x in moved], kind="stable")
        return moved[order[0 if rng.random() < 0.6 else min(len(moved) - 1, int(rng.integers(1, 4)))]]

    def _mirrored(self, x: np.ndarray) -> list[np.ndarray]:
        rng, middle = self.rng, self.equations.known.mean(axis=0)
        free = np.flatnonzero(~self.prior.is_held)
        found, singles = [], rng.permutation(free)
        for i in range(N_MIRRORED):
            few = min(len(free), 1 + int(rng.geometric(0.6)))
            is_single = i < len(singles) and rng.random() < 0.7
            chosen = singles[[i]] if is_single else rng.choice(free, few, replace=False)
            found.append(x.copy())
            found[-1][chosen] = 2 * middle[chosen] - x[chosen]
        return found

    def _nudged(self, own: End, slope: Linearised) -> np.ndarray:
        rng, prior, x = self.rng, self.prior, own.x
        scale, move = own.scale * np.exp(0.7 * rng.standard_normal()), rng.choice(MOVES)
        if move == "posterior":
            # Noise of three times as much leaves about that much more open.
            return x + 3 * scale * prior.factor @ (slope.root @ rng.standard_normal(len(slope.root)))
        if move == "features":
            unit = np.sqrt((prior.factor**2).sum(axis=1))
            return x + scale * unit * rng.standard_normal(len(x)) * (rng.random(len(x)) < max(2 / len(x), 0.1))
        if move == "known":
            other = self.equations.known[rng.integers(len(self.equations.known))]
            return x + min(scale, 1.0) * np.where(prior.is_held, 0, other - x)
        return x + 0.3 * scale * prior.draw(rng)

    def _descended(self, x: np.ndarray, own: End) -> End:
        """Steps of Gauss and Newton from a record (d,), with noise as of an end; the best one on their way.

        Source: Marquardt (1963), but that some steps may make the fit worse, because they lead across a jump; these are
        no longer than half a standard deviation of the prior in any of its directions.
        """
        equations, prior, rng = self.equations, self.prior, self.rng
        noise = max(own.norm * rng.choice(SHARES), self.enough / np.sqrt(equations.release.vectors.size), 1e-14)
        least, eased, patience = rng.choice(LEASTS), rng.choice(EASED), int(rng.choice(PATIENCE))

        def cost_of(left: np.ndarray, u: np.ndarray) -> float:
            return float(left @ left / noise**2 + u @ u)

        u = prior.unit(x)
        left, slope = equations.linearised(prior.record(u))
        cost, damping, waited = cost_of(left, u), 1e-2, 0
        best = cost, u, left
        for _ in range(STEPS):
            if not np.isfinite(cost) or np.linalg.norm(left) <= self.enough:
                break
            slope = slope @ prior.factor / noise
            pull, normal = slope.T @ left / noise + u, slope.T @ slope + np.eye(len(u))
            is_lower = False
            for _ in range(3):
                new = u + damped_step(normal, pull, damping)
                is_lower = cost_of(equations.residual(prior.record(new)), new) < 0.999 * cost
                if is_lower:
                    break
                damping = max(10 * damping, 1e-2)
            if is_lower:
                damping = max(damping / eased, least)
            else:
                waited += 1
                if waited > patience:
                    break
                damping = max(least, 1e-6 if least > 1e-12 else 0.0)
                step = damped_step(normal, pull, damping)
                new = u + step * min(1.0, 0.5 / max(np.abs(step).max(), TINY))
            u = new
            left, slope = equations.linearised(prior.record(u))
            cost = cost_of(left, u)
            if cost < best[0]:
                best = cost, u, left
        return End(float(np.linalg.norm(best[2])), prior.record(best[1]), own.scale)


def _settled(equations: Equations, prior: Whitened, x: np.ndarray, noise: float) -> tuple[np.ndarray, Linearised]:
    """The likeliest record near one of which rounding explains what is left, and the slope there."""
    u, best = prior.unit(x), (np.inf, x, Linearised.at(equations, prior, x, noise))
    for _ in range(LAST_STEPS):
        left, slope = equations.linearised(prior.record(u))
        own = Linearised.of(slope, prior, noise)
        cost = float(left @ left / noise**2 + u @ u)
        if cost < best[0]:
            best = cost, prior.record(u), own
        u = u - own.covariance @ (own.jacobian.T @ left / noise + u)
    return best[1:]


class Found(NamedTuple):
    """Targets of m releases.

    Attributes:
        x: (m, d); nan where a release is not usable, or all known records are alike.
        variance: (m, d) that is left of each feature.
        residual: (m,), norm of what is left of the equations over the largest eigenvalue; inf where not usable.
        is_certified: (m,), whether rounding of the release explains it.
    """

    x: np.ndarray
    variance: np.ndarray
    residual: np.ndarray
    is_certified: np.ndarray


def recover(
    seed: int,
    pipeline: Pipeline,
    known: np.ndarray,
    coords: Array,
    prior: GaussianPrior,
    *,
    precision: float | None = None,
    most_evaluations: int = MOST_EVALUATIONS,
) -> Found:
    """The records of which Isomap behind steps makes the releases, the known records moving with each.

    At most `most_evaluations` of O(n^3) a target, some seconds to half a minute on one core at n = 200; targets are
    spread over the cores. O(n q e) bytes for e edges.

    Args:
        seed: Seed of the search; the same for every release, whichever others there are.
        pipeline: Isomap behind steps.
        known: (n-1, d), float64.
        coords: (m, n, k) releases with the steps after the method undone, target in row 0.
        prior: What the record may be.
        precision: Largest error of a published coordinate; that of the dtype of coords if None.
        most_evaluations: Times that the residual of a release is computed, at most.

    Raises:
        ValueError: coords of another shape, or no numbers.
    """
    n, (m, d) = len(known) + 1, (len(coords), known.shape[1])
    release = releases.checked("coords", coords, n)
    precision = releases.rounding(np.asarray(coords), release) if precision is None else precision
    is_finite = np.asarray(np.isfinite(release).all(axis=(1, 2)))
    theta = releases.centred(np.where(is_finite[:, None, None], release, 0))
    found = Found(np.full((m, d), np.nan), np.full((m, d), np.nan), np.full(m, np.inf), np.zeros(m, bool))
    held = is_held(pipeline, known)
    if held.all():
        return found
    whitened = Whitened.of(prior, held, known[0])

    def work(part: slice) -> None:
        for lane in range(part.start, part.stop):
            pairs = releases.eigenpairs(theta[lane], precision)
            if pairs is None or not is_finite[lane]:
                continue
            equations = Equations(pipeline, known, pairs)
            size = float(np.linalg.norm(equations.paths(whitened.mean) ** 2)) / 2
            enough = releases.explained_by_rounding(pairs.values, precision, size, n) / pairs.values.max()
            end = Search(equations, whitened, np.random.default_rng(seed), enough, most_evaluations).run()
            certified = end.norm <= enough
            if certified and enough <= TELLING:
                x, slope = _settled(equations, whitened, end.x, enough / (ROUNDED * np.sqrt(pairs.vectors.size)))
            else:
                x, slope = end.x, Linearised.at(equations, whitened, end.x, FAR_OFF * end.norm)
            found.x[lane], found.residual[lane], found.is_certified[lane] = x, end.norm, certified
            found.variance[lane] = np.sum((whitened.factor @ slope.root) ** 2, axis=1)

    with blas().limit(limits=1, user_api="blas"):
        host.spread(work, m, size=1)
    return found


def _undone(pipeline: Pipeline, threat: EmbeddingThreat) -> tuple[np.ndarray, float]:
    """Releases (m, n, k) with the steps after the method undone, and the largest error of a coordinate there."""
    coords = threat.coords.astype(np.float64)
    precision = releases.rounding(threat.coords, coords) if threat.precision is None else threat.precision
    if not pipeline.after:
        return coords, precision
    with jax.enable_x64(True):
        undone = np.asarray(jax.vmap(pipeline.undone)(coords))
    largest, of_published = (np.abs(one[np.isfinite(one)]).max(initial=0.0) for one in (undone, coords))
    return undone, float(precision * largest / max(of_published, TINY))


@dataclass(frozen=True, kw_only=True)
class MovingGeodesics(EmbeddingAttack):
    """Isomap behind steps that see all records, solved for the target; see `recover`."""

    name: str = "moving-geodesics"
    label: str = "Geodesics, known records moving"
    description: str = (
        "Searches for the record with which the published components are eigenvectors of the shortest paths, the "
        "scaling of all records recomputed for every candidate."
    )
    why: str = (
        "The published components are eigenvectors of the shortest paths, and a scaling by all records changes every "
        "path with the target: only the true record makes the components fit."
    )

    def suits(self, method: DRMethod, *, seed_known: bool) -> str | None:
        """See `EmbeddingAttack`."""
        del seed_known
        if not isinstance(method, Pipeline) or not isinstance(method.method, Isomap) or method.is_updated:
            return "is of Isomap behind steps that see all records"
        return None if all(step.keeps_shape for step in method.after) else "needs maps that keep their shape"

    def cost(self, threat: EmbeddingThreat) -> Cost:
        """See `Attack`."""
        n, d = len(threat.known) + 1, threat.known.shape[1]
        k = threat.coords.shape[2]
        # Shortest paths go at a third of the speed of matrix products.
        flops = MOST_EVALUATIONS * (3.0 * n**3 + 40.0 * n**2 + 4.0 * n * k * d**2)
        n_bytes = 8.0 * ((8 + 4 * k) * n**2 + 16 * n * d + 4 * d**2)
        return Cost(threat.n_releases * flops / DENSE_FLOPS, n_bytes)

    def run(self, key: Array, threat: EmbeddingThreat) -> Reconstruction:
        """See `Attack`."""
        pipeline, prior = threat.method, GaussianPrior.fit(threat.expected_of)
        assert isinstance(pipeline, Pipeline)
        coords, precision = _undone(pipeline, threat)
        seed = int(jax.random.bits(key))
        # The releases are of the records as they are rounded for it.
        known = threat.known.astype(threat.dtype).astype(np.float64)
        found = recover(seed, pipeline, known, coords, prior, precision=precision)
        x = found.x if threat.bounds is None else np.clip(found.x, *threat.bounds)
        status = np.where(found.is_certified, np.uint32(Status.OK), np.uint32(Status.UNCERTIFIED))
        status = np.where(np.isfinite(found.residual), status, np.uint32(Status.NON_FINITE))
        expected, norm = found.variance.mean(axis=1), np.sqrt(found.variance.sum(axis=1))
        facts = {"n_certified": int(found.is_certified.sum())}
        own = Reconstruction(x, None, x[:, None], norm, status, expected, facts=facts, feature_mse=found.variance)
        is_lost = (status == Status.UNCERTIFIED) & ~(threat.open_share(own) < MOSTLY_OPEN)
        status = np.where(is_lost, np.uint32(Status.NOT_CONVERGED), status).astype(np.uint32)
        return threat.guessed(own._replace(status=status), is_lost)
