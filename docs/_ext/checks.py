"""What every build of the site has to pass: links, weights, and the reference's completeness.

    python docs/_ext/checks.py build/site             # within the site
    python docs/_ext/checks.py --external build/site  # links to other sites, where there is a network

Ends with 1 where something is wrong.
"""

import socket
import sys
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

MAX_BYTES = 500_000
"""Largest page, without what it links, and largest picture."""

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Page(HTMLParser):
    """What a page has and leads to.

    Attributes:
        path: Place of its file.
        ids: Names that a link may lead to.
        links: Targets of its links, as written.
        sources: Pictures, scripts and styles, as written.
    """

    path: Path
    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)

    def __post_init__(self):
        HTMLParser.__init__(self)
        self.feed(self.path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        """Takes down one element."""
        values = dict(attrs)
        self.ids |= {values[name] for name in ("id", "name") if values.get(name)}
        if tag in ("a", "link") and values.get("href") and values.get("rel") != "canonical":
            (self.links if tag == "a" else self.sources).append(values["href"])
        if tag in ("img", "script") and values.get("src"):
            self.sources.append(values["src"])


def read(site: Path) -> dict[Path, Page]:
    """Every page of a site, by its path."""
    return {path: Page(path) for path in sorted(site.rglob("*.html"))}


def target(page: Page, link: str) -> tuple[Path, str] | None:
    """The file and the anchor that a link leads to, or None where that is another site."""
    parts = urlsplit(urljoin(page.path.as_uri(), link))
    return (Path(unquote(parts.path)), unquote(parts.fragment)) if parts.scheme == "file" else None


def broken_links(pages: dict[Path, Page]) -> Iterator[str]:
    """Links and sources within the site that lead to no file, or to no anchor of it."""
    for path, page in pages.items():
        for link in dict.fromkeys([*page.links, *page.sources]):
            place = target(page, link)
            if place is None:
                continue
            file, anchor = place
            if not file.is_file() or (anchor and file in pages and anchor not in pages[file].ids):
                yield f"{path}: {link} leads nowhere"


def outer_sources(pages: dict[Path, Page]) -> Iterator[str]:
    """Pictures, scripts and styles that come from another site: without a network the page would lack them."""
    for path, page in pages.items():
        for source in page.sources:
            if target(page, source) is None and not source.startswith("data:"):
                yield f"{path}: {source} comes from another site"


def too_heavy(pages: dict[Path, Page]) -> Iterator[str]:
    """Pages and pictures of more than `MAX_BYTES`."""
    files = {path: path for path in pages}
    for page in pages.values():
        for source in page.sources:
            place = target(page, source)
            if place and place[0].suffix in (".png", ".svg", ".jpg", ".gif", ".webp") and place[0].is_file():
                files.setdefault(place[0], page.path)
    for file, page in files.items():
        if file.stat().st_size > MAX_BYTES:
            yield f"{file}: {file.stat().st_size:,} bytes, at most {MAX_BYTES:,} (on {page})"


def undescribed(pages: dict[Path, Page]) -> Iterator[str]:
    """Public names that no page of the reference describes."""
    import public_names

    names = public_names.public_names()
    described = {name for path, page in pages.items() if path.parent.name == "api" for name in page.ids}
    home = public_names.homes(names)
    for name in names:
        if home[name.full].full not in described:
            yield f"{name.full} is public and not in the reference"


def external(pages: dict[Path, Page]) -> dict[str, Path]:
    """Links to other sites, each with a page that has it; without the placeholders of pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    ours = tuple(project["urls"].values())
    return {
        link: page.path
        for page in pages.values()
        for link in page.links
        if link.startswith(("http://", "https://")) and not link.startswith(ours)
    }


def unreachable(links: dict[str, Path]) -> Iterator[str]:
    """Links to other sites that answer with an error."""
    for link, path in links.items():
        request = urllib.request.Request(link, method="HEAD", headers={"User-Agent": "drjax-docs"})
        try:
            urllib.request.urlopen(request, timeout=20).close()
        except urllib.error.HTTPError as error:
            # Some sites refuse programs, or this kind of request: they are there.
            if error.code in (404, 410):
                yield f"{path}: {link} answers {error.code}"
        except OSError as error:
            yield f"{path}: {link} does not answer: {error}"


def has_network(links: dict[str, Path]) -> bool:
    """Whether any of the sites has an address that takes connections."""
    for host in sorted({urlsplit(link).hostname or "" for link in links})[:5]:
        try:
            socket.create_connection((host, 443), timeout=5).close()
        except OSError:
            continue
        return True
    return False


def main(words: list[str]) -> int:
    """Prints what is wrong; the exit status."""
    pages = read(Path(words[-1]).resolve())
    if "--external" in words:
        links = external(pages)
        if not has_network(links):
            print(f"{len(links)} links to other sites were not checked: no network")
            return 0
        wrong = list(unreachable(links))
        print(f"{len(links)} links to other sites, {len(wrong)} broken")
    else:
        wrong = [found for check in (broken_links, outer_sources, too_heavy, undescribed) for found in check(pages)]
        n_links = sum(len(page.links) for page in pages.values())
        print(f"{len(pages)} pages, {n_links:,} links: {len(wrong)} faults")
    print("\n".join(wrong), end="\n" * bool(wrong))
    return int(bool(wrong) or not pages)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
