"""The store: complete files, entries, measurements, verdicts."""
