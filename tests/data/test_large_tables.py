import dataclasses

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from drjax.core import streamed
from drjax.data import kinds, large_tables, load, typed_numbers
from drjax.data.plan import planned

RNG = np.random.default_rng(0)
N = 120


def table():
    """Columns of numbers of all kinds that there are, among them ones that are called like others."""
    whole = RNG.integers(0, 2, N)
    fractions = RNG.normal(size=(4, N))
    fractions[1, 7] = np.nan
    fractions[2, :3] = -999.0
    return pa.table(
        {
            "patient": np.arange(1, N + 1),
            "birth": fractions[0],
            "size": fractions[1].astype(np.float32),
            "level": fractions[2] * 100 - 999 * (np.arange(N) < 3),
            "yes": whole,
            "stage": RNG.integers(1, 6, N),
            "age": pa.array([None if i % 11 == 0 else int(v) for i, v in enumerate(RNG.integers(20, 90, N))]),
            "constant": np.full(N, 2.5),
            "few": RNG.integers(0, 9, N) / 2,
            "infinite": np.where(np.arange(N) == 5, np.inf, fractions[3]),
        }
    )


@pytest.mark.parametrize("options", [{}, {"label": "stage", "drop": ("few",)}, {"schema": {"birth": "number"}}])
def test_a_large_file_is_the_data_set_that_it_is_as_a_whole(tmp_path, monkeypatch, options):
    pyarrow.parquet.write_table(table(), tmp_path / "a.parquet", row_group_size=33)
    whole = load(tmp_path / "a.parquet", **options)
    monkeypatch.setattr(large_tables, "LEAST_BYTES", 100)
    monkeypatch.setattr(streamed, "BLOCK_ENTRIES", 200)
    large = load(tmp_path / "a.parquet", **options)
    assert isinstance(large.x.base, np.memmap)
    assert isinstance(large.values.base, np.memmap)
    for field in dataclasses.fields(whole):
        one, other = getattr(whole, field.name), getattr(large, field.name)
        if isinstance(one, np.ndarray):
            np.testing.assert_array_equal(one, other)
            assert one.dtype == other.dtype
        elif field.name != "rows":
            assert one == other
    assert large.rows.ids == whole.rows.ids
    np.testing.assert_array_equal(large.rows.lines, whole.rows.lines)


def test_cells_that_were_missing_are_told_in_a_large_file_too(tmp_path, monkeypatch):
    pyarrow.parquet.write_table(table(), tmp_path / "a.parquet", row_group_size=33)
    monkeypatch.setattr(large_tables, "LEAST_BYTES", 100)
    monkeypatch.setattr(streamed, "BLOCK_ENTRIES", 200)
    columns = large_tables.sheet_of(tmp_path / "a.parquet").columns
    plan = planned(columns)
    large, whole = large_tables.encode(plan, columns), plan.encode(columns)
    assert not whole.is_known.all()
    for one, other in zip(large, whole, strict=True):
        np.testing.assert_array_equal(one, other)


def test_text_small_and_damaged_files_are_read_as_before(tmp_path, monkeypatch):
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(table(), path)
    assert large_tables.sheet_of(path) is None
    monkeypatch.setattr(large_tables, "LEAST_BYTES", 100)
    assert large_tables.sheet_of(path) is not None
    pyarrow.parquet.write_table(table().append_column("name", pa.array(["a"] * N)), path)
    assert large_tables.sheet_of(path) is None
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(ValueError, match="not a readable Parquet file"):
        load(path)


def test_numbers_by_type_are_what_their_texts_say():
    found = {}
    for name, cells in zip(table().column_names, table().columns, strict=True):
        plan, fast = kinds.column_of(name, cells, {}), typed_numbers.column_of(name, cells)
        found[name] = fast is not None
        assert fast in (None, plan)
        if (values := typed_numbers.values_of(plan, cells)) is not None:
            np.testing.assert_array_equal(values, kinds.numbers_of(plan, cells).values)
    assert {name for name, is_fast in found.items() if is_fast} == {"birth", "level"}
