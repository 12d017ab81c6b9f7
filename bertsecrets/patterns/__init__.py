"""Attention patterns (K19, Kovaleva et al. 2019, section 4.1): classification of attention maps into five classes.

This package contains the features of maps, the classifier, its recorded quality, and corrected class shares.
"""
