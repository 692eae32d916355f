"""Blocks of the documentation run as they stand there, and print what the page says.

Of a page the blocks of `python` and `console` run one after the other, in one namespace and one folder that is empty.
A console block holds commands (lines with `$ `, continued by a backslash) and what each prints. What a Python block
prints is in a block of `text` right below it; one that prints nothing has none.

- White space does not count, so that lines may be wrapped anywhere. `...` stands for any words.
- Whole numbers must be the same. Numbers with decimals, with an exponent, in front of % or of the word days may differ
  by a fifth of themselves, because processors round differently; after `<!-- exact -->` before a block they may not.
- A block behind `<!-- run apart: REASON -->` takes long, or needs files of data sets. `python docs/run_apart.py` runs
  it and keeps a row of it; a test here finds blocks that have none. Files that it needs are made by Python in a comment
  `<!-- files: CODE -->` before it.
- A block behind `<!-- not run: REASON -->` is not run.
- What is printed and not shown is an error, and so is an output that is shown as `...` alone.
- Indented blocks are not run: their commands, and those of blocks that are not run, are parsed by
  `tests/test_page_commands.py`.
"""

import contextlib
import io
import json
import re
import shlex
import subprocess
import sys
import types
from typing import NamedTuple
from unittest import mock

import pytest
from sybil import Document, Example
from sybil.parsers.markdown.lexers import FencedCodeBlockLexer
from sybil.region import Region

from drjax.cli import main
from drjax.reports import records
from tests.contributing import LISTS
from tests.pages import ROOT, WRITTEN

PAGES = [ROOT / "README.md", *WRITTEN]
ROWS = ROOT / "docs" / "run_apart.jsonl"

TOLERANCE = 0.2
NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?%?", re.I)
COMMENT = re.compile(r"<!-- ((?:not run|(?P<apart>run apart)): (?:(?!-->).)*?\S|exact) -->\s*\Z", re.S)
FILES = re.compile(r"<!-- files: (.*?)-->", re.S)
SHELL = {"cat", "cp", "grep", "head", "ls", "mkdir", "wc"}


def words(text):
    """Words of an output, without the lines that rich draws around cells."""
    return re.sub(r"[─-╿]", " ", text).split()


def agree(shown, printed, unit="", *, exact=False):
    """Whether a printed word is the one that is shown, up to what processors may round differently.

    Args:
        shown: The word on the page.
        printed: That of the command.
        unit: The word after it on the page.
        exact: Whether numbers have to be the same.
    """
    if shown == printed:
        return True
    if exact or NUMBER.sub("#", shown) != NUMBER.sub("#", printed):
        return False
    measured = unit.rstrip(",.;:)") == "days"
    return all(_near(*pair, measured) for pair in zip(NUMBER.findall(shown), NUMBER.findall(printed), strict=True))


def _near(shown, printed, measured):
    if not measured and not set(shown.lower()) & set(".e%") and not set(printed.lower()) & set(".e%"):
        return shown == printed
    one, other = (float(number.replace(",", "").rstrip("%")) for number in (shown, printed))
    return abs(one - other) <= TOLERANCE * max(abs(one), abs(other))


def difference(shown, printed, *, exact=False):
    """What is wrong with a shown output, in words; None if it agrees with what was printed."""
    wanted, found = words(shown), words(printed)
    if wanted and set(wanted) == {"..."}:
        return "the page compares nothing: it shows '...' alone"
    first, *more = _parts(wanted)
    if not more:
        fits = _equal(first, found, exact)
    else:
        *middle, last = more
        at, end = len(first), len(found) - len(last)
        fits = at <= end and _equal(first, found[:at], exact) and _equal(last, found[end:], exact)
        for part in middle:
            starts = range(at, end - len(part) + 1)
            begin = next((s for s in starts if _equal(part, found[s : s + len(part)], exact)), None)
            if begin is None:
                return f"this was not printed in its place:\n  {' '.join(part)}\nbut\n  {' '.join(found[at:end])}"
            at = begin + len(part)
    return None if fits else f"the page shows\n  {' '.join(wanted)}\nand this was printed\n  {' '.join(found)}"


def _parts(wanted):
    """The words between ellipses."""
    parts = [[]]
    for word in wanted:
        if word == "...":
            parts.append([])
        else:
            parts[-1].append(word)
    return parts


def _equal(part, found, exact):
    after = [*part[1:], ""]
    return len(part) == len(found) and all(agree(*word, exact=exact) for word in zip(part, found, after, strict=False))


class Block(NamedTuple):
    """A block of a page.

    Attributes:
        source: Code, or commands with what they print.
        shown: What it prints, of code.
        exact: Whether numbers have to be the same.
        apart: Whether it runs apart.
    """

    source: str
    shown: str = ""
    exact: bool = False
    apart: bool = False


class Blocks:
    """Sybil's parser for blocks of Python and of commands.

    Args:
        apart: Whether blocks that run apart are among them, and what makes their files.
    """

    def __init__(self, *, apart=False):
        self.apart = apart
        self.lexers = [FencedCodeBlockLexer(language) for language in ("python", "console")]
        self.output, self.unchecked = FencedCodeBlockLexer("text"), FencedCodeBlockLexer("bash|sh|shell|pycon|py")

    def __call__(self, document):
        outputs = {region.start: region for region in self.output(document)}
        for lexer, evaluate in zip(self.lexers, (run_python, run_console), strict=True):
            for region in lexer(document):
                mark = COMMENT.search(document.text[: region.start])
                below = re.compile(r"\s*").match(document.text, region.end).end()
                shown = outputs.pop(below).lexemes["source"] if below in outputs else ""
                apart = mark is not None and mark["apart"] is not None
                if mark is None or mark[1] == "exact" or (self.apart and apart):
                    block = Block(region.lexemes["source"], shown, mark is not None and not apart, apart)
                    yield Region(region.start, region.end, block, evaluate)
        if self.apart:
            for found in FILES.finditer(document.text):
                yield Region(found.start(), found.end(), found[1], make_files)
        for region in [*outputs.values(), *self.unchecked(document)]:
            mark = COMMENT.search(document.text[: region.start])
            if mark is None or not mark[1].startswith("not run"):
                yield Region(region.start, region.end, None, refuse)


def refuse(_: Example):
    """What is wrong with a block that nothing checks."""
    return "nothing checks this block: use python, with text right below it for what it prints, or console"


def run_python(example: Example):
    """Runs a block of Python; what is wrong with its output, if anything."""
    code, shown, exact, _ = example.parsed
    printed = io.StringIO()
    padded = "\n" * (example.line) + code  # tracebacks name the page's lines
    with contextlib.redirect_stdout(printed):
        exec(compile(padded, example.path, "exec"), example.namespace)
    return difference(shown, printed.getvalue(), exact=exact)


def make_files(example: Example):
    """Runs what makes the files of a block, whatever it prints."""
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(example.parsed, example.path, "exec"), example.namespace)


def run_console(example: Example):
    """Runs the commands of a block; what is wrong with their outputs, if anything."""
    text, _, exact, _ = example.parsed
    before, *commands = re.split(r"^\$ ", text.replace("\\\n", " "), flags=re.M)
    if before.strip() or not commands:
        return "a console block begins with a line '$ COMMAND'"
    for command in commands:
        line, _, shown = command.partition("\n")
        example.namespace["__status__"], printed = run(line, example.namespace.get("__status__", 0))
        wrong = difference(shown, printed, exact=exact)
        if wrong is not None:
            return f"$ {line}\n{wrong}"
    return None


def run(line, status=0):
    """Exit status and output of a command; of standard error only an error's line."""
    name, *arguments = shlex.split(line)
    if line == "echo $?":
        return 0, f"{status}\n"
    if name != "drjax":
        assert name in SHELL, f"commands here are drjax, echo $? and {', '.join(sorted(SHELL))}, got {name}"
        done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True)
        return done.returncode, done.stdout
    printed, errors, status = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(errors):
        try:
            main(arguments)
        except SystemExit as end:
            status = end.code or 0
    said = errors.getvalue()
    assert status in (0, 1) or "drjax: error" in said, said
    return status, printed.getvalue() + "".join(
        part for part in said.splitlines(True) if part.startswith("drjax: error")
    )


def apart(path):
    """Digests of the blocks of a page that run apart, in their order, each with all that runs before it."""
    digests, before = [], []
    for example in Document.parse(str(path), Blocks(apart=True)).examples():
        block = example.parsed
        before.append([block.source, block.shown] if isinstance(block, Block) else block)
        if isinstance(block, Block) and block.apart:
            digests.append(records.fingerprint_of(before))
    return digests


def rows():
    """Rows of the pages with blocks that have run apart."""
    return [json.loads(line) for line in ROWS.read_text(encoding="utf-8").splitlines()] if ROWS.exists() else []


def check(path, *, apart=False):
    """Runs a page in the current folder; how many blocks ran. AssertionError where the page shows something else."""
    document = Document.parse(str(path), Blocks(apart=apart))
    module = types.ModuleType(re.sub(r"\W", "_", f"page_{path.stem}"))  # dataclasses look theirs up
    document.namespace = module.__dict__
    examples = list(document.examples())
    with contextlib.ExitStack() as stack:
        # Not by a patch of the whole dictionary, which forgets what blocks import: some of it is imported once only.
        sys.modules[module.__name__] = module
        stack.callback(sys.modules.pop, module.__name__)
        for known in LISTS:
            stack.enter_context(mock.patch.dict(known))  # what a page registers ends with it
        for example in examples:
            example.evaluate()
    return len(examples)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks_that_run_apart_have_run_as_they_stand(page):
    own = [row["block"] for row in rows() if row["page"] == str(page.relative_to(ROOT))]
    assert own == apart(page), f"python docs/run_apart.py {page.relative_to(ROOT)}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks_of_a_page_print_what_it_says(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    check(page)


@pytest.fixture
def page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def written(text):
        (tmp_path / "page.md").write_text(text.replace("'''", "```"), encoding="utf-8")
        return tmp_path / "page.md"

    return written


GOOD = """
'''python
x = 1 / 3
'''

'''python
print(f"{x:.3f} of 12 records, {x:.0%}, within 471 days")
'''

'''text
0.301 of 12 records, 30%, within 467 days
'''

'''console
$ drjax bound rero --epsilon 1 \\
      --kappa 0.01
1-DP, ...
prior kappa success corollary 3
given 0.01 0.0272 0.0272
$ drjax bound rero --epsilon -1 --kappa 0.01
drjax: error: ...
$ echo $?
2
'''
"""


def test_a_page_that_is_right_passes(page):
    assert check(page(GOOD)) == 3


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("0.301 of", "0.2 of"),  # farther than a fifth
        ("12 records, 30%", "13 records, 30%"),
        ("30%", "3%"),
        ("467 days", "300 days"),
        ("467 days", "467 weeks"),
        ("0.301 of 12", "0.301 among 12"),
        ("'''text\n0.301 of 12 records, 30%, within 467 days\n'''", ""),  # not shown
        ("0.301 of 12 records, 30%, within 467 days", "..."),  # nothing compared
        ("467 days", "467 days\nand more"),
        ("given 0.01 0.0272 0.0272", ""),
        ("given 0.01 0.0272", "given 0.01 0.0152"),
        ("kappa success", "kappa failure"),
        ("error: ...", "error: ... pigs"),
        ("$ echo $?\n2", "$ echo $?\n0"),
        ("'''python\nprint", "<!-- exact -->\n'''python\nprint"),  # 0.301 is not 0.333
        ("'''console\n$ ", "'''console\n"),
        ("'''console\n$ ", "'''bash\n$ "),
        ("'''text\n0", "The output is:\n\n'''text\n0"),  # not right below
    ],
)
def test_a_page_that_is_wrong_fails(right, wrong, page):
    assert right in GOOD
    with pytest.raises(AssertionError, match="did not evaluate as expected"):
        check(page(GOOD.replace(right, wrong)))


def test_an_error_in_a_block_names_its_line_on_the_page(page):
    with pytest.raises(ZeroDivisionError) as caught:
        check(page("one\n\n'''python\nx = 1\nx / 0\n'''\n"))
    assert caught.traceback[-1].lineno + 1 == 5


def test_a_marked_block_is_not_run(page):
    text = "<!-- not run: it takes\nan hour -->\n'''python\n1 / 0\n'''\n"
    assert check(page(text)) == 0
    with pytest.raises(ZeroDivisionError):
        check(page(text.replace("it takes\nan hour", "")))  # no reason


def test_a_mark_holds_for_the_block_below_it_alone(page):
    text = "<!-- not run: it takes an hour -->\n'''python\n1 / 0\n'''\n\n<!-- exact -->\n'''python\n1 / 0\n'''\n"
    with pytest.raises(ZeroDivisionError):
        check(page(text))


def test_a_block_that_runs_apart_runs_there_with_its_files(page):
    text = "<!-- files: open('a', 'w').write('12') -->\n<!-- run apart: it is slow -->\n'''console\n$ cat a\n12\n'''\n"
    assert check(page(text)) == 0
    assert check(page(text), apart=True) == 2
    with pytest.raises(AssertionError, match="this was printed"):
        check(page(text.replace("\n12\n", "\n13\n")), apart=True)


def test_what_is_changed_before_the_end_of_a_block_that_runs_apart_is_seen(page):
    text = (
        "'''python\nx = 1\n'''\n<!-- files: y = 1 -->\n<!-- run apart: it is slow -->\n"
        "'''python\nprint(x)\n'''\n'''text\n1\n'''\n'''python\nz = 1\n'''\n"
    )
    (digest,) = apart(page(text))
    assert apart(page(text.replace("slow", "long").replace("z = 1", "z = 2"))) == [digest]
    for here, other in (("text\n1", "text\n2"), ("print(x)", "print(1)"), ("x = 1", "x = 2"), ("y = 1", "y = 2")):
        assert apart(page(text.replace(here, other))) != [digest]


@pytest.mark.parametrize("mark", ["", "<!-- exact -->\n", "<!-- run apart: it is slow -->\n"])
def test_an_output_that_nothing_prints_is_refused(mark, page):
    with pytest.raises(AssertionError, match="nothing checks this block"):
        check(page(f"{mark}'''text\n1\n'''\n"))
    assert check(page("<!-- not run: it takes an hour -->\n'''text\n1\n'''\n")) == 0


def test_commands_of_other_programs_are_refused(page):
    with pytest.raises(AssertionError, match="commands here are drjax"):
        check(page("'''console\n$ rm -r /\n'''"))


def test_what_a_page_registers_ends_with_it(page):
    before = [dict(known) for known in LISTS]
    check(page("'''python\nfrom drjax.dr import METHODS\n\nMETHODS['own'] = METHODS['pca']\n'''"))
    assert before == [dict(known) for known in LISTS]
