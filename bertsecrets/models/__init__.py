"""Encoders and classifiers: locating, opening and training them, encoding their inputs, reading their attention."""
