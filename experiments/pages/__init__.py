"""Figures of the pages that belong to no other experiment."""
