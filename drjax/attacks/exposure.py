"""How exposed each record is: one number per record, where `metrics` has one per attack."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from drjax.attacks import metrics
from drjax.core import validate
from drjax.core.types import Array, is_usable


class Exposure(NamedTuple):
    """What one attack did to each of m records; every field is (m,).

    Attributes:
        row: The record's row in the data.
        error: Mean squared error of its reconstruction; nan where the attack failed.
        nearest_error: Error of the most similar other record.
        mean_error: Error of the mean of all other records, which needs no release.
        ratio: error / min(nearest_error, mean_error): below 1 the release gave away more than looking up a similar
            record and more than guessing the mean would. For a record that has a twin it is infinite, or nan for an
            exact reconstruction.
        is_rebuilt: Whether the record is rebuilt, as in `metrics.is_rebuilt`: closer than the most similar other
            record, with less than half of the mean's error.
        is_identified: The record is nearer to its reconstruction than any other record, but for its twins.
        rank: Place, 1 for the most exposed: by least ratio, then by least error; those without either come last.
    """

    row: np.ndarray
    error: np.ndarray
    nearest_error: np.ndarray
    mean_error: np.ndarray
    ratio: np.ndarray
    is_rebuilt: np.ndarray
    is_identified: np.ndarray
    rank: np.ndarray


def measure(reconstructions: Array, records: Array, rows: Array, status: Array) -> Exposure:
    """The exposure of some records of a data set, each among all others; 4 m n d FLOP.

    Args:
        reconstructions: (m, d); rows may hold nan.
        records: (n, d), all records, n >= 2.
        rows: (m,), which of them were reconstructed.
        status: (m,) uint32 flags of the reconstructions.

    Raises:
        ValueError: shapes that do not match, or records that are not finite.
    """
    records = validate.matrix(records, "records", min_rows=2).astype(np.float64)
    rows = np.asarray(rows)
    truth = records[rows]
    error = metrics.mean_squared_errors(reconstructions, truth)
    if np.shape(status) != rows.shape:
        raise ValueError(f"status must have shape {rows.shape}, one entry per record, got {np.shape(status)}")
    error = np.where(is_usable(status), error, np.nan)
    nearest_error = _nearest_other(records, rows) / records.shape[1]
    mean_error = metrics.mean_squared_errors(means_of_others(records, rows), truth)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = error / np.minimum(nearest_error, mean_error)
    usable = np.isfinite(error)
    is_identified = np.zeros(len(rows), bool)
    if usable.any():
        own = error[usable] * records.shape[1]
        found, least = metrics.nearest(np.asarray(reconstructions)[usable], records)
        # The nearest one may be the record itself, or as near as a twin is.
        is_identified[usable] = (found == rows[usable]) | (own <= least)
    order = np.lexsort((error, np.where(np.isnan(ratio), np.inf, ratio)))
    rank = np.empty(len(rows), np.int64)
    rank[order] = np.arange(1, len(rows) + 1)
    rebuilt = metrics.is_rebuilt(error, mean_error, nearest_error)
    return Exposure(rows, error, nearest_error, mean_error, ratio, rebuilt, is_identified, rank)


def means_of_others(records: Array, rows: Array) -> np.ndarray:
    """(m, d) means of all records but the one of each of `rows`."""
    records = np.asarray(records, np.float64)
    return (records.sum(axis=0) - records[np.asarray(rows)]) / (len(records) - 1)


def nearest_others(records: Array, rows: Array) -> np.ndarray:
    """(m,) rows of the other records that are most similar to those of `rows`; 2 m n d FLOP."""
    return _search(np.asarray(records, np.float64), np.asarray(rows))


def _nearest_other(records: np.ndarray, rows: np.ndarray) -> np.ndarray:
    found = _search(records, rows)
    return np.sum((records[rows] - records[found]) ** 2, axis=1)


def _search(records: np.ndarray, rows: np.ndarray) -> np.ndarray:
    centred = records - records.mean(axis=0)
    norms = np.einsum("ij,ij->i", centred, centred)
    found = np.empty(len(rows), np.int64)
    step = max(1, metrics.CHUNK_ENTRIES // len(records))
    for start in range(0, len(rows), step):
        some = rows[start : start + step]
        squared = norms - 2 * centred[some] @ centred.T
        squared[np.arange(len(some)), some] = np.inf
        found[start : start + step] = squared.argmin(axis=1)
    return found
