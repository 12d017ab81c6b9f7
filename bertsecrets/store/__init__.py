"""Everything that is stored: complete files, the entries of a store, measurements, the last verdicts."""
