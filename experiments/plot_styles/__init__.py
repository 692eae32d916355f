"""Scatter plots in the default styles of plotting libraries, and what is read of them."""
