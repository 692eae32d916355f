"""PCA and truncated SVD: one more record by a rank-one update, and leading components of many data sets at once."""
