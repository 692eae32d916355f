"""Contracts, eager checks, the single fan-out and linear algebra; imports nothing else of drjax."""
