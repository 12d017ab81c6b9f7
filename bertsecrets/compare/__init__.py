"""Comparisons: two models, a model and its pin, two runs, and the verdicts on one claim over time."""
