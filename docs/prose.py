"""Figures in the sentences of the pages, which are made from committed rows as the tables are.

    python docs/prose.py            # writes every figure anew
    python docs/prose.py --check    # writes nothing; exit 1 and the names of pages that say something else

A paragraph, an entry of a list or a row of a typed table with measured figures is followed by a mark:

    UMAP is reconstructed with an error of 0.0424, and of 0.0414 with the network beside it.
    <!-- figures: experiments.best_attacks.prose networks: 0.0424 0.0414 -->

The module has an object `figures` (`experiments.markdown.Figures`), whose function of that name reads committed rows
and returns the numbers; they are written as the page writes them, with as many digits. Several functions: with `;`
between.
What a page states and nobody measured here (settings, definitions, what others published) it lists once:

    <!-- stated: 0.5 95% 1e-5 -->

A test finds every decimal number, share, power of ten, duration and "3 of 20" that neither covers. A figure that stands
as it is in a made table of its page, or in a block that runs, needs no mark: those are tested.
"""

from __future__ import annotations

import argparse
import importlib
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import generated

ROOT = generated.ROOT

CITED = re.compile(
    r"(?P<said>(?:^(?![ ]*(?:\n|<!-- figures:))[^\n]+\n)+)(?P<mark>[ ]*<!-- figures: (?P<sources>[^>]+?)\s*-->)", re.M
)
"""Lines without an empty one between them, and the mark that follows them."""

STATED = re.compile(r"<!-- stated: (?P<figures>[^>]+?)\s*-->")

NUMBER = r"\d[\d,]*(?:\.\d+)?(?:e-?\d+)?%?"
UNIT = r"(?:us|µs|ms|s|seconds?|minutes?|hours?|times|bytes|[kMG]i?B)\b"
FIGURE = re.compile(
    rf"(?<![\w.,/-])(?:\d[\d,]*\.\d+(?:e-?\d+)?%?|\d+e-?\d+|\d[\d,]*%|\d[\d,]*(?=\s{UNIT})|\d[\d,]*(?=\s+of\s+(?:the\s+)?\d)"
    r"|(?<=\d\sof\s)\d[\d,]*|(?<=\d\sof\sthe\s)\d[\d,]*)(?![\w%])"
)
"""What looks measured."""

UNREAD = re.compile(
    r"<!-- begin: .*?<!-- end -->|<!--.*?-->|^( *)```.*?^\1```|`[^`]*`|\$\$.*?\$\$|\$[^$\n]*\$"
    r"|(?<=\])\([^)\s]*\)|^    .*?$",
    re.S | re.M,
)
"""Where numbers are none of the page's sentences: made tables, code, formulas, addresses."""

TESTED = re.compile(r"<!-- begin: .*?<!-- end -->|(?P<not_run><!-- not run:[^>]*-->\s*)?^( *)```.*?^\2```", re.S | re.M)
"""Tables that are made, and blocks of code."""


def as_written(value: float, pattern: str) -> str:
    """A number with the digits and the form of another one.

    Args:
        value: The number; a share if the other one is in percent.
        pattern: The other one, such as `0.012`, `1.2e-5`, `1,350` or `12%`.

    Example:
        >>> as_written(0.01234, "0.042"), as_written(3.14e-5, "1.2e-4"), as_written(0.5, "41%")
        ('0.012', '3.1e-5', '50%')
    """
    number = pattern.removesuffix("%")
    digits = len(number.partition("e")[0].partition(".")[2])
    if number != pattern:
        return f"{100 * value:,.{digits}f}%"
    if "e" in number:
        mantissa, _, exponent = f"{value:.{digits}e}".partition("e")
        return f"{mantissa}e{int(exponent)}"
    return f"{value:,.{digits}f}" if "," in number or abs(value) >= 10_000 else f"{value:.{digits}f}"


def made(source: str, shown: list[str]) -> list[str]:
    """The figures of one source, written as the page has them.

    Raises:
        ValueError: the source gives more or fewer than the page has.
    """
    module, *words = source.split()
    values = importlib.import_module(module).figures.of(*words)
    if len(values) != len(shown):
        raise ValueError(f"{source} gives {len(values)} figures, and the mark has {len(shown)}: {' '.join(shown)}")
    return [as_written(value, pattern) for value, pattern in zip(values, shown, strict=True)]


def parts(sources: str) -> list[tuple[str, list[str]]]:
    """The sources of a mark, each with its figures."""
    read = [part.partition(":") for part in re.sub(r"\s+", " ", sources).split(";")]
    return [(name.strip(), figures.split()) for name, _, figures in read]


def renewed(text: str) -> str:
    """The text of a page with the figures of its marks made anew.

    Raises:
        ValueError: a mark lists a figure that the lines before it do not have, in this order.
    """

    def again(found: re.Match[str]) -> str:
        said, mark, at = found["said"], found["mark"], 0
        at_mark = mark.index("figures:")
        for source, shown in parts(found["sources"]):
            for old, new in zip(shown, made(source, shown), strict=True):
                place = re.compile(rf"(?<![\w.,]){re.escape(old)}(?![\w%]|[.,]\d)")
                if not (there := place.search(said, at)):
                    raise ValueError(f"{old} of {source} does not stand, in this order, in: {said.strip()}")
                said = said[: there.start()] + new + said[there.end() :]
                at = there.start() + len(new)
                noted = place.search(mark, at_mark)
                assert noted is not None
                mark = mark[: noted.start()] + new + mark[noted.end() :]
                at_mark = noted.start() + len(new)
        return said + mark

    return CITED.sub(again, text)


def _blank(found: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", found[0])


def unaccounted(text: str) -> list[str]:
    """Figures of a page that no mark covers and that it does not list as stated, as `line: figure`."""
    stated = {figure for found in STATED.finditer(text) for figure in found["figures"].split()}
    tested = {f for found in TESTED.finditer(text) if not found["not_run"] for f in FIGURE.findall(found[0])}
    read = UNREAD.sub(_blank, text)
    cited: Counter[tuple[int, str]] = Counter()
    for found in CITED.finditer(text):
        for _, shown in parts(found["sources"]):
            cited.update((found.start("said"), figure) for figure in shown)
    blocks = [(found.start("said"), found.end("said")) for found in CITED.finditer(text)]
    left = []
    for found in FIGURE.finditer(read):
        figure = found[0]
        block = next((start for start, end in blocks if start <= found.start() < end), -1)
        if cited[block, figure]:
            cited[block, figure] -= 1
        elif figure not in stated | tested:
            left.append(f"{text.count(chr(10), 0, found.start()) + 1}: {figure}")
    return left


def unfounded(text: str) -> list[str]:
    """Figures that a page lists as stated and does not have."""
    there = set(FIGURE.findall(UNREAD.sub(_blank, text)))
    return [f for found in STATED.finditer(text) for f in found["figures"].split() if f not in there]


def pages() -> Iterator[Path]:
    """The pages whose figures are accounted for: README, what people write in docs/, experiments and benchmarks."""
    yield ROOT / "README.md"
    yield from generated.written()
    yield from sorted((ROOT / "experiments").rglob("README.md"))
    yield from sorted((ROOT / "bench").rglob("README.md"))


def main() -> int:
    """Writes the figures, or says which pages are not what their rows give."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a page would change")
    parser.add_argument("--left", metavar="PAGE", type=Path, nargs="*", help="name what no mark covers in these pages")
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    if options.left is not None:
        for page in options.left or pages():
            for line in unaccounted(page.read_text(encoding="utf-8")):
                print(f"{page}:{line}")
        return 0
    changed = []
    for page in pages():
        text = page.read_text(encoding="utf-8")
        if (new := renewed(text)) != text:
            changed.append(page.relative_to(ROOT))
            if not options.check:
                page.write_text(new, encoding="utf-8")
    for page in changed:
        print(f"{page}: {'its figures are not what the rows give' if options.check else 'written'}")
    return int(options.check and bool(changed))


if __name__ == "__main__":
    sys.exit(main())
