"""A page of Markdown for each command, from the help that its parser prints."""

import contextlib
import io
import os
import re
from collections.abc import Iterator
from typing import Any
from unittest import mock

WIDTH = 4000  # no line of a help is broken


def app() -> Any:
    """The parsers of the command line."""
    from drjax.cli import main as _  # noqa: F401
    from drjax.cli.main import _app

    return _app()


def leaves(node: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of every command that takes options."""
    for name, spec in node._subcommands.items():
        if hasattr(spec.target, "_subcommands"):
            yield from leaves(spec.target, (*words, name))
        else:
            yield *words, name


def help_of(words: tuple[str, ...]) -> str:
    """What a command prints when it is asked for help, on a terminal so wide that no line is broken."""
    printed = io.StringIO()
    with (
        mock.patch.dict(os.environ, {"COLUMNS": str(WIDTH), "NO_COLOR": "1"}),
        contextlib.redirect_stdout(printed),
        contextlib.suppress(SystemExit),
    ):
        app().cli(prog="drjax", args=[*words, "--help"])
    return re.sub(r"\x1b\[[0-9;]*m", "", printed.getvalue())


def parsed(text: str) -> tuple[str, str, dict[str, list[tuple[str, str]]]]:
    """The usage of a help, what it says first, and its parts: entries of a name and a text, by the part's title.

    Raises:
        ValueError: a help in which there is no entry, or one that does not look like that of tyro.
    """
    head, *body = re.split(r"^ (\S.*?) *\n -+ *$", text, flags=re.M)
    usage, _, said = head.strip().removeprefix("usage: ").partition("\n")
    boxes: dict[str, list[tuple[str, str]]] = {}
    for title, box in zip(body[::2], body[1::2], strict=True):
        entries = boxes.setdefault(title, [])
        for line in re.findall(r"^  (.*?) *$", box, re.M):
            if line[:1].strip():
                name, _, first = re.sub(r"\s{2,}", "\0", line, count=1).partition("\0")
                entries.append((name, first))
            elif line.strip():
                name, so_far = entries.pop()
                entries.append((name, f"{so_far} {line.strip()}".strip()))
    if not any(boxes.values()):
        raise ValueError(f"a help with entries is needed, got {text!r}")
    return usage, said.strip(), boxes


def inline(text: str) -> str:
    """Words of a help as Markdown: only backticks keep a meaning."""
    parts = re.split(r"(`[^`]*`)", text)
    parts[::2] = [re.sub(r"([\\*_\[\]<>{}|$~#])", r"\\\1", part) for part in parts[::2]]
    return "".join(parts)


def section(words: tuple[str, ...], level: int) -> list[str]:
    """The Markdown of one command."""
    usage, said, boxes = parsed(help_of(words))
    lines = [f"{'#' * level} drjax {' '.join(words)}", "", inline(said), "", "```text", usage, "```", ""]
    for title, entries in boxes.items():
        kept = [(name, text) for name, text in entries if not name.startswith("-h")]
        if kept:
            lines += [f"**{inline(title).capitalize()}**", ""]
        for name, text in kept:
            lines += [f"`{name}`", f": {inline(text) or 'No more is said.'}", ""]
    return lines


def pages() -> dict[str, str]:
    """The text of the page of each command, by its first word; those of several words stand on one page."""
    commands: dict[str, list[tuple[str, ...]]] = {}
    for words in leaves(app()):
        commands.setdefault(words[0], []).append(words)
    texts = {}
    for first, group in commands.items():
        lines = [] if group == [(first,)] else [f"# drjax {first}", ""]
        for words in group:
            lines += section(words, level=1 + (len(words) > 1))
        texts[first] = "\n".join(lines)
    return texts
