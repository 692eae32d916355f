"""Paper 001: membership inference against PCA, and differentially private PCA, on its four data sets."""
