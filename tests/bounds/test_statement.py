"""A guarantee as a person states it: what each option means, and which do not go together."""

import pytest

from drjax.bounds import tradeoff
from drjax.bounds.statement import Mechanism


@pytest.mark.parametrize(
    ("given", "curve"),
    [
        ({"mu": 1.5}, tradeoff.Gaussian(1.5)),
        ({"epsilon": 2.0, "delta": 1e-5}, tradeoff.EpsilonDelta(2.0, 1e-5)),
        ({"epsilon": 2.0}, tradeoff.EpsilonDelta(2.0, 0.0)),
        ({"rho": 0.5}, tradeoff.ZCDP(0.5)),
        ({"laplace": 0.1}, tradeoff.Laplace(0.1)),
    ],
)
def test_numbers_are_taken_as_claimed(given, curve):
    found = Mechanism(**given).guarantee()
    assert found.curve == found.target_curve == curve


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "must be one of .*; got none"),
        ({"mu": 1.0, "rho": 1.0}, "got mu and rho"),
        ({"mu": 1.0, "delta": 1e-5}, "delta must be left out without --epsilon, got 1e-05"),
        ({"mu": 1.0, "steps": 2}, "steps, rate and shuffled must be left out with --mu"),
        ({"rho": 1.0, "rate": 0.5}, "steps, rate and shuffled must be left out with --rho"),
        ({"laplace": 1.0, "shuffled": True}, "steps, rate and shuffled must be left out with --laplace"),
        ({"noise_multiplier": 1.0}, "neighbouring must be given with --noise-multiplier"),
    ],
)
def test_what_does_not_go_together_is_refused(given, message):
    with pytest.raises(ValueError, match=message):
        Mechanism(**given).guarantee()
