"""Commands of the documentation are ones that their programs understand.

Looked at is every command of drjax that a page shows and no test runs: in indented blocks, in blocks of `console`
behind `<!-- not run: REASON -->` or `<!-- run apart: REASON -->`, and in the text between backticks. Of a block of
`console` the lines with `$ ` are commands and the rest is printed; of an indented one every line may be a command. An
indented block is for commands alone: one with `$ `, or with Python, is an error, because such blocks run where they
stand between fences. The words of
`drjax ...`, `python -m experiments.NAME ...` and `python -m bench.NAME ...` go to the very parser of the program:
options, types, what must be there, and configurations, which check themselves. Names are checked against those that an
option shows as its choices, hyperparameters against their method. Then, in place of the work, nothing is done: no file
is read, and whether the command does what the page says is not tested here, but by the blocks that run
(`tests/test_snippets.py`).

- Lines are continued by a backslash; what stands behind `#` is a comment; `&&`, `||`, `;` and `|` part commands; what
  is behind `>` goes to a file.
- Variables that a block sets stand for their values, others for themselves. Names of files are not looked for.
- `...` among the words means that the reader adds some of his own: what is missing is no error then, and where
  something is, only names of options are checked. So it is between backticks, where a text may speak of one option.
- A word in capitals stands for any name where one is chosen from a list (`--attacks NAME`).
- Other programs are not looked at: pip, pytest, git, docker, sbatch and so on, nor what they are told to start.
"""

import argparse
import ast
import contextlib
import dataclasses
import functools
import importlib
import importlib.util
import inspect
import io
import os
import re
import shlex
import sys
import typing
from pathlib import Path
from unittest import mock

import pytest
import tyro
from tyro.extras import SubcommandApp

import drjax.data
import experiments.sweep
from drjax.audits import choice
from drjax.cli import main, options
from drjax.cli.commands import audit
from drjax.cli.sweep_commands import sweep
from experiments import command
from experiments.markdown import Tables
from tests.pages import ROOT, WRITTEN

PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "bench/README.md")),
    *WRITTEN,
    *sorted((ROOT / "experiments").rglob("README.md")),
]
FENCE = re.compile(r"^( *)(`{3,}|~{3,})(\w*).*?\n(.*?)^ *\2`*~* *$", re.M | re.S)
NOT_RUN = re.compile(r"<!-- (?:not run|run apart): (?:(?!-->).)*?\S -->\s*\Z", re.S)
MENTION = re.compile(r"(?<!`)`((?:\w+=\S+\s+)?(?:drjax|python\s+-m)\s[^`]+)`(?!`)")
STARTED = re.compile(r"python -m (bench|experiments)\.[a-z_.]+")
WANTS_WORD = re.compile(r"Missing value for argument '\w")
RUNS = re.compile(r"^ +(\$ |>>> |import \w|from [\w.]+ import )", re.M)
FENCED = "this block is one of console or python, between fences: there it runs, or says why not"
UNSAID = re.compile(r"Required options|Missing argument|Missing subcommand")
INDENTED = re.compile(r"(?:^|\n[ ]*)\n((?: {4}.*\n?|[ ]*\n)+)")
WORK = (
    (drjax.data, "load"),
    (experiments.sweep, "run"),
    (experiments.sweep, "merge"),
    (command, "listing"),
    (command, "claims_of"),
)
APART = {"&&", "||", ";", "|", "&"}
SET = re.compile(r"(\w+)=(.*)", re.S)


def indented(text):
    """Number of the first line and text of each indented block."""
    outside = _outside(text)
    for found in INDENTED.finditer(f"\n{outside}\n"):
        yield outside.count("\n", 0, found.start(1) - 1) + 1, found[1]


def not_run(text):
    """Number of the first line and text of each block of `console` that is not run."""
    for found in FENCE.finditer(text):
        if found[3] == "console" and NOT_RUN.search(text[: found.start()]):
            yield text.count("\n", 0, found.start(4)) + 1, found[4]


def _outside(text):
    """Text with as many lines, and no word within fences."""
    return FENCE.sub(lambda found: re.sub(r"[^\n]+", "#", found[0]), text)


def mentions(text):
    """Number of the line and words of each command of drjax's between backticks."""
    text = _outside(text)
    for found in MENTION.finditer(text):
        for _, words in commands(re.sub(r"\s+", " ", found[1])):
            yield text.count("\n", 0, found.start()) + 1, (*words, "...")


def commands(text):
    """Number of the line, counted from the first, and words of each command of drjax's in a block."""
    lines = re.sub(r"\\\n", " \0", text).split("\n")
    prompted = any(line.lstrip().startswith("$ ") for line in lines)
    variables, at = {}, 0
    for line in lines:
        here, at = at, at + 1 + line.count("\0")
        line = line.replace("\0", " ").strip()
        if prompted and not line.startswith("$ "):
            continue
        for words in _parted(line.removeprefix("$ ")):
            while words and (given := SET.fullmatch(words[0])):
                variables[given[1]] = given[2]
                words = words[1:]
            if words and words[0][1:] in variables:
                words = [*shlex.split(variables[words[0][1:]]), *words[1:]]
            words = [re.sub(r"\$(\w+)", lambda name: variables.get(name[1], name[0]), word) for word in words]
            if words[:1] == ["drjax"] or STARTED.fullmatch(" ".join(words[:3])):
                yield here, tuple(words)


def _parted(line):
    """The words of each command of a line; none of a line that is no command of a shell."""
    if line.startswith(">"):  # of Python
        return
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:  # an apostrophe of what was printed
        return
    part, skip = [], False
    for word in [*words, ";"]:
        if word in APART:
            yield part
            part = []
        elif set(word) <= set("<>&"):
            skip = True
        elif skip:
            skip = False
        else:
            part.append(word)


class Parsed(BaseException):
    """The words were understood; what would be done with them is not done."""


def _inert(function):
    """What looks like a function to a parser, and checks what it is called with in place of working."""

    @functools.wraps(function)
    def checked(*args, **kwargs):
        hints = typing.get_type_hints(function, include_extras=True)
        given = inspect.signature(function).bind(*args, **kwargs).arguments
        for name, value in given.items():
            _check_choice(name, value, hints.get(name))
            if type(value) is options.Options:
                options.typed(given["config"].method if "config" in given else given["method"], value)
        if function is audit and given["config"].released is None:
            choice.check(given["config"])
        if function is sweep or function.__module__ == command.__name__:  # stopped where their work begins
            function(*args, **kwargs)
        raise Parsed

    return checked


def _stop(*_, **__):
    raise Parsed


def _check_choice(name, value, hint):
    """ValueError for a name that the option does not show among its choices."""
    shown = [getattr(extra, "metavar", None) or "" for extra in getattr(hint, "__metadata__", ())]
    choices = [found[1].split(",") for found in map(re.compile(r"\{([^{}]+)\}").search, shown) if found]
    for names in choices:
        for word in [value] if isinstance(value, str) else value or ():
            if word not in names:
                raise ValueError(f"{name} must be one of {', '.join(names)}, got {word!r}")
    if dataclasses.is_dataclass(value):
        for field, inner in typing.get_type_hints(type(value), include_extras=True).items():
            _check_choice(field, getattr(value, field, None), inner)


def _cli(cli):
    def parse(target, **kwargs):
        cli(_inert(target) if inspect.isfunction(target) else target, **kwargs)
        raise Parsed

    return parse


def _command(command):
    def register(app, target=None, **kwargs):
        if target is None:
            return lambda function: register(app, function, **kwargs)
        return command(app, _inert(target) if inspect.isfunction(target) else target, **kwargs)

    return register


def _parse_args(parse_args):
    def parse(*args, **kwargs):
        parse_args(*args, **kwargs)
        raise Parsed

    return parse


@functools.cache
def _started(name):
    """What `python -m` does with a module, compiled, and whether the module reads options at all.

    Raises:
        ValueError: there is no such module, or it is no command.
    """
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
    except ModuleNotFoundError:
        spec = None
    if spec is None:
        raise ValueError(f"there is no module {name}")
    source = Path(spec.origin).read_text(encoding="utf-8")
    for node in ast.parse(source).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'":
            code = compile(ast.Module(node.body, []), spec.origin, "exec")
            return spec.name, code, re.search(r"tyro\.cli\(|command\.main\(|\.parse_args\(", source) is not None
    raise ValueError(f"{name} is no command")


def _start(words):
    if words[0] == "drjax":
        main(words[1:])
        return
    name, code, reads = _started(words[2])
    if not reads:
        module = importlib.import_module(name)
        if words[3:] and not isinstance(getattr(getattr(module, "block", None), "__self__", None), Tables):
            raise ValueError(f"{name} takes no words, got {' '.join(words[3:])}")
        if words[3:]:
            module.block(*words[3:])
        raise Parsed
    module = importlib.import_module(name)
    with mock.patch.object(sys, "argv", [module.__file__, *words[3:]]):
        exec(code, dict(vars(module)))


@functools.cache
def fault(words):
    """What the program of a command does not understand, as it says it; None if it understands all."""
    given = [word for word in words if word != "..."]
    wrong = _fault(given)
    if "..." in words:
        at = next((i for i, word in enumerate(given) if word.startswith("-")), len(given))
        while wrong is not None and WANTS_WORD.search(wrong) and len(given) < 20:
            given.insert(at, "WORD")
            wrong = _fault(given)
        wrong = None if wrong is not None and UNSAID.search(wrong) and "Unrecognized" not in wrong else wrong
    return None if wrong is not None and re.search(r"got '[A-Z]+'", wrong) else wrong


def _fault(words):
    said = io.StringIO()
    with (
        contextlib.redirect_stdout(said),
        contextlib.redirect_stderr(said),
        mock.patch.object(tyro, "cli", _cli(tyro.cli)),
        mock.patch.object(SubcommandApp, "command", _command(SubcommandApp.command)),
        mock.patch.object(argparse.ArgumentParser, "parse_args", _parse_args(argparse.ArgumentParser.parse_args)),
        mock.patch.dict(os.environ),
        contextlib.ExitStack() as stack,
    ):
        for place, name in WORK:
            stack.enter_context(mock.patch.object(place, name, _stop))
        try:
            _start(words)
        except Parsed:
            return None
        except SystemExit as end:
            if not end.code:  # --help and the like
                return None
            return re.sub(r"[─-╿\s]+", " ", said.getvalue()).strip()
        except ValueError as error:
            return str(error)
    raise AssertionError(f"nothing read the words of {' '.join(words)}")


def check(path):
    """How many commands of a page were looked at. AssertionError where one is not understood."""
    text = path.read_text(encoding="utf-8")
    of_blocks = [*indented(text), *not_run(text)]
    found = [(first + line, words) for first, block in of_blocks for line, words in commands(block)]
    found += mentions(text)
    faults = [f"{path.name}:{line}: {shlex.join(words)}\n  {fault(words)}" for line, words in found if fault(words)]
    faults += [f"{path.name}:{first}: {FENCED}" for first, block in indented(text) if RUNS.search(block)]
    assert not faults, "\n".join(faults)
    return len(found)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_of_a_page_are_understood(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check(page)


PAGE = r"""
Text of `drjax audit --each-record`, of `python -m experiments.NAME.run` and of `drjax
embed --n-components`:

    drjax embed records.csv map.csv --method tsne \
        --perplexity 30    # drjax has no --comment
    R=runs/all C="python -m experiments.equivalence.run --scale smoke"
    $C --out $R && OPENBLAS_NUM_THREADS=1 python -m bench.glm_grid --targets 4 > table.md
    drjax audit --attacks NAME
    drjax sweep STORE ... --executor ray
    pip install '.[dp]' && drjax bound rero --epsilon 1 | head
    sbatch --wrap 'drjax nothing'

<!-- not run: it takes an hour -->
'''console
$ drjax data info digits
drjax prints no command of its own
$ python -m bench.gpu_hour --dry-run
'''

'''console
$ drjax of a block that runs
'''

Not `drjaxes`, nor ``drjax --code``.
"""


@pytest.fixture
def page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def written(text):
        (tmp_path / "page.md").write_text(text.replace("'''", "```"), encoding="utf-8")
        return tmp_path / "page.md"

    return written


def test_commands_of_a_page_that_is_right_are_all_found(page):
    assert check(page(PAGE)) == 10


@pytest.mark.parametrize(
    ("right", "wrong", "line", "said"),
    [
        ("--perplexity 30", "--perplexiti 30", 5, "Unrecognized options"),
        ("--perplexity 30", "--perplexity much", 5, "perplexity must be a number"),
        ("--method tsne", "--method pca", 5, "must be an option of the method"),
        ("--method tsne", "--method t-sne", 5, "method must be one of"),
        ("--method tsne", "--method tsne --scale huge", 5, "scale must be one of"),
        ("records.csv map.csv", "records.csv", 5, "Missing from drjax embed"),
        ("--scale smoke", "--scale huge", 8, "scale must be one of smoke, cpu"),
        ("--out $R", "--outs $R", 8, "Unrecognized options: --outs, runs/all"),
        ("--targets 4", "--targets four", 8, "invalid int value"),
        ("--attacks NAME", "--attacks name", 9, "attacks must be among"),
        ("--attacks NAME", "--attack NAME --attacker", 9, "Unrecognized options"),
        ("STORE ... --executor", "STORE --executor", 10, "Missing from drjax sweep run"),
        ("... --executor ray", "... --executors ray", 10, "Unrecognized options: --executors"),
        ("rero --epsilon 1", "rero --epsilon one", 11, "Error parsing --epsilon"),
        ("info digits", "inform digits", 16, "Available subcommands: list"),
        ("bench.gpu_hour", "bench.gpu_day", 18, "there is no module bench.gpu_day"),
        ("bench.gpu_hour", "bench.harness", 18, "bench.harness is no command"),
        ("bench.gpu_hour", "bench.device_table", 18, "takes no words"),
        ("--each-record", "--every-record", 2, "Unrecognized options"),
        ("embed --n-comp", "embed --m-comp", 2, "Unrecognized options"),
        ("    drjax audit", "    $ drjax audit", 5, "between fences"),
        ("    drjax audit", "    import drjax\n    drjax audit", 5, "between fences"),
    ],
)
def test_a_command_that_is_not_understood_is_named_with_its_line(right, wrong, line, said, page):
    assert right in PAGE
    with pytest.raises(AssertionError, match=said) as caught:
        check(page(PAGE.replace(right, wrong)))
    assert f"page.md:{line}: " in str(caught.value)


def test_what_a_command_would_do_is_not_done(page, tmp_path):
    text = "\n    drjax bound rero --epsilon 1 --plot out.png\n    drjax data plan none.csv plan.json\n"
    assert check(page(text)) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["page.md"]
