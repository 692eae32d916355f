"""Reports: result records with provenance, figures, the attack ladder with its verdict, one self-contained page."""
