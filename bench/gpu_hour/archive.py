"""What a run has to hand on: packed into few files that fit where only few come back, and taken over from there."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
from pathlib import Path, PurePosixPath

from drjax.core.store import atomic_open, is_temporary

PART_BYTES = 15 * 2**20
"""Most bytes of the files in one archive; packed it is smaller."""

NAME = "cells-{:02d}.tar.gz"

ALONE = "profile-*.tar.gz"
"""Files in the folder itself that are archives already."""

_CARRIED = ("*.cells/*.json", "failures/*.txt", "examples/*.npz", "judge-*.npz")
_HEAD = Path("hour.cells") / "0-run-experiment.json"


def members(folder: Path) -> list[Path]:
    """Files of a run that hold results, relative to its folder and sorted; none of what only makes a restart faster."""
    found = {file for pattern in _CARRIED for file in folder.rglob(pattern) if file.is_file()}
    return sorted(file.relative_to(folder) for file in found if not is_temporary(file))


def pack(folder: Path, to: Path) -> list[Path]:
    """Writes the results of a run into archives "cells-01.tar.gz" and so on, and copies profiles; returns the files.

    Each archive has at most `PART_BYTES` of files (a larger file is alone in its own), and replaces the one before.

    Raises:
        OSError: a file cannot be read or written.
    """
    to.mkdir(parents=True, exist_ok=True)
    groups: list[list[Path]] = []
    size = 0
    for member in members(folder):
        own = (folder / member).stat().st_size
        if not groups or size + own > PART_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(member)
        size += own
    written = [to / NAME.format(number) for number in range(1, len(groups) + 1)]
    for file, group in zip(written, groups, strict=True):
        with atomic_open(file) as target, tarfile.open(fileobj=target, mode="w:gz", compresslevel=6) as archive:
            for member in group:
                content = (folder / member).read_bytes()
                info = tarfile.TarInfo(member.as_posix())
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    for stale in set(to.glob("cells-*.tar.gz")) - set(written):
        stale.unlink()
    for profile in sorted(folder.glob(ALONE)):
        if to != folder:
            shutil.copyfile(profile, to / profile.name)
        written.append(to / profile.name)
    return written


def take_over(source: Path, out: Path) -> int:
    """Brings what a folder or the archives in it hold into `out`, where it is not there yet; returns how many files.

    Raises:
        ValueError: no cells in `source`, results of another scale than those in `out`, or an archive that would write
            elsewhere.
        OSError: a file cannot be read or written.
    """
    found = {member: (source / member).read_bytes() for member in members(source)}
    for file in sorted(source.glob("cells-*.tar.gz")):
        with tarfile.open(file) as archive:
            for info in archive:
                stream = archive.extractfile(info)
                path = PurePosixPath(info.name)
                if stream is None or path.is_absolute() or ".." in path.parts:
                    raise ValueError(f"an archive must hold plain files below its folder, got {info.name} in {file}")
                found.setdefault(Path(*path.parts), stream.read())
    if _HEAD not in found:
        raise ValueError(f"done must be a folder with cells of an earlier run, got {source} without any")
    if (out / _HEAD).exists() and _fingerprint((out / _HEAD).read_bytes()) != _fingerprint(found[_HEAD]):
        raise ValueError(f"done must be of the scale of out, got {source} of another than {out}")
    new = {member: content for member, content in found.items() if not (out / member).exists()}
    for member, content in new.items():
        (out / member).parent.mkdir(parents=True, exist_ok=True)
        with atomic_open(out / member, replace=False) as target:
            target.write(content)
    for profile in source.glob(ALONE):
        if not (out / profile.name).exists():
            shutil.copyfile(profile, out / profile.name)
            new[Path(profile.name)] = b""
    return len(new)


def _fingerprint(head: bytes) -> str:
    return json.loads(head)["fingerprint"]
