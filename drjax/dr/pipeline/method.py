"""A method behind steps: records are scaled or projected first, coordinates scaled or rounded after."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from drjax.core import validate
from drjax.core.linalg import HIGHEST, compute_dtype, on_device, sign_and_margin
from drjax.core.types import Array, Cost, DRMethod, Embedding, PyTree, hyperparams, traced
from drjax.dr import base
from drjax.dr.pca.method import PCA, embedding_of
from drjax.dr.pipeline import scaled
from drjax.dr.pipeline.after import AfterStep
from drjax.dr.pipeline.steps import Scaler, Step


class PipelineShared(NamedTuple):
    """What all shadows share.

    Attributes:
        own: What the method shares, of prepared records; or what its update behind a scaler does. None where steps move
            all records with the target, so that each shadow is a fit.
        known: (n-1, d), where each shadow is a fit; after the steps that look at one record at a time.
        key: The method's, where its seed is known and each shadow is a fit.
    """

    own: PyTree
    known: Array | None
    key: Array | None


@hyperparams
class Pipeline:
    """A method with steps before and after it; a method itself, so that all that takes methods takes it.

    `insert` is exact: it equals `fit_transform` of the n records up to rounding, although the known records move with
    the target behind most steps. Where all steps before look at one record at a time it costs what the method's own
    does; PCA behind a scaler takes some block iterations, O(d (n + r) k) each; elsewhere it is a fit.

    Attributes:
        before: Steps on records, in their order, of `drjax.dr.pipeline.steps.STEPS`.
        method: The method.
        after: Steps on coordinates, in their order, of `drjax.dr.pipeline.after.AFTER`.

    Raises:
        ValueError: steps of another kind, or no DR method.

    Example:
        >>> import drjax, jax
        >>> x = drjax.load("digits").x[:60]
        >>> method = drjax.Pipeline(before=(drjax.dr.Standardise(),), method=drjax.PCA())
        >>> method.fit_transform(jax.random.key(0), x).coords.shape
        (60, 2)
    """

    before: tuple[Step, ...] = traced(default=())
    method: DRMethod = traced()
    after: tuple[AfterStep, ...] = traced(default=())

    def __post_init__(self) -> None:
        for steps, kind, name in ((self.before, Step, "before"), (self.after, AfterStep, "after")):
            if validate.is_abstract(steps):
                continue
            if not isinstance(steps, tuple) or not all(isinstance(s, kind) or validate.is_abstract(s) for s in steps):
                raise ValueError(f"{name} must be a tuple of {kind.__name__}, got {steps!r}")
        if not validate.is_abstract(self.method) and not hasattr(self.method, "fit_transform"):
            raise ValueError(f"method must be a DR method, got {self.method!r}")

    if TYPE_CHECKING:
        name: ClassVar[str]
    else:

        @property
        def name(self) -> str:
            """The method's; a class variable of other methods."""
            return self.method.name

    @property
    def title(self) -> str:
        """The method's, and what becomes of records before it."""
        of = " of ".join(step.title for step in reversed(self.before))
        after = "".join(f", {step.title}" for step in self.after)
        return f"{self.method.title}{' of ' + of if of else ''}{after}"

    @property
    def unit(self) -> str | None:
        """The method's, where no step changes what distances are measured in."""
        kept = all(step.keeps_unit for step in (*self.before, *self.after))
        return self.method.unit if kept else None

    @property
    def minimises(self) -> str | None:
        """What the method minimises; None where a step after it distorts the map."""
        return self.method.minimises if all(step.keeps_shape for step in self.after) else None

    @property
    def n_components(self) -> int:
        """The method's."""
        return self.method.n_components

    @property
    def deterministic(self) -> bool:
        """The method's: steps draw nothing."""
        return self.method.deterministic

    @property
    def repeatable(self) -> bool:
        """The method's, where steps are known to their digits: their derivatives are of use, and rounding is noise."""
        return self.method.repeatable and all(step.is_told for step in self.after)

    @property
    def stationary(self) -> bool:
        """The method's, where steps after it keep the map's shape."""
        return self.method.stationary and all(step.keeps_shape for step in self.after)

    @property
    def is_updated(self) -> bool:
        """Whether the method's own update serves: no step before it moves known records with the target."""
        return all(step.per_record for step in self.before)

    @property
    def scaler(self) -> Scaler | None:
        """The last scaler before a PCA, where nothing but scalers stands between it and steps on single records.

        A scaler before another is undone by it.
        """
        own = self._own_steps
        is_scaled = isinstance(self.method, PCA) and own and all(isinstance(step, Scaler) for step in own)
        return own[-1] if is_scaled else None

    @property
    def _single(self) -> tuple[Step, ...]:
        """Leading steps that look at one record at a time."""
        n = next((i for i, step in enumerate(self.before) if not step.per_record), len(self.before))
        return self.before[:n]

    @property
    def _own_steps(self) -> tuple[Any, ...]:
        """The steps from the first on that sees all records."""
        return self.before[len(self._single) :]

    def cost(self, n: int, d: int, *, itemsize: int = 4) -> Cost:
        """What shadows take; see `DRMethod.cost`."""
        width = d
        for step in self.before:
            width = step.width(width, n)
        own = self.method.cost(n, width, itemsize=itemsize)
        if self.is_updated:
            return own
        records = float(itemsize) * n * max(d, width)
        steps = sum(2.0 * n * d * min(n, d) if not step.per_feature else 8.0 * n * d for step in self._own_steps)
        if self.scaler is not None and scaled.serves(n - 1, d, self.n_components):
            k, r = self.n_components, min(n - 1, d)
            iteration = 4.0 * k * d * (min(r, d / 2) + min(r, scaled.N_LEADING))
            return own._replace(flops=8 * iteration + 4.0 * n * d * k, bytes=itemsize * 20.0 * (k + scaled.GUARD) * d)
        return Cost(0.0, 2 * records, own.shared_flops + own.flops + steps, own.shared_bytes + own.bytes + 3 * records)

    def prepared(self, x: Array) -> jax.Array:
        """The records x (n, d) as the method gets them, (n, d'); pure.

        Raises:
            ValueError: at trace time, if x has not rank 2 or fewer than two rows.
        """
        return self._through(self.before, base.records(x))

    def published(self, coords: Array) -> Array:
        """The method's coordinates (n, k) as they are published; pure."""
        for step in self.after:
            coords = step.apply(coords)
        return coords

    def undone(self, coords: Array) -> Array:
        """Published coordinates (n, k) as they were before the steps after the method, up to what these took."""
        for step in reversed(self.after):
            coords = step.undo(coords)
        return coords

    def fit_transform(self, key: Array, x: Array) -> Embedding:
        """Embeds x (n, d), n >= 2; objective and diagnostics are the method's, before the steps after it.

        Raises:
            ValueError: at trace time, if x has not rank 2 or two rows, or the method refuses what steps make of it.
        """
        return self._released(self.method.fit_transform(key, self.prepared(x)))

    def objective(self, coords: Array, x: Array) -> Array:
        """What the method minimises, at published coords (n, k) for records x (n, d); (), nan where nothing is."""
        if self.minimises is None:
            return jnp.full((), jnp.nan, compute_dtype(x))
        return self.method.objective(self.undone(coords), self.prepared(x))

    def prepare(self, known: Array, *, shared_key: Array | None = None) -> PipelineShared:
        """What shadows share of the known records (n-1, d); host, float64.

        Raises:
            ValueError: known is not a finite numeric matrix, or n records do not fit the method.
        """
        array = validate.matrix(known, "known")
        n, dtype = len(array) + 1, compute_dtype(array)
        spec = jax.ShapeDtypeStruct((n, array.shape[1]), dtype)
        jax.eval_shape(self.fit_transform, jax.random.key(0), spec)
        array = self._on_host(array)
        if self.is_updated:
            return PipelineShared(self.method.prepare(array.astype(dtype), shared_key=shared_key), None, None)
        scaler = self.scaler
        if scaler is not None and scaled.serves(len(array), array.shape[1], self.n_components):
            return PipelineShared(scaled.prepare(scaler, array, dtype), None, None)
        return PipelineShared(None, on_device(array, dtype), shared_key)

    def insert(self, key: Array, shared: PipelineShared, target: Array) -> Embedding:
        """The embedding of [target; known] for target (d,): `fit_transform` of the n records up to rounding.

        Raises:
            ValueError: at trace time, if target has not the shape (d,).
        """
        return base.insert(self, key, shared, target)

    def insert_batch(self, keys: Array, shared: PipelineShared, targets: Array) -> Embedding:
        """`insert` for keys (b,) and targets (b, d)."""
        targets = jax.vmap(self._one)(jnp.asarray(targets))
        if shared.own is None:
            return self._fits(keys, shared, targets)
        if self.is_updated:
            own = self.method.insert_batch(keys, shared.own, targets)
        else:
            own = self._updated(shared.own, targets)
        return jax.vmap(self._released)(own)

    def _one(self, target: Array) -> Array:
        """A target (d,) after the steps that look at one record at a time."""
        return self._through(self._single, jnp.asarray(target, compute_dtype(target))[None])[0]

    def _fits(self, keys: Array, shared: PipelineShared, targets: Array) -> Embedding:
        """A fit for each of targets (b, d), which are behind the steps on single records as the known ones are."""
        known = shared.known
        assert known is not None
        base.check_targets(targets, known.shape[1])

        def fit(key: Array, target: Array) -> Embedding:
            x = jnp.concatenate([jnp.asarray(target, known.dtype)[None], known])
            x = self._through(self._own_steps, x)
            return self._released(self.method.fit_transform(key if shared.key is None else shared.key, x))

        return jax.vmap(fit)(keys, targets)

    def _updated(self, shared: scaled.ScaledShared, targets: Array) -> Embedding:
        """PCA of [target; known] for targets (b, d) behind the scaler."""
        base.check_targets(targets, shared.mean.shape[0])
        scaler, k, n = self.scaler, self.n_components, shared.centred.shape[0] + 1
        assert scaler is not None
        found = scaled.leading(scaler, shared, targets, k)
        vectors = found.vectors[:, :k]
        sign, margin = sign_and_margin(vectors)
        vectors = vectors * sign[..., None]
        along = jnp.einsum("bkd,bd->bk", vectors, found.target, precision=HIGHEST)
        rows = jnp.einsum("nd,bkd->bnk", shared.centred, vectors / found.scale[:, None], precision=HIGHEST)
        coords = jnp.concatenate([along[:, None] * (1 - 1 / n), rows - along[:, None] / n], axis=1)
        return jax.vmap(embedding_of)(
            coords,
            eigenvalues=found.values,
            scatter=found.scatter,
            gap=base.eigengap(found.values, k),
            margin=margin,
            converged=found.converged,
            n_iter=found.n_iter,
            flags=base.non_finite(coords),
        )

    def _released(self, own: Embedding) -> Embedding:
        coords = self.published(own.coords)
        return own._replace(coords=coords, status=own.status | base.non_finite(coords))

    def _on_host(self, known: np.ndarray) -> np.ndarray:
        """Known records in float64 after the steps that look at one record at a time."""
        array = known.astype(np.float64)
        if not self._single:
            return array
        with jax.enable_x64(True):
            return np.asarray(self._through(self._single, jnp.asarray(array)))

    def _through(self, steps: tuple[Step, ...], x: Array) -> jax.Array:
        found = jnp.asarray(x)
        for step in steps:
            found = jnp.asarray(step.apply(found))
        return found


def behind(method: DRMethod, *before: Step) -> DRMethod:
    """The method behind steps; the method itself behind none."""
    return Pipeline(before=before, method=method) if before else method
