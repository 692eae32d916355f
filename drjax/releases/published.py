"""A published PCA as anybody finds it: files of components, and a manifest that may come with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from drjax.attacks.membership_attacks import ComponentsThreat, NoisyMatrix
from drjax.attacks.membership_scores import Release
from drjax.bounds.curve import TradeOff
from drjax.releases import manifest as manifests
from drjax.releases.inputs import Table, matched, read_table
from drjax.releases.mechanism import MomentNoise, bounded, joint_view, proof_of, rebuilt, with_relation
from drjax.reports import records


@dataclass(frozen=True, eq=False)
class Intercepted:
    """What an adversary has of a release.

    Attributes:
        release: Components and eigenvalues, for attacks; an eigenvalue that noise made negative counts as 0.
        columns: d names, or None.
        center: (d,) public, to subtract from records first; 0 if none is known.
        scale: (d,) to divide them by then; 1 if none is known.
        moment: (d, d) the noisy second moment, where it was published.
        mechanism: Mechanism of a private release with a manifest, else None.
        curve: What it proves of a record that is there or another in its place, which is what members and others are;
            None where nothing is known to hold.
        centred: Whether the curator subtracted the mean of the records.
        mean: (d,) the noisy mean that the curator subtracted, of prepared records; None without a mechanism that finds
            it.
        joint: Noisy joint moment, as the mechanism's `noisy_joint` has it, where it was published.
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
        manifest: Manifest of `drjax release pca`, which tells the mechanism.
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
    return replace(found, center=x.mean(axis=0), scale=scale)


def threat(found: Intercepted, candidates: np.ndarray, public: np.ndarray | None) -> ComponentsThreat:
    """What an adversary has who intercepted a release.

    Args:
        found: The release.
        candidates: (m, d), prepared.
        public: (p, d), prepared; None if there are none.
    """
    mechanism, matrix = found.mechanism, None
    if found.joint is not None and mechanism is not None and public is not None:
        seen = joint_view(mechanism, found.joint, public, candidates)
        matrix = NoisyMatrix(moment=seen.moment, public=seen.records[0], candidates=seen.records[1], noise=seen.noise)
    return ComponentsThreat(
        release=found.release,
        candidates=candidates,
        public=public,
        centred=found.centred,
        mean=found.mean,
        noise=None if mechanism is None else MomentNoise(mechanism, found.mean),
        matrix=matrix,
    )


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
