"""What practitioners use: MST and AIM on discretised records, by the package `mbi` (private-pgm).

    method = MbiMST(neighbouring="add_or_remove", box=box, n_classes=2)
    made = method.fit(key, x, y, 1.0, 1e-6).sample(other_key, 10_000)

Features are cut to public bounds and binned; a class is a column of its own, a number is binned like a feature. Noisy
counts of some one-way and two-way marginals are all that is taken from the records; the package finds the graphical
model that fits them best, and draws from it. It ships inference without mechanisms, so which marginals are measured,
and with what noise, is decided here, after McKenna, Miklau & Sheldon (2021) for MST and McKenna, Mullins, Sheldon &
Miklau (2022) for AIM. The guarantee is zCDP, for noise on real numbers: floating-point draws, for experiments.

On the host, in float64; a fit is neither traced nor batched. `pip install 'mbi>=2,<3'`.
"""

from __future__ import annotations

import importlib
import itertools
import math
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import numpy as np
from scipy.special import softmax

from drjax.bounds import tradeoff
from drjax.bounds.accounting import Guarantee
from drjax.bounds.curve import number
from drjax.bounds.gdp import SENSITIVITY, check_positive
from drjax.core import validate
from drjax.core.types import Array, hyperparams
from drjax.defenses.mechanisms import Gaussian
from drjax.synthesis.contract import TASKS, Box, Synthetic
from experiments.pca_gauss.baselines.labels import Labelled

LABEL = "y"
"""The column of the labels; features are x0, x1, ..."""

Marginal = tuple[str, ...]


def require_mbi() -> Any:
    """The package.

    Raises:
        ImportError: it is not installed.
    """
    try:
        with warnings.catch_warnings():
            # It warns, once, of single precision, which is not used here, and of a compilation cache.
            warnings.simplefilter("ignore", UserWarning)
            return importlib.import_module("mbi")
    except ModuleNotFoundError as error:
        if error.name != "mbi":
            raise
        raise ImportError("MST and AIM need the package mbi: pip install 'mbi>=2,<3'") from error


@dataclass(frozen=True, eq=False)
class BinnedSynthesizer:
    """A graphical model of binned records.

    Attributes:
        guarantee: What is proven of it.
        box: Public bounds of the features.
        n_bins: Of each feature, and at the end of labels that are numbers.
        target_range: Of labels that are numbers.
        has_classes: Whether labels are classes.
        marginals: Those that were measured, in order.
        model: Of the package.
    """

    guarantee: Guarantee
    box: Box
    n_bins: tuple[int, ...]
    target_range: tuple[float, float] | None
    has_classes: bool
    marginals: tuple[Marginal, ...]
    model: Any

    def sample(self, key: Array, n: int) -> Synthetic:
        """n records: bins from the model, by the package's randomised rounding, and values uniform in their bins.

        Equal keys give equal records. On the host, neither traced nor batched.
        """
        validate.prng_key(key)
        validate.integer(n=n)
        rng = _generator(key)
        with _package_seeded(rng), jax.enable_x64(True):
            table = self.model.synthetic_data(rows=n).to_dict()
        unit = np.stack([self._value(rng, table[f"x{j}"], self.n_bins[j]) for j in range(self.box.d)], axis=1)
        low, high = np.asarray(self.box.lower), np.asarray(self.box.upper)
        y = None
        if self.has_classes:
            y = np.asarray(table[LABEL], np.int32)
        elif self.target_range is not None:
            bottom, top = self.target_range
            y = bottom + (top - bottom) * self._value(rng, table[LABEL], self.n_bins[-1])
        return Synthetic(low + (high - low) * unit, y)

    def transform(self, x: Array) -> Any:
        """The records themselves, cut to the box."""
        return self.box.clip(x)

    @staticmethod
    def _value(rng: np.random.Generator, bins: np.ndarray, n_bins: int) -> np.ndarray:
        return (np.asarray(bins, np.float64) + rng.uniform(size=len(bins))) / n_bins


@hyperparams
class _Binned(Labelled):
    """Marginals of binned records, and a graphical model.

    Attributes:
        n_bins: Of every feature between its bounds, and of numbers y, >= 2; or one for each feature, and at the end for
            numbers y, as for columns of codes.
        n_iter: Steps of the package's mirror descent for the final model, >= 1; a tenth of it for one that is used to
            choose marginals with.
    """

    tasks: ClassVar[tuple[str, ...]] = TASKS

    n_bins: int | tuple[int, ...] = 16
    n_iter: int = 1000

    def __post_init__(self) -> None:
        """Checks every field."""
        super().__post_init__()
        if isinstance(self.n_bins, tuple):
            n_columns = self.box.d + (self.target_range is not None)
            if len(self.n_bins) != n_columns:
                raise ValueError(
                    f"n_bins must be one number, or one for each of {n_columns} columns, got {self.n_bins}"
                )
        for bins in self.bins:
            validate.integer(minimum=2, n_bins=bins)
        validate.integer(n_iter=self.n_iter)

    @property
    def bins(self) -> tuple[int, ...]:
        """Of each feature, and at the end of numbers y."""
        if isinstance(self.n_bins, tuple):
            return self.n_bins
        return (self.n_bins,) * (self.box.d + (self.target_range is not None))

    def fit(self, key: Array, x: Array, y: Array | None, epsilon: float, delta: float) -> BinnedSynthesizer:
        """Chooses and measures marginals with noise, and fits the model.

        Args:
            key: Draws choices and noise; whoever knows it can take the noise off.
            x: (n, d).
            y: (n,) classes or numbers, or None.
            epsilon: > 0.
            delta: In (0, 1).

        Raises:
            ValueError: a budget out of its range, or shapes that do not match.
            ImportError: mbi is not installed.
        """
        mbi = require_mbi()
        validate.prng_key(key)
        self.check(x, y)
        check_positive(epsilon=number(epsilon=epsilon))
        if not 0 < float(number(delta=delta)) < 1:
            raise ValueError(f"delta must be in (0, 1), got {delta!r}: noise is Gaussian")
        rho = Gaussian.for_release(epsilon, delta, neighbouring=self.neighbouring, sensitivity=1.0).mu ** 2 / 2
        ledger = _Ledger(mbi, self, np.asarray(x), None if y is None else np.asarray(y), rho, _generator(key))
        with jax.enable_x64(True):
            self._measure(ledger)
            model = ledger.estimate(self.n_iter)
        curve = tradeoff.ZCDP(rho, neighbouring=self.neighbouring)
        proven = (
            f"{rho}-zCDP for noise on real numbers: Gaussian noise on marginals, chosen by the exponential mechanism"
        )
        return BinnedSynthesizer(
            guarantee=Guarantee(curve, curve, proven),
            box=self.box,
            n_bins=self.bins,
            target_range=self.target_range,
            has_classes=self.n_classes is not None,
            marginals=tuple(m.clique for m in ledger.measurements),
            model=model,
        )

    def binned(self, x: np.ndarray, y: np.ndarray | None) -> dict[str, np.ndarray]:
        """Bins (n,) of every column, int64, the label last; nan in the middle."""
        unit = (np.asarray(self.box.encode(x), np.float64) + 1) / 2
        columns = {f"x{j}": _bins_of(unit[:, j], self.bins[j]) for j in range(self.box.d)}
        if self.n_classes is not None:
            assert y is not None
            columns[LABEL] = np.asarray(self.classes(y), np.int64)
        elif self.target_range is not None:
            assert y is not None
            columns[LABEL] = _bins_of((np.asarray(self.numbers(y, float), np.float64) + 1) / 2, self.bins[-1])
        return columns

    def _measure(self, ledger: _Ledger) -> None:
        raise NotImplementedError


@hyperparams
class MbiMST(_Binned):
    """MST: all one-way marginals, then the two-way marginals of a spanning tree of the columns, chosen privately.

    A third of the budget each for one-way marginals, for the tree, and for its marginals. Every edge is chosen among
    those that join two parts of the tree so far, by how far its marginal is from independence. O(n d^2) for d columns.
    Values that are rare are not merged, as the source does: bins are few already.

    Source: McKenna, Miklau & Sheldon (2021), "Winning the NIST contest", algorithm 2.
    """

    name: ClassVar[str] = "mbi-mst"

    def _measure(self, ledger: _Ledger) -> None:
        singles = [(column,) for column in ledger.columns]
        for single in singles:
            ledger.measure(single, ledger.rho / 3 / len(singles))
        if len(singles) == 1:
            return
        model = ledger.estimate(max(1, self.n_iter // 10))
        alone = {column: np.asarray(model.project((column,)).datavector()) for column in ledger.columns}
        mass = max(float(np.sum(alone[ledger.columns[0]])), 1.0)
        # A model of one-way marginals is one of independent columns, so their products are its two-way marginals.
        candidates = list(itertools.combinations(ledger.columns, 2))
        errors = np.array(
            [
                np.abs(ledger.counts(pair) - np.outer(alone[pair[0]], alone[pair[1]]).ravel() / mass).sum()
                for pair in candidates
            ]
        )
        part = {column: i for i, column in enumerate(ledger.columns)}
        share = ledger.rho / 3 / (len(singles) - 1)
        for _ in range(len(singles) - 1):
            open_edges = [i for i, (a, b) in enumerate(candidates) if part[a] != part[b]]
            chosen = candidates[open_edges[ledger.choose(errors[open_edges], 1.0, share)]]
            ledger.measure(chosen, share)
            joined, gone = part[chosen[0]], part[chosen[1]]
            part = {column: joined if where == gone else where for column, where in part.items()}


@hyperparams
class MbiAIM(_Binned):
    """AIM: round by round the marginal that the model so far gets most wrong, in units of what measuring it costs.

    Candidates are single columns and pairs. A tenth of a round's budget chooses, the rest measures; where a measurement
    changes nothing beyond its own noise, later ones get four times the budget. The last round takes what is left.

    Attributes:
        n_rounds: That the budget is divided by at first, >= 1. The source takes 16 for each column, which takes hours;
            a round costs a fit of the model, some seconds.
        max_pairs: Pairs that are candidates, >= 1: those with the label first, the others at random.
        max_model_size: Of the model, megabytes, > 0; a pair that would make it larger is no candidate.

    Source: McKenna, Mullins, Sheldon & Miklau (2022), algorithm 3.
    """

    name: ClassVar[str] = "mbi-aim"

    n_rounds: int = 16
    max_pairs: int = 200
    max_model_size: float = 20.0

    def __post_init__(self) -> None:
        """Checks every field."""
        super().__post_init__()
        validate.integer(n_rounds=self.n_rounds, max_pairs=self.max_pairs)
        check_positive(max_model_size=number(max_model_size=self.max_model_size))

    def _measure(self, ledger: _Ledger) -> None:
        workload = self._workload(ledger)
        singles = [(column,) for column in ledger.columns]
        weights = {one: sum(len(set(one) & set(pair)) for pair in workload) for one in (*singles, *workload)}
        # One-way marginals are measured at the noise of a round, which must leave something for the rounds.
        per_round = ledger.rho / (self.n_rounds + len(singles))
        for single in singles:
            ledger.measure(single, 0.9 * per_round)
        steps = max(1, self.n_iter // 10)
        model = ledger.estimate(steps)
        while workload and ledger.left > 0:
            spend = ledger.left if ledger.left < 2 * per_round else per_round
            deviation = ledger.deviation(0.9 * spend)
            limit = self.max_model_size * (1 - (ledger.left - spend) / ledger.rho)
            allowed = [one for one in weights if len(one) == 1 or ledger.model_size(one) <= limit]
            expected = math.sqrt(2 / math.pi) * deviation
            errors = []
            for one in allowed:
                there = np.asarray(model.project(one).datavector())
                errors.append(weights[one] * (np.abs(ledger.counts(one) - there).sum() - expected * there.size))
            largest = max(weights[one] for one in allowed)
            chosen = allowed[ledger.choose(np.array(errors), largest, 0.1 * spend)]
            before = np.asarray(model.project(chosen).datavector())
            ledger.measure(chosen, 0.9 * spend)
            if ledger.left <= 0:
                break
            model = ledger.estimate(steps)
            change = np.abs(np.asarray(model.project(chosen).datavector()) - before).sum()
            if change <= expected * before.size:
                per_round *= 4

    def _workload(self, ledger: _Ledger) -> list[Marginal]:
        pairs: list[Marginal] = list(itertools.combinations(ledger.columns, 2))
        if len(pairs) <= self.max_pairs:
            return pairs
        order = ledger.rng.permutation(len(pairs))
        return sorted((pairs[i] for i in order), key=lambda pair: LABEL not in pair)[: self.max_pairs]


PACKAGES: dict[str, Any] = {method.name: method for method in (MbiMST, MbiAIM)}
"""By name; they are listed whether or not the package is there."""


def _bins_of(unit: np.ndarray, n_bins: int) -> np.ndarray:
    return np.minimum((unit * n_bins).astype(np.int64), n_bins - 1)


class _Ledger:
    """Everything that is taken from the records, and what it has cost."""

    def __init__(
        self, mbi: Any, method: _Binned, x: np.ndarray, y: np.ndarray | None, rho: float, rng: np.random.Generator
    ) -> None:
        self._mbi, self._relation = mbi, method.neighbouring
        self._data = method.binned(x, y)
        self.columns = list(self._data)
        sizes = method.bins if method.n_classes is None else (*method.bins, method.n_classes)
        self._sizes = dict(zip(self.columns, sizes, strict=True))
        self._domain = mbi.Domain(self.columns, [self._sizes[column] for column in self.columns])
        self._n = None if method.neighbouring == "add_or_remove" else len(x)
        self.rho, self.spent, self.rng = rho, 0.0, rng
        self.measurements: list[Any] = []

    @property
    def left(self) -> float:
        """Of rho; what is rounding counts for nothing."""
        rest = self.rho - self.spent
        return rest if rest > 1e-9 * self.rho else 0.0

    def counts(self, one: Marginal) -> np.ndarray:
        """The exact marginal, flat; private."""
        shape = [self._sizes[column] for column in one]
        cells = np.ravel_multi_index([self._data[column] for column in one], shape)
        return np.bincount(cells, minlength=math.prod(shape)).astype(np.float64)

    def deviation(self, rho: float) -> float:
        """Of the noise on a marginal: replacing a record moves two counts by one, all else one."""
        return math.sqrt(SENSITIVITY[self._relation] / (2 * rho))

    def measure(self, one: Marginal, rho: float) -> None:
        """Spends rho on a marginal."""
        self._spend(rho)
        deviation = self.deviation(rho)
        noisy = self.counts(one) + deviation * self.rng.standard_normal(math.prod(self._sizes[c] for c in one))
        self.measurements.append(self._mbi.LinearMeasurement(noisy, one, stddev=deviation))

    def choose(self, errors: np.ndarray, weight: float, rho: float) -> int:
        """Spends rho on the index of a large error; weight is the largest factor of an L1 distance among them."""
        self._spend(rho)
        sensitivity = SENSITIVITY[self._relation] * weight
        scores = math.sqrt(8 * rho) * errors / (2 * sensitivity)
        return int(self.rng.choice(len(errors), p=softmax(scores)))

    def estimate(self, n_iter: int) -> Any:
        """The model that fits what was measured."""
        engine = self._mbi.estimation.MirrorDescent()
        return engine.estimate(self._domain, self.measurements, known_total=self._n, iters=n_iter)

    def model_size(self, one: Marginal) -> float:
        """Of the model with one marginal more, in megabytes."""
        cliques = [measurement.clique for measurement in self.measurements]
        return float(self._mbi.junction_tree.hypothetical_model_size(self._domain, [*cliques, one]))

    def _spend(self, rho: float) -> None:
        self.spent += rho
        assert self.spent <= self.rho * (1 + 1e-9), "a mechanism has spent more than its budget"


def _generator(key: Array) -> np.random.Generator:
    return np.random.default_rng(np.asarray(jax.random.bits(key, (4,), np.uint32)))


@contextmanager
def _package_seeded(rng: np.random.Generator) -> Generator[None]:
    """The package draws from NumPy's global generator: seeded for it, and put back as it was."""
    before = np.random.get_state()  # noqa: NPY002
    np.random.seed(rng.integers(2**32, dtype=np.uint32))  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(before)  # noqa: NPY002
