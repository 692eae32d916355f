"""Every published byte but noised values and draws is the same for neighbouring tables, whatever the one record holds.

Pairs of tables that differ in one record are released with the noise stubbed: what is noised is replaced by numbers
that depend on nothing, so that whatever else depends on the records shows as a difference of bytes, or as a refusal.
What would have been noised is held against the sensitivity that the guarantee rests on.
"""

import csv
import itertools
import json
import os
from decimal import Decimal

import jax
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from drjax.attacks import roc
from drjax.data import table_cells
from drjax.data.schema import Schema
from drjax.defenses import dp_pca, dp_pca_laplace, dp_pca_sensitivity, mechanisms
from drjax.releases import PCAReleaseConfig, manifest, private_report, release_pca, writing
from drjax.releases.synthetic import SyntheticReleaseConfig, release_synthetic
from drjax.synthesis import exact_moments, gaussian_model, projected, sensitivity

N = 12
PAIRS = 112
"""Neighbours of every setting below."""

NUMBERS = ("37", "37.0", "37.5", "37.123456789", " 37 ", "1e400", "-1e308", "12345678901234567890", "", "NA", "nan")
NUMBERS = (*NUMBERS, "text", "1_000", "$5", "0x1f", "-0", "inf", "1e-320")
TEXTS = ("part", "unseen", "", " full ", "a,b", 'say "x"', "two\nlines", "ünï©ödé", "1", "1.0", "01", "true", "nan")
TEXTS = (*TEXTS, "x" * 300)
CODES = ("0", "1", "1.0", "0.5", "7", "", "yes", "01")
ODD = {"age": NUMBERS, "pay": NUMBERS, "work": TEXTS, "flag": CODES, "rich": ("yes", "no", "maybe", "", "1")}
BOUNDS = {"age": [0, 120], "pay": {"lower": 0, "upper": 10, "decimals": 1}, "work": ["no", "part", "full"],
          "flag": {"categories": ["0", "1"]}, "rich": ["no", "yes"]}  # fmt: skip
VALUES = {
    "age": (37, 37.5, None, 1e308, -5, float("nan"), float("inf"), "text", True),
    "pay": (5.0, 5, None, 1e-320, 2**62, "5.5", Decimal("2.50")),
    "work": ("part", "unseen", None, "", 7, 7.0, True, b"full"),
    "flag": (1, 1.0, True, None, "1", 0.5, 9, Decimal("1.00")),
    "rich": ("yes", "maybe", None, True, 3),
}


def usual(rng, n):
    """Records as text."""
    age, pay = rng.integers(18, 80, n), rng.uniform(0, 10, n).round(1)
    work, flag, rich = (rng.choice(options, n) for options in (["no", "part", "full"], [0, 1], ["no", "yes"]))
    return [[str(cell) for cell in row] for row in zip(age, pay, work, flag, rich, strict=True)]


def as_csv(path, rows, names=tuple(BOUNDS)):
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([list(names), *rows])


def as_npy(path, rows, _):
    np.save(path, np.array([[np.nan if cell is None else float(cell) for cell in row] for row in rows]))


def as_parquet(path, rows, names=tuple(BOUNDS)):
    """Every column in the narrowest type that holds its cells, as data frames are written: one cell changes it."""
    columns = {}
    for name, cells in zip(names, zip(*rows, strict=True), strict=True):
        kinds = {type(cell) for cell in cells if cell is not None}
        if kinds <= {int}:
            columns[name] = pa.array(cells, pa.int64())
        elif kinds <= {int, float}:
            columns[name] = pa.array([None if cell is None else float(cell) for cell in cells], pa.float64())
        elif kinds <= {int, float, Decimal}:
            columns[name] = pa.array(
                [None if cell is None else Decimal(str(cell)) for cell in cells], pa.decimal128(30, 9)
            )
        elif kinds == {bool}:
            columns[name] = pa.array(cells, pa.bool_())
        else:
            columns[name] = pa.array(
                [None if c is None else c.decode() if isinstance(c, bytes) else str(c) for c in cells]
            )
    pyarrow.parquet.write_table(pa.table(columns), path)


def typed(rows):
    """Records as numbers and text."""
    return [[int(age), float(pay), work, int(flag), rich] for age, pay, work, flag, rich in rows]


def neighbours(rng, rows, odd, n, another):
    """Tables with one record replaced by one of odd cells: first every odd cell alone, then several at once."""
    alone = [(name, cell) for name in odd for cell in odd[name]]
    for i in range(n):
        row = list(another(rng, 1)[0])
        for j, name in enumerate(odd):
            if i < len(alone):
                if alone[i][0] == name:
                    row[j] = alone[i][1]
            elif rng.random() < 0.6:
                row[j] = odd[name][rng.integers(len(odd[name]))]
        at = int(rng.integers(len(rows)))
        yield [*rows[:at], row, *rows[at + 1 :]]


def relation_of_pairs(plan):
    """Tables have no record that counts for nothing: pairs for zero_out are two steps of it apart, a replacement."""
    return "replace_one" if plan.neighbouring == "zero_out" else plan.neighbouring


def shortened(rows, bound):
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows * np.minimum(1, bound / np.where(norms > 0, norms, 1))


class StubbedNoise:
    """Stands for what is noised: keeps the sum that noise would be added to, and returns numbers of no record."""

    def __init__(self, monkeypatch):
        self.kept = []
        monkeypatch.setattr(exact_moments, "released_sum", self.released_sum)
        monkeypatch.setattr(exact_moments, "released_moments", self.released_moments)
        key = jax.random.key(0)
        monkeypatch.setattr(writing, "os_key", lambda: key)
        monkeypatch.setattr(gaussian_model, "os_key", lambda: key)
        # Which coins part the records is a public draw.
        monkeypatch.setattr(exact_moments, "fair_part", lambda n, _: np.arange(n) % 3 == 0)

    def released_sum(self, rows, bound, plan, step):
        limit = sensitivity.sum_l2(neighbouring=relation_of_pairs(plan)) * bound
        self.kept.append((step, shortened(rows, bound).sum(axis=0), limit))
        return np.linspace(0.1, 0.3, rows.shape[1]) * N, 0.01

    def released_moments(self, groups, bound, plan, step):
        q = groups[0].shape[1]
        limit = sensitivity.moment_l2(neighbouring=relation_of_pairs(plan)) * bound**2
        cut = [shortened(rows, bound) for rows in groups]
        self.kept.append((step, np.stack([rows.T @ rows for rows in cut]), limit))
        return np.stack([(0.5 + 0.1 * k) * N * np.eye(q) for k in range(len(groups))]), 0.01

    def taken(self):
        found, self.kept = self.kept, []
        return found


def stubbed_files(monkeypatch):
    """No private report, no wait for the disk, and no calibration twice."""
    made = manifest.software()
    monkeypatch.setattr(manifest, "software", lambda: made)
    monkeypatch.setattr(private_report, "page_or_reason", lambda *_: "")
    monkeypatch.setattr(os, "fsync", lambda _: None)
    # Functions of the budget alone, unless something of a record came to them: called once for equal arguments.
    monkeypatch.setattr(mechanisms.Gaussian, "for_release", once(mechanisms.Gaussian.for_release))
    monkeypatch.setattr(roc, "auc_ceiling", once(roc.auc_ceiling))


@pytest.fixture
def noise(monkeypatch):
    monkeypatch.setattr(writing, "DRAWS", 60)
    monkeypatch.setattr(writing, "STEPS", 5)
    stubbed_files(monkeypatch)
    stub = StubbedNoise(monkeypatch)
    # Functions of released numbers alone, which take most of the time: called once for equal arguments.
    monkeypatch.setattr(projected.ProjectedGauss, "plan", once(projected.ProjectedGauss.plan))
    monkeypatch.setattr(projected.ProjectedGauss, "_mixture", once(projected.ProjectedGauss._mixture))
    monkeypatch.setattr(projected.ProjectedGauss, "_correction", once(projected.ProjectedGauss._correction))
    monkeypatch.setattr(writing, "synthetic_features", once(writing.synthetic_features))
    return stub


def once(function):
    """The function, with results kept by the values of all arguments."""
    kept = {}

    def called(*arguments, **options):
        leaves, structure = jax.tree.flatten((arguments, options))
        texts = [
            leaf
            if isinstance(leaf, Schema)
            else repr(jax.random.key_data(leaf) if is_key(leaf) else np.asarray(leaf).tolist())
            for leaf in leaves
        ]
        identity = (structure, *texts)
        if identity not in kept:
            kept[identity] = function(*arguments, **options)
        return kept[identity]

    return called


def is_key(leaf):
    return isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def published(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def close(kept, others):
    """Sums that noise is added to, within the sensitivity of each other."""
    assert [step for step, _, _ in kept] == [step for step, _, _ in others]
    for (step, value, limit), (_, other, _) in zip(kept, others, strict=True):
        assert np.linalg.norm(value - other) <= limit * (1 + 1e-9), step


SETTINGS = {
    "csv": {"target": "rich"},
    "csv, a target of numbers": {"target": "pay", "neighbouring": "zero_out"},
    "csv, no target": {"epsilon": 0.01, "n_synthetic": 30, "n_components": 2},
    "csv, the number of records is private": {"target": "rich", "neighbouring": "add_or_remove", "n_synthetic": N},
    "csv, random directions": {"target": "rich", "method": "ron-gauss"},
    "csv, Laplace noise": {"target": "rich", "delta": 0.0},
    "csv, public records": {"target": "rich", "public": "public.csv", "bounds": None},
    "parquet": {"target": "rich"},
    "parquet, no target": {"n_synthetic": 30, "n_components": 2},
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_synthetic_table_shows_nothing_of_one_record_but_what_is_noised(setting, tmp_path, noise):
    rng = np.random.default_rng(sum(map(ord, setting)))
    suffix = ".parquet" if setting.startswith("parquet") else ".csv"
    rows = usual(rng, N)
    as_csv(tmp_path / "public.csv", usual(rng, 40))
    write, odd = (as_csv, ODD) if suffix == ".csv" else (as_parquet, VALUES)
    another = usual if suffix == ".csv" else lambda rng, n: typed(usual(rng, n))
    rows = rows if suffix == ".csv" else typed(rows)
    (tmp_path / "bounds.json").write_text(json.dumps(BOUNDS))
    fields = {"epsilon": 1.0, "bounds": tmp_path / "bounds.json", "trials": 0, **SETTINGS[setting]}
    if "public" in fields:
        fields["public"] = tmp_path / "public.csv"
    config = SyntheticReleaseConfig(data=tmp_path / f"private{suffix}", **fields)
    write(config.data, rows)
    release_synthetic(config, tmp_path / "first")
    expected, sums = published(tmp_path / "first"), noise.taken()
    assert len(expected) == 3
    for i, table in enumerate(neighbours(rng, rows, odd, PAIRS, another)):
        if config.neighbouring == "add_or_remove":
            table = [*rows, table[0]] if i % 2 else [row for j, row in enumerate(rows) if j != i % N]
        write(config.data, table)
        release_synthetic(config, tmp_path / f"out{i}")
        differing = [name for name, blob in published(tmp_path / f"out{i}").items() if blob != expected[name]]
        changed = [pair for pair in itertools.zip_longest(rows, table) if pair[0] != pair[1]]
        assert not differing, changed
        close(sums, noise.taken())
    assert i + 1 == PAIRS


def unchecked(*cells):
    stored = pa.array(cells, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(stored), stored.buffers())


@pytest.mark.parametrize("kind", ["fixed width", "text", "identifier"])
def test_bytes_of_one_record_that_are_no_text_show_in_nothing(kind, tmp_path, noise):
    def column(*cells):
        if kind == "text":
            return unchecked(*cells)
        found = pa.array([cell.ljust(16, b"x") for cell in cells], pa.binary(16))
        return found if kind == "fixed width" else pa.ExtensionArray.from_storage(pa.uuid(), found)

    rows, padded = typed(usual(np.random.default_rng(0), N)), kind != "text"
    categories = [cell.ljust(16, "x") if padded else cell for cell in BOUNDS["work"]]
    (tmp_path / "bounds.json").write_text(json.dumps({**BOUNDS, "work": categories}))
    fields = {"epsilon": 1.0, "bounds": tmp_path / "bounds.json", "trials": 0, "target": "rich"}
    config = SyntheticReleaseConfig(data=tmp_path / "p.parquet", **fields)
    found = []
    for odd in (b"no", b"\xff\xfe"):
        columns = dict(zip(BOUNDS, zip(*rows, strict=True), strict=True))
        columns["work"] = column(odd, *(cell.encode() for cell in columns["work"][1:]))
        pyarrow.parquet.write_table(pa.table(columns), config.data)
        release_synthetic(config, tmp_path / f"out{len(found)}")
        found.append((published(tmp_path / f"out{len(found)}"), noise.taken()))
    assert found[0][0] == found[1][0]
    close(found[0][1], found[1][1])


def test_an_empty_line_of_a_table_of_one_column_is_a_record(tmp_path, noise):
    (tmp_path / "bounds.json").write_text(json.dumps({"age": [0, 120]}))
    config = SyntheticReleaseConfig(data=tmp_path / "p.csv", epsilon=1.0, bounds=tmp_path / "bounds.json", trials=0)
    found = []
    for cell in ("37", ""):
        config.data.write_text("\n".join(["age", *["40"] * N, cell, "50"]) + "\n")
        release_synthetic(config, tmp_path / f"out{len(found)}")
        found.append((published(tmp_path / f"out{len(found)}"), noise.taken()))
    assert found[0][0] == found[1][0]
    close(found[0][1], found[1][1])


COLUMNS = ("age", "pay", "score")
RANGES = {"age": [0, 120], "pay": [0, 10], "score": [-1, 1]}
ODD_NUMBERS = dict.fromkeys(COLUMNS, NUMBERS)
ODD_VALUES = {
    "age": VALUES["age"],
    "pay": VALUES["pay"],
    "score": (0.5, 0, None, -3e300, 1e-320, float("-inf"), "0.25", "x"),
}
PCA_SETTINGS = {
    "csv": {},
    "csv, standardised": {"standardise": True, "neighbouring": "zero_out"},
    "csv, the number of records is private": {"neighbouring": "add_or_remove", "divisor": 9.0},
    "csv, Laplace noise": {"delta": 0.0},
    "csv, Laplace noise by entries": {"mechanism": "laplace-vector"},
    "csv, public records": {"public": "public.csv", "bounds": None},
    "csv, a share of the energy": {"n_components": 0.9, "mechanism": "analyze-gauss"},
    "parquet": {},
    "npy": {},
}


def numbers(rng, n):
    columns = rng.integers(18, 80, n), rng.uniform(0, 10, n).round(1), rng.uniform(-1, 1, n).round(3)
    return np.stack(columns, axis=1).tolist()


class StubbedMoment:
    """Stands for the noised matrix of a PCA: keeps the matrix that noise would be added to."""

    def __init__(self, monkeypatch):
        self.kept, self.limits = [], []
        change = dp_pca_sensitivity.whole_change
        monkeypatch.setattr(dp_pca_sensitivity, "whole_gram", self.whole_gram)
        monkeypatch.setattr(
            dp_pca_sensitivity, "whole_change", lambda *given: self.limits.append(change(*given)) or self.limits[-1]
        )
        for module in (dp_pca, dp_pca_laplace):
            for name in ("discrete_gaussian", "discrete_laplace"):
                if hasattr(module, name):
                    monkeypatch.setattr(module, name, lambda _, shape: np.zeros(shape, np.int64))

    def whole_gram(self, rows):
        self.kept.append(rows.T.astype(object) @ rows.astype(object))
        return (np.eye(rows.shape[1], dtype=int) * np.arange(9, 9 - rows.shape[1], -1) * 10**15).astype(object)

    def taken(self):
        found, self.kept = self.kept, []
        return found


@pytest.mark.parametrize("setting", PCA_SETTINGS)
def test_components_show_nothing_of_one_record_but_what_is_noised(setting, tmp_path, monkeypatch):
    stubbed_files(monkeypatch)
    stub = StubbedMoment(monkeypatch)
    rng = np.random.default_rng(sum(map(ord, setting)))
    suffix = f".{setting.split(',')[0]}"
    rows = numbers(rng, N)
    as_csv(tmp_path / "public.csv", numbers(rng, 40), COLUMNS)
    (tmp_path / "bounds.json").write_text(
        json.dumps(RANGES if suffix != ".npy" else {"lower": [0, 0, -1], "upper": [120, 10, 1]})
    )
    fields = {
        "epsilon": 1.0,
        "n_components": 2,
        "bounds": tmp_path / "bounds.json",
        "trials": 0,
        **PCA_SETTINGS[setting],
    }
    if "public" in fields:
        fields["public"] = tmp_path / "public.csv"
    config = PCAReleaseConfig(data=tmp_path / f"private{suffix}", **fields)
    write = {".csv": as_csv, ".parquet": as_parquet, ".npy": as_npy}[suffix]
    odd = ODD_NUMBERS if suffix == ".csv" else ODD_VALUES
    if suffix == ".npy":
        odd = {name: [v for v in cells if not isinstance(v, str)] for name, cells in ODD_VALUES.items()}
    write(config.data, rows, COLUMNS)
    release_pca(config, tmp_path / "first")
    expected, matrix = published(tmp_path / "first"), stub.taken()[-1]
    assert len(expected) == 2
    for i, table in enumerate(neighbours(rng, rows, odd, PAIRS, numbers)):
        if config.neighbouring == "add_or_remove":
            table = [*rows, table[0]] if i % 2 else [row for j, row in enumerate(rows) if j != i % N]
        write(config.data, table, COLUMNS)
        release_pca(config, tmp_path / f"out{i}")
        differing = [name for name, blob in published(tmp_path / f"out{i}").items() if blob != expected[name]]
        assert not differing, [pair for pair in itertools.zip_longest(rows, table) if pair[0] != pair[1]]
        apart = int(((stub.taken()[-1] - matrix) ** 2).sum())
        # Of whole numbers, so exact; Laplace noise goes by the entries, which tests of the mechanism hold.
        if stub.limits:
            steps = 2 if config.neighbouring == "zero_out" else 1
            assert apart <= stub.limits[-1] * steps**2
    assert i + 1 == PAIRS


def test_the_pairs_are_two_thousand():
    assert PAIRS * (len(SETTINGS) + len(PCA_SETTINGS)) >= 2000


def test_a_difference_of_kinds_would_be_found(tmp_path, noise, monkeypatch):
    """The test above has teeth: reading whether numbers are whole off the records makes it fail."""
    (tmp_path / "bounds.json").write_text(json.dumps(BOUNDS))
    config = SyntheticReleaseConfig(data=tmp_path / "p.csv", epsilon=1.0, bounds=tmp_path / "bounds.json", trials=0)
    rows = usual(np.random.default_rng(0), N)
    found = []
    for cell in ("37", "37.5"):
        as_csv(config.data, [[cell, *rows[0][1:]], *rows[1:]])
        whole = all(number.is_integer() for number in table_cells.cell_numbers(pa.chunked_array([[cell]])))
        monkeypatch.setitem(BOUNDS, "age", {"lower": 0, "upper": 120, "kind": "integer" if whole else "number"})
        (tmp_path / "bounds.json").write_text(json.dumps(BOUNDS))
        release_synthetic(config, tmp_path / cell)
        found.append(published(tmp_path / cell))
    assert {name for name in found[0] if found[0][name] != found[1][name]} == {
        "manifest.json", "schema.json", "synthetic.csv"
    }  # fmt: skip
    assert noise.taken()
