"""Exact logits of a classifier while some heads are disabled, computed without redundant work."""
