"""Comparisons of two models, of a model with its pin, and of two runs."""
