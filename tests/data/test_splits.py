import dataclasses

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drjax.data import Dataset, Provenance, split


def dataset(groups):
    n = len(groups)
    return Dataset(
        name="made up",
        x=np.zeros((n, 2), np.float32),
        y=None,
        shape=(2,),
        feature_names=None,
        groups=np.asarray(groups),
        provenance=Provenance("", "", {}, ""),
        offset=np.zeros(2),
        scale=np.ones(2),
    )


def sizes(known, shadow, validation, targets):
    return {"n_known": known, "n_shadow": shadow, "n_validation": validation, "n_targets": targets}


# The numbers of records and groups are fixed, because JAX compiles a permutation for each length.
@given(
    seed=st.integers(0, 2**31),
    asked=st.tuples(st.integers(1, 10), st.integers(0, 10), st.integers(0, 10), st.integers(1, 10)),
)
@settings(max_examples=25, derandomize=True)
def test_the_sets_are_disjoint_in_range_and_of_the_sizes_asked_for(seed, asked):
    parts = split(jax.random.key(seed), 40, **sizes(*asked))
    assert tuple(map(len, parts)) == asked
    together = np.concatenate(parts)
    assert len(np.unique(together)) == sum(asked)
    assert together.min() >= 0
    assert together.max() < 40


@given(
    seed=st.integers(0, 2**31),
    others=st.lists(st.integers(0, 23), min_size=36, max_size=36),
    asked=st.tuples(st.integers(1, 6), st.integers(0, 6), st.integers(0, 6), st.integers(1, 6)),
)
@settings(max_examples=25, derandomize=True)
def test_no_group_is_on_two_sides_and_the_sizes_are_met(seed, others, asked):
    # 24 groups are enough for any four sizes up to 6, even where each record that is taken uses up a group.
    groups = np.concatenate([np.arange(24), others])
    parts = split(jax.random.key(seed), dataset(groups), **sizes(*asked))
    assert tuple(map(len, parts)) == asked
    sides = [set(groups[part]) for part in parts]
    assert sum(map(len, sides)) == len(set.union(*sides))
    assert len(np.unique(np.concatenate(parts))) == sum(asked)


def test_known_and_targets_stay_when_the_adversary_gets_more_records():
    groups = np.arange(100) // 2
    for data in (100, dataset(groups)):
        few = split(jax.random.key(3), data, **sizes(10, 5, 5, 10))
        many = split(jax.random.key(3), data, **sizes(10, 40, 20, 10))
        np.testing.assert_array_equal(few.known, many.known)
        np.testing.assert_array_equal(few.targets, many.targets)


def test_the_same_key_gives_the_split_that_it_gave_when_this_was_written_in_both_precisions(dtype):
    del dtype
    parts = split(jax.random.key(0), 12, **sizes(3, 4, 2, 3))
    assert np.concatenate(parts).tolist() == [0, 1, 8, 2, 7, 11, 9, 3, 10, 5, 6, 4]
    grouped = split(jax.random.key(0), dataset(np.arange(12) // 2), **sizes(3, 2, 2, 2))
    assert np.concatenate(grouped).tolist() == [0, 5, 1, 11, 10, 3, 2, 9, 8]


def test_another_key_gives_another_split():
    first, second = (split(jax.random.key(seed), 1000, **sizes(50, 50, 50, 50)) for seed in (0, 1))
    # Two random halves of 50 in 1000 share 2.5 records on average; 20 would be eleven standard deviations off.
    assert len(np.intersect1d(first.known, second.known)) < 20


def test_every_record_is_as_likely_to_be_known_whatever_the_size_of_its_group():
    groups = np.repeat(np.arange(40), [1, 2] * 20)
    hits = np.zeros(len(groups))
    for seed in range(200):
        hits[split(jax.random.key(seed), dataset(groups), **sizes(15, 0, 0, 15)).known] += 1
    # 15 of 60 records: 50 of 200 expected, binomial deviation 6.1; averaged over 20 and 40 records (groups of two
    # move together) below 1.4 each. Cutting or passing over the last pair shifts the expectation by at most 1.
    for size in (1, 2):
        of_size = np.isin(groups, np.flatnonzero(np.bincount(groups) == size))
        assert abs(hits[of_size].mean() - 50) < 6


def test_all_records_can_be_used_where_single_records_fill_the_gaps():
    groups = np.concatenate([np.arange(30), np.repeat([100, 101, 102], 10)])
    parts = split(jax.random.key(5), dataset(groups), **sizes(20, 20, 10, 10))
    assert len(np.unique(np.concatenate(parts))) == 60


def test_too_few_records_are_named_with_what_was_asked_for():
    with pytest.raises(
        ValueError, match=r"199 known \+ 10 targets \+ 5 validation \+ 40 shadow = 254 .* there are 100"
    ):
        split(jax.random.key(0), 100, **sizes(199, 40, 5, 10))


def test_too_few_groups_are_named():
    with pytest.raises(ValueError, match="100 records in 3 groups leave only 0 for shadow"):
        split(jax.random.key(0), dataset(np.arange(100) % 3), **sizes(10, 10, 10, 10))


@pytest.mark.parametrize("bad", [{"n_known": 0}, {"n_targets": 0}, {"n_shadow": -1}, {"n_validation": 1.5}])
def test_sizes_out_of_range_are_named(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        split(jax.random.key(0), 100, **(sizes(10, 10, 10, 10) | bad))


def test_an_old_style_key_is_refused():
    with pytest.raises(ValueError, match=r"jax\.random\.key"):
        split(jax.random.PRNGKey(0), 100, **sizes(10, 10, 10, 10))


def test_a_data_set_without_groups_splits_like_its_number_of_records():
    data = dataclasses.replace(dataset(np.arange(50)), groups=None)
    for a, b in zip(
        split(jax.random.key(2), data, **sizes(5, 5, 5, 5)),
        split(jax.random.key(2), 50, **sizes(5, 5, 5, 5)),
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)
