"""Comparisons: two models, a model and its pin, two runs."""
