import dataclasses
import hashlib
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import drjax
from drjax.attacks.metrics import AttackScores
from drjax.core.statistics import Interval
from drjax.core.types import Status
from drjax.reports import records

# "NaN" and the like are documented to come back as floats, so free text leaves them out.
TEXT = st.text(max_size=8).filter(lambda text: text not in ("NaN", "Infinity", "-Infinity"))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


def same(a, b):
    """Equality that takes nan as equal to nan and tells -0.0 from 0.0."""
    return repr(a) == repr(b)


@dataclasses.dataclass(frozen=True)
class Wide:
    width: int = 3
    rates: tuple[float, ...] = (0.1, 1e-9)


@dataclasses.dataclass(frozen=True)
class Deep:
    width: int = 3
    rates: tuple[float, ...] = (0.1, 1e-9)


@dataclasses.dataclass(frozen=True)
class Config:
    method: object
    seed: int = 0
    folder: Path = Path("a")


class Pair(NamedTuple):
    first: float
    second: object


@given(value=VALUES)
def test_every_json_value_and_special_float_survives_the_round_trip(value, tmp_path_factory):
    path = tmp_path_factory.mktemp("records") / "r.jsonl"
    put = records.put_record(path, "run", "audit", value=value)
    assert same(put["value"], value)
    assert same(records.read_records(path), [put])


def test_special_floats_are_written_as_strict_json(tmp_path):
    path = tmp_path / "r.jsonl"
    records.put_record(path, "attack", "ridge", a=math.nan, b=[np.float32(np.inf), -math.inf])
    records.gather_records(path)

    def refuse(constant):
        raise ValueError(constant)

    parsed = json.loads(path.read_text(), parse_constant=refuse)
    assert parsed["a"] == "NaN"
    assert parsed["b"] == ["Infinity", "-Infinity"]
    (read,) = records.read_records(path)
    assert math.isnan(read["a"])
    assert read["b"] == [math.inf, -math.inf]


def test_scores_arrays_scalars_enums_and_paths_become_plain_json():
    half = Interval(0.5, 0.25, math.nan)
    scores = AttackScores(10, 1, half, half, half, half, 0.001, 0.2)
    encoded = records.to_json(scores)
    assert encoded["mse"] == {"estimate": 0.5, "low": 0.25, "high": "NaN"}
    assert list(encoded) == [field.name for field in dataclasses.fields(AttackScores)]
    assert records.to_json({"n": np.int32(3), "x": np.arange(4).reshape(2, 2), "y": jnp.ones(2, jnp.bfloat16)}) == {
        "n": 3,
        "x": [[0, 1], [2, 3]],
        "y": [1.0, 1.0],
    }
    assert records.to_json([Status.DEGENERATE | Status.SIGN_TIE, Path("a") / "b", np.bool_(True), Pair(1.0, (2,))]) == [
        20,
        os.path.join("a", "b"),
        True,
        {"first": 1.0, "second": [2]},
    ]


@pytest.mark.parametrize("bad", [object(), {1: "a"}, 1j, b"bytes", {1, 2}])
def test_a_value_without_a_json_form_is_refused_before_anything_is_written(bad, tmp_path):
    path = tmp_path / "r.jsonl"
    with pytest.raises(ValueError, match="must"):
        records.put_record(path, "run", "audit", value=bad)
    assert os.listdir(tmp_path) == []


def test_a_key_is_refused_with_advice():
    with pytest.raises(ValueError, match="seed"):
        records.to_json({"key": jax.random.key(0)})


def test_unknown_kinds_and_reserved_names_are_refused(tmp_path):
    with pytest.raises(ValueError, match="kind must be one of attack, curve, option, quality, run, stage, status"):
        records.put_record(tmp_path / "r.jsonl", "result", "a")
    with pytest.raises(ValueError, match="schema"):
        records.put_record(tmp_path / "r.jsonl", "run", "a", schema=7)


def test_records_carry_kind_and_schema_and_come_by_kind_and_cell_whoever_wrote_them_first(tmp_path):
    path = tmp_path / "r.jsonl"
    cells = [(kind, f"{i:03d} Ridge/ü") for kind in records.KINDS for i in (1, 2, 10)]
    for kind, cell in reversed(cells):
        records.put_record(path, kind, cell, cell=cell)
    read = records.read_records(path)
    assert [(r["kind"], r["cell"], r["schema"]) for r in read] == [(*c, records.SCHEMA_VERSION) for c in cells]
    assert not path.exists()
    assert records.gather_records(path) == read
    assert [json.loads(line)["cell"] for line in path.read_text("utf-8").splitlines()] == [cell for _, cell in cells]
    assert records.read_records(path) == read


def test_the_first_record_of_a_cell_stays_and_is_what_later_ones_are_told(tmp_path):
    path = tmp_path / "r.jsonl"
    assert records.find_record(path, "attack", "ridge") is None
    first = records.put_record(path, "attack", "ridge", i=0)
    assert records.put_record(path, "attack", "ridge", i=1) == first
    assert records.put_record(path, "stage", "ridge", i=2)["i"] == 2
    assert records.find_record(path, "attack", "ridge") == first
    assert [r["i"] for r in records.gather_records(path)] == [2, 0]


def test_lines_without_cells_come_first_and_stay_as_they_are(tmp_path):
    path = tmp_path / "r.jsonl"
    old = b'{"schema": 1, "kind": "run", "i":  0}\n{"schema": 1, "kind": "attack", "i": 1}\n'
    path.write_bytes(old + b'{"schema": 1, "ki')  # torn by a kill of an earlier version
    records.put_record(path, "attack", "b", i=3)
    records.put_record(path, "attack", "a", i=2)
    for _ in range(2):
        assert [r["i"] for r in records.gather_records(path)] == [0, 1, 2, 3]
        assert path.read_bytes().startswith(old)
        assert path.read_bytes().count(b"\n") == 4
    records.put_record(path, "attack", "aa", i=4)
    assert [r["i"] for r in records.read_records(path)] == [0, 1, 2, 4, 3]


def test_a_file_that_is_gathered_again_without_news_is_not_written(tmp_path):
    path = tmp_path / "r.jsonl"
    records.put_record(path, "run", "a")
    records.gather_records(path)
    os.utime(path, (0, 0))
    records.gather_records(path)
    assert path.stat().st_mtime == 0


def test_cells_with_the_same_content_are_records_of_their_own(tmp_path):
    path = tmp_path / "r.jsonl"
    for cell in "ab":
        records.put_record(path, "status", cell, i=0)
    assert [len(records.gather_records(path)) for _ in range(2)] == [2, 2]


def test_files_in_one_folder_keep_their_cells_apart(tmp_path):
    records.put_record(tmp_path / "a.jsonl", "run", "x", i=0)
    records.put_record(tmp_path / "b.jsonl", "run", "x", i=1)
    assert [records.gather_records(tmp_path / name)[0]["i"] for name in ("a.jsonl", "b.jsonl")] == [0, 1]


def test_records_of_nothing_are_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        records.read_records(tmp_path / "r.jsonl")


@pytest.mark.parametrize("content", [b"", b'{"schema": 1}\n', b"{not json}\n"])
def test_a_damaged_cell_is_an_error_that_names_it(content, tmp_path):
    path = tmp_path / "r.jsonl"
    records.put_record(path, "run", "audit")
    (cell,) = (tmp_path / "r.cells").iterdir()
    cell.write_bytes(content)
    with pytest.raises(ValueError, match=r"0-run-audit\.json"):
        records.read_records(path)


WRITERS = """
import os, sys
from drjax.reports import records

# Importing once is what takes time. Children that find the pipe closed start together.
read, write = os.pipe()
for who in range(8):
    if os.fork() == 0:
        os.close(write)
        os.read(read, 1)
        for i in range(50):
            records.put_record(sys.argv[1], "attack", f"{who} {i}", who=who, i=i, text="x" * 3000)
        records.gather_records(sys.argv[1])
        os._exit(0)
os.close(write)
assert [os.wait()[1] for _ in range(8)] == [0] * 8
"""


def test_eight_processes_of_fifty_records_lose_none(tmp_path):
    # One file that all of them appended to kept 199 to 393 of these 400, and every process said that all was well.
    path = tmp_path / "r.jsonl"
    subprocess.run([sys.executable, "-c", WRITERS, str(path)], check=True, timeout=120)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert sorted((r["who"], r["i"]) for r in lines) == [(who, i) for who in range(8) for i in range(50)]
    assert sorted(os.listdir(tmp_path)) == ["r.cells", "r.jsonl"]
    assert len(os.listdir(tmp_path / "r.cells")) == 400


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{not json}", "bad line 2"),
        (b"[1, 2]", "line 2"),
        (b'{"kind": "run"}', "line 2"),
        (b'{"schema": 99, "kind": "run"}', "newer drjax"),
        (b'{"schema": "x", "kind": "run"}', "schema version"),
        (b"\xff\xfe", "bad line 2"),
    ],
)
def test_a_complete_line_that_is_no_record_is_an_error_naming_it(line, message, tmp_path):
    path = tmp_path / "r.jsonl"
    path.write_bytes(b'{"schema": 1, "kind": "run"}\n' + line + b"\n")
    with pytest.raises(ValueError, match=message) as caught:
        records.read_records(path)
    assert "\n" not in str(caught.value)


def test_fingerprints_tell_fields_and_classes_apart():
    configs = [Config(Wide()), Config(Deep()), Config(Wide(4)), Config(Wide(), seed=1), Wide(), Deep()]
    assert len({records.config_fingerprint(config) for config in configs}) == len(configs)
    assert records.config_fingerprint(Config(Wide())) == records.config_fingerprint(Config(Wide(3)))


def test_a_fingerprint_is_the_hash_of_the_canonical_json():
    canonical = '{"__class__":"Wide","rates":[0.1,1e-09],"width":3}'
    assert records.config_fingerprint(Wide()) == hashlib.sha256(canonical.encode()).hexdigest()


@pytest.mark.parametrize("bad", [Wide, {"a": 1}, None])
def test_only_dataclass_instances_have_a_fingerprint(bad):
    with pytest.raises(ValueError, match="config must be a dataclass instance"):
        records.config_fingerprint(bad)


def test_provenance_names_versions_machine_and_seed():
    made = records.provenance(seed=7)
    assert made["drjax"] == drjax.__version__
    assert made["versions"]["jax"] == jax.__version__
    assert made["versions"]["numpy"] == np.__version__
    assert made["backend"] == jax.default_backend()
    assert made["x64"] == (jnp.zeros(1, float).dtype == jnp.float64)
    assert made["seed"] == 7
    assert made["cores"] >= 1
    assert made["utc"].endswith("+00:00")
    json.dumps(records.to_json(made), allow_nan=False)


def git(folder, *arguments):
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    subprocess.run(
        ["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True, env=environment
    )


def provenance_of(root, monkeypatch):
    monkeypatch.setattr(drjax, "__file__", str(root / "drjax" / "__init__.py"))
    return records.provenance()


def test_the_commit_is_that_of_drjax_own_checkout_only(tmp_path, monkeypatch):
    checkout = tmp_path / "outer"
    (checkout / "site-packages").mkdir(parents=True)
    made = provenance_of(checkout, monkeypatch)
    assert (made["commit"], made["dirty"]) == (None, None)
    git(checkout, "init")
    (checkout / "a").write_text("a")
    git(checkout, "add", ".")
    git(checkout, "commit", "-m", "a")
    head = (checkout / ".git" / (checkout / ".git" / "HEAD").read_text().split()[1]).read_text().strip()
    made = provenance_of(checkout, monkeypatch)
    assert (made["commit"], made["dirty"]) == (head, False)
    (checkout / "b").write_text("untracked")
    assert provenance_of(checkout, monkeypatch)["dirty"] is True
    made = provenance_of(checkout / "site-packages", monkeypatch)
    assert (made["commit"], made["dirty"]) == (None, None)


ARRAYS = {
    "b": np.arange(6.0).reshape(2, 3),
    "a": np.float32(3.5),
    "flags": np.array([1, 2], np.uint32),
    "names": np.array(["x", "yü"]),
    "file": np.zeros((0, 4), bool),
}


def test_arrays_come_back_with_value_dtype_and_shape(tmp_path):
    records.save_arrays(tmp_path / "a.npz", **ARRAYS)
    loaded = records.load_arrays(tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz", allow_pickle=False) as by_numpy:
        for name, array in ARRAYS.items():
            for read in (loaded[name], by_numpy[name]):
                np.testing.assert_array_equal(read, array)
                assert (read.dtype, read.shape) == (np.asarray(array).dtype, np.shape(array))


def test_the_same_arrays_give_the_same_bytes_in_any_order_layout_and_process(tmp_path):
    records.save_arrays(tmp_path / "a.npz", x=np.arange(6.0).reshape(2, 3), y=np.arange(3))
    transposed = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    records.save_arrays(tmp_path / "b.npz", y=np.arange(3), x=transposed)
    script = (
        "import sys, numpy as np; from drjax.reports.records import save_arrays;"
        "save_arrays(sys.argv[1], y=np.arange(3), x=np.arange(6.0).reshape(2, 3))"
    )
    subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "c.npz")], check=True, env={**os.environ, "TZ": "Asia/Tokyo"}
    )
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes() == (tmp_path / "c.npz").read_bytes()


@pytest.mark.parametrize("bad", [np.array([{}]), np.ones(2, jnp.bfloat16)])
def test_arrays_that_need_pickle_or_lose_their_type_are_refused(bad, tmp_path):
    with pytest.raises(ValueError, match="x must be a numeric, boolean or text array"):
        records.save_arrays(tmp_path / "a.npz", x=bad)
    assert list(tmp_path.iterdir()) == []


def damaged_files(folder):
    records.save_arrays(folder / "good.npz", x=np.arange(1000.0))
    good = (folder / "good.npz").read_bytes()
    flipped = bytearray(good)
    flipped[len(good) // 2] ^= 1
    np.savez(folder / "pickled.npz", x=np.array([{}], object))
    return {
        "empty": b"",
        "text": b"not an archive",
        "cut": good[: len(good) // 2],
        "flipped": bytes(flipped),
        "pickled": (folder / "pickled.npz").read_bytes(),
    }


def test_damaged_and_pickled_files_are_one_line_errors(tmp_path):
    for name, content in damaged_files(tmp_path).items():
        path = tmp_path / f"{name}.npz"
        path.write_bytes(content)
        with pytest.raises(ValueError, match="path must be an intact npz file without pickled objects") as caught:
            records.load_arrays(path)
        assert "\n" not in str(caught.value)
    with pytest.raises(FileNotFoundError):
        records.load_arrays(tmp_path / "missing.npz")
