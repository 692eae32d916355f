"""Data sets as records in [0, 1] with their provenance, splits of them from one key, and scalers."""

from drjax.data.catalog import SOURCES, Source
from drjax.data.dataset import Dataset, Provenance, count_duplicates
from drjax.data.downloads import cache_dir, fetch
from drjax.data.files import Values, load_file, load_values, read_values
from drjax.data.own_units import in_own_units, records_of
from drjax.data.preprocess import MinMaxScaler, StandardScaler
from drjax.data.sources import Summary, available, describe, load
from drjax.data.splits import Splits, split

__all__ = [
    "SOURCES",
    "Dataset",
    "MinMaxScaler",
    "Provenance",
    "Source",
    "Splits",
    "StandardScaler",
    "Summary",
    "Values",
    "available",
    "cache_dir",
    "count_duplicates",
    "describe",
    "fetch",
    "in_own_units",
    "load",
    "load_file",
    "load_values",
    "read_values",
    "records_of",
    "split",
]
