"""Flax networks: reconstructors, networks on plots and maps, the classifiers under attack, and one training loop."""
