"""Attention patterns (K19, Kovaleva et al. 2019, section 4.1): classification of attention maps into five classes.

This package contains the map features, the classifier, its evaluation on held-out heads, and corrected class shares.
Annotation, training and comparison of classifiers are in `bertsecrets.lab`.
"""
