"""Published maps of many kinds, and what the attacks leave of them."""
