"""K-means and silhouettes of many synthetic data sets at once, for table II."""
