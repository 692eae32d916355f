"""Attacks on maps that minimise something: what the vanishing gradient says of the target."""

from drjax.attacks.reconstruction.stationarity.mds import calibrate, reconstruct_mds, target_distances

__all__ = ["calibrate", "reconstruct_mds", "target_distances"]
