"""The store of entries and measurements, atomic writes, locks, and digests of the code."""
