"""Attacks on embeddings of noisy records under the bound of reconstruction robustness."""
