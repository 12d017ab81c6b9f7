"""The measures of the paper. Each module contains one measure with its options, observer and charts.

A measure is registered in its own module, under the module's name: `attention-change` is in `attention_change.py`.
"""
