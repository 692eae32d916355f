"""Paper 002: PCA-Gauss and the methods that it is compared with, on its three tasks."""
