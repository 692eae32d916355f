"""Property inference from two-dimensional maps: which share of the mapped records has a property."""
