"""Dimensionality-reduction methods: one file each, one line each in `METHODS`."""
