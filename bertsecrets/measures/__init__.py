"""The measures of the paper: one file each, with its options, its observer and its figures.

A measure has the name of its file (`attention-change` is in `attention_change.py`) and is registered there.
"""
