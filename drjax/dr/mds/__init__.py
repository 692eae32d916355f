"""Multidimensional scaling: metric by SMACOF, and classical."""
