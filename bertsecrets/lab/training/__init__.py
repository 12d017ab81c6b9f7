"""Judging and training the classifier of attention patterns."""
