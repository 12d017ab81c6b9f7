"""The claims of the paper, K19 (Kovaleva et al. 2019), as data; and the judge of measurements against them."""
