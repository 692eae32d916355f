"""The paper's three tasks: records with public bounds, and which of them are stand-ins.

GFE, Adult and MNIST come from drjax's loader. Of the paper's other two sets the files are read if you have them, below
the data folder (`DRJAX_DATA` or `--data-dir`), as the UCI repository packs them:

    realdisp/subject*_*.log       data set 305: two columns of time, 117 of nine sensors, the activity
    twitter_buzz/Twitter.data     data set 248, the regression part: 77 features and the target

Otherwise a synthetic stand-in of the same size, shape and task takes their place, and its name says so.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from pathlib import Path

import numpy as np

from drjax.core import validate
from drjax.data import load

NAMES = ("gfe", "adult", "mnist", "realdisp", "twitter", "digits")
DISPLACING = (1, 2, 3, 33)
"""Activities of Realdisp that the paper names as displacing the body: walking, jogging, running, cycling."""


@dataclasses.dataclass(frozen=True, eq=False)
class Task:
    """Records of a task, split once and for all trials.

    Attributes:
        name: Of the data set; "..., stand-in" where it is one.
        kind: A name in `drjax.synthesis.contract.TASKS`.
        x: (n, m) float32 private records.
        y: (n,) int32 classes, float32 targets, or None.
        x_test: Records that nothing is fitted on; empty for clustering.
        y_test: Their targets, or None.
        x_public: Records of the same kind that are public, as the paper's 600 and 4,715.
        y_public: Their targets, or None.
        lower: (m,) public bounds of features.
        upper: (m,).
        y_bounds: Public bounds of numeric targets.
    """

    name: str
    kind: str
    x: np.ndarray
    y: np.ndarray | None
    x_test: np.ndarray
    y_test: np.ndarray | None
    x_public: np.ndarray
    y_public: np.ndarray | None
    lower: np.ndarray
    upper: np.ndarray
    y_bounds: tuple[float, float] = (0.0, 1.0)

    @property
    def is_stand_in(self) -> bool:
        """Whether the records are not the paper's."""
        return self.name.endswith("stand-in")


@functools.cache
def task(
    name: str,
    *,
    n_private: int | None = None,
    n_test: int | None = None,
    data_dir: str | None = None,
    seed: int = 0,
) -> Task:
    """A task by name: clustering on GFE and digits, regression on Twitter, classification on the others.

    Bounds of GFE, Adult, MNIST and digits are those of the loader: pixels and one-hot columns have them by definition,
    the rest are the columns' ranges, which this experiment takes for public. Those of the other two are the 0.1% and
    99.9% quantiles of the public records, the targets of Twitter with a logarithm (see `_twitter`).

    Args:
        name: In `NAMES`.
        n_private: Fewer private records, the first of a random order.
        n_test: Fewer test records, the first; those of Adult and MNIST in the order of their files.
        data_dir: Where files are looked for, beside `DRJAX_DATA`.
        seed: Of the order.

    Raises:
        ValueError: an unknown name, more private records than there are, or files of another form.
        OSError: files of a set that has no stand-in are missing.
    """
    validate.one_of(NAMES, name=name)
    rng = np.random.default_rng([seed, NAMES.index(name)])
    if name == "realdisp":
        shown, kind, x, y, counts = _realdisp(rng, data_dir, n_private)
    elif name == "twitter":
        shown, kind, x, y, counts = _twitter(rng, data_dir, n_private)
    else:
        found = load(name, data_dir=data_dir)
        shown, x, y = name, found.x.reshape(len(found.x), -1), found.y
        kind = "unsupervised" if name in ("gfe", "digits") else "classification"
        counts = {"gfe": (0, 600), "digits": (0, 200), "adult": (16_281, 600), "mnist": (10_000, 600)}[name]
        # The last records of Adult and MNIST are their test sets.
        order = np.concatenate([rng.permutation(len(x) - counts[0]), np.arange(len(x) - counts[0], len(x))])
        x, y = x[order], None if kind == "unsupervised" or y is None else y[order].astype(np.int32)
    n_held, n_public = counts
    n = len(x) - n_held - n_public
    if n < 2:
        raise ValueError(f"{name} must hold more than {n_held + n_public + 1} records, got {len(x)}")
    if n_private is not None:
        validate.integer(minimum=2, n_private=n_private)
        validate.at_most(n, "the private records", n_private=n_private)
    shown_test = slice(n + n_public, n + n_public + min(n_test if n_test is not None else n_held, n_held))
    rows = {"public": slice(n, n + n_public), "test": shown_test, "private": slice(0, n_private or n)}
    part = {use: (x[own], None if y is None else y[own]) for use, own in rows.items()}
    lower, upper = np.zeros(x.shape[1]), np.ones(x.shape[1])
    if name in ("realdisp", "twitter"):
        lower, upper = np.quantile(part["public"][0].astype(np.float64), [0.001, 0.999], axis=0)
        # A column that never changes among the public records has bounds all the same.
        upper = np.where(upper > lower, upper, lower + 1)
    return Task(
        name=shown,
        kind=kind,
        x=part["private"][0],
        y=part["private"][1],
        x_test=part["test"][0],
        y_test=part["test"][1],
        x_public=part["public"][0],
        y_public=part["public"][1],
        lower=lower,
        upper=upper,
    )


def _folder(name: str, data_dir: str | None) -> Path | None:
    roots = [data_dir, os.environ.get("DRJAX_DATA")]
    return next((Path(root) / name for root in roots if root and (Path(root) / name).is_dir()), None)


def _realdisp(rng: np.random.Generator, data_dir: str | None, n_private: int | None):
    """117 features of motion sensors; whether the activity displaces the body. 1,290 test and 600 public records."""
    folder, counts = _folder("realdisp", data_dir), (1290, 600)
    if folder is None:
        x, y = realdisp_stand_in(rng, _wanted(n_private, 216_752) + sum(counts))
        return "realdisp, stand-in", "classification", x, y, counts
    parts = []
    for file in sorted(folder.glob("subject*.log")):
        rows = np.loadtxt(file, dtype=np.float32)
        if rows.ndim != 2 or rows.shape[1] != 120:
            raise ValueError(f"{file} must have 120 columns, got shape {rows.shape}")
        # Activity 0 is what happens between exercises.
        parts.append(rows[rows[:, -1] > 0])
    if not parts:
        raise ValueError(f"{folder} must hold subject*.log files, got none")
    table = rng.permutation(np.concatenate(parts))
    y = np.isin(table[:, -1].astype(int), DISPLACING).astype(np.int32)
    return "realdisp", "classification", np.ascontiguousarray(table[:, 2:119]), y, counts


def _wanted(n_private: int | None, most: int) -> int:
    """Private records of a stand-in: no more than the paper has."""
    return most if n_private is None else min(n_private, most)


def _twitter(rng: np.random.Generator, data_dir: str | None, n_private: int | None):
    """77 features of a topic, log(1 + v) of each; targets log(1 + discussions) over log(1 + 30,000), cut to [0, 1].

    Activity on a network has tails that no linear scale bounds usefully. 4,715 test and 4,715 public records.
    """
    folder, counts = _folder("twitter_buzz", data_dir), (4715, 4715)
    if folder is None:
        x, y = twitter_stand_in(rng, _wanted(n_private, 573_820) + sum(counts))
        shown = "twitter, stand-in"
    else:
        rows = np.loadtxt(folder / "Twitter.data", delimiter=",", dtype=np.float64)
        if rows.ndim != 2 or rows.shape[1] != 78:
            raise ValueError(f"{folder / 'Twitter.data'} must have 78 columns, got shape {rows.shape}")
        rows = rng.permutation(rows)
        shown, x, y = "twitter", rows[:, :77], rows[:, 77]
    features = np.log1p(np.maximum(x, 0)).astype(np.float32)
    target = np.clip(np.log1p(np.maximum(y, 0)) / np.log1p(30_000), 0, 1).astype(np.float32)
    return shown, "regression", features, target, counts


def realdisp_stand_in(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Records (n, 117) float32 and classes (n,) of nine sensors of 13 channels each during 33 activities.

    Every activity has a mean posture, and moves along twenty directions that all sensors share; activities that
    displace the body move with more energy, and about another point. Nothing in it comes from Realdisp but its sizes.
    """
    activities, rank, d = 33, 20, 117
    displaces = np.isin(np.arange(1, activities + 1), DISPLACING)
    spread = np.geomspace(2.0, 0.4, rank)
    directions = rng.normal(size=(rank, d)) / np.sqrt(rank)
    posture = 0.5 * rng.normal(size=(activities, rank)) + 0.6 * displaces[:, None] * rng.normal(size=rank)
    energy, share = np.where(displaces, 1.5, 0.8), np.where(displaces, 5.0, 1.0)
    which = rng.choice(activities, size=n, p=share / share.sum())
    moves = (posture[which] + energy[which, None] * rng.normal(size=(n, rank))) * spread
    x = moves @ directions + 0.3 * rng.normal(size=(n, d))
    return x.astype(np.float32), displaces[which].astype(np.int32)


def twitter_stand_in(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Counts (n, 77) of eleven indicators on seven days, and the mean number of discussions after them.

    A topic has a heavy-tailed size that drifts from day to day, and every indicator follows it with its own exponent
    and noise. Nothing in it comes from the Twitter set but its sizes and the kind of its tails.
    """
    days, indicators = 7, 11
    # What the law is comes before the records, so that it does not depend on how many there are.
    exponent, offset = rng.uniform(0.3, 1.1, size=indicators), rng.normal(scale=0.5, size=indicators)
    size = rng.normal(loc=3.0, scale=1.8, size=n)
    drift = np.cumsum(rng.normal(scale=0.35, size=(n, days + 1)), axis=1)
    level = size[:, None] + drift
    noise = rng.normal(scale=0.4, size=(n, indicators, days))
    x = np.expm1(np.maximum(exponent[:, None] * level[:, None, :days] + offset[:, None] + noise, 0))
    y = np.expm1(np.maximum(level[:, -1] + rng.normal(scale=0.3, size=n), 0))
    return x.reshape(n, -1), y
