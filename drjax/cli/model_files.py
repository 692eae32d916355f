"""Records and their classes in the files of `drjax attack model`: arrays, or tables by their plan."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from drjax.core import validate
from drjax.data import own_table, table_cells
from drjax.data.own_units import labelled_records_of
from drjax.data.plan import MOST_NAMED
from drjax.data.sheets import SUFFIXES, read_sheet
from drjax.nets.classifier_training import check_labels
from drjax.reports import records

Labelled = tuple[np.ndarray, np.ndarray]
"""x (n, d) and classes (n,)."""


def labelled_records(
    known: Path, public: Path | None, label: str | None, n_classes: int, schema: Path | None
) -> tuple[Labelled, Labelled | None]:
    """Records and classes of the known and the public file, unscaled; prints what a plan made of tables.

    Args:
        known: NPZ file with x and y, or a table.
        public: Another such file; None if there is none.
        label: Column of the classes in tables.
        n_classes: Number of classes.
        schema: File that says what the columns of tables are; told by their cells if None.

    Raises:
        FileNotFoundError: a file that is not there.
        ValueError: what is wrong with one, a label that is no column or not known of all, or classes out of range.
    """
    paths = [path for path in (known, public) if path is not None]
    for path in paths:
        if not path.is_file():
            raise FileNotFoundError(f"there is no file {path}: check the path")
        if path.suffix.lower() not in (".npz", *SUFFIXES):
            raise ValueError(
                f"{path} must end in .npz, or in {', '.join(SUFFIXES)} with --label, got {path.suffix.lower()!r}"
            )
    tables = [path for path in paths if path.suffix.lower() != ".npz"]
    if schema is not None and not tables:
        raise ValueError(f"schema applies to tables ({', '.join(SUFFIXES)}), and {known} is none: leave it out")
    found = dict(zip(tables, _of_tables(tables, label, schema) if tables else (), strict=True))
    found |= {path: _of_arrays(path) for path in paths if path not in found}
    checked = []
    for path in paths:
        x, y = found[path]
        x = validate.matrix(x, f"x of {path}", min_rows=2)
        checked.append((x, check_labels(y, len(x), n_classes, f"y of {path}")))
    return checked[0], checked[1] if len(checked) > 1 else None


def _of_arrays(path: Path) -> Labelled:
    arrays = records.load_arrays(path)
    if not {"x", "y"} <= arrays.keys() or arrays["x"].ndim < 2:
        held = ", ".join(f"{name} {array.shape}" for name, array in arrays.items()) or "nothing"
        raise ValueError(f"{path} must hold the records as x (n, d) and their classes as y (n,), got {held}")
    return arrays["x"].reshape(len(arrays["x"]), -1), arrays["y"]


def _of_tables(paths: Sequence[Path], label: str | None, schema: Path | None) -> list[Labelled]:
    for path in paths:
        names = tuple(read_sheet(path).columns)
        if label is None or label not in names:
            raise ValueError(
                f"label must name the column of the classes in {path}, one of {', '.join(names[:20])}; got {label}"
            )
    assert label is not None
    found = labelled_records_of(*paths, schema=schema, label=label)
    labels = [column for column in found.labels if column is not None]
    for path, column in zip(paths, labels, strict=True):
        own_table.check_labels_known(read_sheet(path), label, column)
    texts = np.concatenate([table_cells.cell_texts(column) for column in labels])
    if found.plan is not None:
        names = found.values[0].names
        shown = ", ".join(names[:MOST_NAMED]) + (f" and {len(names) - MOST_NAMED:,} more" if names[MOST_NAMED:] else "")
        print(found.plan.in_words(paths[0]))
        print(
            "Numbers are as they stand in the file: the network must have been trained on these, in the same scaling."
        )
        print(f"Features in their order: {shown}.")
    if all(table_cells.is_numeric_column(column) for column in labels):
        classes = table_cells.number_column(label, pa.chunked_array([pa.array(texts, pa.string())]))
    else:
        named, classes = np.unique(texts, return_inverse=True)
        print(f"Classes: {', '.join(f'{i} is {str(name)!r}' for i, name in enumerate(named[:MOST_NAMED]))}.")
    parts = np.split(classes, np.cumsum([len(column) for column in labels])[:-1])
    return [(values.x, y) for values, y in zip(found.values, parts, strict=True)]
