"""Training and evaluation of classifiers of attention patterns."""
