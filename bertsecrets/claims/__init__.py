"""The claims of K19 (Kovaleva et al. 2019) as data, and the judge that compares measurements with them."""
