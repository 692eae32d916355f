"""A folder of image files to records in [0, 1]."""

from __future__ import annotations

import hashlib
import io
import struct
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from drjax.data.checksums import sha256
from drjax.data.dataset import OWN, Dataset, Provenance, coded, duplicates_note, from_levels

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff")

FORMATS = ("PNG", "JPEG", "BMP", "TIFF")
"""What files of these suffixes are opened as. Pillow goes by what a file holds, and hands PostScript to Ghostscript."""

MODES = ("1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBa", "RGBX", "YCbCr")
"""Pillow's names of colours that have one meaning in red, green and blue."""

_PNG_DEPTH, _TIFF_DEPTHS = 24, 258
"""The byte of a PNG's header and the tag of a TIFF that say how many bits a channel has: Pillow cuts 16 to 8."""

# What Pillow raises on damaged files, depending on the format and on where the damage is.
_DAMAGED = (OSError, SyntaxError, ValueError, EOFError, IndexError, struct.error, Image.DecompressionBombError)


def from_folder(path: Path) -> Dataset:
    """The images below a folder, at any depth, in the order of their paths; hidden and other files are passed over.

    Kept in one grey channel, shape (height, width), if every pixel of every image has equal red, green and blue;
    otherwise all are (height, width, 3). Transparency is dropped; 8 bits a channel, scaled by 255. If every image
    lies in a subfolder, the subfolder's path is its label.

    Raises:
        ValueError: no image, one that `read_image` refuses, or images of different sizes.
    """
    found = (p for p in path.rglob("*") if p.suffix.lower() in SUFFIXES and not p.name.startswith("."))
    files = sorted((p for p in found if p.is_file()), key=lambda p: p.relative_to(path).as_posix())
    if not files:
        raise ValueError(f"{path} holds no images: put {', '.join(SUFFIXES)} files into it or its subfolders")
    first = _decode(files[0], files[0].read_bytes())
    images = np.empty((len(files), *first.shape), np.uint8)
    digest = hashlib.sha256()
    for i, file in enumerate(files):
        blob = file.read_bytes()
        digest.update(f"{file.relative_to(path).as_posix()} {sha256(blob)}\n".encode())
        pixels = _decode(file, blob)
        if pixels.shape != first.shape:
            raise ValueError(
                f"images must have one size, but {file} is {_size(pixels)} pixels and {files[0]} is {_size(first)}: "
                "resize them"
            )
        images[i] = pixels
    grey = bool((images == images[..., :1]).all())
    if grey:
        images = images[..., 0]
    folders = [file.parent.relative_to(path).as_posix() for file in files]
    y, class_names = (None, None) if "." in folders else coded(np.array(folders))
    provenance = Provenance(
        source=str(path),
        licence=OWN,
        files={path.name: digest.hexdigest()},
        note=f"{len(files)} {'grey' if grey else 'colour'} images, scaled by 255."
        + duplicates_note(images.reshape(len(files), -1)),
    )
    return from_levels(str(path), images, provenance, y=y, class_names=class_names)


def _decode(file: Path, blob: bytes) -> np.ndarray:
    """(height, width, 3) uint8."""
    return np.asarray(read_image(file, blob, "RGB"))


def read_image(file: Path, blob: bytes, mode: str) -> Image.Image:
    """One picture of up to 8 bits a channel, from the bytes of a file in one of `FORMATS`.

    Args:
        file: Name of the file, for messages.
        blob: What it holds.
        mode: "RGB" or "RGBA".

    Raises:
        ValueError: damaged, another format, 16 bits, several pages or frames, or colours that are not of `MODES`.
    """
    try:
        # Pillow also warns about damage that it then raises for.
        with warnings.catch_warnings(action="ignore"), Image.open(io.BytesIO(blob), formats=FORMATS) as image:
            found, depth, pages = image.mode, _depth(image, blob), getattr(image, "n_frames", 1)
            picture = image.convert(mode) if found in MODES else None
    except _DAMAGED as error:
        names = f"{', '.join(FORMATS[:-1])} or {FORMATS[-1]}"
        raise ValueError(f"{file} is damaged or not an image of {names}: replace or remove it") from error
    if depth > 8 or found.startswith(("I", "F")):
        raise ValueError(f"{file} has more than 8 bits a channel (Pillow mode {found}): convert it to 8 bits")
    if pages > 1:
        raise ValueError(f"{file} has {pages} pages or frames: save each as an image of its own")
    if picture is None:
        raise ValueError(f"{file} has colours of {found}: convert it to RGB")
    return picture


def _depth(image: Any, blob: bytes) -> int:
    """Bits of a channel in the file, where Pillow would not say."""
    if image.format == "PNG":
        return blob[_PNG_DEPTH]
    return max(image.tag_v2.get(_TIFF_DEPTHS, (8,))) if image.format == "TIFF" else 8


def _size(pixels: np.ndarray) -> str:
    return f"{pixels.shape[1]} x {pixels.shape[0]}"
