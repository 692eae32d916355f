"""Groups of records with a prescribed share of a property."""

import dataclasses

import jax
import numpy as np
import pytest

from drjax.attacks.property.groups import GRID, LEVELS, halves, sample_groups
from drjax.data import load

KEY = jax.random.key(3)
FLAGS = np.arange(120) % 3 == 0


def test_every_group_has_distinct_records_and_the_exact_count():
    rows, proportions = sample_groups(KEY, FLAGS, GRID, 37, 2)
    assert rows.shape == (202, 37)
    assert all(len(set(group)) == 37 for group in rows.tolist())
    np.testing.assert_array_equal(FLAGS[rows].mean(axis=1), proportions)
    asked = np.repeat(GRID, 2)
    np.testing.assert_array_equal(np.rint(proportions * 37), np.floor(asked * 37 + 0.5))


@pytest.mark.parametrize("n", [500, 750, 1000])
def test_the_five_levels_are_met_exactly_at_the_papers_sizes(n):
    flags = np.arange(2 * n) % 2 == 0
    np.testing.assert_array_equal(sample_groups(KEY, flags, LEVELS, n, 1).proportions, LEVELS)


def test_a_group_depends_on_the_key_and_its_index_alone():
    few = sample_groups(KEY, FLAGS, (0.25, 0.5), 20, 3)
    more = sample_groups(KEY, FLAGS, (0.25, 0.5, 0.75), 20, 3)
    np.testing.assert_array_equal(more.rows[:6], few.rows)
    assert (sample_groups(jax.random.key(4), FLAGS, (0.25, 0.5), 20, 3).rows != few.rows).any()


def test_records_of_a_side_are_equally_likely_and_in_random_places():
    rows = sample_groups(KEY, FLAGS, (0.5,), 20, 4000).rows
    with_property = np.bincount(rows.ravel(), minlength=120)[FLAGS]
    # 4,000 groups take each of the 40 records with probability 1/4: 1,000 times, standard deviation 27.
    assert np.abs(with_property - 1000).max() < 4.5 * 27.4
    # A share of one half in every column, standard deviation 0.008.
    assert np.abs(FLAGS[rows].mean(axis=0) - 0.5).max() < 4.5 * 0.0079


def test_too_few_records_are_refused_with_their_numbers():
    with pytest.raises(ValueError, match=r"40 records with and 80 without the property; it needs 45 with"):
        sample_groups(KEY, FLAGS, (0.5, 0.9), 50, 1)
    with pytest.raises(ValueError, match="it needs 90 without"):
        sample_groups(KEY, FLAGS, (0.1,), 100, 1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"has_property": FLAGS.astype(int)}, "has_property must be"),
        ({"proportions": ()}, "proportions must name"),
        ({"proportions": (1.2,)}, r"proportions must be in \[0, 1\]"),
        ({"group_size": 0}, "group_size must be an integer"),
        ({"n_per_proportion": 1.5}, "n_per_proportion must be an integer"),
        ({"key": 0}, "key must be a single key"),
    ],
)
def test_bad_arguments_are_refused(changes, message):
    arguments = {"key": KEY, "has_property": FLAGS, "proportions": LEVELS, "group_size": 10, "n_per_proportion": 1}
    with pytest.raises(ValueError, match=message):
        sample_groups(**arguments | changes)


def test_halves_cover_all_records_once():
    shadow, target = halves(KEY, 101)
    assert sorted([*shadow, *target]) == list(range(101))
    assert abs(len(shadow) - len(target)) == 1
    assert (halves(jax.random.key(4), 101)[0][:20] != shadow[:20]).any()


def test_a_person_is_on_one_side_only():
    data = load("digits")
    groups = np.random.default_rng(0).geometric(0.05, size=len(data.x))
    shadow, target = halves(KEY, dataclasses.replace(data, groups=groups))
    assert not set(groups[shadow]) & set(groups[target])
    assert len(shadow) + len(target) == len(groups)
    assert abs(len(shadow) - len(target)) <= np.bincount(groups).max()


def test_halves_are_alike_in_the_property():
    data = load("digits")
    has = data.y == 3
    for side in halves(KEY, data, has):
        assert abs(2 * has[side].sum() - has.sum()) <= 1
        assert abs(2 * len(side) - len(has)) <= 2
    # Few records, where one that is on the wrong side shows.
    for n in range(2, 9):
        for key in jax.random.split(KEY, 4):
            shadow, target = halves(key, n, np.arange(n) % 2 == 0)
            assert abs(sum(shadow % 2) - sum(target % 2)) <= 1
            assert abs(len(shadow) - len(target)) <= 1
    # Persons of 20 records on average, who have the property or not.
    groups = np.random.default_rng(0).geometric(0.05, size=len(data.x))
    has = groups % 3 == 0
    shadow, target = halves(KEY, dataclasses.replace(data, groups=groups), has)
    assert sorted([*shadow, *target]) == list(range(len(has)))
    assert not set(groups[shadow]) & set(groups[target])
    assert abs(int(has[shadow].sum()) - int(has[target].sum())) <= np.bincount(groups[has]).max()
    with pytest.raises(ValueError, match="has_property must be 1797 booleans"):
        halves(KEY, data, has[1:])


def test_one_person_cannot_be_halved():
    with pytest.raises(ValueError, match="persons where they are known, must be an integer >= 2, got 1"):
        halves(KEY, dataclasses.replace(load("digits"), groups=np.zeros(1797, int)))
