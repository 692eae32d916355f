"""Defences: what is done to a release before it is published, as DR methods that wrap one."""

from drjax.defenses.noisy_dr import DEFENSES, InputNoise, OutputNoise, Rounding, defend

__all__ = ["DEFENSES", "InputNoise", "OutputNoise", "Rounding", "defend"]
