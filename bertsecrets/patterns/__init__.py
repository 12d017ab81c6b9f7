"""Attention patterns (K19, Kovaleva et al. 2019, section 4.1): the five classes of attention maps, and their shares.

This package has what measuring them needs: features of a map, the classifier, corrected shares. `annotation` is the app
in which maps are drawn and labelled; `training` fits classifiers to labelled maps and judges them.
"""
