"""Differentially private gradient descent (DP-GD): each record's gradient clipped, Gaussian noise on their sum.

`DPGD` is the mechanism that `drjax.nets.classifier_training.train_many` takes; `release` trains one model to be
published. What is private is the parameters of every step, and so of the last; the number of records, the expected
size of a batch, the first parameters and all hyperparameters are public.

A record whose gradient, or its squared norm, is not finite counts as 0: one number of 1e39, infinite in float32, would
make the sum nan, and nan shows that it is there.

The accountant `mu` is that of Gaussian differential privacy, exact for full batches. Batches drawn at random leak less
than it says: it is an upper bound then, without credit for sampling, which `DPGD.guarantee` gives. The central limit
approximation of Bu et al. (2020), mu = rate sqrt(steps (exp(1 / noise_multiplier^2) - 1)), can fall below the truth.

Source: Abadi et al., "Deep learning with differential privacy" (2016), algorithm 1.
"""

from __future__ import annotations

import functools
import math
import os
from numbers import Real
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import binom

from drjax.bounds import accounting
from drjax.bounds.accounting import Guarantee
from drjax.bounds.gdp import SENSITIVITY, check_positive, delta_of, epsilon_of, mu_of, noise_multiplier_for
from drjax.core import validate
from drjax.core.types import Array, PyTree, hyperparams, traced
from drjax.defenses.clipping import clip_factor
from drjax.nets.classifier_training import PADDING, Training, train_many

__all__ = [
    "DPGD",
    "OVERFLOW",
    "SENSITIVITY",
    "PrivateModel",
    "delta_of",
    "epsilon_of",
    "mu_of",
    "noise_multiplier_for",
    "poisson_batches",
    "release",
]

OVERFLOW = 1e-12
"""Bound on the probability that any of all Poisson batches is cut short."""


@hyperparams
class DPGD:
    """Clipping and noise of private training.

    The sum of the clipped gradients gets noise of standard deviation noise_multiplier * clip_norm on every parameter;
    the trainer divides by n, or by the expected size of a batch. Gradients are those of the cross-entropy: the penalty
    on the weights depends on no record. Norms and sums carry the rounding of float32, or of float64 under x64.

    Attributes:
        neighbouring: Neighbouring relation: which data sets the guarantee compares, a name in `SENSITIVITY`; no
            default.
        clip_norm: Largest Euclidean norm of a record's gradient over all parameters, > 0, in units of the loss over
            those of a parameter; may be swept without retracing.
        noise_multiplier: Noise multiplier, > 0, without unit; may be swept without retracing. Clipping without noise,
            which gives no guarantee, is training without noise keys.

    Raises:
        ValueError: an unknown relation, or a number that is not finite and > 0.

    Example:
        >>> from drjax.defenses.dp_gd import DPGD
        >>> mechanism = DPGD(neighbouring="zero_out", clip_norm=1.0, noise_multiplier=20.0)
        >>> round(mechanism.epsilon(1e-5, steps=100), 2)
        1.99
    """

    neighbouring: str
    clip_norm: Any = traced()
    noise_multiplier: Any = traced()

    def __post_init__(self) -> None:
        """Checks every field; a number that is traced, or stands for one, passes."""
        validate.one_of(SENSITIVITY, neighbouring=self.neighbouring)
        for name in ("clip_norm", "noise_multiplier"):
            value = getattr(self, name)
            if validate.is_abstract(value):
                continue
            check_positive(**{name: value})
            if isinstance(value, Real):
                # Integers and floats would be two programs.
                object.__setattr__(self, name, float(value))

    def factor(self, squares: Any) -> jax.Array:
        """Squared norms of per-record gradients to the factors that clip them, of the same shape."""
        return clip_factor(squares, self.clip_norm)

    @property
    def noise_scale(self) -> Any:
        """Standard deviation of the noise on every entry of the sum of clipped gradients."""
        return self.noise_multiplier * self.clip_norm

    def mu(self, steps: int) -> float:
        """`mu_of` this noise multiplier and relation."""
        return mu_of(self.noise_multiplier, steps, self.neighbouring)

    def guarantee(self, *, steps: int, rate: float = 1.0) -> Guarantee:
        """What that many steps guarantee, over full batches or Poisson batches of that rate; see `accounting.dp_sgd`.

        Batches of `poisson_batches` have limited room: add (1 + exp(epsilon)) * `OVERFLOW` to delta.

        Raises:
            ValueError: an argument out of its range.
            ImportError: rate < 1 and dp-accounting is not installed.
        """
        if rate == 1:
            return accounting.dp_gd(self.noise_multiplier, steps, neighbouring=self.neighbouring)
        return accounting.dp_sgd(self.noise_multiplier, rate, steps, neighbouring=self.neighbouring)

    def delta(self, epsilon: float, *, steps: int) -> float:
        """`delta_of` that many steps."""
        return delta_of(self.mu(steps), epsilon)

    def epsilon(self, delta: float, *, steps: int) -> float:
        """`epsilon_of` that many steps."""
        return epsilon_of(self.mu(steps), delta)


def poisson_batches(key: Array, n: int, rate: float, steps: int) -> jax.Array:
    """Batches that each record joins with probability `rate`, in every step anew and independently of the others.

    `Training.batch_size` has to be the expected size, rate * n. The rate is rounded down to a multiple of 2**-32.

    Rows have so much room that the probability of a larger batch in any step is at most `OVERFLOW`; its last records
    would be left out. An analysis of Poisson batches adds (1 + exp(epsilon)) * OVERFLOW to delta for that, and so does
    `mu_of` under "add_or_remove"; under the other relations it holds for any batches, also for those known to others.

    Args:
        key: A single key.
        n: Records, >= 1.
        rate: Sampling rate, in [2**-32, 1].
        steps: Number of steps, >= 1.

    Returns:
        (steps, b) int32 records in increasing order, filled up with `PADDING`. Costs O(steps n) random words.

    Raises:
        ValueError: an argument out of its range.

    Example:
        >>> import jax
        >>> from drjax.defenses.dp_gd import poisson_batches
        >>> batches = poisson_batches(jax.random.key(0), n=60, rate=0.1, steps=5)
        >>> batches.shape[0], bool((batches < 60).all())
        (5, True)
    """
    validate.prng_key(key)
    validate.integer(n=n, steps=steps)
    if not (isinstance(rate, Real) and 2**-32 <= rate <= 1):
        raise ValueError(f"rate must be in [2**-32, 1], got {rate!r}")
    room = max(1, min(n, int(binom.isf(OVERFLOW / steps, n, rate))))
    # 32-bit words, not float32 numbers: their grid of 2**-23 would be off by percents at small rates.
    last = jnp.uint32(math.floor(rate * 2**32) - 1)
    return _draw(jax.random.split(key, steps), last, n, room)


@functools.partial(jax.jit, static_argnums=(2, 3))
def _draw(keys: Array, last: Any, n: int, room: int) -> jax.Array:
    def one(key: Array) -> jax.Array:
        joins = jax.random.bits(key, (n,), jnp.uint32) <= last
        return jnp.nonzero(joins, size=room, fill_value=PADDING)[0].astype(jnp.int32)

    return jax.lax.map(one, keys)


class PrivateModel(NamedTuple):
    """What `release` returns.

    Attributes:
        params: The parameters, on the host; the part to be published.
        mu: The guarantee, mu-GDP for the mechanism's neighbouring relation; see `delta_of`.
        steps: How many were taken.
    """

    params: PyTree
    mu: float
    steps: int


def release(training: Training, x: Array, y: Array, mechanism: DPGD, *, init: PyTree) -> PrivateModel:
    """Trains one model on n records for publication, with noise and batches from the operating system's entropy.

    No record is refused, which would say something about it: one that is not finite, or of no class, counts as 0.

    Nobody can repeat the run, the caller included: a key that can be known takes the noise away. With a
    `training.batch_size` less than n the batches are Poisson batches of that expected size, ceil(n / batch_size) an
    epoch, and mu counts them all, without credit for sampling (under "add_or_remove" see `poisson_batches`).

    The noise is JAX's: Threefry seeded with 64 bits of entropy, normal deviates of the records' dtype (in float32 none
    is beyond 5.5 standard deviations), no defence against attacks on floating-point rounding (Mironov 2012).

    Args:
        training: How.
        x: (n, d), n >= 2; its dtype is public.
        y: (n,) classes, numbers.
        mechanism: Clipping and noise.
        init: Parameters at the start, public, chosen without a look at the records.

    Raises:
        ValueError: as `train_many`, but for what single records hold; or noise that is not a single number.

    Example:
        >>> import drjax, jax
        >>> from drjax.defenses.dp_gd import DPGD, release
        >>> from drjax.nets.classifier_training import Training
        >>> from drjax.nets.classifiers import Classifier
        >>> data = drjax.load("digits")
        >>> training = Training(model=Classifier(hidden=(4,)), epochs=5)
        >>> mechanism = DPGD(neighbouring="zero_out", clip_norm=1.0, noise_multiplier=2.0)
        >>> init = training.model.init(jax.random.key(0), 64)
        >>> model = release(training, data.x[:60], data.y[:60], mechanism, init=init)
        >>> round(model.mu, 2), model.steps
        (1.12, 5)
    """
    records = validate.matrix(x, "x", min_rows=2, must_be_finite=False)
    n, size = len(records), training.batch_size
    classes = np.asarray(y)
    if classes.shape != (n,) or classes.dtype.kind not in "iuf":
        raise ValueError(f"y must be numbers of shape ({n},) to match x, got {classes.shape} of {classes.dtype}")
    has_class = np.isin(classes, np.arange(training.model.n_classes))
    records = np.where(has_class[:, None], records, np.array(np.nan, np.result_type(records.dtype, np.float32)))
    classes = np.where(has_class, classes, 0)
    batches, steps = None, training.epochs
    if size is not None and size < n:
        steps = training.epochs * math.ceil(n / size)
        batches = poisson_batches(_secret_key(), n, size / n, steps)
    mu = mechanism.mu(steps)
    stacked = train_many(
        training,
        records[1:],
        classes[1:],
        records[:1],
        classes[:1],
        init=init,
        batches=batches,
        mechanism=mechanism,
        noise_keys=_secret_key()[None],
    )
    return PrivateModel(jax.tree.map(lambda leaf: leaf[0], stacked), mu, steps)


def _secret_key() -> jax.Array:
    words = jnp.asarray(np.frombuffer(os.urandom(8), np.uint32))
    return jax.random.wrap_key_data(words, impl="threefry2x32")
