"""Training and evaluation of attention-pattern classifiers."""
