"""Drift: whether a model still behaves as another, or as it did when it was pinned."""
