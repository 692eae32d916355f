"""Classical multidimensional scaling of a few landmarks, among which all other records are placed."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from drjax.core import host
from drjax.core.linalg import blas, on_device
from drjax.core.types import Array, Cost, Embedding, hyperparams
from drjax.dr import base, landmarks, metrics, principal


class LandmarkMDSShared(NamedTuple):
    """What all shadows share: nothing of it depends on the target.

    Attributes:
        landmarks: (q, d), over unit.
        unit: (), a power of two.
        frame: Their classical scaling.
        places: (n-1, k), of all known records, about the landmarks' mean, over unit.
    """

    landmarks: Array
    unit: Array
    frame: landmarks.Frame
    places: Array


@hyperparams
class LandmarkMDS:
    """Classical scaling of landmarks; every other record is put where its distances to them say, by a linear formula.

    Deterministic. In time O(n q (d + k)) and memory O(n q) for n records and q landmarks, so that records may be many.
    Landmarks are the rows at fixed places that look random and depend on the number of records alone (see
    `dr.landmarks.positions`). Row 0, the target's, is never one: known records are placed without the target, which
    moves their coordinates by the final centring and turning to principal axes alone. Its own coordinates follow from
    its squared distances to the landmarks, k equations about it; what the landmarks' k dimensions leave out is lost.

    With all other records as landmarks and no more dimensions than k it is PCA, up to signs. Each column's largest
    |coordinate| is positive. Nothing is minimised over all records: the objective is nan. Derivatives are those of
    all steps, in both modes.

    Attributes:
        n_components: Output dimension k, 1 <= k <= n.
        n_landmarks: Number of landmarks q >= k; all other records where these are fewer.
        metric: Metric of the records: "euclidean", "cosine", "manhattan" or "correlation".

    Source: de Silva & Tenenbaum (2004), Sparse multidimensional scaling using landmark points.

    Example:
        >>> import drjax, jax
        >>> x = drjax.load("digits").x[:60]
        >>> drjax.LandmarkMDS(n_landmarks=20).fit_transform(jax.random.key(0), x).coords.shape
        (60, 2)
    """

    name: ClassVar[str] = "landmark_mds"
    title = "landmark multidimensional scaling"
    minimises = None
    deterministic = True
    repeatable = True
    stationary = False
    n_components: int = 2
    n_landmarks: int = 100
    metric: str = metrics.EUCLIDEAN

    def __post_init__(self) -> None:
        landmarks.check(self.n_components, self.n_landmarks)
        metrics.check(self.metric)

    @property
    def unit(self) -> str | None:
        """That of the distances: none for a metric of directions."""
        return metrics.unit(self.metric)

    def cost(self, n: int, d: int, *, itemsize: int = 4) -> Cost:
        """What shadows take: distances to the landmarks once, then one row of them and a turn of all coordinates."""
        k, q = self.n_components, min(self.n_landmarks, n)
        return Cost(
            shared_flops=3.0 * n * q * (d + k) + 10.0 * q**3,
            shared_bytes=(8.0 + 2 * itemsize) * n * (d + k) + 16.0 * q * (q + d),
            flops=3.0 * q * (d + k) + 4.0 * n * k * (k + 2),
            bytes=itemsize * (6.0 * n * k + q),
        )

    def fit_transform(self, key: Array, x: Array) -> Embedding:
        """Embeds x (n, d), n >= 2; coords (n, k) in the units of the distances. Row 0 is no landmark.

        Raises:
            ValueError: at trace time, if x has not rank 2, n < 2 or k > n.
        """
        del key
        x = base.records(x)
        landmarks.check_size(x.shape[0], self.n_components)
        chosen = x[landmarks.positions(x.shape[0], self.n_landmarks)]
        unit = self._unit(chosen)
        squares = metrics.squared_to_known(self.metric, x / unit, chosen / unit)
        own = squares[landmarks.positions(x.shape[0], self.n_landmarks)]
        is_finite = jnp.all(jnp.isfinite(own))
        frame = landmarks.frame(jnp.where(is_finite, own, 0), self.n_components)
        places = jnp.where(is_finite, landmarks.placed(frame, squares), jnp.nan)
        return landmarks.aligned(frame, places, unit)

    def objective(self, coords: Array, x: Array) -> Array:
        """nan: nothing is minimised over all records; ()."""
        del x
        return jnp.full((), jnp.nan, coords.dtype)

    def prepare(self, known: Array, *, shared_key: Array | None = None) -> LandmarkMDSShared:
        """Landmarks among known (n-1, d), and the places of all; host, float64, O(n q (d + k) + q^3).

        Raises:
            ValueError: known is not a finite numeric matrix, or k > n.
        """
        del shared_key
        array = base.known_records(known)
        dtype = array.dtype
        landmarks.check_size(len(array) + 1, self.n_components)
        chosen = array[landmarks.positions(len(array) + 1, self.n_landmarks) - 1]
        unit = np.asarray(self._unit(chosen))
        chosen = chosen / unit
        of_landmarks = metrics.prepared(self.metric, chosen)
        with blas().limit(limits=1, user_api="blas"):
            squares = metrics.apart(self.metric, of_landmarks, of_landmarks) ** 2
            frame = landmarks.frame_on_host(squares, self.n_components)
            places = np.empty((len(array), self.n_components))

            def fill(part: slice) -> None:
                rows = metrics.prepared(self.metric, array[part] / unit)
                places[part] = landmarks.placed(frame, metrics.apart(self.metric, rows, of_landmarks) ** 2)

            host.spread(fill, len(array))
        return jax.tree.map(lambda leaf: on_device(leaf, dtype), LandmarkMDSShared(chosen, unit, frame, places))

    def insert(self, key: Array, shared: LandmarkMDSShared, target: Array) -> Embedding:
        """The embedding of [target; known] for target (d,): `fit_transform` of the n records up to rounding.

        Raises:
            ValueError: at trace time, if target has not the shape (d,).
        """
        return base.insert(self, key, shared, target)

    def insert_batch(self, keys: Array, shared: LandmarkMDSShared, targets: Array) -> Embedding:
        """`insert` for targets (b, d); O(q d + n k^2) each."""
        del keys
        base.check_targets(targets, shared.landmarks.shape[1])
        scaled = jnp.asarray(targets, shared.landmarks.dtype) / shared.unit
        squares = metrics.squared_to_known(self.metric, scaled, shared.landmarks)
        own = landmarks.placed(shared.frame, squares)

        def one(place: Array) -> Embedding:
            return landmarks.aligned(shared.frame, jnp.concatenate([place[None], shared.places]), shared.unit)

        return jax.vmap(one)(own)

    def _unit(self, chosen: Array) -> Array:
        """What records are divided by, from the landmarks; 1 where the metric does it."""
        return principal.power_of_two(chosen) if self.unit is not None else jnp.ones((), chosen.dtype)
