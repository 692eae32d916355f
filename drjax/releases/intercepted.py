"""A published PCA as an adversary finds it: files of components, and a manifest that may come with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from drjax.attacks.membership import attack_scores, fit_shadows, leverages, pca_scores, ratio_scores, strongest_attack
from drjax.attacks.membership_noisy import matrix_ratio, shadow_errors
from drjax.attacks.membership_scores import Release
from drjax.bounds.curve import TradeOff
from drjax.core.types import Array
from drjax.releases import manifest as manifests
from drjax.releases.inputs import Table, matched, read_table
from drjax.releases.mechanism import MomentNoise, bounded, joint_view, proof_of, rebuilt, with_relation
from drjax.reports import records

ATTACKS = ("strongest", "reconstruction", "ratio", "leverage", "shadow-error", "matrix-ratio")
"""Attacks by name; the last two need a manifest, which says what the noise is."""

_REASONS = {
    "reconstruction": "the paper's attack: a member is rebuilt better from the components",
    "ratio": "how a candidate would score in and out of the release, from public records",
    "leverage": "the share of the released variance that a candidate would make up itself",
    "shadow-error": "the mechanism is known: the error of a candidate beside those in shadows with the same noise",
    "matrix-ratio": "the mechanism is known and its noisy matrix is published, which holds everything released",
}


@dataclass(frozen=True, eq=False)
class Intercepted:
    """What an adversary has of a release.

    Attributes:
        release: For attacks; of eigenvalues made negative by noise 0 is left.
        columns: d names, or None.
        center: (d,) public, to subtract from records first; 0 if none is known.
        scale: (d,) to divide them by then; 1 if none is known.
        moment: (d, d) the noisy second moment, where it was published.
        mechanism: Of a private release with a manifest, else None.
        curve: What it proves of a record that is there or another in its place, which is what members and others are;
            None where nothing is known to hold.
        centred: Whether the curator subtracted the mean of the records.
        mean: (d,) the noisy mean that the curator subtracted, of prepared records; None without a mechanism that finds
            it.
        joint: As the mechanism's `noisy_joint` has it, where it was published.
    """

    release: Release
    columns: tuple[str, ...] | None
    center: np.ndarray
    scale: np.ndarray
    moment: np.ndarray | None
    mechanism: Any
    curve: TradeOff | None
    centred: bool
    mean: np.ndarray | None = None
    joint: np.ndarray | None = None

    def prepared(self, table: Table) -> np.ndarray:
        """Records (n, d) of a file as the curator's were before the components were computed; columns by name.

        Raises:
            ValueError: columns that do not match.
        """
        x = matched(table, self.columns, len(self.center))
        if self.mechanism is not None:
            return bounded(self.mechanism, x / self.scale)
        return (x - self.center) / self.scale


def intercept(
    components: Path,
    *,
    manifest: Path | None = None,
    n_records: int | None = None,
    centred: bool = False,
) -> Intercepted:
    """Reads a release.

    Args:
        components: NPZ with `components` (k, d) and, where published, `eigenvalues`, `mean`, `n_records`, `columns`,
            `center`, `scale`, `moment`; or CSV or NPY with the components alone, one a row.
        manifest: Of `drjax release pca`, which tells the mechanism.
        n_records: How many records the release is of, if the file does not say.
        centred: Whether the curator subtracted the records' mean; so if the file holds a `mean`.

    Raises:
        FileNotFoundError: nothing at a path.
        ValueError: damaged files, arrays of wrong shapes, components that are not orthonormal, or a manifest of other
            components.
    """
    if not components.is_file():
        raise FileNotFoundError(f"there is no file {components}: check --components")
    if components.suffix.lower() == ".npz":
        arrays = records.load_arrays(components)
        if "components" not in arrays:
            held = ", ".join(f"{name} {array.shape}" for name, array in arrays.items()) or "nothing"
            raise ValueError(f"components must be an array of that name in {components}, got {held}")
        columns = tuple(map(str, arrays["columns"])) if "columns" in arrays else None
    else:
        table = read_table(components)
        arrays, columns = {"components": table.values}, table.columns
    number = n_records
    if number is None and "n_records" in arrays:
        number = int(arrays["n_records"])
    values = arrays.get("eigenvalues")
    stated = None if manifest is None else manifests.read(manifest)
    if values is not None and stated is not None:
        values = np.maximum(values, 0)
    release = Release(arrays["components"], values, arrays.get("mean"), None, number)
    d = release.components.shape[1]
    center, scale = arrays.get("center", np.zeros(d)), arrays.get("scale", np.ones(d))
    for name, array in (("center", center), ("scale", scale), ("columns", columns or center)):
        if np.shape(array) != (d,):
            raise ValueError(f"{name} in {components} must have {d} entries, got shape {np.shape(array)}")
    mechanism = curve = mean = None
    joint = arrays.get("moment")
    if stated is not None:
        manifests.check_file(stated, components)
        mechanism = _mechanism(stated, arrays, number)
        if mechanism.mean_weight is not None:
            mean, joint = (center - arrays["origin"]) / scale, arrays.get("joint")
        # Under add_or_remove the divisor is the public guess at how many there are.
        number = number or stated["n_records"] or round(mechanism.divisor)
        if stated["guarantee"]["holds"]:
            curve = proof_of(with_relation(mechanism, "replace_one")).curve
        release = Release(release.components, release.eigenvalues, None, None, number)
    return Intercepted(
        release=release,
        columns=columns,
        center=center,
        scale=scale,
        moment=arrays.get("moment"),
        mechanism=mechanism,
        curve=curve,
        centred=centred or release.mean is not None or mean is not None,
        mean=mean,
        joint=joint,
    )


def standardised(found: Intercepted, public: Table) -> Intercepted:
    """The same with every column centred and scaled by its mean and deviation among public records.

    For components of records that were standardised, by numbers that the adversary has to guess.

    Raises:
        ValueError: columns that do not match, or a release that says how its records were scaled.
    """
    if found.mechanism is not None or (found.scale != 1).any() or found.center.any():
        raise ValueError("standardise_by must be left out for components that come with their own center and scale")
    x = matched(public, found.columns, len(found.center))
    deviation = x.std(axis=0)
    scale = np.where(deviation > 0, deviation, 1.0)
    return Intercepted(**{**vars(found), "center": x.mean(axis=0), "scale": scale})


def chosen(name: str, found: Intercepted, *, has_public: bool) -> tuple[str, str]:
    """Name of an attack and why it is taken.

    Raises:
        ValueError: an attack that needs what is not there.
    """
    if name == "strongest":
        if found.mechanism is not None and has_public and found.release.n_records is not None:
            name = "shadow-error" if found.joint is None else "matrix-ratio"
        else:
            best = strongest_attack(found.release, has_public=has_public and found.release.n_records is not None)
            return best.name, best.reason
    needs = {
        "ratio": ("public", "n_records"),
        "leverage": ("eigenvalues", "n_records"),
        "shadow-error": ("public", "n_records", "manifest"),
        "matrix-ratio": ("public", "n_records", "manifest", "moment"),
    }.get(name, ())
    has = {
        "public": has_public,
        "n_records": found.release.n_records is not None,
        "eigenvalues": found.release.eigenvalues is not None,
        "manifest": found.mechanism is not None,
        "moment": found.joint is not None,
    }
    missing = [need for need in needs if not has[need]]
    if missing:
        options = {"public": "--public", "n_records": "--n-records", "manifest": "--manifest"}
        hints = [options.get(need, f"{need} among the components") for need in missing]
        raise ValueError(f"attack {name} must have {' and '.join(hints)}, got none")
    return name, _REASONS[name]


def scores(
    key: Array,
    name: str,
    found: Intercepted,
    candidates: np.ndarray,
    *,
    public: np.ndarray | None = None,
    n_shadows: int = 32,
    progress: bool = False,
) -> np.ndarray:
    """Evidence for membership of prepared candidates, (m,), larger for members.

    Args:
        key: Of shadows.
        name: As `chosen` returns it.
        found: The release.
        candidates: (m, d), prepared.
        public: (p, d), prepared.
        n_shadows: Of "ratio" and "shadow-error".
        progress: Show bars.

    Raises:
        ValueError: fewer public records than the release has, for attacks with shadows, or arrays that do not match.
    """
    release = found.release
    away = candidates if found.mean is None else candidates - found.mean
    if name == "reconstruction":
        return -pca_scores(release.components, away, mean=release.mean)
    if name == "leverage":
        return -leverages(release, away)[:, -1]
    assert public is not None
    assert release.n_records is not None
    if name == "matrix-ratio":
        assert found.joint is not None
        seen = joint_view(found.mechanism, found.joint, public, candidates)
        known, asked = seen.records
        return matrix_ratio(key, seen.moment, known, asked, release.n_records, seen.noise)
    noise = None if found.mechanism is None else MomentNoise(found.mechanism, found.mean)
    if len(public) < release.n_records:
        raise ValueError(
            f"public must hold at least the {release.n_records} records of the release for attack {name}, got "
            f"{len(public)}: pass more, or --attack reconstruction or leverage"
        )
    fitted = fit_shadows(
        key,
        public,
        release.n_records,
        centred=found.centred,
        noise=noise,
        n_shadows=n_shadows,
        n_pairs=0 if noise is not None else min(2, n_shadows),
        progress=progress,
    )
    if name == "shadow-error":
        return shadow_errors(fitted, release, away)
    if noise is not None:
        return ratio_scores(fitted, release, candidates, method="first_order")
    return attack_scores(release, candidates, shadows=fitted)


def _mechanism(stated: Mapping[str, Any], arrays: Mapping[str, np.ndarray], n_records: int | None) -> Any:
    entry: Any = stated.get("mechanism")
    try:
        divisor = entry["divisor"] or n_records or stated["n_records"]
        return rebuilt(
            entry["name"],
            entry["parameters"],
            arrays,
            neighbouring=stated["guarantee"]["neighbouring"],
            n_components=entry["n_components"],
            divisor=None if divisor is None else float(divisor),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"manifest must be of a private PCA, got an entry on its mechanism of {entry!r}") from error
