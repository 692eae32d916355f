"""Images are read as what they hold, by decoders of their own formats alone, or refused with what to do."""

import io
import os
import re
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import EpsImagePlugin, Image

from drjax.attacks.property.reading import read_picture
from drjax.data import load
from drjax.data.images import FORMATS, SUFFIXES


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width, rows, *, depth, colour, extra=b""):
    """A PNG file of packed rows; colour 0 is grey, 2 is RGB, 4 is grey with transparency."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, len(rows), depth, colour, 0, 0, 0))
    data = chunk(b"IDAT", zlib.compress(b"".join(b"\0" + row for row in rows)))
    return b"\x89PNG\r\n\x1a\n" + header + extra + data + chunk(b"IEND", b"")


def saved(image, kind, **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def folder(tmp_path, blob, name="a.png"):
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / name).write_bytes(blob)
    return tmp_path / "images"


def test_no_file_starts_another_program(tmp_path, monkeypatch):
    started = tmp_path / "started"
    (tmp_path / "gs").write_text(f"#!/bin/sh\ntouch {started}\n")
    (tmp_path / "gs").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(EpsImagePlugin, "gs_binary", None)
    eps = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 60 60\n%%EndComments\nshowpage\n%%EOF\n"
    path = folder(tmp_path, eps)
    with pytest.raises(ValueError, match=r"a\.png is damaged or not an image of PNG, JPEG, BMP or TIFF"):
        load(path)
    with pytest.raises(ValueError, match="must be an image file"):
        read_picture(path / "a.png")
    assert not started.exists()


def test_every_suffix_has_its_format_and_no_other_is_opened():
    kinds = {Image.registered_extensions()[suffix] for suffix in SUFFIXES}
    assert kinds == set(FORMATS)


def test_images_are_opened_in_one_place_only():
    root = Path(__file__).parents[2]
    sources = [p for folder in ("drjax", "experiments", "bench") for p in (root / folder).rglob("*.py")]
    opening = [p.relative_to(root).as_posix() for p in sources if re.search(r"Image\.open|imread", p.read_text())]
    assert opening == ["drjax/data/images.py"]


WIDE = np.arange(48, dtype=">u2").reshape(4, 12) * 1000
FRAMES = [Image.fromarray(np.full((4, 3), 80 * i, np.uint8)) for i in range(3)]
TOO_DEEP = r"more than 8 bits a channel.*: convert it to 8 bits"


def tiff_of_16_bits():
    """RGB, 4 x 3 pixels, without compression; Pillow cannot write one."""
    pixels = WIDE.astype("<u2").tobytes()[: 4 * 3 * 6]
    entries = [(256, 3, 3), (257, 3, 4), (258, 3, 3), (259, 3, 1), (262, 3, 2), (273, 4, 0), (277, 3, 3), (279, 4, 72)]
    at = 8 + 2 + 12 * len(entries) + 4
    body = struct.pack("<H", len(entries))
    for tag, kind, value in entries:
        n = 3 if tag == 258 else 1
        value = at if tag == 258 else at + 6 if tag == 273 else value
        body += struct.pack("<HHII", tag, kind, n, value)
    return b"II*\0" + struct.pack("<I", 8) + body + bytes(4) + struct.pack("<HHH", 16, 16, 16) + pixels


@pytest.mark.parametrize(
    ("blob", "name", "message"),
    [
        (png(6, [row.tobytes() for row in WIDE[:, :6]], depth=16, colour=0), "grey.png", TOO_DEEP),
        (png(4, [row.tobytes() for row in WIDE], depth=16, colour=2), "colour.png", TOO_DEEP),
        (png(6, [row.tobytes() for row in WIDE], depth=16, colour=4), "transparent.png", TOO_DEEP),
        (tiff_of_16_bits(), "colour.tif", TOO_DEEP),
        (saved(Image.fromarray(np.zeros((4, 3), np.uint16)), "TIFF"), "grey.tif", TOO_DEEP),
        (saved(Image.fromarray(np.zeros((4, 3), np.float32)), "TIFF"), "real.tif", TOO_DEEP),
        (saved(FRAMES[0], "PNG", save_all=True, append_images=FRAMES[1:]), "a.png", "has 3 pages or frames: save each"),
        (saved(FRAMES[0], "TIFF", save_all=True, append_images=FRAMES[1:]), "a.tif", "has 3 pages or frames"),
        (saved(FRAMES[0].convert("RGB"), "MPO", save_all=True, append_images=FRAMES[1:]), "a.jpg", "has 3 pages or"),
        (saved(FRAMES[0], "GIF", save_all=True, append_images=FRAMES[1:]), "gif.png", "not an image of PNG, JPEG"),
        (saved(FRAMES[0], "GIF"), "gif.png", "not an image of PNG, JPEG"),
        (saved(FRAMES[0].convert("CMYK"), "TIFF"), "print.tif", "has colours of CMYK: convert it to RGB"),
        (saved(FRAMES[0].convert("CMYK"), "JPEG"), "print.jpg", "has colours of CMYK: convert it to RGB"),
        (saved(FRAMES[0].convert("RGB").convert("LAB"), "TIFF"), "lab.tif", "has colours of LAB: convert it to RGB"),
    ],
)
def test_what_would_be_read_wrong_is_refused_with_what_to_do(tmp_path, blob, name, message):
    path = folder(tmp_path, blob, name)
    with pytest.raises(ValueError, match=message) as error:
        load(path)
    assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match=message):
        read_picture(path / name)


def palette():
    image = Image.fromarray(np.array([[0, 1], [2, 1]], np.uint8), "P")
    image.putpalette([10, 20, 30, 200, 100, 0, 7, 7, 7])
    return image


GREY, COLOUR = np.array([[0, 255], [255, 0]]), np.array([[[10, 20, 30], [200, 100, 0]], [[7, 7, 7], [200, 100, 0]]])
BITS = Image.fromarray(np.array([[False, True], [True, False]]))


@pytest.mark.parametrize(
    ("blob", "name", "levels"),
    [
        (png(4, [b"\x1b"], depth=2, colour=0), "two-bits.png", [[0, 85, 170, 255]]),
        (png(2, [b"\x0f"], depth=4, colour=0), "four-bits.png", [[0, 255]]),
        (saved(BITS, "PNG"), "bits.png", GREY),
        (saved(BITS, "TIFF"), "bits.tif", GREY),
        (saved(BITS, "BMP"), "bits.bmp", GREY),
        (saved(palette(), "PNG", transparency=0), "palette.png", COLOUR),
        (saved(palette(), "TIFF"), "palette.tif", COLOUR),
        (saved(palette().convert("RGBA"), "PNG"), "transparent.png", COLOUR),
        (saved(palette().convert("RGB"), "TIFF", compression="tiff_lzw"), "colour.tif", COLOUR),
        (saved(palette().convert("RGB"), "PNG"), "png-by-another-name.bmp", COLOUR),
    ],
)
def test_images_of_up_to_8_bits_are_read_to_the_level(tmp_path, blob, name, levels):
    data = load(folder(tmp_path, blob, name))
    np.testing.assert_array_equal(np.rint(data.x * 255).reshape(np.shape(levels)), levels)
