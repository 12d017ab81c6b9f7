"""Attention patterns (K19, Kovaleva et al. 2019, section 4.1): the five classes of attention maps, and their shares.

Features of a map, the classifier and its quality on held-out heads, corrected shares. `bertsecrets.lab` has the
annotation of maps, the comparison of classifiers and their training.
"""
