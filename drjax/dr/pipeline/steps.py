"""Steps before a method: what becomes of the records before they are embedded. One line each in `STEPS`.

A step sees all n records. Some look at one record at a time (unit rows); some at one feature at a time, and most of
these shift and scale it by what all records show of it (min-max, standardisation); others mix both.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from drjax.core import validate
from drjax.core.types import Array, PyTree, hyperparams
from drjax.dr.pca.method import PCA

QUARTILES = (0.25, 0.5, 0.75)


class Quartiles(NamedTuple):
    """What `Robust` needs of the known records, q = 3.

    Attributes:
        around: (q, 3, d), values of the ranks before, at and after each quartile, infinite beyond the ends.
        beyond: (q,), share of the way from a rank to the next at which the quartile lies.
    """

    around: Array
    beyond: Array


@hyperparams
class Step:
    """What every step says of itself.

    Attributes:
        name: Name on the command line and in records.
        title: What it makes of records, as it stands in a sentence: "standardised records".
        per_record: Whether a record's result depends on that record alone.
        per_feature: Whether column j of the result depends on feature j alone, and there are as many of both.
        keeps_unit: Whether records multiplied by a factor > 0 give results multiplied by it.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    per_record: ClassVar[bool] = False
    per_feature: ClassVar[bool] = False
    keeps_unit: ClassVar[bool] = False

    def apply(self, x: Array) -> Array:
        """Records x (n, d), n >= 2, as the next step gets them, (n, d'); pure, differentiable where it can be."""
        raise NotImplementedError

    def width(self, d: int, n: int) -> int:
        """Features of the result for n records of d features."""
        del n
        return d


class Affine(NamedTuple):
    """A shift and a scale of every feature, (d,) each: x becomes (x - centre) / scale."""

    centre: Array
    scale: Array


@hyperparams
class Scaler(Step):
    """A step that shifts and scales every feature, by what all records show of it.

    Before it, another such step changes nothing, since what is divided by its own spread has none left of a unit.
    """

    per_feature: ClassVar[bool] = True

    def summary(self, known: Array) -> PyTree:
        """What `with_record` needs of the known records (n-1, d)."""
        raise NotImplementedError

    def with_record(self, summary: PyTree, target: Array) -> Affine:
        """Shift and scale for [target; known], target (d,); O(d)."""
        raise NotImplementedError

    def apply(self, x: Array) -> Array:
        """See `Step`."""
        centre, scale = self.with_record(self.summary(x[1:]), x[0])
        return (x - centre) / scale


class Moments(NamedTuple):
    """Number of records (), and mean and mean square about it of each feature, (d,) each."""

    n: Array
    mean: Array
    variance: Array


@hyperparams
class Standardise(Scaler):
    """Every feature less its mean and over its standard deviation (ddof = 0); a constant one becomes 0.

    Source: scikit-learn 1.9 `preprocessing.StandardScaler`.

    Example:
        >>> import jax.numpy as jnp
        >>> from drjax.dr import Standardise
        >>> Standardise().apply(jnp.array([[0.0, 5.0], [2.0, 5.0]])).tolist()
        [[-1.0, 0.0], [1.0, 0.0]]
    """

    name: ClassVar[str] = "standard"
    title: ClassVar[str] = "standardised records"

    def summary(self, known: Array) -> Moments:
        """See `Scaler`."""
        mean = jnp.mean(known, axis=0)
        return Moments(jnp.asarray(len(known), known.dtype), mean, jnp.mean((known - mean) ** 2, axis=0))

    def with_record(self, summary: Moments, target: Array) -> Affine:
        """See `Scaler`."""
        share = 1 / (summary.n + 1)
        offset = target - summary.mean
        centre = summary.mean + share * offset
        variance = (1 - share) * (summary.variance + share * offset**2)
        eps = float(jnp.finfo(centre.dtype).eps)
        is_constant = variance <= (summary.n + 1) * eps * variance + ((summary.n + 1) * centre * eps) ** 2
        return Affine(centre, jnp.where(is_constant, 1, jnp.sqrt(jnp.where(is_constant, 1, variance))))


@hyperparams
class MinMax(Scaler):
    """Every feature from 0, its least value, to 1, its greatest; a constant one becomes 0.

    Source: scikit-learn 1.9 `preprocessing.MinMaxScaler`.

    Example:
        >>> import jax.numpy as jnp
        >>> from drjax.dr import MinMax
        >>> MinMax().apply(jnp.array([[20.0, 5.0], [60.0, 5.0], [40.0, 5.0]])).tolist()
        [[0.0, 0.0], [1.0, 0.0], [0.5, 0.0]]
    """

    name: ClassVar[str] = "min-max"
    title: ClassVar[str] = "records scaled to [0, 1]"

    def summary(self, known: Array) -> tuple[Array, Array]:
        """See `Scaler`; least and greatest values."""
        return jnp.min(known, axis=0), jnp.max(known, axis=0)

    def with_record(self, summary: tuple[Array, Array], target: Array) -> Affine:
        """See `Scaler`."""
        least, greatest = jnp.minimum(summary[0], target), jnp.maximum(summary[1], target)
        return Affine(least, _or_one(greatest - least))


@hyperparams
class Robust(Scaler):
    """Every feature less its median and over the distance of its quartiles; where that is 0, only less its median.

    Source: scikit-learn 1.9 `preprocessing.RobustScaler`.

    Example:
        >>> import jax.numpy as jnp
        >>> from drjax.dr import Robust
        >>> Robust().apply(jnp.array([[0.0], [1.0], [2.0], [3.0], [100.0]])).tolist()
        [[-1.0], [-0.5], [0.0], [0.5], [49.0]]
    """

    name: ClassVar[str] = "robust"
    title: ClassVar[str] = "records scaled by their quartiles"

    def summary(self, known: Array) -> Quartiles:
        """See `Scaler`; O(n d log n)."""
        m = len(known)
        ordered = jnp.sort(known, axis=0)
        end = jnp.full_like(ordered[:1], jnp.inf)
        padded = jnp.concatenate([-end, ordered, end])
        # Of m + 1 records, quantile q lies at rank q m, from 0.
        at = [int(share * m) for share in QUARTILES]
        return Quartiles(
            jnp.stack([padded[i : i + 3] for i in at]),
            jnp.asarray([share * m - i for share, i in zip(QUARTILES, at, strict=True)], known.dtype),
        )

    def with_record(self, summary: Quartiles, target: Array) -> Affine:
        """See `Scaler`."""
        # With one record more, that of rank i is the target, kept between those of ranks i - 1 and i.
        below = jnp.clip(target, summary.around[:, 0], summary.around[:, 1])
        above = jnp.clip(target, summary.around[:, 1], summary.around[:, 2])
        low, middle, high = below + summary.beyond[:, None] * (above - below)
        return Affine(middle, _or_one(high - low))


@hyperparams
class UnitRows(Step):
    """Every record over its Euclidean norm; one of zeros stays as it is.

    Distances of the results order and scale as cosine distances of the records do: |u - v|^2 = 2 (1 - cos).

    Source: scikit-learn 1.9 `preprocessing.Normalizer`.

    Example:
        >>> import jax.numpy as jnp
        >>> from drjax.dr import UnitRows
        >>> UnitRows().apply(jnp.array([[3.0, 4.0], [0.0, 0.0]])).round(2)
        Array([[0.59999996, 0.79999995],
               [0.        , 0.        ]], dtype=float32)
    """

    name: ClassVar[str] = "unit-rows"
    title: ClassVar[str] = "records of unit length"
    per_record: ClassVar[bool] = True

    def apply(self, x: Array) -> Array:
        """See `Step`."""
        square = jnp.sum(x**2, axis=1, keepdims=True)
        return x / jnp.sqrt(jnp.where(square > 0, square, 1))


@hyperparams
class CentredRows(Step):
    """Every record less the mean of its own features; cosines of the results are correlations of the records.

    Example:
        >>> import jax.numpy as jnp
        >>> from drjax.dr import CentredRows
        >>> CentredRows().apply(jnp.array([[1.0, 3.0], [5.0, 5.0]])).tolist()
        [[-1.0, 1.0], [0.0, 0.0]]
    """

    name: ClassVar[str] = "centred-rows"
    title: ClassVar[str] = "records less their own mean"
    per_record: ClassVar[bool] = True
    keeps_unit: ClassVar[bool] = True

    def apply(self, x: Array) -> Array:
        """See `Step`."""
        return x - jnp.mean(x, axis=1, keepdims=True)


@hyperparams
class Log(Step):
    """The logarithm of 1 + x, as of counts; records with a feature <= -1 give no finite coordinates.

    Example:
        >>> import jax.numpy as jnp
        >>> from drjax.dr import Log
        >>> Log().apply(jnp.array([[0.0, 99.0], [9.0, 999.0]])).round(2)
        Array([[0.  , 4.61],
               [2.3 , 6.91]], dtype=float32)
    """

    name: ClassVar[str] = "log"
    title: ClassVar[str] = "logarithms of records"
    per_record: ClassVar[bool] = True
    per_feature: ClassVar[bool] = True

    def apply(self, x: Array) -> Array:
        """See `Step`."""
        return jnp.log1p(x)


@hyperparams
class OneHot(Step):
    """Features that are codes 0, 1, ... of categories, each as so many features of 0 and one 1; the rest follow.

    A value that is no code gives zeros throughout.

    Attributes:
        n_categories: Number of categories of each feature, 0 for one that is a number; one entry a feature.

    Example:
        >>> import jax.numpy as jnp
        >>> from drjax.dr import OneHot
        >>> OneHot(n_categories=(0, 3)).apply(jnp.array([[0.5, 2.0], [0.25, 0.0]])).tolist()
        [[0.0, 0.0, 1.0, 0.5], [1.0, 0.0, 0.0, 0.25]]
    """

    name: ClassVar[str] = "one-hot"
    title: ClassVar[str] = "one-hot encoded records"
    per_record: ClassVar[bool] = True
    n_categories: tuple[int, ...]

    def __post_init__(self) -> None:
        """Checks the numbers."""
        for count in self.n_categories:
            validate.integer(minimum=0, n_categories=count)

    def apply(self, x: Array) -> Array:
        """See `Step`."""
        if len(self.n_categories) != x.shape[1]:
            raise ValueError(f"n_categories must have one entry for each of {x.shape[1]} features, got {self}")
        numbers = [j for j, count in enumerate(self.n_categories) if not count]
        codes = [x[:, j, None] == jnp.arange(count) for j, count in enumerate(self.n_categories) if count]
        return jnp.concatenate([*(code.astype(x.dtype) for code in codes), x[:, jnp.asarray(numbers, int)]], axis=1)

    def width(self, d: int, n: int) -> int:
        """See `Step`."""
        del n
        return d + sum(count - 1 for count in self.n_categories if count)


@hyperparams
class FirstPCA(Step):
    """Scores on the first principal components, as is usual before t-SNE.

    Attributes:
        n_components: Number of components; all there are, min(n, d), if there are fewer.
        whiten: Whether each is divided by its standard deviation (ddof = 1).

    Example:
        >>> import drjax
        >>> from drjax.dr import FirstPCA
        >>> FirstPCA(n_components=10).apply(drjax.load("digits").x[:60]).shape
        (60, 10)
    """

    name: ClassVar[str] = "first-pca"
    title: ClassVar[str] = "principal components of records"
    n_components: int = 50
    whiten: bool = False

    def __post_init__(self) -> None:
        """Checks the number."""
        validate.integer(n_components=self.n_components)

    @property
    def keeps_unit(self) -> bool:  # pyrefly: ignore[bad-override] (a constant elsewhere)
        """Unless whitened."""
        return not self.whiten

    def apply(self, x: Array) -> Array:
        """See `Step`; O(n d min(n, d))."""
        k = self.width(x.shape[1], len(x))
        coords = PCA(n_components=k).fit_transform(jax.random.key(0), x).coords  # draws nothing
        if not self.whiten:
            return coords
        spread = jnp.sqrt(jnp.sum(coords**2, axis=0) / (len(x) - 1))
        # What rounding left of a direction without variance is not to be blown up.
        floor = len(x) * jnp.finfo(coords.dtype).eps * spread[0]
        return jnp.where(spread > floor, coords, 0) / jnp.where(spread > floor, spread, 1)

    def width(self, d: int, n: int) -> int:
        """See `Step`."""
        return min(self.n_components, n, d)


def _or_one(spread: Array) -> Array:
    """A spread (d,), and 1 where there is next to none."""
    return jnp.where(spread < 10 * jnp.finfo(spread.dtype).eps, 1, spread)


STEPS: dict[str, type[Step]] = {
    step.name: step for step in (Standardise, MinMax, Robust, UnitRows, CentredRows, Log, OneHot, FirstPCA)
}
"""Every step by its name."""
