"""Known records, precision of the release, prior and bounds of the closed-form attack on PCA."""
