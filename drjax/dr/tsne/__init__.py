"""Exact t-SNE: affinities, and a descent for each kind of device."""
