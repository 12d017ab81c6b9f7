"""What is kept: files that appear whole, entries of a store, measurements, the last verdicts."""
