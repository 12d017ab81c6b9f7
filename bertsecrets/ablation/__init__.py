"""Exact logits of a classifier with heads disabled, without redundant computation."""
