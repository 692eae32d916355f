"""What an adversary has of published components, and the attacks on who is in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from drjax.attacks.attack import Attack, Cost, MembershipScores, Threat
from drjax.attacks.membership_noisy import matrix_ratio, shadow_errors
from drjax.attacks.membership_ratio import ratio_scores
from drjax.attacks.membership_scores import Release, embedding_distances, leverages, pca_scores
from drjax.attacks.membership_shadows import HELD_BYTES, Noise, Shadows, fit_shadows
from drjax.attacks.shadow import FLOPS
from drjax.core.types import Array


@dataclass(frozen=True, kw_only=True, eq=False)
class NoisyMatrix:
    """A published matrix that the components are of, and records as the vectors that it is a moment of.

    Attributes:
        moment: (q, q), symmetric.
        public: (p, q).
        candidates: (m, q).
        noise: Noise of the matrix, as `drjax.attacks.membership_noisy.matrix_ratio` takes it.
    """

    moment: np.ndarray
    public: np.ndarray
    candidates: np.ndarray
    noise: Noise


@dataclass(frozen=True, kw_only=True, eq=False)
class ComponentsThreat(Threat):
    """Principal components, and records that may be among those that they were computed from.

    Attributes:
        release: What was published.
        candidates: (m, d), prepared as the curator's records were.
        public: (p, d) other records, prepared in the same way; None if the adversary has none.
        others: (N - 1, d), all records but one; None if the adversary does not know them.
        centred: Whether the curator subtracted the mean of the records.
        mean: (d,) that was subtracted, where it is not in `release` but known otherwise; None if not.
        noise: Noise of a known mechanism on a second moment; None if the components have none.
        matrix: The noisy matrix, where it was published; None if not.
        progress: Whether to show bars on standard error.
    """

    kind: ClassVar[str] = "components"
    release: Release
    candidates: np.ndarray
    public: np.ndarray | None = None
    others: np.ndarray | None = None
    centred: bool = False
    mean: np.ndarray | None = None
    noise: Noise | None = None
    matrix: NoisyMatrix | None = None
    progress: bool = False

    @property
    def has(self) -> dict[str, bool]:
        """What attacks may need, by name."""
        return {
            "public": self.public is not None,
            "n_records": self.release.n_records is not None,
            "eigenvalues": self.release.eigenvalues is not None,
            "embedding": self.release.coordinates is not None,
            "noise": self.noise is not None,
            "matrix": self.matrix is not None,
            "others": self.others is not None,
        }

    @property
    def away(self) -> np.ndarray:
        """Candidates less the mean that is known otherwise, (m, d)."""
        return self.candidates if self.mean is None else self.candidates - self.mean


@dataclass(frozen=True, kw_only=True)
class MembershipAttack(Attack):
    """An attack on who is in published components.

    Attributes:
        needs: Names of `ComponentsThreat.has` without which it does not work.
        is_exact: Whether it decides membership up to rounding, rather than ranking candidates.
        works_on_files: Whether published files and public records are enough.
        n_shadows: Shadow releases, of an attack that makes any.
    """

    kind: ClassVar[str] = "components"
    needs: ClassVar[tuple[str, ...]] = ()
    is_exact: ClassVar[bool] = False
    works_on_files: ClassVar[bool] = True
    n_shadows: int = 32

    def missing(self, has: Mapping[str, bool]) -> list[str]:
        """What it needs and the adversary does not have, by name."""
        return [name for name in self.needs if not has[name]]

    def fits(self, threat: ComponentsThreat) -> str | None:
        """See `Attack`."""
        missing = self.missing(threat.has)
        return f"needs {' and '.join(missing)}" if missing else None

    def cost(self, threat: ComponentsThreat) -> Cost:
        """See `Attack`."""
        k, d = threat.release.components.shape
        m, n = len(threat.candidates), threat.release.n_records or 0
        held = 8.0 * self.n_shadows * min(n, d) * d if self.needs_shadows else 0.0
        passes = 2 if held > HELD_BYTES else 1
        shadows = passes * self.n_shadows * (2.0 * n * d**2 + 10.0 * d**3) if self.needs_shadows else 0.0
        scored = 4.0 * m * k * d * (self.n_shadows if self.needs_shadows else 1)
        return Cost((shadows + scored) / FLOPS, 24.0 * m * d + (held if passes == 1 else 0.0))

    def run(self, key: Array, threat: ComponentsThreat) -> MembershipScores:
        """See `Attack`."""
        return MembershipScores(np.asarray(self.scores(key, threat)))

    def scores(self, key: Array, threat: ComponentsThreat) -> np.ndarray:
        """Evidence for each candidate, (m,), larger for members."""
        raise NotImplementedError

    def shadows(self, key: Array, threat: ComponentsThreat) -> Shadows:
        """Releases of public records, with the noise of the mechanism where that is known.

        Raises:
            ValueError: fewer public records than the release has.
        """
        n = threat.release.n_records
        assert threat.public is not None
        assert n is not None
        if len(threat.public) < n:
            raise ValueError(
                f"public must hold at least the {n} records of the release for attack {self.name}, got "
                f"{len(threat.public)}: pass more, or --attack reconstruction or leverage"
            )
        return fit_shadows(
            key,
            threat.public,
            n,
            centred=threat.centred,
            noise=threat.noise,
            n_shadows=self.n_shadows,
            n_pairs=0 if threat.noise is not None else min(2, self.n_shadows),
            progress=threat.progress,
        )


@dataclass(frozen=True, kw_only=True)
class Informed(MembershipAttack):
    """Attack with all records but one known: whether the components are eigenvectors with the candidate as the last."""

    name: str = "informed"
    label: str = "All but one record known"
    description: str = "Asks whether the components are eigenvectors of the known records and the candidate."
    why: str = "all but one record known: a wrong candidate does not have these eigenvectors"
    needs = ("others",)
    is_exact = True
    works_on_files = False

    def scores(self, key: Array, threat: ComponentsThreat) -> np.ndarray:
        """Minus the norm of A v - v (v^T A v) over that of A v, for A with the candidate among the records."""
        del key
        assert threat.others is not None
        v, n = threat.release.components.T.astype(np.float64), len(threat.others) + 1
        found = []
        for z in threat.candidates.astype(np.float64):
            rows = np.concatenate([threat.others, z[None]])
            rows = rows - rows.mean(axis=0) if threat.centred else rows
            image = rows.T @ (rows @ v) / n
            within = v.T @ image
            # Off the diagonal, eigenvectors have nothing.
            rest = image - v * np.diagonal(within)
            found.append(-float(np.linalg.norm(rest) / max(np.linalg.norm(image), np.finfo(np.float64).tiny)))
        return np.array(found)


@dataclass(frozen=True, kw_only=True)
class MatrixRatio(MembershipAttack):
    """Likelihood-ratio attack on a noisy second moment; see `drjax.attacks.membership_noisy.matrix_ratio`."""

    name: str = "matrix-ratio"
    label: str = "Likelihood ratio of the noisy matrix"
    description: str = "Asks how likely the noisy matrix is with the candidate in it and without."
    why: str = "the mechanism is known and its noisy matrix is published, which holds everything released"
    needs_public: bool = True
    needs = ("public", "n_records", "noise", "matrix")

    def scores(self, key: Array, threat: ComponentsThreat) -> np.ndarray:
        """See `MembershipAttack`; draws noise, to measure its variance."""
        seen, n = threat.matrix, threat.release.n_records
        assert seen is not None
        assert n is not None
        return matrix_ratio(key, seen.moment, seen.public, seen.candidates, n, seen.noise)


@dataclass(frozen=True, kw_only=True)
class ShadowError(MembershipAttack):
    """Attack by reconstruction errors against shadows; see `drjax.attacks.membership_noisy.shadow_errors`."""

    name: str = "shadow-error"
    label: str = "Error beside noisy shadows"
    description: str = "Compares a candidate's reconstruction error with those in shadows with the same noise."
    why: str = "the mechanism is known: the error of a candidate beside those in shadows with the same noise"
    needs_shadows: bool = True
    needs_public: bool = True
    needs = ("public", "n_records", "noise")

    def scores(self, key: Array, threat: ComponentsThreat) -> np.ndarray:
        """See `MembershipAttack`; draws shadows."""
        return shadow_errors(self.shadows(key, threat), threat.release, threat.away)


@dataclass(frozen=True, kw_only=True)
class Embedding(MembershipAttack):
    """Attack by distances in the embedding; see `drjax.attacks.membership_scores.embedding_distances`."""

    name: str = "embedding"
    label: str = "A look at the embedding"
    description: str = "Looks for the candidate's coordinates among the released rows."
    why: str = "a member's coordinates are one of the released rows"
    needs = ("embedding",)
    is_exact = True
    works_on_files = False

    def scores(self, key: Array, threat: ComponentsThreat) -> np.ndarray:
        """See `MembershipAttack`; nothing is drawn."""
        del key
        return -embedding_distances(threat.release, threat.away)


@dataclass(frozen=True, kw_only=True)
class Ratio(MembershipAttack):
    """Likelihood-ratio attack on components; see `drjax.attacks.membership_ratio.ratio_scores`."""

    name: str = "ratio"
    label: str = "Likelihood ratio"
    description: str = "Asks how a candidate would score in and out of the release, from public records."
    why: str = "how a candidate would score in and out of the release, from public records"
    needs_shadows: bool = True
    needs_public: bool = True
    needs = ("public", "n_records")

    def scores(self, key: Array, threat: ComponentsThreat) -> np.ndarray:
        """See `MembershipAttack`; draws shadows."""
        fitted = self.shadows(key, threat)
        if threat.noise is not None:
            return ratio_scores(fitted, threat.release, threat.candidates, method="first_order")
        return ratio_scores(
            fitted, threat.release, threat.away, method="rank_one" if len(fitted.bases) else "first_order"
        )


@dataclass(frozen=True, kw_only=True)
class Leverage(MembershipAttack):
    """Attack by leverages; see `drjax.attacks.membership_scores.leverages`."""

    name: str = "leverage"
    label: str = "Leverage"
    description: str = "The share of the released variance that a candidate would make up itself."
    why: str = "no public data are needed: eigenvalues bound what a member's coordinates can be"
    needs = ("eigenvalues", "n_records")

    def scores(self, key: Array, threat: ComponentsThreat) -> np.ndarray:
        """See `MembershipAttack`; nothing is drawn."""
        del key
        return -leverages(threat.release, threat.away)[:, -1]


@dataclass(frozen=True, kw_only=True)
class ReconstructionError(MembershipAttack):
    """The paper's; see `drjax.attacks.membership_scores.pca_scores`."""

    name: str = "reconstruction"
    label: str = "Reconstruction error (paper 001)"
    description: str = "A member is rebuilt better from the components than another record."
    why: str = "the paper's attack, which needs nothing else: a member is rebuilt better from the components"

    def scores(self, key: Array, threat: ComponentsThreat) -> np.ndarray:
        """See `MembershipAttack`; nothing is drawn."""
        del key
        return -pca_scores(threat.release.components, threat.away, mean=threat.release.mean)
