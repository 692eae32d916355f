"""Paper 004: informed adversaries against trained models, factor by factor, RecoNN and inversion side by side."""
