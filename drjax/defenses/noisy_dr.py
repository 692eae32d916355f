"""Noise before the method, noise after it, and rounding: each wraps a DR method and is one.

None of the three has a privacy guarantee. No record's influence is bounded, so there is no sensitivity that the noise
could be measured against; what they do is measured by attacks, and a stronger attack may undo more of it.

A key is split into one for the noise and one for the method. A known seed (`prepare` with `shared_key`) is that of the
method alone: the noise stays fresh in every shadow, because that of a real release comes from the operating system and
is nowhere published. Noise whose seed is known can be subtracted and is no defence at all.
"""

from __future__ import annotations

import math
from numbers import Real
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from drjax.core import validate
from drjax.core.types import Array, Cost, DRMethod, Embedding, PyTree, hyperparams, traced
from drjax.dr import base


@hyperparams
class Defense:
    """What the defences share: size, objective and most of what a method says of itself are the wrapped method's.

    Attributes:
        name: Name on the command line and in records.
        action: What the defence does, in words.
        scale_field: Field that says how strong the defence is; at 0 it does nothing.
        scale_unit: What that field counts, in words.
        method: The wrapped method.

    Raises:
        ValueError: method is no DR method, or the scale not a finite number >= 0; a scale that is traced passes.

    Example:
        >>> import drjax
        >>> from drjax.defenses import Rounding
        >>> defended = Rounding(method=drjax.TSNE(), step=0.1)
        >>> defended.title, defended.scale_field
        ('t-SNE', 'step')
    """

    name: ClassVar[str]
    action: ClassVar[str]
    scale_field: ClassVar[str]
    scale_unit: ClassVar[str]
    repeatable = False
    """Noise is fresh although the method's seed is known, and rounding has no derivative of use."""

    method: DRMethod = traced()

    def __post_init__(self) -> None:
        """Checks method and scale."""
        if isinstance(self.method, type) or not hasattr(self.method, "fit_transform"):
            raise ValueError(f"method must be a DR method, got {self.method!r}")
        name, value = self.scale_field, getattr(self, self.scale_field)
        if validate.is_abstract(value):
            return
        is_number = isinstance(value, (Real, np.ndarray, jax.Array)) and not isinstance(value, bool)
        entries = np.asarray(value if is_number else math.nan)
        if entries.dtype.kind not in "fiu" or not ((entries >= 0) & (entries < math.inf)).all():
            raise ValueError(f"{name} must be a finite number >= 0, got {value!r}")
        if isinstance(value, Real):
            # Integers and floats would be two programs.
            object.__setattr__(self, name, float(value))

    @property
    def deterministic(self) -> bool:
        """False, unless a defence without noise says otherwise: noise depends on the key."""
        return False

    @property
    def title(self) -> str:
        """The wrapped method's."""
        return self.method.title

    @property
    def unit(self) -> str | None:
        """The wrapped method's."""
        return self.method.unit

    @property
    def minimises(self) -> str | None:
        """The wrapped method's."""
        return self.method.minimises

    @property
    def stationary(self) -> bool:
        """The wrapped method's: how far the defence moves a map from rest, an attack has to measure."""
        return self.method.stationary

    @property
    def n_components(self) -> int:
        """Output dimension k of the wrapped method."""
        return self.method.n_components

    def cost(self, n: int, d: int, *, itemsize: int = 4) -> Cost:
        """The wrapped method's; nothing of a method of a caller's own that does not say what it costs."""
        says = hasattr(self.method, "cost")
        return self.method.cost(n, d, itemsize=itemsize) if says else Cost(0.0, 0.0, 0.0, 0.0)

    def objective(self, coords: Array, x: Array) -> Array:
        """The wrapped method's, at coords (n, k) for the records x (n, d) themselves; ()."""
        return self.method.objective(coords, x)


@hyperparams
class AfterMethod(Defense):
    """A defence that changes the coordinates alone: all that the method shares between shadows stays shared.

    Example:
        >>> import drjax
        >>> from drjax.defenses import AfterMethod, InputNoise, Rounding
        >>> issubclass(Rounding, AfterMethod), issubclass(InputNoise, AfterMethod)
        (True, False)
    """

    def defended(self, key: Array, coords: Array) -> Array:
        """What is published for the coordinates (n, k); pure, with a key for noise."""
        raise NotImplementedError

    def worked_out(self, key: Array, coords: np.ndarray, published: np.ndarray) -> np.ndarray | None:
        """Places (n, k) that who knows those of all other records works out from what is published of all.

        Args:
            key: PRNG key, for what the places are off by.
            coords: (n, k) places before the defence; of record i no row but its own is hidden from who works out i.
            published: (n, k) places after it.

        Returns:
            None where nothing is nearer than the published places.
        """
        del key, coords, published

    def fit_transform(self, key: Array, x: Array) -> Embedding:
        """Embeds x (n, d), then defends the coordinates (n, k); objective and diagnostics are those before it."""
        own, inner = self._keys(key)
        return self._released(own, self.method.fit_transform(inner, x))

    def prepare(self, known: Array, *, shared_key: Array | None = None) -> PyTree:
        """What the wrapped method shares; a shared key is the seed of the method, not that of the noise."""
        return self.method.prepare(known, shared_key=shared_key)

    def insert(self, key: Array, shared: PyTree, target: Array) -> Embedding:
        """The defended embedding of [target; known]."""
        own, inner = self._keys(key)
        return self._released(own, self.method.insert(inner, shared, target))

    def insert_batch(self, keys: Array, shared: PyTree, targets: Array) -> Embedding:
        """`insert` for keys (b,) and targets (b, d), at the cost of the wrapped method's plus O(b n k)."""
        own, inner = jax.vmap(self._keys)(keys)
        return jax.vmap(self._released)(own, self.method.insert_batch(inner, shared, targets))

    def _keys(self, key: Array) -> tuple[Array, Array]:
        noise_key, method_key = jax.random.split(key)
        return noise_key, method_key

    def _released(self, key: Array, embedding: Embedding) -> Embedding:
        coords = self.defended(key, embedding.coords)
        return embedding._replace(coords=coords, status=embedding.status | base.non_finite(coords))


class NoisyShared(NamedTuple):
    """What shadows of `InputNoise` share: known (n-1, d) without noise, and the method's key if the seed is known."""

    known: Array
    method_key: Array | None


@hyperparams
class InputNoise(Defense):
    """Adds independent Gaussian noise to every feature of all n records, unclipped, then embeds them.

    Every known record is noised anew in every shadow, so shadows share no distances, graphs or decompositions:
    `insert` costs a whole `fit_transform` of the wrapped method plus n d normal deviates. For up to 500 records on a
    CPU that is at most some three times what preparing and inserting each shadow by itself would take.

    Attributes:
        method: The wrapped method.
        sigma: Standard deviation of the noise, >= 0, in units of the features: sigma / 255 on records in [0, 1] for
            the sigma of pixels from 0 to 255. Traced: a sweep compiles once.

    Source: Lumbut & Ponnoprat, "Investigating Privacy Leakage in Dimensionality Reduction Methods via Reconstruction
        Attack", equation 11.

    Example:
        >>> import drjax, jax
        >>> from drjax.defenses import InputNoise
        >>> x, method = drjax.load("digits").x[:60], drjax.PCA()
        >>> noisy = InputNoise(method=method, sigma=0.1).fit_transform(jax.random.key(0), x)
        >>> bool(abs(noisy.coords - method.fit_transform(jax.random.key(0), x).coords).max() > 0.01)
        True
    """

    name: ClassVar[str] = "input-noise"
    action: ClassVar[str] = "Gaussian noise on every feature of every record"
    scale_field: ClassVar[str] = "sigma"
    scale_unit: ClassVar[str] = "standard deviation of the noise, where every feature runs from 0 to 1"

    sigma: Any = traced(default=0.0)

    def cost(self, n: int, d: int, *, itemsize: int = 4) -> Cost:
        """What shadows take: nothing is shared but the records, so that each takes what the method shares and more."""
        own = super().cost(n, d, itemsize=itemsize)
        return Cost(0.0, 2.0 * itemsize * n * d, own.shared_flops + own.flops, own.shared_bytes + own.bytes)

    def fit_transform(self, key: Array, x: Array) -> Embedding:
        """Embeds x (n, d) plus noise; objective and diagnostics are those of the noisy records."""
        noise_key, method_key = jax.random.split(key)
        return self._fit(noise_key, method_key, x)

    def prepare(self, known: Array, *, shared_key: Array | None = None) -> NoisyShared:
        """Keeps the known records (n-1, d).

        Args:
            known: (n-1, d) on the host.
            shared_key: The method's seed where the adversary knows it; the noise is fresh all the same.

        Raises:
            ValueError: known is not a finite numeric matrix, or n records do not fit the method.
        """
        array = base.known_records(known)
        spec = jax.ShapeDtypeStruct((array.shape[0] + 1, array.shape[1]), array.dtype)
        jax.eval_shape(self.method.fit_transform, jax.random.key(0), spec)
        return NoisyShared(jnp.asarray(array), shared_key)

    def insert(self, key: Array, shared: NoisyShared, target: Array) -> Embedding:
        """The embedding of [target; known] plus noise, target (d,).

        Raises:
            ValueError: at trace time, if target has not the shape (d,).
        """
        base.check_target(target, shared.known.shape[1])
        noise_key, method_key = jax.random.split(key)
        x = jnp.concatenate([jnp.asarray(target, shared.known.dtype)[None], shared.known])
        return self._fit(noise_key, method_key if shared.method_key is None else shared.method_key, x)

    def insert_batch(self, keys: Array, shared: NoisyShared, targets: Array) -> Embedding:
        """`insert` for keys (b,) and targets (b, d)."""
        return jax.vmap(self.insert, in_axes=(0, None, 0))(keys, shared, targets)

    def _fit(self, noise_key: Array, method_key: Array, x: Array) -> Embedding:
        x = base.records(x)
        return self.method.fit_transform(method_key, x + _normal(noise_key, x, self.sigma))


@hyperparams
class OutputNoise(AfterMethod):
    """Embeds, then adds independent Gaussian noise to every coordinate.

    Attributes:
        method: The wrapped method.
        sigma: Standard deviation of the noise, >= 0. Traced: a sweep compiles once.
        relative: Whether sigma is in units of the release's own spread (`spread`), so that one value means the same to
            every method and scale; else it is in units of the coordinates.

    Example:
        >>> import drjax, jax
        >>> from drjax.defenses import OutputNoise
        >>> x, method = drjax.load("digits").x[:60], drjax.PCA()
        >>> noisy = OutputNoise(method=method, sigma=0.1).fit_transform(jax.random.key(0), x)
        >>> bool(abs(noisy.coords - method.fit_transform(jax.random.key(0), x).coords).max() > 0.01)
        True
    """

    name: ClassVar[str] = "output-noise"
    action: ClassVar[str] = "Gaussian noise on every published coordinate"
    scale_field: ClassVar[str] = "sigma"
    scale_unit: ClassVar[str] = "standard deviation of the noise over the root mean square of the centred coordinates"

    sigma: Any = traced(default=0.0)
    relative: bool = True

    def defended(self, key: Array, coords: Array) -> Array:
        """Coordinates (n, k) plus noise."""
        unit = spread(coords) if self.relative else jnp.ones((), coords.dtype)
        return coords + _normal(key, coords, self.sigma) * unit


@hyperparams
class Rounding(AfterMethod):
    """Embeds, then rounds every coordinate to the nearest multiple of a step; half-way cases to even multiples.

    The derivative is 0 almost everywhere.

    Attributes:
        method: The wrapped method.
        step: Width of the grid, >= 0; 0 rounds nothing. Traced: a sweep compiles once.
        relative: Whether step is in units of the release's own spread (`told_spread`), so that one value means the same
            to every method and scale: at 0.1 a typical column takes some forty values. Else it is in units of the
            coordinates, where 0.01 keeps two decimals.

    Example:
        >>> import drjax, jax
        >>> from drjax.defenses import Rounding
        >>> method = Rounding(method=drjax.PCA(), step=0.5, relative=False)
        >>> coords = method.fit_transform(jax.random.key(0), drjax.load("digits").x[:60]).coords
        >>> bool((coords * 2 == (coords * 2).round()).all())  # multiples of a half
        True
    """

    name: ClassVar[str] = "rounding"
    action: ClassVar[str] = "Rounding of every published coordinate"
    scale_field: ClassVar[str] = "step"
    scale_unit: ClassVar[str] = "width of the grid over the root mean square of the centred coordinates"

    step: Any = traced(default=0.0)
    relative: bool = True

    @property
    def deterministic(self) -> bool:
        """Whether the wrapped method is deterministic: rounding draws nothing."""
        return self.method.deterministic

    def _keys(self, key: Array) -> tuple[Array, Array]:
        return key, key

    def defended(self, key: Array, coords: Array) -> Array:
        """Coordinates (n, k), rounded."""
        del key
        unit = told_spread(coords) if self.relative else jnp.ones((), coords.dtype)
        width = jnp.asarray(self.step, coords.dtype) * unit
        # The inner choice keeps 0 / 0 out of the branch that is not taken, and so out of the derivative.
        safe = jnp.where(width > 0, width, 1)
        return jnp.where(width > 0, jnp.round(coords / safe) * safe, coords)


def spread(coords: Array) -> jax.Array:
    """Root mean square over the coordinates (n, k) of their distance from their column's mean; ().

    Example:
        >>> import jax.numpy as jnp
        >>> from drjax.defenses.noisy_dr import spread
        >>> round(float(spread(jnp.array([[1.0, 0.0], [-1.0, 0.0]]))), 3)
        0.707
    """
    centred = coords - jnp.mean(coords, axis=0)
    square = jnp.mean(centred**2)
    is_zero = square == 0  # the derivative of the root would be infinite there
    return jnp.where(is_zero, 0, jnp.sqrt(jnp.where(is_zero, 1, square)))


def told_spread(coords: Array) -> jax.Array:
    """`spread` of coords (n, k) to two significant digits; ().

    Whoever has a release finds the width of its grid to the last digit. The exact spread would be an equation on the
    one unknown record; two digits are the same for nearly all records that it could be.
    """
    exact = spread(coords)
    digit = 10.0 ** (jnp.floor(jnp.log10(jnp.where(exact > 0, exact, 1))) - 1)
    return jnp.round(exact / digit) * digit


def _normal(key: Array, like: Array, sigma: Any) -> jax.Array:
    return jax.random.normal(key, like.shape, like.dtype) * jnp.asarray(sigma, like.dtype)
