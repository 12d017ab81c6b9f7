"""The measures of the paper. Each module contains one measure with its options, observer and charts.

The name of a measure is that of its module, so `attention-change` is in `attention_change.py`.
"""
