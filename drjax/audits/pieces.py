"""An audit by workers: each does pieces of it, in the run folder that all of them reach, where the audit finds them.

A piece leaves whole files, and of two that are the same the first is believed, so that a worker may die at any moment
and a piece may be done twice.
"""

from __future__ import annotations

import contextlib
import os
import platform
import threading
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

import jax

import drjax
from drjax.attacks.attack import Attack
from drjax.audits.config import AuditConfig
from drjax.audits.folder import RunFolder
from drjax.audits.model_config import ModelAuditConfig
from drjax.audits.pipeline import Elsewhere, Piece, Session, Setting
from drjax.audits.released import Released
from drjax.audits.settings import setting_of
from drjax.core import executors, programs
from drjax.core.progress import shown
from drjax.core.store import machine
from drjax.data import Dataset
from drjax.data.sources import is_named


@dataclass(frozen=True, kw_only=True)
class Job:
    """An audit, as workers are told of it.

    Attributes:
        config: What is audited.
        out: Run folder, which exists.
        data: Data set that the configuration does not name; None if it names it.
        released: Published map that it does not name.
        lanes: Most releases of a chunk, see `Setting`.
        cwd: Working folder, which paths are below.
        caller: Machine and process of whoever asks.
        versions: Versions of drjax and JAX there.
    """

    config: AuditConfig | ModelAuditConfig
    out: Path
    data: Dataset | None = None
    released: Released | None = None
    lanes: int | None = None
    cwd: Path
    caller: tuple[str, int]
    versions: tuple[str, str]


def job(
    config: AuditConfig | ModelAuditConfig,
    out: Path,
    data: Dataset | None = None,
    released: Released | None = None,
    *,
    lanes: int | None = None,
) -> Job:
    """A job of this process; data that workers can load by their name or from their file are not sent to them."""
    is_at_hand = data is not None and (is_named(config.data) or bool(data.provenance.files))
    return Job(
        config=config,
        out=Path(out).absolute(),
        data=None if is_at_hand else data,
        released=released,
        lanes=lanes,
        cwd=Path.cwd(),
        caller=(machine(), os.getpid()),
        versions=versions(),
    )


def versions() -> tuple[str, str]:
    """Versions of drjax and JAX, which results depend on."""
    return drjax.__version__, jax.__version__


@contextlib.contextmanager
def workers(
    job: Job, executor: str | Executor, n_workers: int | None = None, *, progress: bool = False
) -> Generator[Elsewhere]:
    """Workers for an audit, until the block ends.

    Args:
        job: The audit.
        executor: Where they are, see `drjax.core.executors`.
        n_workers: Number of workers to ask for; as the executor says if None.
        progress: Whether to show how many pieces are done.

    Yields:
        A function that has pieces done, and returns when all of them are.

    Raises:
        ValueError: an executor that does not exist or is not installed, or a worker of another version.
    """
    with executors.opened(executor, n_workers) as pool:

        def elsewhere(pieces: Sequence[Piece]) -> None:
            tasks = [(job, piece) for piece in pieces]
            with shown("pieces of the audit", len(tasks), enabled=progress) as advance:
                for _ in executors.run(work, tasks, executor=pool):
                    advance(1)

        yield elsewhere


@dataclass
class Opened:
    """An audit that this thread works on: what a piece has loaded, prepared and compiled serves the next.

    Attributes:
        job: What it is.
        setting: Setting, prepared.
        session: Session in its folder.
    """

    job: Job
    setting: Setting
    session: Session
    _attacks: Mapping[str, Attack] | None = None

    def attacked(self) -> Mapping[str, Attack]:
        """The attacks; the releases are read back, or made."""
        if self._attacks is None:
            self.setting.release(self.session)
            self._attacks = self.setting.attacks(self.session)
        return self._attacks


_last = threading.local()


def work(job: Job, piece: Piece) -> None:
    """Does one piece.

    Raises:
        ValueError: this process runs other versions, or the folder is of another configuration.
        OSError: the folder is not there, or cannot be written.
    """
    found = opened(job)
    if not piece.is_attack:
        found.setting.make(found.session, piece)
        return
    attack = found.attacked()[piece.name]
    for part in piece.parts:
        found.setting.attempt_part(found.session, piece.name, attack, part)


def opened(job: Job) -> Opened:
    """A job whose data are loaded; the last one of this thread if it is the same. Its folder is made if missing.

    Raises:
        ValueError, OSError: as of `work`.
    """
    last: Opened | None = getattr(_last, "opened", None)
    if last is None or (last.job.config, last.job.out) != (job.config, job.out):
        close()
        if versions() != job.versions:
            raise ValueError(
                f"workers must run drjax {job.versions[0]} and jax {job.versions[1]} as the caller does, got drjax "
                f"{versions()[0]} and jax {versions()[1]} on {platform.node() or 'a worker'}"
            )
        if job.caller != (machine(), os.getpid()):
            programs.keep_programs()
        setting = setting_of(job.config, job.data, job.released)
        setting.lanes = job.lanes
        with contextlib.chdir(job.cwd if job.cwd.is_dir() else Path.cwd()):
            setting.prepare(progress=False)
        folder = RunFolder(job.out, job.config, resume=job.out.exists())
        last = _last.opened = Opened(job, setting, Session(folder, False, lambda *_: None))
    return last


def close() -> None:
    """Forgets the last job of this thread, and all that it holds."""
    _last.opened = None
