"""Which cells there are, what they are called, and in what order they are computed.

A cell is an attack on a release at one noise: "mnist/pca/199/0:network:0". A task is the cells that one computation
answers. Tasks come in an order in which whatever an interrupted run has is a result: the first repeat of every data
set, size and method before the second, and in a repeat what is cheap before what decides the paper's claims, and that
before what is dear.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from experiments.dr_reconstruction import expected, paper
from experiments.dr_reconstruction.config import ADAPTIVE, DENSE_NETWORK, NETWORK, Config, Release

CellName = tuple[str, str, float]
"""Path of the release, attack, and standard deviation of the noise on the records, 0 for none."""

SEPARATOR = ":"

WILDCARDS = "*?["

CHEAP = 120.0
"""Seconds on two cores that an attack may be expected to take and still come first."""


@dataclass(frozen=True)
class Task:
    """Cells that one computation answers.

    Attributes:
        release: What is attacked.
        attack: Name of the attack. One that is trained under the noise is a task for every noise.
        sigmas: Noises of the cells. Any other attack is given the releases of all noises together, the clean ones
            always: equation 12 compares what it makes of both.
    """

    release: Release
    attack: str
    sigmas: tuple[float, ...]

    @property
    def cells(self) -> tuple[CellName, ...]:
        """The cells, without noise first."""
        return tuple((self.release.name, self.attack, sigma) for sigma in self.sigmas)


def text_of(cell: CellName) -> str:
    """What a cell is called: release, attack and noise."""
    release, attack, sigma = cell
    return SEPARATOR.join((release, attack, f"{sigma:g}"))


def tasks(config: Config, only: str | Sequence[str] = "*") -> list[Task]:
    """The tasks of all cells that one of some patterns names, in the order to compute them.

    A noisy cell of an attack that knows of no noise brings the clean one along.

    Args:
        config: What there is.
        only: Patterns as in a shell: of releases ("mnist/pca/*"), of attacks on them ("mnist/*:network") or of cells
            ("mnist/*/99/*:adaptive-*:32").

    Raises:
        ValueError: a pattern that names no cell.
    """
    chosen = _Chosen([only] if isinstance(only, str) else only)
    found = []
    for release in config.releases():
        for attack in config.attacks(release):
            sigmas = [s for s in config.sigmas_of(release, attack) if chosen.takes((release.name, attack, s))]
            if attack.startswith(ADAPTIVE):
                found += [Task(release, attack, (sigma,)) for sigma in sigmas]
            elif sigmas:
                together = {0, *sigmas}
                found.append(Task(release, attack, tuple(s for s in config.sigmas_of(release) if s in together)))
    if lost := chosen.unused():
        example = text_of(found[0].cells[0]) if found else text_of(tasks(config)[0].cells[0])
        raise ValueError(f"only must name some release or cell, such as {example}, got {lost[0]!r}")
    places = _places(config)
    return sorted(found, key=lambda task: (task.release.repeat, _rank(config, task), places[task.release.name]))


def read_names(file: Path) -> list[str]:
    """Names of cells, the first word of each line: what `run --list` prints, shortened by hand or not.

    Empty lines and those that begin with "#" do not count.

    Raises:
        ValueError: the file names none.
        OSError: it cannot be read.
    """
    lines = (line.split() for line in file.read_text(encoding="utf-8").splitlines() if not line.startswith("#"))
    names = [words[0] for words in lines if words]
    if not names:
        raise ValueError(f"cells must be a file with a name on every line, got {file} with none")
    return names


class _Chosen:
    """The cells that patterns name, and which patterns have named none."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._waiting = dict.fromkeys(patterns)
        # A list of cells may name thousands, which are not tried one by one.
        self._whole = {p for p in patterns if p.count(SEPARATOR) == 2 and not any(c in p for c in WILDCARDS)}
        self._parts = {p: p.split(SEPARATOR) for p in self._waiting if p not in self._whole}

    def takes(self, cell: CellName) -> bool:
        """Whether some pattern names the cell."""
        name = text_of(cell)
        words = name.split(SEPARATOR)
        found = [p for p, parts in self._parts.items() if len(parts) <= len(words) and _fits(words, parts)]
        found += [name] if name in self._whole else []
        for pattern in found:
            self._waiting.pop(pattern, None)
        return bool(found)

    def unused(self) -> list[str]:
        """Patterns that no cell has had."""
        return list(self._waiting)


def _fits(words: Sequence[str], parts: Sequence[str]) -> bool:
    """A pattern with fewer parts than a name has names all that begins so."""
    return all(fnmatchcase(word, part) for word, part in zip(words, parts, strict=False))


def _places(config: Config) -> dict[str, tuple[bool, int]]:
    """Releases of Table 4 first, the others in the order of the configuration."""

    def is_later(release: Release) -> bool:
        return (release.data, release.n_known) != (paper.TABLE_4_DATA, paper.TABLE_4_KNOWN)

    return {release.name: (is_later(release), i) for i, release in enumerate(config.releases())}


def _rank(config: Config, task: Task) -> int:
    """0 for what is cheap; 1 to 3 for what decides claims; 4 for what is dear; 5 for the rest."""
    is_table_4 = (task.release.data, task.release.n_known) == (paper.TABLE_4_DATA, paper.TABLE_4_KNOWN)
    if task.attack.startswith(ADAPTIVE):
        return 1 if task.sigmas[0] == max(config.sigmas) else 5
    if task.attack in (NETWORK, DENSE_NETWORK) and is_table_4:
        return 2
    if task.attack == NETWORK:
        return 3
    if task.attack == DENSE_NETWORK:
        return 5
    answers = expected.n_answers(config, task.release, task.attack, task.sigmas)
    seconds = expected.of_attack(config, task.release, task.attack, answers)
    return 4 if task.attack in config.dear or seconds > CHEAP else 0
