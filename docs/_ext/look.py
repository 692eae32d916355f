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
LOOKS = tuple((width, colours) for width in (390, 1280) for colours in ("light", "dark"))
"""Widths of the window, and colours asked for."""

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


def faults(page: Any, file: Path, site: Path, shots: Path, width: int, scheme: str) -> Iterator[str]:
    """What is wrong with a page in one look."""
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    page.goto(file.as_uri())
    name = file.relative_to(site).with_suffix("").as_posix()
    page.screenshot(path=shots / f"{name.replace('/', '-')}-{width}-{scheme}.png")
    if page.evaluate(SIDEWAYS):
        yield f"{name} at {width}: scrolls sideways: {page.evaluate(WIDE)}"
    for wide in page.evaluate(WIDE):
        yield f"{name} at {width}: reaches over the edge: {wide}"
    for found in Axe().run(page).response["violations"]:
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
    wrong = []
    with sync_playwright() as driver:
        made = driver.chromium.launch(executable_path=browser, headless=True, args=list(SWITCHES))
        page = made.new_page()
        page.set_default_timeout(PATIENCE)
        for file in files:
            for width, scheme in LOOKS:
                wrong += faults(page, file, site, shots, width, scheme)
        made.close()
    print(f"{len(files)} pages in {len(LOOKS)} looks each: {len(wrong)} faults")
    print("\n".join(wrong), end="\n" * bool(wrong))
    return int(bool(wrong) or not files)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
