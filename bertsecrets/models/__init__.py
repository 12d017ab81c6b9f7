"""Encoders and classifiers: location, opening, training, encoding of inputs, and reading of attention."""
