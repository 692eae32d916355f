"""How often intervals of reconstructed features hold the truth."""
