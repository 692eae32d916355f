"""Attacks: shadow releases, reconstruction, and the metrics every attack reports."""
