"""The ledger: what each accountant adds up to, that nobody overspends, and what a file that is not right gives."""

import errno
import fcntl
import json
import math
import os
import re
import stat
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

from drjax.bounds import curve_json, gdp, ledger_file, tradeoff
from drjax.bounds.ledger import ACCOUNTANTS, BudgetExceeded, Ledger, fingerprint

RELATION = "zero_out"
SHA = "0f" * 32
ROOT = Path(__file__).parents[2]


def curve(kind, *values, **named):
    return getattr(tradeoff, kind)(*values, neighbouring=RELATION, **named)


def made(tmp_path, accountant="gdp", epsilon=1.0, delta=1e-6, **changed):
    fields = {"dataset": "clinic", "sha256": SHA, "neighbouring": RELATION, **changed}
    return Ledger.create(tmp_path / "ledger.json", epsilon=epsilon, delta=delta, accountant=accountant, **fields)


ONE = {
    "basic": curve("EpsilonDelta", 0.1, 1e-8),
    "gdp": curve("Gaussian", 0.05),
    "losses": curve("Laplace", 0.04),
    "zcdp": curve("ZCDP", 0.001),
}
"""A curve that each accountant takes and can pay several times of."""


def test_every_accountant_has_a_curve_in_these_tests():
    assert sorted(ONE) == sorted(ACCOUNTANTS)


def test_basic_adds_decimals_and_takes_the_last_one_that_fits(tmp_path):
    book = made(tmp_path, "basic", delta=0.0)
    for i in range(9):
        book.spend(curve("EpsilonDelta", 0.1), f"release {i}")
    # As float64 numbers, ten times 0.1 is more than 1.
    assert book.remaining() == curve("EpsilonDelta", 0.1)
    with pytest.raises(BudgetExceeded) as caught:
        book.spend(curve("EpsilonDelta", 0.1000001), "too much")
    assert caught.value.remaining == curve("EpsilonDelta", 0.1)
    with pytest.raises(BudgetExceeded):
        book.spend(curve("EpsilonDelta", 0.05, 1e-12), "a delta that the budget has not")
    book.spend(curve("Laplace", 0.1), "the last")
    assert book.spent() == curve("EpsilonDelta", 1.0)
    assert book.remaining() == curve("EpsilonDelta", 0.0)
    with pytest.raises(BudgetExceeded):
        book.spend(curve("EpsilonDelta", 1e-300), "nothing is left")


def test_basic_adds_deltas_and_the_logarithm_of_randomized_response(tmp_path):
    book = made(tmp_path, "basic", epsilon=2.5, delta=3e-6)
    for _ in range(2):
        book.spend(curve("EpsilonDelta", 0.25, 1e-6), "a pair")
    book.spend(curve("RandomizedResponse", 0.7, 3), "an answer")
    total = book.spent()
    assert isinstance(total, tradeoff.EpsilonDelta)
    # 0.7 against 0.15 for each of the others, rounded up in the last digit; the difference loses two or three.
    assert total.epsilon - 0.5 == pytest.approx(math.log(0.7 / 0.15), abs=1e-15)
    assert total.epsilon >= 0.5 + curve("RandomizedResponse", 0.7, 3).epsilon
    assert total.delta == 2e-6
    assert book.remaining().delta == 1e-6
    with pytest.raises(ValueError, match="curve must be pure"):
        book.spend(curve("RandomizedResponse", 1.0), "the truth")


def test_gdp_adds_squares_and_allows_exactly_what_mu_gives(tmp_path):
    mu, delta = 1.3, 1e-5
    book = made(tmp_path, epsilon=gdp.epsilon_of(mu, delta), delta=delta)
    for part in (0.5, 1.2):
        book.spend(curve("Gaussian", part), "a part")
    # The square of the float64 number 1.3 is just above the sum of the squares of 0.5 and 1.2.
    assert book.spent() == curve("Gaussian", 1.3)
    with pytest.raises(BudgetExceeded, match=re.escape("'more' must fit into what is left of epsilon")):
        book.spend(curve("Gaussian", 1e-3), "more")
    assert len(book.entries) == 2
    assert Ledger.open(book.path).remaining().mu < 1e-4


def test_zcdp_adds_rho_of_gaussian_pure_and_zcdp(tmp_path):
    book = made(tmp_path, "zcdp", epsilon=3.0)
    for part in (
        curve("ZCDP", 0.01),
        curve("Gaussian", 0.2),
        curve("Laplace", 0.1),
        curve("EpsilonDelta", 0.3),
    ):
        book.spend(part, "a part")
    rho = 0.01 + 0.2**2 / 2 + 0.1**2 / 2 + 0.3**2 / 2
    assert rho * (1 - 1e-15) <= book.spent().rho <= rho * (1 + 1e-15)
    left = book.remaining().rho
    assert tradeoff.ZCDP(rho + left).epsilon_at(1e-6) == pytest.approx(3.0, rel=1e-9)
    with pytest.raises(ValueError, match="curve must be Gaussian, zCDP or pure for the accountant 'zcdp'"):
        book.spend(curve("EpsilonDelta", 0.1, 1e-9), "approximate")


def test_losses_composes_all_kinds_more_tightly_than_basic(tmp_path):
    book = made(tmp_path, "losses", epsilon=1.0, delta=1e-6)
    parts = [curve("Laplace", 0.2), curve("Gaussian", 0.03), curve("Gaussian", 0.04), curve("RandomizedResponse", 0.55)]
    for part in parts:
        book.spend(part, "a part")
    total = book.spent()
    expected = tradeoff.compose(curve("Laplace", 0.2), curve("Gaussian", 0.05), curve("RandomizedResponse", 0.55))
    # Three Gaussians of the sizes 3, 4, 5: two of them are one.
    assert total.epsilon_at(1e-6) == pytest.approx(expected.epsilon_at(1e-6), rel=1e-9)
    assert total.epsilon_at(1e-6) < sum(part.epsilon_at(2.5e-7) for part in parts)
    assert book.spend(book.remaining(), "the rest").curve.mu > 0.1
    assert 0.98 < book.spent().epsilon_at(1e-6) <= 1.0


def test_losses_composes_renyi_guarantees_in_their_terms(tmp_path):
    book = made(tmp_path, "losses", epsilon=4.0)
    renyi = curve("RDP", [2.0, 8.0, math.inf], [0.1, 0.3, math.inf])
    book.spend(renyi, "a table")
    assert book.spent() == renyi
    book.spend(curve("Gaussian", 0.1), "another")
    # (order - 1) epsilon would be of two; each adds order mu^2 / 2, and no order but those two is shared.
    assert book.spent().epsilons[:2] == pytest.approx((0.1 + 2 * 0.005, 0.3 + 8 * 0.005))


@pytest.mark.parametrize("accountant", ACCOUNTANTS)
def test_what_remains_can_be_spent_and_not_much_more(tmp_path, accountant):
    book = made(tmp_path, accountant)
    assert book.entries == ()
    assert book.spent().power(0.3) == pytest.approx(0.3, rel=1e-9)
    for i in range(2):
        book.spend(ONE[accountant], f"release {i}")
    left = book.remaining()
    size = {"basic": "epsilon", "zcdp": "rho"}.get(accountant, "mu")
    more = type(left)(getattr(left, size) * 1.02, neighbouring=RELATION)
    text = book.path.read_text()
    with pytest.raises(BudgetExceeded) as caught:
        book.spend(more, "more than remains")
    assert caught.value.remaining == left
    assert book.path.read_text() == text
    book.spend(left, "what remains")
    assert [entry.label for entry in book.entries] == ["release 0", "release 1", "what remains"]
    assert book.spent().epsilon_at(1e-6 if accountant != "basic" else 1e-6 * (1 + 1e-9)) <= 1.0
    # Two digits for "losses"; squares add up, so that a hundredth of mu squared leaves a seventh of mu.
    assert getattr(book.remaining(), size) < 0.15 * getattr(left, size)


STORED = [
    ("basic", curve("EpsilonDelta", 0.1, 1e-9)),
    ("basic", curve("RandomizedResponse", 0.3, 5)),
    ("gdp", curve("Gaussian", np.float32(0.1))),
    ("gdp", curve("Gaussian", 0)),
    ("zcdp", curve("ZCDP", 1e-3)),
    ("zcdp", curve("Laplace", np.float64(0.1))),
    ("losses", curve("RDP", [1.5, math.inf], [0.25, math.inf])),
    ("losses", curve("RDP", 3.0, 0.1)),
]


@pytest.mark.parametrize(("accountant", "given"), STORED)
def test_curves_come_back_as_they_went_in(tmp_path, accountant, given):
    book = made(tmp_path, accountant, epsilon=40.0)
    entry = book.spend(given, "über α → β")
    assert entry.curve == given
    (again,) = Ledger.open(book.path, sha256=SHA, neighbouring=RELATION).entries
    assert again == entry
    assert again.label == "über α → β"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", again.utc)


def test_every_kind_that_is_stored_is_tested():
    assert {type(given).__name__ for _, given in STORED} == set(curve_json.KINDS)


@pytest.mark.parametrize("accountant", ACCOUNTANTS)
def test_numeric_curves_and_minima_are_refused_with_what_to_do(tmp_path, accountant):
    book = made(tmp_path, accountant, epsilon=10.0)
    numeric = tradeoff.compose(curve("Laplace", 0.1), curve("Gaussian", 0.1))
    for refused in (numeric, tradeoff.minimum(curve("Gaussian", 0.1), curve("Laplace", 0.1))):
        with pytest.raises(ValueError, match=r"EpsilonDelta\(curve.epsilon_at\(delta\), delta"):
            book.spend(refused, "what no few numbers describe")
    assert book.entries == ()


def test_what_the_refusal_of_a_numeric_curve_advises_works(tmp_path):
    numeric = tradeoff.compose(curve("Laplace", 0.1), curve("Gaussian", 0.1))
    book, delta = made(tmp_path, "basic"), 1e-7
    book.spend(curve("EpsilonDelta", numeric.epsilon_at(delta), delta), "at one delta")
    assert book.spent().delta_at(numeric.epsilon_at(delta)) >= numeric.delta_at(numeric.epsilon_at(delta))


@pytest.mark.parametrize(
    ("accountant", "given", "text"),
    [
        ("gdp", curve("ZCDP", 0.1), "curve must be Gaussian for the accountant 'gdp'"),
        ("gdp", curve("Laplace", 0.1), "curve must be Gaussian for the accountant 'gdp'"),
        ("basic", curve("Gaussian", 0.1), r"'basic' takes EpsilonDelta\("),
        ("zcdp", curve("RDP", 2.0, 0.1), "curve must be pure"),
        ("gdp", tradeoff.Gaussian(0.1), "curve must name the ledger's relation, zero_out; got None"),
        ("gdp", tradeoff.Gaussian(0.1, neighbouring="replace_one"), "ledger's relation, zero_out; got replace_one"),
        ("gdp", 0.1, "curve must be a trade-off curve"),
    ],
)
def test_curves_that_an_accountant_cannot_add_are_refused(tmp_path, accountant, given, text):
    book = made(tmp_path, accountant)
    with pytest.raises(ValueError, match=text) as caught:
        book.spend(given, "not of this kind")
    assert not isinstance(caught.value, BudgetExceeded)
    assert book.entries == ()


def test_wrong_data_relations_and_labels_are_refused(tmp_path):
    book = made(tmp_path)
    with pytest.raises(ValueError, match="sha256 must be that of the ledger"):
        Ledger.open(book.path, sha256=fingerprint(np.ones(3)))
    with pytest.raises(ValueError, match="neighbouring must be that of the ledger, zero_out; got 'replace_one'"):
        Ledger.open(book.path, neighbouring="replace_one")
    for label in ("", "  ", None):
        with pytest.raises(ValueError, match="label must be a text"):
            book.spend(ONE["gdp"], label)
    with pytest.raises(FileExistsError, match="path must be a new file"):
        made(tmp_path, epsilon=100.0)
    assert Ledger.open(book.path) == book
    with pytest.raises(FileNotFoundError):
        Ledger.open(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"epsilon": 0.0}, "epsilon must be"),
        ({"epsilon": math.nan}, "epsilon must be"),
        ({"epsilon": math.inf}, "epsilon must be"),
        ({"delta": 1.0}, r"delta must be in \[0, 1\)"),
        ({"delta": -1e-9}, r"delta must be in \[0, 1\)"),
        ({"delta": math.nan}, r"delta must be in \[0, 1\)"),
        ({"delta": 0.0}, "delta must be > 0 for the accountant 'gdp'"),
        ({"accountant": "rdp"}, "accountant must be one of basic, gdp, losses, zcdp"),
        ({"neighbouring": None}, "neighbouring must be one of"),
        ({"sha256": "0F" * 32}, "sha256 must be 64 hexadecimal digits"),
        ({"sha256": "0f" * 31}, "sha256 must be 64 hexadecimal digits"),
        ({"dataset": ""}, "dataset must be a text"),
    ],
)
def test_bad_ledgers_are_not_made(tmp_path, changed, text):
    with pytest.raises(ValueError, match=text):
        made(tmp_path, **changed)
    assert not list(tmp_path.iterdir())


def test_fingerprints_tell_arrays_apart_and_hold_on_every_platform():
    x = np.arange(6, dtype="<f8").reshape(2, 3)
    # Of the text and the bytes that the function says it hashes, so that another machine gives the same.
    assert fingerprint(x) == "e3b222be6ac8ca4f9adefb26f057f25f0ddb522d290cc1de402a63bdc8756cdf"
    assert fingerprint(x.astype(">f8")) == fingerprint(np.asfortranarray(x)) == fingerprint(x)
    others = [x[::-1], x.T, x.ravel(), x.astype("f4"), np.nextafter(x, 9), np.array(0.0), np.zeros((2, 0))]
    assert len({fingerprint(x), *map(fingerprint, others)}) == 1 + len(others)
    with pytest.raises(ValueError, match="array must be of numbers or booleans"):
        fingerprint(np.array([None]))


def tampered(book, change):
    document = json.loads(book.path.read_text())
    change(document)
    book.path.write_text(json.dumps(document))


EDITS = {
    "a larger budget": lambda d: d["header"].update(epsilon=9.0),
    "another data set": lambda d: d["header"].update(dataset="other"),
    "a cheaper entry": lambda d: d["entries"][0]["curve"].update(mu=0.01),
    "another label": lambda d: d["entries"][1].update(label="x"),
    "an entry less at the end": lambda d: d["entries"].pop(),
    "an entry less at the start": lambda d: d["entries"].pop(0),
    "entries swapped": lambda d: d["entries"].reverse(),
    "an entry twice": lambda d: d["entries"].append(d["entries"][-1]),
    "another head": lambda d: d.update(head=SHA),
    "no head": lambda d: d.pop("head"),
    "something more": lambda d: d.update(note="hello"),
    "an entry without a hash": lambda d: d["entries"][0].pop("hash"),
    "no number": lambda d: d["entries"][0]["curve"].update(mu=math.nan),
    "a list": lambda d: d.update(header=[]),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_file_is_refused(tmp_path, edit):
    book = made(tmp_path)
    for label in ("one", "two"):
        book.spend(ONE["gdp"], label)
    tampered(book, EDITS[edit])
    text = book.path.read_text()
    for call in (lambda: Ledger.open(book.path), lambda: book.spend(ONE["gdp"], "three"), book.spent, book.remaining):
        with pytest.raises(ValueError, match=r"path must be (an intact ledger|a ledger's file), got"):
            call()
    assert book.path.read_text() == text


def test_a_torn_file_is_refused_and_white_space_is_not_damage(tmp_path):
    book = made(tmp_path)
    entry = book.spend(ONE["gdp"], "one")
    tampered(book, len)  # written on one line
    assert book.entries == (entry,)
    whole = book.path.read_bytes()
    for torn in (whole[:-40], b"", b"[]", b"\xff\xfe", b"null"):
        book.path.write_bytes(torn)
        with pytest.raises(ValueError, match="path must be a ledger's file"):
            Ledger.open(book.path)


def test_a_later_schema_and_another_ledger_in_the_same_place_are_refused(tmp_path, monkeypatch):
    book = made(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(ledger_file, "SCHEMA_VERSION", 2)
        with pytest.raises(ValueError, match="path must be a ledger of schema version 2, got 1"):
            Ledger.open(book.path)
    book.path.unlink()
    made(tmp_path, epsilon=5.0)
    with pytest.raises(ValueError, match="path must still hold the ledger that was opened"):
        book.spend(ONE["gdp"], "into another budget")


def test_a_failure_before_the_rename_leaves_the_old_file_and_a_usable_ledger(tmp_path, monkeypatch):
    book = made(tmp_path)
    book.spend(ONE["gdp"], "one")
    before = book.path.read_bytes()

    def fail(*_):
        raise OSError("no space")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", fail)
        with pytest.raises(OSError, match="no space"):
            book.spend(ONE["gdp"], "two")
    assert book.path.read_bytes() == before
    book.spend(ONE["gdp"], "three")
    assert [entry.label for entry in book.entries] == ["one", "three"]


def test_the_files_of_a_ledger_are_the_owner_s_alone_and_links_are_followed(tmp_path):
    before = os.umask(0o022)
    try:
        book = made(tmp_path)
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
        assert modes == {"ledger.json": 0o600, ".ledger.json.lock": 0o600}
        # What an earlier version wrote, or left behind when it was killed, was for everybody to read.
        book.path.chmod(0o644)
        (tmp_path / ".ledger.json.tmp").touch(0o644)
        (tmp_path / "link.json").symlink_to(book.path)
        Ledger.open(tmp_path / "link.json").spend(ONE["gdp"], "one")
    finally:
        os.umask(before)
    assert stat.S_IMODE(book.path.stat().st_mode) == 0o600
    assert (tmp_path / "link.json").is_symlink()
    assert len(book.entries) == 1


def test_a_held_lock_gives_a_clear_error_and_reading_goes_on(tmp_path):
    book = made(tmp_path)
    with open(tmp_path / ".ledger.json.lock") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(TimeoutError, match="timeout must be longer than others hold the lock"):
            book.spend(ONE["gdp"], "one", timeout=0.05)
        assert book.entries == ()
        with pytest.raises(ValueError, match="timeout must be >= 0"):
            book.spend(ONE["gdp"], "one", timeout=math.nan)
    book.spend(ONE["gdp"], "one", timeout=0)
    assert len(book.entries) == 1


def test_a_file_system_without_locks_is_told_and_nothing_is_spent(tmp_path, monkeypatch):
    book = made(tmp_path)

    def flock(*_):
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(OSError, match="not implemented"):
        book.spend(ONE["gdp"], "one")
    assert book.entries == ()
    assert not list(tmp_path.glob("*.lock.*"))


SPENDER = """
import sys, time
from pathlib import Path
from drjax.bounds import tradeoff
from drjax.bounds.ledger import BudgetExceeded, Ledger

book = Ledger.open(sys.argv[1])
Path(sys.argv[2]).touch()
while not Path(sys.argv[3]).exists():
    time.sleep(0.001)
paid = refused = 0
for i in range(12):
    try:
        book.spend(tradeoff.EpsilonDelta(0.1, neighbouring="zero_out"), f"{sys.argv[2]} {i}")
        paid += 1
    except BudgetExceeded:
        refused += 1
print(paid, refused)
"""

VICTIM = """
import os, signal, sys
from drjax.bounds import tradeoff
from drjax.bounds.ledger import Ledger

book = Ledger.open(sys.argv[1])
os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
book.spend(tradeoff.EpsilonDelta(0.1, neighbouring="zero_out"), "never")
"""


def started(script, *arguments):
    command = [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_processes_that_spend_at_once_and_one_that_is_killed_never_overspend(tmp_path):
    book = made(tmp_path, "basic", delta=0.0)
    victim = started(VICTIM, book.path)
    go, ready = tmp_path / "go", [tmp_path / f"ready {i}" for i in range(2)]
    spenders = [started(SPENDER, book.path, mark, go) for mark in ready]
    assert victim.wait(timeout=60) == -9, victim.communicate()
    # Killed between writing and renaming: the old file, a temporary one, and a lock that is free again.
    assert book.entries == ()
    assert (tmp_path / ".ledger.json.tmp").exists()
    while not all(mark.exists() for mark in ready):
        assert all(process.poll() is None for process in spenders), [p.communicate() for p in spenders]
        time.sleep(0.01)
    go.touch()
    outputs = [process.communicate(timeout=60) for process in spenders]
    assert [process.returncode for process in spenders] == [0, 0], outputs
    # 24 tries at a tenth of the budget each: ten are paid, whoever pays them, and each is in the file.
    paid, refused = np.sum([list(map(int, out.split())) for out, _ in outputs], axis=0)
    assert (paid, refused) == (10, 14)
    assert len({entry.label for entry in book.entries}) == 10
    assert book.spent() == curve("EpsilonDelta", 1.0)
    assert not (tmp_path / ".ledger.json.tmp").exists()
