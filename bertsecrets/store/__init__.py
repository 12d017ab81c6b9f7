"""The store, with atomic writes, locks and digests of the code. It contains entries and measurements."""
