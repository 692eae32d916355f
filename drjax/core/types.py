"""The contracts of drjax: what a DR method is, what it returns, and how a lane says that it failed.

Example:
    >>> from drjax.core.types import Status, hyperparams, traced
    >>> @hyperparams
    ... class Scaling:
    ...     factor: float = traced(default=2.0)
    >>> Scaling(factor=3.0).factor
    3.0
    >>> Status.SMALL_GAP | Status.SIGN_TIE
    <Status.SIGN_TIE|SMALL_GAP: 48>
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar, dataclass_transform, runtime_checkable

import jax
import numpy as np

Array = jax.Array | np.ndarray
PyTree = Any
T = TypeVar("T")


class Status(enum.IntFlag):
    """Bit flags of one lane (one data set of a batch); 0 is a clean result.

    `EXCLUDED` lanes are left out of averages; every other flag is information. Callers count all of them.
    """

    OK = 0
    NOT_CONVERGED = 1
    """The iteration cap was reached before the stopping rule."""
    DISCONNECTED = 2
    """A neighbourhood graph had more than one component and was joined."""
    DEGENERATE = 4
    """The requested output is not determined by the input (e.g. fewer directions of variance than components)."""
    NON_FINITE = 8
    """A nan or an infinity is in the result."""
    SIGN_TIE = 16
    """The largest positive and the largest negative loading tie within rounding: a component's sign may flip."""
    SMALL_GAP = 32
    """Two eigenvalues are so close that their eigenvectors may rotate into each other."""
    UNCERTIFIED = 64
    """Nothing bounds the error of the result, or nothing but the adversary's assumptions speaks for it."""
    MISFIT = 128
    """The input cannot be what it is taken for, or its noise leaves nothing; the result is what one would guess."""
    PARTIAL = 256
    """Most of what the features vary by is left open: in those the result is about what one would guess."""
    FROZEN = 512
    """The record was put into a map that does not move: to train an attack on, no release."""

    @classmethod
    def excluded(cls) -> Status:
        """The flags whose lanes must not enter an average."""
        return cls.DEGENERATE | cls.NON_FINITE


def is_usable(status: Array) -> np.ndarray:
    """True where a lane may enter an average; status of any shape, result of the same shape."""
    return (np.asarray(status) & np.uint32(Status.excluded())) == 0


def count_status(status: Array) -> dict[str, int]:
    """How many lanes carry each flag, named, with "OK" for the clean ones; flags nobody carries are left out."""
    flags = np.asarray(status).ravel()
    counts = {"OK": int(np.sum(flags == 0))}
    for flag in Status:
        if flag and (n := int(np.sum((flags & np.uint32(flag)) != 0))):
            counts[str(flag.name)] = n
    return counts


class Embedding(NamedTuple):
    """What a DR method returns for one data set; batched, every field gains a leading axis m.

    Attributes:
        coords: (n, k); row 0 is the target's after `insert`. What they are measured in is the method's `unit`.
        objective: (), what the method minimises; nan where it has none.
        n_iter: (), int32 iterations used.
        status: (), uint32 `Status` flags.
        info: the method's own diagnostics, a pytree.
    """

    coords: Any
    objective: Any
    n_iter: Any
    status: Any
    info: Any


class Reconstruction(NamedTuple):
    """What a reconstruction attack returns for m releases (no leading axis if one release was given).

    Attributes:
        x: (m, d) the reconstructed targets, units of the input.
        y: (m,) the reconstructed label, or None where the release has none.
        candidates: (m, c, d) all solutions the release admits, the returned one first; where x is what one would guess
            without the release, the solutions that were not good enough to be returned.
        residual_norm: (m,) Euclidean norm of the part of x that the release leaves undetermined
            (0 where it is exact; nan where unknown), units of the input.
        status: (m,) uint32 `Status` flags.
        expected_mse: (m,) the attack's own prediction of the mean squared error of x, mean over features, squared units
            of the input; nan where the attack cannot say. None: the attack predicts no errors.
        facts: What a record of the attack holds beside these, by name; None if nothing.
        feature_mse: (m, d) the squared error to expect of each feature, squared units of the input; None where the
            attack does not tell features apart.
        interval: (m, d, 2) ends between which each feature is with a probability of 90%, units of the input; None
            where nobody asked for them (`drjax.attacks.intervals`).
    """

    x: np.ndarray
    y: np.ndarray | None
    candidates: np.ndarray
    residual_norm: np.ndarray
    status: np.ndarray
    expected_mse: Any = None
    facts: Any = None
    feature_mse: Any = None
    interval: Any = None


def single(found: Reconstruction) -> Reconstruction:
    """The reconstruction of one release without its leading axis of 1, which `y` and `facts` do not have."""
    fields: dict[str, Any] = {
        name: None if getattr(found, name) is None else getattr(found, name)[0]
        for name in ("x", "candidates", "residual_norm", "status", "expected_mse", "feature_mse", "interval")
    }
    return found._replace(**fields)


class Cost(NamedTuple):
    """What a method takes of a CPU, within a factor of about two; see `DRMethod.cost`.

    Attributes:
        shared_flops: Floating-point operations of `prepare`.
        shared_bytes: Memory for what all shadows share, at the peak of `prepare` or while shadows are made.
        flops: Operations of one more shadow.
        bytes: Memory that each shadow takes while it is made, beside the results; as many are made at a time as there
            are cores.
        derivative_flops: Operations of one derivative in the target beside `flops` for each direction; 0 where these
            are all.
    """

    shared_flops: float
    shared_bytes: float
    flops: float
    bytes: float
    derivative_flops: float = 0.0


@runtime_checkable
class DRMethod(Protocol):
    """A dimensionality-reduction method: a frozen dataclass of hyperparameters with pure functions.

    It knows nothing of batches over devices, memory, noise or attacks. n rows, d input dimensions, k output
    dimensions, m shadows. `insert` is exact: it agrees with `fit_transform([target; known])`.

    It says of itself what reports, attacks and benchmarks must know, so that none of them keeps a table of methods. A
    fact that holds for all hyperparameters is a class variable, any other a property. A defence that wraps a method is
    a method itself.

    A method whose maps differ from those of the library that it is known by may have `by_library(x, seed)`, the map
    (n, k) of records (n, d) as that library makes it: attacks on published maps are tried on such.
    """

    name: ClassVar[str]

    @property
    def title(self) -> str:
        """Name that a reader knows the method by, as it stands in a sentence: "t-SNE"."""
        ...

    @property
    def unit(self) -> str | None:
        """What coordinates are measured in, such as "of the input"; None if they have no unit.

        With a unit, records multiplied by a factor > 0 give coordinates multiplied by that factor. Without one they
        give the same coordinates, and distances in a map compare with those of the records up to a scale only.
        """
        ...

    @property
    def minimises(self) -> str | None:
        """What `objective` measures, in words: "Kullback-Leibler divergence, in nats"; None if `objective` is nan."""
        ...

    @property
    def n_components(self) -> int:
        """Output dimension k."""
        ...

    @property
    def deterministic(self) -> bool:
        """True if the result does not depend on the key; hyperparameters may decide it."""
        ...

    @property
    def repeatable(self) -> bool:
        """True if the release can be recomputed from its key, with a derivative in a record that is of use.

        `deterministic` says whether the key matters at all. An attack can fit a record until the method makes the
        release if it is repeatable, and deterministic or of known seed. False where the descent is chaotic, so that
        derivatives hold for no step of useful length, where they are zero, and where some draws stay secret although
        the seed is known.
        """
        ...

    @property
    def stationary(self) -> bool:
        """True if the release ends a descent, where the gradient of `objective` in the coordinates vanishes.

        It vanishes up to the stopping rule, a cap of iterations, and what a defence does to records or coordinates.
        False for closed forms, which an attack repeats as a whole, for descents whose steps are too noisy to come to
        rest, and where nothing is minimised.
        """
        ...

    def cost(self, n: int, d: int, *, itemsize: int = 4) -> Cost:
        """What shadows of n records of d features take, computed in floats of `itemsize` bytes."""
        ...

    def fit_transform(self, key: Array, x: Array) -> Embedding:
        """Embeds x (n, d); pure, safe under jit and vmap."""
        ...

    def objective(self, coords: Array, x: Array) -> Array:
        """What the method minimises, at coords (n, k) for data x (n, d); (), nan where it minimises nothing."""
        ...

    def prepare(self, known: Array, *, shared_key: Array | None = None) -> PyTree:
        """What every shadow shares, from known (n-1, d); computed once, on the host in float64."""
        ...

    def insert(self, key: Array, shared: PyTree, target: Array) -> Embedding:
        """The embedding of [target; known], target (d,) becoming row 0."""
        ...

    def insert_batch(self, keys: Array, shared: PyTree, targets: Array) -> Embedding:
        """`insert` for keys (b,) and targets (b, d); every field gains a leading axis b."""
        ...


def traced(**kwargs: Any) -> Any:
    """A dataclass field that is swept without retracing (a pytree leaf); others are static."""
    return dataclasses.field(metadata={"traced": True}, **kwargs)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(traced, dataclasses.field))
def hyperparams(cls: type[T]) -> type[T]:
    """Makes a frozen, keyword-only dataclass whose instances may be passed to jitted functions.

    Equal static fields give one trace; fields made with `traced` are leaves and may change freely.
    """
    decorate: Callable[[type], type] = dataclasses.dataclass(frozen=True, kw_only=True)
    made = decorate(cls)
    fields = [f for f in dataclasses.fields(made) if f.init]
    leaves = [f.name for f in fields if f.metadata.get("traced")]
    static = [f.name for f in fields if not f.metadata.get("traced")]

    def flatten(node: Any) -> tuple[list[tuple[Any, Any]], tuple[type, tuple]]:
        children = [(jax.tree_util.GetAttrKey(name), getattr(node, name)) for name in leaves]
        return children, (made, tuple(getattr(node, name) for name in static))

    def unflatten(static_part: tuple[type, tuple], children: Any) -> Any:
        return made(**dict(zip(static, static_part[1], strict=True)), **dict(zip(leaves, children, strict=True)))

    # Not `register_dataclass`: of its nodes JAX 0.10 compares the static fields and not the class, so that two methods
    # with equal fields are now and then given each other's compiled program (when their hashes collide).
    jax.tree_util.register_pytree_with_keys(made, flatten, unflatten)
    return made
