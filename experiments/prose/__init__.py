"""Figures in the sentences of the pages: one module for each folder of docs/."""
