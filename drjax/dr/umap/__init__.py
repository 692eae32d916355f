"""UMAP: graph, start and optimiser for each kind of device, and umap-learn itself for comparison."""
