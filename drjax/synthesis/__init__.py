"""Synthetic data with a proof: private releases of data sets, what they are compared with, what they are worth."""
