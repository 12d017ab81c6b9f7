"""Classification of attention maps into five pattern classes (K19, Kovaleva et al. 2019, section 4.1).

This package contains the features of maps, the classifiers, the record of their quality, and corrected class shares.
"""
