"""The store: complete files, entries, measurements, and digests of the code."""
