"""Pictures and properties: which records have the property whose share a plot gives away, and who holds which.

A tenth of the persons is public and serves extractors alone; the rest is halved between adversary and victim. All
pictures are grey and 32 x 32, so that one extractor sees all data sets, as the paper's does.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np

from drjax.attacks.property import groups
from drjax.core import validate
from drjax.core.types import Array
from drjax.data import Dataset, describe, load, load_file

SIDE = 32
"""Pixels of a picture's side; smaller ones are enlarged, bilinearly."""

PUBLIC_SHARE = 0.1
DIGIT = 3
LFW_ATTRIBUTES = {"smiling": "Smiling", "big_nose": "Big_Nose"}
PROPERTIES = (
    "utkface:male",
    "utkface:white",
    "lfw:male",
    "lfw:big_nose",
    "lfw:smiling",
    f"mnist:{DIGIT}",
    "digits:even",
)
"""What is at hand; digits need no files."""

USER_PROPERTIES = ("celeba:male", "celeba:big_nose", "celeba:smiling", "celeba:oval_face", "fairface:male")
"""The paper's others: read from the user's files, see `user_file`."""

USER_FOLDER = "tsne_property"
MNIST_EACH = 3000
"""Records of MNIST with the digit, and as many others: the first of a random order."""


@dataclass(frozen=True, eq=False)
class Case:
    """Records and one property of them.

    Attributes:
        name: "data set:property".
        images: (N, 32, 32) float32 in [0, 1].
        has_property: (N,) bool.
        task: (N,) integers, a class that is not the property, for fine-tuning and colours; -1 where unknown.
        task_name: What it is.
        persons: (N,) integers or None; one person is on one side.
    """

    name: str
    images: np.ndarray
    has_property: np.ndarray
    task: np.ndarray
    task_name: str
    persons: np.ndarray | None


@functools.cache
def case(name: str) -> Case:
    """The records of a property.

    Raises:
        ValueError: a property that there is not, or a user's file of another form.
        FileNotFoundError: the files are not there.
    """
    validate.one_of((*PROPERTIES, *USER_PROPERTIES), name=name)
    source, _, what = name.partition(":")
    if name in USER_PROPERTIES:
        return _user_case(name)
    if source == "utkface":
        data, facts = load("utkface"), _columns("utkface")
        flags = facts["gender"] == 0 if what == "male" else facts["race"] == 0
        task, task_name = np.digitize(facts["age"], (15, 25, 35, 55)), "age group"
        return _case(name, data, flags, task, task_name, np.ones(len(flags), bool))
    if source == "lfw":
        data, facts = load("lfw:all"), _columns("lfw:all")
        smiles = _attribute(facts, "Smiling")
        column = facts["male"] if what == "male" else _attribute(facts, LFW_ATTRIBUTES[what])
        task = np.where(facts["male"] >= 0, facts["male"], -1) if what == "smiling" else smiles
        task_name = "male" if what == "smiling" else "smiling"
        return _case(name, data, column == 1, task, task_name, column >= 0)
    data = load("mnist" if source == "mnist" else "digits")
    assert data.y is not None
    flags = data.y == DIGIT if source == "mnist" else data.y % 2 == 0
    kept = np.ones(len(flags), bool)
    if source == "mnist":
        order = np.random.default_rng(0).permutation(len(flags))
        kept[:] = False
        for side in (order[flags[order]], order[~flags[order]]):
            kept[side[:MNIST_EACH]] = True
    return _case(name, data, flags, data.y // 2, "pair of digits", kept)


def user_file(name: str) -> Path:
    """Where the pictures of the paper's other data sets are looked for.

    An npz file with `x`, pictures (N, h, w) or (N, h, w, 3) in uint8, and `y`, 1 where the property holds and 0 where
    not: `$DRJAX_DATA/tsne_property/celeba_male.npz` for celeba:male.
    """
    return Path(os.environ.get("DRJAX_DATA", ".")) / USER_FOLDER / f"{name.replace(':', '_')}.npz"


def _user_case(name: str) -> Case:
    path = user_file(name)
    if not path.is_file():
        raise FileNotFoundError(f"{name} needs the user's file {path}: an npz file with pictures x and labels y")
    data = load_file(path)
    if data.y is None or set(np.unique(data.y)) != {0, 1} or len(data.shape) not in (2, 3):
        raise ValueError(f"{path} must hold pictures x and labels y of 0 and 1, got shape {data.shape}")
    flags = data.y == 1
    return _case(name, data, flags, flags.astype(int), "the property", np.ones(len(flags), bool))


def _case(name: str, data: Dataset, flags: np.ndarray, task: np.ndarray, task_name: str, kept: np.ndarray) -> Case:
    persons = None if data.groups is None else data.groups[kept]
    images = grey(data.x[kept].reshape(-1, *data.shape))
    return Case(name, images, flags[kept], task[kept].astype(np.int64), task_name, persons)


def grey(images: np.ndarray) -> np.ndarray:
    """Pictures (n, h, w) or (n, h, w, 3) in [0, 1] as (n, 32, 32) float32."""
    if images.ndim == 4:
        images = images @ np.array([0.299, 0.587, 0.114], np.float32)
    if images.shape[1:] != (SIDE, SIDE):
        images = np.asarray(jax.image.resize(images, (len(images), SIDE, SIDE), "bilinear"))
    return np.clip(images, 0, 1).astype(np.float32)


def _columns(name: str) -> dict[str, np.ndarray]:
    """What the named set's file says beside the pictures; `load` has verified the file."""
    (path,) = describe(name).files.values()
    if path is None:
        raise FileNotFoundError(f"{name} is not there: `drjax data list` says where it is looked for")
    with np.load(path, allow_pickle=False) as arrays:
        return {column: arrays[column] for column in arrays.files if column != "images"}


def _attribute(facts: dict[str, np.ndarray], attribute: str) -> np.ndarray:
    """(N,) 1, 0 or -1 where nothing is known."""
    return facts["attributes"][:, facts["attribute_names"].tolist().index(attribute)]


@dataclass(frozen=True, eq=False)
class Sides:
    """Rows of a case, each sorted, without overlap in records or persons."""

    public: np.ndarray
    shadow: np.ndarray
    target: np.ndarray


def sides(given: Case, key: Array) -> Sides:
    """The public rows, the same for every key, and the halves of the rest that the key draws, alike in the property."""
    ids = np.arange(len(given.images)) if given.persons is None else given.persons
    distinct = np.unique(ids)
    chosen = np.random.default_rng(0).permutation(distinct)[: int(PUBLIC_SHARE * len(distinct))]
    is_public = np.isin(ids, chosen)
    rest = np.flatnonzero(~is_public)
    # `halves` reads persons and the number of records alone.
    x = np.zeros((len(rest), 1), np.float32)
    bare = dataclasses.replace(load("digits"), x=x, y=None, groups=None if given.persons is None else ids[rest])
    shadow, target = groups.halves(key, bare, given.has_property[rest])
    return Sides(np.flatnonzero(is_public), rest[shadow], rest[target])
