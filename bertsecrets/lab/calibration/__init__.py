"""Calibration of the judge: made-up worlds whose truth is known, judged by it as real measurements are."""
