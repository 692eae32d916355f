"""SVG drawings as parts of an HTML page: they scale with it, load nothing and share no names with it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree import ElementTree

from markupsafe import Markup

SHAPES = ("path", "rect", "circle", "ellipse", "line", "polyline", "polygon", "text", "tspan", "use", "image")
STRUCTURE = ("svg", "g", "defs", "clipPath", "marker", "pattern", "linearGradient", "radialGradient", "stop")
TAGS = frozenset((*SHAPES, *STRUCTURE, "title", "desc"))
"""Elements that draw; any other is refused."""

MATPLOTLIB_STYLE = "*{stroke-linejoin: round; stroke-linecap: butt}"
"""Style sheet of matplotlib's drawings, which would style the whole page; it goes to the drawing's root instead."""

FONTS = "'DejaVu Sans', Verdana, sans-serif"
"""Fonts of text: matplotlib measures by the first, and the second, which other systems have, is as wide."""


def inline(svg: bytes, *, prefix: str, label: str) -> Markup:
    """The drawing as an `<svg>` element for an HTML page.

    It has no size of its own but the custom property `--width`, its width in points, for the page's style sheet.

    Args:
        svg: An SVG file in UTF-8, with a viewBox.
        prefix: Text before each of its ids, another for every drawing of a page.
        label: Text on what it shows, for readers who cannot see it.

    Raises:
        ValueError: no SVG, or one that does more than draw: scripts, style sheets, handlers, references to elsewhere.
    """
    try:
        root = ElementTree.fromstring(svg)
    except ElementTree.ParseError as error:
        raise ValueError(f"svg must be an SVG image, got {svg[:8]!r} ({error})") from None
    _clean(root)
    if root.tag != "svg" or "viewBox" not in root.attrib:
        raise ValueError(f"svg must be an <svg> element with a viewBox, got <{root.tag}> with {sorted(root.attrib)}")
    _rename(root, prefix)
    width = float(root.attrib["viewBox"].split()[2])
    style = f"--width: {width:g}; stroke-linejoin: round; stroke-linecap: butt; font-family: {FONTS}"
    root.attrib = {"viewBox": root.attrib["viewBox"], "role": "img", "aria-label": label, "style": style}
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def _clean(root: ElementTree.Element) -> None:
    """Takes namespaces, notes and white space out, in place, and checks all that is left."""
    for element in list(root.iter()):
        element.tag = _local(element.tag)
        for child in list(element):
            name = _local(child.tag)
            if name == "metadata" or (name == "style" and (child.text or "").strip() == MATPLOTLIB_STYLE):
                element.remove(child)
        if element.tag not in {"text", "tspan", "title", "desc"} or not (element.text or "").strip():
            element.text = None
        if element.tag != "tspan" or not (element.tail or "").strip():
            element.tail = None
    for element in root.iter():
        if element.tag not in TAGS:
            raise ValueError(f"svg must only draw, got <{element.tag}>")
        element.attrib = {_local(name): value for name, value in element.attrib.items()}
        for name, value in element.attrib.items():
            _check(element.tag, name, value)
            if name in {"d", "x", "y"}:
                element.attrib[name] = " ".join(re.sub(r"\d+\.\d{3,}", lambda number: _short(number[0]), value).split())
            if name == "style":
                element.attrib[name] = re.sub(r"font-family: 'DejaVu Sans'(,[^;]*)?(; |$)", "", value)


def _check(tag: str, name: str, value: str) -> None:
    is_image = tag == "image" and value.startswith("data:image/png;base64,")
    if name.lower().startswith("on") or (name == "href" and not value.startswith("#") and not is_image):
        raise ValueError(f"svg must only draw, got {name}={value[:40]!r}")
    if re.search(r"url\((?!#)|@import", value, re.IGNORECASE):
        raise ValueError(f"svg must refer to nothing but itself, got {name}={value[:40]!r}")


def _rename(root: ElementTree.Element, prefix: str) -> None:
    """Puts `prefix` before ids that are referred to and removes the others, in place."""
    used = {name for element in root.iter() for name in _references(element)}
    for element in root.iter():
        if element.attrib.get("id") in used:
            element.attrib["id"] = f"{prefix}-{element.attrib['id']}"
        else:
            element.attrib.pop("id", None)
        for name, value in element.attrib.items():
            if name == "href" and value.startswith("#"):
                element.attrib[name] = f"#{prefix}-{value[1:]}"
            else:
                element.attrib[name] = value.replace("url(#", f"url(#{prefix}-")


def _references(element: ElementTree.Element) -> Iterator[str]:
    for name, value in element.attrib.items():
        if name == "href" and value.startswith("#"):
            yield value[1:]
        yield from re.findall(r"url\(#([^)]*)\)", value)


def _local(name: str) -> str:
    return name.rpartition("}")[2]


def _short(number: str) -> str:
    return f"{float(number):.2f}".rstrip("0").rstrip(".")
