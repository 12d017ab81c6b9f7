"""Encoders and classifiers: locating, opening and training them, encoding inputs, and reading attention."""
