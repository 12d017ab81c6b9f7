"""What the paper measures: one file a measure, with its options, its observer and its figures.

A measure is called after its file (`attention-change` lives in `attention_change.py`) and is registered there.
"""
