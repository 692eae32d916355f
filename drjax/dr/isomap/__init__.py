"""Isomap: neighbourhood graphs, shortest paths, and what one more record does to both."""
