"""Measures from the paper and from related work. A module contains one measure, with its options and charts.

A measure and its module have the same name: the measure `attention-change` is in `attention_change.py`.
"""
