"""Measurements of memory begin with a walk over all objects: those of the tests before are left out of it."""

import gc

import pytest


@pytest.fixture(autouse=True)
def _walk_over_own_objects_alone():
    gc.freeze()
