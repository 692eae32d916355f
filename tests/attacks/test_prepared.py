"""What methods make of known records, shared by workers: the same bits, whoever made them."""

import jax
import numpy as np
import pytest

from drjax import METHODS, PCA
from drjax.attacks import prepared
from drjax.attacks.prepared import Prepared, name_of
from drjax.attacks.shadow import iter_shadow_embeddings, shadow_batch_size, shadow_embeddings
from drjax.core import streamed
from drjax.core.types import hyperparams

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
KNOWN, TARGETS = RNG.normal(size=(30, 5)), RNG.normal(size=(7, 5))


def coords_of(method, kept, known=KNOWN, **options):
    chunks = iter_shadow_embeddings(KEY, method, known, TARGETS, batch_size=8, kept=kept, **options)
    return np.concatenate([np.asarray(made.coords) for _, made in chunks])


@pytest.fixture
def unsteady(monkeypatch):
    """PCA whose preparation differs from call to call, as with other numbers of threads; and its calls."""
    calls, prepare = [], PCA.prepare

    def other(self, known, **options):
        calls.append(len(calls))
        return prepare(self, known + 1e-3 * len(calls), **options)

    monkeypatch.setattr(PCA, "prepare", other)
    return calls


def test_workers_go_on_from_the_same_bits(tmp_path, unsteady):
    first = coords_of(PCA(), Prepared(tmp_path / "prepared"))
    # Another worker, whose array is a copy.
    second = coords_of(PCA(), Prepared(tmp_path / "prepared"), KNOWN.copy())
    np.testing.assert_array_equal(first, second)
    assert unsteady == [0]
    assert not np.array_equal(first, coords_of(PCA(), Prepared()))


@pytest.mark.parametrize("damage", [lambda _: b"PK", lambda content: content[:200] + b"\0" + content[201:]])
def test_a_damaged_file_is_made_anew(tmp_path, unsteady, damage):
    first = coords_of(PCA(), Prepared(tmp_path))
    [file] = tmp_path.iterdir()
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    second = coords_of(PCA(), Prepared(tmp_path))
    assert unsteady == [0, 1]
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(second, coords_of(PCA(), Prepared(tmp_path)))
    assert [entry.name for entry in tmp_path.iterdir()] == [file.name]


def test_of_two_that_made_the_same_the_first_is_believed_by_both(tmp_path, unsteady, monkeypatch):
    found = []

    def meanwhile(file, beside):
        if not found:
            found.append(None)
            found.append(coords_of(PCA(), Prepared(tmp_path)))
            return None
        return read(file, beside)

    read = prepared._read
    monkeypatch.setattr(prepared, "_read", meanwhile)
    np.testing.assert_array_equal(coords_of(PCA(), Prepared(tmp_path)), found[1])
    assert unsteady == [0, 1]


@pytest.mark.parametrize("name", sorted(METHODS))
def test_every_method_can_be_prepared_by_another(tmp_path, name):
    options = {"randomness": "shared"}
    alone = coords_of(METHODS[name](), Prepared(), **options)
    for _ in range(2):
        np.testing.assert_array_equal(coords_of(METHODS[name](), Prepared(tmp_path), **options), alone)
    assert len(list(tmp_path.iterdir())) == 1


def test_factored_records_are_not_copied(tmp_path, monkeypatch):
    monkeypatch.setattr(streamed, "LEAST_ENTRIES", 1000)  # many, from here on
    known = RNG.normal(size=(3000, 4))
    whole = shadow_embeddings(KEY, PCA(), known, TARGETS[:, :4], factored=True, batch_size=8)
    for _ in range(2):
        [(_, made)] = iter_shadow_embeddings(
            KEY, PCA(), known, TARGETS[:, :4], factored=True, batch_size=8, kept=Prepared(tmp_path)
        )
        np.testing.assert_array_equal(np.asarray(made.coords), np.asarray(whole.coords))
    [file] = tmp_path.iterdir()
    assert file.stat().st_size < known.nbytes / 5


@hyperparams
class Foreign(PCA):
    """A method that is not drjax's: its code may change under the same name."""


def test_what_is_large_or_foreign_stays_in_memory(tmp_path, monkeypatch):
    coords_of(Foreign(), Prepared(tmp_path))
    monkeypatch.setattr(prepared, "STORED_BYTES", 1000)
    coords_of(PCA(), Prepared(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_what_nobody_needs_any_more_is_removed(tmp_path, unsteady):
    kept = Prepared(tmp_path / "prepared")
    for n_calls in (1, 2):
        coords_of(PCA(), kept)
        kept.discard()
        assert len(unsteady) == n_calls
    assert list(tmp_path.iterdir()) == []
    Prepared().discard()


def test_a_seed_that_is_nobodys_leaves_no_file(tmp_path):
    shadow_batch_size(METHODS["srp"](), KNOWN, TARGETS, randomness="shared", kept=Prepared(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_the_name_is_of_all_that_it_depends_on():
    def names():
        return {
            name_of(KNOWN, PCA(), ("float32", False, None)),
            name_of(KNOWN.astype(np.float32), PCA(), ("float32", False, None)),
            name_of(KNOWN[:, ::-1], PCA(), ("float32", False, None)),
            name_of(KNOWN.reshape(15, 10), PCA(), ("float32", False, None)),
            name_of(KNOWN, PCA(n_components=3), ("float32", False, None)),
            name_of(KNOWN, METHODS["svd"](), ("float32", False, None)),
            name_of(KNOWN, PCA(), ("float32", True, None)),
            name_of(KNOWN, PCA(), ("float32", False, b"seed")),
        }

    with jax.enable_x64(True):
        wide = names()
    assert len(wide | names()) == 16
    assert names() == names()
    # However many records are hashed at a time.
    assert name_of(np.asfortranarray(KNOWN), PCA(), ()) == name_of(KNOWN, PCA(), ())
