"""Attention patterns (K19, Kovaleva et al. 2019, section 4.1): classification of attention maps into five classes.

This package contains the map features, the classifier, the record of its quality, and corrected class shares.
"""
