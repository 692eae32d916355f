"""Reports: result records with provenance, figures, the attack ladder with its verdict, sections as data, one page."""
