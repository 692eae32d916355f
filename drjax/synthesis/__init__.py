"""Synthetic data with a proof: private releases of data sets, and what they are worth."""
