"""The manifest of a release: what was published, under which guarantee, and where every public number came from.

It is published beside the release, so no number in it depends on the private records: not their checksum, not a figure
of utility, and their number only under relations that make it public. It names no machine, user, path or file of the
curator.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from drjax.bounds import tradeoff
from drjax.bounds.curve import TradeOff
from drjax.bounds.curve_json import KINDS
from drjax.core.json_files import read_object
from drjax.data.checksums import sha256
from drjax.reports import records

MANIFEST = "manifest.json"

SCHEMA_VERSION = 1

NOT_PRIVATE = (
    "THE GUARANTEE DOES NOT HOLD: bounds were computed from the private records (--bounds-from-private-data), so "
    "nothing is guaranteed about any of them"
)
"""First entry of a manifest whose bounds are not public."""

PUBLISHED = ("drjax", "commit", "dirty", "python", "versions")
"""Entries of the provenance of a run that a manifest holds."""

RELATIONS = {
    "zero_out": "one record is replaced by one that counts for nothing; the number of records is public",
    "replace_one": "one record is replaced by any other; the number of records is public",
    "add_or_remove": "one record is added or taken away; the number of records is private",
}
"""What neighbouring data sets are, in words."""

NOT_COVERED = (
    "Everything computed from the published files alone is covered by the guarantee. Another release from the same "
    "records is not: their epsilons add up.",
    "The guarantee is of one record. Somebody with several records among them has several times the epsilon.",
    "Epsilon, mechanism, bounds and number of components must have been chosen without a look at the records.",
)

CHOSEN_OUTSIDE = "That this option was chosen by looking at the exposure of private records lies outside its guarantee."
"""What is to be said of a release that was chosen so; no manifest holds it, as none knows."""


def guarantee(curve: TradeOff, note: str, *, epsilon: float, delta: float, holds: bool) -> dict[str, Any]:
    """The entry on what is proven.

    Args:
        curve: Trade-off curve of the release.
        note: What is proven, in words.
        epsilon: Epsilon asked for.
        delta: Delta asked for.
        holds: Whether all bounds are public.

    Raises:
        RuntimeError: the curve does not prove what was asked for.
    """
    if not curve.delta_at(epsilon) <= delta:
        raise RuntimeError(f"a release must prove ({epsilon}, {delta})-DP, got a curve of less: {curve}")
    relation = curve.neighbouring
    assert relation is not None
    entry: dict[str, Any] = {"holds": holds, "neighbouring": relation, "neighbours": RELATIONS[relation]}
    if not holds:
        # Curve and note may have numbers from the bounds in them.
        return entry | {"with_public_bounds_it_would_be": {"epsilon": epsilon, "delta": delta}}
    claim = {"epsilon": epsilon, "delta": delta}
    return entry | claim | {"curves": curves_to_json(curve), "note": note}


def software() -> dict[str, Any]:
    """What made a release, and on which day; names no machine, user or path.

    Read before the records are: a time that comes after them says how long they took.
    """
    found = records.provenance()
    return {name: found[name] for name in PUBLISHED} | {"date": found["utc"][:10]}


def write(folder: Path, content: Mapping[str, Any], *, made: Mapping[str, Any], files: Sequence[str]) -> None:
    """Writes a manifest, whose first line holds its first entry.

    Args:
        folder: Folder of the release.
        content: The entries about the release; what everyone needs first comes first.
        made: Facts as `software` returned them.
        files: Names of the published files, whose checksums it gives.

    Raises:
        OSError: a file is missing, or the folder cannot be written.
    """
    document = {
        **content,
        "files": {name: {"sha256": sha256((folder / name).read_bytes())} for name in files},
        "provenance": made,
        "schema": SCHEMA_VERSION,
    }
    text = json.dumps(records.to_json(document), indent=1, allow_nan=False, ensure_ascii=False)
    records.atomic_write_text(folder / MANIFEST, text.replace("{\n ", "{", 1) + "\n")


def read(path: Path) -> dict[str, Any]:
    """A manifest as it was written.

    Raises:
        FileNotFoundError: no such file.
        ValueError: not a manifest, or one of another schema version.
    """
    try:
        found = read_object(path, "manifest")
        version, _ = found["schema"], (found["released"], found["guarantee"]["holds"], found["files"].items())
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"manifest must be one that drjax release wrote, got {path}: {error!r}") from error
    if version != SCHEMA_VERSION:
        raise ValueError(f"manifest must be of schema version {SCHEMA_VERSION}, got {version!r} in {path}")
    return found


def in_words(manifest: Mapping[str, Any], folder: Path) -> str:
    """What was released, under which guarantee, and the folder that holds it; a line each."""
    entry = manifest["guarantee"]
    holds = NOT_PRIVATE
    if entry["holds"]:
        holds = f"epsilon {entry['epsilon']:.4g} at delta {entry['delta']:g}, {entry['neighbouring']}"
    return f"Released: {manifest['released']}\nGuarantee: {holds}\nPublish: {folder}"


def check_file(manifest: Mapping[str, Any], path: Path) -> None:
    """Whether a file is one that the manifest names.

    Raises:
        ValueError: none of its checksums is the file's.
    """
    if sha256(path.read_bytes()) not in {entry["sha256"] for entry in manifest["files"].values()}:
        raise ValueError(f"components must be a file of the manifest, got {path} with another SHA-256")


def curve_of(manifest: Mapping[str, Any]) -> TradeOff | None:
    """The proven curve, which `drjax.bounds.ledger` takes (of a minimum, any one of its `curves`); None if none holds.

    Raises:
        ValueError: curves of no known kind or with parameters out of range.
    """
    entry = manifest["guarantee"]
    if not entry["holds"]:
        return None
    curves = []
    for stored in entry["curves"]:
        if stored.get("kind") not in KINDS:
            raise ValueError(f"curves of a manifest must be one of {', '.join(KINDS)}, got {stored}")
        values = {name: value for name, value in stored.items() if name != "kind"}
        curves.append(KINDS[stored["kind"]](neighbouring=entry["neighbouring"], **values))
    return curves[0] if len(curves) == 1 else tradeoff.minimum(*curves)


def curves_to_json(curve: TradeOff) -> list[dict[str, Any]]:
    """Kind and parameters of a curve, or of all those that it is the least of."""
    parts = tuple(curve.curves) if isinstance(curve, tradeoff.Minimum) else (curve,)
    rows = []
    for part in parts:
        values = {name: value for name, value in vars(part).items() if name != "neighbouring"}
        rows.append({"kind": type(part).__name__, **values})
    return rows
