"""t-SNE and UMAP of drjax and of the reference libraries in distribution."""
