"""A page of reStructuredText for each package of drjax, whose docstrings Sphinx fills in."""

import ast
import inspect
import itertools
import re
from collections.abc import Iterable
from pathlib import Path

import public_names
from public_names import ROOT, Name


def title(page: Path) -> str:
    """The first heading of a page."""
    found = re.search(r"^# (.*)$", page.read_text(encoding="utf-8"), re.M)
    return found[1].replace("`", "") if found else page.stem


def heading(text: str, line: str) -> list[str]:
    """A heading with a line below it."""
    return [text, line * len(text), ""]


def directive(name: Name) -> list[str]:
    """The lines by which autodoc describes a name."""
    if inspect.isclass(name.value):
        return [f".. autoclass:: {name.full}", "   :members:", ""]
    if inspect.isroutine(name.value):
        return [f".. autofunction:: {name.full}", ""]
    return [f".. autodata:: {name.full}", "   :no-value:", ""]


def links(pages: Iterable[Path]) -> list[str]:
    """A line that leads to pages."""
    words = [f":doc:`{title(page)} </{page.relative_to(ROOT).with_suffix('').as_posix()}>`" for page in pages]
    return ["   On the pages: " + ", ".join(words) + ".", ""] if words else []


def pages() -> dict[str, str]:
    """The text of the page of each package, by the name of the package."""
    names = public_names.public_names()
    home, used = public_names.homes(names), public_names.uses(names)
    known = public_names.modules()
    texts: dict[str, list[str]] = {}
    for module in dict.fromkeys(name.module for name in names):
        of_module = [name for name in names if name.module == module]
        package = of_module[0].package
        if package not in texts:
            texts[package] = heading(package, "=")
            if module != package:
                texts[package] += [f".. automodule:: {package}", ""]
        lines = texts[package]
        if module != package:
            lines += heading(module, "-")
        lines += [f".. automodule:: {module}", ""]
        aliases = [name for name in of_module if home[name.full] is not name]
        for name in of_module:
            if home[name.full] is name:
                lines += [*directive(name), *links(used.get(name.full, ()))]
        if aliases:
            lines += ["Names that are described elsewhere:", ""]
            lines += [f"- ``{name.full}`` is :py:obj:`{home[name.full].full}`" for name in aliases] + [""]
    assert set(texts) <= set(known)
    return {package: "\n".join(lines) for package, lines in texts.items()}


def as_text(lines: list[str]) -> list[str]:
    """A docstring, in which only backticks, lists and headings mean something, as reStructuredText.

    A block that is indented after a line that is not, with an empty line between them, is code.
    """
    done: list[str] = []
    words: list[str] = []
    is_code = False
    last = ""
    for line in [*lines, ""]:
        starts = line.startswith("    ") and bool(done or words) and not (words or done)[-1].strip()
        if starts and last[:1].strip() and not is_code:
            done += [*escaped(words), "::", ""]
            words, is_code = [], True
        elif is_code and line[:1].strip():
            is_code = False
        (done if is_code else words).append(line)
        last = line if line.strip() else last
    return done + escaped(words)


def table(rows: list[str]) -> list[str]:
    """A table of Markdown, whose second line rules off its head, as one of reStructuredText."""
    done = [".. list-table::", "   :header-rows: 1", ""]
    for row in [rows[0], *rows[2:]]:
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", row.strip()[1:-1])]
        done += [f"   {'-' if at else '* -'} {cell}".replace("   - ", "     - ") for at, cell in enumerate(cells)]
    return [*done, ""]


def escaped(lines: list[str]) -> list[str]:
    """Lines with the characters that mean something else in reStructuredText escaped, outside of backticks."""
    done = []
    for is_table, group in itertools.groupby(lines, lambda line: line.startswith(("| ", "|-"))):
        found = list(group)
        if not is_table:
            parts = re.split(r"(``.*?``|`[^`]*`)", "\n".join(found), flags=re.S)
            parts[::2] = [re.sub(r"([*|])|(?<=\w)_(?=\W|$)", r"\\\g<0>", part) for part in parts[::2]]
            found = "".join(parts).split("\n")
        done += table(found) if is_table else found
    return done


def below(source: str, name: str) -> str | None:
    """The string below the assignment of a name in a module's source."""
    for first, second in itertools.pairwise(ast.parse(source).body):
        targets = first.targets if isinstance(first, ast.Assign) else [getattr(first, "target", None)]
        is_text = isinstance(second, ast.Expr) and isinstance(second.value, ast.Constant)
        if is_text and any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return str(second.value.value)
    return None


def said_of(full: str, value: object) -> list[str]:
    """What the source says of a constant, in whichever module it is assigned."""
    name = full.rpartition(".")[2]
    for found in public_names.modules().values():
        if getattr(found, name, None) is value and inspect.ismodule(found):
            said = below(inspect.getsource(found), name)
            if said:
                return [*inspect.cleandoc(said).split("\n"), ""]
    return []
