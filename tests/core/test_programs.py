"""Where compiled programs are kept: what is there already wins, and nothing that goes wrong ends a run."""

import functools
import json
import os
import re
import shutil
import subprocess
import sys
import warnings
from collections import namedtuple
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.compilation_cache.compilation_cache import reset_cache

from drjax.cli import main
from drjax.core import host, named_calls, programs
from drjax.core.compiled import NoCacheWarning
from drjax.core.programs import keep_programs, watched

ROOT = Path(__file__).parents[2]
SETTINGS = (
    "jax_compilation_cache_dir",
    "jax_enable_compilation_cache",
    "jax_persistent_cache_min_compile_time_secs",
    "jax_compilation_cache_max_size",
)


@pytest.fixture
def user(tmp_path, monkeypatch):
    """A user's cache directory, and JAX as it comes."""
    before = {name: getattr(jax.config, name) for name in SETTINGS}
    for name, value in zip(SETTINGS, (None, True, 1.0, -1), strict=True):
        jax.config.update(name, value)
    reset_cache()
    programs._warn.cache_clear()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(programs.VARIABLE)
    yield tmp_path / "cache" / "drjax" / "xla"
    for name, value in before.items():
        jax.config.update(name, value)
    reset_cache()


def settings():
    return {name: getattr(jax.config, name) for name in SETTINGS}


def test_programs_are_kept_for_the_user_alone_and_small_ones_too(user):
    assert keep_programs() == user
    assert user.stat().st_mode & 0o777 == 0o700
    assert settings() == dict(zip(SETTINGS, (str(user), True, 0.0, -1), strict=True))
    assert keep_programs() == user  # again changes nothing
    assert settings()["jax_compilation_cache_dir"] == str(user)


def test_a_script_may_name_the_folder(user, tmp_path):
    assert keep_programs(tmp_path / "own" / "place") == tmp_path / "own" / "place"
    assert settings()["jax_compilation_cache_dir"] == str(tmp_path / "own" / "place")
    assert not user.exists()


def test_what_is_set_already_wins(user, tmp_path):
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "theirs"))
    before = settings()
    assert keep_programs() == keep_programs(tmp_path / "own") == tmp_path / "theirs"
    assert settings() == before
    assert not user.exists()


def test_a_threshold_that_is_set_already_wins(user):
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
    assert keep_programs() == user
    assert settings()["jax_persistent_cache_min_compile_time_secs"] == 0.5


def test_it_is_switched_off_by_drjax_s_variable_and_by_jax_s(user, monkeypatch):
    before = settings()
    with monkeypatch.context() as patch:
        patch.setenv("DRJAX_KEEP_PROGRAMS", "0")
        assert keep_programs() is None
        assert settings() == before
    jax.config.update("jax_enable_compilation_cache", False)
    assert keep_programs() is None
    assert settings()["jax_compilation_cache_dir"] is None
    assert not user.exists()


@pytest.mark.usefixtures("user")
def test_a_switch_that_is_neither_on_nor_off_is_refused(monkeypatch):
    monkeypatch.setenv("DRJAX_KEEP_PROGRAMS", "no")
    with pytest.raises(ValueError, match="DRJAX_KEEP_PROGRAMS must be 0 or 1, got 'no'"):
        keep_programs()


def test_a_folder_that_cannot_be_made_costs_one_line(user, tmp_path):
    (tmp_path / "file").write_text("")
    before = settings()
    with pytest.warns(NoCacheWarning, match="not kept.*Not a directory.*JAX_COMPILATION_CACHE_DIR") as said:
        assert keep_programs(tmp_path / "file" / "x") is None
    assert len(said) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert keep_programs(tmp_path / "file" / "x") is None
    assert settings() == before
    assert not user.exists()


def test_a_folder_that_others_can_write_to_is_not_trusted(user):
    user.mkdir(parents=True)
    user.chmod(0o777)
    with pytest.warns(NoCacheWarning, match="others can write to it"):
        assert keep_programs() is None


def test_a_disk_that_is_nearly_full_keeps_nothing(user, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: namedtuple("Usage", "free")(programs.LEAST_FREE - 1))
    with pytest.warns(NoCacheWarning, match="nearly full"):
        assert keep_programs() is None
    assert list(user.iterdir()) == []


def test_programs_not_used_for_longest_go_when_there_are_too_many(user, monkeypatch):
    user.mkdir(parents=True)
    names = [f"jit_f-{i:064x}-cache" for i in range(8)]
    for age, name in enumerate([*names, "notes.txt"]):
        (user / name).write_bytes(b"x" * 100)
        os.utime(user / name, (1e9 - age, 1e9 - age))
    os.utime(user / names[7], (1e9 + 1, 0))  # the oldest, but read last
    monkeypatch.setattr(programs, "MOST_BYTES", 800)
    keep_programs()
    assert len(list(user.iterdir())) == 9
    jax.config.update("jax_compilation_cache_dir", None)
    monkeypatch.setattr(programs, "MOST_BYTES", 500)
    keep_programs()
    assert {path.name for path in user.iterdir()} == {"notes.txt", names[0], names[1], names[7]}


def doubled(x, factor):
    return factor * x


@pytest.mark.usefixtures("user")
def test_a_program_that_calls_the_host_is_kept_and_found():
    keep_programs()
    x = jnp.arange(3.0)

    def run(factor):
        # A new function each time, so that nothing but the folder can know the program.
        fn = functools.partial(doubled, factor=factor)
        jax.clear_caches()
        with watched() as seen:
            out = jax.jit(lambda x: host.call(fn, x, x) + 1)(x)
        return out.tolist(), seen.compiled, seen.found

    assert run(2.0) == ([1, 3, 5], 1, 0)
    assert run(2.0) == ([1, 3, 5], 0, 1)
    assert run(3.0) == ([1, 4, 7], 1, 0)
    assert run(3.0) == ([1, 4, 7], 0, 1)


CHILD = """
import json
import jax, numpy as np
from drjax.attacks.shadow import shadow_embeddings
from drjax.core.programs import keep_programs, watched
from drjax.dr import Isomap
assert keep_programs() is not None
x = np.random.default_rng(0).normal(size=(18, 3)).astype(np.float32)
with watched() as seen:
    found = shadow_embeddings(jax.random.key(0), Isomap(n_neighbors=4), x[:12], x[12:])
print(json.dumps([seen.compiled, seen.found, found.coords.tolist()]))
"""


def test_a_second_process_compiles_nothing_and_finds_the_same(tmp_path):
    own = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    own |= {"XDG_CACHE_HOME": str(tmp_path), "DRJAX_KEEP_PROGRAMS": "1"}
    told = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", CHILD], cwd=ROOT, env=own, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        told.append(json.loads(done.stdout))
    (compiled, found, coords), again = told
    assert compiled > 0
    assert again == [0, compiled + found, coords]


@pytest.mark.parametrize("is_wanted", [True, False])
def test_the_command_switches_it_on(user, monkeypatch, is_wanted):
    monkeypatch.setenv("DRJAX_KEEP_PROGRAMS", str(int(is_wanted)))
    main(["data", "list"])
    assert settings()["jax_compilation_cache_dir"] == (str(user) if is_wanted else None)


LARGE = re.compile(r"dense<(?:\"0x|\[)[^>]*> : tensor<((?:\d+x)+)\w+>")
"""A constant that is not one number throughout, with its shape."""


def large_constants(text):
    shapes = [[int(size) for size in shape.split("x")[:-1]] for shape in LARGE.findall(text)]
    return [shape for shape in shapes if np.prod(shape) > 8]


@pytest.mark.parametrize("inside", [np.linspace(0, 1, 9, dtype=np.float32), np.linspace(0, 1, 900).reshape(30, 30)])
def test_a_program_with_data_in_it_would_be_noticed(inside):
    x = jnp.ones(inside.shape)
    for constant in (inside, jnp.asarray(inside)):
        found = large_constants(jax.jit(lambda x, constant=constant: x + constant).lower(x).as_text())
        assert found == [list(inside.shape)]
    assert large_constants(jax.jit(lambda x, y: x + y + 1).lower(x, x).as_text()) == []


def test_no_program_of_an_audit_has_records_in_it(tmp_path):
    sizes = ["--n-known", "30", "--n-shadow", "30", "--n-validation", "10", "--n-targets", "5"]
    jax.clear_caches()
    before = jax.config.values["jax_dump_ir_to"]
    jax.config.update("jax_dump_ir_to", str(tmp_path / "ir"))
    try:
        for words in ("--method pca --attack ridge closed-form", "--method isomap --attack geodesics"):
            out = tmp_path / words.split()[1]
            main(["audit", *sizes, *words.split(), "--quiet", "--out", str(out)])
    finally:
        jax.config.update("jax_dump_ir_to", before)
    texts = [path.read_text() for path in (tmp_path / "ir").iterdir()]
    assert len(texts) > 20
    assert any(named_calls.TARGET in text for text in texts)
    assert [large_constants(text) for text in texts if large_constants(text)] == []
