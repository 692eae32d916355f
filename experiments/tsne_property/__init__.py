"""Property inference on t-SNE plots: paper 003 on the data at hand."""
