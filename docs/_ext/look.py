"""Looks at every page of the site in a browser: no page scrolls sideways, and axe-core has nothing to say.

    python docs/_ext/look.py build/site [PAGE ...]

Screenshots are left in build/screenshots/site. Windows are as wide as a telephone and as a desk, in light and in dark.
"""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
SWITCHES = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--allow-file-access-from-files")
WIDTHS = (390, 1280)
COLOURS = {"light": {}, "dark": {"runOnly": ["color-contrast"]}}
"""Colours asked for, and what axe-core is told: all else is the same in the second ones."""

LEADS_ON = 'http-equiv="refresh"'
"""What a page has that only leads to another one."""

PATIENCE = 120_000
"""Milliseconds after which a page counts as one that does not come."""

SIDEWAYS = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
WIDE = """() => {
    const inBox = (one) => one && (getComputedStyle(one).overflowX !== "visible" || inBox(one.parentElement));
    return [...document.querySelectorAll("article *")]
        .filter((one) => one.getBoundingClientRect().right > innerWidth + 1 && !inBox(one.parentElement))
        .slice(0, 3).map((one) => one.outerHTML.slice(0, 120));
}"""
"""Script that names elements which reach over the window's edge without a box that scrolls."""


def faults(page: Any, file: Path, site: Path, shots: Path, width: int) -> Iterator[str]:
    """What is wrong with a page at one width."""
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme="light", reduced_motion="reduce")
    page.goto(file.as_uri())
    name = file.relative_to(site).with_suffix("").as_posix()
    page.screenshot(path=shots / f"{name.replace('/', '-')}-{width}.png")
    if page.evaluate(SIDEWAYS):
        yield f"{name} at {width}: scrolls sideways: {page.evaluate(WIDE)}"
    for wide in page.evaluate(WIDE):
        yield f"{name} at {width}: reaches over the edge: {wide}"
    for scheme, options in COLOURS.items():
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        for found in Axe().run(page, options=options).response["violations"]:
            nodes = [node["html"][:160] for node in found["nodes"]]
            yield f"{name} at {width}, {scheme}: {found['id']}: {found['help']}: {len(nodes)} times, {nodes[:2]}"


def main(words: list[str]) -> int:
    """Prints what is wrong; the exit status."""
    site = Path(words[0]).resolve()
    browser = next((found for found in map(shutil.which, NAMES) if found), None)
    if browser is None:
        print(f"Not looked at: none of {', '.join(NAMES)} was found")
        return 1
    shots = Path(__file__).resolve().parents[2] / "build" / "screenshots" / "site"
    shots.mkdir(parents=True, exist_ok=True)
    files = [site / f"{name}.html" for name in words[1:]] or sorted(site.rglob("*.html"))
    files = [file for file in files if LEADS_ON not in file.read_text(encoding="utf-8")]
    n_wrong = 0
    with sync_playwright() as driver:
        made = driver.chromium.launch(executable_path=browser, headless=True, args=list(SWITCHES))
        page = made.new_page()
        page.set_default_timeout(PATIENCE)
        for file in files:
            for width in WIDTHS:
                for fault in faults(page, file, site, shots, width):
                    print(fault, flush=True)
                    n_wrong += 1
        made.close()
    print(f"{len(files)} pages at {len(WIDTHS)} widths, in {len(COLOURS)} colours each: {n_wrong} faults")
    return int(n_wrong > 0 or not files)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
