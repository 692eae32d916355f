"""Downloads of the named data sets that have a stable public address."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pooch

from drjax.core.store import cache_dir
from drjax.data import checksums, readers
from drjax.data.catalog import Source, resolve


def fetch(name: str, data_dir: str | Path | None = None) -> Path:
    """Downloads what a named data set is read from and verifies it; files already there and intact are kept.

    Args:
        name: A key of `drjax.data.SOURCES`.
        data_dir: Folder to put the set's folder into; the per-user cache by default.

    Returns:
        The folder that holds the files. A file is there complete and verified, or not at all.

    Raises:
        ValueError: unknown name, no stable public address, or a download that differs from its checksum.
        OSError: no connection, or the folder cannot be written to.

    Tests leave the last line of the example out: it needs a network.

    Example:
        >>> from drjax.data import describe, fetch
        >>> describe("mnist").fetchable
        True
        >>> folder = fetch("mnist")  # doctest: +SKIP
    """
    name, source = resolve(name)
    if source.url is None:
        raise ValueError(f"data set {name} cannot be downloaded: {source.obtain}")
    folder = Path(data_dir if data_dir is not None else cache_dir()) / source.folder
    if all(_is_intact(folder / file, expected) for file, expected in source.files.items()):
        return folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _download(source, folder)
    except ValueError as error:
        raise ValueError(f"data set {name} was not stored: {' '.join(str(error).split())}") from error
    except OSError as error:
        raise OSError(
            f"data set {name} could not be downloaded to {folder} ({' '.join(str(error).split())}): check the "
            f"connection and that the folder can be written to, or put the files of {source.url} there yourself"
        ) from error
    return folder


def _download(source: Source, folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        files: readers.Files = {
            file: Path(pooch.retrieve(f"{source.url}{file}", f"sha256:{expected}", file, scratch)).read_bytes()
            for file, expected in source.downloads.items()
        }
        if source.convert is not None:
            files = source.convert(files)
        for file, blob in files.items():
            if not checksums.matches(blob, source.files[file]):
                raise ValueError(f"the download gave another {file} than expected")
            unfinished = Path(scratch) / file
            unfinished.write_bytes(blob)
            os.replace(unfinished, folder / file)


def _is_intact(path: Path, expected: str) -> bool:
    return path.is_file() and checksums.matches(path.read_bytes(), expected)
