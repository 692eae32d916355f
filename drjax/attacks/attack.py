"""The contract of attacks: what an adversary has of a release (a threat), and what they make of it (a finding).

An attack is a frozen dataclass in a file of its own and one line of `drjax.attacks.registry.ATTACKS`. It says of itself
what others must know: its name and words, what it needs, whether it suits a threat and what it costs. It is given a
threat and no configuration of whoever runs it, so that the same object runs in an audit, on a published file and in a
sweep.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np

from drjax.attacks.cost import Cost
from drjax.attacks.passing import Inputs, PassingShadows
from drjax.attacks.predicted import left_open, predicted_mse
from drjax.core.types import Array, DRMethod, Reconstruction, Status

LARGER = 1.1
"""Factor from which a predicted error is larger than another: a prior is somewhat wider than the records it is of."""

MOSTLY_OPEN = 0.5
"""Share of what features vary by above which most is open; of such answers many are worse than none in those units."""

COMPILING = 30.0
"""Seconds that an attack with a network takes for its programs, whatever the sizes."""


class MembershipScores(NamedTuple):
    """Evidence that candidates are among the records of a release.

    Attributes:
        scores: (m,), larger for members.
        facts: What a record of the attack holds beside them.
    """

    scores: np.ndarray
    facts: Mapping[str, Any] = MappingProxyType({})


Finding = Reconstruction | MembershipScores


class Threat:
    """What an adversary has of releases; each kind of release has a class of its own, and an attack names its."""

    kind: ClassVar[str]

    def resumable(self, checkpoint: Path) -> Any:
        """The same threat with a place for the state of a training, where attacks on such threats keep one."""
        del checkpoint
        return self

    def settled(self, found: Any) -> Any:
        """A finding without answers that are no better than none, where findings on such threats say so of theirs."""
        return found


@dataclass(frozen=True, kw_only=True)
class Shadows:
    """Releases whose target the adversary knows: they made them.

    Attributes:
        known: (p, d), records that all of them share.
        records: (s, d), the target of each, and coords (s, p + 1, k).
        coords: (s, p + 1, k), the release of each of `records`, its target in row 0; an array, or factored.
        validation: (v, d), further ones to stop a training on, and validation_coords (v, p + 1, k).
        validation_coords: (v, p + 1, k), the release of each of `validation`; likewise.
        validation_hidden: (v, h, k), where h further records lie whose place the adversary has no use for; None if
            there are none.
    """

    known: np.ndarray
    records: np.ndarray
    coords: Any
    validation: np.ndarray
    validation_coords: Any
    validation_hidden: np.ndarray | None = None


class KnownFeatures(NamedTuple):
    """Features of the target that the adversary has: which, (d,) bool, and their values in every release, (m, f)."""

    which: np.ndarray
    values: np.ndarray


@dataclass(frozen=True, kw_only=True)
class EmbeddingThreat(Threat):
    """Releases of the coordinates of one unknown record each and of the same known ones.

    Attributes:
        method: DR method, as the adversary believes it to be, with its hyperparameters.
        known: (p, d).
        coords: (m, p + 1, k), target in row 0; an array, or a `FactoredCoords` for attacks that `take_factors`.
        further: Makes further shadow releases, which are added up and forgotten; None if `shadows` gives all.
        public: (s, d) records of the same kind, not released; None if the adversary has none.
        shadows: Makes shadow releases when first asked; where there are no public records, of known ones that stand in
            for the target.
        hidden: (m, h, k), where h further records lie that the adversary does not know; None if all are known.
        features: Known features of the target; None if the adversary has none.
        decimals: Decimals that coordinates are rounded to; None if they are not.
        dtype: What releases are computed in, "float32" or "float64".
        seed_key: PRNG key of the releases, where the adversary knows their seed, as `shadow_embeddings` with shared
            randomness takes it.
        bounds: Least and greatest value of a feature; None if there are none.
        alike: Whether shadows have all the noise of the releases, as they have where the whole pipeline is known.
        truth: (m, d), what yardsticks look at and attacks do not; None where nobody has it.
        checkpoint: Where a training may leave its state while it lasts.
        progress: Whether to show bars on standard error.
    """

    kind: ClassVar[str] = "embedding"
    method: DRMethod
    known: np.ndarray
    coords: Any
    shadows: Callable[[], Shadows]
    further: PassingShadows | None = None
    public: np.ndarray | None = None
    hidden: np.ndarray | None = None
    features: KnownFeatures | None = None
    decimals: int | None = None
    dtype: str = "float64"
    seed_key: Array | None = None
    bounds: tuple[float, float] | None = None
    alike: bool = True
    truth: np.ndarray | None = None
    checkpoint: Path | None = None
    progress: bool = False

    def resumable(self, checkpoint: Path) -> EmbeddingThreat:
        """See `Threat`."""
        return dataclasses.replace(self, checkpoint=checkpoint)

    @property
    def n_releases(self) -> int:
        """Releases under attack, m."""
        return len(self.coords)

    @property
    def precision(self) -> float | None:
        """Largest error of rounding; None if coordinates are not rounded."""
        return None if self.decimals is None else 0.5 * 10.0**-self.decimals

    @property
    def expected_of(self) -> np.ndarray:
        """Records that tell what the target may be: the public ones, or without any the known ones."""
        return self.known if self.public is None else self.public

    @property
    def usual_mse(self) -> float:
        """Mean squared error of the mean of those records."""
        return float(self.expected_of.astype(np.float64).var(axis=0).mean())

    def clipped(self, found: Reconstruction) -> Reconstruction:
        """A reconstruction within the bounds."""
        return found if self.bounds is None else found._replace(x=np.clip(found.x, *self.bounds))

    def guessed(self, found: Reconstruction, which: np.ndarray) -> Reconstruction:
        """A reconstruction with the expected record, and its error, for the lanes `which` (m,); candidates stay."""
        expected_of = self.expected_of.astype(np.float64)
        mean, usual = expected_of.mean(axis=0), self.usual_mse
        return found._replace(
            x=np.where(which[:, None], mean, found.x),
            residual_norm=np.where(which, np.sqrt(usual * mean.size), found.residual_norm),
            expected_mse=None if found.expected_mse is None else np.where(which, usual, found.expected_mse),
            feature_mse=None
            if found.feature_mse is None
            else np.where(which[:, None], expected_of.var(axis=0), found.feature_mse),
        )

    def open_share(self, found: Reconstruction, *, most: float = 1.0) -> np.ndarray:
        """(m,) `left_open` of a reconstruction; of attacks that do not tell features apart 0."""
        if found.feature_mse is None:
            return np.zeros(len(found.x))
        return left_open(np.asarray(found.feature_mse), self.expected_of.astype(np.float64).var(axis=0), most=most)

    def settled(self, found: Reconstruction) -> Reconstruction:
        """A reconstruction with the expected record in place of answers that nobody should rely on.

        Those are answers with the status MISFIT of which no smaller error is predicted than the expected record has,
        or none at all, and NOT_CONVERGED ones of which a larger one is (`LARGER`). Candidates and status stay, but that
        OK is PARTIAL where more than `MOSTLY_OPEN` is left open.
        """
        status, predicted = np.asarray(found.status), predicted_mse(found)
        is_misfit, is_open = ((status & np.uint32(flag)) != 0 for flag in (Status.MISFIT, Status.NOT_CONVERGED))
        is_worthless = is_misfit & ~(predicted < self.usual_mse) | is_open & (predicted > LARGER * self.usual_mse)
        is_partial = (status == Status.OK) & (self.open_share(found) > MOSTLY_OPEN)
        settled = np.where(is_partial, np.uint32(Status.PARTIAL), status).astype(np.uint32)
        return self.guessed(found, is_worthless)._replace(status=settled)


@dataclass(frozen=True, kw_only=True)
class EveryRecord(Threat):
    """One release of all records; the adversary against record i has the n - 1 others and nothing else.

    Attributes:
        method: DR method, as in `EmbeddingThreat`; so are decimals, dtype, bounds, alike and progress.
        x: (n, d).
        coords: (n, k), in the same order.
        rows: (m,), records to attack.
        stand_ins: Makes shadow releases of the known records (n - 1, d) of one record.
        kept: What attacks on some of the rows have made for all of them; see `once`.
    """

    kind: ClassVar[str] = "embedding"
    method: DRMethod
    x: np.ndarray
    coords: np.ndarray
    rows: np.ndarray
    stand_ins: Callable[[np.ndarray], Shadows]
    decimals: int | None = None
    dtype: str = "float64"
    bounds: tuple[float, float] | None = None
    alike: bool = True
    progress: bool = False
    kept: dict[str, Any] = dataclasses.field(default_factory=dict, repr=False, compare=False)

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """What `make` returns, made once for this release whichever rows are attacked, and kept under a name."""
        release = self.method, self.x, self.coords
        found = self.kept.get(name)
        if found is None or any(old is not new for old, new in zip(found[0], release, strict=True)):
            found = self.kept[name] = release, make()
        return found[1]

    def threat(self, row: int) -> EmbeddingThreat:
        """What the adversary against one record has."""
        known = np.delete(self.x, row, axis=0)
        return self._against(known, np.concatenate([self.coords[row : row + 1], np.delete(self.coords, row, axis=0)]))

    @property
    def shapes(self) -> EmbeddingThreat:
        """The same of any record, in shapes alone, which take no memory: for `Attack.fits` and `Attack.cost`."""
        (n, d), k = self.x.shape, self.coords.shape[1]
        return self._against(np.broadcast_to(0.0, (n - 1, d)), np.broadcast_to(0.0, (n, k)))

    def _against(self, known: np.ndarray, coords: np.ndarray) -> EmbeddingThreat:
        own = {name: getattr(self, name) for name in ("method", "decimals", "dtype", "bounds", "alike", "progress")}
        return EmbeddingThreat(known=known, coords=coords[None], shadows=lambda: self.stand_ins(known), **own)


@dataclass(frozen=True, kw_only=True)
class Attack:
    """What every attack says of itself and does; see the module.

    Attributes:
        kind: Kind of the threats that it is made for.
        name: Name on the command line and in records.
        label: Label in tables and figures.
        description: Description in plain words, one sentence.
        why: Reason why it works, one sentence.
        is_baseline: Whether it attacks nothing: a baseline.
        trains: Whether all that it knows of the release it learns from shadows: trained on releases that went through a
            defence, it is the adversary who knows of that.
        needs_shadows: Whether it looks at shadow releases.
        needs_public: Whether it needs public records.
    """

    kind: ClassVar[str]
    name: str
    label: str
    description: str
    why: str = ""
    is_baseline: bool = False
    trains: bool = False
    needs_shadows: bool = False
    needs_public: bool = False

    def fits(self, threat: Any) -> str | None:
        """Why the attack is none for a threat, as the end of a sentence that begins with its name; None if it is."""
        raise NotImplementedError

    def cost(self, threat: Any) -> Cost:
        """What `run` takes, before it is run."""
        raise NotImplementedError

    def run(self, key: Array, threat: Any) -> Any:
        """Attacks; the finding is of every release of the threat, and that of one does not depend on the others."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class EmbeddingAttack(Attack):
    """An attack on releases of coordinates.

    Attributes:
        takes_hidden: Whether it works where the adversary does not know further released records.
        takes_features: Whether `run` makes use of features of the target that the adversary has; for other attacks
            `drjax.attacks.reconstruction.features` does, which may ask for `equations`.
        takes_factors: Whether it works on factored coordinates; for others they are made first.
        each: Whether an audit of every record runs it unless told otherwise.
        only_each: Whether it runs in such an audit alone.
        most_each: Most records of such an audit that it takes; None for any number.
        shares_each: Whether `run_each` shares work between records; if not, a run is resumed between them.
        confirms: Whether the status OK says that the release bears the answer out; of what is learned from other
            releases or neighbours it says that nothing went wrong, unless the release is certified beside.

    Example:
        >>> from drjax.attacks.registry import ATTACKS
        >>> from drjax.dr import PCA, TSNE
        >>> attack = ATTACKS["embedding"]["closed-form"]
        >>> attack.label, attack.suits(PCA(), seed_known=False), attack.suits(TSNE(), seed_known=False)
        ('Closed form with prior', None, 'is of PCA, truncated SVD and classical MDS of Euclidean distances')
    """

    kind: ClassVar[str] = "embedding"
    takes_hidden: ClassVar[bool] = False
    takes_features: ClassVar[bool] = False
    takes_factors: ClassVar[bool] = False
    each: ClassVar[bool] = False
    only_each: ClassVar[bool] = False
    most_each: ClassVar[int | None] = None
    shares_each: ClassVar[bool] = False
    confirms: ClassVar[bool] = True

    def suits(self, method: DRMethod, *, seed_known: bool) -> str | None:
        """Why it is no attack on the method, as the end of a sentence that begins with its name; None if it is one."""
        del method, seed_known

    def fits(self, threat: EmbeddingThreat) -> str | None:
        """See `Attack`."""
        reason = self.suits(threat.method, seed_known=threat.seed_key is not None)
        if reason is None and threat.hidden is not None and not self.takes_hidden:
            return "must know all released records but the target"
        if reason is None and self.needs_public and threat.public is None:
            return "needs public records"
        return reason

    def fits_each(self, every: EveryRecord) -> str | None:
        """As `fits`, for every record of one release."""
        if self.most_each is not None and len(every.x) > self.most_each:
            return f"takes at most {self.most_each:,} records"
        return self.fits(every.shapes)

    def seconds_each(self, every: EveryRecord, n_rows: int) -> float:
        """Time that `run_each` takes for so many records: `cost` is of each, or of all where they share the work."""
        one = self.cost(every.shapes).seconds
        return one if self.shares_each else n_rows * one

    def unchecked(self, key: Array, threat: EmbeddingThreat) -> Reconstruction:
        """What `run` finds, before its answers are checked against the release: what attacks go on from."""
        return self.run(key, threat)

    def summed(self, threat: EmbeddingThreat) -> Callable[[], Inputs] | None:
        """What makes the inputs whose sums over `threat.further` it learns from; None where it does not."""
        del threat

    def equations(self, threat: EmbeddingThreat) -> np.ndarray | None:
        """Reconstructions (m, d) with the features of the target as equations; None where it cannot take them so."""
        del threat

    def misfit(self, threat: EmbeddingThreat) -> list[str]:
        """Why the release of a threat of one is none of the method's, where the attack can tell; else nothing."""
        del threat
        return []

    def run_each(self, key: Array, every: EveryRecord) -> Reconstruction:
        """Attacks the rows of one release, each by the adversary who knows all others; m is the number of rows."""
        threats = [every.threat(int(row)) for row in every.rows]
        found = [
            one.settled(self.run(jax.random.fold_in(key, int(row)), one))
            for row, one in zip(every.rows, threats, strict=True)
        ]
        names = "x", "residual_norm", "status"
        x, norm, status = (np.concatenate([getattr(one, name) for one in found]) for name in names)
        expected = [one.expected_mse for one in found]
        errors = None if any(one is None for one in expected) else np.concatenate(expected)
        return Reconstruction(x, None, x[:, None], norm, status, errors)


@dataclass(frozen=True, kw_only=True)
class LearnedAttack(EmbeddingAttack):
    """An attack that learns all it knows of the release from shadows of public records, whatever the method."""

    trains: bool = True
    needs_shadows: bool = True
    needs_public: bool = True
    takes_hidden = True
    confirms = False
