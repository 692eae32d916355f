"""Whether a map is at rest with an answer in the target's place.

A map by MDS, t-SNE or UMAP ends where the forces on its points all but vanish. What is left of them on the known
records, whatever the reason, says how large they are in this map; the target's own must be alike. And what a wrong
answer does to a known record is a pull or push in the target's direction: forces on known records must not be larger
along it than across it. Both compare forces of one map, so that nothing is calibrated and no release is made.

This refuses records that the map contradicts. It says nothing of what a map does not show, such as features of small
units, and a likeness of the target passes where the map is as much at rest with it.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from drjax.attacks.attack import EmbeddingThreat
from drjax.attacks.recognition import umap as umap_forces
from drjax.attacks.recognition.inputs import Input, distances
from drjax.attacks.recognition.tsne_forces import attraction
from drjax.attacks.recognition.umap_graph import weights
from drjax.attacks.reconstruction import barnes_hut
from drjax.attacks.reconstruction.stationarity import guttman
from drjax.core.types import Array, DRMethod, Reconstruction, Status
from drjax.dr import MDS, TSNE, UMAP, Pipeline, metrics

OWN, OWN_OF_UMAP = 25.0, 4.0
"""Most force on the target over the median force on a known record. Of the true records in 480 maps of three tables and
digits one has more (29), and none by UMAP (3.1), whose last steps are noise; of other records half are over 67, and
11 by UMAP."""

ALONG = 2.0
"""Most median force along the target's direction over that across it; three true records have a little more."""


class Rest(NamedTuple):
    """Forces of a map with an answer in the target's place.

    Attributes:
        own: Force on the target over the median force on a known record.
        along: Median force on known records along the target's direction over that across it.
        is_at_rest: Whether both are as small as with the true record.
    """

    own: float
    along: float
    is_at_rest: bool


def can_tell(method: DRMethod) -> bool:
    """Whether `of_map` takes maps of a method; in one dimension nothing is across, and wrong records pass."""
    if isinstance(method, Pipeline):
        return can_tell(method.method) and all(step.keeps_shape for step in method.after)
    return isinstance(method, MDS | TSNE | UMAP) and method.n_components > 1


def of_map(method: DRMethod, known: Array, coords: Array, x: Array) -> Rest:
    """The forces of one map under the distances of an answer; O(n^2 (d + k)), some 20 ms at n = 200.

    Args:
        method: Method that `can_tell` takes.
        known: (n-1, d).
        coords: (n, k), target in row 0; finite.
        x: (d,), answer.
    """
    records = np.concatenate([np.asarray(x, np.float64)[None], np.asarray(known, np.float64)])
    released = np.asarray(coords, np.float64)
    if isinstance(method, Pipeline):
        with jax.enable_x64(True):
            records, released = (np.asarray(one) for one in (method.prepared(records), method.undone(released)))
        method = method.method
    released = np.ascontiguousarray(released - released.mean(axis=0))
    force = _forces(method, records, released)
    toward = released[1:] - released[0]
    toward /= np.maximum(np.linalg.norm(toward, axis=1, keepdims=True), np.finfo(np.float64).tiny)
    along = (force[1:] * toward).sum(axis=1)
    across = np.linalg.norm(force[1:] - along[:, None] * toward, axis=1)
    own, on_known = np.linalg.norm(force[0]), np.median(np.linalg.norm(force[1:], axis=1))
    ratios = float(_ratio(own, on_known)), float(_ratio(np.median(np.abs(along)), np.median(across)))
    limit = OWN_OF_UMAP if isinstance(method, UMAP) else OWN
    return Rest(*ratios, ratios[0] <= limit and ratios[1] <= ALONG)


def checked(threat: EmbeddingThreat, found: Reconstruction) -> Reconstruction:
    """A reconstruction with the status that `of_map` tells; one map is about as much work as ten steps of a descent.

    Where the map is at rest with an answer that was NOT_CONVERGED, it is OK. Where it is not, an answer that was OK is
    UNCERTIFIED, and the error of one that was NOT_CONVERGED is expected to have no bound.
    """
    if not can_tell(threat.method) or threat.hidden is not None:
        return found
    status, residual = np.array(found.status, np.uint32), np.array(found.residual_norm, np.float64)
    expected = None if found.expected_mse is None else np.array(found.expected_mse, np.float64)
    doubtful = np.isin(status, (np.uint32(Status.OK), np.uint32(Status.NOT_CONVERGED)))
    for lane in np.flatnonzero(doubtful & np.isfinite(found.x).all(axis=1)):
        if of_map(threat.method, threat.known, threat.coords[lane], found.x[lane]).is_at_rest:
            status[lane] = np.uint32(Status.OK)
        elif status[lane] == Status.OK:
            status[lane] = np.uint32(Status.UNCERTIFIED)
        else:
            residual[lane] = np.inf
            if expected is not None:
                expected[lane] = np.inf
    return found._replace(status=status, residual_norm=residual, expected_mse=expected)


def _ratio(a: np.floating, b: np.floating) -> np.floating:
    return a / np.maximum(b, np.finfo(np.float64).tiny)


def _forces(method: DRMethod, records: np.ndarray, coords: np.ndarray) -> np.ndarray:
    """Forces (n, k), of UMAP over the root of what holds each point."""
    metric = metrics.of(method)
    given = Input((), metric, distances(records, metric))
    if isinstance(method, TSNE):
        return _of_tsne(given, float(method.perplexity), coords)
    if isinstance(method, UMAP):
        return _of_umap(given, method, coords)
    return guttman.transform(coords, given.between) - coords


def _of_tsne(given: Input, perplexity: float, coords: np.ndarray) -> np.ndarray:
    """Attraction less repulsion, of the algorithm with which the known records are most at rest; less the growth of
    the whole map, which goes on for as long as it is iterated."""
    n, k = coords.shape
    pushes = [barnes_hut.repulsion(coords, angle=0)] + ([barnes_hut.repulsion(coords)] if k <= 3 else [])
    ways = []
    for n_kept in {n - 1, min(n - 1, int(3 * perplexity + 1))}:
        pull = attraction(given.ordered, given.order, perplexity, n_kept, coords)
        for push in pushes:
            left = pull - push
            growth = min(float((left[1:] * coords[1:]).sum() / (coords[1:] ** 2).sum()), 0.0)
            ways.append(left - growth * coords)
    return min(ways, key=lambda one: float(np.median(np.linalg.norm(one[1:], axis=1))))


def _of_umap(given: Input, method: UMAP, coords: np.ndarray) -> np.ndarray:
    """Mean forces over the root of each point's stiffness: noise moves a stiff point little, and takes much force."""
    graph = weights(given.ordered, given.order, method.n_neighbors)
    pairs = umap_forces.pairs_of(coords, method.min_dist)
    pull = 2 * np.einsum("ij,ijk->ik", graph, pairs.pull)
    rate = method.negative_sample_rate * method.repulsion_strength / len(graph)
    push = rate * graph.sum(axis=1)[:, None] * pairs.push
    springs = 2 * (graph * pairs.stiffness).sum(axis=1)
    return (pull - push) / np.sqrt(springs + umap_forces.RIDGE * springs.mean())[:, None]
