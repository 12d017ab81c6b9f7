"""Measures from the paper and from related work. Each module defines one measure with its options and charts.

A module is named after its measure, with underscores: the measure `attention-change` is in `attention_change.py`.
"""
