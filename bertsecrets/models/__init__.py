"""Encoders and classifiers: where they are, how they are opened, encoded for, trained and observed."""
